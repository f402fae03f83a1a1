//! Serves an embedded folder over HTTP/1.1.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use http::server::Server;
use net::socket::{Error, Sockets};
use service::Service;
use unikernel::println;

/// HTTP's port.
const PORT: u16 = 80;
/// Connections that may wait to be accepted.
const BACKLOG: usize = 512;

unikernel::entry!(main);

fn main() -> i32 {
    service::run("http", "", |service| async move {
        match serve(service).await {
            Ok(()) => 0,
            Err(error) => {
                println!("http: port {PORT}: {error}");
                1
            }
        }
    })
}

async fn serve(service: Service) -> Result<(), Error> {
    let listener = service.net.listen(([0; 4], PORT).into(), BACKLOG)?;
    let server = Server {
        clock: service.clock,
        wall: unikernel::wall,
    };
    server.serve(listener, service.spawner).await
}
