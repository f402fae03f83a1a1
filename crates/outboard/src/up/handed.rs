//! What a component is handed by descriptor: what it is, and how many descriptors it has. The
//! keeper holds the same ones, so that the other end does not notice who comes and goes.

use linux::link::Side;
use rustix::fs::fstat;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;

/// Descriptors of an end of a link: those of [`Side`].
pub const SIDE_DESCRIPTORS: usize = 4;

/// Something that a component is handed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub enum Handed {
    /// The tap of this name.
    Tap(String),
    /// An end of a link.
    Side {
        /// The link.
        link: String,
        /// The component that has this end.
        end: String,
        /// The component that has the other end.
        peer: String,
    },
    /// Memory that outlives the instances of a component.
    State {
        /// The component.
        owner: String,
        /// The state, as its manifest has it.
        name: String,
    },
}

impl Handed {
    /// How many descriptors it has.
    pub fn descriptors(&self) -> usize {
        match self {
            Self::Tap(_) | Self::State { .. } => 1,
            Self::Side { .. } => SIDE_DESCRIPTORS,
        }
    }

    /// The tap, if it is one.
    pub fn tap(&self) -> Option<&str> {
        match self {
            Self::Tap(name) => Some(name),
            Self::Side { .. } | Self::State { .. } => None,
        }
    }

    /// The other end of a link.
    pub fn other(&self) -> Option<Self> {
        match self {
            Self::Tap(_) | Self::State { .. } => None,
            Self::Side { link, end, peer } => Some(Self::Side {
                link: link.clone(),
                end: peer.clone(),
                peer: end.clone(),
            }),
        }
    }
}

/// The descriptors of an end of a link, in the order of the tender's `--link:NAME=`.
pub fn descriptors(side: Side) -> Vec<OwnedFd> {
    vec![side.own, side.peer, side.bell, side.peer_bell]
}

/// Whether these are the two ends of one link: each reads what the other one writes.
pub fn is_link(side: &[OwnedFd], other: &[OwnedFd]) -> bool {
    let ([own, peer, ..], [others_own, others_peer, ..]) = (side, other) else {
        return false;
    };
    is_same(own, others_peer) && is_same(others_own, peer)
}

fn is_same(one: &OwnedFd, other: &OwnedFd) -> bool {
    let file = |fd: &OwnedFd| -> Result<_, Errno> {
        let stat = fstat(fd)?;
        Ok((stat.st_dev, stat.st_ino))
    };
    matches!((file(one), file(other)), (Ok(one), Ok(other)) if one == other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::link::make;

    #[test]
    fn two_ends_are_those_of_one_link() {
        let [[a, b], [c, d]] = [(); 2].map(|()| make([1, 2]).unwrap().map(descriptors));
        assert!(is_link(&a, &b) && is_link(&b, &a) && is_link(&c, &d));
        assert!(!is_link(&a, &d) && !is_link(&a, &a) && !is_link(&a, &[]));
    }

    #[test]
    fn the_other_end_of_the_other_end_is_this_one() {
        let [link, end, peer] = ["inner", "firewall", "echo"].map(str::to_owned);
        let side = Handed::Side { link, end, peer };
        let other = side.other().unwrap();
        assert_ne!(other, side);
        assert_eq!(other.other(), Some(side));
    }
}
