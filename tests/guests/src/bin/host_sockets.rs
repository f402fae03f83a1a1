//! What appliances may rely on, of the host's sockets: to itself, over the loopback interface.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::vec;
use core::net::SocketAddr;
use core::time::Duration;
use net::socket::{Error, Listener, Sockets, Stream};
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
    aborted(service).await
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
