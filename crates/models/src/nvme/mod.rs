//! A model of an NVM Express disk, written from its specifications: NVM Express Base 2.0, NVM
//! Command Set 1.0, NVMe over PCIe Transport 1.0. Section numbers in this folder are of the first
//! where nothing else is said.
//!
//! | module | what | sections |
//! |---|---|---|
//! | [`registers`] | the registers, as a table | 3.1.3 |
//! | [`access`] | what reading and writing a register does | 3.1.3, 3.5 |
//! | [`queue`] | submission and completion queues | 3.3 |
//! | [`command`], [`status`] | commands, and what becomes of them | 3.3.3 |
//! | [`transfer`] | where the data of a command lie | 4.1.1 |
//! | [`admin`], [`features`], [`identify`] | admin commands | 5 |
//! | [`nvm`] | commands that move blocks | NVM Command Set, 3 |
//!
//! One namespace over a file. Each command is done before the next one is taken, so that queues
//! only spread what the driver does. Payload goes between the file and the driver's buffers without
//! a copy.
//!
//! What it leaves out: an interrupt pin, scatter-gather lists, metadata, events, power states,
//! formatting, firmware, namespaces that come and go. A driver that asks for these is told that
//! they are not there.

mod access;
mod admin;
mod command;
mod features;
mod identify;
mod nvm;
mod queue;
mod registers;
mod status;
#[cfg(test)]
mod tests;
mod transfer;

use crate::device::{Device, Identity, Msix, Progress};
use crate::disk::Disk;
use crate::dma::Dma;
use crate::misbehaviour::{Fault, Faults, Misbehaviour};
use crate::model::{DiskSetup, Make, Model};
use crate::msix::MsixBar;
use crate::settling::Settling;
use crate::violation::{Violation, Violations};
use admin::Became;
use command::Command;
use features::Features;
use queue::{Completions, IO_QUEUES, QUEUES, Submissions, name};
use registers::{BAR_BYTES, DOORBELL_OFFSETS, RegisterFile};
use status::{Failure, Status};
use std::time::Duration;
use transfer::Piece;

/// Vectors: one for each completion queue.
const VECTORS: u16 = QUEUES as u16;
/// The BAR of the MSI-X structures, its bytes, and where they lie in it.
const MSIX_BAR: u8 = 4;
const MSIX_BYTES: usize = 4096;
const MSIX: Msix = Msix {
    capability: 0x40,
    vectors: VECTORS,
    bar: MSIX_BAR,
    table: 0,
    pending: 2048,
};
/// Commands that one poll takes from each queue.
const POLL_COMMANDS: u32 = 64;
/// Do Not Retry, in a status (3.3.3.2.1).
const DO_NOT_RETRY: u16 = 1 << 14;
/// Where the status lies in the last dword of a completion.
const STATUS_SHIFT: u32 = 17;
/// Bytes of a block unless somebody says otherwise, as a power of two.
const BLOCK_SHIFT: u32 = 9;

/// What it is, as QEMU's is: an image that is made for one runs with the other. The class is that
/// of NVM Express (PCIe Transport 1.0, 3.1.1).
const IDENTITY: Identity = Identity {
    vendor: 0x1b36,
    device: 0x0010,
    subsystem: (0x1b36, 0x0010),
    class: [0x01, 0x08, 0x02],
    revision: 2,
    bars: [BAR_BYTES as u64, 0, 0, 0, MSIX_BYTES as u64, 0],
    spaces: [crate::device::Space::Memory; 6],
    pin: false,
    msix: MSIX,
    capabilities: &[],
    window: None,
};

/// What [`MODELS`](crate::MODELS) says of it.
pub(crate) const MODEL: Model = Model {
    name: "nvme",
    about: "NVM Express disk",
    make: Make::Disk(|DiskSetup { disk, misbehaviour }| Box::new(Nvme::new(disk, &misbehaviour))),
    back_end: None,
};

/// The disk.
#[derive(Debug)]
pub struct Nvme {
    disk: Disk,
    block_shift: u32,
    file: RegisterFile,
    /// INTMS and INTMC, which a controller with MSI-X does not look at.
    mask: u32,
    ready: Settling,
    is_fatal: bool,
    is_shut_down: bool,
    submissions: [Option<Submissions>; QUEUES],
    completions: [Option<Completions>; QUEUES],
    features: Features,
    /// Commands that wait for events.
    events: u8,
    /// The device hangs: commands for I/O are taken and not done. Queue and identifier of each.
    hangs: bool,
    hung: Vec<(usize, u16)>,
    /// Those of them that are to be answered as aborted.
    aborted: Vec<(usize, u16)>,
    pieces: Vec<Piece>,
    /// Where the driver's last read went.
    last: Option<Piece>,
    msix: MsixBar,
    raised: u64,
    gone: bool,
    violations: Violations,
    faults: Faults,
}

impl Nvme {
    /// A disk with blocks of 512 bytes.
    pub fn new(disk: Disk, misbehaviour: &Misbehaviour) -> Self {
        Self::with_blocks(disk, 1 << BLOCK_SHIFT, misbehaviour)
    }

