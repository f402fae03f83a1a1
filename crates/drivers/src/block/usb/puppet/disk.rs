//! The disk: bulk-only transport, and the commands that the driver uses.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// What it does wrong, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It says nothing any more until it is reset.
    Silence,
    /// It refuses a command with this sense: key, code.
    Sense(u8, u8),
    /// As well, and stalls where data should be.
    StalledSense(u8, u8),
    /// It stalls the status, so many times.
    StalledStatus(u8),
    /// It stalls the command.
    StalledCommand,
    /// It gives fewer bytes than it should, and says that it did it.
    Short,
    /// Its status has another signature, another tag, a larger residue, or another status.
    Signature,
    /// See above.
    Tag,
    /// See above.
    Residue(u32),
    /// See above.
    Status(u8),
}

/// What becomes of a transfer.
pub enum Moved {
    /// Nothing yet.
    Nothing,
    Stall,
    Bytes(Vec<u8>),
}

#[derive(Debug)]
enum Phase {
    Command,
    In(Vec<u8>),
    Out(Vec<u8>),
    Status,
}

/// The disk.
#[derive(Debug)]
pub struct Disk {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The text that tells it from others of its kind.
    pub serial: Vec<u8>,
    /// Commands that it got since the test looked.
    pub commands: Vec<[u8; 16]>,
    /// What it does wrong next with commands that move blocks.
    pub faults: VecDeque<Fault>,
    /// What its modes say.
    pub modes: Vec<u8>,
    phase: Phase,
    fault: Option<Fault>,
    is_silent: bool,
    stalls: u8,
    tag: [u8; 4],
    residue: u32,
    has_failed: bool,
    sense: (u8, u8),
}

