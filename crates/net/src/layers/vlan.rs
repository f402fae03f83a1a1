//! Several networks over one port (IEEE 802.1Q): each is a port of its own.

use crate::counts::{Counts, reasons};
use crate::layer::{Filled, uncovered};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use device::ethernet::{HEADER_SIZE, TYPE_VLAN, VLAN_TAG_SIZE};
use device::{Batch, Frame, Netif, Offloads, WaitHandle};

/// Frames that wait for one network while another one is asked: each keeps a buffer.
pub const QUEUE_MAX: usize = 64;

/// Bits of the tag that name the network (IEEE 802.1Q, 9.6).
const ID: u16 = 0x0fff;
/// No network may have this number.
const ID_RESERVED: u16 = 0x0fff;
/// Bytes of both addresses, behind which the tag lies.
const ADDRESSES: usize = 12;

reasons! {
    /// Why a frame was dropped.
    pub enum Dropped {
        /// It ends inside its header.
        Short = "vlan_short",
        /// Its network has no port.
        NoPort = "vlan_no_port",
        /// Too many wait for its network.
        Full = "vlan_full",
        /// What was left to do to it lies in its header.
        Offload = "vlan_offload",
        /// It has no room for a tag.
        NoRoom = "vlan_no_room",
    }
}

struct Shared {
    port: Box<dyn Netif>,
    members: Vec<Member>,
    dropped: Counts<Dropped>,
}

struct Member {
    id: u16,
    queue: VecDeque<Frame>,
}

/// A port that several networks share.
#[derive(Clone)]
pub struct Trunk(Rc<RefCell<Shared>>);

impl Trunk {
    /// Over this port.
    pub fn new(port: Box<dyn Netif>) -> Self {
        Self(Rc::new(RefCell::new(Shared {
            port,
            members: Vec::new(),
            dropped: Counts::default(),
        })))
    }

    /// The port of the network with this number; zero is what comes and goes without a tag. `None`
    /// if there is no such network, or if its port was given already.
    pub fn vlan(&self, id: u16) -> Option<Vlan> {
        let mut shared = self.0.borrow_mut();
        let taken = shared.members.iter().any(|member| member.id == id);
        if id >= ID_RESERVED || taken {
            return None;
        }
        let queue = VecDeque::with_capacity(QUEUE_MAX);
        shared.members.push(Member { id, queue });
        let name = format!("{}.{id}", shared.port.name());
        let wait_handle = shared.port.wait_handle();
        drop(shared);
        Some(Vlan {
            trunk: self.clone(),
            name,
            id,
            wait_handle,
        })
    }

    /// Whether no frame waits for any network. All wait for the same port: who is about to sleep
    /// because each of them was asked and had nothing looks here, since one that was asked later
    /// may have fetched a frame for one that was asked before.
    pub fn is_idle(&self) -> bool {
        let shared = self.0.borrow();
        shared.members.iter().all(|member| member.queue.is_empty())
    }

    /// Frames that were dropped, by reason and its name.
    pub fn dropped(&self) -> Counts<Dropped> {
        self.0.borrow().dropped.clone()
    }
}

/// One of the networks.
pub struct Vlan {
    trunk: Trunk,
    name: String,
    id: u16,
    wait_handle: WaitHandle,
}

impl Netif for Vlan {
    fn name(&self) -> &str {
        &self.name
    }

    fn mac(&self) -> [u8; 6] {
        self.trunk.0.borrow().port.mac()
    }

    fn mtu(&self) -> usize {
        // A tag does not count against the MTU, but a second one takes room in the frame.
        let most = self.max_frame().saturating_sub(HEADER_SIZE);
        self.trunk.0.borrow().port.mtu().min(most)
    }

    fn offloads(&self) -> Offloads {
        self.trunk.0.borrow().port.offloads()
    }

    fn max_frame(&self) -> usize {
        let most = self.trunk.0.borrow().port.max_frame();
        most.saturating_sub(tag_size(self.id))
    }

    fn alloc(&mut self, len: usize) -> Option<Frame> {
        let tag = tag_size(self.id);
        let mut frame = self.trunk.0.borrow_mut().port.alloc(len + tag)?;
        frame.pop_front(tag).then_some(frame)
    }

    fn receive(&mut self, batch: &mut Batch) {
        let mut shared = self.trunk.0.borrow_mut();
        shared.take(self.id, batch);
        if !batch.is_full() {
            shared.fetch();
            shared.take(self.id, batch);
        }
    }

