//! A port that carries VLANs (IEEE 802.1Q, 9): each is a port of its own, on which frames have no
//! tag.
//!
//! Tags come off what is received and go onto what is sent, and nothing is copied. A tag does not
//! count against the MTU. Its priority is not heeded, and is 0 in what is sent.

use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use device::ethernet::{HEADER_SIZE, TYPE_VLAN, VLAN_TAG_SIZE};
use device::{Batch, Checksum, Frame, Gso, Netif, Offload, Offloads, WaitHandle};
use net::counts::Counts;
use net::forwarding::Untagged;

/// Where the tag lies: in front of the type.
const TAG_AT: usize = HEADER_SIZE - 2;
/// The bits of a tag that name a VLAN.
const ID_BITS: u16 = 0x0fff;
/// The VLAN of a frame whose tag has a priority and names none.
const NO_VLAN: u16 = 0;
/// Types of a second tag, and of a provider's (IEEE 802.1Q, table 9-1), and what was in use before.
const TYPES_NESTED: [u16; 3] = [TYPE_VLAN, 0x88a8, 0x9100];

/// The port, and what has arrived for each port that is made of it.
struct Trunk {
    port: Box<dyn Netif>,
    arrived: Batch,
    /// In their order: who they are, and what has arrived for them.
    parts: Vec<(Option<u16>, Batch)>,
    dropped: Counts<Untagged>,
}

/// Who has counted what a port did not take.
pub struct Dropped(Rc<RefCell<Trunk>>);

impl Dropped {
    /// Shows each reason's name, and how often it occurred.
    pub(crate) fn show(&self, show: &mut dyn FnMut(&'static str, u64)) {
        self.0.borrow().dropped.show(show);
    }
}

/// A port that is made of another one.
pub struct Part {
    /// What it is called.
    pub name: String,
    /// Its VLAN; none is the port itself, without tags.
    pub vlan: Option<u16>,
    /// What it carries, if that is less than the port.
    pub mtu: Option<usize>,
}

/// Makes ports of one, in this order.
pub fn divide(port: Box<dyn Netif>, parts: Vec<Part>) -> (Vec<Box<dyn Netif>>, Dropped) {
    let (mac, wait_handle) = (port.mac(), port.wait_handle());
    let queues = parts.iter().map(|part| (part.vlan, Batch::new()));
    let trunk = Rc::new(RefCell::new(Trunk {
        port,
        arrived: Batch::new(),
        parts: queues.collect(),
        dropped: Counts::default(),
    }));
    let ports = parts.into_iter().enumerate().map(|(number, part)| {
        let port: Box<dyn Netif> = Box::new(Port {
            trunk: trunk.clone(),
            number,
            part,
            mac,
            wait_handle,
        });
        port
    });
    (ports.collect(), Dropped(trunk))
}

impl Trunk {
    /// Takes in what the port has, once everybody has had what was there.
    fn look(&mut self) {
        if self.parts.iter().any(|(_, queue)| !queue.is_empty()) {
            return;
        }
        let Self {
            port,
            arrived,
            parts,
            dropped,
        } = self;
        port.receive(arrived);
        for mut frame in arrived.drain() {
            let vlan = match take_tag(&mut frame) {
                Ok(vlan) => vlan,
                Err(why) => {
                    dropped.add(why);
                    continue;
                }
            };
            match parts.iter_mut().find(|(part, _)| *part == vlan) {
                // There is room for as many as arrive at once.
                Some((_, queue)) => drop(queue.push(frame)),
                None if vlan.is_none() => dropped.add(Untagged::None),
                None => dropped.add(Untagged::Unknown),
            }
        }
    }

    /// Gives one of the ports what has arrived for it. The first of them, which is asked first in
    /// each turn, looks at the port.
    fn receive(&mut self, number: usize, batch: &mut Batch) {
        if number == 0 {
            self.look();
        }
        let Some((_, queue)) = self.parts.get_mut(number) else {
            return;
        };
        if queue.is_empty() {
            return;
        }
        if batch.is_empty() {
            core::mem::swap(queue, batch);
            return;
        }
        let mut kept = Batch::new();
        for frame in queue.drain() {
            let left = match batch.room() {
                0 => Some(frame),
                _ => batch.push(frame).err(),
            };
            // There is room for what comes out of a queue of the same size.
            drop(left.map(|frame| kept.push(frame)));
        }
        *queue = kept;
    }

