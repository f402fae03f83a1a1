use super::message::{Config, InflightFile, Region, RingAddress, RingState, flag, request};
use super::*;
use crate::client::Refused;
use crate::disk;
use crate::misbehaviour::Misbehaviour;
use crate::virtio::testing::{BYTES, Buffer, IOVA, Ring};
use crate::virtio::{VirtioBlk, VirtioNet};
use crate::wire::Loop;
use hw::sim::View;
use proptest::collection::vec;
use proptest::prelude::*;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::os::fd::OwnedFd;
use std::time::Duration;
use zerocopy::{Immutable, IntoBytes};

/// Where the front end finds what its driver finds at [`IOVA`].
const USER: u64 = 0x7f00_0000_0000;
/// Features: VERSION_1, and that there are protocol features.
const FEATURES: u64 = 1 << 32 | 1 << 30;
const REPLY_ACK: u64 = 1 << 3;
const SIZE: u16 = 64;
const SECTOR: usize = 512;

fn file(seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("memory", flags).unwrap();
    ftruncate(&file, BYTES as u64).unwrap();
    fcntl_add_seals(&file, seals).unwrap();
    file
}

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::NONBLOCK).unwrap()
}

fn counted(event: &OwnedFd) -> u64 {
    let mut bytes = [0; 8];
    rustix::io::read(event, &mut bytes).map_or(0, |_| u64::from_ne_bytes(bytes))
}

/// A front end, and the driver that it is for.
struct Front<D> {
    device: BackEnd<D>,
    file: OwnedFd,
    memory: View,
    call: OwnedFd,
    error: OwnedFd,
    next: u64,
}

impl<D: VirtioDevice> Front<D> {
    fn new(device: D) -> Self {
        let file = file(SealFlags::SHRINK);
        let memory = View::of_file(file.as_fd(), 0, BYTES as u64, IOVA, true).unwrap();
        Self {
            device: BackEnd::new(device, &Misbehaviour::default()),
            file,
            memory,
            call: event(),
            error: event(),
            next: IOVA + BYTES as u64 / 2,
        }
    }

    fn say(
        &mut self,
        request: u32,
        payload: &[u8],
        files: Vec<OwnedFd>,
    ) -> Result<(Vec<u8>, Option<OwnedFd>), Refused> {
        let header = Header {
            request,
            flags: flag::VERSION_1,
            bytes: payload.len() as u32,
        };
        let mut reply = [0; PAYLOAD_MAX];
        let answer = self.device.message(&header, payload, files, &mut reply)?;
        Ok(match answer {
            Answer::Done => (Vec::new(), None),
            Answer::Bytes(bytes) => (reply[..bytes].to_vec(), None),
            Answer::File(bytes, file) => (reply[..bytes].to_vec(), Some(file)),
        })
    }

    fn set<T: IntoBytes + Immutable>(&mut self, request: u32, value: &T) -> Result<(), Refused> {
        self.say(request, value.as_bytes(), vec![]).map(drop)
    }

    fn get(&mut self, request: u32) -> u64 {
        let (bytes, _) = self.say(request, &[], vec![]).unwrap();
        u64::from_ne_bytes(bytes.try_into().unwrap())
    }

    fn region(&self) -> Region {
        Region {
            guest: IOVA,
            bytes: BYTES as u64,
            user: USER,
            offset: 0,
        }
    }

    /// Lends all memory.
    fn lend(&mut self) {
        let table = [[1u32, 0].as_bytes(), self.region().as_bytes()].concat();
        let file = self.file.try_clone().unwrap();
        self.say(request::SET_MEM_TABLE, &table, vec![file])
            .unwrap();
    }

    /// Says all that comes before the first queue.
    fn introduce(&mut self, features: u64) {
        self.set(request::SET_PROTOCOL_FEATURES, &REPLY_ACK)
            .unwrap();
        self.set(request::SET_OWNER, &[0u8; 0]).unwrap();
        self.set(request::SET_FEATURES, &(FEATURES | features))
            .unwrap();
        self.lend();
    }

