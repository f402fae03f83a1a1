//! Reads and writes of registers: what each does, and what a driver may not do.

use super::Nic;
use super::interrupts::{VECTORS, cause};
use super::nvm::NVM_SIZE;
use super::phy;
use super::registers::{Id, Place, QUEUES, RegisterFile, at, bit, queue_of};
use crate::registers::{Register, Registers};
use crate::ring::Ring;
use crate::settling::SETTLE_READS;
use crate::violation::{Queue, Violation};

/// Rings begin at multiples of 16, and have a multiple of 128 bytes (10.2.5.5, 10.2.5.7).
const BASE_ALIGN: u32 = 16;
const LENGTH_ALIGN: u32 = 128;
/// The address of the transceiver on its bus (9.1).
const PHY_ADDRESS: u32 = 1;
/// Operations of MDIC (10.2.2.7).
const MDIC_WRITE: u32 = 1;
const MDIC_READ: u32 = 2;
/// KiB of the packet buffer, which PBA divides (10.2.2.17).
const PACKET_BUFFER: u32 = 40;
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
        &self.file
    }

    #[inline]
    fn read_register(&mut self, place: &Place) -> u32 {
        let value = self.read_as_specified(place);
        self.faults.read(place.offset, value)
    }

    #[inline]
    fn write_register(&mut self, place: &Place, value: u32) {
        let Place {
            register, offset, ..
        } = *place;
        if register.writable == 0 {
            self.violations.add(Violation::ReadOnly {
                register: register.name,
                section: register.section,
                value,
            });
            return;
        }
        let bits = register.reserved(value);
        if bits != 0 {
            self.violations.add(Violation::Reserved {
                register: register.name,
                section: register.section,
                bits,
            });
        }
        // The tails first: no other register is written as often.
        match register.id {
            Id::RxTail => self.write_rx_tail(queue_of(offset), value),
            Id::TxTail => self.write_tx_tail(queue_of(offset), value),
            _ => self.write_as_specified(register, offset, value),
        }
    }

    fn report(&mut self, violation: Violation) {
        self.violations.add(violation);
    }
}

