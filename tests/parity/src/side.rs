//! An end of a connection that is tested, as its peer and its user see it.

use crate::script::Call;
use std::fmt;
use std::io;
use std::net::Ipv4Addr;

/// The address of the end that is tested.
pub const TESTED: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// The peer's.
pub const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// Where the tested end listens.
pub const LISTENS: u16 = 7000;

/// What a user was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// There is nothing to say.
    Done,
    /// There is no connection.
    NoConnection,
    /// So many bytes; behind them, what is next.
    Bytes(usize, Then),
}

/// What is behind the bytes that were read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// More may follow.
    More,
    /// The end.
    End,
    /// The peer has reset the connection.
    Reset,
    /// The peer has refused it.
    Refused,
    /// Nothing may be written any more.
    Shut,
    /// Something else failed.
    Failed,
    /// They are not those that were sent.
    Wrong,
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::NoConnection => f.write_str("no connection"),
            Self::Bytes(count, Then::More) => write!(f, "{count} bytes"),
            Self::Bytes(count, then) => write!(f, "{count} bytes, then {then:?}"),
        }
    }
}

/// One of both.
pub trait Side {
    /// All begins anew, with a peer at this port.
    ///
    /// # Errors
    /// What the system says.
    fn begin(&mut self, peer: u16) -> io::Result<()>;

    /// The user does something.
    ///
    /// # Errors
    /// What the system says that is no answer to the user.
    fn call(&mut self, call: Call) -> io::Result<Said>;

    /// A frame comes from the peer.
    ///
    /// # Errors
    /// What the system says.
    fn arrives(&mut self, frame: &[u8]) -> io::Result<()>;

    /// Frames that have left since the last call.
    ///
    /// # Errors
    /// What the system says.
    fn left(&mut self) -> io::Result<Vec<Vec<u8>>>;
}

/// What a byte is at this place of the peer's stream, and of ours.
pub fn byte(at: usize) -> u8 {
    (at.wrapping_mul(0x9e37_79b1) >> 12) as u8
}
