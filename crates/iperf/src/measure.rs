//! What both roles do while data flows.

use crate::System;
use crate::count::{Count, Flow};
use crate::options::Options;
use crate::protocol::{Error, Parameters, Results, StreamResults, read_state};
use crate::report::Report;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::Cell;
use core::future::Future;
use core::future::poll_fn;
use core::pin::{Pin, pin};
use core::task::Poll;
use core::time::Duration;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use net::socket::Stream;
use net::task::{Clock, Either, select};
use ports::Instant;

/// How long all streams may stand still before a server gives the test up (the stock program's
/// `DEFAULT_NO_MSG_RCVD_TIMEOUT`), and how often it looks.
const IDLE: Duration = Duration::from_secs(120);
/// As above.
const LOOK: Duration = Duration::from_secs(10);

/// What a client has sent, of a certain number of bytes, may take so long to be acknowledged.
const ARRIVAL: Duration = Duration::from_secs(30);
/// The program of a server has so long to read what its TCP has acknowledged: it cannot say when it
/// has.
const READING: Duration = Duration::from_millis(10);

/// Where a test is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No data flows yet.
    Before,
    /// Data flows and does not count.
    Omitted,
    /// Data flows and counts.
    Running,
    /// What still comes does not count.
    Over,
}

/// What all streams of a test share.
pub struct Test {
    /// What the client wants.
    pub parameters: Parameters,
    /// Time.
    pub clock: Clock,
    /// Bytes and blocks after which it is enough; a server waits for its client to say so.
    limits: Option<(u64, u64)>,
    phase: Cell<Phase>,
    sent: Cell<(u64, u64)>,
    received: Cell<(u64, u64)>,
}

impl Test {
    /// A test that has not begun.
    pub fn new(parameters: Parameters, clock: Clock, is_client: bool) -> Self {
        let limits = (parameters.num, parameters.blockcount);
        Self {
            limits: (is_client && limits != (0, 0)).then_some(limits),
            parameters,
            clock,
            phase: Cell::new(Phase::Before),
            sent: Cell::default(),
            received: Cell::default(),
        }
    }

    /// Whether data is to be sent.
    pub fn goes_on(&self) -> bool {
        matches!(self.phase.get(), Phase::Omitted | Phase::Running) && !self.is_enough()
    }

    fn is_enough(&self) -> bool {
        self.left(1) == 0
    }

    /// How many blocks of so many bytes are missing before it is enough, in the direction in which
    /// fewer are.
    fn left(&self, block: u64) -> u64 {
        let limits = self.limits.filter(|_| self.phase.get() != Phase::Omitted);
        let Some((bytes, blocks)) = limits else {
            return u64::MAX;
        };
        let of = |limit: u64, moved: u64| match limit {
            0 => u64::MAX,
            _ => limit.saturating_sub(moved),
        };
        let directions = [&self.sent, &self.received].into_iter().map(|moved| {
            let (moved_bytes, moved_blocks) = moved.get();
            let by_bytes = of(bytes, moved_bytes).div_ceil(block.max(1));
            by_bytes.min(of(blocks, moved_blocks))
        });
        directions.min().unwrap_or(0)
    }

    /// How many blocks of so many bytes a stream is to send now, at most `most`.
    pub fn share(&self, pace: &Pace, block: usize, most: usize) -> usize {
        if !self.goes_on() {
            return 0;
        }
        let left = usize::try_from(self.left(block as u64)).unwrap_or(usize::MAX);
        pace.ready(block, self.clock.now(), most.min(left))
    }

    /// Counts what a stream has moved, while it counts.
    pub fn moved(&self, flow: &Flow, bytes: usize, count: impl FnOnce(&mut Count)) {
        if matches!(self.phase.get(), Phase::Omitted | Phase::Running) {
            flow.update(count);
            let all = match flow.sends {
                true => &self.sent,
                false => &self.received,
            };
            let (all_bytes, all_blocks) = all.get();
            all.set((all_bytes + bytes as u64, all_blocks + 1));
        }
    }

