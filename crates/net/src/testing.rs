//! Ports in memory whose network the test keeps in hand.

use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::time::Duration;
use device::memory::MemoryPort;
use device::{Batch, Frame, HEADROOM, Netif, Offloads, Pool, WaitHandle};
use ports::Instant;

/// A port, shared with the test.
pub(crate) struct Port(Rc<RefCell<MemoryPort>>);

/// The network behind a [`Port`].
#[derive(Clone)]
pub(crate) struct Wire(Rc<RefCell<MemoryPort>>);

/// A port with an MTU of 1500 bytes and no offloads.
pub(crate) fn port() -> (Port, Wire) {
    shared(MemoryPort::new("net"))
}

/// The same, with segmentation left to the port.
pub(crate) fn port_with_tso() -> (Port, Wire) {
    shared(MemoryPort::new("net").with_tso())
}

/// `port`, and the network behind it.
pub(crate) fn shared(port: MemoryPort) -> (Port, Wire) {
    let port = Rc::new(RefCell::new(port));
    (Port(port.clone()), Wire(port))
}

impl Wire {
    /// A frame comes from the network.
    pub fn arrives(&self, frame: &[u8]) {
        self.0.borrow_mut().arrives(frame);
    }

    /// What was sent since the last time that somebody asked.
    pub fn sent(&self) -> Vec<Vec<u8>> {
        self.0.borrow_mut().sent()
    }
}

impl Netif for Port {
    fn name(&self) -> &str {
        "net"
    }

    fn mac(&self) -> [u8; 6] {
        self.0.borrow().mac()
    }

    fn mtu(&self) -> usize {
        self.0.borrow().mtu()
    }

    fn offloads(&self) -> Offloads {
        self.0.borrow().offloads()
    }

    fn alloc(&mut self, len: usize) -> Option<Frame> {
        self.0.borrow_mut().alloc(len)
    }

    fn receive(&mut self, batch: &mut Batch) {
        self.0.borrow_mut().receive(batch);
    }

    fn transmit(&mut self, batch: &mut Batch) {
        self.0.borrow_mut().transmit(batch);
    }

    fn wait_handle(&self) -> WaitHandle {
        self.0.borrow().wait_handle()
    }
}

/// A frame with these bytes, of a pool of its own.
pub(crate) fn frame(bytes: &[u8]) -> Frame {
    let size = HEADROOM + bytes.len().max(1);
    let mut frame = Pool::new(vec![0; size].leak(), size)
        .alloc(bytes.len())
        .unwrap();
    frame.bytes_mut().copy_from_slice(bytes);
    frame
}

/// A point in time, so many milliseconds after the tests' beginning.
pub(crate) fn at(milliseconds: u64) -> Instant {
    Instant::PAST + Duration::from_secs(1000) + Duration::from_millis(milliseconds)
}

/// Buffers for whole packets.
pub(crate) fn large(count: usize) -> Pool {
    let size = HEADROOM + 40 + 65_535;
    Pool::new(vec![0; count * size].leak(), size)
}
