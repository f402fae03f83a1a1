//! Connections: what comes is counted, what is wanted is sent.

use super::tell;
use super::wish::{self, Amount, Mode, Wish};
use crate::System;
use crate::measure::Pace;
use crate::options::TCP_BLOCK;
use crate::protocol::{Error, patiently};
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use core::net::SocketAddr;
use core::time::Duration;
use net::socket::{Listener, Sockets, Stream};
use net::task::Spawner;
use net::tcp::queues::Payload;

/// Connections of clients at a time; more are closed at once.
const CONNECTIONS_MAX: usize = 256;
/// How long a peer may neither send nor take anything.
const IDLE: Duration = Duration::from_secs(120);
/// How long a peer that was sent all may take to end its connection.
const LINGER: Duration = Duration::from_secs(10);
/// How often a client is called that does not listen yet: its test may begin before it does.
const CALLS_MAX: usize = 20;
/// Between two of them.
const CALL_AGAIN: Duration = Duration::from_millis(100);
/// The longest time that is sent for.
const TIME_MAX: Duration = Duration::from_secs(86_400);

/// Serves clients.
///
/// # Errors
/// If none can come any more.
pub async fn serve<N: Sockets + 'static>(
    mut listener: N::Listener,
    sockets: N,
    system: System,
    spawner: Spawner,
) -> Result<(), Error>
where
    N::Stream: 'static,
{
    // Each connection holds it once more.
    let server = Rc::new(Server {
        sockets,
        system,
        spawner,
    });
    loop {
        let stream = listener.accept().await?;
        if Rc::strong_count(&server) > CONNECTIONS_MAX {
            continue;
        }
        let client = Client {
            peer: stream.peer(),
            server: server.clone(),
        };
        let talk = async move { client.talk(stream).await };
        server.spawner.spawn(talk);
    }
}

/// What all tests share.
struct Server<N> {
    sockets: N,
    system: System,
    spawner: Spawner,
}

/// A client's test.
#[derive(Clone)]
struct Client<N> {
    peer: SocketAddr,
    server: Rc<Server<N>>,
}

impl<N: Sockets + 'static> Client<N>
where
    N::Stream: 'static,
{
    async fn talk(self, mut stream: N::Stream) {
        let mut first = Vec::new();
        while wish::len(&first).is_none_or(|len| first.len() < len) {
            // One that ends here has said all that it wants.
            match self.take(&mut stream).await {
                Some(payload) => first.extend_from_slice(&payload),
                None => break,
            }
        }
        let (wish, came) = (Wish::read(&first), first.len() as u64);
        drop(first);
        match wish.mode {
            Mode::Forward => self.count(&mut stream, came).await,
            Mode::Reverse => {
                self.send(&mut stream, &wish).await;
                self.drain(&mut stream).await;
            }
            Mode::FullDuplex => {
                let (mut one, mut other) = stream.split();
                let sender = self.clone();
                self.server
                    .spawner
                    .spawn(async move { sender.send(&mut other, &wish).await });
                self.count(&mut one, came).await;
            }
            Mode::Dual(port) => {
                let sender = self.clone();
                self.server
                    .spawner
                    .spawn(async move { sender.send_back(port, &wish).await });
                self.count(&mut stream, came).await;
            }
            Mode::Tradeoff(port) => {
                self.count(&mut stream, came).await;
                drop(stream);
                self.send_back(port, &wish).await;
            }
        }
    }

    /// What comes next; `None` at the end, however it comes.
    async fn take(&self, stream: &mut N::Stream) -> Option<Payload> {
        let next = self.server.system.clock.timeout(IDLE, stream.take()).await;
        next.and_then(Result::ok).flatten()
    }

    /// Counts what comes behind what has come already.
    async fn count(&self, stream: &mut N::Stream, came: u64) {
        let (began, mut bytes) = (self.server.system.clock.now(), came);
        while let Some(payload) = self.take(stream).await {
            bytes += payload.len() as u64;
        }
        let passed = self.server.system.clock.now() - began;
        tell(
            &self.server.system,
            stream.peer(),
            bytes,
            passed,
            format_args!(""),
        );
    }

    /// Sends what is wanted, and no more. Of a block that its time cuts, nothing is counted.
    async fn send(&self, stream: &mut N::Stream, wish: &Wish) {
        let system = &self.server.system;
        let clock = &system.clock;
        let block = Bytes::from(vec![0; TCP_BLOCK as usize]);
        let (began, mut bytes) = (clock.now(), 0);
        let (end, most) = match wish.amount {
            Amount::Bytes(most) => (None, most),
            Amount::Time(time) => (Some(began + time.min(TIME_MAX)), u64::MAX),
        };
        let mut pace = Pace::new(wish.rate, began);
        while bytes < most {
            if let Some(due) = pace.due() {
                clock.until(end.map_or(due, |end| end.min(due))).await;
            }
            let left = end.map_or(IDLE, |end| (end - clock.now()).min(IDLE));
            if left.is_zero() {
                break;
            }
            let block = block.slice(..block.len().min((most - bytes) as usize));
            let count = block.len();
            match clock.timeout(left, stream.give(block)).await {
                Some(Ok(())) => {}
                // The time is over, or the peer has gone away.
                _ => break,
            }
            pace.sent(count);
            bytes += count as u64;
        }
        stream.shutdown();
        let more = format_args!(", sent");
        tell(
            &self.server.system,
            stream.peer(),
            bytes,
            clock.now() - began,
            more,
        );
    }

    /// Waits for the end of a peer that was sent all: a connection that closes before could lose
    /// what is on its way.
    async fn drain(&self, stream: &mut N::Stream) {
        let ends = async { while let Ok(Some(_)) = stream.take().await {} };
        let _ = self.server.system.clock.timeout(LINGER, ends).await;
    }

    /// Sends on a connection to this port of the client.
    async fn send_back(&self, port: u16, wish: &Wish) {
        let to = SocketAddr::new(self.peer.ip(), port);
        let clock = &self.server.system.clock;
        let mut opened = self.call(to).await;
        for _ in 1..CALLS_MAX {
            // Whoever says nothing is not called again.
            if !matches!(opened, Err(Error::Broken(_))) {
                break;
            }
            clock.sleep(CALL_AGAIN).await;
            opened = self.call(to).await;
        }
        match opened {
            Ok(mut stream) => {
                self.send(&mut stream, wish).await;
                self.drain(&mut stream).await;
            }
            Err(error) => (self.server.system.print)(format_args!("iperf: {to}: {error}")),
        }
    }

    /// Opens a connection.
    async fn call(&self, to: SocketAddr) -> Result<N::Stream, Error> {
        let open = async { Ok(self.server.sockets.connect(to).await?) };
        patiently(&self.server.system.clock, open).await
    }
}
