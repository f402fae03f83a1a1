//! net's TCP under [packetdrill](https://github.com/google/packetdrill): sockets, a network and a
//! clock in memory, behind the interface that packetdrill has for a stack in a library.
//!
//! | module | what |
//! |---|---|
//! | `edge` | packetdrill's interface in C: the only unsafe code |
//! | `addresses` | addresses of sockets, as calls have them |
//! | `turns` | one world, and the two threads of packetdrill that take turns in it |
//! | `world` | a stack on a port in memory, and a clock that goes when packetdrill says so |
//! | `neighbours` | the peer's link address |
//! | `sockets` | system calls, by descriptor |
//! | `info` | what Linux's `TCP_INFO` says, of a connection of ours |
//! | `commands` | what scripts set on Linux's command line, and their assertions |
//!
//! A run touches nothing of the machine, and depends on nothing of it: scripts' commands are read
//! and never executed, and time is a number.

#![deny(unsafe_code)]

mod addresses;
mod commands;
#[allow(unsafe_code)]
mod edge;
mod info;
mod neighbours;
mod sockets;
mod turns;
mod world;
