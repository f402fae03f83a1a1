//! The words of commands: a header in the list (AHCI 1.3.1, 4.2.2), and the frame that goes to the
//! disk (Serial ATA 3.0, 10.3.4; commands of ACS-2, by their names there).

/// 64-bit words of a header.
pub const HEADER_WORDS: usize = 4;
/// 64-bit words of a frame to the disk, the last one half used.
pub const FRAME_WORDS: usize = 3;

/// Dwords of a frame (CFL).
const FRAME_DWORDS: u64 = 5;
/// Register - Host to Device (Serial ATA 3.0, 10.3.4), and its bit that says it is a command.
const FRAME_TO_DEVICE: u64 = 0x27;
const FRAME_IS_COMMAND: u64 = 1 << 15;
/// DEVICE, bit 6: the address is that of a block.
const DEVICE_BLOCKS: u64 = 1 << 6;

/// Commands (ACS-2, by these names).
const DATA_SET_MANAGEMENT: u8 = 0x06;
const READ_DMA_EXT: u8 = 0x25;
const WRITE_DMA_EXT: u8 = 0x35;
const READ_FPDMA_QUEUED: u8 = 0x60;
const WRITE_FPDMA_QUEUED: u8 = 0x61;
const FLUSH_CACHE_EXT: u8 = 0xea;
const IDENTIFY_DEVICE: u8 = 0xec;

/// DATA SET MANAGEMENT, FEATURE bit 0: nobody needs these blocks (TRIM).
const TRIM: u16 = 1;

/// A command, but for its tag and where its data lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    opcode: u8,
    feature: u16,
    block: u64,
    count: u16,
    /// Whether it may be one of many: its count is in FEATURE, and its tag in COUNT.
    pub is_queued: bool,
    /// Whether its data go to the disk.
    is_write: bool,
}

impl Command {
    const fn plain(opcode: u8) -> Self {
        Self {
            opcode,
            feature: 0,
            block: 0,
            count: 0,
            is_queued: false,
            is_write: false,
        }
    }

    /// Reads blocks, 1 to 65536 (0 stands for 65536).
    #[inline]
    pub fn read(is_queued: bool, block: u64, blocks: u32) -> Self {
        let opcode = match is_queued {
            true => READ_FPDMA_QUEUED,
            false => READ_DMA_EXT,
        };
        Self::of_blocks(opcode, is_queued, false, block, blocks)
    }

    /// Writes blocks, 1 to 65536.
    #[inline]
    pub fn write(is_queued: bool, block: u64, blocks: u32) -> Self {
        let opcode = match is_queued {
            true => WRITE_FPDMA_QUEUED,
            false => WRITE_DMA_EXT,
        };
        Self::of_blocks(opcode, is_queued, true, block, blocks)
    }

    #[inline]
    fn of_blocks(opcode: u8, is_queued: bool, is_write: bool, block: u64, blocks: u32) -> Self {
        let blocks = blocks as u16;
        let (feature, count) = match is_queued {
            true => (blocks, 0),
            false => (0, blocks),
        };
        Self {
            opcode,
            feature,
            block,
            count,
            is_queued,
            is_write,
        }
    }

    /// What was written before survives a loss of power when it is done.
    pub fn flush() -> Self {
        Self::plain(FLUSH_CACHE_EXT)
    }

    /// Nobody needs the blocks of the ranges that its data of 512 bytes tell.
    pub fn trim() -> Self {
        Self {
            feature: TRIM,
            count: 1,
            is_write: true,
            ..Self::plain(DATA_SET_MANAGEMENT)
        }
    }

    /// What the disk is like, in 512 bytes.
    pub fn identify() -> Self {
        Self::plain(IDENTIFY_DEVICE)
    }

    /// The frame that tells the disk.
    #[inline]
    pub fn frame(&self, tag: usize) -> [u64; FRAME_WORDS] {
        let (feature, block) = (u64::from(self.feature), self.block);
        let count = match self.is_queued {
            true => (tag as u64) << 3,
            false => u64::from(self.count),
        };
        let first = FRAME_TO_DEVICE
            | FRAME_IS_COMMAND
            | u64::from(self.opcode) << 16
            | (feature & 0xff) << 24
            | (block & 0xff_ffff) << 32
            | DEVICE_BLOCKS << 56;
        let second = block >> 24 & 0xff_ffff | (feature >> 8) << 24 | count << 32;
        [first, second, 0]
    }

    /// The header: a table of so many regions at this address.
    #[inline]
    pub fn header(&self, regions: usize, table: u64) -> [u64; HEADER_WORDS] {
        let writes = u64::from(self.is_write) << 6;
        let first = FRAME_DWORDS | writes | (regions as u64) << 16;
        [first, table, 0, 0]
    }
}

/// Blocks of one range of TRIM, at most, and ranges of 512 bytes.
pub const RANGE_BLOCKS: u64 = 0xffff;
pub const RANGES: usize = 64;

/// The ranges of so many blocks, from `block` on; those that are not needed are empty.
pub fn ranges(block: u64, blocks: u64) -> impl Iterator<Item = u64> {
    (0..RANGES as u64).map(move |index| {
        let before = index * RANGE_BLOCKS;
        match blocks.saturating_sub(before).min(RANGE_BLOCKS) {
            0 => 0,
            count => count << 48 | (block + before) & 0xffff_ffff_ffff,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn bytes(words: [u64; FRAME_WORDS]) -> Vec<u8> {
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    #[test]
    fn frames_are_those_of_the_specification() {
        let frame = bytes(Command::read(true, 0x1234_5678_9abc, 0x1_0203).frame(5));
        let wanted = [
            0x27,
            0x80,
            0x60,
            0x03,
            0xbc,
            0x9a,
            0x78,
            0x40,
            0x56,
            0x34,
            0x12,
            0x02,
            5 << 3,
            0,
            0,
            0,
        ];
        assert_eq!(frame[..16], wanted);
        let frame = bytes(Command::write(false, 7, 0x0203).frame(5));
        let wanted = [0x27, 0x80, 0x35, 0, 7, 0, 0, 0x40, 0, 0, 0, 0, 0x03, 0x02];
        assert_eq!(frame[..14], wanted);
        assert_eq!(bytes(Command::trim().frame(0))[2..4], [0x06, 1]);
        assert_eq!(bytes(Command::flush().frame(0))[2], 0xea);
        assert_eq!(Command::flush().header(0, 0x80)[..2], [5, 0x80]);
        assert_eq!(Command::trim().header(1, 0)[0], 5 | 1 << 6 | 1 << 16);
    }

    #[test]
    fn ranges_follow_one_another_and_end() {
        let all: Vec<_> = ranges(9, 0x1_0001).collect();
        assert_eq!(all[..3], [0xffff << 48 | 9, 2 << 48 | (9 + 0xffff), 0]);
        assert_eq!(all.len(), 64);
        let most = RANGE_BLOCKS * RANGES as u64;
        assert!(ranges(0, most).all(|range| range >> 48 == 0xffff));
    }
}
