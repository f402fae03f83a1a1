//! What the device says of itself (5.2.4): read while it does not change, and checked.

use super::registers::*;
use super::slots::PARTS_MAX;
use crate::virtio::{Error, Transport, transport};
use device::block::{Durability, Limits};

/// Bytes of a transfer, at most: fewer than a device may take, so that none takes it long.
const TRANSFER_BYTES_MAX: usize = 256 << 10;
/// Bytes of a block, at most.
const BLOCK_BYTES_MAX: usize = 64 << 10;

/// What a disk is like. Behind a reset it is compared as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes, whole blocks.
    pub capacity: u64,
    pub limits: Limits,
    /// Whether what was written may be lost until it is flushed.
    pub has_cache: bool,
}

impl Geometry {
    /// Of a device that has accepted these features.
    ///
    /// # Errors
    /// [`Error::Config`], if what it says cannot be.
    pub fn read<T: Transport>(transport: &T, features: u64) -> Result<Self, Error> {
        let has = |feature: u64| features & feature != 0;
        let read = |transport: &T| {
            let [low, high] = CAPACITY.map(|half| u64::from(transport.config(half)));
            let sizes = [BLK_SIZE, SIZE_MAX, SEG_MAX].map(|field| transport.config(field));
            let ranges =
                [DISCARD_MAX, ZEROES_MAX].map(|both| both.map(|one| transport.config(one)));
            (low | high << 32, sizes, ranges)
        };
        let (sectors, [block, most, parts], [discard, zeroes]) = transport::stable(transport, read);
        let block_size = match has(HAS_BLK_SIZE) {
            true => block as usize,
            false => SECTOR_BYTES as usize,
        };
        let sizes = SECTOR_BYTES as usize..=BLOCK_BYTES_MAX;
        if !block_size.is_power_of_two() || !sizes.contains(&block_size) {
            return Err(Error::Config("its size of a block"));
        }
        let most = match has(HAS_SIZE_MAX) {
            true => TRANSFER_BYTES_MAX.min(most as usize),
            false => TRANSFER_BYTES_MAX,
        };
        let transfer_bytes_max = most / block_size * block_size;
        if transfer_bytes_max == 0 {
            return Err(Error::Config("its most bytes of a transfer"));
        }
        let bytes = sectors.checked_mul(SECTOR_BYTES);
        let bytes = bytes.ok_or(Error::Config("its capacity"))?;
        let block_bytes = block_size as u64;
        // Most bytes of a range; none of a device that does not offer it, or allows for none.
        let range = |feature: u64, [sectors, ranges]: [u32; 2]| {
            let bytes = u64::from(sectors) * SECTOR_BYTES / block_bytes * block_bytes;
            Some(bytes).filter(|bytes| has(feature) && ranges > 0 && *bytes > 0)
        };
        let (discard, zeroes) = (range(DISCARD, discard), range(WRITE_ZEROES, zeroes));
        let limits = Limits {
            block_size,
            transfer_bytes_max,
            buffers_max: match has(HAS_SEG_MAX) {
                true => (parts as usize).clamp(1, PARTS_MAX),
                false => 1,
            },
            alignment: 1,
            range_bytes_max: discard.into_iter().chain(zeroes).min().unwrap_or(0),
            read_only: has(READ_ONLY),
            durability: match has(FLUSH) {
                true => Durability::Flushed,
                false => Durability::Written,
            },
            discard: discard.is_some(),
            write_zeroes: zeroes.is_some(),
        };
        Ok(Self {
            capacity: bytes / block_bytes * block_bytes,
            limits,
            has_cache: has(FLUSH),
        })
    }
}
