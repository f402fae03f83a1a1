//! Sends and receives frames of 60 bytes over one end of a link, in batches of 32, to be counted by
//! callgrind: `count_send` (frames that are made for the link), `count_copy` (frames of another
//! port), or `count_receive`.
//!
//!     valgrind --tool=callgrind --toggle-collect='*count_send*' cross FRAMES

use abi::link::{End, Entry};
use core::hint::black_box;
use device::{Batch, Frame, Netif, Pool};
use ports::puppet::Setup;

const SLOTS: usize = 64;
const BATCH: usize = 32;
const LENGTH: usize = 60;
const FRAMES: usize = 12_800;

fn main() {
    let frames = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let setup = Setup {
        links: vec![("link", SLOTS)],
        ..Setup::default()
    };
    let scene = setup.start();
    let mut port = scene.runtime.network("link").expect("there is a link");
    let far = scene.far(0);
    let mut far = End::begin(far.own, far.peer, SLOTS).expect("enough words");
    let (mut batch, mut others) = (Batch::new(), Batch::new());
    while far.look().is_some() {}
    port.receive(&mut batch);
    while far.look().is_some() {}
    assert!(far.is_up());
    let pool = Pool::new(vec![0; BATCH * 2048].leak(), 2048);
    for turn in 0..frames.unwrap_or(FRAMES) / BATCH {
        count_send(&mut *port, &mut batch);
        taken(&mut far);
        while let Some(frame) = pool.alloc(LENGTH) {
            others.push(frame).expect("there is room");
        }
        count_copy(&mut *port, &mut others);
        taken(&mut far);
        for number in 0..BATCH {
            let entry = Entry {
                slot: ((turn * BATCH + number) % SLOTS) as u32,
                offset: device::HEADROOM as u32,
                length: LENGTH as u32,
                ..Entry::default()
            };
            assert!(far.write(&entry));
        }
        far.post();
        assert_eq!(count_receive(&mut *port, &mut batch), BATCH);
        batch.drain().for_each(drop::<Frame>);
        assert_eq!(far.take_back(), Ok(BATCH as u64));
    }
}

/// The other end takes a batch.
fn taken(far: &mut End<'_>) {
    for _ in 0..BATCH {
        assert!(far.frame().expect("it keeps the rules").is_some() && far.take());
    }
    far.release();
}

#[inline(never)]
fn count_send(port: &mut dyn Netif, batch: &mut Batch) {
    for _ in 0..BATCH {
        let frame = port.alloc(LENGTH).expect("a buffer");
        batch.push(frame).expect("there is room");
    }
    port.transmit(batch);
    black_box(batch);
}

#[inline(never)]
fn count_copy(port: &mut dyn Netif, batch: &mut Batch) {
    port.transmit(batch);
    black_box(batch);
}

#[inline(never)]
fn count_receive(port: &mut dyn Netif, batch: &mut Batch) -> usize {
    port.receive(batch);
    // Without that it would be the same function as the one above, and counted with it.
    black_box(batch).len()
}
