//! Commands on their way to the disk, and their status back: three transfers each (Mass Storage
//! Class, Bulk-Only Transport 1.0, by its sections here).

use super::scsi::{Command, SENSE_BYTES, Sense};
use crate::usb::Error;
use crate::usb::Lie;
use crate::usb::host::{Device, Host, Moved, Pipe};
use crate::usb::ring::Span;
use crate::usb::trb::{self, BYTES_MAX, CHAIN, ON_END, ON_SHORT};
use crate::usb::wait::MILLISECOND;
use alloc::vec::Vec;
use hw::{DmaArena, DmaRing, Done, OutOfDma};

/// How long a transfer may take, in nanoseconds: disks spin up, and sticks tidy up.
pub const TRANSFER_NANOSECONDS: u64 = 30_000 * MILLISECOND;
/// How long a flush or UNMAP may take, in nanoseconds.
pub const FLUSH_NANOSECONDS: u64 = 60_000 * MILLISECOND;
/// Parts of a transfer that the controller is told, at most.
pub const PARTS_MAX: usize = 48;

/// Bytes of a command as it is wrapped, and of its status (5.1, 5.2), and their signatures.
const COMMAND_BYTES: u32 = 31;
const STATUS_BYTES: u32 = 13;
const COMMAND_SIGNATURE: u32 = 0x4342_5355;
const STATUS_SIGNATURE: u32 = 0x5342_5355;
/// What a status says (5.3).
const PASSED: u8 = 0;
const FAILED: u8 = 1;
const PHASE_ERROR: u8 = 2;

/// Where in the page, in words, a command, its status, and an answer lie.
const PAGE_WORDS: usize = 128;
const COMMAND: usize = 0;
const STATUS: usize = 8;
const ANSWER: usize = 16;
/// Bytes of an answer, at most.
pub const ANSWER_BYTES: usize = (PAGE_WORDS - ANSWER) * 8;
/// DMA memory of all of this.
pub const DMA_BYTES: usize = 4096;

/// Data that parts cannot describe, or that the controller does not reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scattered;

/// What became of a command.
#[derive(Debug)]
pub struct Answered {
    /// Whether the disk says that it did it.
    pub has_passed: bool,
    /// Bytes that count.
    pub bytes: u64,
    /// The controller's word that it is over.
    pub done: Done,
}

/// What a status says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Status {
    has_passed: bool,
    residue: u32,
}

/// Reads a status (6.3): `words` came for the command with this tag, of so many bytes.
fn status(words: [u64; 2], tag: u32, data: u32) -> Result<Status, Lie> {
    let [first, second] = words;
    if (first as u32, (first >> 32) as u32) != (STATUS_SIGNATURE, tag) {
        return Err(Lie::Status);
    }
    let residue = second as u32;
    let has_passed = match (second >> 32) as u8 {
        PASSED => true,
        FAILED => false,
        PHASE_ERROR => return Err(Lie::Phase),
        _ => return Err(Lie::Status),
    };
    match residue <= data {
        true => Ok(Status {
            has_passed,
            residue,
        }),
        false => Err(Lie::Residue),
    }
}

/// Pieces that do not cross what a part cannot: address and length of each (xHCI 1.2, 6.4.1).
fn pieces(parts: impl Iterator<Item = (u64, usize)>) -> impl Iterator<Item = (u64, u32)> {
    parts.flat_map(|(start, bytes)| {
        let (mut at, mut left) = (start, bytes as u64);
        core::iter::from_fn(move || {
            let piece = (BYTES_MAX - at % BYTES_MAX).min(left);
            let here = at;
            (at, left) = (at.checked_add(piece)?, left - piece);
            (piece > 0).then_some((here, piece as u32))
        })
    })
}

/// A disk, and the way there.
pub struct Transport {
    pub host: Host,
    pub device: Device,
    page: DmaRing<1, PAGE_WORDS>,
    /// What the disk answered, read once: it may change that at any time.
    pub answer: Vec<u8>,
    tag: u32,
}

/// A command whose data have their places.
#[derive(Clone, Copy, Debug)]
pub struct Prepared {
    command: Command,
    wrapped: Span,
    data: Span,
}

impl Transport {
    /// The way to a device that is still to be found. It takes [`DMA_BYTES`] from `arena`.
    ///
    /// # Errors
    /// If less is left.
    pub fn new(host: Host, arena: &mut DmaArena) -> Result<Self, OutOfDma> {
        use crate::usb::context::{Place, Speed};
        let place = Place {
            root: 1,
            route: 0,
            depth: 0,
            translator: None,
            speed: Speed::Full,
        };
        Ok(Self {
            host,
            device: Device { slot: 0, place },
            page: arena.ring()?,
            answer: Vec::with_capacity(ANSWER_BYTES),
            tag: 0,
        })
    }

    fn at(&self, word: usize) -> u64 {
        self.page.iova().raw() + 8 * word as u64
    }

