//! A driver says anything to an NVM Express disk, whose file is in memory: admin queues, a pair of
//! queues for I/O, commands and doorbells of any kind. The disk must not panic, each turn must end,
//! and nothing outside of the disk changes.

use crate::each::model::{IOVA, disk};
use hw::sim::{View, arena};
use models::{Device, Misbehaviour, Nvme};
use std::time::Duration;

const MEMORY_BYTES: usize = 128 << 10;
/// Where each queue lies, two pages each: submissions, completions; and buffers behind them.
const QUEUE_BYTES: u64 = 0x2000;
const BUFFERS: u64 = 4 * QUEUE_BYTES;
/// Entries of each queue.
const ENTRIES: u32 = 16;
/// What one input does; each step takes sixteen bytes of it.
const STEPS_MAX: usize = 500;
const FAULTS: &str = "seed=1,status=8,garbage=8,early-done=8,skip=8,lost-interrupt=8,\
    transmit-hang=64,wild-write=8,twice=8";

// Registers and bits of its own reading.
const CC: u64 = 0x14;
const AQA: u64 = 0x24;
const ASQ: u64 = 0x28;
const ACQ: u64 = 0x30;
const DOORBELLS: u64 = 0x1000;
const ENABLED: u32 = 0x0046_0001;

thread_local! {
    static MEMORY: View = arena(MEMORY_BYTES, IOVA).1;
}

struct Subject<'a> {
    disk: Nvme,
    memory: &'a View,
    tails: [u32; 2],
}

impl Subject<'_> {
    fn write(&mut self, offset: u64, value: u32) {
        self.disk.write(0, offset, &value.to_le_bytes());
    }

    /// Enables the controller, with a pair of queues for I/O.
    fn start(&mut self) {
        self.write(AQA, (ENTRIES - 1) * 0x1_0001);
        self.write(ASQ, IOVA as u32);
        self.write(ACQ, IOVA as u32 + 0x1000);
        self.write(CC, ENABLED);
        self.disk.poll(self.memory, Duration::ZERO);
        let at = IOVA + QUEUE_BYTES;
        let of = u64::from((ENTRIES - 1) << 16 | 1);
        self.put(0, [5, 0, 0, at + 0x1000, 0, of | 1 << 32, 0, 0]);
        self.put(0, [1, 0, 0, at, 0, of | 0x1_0001 << 32, 0, 0]);
    }

    /// Puts a command into a queue, and rings for it.
    fn put(&mut self, queue: usize, words: [u64; 8]) {
        let tail = self.tails[queue];
        let at = IOVA + QUEUE_BYTES * queue as u64 + 64 * u64::from(tail);
        for (place, word) in (at..).step_by(8).zip(words) {
            self.memory.store(place, word).expect("it is all there");
        }
        self.tails[queue] = (tail + 1) % ENTRIES;
        self.write(DOORBELLS + 8 * queue as u64, self.tails[queue]);
        self.disk.poll(self.memory, Duration::ZERO);
        self.disk.take_interrupts();
    }

    fn step(&mut self, bytes: &[u8; 16]) {
        let [
            what,
            queue,
            opcode,
            namespace,
            a,
            b,
            c,
            d,
            e,
            f,
            g,
            h,
            rest @ ..,
        ] = *bytes;
        let queue = usize::from(queue & 1);
        let (first, second) = (
            u32::from_le_bytes([a, b, c, d]),
            u32::from_le_bytes([e, f, g, h]),
        );
        let last = u32::from_le_bytes(rest);
        match what % 8 {
            // A command that is nearly right.
            0..=3 => {
                let address = |word: u32| IOVA + u64::from(word) % (MEMORY_BYTES as u64 + 4096);
                let lower = u64::from(opcode % 16) | u64::from(last) << 16 & 0xffff_0000;
                let mut pages = [address(first), address(second)];
                if what & 1 == 0 {
                    pages = pages.map(|page| (page | BUFFERS) & !0xfff);
                }
                let [one, two] = pages;
                let of = u64::from(second % 80) | u64::from(first >> 24) << 32;
                let count = u64::from(last >> 16);
                let number = u64::from(namespace % 3) << 32;
                self.put(queue, [lower | number, 0, 0, one, two, of, count, 0]);
            }
            // And one that is anything.
            4 => {
                let word = u64::from(first) << 32 | u64::from(second);
                let any = word.wrapping_mul(u64::from(last) | 1);
                self.put(queue, [word, 0, any, word, any, word ^ any, any >> 7, 0]);
            }
            5 => self.write(u64::from(first) % 0x1040, second),
            6 => self.write(DOORBELLS + 4 + 8 * queue as u64, second % (ENTRIES + 1)),
            _ => {
                let place = IOVA + u64::from(first) % (MEMORY_BYTES as u64 - 8);
                let word = IOVA + u64::from(second) % MEMORY_BYTES as u64;
                self.memory
                    .store(place & !7, word & !0xfff)
                    .expect("it is all there");
            }
        }
    }
}

pub fn feed(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else {
        return;
    };
    let misbehaviour: Misbehaviour = match first & 1 {
        0 => Misbehaviour::default(),
        _ => FAULTS.parse().expect("they are faults"),
    };
    let size = if first & 2 == 0 { 512 } else { 4096 };
    let disk = Nvme::with_blocks(disk(first % 8 > 5), size, &misbehaviour);
    MEMORY.with(|memory| {
        memory
            .write(IOVA, &[0; MEMORY_BYTES])
            .expect("it is all there");
        let mut subject = Subject {
            disk,
            memory,
            tails: [0; 2],
        };
        subject.start();
        for step in rest.as_chunks::<16>().0.iter().take(STEPS_MAX) {
            subject.step(step);
        }
        let reports = subject.disk.violations().to_string();
        assert!(!reports.contains(|c: char| c.is_control() && c != '\n'));
    });
}
