//! The driver of NVM Express disks on its model: two readings of one specification, which must
//! agree; and a driver whose device lies.

mod disks;

use device::block::{BlockError, BlockQueue, Blocking, Buffers, Operation, Request};
use device::{BlockDevice, block::Durability};
use disks::{BLOCKS, Soaked, Temporary};
use drivers::block::nvme::{DEPTH, DMA_BYTES, Driver, Error, Trouble};
use fastrand::Rng;
use hw::DmaArena;
use hw::sim::{View, arena};
use models::disk::Disk;
use models::{Device, Local, Misbehaviour, Nvme};
use std::cell::Cell;
use std::collections::VecDeque;
use std::fs;
use std::rc::Rc;
use std::time::Duration;

const IOVA: u64 = 0x10_0000_0000;
const BUFFER: usize = 64 << 10;
const BUFFERS: usize = 4;
const ARENA_BYTES: usize = DMA_BYTES + 40 * BUFFER;
/// What passes from one look of the driver at its clock to the next.
const LOOK: Duration = Duration::from_millis(5);

/// A device that acts whenever its driver, which waits for it, looks at the clock.
struct Far {
    device: Rc<Local<Nvme>>,
    memory: View,
    now: Cell<Duration>,
}

impl Far {
    fn poll(&self) {
        self.now.set(self.now.get() + LOOK);
        self.device.poll(&self.memory, self.now.get());
    }

    fn clock(self: &Rc<Self>) -> impl Fn() -> u64 + use<> {
        let far = Rc::clone(self);
        move || {
            far.poll();
            far.now.get().as_nanos() as u64
        }
    }

    fn assert_lawful(&self) {
        let device = self.device.device();
        assert!(device.violations().is_empty(), "{}", device.violations());
    }
}

struct Bench {
    far: Rc<Far>,
    driver: Driver,
    arena: DmaArena,
}

impl Bench {
    fn new(file: &Temporary, block: u32, read_only: bool, how: &str) -> Result<Self, Error> {
        let misbehaviour: Misbehaviour = how.parse().unwrap();
        let disk = Disk::open(&file.0, read_only).unwrap();
        let device = Local::new(Nvme::with_blocks(disk, block, &misbehaviour));
        let (mut arena, memory) = arena(ARENA_BYTES, IOVA);
        let far = Rc::new(Far {
            device,
            memory,
            now: Cell::default(),
        });
        let driver = Driver::new(far.device.mmio(), &mut arena, None, far.clock())?;
        Ok(Self { far, driver, arena })
    }

    /// As a disk whose caller waits.
    fn blocking(mut self) -> (Rc<Far>, Blocking<Driver>) {
        let buffer = |_| self.arena.buf(BUFFER, 4096).unwrap();
        let buffers = (0..BUFFERS).map(buffer).collect();
        (self.far, Blocking::new(self.driver, buffers))
    }
}

#[test]
fn two_readings_of_the_specification_agree() {
    const BYTES: usize = 1 << 20;
    for block in [512, 4096] {
        let file = Temporary::new("disk", BYTES);
        let bench = Bench::new(&file, block, false, "").unwrap();
        let (far, mut disk) = bench.blocking();
        assert_eq!(disk.capacity(), BYTES as u64);
        let size = disk.block_size();
        assert_eq!(size, block as usize);
        assert_eq!(disk.limits().durability, Durability::Flushed);
        let mut all: Vec<_> = (0..BYTES).map(|at| (at / 512 + at * 3) as u8).collect();
        let (first, rest) = all.split_at(5 * size);
        disk.write(0, first).unwrap();
        disk.write(first.len() as u64, rest).unwrap();
        disk.flush().unwrap();
        assert!(fs::read(&file.0).unwrap() == all, "what is in the file");
        let mut read = vec![0; BYTES];
        disk.read(0, &mut read).unwrap();
        assert!(read == all, "what was read");
        disk.read(7 * size as u64, &mut read[..size]).unwrap();
        assert_eq!(read[..size], all[7 * size..8 * size]);
        disk.write_zeroes(size as u64, 9 * size as u64).unwrap();
        disk.discard(64 * size as u64, 64 * size as u64).unwrap();
        all[size..10 * size].fill(0);
        all[64 * size..128 * size].fill(0);
        assert!(fs::read(&file.0).unwrap() == all, "what is zero");
        far.assert_lawful();
    }
}

#[test]
fn a_disk_that_is_only_to_be_read_is() {
    let file = Temporary::new("read-only", 4096);
    let (far, mut disk) = Bench::new(&file, 512, true, "").unwrap().blocking();
    assert_eq!(disk.write(0, &[1; 512]), Err(BlockError::ReadOnly));
    assert!(disk.read(0, &mut [0; 512]).is_ok());
    far.assert_lawful();
}

