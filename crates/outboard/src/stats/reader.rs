//! Takes snapshots of one instance.

use super::Error;
use super::raw::{self, Raw};
use super::snapshot::{Names, Snapshot};
use crate::instance::{Description, Instance};
use abi::share::RulesStatus;
use nf::Listing;
use nf::nft::Limits;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Why there is no text of rules that were in force a moment ago.
const REPLACED: &str = "they were replaced meanwhile";

/// Takes snapshots of one instance.
#[derive(Debug)]
pub struct Reader {
    share: OwnedFd,
    description: Description,
    /// Whose names were read last: generation and slot.
    named: (u64, u64),
    names: Names,
    /// The names of the rules that the guest came with.
    built_in: Names,
}

impl Reader {
    /// Of the instance with this shared file and this description.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn new(share: BorrowedFd<'_>, description: Description) -> Result<Self, Error> {
        let share = share.try_clone_to_owned().map_err(Error::Read)?;
        Ok(Self {
            share,
            built_in: built_in(&description),
            description,
            named: (0, 0),
            names: Names::BuiltIn,
        })
    }

    /// Of a named instance.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn of(instance: &Instance) -> Result<Self, Error> {
        Self::new(instance.share(), instance.description().clone())
    }

    /// The instance as it was started.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// What it has counted so far.
    ///
    /// # Errors
    /// The shared file cannot be read.
    pub fn snapshot(&mut self) -> Result<Snapshot, Error> {
        let raw = Raw::read(&self.share)?;
        let in_force = in_force(&raw.status);
        if in_force.0 == 0 {
            return Ok(Snapshot::new(&raw, &self.description, &self.built_in));
        }
        if self.named != in_force {
            self.names = self.names(in_force.1)?;
            // The guest may have begun to use others, and the host to write into this slot.
            let still = in_force == self::in_force(&Raw::read(&self.share)?.status);
            self.named = if still { in_force } else { (0, 0) };
            if !still {
                self.names = Names::Unknown(REPLACED.into());
            }
        }
        Ok(Snapshot::new(&raw, &self.description, &self.names))
    }

    /// The text of the rules in force, or why there is none.
    ///
    /// # Errors
    /// The shared file cannot be read.
    pub fn text(&self) -> Result<Result<String, &'static str>, Error> {
        let in_force = in_force(&Raw::read(&self.share)?.status);
        if in_force.0 == 0 {
            let built_in = self.description.built_in_rules.clone();
            return Ok(built_in.ok_or("they came as its arguments, or its image does not say"));
        }
        let text = self.loaded(in_force.1)?;
        let still = in_force == self::in_force(&Raw::read(&self.share)?.status);
        Ok(if still { text } else { Err(REPLACED) })
    }

    fn names(&self, slot: u64) -> Result<Names, Error> {
        let listing = self.loaded(slot)?.and_then(|text| {
            Listing::new(&text, &Limits::DEFAULT).map_err(|_| "the text is no rules")
        });
        Ok(match listing {
            Ok(listing) => Names::Known(listing),
            Err(why) => Names::Unknown(why.into()),
        })
    }

    /// The text that was loaded into a slot.
    fn loaded(&self, slot: u64) -> Result<Result<String, &'static str>, Error> {
        let text = raw::text(&self.share, slot)?.ok_or("they have no text");
        Ok(text.and_then(|text| String::from_utf8(text).map_err(|_| "the text is not UTF-8")))
    }
}

/// The names of rules whose text the image carries.
fn built_in(description: &Description) -> Names {
    let text = description.built_in_rules.as_deref();
    let listing = text.and_then(|text| Listing::new(text, &Limits::DEFAULT).ok());
    listing.map_or(Names::BuiltIn, Names::Known)
}

