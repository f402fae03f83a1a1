use crate::puppet::{QUEUE_DATA, Scene, Setup};
use crate::queue::DiskQueue;
use abi::extension::device_flag::{DISK, READ_ONLY};
use abi::manifest::Device;
use abi::ring::lanes::LANES;
use abi::ring::{ENTRIES, Operation as Asked, Server, first_word, word};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use device::WaitHandle;
use device::block::{BlockError, BlockQueue, Buffers, Operation, Request};
use hw::{DmaArena, DmaBuf};

const CAPACITY: u64 = 1 << 20;
const BUFFERS: usize = 256 << 10;

struct Bench {
    scene: Scene,
    queue: DiskQueue,
    arena: DmaArena,
    lanes: Vec<Server<'static>>,
}

fn bench(flags: u32) -> Bench {
    let device = Device::Block {
        capacity: CAPACITY,
        block_size: 512,
    };
    let (arena, _) = hw::sim::arena(BUFFERS, QUEUE_DATA);
    let setup = Setup {
        devices: vec![("disk", device, flags)],
        queue: Some(("disk", arena)),
        ..Setup::default()
    };
    let scene = setup.start();
    let found = scene.runtime.queue("disk").unwrap();
    let (queue, arena) = found.expect("the disk has a queue");
    let lanes = (0..LANES).map(|lane| scene.lane(lane)).collect();
    Bench {
        scene,
        queue,
        arena,
        lanes,
    }
}

impl Bench {
    fn request(&mut self, operation: Operation, offset: u64, parts: &[usize]) -> Box<Request> {
        let buffers = parts.iter().map(|bytes| self.arena.buf(*bytes, 1).unwrap());
        let mut request = Request::new(Buffers(buffers.collect()));
        request.operation = operation;
        request.offset = offset;
        request.length = parts.iter().sum::<usize>() as u64;
        request
    }

    fn submit(&mut self, requests: impl IntoIterator<Item = Box<Request>>) {
        let mut requests: VecDeque<_> = requests.into_iter().collect();
        self.queue.submit(&mut requests);
        assert!(requests.is_empty());
    }

    /// What lies in the lanes, by lane; all of it is answered so.
    fn serve(&mut self, answer: impl Fn(&abi::ring::Request) -> i64) -> Vec<abi::ring::Request> {
        let mut found = vec![];
        for lane in &mut self.lanes {
            while let Some(request) = lane.request().unwrap() {
                lane.serve(answer(&request));
                found.push(request);
            }
            lane.publish();
        }
        found
    }

    fn done(&mut self) -> Vec<Box<Request>> {
        let mut done = vec![];
        self.queue.complete(&mut done);
        done
    }
}

fn all(request: &abi::ring::Request) -> i64 {
    request.length.into()
}

#[test]
fn requests_are_spread_over_the_lanes_and_come_back_in_any_order() {
    let mut bench = bench(DISK);
    let requests: Vec<_> = (0..2 * LANES as u64)
        .map(|number| {
            let mut request = bench.request(Operation::Read, number * 512, &[512]);
            request.token = number;
            request
        })
        .collect();
    bench.submit(requests);
    // The last lane answers first.
    let lane = bench.lanes.last_mut().unwrap();
    let first = lane.request().unwrap().unwrap();
    assert_eq!((first.length, first.operation), (512, Asked::Read));
    lane.serve(512);
    lane.publish();
    let done = bench.done();
    assert_eq!(done.len(), 1);
    assert_eq!((done[0].result, done[0].offset), (Ok(()), first.offset));
    let asked = bench.serve(all);
    assert_eq!(asked.len(), 2 * LANES - 1);
    let mut addresses: Vec<_> = asked.iter().map(|request| request.address).collect();
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), asked.len(), "each has a buffer of its own");
    assert_eq!(bench.done().len(), 2 * LANES - 1);
}

#[test]
fn a_request_with_several_buffers_is_over_once_all_parts_are() {
    let mut bench = bench(DISK);
    let request = bench.request(Operation::Write, 1024, &[512, 1024, 100]);
    let mut short = bench.request(Operation::Write, 0, &[512, 512]);
    short.token = 7;
    bench.submit([short]);
    let refused = bench.serve(|request| if request.offset == 0 { -28 } else { 512 });
    assert_eq!(refused.len(), 2);
    let done = bench.done();
    assert_eq!(done[0].result, Err(BlockError::Host(28)));
    // What is no whole blocks never gets there.
    bench.submit([request]);
    assert_eq!(bench.done()[0].result, Err(BlockError::OutOfRange));
    assert!(bench.serve(all).is_empty());
}

#[test]
fn what_cannot_be_done_comes_back_with_its_reason() {
    let mut read_only = bench(DISK | READ_ONLY);
    let write = read_only.request(Operation::Write, 0, &[512]);
    let flush = read_only.request(Operation::Flush, 0, &[]);
    read_only.submit([write, flush]);
    assert!(read_only.serve(all).is_empty());
    let results: Vec<_> = read_only.done().iter().map(|one| one.result).collect();
    assert_eq!(results, [Err(BlockError::ReadOnly), Ok(())]);

    let mut bench = bench(DISK);
    let beyond = bench.request(Operation::Read, CAPACITY, &[512]);
    let mut foreign = Request::new(Buffers(vec![DmaBuf::plain(vec![0; 512].leak())]));
    (foreign.operation, foreign.length) = (Operation::Read, 512);
    let (mut other, _) = hw::sim::arena(4096, 1 << 20);
    let mut other = Request::new(Buffers(vec![other.buf(512, 1).unwrap()]));
    (other.operation, other.length) = (Operation::Read, 512);
    bench.submit([beyond, foreign, other]);
    assert!(bench.serve(all).is_empty());
    let results: Vec<_> = bench.done().iter().map(|one| one.result).collect();
    let unsupported = Err(BlockError::Unsupported);
    assert_eq!(
        results,
        [Err(BlockError::OutOfRange), unsupported, unsupported]
    );
}

