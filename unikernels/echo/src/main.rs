//! Sends back what it receives, over TCP (RFC 862).

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

extern crate alloc;

use net::socket::{Error, Listener, Sockets, Stream};
use service::Service;
use unikernel::println;

/// The port of RFC 862.
const PORT: u16 = 7;
/// Connections that may wait to be accepted.
const BACKLOG: usize = 128;
/// Bytes that are read at a time.
const CHUNK: usize = 16 << 10;

unikernel::entry!(main);

fn main() -> i32 {
    service::run("echo", "", |service| async move {
        match serve(service).await {
            Ok(()) => 0,
            Err(error) => {
                println!("echo: port {PORT}: {error}");
                1
            }
        }
    })
}

async fn serve(service: Service) -> Result<(), Error> {
    let mut listener = service.net.listen(([0; 4], PORT).into(), BACKLOG)?;
    loop {
        let stream = listener.accept().await?;
        service.spawner.spawn(async move {
            // A peer that goes away in the middle is no event.
            let _ = echo(stream).await;
        });
    }
}

/// Until the peer closes.
async fn echo(mut stream: impl Stream) -> Result<(), Error> {
    let mut bytes = alloc::vec![0; CHUNK];
    loop {
        match stream.read(&mut bytes).await? {
            0 => return Ok(()),
            count => stream.write(&bytes[..count]).await?,
        }
    }
}