fn in_force(status: &RulesStatus) -> (u64, u64) {
    (status.generation, status.slot)
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::tests::{TEXT, description, raw};
    use super::*;
    use abi::share::{BYTES, RULE_COUNTERS_OFFSET, RULES_MAX, RULES_STATUS_OFFSET};
    use rustix::fs::MemfdFlags;
    use std::os::fd::AsFd;
    use zerocopy::IntoBytes;

    fn put(share: &OwnedFd, bytes: &[u8], offset: usize) {
        let written = rustix::io::pwrite(share, bytes, offset as u64).unwrap();
        assert_eq!(written, bytes.len());
    }

    /// A guest with the rules of [`TEXT`] as its first ones, in slot 1.
    fn guest() -> OwnedFd {
        let share = rustix::fs::memfd_create("share", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&share, BYTES).unwrap();
        tender::rules::publish(&share, TEXT.as_bytes(), false).unwrap();
        say(&share, 1, 1);
        let counters = RULE_COUNTERS_OFFSET + RULES_MAX * 16;
        put(&share, raw().rules.as_bytes(), counters);
        share
    }

    fn say(share: &OwnedFd, generation: u64, slot: u64) {
        let status = RulesStatus {
            generation,
            slot,
            ..raw().status
        };
        put(share, status.as_bytes(), RULES_STATUS_OFFSET);
    }

    fn labels(reader: &mut Reader) -> Vec<String> {
        let rules = reader.snapshot().unwrap().rules.unwrap();
        rules
            .entries
            .iter()
            .map(|rule| rule.label().into_owned())
            .collect()
    }

    #[test]
    fn names_come_from_the_text_in_force() {
        let share = guest();
        let mut reader = Reader::new(share.as_fd(), description()).unwrap();
        let named = [
            "tcp dport 7070 accept",
            "log prefix \"odd \\ \" drop",
            "policy drop",
        ];
        assert_eq!(labels(&mut reader), named);
        // What is written next has no names before the guest says that it uses it.
        let next = TEXT
            .replace("7070", "7071")
            .replace("policy drop", "policy accept");
        tender::rules::publish(&share, next.as_bytes(), false).unwrap();
        assert_eq!(labels(&mut reader), named);
        say(&share, 2, 0);
        let expected = ["tcp dport 7071 accept", named[1], "policy accept"];
        assert_eq!(labels(&mut reader), expected);
    }

    #[test]
    fn a_text_that_is_none_leaves_numbers() {
        let share = guest();
        tender::rules::publish(&share, b"\xff", false).unwrap();
        say(&share, 2, 0);
        let mut reader = Reader::new(share.as_fd(), description()).unwrap();
        assert_eq!(labels(&mut reader), ["rule 0", "rule 1", "rule 2"]);
        let notes = reader.snapshot().unwrap().notes;
        assert_eq!(notes, ["the rules have no names: the text is not UTF-8"]);
        tender::rules::publish(&share, b"no rules", false).unwrap();
        say(&share, 3, 1);
        let notes = reader.snapshot().unwrap().notes;
        assert_eq!(notes, ["the rules have no names: the text is no rules"]);
    }

    #[test]
    fn rules_that_the_guest_came_with_have_numbers() {
        let share = guest();
        say(&share, 0, 1);
        let mut reader = Reader::new(share.as_fd(), description()).unwrap();
        assert_eq!(labels(&mut reader)[2], "rule 2");
        assert_eq!(reader.snapshot().unwrap().notes, [""; 0]);
    }

    #[test]
    fn rules_that_the_image_comes_with_have_the_texts_that_it_carries() {
        let share = guest();
        let status = RulesStatus {
            generation: 0,
            ..raw().status
        };
        put(&share, status.as_bytes(), RULES_STATUS_OFFSET);
        let text = |built_in_rules: Option<String>| {
            let mut description = description();
            description.built_in_rules = built_in_rules;
            let mut reader = Reader::new(share.as_fd(), description).unwrap();
            let rules = reader.snapshot().unwrap().rules.unwrap();
            rules.entries[0].text.clone()
        };
        assert_eq!(text(None), None);
        assert_eq!(text(Some("no rules".into())), None);
        assert!(text(Some(TEXT.into())).is_some());
    }
}
