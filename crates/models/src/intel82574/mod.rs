//! A model of the Intel 82574L gigabit Ethernet controller, written from its datasheet: Intel 82574
//! GbE Controller Family Datasheet, document 317694, revision 3.4, June 2014. Section numbers in
//! this folder refer to it.
//!
//! | module | what | section |
//! |---|---|---|
//! | [`registers`] | the registers, as a table | 10.2 |
//! | [`descriptor`] | the descriptors of both directions | 7.1, 7.2 |
//! | [`filter`] | which frames are for us | 7.1.1 |
//! | [`rss`] | which queue they go to | 7.1.11 |
//! | [`receive`] | filters, offloads, write-back | 7.1 |
//! | [`transmit`] | descriptors, packets, write-back | 7.2 |
//! | [`segmentation`] | packets that are cut into segments | 7.3 |
//! | [`checksum_offload`] | checksums of packets that are not cut | 7.2.11 |
//! | [`interrupts`] | causes, masks, vectors | 7.4 |
//! | [`access`] | what reading and writing a register does | 10.2 |
//! | [`statistics`] | counters | 10.2.7 |
//! | [`nvm`] | what the card's EEPROM says | 6 |
//! | [`phy`] | the transceiver, which MDIC leads to | 9 |
//!
//! What it leaves out: flow control, wake-up, management, the flash, and delays. The clock of time
//! stamps stands still.

mod access;
mod checksum_offload;
mod descriptor;
mod filter;
mod interrupts;
mod nvm;
mod phy;
mod receive;
mod registers;
mod rss;
mod segmentation;
mod statistics;
#[cfg(test)]
mod tests;
mod transmit;

use crate::device::{Device, Identity, Msix, Progress, Space};
use crate::dma::Dma;
use crate::line::Line;
use crate::misbehaviour::{Fault, Faults, Misbehaviour};
use crate::model::{Model, Setup};
use crate::msix::MsixBar;
use crate::ownership::Ownership;
use crate::settling::Settling;
use crate::violation::{Violation, Violations};
use crate::wire::Wire;
use interrupts::{Interrupts, VECTORS, cause};
use nvm::Nvm;
use phy::Phy;
use receive::{Format, Late, RxQueue};
use registers::{QUEUES, REGISTER_BYTES, RegisterFile, at, bit};
use statistics::Statistics;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use transmit::TxQueue;

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
/// Frames that one poll moves in each direction.
const POLL_FRAMES: u32 = 256;
/// Polls for which a link that flaps stays down.
const FLAP_POLLS: u32 = 16;
/// Tails of the first queues: what shared memory may hold.
const DOORBELLS: [usize; 2] = [0x2818, 0x3818];

/// What [`MODELS`](crate::MODELS) says of it.
pub(crate) const MODEL: Model = Model {
    name: "82574",
    about: "Intel 82574L, 1 Gb/s",
    make: |Setup {
               address,
               wire,
               misbehaviour,
           }| Box::new(Intel82574::new(address, wire, &misbehaviour)),
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
    file: RegisterFile,
    interrupts: Interrupts,
    statistics: Statistics,
    nvm: Nvm,
    phy: Phy,
    rx: [RxQueue; QUEUES],
    tx: [TxQueue; QUEUES],
    /// How RCTL and RFCTL have received frames laid down.
    format: Format,
    ownership: Ownership,
    violations: Violations,
    faults: Faults,
    steps: Steps,
    msix: MsixBar,
    /// What IOADDR holds.
    io_address: u32,
    /// A segment that is being made.
    segment: Vec<u8>,
    /// Segments of the frame at the end of the wire that were received.
    segments_received: usize,
    gone: bool,
    /// Frames that come after their descriptors: the device misbehaves.
    late: Vec<Late>,
}

/// What takes its time, and must be waited for.
#[derive(Debug, Default)]
struct Steps {
    /// CTRL.RST reads 1 for a while.
    reset_reads: u8,
    auto_read: Settling,
    link: Settling,
    link_was: bool,
    flap_polls: u32,
}

impl<W: Wire> Intel82574<W> {
    /// A NIC with this Ethernet address.
    pub fn new(address: [u8; 6], wire: W, misbehaviour: &Misbehaviour) -> Self {
        let mut nic = Nic {
            address,
            file: registers::file(),
            interrupts: Interrupts::new(),
            statistics: Statistics::default(),
            nvm: Nvm::new(address),
            phy: Phy::new(),
            rx: Default::default(),
            tx: Default::default(),
            format: Format::default(),
            ownership: Ownership::default(),
            violations: Violations::default(),
            faults: Faults::new(misbehaviour),
            steps: Steps::default(),
            msix: MsixBar::new(MSIX_BYTES, MSIX),
            io_address: 0,
            segment: Vec::with_capacity(1 << 16),
            segments_received: 0,
            gone: false,
            late: Vec::new(),
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
        }
    }