/// Requests of one block and of many, as many at once as fit, in any order.
#[test]
fn many_in_flight_are_each_what_they_are() {
    const BLOCKS: u64 = 512;
    let file = Temporary::new("many", BLOCKS as usize * 512);
    let Bench {
        far,
        mut driver,
        mut arena,
    } = Bench::new(&file, 512, false, "").unwrap();
    let mut random = Rng::with_seed(11);
    let mut idle: Vec<_> = (0..DEPTH)
        .map(|_| Request::new(Buffers(vec![arena.buf(BUFFER, 4).unwrap()])))
        .collect();
    let (mut todo, mut done) = (VecDeque::new(), Vec::with_capacity(DEPTH));
    let mut holds = vec![0u8; BLOCKS as usize];
    let mut count = 0;
    while count < 4000 {
        // Blocks that no other request has meanwhile.
        let share = BLOCKS / DEPTH as u64;
        for (place, mut request) in (0..).zip(idle.drain(..)) {
            let first = place * share + random.u64(..share);
            let blocks = random.u64(1..=share - first % share);
            request.operation = match random.bool() {
                true => Operation::Read,
                false => Operation::Write,
            };
            (request.offset, request.length) = (first * 512, blocks * 512);
            let fill = random.u8(..);
            request.token = fill.into();
            if request.operation == Operation::Write {
                let all = request.buffers.parts_mut(u64::MAX);
                all.for_each(|part| part.fill(fill));
            }
            todo.push_back(request);
        }
        driver.submit(&mut todo);
        assert!(todo.is_empty());
        far.poll();
        driver.complete(&mut done);
        for request in done.drain(..) {
            assert_eq!(request.result, Ok(()));
            let range = request.offset / 512..(request.offset + request.length) / 512;
            let bytes: Vec<_> = request.buffers.parts(request.length).collect();
            for (place, block) in range.zip(bytes[0].chunks(512)) {
                let held = &mut holds[place as usize];
                if request.operation == Operation::Write {
                    *held = request.token as u8;
                }
                assert!(block.iter().all(|byte| byte == held), "block {place}");
            }
            count += 1;
            idle.push(request);
        }
    }
    assert_eq!(driver.trouble(), &Trouble::default());
    far.assert_lawful();
}

/// A soak of the driver; `None` if it does not start.
fn soak(name: &str, how: &str) -> Option<Soaked> {
    let file = Temporary::new(name, BLOCKS * 512);
    let (_far, mut disk) = Bench::new(&file, 512, false, how).ok()?.blocking();
    Some(disks::soak(&mut disk, how))
}

#[test]
fn without_faults_no_request_fails() {
    for how in ["", "length=3", "lost-interrupt=3", "early-done=3"] {
        assert_eq!(soak("good", how).unwrap().failed, 0, "{how}");
    }
}

#[test]
fn requests_that_fail_say_so_and_others_are_done() {
    for fault in ["status", "skip", "garbage", "transmit-hang", "twice"] {
        let Soaked { done, failed } = soak("faults", &format!("{fault}=200")).unwrap();
        assert!(done > 0 && failed > 0, "{fault}: {done} done, {failed} not");
    }
}

#[test]
fn a_disk_that_goes_fails_all_requests_from_then_on() {
    let Soaked { done, failed } = soak("gone", "gone=2000").unwrap();
    assert!(done > 0 && failed > 0, "{done} done, {failed} not");
}

#[test]
fn anything_at_once_is_survived() {
    for seed in 0..8 {
        let how = format!(
            "seed={seed},status=100,garbage=300,skip=300,transmit-hang=500,twice=200,gone=9000"
        );
        let soaked = soak("anything", &how).unwrap();
        assert!(soaked.done > 0, "{how}");
    }
}

#[test]
fn bits_that_are_stuck_are_survived() {
    for offset in [0x0, 0x4, 0x8, 0x14, 0x1c, 0x24, 0x28, 0x30, 0x1000, 0x1008] {
        for (mask, value) in [
            (u32::MAX, u32::MAX),
            (u32::MAX, 0),
            (0xf0f0_f0f0, 0x5a5a_5a5a),
        ] {
            let how = format!("stuck={offset:#x}:{mask:#x}:{value:#x}");
            let file = Temporary::new("stuck", BLOCKS * 512);
            let Ok(bench) = Bench::new(&file, 512, false, &how) else {
                continue;
            };
            let (_far, mut disk) = bench.blocking();
            let mut block = vec![0; disk.block_size()];
            // Whether that works depends on the bits.
            let _ = disk.read(0, &mut block);
            let behind = disk.capacity();
            assert!(disk.read(behind, &mut block).is_err(), "{how}");
        }
    }
}
