//! One test after another, as `iperf3 --server` runs them.

use crate::protocol::{
    Cookie, Error, Parameters, Results, StreamResults, read_exact, read_state, read_text,
    send_state, send_text, state,
};
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use core::cell::Cell;
use core::time::Duration;
use net::socket::{Listener, Stream};
use net::task::{Clock, Spawner};
use serde::de::IgnoredAny;

/// Bytes of a block, where the client does not say (`DEFAULT_TCP_BLKSIZE`).
const BLOCK: u32 = 128 << 10;
/// Largest block (`MAX_BLOCKSIZE`).
const BLOCK_MAX: u32 = 1 << 20;
/// Most streams (`MAX_STREAMS`).
const STREAMS_MAX: u32 = 128;
/// How long a client may take to open its streams.
const PATIENCE: Duration = Duration::from_secs(10);

/// What all tests have.
pub struct Server<L> {
    /// Where clients come in.
    pub listener: L,
    /// Time.
    pub clock: Clock,
    /// What runs streams.
    pub spawner: Spawner,
}

/// What is counted of a stream while it runs.
#[derive(Default)]
struct Count {
    bytes: Cell<u64>,
    ended: Cell<bool>,
}

/// Whether a stream's data comes or goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Receives,
    Sends,
}

impl<L: Listener> Server<L>
where
    L::Stream: 'static,
{
    /// Serves one test.
    ///
    /// # Errors
    /// Why it ended early.
    pub async fn test(&mut self) -> Result<Results, Error> {
        let mut control = self.listener.accept().await?;
        control.set_no_delay(true);
        let mut cookie: Cookie = [0; 37];
        read_exact(&mut control, &mut cookie).await?;
        send_state(&mut control, state::PARAM_EXCHANGE).await?;
        let parameters: Parameters = read_text(&mut control).await?;
        let directions = directions(&parameters)?;
        send_state(&mut control, state::CREATE_STREAMS).await?;
        let mut streams = Vec::new();
        for direction in &directions {
            streams.push((self.stream(&cookie).await?, *direction));
        }
        send_state(&mut control, state::TEST_START).await?;
        send_state(&mut control, state::TEST_RUNNING).await?;
        let began = self.clock.now();
        let block = parameters.len.unwrap_or(BLOCK).clamp(1, BLOCK_MAX);
        let counts: Vec<Rc<Count>> = streams
            .into_iter()
            .map(|(stream, direction)| self.run(stream, direction, block, parameters.nodelay))
            .collect();
        let ended = wait_for_end(&mut control).await;
        counts.iter().for_each(|count| count.ended.set(true));
        ended?;
        let seconds = (self.clock.now() - began).as_secs_f64();
        send_state(&mut control, state::EXCHANGE_RESULTS).await?;
        // What the client has counted is for whoever reads its report.
        let _: IgnoredAny = read_text(&mut control).await?;
        let results = results(&counts, &directions, seconds);
        send_text(&mut control, &results).await?;
        send_state(&mut control, state::DISPLAY_RESULTS).await?;
        // Whatever the client says now, or if it goes away: it is over.
        let _ = read_state(&mut control).await;
        Ok(results)
    }

    /// The client's next stream. Another client is told that a test is going on.
    async fn stream(&mut self, cookie: &Cookie) -> Result<L::Stream, Error> {
        let listener = &mut self.listener;
        let next = async {
            loop {
                let mut stream = listener.accept().await?;
                let mut theirs: Cookie = [0; 37];
                read_exact(&mut stream, &mut theirs).await?;
                if theirs == *cookie {
                    return Ok(stream);
                }
                send_state(&mut stream, state::ACCESS_DENIED).await?;
            }
        };
        let next = self.clock.timeout(PATIENCE, next).await;
        next.unwrap_or(Err(Error::Unsupported("streams, and opens none")))
    }

    /// Starts a stream.
    fn run(
        &self,
        mut stream: L::Stream,
        direction: Direction,
        block: u32,
        no_delay: bool,
    ) -> Rc<Count> {
        let count = Rc::new(Count::default());
        let counted = count.clone();
        stream.set_no_delay(no_delay);
        self.spawner.spawn(async move {
            // The control connection tells how it ended.
            let _ = match direction {
                Direction::Receives => receive(&mut stream, &counted).await,
                Direction::Sends => send(&mut stream, block, &counted).await,
            };
        });
        count
    }
}

async fn receive(stream: &mut impl Stream, count: &Count) -> Result<(), Error> {
    while let Some(bytes) = stream.take().await? {
        count.bytes.set(count.bytes.get() + bytes.len() as u64);
    }
    Ok(())
}

async fn send(stream: &mut impl Stream, block: u32, count: &Count) -> Result<(), Error> {
    let block = Bytes::from(vec![0; block as usize]);
    while !count.ended.get() {
        stream.give(block.clone()).await?;
        count.bytes.set(count.bytes.get() + block.len() as u64);
    }
    Ok(())
}

async fn wait_for_end(control: &mut impl Stream) -> Result<(), Error> {
    match read_state(control).await? {
        state::TEST_END => Ok(()),
        _ => Err(Error::Unsupported("another state in the middle of a test")),
    }
}

/// The direction of each stream, in the order in which the client opens them.
fn directions(parameters: &Parameters) -> Result<Vec<Direction>, Error> {
    if parameters.udp {
        return Err(Error::Unsupported("UDP"));
    }
    let parallel = parameters.parallel.unwrap_or(1);
    if !(1..=STREAMS_MAX).contains(&parallel) {
        return Err(Error::Unsupported("more than 128 streams"));
    }
    let of = |direction| core::iter::repeat_n(direction, parallel as usize);
    Ok(match (parameters.bidirectional, parameters.reverse) {
        // The client's own streams come first.
        (true, _) => of(Direction::Receives)
            .chain(of(Direction::Sends))
            .collect(),
        (false, true) => of(Direction::Sends).collect(),
        (false, false) => of(Direction::Receives).collect(),
    })
}

fn results(counts: &[Rc<Count>], directions: &[Direction], seconds: f64) -> Results {
    let sends = directions.contains(&Direction::Sends);
    let stream = |(place, count): (usize, &Rc<Count>)| StreamResults {
        // iperf3 leaves 2 out.
        id: if place == 0 { 1 } else { place as u32 + 2 },
        bytes: count.bytes.get(),
        retransmits: if sends { 0 } else { -1 },
        end_time: seconds,
        ..StreamResults::default()
    };
    Results {
        sender_has_retransmits: if sends { 0 } else { -1 },
        streams: counts.iter().enumerate().map(stream).collect(),
        ..Results::default()
    }
}
