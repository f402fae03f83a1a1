//! USB, behind a host controller of the kind xHCI.
//!
//! Keep the specifications open: xHCI 1.2, and USB 2.0 for devices and hubs, with what USB 3.2 says
//! of faster ones. Section numbers in this folder are of the first where nothing else is said. Read
//! in this order:
//!
//! | file | what | sections |
//! |---|---|---|
//! | `init` | reset and start of the controller | 4.2 |
//! | `ring`, `trb` | what goes to the controller, and what comes back | 4.9, 6.4 |
//! | `context` | what the controller is told of devices | 6.2 |
//! | `host` | commands and transfers | 4.6, 4.11 |
//! | `port` | the controller's own ports | 4.3, 4.19 |
//! | `hub` | those of hubs | USB 2.0, 11 |
//! | `descriptor` | what devices say of themselves | USB 2.0, 9.6 |
//! | `tree` | the way to the disk | |
//! | `wait` | how all of this waits | |
//! | `registers` | all registers | 5 |
//!
//! One device is used: the first disk. What it does with its data is in
//! [`block::usb`](crate::block::usb).
//!
//! **Waiting.** Bringing a device up is many requests, each of which is waited for. It is written
//! as one asynchronous function that nobody wakes: whoever has it calls it with each look. It
//! waits for one thing at a time, and for nothing for ever.

pub(crate) mod context;
pub(crate) mod descriptor;
mod error;
pub(crate) mod host;
mod hub;
pub(crate) mod init;
mod port;
pub(crate) mod registers;
pub(crate) mod ring;
pub(crate) mod trb;
pub(crate) mod tree;
pub(crate) mod wait;

pub(crate) use error::TRANSFER;
pub use error::{Error, Lie};
