//! A model of the Realtek RTL8139C+, a fast Ethernet controller, written from its datasheet:
//! RTL8139C(L)+ Fast Ethernet Controller with Power Management, version 1.6. Section numbers in
//! this folder refer to it.
//!
//! | module | what |
//! |---|---|
//! | [`registers`] | the registers, as a table |
//! | [`access`] | what reading and writing a register does |
//! | [`eeprom`] | what the card's EEPROM says |
//! | [`descriptor`], [`ring`] | descriptors of the C+ mode, and rings of them |
//! | [`filter`] | which frames are for us |
//! | [`receive`], [`transmit`] | frames in both directions, with their offloads |
//! | [`interrupts`] | causes and their mask |
//! | [`statistics`] | counters, and the block of them that is written to memory |
//!
//! What it leaves out: the C mode, which the 8139 had before (a driver that switches it on is
//! told), the queue of high priority, the timer, loopback, wake-up and power management. Registers
//! of these hold what is written.

mod access;
mod descriptor;
mod eeprom;
mod filter;
mod interrupts;
mod receive;
mod registers;
mod ring;
mod statistics;
#[cfg(test)]
mod tests;
mod transmit;

use crate::device::{Device, Identity, Progress, Space};
use crate::dma::Dma;
use crate::microwire::Microwire;
use crate::misbehaviour::{Fault, Faults, Misbehaviour};
use crate::model::{Make, Model, Setup};
use crate::violation::{Violation, Violations};
use crate::wire::Wire;
use crate::wire::frames::Frames;
use interrupts::{Interrupts, cause};
use receive::Late;
use registers::{REGISTER_BYTES, RegisterFile, at, bit};
use ring::Ring;
use statistics::Statistics;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use transmit::Packet;

/// Frames that one poll moves in each direction.
const POLL_FRAMES: u32 = 64;
/// How soon the device looks again whether there is a descriptor for a frame that waits: nobody
/// tells it when there is one.
const HUNGRY: Duration = Duration::from_micros(200);
/// Polls for which a link that flaps stays down.
const FLAP_POLLS: u32 = 16;
/// What [`MODELS`](crate::MODELS) says of it.
pub(crate) const MODEL: Model = Model {
    name: "rtl8139",
    about: "Realtek RTL8139C+, 100 Mb/s",
    make: Make::Nic(|setup| {
        let Setup {
            address,
            wire,
            misbehaviour,
            ..
        } = setup;
        Box::new(Rtl8139::new(address, wire, &misbehaviour))
    }),
    back_end: None,
};

/// The NIC, at one end of a wire.
#[derive(Debug)]
pub struct Rtl8139<W> {
    wire: W,
    /// What comes in over it.
    frames: Frames,
    nic: Nic,
}

/// The NIC without its wire.
#[derive(Debug)]
struct Nic {
    file: RegisterFile,
    eeprom: Microwire,
    interrupts: Interrupts,
    statistics: Statistics,
    rx: Ring,
    tx: Ring,
    /// The driver has asked for its frames to be sent.
    polls: bool,
    /// There was no descriptor for the frame that waits.
    starved: bool,
    /// When to look for one again.
    due: Option<Duration>,
    /// A frame that is to be sent, as far as it was gathered.
    packet: Packet,
    segment: Vec<u8>,
    /// CR.RST reads 1 for a while.
    reset_reads: u8,
    link: bool,
    flap_polls: u32,
    violations: Violations,
    faults: Faults,
    gone: bool,
    /// Frames that come after their descriptors: the device misbehaves.
    late: Vec<Late>,
    /// The buffer that was given back last: where a device that misbehaves writes.
    last_buffer: Option<u64>,
}

impl<W: Wire> Rtl8139<W> {
    /// A NIC with this Ethernet address.
    pub fn new(address: [u8; 6], wire: W, misbehaviour: &Misbehaviour) -> Self {
        let mut nic = Nic {
            file: registers::file(),
            eeprom: eeprom::new(address),
            interrupts: Interrupts::default(),
            statistics: Statistics::default(),
            rx: Ring::default(),
            tx: Ring::default(),
            polls: false,
            starved: false,
            due: None,
            packet: Packet::default(),
            segment: Vec::new(),
            reset_reads: 0,
            link: false,
            flap_polls: 0,
            violations: Violations::default(),
            faults: Faults::new(misbehaviour),
            gone: false,
            late: Vec::new(),
            last_buffer: None,
        };
        nic.reset();
        let frames = Frames::default();
        Self { wire, frames, nic }
    }

    /// The wire.
    pub fn wire(&mut self) -> &mut W {
        &mut self.wire
    }

    /// What the register that has a byte of a BAR is called; both BARs have the same.
    pub fn register_name(_: u8, offset: u64) -> Option<&'static str> {
        crate::registers::name(&registers::TABLES, offset)
    }
}

