//! A router: packets go from port to port by routes, as rules let them (RFC 1812; RFC 8200).
//!
//! It has a stack of its own, which speaks ARP and Neighbour Discovery, has the addresses and the
//! routes, answers pings, and carries whatever services the router offers. [`Router::receive`] is a
//! gate in front of that: what is for the router itself comes to the stack, and what is for others
//! is sent on.
//!
//! | module | what |
//! |---|---|
//! | `packet` | what a router reads and changes in a packet |
//! | `forward` | which packets are sent on, where to, and what their senders are told |
//! | `told` | what the senders of packets are told that rules reject |
//! | `own` | a port as the stack has it: what the router itself sends is judged as well |
//! | `cut` | packets that are cut into fragments |
//! | `offers` | what a router offers to the networks at its ports, and the options that say so |
//! | `lend` | a server of DHCP at each port that lends addresses |
//! | `trunk` | a port that carries VLANs, each of which is a port of its own |
//! | `vlans` | which ports do, and the option that says so |
//!
//! What its clients of DHCP send before they have an address, and what servers send to them, comes
//! before all rules, as with clients on Linux, which have sockets below those.
//!
//! What is chosen otherwise than in Linux:
//!
//! | here | in Linux |
//! |---|---|
//! | the router answers for an address at the port that has it alone | at all ports |
//! | a packet that leaves by the port that it came in by brings no redirect | it does |
//! | options of IPv4 are passed over, and source routes are not followed | they are heeded |
//! | of a packet of its own that rules reject at `output`, nobody is told | the router is |
//! | a packet of its own to which rules give another destination keeps its port | it does not |

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod cut;
mod forward;
mod lend;
mod offers;
mod own;
mod packet;
#[cfg(test)]
mod tests;
mod told;
mod trunk;
mod vlans;

pub use forward::Router;
pub use lend::lend;
pub use offers::Offers;
pub use own::Ports;
pub use trunk::Dropped;
pub use vlans::{Opened, Vlans};

/// The options of a router, as its `--help` shows them: what it offers, and its VLANs.
pub const HELP: [&str; 2] = [vlans::HELP, offers::HELP];