    fn transmit(&mut self, batch: &mut Batch) {
        let mut shared = self.trunk.0.borrow_mut();
        if self.id != 0 {
            batch.retain(|frame| {
                let tagged = tag(frame, self.id);
                if !tagged {
                    shared.dropped.add(Dropped::NoRoom);
                }
                tagged
            });
        }
        shared.port.transmit(batch);
    }

    fn wait_handle(&self) -> WaitHandle {
        self.wait_handle
    }
}

impl Drop for Vlan {
    fn drop(&mut self) {
        let id = self.id;
        self.trunk
            .0
            .borrow_mut()
            .members
            .retain(|member| member.id != id);
    }
}

impl Shared {
    /// Gives `id` what waits for it.
    fn take(&mut self, id: u16, batch: &mut Batch) {
        if let Some(member) = self.members.iter_mut().find(|member| member.id == id) {
            while !batch.is_full()
                && let Some(frame) = member.queue.pop_front()
            {
                // There is room.
                let _ = batch.push(frame);
            }
        }
    }

    /// Fetches a batch from the port, and sorts it by network.
    fn fetch(&mut self) {
        let mut batch = Batch::new();
        self.port.receive(&mut batch);
        for frame in batch.drain() {
            if let Err(reason) = self.sort(frame) {
                self.dropped.add(reason);
            }
        }
    }

    fn sort(&mut self, mut frame: Frame) -> Result<(), Dropped> {
        let id = untag(&mut frame)?;
        let member = self.members.iter_mut().find(|member| member.id == id);
        let member = member.ok_or(Dropped::NoPort)?;
        if member.queue.len() >= QUEUE_MAX {
            return Err(Dropped::Full);
        }
        member.queue.push_back(frame);
        Ok(())
    }
}

/// Bytes that frames of a network have more on the port.
fn tag_size(id: u16) -> usize {
    if id == 0 { 0 } else { VLAN_TAG_SIZE }
}

/// Takes the tag off a frame, and returns the number of its network; zero without a tag.
fn untag(frame: &mut Frame) -> Result<u16, Dropped> {
    let bytes = frame.bytes_mut();
    let ethertype: &[u8; 2] = bytes
        .get(ADDRESSES..)
        .and_then(|rest| rest.first_chunk())
        .ok_or(Dropped::Short)?;
    if u16::from_be_bytes(*ethertype) != TYPE_VLAN {
        return Ok(0);
    }
    let tag: &[u8; 2] = bytes
        .get(ADDRESSES + 2..)
        .and_then(|rest| rest.first_chunk())
        .ok_or(Dropped::Short)?;
    let id = u16::from_be_bytes(*tag) & ID;
    bytes.copy_within(..ADDRESSES, VLAN_TAG_SIZE);
    uncovered(frame, VLAN_TAG_SIZE).ok_or(Dropped::Offload)?;
    Ok(id)
}

