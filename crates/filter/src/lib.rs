//! Rules at work in an appliance: where they come from, what they count and log, and how others
//! take their place while frames pass.
//!
//! An appliance asks [`Filter::refresh`] between batches and [`Filter::accepts`] for each frame.
//! Rules come from the host ([`unikernel::rules`]), or else from the command line, or else from the
//! image itself.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod start;

pub use start::Error;

use abi::share::{PORT_APPLIANCE, RulesRefused};
use alloc::vec::Vec;
use device::Frame;
use nf::log::{Line, TokenBucket};
use nf::nft::{ErrorKind, Limits};
use nf::{Key, RuleIndex, RuleSet, Tally, Verdict, Way};
use unikernel::rules::{Feed, Offer, RuleCounters};
use unikernel::{Fate, Port, println};

/// Lines that rules may log at once after a silence.
const LOG_BURST: u64 = 20;
/// Nanoseconds in which they may log one more, in the long run.
const LOG_INTERVAL: u64 = 100_000_000;

/// Rules in force.
pub struct Filter {
    feed: Feed,
    rules: RuleSet,
    counters: RuleCounters,
    /// Names of the ports, by the number that rules have for them.
    ports: Vec<&'static str>,
    log: Log,
    /// The frame at hand.
    key: Key,
}

impl Filter {
    /// Begins with the rules of the host, or else those of the command line, or else `built_in`.
    ///
    /// # Errors
    /// They are no rules, or need more memory than there is.
    pub fn start(built_in: &str) -> Result<Self, Error> {
        let ports: Vec<_> = unikernel::networks().collect();
        let mut feed = Feed::new();
        let (rules, counters) = start::first(&mut feed, &ports, built_in)?;
        Ok(Self {
            feed,
            rules,
            counters,
            ports,
            log: Log::new(),
            key: Key::EMPTY,
        })
    }

    /// The way from one port to another, as rules see it.
    pub fn way(&self, from: &Port, to: &Port) -> Way {
        let number = |port: &Port| {
            let position = self.ports.iter().position(|name| *name == port.name());
            position.map_or(u8::MAX, |position| position as u8)
        };
        Way {
            from: number(from),
            to: number(to),
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
    }

    #[cold]
    fn replace(&mut self) {
        let Some(offer) = self.feed.offer() else {
            return;
        };
        match load(offer.text(), &self.ports) {
            Ok(rules) => {
                self.counters = self.feed.accept(&offer, rules.len() + 1);
                self.rules = rules;
            }
            Err(refusal) => refuse(&mut self.feed, &offer, &refusal),
        }
    }

    /// Whether the rules let this frame pass, which came in at `port` and goes this `way`. Frames
    /// that cannot be read do not pass; the port counts them by reason. What does not pass can be
    /// captured with its fate.
    #[inline]
    pub fn accepts(&mut self, frame: &Frame, port: &Port, way: Way) -> bool {
        if let Err(malformed) = self.key.read(frame.bytes()) {
            let number = PORT_APPLIANCE + malformed.index();
            port.counter(number).add(1);
            port.dropped(frame, Fate::Counter(number as u16));
            return false;
        }
        let mut taken = Taken {
            counters: self.counters,
            log: &mut self.log,
            ports: &self.ports,
            way,
            key: &self.key,
            bytes: frame.len(),
        };
        let (verdict, rule) = self.rules.verdict(&self.key, way, &mut taken);
        let accepted = verdict == Verdict::Accept;
        if !accepted {
            port.dropped(frame, Fate::Rule(rule as u16));
        }
        accepted
    }
}

/// Why a text is not used.
enum Refusal {
    /// It is no rules.
    Invalid(nf::nft::Error),
    /// It needs more memory than there is.
    Memory,
}

/// The rules that `text` is, if there is memory for them.
fn load(text: &str, ports: &[&str]) -> Result<RuleSet, Refusal> {
    let limits = nf::limits_within(text, unikernel::has_room).ok_or(Refusal::Memory)?;
    nf::load(text, ports, &limits).map_err(|error| match error.kind {
        ErrorKind::Limit { .. } if limits != Limits::DEFAULT => Refusal::Memory,
        _ => Refusal::Invalid(error),
    })
}

fn refuse(feed: &mut Feed, offer: &Offer, refusal: &Refusal) {
    let (reason, position) = match refusal {
        Refusal::Invalid(error) => (RulesRefused::Invalid, error.span.start as usize),
        Refusal::Memory => (RulesRefused::Memory, 0),
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
}

/// Takes down what rules count and log for one frame.
struct Taken<'a> {
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
        let now = *self.log.now.get_or_insert_with(|| unikernel::monotonic().0);
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
            println!("{line}");
        }
    }
}
