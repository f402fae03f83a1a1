use super::*;
use crate::sys::guest::Outside;
use abi::extension::device_flag;
use abi::ring::Operation;
use abi::ring::{Client, ENTRIES, Jump, WORDS, first_word, receive, transmit, word};
use proptest::prelude::*;
use rustix::fs::MemfdFlags;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicU64, Ordering};

const NET: usize = 1;
const DISK: usize = 2;
const CAPACITY: u64 = 4096;
const MEMORY: usize = 64 << 10;

/// A network and a disk, and what lies around them.
struct World {
    words: Vec<AtomicU64>,
    devices: Vec<Attached>,
    memory: GuestMemory,
    other: UnixDatagram,
}

impl World {
    fn new() -> Self {
        let (ours, other) = UnixDatagram::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let disk = rustix::fs::memfd_create("disk", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&disk, CAPACITY).unwrap();
        let net = Device::Net {
            mac: [2; 6],
            mtu: 1500,
        };
        let block = Device::Block {
            capacity: CAPACITY,
            block_size: 512,
        };
        let device = |index, device, fd| Attached {
            index,
            device,
            fd,
            flags: 0,
        };
        Self {
            words: (0..WORDS).map(|_| AtomicU64::new(0)).collect(),
            devices: vec![device(NET, net, ours.into()), device(DISK, block, disk)],
            memory: GuestMemory::anonymous(MEMORY).unwrap(),
            other,
        }
    }

    fn rings(&self) -> Rings<'_> {
        Rings::new(&self.words).unwrap()
    }

    fn queues(&self) -> Queues<'_> {
        Queues::new(self.rings(), &self.devices, self.memory.clone())
    }

    fn client(&self, queue: usize) -> Client<'_> {
        self.rings().client(queue).unwrap()
    }

    fn bytes(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.memory.copy_out(Gpa::new(address), &mut bytes).unwrap();
        bytes
    }
}

fn buffer(address: u64, length: u32) -> Request {
    Request {
        address,
        length,
        operation: Operation::Read,
        offset: 0,
    }
}

#[test]
fn frames_go_both_ways_in_order() {
    let world = World::new();
    let mut queues = world.queues();
    let (mut room, mut frames) = (world.client(receive(NET)), world.client(transmit(NET)));
    for number in 0..4 {
        assert!(room.write(buffer(number << 12, 100)));
    }
    room.post();
    assert_eq!(queues.serve().unwrap(), Done::default());
    assert!(!queues.any_readable() && !queues.has_work().unwrap());

    world.other.send(b"one").unwrap();
    world.other.send(b"three").unwrap();
    assert_eq!(queues.serve().unwrap(), Done::default(), "no event yet");
    queues.set_readable(NET as u64);
    assert!(queues.has_work().unwrap());
    assert!(queues.serve().unwrap().received);
    assert_eq!((room.take(), room.take()), (Ok(Some(3)), Ok(Some(5))));
    assert_eq!(room.take(), Ok(None));
    assert_eq!(world.bytes(1 << 12, 5), b"three");

    assert!(frames.write(buffer(1 << 12, 2)));
    frames.post();
    assert!(queues.serve().unwrap().sent);
    assert_eq!(frames.take(), Ok(Some(2)));
    let mut sent = [0; 10];
    assert_eq!(world.other.recv(&mut sent).unwrap(), 2);
    assert_eq!(&sent[..2], b"th");
}

#[test]
fn what_a_device_says_is_the_result() {
    let world = World::new();
    let mut queues = world.queues();
    let mut frames = world.client(transmit(NET));
    rustix::net::shutdown(&world.devices[0].fd, rustix::net::Shutdown::Write).unwrap();
    assert!(frames.write(buffer(0, 1)));
    frames.post();
    queues.serve().unwrap();
    let errno = i64::from(Errno::PIPE.raw_os_error());
    assert_eq!(frames.take(), Ok(Some(-errno)));
}

#[test]
fn a_disk_is_read_and_written_within_its_bounds() {
    let world = World::new();
    let mut queues = world.queues();
    let mut disk = world.client(receive(DISK));
    world.memory.copy_in(Gpa::new(0), &[7; 512]).unwrap();
    let write = Request {
        operation: Operation::Write,
        offset: CAPACITY - 512,
        ..buffer(0, 512)
    };
    let read = Request {
        address: 8192,
        operation: Operation::Read,
        ..write
    };
    let outside = [(CAPACITY, 512), (CAPACITY - 1, 2), (u64::MAX, 512)];
    let outside = outside.map(|(offset, length)| Request {
        offset,
        length,
        ..write
    });
    for request in [write, read].into_iter().chain(outside) {
        assert!(disk.write(request));
    }
    disk.post();
    assert!(queues.serve().unwrap().received);
    assert_eq!((disk.take(), disk.take()), (Ok(Some(512)), Ok(Some(512))));
    let invalid = -i64::from(Errno::INVAL.raw_os_error());
    for _ in outside {
        assert_eq!(disk.take(), Ok(Some(invalid)));
    }
    assert_eq!(world.bytes(8192, 512), [7; 512]);
}

