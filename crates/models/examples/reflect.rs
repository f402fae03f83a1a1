//! How many frames a second the model of the 82599 moves on one core, with the least possible
//! driver on another: it sends back every frame that it gets.
//!
//! `cargo run --release -p models --example reflect -- 3` measures for three seconds. With `count`
//! and a number of frames instead, driver and model take turns in one thread, for
//! `cargo xtask instructions` to count what is in `model_turn`. Time is made up then, so that all
//! runs are alike.

#![forbid(unsafe_code)]

use hw::sim::{View, arena};
use hw::{DmaRing, Mmio, Reachable, Register};
use models::wire::Flood;
use models::{Device, Intel82599, Local, Misbehaviour, Threaded};
use std::time::{Duration, Instant};

const DESCRIPTORS: usize = 512;
const BUFFER_BYTES: u64 = 2048;
const IOVA: u64 = 0x10_0000_0000;
const BATCH: usize = 32;
/// How long a turn of the model takes where time is made up.
const TURN: Duration = Duration::from_micros(10);

type Ring = DmaRing<2, DESCRIPTORS>;

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse().expect("a number");
    let (seconds, count) = match arguments.as_slice() {
        [] => (3, None),
        [seconds] => (number(seconds), None),
        ["count", frames] => (0, Some(number(frames))),
        _ => panic!("usage: reflect [SECONDS | count FRAMES]"),
    };
    let mut frame = vec![0; 60];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    let wire = Flood::new(vec![frame]);
    let model = Intel82599::new([2, 0, 0, 0, 0, 1], wire, &Misbehaviour::default());
    let (mut arena, memory) = arena(4 << 20, IOVA);
    let (rx, tx) = (arena.ring().expect("a ring"), arena.ring().expect("a ring"));
    let buffers = arena
        .buf(DESCRIPTORS * 2 * BUFFER_BYTES as usize, 4096)
        .expect("buffers");
    let buffers = buffers.iova().expect("an address").raw();
    let start = Instant::now();
    let rings = Rings { rx, tx, buffers };
    let (frames, violations) = if let Some(count) = count {
        let model = Local::new(model);
        let bar = model.mmio();
        begin(&bar, &rings);
        let mut now = Duration::ZERO;
        let turn = || {
            now += TURN;
            model_turn(&model, &memory, now);
        };
        let frames = reflect(&bar, &rings, |frames| frames >= count, turn);
        (frames, model.device().violations().clone())
    } else {
        let model = Threaded::new(model);
        std::thread::scope(|scope| {
            let other = model.clone();
            scope.spawn(move || other.run(&memory, |_| {}));
            let bar = model.mmio();
            begin(&bar, &rings);
            let end = start + Duration::from_secs(seconds);
            let over = |frames: u64| frames.is_multiple_of(1024) && Instant::now() > end;
            let frames = reflect(&bar, &rings, over, std::hint::spin_loop);
            model.stop();
            (frames, model.device().violations().clone())
        })
    };
    let rate = frames as f64 / start.elapsed().as_secs_f64() / 1e6;
    println!("{rate:.2} million frames of 64 bytes a second, {frames} in all");
    print!("{violations}");
}

/// What is counted: the model takes what is to be sent, and writes what it receives.
#[inline(never)]
fn model_turn(model: &Local<Intel82599<Flood>>, memory: &View, now: Duration) {
    model.poll(memory, now);
}

struct Rings {
    rx: Ring,
    tx: Ring,
    /// Where the buffers begin.
    buffers: u64,
}

/// Bring-up in the order of section 4.6.
fn begin(bar: &Mmio, Rings { rx, tx, buffers }: &Rings) {
    let wait = |offset, bits| while bar.read(Register::at(offset)) & bits != bits {};
    wait(0x10010, 1 << 9);
    wait(0x2f00, 1 << 3);
    bar.write(Register::at(0x5080), 3 << 8);
    bar.change(Register::at(0x2f00), 1 << 1 | 1 << 25 | 1 << 26, 0x1f << 17);
    for (ring, base) in [(rx, 0x1000), (tx, 0x6000)] {
        let (low, high) = ring.iova().halves();
        bar.write(Register::at(base), low);
        bar.write(Register::at(base + 4), high);
        bar.write(Register::at(base + 8), Ring::BYTES as u32);
    }
    bar.write(Register::at(0x1014), 1 << 25 | 2);
    bar.change(Register::at(0x4a80), 1, 0);
    for control in [0x1028, 0x6028] {
        bar.change(Register::at(control), 1 << 25, 0);
        wait(control, 1 << 25);
    }
    for index in 0..DESCRIPTORS {
        rx.store(index, 0, buffers + index as u64 * BUFFER_BYTES);
        rx.store(index, 1, 0);
    }
    bar.write(Register::at(0x1018), DESCRIPTORS as u32 - 1);
    bar.change(Register::at(0x8d00), 1 << 1, 0);
    wait(0x8d04, 1);
    bar.write(Register::at(0x3000), 1);
    bar.change(Register::at(0x8d00), 0, 1 << 1);
    bar.change(Register::at(0x18), 1 << 16, 0);
    bar.change(Register::at(0x100c), 0, 1 << 12);
}

/// Sends back what comes in: the buffer of a descriptor goes into the transmit descriptor of the
/// same index, and the one that was sent from there before takes its place.
fn reflect(
    bar: &Mmio,
    Rings { rx, tx, buffers }: &Rings,
    is_over: impl Fn(u64) -> bool,
    mut turn: impl FnMut(),
) -> u64 {
    let mut spare: Vec<u64> = (DESCRIPTORS..2 * DESCRIPTORS)
        .map(|index| buffers + index as u64 * BUFFER_BYTES)
        .collect();
    let mut held: Vec<u64> = (0..DESCRIPTORS)
        .map(|index| buffers + index as u64 * BUFFER_BYTES)
        .collect();
    let mut next = 0;
    loop {
        let mut taken = 0;
        while taken < BATCH {
            let index = next % DESCRIPTORS;
            let done = rx.load(index, 1);
            // The transmit descriptor must be free: it was done a round ago.
            let free = next < DESCRIPTORS || tx.load(index, 1) >> 32 & 1 != 0;
            if done & 1 == 0 || !free {
                break;
            }
            let len = u64::from((done >> 32) as u16);
            std::mem::swap(&mut spare[index], &mut held[index]);
            tx.store(index, 0, spare[index]);
            tx.store(index, 1, len | 0x2b30_0000 | len << 46);
            rx.store(index, 0, held[index]);
            rx.store(index, 1, 0);
            next += 1;
            taken += 1;
        }
        if taken > 0 {
            bar.write(Register::at(0x6018), (next % DESCRIPTORS) as u32);
            bar.write(
                Register::at(0x1018),
                ((next + DESCRIPTORS - 1) % DESCRIPTORS) as u32,
            );
        }
        turn();
        if is_over(next as u64) {
            return next as u64;
        }
    }
}
