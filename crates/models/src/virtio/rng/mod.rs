//! A source of entropy (5.4): the kernel's.

use super::chain::Chain;
use super::device::{QueueKind, VirtioDevice};
use super::queue::Virtqueue;
use super::work::Work;
use crate::device::{Device, Progress};
use crate::misbehaviour::Fault;
use crate::model::{Make, Model};
use crate::violation::{Queue, Violation};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};

/// Device ID (5.4.1).
pub(super) const ID: u16 = 4;
/// Most descriptors of its queue.
const DESCRIPTORS_MAX: u16 = 64;
/// Most bytes of one buffer that are filled: a driver asks again (5.4.6.1).
const BYTES_MAX: usize = 4096;
/// Buffers that one poll fills.
const POLL_BUFFERS: u32 = 16;

/// What [`MODELS`](crate::MODELS) says of it.
pub(crate) const MODEL: Model = Model {
    name: "virtio-rng",
    about: "virtio 1.2 source of entropy",
    make: Make::Alone(|misbehaviour| -> io::Result<Box<dyn Device>> {
        Ok(Box::new(super::Pci::new(VirtioRng::new()?, misbehaviour)))
    }),
    back_end: Some(Make::Alone(|_| Ok(Box::new(VirtioRng::new()?)))),
};

/// For a jail, which has to know what it reads.
impl AsFd for VirtioRng {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.source.as_fd()
    }
}

/// A virtio source of entropy.
#[derive(Debug)]
pub struct VirtioRng {
    source: File,
    chain: Chain,
    hung: bool,
}

impl VirtioRng {
    /// A source that is the kernel's.
    ///
    /// # Errors
    /// If there is no `/dev/urandom`.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            source: File::open("/dev/urandom")?,
            chain: Chain::default(),
            hung: false,
        })
    }

    /// Fills a buffer: how many bytes of it.
    fn fill(&mut self, chain: &Chain, work: &mut Work<'_>) -> u32 {
        let queue = Queue::Request(0);
        let index = chain.head.into();
        if !chain.readable.is_empty() || chain.writable_bytes() == 0 {
            let rule = "a buffer must be writable alone, and not empty (5.4.6.1)";
            work.report(Violation::Descriptor { queue, index, rule });
        }
        let mut bytes = [0; BYTES_MAX];
        let len = chain.writable_bytes().min(BYTES_MAX as u64) as usize;
        let bytes = &mut bytes[..len];
        // 5.4.6.1: at least one byte. A kernel that gives none leaves the driver without.
        if self.source.read_exact(bytes).is_err() {
            return 0;
        }
        match chain.write(0, bytes, work.dma) {
            Ok(written) => written as u32,
            Err(fault) => {
                work.report(Violation::Dma { queue, fault });
                0
            }
        }
    }
}

impl VirtioDevice for VirtioRng {
    fn id(&self) -> u16 {
        ID
    }

    fn features(&self) -> u64 {
        0
    }

    fn queues(&self) -> Vec<QueueKind> {
        vec![QueueKind {
            name: Queue::Request(0),
            size_max: DESCRIPTORS_MAX,
        }]
    }

    fn read_config(&mut self, _offset: usize, _bytes: &mut [u8]) {}

    fn start(&mut self, _features: u64) {}

    fn reset(&mut self) {
        self.hung = false;
    }

    fn poll(&mut self, queues: &mut [Virtqueue], work: &mut Work<'_>) -> Progress {
        let mut filled = 0;
        let mut chain = std::mem::take(&mut self.chain);
        for queue in queues.iter_mut().filter(|queue| queue.is_notified()) {
            loop {
                while filled < POLL_BUFFERS && queue.take(&mut chain, work) {
                    filled += 1;
                    self.hung |= work.faults.strikes(Fault::TransmitHang);
                    if !self.hung {
                        let bytes = self.fill(&chain, work);
                        queue.give_back(chain.head, bytes, work);
                    }
                }
                queue.publish(work);
                if filled == POLL_BUFFERS || !queue.listen(work) {
                    break;
                }
            }
        }
        self.chain = chain;
        Progress {
            received: 0,
            transmitted: filled,
        }
    }
}