    /// Says where a queue lies, and that it is to be used.
    fn start(&mut self, index: u32, ring: &Ring, base: u16) -> Result<(), Refused> {
        let state = |number: u32| RingState { index, number };
        self.set(request::SET_VRING_NUM, &state(ring.size.into()))?;
        self.set(request::SET_VRING_BASE, &state(base.into()))?;
        let user = |iova: u64| iova - IOVA + USER;
        let address = RingAddress {
            index,
            flags: 0,
            descriptors: user(ring.at),
            used: user(ring.device_area()),
            available: user(ring.driver_area()),
            log: 0,
        };
        self.set(request::SET_VRING_ADDR, &address)?;
        let call = self.call.try_clone().unwrap();
        let error = self.error.try_clone().unwrap();
        let number = u64::from(index);
        self.say(request::SET_VRING_CALL, number.as_bytes(), vec![call])?;
        self.say(request::SET_VRING_ERR, number.as_bytes(), vec![error])?;
        self.say(request::SET_VRING_KICK, number.as_bytes(), vec![event()])?;
        self.set(request::SET_VRING_ENABLE, &state(1))
    }

    fn stop(&mut self, index: u32) -> u32 {
        let state = RingState { index, number: 0 };
        let (bytes, _) = self
            .say(request::GET_VRING_BASE, state.as_bytes(), vec![])
            .unwrap();
        u32::from_ne_bytes(bytes[4..].try_into().unwrap())
    }

    fn poll(&mut self) -> Progress {
        self.device.poll(Duration::ZERO)
    }

    fn buffer(&mut self, bytes: usize, writable: bool) -> Buffer {
        let iova = self.next;
        self.next += bytes.next_multiple_of(16) as u64;
        Buffer {
            iova,
            bytes: bytes as u32,
            writable,
        }
    }

    /// A request of the disk's: its kind and its sector, data, and room for the answer.
    fn request(&mut self, kind: u32, sector: u64, data: &[u8]) -> [Buffer; 3] {
        let header = self.buffer(16, false);
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[8..].copy_from_slice(&sector.to_le_bytes());
        self.memory.write(header.iova, &bytes).unwrap();
        let body = self.buffer(data.len(), kind == 0);
        self.memory.write(body.iova, data).unwrap();
        let answer = self.buffer(1, true);
        self.memory.write(answer.iova, &[0xff]).unwrap();
        [header, body, answer]
    }

    fn byte(&self, buffer: Buffer) -> u8 {
        let mut byte = [0];
        self.memory.read(buffer.iova, &mut byte).unwrap();
        byte[0]
    }
}

fn blk() -> Front<VirtioBlk> {
    Front::new(VirtioBlk::new(disk::sample(1 << 16)))
}

#[test]
fn a_disk_writes_and_reads_for_a_front_end() {
    let mut front = blk();
    assert_eq!(front.get(request::GET_QUEUE_NUM), 4);
    assert_ne!(front.get(request::GET_FEATURES) & FEATURES, 0);
    front.introduce(0);
    let mut ring = Ring::new(0, SIZE);
    front.start(0, &ring, 0).unwrap();
    let write = front.request(1, 3, &[7; SECTOR]);
    let read = front.request(0, 3, &[0; SECTOR]);
    for chain in [write, read] {
        ring.offer(&front.memory, &chain);
    }
    front.poll();
    let done = [ring.take_used(&front.memory), ring.take_used(&front.memory)];
    assert_eq!(done, [Some((0, 1)), Some((3, SECTOR as u32 + 1))]);
    assert_eq!(
        (
            front.byte(write[2]),
            front.byte(read[2]),
            front.byte(read[1])
        ),
        (0, 0, 7)
    );
    assert_eq!(counted(&front.call), 1);
    assert_eq!(front.stop(0), 2);
    // Where it stopped, it goes on.
    front.start(0, &ring, 2).unwrap();
    let more = front.request(0, 3, &[0; SECTOR]);
    ring.offer(&front.memory, &more);
    front.poll();
    assert!(ring.take_used(&front.memory).is_some());
    assert!(front.device.violations().is_empty());
}

