//! A lease that is noted down for the next host ([`crate::notes`]).

use super::message::{INFINITE, Lease, MTU_MIN, SERVERS_MAX, Times, is_station};
use crate::address::Prefix;
use crate::notes::{Single, WORDS, Words};
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use core::time::Duration;
use ports::Instant;

/// Where a lease is noted down, all but the domains in which short names are looked for: a server
/// says them again.
#[derive(Debug)]
pub struct LeaseNote {
    note: Single,
    /// Time since 1970 at [`Instant::PAST`].
    wall: Duration,
}

impl LeaseNote {
    pub(crate) fn new(note: Single, wall: Duration) -> Self {
        Self { note, wall }
    }

    /// Seconds since 1970.
    fn seconds(&self, at: Instant) -> u64 {
        (self.wall + (at - Instant::PAST)).as_secs()
    }

    /// Notes down a lease that was asked for at `since`.
    pub(super) fn write(&self, lease: &Lease, since: Instant) {
        let mut words: Words = [0; WORDS];
        let since = self.seconds(since);
        let times = lease.times.map_or([INFINITE; 3], |times| times.seconds());
        words[0] = lease.address.address().to_bits();
        // An MTU has 16 bits.
        let mtu = lease.mtu.unwrap_or(0) as u32;
        words[1] = mtu << 8 | u32::from(lease.address.bits());
        words[2] = lease.router.map_or(0, Ipv4Addr::to_bits);
        words[3] = lease.server.to_bits();
        words[4..6].copy_from_slice(&[since as u32, (since >> 32) as u32]);
        words[6..9].copy_from_slice(&times);
        for (word, server) in words[10..].iter_mut().zip(&lease.servers) {
            *word = server.to_bits();
        }
        self.note.write(&words);
    }

    /// Nothing is ours.
    pub(super) fn erase(&self) {
        self.note.erase();
    }

    /// The lease that an earlier host had, with what is left of its times at `now`; none if they
    /// are over.
    pub(super) fn read(&self, now: Instant) -> Option<Lease> {
        let words = self.note.read()?;
        let [
            address,
            shape,
            router,
            server,
            low,
            high,
            renewal,
            rebinding,
            end,
            _,
            servers @ ..,
        ] = words;
        const { assert!(WORDS - 10 == SERVERS_MAX) }
        let since = u64::from(low) | u64::from(high) << 32;
        let passed = Duration::from_secs(self.seconds(now).saturating_sub(since));
        let left = |seconds: u32| Duration::from_secs(seconds.into()).saturating_sub(passed);
        let times = (end != INFINITE).then(|| Times {
            renewal: left(renewal),
            rebinding: left(rebinding),
            end: left(end),
        });
        if times.is_some_and(|times| times.end.is_zero()) {
            return None;
        }
        let station = |bits| Some(Ipv4Addr::from_bits(bits)).filter(is_station);
        // The low byte.
        let address = Prefix::new(station(address)?, shape as u8)?;
        let mtu = (shape >> 8) as usize;
        Some(Lease {
            address,
            router: station(router),
            servers: servers.into_iter().filter_map(station).collect(),
            search: Vec::new(),
            mtu: (mtu >= usize::from(MTU_MIN)).then_some(mtu),
            server: station(server)?,
            times,
        })
    }
}
