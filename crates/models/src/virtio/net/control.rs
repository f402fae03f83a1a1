//! Commands of the driver (5.1.6.5).

use super::super::chain::Chain;
use super::super::queue::Virtqueue;
use super::super::work::Work;
use super::{Nic, PAIRS, feature};
use crate::violation::{Queue, Violation};

/// Classes of commands, and the commands of each.
mod class {
    pub const RX: u8 = 0;
    pub const MAC: u8 = 1;
    pub const VLAN: u8 = 2;
    pub const ANNOUNCE: u8 = 3;
    pub const MQ: u8 = 4;
    pub const GUEST_OFFLOADS: u8 = 5;
}
const RX_PROMISCUOUS: u8 = 0;
const RX_ALL_MULTICAST: u8 = 1;
const MAC_TABLE_SET: u8 = 0;
const MAC_ADDRESS_SET: u8 = 1;
const VLAN_ADD: u8 = 0;
const VLAN_DELETE: u8 = 1;
const ANNOUNCE_ACK: u8 = 0;
const MQ_PAIRS_SET: u8 = 0;
const GUEST_OFFLOADS_SET: u8 = 0;
/// Answers.
const OK: u8 = 0;
const ERR: u8 = 1;
/// Longest command: two tables of addresses, each with more than any driver has.
const COMMAND_BYTES_MAX: usize = 2 + 2 * (4 + 6 * 4096);
/// Commands that one poll obeys.
const POLL_COMMANDS: u32 = 16;

/// Why a command is not obeyed; the rule has its section.
type Refused = &'static str;

impl Nic {
    /// Obeys what waits, up to a bound: how many commands.
    pub(super) fn obey(
        &mut self,
        queue: &mut Virtqueue,
        chain: &mut Chain,
        work: &mut Work<'_>,
    ) -> u32 {
        let mut left = POLL_COMMANDS;
        if !queue.is_notified() {
            return 0;
        }
        loop {
            while left > 0 && queue.take(chain, work) {
                left -= 1;
                let written = self.answer(chain, work);
                queue.give_back(chain.head, written, work);
            }
            queue.publish(work);
            if left == 0 || !queue.listen(work) {
                return POLL_COMMANDS - left;
            }
        }
    }

    /// Obeys one command, and writes its answer: how many bytes.
    fn answer(&mut self, chain: &Chain, work: &mut Work<'_>) -> u32 {
        let mut bytes = vec![0; chain.readable_bytes().min(COMMAND_BYTES_MAX as u64) as usize];
        let read = chain.read(0, &mut bytes, work.dma);
        let outside = |fault| Violation::Dma {
            queue: Queue::Control,
            fault,
        };
        if let Err(fault) = read {
            work.report(outside(fault));
            return 0;
        }
        let done = match bytes.split_first_chunk::<2>() {
            Some((&[class, command], data)) => self.command(class, command, data),
            None => Err("a command has a class and a number (5.1.6.5)"),
        };
        let answer = match done {
            Ok(()) => OK,
            Err(rule) => {
                let queue = Queue::Control;
                let bytes = bytes.len();
                work.report(Violation::Packet { queue, bytes, rule });
                ERR
            }
        };
        match chain.write(0, &[answer], work.dma) {
            Ok(1) => 1,
            Ok(_) => {
                let queue = Queue::Control;
                let (index, rule) = (chain.head.into(), "there must be room for ack (5.1.6.5)");
                work.report(Violation::Descriptor { queue, index, rule });
                0
            }
            Err(fault) => {
                work.report(outside(fault));
                0
            }
        }
    }