#[test]
fn the_configuration_is_read_and_written() {
    let mut front = blk();
    let config = |offset, data: &[u8]| {
        let head = Config {
            offset,
            bytes: data.len() as u32,
            flags: 0,
        };
        [head.as_bytes(), data].concat()
    };
    let (bytes, _) = front
        .say(request::GET_CONFIG, &config(0, &[0; 8]), vec![])
        .unwrap();
    assert_eq!(bytes[12..], (1u64 << 7).to_le_bytes());
    front.introduce(1 << 11);
    front
        .say(request::SET_CONFIG, &config(32, &[0]), vec![])
        .unwrap();
    let (bytes, _) = front
        .say(request::GET_CONFIG, &config(32, &[9]), vec![])
        .unwrap();
    assert_eq!(bytes[12..], [0]);
    for bad in [
        config(250, &[0; 8]),
        config(0, &[0; 300]),
        config(0, &[0; 8])[..19].to_vec(),
    ] {
        assert!(front.say(request::GET_CONFIG, &bad, vec![]).is_err());
    }
}

#[test]
fn a_card_receives_on_as_many_pairs_as_run() {
    let mut front = Front::new(VirtioNet::new([2; 6], Loop::new()).without_control());
    assert_eq!(front.get(request::GET_QUEUE_NUM), 4);
    assert_eq!(front.get(request::GET_FEATURES) & (1 << 17 | 1 << 21), 0);
    front.introduce(1 << 22 | 1 << 15);
    let mut rings: Vec<_> = (0..4).map(|number| Ring::new(number, SIZE)).collect();
    for (index, ring) in (0..).zip(&rings) {
        front.start(index, ring, 0).unwrap();
    }
    let mut room = Vec::new();
    for number in [0, 2] {
        let buffer = front.buffer(2048, true);
        rings[number].offer(&front.memory, &[buffer]);
        room.push(buffer);
    }
    let frame = crate::packet::samples::tcp(false, None, 1, b"hello");
    let sent = front.buffer(12 + frame.len(), false);
    front.memory.write(sent.iova + 12, &frame).unwrap();
    rings[3].offer(&front.memory, &[sent]);
    let progress = front.poll();
    assert_eq!((progress.transmitted, progress.received), (1, 1));
    assert!(rings[3].take_used(&front.memory).is_some());
    // It comes back on the pair that it went out on.
    assert_eq!(rings[2].take_used(&front.memory), Some((0, sent.bytes)));
    assert!(rings[0].take_used(&front.memory).is_none());
    assert!(front.device.violations().is_empty());
}