    /// A disk with blocks of so many bytes, a power of two between 512 and 4096.
    ///
    /// # Panics
    /// If they are not.
    pub fn with_blocks(disk: Disk, bytes: u32, misbehaviour: &Misbehaviour) -> Self {
        assert!(bytes.is_power_of_two() && (512..=4096).contains(&bytes));
        Self {
            disk,
            block_shift: bytes.trailing_zeros(),
            file: registers::file(),
            mask: 0,
            ready: Settling::default(),
            is_fatal: false,
            is_shut_down: false,
            submissions: [const { None }; QUEUES],
            completions: [const { None }; QUEUES],
            features: Features::default(),
            events: 0,
            hangs: false,
            hung: Vec::new(),
            aborted: Vec::new(),
            pieces: Vec::new(),
            last: None,
            msix: MsixBar::new(MSIX_BYTES, MSIX),
            raised: 0,
            gone: false,
            violations: Violations::default(),
            faults: Faults::new(misbehaviour),
        }
    }

    /// All that a controller reset forgets (3.7.2).
    fn forget(&mut self) {
        self.submissions = [const { None }; QUEUES];
        self.completions = [const { None }; QUEUES];
        self.features = Features::default();
        (self.mask, self.raised, self.events) = (0, 0, 0);
        (self.is_fatal, self.is_shut_down) = (false, false);
        self.hangs = false;
        self.hung.clear();
        self.aborted.clear();
        self.last = None;
        for offset in DOORBELL_OFFSETS {
            self.file.set(offset, 0);
        }
    }

    /// Takes commands from a queue; how many.
    fn serve(&mut self, number: usize, dma: &dyn Dma) -> u32 {
        let Some(mut submissions) = self.submissions[number].take() else {
            return 0;
        };
        let mut taken = 0;
        if self.announce(number, &mut submissions, dma) {
            while taken < POLL_COMMANDS && self.has_room(&submissions) {
                match submissions.take(dma) {
                    Ok(Some((words, index))) => {
                        let command = Command::new(words);
                        self.carry_out(number, &mut submissions, &command, index, dma);
                        taken += 1;
                    }
                    Ok(None) => break,
                    Err(fault) => {
                        self.fail(number, fault);
                        break;
                    }
                }
            }
        }
        self.submissions[number] = Some(submissions);
        taken
    }

    /// Looks at the identifiers of commands that the driver has just rung for: each must be new.
    /// Whether they could be looked at.
    fn announce(&mut self, number: usize, submissions: &mut Submissions, dma: &dyn Dma) -> bool {
        loop {
            match submissions.look(dma) {
                Ok(None) => return true,
                Ok(Some((id, index))) => {
                    if !submissions.outstanding.insert(id) {
                        self.violations.add(Violation::Descriptor {
                            queue: name(number),
                            index,
                            rule: "CID must be that of no other outstanding command (3.3.3.1)",
                        });
                    }
                }
                Err(fault) => {
                    self.fail(number, fault);
                    return false;
                }
            }
        }
    }

    /// A queue is not in the memory: the controller cannot go on (3.1.3.6, CFS).
    fn fail(&mut self, number: usize, fault: crate::dma::DmaFault) {
        let queue = name(number);
        self.violations.add(Violation::Dma { queue, fault });
        self.is_fatal = true;
    }

    /// Whether there is room for what a fault may add, too.
    fn has_room(&self, submissions: &Submissions) -> bool {
        let completions = self.completions[submissions.completions].as_ref();
        !self.is_fatal && completions.is_some_and(|queue| !queue.is_full())
    }

    fn carry_out(
        &mut self,
        number: usize,
        submissions: &mut Submissions,
        command: &Command,
        index: u32,
        dma: &dyn Dma,
    ) {
        let id = command.identifier();
        if number > 0 {
            self.hangs |= self.faults.strikes(Fault::TransmitHang);
            if self.hangs {
                self.hung.push((number, id));
                return;
            }
        }
        let early = number > 0 && self.faults.strikes(Fault::EarlyDone);
        if early {
            self.answer(number, submissions, id, Status::SUCCESS, 0, dma);
        }
        let done = self.attempt(number, command, dma);
        let (status, result) = match &done {
            Ok(Became::Done(result)) => (Status::SUCCESS, *result),
            Ok(Became::Waits) => return,
            Err(failure) => (failure.status(), 0),
        };
        self.tell(number, index, done);
        if !early {
            self.answer(number, submissions, id, status, result, dma);
        }
    }

    /// Does a command.
    fn attempt(
        &mut self,
        number: usize,
        command: &Command,
        dma: &dyn Dma,
    ) -> Result<Became, Failure> {
        if command.is_fused() || command.has_other_pointers() {
            let rule = "FUSE and PSDT must be 0 where Identify offers nothing else (3.3.3.1)";
            return Err(Failure::Rule(Status::INVALID_FIELD, rule));
        }
        if number == 0 {
            return self.administer(command, dma);
        }
        self.perform(command, dma)?;
        self.last = self.pieces.last().copied();
        Ok(Became::Done(0))
    }

