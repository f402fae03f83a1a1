//! Pure packet functions: rules and their matcher. No I/O, and time is always a parameter.
//!
//! A frame is read once, into a [`Key`]; rules decide on that copy alone, so whoever can still
//! write the frame's memory cannot change what was decided on. Rules are a text in the language of
//! nftables ([`nft`]). [`load`] makes a [`RuleSet`] of it, which judges frames in a time that grows
//! little with the number of rules. A [`Program`] is the same rules as nft would walk them, to
//! explain a verdict and to check the other against.
//!
//! Read in this order:
//!
//! | module | what |
//! |---|---|
//! | [`conntrack`] | which frames belong to one connection, and what may come next |
//! | `key` | the one reading of a frame, and `malformed`, why a frame has none |
//! | [`fields`], `flags`, `services`, `values` | what rules can name, and its values |
//! | [`nft`] | the language: from text to a syntax tree |
//! | `resolve` | from what a text says to what it means: an `ir`, which `interpret` walks |
//! | `compile` | from that to a [`RuleSet`] (`ruleset`) |
//! | `lookup`, `tuples` | where one value, or several, stand among bounds or in a hash table |
//! | [`router`] | rules at each hook that a packet passes in a router, and translation |
//! | [`log`], `listing` | what `log` statements say, and what rules are called |
//! | `changing` | sets that rules change |
//! | [`elements`] | what is in them, for whoever asks |
//! | `census` | how many connections a rule has seen |
//! | `fib` | what a router's routes say of an address |
//! | `limit` | how many packets or bytes a rule takes in a time |
//! | `quota` | how many bytes a rule takes in all |
//! | `mark` | numbers that rules give to a packet and to its connection |
//! | `rule`, `memory` | verdicts and tallies, and how much heap a load may take |
//!
//! ```
//! let text = "table bridge filter {
//!     chain forward {
//!         type filter hook forward priority filter; policy drop;
//!         ether type arp accept
//!     }
//! }";
//! let rules = nf::load(text, &["private", "public"], &nf::nft::Limits::DEFAULT)?;
//! let listing = nf::Listing::new(text, &nf::nft::Limits::DEFAULT)?;
//!
//! let mut frame = [0; 42];
//! frame[12..20].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4]);
//! let key = nf::Key::parse(&frame)?;
//! let way = nf::Way { from: 0, to: 1 };
//! let (verdict, rule) = rules.verdict(&key, way, &mut ());
//! assert_eq!(verdict, nf::Verdict::Accept);
//! assert_eq!(listing.get(rule).unwrap().text, "ether type arp accept");
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```
//!
//! Rules mean what they mean to nft in a chain of the kernel's bridge, except for this, which is
//! chosen:
//!
//! | here | in the kernel |
//! |---|---|
//! | a [`Malformed`] frame is dropped and counted, before any rule | a rule may accept it |
//! | transport fields match no fragment behind the first one | they are read from its payload |
//! | more than eight IPv6 extension headers are malformed | they are looked through |
//! | a raw frame of IEEE 802.3, without LLC, has `meta protocol` 4 as LLC has | it has 1 |
//! | a `counter` counts where it stands | nft 1.0.6 joins `==` on neighbouring fields over it |
//! | a set changes where a rule says so | the same |
//! | two `!=` must both hold | on neighbouring fields, nft 1.0.6 makes one of them |
//! | rules decide on frames to 01:80:c2:00:00:01 and up to 0f, too | a bridge drops them |
//! | they decide on frames to 01:80:c2:00:00:00 | so do nft's, unless the bridge does STP |
//! | they decide on frames from a group or from 00:00:00:00:00:00 | a bridge drops them |
//! | nothing need follow a VLAN tag, or the type of PPPoE | such a frame, cut off, is dropped |
//! | a second VLAN tag, which is not read, may be cut off | such a frame is dropped |
//! | a rule without `counter` counts the frames that match all of it | it counts none |
//! | `flush ruleset` means nothing: a load replaces all rules | it deletes those before |
//! | interfaces are the network devices of the image's manifest | they are the host's |
//! | the name of a service is the same port on each machine | /etc/services has names and ports |
//! | tuples of a concatenation may overlap: the first one counts | some that overlap are refused |
//! | a concatenation has no flags, nothing of `ct` and no name with `*` | it may have |
//! | what a rule deletes from a set leaves room at once | once it is collected |
//! | a set without a size has room at once | it grows, and adds nothing where it is too slow |
//! | elements of a set that rules change are alike | each may have another limit or counter |
//! | a comment may end with the text | a newline must follow it |
//!
//! A rule that says one thing and does another in nft is refused
//! ([`nft::ErrorKind::Misleading`]). That is one with a field of a header behind several protocols
//! in braces, of which nft takes one for all; and behind the type of a VLAN tag asked for twice,
//! where nft looks behind a second tag.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod census;
mod changing;
mod compile;
pub mod conntrack;
pub mod elements;
mod fib;
pub mod fields;
mod flags;
mod interpret;
mod ir;
mod key;
mod limit;
mod listing;
mod loaded;
pub mod log;
mod lookup;
mod malformed;
mod mark;
mod memory;
pub mod nft;
mod quota;
mod resolve;
pub mod router;
mod rule;
mod ruleset;
mod services;
mod symbols;
mod tuples;
mod values;

pub use fib::Routes;
pub use interpret::{Effect, Step};
pub use ir::Program;
pub use key::{Addresses, Fields, Fragment, Key, L4, ether_type, protocol};
pub use limit::{Limit, Period, Rate, Unit};
pub use listing::{Listed, Listing};
pub use loaded::Loaded;
pub use malformed::Malformed;
pub use memory::{limits_within, memory_needed};
pub use resolve::load;
pub use rule::{Moment, RuleIndex, Tally, Verdict, Way};
pub use ruleset::{RuleSet, Settled};
