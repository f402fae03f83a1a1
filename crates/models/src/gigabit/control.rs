//! Registers that work alike: those of rings, of the transceiver, of the packet buffer, and the
//! switches of both directions (82574, 10.2; 82540, 13.4).

use super::{Mac, bit, phy};
use crate::registers::{Place, Register};
use crate::ring::Ring;
use crate::violation::{Queue, Violation};

/// Rings begin at multiples of 16, and have a multiple of 128 bytes (82574, 10.2.5.5 and 10.2.5.7;
/// 82540, 13.4.25 and 13.4.27).
const BASE_ALIGN: u32 = 16;
const LENGTH_ALIGN: u32 = 128;
/// The address of the transceiver on its bus (82574, 9.1; 82540, 13.4.7).
const PHY_ADDRESS: u32 = 1;
/// Operations of MDIC (82574, 10.2.2.7; 82540, 13.4.7).
const MDIC_WRITE: u32 = 1;
const MDIC_READ: u32 = 2;
/// What PBA says of receiving.
const PBA_RECEIVE: u32 = 0x3f;

/// What a register of a ring is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Where it begins: a register for each half.
    Base,
    Length,
    Head,
}

impl<I: Copy + PartialEq> Mac<I> {
    /// MDIC: an access of a register of the transceiver is done at once.
    pub(crate) fn access_phy(&mut self, register: &Register<I>, offset: usize, value: u32) {
        let number = (value >> 16) as usize % phy::REGISTERS;
        let address = value >> 21 & 0x1f;
        let operation = value >> 26 & 3;
        let rule = "the operation must be to read or to write (10.2.2.7 / 13.4.7)";
        let known = matches!(operation, MDIC_READ | MDIC_WRITE);
        self.forbid(!known, register, value, rule);
        let data = match (operation, address) {
            (MDIC_WRITE, PHY_ADDRESS) => {
                self.phy.write(number, value as u16);
                Some(value as u16)
            }
            (MDIC_READ, PHY_ADDRESS) => Some(self.phy.read(number)),
            _ => None,
        };
        let done = match data {
            Some(data) => value & !0xffff | u32::from(data),
            None => value | 0xffff | bit::MDIC_ERROR,
        };
        self.file.set(offset, done | bit::MDIC_READY);
        self.happened.phy |= value & bit::MDIC_INTERRUPT != 0;
    }

    /// PBA: what is not for receiving is for sending.
    pub(crate) fn divide_packet_buffer(&mut self, offset: usize, value: u32) {
        let receive = value & PBA_RECEIVE;
        let transmit = self.kind.packet_buffer.saturating_sub(receive);
        self.file.set(offset, transmit << 16 | receive);
    }

    pub(crate) fn write_receive_control(&mut self, value: u32) {
        self.configure_receive();
        let on = value & bit::RCTL_ENABLE != 0;
        if on == self.rx[0].ring.enable.is_wanted() {
            return;
        }
        self.rx.iter_mut().for_each(|queue| queue.ring.switch(on));
        self.ownership.clear();
    }

    pub(crate) fn write_transmit_control(&mut self, value: u32) {
        let on = value & bit::TCTL_ENABLE != 0;
        if on == self.tx[0].ring.enable.is_wanted() {
            return;
        }
        for queue in &mut self.tx {
            queue.ring.switch(on);
            queue.begin();
        }
    }

    pub(crate) fn write_rx_tail(&mut self, number: usize, value: u32) {
        let queue = Queue::Rx(number as u8);
        if let Err(violation) = set_tail(&mut self.rx[number].ring, value, queue) {
            // The ring is fetched again from its head, and with it the buffers.
            self.ownership.clear();
            self.violations.add(violation);
        }
    }

    pub(crate) fn write_tx_tail(&mut self, number: usize, value: u32) {
        let queue = Queue::Tx(number as u8);
        if let Err(violation) = set_tail(&mut self.tx[number].ring, value, queue) {
            self.violations.add(violation);
        }
    }

    /// A part of a receive ring is set.
    pub(crate) fn set_rx_ring(&mut self, number: usize, part: Part, offset: usize, value: u32) {
        set(&mut self.rx[number].ring, part, offset, value);
        self.ownership.clear();
    }

    /// A part of a transmit ring is set.
    pub(crate) fn set_tx_ring(&mut self, number: usize, part: Part, offset: usize, value: u32) {
        let queue = &mut self.tx[number];
        set(&mut queue.ring, part, offset, value);
        queue.begin();
    }

    /// Base, length and head of a ring: their values, and that it is not at work.
    pub(crate) fn check_ring(&mut self, place: &Place<I>, queue: Queue, part: Part, value: u32) {
        let Place {
            register, offset, ..
        } = *place;
        let ring = match queue {
            Queue::Rx(number) => &self.rx[usize::from(number)].ring,
            Queue::Tx(number) => &self.tx[usize::from(number)].ring,
            _ => return,
        };
        let works = ring.is_on() && ring.head() != ring.tail();
        let changes = match part {
            Part::Head => ring.head() != value,
            _ => self.file.get(offset) != value,
        };
        let align = match part {
            Part::Length => LENGTH_ALIGN,
            Part::Base if offset & 4 == 0 => BASE_ALIGN,
            _ => 1,
        };
        let rule = "descriptors must not be in use while it changes (4.6.5, 4.6.6 / 14.4, 14.5)";
        self.order(works && changes, register, rule);
        let rule = "it must be a multiple of 16, and a length of 128 (10.2.5.5, 10.2.5.7 / \
                    13.4.25, 13.4.27)";
        self.forbid(!value.is_multiple_of(align), register, value, rule);
    }

    pub(crate) fn order(&mut self, wrong: bool, register: &Register<I>, rule: &'static str) {
        if wrong {
            let register = register.name;
            self.violations.add(Violation::Order { register, rule });
        }
    }

    pub(crate) fn advise(&mut self, wrong: bool, register: &Register<I>, rule: &'static str) {
        if wrong {
            let register = register.name;
            self.violations.add(Violation::Advice { register, rule });
        }
    }

    pub(crate) fn forbid(
        &mut self,
        wrong: bool,
        register: &Register<I>,
        value: u32,
        rule: &'static str,
    ) {
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

/// Sets a part of a ring, which begins anew.
fn set(ring: &mut Ring, part: Part, offset: usize, value: u32) {
    match part {
        Part::Length => ring.set_bytes(value),
        Part::Head => return ring.put_head(value & 0xffff),
        Part::Base if offset & 4 != 0 => ring.set_base_high(value),
        Part::Base => ring.set_base_low(value),
    }
    ring.begin();
}
