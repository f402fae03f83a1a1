//! The kernel's side: a bridge of two ports under nftables.
//!
//! ```text
//!   test === private (tap) --- hub --- public (tap) === test      all in one namespace
//! ```
//!
//! The bridge learns no addresses, so that it sends on every frame that its rules let through. A
//! tap's write returns when the frame is in the other tap's queue, or dropped: nothing is waited
//! for. Frames come out as they went in, tags included.

use crate::frame::Frame;
use crate::source::Count;
use linux::tap::Tap;
use nf::Verdict;
use serde_json::Value;
use std::fs;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;
use testbed::segment::{self, Segment};

/// The firewall's ports, in the order of their numbers.
pub const PORTS: [&str; 2] = ["private", "public"];

const HUB: &str = "hub";
/// Settings of the namespace: nobody but nft judges frames (`br_netfilter`), and nobody joins a
/// group and says so (IGMP). Absent where the kernel lacks what they are about.
const QUIET: [(&str, &str); 4] = [
    ("/proc/sys/net/bridge/bridge-nf-call-iptables", "0"),
    ("/proc/sys/net/bridge/bridge-nf-call-ip6tables", "0"),
    ("/proc/sys/net/bridge/bridge-nf-call-arptables", "0"),
    ("/proc/sys/net/ipv4/igmp_max_memberships", "0"),
];
/// Attempts to get a first frame through, and the pause between them: ports come up by and by.
const ATTEMPTS: u32 = 500;
const PAUSE: Duration = Duration::from_millis(10);
/// Frames that are looked at for the one that was sent.
const STRANGERS_MAX: usize = 64;
/// Over the longest frame, in bytes.
const BUFFER: usize = 2048;

/// Why the kernel could not be asked.
#[derive(Debug)]
pub enum Error {
    /// No bridge.
    Segment(segment::Error),
    /// A port, or the program nft.
    Io(&'static str, io::Error),
    /// What nft printed is not understood.
    Listing(String),
    /// No frame gets through.
    Silent,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Segment(error) => error.fmt(f),
            Self::Io(what, error) => write!(f, "{what}: {error}"),
            Self::Listing(what) => write!(f, "nft's list of rules: {what}"),
            Self::Silent => f.write_str("the kernel's bridge forwards nothing"),
        }
    }
}

impl std::error::Error for Error {}

impl From<segment::Error> for Error {
    fn from(error: segment::Error) -> Self {
        Self::Segment(error)
    }
}

/// A rule as nft lists it.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The name of its chain.
    pub chain: String,
    /// Its counter, if it has one.
    pub count: Option<Count>,
}

/// The bridge. It goes with this value.
#[derive(Debug)]
pub struct Bridge {
    segment: Segment,
    ports: [Tap; 2],
}

impl Bridge {
    /// A new one, without rules.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn new() -> Result<Self, Error> {
        let segment = Segment::new()?;
        segment.run(|| {
            for (setting, value) in QUIET {
                let _ = fs::write(setting, value);
            }
        });
        segment.netlink(|netlink| {
            netlink.add_hub(HUB)?;
            netlink.set_up(HUB)
        })?;
        let port = |name| -> Result<Tap, Error> {
            let tap = segment
                .run(|| Tap::create(name, false))
                .map_err(|error| Error::Io("cannot make a tap", error))?;
            segment.netlink(|netlink| {
                netlink.set_master(name, HUB)?;
                netlink.set_up(name)
            })?;
            Ok(tap)
        };
        let ports = [port(PORTS[0])?, port(PORTS[1])?];
        let bridge = Self { segment, ports };
        for from in 0..2 {
            bridge.wait(from)?;
        }
        Ok(bridge)
    }

    fn wait(&self, from: u8) -> Result<(), Error> {
        let mut bytes = vec![0; 60];
        bytes[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xcc]);
        let frame = Frame {
            bytes,
            from,
            well_formed: true,
        };
        for _ in 0..ATTEMPTS {
            if self.send(&frame)? == Verdict::Accept {
                return Ok(());
            }
            thread::sleep(PAUSE);
        }
        Err(Error::Silent)
    }

    /// Replaces all rules; what nft says if it refuses them.
    ///
    /// # Errors
    /// There is no nft.
    pub fn load(&self, text: &str) -> Result<Result<(), String>, Error> {
        load(&self.segment, text)
    }

    /// Sends a frame into its port, and says whether it came out of the other one.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn send(&self, frame: &Frame) -> Result<Verdict, Error> {
        let failed = |error: rustix::io::Errno| Error::Io("cannot pass a frame", error.into());
        let from = usize::from(frame.from);
        rustix::io::write(self.ports[from].as_fd(), &frame.bytes).map_err(failed)?;
        let mut buffer = [0; BUFFER];
        for _ in 0..STRANGERS_MAX {
            match rustix::io::read(self.ports[1 - from].as_fd(), &mut buffer) {
                Ok(length) if buffer[..length] == frame.bytes[..] => return Ok(Verdict::Accept),
                Ok(_) => {}
                Err(rustix::io::Errno::AGAIN) => return Ok(Verdict::Drop),
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(Verdict::Drop)
    }

    /// All rules, in the order of the file; `None` if nft breaks down over the list, as 1.0.6 does
    /// over some rules in which it has joined two conditions.
    ///
    /// # Errors
    /// There is no nft, or it prints something else.
    pub fn list(&self) -> Result<Option<Vec<Listed>>, Error> {
        list(&self.segment)
    }
}

