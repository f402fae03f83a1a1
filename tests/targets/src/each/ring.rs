//! A guest in a virtual machine writes anything into its rings at any time: each turn must end in
//! transfers within its memory, in errors as results, or in a reason to end it; the disk keeps its
//! size, and memory that is not the guest's its content.

use abi::manifest::Device;
use abi::ring::{Rings, WORDS, first_word, receive, transmit, word};
use rustix::fd::OwnedFd;
use rustix::fs::MemfdFlags;
use std::os::unix::net::UnixDatagram;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use tender::attach::Attached;
use tender::hvt::Queues;
use tender::sys::guest::GuestMemory;

const MEMORY: usize = 1 << 16;
const NET: usize = 1;
const DISK: usize = 2;
const CAPACITY: u64 = 1 << 16;
/// Turns for one guest; it has no more to say than its input.
const TURNS_MAX: usize = 64;
const QUEUES: [usize; 3] = [receive(NET), transmit(NET), receive(DISK)];
/// Words at the start of a queue that are written: indices and some entries.
const WRITTEN: usize = word::ENTRIES + 4 * 8;

struct World {
    devices: Vec<Attached>,
    memory: GuestMemory,
    words: Vec<AtomicU64>,
    /// The other end of the network.
    other: UnixDatagram,
}

static WORLD: LazyLock<World> = LazyLock::new(|| world().expect("descriptors can be had"));

fn world() -> std::io::Result<World> {
    let (ours, other) = UnixDatagram::pair()?;
    ours.set_nonblocking(true)?;
    other.set_nonblocking(true)?;
    let disk = rustix::fs::memfd_create("disk", MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&disk, CAPACITY)?;
    let net = Device::Net {
        mac: [2; 6],
        mtu: 1500,
    };
    let block = Device::Block {
        capacity: CAPACITY,
        block_size: 512,
    };
    let device = |index, device, fd: OwnedFd| Attached {
        index,
        device,
        fd,
        flags: 0,
    };
    Ok(World {
        devices: vec![device(NET, net, ours.into()), device(DISK, block, disk)],
        memory: GuestMemory::anonymous(MEMORY)?,
        words: (0..WORDS).map(|_| AtomicU64::new(0)).collect(),
        other,
    })
}

/// The next `N` bytes of the input.
fn take<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(*first)
}

pub fn feed(input: &[u8]) {
    let world = &*WORLD;
    for queue in QUEUES {
        for word in &world.words[first_word(queue)..][..WRITTEN] {
            word.store(0, Ordering::Relaxed);
        }
    }
    let rings = Rings::new(&world.words).expect("there are enough words");
    let mut queues = Queues::new(rings, &world.devices, world.memory.clone());
    let mut input = input;
    for _ in 0..TURNS_MAX {
        // Some words, then a turn.
        let Some([count]) = take(&mut input) else {
            break;
        };
        for _ in 0..count % 8 {
            let (Some([queue, word]), Some(value)) = (take(&mut input), take(&mut input)) else {
                break;
            };
            let queue = QUEUES[usize::from(queue) % QUEUES.len()];
            let word = first_word(queue) + usize::from(word) % WRITTEN;
            world.words[word].store(u64::from_le_bytes(value), Ordering::Relaxed);
        }
        queues.set_readable(NET as u64);
        let ended = queues.serve().and_then(|_| queues.has_work());
        if let Err(reason) = ended {
            assert!(!reason.to_string().contains(char::is_control));
            break;
        }
        // A network that is full or empty is as good as any.
        let _ = world.other.send(&[7; 64]);
        let _ = world.other.recv(&mut [0; 64]);
    }
    let size = rustix::fs::fstat(&world.devices[1].fd)
        .expect("a file has a size")
        .st_size;
    assert_eq!(size.cast_unsigned(), CAPACITY);
}
