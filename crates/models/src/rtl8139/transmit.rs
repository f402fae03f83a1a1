//! Transmitting: descriptors, offloads, frames (datasheet, chapter 6).

use super::Nic;
use super::descriptor::{FIRST, LAST, Transmit, tx_error};
use super::interrupts::cause;
use super::ring::Found;
use crate::dma::{Dma, DmaFault};
use crate::misbehaviour::Fault;
use crate::packet::Offload;
use crate::packet::checksum::{fold, set_word, sum};
use crate::packet::headers::{
    ETHERNET, FRAME_MIN, IP_BYTES_MAX, IPV4_CHECKSUM, Ip, TAG, TCP, TCP_CHECKSUM, UDP,
    UDP_CHECKSUM, VLAN,
};
use crate::packet::segment::Plan;
use crate::violation::{Queue, Violation};
use crate::wire::Wire;
use crate::wire::frames::send_segments;

/// Descriptors that one poll looks at.
const POLL_DESCRIPTORS: u32 = 256;
/// Longest packet that is to be cut.
const SEGMENTED_MAX: usize = ETHERNET + IP_BYTES_MAX;
/// Longest one that is not: what the card's memory for sending takes.
const PACKET_MAX: usize = 8192;
const QUEUE: Queue = Queue::Tx(0);

/// A frame that is being gathered.
#[derive(Debug, Default)]
pub(super) struct Packet {
    first: Option<Transmit>,
    bytes: Vec<u8>,
}

impl Packet {
    /// Nothing was gathered.
    pub(super) fn begin(&mut self) {
        self.first = None;
        self.bytes.clear();
    }
}

impl Nic {
    /// Sends what the driver has asked for; returns how many frames, or parts of one.
    pub(super) fn transmit(&mut self, wire: &mut impl Wire, dma: &dyn Dma) -> u32 {
        let mut used = 0;
        while self.polls && self.transmits() && used < POLL_DESCRIPTORS && wire.can_send() {
            match self.transmit_next(wire, dma) {
                Ok(true) => used += 1,
                Ok(false) => {
                    self.polls = false;
                    self.happened(cause::TX_UNAVAILABLE);
                }
                Err(fault) => {
                    self.violations.add(Violation::Dma {
                        queue: QUEUE,
                        fault,
                    });
                    (self.tx.hung, self.polls) = (true, false);
                    self.happened(cause::BUS);
                }
            }
        }
        used
    }

    /// Uses the next descriptor, if there is one.
    fn transmit_next(&mut self, wire: &mut impl Wire, dma: &dyn Dma) -> Result<bool, DmaFault> {
        if self.faults.strikes(Fault::TransmitHang) {
            self.tx.hung = true;
        }
        let Some(found) = self.tx.next(dma)? else {
            return Ok(false);
        };
        if !self.tx.advance(&found) {
            self.refuse(found.index, "the 64th must end the ring (6)");
        }
        let early = self.faults.strikes(Fault::EarlyDone);
        if early {
            self.done(&found, 0, dma)?;
        }
        let transmit = Transmit::read(found.words);
        self.gather(found.index, transmit, dma)?;
        let error = match transmit.last {
            true => self.send_packet(wire),
            false => 0,
        };
        if !early && !self.faults.strikes(Fault::Skip) {
            self.done(&found, error, dma)?;
        }
        Ok(true)
    }

    /// The descriptor is the driver's again.
    fn done(&mut self, found: &Found, error: u64, dma: &dyn Dma) -> Result<(), DmaFault> {
        found.give_back(dma, found.words[0] & (FIRST | LAST) | error)
    }

    /// Copies what a descriptor names behind what those before it do.
    fn gather(&mut self, index: u32, transmit: Transmit, dma: &dyn Dma) -> Result<(), DmaFault> {
        for (wrong, rule) in [
            (transmit.reserved, "reserved bits must be 0 (6)"),
            (transmit.len == 0, "its length must not be 0 (6)"),
            (
                transmit.first != self.packet.first.is_none(),
                "FS must be set in the first descriptor of a frame, and there alone (6)",
            ),
        ] {
            if wrong {
                self.refuse(index, rule);
            }
        }
        if transmit.first || self.packet.first.is_none() {
            self.packet.begin();
            self.packet.first = Some(transmit);
        }
        let start = self.packet.bytes.len();
        if start + transmit.len > SEGMENTED_MAX {
            self.refuse(index, "a packet must not be longer than 64 KiB (6)");
            return Ok(());
        }
        self.packet.bytes.resize(start + transmit.len, 0);
        dma.read(transmit.address, &mut self.packet.bytes[start..])
    }

