//! A NIC writes whatever it likes into registers, descriptors and buffers, at any time: its driver
//! must neither panic nor hand a buffer out twice, and every buffer must come back at the end.
#![no_main]

use device::{BATCH_FRAMES_MAX, Batch, Frame, Nic, Pool, TEND_NANOSECONDS};
use drivers::net::ixgbe::puppet::Puppet;
use drivers::net::ixgbe::{BUFFER_BYTES, Config, Driver};
use hw::Register;
use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;

const RING: usize = 64;
const BUFFERS: usize = 3 * RING;
/// Buffers, aligned to cache lines, and both rings.
const DMA_BYTES: usize = BUFFERS * (BUFFER_BYTES + 64) + (16 << 10);
/// What one input does; each step takes some bytes of it.
const STEPS_MAX: usize = 1000;

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn word(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*first))
    }
}

struct World {
    puppet: Puppet,
    nic: Driver<RING, RING>,
    batch: Batch,
    kept: Vec<Frame>,
    pool: Pool,
    now: u64,
}

thread_local! {
    /// One for all inputs, each of which finds it as new: DMA memory is never given back.
    static WORLD: RefCell<World> = RefCell::new(world());
}

fn world() -> World {
    let (puppet, bar, mut arena) = Puppet::new(DMA_BYTES);
    let pool = Pool::dma(&mut arena, BUFFERS, BUFFER_BYTES).expect("there is room");
    let nic = Driver::new(bar, &mut arena, pool, Config::FORWARD, puppet.clock());
    World {
        puppet,
        nic: nic.expect("the puppet comes up"),
        batch: Batch::new(),
        kept: Vec::new(),
        pool,
        now: 0,
    }
}

/// One step; `None` once the input is used up. Where the driver has been led to look for its rings
/// by registers that were changed, the puppet finds none: its errors are no news.
fn step(world: &mut World, input: &mut Input) -> Option<()> {
    let World { puppet, nic, .. } = world;
    match input.byte()? % 12 {
        0 => nic.receive(&mut world.batch),
        1 => nic.transmit(&mut world.batch),
        2 => world.kept.extend(world.batch.drain()),
        3 => drop(world.kept.pop()),
        4 => {
            world.now += TEND_NANOSECONDS << (input.byte()? % 8);
            nic.tend(world.now);
        }
        5 => _ = nic.arm(),
        6 => _ = puppet.deliver(&[input.byte()?; 60]),
        7 => _ = puppet.report(|_| ()),
        8 => _ = puppet.end_reset(),
        9 => {
            let (ahead, words) = (input.byte()?, [input.word()?, input.word()?]);
            _ = puppet.scribble_receive(usize::from(ahead), words);
        }
        10 => {
            let (ahead, words) = (input.byte()?, [input.word()?, input.word()?]);
            _ = puppet.scribble_transmit(usize::from(ahead), words);
        }
        _ => {
            let [a, b, c, d, e, f, ..] = input.word()?.to_le_bytes();
            let register = Register(4 * usize::from(u16::from_le_bytes([a, b])));
            puppet.set(register, u32::from_le_bytes([c, d, e, f]));
        }
    }
    Some(())
}

fn run(world: &mut World, bytes: &[u8]) {
    world.now = 0;
    let mut input = Input(bytes);
    for _ in 0..STEPS_MAX {
        if step(world, &mut input).is_none() {
            break;
        }
        let frames = world.batch.iter().chain(&world.kept);
        let mut places: Vec<_> = frames.map(|frame| frame.bytes().as_ptr()).collect();
        let held = places.len();
        assert!(held + world.pool.free() + RING <= BUFFERS);
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), held, "a buffer was handed out twice");
        assert!(world.batch.len() <= BATCH_FRAMES_MAX);
    }
    drop(world.batch.drain());
    world.kept.clear();
    let renewed = world.nic.renew(world.puppet.power_cycle());
    renewed.expect("the puppet comes up");
    assert_eq!(
        world.pool.free(),
        BUFFERS - RING,
        "every other buffer came back"
    );
}

fuzz_target!(|bytes: &[u8]| WORLD.with_borrow_mut(|world| run(world, bytes)));
