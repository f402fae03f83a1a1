//! Receiving: filters, checksums, tags, descriptors (datasheet, chapter 6).

use super::descriptor::{FIRST, LAST, rx};
use super::interrupts::cause;
use super::registers::{at, bit};
use super::ring::Found;
use super::{Nic, POLL_FRAMES, filter};
use crate::dma::{Dma, DmaFault};
use crate::misbehaviour::Fault;
use crate::packet::checksum::{frame_check, word};
use crate::packet::headers::{ETHERNET, Ip, TAG, TCP, UDP, VLAN};
use crate::violation::{Queue, Violation};
use crate::wire::Wire;
use crate::wire::frames::Frames;

/// Longest frame, with its check sequence: its watchdog ends what is longer (6, RX status).
const FRAME_MAX: usize = 4096;
/// Bytes of a check sequence, which is always received.
const CHECK_BYTES: usize = 4;
const QUEUE: Queue = Queue::Rx(0);

/// A frame whose descriptor was done before: where it goes, and its bytes.
pub(super) type Late = (u64, Vec<u8>);

/// What became of a frame.
#[derive(PartialEq, Eq)]
enum Outcome {
    Done,
    /// There is no descriptor for it.
    Waits,
}

impl Nic {
    /// Receives what the wire has; returns how many frames.
    pub(super) fn receive(
        &mut self,
        wire: &mut impl Wire,
        frames: &mut Frames,
        dma: &dyn Dma,
    ) -> u32 {
        let mut received = 0;
        while received < POLL_FRAMES && self.receives() && self.link && !self.rx.hung {
            let Some((frame, sound)) = frames.peek(wire) else {
                break;
            };
            match self.receive_frame(frame, sound, dma) {
                Ok(Outcome::Done) => {}
                Ok(Outcome::Waits) => break,
                Err(fault) => {
                    self.violations.add(Violation::Dma {
                        queue: QUEUE,
                        fault,
                    });
                    self.rx.hung = true;
                    self.happened(cause::BUS);
                    break;
                }
            }
            frames.take();
            received += 1;
        }
        received
    }

    fn receive_frame(
        &mut self,
        frame: &[u8],
        sound: bool,
        dma: &dyn Dma,
    ) -> Result<Outcome, DmaFault> {
        let Some(address) = filter::pass(&self.file, frame) else {
            return Ok(Outcome::Done);
        };
        if frame.len() + CHECK_BYTES > FRAME_MAX {
            self.statistics.receive_errors += 1;
            self.happened(cause::RX_ERROR);
            return Ok(Outcome::Done);
        }
        if self.rx.next(dma)?.is_none() {
            // The frame waits in the card's memory; the driver is told once.
            if !self.starved {
                self.starved = true;
                self.happened(cause::RX_UNAVAILABLE);
            }
            return Ok(Outcome::Waits);
        }
        self.starved = false;
        let control = self.file.get(at::CPLUS);
        let mut said = address | self.describe(frame, sound, control & bit::CPLUS_CHECK != 0);
        let (head, rest) = match word(frame, ETHERNET - 2) {
            Some(VLAN) if control & bit::CPLUS_VLAN != 0 && frame.len() >= ETHERNET + TAG => {
                let tag = word(frame, ETHERNET).unwrap_or(0).swap_bytes();
                said |= rx::TAGGED | u64::from(tag) << 32;
                (&frame[..12], &frame[12 + TAG..])
            }
            _ => (frame, &[][..]),
        };
        let bytes = [head, rest, &frame_check(frame)].concat();
        self.count(address);
        self.place(&bytes, said, dma)?;
        self.happened(cause::RX_OK);
        Ok(Outcome::Done)
    }

    fn count(&mut self, address: u64) {
        self.statistics.received += 1;
        match address {
            rx::MATCHED => self.statistics.matched += 1,
            rx::BROADCAST => self.statistics.broadcast += 1,
            rx::MULTICAST => self.statistics.multicast += 1,
            _ => {}
        }
    }

