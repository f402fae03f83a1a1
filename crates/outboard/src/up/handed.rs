//! What a component is handed by descriptor: what it is, and how many descriptors it has. The
//! keeper holds the same ones, so that the other end does not notice who comes and goes.

use abi::link::{UP, word};
use linux::link::Side;
use rustix::fs::fstat;
use rustix::io::{Errno, pread, pwrite, write};
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;

/// Descriptors of an end of a link: those of [`Side`].
pub const SIDE_DESCRIPTORS: usize = 4;

/// Who has the end of a link that no component has: whoever types `outboard proxy --net=LINK`. No
/// component has a blank in its name.
pub const PROXY: &str = "outboard proxy";

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

/// Says of each link of a component that has ended, of all that it was `handed`, that this end is
/// down, unless it was left to the next instance: the other end need not wait for that one to learn
/// it.
///
/// # Errors
/// What the kernel says; links behind the one in question are left as they are.
pub fn go_down(handed: &[Handed], descriptors: &[OwnedFd]) -> Result<(), Errno> {
    let mut rest = descriptors;
    for what in handed {
        let Some((own, later)) = rest.split_at_checked(what.descriptors()) else {
            return Ok(());
        };
        rest = later;
        if let (Handed::Side { .. }, [own, _, _, peer_bell]) = (what, own) {
            let state = read(own, word::STATE)?;
            // What it has left to the next instance is as it was.
            if state & UP != 0 && read(own, word::LEFT)? == state {
                continue;
            }
            pwrite(own, &(state & !UP).to_ne_bytes(), at(word::STATE))?;
            write(peer_bell, &1_u64.to_ne_bytes())?;
        }
    }
    Ok(())
}

/// Where a word of an end's file lies, in bytes.
fn at(word: usize) -> u64 {
    (word * size_of::<u64>()) as u64
}

fn read(file: &OwnedFd, word: usize) -> Result<u64, Errno> {
    let mut bytes = [0; size_of::<u64>()];
    pread(file, &mut bytes, at(word))?;
    Ok(u64::from_ne_bytes(bytes))
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
    fn who_has_ended_is_down() {
        let [a, b] = make([1, 1]).unwrap().map(descriptors);
        let names = ["inner", "a", "b"].map(str::to_owned);
        let [link, end, peer] = names;
        let handed = [Handed::Tap("tap0".into()), Handed::Side { link, end, peer }];
        let tap = std::fs::File::open("/dev/null").unwrap().into();
        let all: Vec<OwnedFd> = [tap].into_iter().chain(a).collect();
        // What was left to the next instance stays up, and nobody is rung.
        for (state, left) in [(7_u64, 7_u64), (9, 9)] {
            pwrite(&all[1], &state.to_ne_bytes(), at(word::STATE)).unwrap();
            pwrite(&all[1], &left.to_ne_bytes(), at(word::LEFT)).unwrap();
            go_down(&handed, &all).unwrap();
            assert_eq!(read(&b[1], word::STATE), Ok(state));
        }
        for (before, after) in [(7_u64, 6), (6, 6), (0, 0)] {
            pwrite(&all[1], &before.to_ne_bytes(), at(word::STATE)).unwrap();
            go_down(&handed, &all).unwrap();
            assert_eq!(read(&b[1], word::STATE), Ok(after));
            let mut rung = [0; 8];
            rustix::io::read(&b[2], &mut rung).unwrap();
            assert_eq!(u64::from_ne_bytes(rung), 1);
        }
        // Fewer than were handed.
        go_down(&handed, &all[..3]).unwrap();
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
