//! An authoritative server of an embedded zone.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use net::dns::PORT;
use unikernel::println;
use zone::server::serve;
use zone::{Record, Zone};

/// The file `zone`, as it was when the image was built.
const RECORDS: &[Record<'_>] = include!(concat!(env!("OUT_DIR"), "/zone.rs"));

unikernel::entry!(main);

fn main() -> i32 {
    service::run("dns", "", |service| async move {
        let zone = match Zone::new(RECORDS) {
            Ok(zone) => zone,
            Err(error) => {
                println!("dns: the zone: {error}");
                return 1;
            }
        };
        match serve(service.net, zone, service.clock, service.spawner).await {
            Ok(()) => 0,
            Err(error) => {
                println!("dns: port {PORT}: {error}");
                1
            }
        }
    })
}
