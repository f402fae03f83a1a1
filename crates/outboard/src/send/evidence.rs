//! What counters before and after say about one frame in between: pure decisions.

use crate::stats::raw::Raw;
use abi::share::{COUNTERS_PER_PORT, PORT_APPLIANCE, PORT_COUNTERS, PortCounter};
use nf::conntrack::Refused;
use nf::{Malformed, RuleIndex};

/// What the runtime counts of a frame that it hands to the appliance.
const RECEIVED: usize = PortCounter::RxFrames as usize;
/// What the runtime counts when it drops a frame that it took from the host.
const RECEIVE_DROPS: [PortCounter; 3] = [
    PortCounter::RxTooLong,
    PortCounter::RxRunt,
    PortCounter::RxBadHeader,
];
/// What the runtime counts when it does not hand a frame to the host.
const TRANSMIT_DROPS: [PortCounter; 4] = [
    PortCounter::TxTooBig,
    PortCounter::TxLinkDown,
    PortCounter::TxRefused,
    PortCounter::TxNoRoom,
];

/// The counters of a port, by number.
pub(super) type Block = [u64; COUNTERS_PER_PORT];

/// The counters that can tell what became of a frame, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    /// Generation of the rules, and the slot of its counters.
    in_force: (u64, u64),
    /// Frames that each rule has counted, the policy last.
    rules: Vec<u64>,
    /// The port that the frame enters, then the others.
    ports: Vec<Block>,
}

impl Counts {
    /// Those of `raw` and of the ports with these indices in the manifest, the one that the frame
    /// enters first. Counters that the file does not have are zero.
    pub fn new(raw: &Raw, ports: &[usize]) -> Self {
        let block = |index: &usize| {
            let first = index.saturating_mul(COUNTERS_PER_PORT);
            let counters = raw.counters.get(first..).unwrap_or_default();
            let block = counters.first_chunk::<COUNTERS_PER_PORT>();
            block.copied().unwrap_or([0; COUNTERS_PER_PORT])
        };
        Self {
            in_force: (raw.status.generation, raw.status.slot),
            rules: raw.rules.iter().map(|counter| counter.frames).collect(),
            ports: ports.iter().map(block).collect(),
        }
    }

    /// What has been counted since `before`; `None` if the rules were replaced in between.
    pub fn since(&self, before: &Self) -> Option<Rise> {
        if self.in_force != before.in_force || self.rules.len() != before.rules.len() {
            return None;
        }
        let rules = self.rules.iter().zip(&before.rules).enumerate();
        let ports = self.ports.iter().zip(&before.ports);
        Some(Rise {
            rules: rules
                .map(|(rule, (after, before))| (rule, after.wrapping_sub(*before)))
                .filter(|(_, frames)| *frames > 0)
                .collect(),
            ports: ports
                .map(|(after, before)| {
                    std::array::from_fn(|number| after[number].wrapping_sub(before[number]))
                })
                .collect(),
        })
    }
}

/// What has been counted between two moments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rise {
    /// The rules that have counted something, and how many frames.
    pub rules: Vec<(RuleIndex, u64)>,
    /// The port that the frame entered, then the others.
    ports: Vec<Block>,
}

impl Rise {
    /// Frames that came into the guest, at any port.
    pub fn arrived(&self) -> u64 {
        let arrivals = [PortCounter::RxFrames].into_iter().chain(RECEIVE_DROPS);
        let counts =
            arrivals.flat_map(|what| self.ports.iter().map(move |port| port[what as usize]));
        counts.fold(0, u64::wrapping_add)
    }

    /// What each port has counted, by number: that which the frame entered, then the others.
    pub fn ports(&self) -> &[Block] {
        &self.ports
    }

    /// Why frames were dropped in front of all rules, at the port that the frame entered.
    fn dropped(&self) -> Vec<&'static str> {
        let malformed =
            Malformed::ALL.map(|reason| (PORT_APPLIANCE + reason.index(), reason.name()));
        let malformed = malformed
            .into_iter()
            .filter(|what| self.entered(what.0) > 0);
        let malformed = malformed.map(|(_, name)| name);
        let refused = Refused::ALL
            .into_iter()
            .filter(|reason| self.entered(PORT_APPLIANCE + reason.index()) > 0);
        let refused = refused.map(Refused::name);
        self.dropped_by_runtime()
            .into_iter()
            .chain(malformed)
            .chain(refused)
            .collect()
    }

    /// The same, by what drops frames whether the guest has rules or not.
    fn dropped_by_runtime(&self) -> Vec<&'static str> {
        let reasons = RECEIVE_DROPS.map(named).into_iter();
        let reasons = reasons.filter(|what| self.entered(what.0) > 0);
        reasons.map(|(_, name)| name).collect()
    }

    /// What the port that the frame entered has counted under this number.
    fn entered(&self, number: usize) -> u64 {
        self.ports.first().map_or(0, |port| port[number])
    }

    /// Why frames were dropped behind all rules, at the other ports.
    pub fn lost(&self) -> Vec<&'static str> {
        let others = self.ports.get(1..).unwrap_or_default();
        let rose = |&(number, _): &(usize, _)| others.iter().any(|port| port[number] > 0);
        let reasons = TRANSMIT_DROPS.map(named).into_iter().filter(rose);
        reasons.map(|(_, name)| name).collect()
    }
}

