//! A model of the Intel 82599 10 GbE controller, written from its datasheet: Intel 82599 10 GbE
//! Controller Datasheet, document 331520-001, revision 3.0, November 2014. Section numbers in this
//! folder refer to it.
//!
//! | module | what | section |
//! |---|---|---|
//! | [`registers`] | the registers, as a table | 8.2.3 |
//! | [`stored`] | those that are stored, and nothing else | 8.2.3 |
//! | [`descriptor`] | the descriptors of both directions | 7.1.6, 7.2.3.2 |
//! | [`filter`] | which frames are for us | 7.1.1 |
//! | [`flow_director`], [`rss`] | which queue they go to | 7.1.2.7, 7.1.2.8 |
//! | [`receive`] | filters, offloads, write-back | 7.1 |
//! | [`coalescing`] | segments that are received as one packet | 7.11 |
//! | [`placement`] | payload that is received without a copy, by [`scatter`](crate::scatter) | |
//! | [`transmit`] | descriptors, packets, write-back | 7.2 |
//! | [`segmentation`] | packets that are cut into segments | 7.2.4 |
//! | [`checksum_offload`] | checksums of packets that are not cut | 7.2.5 |
//! | [`interrupts`] | causes, masks, vectors | 7.3 |
//! | [`access`] | what reading and writing a register does | 8.2.3 |
//! | [`statistics`] | counters | 8.2.3.23 |
//! | [`eeprom`] | what the card's EEPROM says | 6 |
//! | [`i2c`], [`sfp`] | the module in the cage, and the bus to it | 8.2.3.1 |
//!
//! What it leaves out: legacy receive and transmit descriptors, header splitting, filters that
//! choose a queue (but for these two), virtualisation, data centre bridging, flow control, MACsec,
//! IPsec, FCoE and wake-up. A driver that asks for one of the first two is told.

mod access;
mod checksum_offload;
mod coalescing;
mod descriptor;
mod eeprom;
mod filter;
mod flow_director;
mod i2c;
mod interrupts;
mod placement;
mod receive;
mod registers;
mod rss;
mod segmentation;
mod sfp;
mod statistics;
mod stored;
#[cfg(test)]
mod tests;
mod transmit;

use crate::device::{Device, Identity, Msix, Progress};
use crate::dma::Dma;
use crate::line::Line;
use crate::misbehaviour::{Fault, Faults, Misbehaviour};
use crate::model::{Make, Model, Setup};
use crate::msix::MsixBar;
use crate::ownership::Ownership;
use crate::scatter::Prediction;
use crate::settling::Settling;
use crate::violation::{Violation, Violations};
use crate::wire::Wire;
use eeprom::Eeprom;
use flow_director::FlowDirector;
use i2c::Bus;
use interrupts::{Interrupts, cause};
use receive::{Late, RxQueue};
use registers::{QUEUES, REGISTER_BYTES, RegisterFile, at, bit};
use statistics::Statistics;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use transmit::TxQueue;

/// BAR 0: registers, and flash behind them (8.1).
const BAR0_BYTES: u64 = 512 << 10;
/// BAR 4: the MSI-X structures (8.1).
const MSIX_BAR: u8 = 4;
const MSIX_BYTES: usize = 16 << 10;
const MSIX: Msix = Msix {
    capability: 0x70,
    vectors: 64,
    bar: MSIX_BAR,
    table: 0,
    pending: 0x2000,
};
/// Frames that one poll moves in each direction.
const POLL_FRAMES: u32 = 256;
/// Polls for which a link that flaps stays down.
const FLAP_POLLS: u32 = 16;
/// Tails of the first queues: what shared memory may hold.
const DOORBELLS: [usize; 2] = [0x1018, 0x6018];

/// What [`MODELS`](crate::MODELS) says of it.
pub(crate) const MODEL: Model = Model {
    name: "82599",
    about: "Intel 82599, 10 Gb/s",
    make: Make::Nic(|setup| {
        let Setup {
            address,
            wire,
            misbehaviour,
            ..
        } = setup;
        Box::new(Intel82599::new(address, wire, &misbehaviour))
    }),
    back_end: None,
};

/// The NIC, at one end of a wire.
#[derive(Debug)]
pub struct Intel82599<W> {
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
    eeprom: Eeprom,
    module: Bus,
    flows: FlowDirector,
    /// Whether RSS or the flow director say which queue a frame goes to.
    spreads: bool,
    /// What descriptors tell of the frame that comes in, beside what it is: nothing unless it was
    /// sent to a queue.
    told: u64,
    rx: Vec<RxQueue>,
    tx: Vec<TxQueue>,
    /// Queues behind these were never on.
    rx_used: usize,
    tx_used: usize,
    ownership: Ownership,
    violations: Violations,
    faults: Faults,
    steps: Steps,
    msix: MsixBar,
    /// A segment that is being made.
    segment: Vec<u8>,
    /// Segments of the frame at the end of the wire that were received.
    segments_received: usize,
    /// What the next large frame will be like.
    prediction: Option<Prediction>,
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
    dma_init: Settling,
    secure_ready: Settling,
    link: Settling,
    link_was: bool,
    flap_polls: u32,
    /// A frame was received.
    receive_begun: bool,
    /// The steps that end receive initialisation were looked at.
    receive_checked: bool,
}