    /// What was found of protocols and checksums; nothing unless C+CR asks for it.
    fn describe(&self, frame: &[u8], sound: bool, checks: bool) -> u64 {
        let Some(ip) = Ip::find(frame).filter(|ip| checks && !ip.v6) else {
            return 0;
        };
        let header = when(!sound && !ip.header_is_sound(frame), rx::IP_FAILS);
        let fails = || !sound && ip.payload_is_sound(frame) == Some(false);
        let is_whole = !ip.fragment && ip.end >= ip.payload;
        header
            | match ip.protocol {
                TCP if is_whole => rx::TCP | when(fails(), rx::TCP_FAILS),
                UDP if is_whole => rx::UDP | when(fails(), rx::UDP_FAILS),
                _ => rx::IP,
            }
    }

    /// Writes a frame to as many buffers as it takes.
    fn place(&mut self, mut bytes: &[u8], said: u64, dma: &dyn Dma) -> Result<(), DmaFault> {
        let len = bytes.len() as u64 & rx::LENGTH;
        let mut said = said | FIRST | len;
        let mut skips = self.faults.strikes(Fault::Skip);
        while !bytes.is_empty() {
            let Some(found) = self.rx.next(dma)? else {
                // The rest has no place: the frame ends here, without its end.
                self.statistics.miss();
                return Ok(());
            };
            self.advance_rx(&found);
            if std::mem::take(&mut skips) {
                continue;
            }
            let room = (found.words[0] & rx::LENGTH) as usize;
            if room == 0 {
                self.wrong(found.index, "the size of its buffer must not be 0 (6)");
                continue;
            }
            let (part, rest) = bytes.split_at(room.min(bytes.len()));
            bytes = rest;
            if rest.is_empty() {
                said |= LAST;
            }
            self.place_part(&found, part, said, dma)?;
            said &= !FIRST;
        }
        Ok(())
    }

    fn place_part(
        &mut self,
        found: &Found,
        part: &[u8],
        said: u64,
        dma: &dyn Dma,
    ) -> Result<(), DmaFault> {
        let iova = found.words[1];
        match self.faults.strikes(Fault::EarlyDone) {
            true => self.late.push((iova, part.to_vec())),
            false => dma.write(iova, part)?,
        }
        let said = self.misreport(said);
        found.give_back(dma, said)?;
        if let Some(last) = self.last_buffer.replace(iova)
            && self.faults.strikes(Fault::WildWrite)
        {
            let _lost = dma.write(last, &self.faults.number().to_le_bytes());
        }
        Ok(())
    }

    fn advance_rx(&mut self, found: &Found) {
        if !self.rx.advance(found) {
            self.wrong(found.index, "the 64th must end the ring (6)");
        }
    }

    fn wrong(&mut self, index: u32, rule: &'static str) {
        let queue = QUEUE;
        self.violations
            .add(Violation::Descriptor { queue, index, rule });
    }

    /// What is said of a frame, if the device misbehaves; it is the driver's in any case.
    fn misreport(&mut self, said: u64) -> u64 {
        const STATUS: u64 = 0x3fff_e000;
        const REST: u64 = 0xffff_ffff << 32;
        let mut said = said;
        for (fault, mask) in [
            (Fault::Length, rx::LENGTH),
            (Fault::Status, STATUS),
            (Fault::Garbage, REST),
        ] {
            if self.faults.strikes(fault) {
                said = said & !mask | self.faults.number() & mask;
            }
        }
        said
    }

    /// Writes frames whose descriptors were done too early.
    pub(super) fn write_late(&mut self, dma: &dyn Dma) {
        for (iova, bytes) in self.late.drain(..) {
            let _lost = dma.write(iova, &bytes);
        }
    }
}

/// The bits at their place.
fn when(is: bool, bits: u64) -> u64 {
    if is { bits } else { 0 }
}
