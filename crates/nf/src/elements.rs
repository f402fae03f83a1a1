//! Elements of sets that rules change, for whoever asks about them or changes them by hand.

use crate::changing::{Changing, words_of};
use crate::fields::Type;
use crate::ruleset::RuleSet;
use crate::tuples::Words;
use alloc::vec::Vec;

/// Elements that one look at them visits.
pub const LOOKED_AT_MAX: u32 = 512;
/// Nanoseconds of a millisecond.
const MILLISECOND: u64 = 1_000_000;

/// An element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element<'a> {
    /// Its set: `FAMILY TABLE NAME`.
    pub set: &'a str,
    /// Its values as words; see [`values`].
    pub key: Words,
    /// Milliseconds that it stays; none if it stays for ever.
    pub timeout: Option<u64>,
    /// Milliseconds that are left of them.
    pub left: u64,
    /// Packets and bytes, if elements of its set count.
    pub counted: [u64; 2],
}

/// The values of an element of these types; none if it has others.
pub fn values(kinds: &[Type], key: &Words) -> Option<Vec<u128>> {
    let mut words = key.iter();
    let value = |kind: &Type| {
        let mut value = 0;
        for part in 0..words_of(*kind) {
            value |= u128::from(*words.next()?) << (32 * part);
        }
        (value <= kind.max()).then_some(value)
    };
    let values = kinds.iter().map(value).collect::<Option<Vec<_>>>()?;
    words.all(|word| *word == 0).then_some(values)
}

impl RuleSet {
    /// Shows elements from this place on, which is 0 or what the last look returned, until one is
    /// not taken (`false`) or [`LOOKED_AT_MAX`] places were looked at. Where the list goes on; 0 at
    /// its end.
    pub fn elements(&self, from: u64, now: u64, take: &mut dyn FnMut(&Element<'_>) -> bool) -> u64 {
        let (mut number, mut record) = ((from >> 32) as usize, from as u32);
        let mut left = LOOKED_AT_MAX;
        while let Some(set) = self.changing.get(number) {
            while record < set.places() {
                let is_taken = left > 0 && set.seen(record, now).is_none_or(|it| take(&it));
                if !is_taken {
                    return (number as u64) << 32 | u64::from(record);
                }
                left -= 1;
                record += 1;
            }
            (number, record) = (number + 1, 0);
        }
        0
    }

    /// Adds an element by hand, for so many milliseconds or what its set says; one that is there
    /// stays for so long from now on, unless that is its timeout already, as in the kernel. Whether
    /// there was such a set, and room.
    pub fn add_element(&self, is_set: impl Fn(&str) -> bool, element: &Hand, now: u64) -> bool {
        let set = self.changing.iter().find(|set| is_set(&set.shape.name));
        set.is_some_and(|set| {
            let timeout = element.timeout.saturating_mul(MILLISECOND);
            values(&set.shape.kinds, &element.key).is_some() && set.put(&element.key, timeout, now)
        })
    }

    /// Takes an element out by hand. Whether it was there.
    pub fn delete_element(&self, is_set: impl Fn(&str) -> bool, key: &Words, now: u64) -> bool {
        let set = self.changing.iter().find(|set| is_set(&set.shape.name));
        set.is_some_and(|set| set.take_out(key, now))
    }
}

/// An element that somebody adds by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hand {
    /// As in [`Element::key`].
    pub key: Words,
    /// Milliseconds; 0 for what its set says.
    pub timeout: u64,
}