impl<W: Wire> Device for Rtl8139<W> {
    fn identity(&self) -> Identity {
        const BYTES: u64 = REGISTER_BYTES as u64;
        Identity {
            vendor: 0x10ec,
            device: 0x8139,
            class: [0x02, 0x00, 0x00],
            revision: 0x20,
            bars: [BYTES, BYTES, 0, 0, 0, 0],
            spaces: [
                Space::Io,
                Space::Low,
                Space::Memory,
                Space::Memory,
                Space::Memory,
                Space::Memory,
            ],
            pin: true,
            ..Identity::default()
        }
    }

    /// Both BARs have the same registers.
    fn read(&mut self, _: u8, offset: u64, bytes: &mut [u8]) {
        bytes.fill(0xff);
        if !self.nic.gone {
            self.nic.note_link(self.wire.is_up());
            crate::registers::read(&mut self.nic, offset as usize, bytes);
        }
    }

    fn write(&mut self, _: u8, offset: u64, bytes: &[u8]) {
        if self.nic.gone {
            return;
        }
        if offset < at::WIDE_END as u64 && (bytes.len() != 4 || !offset.is_multiple_of(4)) {
            self.nic.violations.add(Violation::Access {
                offset,
                bytes: bytes.len(),
                bits: 32,
            });
        }
        crate::registers::write(&mut self.nic, offset as usize, bytes);
    }

    fn reset(&mut self) {
        self.nic.reset();
        self.frames.clear();
        self.nic.gone = false;
    }

    fn poll(&mut self, dma: &dyn Dma, now: Duration) -> Progress {
        let nic = &mut self.nic;
        if nic.faults.strikes(Fault::Gone) {
            nic.gone = true;
        }
        if nic.gone {
            return Progress::default();
        }
        nic.pass_time(self.wire.is_up());
        nic.write_late(dma);
        nic.dump_statistics(dma);
        let progress = Progress {
            transmitted: nic.transmit(&mut self.wire, dma),
            received: nic.receive(&mut self.wire, &mut self.frames, dma),
        };
        self.wire.flush();
        nic.due = nic.starved.then_some(now + HUNGRY);
        progress
    }

    fn due(&self) -> Option<Duration> {
        self.nic.due
    }

    /// It has no messages, only a pin.
    fn take_interrupts(&mut self) -> u64 {
        0
    }

    fn asserts_pin(&self) -> bool {
        !self.nic.gone && self.nic.interrupts.asserts_pin()
    }

    fn doorbells(&self) -> &'static [usize] {
        &[]
    }

    fn violations(&self) -> &Violations {
        &self.nic.violations
    }

    fn wire_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.wire.descriptor()
    }
}

impl Nic {
    /// CR.RST: all is as it was at first, but for the EEPROM and what the driver did wrong.
    fn reset(&mut self) {
        self.file.reset();
        self.interrupts = Interrupts::default();
        self.statistics = Statistics::default();
        self.rx = Ring::default();
        self.tx = Ring::default();
        self.polls = false;
        (self.starved, self.due) = (false, None);
        self.packet.begin();
        self.reset_reads = 0;
        self.late.clear();
        self.last_buffer = None;
        let words = eeprom::ADDRESS.map(|word| self.eeprom.read(word));
        let [a, b, c] = words.map(u32::from);
        self.file.set(at::IDR, a | b << 16);
        self.file.set(at::IDR + 4, c);
    }

    /// What takes time is done.
    fn pass_time(&mut self, wire_is_up: bool) {
        self.reset_reads = 0;
        self.flap_polls = self.flap_polls.saturating_sub(1);
        if self.faults.strikes(Fault::LinkFlap) {
            self.flap_polls = FLAP_POLLS;
        }
        self.note_link(wire_is_up);
    }

    fn note_link(&mut self, wire_is_up: bool) {
        let is_up = wire_is_up && self.flap_polls == 0;
        if is_up != self.link {
            self.link = is_up;
            self.happened(cause::LINK);
        }
    }

    /// Something happened that the driver may want to know.
    fn happened(&mut self, causes: u16) {
        let faults = &mut self.faults;
        self.interrupts
            .set_causes(causes, || faults.strikes(Fault::LostInterrupt));
    }

    /// Whether C+ mode is on in one direction: these bits of C+CR and of the word of CR.
    fn is_on(&self, c_plus: u32, command: u32) -> bool {
        self.file.has(at::CPLUS, c_plus) && self.file.has(at::CR, command)
    }

    fn transmits(&self) -> bool {
        self.is_on(bit::CPLUS_TX, bit::TX_ON)
    }

    fn receives(&self) -> bool {
        self.is_on(bit::CPLUS_RX, bit::RX_ON)
    }
}
