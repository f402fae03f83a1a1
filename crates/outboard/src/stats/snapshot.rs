//! What an instance has counted, at one moment, by name: the source of every output.

use super::net::{Net, Stranger};
use super::raw::Raw;
use crate::instance::{Description, Device};
use abi::extension::feature;
use abi::share::{
    CONNECTION_COUNTERS, COUNTERS_PER_PORT, PORT_APPLIANCE, PORT_COUNTERS, PortCounter, RULES_MAX,
    RulesRefused, SLOTS,
};
use nf::conntrack::{COUNTED, Class};
use nf::{Listing, Malformed};
use serde::{Serialize, Serializer};
use std::borrow::Cow;

/// What is known of the text of the rules in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Names {
    /// There is no text: the guest came with these rules, and the image does not say what they are.
    BuiltIn,
    /// By number of the counter, the policy last.
    Known(Listing),
    /// Why the text says nothing.
    Unknown(String),
}

/// What an instance has counted, at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Snapshot {
    /// The network ports, in the order of the manifest.
    pub ports: Vec<Port>,
    /// The connections that the guest tracks, if its rules ask for any.
    pub connections: Option<Connections>,
    /// What the guest's TCP/IP stack has counted, if it has one.
    pub net: Option<Net>,
    /// How often the guest's virtual machine was left, if its tender says so.
    pub exits: Option<Exits>,
    /// The rules, if the guest has any.
    pub rules: Option<Rules>,
    /// Frames that were not captured, because the ring was full.
    pub captures_lost: u64,
    /// What contradicts itself, in words.
    pub notes: Vec<String>,
}

/// How often a virtual machine was left, as KVM counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Exits {
    /// For an interrupt of the host's, the timer's above all.
    pub interrupts: u64,
    /// For whatever else: what the guest asked for.
    pub others: u64,
}

/// Connections that the guest tracks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Connections {
    /// How many of each family fit.
    pub capacity: u64,
    /// How many there are, by class.
    #[serde(serialize_with = "by_name")]
    pub open: Vec<Counted>,
    /// What has happened, by name.
    #[serde(serialize_with = "by_name")]
    pub events: Vec<Counted>,
}

/// What a port has counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Port {
    /// Its name in the manifest.
    pub name: String,
    /// Its index in the manifest.
    pub index: usize,
    /// The interface behind it, if that has a name.
    pub interface: Option<String>,
    /// Taken from the host.
    pub receive: Traffic,
    /// Handed to the host.
    pub transmit: Traffic,
    /// Frames dropped at this port, by reason. Those that a rule dropped are the rule's.
    #[serde(serialize_with = "by_name")]
    pub drops: Vec<Counted>,
    /// What else has happened, by name.
    #[serde(serialize_with = "by_name")]
    pub events: Vec<Counted>,
}

/// Frames and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Frames.
    pub frames: u64,
    /// Bytes.
    pub bytes: u64,
}

/// How often something has happened.
pub type Counted = (Cow<'static, str>, u64);

/// The rules in force and what they have counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rules {
    /// The generation in force; 0 is what the guest came with.
    pub generation: u64,
    /// The last generation that the guest was given.
    pub loaded: u64,
    /// The last generation that the guest refused.
    pub refused: Option<Refused>,
    /// Each rule in the order of the text, then the policy.
    pub entries: Vec<Rule>,
}

/// A generation of rules that the guest refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// Its number.
    pub generation: u64,
    /// Why.
    pub reason: Cow<'static, str>,
    /// Where in its text, in bytes.
    pub position: u64,
}

/// What a rule has counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// Its position among the rules, from 0.
    pub number: usize,
    /// Its chain, if the text is known.
    pub chain: Option<String>,
    /// Its line, from 1, if the text is known.
    pub line: Option<usize>,
    /// The rule as the language prints it, if the text is known.
    pub text: Option<String>,
    /// What it has counted.
    #[serde(flatten)]
    pub counted: Traffic,
}

impl Rule {
    /// The rule for a person: its text, or else its number.
    pub fn label(&self) -> Cow<'_, str> {
        match &self.text {
            Some(text) => text.into(),
            None => format!("rule {}", self.number).into(),
        }
    }
}

