//! What ICMP for both versions of IP shares: errors about packets (RFC 792, RFC 1122 3.2.2,
//! RFC 4443), told to others and read from others.
//!
//! smoltcp's `wire` does not read errors that quote less than the whole packet, nor the MTU in
//! them, so they are read here.

use crate::counts::reasons;
use device::checksum;

/// Errors a second that we send (RFC 1812, 4.3.2.8; RFC 4443, 2.4 f).
pub(crate) const ERRORS_PER_SECOND: u32 = 100;
/// Errors at once.
pub(crate) const ERRORS_BURST: u32 = 20;

/// Bytes in front of what an error quotes.
pub(crate) const ERROR_HEADER: usize = 8;

/// Bytes of a quoted transport header that every error has (RFC 792).
pub const QUOTED: usize = 8;

/// Where the checksum lies in every message.
const CHECKSUM: usize = 2;

reasons! {
    /// Messages that came and left, of both versions.
    pub enum Messages {
        /// Messages that came, those of Neighbour Discovery included.
        Received = "icmp_received",
        /// Echoes that were answered.
        Echoes = "icmp_echoes_answered",
        /// Errors about packets of ours that came.
        Reports = "icmp_errors_received",
        /// Errors that we have sent.
        Errors = "icmp_errors_sent",
    }
}

/// Why a packet is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nobody listens at its port.
    Port,
    /// Nobody speaks its protocol.
    Protocol,
    /// It did not become whole in time.
    Late,
    /// It may make no more hops.
    Hops,
    /// No route leads to its destination.
    NoRoute,
    /// It exceeds what its next link carries, and may not be cut.
    TooBig {
        /// The link's MTU in bytes.
        mtu: usize,
    },
}

/// What an error says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The packet exceeds what a link carries: so many bytes, or zero if the router did not say.
    TooBig {
        /// The link's MTU in bytes.
        mtu: usize,
    },
    /// Nobody listens at the port.
    Port,
    /// Nobody speaks the protocol.
    Protocol,
    /// The destination cannot be reached, perhaps only now.
    Unreachable,
    /// The packet made too many hops, or did not become whole.
    Expired,
    /// Its header has something wrong.
    Header,
}

/// An error about a packet that, as it says, we have sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report<A = core::net::IpAddr> {
    /// What is wrong.
    pub kind: Kind,
    /// Our address in the quoted packet.
    pub source: A,
    /// Where the quoted packet went.
    pub destination: A,
    /// Protocol of its payload.
    pub protocol: u8,
    /// Its length, header included.
    pub len: usize,
    /// The beginning of its transport header: ports, and TCP's sequence number.
    pub transport: [u8; QUOTED],
}

impl<A> Report<A> {
    /// The same, with addresses of another type.
    pub(crate) fn between<B>(&self, source: B, destination: B) -> Report<B> {
        Report {
            kind: self.kind,
            source,
            destination,
            protocol: self.protocol,
            len: self.len,
            transport: self.transport,
        }
    }
}

/// Whether the checksum of a message is right; `pseudo` is the sum of the pseudo header, which
/// IPv6 has and IPv4 has not.
pub(crate) fn is_intact(message: &[u8], pseudo: u64) -> bool {
    checksum::fold(checksum::sum(message) + pseudo) == 0xffff
}

/// Stores the checksum of a message.
pub(crate) fn complete(message: &mut [u8], pseudo: u64) {
    let sum = checksum::fold(pseudo);
    if let Some(place) = message.get_mut(CHECKSUM..CHECKSUM + 2) {
        place.copy_from_slice(&sum.to_ne_bytes());
    }
    checksum::complete(message, 0, CHECKSUM);
}

/// Writes an error with what it quotes into a place of exactly that length, without its checksum.
/// `rest` is what the error's kind has behind the checksum.
pub(crate) fn write_error(place: &mut [u8], (kind, code, rest): (u8, u8, u32), quoted: &[u8]) {
    let (header, body) = place.split_at_mut(ERROR_HEADER);
    let [a, b, c, d] = rest.to_be_bytes();
    header.copy_from_slice(&[kind, code, 0, 0, a, b, c, d]);
    body.copy_from_slice(quoted);
}

/// Writes the answer to an echo request of the same length, without its checksum.
pub(crate) fn write_reply(place: &mut [u8], kind: u8, request: &[u8]) {
    place.copy_from_slice(request);
    place[..4].copy_from_slice(&[kind, 0, 0, 0]);
}
