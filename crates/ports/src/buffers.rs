//! How many packet buffers an image has, and where they lie.

use abi::link::SLOT_BYTES;
use abi::pci::DMA_GRANULE;
use device::{BATCH_FRAMES_MAX, FRAME_BYTES_MAX, HEADROOM};

/// Bytes of a packet buffer: the largest frame with its headroom and one byte by which a longer
/// one is noticed, in whole cache lines. The number of lines is odd, so that the first lines of
/// successive buffers, all that small frames touch, fall into different sets of the cache.
pub const BUFFER_BYTES: usize = 16 * 4096 + 3 * 64;
const _: () = assert!(HEADROOM + FRAME_BYTES_MAX < BUFFER_BYTES);
// What is received over a link fits, wherever in a word it begins.
const _: () = assert!(HEADROOM + FRAME_BYTES_MAX + 2 * size_of::<u64>() <= BUFFER_BYTES);
// So does what is received into the slots of a link.
const _: () = assert!(BUFFER_BYTES <= SLOT_BYTES);

/// Packet buffers wanted: a full batch, the segments of one frame, and some for appliances to keep.
pub const BUFFERS: usize = BATCH_FRAMES_MAX + 64;

/// Packet buffers wanted beyond that for each network with rings: what the host has at a time.
const RING_BUFFERS: usize = 2 * BATCH_FRAMES_MAX;

/// The part of guest memory that packet buffers may take at most: one half.
const ARENA_PART: usize = 2;

/// DMA memory that is left to each driver, in bytes.
const DRIVER_BYTES: usize = DMA_GRANULE as usize;

/// Packet buffers that an image with so many networks of the host's wants.
pub fn wanted(networks: usize, rings: bool) -> usize {
    match (networks, rings) {
        (0, _) => 0,
        (_, false) => BUFFERS,
        (_, true) => BUFFERS + networks * RING_BUFFERS,
    }
}

/// How many of them lie in `bytes` of DMA memory, beside what the drivers of so many devices take:
/// none if that is too few to be of use.
pub fn in_dma(wanted: usize, bytes: usize, devices: usize) -> usize {
    let buffers = bytes.saturating_sub(devices * DRIVER_BYTES) / BUFFER_BYTES;
    match buffers {
        0..BATCH_FRAMES_MAX => 0,
        _ => buffers.min(wanted),
    }
}

/// Bytes for `wanted` buffers out of `free` bytes of memory behind the image.
pub fn arena_bytes(wanted: usize, free: usize) -> usize {
    (free / ARENA_PART / BUFFER_BYTES).min(wanted) * BUFFER_BYTES
}

/// How many of `count` buffers each of so many networks may keep in its ring for frames that are
/// to come: all networks together half of them, so that there are some to send.
pub(crate) fn for_ring(count: usize, networks: usize) -> usize {
    (count / (2 * networks.max(1))).min(BATCH_FRAMES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_take_half_of_a_small_memory_and_no_more_than_is_wanted() {
        assert_eq!(wanted(0, true), 0);
        assert_eq!(wanted(2, false), BUFFERS);
        assert_eq!(wanted(2, true), BUFFERS + 2 * RING_BUFFERS);
        assert_eq!(arena_bytes(10, 7 * BUFFER_BYTES), 3 * BUFFER_BYTES);
        assert_eq!(arena_bytes(10, 70 * BUFFER_BYTES), 10 * BUFFER_BYTES);
    }

    #[test]
    fn drivers_come_before_packet_buffers() {
        let few = 2 * DRIVER_BYTES + (BATCH_FRAMES_MAX - 1) * BUFFER_BYTES;
        assert_eq!(in_dma(BUFFERS, few, 2), 0);
        assert_eq!(in_dma(BUFFERS, few + BUFFER_BYTES, 2), BATCH_FRAMES_MAX);
        assert_eq!(in_dma(BUFFERS, 1 << 30, 2), BUFFERS);
        assert_eq!(in_dma(0, 1 << 30, 2), 0);
        assert_eq!(in_dma(BUFFERS, 1 << 20, 9), 0);
    }

    #[test]
    fn rings_leave_half_of_the_buffers_to_senders() {
        assert_eq!(for_ring(100, 2), 25);
        assert_eq!(for_ring(10_000, 1), BATCH_FRAMES_MAX);
        assert_eq!(for_ring(10, 0), 5);
    }
}