fn by_name<S: Serializer>(counted: &[Counted], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(counted.iter().map(|(name, count)| (name, count)))
}

impl Snapshot {
    /// What `raw` means for an instance of this description, with these names of its rules.
    pub fn new(raw: &Raw, description: &Description, names: &Names) -> Self {
        let mut notes = Vec::new();
        // What has rules drops frames that it cannot read, and counts them by reason.
        let has_rules = description.features & feature::RULES != 0;
        Self {
            ports: description
                .nets()
                .map(|port| self::port(raw, port, has_rules, &mut notes))
                .collect(),
            connections: connections(raw),
            net: net(raw, &mut notes),
            exits: exits(raw, description),
            rules: has_rules.then(|| rules(raw, names, &mut notes)).flatten(),
            captures_lost: raw.capture.lost,
            notes,
        }
    }
}

fn connections(raw: &Raw) -> Option<Connections> {
    let numbers = raw.counters.get(CONNECTION_COUNTERS..)?;
    let (capacity, numbers) = numbers.split_first()?;
    let mut open: Vec<Counted> = COUNTED
        .iter()
        .zip(numbers)
        .map(|(name, number)| ((*name).into(), *number))
        .collect();
    let events = open.split_off(Class::ALL.len().min(open.len()));
    (*capacity > 0).then_some(Connections {
        capacity: *capacity,
        open,
        events,
    })
}

fn net(raw: &Raw, notes: &mut Vec<String>) -> Option<Net> {
    let net = Net::of(&raw.counters);
    net.unwrap_or_else(|Stranger| {
        let why = "the image counts TCP/IP by another table than this program: build it anew";
        notes.push(why.into());
        None
    })
}

/// A tender says so of guests of `hvt` with rings; those of other hosts can write there themselves.
fn exits(raw: &Raw, description: &Description) -> Option<Exits> {
    let abi::share::Exits { all, interrupts } = raw.exits;
    (description.host == "hvt" && all > 0).then_some(Exits {
        interrupts,
        others: all.saturating_sub(interrupts),
    })
}

fn port(raw: &Raw, port: &Device, has_rules: bool, notes: &mut Vec<String>) -> Port {
    let first = port.index.saturating_mul(COUNTERS_PER_PORT);
    let block = raw.counters.get(first..).unwrap_or_default();
    if block.len() < COUNTERS_PER_PORT {
        notes.push(format!("the file has no counters of port {}", port.name));
    }
    Port::new(port, block, has_rules)
}

impl Port {
    /// What `block` means, the counters of this port by number. Those that are not there are zero.
    pub fn new(port: &Device, block: &[u64], has_rules: bool) -> Self {
        let count = |number: usize| block.get(number).copied().unwrap_or(0);
        let traffic = |frames: PortCounter, bytes: PortCounter| Traffic {
            frames: count(frames as usize),
            bytes: count(bytes as usize),
        };
        let (mut drops, mut events) = (Vec::new(), Vec::new());
        for (number, name) in PORT_COUNTERS.into_iter().enumerate() {
            match meaning(number) {
                Meaning::Traffic => {}
                Meaning::Drop => drops.push((name.into(), count(number))),
                Meaning::Event => events.push((name.into(), count(number))),
            }
        }
        if has_rules {
            let malformed = Malformed::ALL
                .into_iter()
                .map(|reason| (reason.name().into(), count(PORT_APPLIANCE + reason.index())));
            drops.extend(malformed);
            let untracked = nf::conntrack::Refused::ALL
                .into_iter()
                .map(|reason| (reason.name().into(), count(PORT_APPLIANCE + reason.index())));
            drops.extend(untracked);
        } else {
            let own = (PORT_APPLIANCE..COUNTERS_PER_PORT).filter(|number| count(*number) > 0);
            events.extend(own.map(|number| (format!("counter_{number}").into(), count(number))));
        }
        Self {
            name: port.name.clone(),
            index: port.index,
            interface: port.interface.clone(),
            receive: traffic(PortCounter::RxFrames, PortCounter::RxBytes),
            transmit: traffic(PortCounter::TxFrames, PortCounter::TxBytes),
            drops,
            events,
        }
    }
}