    /// Sends what was gathered; what the last descriptor says of it.
    fn send_packet(&mut self, wire: &mut impl Wire) -> u64 {
        let mut bytes = std::mem::take(&mut self.packet.bytes);
        let first = self.packet.first.take();
        let mut status = 0;
        if !self.link {
            status = tx_error::SUMMARY | tx_error::LINK_FAILS;
            self.statistics.transmit_errors += 1;
            self.happened(cause::TX_ERROR);
        } else if let Some(first) = first {
            let len = bytes.len();
            if let Err(rule) = self.send(first, &mut bytes, wire) {
                let bytes = len;
                let queue = QUEUE;
                self.violations
                    .add(Violation::Packet { queue, bytes, rule });
            }
            self.happened(cause::TX_OK);
        }
        self.packet.bytes = bytes;
        self.packet.begin();
        status
    }

    /// Does what the first descriptor of a frame asks for. Sums are made anew, whatever the fields
    /// of them hold.
    fn send(
        &mut self,
        first: Transmit,
        bytes: &mut Vec<u8>,
        wire: &mut impl Wire,
    ) -> Result<(), &'static str> {
        if bytes.len() < ETHERNET {
            return Err("it must have an Ethernet header");
        }
        if let Some(tag) = first.tag {
            bytes.splice(12..12, [VLAN.to_be_bytes(), tag.to_be_bytes()].concat());
        }
        let Some(size) = first.segment else {
            insert_checksums(bytes, first)?;
            if bytes.len() > PACKET_MAX {
                return Err("it must fit into the card's memory unless it is cut");
            }
            if bytes.len() < FRAME_MIN {
                bytes.resize(FRAME_MIN, 0);
            }
            self.statistics.transmitted += 1;
            wire.send(bytes, Offload::default());
            return Ok(());
        };
        if size == 0 {
            return Err("MSS must not be 0 (6)");
        }
        let plan = Plan::read(bytes, size).filter(|plan| !plan.ip.v6 && !plan.is_udp());
        let plan = plan.ok_or("LGSEN takes TCP over IPv4, with payload and sound lengths (6)")?;
        let sent = &mut self.statistics.transmitted;
        let count = |_: &[u8], _, times| *sent += times;
        send_segments(&plan, bytes, &mut self.segment, wire, count);
        Ok(())
    }

    fn refuse(&mut self, index: u32, rule: &'static str) {
        let queue = QUEUE;
        self.violations
            .add(Violation::Descriptor { queue, index, rule });
    }
}

/// Puts checksums in that were asked for.
fn insert_checksums(frame: &mut [u8], first: Transmit) -> Result<(), &'static str> {
    if !(first.ip_checksum || first.tcp_checksum || first.udp_checksum) {
        return Ok(());
    }
    let ip = Ip::find(frame).filter(|ip| !ip.v6 && (TAG..frame.len()).contains(&ip.start));
    let ip = ip.ok_or("IPCS, UDPCS and TCPCS take IPv4 (6)")?;
    if first.ip_checksum {
        set_word(frame, ip.start + IPV4_CHECKSUM, 0);
        let value = !fold(sum(&frame[ip.start..ip.payload]));
        set_word(frame, ip.start + IPV4_CHECKSUM, value);
    }
    let field = match (first.tcp_checksum, first.udp_checksum) {
        (false, false) => return Ok(()),
        (true, false) if ip.protocol == TCP => TCP_CHECKSUM,
        (false, true) if ip.protocol == UDP => UDP_CHECKSUM,
        _ => return Err("UDPCS or TCPCS must be that of the packet (6)"),
    };
    if ip.fragment || ip.transport(frame).is_none() {
        return Err("UDPCS and TCPCS take a whole packet (6)");
    }
    set_word(frame, ip.payload + field, 0);
    let pseudo = ip.pseudo_header(frame, ip.end - ip.payload);
    let value = match !fold(pseudo + sum(&frame[ip.payload..ip.end])) {
        0 if ip.protocol == UDP => 0xffff,
        value => value,
    };
    set_word(frame, ip.payload + field, value);
    Ok(())
}
