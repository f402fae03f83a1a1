//! A disk (5.2).
//!
//! | module | what | section |
//! |---|---|---|
//! | [`request`] | requests, one by one | 5.2.6 |
//!
//! Each request is done before the next one is taken, so that queues only spread what the driver
//! does. Payload goes between the file and the driver's buffers without a copy.
//!
//! What it leaves out: lifetime metrics and secure erase, of which a file knows nothing.

mod request;
#[cfg(test)]
mod tests;

use super::chain::Chain;
use super::device::{QueueKind, VirtioDevice, copy_config};
use super::queue::Virtqueue;
use super::work::Work;
use crate::device::{Device, Progress};
use crate::disk::Disk;
use crate::misbehaviour::Fault;
use crate::model::{DiskSetup, Make, Model};
use crate::violation::Queue;

/// Device ID (5.2.1).
pub(super) const ID: u16 = 2;

/// Features (5.2.3).
pub(super) mod feature {
    pub const SIZE_MAX: u64 = 1 << 1;
    pub const SEG_MAX: u64 = 1 << 2;
    pub const RO: u64 = 1 << 5;
    pub const BLK_SIZE: u64 = 1 << 6;
    pub const FLUSH: u64 = 1 << 9;
    pub const TOPOLOGY: u64 = 1 << 10;
    pub const CONFIG_WCE: u64 = 1 << 11;
    pub const MQ: u64 = 1 << 12;
    pub const DISCARD: u64 = 1 << 13;
    pub const WRITE_ZEROES: u64 = 1 << 14;
}

/// All that are offered, but for those of a disk that is only to be read, or can be written.
const FEATURES: u64 = feature::SIZE_MAX
    | feature::SEG_MAX
    | feature::BLK_SIZE
    | feature::FLUSH
    | feature::TOPOLOGY
    | feature::CONFIG_WCE
    | feature::MQ;
const FEATURES_WRITABLE: u64 = feature::DISCARD | feature::WRITE_ZEROES;

/// Bytes of a sector, in which everything is counted (5.2.4).
const SECTOR: u64 = 512;
/// Queues, and most descriptors of one: as many as QEMU's virtio-mmio has, whose drivers take all.
const QUEUES: u16 = 4;
const DESCRIPTORS_MAX: u16 = 1024;
/// Most bytes of a segment, and most segments of a request.
const SIZE_MAX: u32 = 1 << 20;
const SEG_MAX: u32 = 254;
/// Sectors of 512 bytes, as a power of two, in the blocks that files have.
const PHYSICAL_BLOCK_EXPONENT: u8 = 3;
/// Most sectors and segments of a discard, or of zeros that are written.
const DISCARD_SECTORS_MAX: u32 = 1 << 21;
const DISCARD_SEGMENTS_MAX: u32 = 16;
/// Where `writeback` lies in the configuration.
const WRITEBACK: usize = 32;
/// Requests that one poll does.
const POLL_REQUESTS: u32 = 64;
/// Bytes of the name of a disk (5.2.6).
const NAME_BYTES: usize = 20;

/// What [`MODELS`](crate::MODELS) says of it.
pub(crate) const MODEL: Model = Model {
    name: "virtio-blk",
    about: "virtio 1.2 disk",
    make: Make::Disk(|DiskSetup { disk, misbehaviour }| -> Box<dyn Device> {
        Box::new(super::Pci::new(VirtioBlk::new(disk), &misbehaviour))
    }),
    back_end: Some(Make::Disk(|DiskSetup { disk, .. }| {
        Box::new(VirtioBlk::new(disk))
    })),
};

/// A virtio disk over a file.
#[derive(Debug)]
pub struct VirtioBlk {
    disk: Disk,
    name: [u8; NAME_BYTES],
    features: u64,
    /// Whether what is written may be lost until it is flushed.
    writeback: bool,
    hung: bool,
    chain: Chain,
}