    fn transmit(&mut self, vlan: Option<u16>, batch: &mut Batch) {
        if let Some(vlan) = vlan {
            let dropped = &mut self.dropped;
            batch.retain(|frame| {
                let put = put_tag(frame, vlan);
                if !put {
                    dropped.add(Untagged::Room);
                }
                put
            });
        }
        self.port.transmit(batch);
    }
}

/// Takes the tag off a frame; the VLAN that it names, if there is one.
fn take_tag(frame: &mut Frame) -> Result<Option<u16>, Untagged> {
    let bytes = frame.bytes();
    let word = |at: usize| -> Option<u16> {
        let bytes = bytes.get(at..)?.first_chunk()?;
        Some(u16::from_be_bytes(*bytes))
    };
    match word(TAG_AT) {
        Some(TYPE_VLAN) => {}
        Some(kind) if TYPES_NESTED.contains(&kind) => return Err(Untagged::Nested),
        // Of one without a type, the stack says so.
        _ => return Ok(None),
    }
    let tag = word(TAG_AT + 2).ok_or(Untagged::Short)?;
    let inner = word(TAG_AT + VLAN_TAG_SIZE).ok_or(Untagged::Short)?;
    if TYPES_NESTED.contains(&inner) {
        return Err(Untagged::Nested);
    }
    let offload = frame.offload();
    let less = |at: u16| at.checked_sub(VLAN_TAG_SIZE as u16);
    let offload = moved(offload, less).ok_or(Untagged::Offload)?;
    frame.bytes_mut().copy_within(..TAG_AT, VLAN_TAG_SIZE);
    if !frame.pop_front(VLAN_TAG_SIZE) {
        return Err(Untagged::Short);
    }
    frame.set_offload(offload);
    let vlan = tag & ID_BITS;
    Ok((vlan != NO_VLAN).then_some(vlan))
}

/// Puts a tag onto a frame; whether there was room in front of it.
fn put_tag(frame: &mut Frame, vlan: u16) -> bool {
    let more = |at: u16| at.checked_add(VLAN_TAG_SIZE as u16);
    let Some(offload) = moved(frame.offload(), more) else {
        return false;
    };
    if frame.len() < HEADER_SIZE || frame.push_front(VLAN_TAG_SIZE).is_none() {
        return false;
    }
    let bytes = frame.bytes_mut();
    bytes.copy_within(VLAN_TAG_SIZE..VLAN_TAG_SIZE + TAG_AT, 0);
    bytes[TAG_AT..TAG_AT + 2].copy_from_slice(&TYPE_VLAN.to_be_bytes());
    bytes[TAG_AT + 2..TAG_AT + VLAN_TAG_SIZE].copy_from_slice(&vlan.to_be_bytes());
    frame.set_offload(offload);
    true
}

/// What was left to do, where its places are counted from another beginning.
fn moved(offload: Offload, place: impl Fn(u16) -> Option<u16>) -> Option<Offload> {
    let checksum = match offload.checksum {
        Some(checksum) => Some(Checksum {
            start: place(checksum.start)?,
            ..checksum
        }),
        None => None,
    };
    let gso = match offload.gso {
        Some(gso) => Some(Gso {
            header: place(gso.header)?,
            ..gso
        }),
        None => None,
    };
    Some(Offload { checksum, gso })
}

/// One of the ports.
struct Port {
    trunk: Rc<RefCell<Trunk>>,
    number: usize,
    part: Part,
    mac: [u8; 6],
    wait_handle: WaitHandle,
}

impl Netif for Port {
    fn name(&self) -> &str {
        &self.part.name
    }

    fn mac(&self) -> [u8; 6] {
        self.mac
    }

    fn mtu(&self) -> usize {
        let mtu = self.trunk.borrow().port.mtu();
        self.part.mtu.map_or(mtu, |own| own.min(mtu))
    }

    fn offloads(&self) -> Offloads {
        self.trunk.borrow().port.offloads()
    }

    fn max_frame(&self) -> usize {
        self.trunk.borrow().port.max_frame()
    }

    fn alloc(&mut self, len: usize) -> Option<Frame> {
        self.trunk.borrow_mut().port.alloc(len)
    }

    fn receive(&mut self, batch: &mut Batch) {
        self.trunk.borrow_mut().receive(self.number, batch);
    }

    fn transmit(&mut self, batch: &mut Batch) {
        self.trunk.borrow_mut().transmit(self.part.vlan, batch);
    }

    fn wait_handle(&self) -> WaitHandle {
        self.wait_handle
    }

