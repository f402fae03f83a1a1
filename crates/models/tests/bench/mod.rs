//! What the tests of a driver on its model have in common: a bench where both take turns, frames,
//! and a soak on it.

use device::{Batch, Frame, Nic, NicCounts, Pool, TEND_NANOSECONDS};
use drivers::net::Error;
use etherparse::PacketBuilder;
use hw::sim::{View, arena};
use hw::{DmaArena, Mmio};
use models::{Device, Local};
use std::cell::Cell;
use std::collections::HashSet;
use std::rc::Rc;
use std::time::Duration;

const IOVA: u64 = 0x10_0000_0000;
/// The card's.
pub const ADDRESS: [u8; 6] = [2, 0, 0, 0, 0, 9];
/// Bytes of an Ethernet header.
pub const ETHERNET: usize = 14;

/// How much memory a driver is given.
pub struct Memory {
    pub bytes: usize,
    pub buffers: usize,
    pub buffer_bytes: usize,
}

/// A driver and a device that take turns in one thread, and their time.
pub struct Bench<D, N> {
    pub device: Rc<Local<D>>,
    pub driver: N,
    pub pool: Pool,
    memory: View,
    buffer_bytes: usize,
    now: Rc<Cell<u64>>,
}

impl<D: Device + 'static, N: Nic> Bench<D, N> {
    /// Puts a device on it, and the driver that `start` makes.
    pub fn with(
        device: D,
        size: &Memory,
        start: impl FnOnce(Mmio, &mut DmaArena, Pool, &dyn Fn() -> u64) -> Result<N, Error>,
    ) -> Result<Self, Error> {
        let device = Local::new(device);
        let (mut arena, memory) = arena(size.bytes, IOVA);
        let pool = Pool::dma(&mut arena, size.buffers, size.buffer_bytes).unwrap();
        let now = Rc::new(Cell::new(0));
        let clock = || {
            now.set(now.get() + 1000);
            now.get()
        };
        let driver = start(device.mmio(), &mut arena, pool, &clock)?;
        Ok(Self {
            device,
            driver,
            pool,
            memory,
            buffer_bytes: size.buffer_bytes,
            now,
        })
    }

    /// Time passes for both.
    pub fn pass(&mut self, nanoseconds: u64) {
        self.now.set(self.now.get() + nanoseconds);
        self.turn();
        self.driver.tend(self.now.get());
    }

    pub fn turn(&mut self) {
        self.now.set(self.now.get() + 1000);
        let now = Duration::from_nanos(self.now.get());
        self.device.poll(&self.memory, now);
    }

    pub fn frame(&self, bytes: &[u8]) -> Frame {
        let mut frame = self.pool.alloc(bytes.len()).unwrap();
        frame.bytes_mut().copy_from_slice(bytes);
        frame
    }

    pub fn send(&mut self, frame: Frame) {
        let mut batch = Batch::new();
        assert!(batch.push(frame).is_ok());
        self.driver.transmit(&mut batch);
        self.turn();
    }

    pub fn receive(&mut self) -> Vec<Vec<u8>> {
        let mut batch = Batch::new();
        self.turn();
        self.driver.receive(&mut batch);
        batch.iter().map(|frame| frame.bytes().to_vec()).collect()
    }

    pub fn assert_lawful(&self) {
        let device = self.device.device();
        assert!(device.violations().is_empty(), "{}", device.violations());
    }
}

/// So many bytes, whose order shows.
pub fn bytes(len: usize) -> Vec<u8> {
    let byte = |index: usize| (index * 7 + index / 251) as u8;
    (0..len).map(byte).collect()
}

/// A frame to the card, complete.
pub fn udp(payload: &[u8]) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 7], ADDRESS)
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .udp(1000, 2000);
    let mut frame = Vec::new();
    builder.write(&mut frame, payload).unwrap();
    frame
}

/// The same, of TCP.
pub fn tcp(v6: bool, payload: &[u8]) -> Vec<u8> {
    let ethernet = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 7], ADDRESS);
    let builder = match v6 {
        true => ethernet.ipv6([1; 16], [2; 16], 64),
        false => ethernet.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64),
    };
    let mut frame = Vec::new();
    let builder = builder.tcp(1000, 2000, 5, 100).ack(1);
    builder.write(&mut frame, payload).unwrap();
    frame
}

/// What came of a soak.
pub struct Soaked {
    pub received: u64,
    pub counts: NicCounts,
}

/// Rounds of a soak, and frames of each.
pub const ROUNDS: u32 = 600;
pub const FRAMES: u64 = 8;

/// Sends and receives, with some of the received frames kept for a while. Whatever its device does,
/// a driver must never panic, hand out a buffer twice, or a frame that is longer than one.
pub fn soak<D: Device + 'static, N: Nic>(mut bench: Bench<D, N>, how: &str) -> Soaked {
    let buffer_bytes = bench.buffer_bytes;
    let mut received = 0;
    let mut kept: Vec<Frame> = Vec::new();
    for round in 0..ROUNDS {
        let mut batch = Batch::new();
        for number in 0..FRAMES as u8 {
            // A driver that gave its device up may have left it all buffers.
            let Some(mut frame) = bench.pool.alloc(60) else {
                break;
            };
            frame.bytes_mut().fill(number);
            assert!(batch.push(frame).is_ok());
        }
        bench.driver.transmit(&mut batch);
        bench.turn();
        bench.driver.receive(&mut batch);
        received += batch.len() as u64;
        kept.extend(batch.drain());
        let mut places = HashSet::new();
        for frame in &kept {
            let range = frame.bytes().as_ptr_range();
            let (start, end) = (range.start as usize, range.end as usize);
            assert!(end - start < buffer_bytes, "{how}");
            assert!(
                places.insert(start / buffer_bytes),
                "{how}: handed out twice"
            );
        }
        if kept.len() > 64 {
            kept.drain(..32);
        }
        if round % 8 == 0 {
            bench.pass(TEND_NANOSECONDS);
        }
    }
    let counts = *bench.driver.counts();
    Soaked { received, counts }
}
