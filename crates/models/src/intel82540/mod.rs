//! A model of the Intel 82540EM gigabit Ethernet controller, written from its manual: PCI/PCI-X
//! Family of Gigabit Ethernet Controllers Software Developer's Manual, document 317453, revision
//! 4.0, March 2009. Section numbers in this folder refer to it.
//!
//! | module | what | section |
//! |---|---|---|
//! | [`registers`] | the registers, as a table | 13.4 to 13.8 |
//! | [`access`] | what reading and writing a register does | 13.4 |
//! | [`interrupts`] | causes, their mask, and the pin | 13.4.17 |
//! | [`eeprom`] | what the card's EEPROM says | 5.6 |
//!
//! Rings, filters, offloads, counters and the transceiver are those of [`gigabit`](crate::gigabit).
//!
//! What it leaves out: flow control, wake-up, management, the flash, checksums of whole packets
//! (RXCSUM.PCSS), and delays. Delays of single interrupts (RDTR, RADV, TIDV, TADV) are none.

mod access;
mod eeprom;
mod interrupts;
mod registers;
#[cfg(test)]
mod tests;

use crate::device::{Device, Identity, Progress, Space};
use crate::dma::Dma;
use crate::gigabit::receive::Hashed;
use crate::gigabit::{Kind, Mac};
use crate::line::Line;
use crate::microwire::Microwire;
use crate::misbehaviour::{Fault, Misbehaviour};
use crate::model::{Make, Model, Setup};
use crate::violation::{Violation, Violations};
use crate::wire::Wire;
use interrupts::Interrupts;
use registers::{Id, REGISTER_BYTES, at};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// BAR 2: two registers in I/O space that lead to all others (4.1, 13.1).
const IO_BAR: u8 = 2;
const IO_BYTES: u64 = 64;
const IO_ADDRESS: u64 = 0;
const IO_DATA: u64 = 4;
/// The identifier of the transceiver (13.4.7).
const PHY: [u16; 2] = [0x0141, 0x0c20];
/// KiB of the packet buffer, which PBA divides (13.4).
const PACKET_BUFFER: u32 = 64;
/// Tails of the rings: what shared memory may hold.
const DOORBELLS: [usize; 2] = [0x2818, 0x3818];

/// What [`MODELS`](crate::MODELS) says of it.
pub(crate) const MODEL: Model = Model {
    name: "e1000",
    about: "Intel 82540EM, 1 Gb/s",
    make: Make::Nic(|setup| {
        let Setup {
            address,
            wire,
            misbehaviour,
            ..
        } = setup;
        Box::new(Intel82540::new(address, wire, &misbehaviour))
    }),
    back_end: None,
};

/// The NIC, at one end of a wire.
#[derive(Debug)]
pub struct Intel82540<W> {
    line: Line<W>,
    nic: Nic,
}

/// The NIC without its wire.
#[derive(Debug)]
struct Nic {
    address: [u8; 6],
    mac: Mac<Id>,
    interrupts: Interrupts,
    eeprom: Microwire,
    /// What IOADDR holds.
    io_address: u32,
    gone: bool,
}

impl<W: Wire> Intel82540<W> {
    /// A NIC with this Ethernet address.
    pub fn new(address: [u8; 6], wire: W, misbehaviour: &Misbehaviour) -> Self {
        let kind = Kind {
            queues: 1,
            spread: |_, _| Hashed::default(),
            phy: PHY,
            packet_buffer: PACKET_BUFFER,
            tells_udp: false,
        };
        let mut nic = Nic {
            address,
            mac: Mac::new(kind, registers::file(), misbehaviour),
            interrupts: Interrupts::new(),
            eeprom: eeprom::new(address),
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

    /// What the register that has a byte of a BAR is called.
    pub fn register_name(bar: u8, offset: u64) -> Option<&'static str> {
        match (bar, offset / 4 * 4) {
            (0, _) => crate::registers::name(&registers::TABLES, offset),
            (IO_BAR, IO_ADDRESS) => Some("IOADDR"),
            (IO_BAR, IO_DATA) => Some("IODATA"),
            _ => None,
        }
    }
}

impl<W: Wire> Device for Intel82540<W> {
    fn identity(&self) -> Identity {
        Identity {
            vendor: 0x8086,
            device: 0x100e,
            class: [0x02, 0x00, 0x00],
            revision: 2,
            bars: [REGISTER_BYTES as u64, 0, IO_BYTES, 0, 0, 0],
            spaces: [
                Space::Low,
                Space::Memory,
                Space::Io,
                Space::Memory,
                Space::Memory,
                Space::Memory,
            ],
            pin: true,
            ..Identity::default()
        }
    }

    fn read(&mut self, bar: u8, offset: u64, bytes: &mut [u8]) {
        bytes.fill(0xff);
        if self.nic.gone {
            return;
        }
        self.nic.mac.want_link(self.line.wire.is_up());
        match (bar, offset) {
            (0, _) => crate::registers::read(&mut self.nic, offset as usize, bytes),
            (IO_BAR, IO_ADDRESS) if bytes.len() == registers::ACCESS_BYTES => {
                bytes.copy_from_slice(&self.nic.io_address.to_le_bytes());
            }
            (IO_BAR, IO_DATA) => {
                let offset = self.nic.io_address as usize;
                crate::registers::read(&mut self.nic, offset, bytes);
            }
            _ => self.nic.stray(offset, bytes.len()),
        }
    }

    fn write(&mut self, bar: u8, offset: u64, bytes: &[u8]) {
        if self.nic.gone {
            return;
        }
        match (bar, offset, <&[u8; 4]>::try_from(bytes).ok()) {
            (0, _, _) => crate::registers::write(&mut self.nic, offset as usize, bytes),
            (IO_BAR, IO_ADDRESS, Some(address)) => {
                self.nic.io_address = u32::from_le_bytes(*address);
            }
            (IO_BAR, IO_DATA, _) => {
                let offset = self.nic.io_address as usize;
                crate::registers::write(&mut self.nic, offset, bytes);
            }
            _ => self.nic.stray(offset, bytes.len()),
        }
    }

    fn reset(&mut self) {
        self.nic.mac.phy.reset_all();
        (self.nic.gone, self.nic.io_address) = (false, 0);
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
        let interval = nic.mac.file.get(at::ITR);
        nic.interrupts.raise(now, interval);
        progress
    }

    /// It has no messages, only a pin.
    fn take_interrupts(&mut self) -> u64 {
        0
    }

    fn asserts_pin(&self) -> bool {
        !self.nic.gone && self.nic.interrupts.asserts_pin()
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
    /// 14.1: all is as it was at first, but for what the driver did wrong.
    fn reset(&mut self) {
        self.interrupts = Interrupts::new();
        self.mac.reset(self.address);
    }

    /// An access of I/O space where no register is, or of another size (13.1).
    fn stray(&mut self, offset: u64, bytes: usize) {
        self.mac.violations.add(Violation::Access {
            offset,
            bytes,
            bits: 8 * registers::ACCESS_BYTES,
        });
    }
}
