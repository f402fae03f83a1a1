//! Rules at work in an appliance: where they come from, what they count and log, and how others
//! take their place while frames pass.
//!
//! An appliance calls [`Filter::refresh`] between batches and [`Filter::accepts`] for each frame.
//! Rules come from the host ([`ports::rules`]), or else from the command line, or else from the
//! image itself. A filter knows ports by their name and index alone, so they may be of any kind,
//! or layers around others.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod connections;
mod kept;
mod start;
#[cfg(test)]
mod tests;

pub use kept::STATE;
pub use start::Error;

use abi::capture::Fate;
use abi::share::{COUNTERS_PER_PORT, PORT_APPLIANCE, RulesRefused};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use connections::{Connections, Spare};
use device::{Frame, Netif};
use nf::conntrack::Connection;
use nf::log::{Line, TokenBucket};
use nf::nft::{ErrorKind, Limits};
use nf::{Key, RuleIndex, RuleSet, Tally, Verdict, Way};
use ports::Runtime;
use ports::rules::{Feed, Offer, RuleCounters};

/// Lines that rules may log at once after a silence.
const LOG_BURST: u64 = 20;
/// Nanoseconds in which they may log one more, in the long run.
const LOG_INTERVAL: u64 = 100_000_000;

/// Rules in force.
pub struct Filter {
    runtime: &'static Runtime,
    feed: Feed,
    rules: RuleSet,
    counters: RuleCounters,
    tracking: Tracking,
    /// Names of the ports, by the number that rules have for them.
    ports: Vec<&'static str>,
    log: Log,
    /// The frame at hand.
    key: Key,
}

impl Filter {
    /// Begins with the rules of the host, or else those of the command line, or else `built_in`.
    /// `seed` is asked for random bytes once rules ask for connections.
    ///
    /// # Errors
    /// They are no rules, or need more memory than there is, or random bytes.
    pub fn start(runtime: &'static Runtime, built_in: &str, seed: Seed) -> Result<Self, Error> {
        let ports: Vec<_> = runtime.devices.ports().map(|(name, _)| name).collect();
        let mut feed = Feed::new(&runtime.share);
        let mut tracking = Tracking {
            connections: None,
            spare: Spare::Heap,
            seed,
            said: None,
        };
        if let Some(mut kept) = kept::open(runtime).map_err(Error::state)? {
            feed.keep(core::mem::take(&mut kept.counters));
            let said = |why| format!("{STATE}: none goes on: {why}");
            tracking.said = kept.refused.map(said);
            tracking.spare = Spare::Memory(kept);
        }
        let mut load = |text: &str| load(runtime, text, &ports, &mut tracking);
        let (rules, counters) = start::first(runtime, &mut feed, built_in, &mut load)?;
        tracking.spare.forget();
        Ok(Self {
            runtime,
            feed,
            rules,
            counters,
            tracking,
            ports,
            log: Log::new(),
            key: Key::EMPTY,
        })
    }

    /// What is to be said of connections that the last instance left, if the manifest names a
    /// [`STATE`] for them.
    pub fn said(&self) -> Option<&str> {
        self.tracking.said.as_deref()
    }

    /// The path from one port to another, as rules see it.
    pub fn path(&self, from: &dyn Netif, to: &dyn Netif) -> Path {
        let number = |port: &dyn Netif| {
            let position = self.ports.iter().position(|name| *name == port.name());
            position.map_or(u8::MAX, |position| position as u8)
        };
        Path {
            way: Way {
                from: number(from),
                to: number(to),
            },
            index: from.wait_handle().0,
        }
    }

    /// Uses the rules that the host wants to be used, if it has new ones. To be called before each
    /// batch; if there is nothing new, it costs one load of memory.
    #[inline]
    pub fn refresh(&mut self) {
        self.log.now = None;
        if self.feed.is_pending() {
            self.replace();
        }
        if let Some(connections) = &mut self.tracking.connections {
            connections.refresh(self.runtime, self.log.now(self.runtime));
        }
    }

    #[cold]
    fn replace(&mut self) {
        let Some(offer) = self.feed.offer() else {
            return;
        };
        let tracking = &mut self.tracking;
        match load(self.runtime, offer.text(), &self.ports, tracking) {
            Ok(rules) => {
                self.counters = self.feed.accept(&offer, rules.len() + 1);
                self.rules = rules;
            }
            Err(refusal) => refuse(&mut self.feed, &offer, &refusal),
        }
    }

