//! What a guest says of one socket, in types that can only be printed: a guest may say anything.

use abi::sockets::{self, Record};
use net::tcp::State;
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::net::Ipv6Addr;

/// A socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Socket {
    /// What it does.
    #[serde(flatten)]
    pub kind: Kind,
    /// Our end.
    pub local: End,
    /// The peer's, if there is a peer.
    pub remote: Option<End>,
    /// Bytes that nobody has read; datagrams; connections that wait to be accepted.
    pub receive_queue: u32,
    /// Bytes that the peer has not acknowledged; of a listener, how many connections may wait.
    pub send_queue: u32,
}

/// What a socket does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Kind {
    /// It waits for connections.
    Listener,
    /// It is a connection.
    Connection(Connection),
    /// It takes datagrams.
    Datagrams,
}

/// What a connection knows. Times are in microseconds, all else in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Connection {
    /// Its state.
    pub state: Cow<'static, str>,
    /// The smoothed round trip, once one was measured.
    pub round_trip: Option<u32>,
    /// How much it varies.
    pub variation: u32,
    /// The retransmission time-out.
    pub timeout: u32,
    /// The congestion window.
    pub congestion_window: u32,
    /// The slow start threshold.
    pub threshold: u32,
    /// What is on its way.
    pub in_flight: u32,
    /// The largest segment that the peer takes.
    pub segment: u32,
    /// The window that we offer.
    pub receive_window: u32,
    /// The window that the peer offers.
    pub send_window: u32,
    /// Segments that were sent again.
    pub retransmits: u32,
}

/// An end of a connection; `*` stands for all addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    address: Ipv6Addr,
    port: u16,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, port } = *self;
        match address.is_unspecified() {
            true => write!(f, "*:{port}"),
            false => write!(
                f,
                "{}",
                std::net::SocketAddr::new(address.to_canonical(), port)
            ),
        }
    }
}

impl Serialize for End {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Socket {
    /// What a record says; `None` if it is no socket.
    pub fn of(record: &Record) -> Option<Self> {
        let kind = match record.kind {
            kind if kind == sockets::Kind::Listener as u8 => Kind::Listener,
            kind if kind == sockets::Kind::Datagrams as u8 => Kind::Datagrams,
            kind if kind == sockets::Kind::Connection as u8 => {
                Kind::Connection(Connection::of(record))
            }
            _ => return None,
        };
        let end = |address: [u8; 16], port| End {
            address: address.into(),
            port,
        };
        let remote = end(record.remote, record.remote_port);
        let peer = remote.port != 0 || !remote.address.is_unspecified();
        Some(Self {
            kind,
            local: end(record.local, record.local_port),
            remote: peer.then_some(remote),
            receive_queue: record.receive_queue,
            send_queue: record.send_queue,
        })
    }
}

impl Connection {
    fn of(record: &Record) -> Self {
        let state = <State as net::counts::Reason>::NAMES.get(usize::from(record.state));
        let state = state.map_or_else(
            || format!("state_{}", record.state).into(),
            |name| Cow::from(*name),
        );
        Self {
            state,
            round_trip: Some(record.round_trip).filter(|trip| *trip > 0),
            variation: record.variation,
            timeout: record.timeout,
            congestion_window: record.window,
            threshold: record.threshold,
            in_flight: record.in_flight,
            segment: record.segment,
            receive_window: record.receive_window,
            send_window: record.send_window,
            retransmits: record.sent_again,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use zerocopy::FromBytes;

    proptest! {
        #[test]
        fn whatever_a_guest_says_can_be_printed(bytes in prop::array::uniform32(any::<u8>())) {
            let bytes = [bytes, bytes, bytes].concat();
            let mut record = Record::read_from_bytes(&bytes).unwrap();
            for kind in 0..=u8::MAX {
                record.kind = kind;
                let socket = Socket::of(&record);
                prop_assert_eq!(socket.is_some(), (1..=3).contains(&kind));
                if let Some(socket) = socket {
                    let json = serde_json::to_string(&socket).unwrap();
                    prop_assert!(json.is_ascii());
                }
            }
        }
    }
}
