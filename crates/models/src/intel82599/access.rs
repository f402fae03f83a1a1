//! Reads and writes of registers: what each does, and what a driver may not do.

use super::Nic;
use super::eeprom::EEPROM_SIZE;
use super::flow_director::Done;
use super::interrupts;
use super::registers::{Id, Place, RegisterFile, at, bit, rx_queue_at, rx_queue_of};
use crate::registers::{Register, Registers};
use crate::ring::Ring;
use crate::settling::SETTLE_READS;
use crate::violation::{Queue, Violation};

/// Longest ring, in bytes (8.2.3.8.3).
const RING_BYTES_MAX: u32 = 128 << 10;
/// Rings begin at multiples of this, and are multiples of it (8.2.3.8.1, 8.2.3.8.3).
const RING_ALIGN: u32 = 128;
/// SRRCTL.DESCTYPE: one buffer and advanced descriptors (8.2.3.8.7).
const ADVANCED_ONE_BUFFER: u32 = 1;

/// Either of them resets all (4.2.1.6).
const RESETS: u32 = bit::CTRL_RESET | bit::CTRL_LINK_RESET;

/// Of a register of vectors, those that causes of queues have too: sixteen of the first. No vector
/// behind them is ever raised by a queue.
fn vectors(index: usize, value: u32) -> u32 {
    match index {
        0 => value & interrupts::QUEUES,
        _ => 0,
    }
}

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
            register,
            index,
            offset,
        } = *place;
        if register.writable == 0 {
            self.write_read_only(place, value);
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
            Id::RxTail => self.write_rx_tail(rx_queue_of(offset), value),
            Id::TxTail => self.write_tx_tail(index, value),
            _ => self.write_as_specified(register, offset, index, value),
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
            register,
            index,
            offset,
        } = *place;
        let held = self.file.get(offset);
        let steps = &mut self.steps;
        match register.id {
            Id::Ctrl => {
                let resets = steps.reset_reads > 0;
                steps.reset_reads = steps.reset_reads.saturating_sub(1);
                held | when(resets, bit::CTRL_RESET)
            }
            Id::Status => {
                let masters = !self.file.has(0, bit::CTRL_MASTER_DISABLE);
                when(masters, bit::STATUS_MASTER_ENABLED)
            }
            Id::Esdp => {
                let is_input = held & bit::ESDP_SDP2_IS_OUTPUT == 0;
                held | when(is_input, bit::ESDP_SDP2)
            }
            Id::I2c => held | self.read_bus(),
            Id::Eec => {
                let done = when(steps.auto_read.read(), bit::EEC_AUTO_READ_DONE);
                held | bit::EEC_PRESENT | EEPROM_SIZE << bit::EEC_SIZE_SHIFT | done
            }
            Id::Rdrxctl => held | when(steps.dma_init.read(), bit::RDRXCTL_DMA_INIT_DONE),
            Id::SecurityRxStatus => {
                let halted = self.file.has(at::SECRXCTRL, bit::SECRX_PATH_DISABLE);
                steps.secure_ready.want(halted);
                bit::SECRX_OFF | when(steps.secure_ready.read(), bit::SECRX_READY)
            }
            Id::Links => {
                let is_up = steps.link.read();
                self.note_link(is_up);
                when(is_up, bit::LINKS_UP | bit::LINKS_SPEED_10G)
            }
            Id::Swsm => {
                // 8.2.3.4: a read takes the semaphore, if nobody has it.
                self.file.set(offset, held | bit::SWSM_HELD);
                held
            }
            Id::Eicr => self.interrupts.read_causes(),
            // The causes, and none is cleared.
            Id::Eics => self.interrupts.causes(),
            Id::Eimc | Id::EicsVectors | Id::EimcVectors => 0,
            Id::Anlp1 => when(
                self.file.has(at::AUTOC, bit::AUTOC_BACKPLANE),
                bit::ANLP1_STATE,
            ),
            Id::Eims => self.interrupts.enabled(),
            Id::EimsVectors => vectors(index, self.interrupts.enabled()),
            Id::EiamVectors => vectors(index, self.interrupts.auto_mask()),
            Id::RxHead => self.rx[rx_queue_of(offset)].ring.head(),
            Id::RxTail => self.rx[rx_queue_of(offset)].ring.tail(),
            Id::RxControl => {
                let enabled = self.rx[rx_queue_of(offset)].ring.enable.read();
                held & !bit::QUEUE_ENABLE | when(enabled, bit::QUEUE_ENABLE)
            }
            Id::TxHead => self.tx[tx_queue_of(offset)].ring.head(),
            Id::TxTail => self.tx[tx_queue_of(offset)].ring.tail(),
            Id::TxControl => {
                let enabled = self.tx[tx_queue_of(offset)].ring.enable.read();
                held & !bit::QUEUE_ENABLE | when(enabled, bit::QUEUE_ENABLE)
            }
            Id::Counter(counter, half) => self.statistics.read(counter, half, index),
            _ => held,
        }
    }

    /// The lines of the bus to the module.
    fn read_bus(&self) -> u32 {
        let (clock, data) = self.module.lines();
        when(clock, bit::I2C_CLOCK_IN) | when(data, bit::I2C_DATA_IN)
    }

    /// A head that is written with what it holds is no violation: drivers do that (8.2.3.8.4).
    fn write_read_only(&mut self, place: &Place, value: u32) {
        let register = place.register;
        let is_head = matches!(register.id, Id::RxHead | Id::TxHead);
        if !(is_head && value == self.read_as_specified(place)) {
            self.violations.add(Violation::ReadOnly {
                register: register.name,
                section: register.section,
                value,
            });
        }
    }

    /// What writing a register does, but for tails.
    fn write_as_specified(
        &mut self,
        register: &Register<Id>,
        offset: usize,
        index: usize,
        value: u32,
    ) {
        let held = self.file.get(offset);
        self.check_order(register, offset, held, value);
        self.file.set(offset, register.written(held, value));
        match register.id {
            Id::Ctrl if value & RESETS != 0 => {
                self.reset();
                self.steps.reset_reads = SETTLE_READS;
            }
            Id::I2c => {
                let (clock, data) = (value & bit::I2C_CLOCK != 0, value & bit::I2C_DATA != 0);
                self.module.drive(clock, data);
            }
            Id::Eerd if value & bit::EERD_START != 0 => {
                let word = value >> 2 & 0x3fff;
                let data = u32::from(self.eeprom.read(word as usize));
                self.file
                    .set(offset, data << 16 | word << 2 | bit::EERD_DONE);
            }
            Id::ClearedByOnes => self.file.set(offset, held & !value),
            Id::Mrqc => self.configure_spread(),
            Id::FdirControl => {
                self.flows.clear();
                self.configure_spread();
                self.file.set(offset, value | bit::FDIRCTRL_DONE);
            }
            Id::FdirCommand => self.command_flows(offset, value),
            Id::Eicr => self.interrupts.clear_causes(value),
            Id::Eics => self.interrupts.set_causes(value),
            Id::Eims => self.interrupts.enable(value),
            Id::Eimc => self.interrupts.disable(value),
            Id::EicsVectors => self.interrupts.set_causes(vectors(index, value)),
            Id::EimsVectors => self.interrupts.enable(vectors(index, value)),
            Id::EimcVectors => self.interrupts.disable(vectors(index, value)),
            Id::EiamVectors => {
                let others = self.interrupts.auto_mask() & !interrupts::QUEUES;
                self.interrupts
                    .set_auto_mask(others | vectors(index, value));
            }
            Id::Eiac => self.interrupts.set_auto_clear(value),
            Id::Eiam => self.interrupts.set_auto_mask(value),
            Id::Gpie => self.interrupts.set_mode(value),
            Id::Autoc if value & bit::AUTOC_RESTART != 0 => {
                self.file
                    .set(offset, self.file.get(offset) & !bit::AUTOC_RESTART);
                self.steps.link.want(false);
                self.steps.link.settle();
                self.note_link(false);
            }
            Id::RxBase | Id::RxLength => self.write_rx_ring(register, offset, value),
            Id::TxBase | Id::TxLength => self.write_tx_ring(register, offset, index, value),
            Id::Srrctl => self.configure_receive(rx_queue_of(offset)),
            Id::RxControl => self.write_rx_control(rx_queue_of(offset), value),
            Id::TxControl => self.write_tx_control(index, value),
            _ => {}
        }
    }

    /// The flow director does at once what it is told (8.2.3.21).
    fn command_flows(&mut self, offset: usize, value: u32) {
        let read = match self.flows.command(&self.file, value) {
            Done::Command(read) => read,
            Done::Full => {
                self.interrupts.set_causes(interrupts::cause::FLOWS);
                value & !bit::FDIRCMD_COMMAND
            }
        };
        self.file.set(offset, read);
        self.configure_spread();
    }

    /// Steps that must come before a write (4.6.3, 4.6.7, 4.6.8).
    fn check_order(&mut self, register: &Register<Id>, offset: usize, held: u32, value: u32) {
        let name = register.name;
        let receives = self.file.has(at::RXCTRL, bit::RXCTRL_ENABLE);
        let arbitrates = !self.file.has(at::RTTDCS, bit::RTTDCS_ARBITER_DISABLE);
        let changes = held != value;
        match register.id {
            Id::Ctrl if value & RESETS != 0 && self.any_receive_queue_is_on() => {
                self.order(
                    name,
                    "receive queues must be disabled before a reset (5.2.5.3.2)",
                );
            }
            Id::Fctrl if receives && changes => {
                self.advise(
                    name,
                    "RXCTRL.RXEN should be 0 while filters change (8.2.3.7.1)",
                );
            }
            Id::Rxctrl if value & !held & bit::RXCTRL_ENABLE != 0 => self.check_receive_start(),
            Id::Arbitrated if changes && arbitrates => {
                let rule = "RTTDCS.ARBDIS must be 1 while it changes (4.6.8)";
                // While nothing is sent, there is nothing to arbitrate.
                match self.file.has(at::DMATXCTL, bit::DMATXCTL_ENABLE) {
                    true => self.order(name, rule),
                    false => self.advise(name, rule),
                }
            }
            Id::Dmatxctl if value & bit::DMATXCTL_ENABLE != 0 && !arbitrates => {
                self.order(name, "RTTDCS.ARBDIS must be 0 when TE is set (4.6.8)");
            }
            Id::Maxfrs if !(64..=16_128).contains(&(value >> 16)) => {
                let rule = "MFS must be 64 to 16128 (8.2.3.22.13)";
                self.violations.add(Violation::Value {
                    register: name,
                    value,
                    rule,
                });
            }
            Id::RxBase | Id::RxLength | Id::Srrctl
                if self.rx[rx_queue_of(offset)].ring.enable.is_wanted() && changes =>
            {
                let rule = "the queue must be disabled while it changes (4.6.7.1)";
                // Whether frames are dropped may change with flow control, at any time.
                let drops_alone = (held ^ value) & !bit::SRRCTL_DROP == 0;
                match register.id == Id::Srrctl && drops_alone {
                    true => self.advise(name, rule),
                    false => self.order(name, rule),
                }
            }
            Id::TxBase | Id::TxLength
                if self.tx[tx_queue_of(offset)].ring.enable.is_wanted() && changes =>
            {
                self.order(name, "the queue must be disabled while it changes (4.6.8)");
            }
            _ => {}
        }
    }

    fn any_receive_queue_is_on(&self) -> bool {
        self.rx.iter().any(|queue| queue.ring.enable.is_wanted())
    }

    fn order(&mut self, register: &'static str, rule: &'static str) {
        self.violations.add(Violation::Order { register, rule });
    }

    fn advise(&mut self, register: &'static str, rule: &'static str) {
        self.violations.add(Violation::Advice { register, rule });
    }

    /// RXCTRL.RXEN is set (4.6.3, 4.6.7).
    fn check_receive_start(&mut self) {
        self.check_auto_read();
        let steps = &self.steps;
        let halted = self.file.has(at::SECRXCTRL, bit::SECRX_PATH_DISABLE);
        let control = self.file.get(at::RDRXCTL);
        let strips = self.file.has(at::HLREG0, bit::HLREG0_RX_CRC_STRIP);
        let must_be_set = bit::RDRXCTL_RSC_ACK | bit::RDRXCTL_FCOE_WRITE_FIX;
        let rules = [
            (
                steps.dma_init.was_seen(),
                "RDRXCTL.DMAIDONE must read 1 first (4.6.3)",
            ),
            (halted, "SECRXCTRL.RX_DIS must be 1 meanwhile (4.6.7)"),
            (
                steps.secure_ready.was_seen(),
                "SECRXSTAT.SECRX_RDY must read 1 first (4.6.7)",
            ),
            (
                strips == (control & bit::RDRXCTL_CRC_STRIP != 0),
                "RDRXCTL.CRCStrip and HLREG0.RXCRCSTRP must be equal (4.6.7)",
            ),
            (
                control & bit::RDRXCTL_RSC_FIRST_SIZE == 0,
                "RDRXCTL.RSCFRSTSIZE must be 0 (4.6.7)",
            ),
            (
                control & must_be_set == must_be_set,
                "RDRXCTL.RSCACKC and FCOE_WRFIX must be 1 (8.2.3.8.8)",
            ),
        ];
        self.check_rules("RXCTRL", &rules);
        self.check_coalescing_start();
    }

    /// The EEPROM must have been read by then. A driver that does not look may have waited.
    fn check_auto_read(&mut self) {
        let rule = "EEC.Auto_RD must read 1 first (4.6.3)";
        match (
            self.steps.auto_read.was_seen(),
            self.steps.auto_read.is_settled(),
        ) {
            (true, _) => {}
            (false, true) => self.advise("RXCTRL", rule),
            (false, false) => self.order("RXCTRL", rule),
        }
    }

    /// Base and length of a ring: multiples of 128.
    fn check_ring(&mut self, register: &Register<Id>, value: u32) {
        let wrong = match register.id {
            Id::RxLength | Id::TxLength => {
                !value.is_multiple_of(RING_ALIGN) || value > RING_BYTES_MAX
            }
            _ => !value.is_multiple_of(RING_ALIGN),
        };
        if wrong {
            let rule =
                "it must be a multiple of 128, and a length up to 128 KiB (8.2.3.8, 8.2.3.9)";
            self.violations.add(Violation::Value {
                register: register.name,
                value,
                rule,
            });
        }
    }

    fn write_rx_ring(&mut self, register: &Register<Id>, offset: usize, value: u32) {
        let ring = &mut self.rx[rx_queue_of(offset)].ring;
        if write_ring(ring, register.id == Id::RxLength, offset, value) {
            self.check_ring(register, value);
        }
    }

    fn write_tx_ring(&mut self, register: &Register<Id>, offset: usize, index: usize, value: u32) {
        let ring = &mut self.tx[index].ring;
        if write_ring(ring, register.id == Id::TxLength, offset, value) {
            self.check_ring(register, value);
        }
    }

    fn write_rx_tail(&mut self, queue: usize, value: u32) {
        self.check_receive_end();
        let ring = &mut self.rx[queue].ring;
        if let Err(violation) = set_tail(ring, value, Queue::Rx(queue as u8)) {
            // The ring is fetched again from its head, and with it the buffers.
            self.ownership.clear();
            self.violations.add(violation);
        }
    }

    fn write_tx_tail(&mut self, queue: usize, value: u32) {
        let ring = &mut self.tx[queue].ring;
        if let Err(violation) = set_tail(ring, value, Queue::Tx(queue as u8)) {
            self.violations.add(violation);
        }
    }

    /// 4.6.7 and 4.6.7.1: a receive queue is switched on or off.
    fn write_rx_control(&mut self, number: usize, value: u32) {
        self.configure_receive(number);
        let on = value & bit::QUEUE_ENABLE != 0;
        let queue = &mut self.rx[number];
        if on == queue.ring.enable.is_wanted() {
            return;
        }
        queue.ring.switch(on);
        if !on {
            self.ownership.clear();
            return;
        }
        self.limit_reach(number);
        let queue = &mut self.rx[number];
        self.rx_used = self.rx_used.max(number + 1);
        let is_empty = queue.ring.descriptors() == 0;
        if is_empty {
            self.order("RXDCTL", "the ring must be set up before ENABLE (4.6.7)");
        }
        let split = self.file.get(rx_queue_at(number, 0x1014));
        if split >> 25 & 7 != ADVANCED_ONE_BUFFER {
            self.order(
                "RXDCTL",
                "SRRCTL.DESCTYPE must be 1: no other type is modelled (8.2.3.8.7)",
            );
        }
        if !(1..=16).contains(&(split & 0x1f)) {
            self.order(
                "RXDCTL",
                "SRRCTL.BSIZEPACKET must be 1 to 16 KiB (8.2.3.8.7)",
            );
        }
        self.check_coalescing_queue(number);
    }

    /// 4.6.8: a transmit queue is switched on or off.
    fn write_tx_control(&mut self, number: usize, value: u32) {
        let on = value & bit::QUEUE_ENABLE != 0;
        let queue = &mut self.tx[number];
        if on == queue.ring.enable.is_wanted() {
            return;
        }
        queue.ring.switch(on);
        if !on {
            return;
        }
        queue.begin();
        self.tx_used = self.tx_used.max(number + 1);
        if queue.ring.descriptors() == 0 {
            self.order("TXDCTL", "the ring must be set up before ENABLE (4.6.8)");
        }
        if !self.file.has(at::DMATXCTL, bit::DMATXCTL_ENABLE) {
            self.order("TXDCTL", "DMATXCTL.TE must be set before ENABLE (4.6.8)");
        }
    }
}

fn tx_queue_of(offset: usize) -> usize {
    (offset - at::TX_QUEUE) / 64
}

/// Sets the tail of a ring, which software must know to be on.
#[inline]
fn set_tail(ring: &mut Ring, tail: u32, queue: Queue) -> Result<(), Violation> {
    if tail != ring.tail() && !ring.enable.was_seen() {
        ring.put_tail(tail);
        let register = match queue {
            Queue::Rx(_) => "RDT",
            _ => "TDT",
        };
        let rule = "the queue's ENABLE must read 1 first (4.6.7, 4.6.8)";
        return Err(Violation::Order { register, rule });
    }
    ring.set_tail(tail, queue)
}

/// Sets the base or length of a ring; `false` for the half of the base that has no rule.
fn write_ring(ring: &mut Ring, is_length: bool, offset: usize, value: u32) -> bool {
    if is_length {
        ring.set_bytes(value);
        return true;
    }
    let is_high = offset & 4 != 0;
    match is_high {
        true => ring.set_base_high(value),
        false => ring.set_base_low(value),
    }
    !is_high
}
