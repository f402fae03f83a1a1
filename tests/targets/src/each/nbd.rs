//! A client of a disk that is served (NBD), which sends anything: no panic, the conversation ends,
//! its place at the disk is free again, nothing beyond the disk is touched, and it gets no more
//! than its requests may be answered with. Input: what it sends.

use core::cell::{Cell, RefCell};
use core::net::SocketAddr;
use core::time::Duration;
use device::block::{Immediate, MemoryDisk};
use disk_server::disk::Disk;
use disk_server::export::Export;
use disk_server::server::converse;
use hw::DmaBuf;
use net::socket::{Error, Stream};
use net::task::{Clock, Executor};
use net::tcp::queues::Payload;
use ports::Instant;
use std::rc::Rc;

const BYTES: usize = 64 << 10;
/// Buffers of the place, and bytes of each: few, so that requests wait for one another.
const BUFFERS: usize = 3;
const BUFFER: usize = 64 << 10;
/// Turns after which a conversation whose client sends nothing more has ended.
const TURNS_MAX: usize = 100_000;
/// Most bytes for each byte that is sent: a request of 28 for all of the disk, which is read in one
/// part, and the answers to an option of 16.
const ANSWER_MAX: usize = BYTES / 28 + 32;

/// What a client has sent, and how much it has got.
#[derive(Clone)]
struct Wire {
    sent: Rc<RefCell<Vec<u8>>>,
    got: Rc<Cell<usize>>,
}

impl Stream for Wire {
    async fn read(&mut self, place: &mut [u8]) -> Result<usize, Error> {
        let mut sent = self.sent.borrow_mut();
        let count = sent.len().min(place.len());
        place[..count].copy_from_slice(&sent[..count]);
        sent.drain(..count);
        Ok(count)
    }

    async fn take(&mut self) -> Result<Option<Payload>, Error> {
        unreachable!("it reads")
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.got.set(self.got.get() + bytes.len());
        Ok(())
    }

    fn shutdown(&mut self) {}

    async fn acknowledged(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn abort(self) {}

    fn set_no_delay(&mut self, _: bool) {}

    fn set_keep_alive(&mut self, _: Option<Duration>) {}

    fn split(self) -> (Self, Self) {
        (self.clone(), self)
    }

    fn peer(&self) -> SocketAddr {
        ([127, 0, 0, 1], 1).into()
    }

    fn local(&self) -> SocketAddr {
        ([127, 0, 0, 1], 2).into()
    }
}

thread_local! {
    /// Buffers are there for ever, so there is one disk.
    static DISK: (MemoryDisk, Disk) = {
        let ram = MemoryDisk::new(BYTES);
        let buffers = (0..BUFFERS).map(|_| DmaBuf::plain(vec![0; BUFFER].leak()));
        let queue = Box::new(Immediate::new(ram.clone()));
        (ram, Disk::new(queue, vec![buffers.collect()]))
    };
}

pub fn feed(input: &[u8]) {
    let wire = Wire {
        sent: Rc::new(RefCell::new(input.to_vec())),
        got: Rc::default(),
    };
    let (ram, disk) = DISK.with(Clone::clone);
    ram.content_mut().transfers.clear();
    ram.content_mut().discards.clear();
    let export = Export {
        name: "disk".into(),
        capacity: disk.capacity(),
        limits: disk.limits(),
    };
    let (mut executor, clock) = (Executor::new(), Clock::default());
    clock.set(Instant(0));
    let (stream, its_clock) = (wire.clone(), clock.clone());
    let seat = disk.seat().expect("the last client's place is free");
    executor.spawner().spawn(async move {
        let _ = converse(stream, &export, &seat, &its_clock).await;
    });
    let mut turns = 0;
    while !executor.is_empty() {
        executor.run(64);
        disk.turn();
        turns += 1;
        assert!(turns < TURNS_MAX, "it goes on without a client");
    }
    while disk.has_in_flight() {
        disk.turn();
    }
    assert_eq!(ram.content().bytes.len(), BYTES);
    let most = 18 + input.len() * ANSWER_MAX;
    assert!(
        wire.got.get() <= most,
        "{} bytes for {}",
        wire.got.get(),
        input.len()
    );
}
