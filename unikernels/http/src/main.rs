//! Serves files over HTTP/1.1: those of the disk `files`, if the manifest names it, or else those
//! that are part of the image.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use unikernel::println;
use web::server::{PORT, serve};
use web::site::{Site, Source};

/// The archive of `www`, as it was when the image was built.
const EMBEDDED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/www.tar"));

unikernel::entry!(main);

fn main() -> i32 {
    service::run("http", "", |service| async move {
        let source = match unikernel::block("files") {
            Ok(disk) => Source::Disk(disk.into()),
            Err(_) => Source::Memory(EMBEDDED),
        };
        let site = match Site::read(source) {
            Ok(site) => site,
            Err(error) => {
                println!("http: the archive of files: {error}");
                return 1;
            }
        };
        let (clock, spawner) = (service.clock, service.spawner);
        match serve(service.net, site, clock, unikernel::wall, spawner).await {
            Ok(()) => 0,
            Err(error) => {
                println!("http: port {PORT}: {error}");
                1
            }
        }
    })
}