    /// Whether the rules let this frame pass, which takes this `path`. Frames that cannot be read
    /// do not pass; the port that they came in at counts them by reason. What does not pass can be
    /// captured with its fate.
    #[inline]
    pub fn accepts(&mut self, frame: &Frame, path: Path) -> bool {
        let Path { way, index } = path;
        if let Err(malformed) = self.key.read(frame.bytes()) {
            return self.refused(frame, index, malformed.index());
        }
        let tracking = match &mut self.tracking.connections {
            Some(connections) => Some((&mut connections.table, self.log.now(self.runtime))),
            None => None,
        };
        let mut taken = Taken {
            runtime: self.runtime,
            counters: self.counters,
            log: &mut self.log,
            ports: &self.ports,
            way,
            key: &self.key,
            bytes: frame.len(),
        };
        let judged = match tracking {
            Some((table, now)) => {
                let rules = &mut |connection: &Connection<'_>| {
                    self.rules
                        .verdict_within(&self.key, way, connection, &mut taken)
                };
                table.judge(&self.key, frame.bytes(), now, rules)
            }
            None => Ok(self.rules.verdict(&self.key, way, &mut taken)),
        };
        let (verdict, rule) = match judged {
            Ok(judged) => judged,
            Err(refused) => return self.refused(frame, index, refused.index()),
        };
        let accepted = verdict == Verdict::Accept;
        if !accepted {
            self.dropped(frame, index, Fate::Rule(rule as u16));
        }
        accepted
    }

    /// Drops a frame before any rule, for the reason that the port counts under this number.
    fn refused(&self, frame: &Frame, index: u8, reason: usize) -> bool {
        let number = PORT_APPLIANCE + reason;
        let counter = usize::from(index) * COUNTERS_PER_PORT + number;
        self.runtime.counter(counter).add(1);
        self.dropped(frame, index, Fate::Counter(number as u16));
        false
    }

    #[inline]
    fn dropped(&self, frame: &Frame, index: u8, fate: Fate) {
        self.runtime.capture.dropped(index, frame.bytes(), fate);
    }
}

/// The path of frames that come in at one port and are to leave by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// The two ports as rules number them.
    way: Way,
    /// Index of the first one among the image's devices.
    index: u8,
}

/// Where random bytes come from, if there are any.
pub type Seed = fn() -> Option<[u8; 32]>;

/// Why a text is not used.
enum Refusal {
    /// It is no rules.
    Invalid(nf::nft::Error),
    /// It needs more memory than there is.
    Memory,
    /// It asks for connections, and there are no random bytes to hide them by.
    Random,
    /// It asks for connections, and the memory that outlives the appliance has no room for one.
    State,
}

/// Connections, and where they are when rules ask for none.
struct Tracking {
    /// There are some if the rules ask for them.
    connections: Option<Connections>,
    spare: Spare,
    /// Where random bytes come from.
    seed: Seed,
    /// What is to be said of those that the last instance left.
    said: Option<String>,
}

/// The rules that `text` is, if there is memory for them. Connections go on under the next rules
/// if those ask for connections, and are forgotten otherwise.
fn load(
    runtime: &Runtime,
    text: &str,
    ports: &[&str],
    tracking: &mut Tracking,
) -> Result<RuleSet, Refusal> {
    let limits = nf::limits_within(text, runtime.has_room).ok_or(Refusal::Memory)?;
    let rules = nf::load(text, ports, &limits).map_err(|error| match error.kind {
        ErrorKind::Limit { .. } if limits != Limits::DEFAULT => Refusal::Memory,
        _ => Refusal::Invalid(error),
    })?;
    match (rules.tracks(), tracking.connections.take()) {
        (true, Some(mut connections)) => {
            connections.table.rules_changed();
            tracking.connections = Some(connections);
        }
        (true, None) => {
            let (connections, said) = tracking.spare.begin(runtime, tracking.seed)?;
            tracking.connections = Some(connections);
            tracking.said = said.or(tracking.said.take());
        }
        (false, Some(connections)) => tracking.spare = connections.end(runtime),
        (false, None) => {}
    }
    Ok(rules)
}

fn refuse(feed: &mut Feed, offer: &Offer, refusal: &Refusal) {
    let (reason, position) = match refusal {
        Refusal::Invalid(error) => (RulesRefused::Invalid, error.span.start as usize),
        Refusal::Memory | Refusal::State => (RulesRefused::Memory, 0),
        Refusal::Random => (RulesRefused::Random, 0),
    };
    feed.refuse(offer, reason, position);
}

/// How much may be logged at the moment.
struct Log {
    bucket: TokenBucket,
    /// The time, once it has been asked for since the last batch.
    now: Option<u64>,
}

impl Log {
    const fn new() -> Self {
        Self {
            bucket: TokenBucket::new(LOG_BURST, LOG_INTERVAL),
            now: None,
        }
    }

    /// The time, which is asked for once a batch.
    fn now(&mut self, runtime: &Runtime) -> u64 {
        *self.now.get_or_insert_with(|| runtime.host.monotonic())
    }
}

/// Takes down what rules count and log for one frame.
struct Taken<'a> {
    runtime: &'static Runtime,
    counters: RuleCounters,
    log: &'a mut Log,
    ports: &'a [&'static str],
    way: Way,
    key: &'a Key,
    bytes: usize,
}

impl Taken<'_> {
    fn port(&self, number: u8) -> &'static str {
        self.ports.get(usize::from(number)).copied().unwrap_or("")
    }
}

impl Tally for Taken<'_> {
    #[inline]
    fn count(&mut self, rule: RuleIndex) {
        let counted = self.bytes - self.key.network_offset();
        self.counters.count(rule, counted as u64);
    }

    #[cold]
    fn log(&mut self, rule: RuleIndex, prefix: &str) {
        let now = self.log.now(self.runtime);
        if let Some(suppressed) = self.log.bucket.take(now) {
            let line = Line {
                suppressed,
                prefix,
                rule,
                from: self.port(self.way.from),
                to: self.port(self.way.to),
                key: self.key,
                bytes: self.bytes,
            };
            self.runtime.print(format_args!("{line}\n"));
        }
    }
}