    fn read(&mut self, bar: u8, offset: u64, bytes: &mut [u8]) {
        bytes.fill(0xff);
        if self.nic.gone {
            return;
        }
        self.nic.want_link(self.line.wire.is_up());
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
            _ => self.nic.violations.add(Violation::Access {
                offset,
                bytes: bytes.len(),
                bits: 8 * registers::ACCESS_BYTES,
            }),
        }
    }

    fn reset(&mut self) {
        self.nic.phy = Phy::new();
        self.nic.msix.reset();
        self.nic.gone = false;
        self.nic.reset();
    }

    fn poll(&mut self, dma: &dyn Dma, now: Duration) -> Progress {
        let nic = &mut self.nic;
        if nic.faults.strikes(Fault::Gone) {
            nic.gone = true;
        }
        if nic.gone {
            return Progress::default();
        }
        nic.pass_time(self.line.wire.is_up());
        nic.write_late(dma);
        let loops = nic.phy.loops() || nic.file.has(at::RCTL, bit::RCTL_LOOPBACK);
        self.line.loop_back(loops);
        let progress = nic.exchange(&mut self.line, dma);
        if nic.interrupts.is_pending() {
            let faults = &mut nic.faults;
            let lose = || faults.strikes(Fault::LostInterrupt);
            nic.interrupts.raise(&nic.file, now, lose);
        }
        progress
    }

    fn take_interrupts(&mut self) -> u64 {
        self.nic.interrupts.take_raised()
    }

    fn asserts_pin(&self) -> bool {
        self.nic.interrupts.is_asserted()
    }

    fn due(&self) -> Option<Duration> {
        self.nic.interrupts.due()
    }

    fn doorbells(&self) -> &'static [usize] {
        &DOORBELLS
    }

    fn violations(&self) -> &Violations {
        &self.nic.violations
    }

    fn wire_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.line.wire.descriptor()
    }
}

impl Nic {
    /// 4.2.1: the MAC is as it was at first, but for what the driver did wrong. The transceiver
    /// goes on.
    fn reset(&mut self) {
        self.file.reset();
        self.interrupts = Interrupts::new();
        self.statistics = Statistics::default();
        self.rx = Default::default();
        self.tx = Default::default();
        self.configure_receive();
        self.ownership.clear();
        self.segments_received = 0;
        self.late.clear();
        // 10.2.5: the first receive address comes from the EEPROM.
        let [a, b, c, d, e, f] = self.address;
        self.file.set(at::RAL, u32::from_le_bytes([a, b, c, d]));
        let high = u32::from(u16::from_le_bytes([e, f]));
        self.file.set(at::RAH, high | bit::ADDRESS_VALID);
        self.steps = Steps::default();
        self.steps.auto_read.want(true);
    }

    /// Moves frames in both directions.
    fn exchange(&mut self, wire: &mut impl Wire, dma: &dyn Dma) -> Progress {
        let mut progress = Progress::default();
        if self.steps.link_was {
            progress.transmitted = self.transmit(wire, dma, POLL_FRAMES);
            if self.file.has(at::RCTL, bit::RCTL_ENABLE) {
                self.fetch_receive(dma);
                progress.received = self.receive_from(wire, dma, POLL_FRAMES);
            }
        }
        wire.flush();
        progress
    }

    /// The link is up if there is somebody at the other end, and nothing here is off (10.2.2.1,
    /// 10.2.2.2).
    fn want_link(&mut self, wire_is_up: bool) {
        let is_plugged = wire_is_up && self.steps.flap_polls == 0 || self.phy.loops();
        self.phy.plug(is_plugged);
        let is_set_up = self.file.has(at::CTRL, bit::CTRL_LINK_UP);
        self.steps.link.want(self.phy.has_link() && is_set_up);
    }

    /// What takes time is done.
    fn pass_time(&mut self, wire_is_up: bool) {
        let steps = &mut self.steps;
        steps.reset_reads = 0;
        steps.flap_polls = steps.flap_polls.saturating_sub(1);
        if self.faults.strikes(Fault::LinkFlap) {
            steps.flap_polls = FLAP_POLLS;
        }
        steps.auto_read.settle();
        self.phy.pass_time();
        self.want_link(wire_is_up);
        self.steps.link.settle();
        self.note_link(self.steps.link.is_wanted());
    }

    fn note_link(&mut self, is_up: bool) {
        if is_up != self.steps.link_was {
            self.steps.link_was = is_up;
            self.interrupts.set_causes(cause::LINK);
        }
    }
}
