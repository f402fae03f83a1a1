//! A model of the Intel 82599 10 GbE controller, written from its datasheet (Intel 82599 10 GbE
//! Controller Datasheet, 331520). Numbers in brackets are sections of it.
//!
//! | module | what | section |
//! |---|---|---|
//! | [`registers`] | the registers, as a table | 8.2.3 |
//! | [`ring`] | rings of descriptors, and when a queue is on | 7.1.9, 7.2.3.3 |
//! | [`descriptor`] | the descriptors of both directions | 7.1.6, 7.2.3.2 |
//! | [`filter`] | which frames are for us | 7.1.1 |
//! | [`receive`] | filters, offloads, write-back | 7.1 |
//! | [`coalesce`] | segments that are received as one packet | 7.11 |
//! | [`apart`] | payload that is received without a copy | |
//! | [`transmit`] | descriptors, offloads, frames | 7.2 |
//! | [`join`] | payload that is sent without a copy | |
//! | [`interrupts`] | causes, masks, vectors | 7.3 |
//! | [`statistics`] | counters | 8.2.3.23 |
//! | [`ownership`] | which memory the device has | |
//!
//! What it leaves out: legacy receive and transmit descriptors, header splitting, RSS and all
//! filters that choose a queue, virtualisation, data centre bridging, flow control, MACsec, IPsec,
//! FCoE and wake-up. A driver that asks for one of the first two is told.

mod access;
mod apart;
mod coalesce;
mod descriptor;
mod filter;
mod interrupts;
mod join;
mod ownership;
mod receive;
mod registers;
mod ring;
mod statistics;
#[cfg(test)]
mod tests;
mod transmit;

use crate::device::{Device, Identity, Msix, Progress};
use crate::dma::Dma;
use crate::misbehaviour::{Fault, Misbehaviour, Mischief};
use crate::packet::complete;
use crate::violation::{Report, Violation};
use crate::wire::Wire;
use apart::{Expected, Places};
use interrupts::{Interrupts, cause};
use ownership::Ownership;
use receive::{Late, Outcome, RxQueue};
use registers::{QUEUES, REGISTER_BYTES, RegisterFile, at, bit};
use ring::Settling;
use statistics::Statistics;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use transmit::TxQueue;

/// BAR 0: registers, and flash behind them (8.1).
const BAR0_BYTES: u64 = 512 << 10;
/// BAR 4: the MSI-X structures (8.1).
const MSIX_BAR: u8 = 4;
const MSIX_BYTES: usize = 16 << 10;
const MSIX_VECTORS: u16 = 64;
const MSIX_PENDING: u32 = 0x2000;
/// Frames that one poll moves in each direction.
const POLL_FRAMES: u32 = 256;
/// Polls for which a link that flaps stays down.
const FLAP_POLLS: u32 = 16;
/// Tails of the first queues: what shared memory may hold.
const DOORBELLS: [usize; 2] = [0x1018, 0x6018];

/// The NIC, at one end of a wire.
#[derive(Debug)]
pub struct Intel82599<W> {
    wire: W,
    nic: Nic,
}

/// The NIC without its wire.
#[derive(Debug)]
struct Nic {
    address: [u8; 6],
    file: RegisterFile,
    interrupts: Interrupts,
    statistics: Statistics,
    rx: Vec<RxQueue>,
    tx: Vec<TxQueue>,
    /// Queues behind these were never on.
    rx_used: usize,
    tx_used: usize,
    ownership: Ownership,
    report: Report,
    mischief: Mischief,
    steps: Steps,
    msix: Vec<u8>,
    /// A segment that is being made.
    segment: Vec<u8>,
    /// Segments of the frame at the end of the wire that were received.
    segments_received: usize,
    /// What the next large frame will be like.
    expected: Option<Expected>,
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
            file: RegisterFile::new(),
            interrupts: Interrupts::new(),
            statistics: Statistics::default(),
            rx: Vec::new(),
            tx: Vec::new(),
            rx_used: 0,
            tx_used: 0,
            ownership: Ownership::default(),
            report: Report::default(),
            mischief: Mischief::new(misbehaviour),
            steps: Steps::default(),
            msix: vec![0; MSIX_BYTES],
            segment: Vec::with_capacity(1 << 16),
            segments_received: 0,
            expected: None,
            gone: false,
            late: Vec::new(),
        };
        nic.reset();
        Self { wire, nic }
    }

    /// What the driver did wrong.
    pub fn report(&self) -> &Report {
        &self.nic.report
    }

    /// What becomes readable when the wire has a frame.
    pub fn wire_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.wire.descriptor()
    }

    /// The wire.
    pub fn wire(&mut self) -> &mut W {
        &mut self.wire
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
            msix: Msix {
                vectors: MSIX_VECTORS,
                bar: MSIX_BAR,
                table: 0,
                pending: MSIX_PENDING,
            },
        }
    }

    fn read(&mut self, bar: u8, offset: u64, bytes: &mut [u8]) {
        bytes.fill(0xff);
        if self.nic.gone {
            return;
        }
        if bar == MSIX_BAR {
            if let Some(from) = range(offset, bytes.len()).and_then(|r| self.nic.msix.get(r)) {
                bytes.copy_from_slice(from);
            }
            return;
        }
        let in_flash = offset >= REGISTER_BYTES as u64;
        if bar != 0 || in_flash {
            return;
        }
        let Some(word) = bytes
            .as_chunks_mut()
            .0
            .first_mut()
            .filter(|_| offset.is_multiple_of(4))
        else {
            self.nic.report.add(Violation::Access {
                offset,
                bytes: bytes.len(),
            });
            return;
        };
        self.nic.want_link(self.wire.is_up());
        *word = self.nic.read(offset as usize).to_le_bytes();
    }

    fn write(&mut self, bar: u8, offset: u64, bytes: &[u8]) {
        if self.nic.gone {
            return;
        }
        if bar == MSIX_BAR {
            let table = 16 * usize::from(MSIX_VECTORS);
            let place = range(offset, bytes.len()).filter(|range| range.end <= table);
            if let Some(place) = place.and_then(|range| self.nic.msix.get_mut(range)) {
                place.copy_from_slice(bytes);
            }
            return;
        }
        match <[u8; 4]>::try_from(bytes) {
            Ok(word) if bar == 0 && offset.is_multiple_of(4) => {
                self.nic.write(offset as usize, u32::from_le_bytes(word));
            }
            _ => self.nic.report.add(Violation::Access {
                offset,
                bytes: bytes.len(),
            }),
        }
    }

    fn reset(&mut self) {
        self.nic.reset();
    }

    fn poll(&mut self, dma: &dyn Dma, now: Duration) -> Progress {
        let nic = &mut self.nic;
        if nic.mischief.strikes(Fault::Gone) {
            nic.gone = true;
        }
        if nic.gone {
            return Progress::default();
        }
        nic.pass_time(self.wire.is_up());
        nic.write_late(dma);
        let mut progress = Progress::default();
        if nic.link_is_up() {
            progress.transmitted = nic.transmit(&mut self.wire, dma, POLL_FRAMES);
            if nic.receives() {
                nic.fetch_receive(dma);
                progress.received = nic.receive_from(&mut self.wire, dma, POLL_FRAMES);
            }
        }
        self.wire.flush();
        if nic.interrupts.is_pending() {
            let mischief = &mut nic.mischief;
            let lose = || mischief.strikes(Fault::LostInterrupt);
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
}

fn range(offset: u64, len: usize) -> Option<std::ops::Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    Some(start..start.checked_add(len)?)
}

