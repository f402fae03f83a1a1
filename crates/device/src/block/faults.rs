//! A bad disk: it fails, takes its time, and loses, tears and changes what is written to it, the
//! same way for the same seed.
//!
//! What fails is said; what is lost, torn or changed is not: the request succeeds. That is for
//! [`Integrity`](super::Integrity), and whoever else promises to notice.

use super::{BlockDevice, BlockError, Limits};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

/// What a chance is counted in.
pub const MILLION: u32 = 1_000_000;

/// What happens. Chances are parts of a [`MILLION`], of each read or write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Chance that a read, write, flush or discard fails. It does nothing then.
    pub fail: u32,
    /// Chance that a write stores nothing.
    pub lose: u32,
    /// Chance that a write stores its first bytes alone, to the middle of a block or not.
    pub tear: u32,
    /// Chance that a bit of what a write stores is another.
    pub corrupt: u32,
    /// How long each request takes longer, at most.
    pub delay: Duration,
}

/// How often each happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Happened {
    /// Requests that failed.
    pub failed: u64,
    /// Writes that stored nothing.
    pub lost: u64,
    /// Writes that stored their first bytes alone.
    pub torn: u64,
    /// Writes that stored another bit.
    pub corrupted: u64,
}

/// A disk that is not what it should be.
pub struct Faults<D> {
    disk: D,
    settings: Settings,
    happened: Happened,
    state: u64,
    /// Waits so long.
    wait: Box<dyn FnMut(Duration)>,
    /// What is stored of a write.
    bytes: Vec<u8>,
}

impl<D: BlockDevice> Faults<D> {
    /// Around `disk`, with this seed. `wait` waits so long as it is told.
    pub fn new(
        disk: D,
        settings: Settings,
        seed: u64,
        wait: impl FnMut(Duration) + 'static,
    ) -> Self {
        Self {
            disk,
            settings,
            happened: Happened::default(),
            state: seed,
            wait: Box::new(wait),
            bytes: Vec::new(),
        }
    }

    /// How often each happened so far.
    pub fn happened(&self) -> Happened {
        self.happened
    }

    /// From now on, this happens.
    pub fn set(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// The next random number (SplitMix64, Steele, Lea, Flood: "Fast splittable pseudorandom number
    /// generators", figure 17).
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A random number below this one.
    fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.random()) * u128::from(end)) >> 64) as u64
    }

    fn chance(&mut self, parts: u32) -> bool {
        self.below(MILLION.into()) < parts.into()
    }

    /// What every request meets.
    fn begin(&mut self) -> Result<(), BlockError> {
        let Settings { fail, delay, .. } = self.settings;
        let (fails, nanoseconds) = (self.chance(fail), self.below(delay.as_nanos() as u64 + 1));
        if nanoseconds > 0 {
            (self.wait)(Duration::from_nanos(nanoseconds));
        }
        if fails {
            self.happened.failed += 1;
            return Err(BlockError::Device(u16::MAX));
        }
        Ok(())
    }
}

impl<D: BlockDevice> BlockDevice for Faults<D> {
    fn capacity(&self) -> u64 {
        self.disk.capacity()
    }

    fn limits(&self) -> Limits {
        self.disk.limits()
    }

    fn read(&mut self, offset: u64, blocks: &mut [u8]) -> Result<(), BlockError> {
        self.begin()?;
        self.disk.read(offset, blocks)
    }

    /// The same numbers are drawn whatever happens, so that one setting does not change what
    /// another one does.
    fn write(&mut self, offset: u64, blocks: &[u8]) -> Result<(), BlockError> {
        let length = blocks.len() as u64;
        let limits = self.limits();
        limits.check_change(self.capacity(), offset, length)?;
        let begun = self.begin();
        let Settings {
            lose,
            tear,
            corrupt,
            ..
        } = self.settings;
        let [lost, torn, corrupted] = [lose, tear, corrupt].map(|parts| self.chance(parts));
        let (kept, bit) = (self.below(length.max(1)), self.below(8 * length.max(1)));
        begun?;
        if blocks.is_empty() || !(lost || torn || corrupted) {
            return self.disk.write(offset, blocks);
        }
        if lost {
            self.happened.lost += 1;
            return Ok(());
        }
        let mut bytes = core::mem::take(&mut self.bytes);
        bytes.clear();
        bytes.extend_from_slice(blocks);
        if corrupted {
            self.happened.corrupted += 1;
            bytes[bit as usize / 8] ^= 1 << (bit % 8);
        }
        if torn {
            self.happened.torn += 1;
            // The block in which it ends has both, and those behind it are as they were.
            let (kept, size) = (kept as usize, limits.block_size);
            let end = kept.next_multiple_of(size);
            if end > kept {
                let start = end - size;
                let mut old = alloc::vec![0; size];
                self.disk.read(offset + start as u64, &mut old)?;
                bytes[kept..end].copy_from_slice(&old[kept - start..]);
            }
            bytes.truncate(end);
        }
        let written = self.disk.write(offset, &bytes);
        self.bytes = bytes;
        written
    }

    fn flush(&mut self) -> Result<(), BlockError> {
        self.begin()?;
        self.disk.flush()
    }

    fn discard(&mut self, offset: u64, length: u64) -> Result<(), BlockError> {
        self.begin()?;
        self.disk.discard(offset, length)
    }

    fn write_zeroes(&mut self, offset: u64, length: u64) -> Result<(), BlockError> {
        self.begin()?;
        self.disk.write_zeroes(offset, length)
    }
}
