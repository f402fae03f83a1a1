//! Rules of any kind at work: where they come from, and who takes down what they count and log.

use super::connections::{Connections, Spare, Table, key};
use super::start::Error;
use super::{STATE, elements, flows, kept, start};
use abi::capture::Fate;
use abi::inquiry::Subject;
use abi::share::{COUNTERS_PER_PORT, PORT_APPLIANCE, RulesRefused};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use nf::conntrack::Conntrack;
use nf::log::{Line, TokenBucket};
use nf::nft::{self, ErrorKind, Limits};
use nf::{Key, Moment, Routes, RuleIndex, RuleSet, Tally, Way, router};
use ports::Runtime;
use ports::inquiry::Inquiry;
use ports::rules::{Feed, Offer, RuleCounters};

/// Lines that rules may log at once after a silence.
pub(crate) const LOG_BURST: u64 = 20;
/// Nanoseconds in which they may log one more, in the long run.
pub(crate) const LOG_INTERVAL: u64 = 100_000_000;

/// What is answered here.
const SUBJECTS: &[Subject] = &[
    Subject::Flows,
    Subject::FlowsEnd,
    Subject::Elements,
    Subject::ElementsAdd,
    Subject::ElementsDelete,
];

/// Rules of one kind.
pub(crate) trait Ruled: Sized {
    /// The connections that they ask for.
    type Table: Table;

    /// The rules that a text is; see [`nf::load`].
    fn load(text: &str, ports: &[&str], limits: &Limits) -> Result<Self, nft::Error>;

    /// How many counters they have.
    fn counters(&self) -> usize;

    /// Whether they ask for connections.
    fn tracks(&self) -> bool;

    /// Whether they change sets.
    fn remembers(&self) -> bool;

    /// All of them, with those sets.
    fn set(&self) -> &RuleSet;

    /// Begins those; see [`RuleSet::begin`].
    fn begin(&mut self, secret: &[u8; 16], now: u64, before: Option<&Self>);

    /// Counters and quotas that have a name, and their places among the counters.
    fn named(&self) -> impl Iterator<Item = (&str, RuleIndex)>;

    /// Quotas that have a name go on from the bytes that their counters have.
    fn take_up(&self, bytes: impl Fn(RuleIndex) -> u64);
}

impl Ruled for RuleSet {
    type Table = Conntrack;

    fn load(text: &str, ports: &[&str], limits: &Limits) -> Result<Self, nft::Error> {
        nf::load(text, ports, limits)
    }

    fn counters(&self) -> usize {
        Self::counters(self)
    }

    fn tracks(&self) -> bool {
        Self::tracks(self)
    }

    fn remembers(&self) -> bool {
        Self::remembers(self)
    }

    fn set(&self) -> &RuleSet {
        self
    }

    fn begin(&mut self, secret: &[u8; 16], now: u64, before: Option<&Self>) {
        Self::begin(self, secret, now, before);
    }

    fn named(&self) -> impl Iterator<Item = (&str, RuleIndex)> {
        Self::named(self)
    }

    fn take_up(&self, bytes: impl Fn(RuleIndex) -> u64) {
        Self::take_up(self, bytes);
    }
}

impl Ruled for router::Rules {
    type Table = router::Connections;

    fn load(text: &str, ports: &[&str], limits: &Limits) -> Result<Self, nft::Error> {
        Self::load(text, ports, limits)
    }

    fn counters(&self) -> usize {
        Self::counters(self)
    }

    fn tracks(&self) -> bool {
        Self::tracks(self)
    }

    fn remembers(&self) -> bool {
        Self::remembers(self)
    }

    fn set(&self) -> &RuleSet {
        Self::set(self)
    }

    fn begin(&mut self, secret: &[u8; 16], now: u64, before: Option<&Self>) {
        Self::begin(self, secret, now, before);
    }

    fn named(&self) -> impl Iterator<Item = (&str, RuleIndex)> {
        Self::named(self)
    }

    fn take_up(&self, bytes: impl Fn(RuleIndex) -> u64) {
        Self::take_up(self, bytes);
    }
}

/// Rules in force.
pub(crate) struct Work<R: Ruled> {
    pub(crate) runtime: &'static Runtime,
    pub(crate) feed: Feed,
    pub(crate) rules: R,
    pub(crate) counters: RuleCounters,
    pub(crate) tracking: Tracking<R::Table>,
    /// Names of the ports, by the number that rules have for them.
    pub(crate) ports: Vec<&'static str>,
    pub(crate) log: Log,
    /// Questions about connections and elements.
    inquiry: Inquiry,
}

