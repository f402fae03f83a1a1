//! Programs as they are, on the sockets of a stack in an image: their socket calls, answered.
//!
//! | module | what |
//! |---|---|
//! | `filter` | which calls are passed to us |
//! | `caller` | who has made a call: its memory, its descriptors |
//! | `calls`, `message` | calls, answered |
//! | `address`, `control`, `option`, `error` | what programs write and read: pure |
//! | `socket` | a program's sockets, as we know them |
//! | `unix` | what a program has in their place |
//! | `port`, `stream`, `fill`, `datagrams` | what moves between those and the stack's |
//! | `reactor`, `house` | the tasks, and what they share |
//! | `sight` | what a program sees of its network |
//! | [`start`] | the program, in namespaces of its own |
//! | `jail` | what the one thread may ask of the kernel |
//! | [`run`] | the one thread that answers it |
//! | [`direct`] | the host's own sockets in a stack's place |
//! | [`link`] | this process's end of a link that carries sockets |

#![forbid(unsafe_code)]

mod address;
mod caller;
mod calls;
mod control;
mod datagrams;
pub mod direct;
mod error;
mod fill;
mod filter;
mod house;
mod jail;
pub mod link;
pub mod linked;
mod message;
mod option;
mod port;
pub mod reactor;
pub mod run;
mod sight;
mod socket;
pub mod start;
mod stream;
mod unix;

pub use reactor::Reactor;
