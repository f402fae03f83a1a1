//! A block device.

/// Why a transfer did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockError {
    /// Offset or length is not a multiple of the block size, or the range leaves the device.
    OutOfRange,
    /// The host refused the transfer, with this error number.
    Host(i32),
}

impl core::fmt::Display for BlockError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::OutOfRange => write!(f, "not whole blocks of the device"),
            Self::Host(errno) => write!(f, "the host refused the transfer (errno {errno})"),
        }
    }
}

impl core::error::Error for BlockError {}

/// A disk.
pub trait BlockDevice {
    /// Size in bytes, a multiple of the block size.
    fn capacity(&self) -> u64;

    /// Size of a block in bytes.
    fn block_size(&self) -> usize;

    /// Reads whole blocks at `offset` bytes.
    ///
    /// # Errors
    /// [`BlockError`]; blocks before the one that failed have been read.
    fn read(&mut self, offset: u64, blocks: &mut [u8]) -> Result<(), BlockError>;

    /// Writes whole blocks at `offset` bytes.
    ///
    /// # Errors
    /// [`BlockError`]; blocks before the one that failed have been written.
    fn write(&mut self, offset: u64, blocks: &[u8]) -> Result<(), BlockError>;
}
