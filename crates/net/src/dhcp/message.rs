//! The client's messages, and what it takes from those of servers (RFC 2131, 2; RFC 2132).

use super::Dropped;
use crate::address::{Address, Prefix};
use crate::dns::Name;
use crate::ethernet::Mac;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::net::Ipv4Addr;
use core::time::Duration;
use domain::base::ToName;
use domain::base::name::ParsedName;
use domain::dep::octseq::Parser;
use smoltcp::wire::{
    DHCP_SERVER_PORT, DhcpMessageType, DhcpOption, DhcpPacket, DhcpRepr, EthernetAddress,
};

/// Bytes of each message that we send: some relays drop shorter ones (RFC 1542, 2.1).
pub const MESSAGE_LEN: usize = 300;
/// Servers of names that are kept of a lease.
pub const SERVERS_MAX: usize = 4;
/// Domains that are kept of a lease: glibc's number.
pub const SEARCH_MAX: usize = 6;

/// The longest message that we take, in bytes: what fits into one packet of Ethernet.
const ANSWER_MAX: u16 = 1500;
/// Less is no network's MTU: each host takes packets of this size (RFC 791, 3.1).
pub(super) const MTU_MIN: u16 = 576;
/// A lease for ever (RFC 2131, 3.3).
pub(super) const INFINITE: u32 = u32::MAX;
pub(super) const MAGIC: u32 = 0x6382_5363;

// Options (RFC 2132; RFC 3397).
pub(super) const SUBNET_MASK: u8 = 1;
pub(super) const ROUTER: u8 = 3;
pub(super) const NAME_SERVERS: u8 = 6;
const DOMAIN: u8 = 15;
pub(super) const MTU: u8 = 26;
pub(super) const LEASE_TIME: u8 = 51;
pub(super) const MESSAGE_TYPE: u8 = 53;
pub(super) const SERVER: u8 = 54;
pub(super) const RENEWAL: u8 = 58;
pub(super) const REBINDING: u8 = 59;
const SEARCH: u8 = 119;
const WANTED: [u8; 9] = [
    SUBNET_MASK,
    ROUTER,
    NAME_SERVERS,
    DOMAIN,
    MTU,
    LEASE_TIME,
    RENEWAL,
    REBINDING,
    SEARCH,
];

/// How long an address is ours, from the request on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// After so long, the server that gave it is asked again (T1).
    pub renewal: Duration,
    /// After so long, all servers are (T2).
    pub rebinding: Duration,
    /// After so long, it is ours no more.
    pub end: Duration,
}

impl Times {
    /// Those of a lease for so long of which nobody says more (RFC 2131, 4.4.5).
    pub(super) fn of(end: Duration) -> Self {
        Self {
            renewal: end / 2,
            rebinding: end * 7 / 8,
            end,
        }
    }

    /// Seconds until renewal, rebinding and the end; the largest number means for ever.
    pub(super) fn seconds(&self) -> [u32; 3] {
        let seconds = |time: Duration| u32::try_from(time.as_secs()).unwrap_or(INFINITE);
        [self.renewal, self.rebinding, self.end].map(seconds)
    }
}

/// What a server lends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Our address and its network.
    pub address: Prefix<Ipv4Addr>,
    /// Where packets to other networks go.
    pub router: Option<Ipv4Addr>,
    /// Who resolves names.
    pub servers: ArrayVec<Ipv4Addr, SERVERS_MAX>,
    /// Where short names are looked for.
    pub search: Vec<Name>,
    /// Largest packet that the network carries, in bytes.
    pub mtu: Option<usize>,
    /// Who lends it.
    pub server: Ipv4Addr,
    /// How long; `None` is for ever.
    pub times: Option<Times>,
}

