//! iperf 2's protocol, as a server (iperf 2.1, `payloads.h`): what a client sends is counted, over
//! TCP also what it wants is sent, on the same connection or on one that this end opens.

mod tcp;
mod udp;
mod wish;

use crate::System;
use crate::protocol::Error;
use core::fmt::Arguments;
use core::net::SocketAddr;
use core::time::Duration;
use net::socket::Sockets;
use net::task::Spawner;

/// Connections that may wait to be accepted.
const BACKLOG: usize = 256;

/// Serves clients.
///
/// # Errors
/// If the port cannot be had.
pub async fn run<N: Sockets + 'static>(
    sockets: N,
    system: System,
    spawner: Spawner,
    port: u16,
) -> Result<(), Error>
where
    N::Stream: 'static,
    N::Datagrams: 'static,
{
    let local = SocketAddr::from(([0; 4], port));
    let listener = sockets.listen(local, BACKLOG)?;
    let (socket, datagrams) = (sockets.bind(local)?, system.clone());
    spawner.spawn(async move {
        if let Err(error) = udp::serve(socket, &datagrams).await {
            (datagrams.print)(format_args!("iperf: {error}"));
        }
    });
    tcp::serve(listener, sockets, system, spawner).await
}

/// Tells what was moved to or from a peer.
fn tell(system: &System, peer: SocketAddr, bytes: u64, passed: Duration, more: Arguments<'_>) {
    let seconds = passed.as_secs_f64();
    let rate = match seconds > 0.0 {
        true => bytes as f64 * 8e-6 / seconds,
        false => 0.0,
    };
    (system.print)(format_args!(
        "iperf: {peer}: {bytes} bytes in {seconds:.2} s, {rate:.2} Mbits/sec{more}"
    ));
}

/// The word of four bytes at this place, if there is one.
fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at + 4)?.first_chunk()?;
    Some(u32::from_be_bytes(*word))
}
