//! Serves files over HTTP/1.1: those of the disk `files`, if the manifest names it, or else those
//! that are part of the image. On the disk is a file system, or an archive.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use device::BlockDevice;
use fs::NoFileSystem;
use fs::disk::{BUDGET, Disk};
use unikernel::println;
use web::server::{PORT, serve};
use web::site::{Site, Source};

/// The archive of `www`, as it was when the image was built.
const EMBEDDED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/www.tar"));

unikernel::entry!(main);

/// The files, wherever they are.
fn site() -> Result<Site, String> {
    let disk = match appliance::disk("files") {
        Ok(disk) => disk,
        Err(error) if error.is_missing() => return Site::read(Source::Memory(EMBEDDED)),
        Err(error) => return Err(error.to_string()),
    };
    let disk = Disk::new(disk, BUDGET).map_err(|error| error.to_string())?;
    match fs::mount(&disk) {
        Ok(tree) => Ok(Site::Tree(tree)),
        Err(NoFileSystem::Unknown) => {
            let disk: Box<dyn BlockDevice> = Box::new(disk);
            Site::read(Source::Disk(disk.into()))
        }
        Err(error) => Err(error.to_string()),
    }
}

fn main() -> i32 {
    service::run("http", "", |service| async move {
        let site = match site() {
            Ok(site) => site,
            Err(error) => {
                println!("http: files: {error}");
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