/// Puts a tag on a frame; `false` if there is no room for it.
fn tag(frame: &mut Frame, id: u16) -> bool {
    if frame.len() < ADDRESSES || frame.push_front(VLAN_TAG_SIZE).is_none() {
        return false;
    }
    let bytes = frame.bytes_mut();
    bytes.copy_within(VLAN_TAG_SIZE..VLAN_TAG_SIZE + ADDRESSES, 0);
    let [a, b] = TYPE_VLAN.to_be_bytes();
    let [c, d] = id.to_be_bytes();
    bytes[ADDRESSES..ADDRESSES + VLAN_TAG_SIZE].copy_from_slice(&[a, b, c, d]);
    if frame.has_offload() {
        let inner = Filled {
            len: 0,
            offload: frame.offload(),
        };
        frame.set_offload(inner.behind(VLAN_TAG_SIZE as u16).offload);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, Wire};
    use device::memory::MemoryPort;
    use proptest::prelude::*;
    use std::vec;

    fn trunk(port: MemoryPort) -> (Trunk, Wire) {
        let (port, wire) = port.split();
        (Trunk::new(Box::new(port)), wire)
    }

    fn send(port: &mut Vlan, bytes: &[u8]) {
        let mut frame = port.alloc(bytes.len()).unwrap();
        frame.bytes_mut().copy_from_slice(bytes);
        let mut batch = Batch::new();
        batch.push(frame).unwrap();
        port.transmit(&mut batch);
    }

    fn received(port: &mut Vlan) -> Vec<Vec<u8>> {
        let mut batch = Batch::new();
        port.receive(&mut batch);
        batch.iter().map(|frame| frame.bytes().to_vec()).collect()
    }

    /// A frame of type 0x88b5, tagged or not.
    fn frame(id: u16, payload: u8) -> Vec<u8> {
        let mut frame = vec![2; 12];
        if id != 0 {
            frame.extend([0x81, 0]);
            frame.extend((id | 0xe000).to_be_bytes());
        }
        frame.extend([0x88, 0xb5]);
        frame.extend([payload; 46]);
        frame
    }

    #[test]
    fn each_network_sends_and_receives_its_own_frames() {
        let (trunk, wire) = trunk(MemoryPort::new("net"));
        let mut ports = [7, 4094, 0].map(|id| trunk.vlan(id).unwrap());
        assert_eq!(ports[0].name(), "net.7");
        for (n, port) in ports.iter_mut().enumerate() {
            send(port, &frame(0, n as u8));
        }
        let sent = wire.sent();
        assert_eq!(sent[0][12..18], [0x81, 0, 0, 7, 0x88, 0xb5]);
        assert_eq!(sent[1][14..16], [0x0f, 0xfe]);
        assert_eq!(sent[2], frame(0, 2));
        [4094, 7, 0, 7]
            .iter()
            .for_each(|id| wire.arrives(&frame(*id, *id as u8)));
        assert_eq!(received(&mut ports[0]), [frame(0, 7), frame(0, 7)]);
        assert!(!trunk.is_idle());
        assert_eq!(received(&mut ports[1]), [frame(0, 0xfe)]);
        assert_eq!(received(&mut ports[2]), [frame(0, 0)]);
        assert!(trunk.is_idle());
    }

    #[test]
    fn a_number_has_one_port() {
        let (trunk, _) = trunk(MemoryPort::new("net"));
        let seven = trunk.vlan(7).unwrap();
        assert!(trunk.vlan(7).is_none() && trunk.vlan(4095).is_none());
        drop(seven);
        assert!(trunk.vlan(7).is_some());
    }

    #[test]
    fn tags_do_not_count_until_they_take_the_payloads_room() {
        let (outer, wire) = trunk(MemoryPort::new("net"));
        let outer = outer.vlan(7).unwrap();
        assert_eq!((outer.mtu(), outer.max_frame()), (1500, 1514));
        // One tag in another.
        let inner = Trunk::new(Box::new(outer));
        let mut inner = inner.vlan(9).unwrap();
        assert_eq!((inner.mtu(), inner.max_frame()), (1496, 1510));
        assert!(inner.alloc(1511).is_none());
        send(&mut inner, &[5; 1510]);
        let sent = wire.sent().remove(0);
        assert_eq!(
            (sent.len(), &sent[12..20]),
            (1518, &[0x81, 0, 0, 7, 0x81, 0, 0, 9][..])
        );
        wire.arrives(&sent);
        assert_eq!(received(&mut inner), [vec![5; 1510]]);
    }

    #[test]
    fn each_bad_frame_has_its_reason() {
        let (trunk, wire) = trunk(MemoryPort::new("net"));
        let (mut seven, mut eight) = (trunk.vlan(7).unwrap(), trunk.vlan(8).unwrap());
        wire.arrives(&frame(9, 1));
        wire.arrives(&frame(0, 1));
        wire.arrives(&frame(7, 1)[..14]);
        assert_eq!(received(&mut seven), Vec::<Vec<u8>>::new());
        assert_eq!(trunk.dropped().get(Dropped::NoPort), 2);
        assert_eq!(trunk.dropped().get(Dropped::Short), 1);
        for _ in 0..QUEUE_MAX + 5 {
            wire.arrives(&frame(8, 1));
            received(&mut seven);
        }
        assert_eq!(trunk.dropped().get(Dropped::Full), 5);
        assert_eq!(received(&mut eight).len(), QUEUE_MAX);
        // A frame whose room in front is gone.
        let mut full = testing::frame(&frame(0, 1));
        while full.push_front(1).is_some() {}
        let mut batch = Batch::new();
        batch.push(full).unwrap();
        seven.transmit(&mut batch);
        assert_eq!(
            (trunk.dropped().get(Dropped::NoRoom), wire.sent().len()),
            (1, 0)
        );
    }

    proptest! {
        #[test]
        fn what_is_tagged_is_untagged(
            id in 1u16..4095,
            bytes in proptest::collection::vec(any::<u8>(), 14..80),
        ) {
            let mut frame = testing::frame(&bytes);
            prop_assert!(tag(&mut frame, id));
            prop_assert_eq!(untag(&mut frame), Ok(id));
            prop_assert_eq!(frame.bytes(), &bytes[..]);
        }

        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = untag(&mut testing::frame(&bytes));
            let _ = tag(&mut testing::frame(&bytes), 7);
        }
    }
}
