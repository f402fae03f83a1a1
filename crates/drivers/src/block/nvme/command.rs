//! The words of commands and of their completions (Base 2.0, 3.3.3 and 5; NVM Command Set 1.0, 3).

use core::fmt;
use hw::Iova;

/// 64-bit words of a submission queue entry (3.3.3.1).
pub const COMMAND_WORDS: usize = 8;
/// 64-bit words of a completion queue entry (3.3.3.2).
pub const COMPLETION_WORDS: usize = 2;

/// Admin commands (Base 2.0, figure 138).
mod admin {
    pub const CREATE_SUBMISSION_QUEUE: u32 = 0x01;
    pub const CREATE_COMPLETION_QUEUE: u32 = 0x05;
    pub const IDENTIFY: u32 = 0x06;
    pub const ABORT: u32 = 0x08;
    pub const SET_FEATURES: u32 = 0x09;
}
/// Commands of the NVM Command Set (1.0, figure 14).
mod nvm {
    pub const FLUSH: u32 = 0x00;
    pub const WRITE: u32 = 0x01;
    pub const READ: u32 = 0x02;
    pub const WRITE_ZEROES: u32 = 0x08;
    pub const DATASET_MANAGEMENT: u32 = 0x09;
}

/// What Identify is asked for (5.17.1, CNS).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identify {
    /// A namespace of the NVM Command Set.
    Namespace = 0x00,
    /// The controller.
    Controller = 0x01,
    /// Active namespaces with larger numbers than the command's.
    Namespaces = 0x02,
}

/// Feature: Number of Queues (5.27.1.5).
const FEATURE_QUEUES: u32 = 0x07;
/// Create I/O Completion Queue, dword 11: physically contiguous; no interrupts.
const CONTIGUOUS: u32 = 1 << 0;
/// Dataset Management, dword 11: deallocate (NVM Command Set 1.0, 3.2.3).
const DEALLOCATE: u32 = 1 << 2;
/// Write Zeroes, dword 12: the blocks may be deallocated (3.2.8).
const MAY_DEALLOCATE: u32 = 1 << 25;

/// A command, but for its identifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Command {
    pub opcode: u32,
    pub namespace: u32,
    /// Physical region pages: what the data consists of (4.1.1).
    pub pages: [u64; 2],
    /// Dwords 10 to 12; the driver uses none behind.
    pub dwords: [u32; 3],
}

impl Command {
    /// The words of its entry, with an identifier.
    #[inline]
    pub fn words(&self, id: u16) -> [u64; COMMAND_WORDS] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let [a, b, c] = self.dwords;
        let [first, second] = self.pages;
        [
            pair(self.opcode | u32::from(id) << 16, self.namespace),
            0,
            0,
            first,
            second,
            pair(a, b),
            pair(c, 0),
            0,
        ]
    }

    /// Identify (5.17), into a page.
    pub fn identify(what: Identify, namespace: u32, page: Iova) -> Self {
        Self {
            opcode: admin::IDENTIFY,
            namespace,
            pages: [page.raw(), 0],
            dwords: [what as u32, 0, 0],
        }
    }

    /// Set Features: one I/O queue of each kind, less one (5.27.1.5).
    pub fn one_queue() -> Self {
        Self {
            opcode: admin::SET_FEATURES,
            dwords: [FEATURE_QUEUES, 0, 0],
            ..Self::default()
        }
    }

    /// Create I/O Completion Queue (5.5), which is looked at and never interrupts.
    pub fn create_completions(number: u16, entries: u16, ring: Iova) -> Self {
        Self {
            opcode: admin::CREATE_COMPLETION_QUEUE,
            pages: [ring.raw(), 0],
            dwords: [queue_of(number, entries), CONTIGUOUS, 0],
            ..Self::default()
        }
    }

    /// Create I/O Submission Queue (5.6), whose completions come in the queue of the same number.
    pub fn create_submissions(number: u16, entries: u16, ring: Iova) -> Self {
        Self {
            opcode: admin::CREATE_SUBMISSION_QUEUE,
            pages: [ring.raw(), 0],
            dwords: [
                queue_of(number, entries),
                u32::from(number) << 16 | CONTIGUOUS,
                0,
            ],
            ..Self::default()
        }
    }

    /// Abort a command of a submission queue (5.1).
    pub fn abort(queue: u16, id: u16) -> Self {
        Self {
            opcode: admin::ABORT,
            dwords: [u32::from(id) << 16 | u32::from(queue), 0, 0],
            ..Self::default()
        }
    }

    /// Read blocks (NVM Command Set 1.0, 3.2.4), 1 to 65536.
    #[inline]
    pub fn read(namespace: u32, block: u64, blocks: u32, pages: [u64; 2]) -> Self {
        Self::of_blocks(nvm::READ, namespace, block, blocks, pages)
    }

    /// Write blocks (3.2.6), 1 to 65536.
    #[inline]
    pub fn write(namespace: u32, block: u64, blocks: u32, pages: [u64; 2]) -> Self {
        Self::of_blocks(nvm::WRITE, namespace, block, blocks, pages)
    }

    /// Make blocks zero (3.2.8), 1 to 65536; their room may be given back.
    pub fn write_zeroes(namespace: u32, block: u64, blocks: u32) -> Self {
        let mut command = Self::of_blocks(nvm::WRITE_ZEROES, namespace, block, blocks, [0; 2]);
        command.dwords[2] |= MAY_DEALLOCATE;
        command
    }

    /// Give the room of one range of blocks back (3.2.3), which is described in a page.
    pub fn deallocate(namespace: u32, ranges: u64) -> Self {
        Self {
            opcode: nvm::DATASET_MANAGEMENT,
            namespace,
            pages: [ranges, 0],
            dwords: [0, DEALLOCATE, 0],
        }
    }

    /// What was written before survives a loss of power when it is done (Base 2.0, 7.1).
    pub fn flush(namespace: u32) -> Self {
        Self {
            opcode: nvm::FLUSH,
            namespace,
            ..Self::default()
        }
    }

    #[inline]
    fn of_blocks(opcode: u32, namespace: u32, block: u64, blocks: u32, pages: [u64; 2]) -> Self {
        Self {
            opcode,
            namespace,
            pages,
            dwords: [block as u32, (block >> 32) as u32, (blocks - 1) & 0xffff],
        }
    }
}

