//! What clients ask a server, and its answers (RFC 2131, 2; RFC 2132).

use super::{Config, Ignored};
use crate::dhcp::message::{
    LEASE_TIME, MAGIC, MESSAGE_LEN, MESSAGE_TYPE, MTU, NAME_SERVERS, Options, REBINDING, RENEWAL,
    ROUTER, SERVER, SUBNET_MASK, Times,
};
use crate::ethernet::Mac;
use alloc::boxed::Box;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::net::Ipv4Addr;
use smoltcp::wire::{DhcpFlags, DhcpMessageType, DhcpOpCode, DhcpOption, DhcpPacket};

/// Most bytes of an answer: what each client takes (RFC 2131, 2: a packet of 576 bytes).
pub const ANSWER_MAX: usize = 548;

/// Most bytes of a client's identifier: the longest that RFC 4361, 6.1 makes has 135.
pub(super) const IDENTIFIER_MAX: usize = 136;
/// A shorter one is none (RFC 2132, 9.14).
const IDENTIFIER_MIN: usize = 2;
/// Options of an answer: eight of the network, the client's identifier, and their sender and kind.
const OPTIONS_MAX: usize = 12;

// Options (RFC 2132).
const WANTED: u8 = 50;
const IDENTIFIER: u8 = 61;

/// Who a client is (RFC 2131, 4.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// What it calls itself.
    Identifier(Box<[u8]>),
    /// Its link address, if it calls itself nothing.
    Mac(Mac),
}

impl Key {
    /// A client that calls itself so; `None` if nobody does.
    pub fn identifier(bytes: &[u8]) -> Option<Self> {
        let is_one = (IDENTIFIER_MIN..=IDENTIFIER_MAX).contains(&bytes.len());
        is_one.then(|| Self::Identifier(bytes.into()))
    }

    /// The bytes of it.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Identifier(bytes) => bytes,
            Self::Mac(mac) => &mac.0,
        }
    }
}

/// What a client asks or tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    pub kind: DhcpMessageType,
    pub xid: u32,
    pub mac: Mac,
    pub key: Key,
    /// Whether it takes nothing yet but what comes to everybody.
    pub broadcast: bool,
    /// The address that it has; unspecified if it has none.
    pub ours: Ipv4Addr,
    /// The address that it would have.
    pub wanted: Option<Ipv4Addr>,
    /// The server that it is for; all of them if `None`.
    pub server: Option<Ipv4Addr>,
}

impl Ask {
    /// Reads a client's message.
    pub fn read(bytes: &[u8]) -> Result<Self, Ignored> {
        let packet = DhcpPacket::new_checked(bytes).map_err(|_| Ignored::Malformed)?;
        // A question about Ethernet, whose addresses have six bytes.
        let is_ask = bytes[..3] == [1, 1, 6];
        let mac = Mac(packet.client_hardware_address().0);
        if packet.magic_number() != MAGIC || !is_ask || !mac.is_station() {
            return Err(Ignored::Malformed);
        }
        if !packet.relay_agent_ip().is_unspecified() {
            return Err(Ignored::Relayed);
        }
        let options = Options(&packet);
        let [kind] = options.fixed(MESSAGE_TYPE).ok_or(Ignored::Malformed)?;
        let identifier = options.all(IDENTIFIER);
        let key = match identifier.len() {
            0..IDENTIFIER_MIN => Key::Mac(mac),
            _ => Key::identifier(&identifier).ok_or(Ignored::Malformed)?,
        };
        Ok(Self {
            kind: DhcpMessageType::from(kind),
            xid: packet.transaction_id(),
            mac,
            key,
            broadcast: packet.flags().contains(DhcpFlags::BROADCAST),
            ours: packet.client_ip(),
            wanted: options.address(WANTED),
            server: options.address(SERVER),
        })
    }
}

/// A server's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Offer, Ack or Nak.
    pub kind: DhcpMessageType,
    /// What is lent; unspecified if nothing is.
    pub lent: Ipv4Addr,
    /// Where it is sent: to everybody, if the client cannot take it otherwise.
    pub to: Ipv4Addr,
    pub(super) ask: Ask,
}

impl Answer {
    /// Writes it into a place of [`ANSWER_MAX`] bytes; how many it has, 0 if there is no room.
    pub fn write(&self, config: &Config, place: &mut [u8]) -> usize {
        let options = self.options(config);
        // Some clients drop shorter ones (RFC 1542, 2.1).
        for len in [MESSAGE_LEN, ANSWER_MAX] {
            if let Some(place) = place.get_mut(..len)
                && self.emit(&options, place).is_some()
            {
                return len;
            }
        }
        0
    }

    fn emit(&self, options: &[(u8, Vec<u8>)], place: &mut [u8]) -> Option<()> {
        let ask = &self.ask;
        place.fill(0);
        place[1..3].copy_from_slice(&[1, 6]);
        let mut packet = DhcpPacket::new_unchecked(place);
        packet.set_opcode(DhcpOpCode::Reply);
        packet.set_transaction_id(ask.xid);
        packet.set_magic_number(MAGIC);
        packet.set_client_hardware_address(smoltcp::wire::EthernetAddress(ask.mac.0));
        packet.set_your_ip(self.lent);
        if ask.broadcast {
            packet.set_flags(DhcpFlags::BROADCAST);
        }
        if self.kind == DhcpMessageType::Ack {
            packet.set_client_ip(ask.ours);
        }
        let mut writer = packet.options_mut();
        for (kind, data) in options {
            let option = DhcpOption { kind: *kind, data };
            writer.emit(option).ok()?;
        }
        writer.end().ok()
    }

    fn options(&self, config: &Config) -> ArrayVec<(u8, Vec<u8>), OPTIONS_MAX> {
        let mut options = ArrayVec::new();
        options.push((MESSAGE_TYPE, [self.kind.into()].to_vec()));
        let own = config.own();
        options.push((SERVER, own.address().octets().to_vec()));
        // RFC 6842.
        if let Key::Identifier(bytes) = &self.ask.key {
            options.push((IDENTIFIER, bytes.to_vec()));
        }
        if self.kind == DhcpMessageType::Nak {
            return options;
        }
        let mask = u32::MAX
            .checked_shl(32 - u32::from(own.bits()))
            .unwrap_or(0);
        options.push((SUBNET_MASK, mask.to_be_bytes().to_vec()));
        options.push((ROUTER, own.address().octets().to_vec()));
        if !config.servers().is_empty() {
            let bytes = config.servers().iter().flat_map(Ipv4Addr::octets);
            options.push((NAME_SERVERS, bytes.collect()));
        }
        if let Some(mtu) = config.mtu() {
            options.push((MTU, mtu.to_be_bytes().to_vec()));
        }
        // Who has an address already is lent none (RFC 2131, 4.3.5).
        if !self.lent.is_unspecified() {
            let [renewal, rebinding, end] = Times::of(config.time()).seconds();
            for (kind, seconds) in [
                (LEASE_TIME, end),
                (RENEWAL, renewal),
                (REBINDING, rebinding),
            ] {
                options.push((kind, seconds.to_be_bytes().to_vec()));
            }
        }
        options
    }
}
