//! The rules that an appliance begins with.

use super::STATE;
use super::work::{Refusal, Ruled, refuse};
use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use core::fmt;
use nf::nft;
use ports::rules::{Feed, RuleCounters};

/// Why an appliance does not start.
#[derive(Debug)]
pub struct Error {
    /// Whose rules they are.
    source: &'static str,
    /// The text; empty if it could not be read.
    text: String,
    reason: Reason,
}

#[derive(Debug)]
enum Reason {
    NoText,
    Memory,
    Random,
    State(String),
    Invalid(nft::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, text, .. } = self;
        match &self.reason {
            Reason::NoText => write!(f, "{source}: the rules are no text in UTF-8"),
            Reason::Memory => write!(
                f,
                "{source}: the rules do not fit into memory; start with more --mem"
            ),
            Reason::Random => write!(
                f,
                "{source}: rules with ct or changing sets need random bytes; nobody has any"
            ),
            Reason::State(why) => write!(f, "{source}: {why}"),
            Reason::Invalid(error) => write!(f, "no rules\n{}", error.render(source, text)),
        }
    }
}

impl core::error::Error for Error {}

/// The rules of the host, or else those of the command line, or else `built_in`; in force.
/// `load` makes rules of a text, and is told whether connections are judged anew by them.
pub(crate) fn first<R: Ruled>(
    feed: &mut Feed,
    [command_line, built_in]: [&str; 2],
    load: &mut dyn FnMut(&str, bool) -> Result<R, Refusal>,
) -> Result<(R, RuleCounters), Error> {
    if feed.is_pending() {
        if let Some(offer) = feed.offer() {
            return match load(offer.text(), offer.revalidates()) {
                Ok(rules) => {
                    let counters = feed.accept(&offer, rules.counters());
                    Ok((rules, counters))
                }
                Err(refusal) => {
                    refuse(feed, &offer, &refusal);
                    Err(Error::new("--rules", offer.text(), refusal))
                }
            };
        }
        // Still pending: the host is writing, and says when it is done.
        if !feed.is_pending() {
            let (source, text) = ("--rules", String::new());
            let reason = Reason::NoText;
            return Err(Error {
                source,
                text,
                reason,
            });
        }
    }
    let (source, text) = match command_line {
        "" => ("built-in rules", built_in),
        given => ("command line", given),
    };
    let rules = load(text, false).map_err(|refusal| Error::new(source, text, refusal))?;
    let counters = feed.own(text, rules.counters());
    Ok((rules, counters))
}

impl Error {
    /// The memory that outlives the appliance cannot be used.
    pub(crate) fn state(why: impl fmt::Display) -> Self {
        Self {
            source: STATE,
            text: String::new(),
            reason: Reason::State(why.to_string()),
        }
    }

    fn new(source: &'static str, text: &str, refusal: Refusal) -> Self {
        let (text, reason) = match refusal {
            Refusal::Memory => (String::new(), Reason::Memory),
            Refusal::Random => (String::new(), Reason::Random),
            Refusal::State => return Self::state("it has no room for a connection"),
            Refusal::Invalid(error) => (text.to_owned(), Reason::Invalid(error)),
        };
        Self {
            source,
            text,
            reason,
        }
    }
}
