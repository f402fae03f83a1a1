//! A router's rules at work: what becomes of a packet at each of the hooks that it passes, and what
//! it is translated to.
//!
//! A router has one [`Passage`] for each packet that it handles, and hands it to [`Hooks`] at each
//! hook, with the bytes of the frame. Each hook says that the packet goes on, or why it stops. It
//! may change addresses, ports and checksums in the bytes; where the packet is to go, the router
//! finds out itself, between two hooks:
//!
//! | the packet | hooks, one after the other |
//! |---|---|
//! | is sent on | [`Hooks::prerouting`], its route, [`Hooks::forward`], [`Hooks::postrouting`] |
//! | is for the router | [`Hooks::prerouting`], its route, [`Hooks::input`] |
//! | is the router's own | [`Hooks::output`], its route, [`Hooks::postrouting`] |
//!
//! Its route depends on the destination that the bytes have behind `prerouting` or `output`. A
//! packet that goes nowhere is left where it is: a connection that it would have begun does not
//! begin, which it does at the end of `postrouting` and `input`. Hooks of one packet follow each
//! other; but while it is at one of them, the router may send packets of its own, with another
//! [`Passage`].
//!
//! What a router changes besides (the time to live, addresses of the link) it may change at any
//! time. Whether a packet is too large for its port is to be looked at before `forward`: no hook
//! changes its size.
//!
//! ```
//! use nf::nft::Limits;
//! use nf::router::{Arrival, Connections, Hooks, Local, Passage, Rules};
//!
//! let text = "table ip nat {
//!     chain out {
//!         type nat hook postrouting priority srcnat;
//!         oifname public masquerade
//!     }
//! }";
//! let rules = Rules::load(text, &["private", "public"], &Limits::DEFAULT)?;
//! // The secret key is made of random bytes.
//! let mut connections = Connections::new(1024, &[7; 16]);
//!
//! // UDP from 10.0.0.1 to 192.0.2.1.
//! let mut frame = [0; 42];
//! frame[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17]);
//! frame[24..34].copy_from_slice(&[0xae, 0xcf, 10, 0, 0, 1, 192, 0, 2, 1]);
//! frame[34..42].copy_from_slice(&[0x30, 0x39, 0, 53, 0, 8, 0, 0]);
//!
//! let mut hooks = Hooks {
//!     rules: &rules,
//!     connections: Some(&mut connections),
//!     now: 0,
//!     tally: &mut (),
//! };
//! let mut passage = Passage::new();
//! let (private, public) = (Local::default(), Local::of(&["192.0.2.9".parse()?]));
//! let arrival = Arrival { port: 0, local: private, partial: false };
//! hooks.prerouting(&mut passage, &mut frame, arrival).expect("no rule drops it");
//! hooks.forward(&mut passage, 1).expect("no rule drops it");
//! hooks.postrouting(&mut passage, &mut frame, 1, public).expect("no rule drops it");
//! assert_eq!(frame[26..30], [192, 0, 2, 9]);
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```
//!
//! Rules mean what they mean to the kernel's router, except for this, which is chosen, beside what
//! [`crate::conntrack`] says:
//!
//! | here | in the kernel |
//! |---|---|
//! | a port that is not free is replaced by one that depends on who sends | by a random one |
//! | a sender that got another port before has it again if the table says so by chance | it has |
//! | rules decide on packets of the router to itself nowhere | it has an interface for those |
//! | an error that quotes less than eight bytes behind IP is translated | it is dropped |
//! | connections are tracked in both families | in those that some rule asks for |
//! | `ct status` never says that rules were asked for a translation | it does |
//! | a table that is full is found out when a packet leaves | when it comes in |
//! | a connection keeps its translation when a port gets another address | it is forgotten |

mod doubt;
mod passage;
mod reject;
mod rules;
#[cfg(test)]
mod tests;

pub use passage::{Arrival, Hooks, Local, Passage, Stop};
pub use reject::{ANSWER_MAX, Rejection};
pub use rules::Rules;
pub(crate) use rules::TRACKING;

use crate::conntrack::{Conntrack, Fragments};
use core::net::IpAddr;

/// Connections of a router, and what became of the first parts of packets.
#[derive(Debug)]
pub struct Connections {
    /// The table: to end those whose time is up ([`Conntrack::expire`]), and to count.
    pub table: Conntrack,
    fragments: Fragments<Fate>,
    /// Goes up with each connection that begins.
    number: u64,
}

/// What became of a packet, for its other parts.
#[derive(Clone, Copy, Debug)]
struct Fate {
    /// Why it stopped, if it did.
    stopped: Option<Stop>,
    /// What it was called when it left.
    source: IpAddr,
    destination: IpAddr,
}

impl Connections {
    /// A table of so many flows of IPv4, and as many of IPv6. The key is secret: whoever knows it
    /// can make packets that are slow to look up, and foresee ports.
    pub fn new(flows: usize, key: &[u8; 16]) -> Self {
        Self::of(Conntrack::new(flows, key), key)
    }

    /// Those of a table, which may have been taken up ([`Conntrack::take_up`]).
    pub fn of(table: Conntrack, key: &[u8; 16]) -> Self {
        let nowhere = IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED);
        let nothing = Fate {
            stopped: None,
            source: nowhere,
            destination: nowhere,
        };
        Self {
            table,
            fragments: Fragments::new(key, nothing),
            number: 0,
        }
    }

    /// There are other rules from now on: connections go on with their translations, and what
    /// became of the first parts of packets is forgotten.
    pub fn rules_changed(&mut self) {
        self.table.rules_changed();
        self.fragments.clear();
    }
}
