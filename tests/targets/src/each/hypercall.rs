//! A guest in a virtual machine writes any number to any port, and its memory says anything: each
//! call must end in an answer, in the guest's end, or in a reason; the disk keeps its size.

use abi::manifest::Device;
use abi::spt::EPOLL_TIMER;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, OFlags};
use std::os::unix::net::UnixDatagram;
use std::sync::LazyLock;
use tender::attach::Attached;
use tender::hvt::Hypercalls;
use tender::memory::Gpa;
use tender::sys::guest::GuestMemory;

const MEMORY: usize = 1 << 16;
const NET: usize = 1;
const DISK: usize = 2;
const PCI: usize = 3;
const CAPACITY: u64 = 1 << 16;
/// Calls of one guest; it has no more to say than its input.
const CALLS_MAX: usize = 64;

struct World {
    calls: Hypercalls,
    memory: GuestMemory,
    /// The other end of the network.
    other: UnixDatagram,
    /// The other end of the device.
    answers: UnixDatagram,
    /// Always readable, so that no wait lasts.
    _ready: OwnedFd,
}

static WORLD: LazyLock<World> = LazyLock::new(|| world().expect("descriptors can be had"));

fn world() -> std::io::Result<World> {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR, 0.into())?;
    rustix::stdio::dup2_stdout(&null)?;
    let (ours, other) = UnixDatagram::pair()?;
    ours.set_nonblocking(true)?;
    other.set_nonblocking(true)?;
    // A device that has nothing to say, and takes everything.
    let (socket, answers) = UnixDatagram::pair()?;
    socket.set_nonblocking(true)?;
    answers.set_nonblocking(true)?;
    let disk = rustix::fs::memfd_create("disk", MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&disk, CAPACITY)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let ready = eventfd(1, EventfdFlags::CLOEXEC)?;
    let readable = epoll::EventFlags::IN;
    epoll::add(
        &epoll,
        &ours,
        epoll::EventData::new_u64(NET as u64),
        readable,
    )?;
    epoll::add(
        &epoll,
        &ready,
        epoll::EventData::new_u64(EPOLL_TIMER),
        readable,
    )?;
    let timer = rustix::time::timerfd_create(
        rustix::time::TimerfdClockId::Monotonic,
        rustix::time::TimerfdFlags::NONBLOCK,
    )?;
    let net = Device::Net {
        mac: [2; 6],
        mtu: 1500,
    };
    let block = Device::Block {
        capacity: CAPACITY,
        block_size: 512,
    };
    let attached = |index, device, fd| Attached {
        index,
        device,
        fd,
        flags: 0,
    };
    let devices = vec![attached(NET, net, ours.into()), attached(DISK, block, disk)];
    let calls = Hypercalls {
        sockets: vec![(PCI, socket.into())],
        queues: Vec::new(),
        devices,
        epoll,
        timer,
    };
    Ok(World {
        calls,
        memory: GuestMemory::anonymous(MEMORY)?,
        other,
        answers,
        _ready: ready,
    })
}

/// The next `N` bytes of the input.
fn take<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(*first)
}

pub fn feed(input: &[u8]) {
    let World { calls, memory, .. } = &*WORLD;
    let mut input = input;
    memory
        .copy_in(Gpa::new(0), &[0; MEMORY])
        .expect("it has so many bytes");
    for _ in 0..CALLS_MAX {
        let (Some(port), Some(argument), Some(words)) =
            (take(&mut input), take(&mut input), take::<40>(&mut input))
        else {
            break;
        };
        let argument = u32::from_le_bytes(argument);
        let place = argument as usize % (MEMORY - words.len());
        memory
            .copy_in(Gpa::new(place as u64), &words)
            .expect("it fits");
        let ended = calls.handle(memory, u16::from_le_bytes(port), argument);
        if let Err(reason) = ended {
            assert!(!reason.to_string().contains(char::is_control));
            break;
        }
        // A queue that is full or empty is as good as any.
        let _ = WORLD.other.send(&words);
        let _ = WORLD.other.recv(&mut [0; 64]);
        let _ = WORLD.answers.send(&words);
        let _ = WORLD.answers.recv(&mut [0; 64]);
    }
    let disk = &calls.devices[1].fd;
    let size = rustix::fs::fstat(disk).expect("a file has a size").st_size;
    assert_eq!(size.cast_unsigned(), CAPACITY);
}
