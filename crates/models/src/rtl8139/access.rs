//! Reads and writes of registers: what each does, and what a driver may not do.

use super::Nic;
use super::descriptor::RING_ALIGN;
use super::interrupts::cause;
use super::registers::{Id, Place, RegisterFile, at, bit};
use crate::microwire::Lines;
use crate::registers::Registers;
use crate::settling::SETTLE_READS;
use crate::violation::Violation;

/// What the other end of the cable can: 100BASE-TX and 10BASE-T, with both duplexes and pause
/// frames; and that it has seen what we can (IEEE 802.3, 28.2.1.2).
const PARTNER: u32 = 0x45e1;
/// It negotiates (ANER).
const PARTNER_NEGOTIATES: u32 = 1;

/// The bits at their place.
fn when(is: bool, bits: u32) -> u32 {
    if is { bits } else { 0 }
}

impl Registers for Nic {
    type Id = Id;

    fn file(&self) -> &RegisterFile {
        &self.file
    }

    fn read_register(&mut self, place: &Place) -> u32 {
        let value = self.read_as_specified(place);
        self.faults.read(place.offset, value)
    }

    fn write_register(&mut self, place: &Place, value: u32) {
        let register = place.register;
        let held = self.file.held(place);
        let bits = register.reserved(value);
        if bits != 0 {
            self.violations.add(Violation::Reserved {
                register: register.name,
                section: register.section,
                bits,
            });
        }
        if register.writable == 0 {
            if value != held {
                self.violations.add(Violation::ReadOnly {
                    register: register.name,
                    section: register.section,
                    value,
                });
            }
            return;
        }
        let written = register.written(held, value);
        if self.admits(place, held, written) {
            self.file.hold(place, written);
            self.write_as_specified(place, written);
        }
    }

    fn report(&mut self, violation: Violation) {
        self.violations.add(violation);
    }
}

impl Nic {
    fn read_as_specified(&mut self, place: &Place) -> u32 {
        let held = self.file.held(place);
        match place.register.id {
            Id::Command => {
                let resets = self.reset_reads > 0;
                self.reset_reads = self.reset_reads.saturating_sub(1);
                held | when(resets, bit::RESET)
            }
            Id::Mask => self.interrupts.mask().into(),
            Id::Status => self.interrupts.causes().into(),
            Id::Missed => self.statistics.missed,
            Id::Eeprom => {
                let lines_are_ours = held & bit::EE_MODE == bit::EE_MODE_LINES;
                held | when(lines_are_ours && self.eeprom.out(), bit::EE_OUT)
            }
            Id::Media => held | when(!self.link, bit::MEDIA_LINK_FAILS),
            Id::Bmsr => held | when(self.link, bit::BMSR_LINK | bit::BMSR_NEGOTIATED),
            Id::Partner => when(self.link, PARTNER),
            Id::Expansion => when(self.link, PARTNER_NEGOTIATES),
            _ => held,
        }
    }

    /// Whether a write does anything: what is locked does not change.
    fn admits(&mut self, place: &Place, held: u32, written: u32) -> bool {
        let locked = self.file.get(at::EECR) & bit::EE_MODE != bit::EE_MODE_CONFIG;
        let changes = match place.register.id {
            Id::Locked => held ^ written,
            Id::Bmcr => (held ^ written) & bit::BMCR_LOCKED,
            _ => 0,
        };
        if locked && changes != 0 {
            let rule = "9346CR.EEM must be 3 while it changes (6, 9346CR)";
            self.order(place.register.name, rule);
            return false;
        }
        true
    }

