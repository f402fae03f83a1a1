//! A model of the Intel 82574L gigabit Ethernet controller, written from its datasheet: Intel 82574
//! GbE Controller Family Datasheet, document 317694, revision 3.4, June 2014. Section numbers in
//! this folder refer to it.
//!
//! | module | what | section |
//! |---|---|---|
//! | [`registers`] | the registers, as a table | 10.2 |
//! | [`rss`] | which queue they go to | 7.1.11 |
//! | [`interrupts`] | causes, masks, vectors | 7.4 |
//! | [`access`] | what reading and writing a register does | 10.2 |
//! | [`nvm`] | what the card's EEPROM says | 6 |
//!
//! Rings, filters, offloads, counters and the transceiver are those of [`gigabit`](crate::gigabit).
//!
//! What it leaves out: flow control, wake-up, management, the flash, and delays. The clock of time
//! stamps stands still.

mod access;
mod interrupts;
mod nvm;
mod registers;
mod rss;
#[cfg(test)]
mod tests;

use crate::device::{Device, Identity, Msix, Progress, Space};
use crate::dma::Dma;
use crate::gigabit::{Kind, Mac};
use crate::line::Line;
use crate::misbehaviour::{Fault, Misbehaviour};
use crate::model::{Make, Model, Setup};
use crate::msix::MsixBar;
use crate::violation::{Violation, Violations};
use crate::wire::Wire;
use interrupts::{Interrupts, VECTORS, cause};
use nvm::Nvm;
use registers::{Id, QUEUES, REGISTER_BYTES};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// BAR 1: the flash, which is erased (10.1).
const FLASH_BYTES: u64 = 128 << 10;
/// BAR 2: two registers in I/O space that lead to all others (10.1.1.4).
const IO_BAR: u8 = 2;
const IO_BYTES: u64 = 32;
const IO_ADDRESS: u64 = 0;
const IO_DATA: u64 = 4;
/// BAR 3: the MSI-X structures (10.1).
const MSIX_BAR: u8 = 3;
const MSIX_BYTES: usize = 16 << 10;
const MSIX: Msix = Msix {
    capability: 0xa0,
    vectors: VECTORS as u16,
    bar: MSIX_BAR,
    table: 0,
    pending: 0x2000,
};
/// The identifier of the transceiver (9.5).
const PHY: [u16; 2] = [0x0141, 0x0cb1];
/// KiB of the packet buffer, which PBA divides (10.2.2.17).
const PACKET_BUFFER: u32 = 40;
/// Tails of the first queues: what shared memory may hold.
const DOORBELLS: [usize; 2] = [0x2818, 0x3818];

/// What [`MODELS`](crate::MODELS) says of it.
pub(crate) const MODEL: Model = Model {
    name: "82574",
    about: "Intel 82574L, 1 Gb/s",
    make: Make::Nic(|setup| {
        let Setup {
            address,
            wire,
            misbehaviour,
            ..
        } = setup;
        Box::new(Intel82574::new(address, wire, &misbehaviour))
    }),
    back_end: None,
};

/// The NIC, at one end of a wire.
#[derive(Debug)]
pub struct Intel82574<W> {
    line: Line<W>,
    nic: Nic,
}

/// The NIC without its wire.
#[derive(Debug)]
struct Nic {
    address: [u8; 6],
    mac: Mac<Id>,
    interrupts: Interrupts,
    nvm: Nvm,
    msix: MsixBar,
    /// What IOADDR holds.
    io_address: u32,
    gone: bool,
}

impl<W: Wire> Intel82574<W> {
    /// A NIC with this Ethernet address.
    pub fn new(address: [u8; 6], wire: W, misbehaviour: &Misbehaviour) -> Self {
        let kind = Kind {
            queues: QUEUES,
            spread: rss::spread,
            phy: PHY,
            packet_buffer: PACKET_BUFFER,
            tells_udp: true,
        };
        let mut nic = Nic {
            address,
            mac: Mac::new(kind, registers::file(), misbehaviour),
            interrupts: Interrupts::new(),
            nvm: Nvm::new(address),
            msix: MsixBar::new(MSIX_BYTES, MSIX),
            io_address: 0,
            gone: false,
        };
        nic.reset();
        let line = Line::new(wire);
        Self { line, nic }
    }

    /// The wire.
    pub fn wire(&mut self) -> &mut W {
        &mut self.line.wire
    }

