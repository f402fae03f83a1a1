//! Rules of a bridge: they judge frames that go from one port to another.

use super::Work;
use super::start::Error;
use super::work::{Seed, Taken};
use abi::capture::Fate;
use device::{Frame, Netif};
use nf::{Key, RuleSet, Verdict, Way};
use ports::Runtime;

/// Rules in force.
pub struct Filter {
    pub(crate) work: Work<RuleSet>,
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
        Ok(Self {
            work: Work::start(runtime, &[], [runtime.command_line, built_in], seed)?,
            key: Key::EMPTY,
        })
    }

    /// What is to be said of connections that the last instance left, if the manifest names a
    /// [`crate::STATE`] for them.
    pub fn said(&self) -> Option<&str> {
        self.work.said()
    }

    /// The path from one port to another, as rules see it.
    pub fn path(&self, from: &dyn Netif, to: &dyn Netif) -> Path {
        let number = |port: &dyn Netif| self.work.number(port.name());
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
        self.work.refresh();
    }

    /// Whether the rules let this frame pass, which takes this `path`. Frames that cannot be read
    /// do not pass; the port that they came in at counts them by reason. What does not pass can be
    /// captured with its fate.
    #[inline]
    pub fn accepts(&mut self, frame: &Frame, path: Path) -> bool {
        let Path { way, index } = path;
        let work = &mut self.work;
        if let Err(malformed) = self.key.read(frame.bytes()) {
            return work.refused(frame.bytes(), index, malformed.index());
        }
        let tracking = match &mut work.tracking.connections {
            Some(connections) => Some((&mut connections.table, work.log.now(work.runtime))),
            None => None,
        };
        let mut taken = Taken {
            runtime: work.runtime,
            counters: work.counters,
            log: &mut work.log,
            ports: &work.ports,
            link: self.key.network_offset(),
            bytes: frame.len(),
        };
        let judged = match tracking {
            Some((table, now)) => table.judge(&self.key, frame.bytes(), now, |connection| {
                work.rules
                    .verdict_within(&self.key, way, connection, &mut taken)
            }),
            None => Ok(work.rules.verdict(&self.key, way, &mut taken)),
        };
        let (verdict, rule) = match judged {
            Ok(judged) => judged,
            Err(refused) => return work.refused(frame.bytes(), index, refused.index()),
        };
        let accepted = verdict == Verdict::Accept;
        if !accepted {
            work.dropped(frame.bytes(), index, Fate::Rule(rule as u16));
        }
        accepted
    }
}

/// The path of frames that come in at one port and are to leave by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// The two ports as rules number them.
    pub(crate) way: Way,
    /// Index of the first one among the image's devices.
    pub(crate) index: u8,
}