/// Dword 10 of both commands that create a queue: its size less one, and its number.
fn queue_of(number: u16, entries: u16) -> u32 {
    u32::from(entries - 1) << 16 | u32::from(number)
}

/// A range of blocks for Dataset Management, as two words (figure 37).
pub fn range(block: u64, blocks: u32) -> [u64; 2] {
    [u64::from(blocks) << 32, block]
}

/// The second word of a completion, taken apart; the phase tag is its bit 48.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// SQHD.
    pub head: u16,
    /// SQID.
    pub queue: u16,
    /// CID.
    pub id: u16,
    /// Whether it was done, and if not, why.
    pub status: Status,
}

/// The phase tag in the second word.
pub const PHASE: u64 = 1 << 48;

impl Completion {
    /// Of the second word.
    #[inline]
    pub fn of(word: u64) -> Self {
        Self {
            head: word as u16,
            queue: (word >> 16) as u16,
            id: (word >> 32) as u16,
            status: Status((word >> 49) as u16),
        }
    }
}

/// The status of a completion (3.3.3.2.1): 8 bits of code, 3 of type, and how to go on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Status(pub u16);

impl Status {
    /// Type and code.
    const CODE: u16 = 0x7ff;
    /// Do Not Retry.
    const FINAL: u16 = 1 << 14;
    const ABORT_REQUESTED: u16 = 0x07;
    const WRITE_PROTECTED: u16 = 0x20;

    /// Done.
    #[inline]
    pub fn is_success(self) -> bool {
        self.code() == 0
    }

    /// Its type, in bits 8 to 10, and code.
    #[inline]
    pub fn code(self) -> u16 {
        self.0 & Self::CODE
    }

    /// The namespace is not to be written.
    pub fn is_write_protected(self) -> bool {
        self.code() == Self::WRITE_PROTECTED
    }

    /// Its meaning, for the codes that are seen most.
    fn meaning(self) -> &'static str {
        match self.code() {
            0x000 => "done",
            0x001 => "no such command",
            0x002 => "an invalid field",
            0x004 => "its data could not be transferred",
            0x006 => "an internal error",
            Self::ABORT_REQUESTED => "aborted, as was asked for",
            0x00b => "no such namespace, or none of that format",
            Self::WRITE_PROTECTED => "the namespace is not to be written",
            0x080 => "beyond the namespace",
            0x081 => "no room is left",
            0x082 => "the namespace is not ready",
            0x280 => "a write fault",
            0x281 => "blocks cannot be read",
            0x286 => "access denied",
            0x287 => "blocks that were given back",
            _ => "an error",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, code) = (self.0 >> 8 & 7, self.0 & 0xff);
        write!(f, "{} (type {kind}, code {code:#04x})", self.meaning())?;
        match self.0 & Self::FINAL {
            0 => Ok(()),
            _ => f.write_str(", and would be again"),
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Status({self})")
    }
}