impl Nic {
    /// What a register reads, and what reading it does.
    fn read_as_specified(&mut self, place: &Place) -> u32 {
        let Place {
            register, offset, ..
        } = *place;
        let held = self.file.get(offset);
        let steps = &mut self.steps;
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
                self.file.set(offset, held | bit::SWSM_HELD);
                held
            }
            Id::Icr => self.interrupts.read_causes(&self.file),
            Id::Ics | Id::Imc => 0,
            Id::Ims => self.interrupts.enabled(),
            Id::Eiac => *self.interrupts.auto_clear(),
            Id::Iam => *self.interrupts.auto_mask(),
            Id::RxHead => self.rx[queue_of(offset)].ring.head(),
            Id::RxTail => self.rx[queue_of(offset)].ring.tail(),
            Id::TxHead => self.tx[queue_of(offset)].ring.head(),
            Id::TxTail => self.tx[queue_of(offset)].ring.tail(),
            Id::Counter(counter, half) => self.statistics.read(counter, half),
            _ => held,
        }
    }

    /// 10.2.2.2.
    fn read_status(&mut self) -> u32 {
        let is_up = self.steps.link.read();
        self.note_link(is_up);
        let masters = !self.file.has(at::CTRL, bit::CTRL_MASTER_DISABLE);
        bit::STATUS_FULL_DUPLEX
            | when(is_up, bit::STATUS_LINK_UP)
            | bit::STATUS_SPEED_1000
            | when(masters, bit::STATUS_MASTER_ENABLED)
            | self.file.get(at::STATUS) & bit::STATUS_PHY_RESET
    }

    /// What writing a register does, but for tails.
    fn write_as_specified(&mut self, register: &Register<Id>, offset: usize, value: u32) {
        let held = self.file.get(offset);
        self.check(register, offset, held, value);
        self.file.set(offset, register.written(held, value));
        match register.id {
            Id::Ctrl => self.write_control(offset, value),
            Id::Status => {
                let kept = held & (value | !bit::STATUS_PHY_RESET);
                self.file.set(offset, kept);
            }
            Id::CtrlExt => {
                let kept = self.file.get(offset) & !CTRL_EXT_ORDERS;
                self.file.set(offset, kept);
            }
            Id::Eerd if value & bit::EERD_START != 0 => {
                let word = value >> 2 & 0x3fff;
                let data = u32::from(self.nvm.read(word as usize));
                self.file
                    .set(offset, data << 16 | word << 2 | bit::EERD_DONE);
            }
            Id::Mdic => self.access_phy(offset, value),
            Id::Pba => {
                let receive = value & 0x3f;
                let transmit = PACKET_BUFFER.saturating_sub(receive);
                self.file.set(offset, transmit << 16 | receive);
            }
            Id::Delay => self.file.set(offset, value & 0xffff),
            Id::Icr => self.interrupts.clear_causes(value, &self.file),
            Id::Ics => self.interrupts.set_causes(value),
            Id::Ims => self.interrupts.enable(value),
            Id::Imc => self.interrupts.disable(value),
            Id::Eiac => *self.interrupts.auto_clear() = value,
            Id::Iam => *self.interrupts.auto_mask() = value,
            Id::Rctl => self.write_receive_control(value),
            Id::Receiving => self.configure_receive(),
            Id::Tctl => self.write_transmit_control(value),
            Id::RxBase | Id::RxLength | Id::RxHead => {
                place(
                    &mut self.rx[queue_of(offset)].ring,
                    register.id,
                    offset,
                    value,
                );
                self.ownership.clear();
            }
            Id::TxBase | Id::TxLength | Id::TxHead => {
                let queue = &mut self.tx[queue_of(offset)];
                place(&mut queue.ring, register.id, offset, value);
                queue.begin();
            }
            _ => {}
        }
    }

    /// 10.2.2.1: resets of the device and of the transceiver.
    fn write_control(&mut self, offset: usize, value: u32) {
        if value & bit::CTRL_RESET != 0 {
            self.reset();
            self.steps.reset_reads = SETTLE_READS;
            return;
        }
        let kept = self.file.get(offset) & !CTRL_ORDERS;
        self.file.set(offset, kept);
        if value & bit::CTRL_PHY_RESET != 0 {
            self.phy.reset_hardware();
            let status = self.file.get(at::STATUS) | bit::STATUS_PHY_RESET;
            self.file.set(at::STATUS, status);
        }
    }

    /// 10.2.2.7: an access of a register of the transceiver is done at once.
    fn access_phy(&mut self, offset: usize, value: u32) {
        let register = (value >> 16) as usize % phy::REGISTERS;
        let address = value >> 21 & 0x1f;
        let data = match (value >> 26 & 3, address) {
            (MDIC_WRITE, PHY_ADDRESS) => {
                self.phy.write(register, value as u16);
                Some(value as u16)
            }
            (MDIC_READ, PHY_ADDRESS) => Some(self.phy.read(register)),
            _ => None,
        };
        let done = match data {
            Some(data) => value & !0xffff | u32::from(data),
            None => value | 0xffff | bit::MDIC_ERROR,
        };
        self.file.set(offset, done | bit::MDIC_READY);
        if value & bit::MDIC_INTERRUPT != 0 {
            self.interrupts.set_causes(cause::MDIC);
        }
    }

    fn write_receive_control(&mut self, value: u32) {
        self.configure_receive();
        let on = value & bit::RCTL_ENABLE != 0;
        if on == self.rx[0].ring.enable.is_wanted() {
            return;
        }
        self.rx.iter_mut().for_each(|queue| queue.ring.switch(on));
        self.ownership.clear();
    }

    fn write_transmit_control(&mut self, value: u32) {
        let on = value & bit::TCTL_ENABLE != 0;
        if on == self.tx[0].ring.enable.is_wanted() {
            return;
        }
        for queue in &mut self.tx {
            queue.ring.switch(on);
            queue.begin();
        }
    }

    fn write_rx_tail(&mut self, number: usize, value: u32) {
        let queue = Queue::Rx(number as u8);
        if let Err(violation) = set_tail(&mut self.rx[number].ring, value, queue) {
            // The ring is fetched again from its head, and with it the buffers.
            self.ownership.clear();
            self.violations.add(violation);
        }
    }

    fn write_tx_tail(&mut self, number: usize, value: u32) {
        let queue = Queue::Tx(number as u8);
        if let Err(violation) = set_tail(&mut self.tx[number].ring, value, queue) {
            self.violations.add(violation);
        }
    }

    /// What must hold when a register is written.
    fn check(&mut self, register: &Register<Id>, offset: usize, held: u32, value: u32) {
        let sets = |bits: u32| value & !held & bits != 0;
        match register.id {
            Id::Ctrl if value & bit::CTRL_RESET != 0 => {
                let masters = !self.file.has(at::CTRL, bit::CTRL_MASTER_DISABLE);
                let uses = self.file.has(at::RCTL, bit::RCTL_ENABLE)
                    || self.file.has(at::TCTL, bit::TCTL_ENABLE);
                let rule =
                    "GIO_master_disable comes before a reset of a device that works (3.1.3.10)";
                self.advise(masters && uses, register, rule);
            }
            Id::Rctl if sets(bit::RCTL_ENABLE) => self.check_receive_start(register),
            Id::Tctl if sets(bit::TCTL_ENABLE) => self.check_transmit_start(register),
            Id::Ivar => {
                let wrong = (0..QUEUES * 2 + 1).any(|number| {
                    let field = value >> (4 * number);
                    field & 8 != 0 && (field & 7) as usize >= VECTORS
                });
                let rule = "there are five vectors (10.2.4.9)";
                self.forbid(wrong, register, value, rule);
            }
            Id::RxBase | Id::RxLength | Id::RxHead | Id::TxBase | Id::TxLength | Id::TxHead => {
                self.check_ring(register, offset, value);
            }
            Id::Mdic => {
                let rule = "the operation must be to read or to write (10.2.2.7)";
                let operation = value >> 26 & 3;
                let known = matches!(operation, MDIC_READ | MDIC_WRITE);
                self.forbid(!known, register, value, rule);
            }
            _ => {}
        }
    }

    /// RCTL.EN is set (4.6.5).
    fn check_receive_start(&mut self, register: &Register<Id>) {
        let steps = &self.steps;
        let (seen, settled) = (steps.auto_read.was_seen(), steps.auto_read.is_settled());
        let rule = "EEC.Auto_RD must read 1 first (4.6.2)";
        self.order(!seen && !settled, register, rule);
        self.advise(!seen && settled, register, rule);
        let is_empty = self.rx.iter().all(|queue| !queue.ring.has_place());
        let rule = "a ring should be set up before RCTL.EN (4.6.5)";
        self.advise(is_empty, register, rule);
        let is_set = self.file.has(GCR, MUST_BE_SET);
        self.order(!is_set, register, "GCR bit 22 must be set (10.2.3.1)");
    }

    /// TCTL.EN is set (4.6.6).
    fn check_transmit_start(&mut self, register: &Register<Id>) {
        let is_empty = self.tx.iter().all(|queue| !queue.ring.has_place());
        let rule = "a ring must be set up before TCTL.EN (4.6.6)";
        self.order(is_empty, register, rule);
        let is_set = self.file.has(TXDCTL, MUST_BE_SET);
        self.order(!is_set, register, "TXDCTL bit 22 must be set (10.2.6.11)");
    }

    /// Base, length and head of a ring: their values, and that it is not at work.
    fn check_ring(&mut self, register: &Register<Id>, offset: usize, value: u32) {
        let ring = match register.id {
            Id::RxBase | Id::RxLength | Id::RxHead => &self.rx[queue_of(offset)].ring,
            _ => &self.tx[queue_of(offset)].ring,
        };
        let works = ring.is_on() && ring.head() != ring.tail();
        let changes = match register.id {
            Id::RxHead | Id::TxHead => ring.head() != value,
            _ => self.file.get(offset) != value,
        };
        let align = match register.id {
            Id::RxLength | Id::TxLength => LENGTH_ALIGN,
            Id::RxBase | Id::TxBase if offset & 4 == 0 => BASE_ALIGN,
            _ => 1,
        };
        let rule = "descriptors must not be in use while it changes (4.6.5, 4.6.6)";
        self.order(works && changes, register, rule);
        let rule = "it must be a multiple of 16, and a length of 128 (10.2.5.5, 10.2.5.7)";
        self.forbid(!value.is_multiple_of(align), register, value, rule);
    }

    fn order(&mut self, wrong: bool, register: &Register<Id>, rule: &'static str) {
        if wrong {
            let register = register.name;
            self.violations.add(Violation::Order { register, rule });
        }
    }

    fn advise(&mut self, wrong: bool, register: &Register<Id>, rule: &'static str) {
        if wrong {
            let register = register.name;
            self.violations.add(Violation::Advice { register, rule });
        }
    }

    fn forbid(&mut self, wrong: bool, register: &Register<Id>, value: u32, rule: &'static str) {
        if wrong {
            self.violations.add(Violation::Value {
                register: register.name,
                value,
                rule,
            });
        }
    }
}

/// Sets the tail of a ring. That of one that is off, or has no descriptors, waits until it works.
#[inline]
fn set_tail(ring: &mut Ring, tail: u32, queue: Queue) -> Result<(), Violation> {
    if ring.enable.is_wanted() && ring.descriptors() > 0 {
        return ring.set_tail(tail, queue);
    }
    ring.put_tail(tail);
    ring.begin();
    Ok(())
}

/// Sets the base, the length or the head of a ring.
fn place(ring: &mut Ring, id: Id, offset: usize, value: u32) {
    match id {
        Id::RxLength | Id::TxLength => ring.set_bytes(value),
        Id::RxHead | Id::TxHead => return ring.put_head(value & 0xffff),
        _ if offset & 4 != 0 => ring.set_base_high(value),
        _ => ring.set_base_low(value),
    }
    ring.begin();
}