impl<R: Ruled> Work<R> {
    /// Begins with the rules of the host, or else those of the command line, or else those that
    /// are built in, which are `texts`. Beside those of the manifest, there are ports of these
    /// names.
    pub(crate) fn start(
        runtime: &'static Runtime,
        others: &[&'static str],
        texts: [&str; 2],
        seed: Seed,
    ) -> Result<Self, Error> {
        let mut ports: Vec<_> = runtime.devices.ports().map(|(name, _)| name).collect();
        let is_other = |name: &&'static str| !ports.contains(name);
        let others: Vec<_> = others.iter().copied().filter(is_other).collect();
        ports.extend(others);
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
        let mut load = |text: &str, revalidates| {
            let before = Before {
                rules: None,
                revalidates,
            };
            load::<R>(runtime, text, &ports, &mut tracking, before)
        };
        let (rules, counters) = start::first(&mut feed, texts, &mut load)?;
        tracking.spare.forget();
        rules.take_up(|place| counters.get(place)[1]);
        Ok(Self {
            runtime,
            feed,
            rules,
            counters,
            tracking,
            ports,
            log: Log::new(),
            inquiry: Inquiry::new(&runtime.share, SUBJECTS),
        })
    }

    pub(crate) fn said(&self) -> Option<&str> {
        self.tracking.said.as_deref()
    }

    /// The number that rules have for a port.
    pub(crate) fn number(&self, port: &str) -> u8 {
        let position = self.ports.iter().position(|name| *name == port);
        position.map_or(u8::MAX, |position| position as u8)
    }

    #[inline]
    pub(crate) fn refresh(&mut self) {
        self.log.now = None;
        if self.feed.is_pending() {
            self.replace();
        }
        if let Some(connections) = &mut self.tracking.connections {
            connections.refresh(self.runtime, self.log.now(self.runtime));
        }
        if let Some(question) = self.inquiry.question() {
            if elements::SUBJECTS.contains(&question.subject) {
                elements::answer(&mut self.inquiry, question, self.rules.set(), self.runtime);
                return;
            }
            let connections = self.tracking.connections.as_mut();
            let table = connections.map(|connections| connections.table.conntrack());
            flows::answer(&mut self.inquiry, question, table, self.runtime);
        }
    }

    #[cold]
    fn replace(&mut self) {
        let Some(offer) = self.feed.offer() else {
            return;
        };
        let tracking = &mut self.tracking;
        let before = Before {
            rules: Some(&self.rules),
            revalidates: offer.revalidates(),
        };
        match load(self.runtime, offer.text(), &self.ports, tracking, before) {
            Ok(rules) => {
                let counted = named(&self.rules, self.counters);
                self.counters = self.feed.accept(&offer, rules.counters());
                go_on(&rules, self.counters, &counted);
                self.rules = rules;
            }
            Err(refusal) => refuse(&mut self.feed, &offer, &refusal),
        }
    }

    /// Drops a frame before any rule, for the reason that the port of this `index` counts under
    /// this number.
    pub(crate) fn refused(&self, frame: &[u8], index: u8, reason: usize) -> bool {
        let number = PORT_APPLIANCE + reason;
        let counter = usize::from(index) * COUNTERS_PER_PORT + number;
        self.runtime.counter(counter).add(1);
        self.dropped(frame, index, Fate::Counter(number as u16));
        false
    }

    #[inline]
    pub(crate) fn dropped(&self, frame: &[u8], index: u8, fate: Fate) {
        self.runtime.capture.dropped(index, frame, fate);
    }
}

/// Where random bytes come from, if there are any.
pub type Seed = fn() -> Option<[u8; 32]>;

/// Why a text is not used.
pub(crate) enum Refusal {
    /// It is no rules.
    Invalid(nf::nft::Error),
    /// It needs more memory than there is.
    Memory,
    /// It asks for connections or changes sets, and there are no random bytes to hide them by.
    Random,
    /// It asks for connections, and the memory that outlives the appliance has no room for one.
    State,
}

/// Connections, and where they are when rules ask for none.
pub(crate) struct Tracking<T> {
    /// There are some if the rules ask for them.
    pub(crate) connections: Option<Connections<T>>,
    spare: Spare<T>,
    /// Where random bytes come from.
    seed: Seed,
    /// What is to be said of those that the last instance left.
    said: Option<String>,
}

/// What was in force before rules that are loaded.
struct Before<'a, R> {
    /// None if these are the first of this instance.
    rules: Option<&'a R>,
    /// Whether connections that began under others are judged anew.
    revalidates: bool,
}