    fn omit(&self) {
        self.sent.set((0, 0));
        self.received.set((0, 0));
        self.phase.set(Phase::Running);
    }

    /// Waits until enough has moved, and until it has arrived: the stock server counts what it has
    /// read when it is told of the end, and no more.
    async fn enough(&self, flows: &[Rc<Flow>]) {
        poll_fn(|_| match self.is_enough() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
        let arrives = poll_fn(|_| match flows.iter().all(|flow| flow.has_arrived()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        });
        let _ = self.clock.timeout(ARRIVAL, arrives).await;
    }
}

/// When the next block of a stream may leave.
pub struct Pace {
    /// Bits in a second; `None` without a bound.
    rate: Option<u64>,
    began: Instant,
    bytes: u64,
}

impl Pace {
    /// Of a stream that begins now, of so many bits in a second if there is a bound.
    pub fn new(rate: Option<u64>, now: Instant) -> Self {
        Self {
            rate: rate.filter(|rate| *rate > 0),
            began: now,
            bytes: 0,
        }
    }

    /// When the next block is due, if it is not always.
    pub fn due(&self) -> Option<Instant> {
        self.due_behind(self.bytes)
    }

    /// How many blocks of so many bytes are due now, at most `most`.
    pub fn ready(&self, block: usize, now: Instant, most: usize) -> usize {
        let due = |count: &usize| {
            let before = self.bytes + (count * block) as u64;
            self.due_behind(before).is_none_or(|due| due <= now)
        };
        (0..most).take_while(due).count()
    }

    /// When what follows so many bytes is due.
    fn due_behind(&self, bytes: u64) -> Option<Instant> {
        let nanos = u128::from(bytes) * 8_000_000_000 / u128::from(self.rate?);
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
        Some(Instant(self.began.0.saturating_add(nanos)))
    }

    /// So many bytes have left.
    pub fn sent(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }
}

type Work = Pin<Box<dyn Future<Output = Result<(), Error>>>>;

/// A test under way.
pub struct Measurement {
    /// What streams share.
    pub test: Rc<Test>,
    /// The streams.
    pub flows: Vec<Rc<Flow>>,
    /// What moves their data.
    pub work: FuturesUnordered<Work>,
    /// What is told of them.
    pub report: Report,
    began: Instant,
    ended: Instant,
}

impl Measurement {
    /// Of a test that has not begun.
    pub fn new(test: Rc<Test>, system: &System, options: &Options) -> Self {
        let now = test.clock.now();
        Self {
            report: Report::new(system.clone(), options, test.parameters.udp),
            test,
            flows: Vec::new(),
            work: FuturesUnordered::new(),
            began: now,
            ended: now,
        }
    }

    /// Lets data flow while `wait` takes. A stream that fails is no matter here: whoever waits
    /// learns how the test goes on.
    pub async fn during<T>(&mut self, wait: impl Future<Output = T>) -> T {
        let mut wait = pin!(wait);
        loop {
            if self.work.is_empty() || self.test.phase.get() == Phase::Before {
                return wait.await;
            }
            if let Either::Second(done) = select(self.work.next(), wait.as_mut()).await {
                return done;
            }
        }
    }

    /// Lets data flow and tells of it until the peer says something, which is returned, or until
    /// the test has lasted long enough or has moved enough.
    ///
    /// # Errors
    /// If the control connection fails, or all streams stand still.
    pub async fn run(
        &mut self,
        control: &mut impl Stream,
        seconds: Option<u64>,
    ) -> Result<Option<i8>, Error> {
        let clock = self.test.clock.clone();
        self.began = clock.now();
        let omit = Duration::from_secs(self.test.parameters.omit);
        self.test.phase.set(match omit.is_zero() {
            true => Phase::Running,
            false => Phase::Omitted,
        });
        if !omit.is_zero() {
            let end = self.began + omit;
            let said = self.run_until(control, Some(end), true).await?;
            self.flows.iter().for_each(|flow| flow.omit());
            self.test.omit();
            self.began = clock.now();
            if said.is_some() {
                return Ok(said);
            }
        }
        let end = seconds.map(|seconds| self.began + Duration::from_secs(seconds));
        let said = self.run_until(control, end, false).await;
        self.ended = clock.now();
        self.test.phase.set(Phase::Over);
        if self.test.is_enough() && self.flows.iter().any(|flow| flow.sends) {
            self.during(clock.until(self.ended + READING)).await;
        }
        said
    }

