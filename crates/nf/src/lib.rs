//! Pure packet functions: rules and their matcher. No I/O, and time is always a parameter.
//!
//! A frame is read once, into a [`Key`]; rules decide on that copy alone, so whoever can still
//! write the frame's memory cannot change what was decided on. A [`RuleSet`] gives the verdict of
//! the first rule that matches, and says which one that was.
//!
//! ```
//! # let frame = [0; 14];
//! let rules = nf::seed001();
//! let way = nf::Way { from: 0, to: 1 };
//! match nf::Key::parse(&frame) {
//!     Ok(key) => {
//!         let (verdict, decider) = rules.verdict(&key, way, &mut ());
//!         assert_eq!(verdict, nf::Verdict::Drop);
//!         assert_eq!(rules.describe(decider).to_string(), "policy drop");
//!     }
//!     Err(reason) => panic!("{reason}"),
//! }
//! ```
//!
//! L4 fields never match a fragment behind the first one: what lies there is payload. The kernel's
//! nftables differs, and reads ports from it.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod key;
pub mod log;
mod malformed;
pub mod nft;
mod rule;
mod seed001;

pub use key::{Addresses, Fragment, Key, L4, ether_type, protocol};
pub use malformed::Malformed;
pub use rule::{Match, Rule, RuleIndex, RuleSet, Tally, Verdict, Way};
pub use seed001::seed001;