fn named(what: PortCounter) -> (usize, &'static str) {
    (what as usize, PORT_COUNTERS[what as usize])
}

/// What must be counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// The guest takes no rules: that the frame arrives is all that is known to be counted.
    Arrival,
    /// The rules have no text: anything may be.
    Anything,
    /// The firewall cannot read the frame.
    Malformed(Malformed),
    /// These rules count it, each as often as it stands here.
    Counted(Vec<RuleIndex>),
}

/// What became of the frame, as far as counters tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// Nothing has counted it.
    Nothing,
    /// It was dropped in front of all rules, for one of these reasons.
    Dropped(Vec<&'static str>),
    /// Rules have counted what they were expected to.
    Counted,
    /// Rules have counted frames, but not as expected.
    Contradicted,
    /// It arrived, and there are no rules.
    Arrived,
    /// The rules were replaced while it was under way.
    Replaced,
    /// The guest counts nothing at all.
    Uncounted,
}

impl Finding {
    /// Whether it says what became of the frame.
    pub fn is_found(&self) -> bool {
        matches!(self, Self::Counted | Self::Dropped(_) | Self::Arrived)
    }
}

/// What became of the frame. Others that came at the same time may have counted too: only what
/// is missing can contradict.
pub(super) fn find(rise: &Rise, expected: &Expected) -> Finding {
    let dropped = match expected {
        Expected::Arrival => rise.dropped_by_runtime(),
        _ => rise.dropped(),
    };
    let counted = match expected {
        Expected::Arrival if dropped.is_empty() && rise.entered(RECEIVED) > 0 => {
            return Finding::Arrived;
        }
        Expected::Arrival => false,
        Expected::Anything => !rise.rules.is_empty(),
        Expected::Malformed(reason) if dropped.contains(&reason.name()) => {
            return Finding::Dropped(vec![reason.name()]);
        }
        Expected::Malformed(_) => false,
        Expected::Counted(rules) => has_counted(rise, rules),
    };
    if counted {
        Finding::Counted
    } else if !dropped.is_empty() {
        Finding::Dropped(dropped)
    } else if !rise.rules.is_empty() {
        Finding::Contradicted
    } else {
        Finding::Nothing
    }
}

