//! The firewall between two segments, and what it counts.

use super::error::Error;
use abi::share::{RULE_COUNTERS_OFFSET, RuleCounter};
use bench::contender::{Programs, Standing};
use nf::Listing;
use nf::nft::Limits;
use outboard::share::Share;
use serde::Serialize;
use std::cmp::Reverse;
use std::os::fd::AsFd;
use std::{fmt, io};
use zerocopy::{FromZeros, IntoBytes};

/// The rules that the firewall comes with.
fn built_in() -> Listing {
    let text = include_str!("../../../../unikernels/firewall/rules/seed001.nft");
    Listing::new(text, &Limits::DEFAULT).expect("the firewall was built with these rules")
}

/// Starts the firewall between two fresh segments, with a file that it counts in. It
/// ends with the thread that calls this.
///
/// # Errors
/// A segment cannot be made, or the tender cannot be started.
pub fn start(programs: &Programs) -> Result<(Standing, Counters), Error> {
    let share = Share::anonymous().map_err(Error::Share)?;
    // The console is not part of the report.
    let console = io::stderr().into();
    let standing = Standing::firewall(programs, &[], Some(share.as_fd()), console)?;
    let counters = Counters {
        share,
        rules: built_in(),
    };
    Ok((standing, counters))
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
    share: Share,
    rules: Listing,
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
        // The rules that the firewall comes with have the first slot.
        let mut counters = vec![RuleCounter::new_zeroed(); self.rules.iter().len()];
        let bytes = counters.as_mut_bytes();
        match rustix::io::pread(&self.share, &mut *bytes, RULE_COUNTERS_OFFSET as u64) {
            Ok(count) if count == bytes.len() => Ok(counters.iter().map(|c| c.frames).collect()),
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
            .filter_map(|(index, frames)| {
                let rule = self.rules.get(index)?.text.clone();
                Some(Decider { rule, frames })
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
        let rules = built_in();
        let share = Share::anonymous().unwrap();
        Counters { share, rules }
    }

    #[test]
    fn counters_are_read_where_the_firewall_writes_them() {
        let counters = counters();
        let offset = RULE_COUNTERS_OFFSET + size_of::<RuleCounter>();
        rustix::io::pwrite(&counters.share, &7u64.to_ne_bytes(), offset as u64).unwrap();
        let read = counters.read().unwrap();
        assert_eq!(read.len(), built_in().iter().len());
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
        assert_eq!(
            told,
            ["policy drop (5)", "ip protocol icmp counter accept (2)"]
        );
    }
}