/// All rules of a namespace, as [`Bridge::list`] has them.
pub(crate) fn list(segment: &Segment) -> Result<Option<Vec<Listed>>, Error> {
    let output = nft(segment, &["-j", "list", "ruleset"], &[])?;
    if output.status.code().is_none() {
        return Ok(None);
    }
    let bad = |what: &str| Error::Listing(what.to_owned());
    let listing: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| Error::Listing(error.to_string()))?;
    let entries = listing["nftables"].as_array().ok_or(bad("no entries"))?;
    let rules = entries.iter().filter_map(|entry| entry.get("rule"));
    let list = rules.map(|rule| {
        let chain = rule["chain"].as_str().ok_or(bad("no chain"))?.to_owned();
        let parts = rule["expr"].as_array().ok_or(bad("no expressions"))?;
        // One that has a name is that here, and has its numbers elsewhere.
        let mut counters = parts.iter().filter_map(|part| part.get("counter"));
        let counter = counters.find(|counter| counter.is_object());
        let number = |value: &Value| value.as_u64().ok_or(bad("no number"));
        let count = match counter {
            Some(counter) => Some(Count {
                packets: number(&counter["packets"])?,
                bytes: number(&counter["bytes"])?,
            }),
            None => None,
        };
        Ok(Listed { chain, count })
    });
    list.collect::<Result<_, _>>().map(Some)
}

/// What counters that have a name have counted in a namespace, in the order of the listing.
pub(crate) fn named(segment: &Segment) -> Result<Vec<u64>, Error> {
    let output = nft(segment, &["-j", "list", "counters"], &[])?;
    let listing: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| Error::Listing(error.to_string()))?;
    let entries = listing["nftables"].as_array().into_iter().flatten();
    let counters = entries.filter_map(|entry| entry.get("counter"));
    Ok(counters
        .filter_map(|counter| counter["packets"].as_u64())
        .collect())
}

/// Replaces all rules of a namespace; what nft says if it refuses them.
pub(crate) fn load(segment: &Segment, text: &str) -> Result<Result<(), String>, Error> {
    let output = nft(segment, &["-f", "-"], &["flush ruleset\n", text])?;
    if output.status.success() {
        return Ok(Ok(()));
    }
    Ok(Err(String::from_utf8_lossy(&output.stderr).into_owned()))
}

fn nft(segment: &Segment, arguments: &[&str], input: &[&str]) -> Result<Output, Error> {
    let run = || -> io::Result<Output> {
        let mut child = Command::new("nft")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            for text in input {
                // It fails when nft has refused the text and gone; then its output says why.
                let _ = stdin.write_all(text.as_bytes());
            }
        }
        child.wait_with_output()
    };
    segment
        .run(run)
        .map_err(|error| Error::Io("cannot run nft; type: sudo apt-get install nftables", error))
}