/// Whether `rules` have counted. When nothing else came in, none may have counted besides.
fn has_counted(rise: &Rise, rules: &[RuleIndex]) -> bool {
    let times = |rule| rules.iter().filter(|other| **other == rule).count() as u64;
    let risen = |rule| {
        let found = rise.rules.iter().find(|(counted, _)| *counted == rule);
        found.map_or(0, |(_, frames)| *frames)
    };
    if rise.arrived() == 1 {
        let exact = |&(rule, frames): &(RuleIndex, u64)| frames == times(rule);
        return rise.rules.iter().all(exact) && rules.iter().all(|rule| risen(*rule) > 0);
    }
    rules.iter().all(|rule| risen(*rule) >= times(*rule))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::snapshot::tests::raw;

    const PORTS: [usize; 2] = [1, 2];

    fn count(raw: &mut Raw, port: usize, what: usize) {
        raw.counters[port * COUNTERS_PER_PORT + what] += 1;
    }

    /// What has been counted when `change` happened to a guest with two rules and a policy.
    fn after(change: impl FnOnce(&mut Raw)) -> Rise {
        let before = raw();
        let mut after = before.clone();
        change(&mut after);
        let rise = Counts::new(&after, &PORTS).since(&Counts::new(&before, &PORTS));
        rise.unwrap()
    }

    #[test]
    fn a_frame_that_nothing_counted_is_not_found() {
        let rise = after(|_| {});
        for expected in [
            Expected::Anything,
            Expected::Arrival,
            Expected::Counted(vec![0]),
            Expected::Malformed(Malformed::Runt),
        ] {
            assert_eq!(find(&rise, &expected), Finding::Nothing);
        }
        assert_eq!(rise.arrived(), 0);
        // It arrived, and its verdict is not counted yet.
        let rise = after(|raw| count(raw, 1, PortCounter::RxFrames as usize));
        assert_eq!(find(&rise, &Expected::Counted(vec![0])), Finding::Nothing);
        assert_eq!(rise.arrived(), 1);
    }

    #[test]
    fn what_is_expected_is_found_among_other_traffic() {
        let rise = after(|raw| {
            raw.rules[0].frames += 5;
            raw.rules[2].frames += 2;
        });
        for (expected, finding) in [
            (Expected::Counted(vec![0]), Finding::Counted),
            (Expected::Counted(vec![2, 0, 2]), Finding::Counted),
            (Expected::Counted(vec![2, 2, 2]), Finding::Contradicted),
            (Expected::Counted(vec![1]), Finding::Contradicted),
            (Expected::Malformed(Malformed::Runt), Finding::Contradicted),
            (Expected::Anything, Finding::Counted),
        ] {
            assert_eq!(find(&rise, &expected), finding, "{expected:?}");
        }
        assert_eq!(rise.rules, [(0, 5), (2, 2)]);
    }

    #[test]
    fn a_frame_alone_counts_exactly_what_is_expected() {
        let rise = after(|raw| {
            count(raw, 1, PortCounter::RxFrames as usize);
            raw.rules[0].frames += 1;
            raw.rules[2].frames += 1;
        });
        for (rules, finding) in [
            (vec![0, 2], Finding::Counted),
            (vec![0], Finding::Contradicted),
            (vec![0, 0, 2], Finding::Contradicted),
            (vec![0, 1, 2], Finding::Contradicted),
        ] {
            assert_eq!(
                find(&rise, &Expected::Counted(rules.clone())),
                finding,
                "{rules:?}"
            );
        }
    }

    #[test]
    fn a_drop_in_front_of_all_rules_has_its_reason() {
        let reason = Malformed::BadIpChecksum;
        let rise = after(|raw| {
            count(raw, 1, PortCounter::RxFrames as usize);
            count(raw, 1, PORT_APPLIANCE + reason.index());
        });
        let dropped = Finding::Dropped(vec!["bad_ip_checksum"]);
        assert_eq!(find(&rise, &Expected::Malformed(reason)), dropped);
        assert_eq!(find(&rise, &Expected::Counted(vec![0])), dropped);
        // At another port it was another frame.
        let rise = after(|raw| count(raw, 2, PORT_APPLIANCE + reason.index()));
        assert_eq!(find(&rise, &Expected::Malformed(reason)), Finding::Nothing);
        let rise = after(|raw| count(raw, 1, PortCounter::RxTooLong as usize));
        assert_eq!(
            find(&rise, &Expected::Anything),
            Finding::Dropped(vec!["rx_too_long"])
        );
        assert_eq!(rise.arrived(), 1);
    }

    #[test]
    fn an_accepted_frame_may_still_be_lost() {
        let rise = after(|raw| {
            raw.rules[0].frames += 1;
            count(raw, 2, PortCounter::TxLinkDown as usize);
        });
        assert_eq!(rise.lost(), ["link_down"]);
        let rise = after(|raw| count(raw, 1, PortCounter::TxLinkDown as usize));
        assert!(rise.lost().is_empty(), "the way back is not this frame's");
    }

    #[test]
    fn without_rules_it_is_enough_that_it_arrives() {
        let rise = after(|raw| {
            count(raw, 1, PortCounter::RxFrames as usize);
            // An appliance's own counter, and no reason of a firewall's.
            count(raw, 1, PORT_APPLIANCE + Malformed::Runt.index());
        });
        assert_eq!(find(&rise, &Expected::Arrival), Finding::Arrived);
        let rise = after(|raw| count(raw, 1, PortCounter::RxRunt as usize));
        let dropped = Finding::Dropped(vec!["rx_runt"]);
        assert_eq!(find(&rise, &Expected::Arrival), dropped);
        let rise = after(|raw| count(raw, 2, PortCounter::RxFrames as usize));
        assert_eq!(find(&rise, &Expected::Arrival), Finding::Nothing);
    }

    #[test]
    fn replaced_rules_make_counters_useless() {
        let before = Counts::new(&raw(), &PORTS);
        let mut other = raw();
        other.status.generation += 1;
        assert_eq!(Counts::new(&other, &PORTS).since(&before), None);
        let mut other = raw();
        other.rules.pop();
        assert_eq!(Counts::new(&other, &PORTS).since(&before), None);
    }

    #[test]
    fn hostile_numbers_are_only_numbers() {
        let mut wild = raw();
        wild.counters.truncate(40);
        wild.rules[0].frames = u64::MAX;
        let before = Counts::new(&wild, &[usize::MAX, 1]);
        let rise = Counts::new(&raw(), &[usize::MAX, 1])
            .since(&before)
            .unwrap();
        assert_eq!(rise.rules.len(), 1);
        let _ = (rise.arrived(), rise.dropped(), rise.lost());
    }
}
