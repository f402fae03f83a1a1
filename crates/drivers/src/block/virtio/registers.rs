//! The device's own configuration (5.2.4), its features (5.2.3), its queue (5.2.2), and the words
//! of a request (5.2.6).

use hw::Register;

/// Its size in sectors: low and high half.
pub const CAPACITY: [Register; 2] = [
    Register::new("capacity", 0, "5.2.4"),
    Register::new("capacity", 4, "5.2.4"),
];
/// Most bytes of a buffer.
pub const SIZE_MAX: Register = Register::new("size_max", 8, "5.2.4");
/// Most buffers of a request's data.
pub const SEG_MAX: Register = Register::new("seg_max", 12, "5.2.4");
/// Bytes of a block.
pub const BLK_SIZE: Register = Register::new("blk_size", 20, "5.2.4");
/// Most sectors of a discard, and most ranges.
pub const DISCARD_MAX: [Register; 2] = [
    Register::new("max_discard_sectors", 36, "5.2.4"),
    Register::new("max_discard_seg", 40, "5.2.4"),
];
/// The same of a write of zeroes.
pub const ZEROES_MAX: [Register; 2] = [
    Register::new("max_write_zeroes_sectors", 48, "5.2.4"),
    Register::new("max_write_zeroes_seg", 52, "5.2.4"),
];
/// Bytes of the configuration that every device has.
pub const CONFIG_BYTES: usize = 8;

/// There is a most number of bytes of a buffer in the configuration.
pub const HAS_SIZE_MAX: u64 = 1 << 1;
/// There is a most number of buffers.
pub const HAS_SEG_MAX: u64 = 1 << 2;
/// It is not to be written.
pub const READ_ONLY: u64 = 1 << 5;
/// There are the bytes of a block in the configuration.
pub const HAS_BLK_SIZE: u64 = 1 << 6;
/// It may have a cache, and has a command that makes what was written durable.
pub const FLUSH: u64 = 1 << 9;
/// It can be told of blocks that nobody needs.
pub const DISCARD: u64 = 1 << 13;
/// It writes zeroes by itself.
pub const WRITE_ZEROES: u64 = 1 << 14;
/// All that the driver knows.
pub const KNOWN: u64 =
    HAS_SIZE_MAX | HAS_SEG_MAX | READ_ONLY | HAS_BLK_SIZE | FLUSH | DISCARD | WRITE_ZEROES;

/// The only queue that is used.
pub const REQUEST_QUEUE: u16 = 0;

/// Bytes of a sector, whatever a block has.
pub const SECTOR_BYTES: u64 = 512;

/// Types of a request.
pub const TYPE_IN: u32 = 0;
pub const TYPE_OUT: u32 = 1;
pub const TYPE_FLUSH: u32 = 4;
pub const TYPE_DISCARD: u32 = 11;
pub const TYPE_WRITE_ZEROES: u32 = 13;
/// In the flags of a range of zeroes: the device may give its room back.
pub const MAY_UNMAP: u32 = 1;

/// Status of a request: it is done.
pub const STATUS_OK: u8 = 0;
/// What a status holds before the device writes it: none that it has.
pub const STATUS_NONE: u8 = 0xff;
