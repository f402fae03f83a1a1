//! What a virtio network card costs as a back end of vhost-user, with the least possible driver,
//! which sends back every frame that it gets.
//!
//! `cargo run --release -p models --example back_end -- FRAMES`: device and driver take turns in
//! one thread, so that callgrind counts what the device does (`--toggle-collect='*device_turn*'`).
//! The wire sends back what comes: the device takes each frame from the driver and gives it back.

#![forbid(unsafe_code)]

use hw::sim::View;
use models::Misbehaviour;
use models::vhost_user::{BackEnd, Header, PAYLOAD_MAX};
use models::virtio::VirtioNet;
use models::wire::Loop;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Where the front end and its driver find the memory, and its size.
const USER: u64 = 0x7f00_0000_0000;
const IOVA: u64 = 0x10_0000;
const MEMORY: u64 = 4 << 20;
/// Descriptors of a queue, and the bytes between two of both queues' areas.
const SIZE: u16 = 256;
const QUEUE: u64 = 0x1_0000;
/// Where the areas of a queue begin, behind its descriptors.
const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x4000;
/// Where buffers begin, and how far they are apart.
const BUFFERS: u64 = IOVA + 0x10_0000;
const BUFFER_BYTES: u64 = 2048;
/// Frames that are under way, and their bytes with a virtio-net header.
const UNDER_WAY: u16 = 128;
const HEADER: u32 = 12;
const FRAME: u32 = 60;
/// VERSION_1, MRG_RXBUF, and that there are features of the protocol: what DPDK's driver takes.
const FEATURES: u64 = 1 << 32 | 1 << 30 | 1 << 15;
/// Version of the protocol, and the messages that start a device.
const VERSION: u32 = 1;
const SET_FEATURES: u32 = 2;
const SET_MEM_TABLE: u32 = 5;
const SET_VRING_NUM: u32 = 8;
const SET_VRING_ADDR: u32 = 9;
const SET_VRING_BASE: u32 = 10;
const SET_VRING_KICK: u32 = 12;
const SET_VRING_ENABLE: u32 = 18;
/// Flags of a descriptor.
const WRITE: u64 = 2;

type Device = BackEnd<VirtioNet<Loop>>;

fn main() {
    let frames = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let frames: u64 = frames.expect("usage: back_end FRAMES");
    let file = linux::memory::sealed("memory", MEMORY).expect("memory");
    let memory = View::of_file(file.as_fd(), 0, MEMORY, IOVA, true).expect("a mapping");
    let card = VirtioNet::new([2, 0, 0, 0, 0, 1], Loop::new()).without_control();
    let mut device = BackEnd::new(card, &Misbehaviour::default());
    start(&mut device, file);
    let [mut rx, mut tx] = [0, 1].map(|number| Queue::new(&memory, number));
    (0..SIZE).for_each(|index| rx.offer(&memory, index));
    rx.publish(&memory);
    (0..UNDER_WAY).for_each(|index| tx.offer(&memory, index));
    tx.publish(&memory);
    let (mut received, mut turns) = (0, 0);
    while received < frames {
        turns += 1;
        device_turn(&mut device, Duration::from_micros(10 * turns));
        while tx.take(&memory).is_some() {}
        while let Some(index) = rx.take(&memory) {
            received += 1;
            rx.offer(&memory, index);
            tx.offer(&memory, tx.offered % SIZE);
        }
        rx.publish(&memory);
        tx.publish(&memory);
    }
    println!("{received} frames in {turns} turns");
    print!("{}", device.violations());
}

/// What is counted.
#[inline(never)]
fn device_turn(device: &mut Device, now: Duration) {
    device.poll(now);
}

/// Says what a front end says before its device works.
fn start(device: &mut Device, file: OwnedFd) {
    let mut say = |request, words: &[u64], file: Option<OwnedFd>| {
        let payload: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let header = Header {
            request,
            flags: VERSION,
            bytes: payload.len() as u32,
        };
        let files = file.into_iter().collect();
        let said = device.message(&header, &payload, files, &mut [0; PAYLOAD_MAX]);
        said.expect("the device does as it is told");
    };
    let event = || eventfd(0, EventfdFlags::CLOEXEC).ok();
    say(SET_FEATURES, &[FEATURES], None);
    say(SET_MEM_TABLE, &[1, IOVA, MEMORY, USER, 0], Some(file));
    for number in [0, 1] {
        let state = |value: u64| [value << 32 | number];
        let at = USER + number * QUEUE;
        say(SET_VRING_NUM, &state(SIZE.into()), None);
        say(SET_VRING_BASE, &state(0), None);
        say(
            SET_VRING_ADDR,
            &[number, at, at + USED, at + AVAILABLE, 0],
            None,
        );
        say(SET_VRING_KICK, &[number], event());
        say(SET_VRING_ENABLE, &state(1), None);
    }
}

/// The driver's side of a queue. Each descriptor has a buffer of its own.
struct Queue {
    at: u64,
    offered: u16,
    taken: u16,
}

impl Queue {
    /// Queue 0 is for frames to the driver.
    fn new(memory: &View, number: u64) -> Self {
        let at = IOVA + number * QUEUE;
        let (bytes, flags) = match number {
            0 => (BUFFER_BYTES, WRITE),
            _ => (u64::from(HEADER + FRAME), 0),
        };
        for index in 0..u64::from(SIZE) {
            let buffer = BUFFERS + (number * u64::from(SIZE) + index) * BUFFER_BYTES;
            memory.store(at + 16 * index, buffer).expect("memory");
            let rest = flags << 32 | bytes;
            memory.store(at + 16 * index + 8, rest).expect("memory");
        }
        Self {
            at,
            offered: 0,
            taken: 0,
        }
    }

    /// Puts a chain of one descriptor into the ring.
    fn offer(&mut self, memory: &View, index: u16) {
        let slot = u64::from(self.offered % SIZE);
        let place = self.at + AVAILABLE + 4 + 2 * slot;
        memory.store16(place, index).expect("memory");
        self.offered = self.offered.wrapping_add(1);
    }

    fn publish(&self, memory: &View) {
        let place = self.at + AVAILABLE + 2;
        memory.store16(place, self.offered).expect("memory");
    }

    /// The next chain that the device is done with.
    fn take(&mut self, memory: &View) -> Option<u16> {
        if memory.load16(self.at + USED + 2).expect("memory") == self.taken {
            return None;
        }
        let slot = u64::from(self.taken % SIZE);
        self.taken = self.taken.wrapping_add(1);
        let head = memory.load16(self.at + USED + 4 + 8 * slot);
        Some(head.expect("memory"))
    }
}
