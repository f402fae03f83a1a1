//! Asks a guest for its sockets.

use super::socket::Socket;
use crate::inquiry::{Error, Inquiry};
use crate::instance::Instance;
use abi::inquiry::Subject;
use serde::Serialize;

/// What a guest says of its sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct List {
    /// Listeners, sockets for datagrams, and connections.
    pub sockets: Vec<Socket>,
    /// Connections that peers have begun to open, beside them.
    pub half_open: u64,
    /// Connections in TIME-WAIT, beside them.
    pub time_wait: u64,
}

/// Asks a guest for all of its sockets. What is none is left out.
///
/// # Errors
/// It does not answer, or without an end.
pub fn ask(instance: &Instance) -> Result<List, Error> {
    let mut sockets = Vec::new();
    let inquiry = Inquiry::begin(instance)?;
    let answer = inquiry.list(Subject::Sockets, |record| {
        sockets.extend(Socket::of(record));
    })?;
    Ok(List {
        sockets,
        half_open: answer.half_open,
        time_wait: answer.time_wait,
    })
}
