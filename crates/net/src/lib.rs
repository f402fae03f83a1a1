//! TCP/IP inside an image.
//!
//! Each layer writes its own header, once, from the top down, into a buffer that the port has
//! allocated ([`layer`]). On receive, a frame's ownership goes up, and no byte is copied.
//!
//! Decisions are pure functions: time is a parameter, and what a connection knows is plain data
//! ([`tcp`]).
//!
//! Read in this order:
//!
//! | module | what |
//! |---|---|
//! | [`layer`] | what layers hand to each other on the way down |
//! | [`ethernet`] | frames of a port; [`layers`]: ports that wrap ports |
//! | [`neighbour`], [`arp`] | link addresses of neighbours, and how IPv4 asks for them |
//! | [`address`], [`routes`], [`path_mtu`], [`reassembly`] | what both versions of IP share |
//! | [`groups`] | groups that are listened to, and how routers are told |
//! | [`version`] | what each version gives to the layers above |
//! | [`ipv4`], [`ipv6`], [`icmp`] | the versions |
//! | [`ip`], [`interfaces`], [`loopback`] | both over one port, several ports, what stays inside |
//! | [`udp`], [`tcp`] | transport |
//! | [`dhcp`] | an address from a server, and a server |
//! | [`stack`] | all of them, turn by turn |
//! | [`turn`] | one turn of tasks and what is below, and how long to sleep then |
//! | [`task`], [`socket`], [`options`] | what appliances see: tasks, sockets, options |
//! | [`dns`] | names and their addresses |
//! | [`host`] | the same sockets, of a host's kernel |
//! | [`counts`], [`metrics`] | events by reason; the table of all that is counted |
//! | [`notes`] | what the next host knows of neighbours and leases |
//! | [`forwarding`] | what a router counts beside |
//! | `stores` | the order of stores to memory that outlives the image |
//! | [`listing`] | sockets, for whoever asks from outside |
//! | [`pcapng`] | blocks of capture files |
//! | [`random`] | numbers from a seed |

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod address;
pub mod arp;
mod bucket;
mod connected;
pub mod counts;
pub mod dhcp;
pub mod dns;
pub mod ethernet;
pub mod forwarding;
pub mod groups;
pub mod host;
pub mod icmp;
mod ident;
pub mod interfaces;
pub mod ip;
pub mod ipv4;
pub mod ipv6;
pub mod layer;
pub mod layers;
pub mod listing;
pub mod loopback;
pub mod metrics;
pub mod neighbour;
pub mod notes;
pub mod options;
pub mod path_mtu;
pub mod pcapng;
pub mod random;
pub mod reassembly;
pub mod report;
pub mod routes;
#[cfg(test)]
mod simulation;
pub mod slices;
pub mod socket;
pub mod stack;
mod stores;
pub mod task;
pub mod tcp;
#[cfg(test)]
mod testing;
pub mod turn;
pub mod udp;
pub mod version;
