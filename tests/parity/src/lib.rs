//! Scripts of segments, played to Linux's TCP and to net's, and their answers compared.
//!
//! A script says what a peer sends and what a user does, step by step. It goes to a socket of the
//! kernel's behind a tap, and to our stack on a port in memory. After each step, both must have
//! said the same: flags, numbers from the initial ones on, lengths, options, and what the user was
//! told. Where we differ on purpose, [`differences`] says why, with a script that shows it.
//!
//! | module | what |
//! |---|---|
//! | [`script`] | steps |
//! | [`scripts`] | scripts by subject |
//! | [`generate`] | scripts from a seed |
//! | [`side`] | what both ends have in common |
//! | [`kernel`] | Linux |
//! | [`ours`] | net |
//! | [`peer`] | frames of steps, and answers |
//! | [`compare`] | the judgement, and the smallest script that fails |
//! | [`differences`] | where we differ on purpose |

#![forbid(unsafe_code)]

pub mod compare;
pub mod differences;
pub mod generate;
pub mod kernel;
pub mod ours;
pub mod peer;
pub mod script;
pub mod scripts;
pub mod side;

pub use compare::{Failure, Verdict, Witness};