    /// Whether the controller reaches all its memory.
    pub fn reaches_all(&self) -> bool {
        self.host.reaches(self.at(PAGE_WORDS))
    }

    /// Wraps a command (5.1), and gives its data, as many bytes as it says, their places. It must
    /// be [run](Self::run) then, by which the controller gets it.
    ///
    /// # Errors
    /// [`Scattered`], if there are too many parts, or they are out of reach.
    #[inline]
    pub fn prepare<P>(
        &mut self,
        command: Command,
        parts: impl Fn() -> P,
    ) -> Result<Prepared, Scattered>
    where
        P: Iterator<Item = (u64, usize)>,
    {
        let mut count = 0;
        for (start, bytes) in parts() {
            let end = start.checked_add(bytes as u64).ok_or(Scattered)?;
            if !self.host.reaches(end) {
                return Err(Scattered);
            }
        }
        for _ in pieces(parts()) {
            count += 1;
            if count > PARTS_MAX {
                return Err(Scattered);
            }
        }
        self.tag = self.tag.wrapping_add(1);
        for (index, word) in wrapped(&command, self.tag).into_iter().enumerate() {
            self.page.store(COMMAND + index, 0, word);
        }
        let at = self.at(COMMAND);
        let (ring, _) = self.host.pipe(Pipe::Out);
        ring.put(trb::normal(at, COMMAND_BYTES, 0, ON_END), COMMAND_BYTES);
        let wrapped = ring.close();
        let (ring, packet) = self.host.pipe(way(&command));
        let mut left = u64::from(command.data);
        for (start, bytes) in pieces(parts()) {
            left = left.saturating_sub(bytes.into());
            let bits = if left == 0 { ON_END } else { CHAIN };
            let packets = left.div_ceil(packet.into());
            let bits = bits | if command.is_write { 0 } else { ON_SHORT };
            ring.put(trb::normal(start, bytes, packets, bits), bytes);
        }
        let data = ring.close();
        Ok(Prepared {
            command,
            wrapped,
            data,
        })
    }

    /// Has the disk carry a command out (5.3).
    ///
    /// # Errors
    /// [`Error`]: the disk, or the way there, must be reset.
    pub async fn run(&mut self, prepared: Prepared, most: u64) -> Result<Answered, Error> {
        let Prepared {
            command,
            wrapped,
            data,
        } = prepared;
        let device = self.device;
        self.host.send(&device, Pipe::Out);
        let sent = self.host.moved(&device, Pipe::Out, wrapped, most).await?;
        if sent.is_stalled {
            // Nothing but a reset helps (6.6.1).
            return Err(Error::Lie(Lie::Phase));
        }
        let mut moved = 0;
        if command.data > 0 {
            let pipe = way(&command);
            if pipe == Pipe::In {
                // Not before: a controller may ask for what it finds in a ring though nobody told
                // it to, and a disk that has no command yet refuses.
                self.host.send(&device, pipe);
            }
            let answer = self.host.moved(&device, pipe, data, most).await?;
            moved = answer.bytes;
            if answer.is_stalled {
                // 6.7.2 and 6.7.3: the status is to come.
                self.host.clear_halt(&device, pipe).await?;
            }
        }
        let (status, done) = self.status(command.data, most).await?;
        self.host.answered = self.host.now();
        Ok(Answered {
            has_passed: status.has_passed,
            bytes: moved.min(u64::from(command.data - status.residue)),
            done,
        })
    }

    /// Waits for the status of a command (5.3.3): asks a second time if the first one is refused.
    async fn status(&mut self, data: u32, most: u64) -> Result<(Status, Done), Error> {
        let device = self.device;
        // QEMU's disk (7.2) never gives a status that is asked for while its data are still being
        // reported, and its controller finds the question without being told.
        self.host.settle()?;
        let mut tries = 0;
        let Moved { bytes, done, .. } = loop {
            // Or one that does not come would be the one before.
            (0..2).for_each(|index| self.page.store(STATUS + index, 0, 0));
            let at = self.at(STATUS);
            let (ring, _) = self.host.pipe(Pipe::In);
            ring.put(
                trb::normal(at, STATUS_BYTES, 0, ON_END | ON_SHORT),
                STATUS_BYTES,
            );
            let span = ring.close();
            self.host.send(&device, Pipe::In);
            let moved = self.host.moved(&device, Pipe::In, span, most).await?;
            if !moved.is_stalled {
                break moved;
            }
            tries += 1;
            if tries == 2 {
                return Err(Error::Lie(Lie::Status));
            }
            self.host.clear_halt(&device, Pipe::In).await?;
        };
        if bytes != u64::from(STATUS_BYTES) {
            return Err(Error::Lie(Lie::Status));
        }
        let words = [0, 1].map(|index| self.page.load(STATUS + index, 0));
        Ok((status(words, self.tag, data)?, done))
    }