    fn link_changes(&self) -> u64 {
        self.trunk.borrow().port.link_changes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::GsoKind;
    use device::memory::{MemoryPort, Wire};
    use device::{HEADROOM, Pool};
    use proptest::prelude::*;
    use std::vec;

    const ENDS: [u8; 12] = [2, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 9];

    /// The port itself, and the VLANs 100 and 4094.
    const PARTS: [Option<u16>; 3] = [None, Some(100), Some(4094)];

    struct Bench {
        ports: Vec<Box<dyn Netif>>,
        dropped: Dropped,
        wire: Wire,
    }

    impl Bench {
        fn new(parts: &[Option<u16>]) -> Self {
            Self::over(MemoryPort::new("net"), parts, None)
        }

        fn over(port: MemoryPort, parts: &[Option<u16>], mtu: Option<usize>) -> Self {
            let (port, wire) = port.split();
            let parts = parts.iter().map(|vlan| Part {
                name: "part".into(),
                vlan: *vlan,
                mtu,
            });
            let (ports, dropped) = divide(Box::new(port), parts.collect());
            Self {
                ports,
                dropped,
                wire,
            }
        }

        /// What each port receives of these frames.
        fn received(&mut self, frames: &[Vec<u8>]) -> Vec<Vec<Vec<u8>>> {
            frames.iter().for_each(|frame| self.wire.arrives(frame));
            let each = self.ports.iter_mut().map(|port| {
                let mut batch = Batch::new();
                port.receive(&mut batch);
                batch.iter().map(|frame| frame.bytes().to_vec()).collect()
            });
            each.collect()
        }

        fn dropped(&self, name: &str) -> u64 {
            let mut found = None;
            self.dropped.show(&mut |one, count| {
                if one == name {
                    found = Some(count);
                }
            });
            found.expect("it is counted")
        }
    }

    fn frame(words: &[u16]) -> Vec<u8> {
        let mut frame = ENDS.to_vec();
        words
            .iter()
            .for_each(|word| frame.extend(word.to_be_bytes()));
        frame.extend([7; 46]);
        frame
    }

    #[test]
    fn each_port_has_its_frames_without_a_tag() {
        let mut bench = Bench::new(&PARTS);
        let plain = frame(&[0x800]);
        let received = bench.received(&[
            frame(&[0x8100, 100, 0x800]),
            plain.clone(),
            frame(&[0x8100, 0xe064, 0x800]),
            frame(&[0x8100, 0xa000, 0x800]),
            frame(&[0x8100, 4094, 0x800]),
        ]);
        let expected = [vec![plain.clone(); 2], vec![plain.clone(); 2], vec![plain]];
        assert_eq!(received, expected);
    }

    #[test]
    fn each_port_sends_with_its_tag() {
        let mut bench = Bench::new(&PARTS);
        for port in &mut bench.ports {
            let mut batch = Batch::new();
            let mut sent = port.alloc(60).unwrap();
            sent.bytes_mut().copy_from_slice(&frame(&[0x86dd]));
            batch.push(sent).unwrap();
            port.transmit(&mut batch);
            assert!(batch.is_empty());
        }
        let expected = [
            frame(&[0x86dd]),
            frame(&[0x8100, 100, 0x86dd]),
            frame(&[0x8100, 4094, 0x86dd]),
        ];
        assert_eq!(bench.wire.sent(), expected);
    }

    #[test]
    fn what_nobody_takes_has_its_reason() {
        let mut bench = Bench::new(&[Some(100)]);
        let received = bench.received(&[
            frame(&[0x800]),
            frame(&[0x8100, 0, 0x800]),
            frame(&[0x8100, 101, 0x800]),
            frame(&[0x8100, 4095, 0x800]),
            frame(&[0x8100, 100, 0x8100, 100, 0x800]),
            frame(&[0x8100, 100, 0x88a8, 100, 0x800]),
            frame(&[0x88a8, 100, 0x800]),
            frame(&[0x9100, 100, 0x800]),
            [&ENDS[..], &[0x81, 0, 0, 100, 8]].concat(),
        ]);
        assert_eq!(received, [Vec::<Vec<u8>>::new()]);
        for (name, count) in [
            ("vlan_untagged", 2),
            ("vlan_unknown", 2),
            ("vlan_nested", 4),
            ("vlan_short", 1),
            ("vlan_offload", 0),
            ("vlan_no_room", 0),
        ] {
            assert_eq!(bench.dropped(name), count, "{name}");
        }
    }

    #[test]
    fn nobody_is_kept_from_his_frames_by_another() {
        let mut bench = Bench::new(&PARTS);
        let many = vec![frame(&[0x8100, 100, 0x800]); 2 * device::BATCH_FRAMES_MAX];
        let received = bench.received(&many);
        let count = |received: &[Vec<Vec<u8>>]| received.iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(count(&received), [0, device::BATCH_FRAMES_MAX, 0]);
        // Whoever does not ask holds the port up, so that nothing is lost.
        let mut batch = Batch::new();
        bench.ports[0].receive(&mut batch);
        bench.ports[0].receive(&mut batch);
        assert!(batch.is_empty());
        let received = bench.received(&[frame(&[0x800])]);
        assert_eq!(count(&received), [0, device::BATCH_FRAMES_MAX, 0]);
        assert_eq!(count(&bench.received(&[])), [1, 0, 0]);
    }

    #[test]
    fn a_batch_that_has_something_is_filled_up() {
        let mut bench = Bench::new(&PARTS);
        for _ in 0..4 {
            bench.wire.arrives(&frame(&[0x800]));
        }
        let mut batch = Batch::new();
        let pool = Pool::new(vec![0; 63 * 128].leak(), 128);
        while let Some(one) = pool.alloc(60) {
            batch.push(one).unwrap();
        }
        bench.ports[0].receive(&mut batch);
        assert_eq!(batch.len(), device::BATCH_FRAMES_MAX);
        batch.drain();
        bench.ports[0].receive(&mut batch);
        assert_eq!(batch.len(), 3);
    }

    #[test]
    fn what_is_left_to_do_moves_with_the_packet() {
        let pool = Pool::new(vec![0; 4096].leak(), 2048);
        let mut one = pool.alloc(64).unwrap();
        one.bytes_mut()
            .copy_from_slice(&frame(&[0x8100, 100, 0x800])[..64]);
        let checksum = Checksum {
            start: 38,
            offset: 16,
        };
        let gso = Gso {
            kind: GsoKind::TcpV4,
            size: 100,
            header: 58,
            ecn: false,
        };
        let offload = Offload {
            checksum: Some(checksum),
            gso: Some(gso),
        };
        one.set_offload(offload);
        assert_eq!(take_tag(&mut one), Ok(Some(100)));
        let found = (
            one.offload().checksum.map(|checksum| checksum.start),
            one.offload().gso.map(|gso| gso.header),
        );
        assert_eq!(found, (Some(34), Some(54)));
        assert!(put_tag(&mut one, 100));
        assert_eq!(one.offload(), offload);
        let start = Checksum {
            start: 3,
            offset: 0,
        };
        one.set_offload(Offload {
            checksum: Some(start),
            gso: None,
        });
        assert_eq!(take_tag(&mut one), Err(Untagged::Offload));
    }

    #[test]
    fn a_frame_without_room_in_front_is_counted() {
        let mut bench = Bench::new(&PARTS);
        let mut one = bench.ports[1].alloc(60).unwrap();
        assert!(one.push_front(HEADROOM - 3).is_some());
        let mut batch = Batch::new();
        batch.push(one).unwrap();
        bench.ports[1].transmit(&mut batch);
        assert!(batch.is_empty() && bench.wire.sent().is_empty());
        assert_eq!(bench.dropped("vlan_no_room"), 1);
    }

    #[test]
    fn a_port_carries_what_its_trunk_does_or_less() {
        let of = |mtu| Bench::over(MemoryPort::new("net"), &PARTS, mtu).ports[1].mtu();
        assert_eq!(
            (of(None), of(Some(1280)), of(Some(9000))),
            (1500, 1280, 1500)
        );
        let large = MemoryPort::new("net").with_tso();
        let mut large = Bench::over(large, &PARTS, None);
        let most = large.ports[1].max_frame() - VLAN_TAG_SIZE;
        assert!(large.ports[1].alloc(most).is_some());
    }

    proptest! {
        #[test]
        fn a_tag_that_was_put_comes_off(
            bytes in proptest::collection::vec(any::<u8>(), 0..80),
            vlan in 1..4095_u16,
        ) {
            let pool = Pool::new(vec![0; 256].leak(), 256);
            let mut one = pool.alloc(bytes.len()).unwrap();
            one.bytes_mut().copy_from_slice(&bytes);
            if put_tag(&mut one, vlan) {
                match take_tag(&mut one) {
                    Ok(found) => {
                        prop_assert_eq!(found, Some(vlan));
                        prop_assert_eq!(one.bytes(), bytes);
                    }
                    Err(why) => prop_assert_eq!(why, Untagged::Nested),
                }
            } else {
                prop_assert!(bytes.len() < HEADER_SIZE);
                let _ = take_tag(&mut one);
            }
        }
    }
}