/// The rules that `text` is, if there is memory for them. Connections go on under the next rules
/// if those ask for connections, and are forgotten otherwise; elements of sets that rules change go
/// on if both have the set.
fn load<R: Ruled>(
    runtime: &Runtime,
    text: &str,
    ports: &[&str],
    tracking: &mut Tracking<R::Table>,
    before: Before<'_, R>,
) -> Result<R, Refusal> {
    let limits = nf::limits_within(text, runtime.has_room).ok_or(Refusal::Memory)?;
    let mut rules = R::load(text, ports, &limits).map_err(|error| match error.kind {
        ErrorKind::Limit { .. } if limits != Limits::DEFAULT => Refusal::Memory,
        _ => Refusal::Invalid(error),
    })?;
    if rules.remembers() {
        rules.begin(&key(tracking.seed)?, runtime.host.monotonic(), before.rules);
    }
    match (rules.tracks(), tracking.connections.take()) {
        (true, Some(mut connections)) => {
            connections.table.rules_changed();
            if before.revalidates {
                connections.table.conntrack().revalidate();
            }
            tracking.connections = Some(connections);
        }
        (true, None) => {
            let (mut connections, said) = tracking.spare.begin(runtime, tracking.seed)?;
            // The last instance may have left some.
            if before.revalidates {
                connections.table.conntrack().revalidate();
            }
            tracking.connections = Some(connections);
            tracking.said = said.or(tracking.said.take());
        }
        (false, Some(connections)) => tracking.spare = connections.end(runtime),
        (false, None) => {}
    }
    Ok(rules)
}

/// What objects that have a name have counted.
fn named<R: Ruled>(rules: &R, counters: RuleCounters) -> BTreeMap<String, [u64; 2]> {
    let named = rules.named();
    named
        .map(|(name, place)| (name.into(), counters.get(place)))
        .collect()
}

/// Objects of the same name, in a table of the same name, go on from what others have counted.
fn go_on<R: Ruled>(rules: &R, counters: RuleCounters, counted: &BTreeMap<String, [u64; 2]>) {
    for (name, place) in rules.named() {
        if let Some(counted) = counted.get(name) {
            counters.set(place, *counted);
        }
    }
    rules.take_up(|place| counters.get(place)[1]);
}

pub(crate) fn refuse(feed: &mut Feed, offer: &Offer, refusal: &Refusal) {
    let (reason, position) = match refusal {
        Refusal::Invalid(error) => (RulesRefused::Invalid, error.span.start as usize),
        Refusal::Memory | Refusal::State => (RulesRefused::Memory, 0),
        Refusal::Random => (RulesRefused::Random, 0),
    };
    feed.refuse(offer, reason, position);
}

/// How much may be logged at the moment.
pub(crate) struct Log {
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
    pub(crate) fn now(&mut self, runtime: &Runtime) -> u64 {
        *self.now.get_or_insert_with(|| runtime.host.monotonic())
    }
}

/// Takes down what rules count and log for one frame.
pub(crate) struct Taken<'a> {
    pub(crate) runtime: &'static Runtime,
    pub(crate) counters: RuleCounters,
    pub(crate) log: &'a mut Log,
    pub(crate) ports: &'a [&'static str],
    /// Bytes in front of the network header, which are not counted.
    pub(crate) link: usize,
    /// Bytes of the frame.
    pub(crate) bytes: usize,
    /// What the router knows of addresses, where it can say.
    pub(crate) routes: Option<&'a dyn Routes>,
}

impl Taken<'_> {
    fn port(&self, number: u8) -> &'static str {
        self.ports.get(usize::from(number)).copied().unwrap_or("")
    }
}

impl Tally for Taken<'_> {
    #[inline]
    fn count(&mut self, rule: RuleIndex) {
        let counted = self.bytes.saturating_sub(self.link);
        self.counters.count(rule, counted as u64);
    }

    #[inline(never)]
    fn moment(&mut self) -> Moment {
        Moment {
            now: self.log.now(self.runtime),
            bytes: self.bytes.saturating_sub(self.link) as u64,
        }
    }

    fn bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.link) as u64
    }

    fn routes(&self) -> Option<&dyn Routes> {
        self.routes
    }

    #[cold]
    fn log(&mut self, rule: RuleIndex, prefix: &str, key: &Key, way: Way) {
        let now = self.log.now(self.runtime);
        if let Some(suppressed) = self.log.bucket.take(now) {
            let line = Line {
                suppressed,
                prefix,
                rule,
                from: self.port(way.from),
                to: self.port(way.to),
                key,
                bytes: self.bytes,
            };
            self.runtime.print(format_args!("{line}\n"));
        }
    }
}
