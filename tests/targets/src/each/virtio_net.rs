//! A virtio network device that writes whatever it likes into rings, buffers, configuration and
//! status: its driver must neither panic nor hand a buffer out twice, recover once the device
//! behaves (or give it up), and every buffer must come back at the end.

use device::{BATCH_FRAMES_MAX, Batch, Frame, Nic, Pool, TEND_NANOSECONDS};
use drivers::net::virtio::puppet::{PLAIN, Puppet};
use drivers::net::virtio::{BUFFER_BYTES, Config, Driver};
use drivers::virtio::pci::Pci;
use std::cell::RefCell;
use std::collections::BTreeSet;

const RING: usize = 64;
const BUFFERS: usize = 3 * RING;
const DMA_BYTES: usize = BUFFERS * (BUFFER_BYTES + 64) + 6 * 4096;
/// What one input does; each step takes eight bytes of it.
const STEPS_MAX: usize = 1000;
/// Calls of [`Nic::tend`] within which a driver has noticed that a device hangs, and has reset it.
const TENDS_MAX: usize = 100;

struct Subject {
    puppet: Puppet,
    nic: Driver<Pci, RING>,
    pool: Pool,
    kept: Vec<Frame>,
    now: u64,
    /// What the device offers, and its configuration, while it behaves.
    good: (u64, Vec<u8>),
}

thread_local! {
    /// One for all inputs, each of which finds it as new.
    static SUBJECT: RefCell<Subject> = RefCell::new(Subject::new());
}

impl Subject {
    fn new() -> Self {
        let (puppet, transport, mut arena) = Puppet::new(DMA_BYTES);
        let pool = Pool::dma(&mut arena, BUFFERS, BUFFER_BYTES).expect("there is room");
        let nic = Driver::new(transport, &mut arena, pool, Config::FORWARD, puppet.clock());
        let device = puppet.device();
        let good = (device.offered.get(), device.config.borrow().clone());
        Self {
            good,
            nic: nic.expect("the puppet comes up"),
            puppet,
            pool,
            kept: Vec::new(),
            now: 0,
        }
    }

    fn run(&mut self, bytes: &[u8]) {
        self.now = 0;
        for step in bytes.chunks_exact(8).take(STEPS_MAX) {
            let [what, queue, a, b, c, d, e, f] = *step else {
                unreachable!("eight bytes");
            };
            let (small, large) = (u16::from_le_bytes([a, b]), u32::from_le_bytes([c, d, e, f]));
            self.step(what, usize::from(queue & 1), small, large);
            let held = self.kept.len() + self.pool.free();
            assert!(held <= BUFFERS);
        }
        self.kept.clear();
        self.recover();
        let renewed = self.nic.renew(self.puppet.clock());
        renewed.expect("the puppet comes up");
        let free: Vec<_> = std::iter::from_fn(|| self.pool.alloc_max()).collect();
        assert_distinct(&free);
        assert_eq!(free.len(), BUFFERS - RING, "every other buffer came back");
    }

    /// One step. Where there is no ring, the puppet finds none: its errors are no news.
    fn step(&mut self, what: u8, queue: usize, small: u16, large: u32) {
        let Self { puppet, nic, .. } = self;
        match what % 12 {
            0 => {
                let _ = puppet.scribble(queue, small % 8, large, large >> 8);
            }
            1 => {
                let _ = puppet.scribble(queue, small % 8, large % 80, u32::from(small) % 3000);
            }
            2 => {
                let _ = puppet.set_used(queue, small);
            }
            3 => {
                let _ = puppet.set_used(queue, puppet.used(queue).wrapping_add(small % 70));
            }
            4 => {
                let _ = puppet.give_back(queue, small % 70, large % 2100);
            }
            5 => {
                let mut header = PLAIN;
                header[..4].copy_from_slice(&large.to_le_bytes());
                header[10..].copy_from_slice(&(small % 4).to_le_bytes());
                let _ = puppet.deliver(header, &[large as u8; 100]);
            }
            6 => {
                let _ = puppet.deliver(PLAIN, &vec![large as u8; 14 + usize::from(small % 1500)]);
            }
            7 => {
                let _ = puppet.drain();
            }
            8 => {
                let device = puppet.device();
                match small % 4 {
                    0 => device.status.set(large as u8),
                    1 => device.config.borrow_mut()[large as usize % 20] = (large >> 8) as u8,
                    2 => device.refuses.set(large & 1 != 0),
                    _ => device.offered.set(device.offered.get() ^ 1 << (large % 64)),
                }
            }
            9 => {
                self.now += TEND_NANOSECONDS << (small % 8);
                nic.tend(self.now);
            }
            10 => {
                let mut batch = Batch::new();
                for frame in self.kept.drain(..).take(BATCH_FRAMES_MAX) {
                    let _ = batch.push(frame);
                }
                nic.transmit(&mut batch);
                assert!(batch.is_empty());
            }
            _ => {
                let mut batch = Batch::new();
                nic.receive(&mut batch);
                self.kept.extend(batch.drain());
                let fits = |frame: &Frame| frame.len() <= self.pool.frame_bytes_max();
                assert!(self.kept.iter().all(fits));
                assert_distinct(&self.kept);
            }
        }
    }

    /// The device behaves from now on: it is brought up again, unless it was given up.
    fn recover(&mut self) {
        let device = self.puppet.device();
        device.offered.set(self.good.0);
        device.config.borrow_mut().clone_from(&self.good.1);
        device.refuses.set(false);
        device.status.set(0);
        for _ in 0..TENDS_MAX {
            self.now += TEND_NANOSECONDS;
            self.nic.tend(self.now);
        }
        assert!(self.nic.counts().given_up || self.nic.link().is_some());
    }
}

fn assert_distinct<'a>(frames: impl IntoIterator<Item = &'a Frame>) {
    let mut seen = BTreeSet::new();
    assert!(frames.into_iter().all(|frame| seen.insert(frame.index())));
}

pub fn feed(bytes: &[u8]) {
    SUBJECT.with_borrow_mut(|subject| subject.run(bytes))
}