/// What we ask or tell servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// Discover, Request or Decline.
    pub kind: DhcpMessageType,
    /// Names the exchange.
    pub xid: u32,
    /// Seconds since we began to ask.
    pub secs: u16,
    /// Our link address.
    pub mac: Mac,
    /// The address that is ours already; unspecified if none is.
    pub ours: Ipv4Addr,
    /// The address that was offered.
    pub wanted: Option<Ipv4Addr>,
    /// The server that it is for; all of them if `None`.
    pub server: Option<Ipv4Addr>,
    /// Where it is sent.
    pub to: Ipv4Addr,
}

impl Question {
    /// Writes it into a place of [`MESSAGE_LEN`] bytes; how many it has.
    pub fn write(&self, place: &mut [u8]) -> usize {
        let asks = self.kind != DhcpMessageType::Decline;
        let repr = DhcpRepr {
            message_type: self.kind,
            transaction_id: self.xid,
            secs: self.secs,
            client_hardware_address: EthernetAddress(self.mac.0),
            client_ip: self.ours,
            your_ip: Ipv4Addr::UNSPECIFIED,
            server_ip: Ipv4Addr::UNSPECIFIED,
            router: None,
            subnet_mask: None,
            relay_agent_ip: Ipv4Addr::UNSPECIFIED,
            // Before we have an address, what comes to everybody is all that reaches us.
            broadcast: self.ours.is_unspecified(),
            requested_ip: self.wanted,
            client_identifier: Some(EthernetAddress(self.mac.0)),
            server_identifier: self.server,
            parameter_request_list: asks.then_some(&WANTED),
            dns_servers: None,
            max_size: asks.then_some(ANSWER_MAX),
            lease_duration: None,
            renew_duration: None,
            rebind_duration: None,
            additional_options: &[] as &[DhcpOption<'_>],
        };
        let Some(place) = place.get_mut(..MESSAGE_LEN) else {
            return 0;
        };
        place.fill(0);
        match repr.emit(&mut DhcpPacket::new_unchecked(place)) {
            Ok(()) => MESSAGE_LEN,
            Err(_) => 0,
        }
    }
}

/// What a server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It would lend this.
    Offer(Lease),
    /// It lends this.
    Ack(Lease),
    /// This server refuses.
    Nak(Ipv4Addr),
}

/// Reads a message from a server to the station with this link address, in this exchange.
pub fn parse(bytes: &[u8], from_port: u16, mac: Mac, xid: u32) -> Result<Answer, Dropped> {
    let packet = DhcpPacket::new_checked(bytes).map_err(|_| Dropped::Malformed)?;
    // A reply about Ethernet, whose addresses have six bytes.
    let is_reply = bytes[..3] == [2, 1, 6];
    if from_port != DHCP_SERVER_PORT || packet.magic_number() != MAGIC || !is_reply {
        return Err(Dropped::Malformed);
    }
    if packet.transaction_id() != xid || packet.client_hardware_address().0 != mac.0 {
        return Err(Dropped::Foreign);
    }
    let options = Options(&packet);
    let [kind] = options.fixed(MESSAGE_TYPE).ok_or(Dropped::Malformed)?;
    let kind = DhcpMessageType::from(kind);
    let server = options.address(SERVER).filter(is_station);
    let server = server.ok_or(Dropped::Server)?;
    match kind {
        DhcpMessageType::Offer => lease(&packet, options, server).map(Answer::Offer),
        DhcpMessageType::Ack => lease(&packet, options, server).map(Answer::Ack),
        DhcpMessageType::Nak => Ok(Answer::Nak(server)),
        _ => Err(Dropped::Unexpected),
    }
}

