//! The firewall between two segments, and what it counts.

use super::error::Error;
use abi::share::{COUNTERS_OFFSET, appliance_counters};
use bench::contender::{FIREWALL_MEMORY_MIB, Programs};
use bench::topology::Pair;
use nf::RuleSet;
use outboard::share::Share;
use rustix::io::{FdFlags, fcntl_setfd};
use serde::Serialize;
use std::cmp::Reverse;
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Child, Command, Stdio};
use std::{fmt, io};
use tender::sys::tap::Tap;
use zerocopy::{FromZeros, IntoBytes};

/// A child that does not outlive this value.
#[derive(Debug)]
pub struct Process(Child);

impl From<Child> for Process {
    fn from(child: Child) -> Self {
        Self(child)
    }
}

impl Process {
    /// Whether it still runs.
    ///
    /// # Errors
    /// It has ended.
    pub fn check(&mut self) -> Result<(), Error> {
        match self.0.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(Error::Ended(status)),
            Err(e) => Err(Error::Io("cannot wait for a child", e)),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended already is only waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the firewall between two fresh segments, with a file that it counts in. `entries` are
/// those of its manifest, the reserved first one included. It ends with the thread that calls this.
///
/// # Errors
/// A segment cannot be made, or the tender cannot be started.
pub fn start(programs: &Programs, entries: usize) -> Result<(Pair, Process, Counters), Error> {
    let (pair, [a, b]) = Pair::tapped(true)?;
    let share = Share::anonymous().map_err(Error::Share)?;
    // Exactly what the tender is to inherit. Nothing else starts a process meanwhile.
    pass_on(&a, true)?;
    pass_on(&b, true)?;
    let child = Command::new(&programs.tender)
        .arg(format!("--mem={FIREWALL_MEMORY_MIB}"))
        .arg(net_option(pair.a.name, &a))
        .arg(net_option(pair.b.name, &b))
        .arg(share.option())
        .arg(format!("--die-with-parent={}", std::process::id()))
        .arg("--")
        .arg(&programs.firewall)
        .stdin(Stdio::null())
        // The console is not part of the report.
        .stdout(io::stderr())
        .spawn()
        .map_err(|e| Error::Spawn(programs.tender.clone(), e))?;
    pass_on(&share, false)?;
    let counters = Counters {
        share,
        first: appliance_counters(entries),
        rules: nf::seed001(),
    };
    Ok((pair, Process(child), counters))
}

fn net_option(name: &str, tap: &Tap) -> String {
    format!("--net:{name}=@{}", tap.as_fd().as_raw_fd())
}

fn pass_on(fd: impl AsFd, inherited: bool) -> Result<(), Error> {
    let flags = if inherited {
        FdFlags::empty()
    } else {
        FdFlags::CLOEXEC
    };
    fcntl_setfd(fd, flags).map_err(|e| Error::Io("cannot pass a descriptor on", e.into()))
}

/// How often each rule has decided: the firewall's own counters.
#[derive(Debug)]
pub struct Counters {
    share: Share,
    first: usize,
    rules: RuleSet,
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
    /// How often each rule has decided so far; the policy comes last.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(&self) -> Result<Vec<u64>, Error> {
        let mut counters = vec![u64::new_zeroed(); self.rules.len() + 1];
        let offset = COUNTERS_OFFSET + self.first * size_of::<u64>();
        let bytes = counters.as_mut_bytes();
        match rustix::io::pread(&self.share, &mut *bytes, offset as u64) {
            Ok(count) if count == bytes.len() => Ok(counters),
            Ok(_) => Err(Error::Io(
                "the counters",
                io::ErrorKind::UnexpectedEof.into(),
            )),
            Err(e) => Err(Error::Io("the counters", e.into())),
        }
    }

    /// Who has decided between two readings, the most frequent first.
    pub fn deciders(&self, before: &[u64], after: &[u64]) -> Vec<Decider> {
        let differences = before.iter().zip(after).map(|(b, a)| a.wrapping_sub(*b));
        let mut deciders: Vec<Decider> = differences
            .enumerate()
            .filter(|(_, frames)| *frames > 0)
            .map(|(index, frames)| Decider {
                rule: self.rules.describe(index).to_string(),
                frames,
            })
            .collect();
        deciders.sort_by_key(|decider| Reverse(decider.frames));
        deciders
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters() -> Counters {
        let rules = nf::seed001();
        let share = Share::anonymous().unwrap();
        Counters {
            share,
            first: appliance_counters(3),
            rules,
        }
    }

    #[test]
    fn counters_are_read_where_the_firewall_writes_them() {
        let counters = counters();
        let offset = COUNTERS_OFFSET + 8 * (3 * abi::share::COUNTERS_PER_PORT + 1);
        rustix::io::pwrite(&counters.share, &7u64.to_ne_bytes(), offset as u64).unwrap();
        let read = counters.read().unwrap();
        assert_eq!(read.len(), nf::seed001().len() + 1);
        assert_eq!((read[0], read[1], read[2]), (0, 7, 0));
    }

    #[test]
    fn deciders_are_differences_by_name() {
        let counters = counters();
        let before = counters.read().unwrap();
        let mut after = before.clone();
        after[1] += 2;
        *after.last_mut().unwrap() += 5;
        let deciders = counters.deciders(&before, &after);
        let told: Vec<String> = deciders.iter().map(Decider::to_string).collect();
        assert_eq!(told, ["policy drop (5)", "ip protocol icmp accept (2)"]);
    }
}
