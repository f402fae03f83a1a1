//! Connections, and what is read from them and written to them.

use crate::answer::{Answer, Status, answer};
use crate::date::Date;
use crate::request::too_long;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use core::time::Duration;
use net::socket::{Error, Listener, Stream};
use net::task::{Clock, Spawner};

/// Connections at a time; more are told that they are too many.
const CONNECTIONS_MAX: usize = 1024;
/// Requests of a connection.
const REQUESTS_MAX: usize = 10_000;
/// Bytes of a request's header, its first line included.
const HEADER_MAX: usize = 8 << 10;
/// How long a connection waits for the header of a request.
const IDLE: Duration = Duration::from_secs(15);
/// How long a client may take to make room for an answer.
const SLOW: Duration = Duration::from_secs(60);
/// How long a connection that ends waits for its client to end it too: a client that still sends
/// would be told with RST, and lose the answer (RFC 9112, 9.6).
const LINGER: Duration = Duration::from_secs(2);

/// What all connections have.
#[derive(Clone)]
pub struct Server {
    /// Time.
    pub clock: Clock,
    /// The time since 1970-01-01 00:00 UTC.
    pub wall: fn() -> Duration,
}

impl Server {
    /// Serves whoever comes.
    ///
    /// # Errors
    /// If nobody can come any more.
    pub async fn serve<L>(self, mut listener: L, spawner: Spawner) -> Result<(), Error>
    where
        L: Listener,
        L::Stream: 'static,
    {
        // Each connection holds it once more.
        let open = Rc::new(());
        loop {
            let stream = listener.accept().await?;
            let mut connection = Connection {
                stream,
                server: self.clone(),
                bytes: Vec::new(),
                start: 0,
                end: 0,
                header: String::new(),
            };
            let (held, is_full) = (open.clone(), Rc::strong_count(&open) > CONNECTIONS_MAX);
            spawner.spawn(async move {
                // A client that goes away in the middle is no event.
                let _ = match is_full {
                    true => connection.send(&Answer::refusal(Status::UNAVAILABLE)).await,
                    false => connection.talk().await,
                };
                drop(held);
            });
        }
    }
}

struct Connection<S> {
    stream: S,
    server: Server,
    /// What was read: from `start` to `end`, it was not answered yet.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    header: String,
}

impl<S: Stream> Connection<S> {
    /// Answers one request after another.
    async fn talk(&mut self) -> Result<(), Error> {
        self.stream.set_no_delay(true);
        self.bytes = vec![0; HEADER_MAX];
        for request in 1..=REQUESTS_MAX {
            let Some(mut answer) = self.next().await? else {
                return Ok(());
            };
            answer.keeps_alive &= request < REQUESTS_MAX;
            self.send(&answer).await?;
            if !answer.keeps_alive {
                break;
            }
        }
        self.stream.shutdown();
        let clock = self.server.clock.clone();
        clock.timeout(LINGER, self.drain()).await.unwrap_or(Ok(()))
    }

    /// The answer to the next request; `None` if there is none.
    async fn next(&mut self) -> Result<Option<Answer>, Error> {
        let clock = self.server.clock.clone();
        let until = clock.now() + IDLE;
        loop {
            if let Some((answer, len)) = answer(&self.bytes[self.start..self.end]) {
                self.start += len;
                return Ok(Some(answer));
            }
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if self.end == HEADER_MAX {
                return Ok(Some(Answer::refusal(too_long(&self.bytes))));
            }
            let read = self.stream.read(&mut self.bytes[self.end..]);
            match clock.timeout(until - clock.now(), read).await {
                Some(Ok(0)) => return Ok(None),
                Some(count) => self.end += count?,
                None if self.end == 0 => return Ok(None),
                None => return Ok(Some(Answer::refusal(Status::TIMEOUT))),
            }
        }
    }

    /// Header and body leave together: the stack sends when this task waits.
    async fn send(&mut self, answer: &Answer) -> Result<(), Error> {
        self.header.clear();
        let date = Date((self.server.wall)().as_secs());
        answer.write_header(date, &mut self.header);
        let (stream, header) = (&mut self.stream, self.header.as_bytes());
        let sent = async {
            stream.write(header).await?;
            stream.give(Bytes::from_static(answer.body())).await
        };
        match self.server.clock.timeout(SLOW, sent).await {
            Some(sent) => sent,
            None => Err(Error::Failed(net::tcp::socket::Error::Closed)),
        }
    }

    async fn drain(&mut self) -> Result<(), Error> {
        while self.stream.read(&mut self.bytes).await? > 0 {}
        Ok(())
    }
}
