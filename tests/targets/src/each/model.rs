//! A driver that does whatever it likes with a software device: registers of every BAR in every
//! width, rings and buffers at any time. The device must not panic, and each turn must end.

use hw::sim::{View, arena};
use models::disk::Disk;
use models::wire::Loop;
use models::{Device, DiskSetup, MODELS, Make, Misbehaviour, Setup};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::path::Path;
use std::time::Duration;

/// Where the driver's memory lies, and how much there is: addresses of few digits are often right.
pub const IOVA: u64 = 0x1_0000;
const MEMORY_BYTES: usize = 64 << 10;
/// Bytes of a disk.
const DISK_BYTES: u64 = 64 << 10;
/// What one input does; each step takes some bytes of it.
const STEPS_MAX: usize = 2000;
/// What a device does wrong if the input wants that.
const FAULTS: &str = "seed=1,length=8,status=8,garbage=8,early-done=8,skip=8,link-flap=32,\
    lost-interrupt=8,transmit-hang=64,wild-write=8";

/// Steps, by the lowest bits of their number.
pub mod step {
    /// A register is written: BAR, width, offset of four bytes, value of eight.
    pub const WRITE: u8 = 0;
    /// A register is read: BAR, width, offset of four bytes.
    pub const READ: u8 = 1;
    /// Memory is written: offset of two bytes, value of eight.
    pub const MEMORY: u8 = 2;
    /// The device works, and its driver looks for interrupts.
    pub const POLL: u8 = 3;
}

thread_local! {
    /// DMA memory is never given back, so that there is none for one device per input.
    static MEMORY: View = arena(MEMORY_BYTES, IOVA).1;
    /// The file of every disk.
    static FILE: OwnedFd = {
        let file = memfd_create("disk", MemfdFlags::CLOEXEC).expect("there is memory");
        ftruncate(&file, DISK_BYTES).expect("there is memory");
        file
    };
}

/// A disk in memory, of which there is one at a time.
pub fn disk(read_only: bool) -> Disk {
    let path = FILE.with(|file| format!("/proc/self/fd/{}", file.as_raw_fd()));
    let disk = Disk::open(Path::new(&path), read_only).expect("the file is there");
    assert_eq!(disk.bytes(), DISK_BYTES, "no driver changes the size");
    disk
}

/// A device of the list of models.
pub fn device(number: u8, misbehaviour: Misbehaviour) -> Box<dyn Device> {
    match MODELS[usize::from(number) % MODELS.len()].make {
        Make::Nic(make) => make(Setup {
            address: [2, 0, 0, 0, 0, 1],
            wire: Box::new(Loop::new()),
            mtu: None,
            misbehaviour,
        }),
        Make::Disk(make) => make(DiskSetup {
            disk: disk(false),
            misbehaviour,
        }),
        Make::Alone(make) => make(&misbehaviour).expect("the kernel has what it takes"),
    }
}

/// The next `N` bytes of the input.
fn take<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(*first)
}

/// The first byte says which device, and the second whether it misbehaves.
pub fn feed(input: &[u8]) {
    let mut input = input;
    let Some([number, faults]) = take(&mut input) else {
        return;
    };
    let misbehaviour: Misbehaviour = match faults & 1 {
        0 => Misbehaviour::default(),
        _ => FAULTS.parse().expect("they are faults"),
    };
    let mut device = device(number, misbehaviour);
    MEMORY.with(|memory| {
        memory
            .write(IOVA, &[0; MEMORY_BYTES])
            .expect("it is all there");
        for turn in 0..STEPS_MAX {
            let Some([step]) = take(&mut input) else {
                break;
            };
            if take_step(step, &mut input, &mut *device, memory).is_none() {
                break;
            }
            device.poll(memory, Duration::from_micros(10 * turn as u64));
            device.take_interrupts();
            device.asserts_pin();
        }
    });
    device.reset();
    assert!(
        !device
            .violations()
            .to_string()
            .contains(|c: char| c.is_control() && c != '\n')
    );
}

fn take_step(
    step: u8,
    input: &mut &[u8],
    device: &mut dyn models::Device,
    memory: &View,
) -> Option<()> {
    let access = |input: &mut &[u8]| {
        let [bar, width] = take(input)?;
        let offset = u32::from_le_bytes(take(input)?);
        Some((bar % 6, usize::from(width) % 9, u64::from(offset)))
    };
    match step % 4 {
        step::WRITE => {
            let (bar, width, offset) = access(input)?;
            let value: [u8; 8] = take(input)?;
            device.write(bar, offset, &value[..width]);
        }
        step::READ => {
            let (bar, width, offset) = access(input)?;
            device.read(bar, offset, &mut [0; 8][..width]);
        }
        step::MEMORY => {
            let offset = u16::from_le_bytes(take(input)?);
            let value: [u8; 8] = take(input)?;
            // What goes beyond the end is not there.
            let _outside = memory.write(IOVA + u64::from(offset), &value);
        }
        _ => {}
    }
    Some(())
}
