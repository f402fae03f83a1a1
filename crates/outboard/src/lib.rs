//! The command line's parts: what `outboard` does for its subcommands.
//!
//! | module | what |
//! |---|---|
//! | [`model`] | a network card in software |
//! | [`mount`] | the file system of a disk, for the programs of this machine |
//! | [`new`] | the folder of a new appliance |
//! | [`build`] | an appliance's folder becomes an image |
//! | [`inspect`] | what an image carries and asks for |
//! | [`doctor`] | what this machine can do |
//! | [`capture`] | frames of a guest's ports, as files |
//! | [`metrics`] | counters over HTTP |
//! | [`pci`] | devices for guests: listed, taken from the host, given back |
//! | [`ps`] | which guests run under a name |
//! | [`rules`] | what can be done with a file of rules |
//! | [`run`] | the monitor: starts a tender, reports how its guest ended, cleans up |
//! | [`trial`] | an image in a network of its own |
//! | [`ending`] | the decision what to say about an end |
//! | [`symbols`] | names for addresses in an image |
//! | [`frame`] | a frame from words, digits or a capture |
//! | [`send`] | a frame into the segment of a guest's port |
//! | [`share`] | the file that outlives the guest |
//! | [`instance`] | named guests, and how others find them |
//! | [`stats`] | what a guest has counted |
//! | [`inquiry`] | questions to a guest, and its answers |
//! | [`sockets`] | the sockets of a guest that speaks TCP/IP |
//! | [`flows`] | the connections that a guest tracks |
//! | [`top`] | what all guests do |
//! | [`logs`] | the last lines of a guest's console |
//! | [`stop`] | ends a guest by its name |
//! | [`up`] | several guests from one file, supervised |
//! | [`manual`] | man pages, and completions for shells |

#![forbid(unsafe_code)]

pub mod build;
pub mod capture;
pub mod debug;
pub mod doctor;
pub mod ending;
pub mod flows;
pub mod frame;
pub mod inquiry;
pub mod inspect;
pub mod instance;
pub mod logs;
pub mod manual;
pub mod metrics;
pub mod model;
pub mod mount;
pub mod new;
pub mod pci;
pub mod proxy;
pub mod ps;
pub mod rules;
pub mod run;
mod said;
pub mod send;
pub mod share;
pub mod sockets;
pub mod stats;
pub mod stop;
pub mod symbols;
pub mod top;
pub mod trial;
pub mod up;
