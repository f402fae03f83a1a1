//! An authoritative server of an embedded zone.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use dns::server::{connections, datagrams};
use net::dns::PORT;
use net::socket::{Error, Sockets};
use service::Service;
use unikernel::println;

/// Connections that may wait to be accepted.
const BACKLOG: usize = 128;

unikernel::entry!(main);

fn main() -> i32 {
    service::run("dns", "", |service| async move {
        match serve(service).await {
            Ok(()) => 0,
            Err(error) => {
                println!("dns: port {PORT}: {error}");
                1
            }
        }
    })
}

async fn serve(service: Service) -> Result<(), Error> {
    let local = ([0; 4], PORT).into();
    let listener = service.net.listen(local, BACKLOG)?;
    let socket = service.net.bind(local)?;
    service.spawner.spawn(async move {
        // Nothing ends it.
        let _ = datagrams(socket).await;
    });
    connections(listener, service.clock, service.spawner).await
}
