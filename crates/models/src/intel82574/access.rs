//! Reads and writes of registers: what each does, and what a driver may not do.

use super::Nic;
use super::interrupts::VECTORS;
use super::nvm::NVM_SIZE;
use super::registers::{Id, Place, QUEUES, RegisterFile, at, bit, queue_of};
use crate::gigabit::control::Part;
use crate::registers::{Register, Registers};
use crate::settling::SETTLE_READS;
use crate::violation::{Queue, Violation};

/// Bits that software must set, without another meaning: GCR (10.2.3.1), TXDCTL (10.2.6.11).
const MUST_BE_SET: u32 = 1 << 22;
/// Where GCR and TXDCTL of the first queue lie.
const GCR: usize = 0x05b00;
const TXDCTL: usize = 0x03828;
/// Bits of CTRL and CTRL_EXT that clear themselves.
const CTRL_ORDERS: u32 = bit::CTRL_RESET | bit::CTRL_PHY_RESET;
const CTRL_EXT_ORDERS: u32 = bit::CTRL_EXT_EEPROM_RESET | bit::CTRL_EXT_PBA_CLEAR;

/// The bit of status at its place.
fn when(is: bool, bit: u32) -> u32 {
    if is { bit } else { 0 }
}

impl Registers for Nic {
    type Id = Id;

    #[inline]
    fn file(&self) -> &RegisterFile {
        &self.mac.file
    }

    #[inline]
    fn read_register(&mut self, place: &Place) -> u32 {
        let value = self.read_as_specified(place);
        self.mac.faults.read(place.offset, value)
    }

    #[inline]
    fn write_register(&mut self, place: &Place, value: u32) {
        let Place {
            register, offset, ..
        } = *place;
        if register.writable == 0 {
            self.mac.violations.add(Violation::ReadOnly {
                register: register.name,
                section: register.section,
                value,
            });
            return;
        }
        let bits = register.reserved(value);
        if bits != 0 {
            self.mac.violations.add(Violation::Reserved {
                register: register.name,
                section: register.section,
                bits,
            });
        }
        // The tails first: no other register is written as often.
        match register.id {
            Id::RxTail => self.mac.write_rx_tail(queue_of(offset), value),
            Id::TxTail => self.mac.write_tx_tail(queue_of(offset), value),
            _ => self.write_as_specified(register, offset, value),
        }
    }

    fn report(&mut self, violation: Violation) {
        self.mac.violations.add(violation);
    }
}

impl Nic {
    /// What a register reads, and what reading it does.
    fn read_as_specified(&mut self, place: &Place) -> u32 {
        let Place {
            register, offset, ..
        } = *place;
        let held = self.mac.file.get(offset);
        let steps = &mut self.mac.steps;
        match register.id {
            Id::Ctrl => {
                let resets = steps.reset_reads > 0;
                steps.reset_reads = steps.reset_reads.saturating_sub(1);
                held | when(resets, bit::CTRL_RESET)
            }
            Id::Status => self.read_status(),
            Id::Eec => {
                let done = when(steps.auto_read.read(), bit::EEC_AUTO_READ_DONE);
                let granted = when(held & bit::EEC_REQUEST != 0, bit::EEC_GRANT);
                held | bit::EEC_PRESENT | NVM_SIZE << bit::EEC_SIZE_SHIFT | done | granted
            }
            Id::Swsm => {
                // 10.2.3.12: a read takes the semaphore, if nobody has it.
                self.mac.file.set(offset, held | bit::SWSM_HELD);
                held
            }
            Id::Icr => self.interrupts.read_causes(&self.mac.file),
            Id::Ics | Id::Imc => 0,
            Id::Ims => self.interrupts.enabled(),
            Id::Eiac => *self.interrupts.auto_clear(),
            Id::Iam => *self.interrupts.auto_mask(),
            Id::RxHead => self.mac.rx[queue_of(offset)].ring.head(),
            Id::RxTail => self.mac.rx[queue_of(offset)].ring.tail(),
            Id::TxHead => self.mac.tx[queue_of(offset)].ring.head(),
            Id::TxTail => self.mac.tx[queue_of(offset)].ring.tail(),
            Id::Counter(counter, half) => self.mac.statistics.read(counter, half),
            _ => held,
        }
    }

    /// 10.2.2.2.
    fn read_status(&mut self) -> u32 {
        let is_up = self.mac.steps.link.read();
        self.mac.note_link(is_up);
        self.tell();
        let masters = !self.mac.file.has(at::CTRL, bit::CTRL_MASTER_DISABLE);
        bit::STATUS_FULL_DUPLEX
            | when(is_up, bit::STATUS_LINK_UP)
            | bit::STATUS_SPEED_1000
            | when(masters, bit::STATUS_MASTER_ENABLED)
            | self.mac.file.get(at::STATUS) & bit::STATUS_PHY_RESET
    }