impl Disk {
    pub(super) fn new(blocks: u64) -> Self {
        Self {
            bytes: (0..blocks * 512).map(|at| (at / 512 + at) as u8).collect(),
            serial: vec![8, 3, b'a', 0, b'b', 0, b'c', 0],
            commands: Vec::new(),
            faults: VecDeque::new(),
            modes: vec![15, 0, 0, 0, 0x08, 10, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            phase: Phase::Command,
            fault: None,
            is_silent: false,
            stalls: 0,
            tag: [0; 4],
            residue: 0,
            has_failed: false,
            sense: (0, 0),
        }
    }

    /// It is reset.
    pub(super) fn forget(&mut self) {
        self.phase = Phase::Command;
        (self.is_silent, self.stalls) = (false, 0);
    }

    /// Takes what the driver sends.
    pub(super) fn take(&mut self, bytes: Vec<u8>) -> Moved {
        match &self.phase {
            _ if self.is_silent => Moved::Nothing,
            Phase::Command => self
                .command(&bytes)
                .map_or(Moved::Stall, |()| Moved::Bytes(bytes)),
            Phase::Out(command) => {
                let command = command.clone();
                self.phase = Phase::Status;
                self.write(&command, &bytes);
                Moved::Bytes(bytes)
            }
            Phase::In(_) | Phase::Status => Moved::Nothing,
        }
    }

    /// Gives what the driver waits for.
    pub(super) fn give(&mut self, wanted: usize) -> Moved {
        match &mut self.phase {
            _ if self.is_silent => Moved::Nothing,
            Phase::In(bytes) => {
                let mut bytes = core::mem::take(bytes);
                self.phase = Phase::Status;
                if matches!(self.fault, Some(Fault::StalledSense(..))) {
                    return Moved::Stall;
                }
                bytes.truncate(wanted);
                Moved::Bytes(bytes)
            }
            Phase::Status if self.stalls > 0 => {
                self.stalls -= 1;
                Moved::Stall
            }
            Phase::Status => {
                self.phase = Phase::Command;
                Moved::Bytes(self.status())
            }
            // It was not asked for anything.
            Phase::Command | Phase::Out(_) => Moved::Stall,
        }
    }

    fn status(&mut self) -> Vec<u8> {
        let mut status = b"USBS".to_vec();
        status.extend(self.tag);
        status.extend(self.residue.to_le_bytes());
        status.push(u8::from(self.has_failed));
        match self.fault.take() {
            Some(Fault::Signature) => status[0] ^= 1,
            Some(Fault::Tag) => status[4] ^= 1,
            Some(Fault::Residue(residue)) => {
                status[8..12].copy_from_slice(&residue.to_le_bytes());
            }
            Some(Fault::Status(what)) => status[12] = what,
            _ => {}
        }
        status
    }

    /// Begins a command; `None` is a stall.
    fn command(&mut self, wrapped: &[u8]) -> Option<()> {
        if wrapped.len() != 31 || wrapped[..4] != *b"USBC" {
            return None;
        }
        let wanted = u32::from_le_bytes(wrapped[8..12].try_into().ok()?);
        let command: [u8; 16] = wrapped[15..31].try_into().ok()?;
        self.tag = wrapped[4..8].try_into().ok()?;
        self.commands.push(command);
        let may_fail = matches!(command[0], 0x28 | 0x2a | 0x88 | 0x8a);
        self.fault = may_fail.then(|| self.faults.pop_front()).flatten();
        (self.has_failed, self.residue) = (false, 0);
        let mut answer = self.answer(&command);
        match self.fault {
            Some(Fault::Silence) => self.is_silent = true,
            Some(Fault::StalledCommand) => return None,
            Some(Fault::StalledStatus(stalls)) => self.stalls = stalls,
            Some(Fault::Sense(key, code) | Fault::StalledSense(key, code)) => {
                self.sense = (key, code);
                answer = None;
            }
            Some(Fault::Short) => {
                let half = answer.as_ref().map_or(0, Vec::len) / 2;
                answer = answer.map(|answer| answer[half..].to_vec());
            }
            _ => {}
        }
        let is_in = wrapped[12] & 0x80 != 0;
        self.has_failed = answer.is_none();
        let answer = answer.unwrap_or_default();
        self.phase = match (wanted, is_in) {
            (0, _) => Phase::Status,
            (_, false) => Phase::Out(command.to_vec()),
            (wanted, true) => {
                self.residue = wanted.saturating_sub(answer.len() as u32);
                Phase::In(answer)
            }
        };
        Some(())
    }

    /// Where the blocks of a command lie.
    fn range(&self, command: &[u8]) -> Option<core::ops::Range<usize>> {
        let (block, blocks) = match command[0] {
            0x28 | 0x2a => (
                u64::from(u32::from_be_bytes(command[2..6].try_into().ok()?)),
                u16::from_be_bytes(command[7..9].try_into().ok()?),
            ),
            _ => (
                u64::from_be_bytes(command[2..10].try_into().ok()?),
                u16::from_be_bytes(command[12..14].try_into().ok()?),
            ),
        };
        let start = usize::try_from(block).ok()?.checked_mul(512)?;
        let end = start.checked_add(usize::from(blocks) * 512)?;
        (end <= self.bytes.len()).then_some(start..end)
    }

    /// What a command answers; `None` if it fails.
    fn answer(&mut self, command: &[u8; 16]) -> Option<Vec<u8>> {
        let last = self.bytes.len() as u64 / 512 - 1;
        Some(match command[0] {
            0x00 | 0x35 | 0x42 | 0x2a | 0x8a => Vec::new(),
            0x03 => {
                let (key, code) = core::mem::take(&mut self.sense);
                let mut sense = vec![0; 18];
                (sense[0], sense[2], sense[12]) = (0x70, key, code);
                sense
            }
            0x12 if command[1] & 1 == 0 => {
                let mut inquiry = vec![0, 0x80, 6, 2, 31, 0, 0, 0];
                inquiry.extend(b"Outboard puppet          1.0");
                inquiry.resize(36, 0);
                inquiry
            }
            0x12 => {
                let mut page = vec![0; 64];
                page[1] = command[2];
                match command[2] {
                    0xb0 => page[20..24].copy_from_slice(&64_u32.to_be_bytes()),
                    0xb2 => page[5] = 0x80,
                    _ => return None,
                }
                page
            }
            0x1a => self.modes.clone(),
            0x25 => [(last as u32).to_be_bytes(), 512_u32.to_be_bytes()].concat(),
            0x9e => {
                let mut long = last.to_be_bytes().to_vec();
                long.extend(512_u32.to_be_bytes());
                long.resize(32, 0);
                long[14] = 0x80;
                long
            }
            0x28 | 0x88 => self.bytes[self.range(command)?].to_vec(),
            _ => return None,
        })
    }

    /// Carries out what came with its data.
    fn write(&mut self, command: &[u8], bytes: &[u8]) {
        if self.has_failed {
            return;
        }
        match command[0] {
            0x42 if bytes.len() == 24 => {
                let field = |at: usize, length: usize| {
                    let bytes = bytes[at..at + length].iter();
                    bytes.fold(0, |all, byte| all << 8 | usize::from(*byte))
                };
                let start = field(8, 8).saturating_mul(512);
                let end = start.saturating_add(field(16, 4) * 512);
                if let Some(range) = self.bytes.get_mut(start..end) {
                    range.fill(0);
                }
            }
            0x2a | 0x8a => match self.range(command) {
                Some(range) if range.len() == bytes.len() => {
                    self.bytes[range].copy_from_slice(bytes);
                }
                _ => (self.has_failed, self.sense) = (true, (5, 0x21)),
            },
            _ => {}
        }
    }
}
