//! The packet that would begin a connection, known from another one of it.

use super::{Fragment, Key, protocol};
use crate::conntrack::Name;
use crate::fields::Slot;

/// SYN, among the flags of TCP.
const SYN: u8 = 2;

impl Key {
    /// The packet that would begin the connection of this name, of which this is a packet, maybe of
    /// the other direction.
    pub(crate) fn beginning(&self, name: &Name, is_reply: bool) -> Self {
        let mut key = *self;
        if is_reply {
            core::mem::swap(&mut key.source, &mut key.destination);
        }
        key.fragment = Fragment::Whole;
        let [first, second] = name.ports;
        let has_ports = matches!(name.protocol, protocol::TCP | protocol::UDP);
        key.translate(true, name.source, has_ports.then_some(first));
        key.translate(false, name.destination, has_ports.then_some(second));
        match name.protocol {
            protocol::TCP => key.set(Slot::TcpFlags, SYN),
            protocol::ICMP | protocol::ICMPV6 => {
                let [kind, code] = second.to_be_bytes();
                key.set(Slot::IcmpType, kind);
                key.set(Slot::IcmpCode, code);
            }
            _ => {}
        }
        key
    }
}