    /// What writing a register does, but for tails.
    fn write_as_specified(&mut self, register: &'static Register<Id>, offset: usize, value: u32) {
        let held = self.mac.file.get(offset);
        self.check(register, offset, held, value);
        self.mac.file.set(offset, register.written(held, value));
        match register.id {
            Id::Ctrl => self.write_control(offset, value),
            Id::Status => {
                let kept = held & (value | !bit::STATUS_PHY_RESET);
                self.mac.file.set(offset, kept);
            }
            Id::CtrlExt => {
                let kept = self.mac.file.get(offset) & !CTRL_EXT_ORDERS;
                self.mac.file.set(offset, kept);
            }
            Id::Eerd if value & bit::EERD_START != 0 => {
                let word = value >> 2 & 0x3fff;
                let data = u32::from(self.nvm.read(word as usize));
                self.mac
                    .file
                    .set(offset, data << 16 | word << 2 | bit::EERD_DONE);
            }
            Id::Mdic => {
                self.mac.access_phy(register, offset, value);
                self.tell();
            }
            Id::Pba => self.mac.divide_packet_buffer(offset, value),
            Id::Delay => self.mac.file.set(offset, value & 0xffff),
            Id::Icr => self.interrupts.clear_causes(value, &self.mac.file),
            Id::Ics => self.interrupts.set_causes(value),
            Id::Ims => self.interrupts.enable(value),
            Id::Imc => self.interrupts.disable(value),
            Id::Eiac => *self.interrupts.auto_clear() = value,
            Id::Iam => *self.interrupts.auto_mask() = value,
            Id::Rctl => self.mac.write_receive_control(value),
            Id::Receiving => self.mac.configure_receive(),
            Id::Tctl => self.mac.write_transmit_control(value),
            id => match ring_part(id, offset) {
                Some((Queue::Rx(number), part)) => {
                    self.mac.set_rx_ring(number.into(), part, offset, value);
                }
                Some((Queue::Tx(number), part)) => {
                    self.mac.set_tx_ring(number.into(), part, offset, value);
                }
                _ => {}
            },
        }
    }

    /// 10.2.2.1: resets of the device and of the transceiver.
    fn write_control(&mut self, offset: usize, value: u32) {
        if value & bit::CTRL_RESET != 0 {
            self.reset();
            self.mac.steps.reset_reads = SETTLE_READS;
            return;
        }
        let kept = self.mac.file.get(offset) & !CTRL_ORDERS;
        self.mac.file.set(offset, kept);
        if value & bit::CTRL_PHY_RESET != 0 {
            self.mac.phy.reset_hardware();
            let status = self.mac.file.get(at::STATUS) | bit::STATUS_PHY_RESET;
            self.mac.file.set(at::STATUS, status);
        }
    }

    /// What must hold when a register is written.
    fn check(&mut self, register: &'static Register<Id>, offset: usize, held: u32, value: u32) {
        let sets = |bits: u32| value & !held & bits != 0;
        match register.id {
            Id::Ctrl if value & bit::CTRL_RESET != 0 => {
                let masters = !self.mac.file.has(at::CTRL, bit::CTRL_MASTER_DISABLE);
                let uses = self.mac.file.has(at::RCTL, bit::RCTL_ENABLE)
                    || self.mac.file.has(at::TCTL, bit::TCTL_ENABLE);
                let rule =
                    "GIO_master_disable comes before a reset of a device that works (3.1.3.10)";
                self.mac.advise(masters && uses, register, rule);
            }
            Id::Rctl if sets(bit::RCTL_ENABLE) => self.check_receive_start(register),
            Id::Tctl if sets(bit::TCTL_ENABLE) => self.check_transmit_start(register),
            Id::Ivar => {
                let wrong = (0..QUEUES * 2 + 1).any(|number| {
                    let field = value >> (4 * number);
                    field & 8 != 0 && (field & 7) as usize >= VECTORS
                });
                let rule = "there are five vectors (10.2.4.9)";
                self.mac.forbid(wrong, register, value, rule);
            }
            id => {
                if let Some((queue, part)) = ring_part(id, offset) {
                    let place = Place {
                        register,
                        index: 0,
                        offset,
                    };
                    self.mac.check_ring(&place, queue, part, value);
                }
            }
        }
    }

    /// RCTL.EN is set (4.6.5).
    fn check_receive_start(&mut self, register: &Register<Id>) {
        let steps = &self.mac.steps;
        let (seen, settled) = (steps.auto_read.was_seen(), steps.auto_read.is_settled());
        let rule = "EEC.Auto_RD must read 1 first (4.6.2)";
        self.mac.order(!seen && !settled, register, rule);
        self.mac.advise(!seen && settled, register, rule);
        let is_empty = self.mac.rx.iter().all(|queue| !queue.ring.has_place());
        let rule = "a ring should be set up before RCTL.EN (4.6.5)";
        self.mac.advise(is_empty, register, rule);
        let is_set = self.mac.file.has(GCR, MUST_BE_SET);
        self.mac
            .order(!is_set, register, "GCR bit 22 must be set (10.2.3.1)");
    }

    /// TCTL.EN is set (4.6.6).
    fn check_transmit_start(&mut self, register: &Register<Id>) {
        let is_empty = self.mac.tx.iter().all(|queue| !queue.ring.has_place());
        let rule = "a ring must be set up before TCTL.EN (4.6.6)";
        self.mac.order(is_empty, register, rule);
        let is_set = self.mac.file.has(TXDCTL, MUST_BE_SET);
        self.mac
            .order(!is_set, register, "TXDCTL bit 22 must be set (10.2.6.11)");
    }
}

/// The ring and its part that a register is about.
fn ring_part(id: Id, offset: usize) -> Option<(Queue, Part)> {
    let number = queue_of(offset) as u8;
    Some(match id {
        Id::RxBase => (Queue::Rx(number), Part::Base),
        Id::RxLength => (Queue::Rx(number), Part::Length),
        Id::RxHead => (Queue::Rx(number), Part::Head),
        Id::TxBase => (Queue::Tx(number), Part::Base),
        Id::TxLength => (Queue::Tx(number), Part::Length),
        Id::TxHead => (Queue::Tx(number), Part::Head),
        _ => return None,
    })
}