impl Nic {
    /// 4.2.1: all is as it was at first, but for what the driver did wrong.
    fn reset(&mut self) {
        self.file.reset();
        self.interrupts = Interrupts::new();
        self.statistics = Statistics::default();
        self.rx.clear();
        self.rx.resize_with(QUEUES, RxQueue::default);
        self.tx.clear();
        self.tx.resize_with(QUEUES, TxQueue::default);
        (self.rx_used, self.tx_used) = (0, 0);
        (0..QUEUES).for_each(|queue| self.configure_receive(queue));
        self.ownership.clear();
        self.segments_received = 0;
        self.expected = None;
        self.gone = false;
        self.late.clear();
        self.msix.fill(0);
        for vector in self.msix[..16 * usize::from(MSIX_VECTORS)].chunks_exact_mut(16) {
            // Masked (PCI 3.0, 6.8.2.9).
            vector[12] = 1;
        }
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

    fn want_link(&mut self, wire_is_up: bool) {
        self.steps
            .link
            .want(wire_is_up && self.steps.flap_polls == 0);
    }

    fn link_is_up(&self) -> bool {
        self.steps.link_was
    }

    /// What takes time is done.
    fn pass_time(&mut self, wire_is_up: bool) {
        let steps = &mut self.steps;
        steps.reset_reads = 0;
        steps.flap_polls = steps.flap_polls.saturating_sub(1);
        if self.mischief.strikes(Fault::LinkFlap) {
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

    fn receive_from(&mut self, wire: &mut impl Wire, dma: &dyn Dma, frames: u32) -> u32 {
        let mut received = 0;
        let mut places = Places::new();
        while received < frames {
            let front = self.find_places(dma, &mut places);
            let Some(incoming) = wire.peek_apart(front, &places) else {
                break;
            };
            if incoming.behind > 0 {
                if self.receive_apart(&incoming, dma) {
                    wire.take();
                    received += 1;
                } else {
                    wire.gather(&places);
                }
                continue;
            }
            let (frame, offload) = (incoming.frame, incoming.offload);
            let outcome = match offload.segment {
                Some(size) => self.receive_large(frame, size, dma),
                None => match offload.checksum {
                    Some((start, offset)) => {
                        let mut whole = std::mem::take(&mut self.segment);
                        whole.clear();
                        whole.extend_from_slice(frame);
                        complete(&mut whole, start, offset);
                        let outcome = self.receive(&whole, true, dma);
                        self.segment = whole;
                        outcome
                    }
                    None => self.receive(frame, false, dma),
                },
            };
            if outcome == Outcome::Waits {
                break;
            }
            wire.take();
            received += 1;
        }
        self.steps.receive_begun |= received > 0;
        received
    }

    /// The last step of 4.6.7, which comes after RXEN, and so perhaps after the first frame; but
    /// not after a driver has taken that frame, and gives its descriptor back.
    fn check_receive_end(&mut self) {
        if !self.steps.receive_begun || self.steps.receive_checked {
            return;
        }
        self.steps.receive_checked = true;
        let mut wrong = |register, rule| self.report.add(Violation::Order { register, rule });
        if !self.file.has(at::CTRL_EXT, bit::CTRL_EXT_NO_SNOOP_DISABLE) {
            wrong("CTRL_EXT", "NS_DIS, bit 16, must be set to receive (4.6.7)");
        }
        if self.file.has(at::RX_QUEUE + 0xc, bit::DCA_RESERVED) {
            wrong("DCA_RXCTRL", "bit 12 must be cleared to receive (4.6.7)");
        }
        self.check_coalescing_vectors();
    }
}
