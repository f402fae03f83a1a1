//! What rules cost: the firewall with four and with ten thousand of them beside the kernel's bridge
//! with the same files, without counters, and with its captures on.

use std::ffi::OsString;
use std::fmt::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use std::{fs, io};

use abi::share;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use crate::measures::{self, TCP_IN, TCP_OUT, UDP};
use crate::samples::{Bound, Measure, Promise, Samples};
use crate::turn::{Error, FLOOD_WARM_UP, Turn};
use testbed::contender::{self, Programs, Standing};
use testbed::stats::turns;
use testbed::traffic::Window;

/// Rules in front of the four, none of which matches what is sent.
pub const MANY: u32 = 10_000;

/// Memory of the firewall's guest in MiB: room to load so many.
pub const MEMORY_MIB: u64 = 128;

const NFT_FEW: &str = "kernel bridge, 4 rules";
const NFT_MANY: &str = "kernel bridge, 10,000 rules";
const FEW: &str = "firewall, 4 rules";
const MANY_RULES: &str = "firewall, 10,000 rules";
const UNCOUNTED: &str = "firewall, 4 rules, no counters";
const CAPTURED: &str = "firewall, 4 rules, captures";

/// Who is measured.
const CONTENDERS: [&str; 6] = [NFT_FEW, FEW, UNCOUNTED, CAPTURED, NFT_MANY, MANY_RULES];

/// What is shown, in this order.
pub const ALL: [Measure; 8] = [
    measures::TCP_OUT,
    measures::TCP_IN,
    measures::TCP_OUT_CPU,
    measures::TCP_IN_CPU,
    measures::UDP,
    measures::UDP_OFFERED,
    measures::UDP_BUSY,
    measures::UDP_CPU,
];

/// What is drawn.
pub const PLOTTED: [(&str, Measure); 3] = [("tcp-out", TCP_OUT), ("tcp-in", TCP_IN), ("udp", UDP)];

const fn promise(
    measure: Measure,
    contender: &'static str,
    baseline: &'static str,
    least: f64,
) -> Promise {
    Promise {
        measure,
        contender,
        baseline: Some(baseline),
        bound: Bound::AtLeast(least),
    }
}

/// The promises. "No measurable loss" is two in a hundred: less than rounds differ.
pub const PROMISES: [Promise; 8] = [
    promise(TCP_OUT, FEW, NFT_FEW, 0.6),
    promise(TCP_IN, FEW, NFT_FEW, 0.6),
    promise(TCP_OUT, MANY_RULES, FEW, 0.9),
    promise(TCP_IN, MANY_RULES, FEW, 0.9),
    promise(UDP, MANY_RULES, FEW, 0.9),
    promise(TCP_OUT, FEW, UNCOUNTED, 0.98),
    promise(TCP_IN, FEW, UNCOUNTED, 0.98),
    promise(UDP, FEW, UNCOUNTED, 0.98),
];

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Turns of each contender.
    pub rounds: usize,
    /// Of each TCP transfer.
    pub window: Window,
    /// Length of each UDP flood.
    pub flood: Duration,
}

impl Plan {
    /// What promises are judged by.
    pub const FULL: Self = Self {
        rounds: 10,
        window: Window {
            warm_up: Duration::from_millis(500),
            measured: Duration::from_millis(1500),
        },
        flood: Duration::from_millis(1500),
    };

    /// A glance.
    pub const QUICK: Self = Self {
        rounds: 2,
        window: Window {
            warm_up: Duration::from_millis(200),
            measured: Duration::from_millis(500),
        },
        flood: Duration::from_millis(500),
    };

    /// Roughly how long it takes.
    pub fn estimate(&self) -> Duration {
        let transfers = 2 * (self.window.warm_up + self.window.measured);
        let others = Duration::from_millis(500);
        let turn = transfers + self.flood + FLOOD_WARM_UP + others;
        turn * (self.rounds * CONTENDERS.len()) as u32
    }
}

/// What contenders are made of.
#[derive(Clone, Debug)]
pub struct Sources {
    /// The tender alone.
    pub tender: Programs,
    /// The tender under its monitor, which writes captures.
    pub monitor: Programs,
    /// Four rules, for nft and the firewall alike.
    pub few: PathBuf,
    /// [`MANY`] rules in front of those four.
    pub many: PathBuf,
}

