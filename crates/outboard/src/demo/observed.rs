//! The firewall between two segments, and what it counts.

use super::error::Error;
use outboard::instance::{Description, Device, Kind};
use outboard::rules;
use outboard::share::SharedFile;
use outboard::stats::reader::Reader;
use outboard::stats::snapshot::{Port, Rules, Snapshot};
use serde::Serialize;
use std::cmp::Reverse;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use std::{fmt, thread};
use testbed::contender::{Programs, Standing};
use testbed::topology::{Pair, Side};

/// The firewall's ports, in the order of its manifests.
const PORTS: [&str; 2] = ["private", "public"];
/// How long the firewall may take to be there; the checks then show what is not.
const PATIENCE: Duration = Duration::from_secs(10);
/// Where a frame goes that each interface of a segment takes; to the port for what is discarded.
const EVERYBODY: (Ipv4Addr, u16) = (Ipv4Addr::BROADCAST, 9);
/// How often it is looked for.
const POLL: Duration = Duration::from_millis(20);

/// Starts the firewall between two fresh segments, with a file that it counts in.
/// It has taken frames on both ports, and ends with the thread that calls this. `features` are
/// those of its image; its ports are taps, or `nics` in software.
///
/// # Errors
/// A segment cannot be made, or the tender cannot be started.
pub fn start(
    programs: &Programs,
    features: u32,
    nics: bool,
) -> Result<(Standing, Counters), Error> {
    let share = SharedFile::anonymous().map_err(Error::Share)?;
    // The console is not part of the report.
    let console = io::stderr().into();
    let start = if nics {
        Standing::on_nics
    } else {
        Standing::firewall
    };
    let standing = start(programs, &[], Some(share.as_fd()), console)?;
    let image = programs.firewall.clone();
    let mut description = Description::new(image, "spt".to_owned(), 0, features);
    description.built_in_rules = rules::built_in(&programs.firewall);
    description.devices.extend((1..).zip(PORTS).map(port));
    let reader = Reader::new(share.as_fd(), description).map_err(Error::Stats)?;
    let mut counters = Counters { reader };
    counters.await_ports(&standing.pair)?;
    Ok((standing, counters))
}

/// A port of the firewall, by its index in the manifest.
fn port((index, name): (usize, &str)) -> Device {
    Device {
        name: name.to_owned(),
        index,
        kind: Kind::Net,
        interface: None,
        tap_namespace: None,
        mac: None,
    }
}

/// Whether the firewall still runs.
///
/// # Errors
/// It has ended.
pub fn check(standing: &mut Standing) -> Result<(), Error> {
    match standing.ended() {
        Ok(None) => Ok(()),
        Ok(Some(status)) => Err(Error::Ended(status)),
        Err(e) => Err(Error::Io("cannot wait for the firewall", e)),
    }
}

/// How often each rule has decided: the firewall's own counters.
#[derive(Debug)]
pub struct Counters {
    reader: Reader,
}

/// Who has decided.
#[derive(Debug, PartialEq, Serialize)]
pub struct Decider {
    /// The rule, as a person reads it.
    pub rule: String,
    /// On how many frames.
    pub frames: u64,
}

impl fmt::Display for Decider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.rule, self.frames)
    }
}

impl Counters {
    /// Sends to everybody on both sides until both ports have taken something, whatever the rules
    /// then say of it: drivers bring their NICs up first, which takes a busy machine seconds.
    fn await_ports(&mut self, pair: &Pair) -> Result<(), Error> {
        let refused = |e| Error::Io("cannot send to everybody", e);
        let socket = |side: &Side| -> io::Result<UdpSocket> {
            let socket = side.segment.run(|| UdpSocket::bind(side.at(0)))?;
            socket.set_broadcast(true)?;
            Ok(socket)
        };
        let sockets = [
            socket(&pair.a).map_err(refused)?,
            socket(&pair.b).map_err(refused)?,
        ];
        let deadline = Instant::now() + PATIENCE;
        loop {
            for socket in &sockets {
                socket.send_to(b"?", EVERYBODY).map_err(refused)?;
            }
            thread::sleep(POLL);
            let snapshot = self.read()?;
            let here = |port: &Port| port.receive.frames > 0;
            if snapshot.ports.iter().all(here) || Instant::now() > deadline {
                return Ok(());
            }
        }
    }

    /// What has been counted so far.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(&mut self) -> Result<Snapshot, Error> {
        self.reader.snapshot().map_err(Error::Stats)
    }
}

/// Who has decided between two readings, the most frequent first. All rules of the demonstration
/// decide where they match.
pub fn deciders(before: &Snapshot, after: &Snapshot) -> Vec<Decider> {
    let frames = |rules: Option<&Rules>, number: usize| {
        let rule = rules.and_then(|rules| rules.entries.get(number));
        rule.map_or(0, |rule| rule.counted.frames)
    };
    let rules = after.rules.iter().flat_map(|rules| &rules.entries);
    let mut deciders: Vec<Decider> = rules
        .map(|rule| Decider {
            rule: rule.label().into_owned(),
            frames: rule
                .counted
                .frames
                .wrapping_sub(frames(before.rules.as_ref(), rule.number)),
        })
        .filter(|decider| decider.frames > 0)
        .collect();
    deciders.sort_by_key(|decider| Reverse(decider.frames));
    deciders
}

#[cfg(test)]
mod tests {
    use super::*;
    use outboard::stats::snapshot::{Rule, Traffic};

    fn snapshot(counts: [u64; 3]) -> Snapshot {
        let texts = [
            "ether type arp accept",
            "ip protocol icmp accept",
            "policy drop",
        ];
        let entries = texts.into_iter().zip(counts).enumerate();
        let entries = entries.map(|(number, (text, frames))| Rule {
            number,
            chain: Some("forward".into()),
            line: Some(number + 1),
            text: Some(text.into()),
            counted: Traffic { frames, bytes: 0 },
        });
        Snapshot {
            ports: Vec::new(),
            connections: None,
            net: None,
            exits: None,
            rules: Some(Rules {
                generation: 1,
                loaded: 1,
                refused: None,
                entries: entries.collect(),
            }),
            captures_lost: 0,
            notes: Vec::new(),
        }
    }

    #[test]
    fn deciders_are_differences_by_name() {
        let deciders = deciders(&snapshot([1, 5, 7]), &snapshot([1, 7, 12]));
        let told: Vec<String> = deciders.iter().map(Decider::to_string).collect();
        assert_eq!(told, ["policy drop (5)", "ip protocol icmp accept (2)"]);
    }

    #[test]
    fn the_first_reading_may_come_before_the_guest_has_rules() {
        let nothing = Snapshot {
            rules: None,
            ..snapshot([0; 3])
        };
        assert_eq!(deciders(&nothing, &snapshot([0, 0, 1])).len(), 1);
        assert_eq!(deciders(&nothing, &nothing), []);
    }
}