    fn write_as_specified(&mut self, place: &Place, value: u32) {
        let name = place.register.name;
        match place.register.id {
            Id::Command => self.write_command(value),
            Id::Mask => self.interrupts.set_mask(value as u16),
            Id::Status => {
                self.file.hold(place, 0);
                self.interrupts.clear_causes(value as u16);
            }
            Id::Missed => self.statistics.missed = 0,
            Id::Eeprom if value & bit::EE_MODE == bit::EE_MODE_LINES => {
                self.eeprom.drive(Lines {
                    select: value & bit::EE_SELECT != 0,
                    clock: value & bit::EE_CLOCK != 0,
                    data: value & bit::EE_IN != 0,
                });
            }
            Id::Eeprom => self.eeprom.drive(Lines::default()),
            Id::Bmcr => self.write_bmcr(place, value),
            Id::TxBase => self.write_ring(name, bit::CPLUS_TX, value),
            Id::RxBase => self.write_ring(name, bit::CPLUS_RX, value),
            Id::Poll => {
                // It reads 0 when the frames were looked at.
                self.file.hold(place, 0);
                self.write_poll(value);
            }
            _ => {}
        }
    }

    fn write_command(&mut self, value: u32) {
        if value & bit::RESET != 0 {
            self.reset();
            self.reset_reads = SETTLE_READS;
            return;
        }
        let rule = "C+CR must switch the C+ mode on first: the C mode is not modelled";
        let modes = self.file.get(at::CPLUS);
        for (switch, mode) in [
            (bit::CR_TX_ON, bit::CPLUS_TX),
            (bit::CR_RX_ON, bit::CPLUS_RX),
        ] {
            if value & switch != 0 && modes & mode == 0 {
                self.order("CR", rule);
            }
        }
        if value & bit::CR_TX_ON == 0 {
            self.polls = false;
            self.packet.begin();
        }
        self.begin_rings(value & bit::CR_RX_ON != 0, value & bit::CR_TX_ON != 0);
    }

    /// A direction that is off begins with the first descriptor when it is switched on.
    fn begin_rings(&mut self, receives: bool, transmits: bool) {
        let base = |file: &RegisterFile, offset: usize| {
            u64::from(file.get(offset + 4)) << 32 | u64::from(file.get(offset) & !(RING_ALIGN - 1))
        };
        if !receives || self.rx.base != base(&self.file, at::RDSAR) {
            self.rx.begin(base(&self.file, at::RDSAR));
        }
        if !transmits || self.tx.base != base(&self.file, at::TNPDS) {
            self.tx.begin(base(&self.file, at::TNPDS));
        }
    }

    fn write_ring(&mut self, name: &'static str, mode: u32, value: u32) {
        if !value.is_multiple_of(RING_ALIGN) {
            let rule = "a ring must begin at a multiple of 256 bytes (6)";
            self.violations.add(Violation::Value {
                register: name,
                value,
                rule,
            });
        }
        if !self.file.has(at::CPLUS, mode) {
            let rule = "the C+ mode must be on before its descriptors are named (6.33)";
            self.order(name, rule);
        }
    }

    fn write_poll(&mut self, value: u32) {
        if value & bit::POLL_HIGH != 0 {
            self.violations.add(Violation::Value {
                register: "TPPoll",
                value,
                rule: "the queue of high priority is not modelled",
            });
        }
        if value & bit::POLL_NORMAL == 0 {
            return;
        }
        match self.transmits() {
            true => self.polls = true,
            false => self.order("TPPoll", "CR.TE and C+CR must be on first (6)"),
        }
    }

    fn write_bmcr(&mut self, place: &Place, value: u32) {
        if value & bit::BMCR_RESET != 0 {
            self.file.hold(place, place.register.reset);
        }
        if value & (bit::BMCR_RESET | bit::BMCR_RESTART) != 0 {
            // It is negotiated again at once, and the link does not go down for it.
            let held = self.file.held(place) & !bit::BMCR_RESTART;
            self.file.hold(place, held);
            self.happened(cause::LINK);
        }
    }

    fn order(&mut self, register: &'static str, rule: &'static str) {
        self.violations.add(Violation::Order { register, rule });
    }
}
