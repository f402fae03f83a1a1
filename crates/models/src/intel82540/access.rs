//! Reads and writes of registers: what each does, and what a driver may not do.

use super::Nic;
use super::interrupts::Interrupts;
use super::registers::{Id, Place, RegisterFile, at, bit};
use crate::gigabit::control::Part;
use crate::microwire::Lines;
use crate::registers::{Register, Registers};
use crate::settling::SETTLE_READS;
use crate::violation::{Queue, Violation};

/// Bits of CTRL that clear themselves.
const CTRL_ORDERS: u32 = bit::CTRL_RESET | bit::CTRL_PHY_RESET;

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
        let register = place.register;
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
            Id::RxTail => self.mac.write_rx_tail(0, value & 0xffff),
            Id::TxTail => self.mac.write_tx_tail(0, value & 0xffff),
            _ => self.write_as_specified(place, value),
        }
    }

    fn report(&mut self, violation: Violation) {
        self.mac.violations.add(violation);
    }
}

impl Nic {
    /// What a register reads, and what reading it does.
    fn read_as_specified(&mut self, place: &Place) -> u32 {
        let held = self.mac.file.get(place.offset);
        match place.register.id {
            Id::Ctrl => {
                let steps = &mut self.mac.steps;
                let resets = steps.reset_reads > 0;
                steps.reset_reads = steps.reset_reads.saturating_sub(1);
                held | when(resets, bit::CTRL_RESET)
            }
            Id::Status => self.read_status(),
            Id::Eecd => {
                let granted = held & bit::EECD_REQUEST != 0;
                held | bit::EECD_PRESENT
                    | when(granted, bit::EECD_GRANT)
                    | when(granted && self.eeprom.out(), bit::EECD_OUT)
            }
            Id::Icr => self.interrupts.read_causes(),
            Id::Ics | Id::Imc => 0,
            Id::Ims => self.interrupts.enabled(),
            Id::RxHead => self.mac.rx[0].ring.head(),
            Id::RxTail => self.mac.rx[0].ring.tail(),
            Id::TxHead => self.mac.tx[0].ring.head(),
            Id::TxTail => self.mac.tx[0].ring.tail(),
            Id::Counter(counter, half) => self.mac.statistics.read(counter, half),
            _ => held,
        }
    }

    /// 13.4.2.
    fn read_status(&mut self) -> u32 {
        let is_up = self.mac.steps.link.read();
        self.mac.note_link(is_up);
        self.tell();
        bit::STATUS_FULL_DUPLEX | when(is_up, bit::STATUS_LINK_UP) | bit::STATUS_SPEED_1000
    }

    /// What writing a register does, but for tails.
    fn write_as_specified(&mut self, place: &Place, value: u32) {
        let Place {
            register, offset, ..
        } = *place;
        let held = self.mac.file.get(offset);
        let ring = ring_part(register.id);
        self.check(register, held, value);
        if let Some((queue, part)) = ring {
            self.mac.check_ring(place, queue, part, value);
        }
        self.mac.file.set(offset, register.written(held, value));
        match register.id {
            Id::Ctrl => self.write_control(value),
            Id::CtrlExt => {
                let kept = self.mac.file.get(offset) & !bit::CTRL_EXT_EEPROM_RESET;
                self.mac.file.set(offset, kept);
            }
            Id::Eecd => self.drive_eeprom(value),
            Id::Eerd if value & bit::EERD_START != 0 => {
                let word = value >> 8 & 0xff;
                let data = u32::from(self.eeprom.read(word as usize));
                let done = data << 16 | word << 8 | bit::EERD_DONE;
                self.mac.file.set(offset, done);
            }
            Id::Mdic => {
                self.mac.access_phy(register, offset, value);
                self.tell();
            }
            Id::Pba => self.mac.divide_packet_buffer(offset, value),
            Id::Delay => self.mac.file.set(offset, value & 0xffff),
            Id::Icr => self.interrupts.clear_causes(value),
            Id::Ics => self.set_causes(value),
            Id::Ims => self.interrupts.enable(value),
            Id::Imc => self.interrupts.disable(value),
            Id::Rctl => self.mac.write_receive_control(value),
            Id::Tctl => self.mac.write_transmit_control(value),
            _ => match ring {
                Some((Queue::Rx(_), part)) => self.mac.set_rx_ring(0, part, offset, value),
                Some((Queue::Tx(_), part)) => self.mac.set_tx_ring(0, part, offset, value),
                _ => {}
            },
        }
    }

    /// 13.4.1: resets of the device and of the transceiver.
    fn write_control(&mut self, value: u32) {
        if value & bit::CTRL_RESET != 0 {
            self.reset();
            self.mac.steps.reset_reads = SETTLE_READS;
            return;
        }
        let kept = self.mac.file.get(at::CTRL) & !CTRL_ORDERS;
        self.mac.file.set(at::CTRL, kept);
        if value & bit::CTRL_PHY_RESET != 0 {
            self.mac.phy.reset_hardware();
        }
    }

    /// 13.4.3: the lines are software's once it was granted them.
    fn drive_eeprom(&mut self, value: u32) {
        if value & bit::EECD_REQUEST == 0 {
            self.eeprom.drive(Lines::default());
            return;
        }
        self.eeprom.drive(Lines {
            select: value & bit::EECD_SELECT != 0,
            clock: value & bit::EECD_CLOCK != 0,
            data: value & bit::EECD_IN != 0,
        });
    }

    /// Something happened that the driver may want to know.
    pub(super) fn set_causes(&mut self, causes: u32) {
        let faults = &mut self.mac.faults;
        let lose = || faults.strikes(crate::misbehaviour::Fault::LostInterrupt);
        self.interrupts.set_causes(causes, lose);
    }

    /// Tells the interrupts what happened.
    pub(super) fn tell(&mut self) {
        let causes = Interrupts::causes_of(self.mac.take_happened());
        self.set_causes(causes);
    }

    /// What must hold when a register is written.
    fn check(&mut self, register: &'static Register<Id>, held: u32, value: u32) {
        let sets = |bits: u32| value & !held & bits != 0;
        match register.id {
            Id::Eecd => {
                let lines = bit::EECD_CLOCK | bit::EECD_SELECT | bit::EECD_IN;
                let asked = self.mac.file.has(at::EECD, bit::EECD_REQUEST);
                let rule = "EE_REQ must be 1, and EE_GNT read 1, before the lines change (5.3.1)";
                self.mac.order(sets(lines) && !asked, register, rule);
            }
            Id::Rctl if sets(bit::RCTL_ENABLE) => {
                let is_empty = !self.mac.rx[0].ring.has_place();
                let rule = "the ring should be set up before RCTL.EN (14.4)";
                self.mac.advise(is_empty, register, rule);
            }
            Id::Tctl if sets(bit::TCTL_ENABLE) => {
                let is_empty = !self.mac.tx[0].ring.has_place();
                let rule = "the ring must be set up before TCTL.EN (14.5)";
                self.mac.order(is_empty, register, rule);
            }
            _ => {}
        }
    }
}

/// The ring and its part that a register is about.
fn ring_part(id: Id) -> Option<(Queue, Part)> {
    Some(match id {
        Id::RxBase => (Queue::Rx(0), Part::Base),
        Id::RxLength => (Queue::Rx(0), Part::Length),
        Id::RxHead => (Queue::Rx(0), Part::Head),
        Id::TxBase => (Queue::Tx(0), Part::Base),
        Id::TxLength => (Queue::Tx(0), Part::Length),
        Id::TxHead => (Queue::Tx(0), Part::Head),
        _ => return None,
    })
}
