//! A network card that writes whatever it likes into registers, descriptors and buffers, at any
//! time: its driver must neither panic nor hand a buffer out twice, recover once the card behaves
//! (or give it up), and every buffer must come back at the end.

use device::{BATCH_FRAMES_MAX, Batch, Frame, HEADROOM, Nic, Pool, Sent, TEND_NANOSECONDS};
use drivers::net::puppet::{Part, Puppet};
use hw::{DmaArena, Mmio, Register};

/// Descriptors of each ring.
pub const RING: usize = 64;
const BUFFERS: usize = 3 * RING;
/// What one input does; each step takes some bytes of it.
const STEPS_MAX: usize = 1000;
/// Calls of [`Nic::tend`] within which a driver has noticed that a card hangs, and has reset it.
const TENDS_MAX: usize = 100;

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

/// A card, its driver, and who holds frames.
pub struct Card<P, D> {
    puppet: Puppet<P>,
    nic: D,
    /// Makes the driver as new, with a card that behaves: DMA memory is never given back, so that
    /// there is none for one driver per input.
    renew: fn(&mut D, &mut Puppet<P>),
    batch: Batch,
    kept: Vec<Frame>,
    pool: Pool,
    now: u64,
}

impl<P: Part, D: Nic> Card<P, D> {
    /// A card that its driver, which `make` makes, has brought up; it may write so many bytes into
    /// a buffer.
    pub fn new(
        frame_bytes_max: usize,
        make: impl FnOnce(&Puppet<P>, Mmio, &mut DmaArena, Pool) -> D,
        renew: fn(&mut D, &mut Puppet<P>),
    ) -> Self {
        let buffer_bytes = HEADROOM + frame_bytes_max;
        // Buffers, aligned to cache lines, and both rings.
        let dma_bytes = BUFFERS * (buffer_bytes + 64) + (16 << 10);
        let (puppet, bar, mut arena) = Puppet::new(dma_bytes);
        let pool = Pool::dma(&mut arena, BUFFERS, buffer_bytes).expect("there is room");
        Self {
            nic: make(&puppet, bar, &mut arena, pool),
            puppet,
            renew,
            batch: Batch::new(),
            kept: Vec::new(),
            pool,
            now: 0,
        }
    }

    /// Does what the input says, and leaves everything as new.
    pub fn run(&mut self, bytes: &[u8]) {
        self.now = 0;
        let mut input = Input(bytes);
        for _ in 0..STEPS_MAX {
            if self.step(&mut input).is_none() {
                break;
            }
            assert!(self.batch.len() <= BATCH_FRAMES_MAX);
            let mut frames = self.batch.iter().chain(&self.kept);
            assert_distinct(frames.clone());
            assert!(frames.all(|frame| frame.len() <= self.pool.frame_bytes_max()));
            let held = self.batch.len() + self.kept.len();
            assert!(held + self.pool.free() <= BUFFERS);
        }
        drop(self.batch.drain());
        self.kept.clear();
        self.recover();
        (self.renew)(&mut self.nic, &mut self.puppet);
        let lent = self.puppet.receive_room();
        let free: Vec<_> = std::iter::from_fn(|| self.pool.alloc_max()).collect();
        assert_distinct(&free);
        // A driver may keep one in the descriptor that stays free.
        let lost = BUFFERS - lent - free.len();
        assert!(lost <= 1, "every other buffer came back");
    }

    /// One step; `None` once the input is used up. Where the driver has been led to look for its
    /// rings by registers that were changed, the puppet finds none: its errors are no news.
    fn step(&mut self, input: &mut Input) -> Option<()> {
        let Self { puppet, nic, .. } = self;
        match input.byte()? % 14 {
            0 => {
                let lies = nic.counts().rx_lie;
                nic.receive(&mut self.batch);
                let lied = nic.counts().rx_lie > lies;
                assert!(
                    !lied || nic.link().is_none(),
                    "a card that lied is left alone"
                );
            }
            1 => {
                let given = Sent::all(&self.batch);
                let sent = nic.transmit(&mut self.batch);
                assert!(sent.frames <= given.frames && sent.bytes <= given.bytes);
            }
            2 => self.kept.extend(self.batch.drain()),
            3 => drop(self.kept.pop()),
            4 => {
                self.now += TEND_NANOSECONDS << (input.byte()? % 8);
                nic.tend(self.now);
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
            11 => {
                let (length, bits) = (input.word()?, input.word()?);
                let status = 3 | length << 32 | bits & !0xffff_0000_0003;
                _ = puppet.write_back(length);
                _ = puppet.scribble_receive(usize::MAX, [0, status]);
            }
            12 => {
                let (count, at, byte) = (input.byte()?, input.byte()?, input.byte()?);
                let mut frame = tcp(1 + 4 * usize::from(input.byte()?));
                frame[usize::from(at) % 60] = byte;
                let status = 3 | (frame.len() as u64) << 32;
                if puppet.deliver(&frame) == Ok(true) {
                    let packet = u64::from(count) << 17;
                    _ = puppet.scribble_receive(usize::MAX, [packet, status]);
                }
            }
            _ => {
                let [a, b, c, d, e, f, ..] = input.word()?.to_le_bytes();
                let register = Register::at(4 * usize::from(u16::from_le_bytes([a, b])));
                puppet.set(register, u32::from_le_bytes([c, d, e, f]));
            }
        }
        Some(())
    }

    /// The card behaves from now on, but for what it has to send: it must be reset for that, and
    /// then work, or have been given up.
    fn recover(&mut self) {
        let is_reset = (0..TENDS_MAX).any(|_| {
            self.behave();
            let resets = self.nic.counts().resets;
            let stuck = self.pool.alloc(60);
            stuck.map(|frame| self.batch.push(frame));
            self.nic.transmit(&mut self.batch);
            self.behave();
            self.nic.counts().given_up || self.nic.counts().resets > resets
        });
        assert!(is_reset, "a card that hangs is reset");
        if (0..TENDS_MAX).any(|_| {
            self.behave();
            self.nic.link().is_some()
        }) {
            assert!(self.puppet.deliver(&[7; 60]).expect("the ring is there"));
            self.nic.receive(&mut self.batch);
            let frames: Vec<_> = self.batch.drain().collect();
            assert!(frames.len() == 1 && frames[0].bytes() == [7; 60]);
        } else {
            assert!(self.nic.counts().given_up);
        }
    }

    /// Time passes, and a reset that has begun is over.
    fn behave(&mut self) {
        self.puppet.power_on();
        self.puppet.end_reset();
        self.now += TEND_NANOSECONDS;
        self.nic.tend(self.now);
    }
}

/// TCP over IPv4, in as much as cards and drivers look at it.
fn tcp(payload: usize) -> Vec<u8> {
    let mut frame = vec![0; 54 + payload.max(6)];
    let length = frame.len() as u16 - 14;
    frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
    frame[16..18].copy_from_slice(&length.to_be_bytes());
    (frame[23], frame[46]) = (6, 5 << 4);
    frame
}

/// No two frames may share a buffer.
fn assert_distinct<'a>(frames: impl IntoIterator<Item = &'a Frame>) {
    let frames = frames.into_iter();
    let mut places: Vec<_> = frames.map(|frame| frame.bytes().as_ptr()).collect();
    let held = places.len();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), held, "a buffer was handed out twice");
}
