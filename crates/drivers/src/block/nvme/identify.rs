//! What the device says of itself (Base 2.0, 5.17.2; NVM Command Set 1.0, 4.1.5): read once, and
//! checked.

use super::error::Error;
use super::pages::{PAGE, TRANSFER_BYTES_MAX};

/// Bytes of each of these structures.
pub const BYTES: usize = 4096;
/// Blocks that the driver can use, in bytes.
const BLOCK_BYTES: [usize; 2] = [512, 4096];
/// What the driver's own limit is as MDTS.
const TRANSFER_SHIFT: u32 = (TRANSFER_BYTES_MAX / PAGE).trailing_zeros();

/// What the controller can do, and which one it is. Behind a reset it is compared as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Controller {
    /// SN, and MN and FR (figure 275): another one of its model has another serial number.
    pub serial: [u8; 20],
    pub model: [u8; 48],
    /// Most bytes of a transfer.
    pub transfer_bytes_max: usize,
    /// ONCS, bit 2.
    pub deallocates: bool,
    /// ONCS, bit 3.
    pub writes_zeroes: bool,
    /// VWC, bit 0: what was written may be lost until it is flushed.
    pub has_cache: bool,
}

/// What a namespace is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Its number.
    pub number: u32,
    /// NGUID and EUI64 (figure 97): another one has others, or none.
    pub name: [u8; 24],
    pub block_size: usize,
    /// Bytes, whole blocks.
    pub capacity: u64,
    /// NSATTR, bit 0.
    pub read_only: bool,
}

fn some<const N: usize>(page: &[u8], at: usize) -> [u8; N] {
    core::array::from_fn(|n| page[at + n])
}

fn word(page: &[u8], at: usize) -> u16 {
    u16::from(page[at]) | u16::from(page[at + 1]) << 8
}

fn long(page: &[u8], at: usize) -> u32 {
    u32::from(word(page, at)) | u32::from(word(page, at + 2)) << 16
}

impl Controller {
    /// Of the structure (figure 275).
    ///
    /// # Errors
    /// [`Error`], if the driver cannot use such a one.
    pub fn of(page: &[u8]) -> Result<Self, Error> {
        // SQES and CQES: the least size of entries, as a power of two.
        if (page[512] & 0xf, page[513] & 0xf) != (6, 4) {
            return Err(Error::Config("the least sizes of its queues' entries"));
        }
        // MDTS: a power of two of pages of the least size, which is 4 KiB here; 0 for no limit.
        let transfer = match u32::from(page[77]) {
            shift @ 1..TRANSFER_SHIFT => PAGE << shift,
            _ => TRANSFER_BYTES_MAX,
        };
        let offers = word(page, 520);
        Ok(Self {
            serial: some(page, 4),
            model: some(page, 24),
            transfer_bytes_max: transfer,
            deallocates: offers & 1 << 2 != 0,
            writes_zeroes: offers & 1 << 3 != 0,
            has_cache: page[525] & 1 != 0,
        })
    }
}

impl Namespace {
    /// Of the structure (NVM Command Set 1.0, figure 97).
    ///
    /// # Errors
    /// [`Error`], if the driver cannot use such a one.
    pub fn of(number: u32, page: &[u8]) -> Result<Self, Error> {
        let blocks = u64::from(long(page, 0)) | u64::from(long(page, 4)) << 32;
        // FLBAS: the index of the format, in two parts.
        let flbas = page[26];
        let index = usize::from(flbas & 0xf | flbas >> 1 & 0x30);
        // NLBAF counts from 0. Where it says less than 16, the upper part is not used.
        let formats = usize::from(page[25]) + 1;
        let index = if formats <= 16 { index & 0xf } else { index };
        if index >= formats.min(64) {
            return Err(Error::Config("the format of its namespace"));
        }
        let format = long(page, 128 + 4 * index);
        if format & 0xffff != 0 {
            return Err(Error::Lacks("metadata in its namespace: format it without"));
        }
        let shift = format >> 16 & 0xff;
        let is_that = |bytes: &usize| bytes.trailing_zeros() == shift;
        let block_size = BLOCK_BYTES.into_iter().find(is_that);
        let block_size = block_size.ok_or(Error::Lacks(
            "blocks of neither 512 nor 4096 bytes: format it with those",
        ))?;
        let capacity = blocks.checked_mul(block_size as u64);
        Ok(Self {
            number,
            name: some(page, 104),
            block_size,
            capacity: capacity.ok_or(Error::Config("the size of its namespace"))?,
            read_only: page[99] & 1 != 0,
        })
    }
}

/// The number behind which a list of namespaces is asked for (5.17.2.2).
pub fn behind(wanted: Option<u32>) -> u32 {
    wanted.map_or(0, |number| number.saturating_sub(1))
}

/// The namespace that is wanted, or else the first one, of a list of those [`behind`] it.
///
/// # Errors
/// [`Error::Namespace`], if there is none.
pub fn namespace(page: &[u8], wanted: Option<u32>) -> Result<u32, Error> {
    // The list ends with a zero.
    let first = Some(long(page, 0)).filter(|number| *number != 0);
    let found = first.filter(|first| wanted.is_none_or(|wanted| wanted == *first));
    found.ok_or(Error::Namespace(wanted))
}