#[test]
fn flush_and_discard_have_no_buffers() {
    let mut bench = bench(DISK);
    let flush = bench.request(Operation::Flush, 0, &[]);
    let mut discard = bench.request(Operation::Discard, 512, &[]);
    discard.length = 4096;
    let mut zeroes = bench.request(Operation::WriteZeroes, 8192, &[]);
    zeroes.length = 512;
    bench.submit([flush, discard, zeroes]);
    let asked = bench.serve(|_| 0);
    let asked: Vec<_> = asked
        .iter()
        .map(|one| (one.operation, one.offset, one.length))
        .collect();
    let expected = [
        (Asked::Flush, 0, 0),
        (Asked::Discard, 512, 4096),
        (Asked::Discard, 8192, 512),
    ];
    assert_eq!(asked, expected);
    assert!(bench.done().iter().all(|one| one.result == Ok(())));
}

#[test]
fn no_more_are_taken_than_there_is_room_for() {
    let mut bench = bench(DISK);
    let count = bench.queue.depth() + 3;
    let mut requests: VecDeque<_> = (0..count)
        .map(|_| bench.request(Operation::Read, 0, &[512]))
        .collect();
    bench.queue.submit(&mut requests);
    assert_eq!(requests.len(), 3);
    assert_eq!(bench.serve(all).len(), count - 3);
    assert_eq!(bench.done().len(), count - 3);
    bench.queue.submit(&mut requests);
    assert!(requests.is_empty());
}

#[test]
fn who_serves_is_woken_once_where_somebody_sleeps() {
    let mut bench = bench(DISK);
    let rung = |bench: &Bench| bench.scene.host.rung.borrow().len();
    let request = bench.request(Operation::Read, 0, &[512]);
    bench.submit([request]);
    assert_eq!(rung(&bench), 0);
    bench
        .scene
        .queue_word(word::ASLEEP)
        .store(3, Ordering::Relaxed);
    let requests: Vec<_> = (0..5)
        .map(|_| bench.request(Operation::Read, 0, &[512]))
        .collect();
    bench.submit(requests);
    assert_eq!(rung(&bench), 1);
    bench.submit([]);
    assert_eq!(rung(&bench), 1);
}

#[test]
fn a_sleep_is_armed_unless_something_is_there() {
    let mut bench = bench(DISK);
    let waits = |bench: &Bench| {
        bench
            .scene
            .queue_word(word::WAITING)
            .load(Ordering::Relaxed)
    };
    let request = bench.request(Operation::Read, 0, &[512]);
    bench.submit([request]);
    assert!(!bench.queue.arm());
    let first = waits(&bench);
    assert_ne!(first, 0);
    bench.serve(all);
    assert!(bench.queue.arm());
    assert_ne!(waits(&bench), first, "each sleep has its number");
    assert_eq!(bench.done().len(), 1);
    assert_eq!(waits(&bench), 0);
    // Behind the reserved first entry of the manifest and the disk comes its region.
    assert_eq!(bench.queue.wait_handle(), Some(WaitHandle(2)));
}

#[test]
fn when_the_process_is_gone_requests_fail_and_the_image_goes_on() {
    let mut bench = bench(DISK);
    let mut requests: Vec<_> = (0..3)
        .map(|_| bench.request(Operation::Read, 0, &[512]))
        .collect();
    let late = requests.pop();
    bench.submit(requests);
    // What was done before it ended is done.
    let lane = &mut bench.lanes[0];
    let begun = lane.request().unwrap();
    if begun.is_some() {
        lane.serve(512);
        lane.publish();
    }
    assert!(!bench.queue.arm() || begun.is_some());
    assert_eq!(bench.scene.runtime.device_gone(2), 1 << 2);
    assert!(bench.queue.arm());
    let done = bench.done();
    let gone = done
        .iter()
        .filter(|one| one.result == Err(BlockError::Gone));
    let gone = gone.count();
    assert_eq!(done.len(), 2);
    assert_eq!(gone, 2 - usize::from(begun.is_some()));
    assert!(done.iter().all(|one| one.buffers.bytes() == 512));
    let text = "outboard: disk disk: the process that served it has ended\n";
    assert_eq!(bench.scene.host.text(), text);
    bench.submit(late);
    assert!(bench.queue.arm());
    assert_eq!(bench.done()[0].result, Err(BlockError::Gone));
    assert!(!bench.queue.arm());
}

/// Whatever the other side writes.
#[test]
fn nonsense_costs_the_disk_and_no_more() {
    for (result, jump) in [(513, 0), (-5000, 0), (i64::MIN, 0), (0, ENTRIES + 1)] {
        let mut bench = bench(DISK);
        let request = bench.request(Operation::Read, 0, &[512]);
        bench.submit([request]);
        if jump == 0 {
            bench.serve(|_| result);
        } else {
            let done = first_word(0) + word::DONE;
            bench.scene.queue_word(done).store(jump, Ordering::Release);
        }
        let done = bench.done();
        assert_eq!(done.len(), 1, "{result} {jump}");
        assert_eq!(done[0].result, Err(BlockError::Gone));
        // Somebody may still write there.
        assert_eq!(done[0].buffers.bytes(), 0);
        let text = bench.scene.host.text();
        assert!(text.contains("the ring makes no sense"), "{text}");
    }
}