fn lease(
    packet: &DhcpPacket<&[u8]>,
    options: Options<'_>,
    server: Ipv4Addr,
) -> Result<Lease, Dropped> {
    let mask = options.address(SUBNET_MASK).ok_or(Dropped::Mask)?.to_bits();
    let bits = mask.leading_ones();
    if mask.count_ones() != bits || bits == 0 {
        return Err(Dropped::Mask);
    }
    let prefix = Prefix::new(packet.your_ip(), bits as u8).ok_or(Dropped::Mask)?;
    // Neither the network's own address nor that of all in it.
    let host = !mask & prefix.address().to_bits();
    let edge = bits < 31 && (host == 0 || host == !mask);
    if !is_station(&prefix.address()) || edge {
        return Err(Dropped::Address);
    }
    let mtu = options.fixed(MTU).map(u16::from_be_bytes);
    let mtu = mtu.filter(|mtu| *mtu >= MTU_MIN);
    let servers = options.all(NAME_SERVERS);
    let servers = servers
        .chunks_exact(4)
        .map(|bytes| address([0, 1, 2, 3].map(|n| bytes[n])));
    Ok(Lease {
        address: prefix,
        router: options.first_address(ROUTER).filter(is_station),
        servers: servers.filter(is_station).take(SERVERS_MAX).collect(),
        search: search(options),
        mtu: mtu.map(usize::from),
        server,
        times: times(options)?,
    })
}

/// Times that contradict each other, or are missing, are those of RFC 2131, 4.4.5.
fn times(options: Options<'_>) -> Result<Option<Times>, Dropped> {
    let seconds = |kind| options.fixed(kind).map(u32::from_be_bytes);
    let end = seconds(LEASE_TIME).filter(|end| *end > 0);
    let end = end.ok_or(Dropped::Time)?;
    if end == INFINITE {
        return Ok(None);
    }
    let whole = Duration::from_secs(end.into());
    let given = [RENEWAL, REBINDING].map(seconds);
    let (renewal, rebinding) = match given {
        [Some(renewal), Some(rebinding)] if renewal < rebinding && rebinding < end => (
            Duration::from_secs(renewal.into()),
            Duration::from_secs(rebinding.into()),
        ),
        _ => return Ok(Some(Times::of(whole))),
    };
    Ok(Some(Times {
        renewal,
        rebinding,
        end: whole,
    }))
}

/// The domains of the search option (RFC 3397), or else the domain of the client. What cannot be
/// read is none.
fn search(options: Options<'_>) -> Vec<Name> {
    let listed = options.all(SEARCH);
    let mut parser = Parser::from_ref(listed.as_slice());
    let mut domains = Vec::new();
    while parser.remaining() > 0
        && domains.len() < SEARCH_MAX
        && let Ok(domain) = ParsedName::parse(&mut parser)
    {
        domains.push(domain.to_name());
    }
    if domains.is_empty() {
        let domain = options.all(DOMAIN);
        let text = str::from_utf8(&domain).map(|text| text.trim_end_matches('\0'));
        let domain = text.ok().filter(|text| !text.is_empty());
        domains.extend(domain.and_then(|text| text.parse().ok()));
    }
    domains
}

/// The options of a message.
#[derive(Clone, Copy)]
pub(super) struct Options<'a>(pub &'a DhcpPacket<&'a [u8]>);

impl Options<'_> {
    /// All bytes of an option, which may come in several pieces (RFC 3396).
    pub fn all(self, kind: u8) -> Vec<u8> {
        let pieces = self.0.options().filter(|option| option.kind == kind);
        pieces.flat_map(|option| option.data).copied().collect()
    }

    pub fn fixed<const N: usize>(self, kind: u8) -> Option<[u8; N]> {
        self.all(kind).try_into().ok()
    }

    pub fn address(self, kind: u8) -> Option<Ipv4Addr> {
        self.fixed(kind).map(address)
    }

    /// The first of several, which are in the order of preference.
    fn first_address(self, kind: u8) -> Option<Ipv4Addr> {
        self.all(kind).first_chunk().copied().map(address)
    }
}

fn address(bytes: [u8; 4]) -> Ipv4Addr {
    bytes.into()
}

/// Whether a station on the link can have it.
pub(super) fn is_station(address: &Ipv4Addr) -> bool {
    Address::is_station(*address) && !address.is_loopback()
}