/// What one of the runtime's counters of a port counts.
enum Meaning {
    Traffic,
    Drop,
    Event,
}

fn meaning(number: usize) -> Meaning {
    const EVENTS: [usize; 9] = [
        PortCounter::RxError as usize,
        PortCounter::TxSegmented as usize,
        PortCounter::NoBuffer as usize,
        PortCounter::CaptureLost as usize,
        PortCounter::RxLie as usize,
        PortCounter::PollsBusy as usize,
        PortCounter::PollsIdle as usize,
        PortCounter::NicResets as usize,
        PortCounter::NicGivenUp as usize,
    ];
    match number {
        number if number < PortCounter::RxTooLong as usize => Meaning::Traffic,
        number if EVENTS.contains(&number) => Meaning::Event,
        _ => Meaning::Drop,
    }
}

fn rules(raw: &Raw, names: &Names, notes: &mut Vec<String>) -> Option<Rules> {
    let status = &raw.status;
    if status.rules == 0 {
        // The guest has just been started, or keeps no counters of them.
        return None;
    }
    if status.slot >= SLOTS as u64 {
        notes.push(format!(
            "the guest names slot {}, which is none",
            status.slot
        ));
    }
    if status.rules > RULES_MAX as u64 {
        notes.push(format!("the guest claims to have {} rules", status.rules));
    }
    if !raw.steady {
        notes.push("the rules were replaced all the time while they were read".into());
    }
    if status.generation > raw.control.generation {
        notes.push(format!(
            "the guest claims to have generation {} of its rules, and was given {}",
            status.generation, raw.control.generation
        ));
    }
    let known = match names {
        Names::BuiltIn => None,
        Names::Known(names) if names.iter().len() == raw.rules.len() => Some(names),
        Names::Known(names) => {
            notes.push(format!(
                "the text has {} rules with its policy, the guest counts {}",
                names.iter().len(),
                raw.rules.len()
            ));
            None
        }
        Names::Unknown(why) => {
            notes.push(format!("the rules have no names: {why}"));
            None
        }
    };
    let rule = |(number, counter): (usize, &abi::share::RuleCounter)| {
        let name = known.and_then(|names| names.get(number));
        Rule {
            number,
            chain: name.map(|name| name.chain.clone()),
            line: name.map(|name| name.line),
            text: name.map(|name| name.text.clone()),
            counted: Traffic {
                frames: counter.frames,
                bytes: counter.bytes,
            },
        }
    };
    Some(Rules {
        generation: status.generation,
        loaded: raw.control.generation,
        refused: (status.refused != 0).then(|| refused(status)),
        entries: raw.rules.iter().enumerate().map(rule).collect(),
    })
}