    fn command(&mut self, class: u8, command: u8, data: &[u8]) -> Result<(), Refused> {
        match (class, command) {
            (class::RX, RX_PROMISCUOUS | RX_ALL_MULTICAST) => {
                self.takes(feature::CTRL_RX, "it takes CTRL_RX (5.1.6.5.1)")?;
                let on = match data {
                    [0] => false,
                    [1] => true,
                    _ => return Err("a mode is on, 1, or off, 0 (5.1.6.5.1)"),
                };
                match command {
                    RX_PROMISCUOUS => self.filter.modes.promiscuous = on,
                    _ => self.filter.modes.all_multicast = on,
                }
                Ok(())
            }
            (class::MAC, MAC_TABLE_SET) => {
                self.takes(feature::CTRL_RX, "it takes CTRL_RX (5.1.6.5.2)")?;
                self.set_tables(data)
                    .ok_or("two tables of addresses have their lengths (5.1.6.5.2)")
            }
            (class::MAC, MAC_ADDRESS_SET) => {
                self.takes(feature::CTRL_MAC_ADDR, "it takes CTRL_MAC_ADDR (5.1.6.5.2)")?;
                let address = <[u8; 6]>::try_from(data);
                self.filter
                    .set_address(address.map_err(|_| "an address has six bytes (5.1.6.5.2)")?);
                Ok(())
            }
            (class::VLAN, VLAN_ADD | VLAN_DELETE) => {
                self.takes(feature::CTRL_VLAN, "it takes CTRL_VLAN (5.1.6.5.3)")?;
                let vlan = word(data).ok_or("a VLAN has two bytes (5.1.6.5.3)")?;
                match self.filter.set_vlan(vlan, command == VLAN_ADD) {
                    true => Ok(()),
                    false => Err("a VLAN is less than 4096 (5.1.6.5.3)"),
                }
            }
            (class::ANNOUNCE, ANNOUNCE_ACK) => {
                self.takes(
                    feature::GUEST_ANNOUNCE,
                    "it takes GUEST_ANNOUNCE (5.1.6.5.4)",
                )?;
                if !std::mem::take(&mut self.announce) {
                    return Err("there must be something to acknowledge (5.1.6.5.4)");
                }
                Ok(())
            }
            (class::MQ, MQ_PAIRS_SET) => {
                self.takes(feature::MQ, "it takes MQ (5.1.6.5.5)")?;
                let pairs = word(data).filter(|pairs| (1..=PAIRS).contains(pairs));
                let rule = "there must be one pair, and max_virtqueue_pairs at most (5.1.6.5.5)";
                self.steering.set_pairs(pairs.ok_or(rule)?);
                Ok(())
            }
            (class::GUEST_OFFLOADS, GUEST_OFFLOADS_SET) => {
                self.takes(
                    feature::CTRL_GUEST_OFFLOADS,
                    "it takes CTRL_GUEST_OFFLOADS (5.1.6.5.8)",
                )?;
                self.set_guest_offloads(data)
            }
            _ => Err("there is no such command (5.1.6.5)"),
        }
    }

    fn takes(&self, features: u64, rule: Refused) -> Result<(), Refused> {
        self.has(features).then_some(()).ok_or(rule)
    }

    fn set_tables(&mut self, data: &[u8]) -> Option<()> {
        let (unicast, data) = table(data)?;
        let (multicast, _) = table(data)?;
        self.filter
            .set_tables(unicast.iter().copied(), multicast.iter().copied());
        Some(())
    }

    /// Of what was negotiated, some may be off.
    fn set_guest_offloads(&mut self, data: &[u8]) -> Result<(), Refused> {
        let offloads = <[u8; 8]>::try_from(data).map(u64::from_le_bytes);
        let offloads = offloads.map_err(|_| "offloads have eight bytes (5.1.6.5.8)")?;
        if offloads & !(self.negotiated & feature::GUEST) != 0 {
            return Err("an offload must have been negotiated (5.1.6.5.8)");
        }
        self.features = self.negotiated & !feature::GUEST | offloads;
        Ok(())
    }
}

fn word(data: &[u8]) -> Option<u16> {
    Some(u16::from_le_bytes(data.try_into().ok()?))
}

/// A table of addresses, and what follows it.
fn table(data: &[u8]) -> Option<(&[[u8; 6]], &[u8])> {
    let (entries, data) = data.split_first_chunk::<4>()?;
    let bytes = (u32::from_le_bytes(*entries) as usize).checked_mul(6)?;
    let (addresses, data) = data.split_at_checked(bytes)?;
    Some((addresses.as_chunks().0, data))
}
