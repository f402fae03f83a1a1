//! Sends back what it receives, over TCP and UDP (RFC 862).

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

extern crate alloc;

use core::time::Duration;
use net::socket::{Datagrams, Error, Listener, Sockets, Stream};
use service::Service;
use unikernel::println;

/// The port of RFC 862.
const PORT: u16 = 7;
/// Connections that may wait to be accepted.
const BACKLOG: usize = 128;
/// A connection that is silent for so long may have lost its peer, which is asked then (RFC 9293,
/// 3.8.4).
const SILENT: Duration = Duration::from_secs(2 * 3600);
/// Longest datagram.
const DATAGRAM: usize = 64 << 10;

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
    let datagrams = service.net.bind(([0; 4], PORT).into())?;
    service.spawner.spawn(async move {
        // Nothing ends it.
        let _ = return_datagrams(datagrams).await;
    });
    let begin = |stream| {
        service.spawner.spawn(async move {
            // A peer that goes away in the middle is no event.
            let _ = echo(stream).await;
        });
    };
    // Those of the instance before this one go on.
    while let Some(stream) = service.net.taken_up() {
        if stream.local().port() == PORT {
            begin(stream);
        }
    }
    loop {
        begin(listener.accept().await?);
    }
}

async fn return_datagrams(mut socket: impl Datagrams) -> Result<(), Error> {
    let mut bytes = alloc::vec![0; DATAGRAM];
    loop {
        let (count, ends) = socket.receive_at(&mut bytes).await?;
        // One that cannot leave is lost, as any may be.
        let _ = socket.send_from(&bytes[..count], ends.to, ends.from);
    }
}

/// Until the peer closes. While nothing comes, no buffer is held.
async fn echo(mut stream: impl Stream) -> Result<(), Error> {
    stream.set_keep_alive(Some(SILENT));
    while stream.give_back().await? > 0 {}
    Ok(())
}