    fn read_io(&mut self, offset: u64, bytes: &mut [u8]) {
        let address = self.nic.io_address as usize;
        match offset {
            IO_ADDRESS if bytes.len() == 4 => {
                bytes.copy_from_slice(&self.nic.io_address.to_le_bytes());
            }
            IO_DATA => crate::registers::read(&mut self.nic, address, bytes),
            _ => {}
        }
    }

    fn write_io(&mut self, offset: u64, bytes: &[u8]) {
        let address = self.nic.io_address as usize;
        match (offset, bytes.first_chunk()) {
            (IO_ADDRESS, Some(address)) => self.nic.io_address = u32::from_le_bytes(*address),
            (IO_DATA, _) => crate::registers::write(&mut self.nic, address, bytes),
            _ => {}
        }
    }
}

impl<W: Wire> Device for Intel82574<W> {
    fn identity(&self) -> Identity {
        Identity {
            vendor: 0x8086,
            device: 0x10d3,
            class: [0x02, 0x00, 0x00],
            revision: 0,
            bars: [
                REGISTER_BYTES as u64,
                FLASH_BYTES,
                IO_BYTES,
                MSIX_BYTES as u64,
                0,
                0,
            ],
            spaces: [
                Space::Low,
                Space::Low,
                Space::Io,
                Space::Low,
                Space::Memory,
                Space::Memory,
            ],
            pin: true,
            msix: MSIX,
            ..Identity::default()
        }
    }

    fn read(&mut self, bar: u8, offset: u64, bytes: &mut [u8]) {
        bytes.fill(0xff);
        if self.nic.gone {
            return;
        }
        self.nic.mac.want_link(self.line.wire.is_up());
        match bar {
            MSIX_BAR => self.nic.msix.read(offset, bytes),
            IO_BAR => self.read_io(offset, bytes),
            0 => crate::registers::read(&mut self.nic, offset as usize, bytes),
            _ => {}
        }
    }

    fn write(&mut self, bar: u8, offset: u64, bytes: &[u8]) {
        if self.nic.gone {
            return;
        }
        match bar {
            MSIX_BAR => self.nic.msix.write(offset, bytes),
            IO_BAR => self.write_io(offset, bytes),
            0 => crate::registers::write(&mut self.nic, offset as usize, bytes),
            _ => self.nic.mac.violations.add(Violation::Access {
                offset,
                bytes: bytes.len(),
                bits: 8 * registers::ACCESS_BYTES,
            }),
        }
    }

    fn reset(&mut self) {
        self.nic.mac.phy.reset_all();
        self.nic.msix.reset();
        self.nic.gone = false;
        self.nic.reset();
    }

    fn poll(&mut self, dma: &dyn Dma, now: Duration) -> Progress {
        let nic = &mut self.nic;
        if nic.mac.faults.strikes(Fault::Gone) {
            nic.gone = true;
        }
        if nic.gone {
            return Progress::default();
        }
        nic.mac.pass_time(self.line.wire.is_up());
        self.line.loop_back(nic.mac.loops());
        let progress = nic.mac.exchange(&mut self.line, dma);
        nic.tell();
        if nic.interrupts.is_pending() {
            let faults = &mut nic.mac.faults;
            let lose = || faults.strikes(Fault::LostInterrupt);
            nic.interrupts.raise(&nic.mac.file, now, lose);
        }
        progress
    }

    fn take_interrupts(&mut self) -> u64 {
        self.nic.interrupts.take_raised()
    }

    fn asserts_pin(&self) -> bool {
        !self.nic.gone && self.nic.interrupts.is_asserted()
    }

    fn due(&self) -> Option<Duration> {
        self.nic.interrupts.due()
    }

    fn doorbells(&self) -> &'static [usize] {
        &DOORBELLS
    }

    fn violations(&self) -> &Violations {
        &self.nic.mac.violations
    }

    fn wire_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.line.wire.descriptor()
    }
}

impl Nic {
    fn reset(&mut self) {
        self.interrupts = Interrupts::new();
        self.mac.reset(self.address);
    }

    /// Tells the interrupts what happened.
    fn tell(&mut self) {
        let happened = self.mac.take_happened();
        for number in 0..QUEUES {
            let is = |queues: u8| queues >> number & 1 != 0;
            if is(happened.received) {
                self.interrupts.received(number);
            }
            let (done, empty) = (is(happened.transmitted), is(happened.empty));
            self.interrupts.transmitted(number, done, empty);
        }
        for (is, causes) in [(happened.link, cause::LINK), (happened.phy, cause::MDIC)] {
            if is {
                self.interrupts.set_causes(causes);
            }
        }
    }
}