impl VirtioBlk {
    /// A disk whose name is that of its file.
    pub fn new(disk: Disk) -> Self {
        let mut name = [0; NAME_BYTES];
        for (place, byte) in name.iter_mut().zip(disk.name().bytes()) {
            *place = byte;
        }
        Self {
            disk,
            name,
            features: 0,
            writeback: true,
            hung: false,
            chain: Chain::default(),
        }
    }

    /// Sectors of it; what is left of the file is nobody's.
    fn sectors(&self) -> u64 {
        self.disk.bytes() / SECTOR
    }

    /// The configuration (5.2.4).
    fn config(&self) -> [u8; 60] {
        let mut config = [0; 60];
        let mut set = |at: usize, bytes: &[u8]| config[at..at + bytes.len()].copy_from_slice(bytes);
        set(0, &self.sectors().to_le_bytes());
        set(8, &SIZE_MAX.to_le_bytes());
        set(12, &SEG_MAX.to_le_bytes());
        set(20, &(SECTOR as u32).to_le_bytes());
        // The best size of a request is not known: zero.
        set(24, &[PHYSICAL_BLOCK_EXPONENT, 0, 1, 0]);
        set(WRITEBACK, &[self.writeback.into()]);
        set(34, &QUEUES.to_le_bytes());
        set(36, &DISCARD_SECTORS_MAX.to_le_bytes());
        set(40, &DISCARD_SEGMENTS_MAX.to_le_bytes());
        set(44, &(1u32 << PHYSICAL_BLOCK_EXPONENT).to_le_bytes());
        set(48, &DISCARD_SECTORS_MAX.to_le_bytes());
        set(52, &DISCARD_SEGMENTS_MAX.to_le_bytes());
        // Zeros may give room back.
        set(56, &[1]);
        config
    }
}

impl VirtioDevice for VirtioBlk {
    fn id(&self) -> u16 {
        ID
    }

    fn features(&self) -> u64 {
        match self.disk.is_read_only() {
            true => FEATURES | feature::RO,
            false => FEATURES | FEATURES_WRITABLE,
        }
    }

    fn queues(&self) -> Vec<QueueKind> {
        let queue = |number: u16| QueueKind {
            name: Queue::Request(number as u8),
            size_max: DESCRIPTORS_MAX,
        };
        (0..QUEUES).map(queue).collect()
    }

    fn read_config(&mut self, offset: usize, bytes: &mut [u8]) {
        copy_config(&self.config(), offset, bytes);
    }

    fn write_config(&mut self, offset: usize, bytes: &[u8], features: u64) -> bool {
        let writeback = match (offset, bytes) {
            (WRITEBACK, [0]) => false,
            (WRITEBACK, [1]) => true,
            _ => return false,
        };
        let may = features & feature::CONFIG_WCE != 0;
        if may {
            self.writeback = writeback;
        }
        may
    }

    fn start(&mut self, features: u64) {
        self.features = features;
        // 5.2.6.2: who cannot flush need not.
        self.writeback &= features & feature::FLUSH != 0;
    }

    fn reset(&mut self) {
        self.features = 0;
        self.writeback = true;
        self.hung = false;
    }

    fn poll(&mut self, queues: &mut [Virtqueue], work: &mut Work<'_>) -> Progress {
        let mut left = POLL_REQUESTS;
        let mut chain = std::mem::take(&mut self.chain);
        for queue in queues {
            if !queue.is_notified() {
                continue;
            }
            queue.silence(work);
            loop {
                while left > 0 && queue.take(&mut chain, work) {
                    left -= 1;
                    self.hung |= work.faults.strikes(Fault::TransmitHang);
                    if self.hung {
                        continue;
                    }
                    let early = work.faults.strikes(Fault::EarlyDone);
                    if early {
                        queue.give_back(chain.head, 1, work);
                        queue.publish(work);
                    }
                    let written = self.answer(&chain, queue.name, work);
                    if !early {
                        queue.give_back(chain.head, written, work);
                    }
                }
                queue.publish(work);
                if left == 0 || !queue.listen(work) {
                    break;
                }
            }
        }
        self.chain = chain;
        Progress {
            received: 0,
            transmitted: POLL_REQUESTS - left,
        }
    }
}