fn refused(status: &abi::share::RulesStatus) -> Refused {
    let reasons = [
        (RulesRefused::Invalid, "invalid"),
        (RulesRefused::Memory, "memory"),
        (RulesRefused::Torn, "torn"),
        (RulesRefused::Random, "random"),
    ];
    let known = reasons
        .into_iter()
        .find(|(reason, _)| *reason as u64 == status.reason);
    Refused {
        generation: status.refused,
        reason: known.map_or_else(
            || format!("reason {}", status.reason).into(),
            |(_, s)| s.into(),
        ),
        position: status.position,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::instance::Kind;
    use abi::share::{COUNTERS, CaptureHead, Control, RuleCounter, RulesStatus};
    use nf::nft::Limits;
    use proptest::prelude::*;

    /// The firewall as it was started.
    pub fn description() -> Description {
        let started = 1_700_000_000;
        let mut description =
            Description::new("/fw.spt".into(), "spt".into(), started, feature::ALL);
        let port = |name: &str, index, interface: Option<&str>| Device {
            name: name.into(),
            index,
            kind: Kind::Net,
            interface: interface.map(str::to_owned),
            tap_namespace: None,
            mac: None,
        };
        description.devices = vec![
            port("private", 1, Some("tap0")),
            port("public", 2, None),
            Device {
                kind: Kind::Block,
                ..port("disk", 3, None)
            },
        ];
        description
    }

    /// A guest with two rules and a policy that has seen something of everything.
    pub fn raw() -> Raw {
        let mut counters = vec![0; COUNTERS];
        let private = COUNTERS_PER_PORT;
        counters[private..private + 4].copy_from_slice(&[12, 1200, 3, 300]);
        counters[private + PortCounter::TxTooBig as usize] = 2;
        counters[private + PortCounter::NoBuffer as usize] = 4;
        counters[private + PORT_APPLIANCE + Malformed::BadIpChecksum.index()] = 1;
        Raw {
            counters,
            exits: abi::share::Exits {
                all: 70,
                interrupts: 30,
            },
            status: RulesStatus {
                generation: 2,
                slot: 1,
                rules: 3,
                ..RulesStatus::default()
            },
            rules: [(8, 800), (0, 0), (4, 399)]
                .map(|(frames, bytes)| RuleCounter { frames, bytes })
                .to_vec(),
            control: Control {
                generation: 2,
                slot: 1,
                ..Control::default()
            },
            capture: CaptureHead { head: 9, lost: 6 },
            steady: true,
        }
    }

    /// Text of the rules of [`raw`].
    pub const TEXT: &str = "\
table bridge filter {
    chain forward {
        type filter hook forward priority 0; policy drop;

        tcp dport 7070 accept
        log prefix \"odd \\ \" drop
    }
}
";

    /// Names of the rules of [`raw`].
    pub fn names() -> Names {
        Names::Known(Listing::new(TEXT, &Limits::DEFAULT).unwrap())
    }

    /// What [`raw`] means.
    pub fn snapshot() -> Snapshot {
        Snapshot::new(&raw(), &description(), &names())
    }

    fn count(counted: &[Counted], name: &str) -> u64 {
        counted.iter().find(|(other, _)| other == name).unwrap().1
    }

    #[test]
    fn a_stack_is_shown_where_there_is_one() {
        assert_eq!(snapshot().net, None);
        let mut raw = raw();
        raw.counters = super::super::net::tests::counters();
        let snapshot = |raw: &Raw| Snapshot::new(raw, &description(), &names());
        assert!(snapshot(&raw).net.is_some());
        raw.counters[abi::share::NET_COUNTERS] = 7;
        let stranger = snapshot(&raw);
        assert_eq!(stranger.net, None);
        assert!(stranger.notes[0].contains("another table"));
    }

    #[test]
    fn numbers_get_their_names() {
        let snapshot = snapshot();
        assert_eq!(snapshot.notes, [""; 0]);
        assert_eq!(snapshot.captures_lost, 6);
        let [private, public] = &snapshot.ports[..] else {
            panic!("two ports");
        };
        assert_eq!((private.receive.frames, private.receive.bytes), (12, 1200));
        assert_eq!((private.transmit.frames, private.transmit.bytes), (3, 300));
        assert_eq!(count(&private.drops, "too_big"), 2);
        assert_eq!(count(&private.drops, "bad_ip_checksum"), 1);
        assert_eq!(count(&private.events, "no_buffer"), 4);
        assert_eq!(public.receive, Traffic::default());
        let rules = snapshot.rules.unwrap();
        assert_eq!((rules.generation, rules.loaded), (2, 2));
        assert_eq!(rules.entries[0].label(), "tcp dport 7070 accept");
        assert_eq!(rules.entries[0].counted.frames, 8);
        assert_eq!(rules.entries[2].line, Some(3));
    }

    #[test]
    fn exits_are_those_of_virtual_machines() {
        let exits = |host: &str, raw: &Raw| {
            let mut description = description();
            description.host = host.into();
            Snapshot::new(raw, &description, &names()).exits
        };
        let (interrupts, others) = (30, 40);
        let both = Some(Exits { interrupts, others });
        assert_eq!(exits("hvt", &raw()), both);
        assert_eq!(exits("spt", &raw()), None);
        let mut raw = raw();
        raw.exits.all = 29;
        let none = Some(Exits {
            interrupts,
            others: 0,
        });
        assert_eq!(exits("hvt", &raw), none);
        raw.exits = abi::share::Exits::default();
        assert_eq!(exits("hvt", &raw), None);
    }

    #[test]
    fn connections_are_shown_where_they_are_tracked() {
        assert_eq!(snapshot().connections, None);
        let mut raw = raw();
        raw.counters = vec![0; abi::share::COUNTERS];
        raw.counters[CONNECTION_COUNTERS] = 4096;
        raw.counters[CONNECTION_COUNTERS + 1 + Class::Established as usize] = 3;
        raw.counters[CONNECTION_COUNTERS + 1 + Class::ALL.len()] = 9;
        let snapshot = Snapshot::new(&raw, &description(), &names());
        let connections = snapshot.connections.unwrap();
        assert_eq!(connections.capacity, 4096);
        assert_eq!(count(&connections.open, "tcp_established"), 3);
        assert_eq!(count(&connections.events, "begun"), 9);
    }

    #[test]
    fn every_counter_of_a_port_is_somewhere() {
        let snapshot = snapshot();
        let port = &snapshot.ports[0];
        let named = port.drops.len() + port.events.len();
        let own = Malformed::ALL.len() + nf::conntrack::Refused::ALL.len();
        assert_eq!(named, PORT_COUNTERS.len() - 4 + own);
    }

    #[test]
    fn rules_without_a_text_go_by_number() {
        let raw = Raw {
            status: RulesStatus {
                generation: 0,
                ..raw().status
            },
            ..raw()
        };
        let snapshot = Snapshot::new(&raw, &description(), &Names::BuiltIn);
        assert_eq!(snapshot.notes, [""; 0]);
        assert_eq!(snapshot.rules.unwrap().entries[2].label(), "rule 2");
    }

    #[test]
    fn names_of_other_rules_are_not_used() {
        let mut raw = raw();
        raw.rules.push(RuleCounter::default());
        let snapshot = Snapshot::new(&raw, &description(), &names());
        assert!(
            snapshot.notes[0].contains("counts 4"),
            "{:?}",
            snapshot.notes
        );
        assert_eq!(snapshot.rules.unwrap().entries[0].text, None);
    }

    #[test]
    fn an_appliance_without_rules_has_counters_of_its_own() {
        let mut description = description();
        description.features = feature::RUNTIME;
        let snapshot = Snapshot::new(&raw(), &description, &Names::BuiltIn);
        assert_eq!(snapshot.rules, None);
        let number = PORT_APPLIANCE + Malformed::BadIpChecksum.index();
        let private = &snapshot.ports[0];
        assert_eq!(count(&private.events, &format!("counter_{number}")), 1);
    }

    #[test]
    fn a_refusal_says_why() {
        let mut raw = raw();
        raw.status.refused = 3;
        raw.status.reason = RulesRefused::Memory as u64;
        let refused = |raw: &Raw| {
            let rules = Snapshot::new(raw, &description(), &names()).rules;
            rules.unwrap().refused.unwrap()
        };
        assert_eq!(refused(&raw).reason, "memory");
        raw.status.reason = 77;
        assert_eq!(refused(&raw).reason, "reason 77");
    }

    proptest! {
        #[test]
        fn hostile_numbers_never_panic(
            status in prop::array::uniform6(any::<u64>()),
            count in 0..5usize,
            frames in any::<u64>(),
            index in any::<usize>(),
        ) {
            let mut raw = raw();
            raw.status = RulesStatus {
                generation: status[0],
                slot: status[1],
                rules: status[2],
                refused: status[3],
                reason: status[4],
                position: status[5],
            };
            raw.rules = vec![RuleCounter { frames, bytes: frames }; count];
            raw.counters.fill(frames);
            let mut description = description();
            description.devices[1].index = index;
            let snapshot = Snapshot::new(&raw, &description, &names());
            prop_assert!(snapshot.rules.is_none_or(|rules| rules.entries.len() == count));
        }
    }
}