/// Writes [`MANY`] rules in front of those of `few`, as the chain's first ones, to `to`.
///
/// # Errors
/// A file cannot be read or written; `few` has no chain with a policy.
pub fn write_many(few: &Path, to: &Path) -> Result<(), Error> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error| Error::File(path, error)
    };
    let text = fs::read_to_string(few).map_err(failed(few))?;
    let head = text
        .match_indices("policy ")
        .find_map(|(at, _)| Some(at + text[at..].find(';')? + 1))
        .ok_or_else(|| failed(few)(io::ErrorKind::InvalidData.into()))?;
    let mut many = text[..head].to_owned();
    many.push('\n');
    for rule in 0..MANY {
        let (high, low, port) = (rule / 250, rule % 250 + 1, 10_000 + rule);
        let _ = writeln!(
            many,
            "        ip saddr 172.16.{high}.{low} udp dport {port} counter drop"
        );
    }
    many.push_str(&text[head..]);
    fs::write(to, many).map_err(failed(to))
}

/// Takes all measurements, `say`ing how far it is.
///
/// # Errors
/// The first thing that failed: a gap in the figures would be mistaken for a result.
pub fn measure(plan: &Plan, sources: &Sources, say: &dyn Fn(&str)) -> Result<Samples, Error> {
    let mut samples = Samples::default();
    let begin = Instant::now();
    for (round, index) in turns(CONTENDERS.len(), plan.rounds) {
        let contender = CONTENDERS[index];
        say(&format!(
            "round {} of {}: {contender} ({} s of about {})",
            round + 1,
            plan.rounds,
            begin.elapsed().as_secs(),
            plan.estimate().as_secs(),
        ));
        let standing =
            start(contender, sources).map_err(|error| Error::Contender(contender, error))?;
        let turn = Turn {
            contender,
            round,
            standing,
        };
        turn.transfers(plan.window, &mut samples)?;
        turn.flood(plan.flood, &mut samples)?;
    }
    Ok(samples)
}

fn start(contender: &str, sources: &Sources) -> Result<Standing, contender::Error> {
    let rules = |file: &Path| {
        let mut option = OsString::from("--rules=");
        option.push(file);
        option
    };
    let counting = |file: &Path| {
        let share = share_file()?;
        let share = Some(share.as_fd());
        Standing::firewall(&sources.tender, &[rules(file)], share, Stdio::null())
    };
    match contender {
        NFT_FEW => Standing::kernel(Some(&sources.few)),
        NFT_MANY => Standing::kernel(Some(&sources.many)),
        MANY_RULES => counting(&sources.many),
        UNCOUNTED => Standing::firewall(&sources.tender, &[], None, Stdio::null()),
        CAPTURED => {
            let capture = ["private", "public"].map(|port| format!("--pcap:{port}=/dev/null"));
            let mut options: Vec<_> = capture.map(OsString::from).into();
            options.push(rules(&sources.few));
            Standing::firewall(&sources.monitor, &options, None, Stdio::null())
        }
        _ => counting(&sources.few),
    }
}

/// A file in memory that holds all that a guest counts.
fn share_file() -> Result<OwnedFd, contender::Error> {
    let refused = |error: rustix::io::Errno| contender::Error::Descriptor(error.into());
    let file = memfd_create("outboard-bench", MemfdFlags::CLOEXEC).map_err(refused)?;
    ftruncate(&file, share::BYTES).map_err(refused)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_rules_come_first_in_the_chain() {
        let folder = std::env::temp_dir().join(format!("outboard-rules-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (few, many) = (folder.join("few.nft"), folder.join("many.nft"));
        let head = "table bridge t {\n  chain forward {\n    type filter hook forward priority 0; \
                    policy drop;";
        fs::write(&few, format!("{head}\n    accept\n  }}\n}}\n")).unwrap();
        write_many(&few, &many).unwrap();
        let text = fs::read_to_string(&many).unwrap();
        assert!(text.starts_with(head), "{}", &text[..200]);
        assert!(text.ends_with("\n    accept\n  }\n}\n"));
        assert_eq!(text.matches(" counter drop\n").count(), MANY as usize);
        fs::remove_dir_all(&folder).unwrap();
    }
}