    /// Has the disk carry out a command whose data are of this driver's: whether it did. What it
    /// answered is in [`Self::answer`].
    ///
    /// # Errors
    /// As for [`Self::run`].
    pub async fn ask(&mut self, command: Command, most: u64) -> Result<bool, Error> {
        if !command.is_write {
            // Or what is not answered would be what was answered before.
            (ANSWER..PAGE_WORDS).for_each(|index| self.page.store(index, 0, 0));
        }
        let data = (self.at(ANSWER), command.data as usize);
        // One piece that it reaches.
        let prepared = self.prepare(command, || [data].into_iter());
        let prepared = prepared.map_err(|Scattered| Error::Config("where its memory lies"))?;
        let answered = self.run(prepared, most).await?;
        let words = (ANSWER..PAGE_WORDS).map(|index| self.page.load(index, 0));
        let bytes = words.flat_map(u64::to_le_bytes);
        self.answer.clear();
        self.answer.extend(bytes.take(answered.bytes as usize));
        Ok(answered.has_passed)
    }

    /// What goes to the disk with the next command of this driver's that writes.
    pub fn fill(&self, words: &[u64]) {
        for (index, word) in words.iter().enumerate() {
            self.page.store(ANSWER + index, 0, *word);
        }
    }

    /// Whether the disk is ready.
    ///
    /// # Errors
    /// As for [`Self::run`].
    pub async fn is_ready(&mut self) -> Result<bool, Error> {
        self.ask(Command::test_unit_ready(), TRANSFER_NANOSECONDS)
            .await
    }

    /// Why the last command failed (SPC-4, 6.39).
    ///
    /// # Errors
    /// As for [`Self::run`].
    pub async fn sense(&mut self) -> Result<Sense, Error> {
        const { assert!(SENSE_BYTES as usize <= ANSWER_BYTES) };
        match self
            .ask(Command::request_sense(), TRANSFER_NANOSECONDS)
            .await?
        {
            true => Sense::of(&self.answer),
            false => Err(Error::Config("why a command failed")),
        }
    }
}

/// The pipe of a command's data.
#[inline]
fn way(command: &Command) -> Pipe {
    match command.is_write {
        true => Pipe::Out,
        false => Pipe::In,
    }
}

/// A command as it is wrapped, for the first unit (5.1).
#[inline]
fn wrapped(command: &Command, tag: u32) -> [u64; 4] {
    let is_in = u64::from(!command.is_write && command.data > 0);
    let mut tail = [0; 24];
    tail[7..7 + command.bytes.len()].copy_from_slice(&command.bytes);
    let (words, _) = tail.as_chunks::<8>();
    let [first, second, third] = [0, 1, 2].map(|index| u64::from_le_bytes(words[index]));
    let head = u64::from(command.data) | is_in << 39 | u64::from(command.length) << 48;
    [
        u64::from(COMMAND_SIGNATURE) | u64::from(tag) << 32,
        head | first,
        second,
        third,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_wrapped_as_the_specification_says() {
        let command = Command::transfer(false, 0x0102_0304, 8, 4096);
        let bytes: Vec<u8> = wrapped(&command, 0x1122_3344)
            .into_iter()
            .flat_map(u64::to_le_bytes)
            .collect();
        assert_eq!(bytes[..4], *b"USBC");
        assert_eq!(bytes[4..12], [0x44, 0x33, 0x22, 0x11, 0, 0x10, 0, 0]);
        assert_eq!(bytes[12..15], [0x80, 0, 10]);
        assert_eq!(bytes[15..25], [0x28, 0, 1, 2, 3, 4, 0, 0, 8, 0]);
        assert_eq!(wrapped(&Command::unmap(), 0)[1] >> 32 & 0xff, 0);
    }

    #[test]
    fn a_status_is_of_its_command() {
        let word = |signature: u32, tag: u32| u64::from(signature) | u64::from(tag) << 32;
        let good = word(STATUS_SIGNATURE, 7);
        let passed = Status {
            has_passed: true,
            residue: 5,
        };
        assert_eq!(status([good, 5], 7, 5), Ok(passed));
        assert_eq!(status([good, 6], 7, 5), Err(Lie::Residue));
        assert_eq!(status([good, 5], 8, 5), Err(Lie::Status));
        assert_eq!(status([word(0, 7), 5], 7, 5), Err(Lie::Status));
        assert_eq!(status([good, 2 << 32], 7, 5), Err(Lie::Phase));
        assert_eq!(status([good, 3 << 32], 7, 5), Err(Lie::Status));
        let failed = Status {
            has_passed: false,
            residue: 0,
        };
        assert_eq!(status([good, 1 << 32], 7, 5), Ok(failed));
    }

    #[test]
    fn no_piece_crosses_a_boundary() {
        let parts = [(0xf000, 0x2000), (0x3_0000, 0), (0x4_0000, 0x1_8000)];
        let found: Vec<_> = pieces(parts.into_iter()).collect();
        let wanted = [
            (0xf000, 0x1000),
            (0x1_0000, 0x1000),
            (0x4_0000, 0x1_0000),
            (0x5_0000, 0x8000),
        ];
        assert_eq!(found, wanted);
    }
}
