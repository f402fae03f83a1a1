//! The drivers of the virtio disk and of the virtio entropy device on their models, behind PCI: two
//! readings of one specification, which must agree; and drivers whose device lies.

mod disks;
mod virtio;

use device::BlockDevice;
use device::block::Blocking;
use disks::{BLOCKS, Soaked, Temporary};
use drivers::virtio::Error;
use drivers::virtio::pci::Pci as Transport;
use drivers::{block, entropy};
use hw::DmaArena;
use hw::sim::{View, arena};
use models::disk::Disk;
use models::virtio::{Pci, VirtioBlk, VirtioDevice, VirtioRng};
use models::{Device, Local, Misbehaviour};
use std::cell::Cell;
use std::fs;
use std::rc::Rc;
use std::time::Duration;
use virtio::transport;

const DMA_BYTES: usize = 1 << 20;
const IOVA: u64 = 0x10_0000_0000;
/// What passes from one look of the driver at its clock to the next.
const LOOK: Duration = Duration::from_micros(100);

/// A device that acts whenever its driver, which waits for it, looks at the clock.
struct Far<D: VirtioDevice + 'static> {
    device: Rc<Local<Pci<D>>>,
    memory: View,
    now: Cell<Duration>,
}

impl<D: VirtioDevice> Far<D> {
    /// The device, how its driver reaches it, and the driver's memory.
    fn new(device: D, how: &str) -> (Rc<Self>, Transport, DmaArena) {
        let misbehaviour: Misbehaviour = how.parse().unwrap();
        let device = Local::new(Pci::new(device, &misbehaviour));
        let (arena, memory) = arena(DMA_BYTES, IOVA);
        let identity = device.device().identity();
        let transport = transport(&device.mmio(), &identity);
        let far = Self {
            device,
            memory,
            now: Cell::default(),
        };
        (Rc::new(far), transport, arena)
    }

    fn clock(self: &Rc<Self>) -> impl Fn() -> u64 + use<D> {
        let far = Rc::clone(self);
        move || {
            far.now.set(far.now.get() + LOOK);
            far.device.poll(&far.memory, far.now.get());
            far.now.get().as_nanos() as u64
        }
    }

    fn assert_lawful(&self) {
        let device = self.device.device();
        assert!(device.violations().is_empty(), "{}", device.violations());
    }
}

type DiskDriver = Blocking<block::virtio::Driver<Transport>>;
/// Buffers of the disk, and bytes of each.
const BUFFERS: usize = 4;
const BUFFER_BYTES: usize = 64 << 10;

fn disk(
    file: &Temporary,
    read_only: bool,
    how: &str,
) -> Result<(Rc<Far<VirtioBlk>>, DiskDriver), Error> {
    let blocks = VirtioBlk::new(Disk::open(&file.0, read_only).unwrap());
    let (far, transport, mut arena) = Far::new(blocks, how);
    let driver = block::virtio::Driver::new(transport, &mut arena, far.clock())?;
    let buffers = (0..BUFFERS).map(|_| arena.buf(BUFFER_BYTES, 1));
    let buffers = buffers.collect::<Result<_, _>>()?;
    Ok((far, Blocking::new(driver, buffers)))
}

#[test]
fn a_disk_and_its_driver_agree() {
    const BYTES: usize = 1 << 20;
    let file = Temporary::new("disk", BYTES);
    let (far, mut driver) = disk(&file, false, "").unwrap();
    assert_eq!(driver.capacity(), BYTES as u64);
    let size = driver.block_size();
    let all: Vec<_> = (0..BYTES).map(|at| (at / 512 + at * 3) as u8).collect();
    // The second one is more than one transfer.
    let (first, rest) = all.split_at(5 * size);
    driver.write(0, first).unwrap();
    driver.write(first.len() as u64, rest).unwrap();
    assert!(fs::read(&file.0).unwrap() == all, "what is in the file");
    let mut read = vec![0; BYTES];
    driver.read(0, &mut read).unwrap();
    assert!(read == all, "what was read");
    let block = &mut read[..size];
    driver.read(7 * size as u64, block).unwrap();
    assert_eq!(*block, all[7 * size..8 * size]);
    far.assert_lawful();
}