    async fn run_until(
        &mut self,
        control: &mut impl Stream,
        end: Option<Instant>,
        omitted: bool,
    ) -> Result<Option<i8>, Error> {
        let (clock, test) = (self.test.clock.clone(), self.test.clone());
        let every = self.report.interval;
        let (began, mut tick, mut intervals) = (self.began, self.began, 0);
        let (mut moved, mut moved_at) = (0, began);
        let flows = self.flows.clone();
        let mut enough = pin!(test.enough(&flows));
        self.report.begin();
        loop {
            if clock.now() >= tick {
                intervals += 1;
                tick = began + every.unwrap_or(LOOK) * intervals;
            }
            let until = end.map_or(tick, |end| end.min(tick));
            let wait = async {
                let (said, late) = (pin!(read_state(control)), pin!(clock.until(until)));
                match select(pin!(select(said, late)), enough.as_mut()).await {
                    Either::First(Either::First(said)) => Some(said.map(Some)),
                    Either::First(Either::Second(())) => None,
                    Either::Second(()) => Some(Ok(None)),
                }
            };
            let done = self.during(wait).await;
            let now = clock.now();
            let passed = now - began;
            let is_over = done.is_some() || end.is_some_and(|end| now >= end);
            if is_over || now >= tick {
                self.flows.iter().for_each(|flow| flow.look());
            }
            if every.is_some() && (is_over || now >= tick) {
                self.report.interval(&self.flows, passed, omitted);
            }
            if is_over {
                return done.unwrap_or(Ok(None));
            }
            let all = test.sent.get().0 + test.received.get().0;
            if all != moved {
                (moved, moved_at) = (all, now);
            } else if now - moved_at >= IDLE {
                return Err(Error::Idle);
            }
        }
    }

    /// How long it took.
    pub fn seconds(&self) -> f64 {
        (self.ended - self.began).as_secs_f64()
    }

    /// What this end has counted.
    pub fn results(&self) -> Results {
        let sends = self.flows.iter().any(|flow| flow.sends);
        let tcp = !self.test.parameters.udp;
        let stream = |flow: &Rc<Flow>| {
            let count = flow.count.get();
            StreamResults {
                id: flow.id,
                bytes: count.bytes,
                retransmits: match flow.inside.get().last {
                    Some(_) => count.sent_again as i64,
                    None => -1,
                },
                jitter: count.jitter,
                errors: count.lost,
                omitted_errors: count.omitted_lost,
                packets: count.packets,
                omitted_packets: count.omitted_packets,
                start_time: 0.0,
                end_time: self.seconds(),
            }
        };
        Results {
            sender_has_retransmits: match sends {
                // 0: nobody knows.
                true => self
                    .flows
                    .iter()
                    .any(|flow| flow.inside.get().last.is_some())
                    .into(),
                false => -1,
            },
            congestion_used: tcp.then(|| "cubic".into()),
            streams: self.flows.iter().map(stream).collect(),
            ..Results::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client's test of so many bytes.
    fn test(num: u64) -> Test {
        let parameters = Parameters {
            num,
            ..Parameters::default()
        };
        Test::new(parameters, Clock::default(), true)
    }

    #[test]
    fn what_is_omitted_is_never_enough() {
        let nobody = core::net::SocketAddr::from(([0; 4], 0));
        let (test, flow) = (test(10), Flow::new(0, true, nobody, nobody));
        test.phase.set(Phase::Omitted);
        test.moved(&flow, 20, |count| count.sent(20));
        assert!(test.goes_on());
        test.omit();
        test.moved(&flow, 9, |count| count.sent(9));
        assert!(test.goes_on());
        test.moved(&flow, 1, |count| count.sent(1));
        assert!(!test.goes_on());
    }
}