impl<W: Wire> Intel82599<W> {
    /// A NIC with this Ethernet address.
    pub fn new(address: [u8; 6], wire: W, misbehaviour: &Misbehaviour) -> Self {
        let mut nic = Nic {
            address,
            file: registers::file(),
            interrupts: Interrupts::new(),
            statistics: Statistics::default(),
            eeprom: Eeprom::new(),
            module: Bus::new(sfp::memories()),
            flows: FlowDirector::default(),
            spreads: false,
            told: 0,
            rx: Vec::new(),
            tx: Vec::new(),
            rx_used: 0,
            tx_used: 0,
            ownership: Ownership::default(),
            violations: Violations::default(),
            faults: Faults::new(misbehaviour),
            steps: Steps::default(),
            msix: MsixBar::new(MSIX_BYTES, MSIX),
            segment: Vec::with_capacity(1 << 16),
            segments_received: 0,
            prediction: None,
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
}

impl<W: Wire> Device for Intel82599<W> {
    fn identity(&self) -> Identity {
        Identity {
            vendor: 0x8086,
            device: 0x10fb,
            class: [0x02, 0x00, 0x00],
            revision: 1,
            bars: [BAR0_BYTES, 0, 0, 0, MSIX_BYTES as u64, 0],
            msix: MSIX,
            ..Identity::default()
        }
    }

    fn read(&mut self, bar: u8, offset: u64, bytes: &mut [u8]) {
        bytes.fill(0xff);
        if self.nic.gone {
            return;
        }
        match bar {
            MSIX_BAR => self.nic.msix.read(offset, bytes),
            0 if offset < REGISTER_BYTES as u64 => {
                self.nic.want_link(self.line.wire.is_up());
                crate::registers::read(&mut self.nic, offset as usize, bytes);
            }
            _ => {}
        }
    }

    fn write(&mut self, bar: u8, offset: u64, bytes: &[u8]) {
        if self.nic.gone {
            return;
        }
        match bar {
            MSIX_BAR => self.nic.msix.write(offset, bytes),
            // Both words of a filter may be written at once: no other registers are (8.2.3.21).
            0 if offset == at::FDIRHASH as u64 && bytes.len() == 8 => {
                for (half, word) in bytes.chunks(registers::ACCESS_BYTES).enumerate() {
                    let at = at::FDIRHASH + half * registers::ACCESS_BYTES;
                    crate::registers::write(&mut self.nic, at, word);
                }
            }
            0 => crate::registers::write(&mut self.nic, offset as usize, bytes),
            _ => self.nic.violations.add(Violation::Access {
                offset,
                bytes: bytes.len(),
                bits: 8 * registers::ACCESS_BYTES,
            }),
        }
    }

    fn reset(&mut self) {
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
        let loops = nic.file.has(at::HLREG0, bit::HLREG0_LOOPBACK);
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
    /// 4.2.1: all is as it was at first, but for what the driver did wrong.
    fn reset(&mut self) {
        self.file.reset();
        self.interrupts = Interrupts::new();
        self.statistics = Statistics::default();
        self.module.drive(true, true);
        self.flows.clear();
        self.configure_spread();
        self.rx.clear();
        self.rx.resize_with(QUEUES, RxQueue::default);
        self.tx.clear();
        self.tx.resize_with(QUEUES, TxQueue::default);
        (self.rx_used, self.tx_used) = (0, 0);
        (0..QUEUES).for_each(|queue| self.configure_receive(queue));
        self.ownership.clear();
        self.segments_received = 0;
        self.prediction = None;
        self.gone = false;
        self.late.clear();
        self.msix.reset();
        // 8.2.3.7.9: the first receive address comes from the EEPROM.
        let [a, b, c, d, e, f] = self.address;
        self.file.set(at::RAL, u32::from_le_bytes([a, b, c, d]));
        let high = u32::from(u16::from_le_bytes([e, f]));
        self.file.set(at::RAH, high | bit::ADDRESS_VALID);
        self.steps = Steps::default();
        self.steps.auto_read.want(true);
        self.steps.dma_init.want(true);
    }

    /// Whether frames are received at all (4.6.7).
    fn receives(&self) -> bool {
        self.file.has(at::RXCTRL, bit::RXCTRL_ENABLE)
            && !self.file.has(at::SECRXCTRL, bit::SECRX_PATH_DISABLE)
    }

    /// Moves frames in both directions.
    fn exchange(&mut self, wire: &mut impl Wire, dma: &dyn Dma) -> Progress {
        let mut progress = Progress::default();
        if self.link_is_up() {
            progress.transmitted = self.transmit(wire, dma, POLL_FRAMES);
            if self.receives() {
                self.fetch_receive(dma);
                progress.received = self.receive_from(wire, dma, POLL_FRAMES);
            }
        }
        wire.flush();
        progress
    }

    fn want_link(&mut self, wire_is_up: bool) {
        let is_up = wire_is_up || self.file.has(at::AUTOC, bit::AUTOC_FORCE);
        self.steps.link.want(is_up && self.steps.flap_polls == 0);
    }

    fn link_is_up(&self) -> bool {
        self.steps.link_was
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
        steps.dma_init.settle();
        steps.secure_ready.settle();
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

    /// The last step of 4.6.7, which comes after RXEN, and so perhaps after the first frame; but
    /// not after a driver has taken that frame, and gives its descriptor back.
    fn check_receive_end(&mut self) {
        if !self.steps.receive_begun || self.steps.receive_checked {
            return;
        }
        self.steps.receive_checked = true;
        let mut wrong = |register, rule| self.violations.add(Violation::Order { register, rule });
        if !self.file.has(at::CTRL_EXT, bit::CTRL_EXT_NO_SNOOP_DISABLE) {
            wrong("CTRL_EXT", "NS_DIS, bit 16, must be set to receive (4.6.7)");
        }
        if self.file.has(at::RX_QUEUE + 0xc, bit::DCA_RESERVED) {
            wrong("DCA_RXCTRL", "bit 12 must be cleared to receive (4.6.7)");
        }
        self.check_coalescing_vectors();
    }
}