#[test]
fn a_disk_that_is_only_to_be_read_is() {
    let file = Temporary::new("read-only", 4096);
    let (far, mut driver) = disk(&file, true, "").unwrap();
    assert!(driver.write(0, &[1; 512]).is_err());
    assert!(driver.read(0, &mut [0; 512]).is_ok());
    far.assert_lawful();
}

/// A soak of the driver; `None` if it does not start.
fn soak(name: &str, how: &str) -> Option<Soaked> {
    let file = Temporary::new(name, BLOCKS * 512);
    let (_far, mut driver) = disk(&file, false, how).ok()?;
    Some(disks::soak(&mut driver, how))
}

#[test]
fn without_faults_no_request_fails() {
    for how in ["", "length=3", "lost-interrupt=3", "early-done=3"] {
        assert_eq!(soak("good", how).unwrap().failed, 0, "{how}");
    }
}

#[test]
fn requests_that_fail_say_so_and_others_are_done() {
    for fault in ["status", "skip", "garbage", "transmit-hang"] {
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
            "seed={seed},length=3,status=100,garbage=300,early-done=5,skip=300,transmit-hang=500,\
             gone=9000"
        );
        let soaked = soak("anything", &how).unwrap();
        assert!(soaked.done > 0, "{how}");
    }
}

#[test]
fn bits_that_are_stuck_are_survived() {
    // Registers that are read at the start, the capacity and the size of a block among them.
    for offset in [
        0x4, 0x14, 0x15, 0x18, 0x1c, 0x1e, 0x2000, 0x2004, 0x2008, 0x2014,
    ] {
        for (mask, value) in [
            (u32::MAX, u32::MAX),
            (u32::MAX, 0),
            (0xf0f0_f0f0, 0x5a5a_5a5a),
        ] {
            let how = format!("stuck={offset:#x}:{mask:#x}:{value:#x}");
            let file = Temporary::new("stuck", BLOCKS * 512);
            let Ok((_far, mut driver)) = disk(&file, false, &how) else {
                continue;
            };
            let mut block = vec![0; driver.block_size()];
            // Whether that works depends on the bits.
            let _ = driver.read(0, &mut block);
            let behind = driver.capacity();
            assert!(driver.read(behind, &mut block).is_err(), "{how}");
        }
    }
}

#[test]
fn a_source_of_entropy_and_its_driver_agree() {
    let (far, transport, mut arena) = Far::new(VirtioRng::new().unwrap(), "");
    let mut driver = entropy::virtio::Driver::new(transport, &mut arena, far.clock()).unwrap();
    let mut blocks = [[0; 200]; 3];
    for block in &mut blocks {
        driver.fill(block).unwrap();
    }
    assert!(blocks[0] != blocks[1] && blocks[1] != blocks[2]);
    far.assert_lawful();
}

/// Whatever the device does, bytes that the driver says are random do not stay what they were.
#[test]
fn a_source_of_entropy_that_misbehaves_is_survived() {
    for fault in ["length", "skip", "garbage", "transmit-hang", "gone"] {
        let (far, transport, mut arena) =
            Far::new(VirtioRng::new().unwrap(), &format!("{fault}=50"));
        let driver = entropy::virtio::Driver::new(transport, &mut arena, far.clock());
        let mut driver = driver.unwrap();
        let mut done = [0; 2];
        for _ in 0..200 {
            let mut bytes = [0; 32];
            let filled = driver.fill(&mut bytes).is_ok();
            assert!(!filled || bytes != [0; 32], "{fault}");
            done[usize::from(filled)] += 1;
        }
        assert!(done[0] > 0 && done[1] > 0, "{fault}: {done:?}");
    }
}
