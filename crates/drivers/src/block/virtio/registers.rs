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
/// Bytes of a block.
pub const BLK_SIZE: Register = Register::new("blk_size", 20, "5.2.4");
/// Bytes of the configuration that every device has.
pub const CONFIG_BYTES: usize = 8;

/// There is a most number of bytes of a buffer in the configuration.
pub const HAS_SIZE_MAX: u64 = 1 << 1;
/// It is not to be written.
pub const READ_ONLY: u64 = 1 << 5;
/// There are the bytes of a block in the configuration.
pub const HAS_BLK_SIZE: u64 = 1 << 6;

/// The only queue that is used.
pub const REQUEST_QUEUE: u16 = 0;

/// Bytes of a sector, whatever a block has.
pub const SECTOR_BYTES: u64 = 512;

/// Type of a request: the device fills the buffer.
pub const TYPE_IN: u32 = 0;
/// The device stores the buffer.
pub const TYPE_OUT: u32 = 1;

/// Status of a request: it is done.
pub const STATUS_OK: u8 = 0;
/// What a status holds before the device writes it: none that it has.
pub const STATUS_NONE: u8 = 0xff;