    /// Reports what the driver did wrong, if it did.
    fn tell(&mut self, number: usize, index: u32, done: Result<Became, Failure>) {
        let queue = name(number);
        match done {
            Err(Failure::Rule(_, rule)) => {
                self.violations
                    .add(Violation::Descriptor { queue, index, rule });
            }
            Err(Failure::Dma(fault)) => self.violations.add(Violation::Dma { queue, fault }),
            Err(Failure::Said(_) | Failure::Disk(_)) | Ok(_) => {}
        }
    }

    /// Posts a completion, or what a device that misbehaves makes of it.
    fn answer(
        &mut self,
        number: usize,
        submissions: &mut Submissions,
        id: u16,
        status: Status,
        result: u32,
        dma: &dyn Dma,
    ) {
        submissions.outstanding.remove(id);
        let mut status = match status {
            Status::SUCCESS | Status::READ_ERROR | Status::WRITE_FAULT => status.0,
            Status(status) => status | DO_NOT_RETRY,
        };
        let mut head = submissions.head as u16;
        let (mut id, mut times) = (id, 1);
        if number > 0 {
            let faults = &mut self.faults;
            if faults.strikes(Fault::Status) {
                status = faults.number() as u16 & 0x7fff;
            }
            if faults.strikes(Fault::Garbage) {
                (id, head) = (faults.number() as u16, faults.number() as u16);
            }
            times += u32::from(faults.strikes(Fault::Twice));
        }
        let dwords = [
            result,
            0,
            u32::from(head) | (number as u32) << 16,
            u32::from(id) | u32::from(status) << STATUS_SHIFT,
        ];
        for _ in 0..times {
            self.post(number, submissions.completions, dwords, dma);
        }
    }

    fn post(&mut self, number: usize, completions: usize, dwords: [u32; 4], dma: &dyn Dma) {
        let skips = number > 0 && self.faults.strikes(Fault::Skip);
        let Some(queue) = &mut self.completions[completions] else {
            return;
        };
        if queue.is_full() {
            return;
        }
        if skips {
            queue.advance();
        }
        let posted = queue.post(dwords, dma);
        if let Some(vector) = queue.vector
            && !self.faults.strikes(Fault::LostInterrupt)
        {
            self.raised |= 1 << vector;
        }
        if let Err(fault) = posted {
            self.fail(number, fault);
        }
    }

    /// Answers commands that hung and were aborted.
    fn answer_aborted(&mut self, dma: &dyn Dma) {
        while let Some((number, id)) = self.aborted.pop() {
            if let Some(mut submissions) = self.submissions[number].take() {
                let status = Status::ABORT_REQUESTED;
                self.answer(number, &mut submissions, id, status, 0, dma);
                self.submissions[number] = Some(submissions);
            }
        }
    }

    /// Writes where the driver's last read went: the device misbehaves.
    fn write_wildly(&mut self, dma: &dyn Dma) {
        if self.faults.strikes(Fault::WildWrite)
            && let Some(piece) = self.last
        {
            let bytes = self.faults.number().to_le_bytes();
            let here = bytes.len().min(piece.bytes);
            // Where it is no more, nothing is written.
            let _ = dma.write(piece.iova, &bytes[..here]);
        }
    }
}

impl Device for Nvme {
    fn identity(&self) -> Identity {
        IDENTITY
    }

    fn read(&mut self, bar: u8, offset: u64, bytes: &mut [u8]) {
        bytes.fill(0xff);
        match bar {
            _ if self.gone => {}
            MSIX_BAR => self.msix.read(offset, bytes),
            _ => crate::registers::read(self, offset as usize, bytes),
        }
    }

    fn write(&mut self, bar: u8, offset: u64, bytes: &[u8]) {
        match bar {
            _ if self.gone => {}
            MSIX_BAR => self.msix.write(offset, bytes),
            _ => crate::registers::write(self, offset as usize, bytes),
        }
    }

    fn reset(&mut self) {
        self.forget();
        self.file.reset();
        self.msix.reset();
        self.ready = Settling::default();
        self.gone = false;
    }

    fn poll(&mut self, dma: &dyn Dma, _: Duration) -> Progress {
        if self.faults.strikes(Fault::Gone) {
            self.gone = true;
        }
        self.ready.settle();
        if self.gone || self.is_fatal || !self.is_enabled() {
            return Progress::default();
        }
        self.write_wildly(dma);
        let mut done = 0;
        for number in 0..=IO_QUEUES {
            done += self.serve(number, dma);
        }
        self.answer_aborted(dma);
        Progress {
            received: 0,
            transmitted: done,
        }
    }

    fn take_interrupts(&mut self) -> u64 {
        std::mem::take(&mut self.raised)
    }

    fn doorbells(&self) -> &'static [usize] {
        &DOORBELL_OFFSETS
    }

    fn violations(&self) -> &Violations {
        &self.violations
    }
}
