//! How many frames a second a model moves on one core, with the least possible driver on another,
//! which sends back every frame that it gets.
//!
//! `cargo run --release -p models --example reflect -- 82599 3` measures for three seconds. With
//! `count` and a number of frames instead, driver and model take turns in one thread, for
//! `cargo xtask instructions` to count what is in `model_turn`. Time is made up then, so that all
//! runs are alike.

#![forbid(unsafe_code)]

use hw::sim::{View, arena};
use hw::{DmaRing, Mmio, Reachable, Register};
use models::wire::Flood;
use models::{Device, Intel82574, Intel82599, Local, Misbehaviour, Threaded};
use std::time::{Duration, Instant};

const DESCRIPTORS: usize = 512;
const BUFFER_BYTES: u64 = 2048;
const IOVA: u64 = 0x10_0000_0000;
const BATCH: usize = 32;
/// How long a turn of the model takes where time is made up.
const TURN: Duration = Duration::from_micros(10);

type Ring = DmaRing<2, DESCRIPTORS>;

/// What there is to know of a card.
struct Card {
    /// Bring-up in the order of section 4.6 of its datasheet.
    begin: fn(&Mmio, &Rings),
    /// Where the tails of its first queues are.
    rx_tail: usize,
    tx_tail: usize,
    /// The second word of a descriptor that sends so many bytes.
    sends: fn(u64) -> u64,
}

const CARD_82599: Card = Card {
    begin: begin_82599,
    rx_tail: 0x1018,
    tx_tail: 0x6018,
    sends: |len| len | 0x2b30_0000 | len << 46,
};
const CARD_82574: Card = Card {
    begin: begin_82574,
    rx_tail: 0x2818,
    tx_tail: 0x3818,
    sends: |len| len | 0x2b10_0000,
};

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse().expect("a number");
    let (card, seconds, count) = match arguments.as_slice() {
        [card] => (*card, 3, None),
        [card, seconds] => (*card, number(seconds), None),
        [card, "count", frames] => (*card, 0, Some(number(frames))),
        _ => panic!("usage: reflect 82599|82574 [SECONDS | count FRAMES]"),
    };
    let mut frame = vec![0; 60];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    let (wire, address) = (Flood::new(vec![frame]), [2, 0, 0, 0, 0, 1]);
    let lawful = Misbehaviour::default();
    match card {
        "82599" => run(
            &CARD_82599,
            Intel82599::new(address, wire, &lawful),
            seconds,
            count,
        ),
        "82574" => run(
            &CARD_82574,
            Intel82574::new(address, wire, &lawful),
            seconds,
            count,
        ),
        other => panic!("{other} is no card: 82599 or 82574"),
    }
}

fn run<D: Device + Send + 'static>(card: &Card, model: D, seconds: u64, count: Option<u64>) {
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
        (card.begin)(&bar, &rings);
        let mut now = Duration::ZERO;
        let turn = || {
            now += TURN;
            model_turn(&model, &memory, now);
        };
        let frames = reflect(card, &bar, &rings, |frames| frames >= count, turn);
        (frames, model.device().violations().clone())
    } else {
        let model = Threaded::new(model);
        std::thread::scope(|scope| {
            let other = model.clone();
            scope.spawn(move || other.run(&memory, |_| {}));
            let bar = model.mmio();
            (card.begin)(&bar, &rings);
            let end = start + Duration::from_secs(seconds);
            let over = |frames: u64| frames.is_multiple_of(1024) && Instant::now() > end;
            let frames = reflect(card, &bar, &rings, over, std::hint::spin_loop);
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
fn model_turn<D: Device + 'static>(model: &Local<D>, memory: &View, now: Duration) {
    model.poll(memory, now);
}

struct Rings {
    rx: Ring,
    tx: Ring,
    /// Where the buffers begin.
    buffers: u64,
}

impl Rings {
    /// Says where a ring is, in registers from `base` on.
    fn place(ring: &Ring, bar: &Mmio, base: usize) {
        let (low, high) = ring.iova().halves();
        bar.write(Register::at(base), low);
        bar.write(Register::at(base + 4), high);
        bar.write(Register::at(base + 8), Ring::BYTES as u32);
    }

    /// Fills the receive ring.
    fn offer(&self) {
        for index in 0..DESCRIPTORS {
            let buffer = self.buffers + index as u64 * BUFFER_BYTES;
            self.rx.store(index, 0, buffer);
            self.rx.store(index, 1, 0);
        }
    }
}

fn wait(bar: &Mmio, offset: usize, bits: u32) {
    while bar.read(Register::at(offset)) & bits != bits {}
}

fn begin_82574(bar: &Mmio, rings: &Rings) {
    wait(bar, 0x10, 1 << 9);
    bar.change(Register::at(0x5b00), 1 << 22, 0);
    bar.change(Register::at(0x0), 1 << 6, 0);
    bar.write(Register::at(0x5008), 1 << 15);
    bar.write(Register::at(0x5000), 0);
    Rings::place(&rings.rx, bar, 0x2800);
    Rings::place(&rings.tx, bar, 0x3800);
    rings.offer();
    bar.write(Register::at(0x100), 1 << 1 | 3 << 3 | 1 << 26);
    bar.write(Register::at(0x2818), DESCRIPTORS as u32 - 1);
    bar.write(Register::at(0x3828), 1 << 22);
    bar.write(Register::at(0x400), 1 << 1 | 1 << 3);
}

fn begin_82599(bar: &Mmio, rings: &Rings) {
    let wait = |offset, bits| wait(bar, offset, bits);
    wait(0x10010, 1 << 9);
    wait(0x2f00, 1 << 3);
    bar.write(Register::at(0x5080), 3 << 8);
    bar.change(Register::at(0x2f00), 1 << 1 | 1 << 25 | 1 << 26, 0x1f << 17);
    Rings::place(&rings.rx, bar, 0x1000);
    Rings::place(&rings.tx, bar, 0x6000);
    bar.write(Register::at(0x1014), 1 << 25 | 2);
    bar.change(Register::at(0x4a80), 1, 0);
    for control in [0x1028, 0x6028] {
        bar.change(Register::at(control), 1 << 25, 0);
        wait(control, 1 << 25);
    }
    rings.offer();
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
    card: &Card,
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
            tx.store(index, 1, (card.sends)(len));
            rx.store(index, 0, held[index]);
            rx.store(index, 1, 0);
            next += 1;
            taken += 1;
        }
        if taken > 0 {
            let last = (next + DESCRIPTORS - 1) % DESCRIPTORS;
            bar.write(Register::at(card.tx_tail), (next % DESCRIPTORS) as u32);
            bar.write(Register::at(card.rx_tail), last as u32);
        }
        turn();
        if is_over(next as u64) {
            return next as u64;
        }
    }
}