/// A device that is killed with requests in the air, and the one that comes after it.
#[test]
fn what_a_killed_device_had_begun_is_done_once_by_the_next() {
    let mut front = blk();
    let asked = InflightFile {
        bytes: 0,
        offset: 0,
        queues: 1,
        size: SIZE,
        padding: 0,
    };
    let (bytes, file) = front
        .say(request::GET_INFLIGHT_FD, asked.as_bytes(), vec![])
        .unwrap();
    let file = file.unwrap();
    front.introduce(0);
    let lend_inflight = |front: &mut Front<VirtioBlk>| {
        let file = file.try_clone().unwrap();
        front
            .say(request::SET_INFLIGHT_FD, &bytes, vec![file])
            .unwrap();
    };
    lend_inflight(&mut front);
    let mut ring = Ring::new(0, SIZE);
    front.start(0, &ring, 0).unwrap();
    let first = front.request(1, 0, &[1; SECTOR]);
    let second = front.request(1, 1, &[2; SECTOR]);
    ring.offer(&front.memory, &first);
    front.poll();
    assert!(ring.take_used(&front.memory).is_some());
    let head = ring.offer(&front.memory, &second);
    // It takes the second one, and is killed.
    let view = View::of_file(file.as_fd(), 0, 4096, 0, true).unwrap();
    view.write(16 + 16 * u64::from(head), &[1]).unwrap();
    view.store(16 + 16 * u64::from(head) + 8, 77).unwrap();
    front.device = BackEnd::new(
        VirtioBlk::new(disk::sample(1 << 16)),
        &Misbehaviour::default(),
    );
    front.introduce(0);
    lend_inflight(&mut front);
    let third = front.request(0, 1, &[0; SECTOR]);
    ring.offer(&front.memory, &third);
    // The front end knows what is used, and not what was taken.
    front.start(0, &ring, 1).unwrap();
    front.poll();
    let done = [ring.take_used(&front.memory), ring.take_used(&front.memory)];
    assert_eq!(done, [Some((3, 1)), Some((6, SECTOR as u32 + 1))]);
    assert_eq!(ring.take_used(&front.memory), None);
    assert_eq!(
        (
            front.byte(second[2]),
            front.byte(third[2]),
            front.byte(third[1])
        ),
        (0, 0, 2)
    );
    assert!(front.device.violations().is_empty());
}

#[test]
fn a_queue_that_its_driver_breaks_is_told_of() {
    let mut front = blk();
    front.introduce(0);
    let mut ring = Ring::new(0, SIZE);
    front.start(0, &ring, 0).unwrap();
    ring.offer_head(&front.memory, SIZE);
    front.poll();
    assert_eq!(counted(&front.error), 1);
    assert_eq!(front.device.violations().total(), 1);
}

#[test]
fn what_comes_in_the_wrong_order_is_refused() {
    let mut front = blk();
    let ring = Ring::new(0, SIZE);
    assert!(matches!(front.start(0, &ring, 0), Err(Refused::Order(_))));
    let mut front = blk();
    front.introduce(0);
    assert!(matches!(front.start(4, &ring, 0), Err(Refused::Index(4))));
    assert!(matches!(front.start(0, &ring, 9), Ok(())));
    let num = RingState {
        index: 0,
        number: 8,
    };
    assert!(matches!(
        front.set(request::SET_VRING_NUM, &num),
        Err(Refused::Order(_))
    ));
    let other = FEATURES | 1 << 9;
    assert!(matches!(
        front.set(request::SET_FEATURES, &other),
        Err(Refused::Order(_))
    ));
    let mut front = blk();
    front.introduce(0);
    let size = SIZE;
    for (bad, base) in [
        (Ring::new(0, 48), 0),
        (Ring::new(0, 2048), 0),
        (Ring::new(0, SIZE), size),
    ] {
        let started = front.start(0, &bad, base + u16::from(bad.size == SIZE));
        assert!(matches!(started, Err(Refused::Queue(_))), "{bad:?}");
        front.stop(0);
    }
    let outside = Ring {
        at: IOVA + BYTES as u64 - 64,
        ..ring
    };
    assert!(front.start(0, &outside, 0).is_err());
}

#[test]
fn memory_that_can_be_shrunk_or_overlaps_is_refused() {
    let mut front = blk();
    let table = [[1u32, 0].as_bytes(), front.region().as_bytes()].concat();
    let shrinks = file(SealFlags::empty());
    let shrinks_too = shrinks.try_clone().unwrap();
    let said = front.say(request::SET_MEM_TABLE, &table, vec![shrinks]);
    assert!(matches!(said, Err(Refused::Unsealed)));
    front.device.accept_unsealed();
    front
        .say(request::SET_MEM_TABLE, &table, vec![shrinks_too])
        .unwrap();
    front.lend();
    let slot = [0u64.as_bytes(), front.region().as_bytes()].concat();
    let again = front.file.try_clone().unwrap();
    let said = front.say(request::ADD_MEM_REG, &slot, vec![again]);
    assert!(matches!(said, Err(Refused::Overlap)));
    front.say(request::REM_MEM_REG, &slot, vec![]).unwrap();
    assert!(matches!(
        front.say(request::REM_MEM_REG, &slot, vec![]),
        Err(Refused::NotMapped)
    ));
    let again = front.file.try_clone().unwrap();
    front.say(request::ADD_MEM_REG, &slot, vec![again]).unwrap();
}

