//! What appliances may rely on, of the host's sockets: to itself, over the loopback interface.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::vec;
use core::net::SocketAddr;
use core::time::Duration;
use net::socket::{Datagrams, Error, Listener, Sockets, Stream};
use net::tcp::connection::Failure;
use net::tcp::socket::Error as Failed;
use service::Service;
use unikernel::println;

unikernel::entry!(main);

/// Longer than any of it takes.
const LONG: Duration = Duration::from_secs(10);
/// Bytes that the kernel does not take at once.
const MUCH: usize = 3 << 20;

fn main() -> i32 {
    service::run("host_sockets", "", |service| async move {
        match rules(&service).await {
            Ok(()) => println!("SUCCESS"),
            Err(what) => println!("FAILURE: {what}"),
        }
        0
    })
}

async fn rules(service: &Service) -> Result<(), &'static str> {
    slices(service).await?;
    acknowledged(service).await?;
    aborted(service).await?;
    connected(service).await
}

fn check(right: bool, what: &'static str) -> Result<(), &'static str> {
    right.then_some(()).ok_or(what)
}

fn here(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// Both ends of a connection.
async fn pair(
    service: &Service,
    port: u16,
) -> Result<(service::Stream, service::Stream), &'static str> {
    let listener = service.net.listen(here(port), 1);
    let mut listener = listener.map_err(|_| "no listener")?;
    let one = service.net.connect(here(port)).await;
    let other = listener.accept().await;
    Ok((
        one.map_err(|_| "no connection")?,
        other.map_err(|_| "no peer")?,
    ))
}

/// More slices than one call of the kernel takes, and more bytes than it queues.
async fn slices(service: &Service) -> Result<(), &'static str> {
    let (mut one, mut other) = pair(service, 4001).await?;
    let large = vec![7; MUCH];
    service.spawner.spawn(async move {
        let mut slices = vec![&b"ab"[..]; 200];
        slices.push(&[]);
        slices.push(&large);
        let _ = one.write_vectored(&slices).await;
    });
    let mut place = vec![0; 400 + MUCH];
    let read = other.read_exact(&mut place).await;
    check(read == Ok(Some(())), "slices are cut")?;
    let (small, large) = place.split_at(400);
    let right = small.chunks(2).all(|two| two == b"ab") && large.iter().all(|byte| *byte == 7);
    check(right, "slices are mixed up")?;
    check(other.read(&mut place).await == Ok(0), "bytes are added")
}

async fn acknowledged(service: &Service) -> Result<(), &'static str> {
    let (mut one, mut other) = pair(service, 4002).await?;
    let written = one.write(b"hello").await;
    check(written.is_ok() && one.acknowledged().await.is_ok(), "ACK")?;
    // The end as well, although the peer has not read it.
    let closed = one.close(&service.clock, LONG).await;
    check(closed == Ok(Some(())), "a closed one waits")?;
    let mut place = [0; 6];
    check(
        other.read(&mut place).await == Ok(5),
        "what was sent is lost",
    )?;
    check(other.read(&mut place).await == Ok(0), "the end is lost")?;

    // The peer reads nothing, so that not all is acknowledged.
    let (one, other) = pair(service, 4003).await?;
    let (mut writer, one) = one.split();
    service
        .spawner
        .spawn(async move { while writer.write(&[7; 4096]).await.is_ok() {} });
    service.clock.sleep(Duration::from_millis(50)).await;
    let closed = one.close(&service.clock, Duration::from_millis(50)).await;
    check(closed == Ok(None), "a full window is acknowledged")?;
    drop(other);

    let (mut one, other) = pair(service, 4004).await?;
    other.abort();
    let failed = one.read(&mut place).await;
    check(failed == fails(Failure::Reset), "a reset is not told")?;
    let closed = one.close(&service.clock, LONG).await;
    check(closed == fails(Failure::Reset), "a reset is acknowledged")
}

fn fails<T>(why: Failure) -> Result<T, Error> {
    Err(Error::Failed(Failed::Failed(why)))
}

async fn aborted(service: &Service) -> Result<(), &'static str> {
    let (one, mut other) = pair(service, 4005).await?;
    let (mut half, one) = one.split();
    let closed = one.close(&service.clock, Duration::ZERO).await;
    check(closed == Ok(Some(())), "no time is too short")?;
    let failed = other.read(&mut [0; 9]).await;
    check(failed == fails(Failure::Reset), "the peer is not reset")?;
    let failed = half.read(&mut [0; 9]).await;
    check(failed == fails(Failure::Aborted), "the other half goes on")
}

async fn connected(service: &Service) -> Result<(), &'static str> {
    let net = &service.net;
    let any = net.bind(([0; 4], 4006).into());
    let mut any = any.map_err(|_| "no socket")?;
    check(net.bind(here(4006)).is_err(), "a port is had twice")?;
    let one = net.connect_datagrams(([0; 4], 4006).into(), here(4007));
    let mut one = one.map_err(|_| "no connected socket beside another")?;
    let bind = |port| net.bind(here(port)).map_err(|_| "no peer");
    let [mut peer, mut foreign] = [bind(4007)?, bind(4008)?];
    let mut place = [0; 9];
    for _ in 0..3 {
        check(foreign.send(b"foreign", here(4006)).is_ok(), "a send")?;
        check(peer.send(b"peer", here(4006)).is_ok(), "a send")?;
        let got = one.receive(&mut place).await;
        check(got == Ok(4) && place.starts_with(b"peer"), "not the peer's")?;
        let got = any.receive(&mut place).await;
        check(got == Ok((7, here(4008))), "not the foreign one's")?;
    }
    let late = service
        .clock
        .timeout(Duration::from_millis(50), one.receive(&mut place));
    check(late.await.is_none(), "a foreign datagram comes")?;
    check(one.send(b"?").is_ok(), "a send to the peer")?;
    let got = peer.receive(&mut place).await;
    check(got == Ok((1, here(4006))), "the peer gets nothing")?;

    // Nobody listens any more; both calls say so, once for each datagram.
    drop(peer);
    check(one.send(b"?").is_ok(), "a send to nobody")?;
    let got = one.receive(&mut place).await;
    check(got == fails(Failure::Refused), "a reader is not refused")?;
    let late = service
        .clock
        .timeout(Duration::from_millis(50), one.receive(&mut place));
    check(late.await.is_none(), "it is refused twice")?;
    check(one.send(b"?").is_ok(), "a send to nobody")?;
    service.clock.sleep(Duration::from_millis(50)).await;
    check(
        one.send(b"?") == fails(Failure::Refused),
        "a sender is not refused",
    )
}
