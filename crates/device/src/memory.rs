//! A port in memory: what an appliance is tested with on the host, without a tender or a network.

use crate::batch::Batch;
use crate::ethernet::{HEADER_SIZE, VLAN_TAG_SIZE};
use crate::frame::{FRAME_BYTES_MAX, Frame, HEADROOM, Pool};
use crate::netif::{Netif, WaitHandle};
use crate::offload::Offloads;
use crate::segment::segments;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;

/// Payload of a frame on the wire, in bytes.
const MTU: usize = 1500;
/// Frames that may be in use at once.
const BUFFERS: usize = 256;
/// Bytes of a buffer beside the payload of its frame.
const OVERHEAD: usize = HEADROOM + HEADER_SIZE + VLAN_TAG_SIZE;

/// A port over queues in memory, with an MTU of 1500 bytes and no offloads: a test puts frames into
/// the one queue, and finds in the other one what was sent, each as it goes over the wire.
///
/// ```
/// use device::memory::MemoryPort;
/// use device::{Batch, Netif};
///
/// let mut port = MemoryPort::new("net");
/// port.arrives(&[0; 60]);
/// let mut batch = Batch::new();
/// port.receive(&mut batch);
/// port.transmit(&mut batch);
/// assert_eq!(port.sent(), [[0; 60]]);
/// ```
pub struct MemoryPort {
    name: String,
    pool: Pool,
    mtu: usize,
    tso: bool,
    uso: bool,
    wait_handle: WaitHandle,
    arrived: VecDeque<Vec<u8>>,
    sent: Vec<Vec<u8>>,
}

impl MemoryPort {
    /// A port of this name, with the MAC address 02:00:00:00:00:00.
    pub fn new(name: &str) -> Self {
        Self::over(name, pool(MTU))
    }

    /// The same with buffers that others use as well: those of [`Self::new`] are its own, and their
    /// memory is never given back.
    pub fn over(name: &str, pool: Pool) -> Self {
        Self {
            name: name.into(),
            pool,
            mtu: MTU,
            tso: false,
            uso: false,
            wait_handle: WaitHandle(0),
            arrived: VecDeque::new(),
            sent: Vec::new(),
        }
    }

    /// The same port as the device of this index in the manifest: what tells several ports apart
    /// that are waited for together, and the last byte of its MAC address.
    #[must_use]
    pub fn with_index(mut self, index: u8) -> Self {
        self.wait_handle = WaitHandle(index);
        self
    }

    /// The same port with another MTU, in bytes.
    #[must_use]
    pub fn with_mtu(mut self, mtu: usize) -> Self {
        self.pool = pool(mtu);
        self.mtu = mtu;
        self
    }

    /// The same port, to which checksums and segmentation are left: it cuts large frames.
    #[must_use]
    pub fn with_tso(self) -> Self {
        self.with_tso_over(pool(FRAME_BYTES_MAX))
    }

    /// The same with buffers that others use as well.
    #[must_use]
    pub fn with_tso_over(mut self, pool: Pool) -> Self {
        self.pool = pool;
        self.tso = true;
        self
    }

    /// The same port, which cuts large frames of UDP as well as of TCP.
    #[must_use]
    pub fn with_uso(mut self) -> Self {
        self.uso = true;
        self.with_tso()
    }

    /// The same port in two halves: one for whoever owns ports, and one for the test.
    pub fn split(self) -> (Port, Wire) {
        let port = Rc::new(RefCell::new(self));
        let name = port.borrow().name.clone();
        (
            Port {
                name,
                port: port.clone(),
            },
            Wire(port),
        )
    }

    /// A frame, from its Ethernet header on, comes from the network. One without room for that
    /// header, or longer than [`Netif::max_frame`], is lost, as a tap's would be.
    pub fn arrives(&mut self, frame: &[u8]) {
        if (HEADER_SIZE..=self.max_frame()).contains(&frame.len()) {
            self.arrived.push_back(frame.into());
        }
    }

    /// What was sent since the last time that somebody asked, in order.
    pub fn sent(&mut self) -> Vec<Vec<u8>> {
        core::mem::take(&mut self.sent)
    }
}

