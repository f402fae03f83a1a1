//! A port that only moves frames, and its buffers.

use device::{Batch, Frame, HEADROOM, Netif, Offloads, Pool, WaitHandle};
use std::cell::RefCell;
use std::rc::Rc;

/// Payload of a frame on the wire, in bytes.
pub const MTU: usize = 1500;
const BUFFERS: usize = 1024;

/// Frames on their way into and out of a port.
#[derive(Default)]
pub struct Queues {
    /// The last one arrives first.
    pub arrived: Vec<Frame>,
    /// In the order in which they were sent.
    pub sent: Vec<Frame>,
}

/// A port that moves frames, and takes checksums.
pub struct Mover {
    /// What goes in and out.
    pub queues: Rc<RefCell<Queues>>,
    /// Its buffers.
    pub pool: Pool,
    /// The last byte of its address.
    pub last: u8,
    /// Whether it cuts segments.
    pub tso: bool,
}

impl Netif for Mover {
    fn name(&self) -> &str {
        "net"
    }

    fn mac(&self) -> [u8; 6] {
        [2, 0, 0, 0, 0, self.last]
    }

    fn mtu(&self) -> usize {
        MTU
    }

    fn offloads(&self) -> Offloads {
        Offloads {
            checksum: true,
            tso: self.tso,
            uso: false,
        }
    }

    fn alloc(&mut self, len: usize) -> Option<Frame> {
        self.pool.alloc(len)
    }

    fn receive(&mut self, batch: &mut Batch) {
        let arrived = &mut self.queues.borrow_mut().arrived;
        while !batch.is_full()
            && let Some(frame) = arrived.pop()
        {
            let _ = batch.push(frame);
        }
    }

    fn transmit(&mut self, batch: &mut Batch) {
        self.queues.borrow_mut().sent.extend(batch.drain());
    }

    fn wait_handle(&self) -> WaitHandle {
        WaitHandle(0)
    }
}

/// Buffers for frames of at most this size.
pub fn pool(frame_bytes_max: usize) -> Pool {
    let size = HEADROOM + frame_bytes_max;
    Pool::new(vec![0; BUFFERS * size].leak(), size)
}