/// Over the socket: a front end that is refused something ends its session if it does not ask.
#[test]
fn a_front_end_is_served_and_dropped() {
    struct Never;
    impl Around<BackEnd<VirtioBlk>> for Never {
        fn turn(&mut self, _: &mut BackEnd<VirtioBlk>) -> std::ops::ControlFlow<()> {
            std::ops::ControlFlow::Continue(())
        }
        fn refused(&mut self, _: &'static str, _: &Refused) {}
    }
    let name = format!("outboard-vhost-user-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let server = Server::bind(&path).unwrap();
    let at = path.clone();
    let client = std::thread::spawn(move || {
        let socket = Socket::connect(&at, crate::client::PATIENCE).unwrap();
        let say = |request, flags, payload: &[u8]| {
            let header = Header {
                request,
                flags: flag::VERSION_1 | flags,
                bytes: payload.len() as u32,
            };
            socket.send(&header, &[payload], &[]).unwrap();
        };
        // Replies have a flag that commands must not have: they are read as bytes.
        let hear = || {
            let mut bytes = [0; 20];
            let mut got = 0;
            while got < bytes.len() {
                got += rustix::io::read(&socket, &mut bytes[got..]).unwrap();
            }
            let value = bytes[12..].try_into().unwrap();
            (
                u32::from_ne_bytes(bytes[4..8].try_into().unwrap()),
                u64::from_ne_bytes(value),
            )
        };
        say(request::GET_FEATURES, 0, &[]);
        assert_eq!(hear().0, flag::VERSION_1 | flag::REPLY);
        say(request::SET_PROTOCOL_FEATURES, 0, REPLY_ACK.as_bytes());
        say(request::SET_OWNER, flag::NEED_REPLY, &[]);
        assert_eq!(hear().1, 0);
        say(99, flag::NEED_REPLY, &[]);
        assert_eq!(hear().1, 1);
        say(99, 0, &[]);
        assert_eq!(rustix::io::read(&socket, &mut [0; 1]), Ok(0));
    });
    let mut device = BackEnd::new(
        VirtioBlk::new(disk::sample(1 << 16)),
        &Misbehaviour::default(),
    );
    let end = server.serve(&mut device, &mut Never);
    assert!(
        matches!(end, End::Refused(_, Refused::Unknown(99))),
        "{end}"
    );
    client.join().unwrap();
}

proptest! {
    /// Whatever is said, it is answered or refused, and a front end that behaves is served then.
    #[test]
    fn whatever_is_said(messages in vec((0u32..40, vec(any::<u8>(), 0..80), 0u8..4), 0..24)) {
        let mut front = blk();
        front.introduce(0);
        for (request, payload, kind) in messages {
            let files = match kind {
                0 => vec![],
                1 => vec![event()],
                2 => vec![front.file.try_clone().unwrap()],
                _ => vec![event(), event()],
            };
            _ = front.say(request, &payload, files);
            front.poll();
        }
        front.device.disconnect();
        front.introduce(0);
        let mut ring = Ring::new(0, SIZE);
        front.memory.write(ring.at, &[0; 4096]).unwrap();
        front.start(0, &ring, 0).unwrap();
        let read = front.request(0, 0, &[0; SECTOR]);
        ring.offer(&front.memory, &read);
        front.poll();
        prop_assert!(ring.take_used(&front.memory).is_some());
    }
}
