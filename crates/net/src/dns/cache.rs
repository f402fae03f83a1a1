//! Answers that are kept, as long as whoever gave them says.

use super::{Error, KNOWN_MAX, Name};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;
use domain::base::{Rtype, ToName};
use ports::Instant;

/// What a name has, or why it has nothing.
pub type Known = Result<Vec<IpAddr>, Error>;

/// Answers, by name and type.
#[derive(Debug, Default)]
pub struct Cache(BTreeMap<(Name, Rtype), (Instant, Known)>);

impl Cache {
    /// What is known of a name.
    pub fn get(&self, name: &Name, rtype: Rtype, now: Instant) -> Option<Known> {
        let (until, known) = self.0.get(&(name.to_canonical_name(), rtype))?;
        (now < *until).then(|| known.clone())
    }

    /// How many answers are kept.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Keeps an answer; one that ends soonest goes if there are too many.
    pub fn put(&mut self, name: &Name, rtype: Rtype, known: Known, keep: Duration, now: Instant) {
        if keep.is_zero() {
            return;
        }
        let key = (name.to_canonical_name(), rtype);
        if self.0.len() >= KNOWN_MAX && !self.0.contains_key(&key) {
            let soonest = self.0.iter().min_by_key(|(_, (until, _))| *until);
            if let Some(soonest) = soonest.map(|(key, _)| key.clone()) {
                self.0.remove(&soonest);
            }
        }
        self.0.insert(key, (now + keep, known));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    #[test]
    fn answers_are_kept_in_time_and_number() {
        let mut cache = Cache::default();
        let name = |n: usize| alloc::format!("n{n}.example").parse::<Name>().unwrap();
        let second = Duration::from_secs(1);
        cache.put(
            &name(0),
            Rtype::A,
            Err(Error::NotFound),
            Duration::ZERO,
            at(0),
        );
        assert_eq!(cache.get(&name(0), Rtype::A, at(0)), None);
        for n in 0..KNOWN_MAX + 10 {
            let keep = second * (n as u32 + 1);
            cache.put(&name(n), Rtype::A, Err(Error::NotFound), keep, at(0));
        }
        assert_eq!(cache.0.len(), KNOWN_MAX);
        assert_eq!(cache.get(&name(9), Rtype::A, at(0)), None);
        let loud: Name = "N20.EXAMPLE".parse().unwrap();
        assert_eq!(
            cache.get(&loud, Rtype::A, at(0)),
            Some(Err(Error::NotFound))
        );
        assert_eq!(cache.get(&loud, Rtype::AAAA, at(0)), None);
        assert_eq!(cache.get(&loud, Rtype::A, at(21_000)), None);
    }
}