impl Changing {
    /// What is known of a record; none if it has no element.
    fn seen(&self, record: u32, now: u64) -> Option<Element<'_>> {
        let standing = self.standing(record, now)?;
        Some(Element {
            set: &self.shape.name,
            key: standing.words,
            timeout: (standing.timeout > 0).then_some(standing.timeout / MILLISECOND),
            left: standing.left / MILLISECOND,
            counted: standing.counted,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nft::Limits;
    use std::string::{String, ToString};

    const SECOND: u64 = 1_000_000_000;
    const TEXT: &str = "table bridge t {
        set a {
            type ipv4_addr; size 2; flags dynamic, timeout; timeout 1m;
            elements = { 10.0.0.1 }
        }
        set b { type ipv6_addr . inet_service; size 2000; flags dynamic; elements = { ::1 . 80 }; }
        chain c {
            type filter hook forward priority 0; policy drop;
            update @a { ip saddr counter } accept
        }
    }";

    fn rules() -> RuleSet {
        let mut rules = crate::load(TEXT, &["private", "public"], &Limits::DEFAULT).unwrap();
        rules.begin(&[7; 16], SECOND, None);
        rules
    }

    fn all(rules: &RuleSet, now: u64) -> Vec<(String, Words, Option<u64>, u64)> {
        let (mut all, mut from, mut looks) = (Vec::new(), 0, 0);
        loop {
            from = rules.elements(from, now, &mut |it| {
                all.push((it.set.to_string(), it.key, it.timeout, it.left));
                true
            });
            looks += 1;
            if from == 0 {
                assert!(looks >= 2, "a look is bounded");
                return all;
            }
        }
    }

    fn key(words: &[u32]) -> Words {
        let mut key = Words::default();
        key[..words.len()].copy_from_slice(words);
        key
    }

    #[test]
    fn elements_are_listed_with_their_time() {
        let rules = rules();
        let listed = all(&rules, 21 * SECOND);
        let first = (
            "bridge t a".to_string(),
            key(&[0x0a00_0001]),
            Some(60_000),
            40_000,
        );
        let second = ("bridge t b".to_string(), key(&[1, 0, 0, 0, 80]), None, 0);
        assert_eq!(listed, [first, second.clone()]);
        assert_eq!(all(&rules, 61 * SECOND), [second]);
        let kinds = [Type::Ipv6, Type::Service];
        assert_eq!(values(&kinds, &listed[1].1), Some([1, 80].to_vec()));
        assert_eq!(values(&kinds, &key(&[1, 0, 0, 0, 65_536])), None);
        assert_eq!(values(&kinds, &key(&[1, 0, 0, 0, 80, 1])), None);
    }

    #[test]
    fn elements_are_added_and_deleted_by_hand() {
        let rules = rules();
        let is = |name: &'static str| move |set: &str| set == name;
        let add = |words: &[u32], timeout, now| {
            let hand = Hand {
                key: key(words),
                timeout,
            };
            rules.add_element(is("bridge t a"), &hand, now)
        };
        assert!(add(&[2], 5000, SECOND));
        assert!(!add(&[3], 0, SECOND), "there is no room");
        assert!(!add(&[3, 1], 0, 7 * SECOND), "it is no address");
        assert!(add(&[3], 0, 7 * SECOND), "what has expired makes room");
        assert!(
            add(&[0x0a00_0001], 99_000, 11 * SECOND),
            "it stays for longer"
        );
        assert!(add(&[3], 60_000, 10 * SECOND), "its time goes on");
        let listed = all(&rules, 11 * SECOND);
        let seen = listed
            .iter()
            .map(|(_, key, timeout, left)| (key[0], *timeout, *left));
        let seen: Vec<_> = seen.collect();
        assert!(
            seen.contains(&(0x0a00_0001, Some(99_000), 99_000)),
            "{seen:?}"
        );
        assert!(seen.contains(&(3, Some(60_000), 56_000)), "{seen:?}");
        assert!(rules.delete_element(is("bridge t a"), &key(&[3]), 11 * SECOND));
        assert!(!rules.delete_element(is("bridge t a"), &key(&[3]), 11 * SECOND));
        assert!(!rules.delete_element(is("ip t a"), &key(&[3]), 11 * SECOND));
        assert_eq!(all(&rules, 11 * SECOND).len(), 2);
    }
}