#[test]
fn a_buffer_outside_of_memory_ends_the_guest() {
    let end = MEMORY as u64;
    for (queue, device) in [
        (receive(NET), NET),
        (transmit(NET), NET),
        (receive(DISK), DISK),
    ] {
        for (address, length) in [(end, 1), (end - 1, 2), (u64::MAX, 2), (0, u32::MAX)] {
            let world = World::new();
            if length <= CAPACITY as u32 || device == NET {
                let mut client = world.client(queue);
                assert!(client.write(buffer(address, length)));
                client.post();
                let length = length.into();
                let outside = Outside {
                    address: Gpa::new(address),
                    length,
                };
                let ended = world.queues().serve();
                assert_eq!(ended, Err(Violation::Buffer(device, outside)));
            }
        }
    }
}

#[test]
fn an_index_that_jumps_ends_the_guest() {
    for (queue, device) in [
        (receive(NET), NET),
        (transmit(NET), NET),
        (receive(DISK), DISK),
    ] {
        for to in [ENTRIES + 1, u64::MAX, 1 << 32] {
            let world = World::new();
            world.words[first_word(queue) + word::POSTED].store(to, Ordering::Relaxed);
            let jump = Violation::Ring(device, Jump { from: 0, to });
            assert_eq!(world.queues().serve(), Err(jump));
            assert_eq!(world.queues().has_work(), Err(jump));
        }
    }
}

/// A turn ends, whatever a network or a guest has.
#[test]
fn a_turn_is_bounded() {
    let world = World::new();
    let mut queues = world.queues();
    let mut frames = world.client(transmit(NET));
    for _ in 0..ENTRIES {
        assert!(frames.write(buffer(0, 1)));
    }
    frames.post();
    queues.serve().unwrap();
    let mut taken = 0;
    while frames.take().unwrap().is_some() {
        taken += 1;
    }
    assert_eq!(taken, BATCH_REQUESTS_MAX);
    assert!(queues.has_work().unwrap());
}

#[test]
fn a_disk_is_flushed_and_discarded_where_its_image_knows_of_it() {
    let mut world = World::new();
    rustix::io::pwrite(&world.devices[1].fd, &[7; CAPACITY as usize], 0).unwrap();
    let request = |operation, offset, length| Request {
        operation,
        offset,
        ..buffer(0, length)
    };
    let serve = |world: &World, requests: &[Request]| -> Vec<i64> {
        world
            .words
            .iter()
            .for_each(|word| word.store(0, Ordering::Relaxed));
        let (mut queues, mut disk) = (world.queues(), world.client(receive(DISK)));
        requests.iter().for_each(|one| assert!(disk.write(*one)));
        disk.post();
        queues.serve().unwrap();
        requests
            .iter()
            .map(|_| disk.take().unwrap().unwrap())
            .collect()
    };
    let invalid = -i64::from(Errno::INVAL.raw_os_error());
    let flush = request(Operation::Flush, 0, 0);
    let discard = request(Operation::Discard, 512, 512);
    assert_eq!(serve(&world, &[flush, discard]), [invalid, invalid]);
    world.devices[1].flags = device_flag::DISK;
    let beyond = request(Operation::Discard, CAPACITY - 512, 1024);
    assert_eq!(serve(&world, &[flush, discard, beyond]), [0, 0, invalid]);
    world.devices[1].flags |= device_flag::READ_ONLY;
    let read_only = -i64::from(Errno::ROFS.raw_os_error());
    let write = request(Operation::Write, 0, 512);
    let read = request(Operation::Read, 512, 1024);
    assert_eq!(
        serve(&world, &[write, discard, read]),
        [read_only, invalid, 1024]
    );
    let mut expected = vec![0; 512];
    expected.resize(1024, 7);
    assert_eq!(world.bytes(0, 1024), expected);
}

fn hostile() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0..2 * MEMORY as u64,
        0u64..4,
        (0u64..99).prop_map(|n| n << 32)
    ]
}

proptest! {
    #[test]
    fn nothing_in_a_ring_makes_the_tender_panic(
        indices in prop::collection::vec(prop_oneof![0u64..300, hostile()], 3),
        entries in prop::collection::vec(hostile(), 3 * 4 * 4),
    ) {
        let world = World::new();
        let queues = [receive(NET), transmit(NET), receive(DISK)];
        for (number, queue) in queues.into_iter().enumerate() {
            let words = &world.words[first_word(queue)..];
            words[word::POSTED].store(indices[number], Ordering::Relaxed);
            for (word, value) in words[word::ENTRIES..].iter().zip(&entries[number * 16..]) {
                word.store(*value, Ordering::Relaxed);
            }
        }
        let mut queues = world.queues();
        world.other.send(b"frame").unwrap();
        let ended = (queues.serve(), queues.has_work(), queues.serve());
        if let (Err(reason), ..) = ended {
            prop_assert!(!reason.to_string().is_empty());
        }
        let size = rustix::fs::fstat(&world.devices[1].fd).unwrap().st_size;
        prop_assert_eq!(size.cast_unsigned(), CAPACITY);
    }
}