impl Netif for MemoryPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn mac(&self) -> [u8; 6] {
        [2, 0, 0, 0, 0, self.wait_handle.0]
    }

    fn mtu(&self) -> usize {
        self.mtu
    }

    fn offloads(&self) -> Offloads {
        Offloads {
            checksum: self.tso,
            tso: self.tso,
            uso: self.uso,
        }
    }

    fn alloc(&mut self, len: usize) -> Option<Frame> {
        self.pool.alloc(len)
    }

    fn receive(&mut self, batch: &mut Batch) {
        while !batch.is_full() {
            let Some(bytes) = self.arrived.front() else {
                return;
            };
            let Some(mut frame) = self.pool.alloc(bytes.len()) else {
                return;
            };
            frame.bytes_mut().copy_from_slice(bytes);
            self.arrived.pop_front();
            // There was room, and a refused frame goes back to the pool.
            let _ = batch.push(frame);
        }
    }

    fn transmit(&mut self, batch: &mut Batch) {
        for mut frame in batch.drain() {
            let offload = frame.offload();
            if let Some(gso) = offload.gso {
                let mut segment = vec![0; gso.segment_bytes()];
                let mut rest = segments(frame.bytes(), gso);
                while let Some(len) = rest.as_mut().and_then(|rest| rest.next(&mut segment)) {
                    self.sent.push(segment[..len].to_vec());
                }
                continue;
            }
            offload.complete_checksum(frame.bytes_mut());
            self.sent.push(frame.bytes().to_vec());
        }
    }

    fn wait_handle(&self) -> WaitHandle {
        self.wait_handle
    }
}

/// A [`MemoryPort`] whose network somebody else holds.
pub struct Port {
    name: String,
    port: Rc<RefCell<MemoryPort>>,
}

/// The network behind a [`Port`].
#[derive(Clone)]
pub struct Wire(Rc<RefCell<MemoryPort>>);

impl Wire {
    /// The port carries so many bytes from now on, at most those of the start.
    pub fn set_mtu(&self, mtu: usize) {
        self.0.borrow_mut().mtu = mtu;
    }

    /// As [`MemoryPort::arrives`].
    pub fn arrives(&self, frame: &[u8]) {
        self.0.borrow_mut().arrives(frame);
    }

    /// As [`MemoryPort::sent`].
    pub fn sent(&self) -> Vec<Vec<u8>> {
        self.0.borrow_mut().sent()
    }
}

impl Netif for Port {
    fn name(&self) -> &str {
        &self.name
    }

    fn mac(&self) -> [u8; 6] {
        self.port.borrow().mac()
    }

    fn mtu(&self) -> usize {
        self.port.borrow().mtu()
    }

    fn offloads(&self) -> Offloads {
        self.port.borrow().offloads()
    }

    fn alloc(&mut self, len: usize) -> Option<Frame> {
        self.port.borrow_mut().alloc(len)
    }

    fn receive(&mut self, batch: &mut Batch) {
        self.port.borrow_mut().receive(batch);
    }

    fn transmit(&mut self, batch: &mut Batch) {
        self.port.borrow_mut().transmit(batch);
    }

    fn wait_handle(&self) -> WaitHandle {
        self.port.borrow().wait_handle()
    }
}

/// Buffers for frames with so many bytes of payload.
fn pool(payload: usize) -> Pool {
    let size = OVERHEAD + payload;
    Pool::new(vec![0; BUFFERS * size].leak(), size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BATCH_FRAMES_MAX;

    #[test]
    fn frames_come_in_order_and_in_batches() {
        let mut port = MemoryPort::new("net").with_index(3);
        (0..100).for_each(|n| port.arrives(&[n; 60]));
        let mut batch = Batch::new();
        for _ in 0..100_usize.div_ceil(BATCH_FRAMES_MAX) {
            port.receive(&mut batch);
            port.transmit(&mut batch);
        }
        let first: Vec<u8> = port.sent().iter().map(|frame| frame[0]).collect();
        assert_eq!(first, (0..100).collect::<Vec<_>>());
        assert_eq!(port.sent(), Vec::<Vec<u8>>::new());
        assert_eq!((port.wait_handle().0, port.mac()[5]), (3, 3));
    }

    #[test]
    fn what_is_no_frame_is_lost() {
        let mut port = MemoryPort::new("net");
        port.arrives(&[0; 13]);
        port.arrives(&[0; 1519]);
        port.arrives(&[0; 1518]);
        let mut batch = Batch::new();
        port.receive(&mut batch);
        assert_eq!(batch.iter().map(Frame::len).collect::<Vec<_>>(), [1518]);
    }

    #[test]
    fn a_frame_that_nobody_drops_keeps_its_buffer() {
        let mut port = MemoryPort::new("net");
        let held: Vec<_> = (0..BUFFERS).map(|_| port.alloc(60).unwrap()).collect();
        port.arrives(&[0; 60]);
        let mut batch = Batch::new();
        port.receive(&mut batch);
        assert!(batch.is_empty());
        drop(held);
        port.receive(&mut batch);
        assert_eq!(batch.len(), 1);
    }

    #[test]
    fn a_port_may_have_another_mtu() {
        let mut port = MemoryPort::new("net").with_mtu(9000);
        assert_eq!((port.mtu(), port.offloads().tso), (9000, false));
        assert!(port.alloc(9019).is_none() && port.alloc(9018).is_some());
    }
}
