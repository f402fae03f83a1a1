//! Connections, and what is read from them and written to them.

use crate::answer::{Answer, answer};
use crate::site::Site;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::pin::pin;
use core::time::Duration;
use net::socket::{Error, Listener, Sockets, Stream};
use net::task::{Clock, Spawner};
use net::tcp::socket::Error as Failed;

/// HTTP's port.
pub const PORT: u16 = 80;
/// Connections that may wait to be accepted.
const BACKLOG: usize = 512;
/// Connections at a time; so many more are told that they are too many, others are dropped.
const CONNECTIONS_MAX: usize = 1024;
/// As above.
const REFUSALS_MAX: usize = 256;
/// Requests of a connection.
const REQUESTS_MAX: usize = 10_000;
/// Bytes of a request's header, its first line included.
const HEADER_MAX: usize = 8 << 10;
/// Bytes that are read at a time: a header of most browsers and tools takes one or two.
const PIECE: usize = 256;
/// So many connections may each have a [`PART`] in hand while it leaves; of more, each has a
/// [`PART_SMALL`].
const FEW: usize = 128;
/// Bytes that are read from a disk at a time: as many as file systems share uncopied.
const PART: u32 = 64 << 10;
const PART_SMALL: u32 = 16 << 10;
/// How long a connection waits for the header of a request.
const IDLE: Duration = Duration::from_secs(15);
/// How long a client may take to make room for an answer.
const SLOW: Duration = Duration::from_secs(60);
/// How long a connection that ends waits for its client to end it too, and how much it reads: a
/// client that still sends would be told with RST, and lose the answer (RFC 9112, 9.6).
const LINGER: Duration = Duration::from_secs(2);
/// As above, in bytes.
const LINGER_MAX: usize = 1 << 20;

/// Serves whoever comes.
///
/// # Errors
/// If nobody can come any more.
pub async fn serve<N: Sockets>(
    sockets: N,
    site: Site,
    clock: Clock,
    wall: fn() -> Duration,
    spawner: Spawner,
) -> Result<(), Error>
where
    N::Stream: 'static,
{
    let mut listener = sockets.listen(([0; 4], PORT).into(), BACKLOG)?;
    // Each connection holds it once more.
    let site = Rc::new(site);
    loop {
        let stream = listener.accept().await?;
        let others = Rc::strong_count(&site) - 1;
        if others >= CONNECTIONS_MAX + REFUSALS_MAX {
            continue;
        }
        let mut connection = Connection {
            stream,
            clock: clock.clone(),
            wall,
            bytes: Vec::new(),
            start: 0,
        };
        let site = site.clone();
        spawner.spawn(async move {
            // A client that goes away in the middle is no event.
            let _ = connection.talk(&site, others >= CONNECTIONS_MAX).await;
        });
    }
}

struct Connection<S> {
    stream: S,
    clock: Clock,
    /// The time since 1970-01-01 00:00 UTC.
    wall: fn() -> Duration,
    /// What was read: from `start` on, it was not answered yet. While a connection is idle, this
    /// takes no memory.
    bytes: Vec<u8>,
    start: usize,
}

impl<S: Stream> Connection<S> {
    /// Answers one request after another.
    async fn talk(&mut self, site: &Rc<Site>, is_full: bool) -> Result<(), Error> {
        self.stream.set_no_delay(true);
        if is_full {
            let refusal = Answer::refusal("503 Service Unavailable");
            self.send(&refusal, site).await?;
        }
        for request in 1..=REQUESTS_MAX {
            if is_full {
                break;
            }
            let Some(mut answer) = self.next(site).await? else {
                return Ok(());
            };
            answer.keeps_alive &= request < REQUESTS_MAX;
            self.send(&answer, site).await?;
            if !answer.keeps_alive {
                break;
            }
        }
        self.stream.shutdown();
        let clock = self.clock.clone();
        clock.timeout(LINGER, self.drain()).await.unwrap_or(Ok(()))
    }

    /// The answer to the next request; `None` if there is none.
    async fn next(&mut self, site: &Site) -> Result<Option<Answer>, Error> {
        let until = self.clock.now() + IDLE;
        loop {
            let rest = &self.bytes[self.start..];
            let header = &rest[..rest.len().min(HEADER_MAX)];
            if let Some((answer, len)) = answer(header, site) {
                self.start += len;
                return Ok(Some(answer));
            }
            if header.len() == HEADER_MAX {
                let has_line = header.trim_ascii_start().contains(&b'\n');
                return Ok(Some(Answer::refusal(match has_line {
                    true => "431 Request Header Fields Too Large",
                    false => "414 URI Too Long",
                })));
            }
            self.bytes = rest.to_vec();
            self.start = 0;
            let mut piece = [0; PIECE];
            let left = until - self.clock.now();
            // Pinned here, because `timeout` would hold it twice, in each idle connection.
            let read = self
                .clock
                .timeout(left, pin!(self.stream.read(&mut piece)))
                .await;
            match read {
                Some(Ok(count @ 1..)) => self.bytes.extend_from_slice(&piece[..count]),
                Some(end) => return end.map(|_| None),
                None if self.bytes.is_empty() => return Ok(None),
                None => return Ok(Some(Answer::refusal("408 Request Timeout"))),
            }
        }
    }

    /// Header and body leave together: the stack sends when this task waits.
    async fn send(&mut self, answer: &Answer, site: &Rc<Site>) -> Result<(), Error> {
        let mut header = String::new();
        answer.write((self.wall)().as_secs(), &mut header);
        let (clock, gone) = (self.clock.clone(), Err(Error::Failed(Failed::Closed)));
        // Pinned as above: a task has room for the longest of its waits.
        let written = clock
            .timeout(SLOW, pin!(self.stream.write(header.as_bytes())))
            .await;
        written.unwrap_or(gone)?;
        let Some((file, mut rest)) = answer.body() else {
            return Ok(());
        };
        while !rest.is_empty() {
            let most = match Rc::strong_count(site) {
                ..=FEW => PART,
                _ => PART_SMALL,
            };
            // A disk that fails cuts the answer short, which its client sees.
            let Ok(bytes) = site.bytes(file, rest.clone(), most) else {
                return gone;
            };
            rest.start += bytes.len() as u64;
            let given = clock.timeout(SLOW, pin!(self.stream.give(bytes))).await;
            given.unwrap_or(gone)?;
        }
        Ok(())
    }

    async fn drain(&mut self) -> Result<(), Error> {
        let mut drained = 0;
        while drained < LINGER_MAX {
            match self.stream.take().await? {
                None => break,
                Some(payload) => drained += payload.len(),
            }
        }
        Ok(())
    }
}
