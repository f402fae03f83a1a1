//! A checkup: a device is brought up by its driver and tried step by step, and each step says what
//! it found.
//!
//! It is for cards that no driver of ours has met, and for whoever has one and not the source at
//! hand. It knows no device: what is special about one is its [`Examination`], in the table of
//! drivers. Time, sleep and where the findings go are the caller's ([`Place`]).

use super::{Driver, Resources, Started};
use core::fmt;
use device::{Batch, Frame, NicCounts, TEND_NANOSECONDS};
use hw::{DmaArena, Mmio, Register};

/// For the link, in nanoseconds: negotiation of copper takes some seconds.
pub const LINK_NANOSECONDS: u64 = 10_000_000_000;
/// For frames that the device sends to itself, its counter of sent ones, and an interrupt.
const ANSWER_NANOSECONDS: u64 = 1_000_000_000;
/// Between two looks.
const LOOK_NANOSECONDS: u64 = 1_000_000;
/// Frames that go through the loopback: each of another length, from the least to the largest.
const LOOPED: u32 = 64;
/// As many go at a time.
const LOOPED_AT_ONCE: u32 = 16;
/// Frames that are sent over the wire.
const SENT: u32 = 32;
/// Interrupts for something else, such as the link, that may come before that for a frame.
const INTERRUPTS_MAX: usize = 8;
/// Bytes of a frame, without its checksum.
const FRAME_BYTES_MIN: usize = 60;
const FRAME_BYTES_MAX: usize = 1514;
/// For local experiments (IEEE 802, 9.2.3): no host takes it for anything else.
const ETHER_TYPE: [u8; 2] = [0x88, 0xb5];
/// Where the number of a frame is, behind the Ethernet header, and where its pattern begins.
const NUMBER_AT: usize = 14;
const PATTERN_AT: usize = 18;

/// What there is to know of a device beside its driver.
#[derive(Clone, Copy, Debug)]
pub struct Examination {
    /// Registers that say what the device is doing. Reading them changes nothing.
    pub registers: &'static [Register],
    /// Frames sent; reading clears it.
    pub sent: Register,
    /// Has a device that runs receive what it sends, until its next reset; nothing leaves it.
    pub loop_back: fn(&Mmio),
    /// The section of the datasheet that each of [`Step::ALL`] is about.
    pub sections: [&'static str; Step::ALL.len()],
}

/// A step of the checkup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Reset and bring-up.
    Start,
    /// The address of the station.
    Address,
    /// The link comes up.
    Link,
    /// Frames of all lengths, which the device sends to itself.
    Loopback,
    /// An interrupt for a received frame.
    Interrupt,
    /// Reset and bring-up of a device that runs, and frames through the loopback again.
    Restart,
    /// Frames to the wire, as the device counts them.
    Send,
    /// Frames from the wire.
    Receive,
    /// What driver and device have counted.
    Counts,
}

impl Step {
    /// All steps, in their order.
    pub const ALL: [Self; 9] = [
        Self::Start,
        Self::Address,
        Self::Link,
        Self::Loopback,
        Self::Interrupt,
        Self::Restart,
        Self::Send,
        Self::Receive,
        Self::Counts,
    ];

    /// One word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Address => "address",
            Self::Link => "link",
            Self::Loopback => "loopback",
            Self::Interrupt => "interrupt",
            Self::Restart => "restart",
            Self::Send => "send",
            Self::Receive => "receive",
            Self::Counts => "counts",
        }
    }
}

/// What came of a step, from the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// It could not be tried, or what is missing may not be the device's fault.
    Warn,
    /// The device does not do what its driver was written for.
    No,
}

impl Verdict {
    /// One word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::No => "no",
        }
    }
}

/// Where a checkup takes place.
pub trait Place {
    /// Monotonic time in nanoseconds.
    fn now(&self) -> u64;

    /// Sleeps until then, or until the device has interrupted: whether it has.
    fn sleep(&mut self, until: u64) -> bool;

    /// Whether the device can interrupt at all.
    fn interrupts(&self) -> bool;

    /// What a register held, before the start or behind it.
    fn register(&mut self, when: &str, register: Register, value: u32);

    /// What a step has found.
    fn found(&mut self, step: Step, section: &str, verdict: Verdict, what: fmt::Arguments<'_>);
}

/// The device to examine.
pub struct Patient<'a> {
    /// Its driver.
    pub driver: &'a Driver,
    /// What there is to look at.
    pub examination: Examination,
    /// Its registers.
    pub bar0: Mmio,
    /// Memory for two starts of the driver.
    pub arena: &'a mut DmaArena,
    /// Monotonic time in nanoseconds.
    pub clock: &'a dyn Fn() -> u64,
    /// How long to listen to the wire, in nanoseconds.
    pub listen: u64,
}

/// Examines a device; the worst that was found. It takes half a minute and the time to listen at
/// most, if nothing is as it should be.
pub fn run(patient: Patient<'_>, place: &mut dyn Place) -> Verdict {
    let mut checkup = Checkup {
        patient,
        place,
        counts: NicCounts::default(),
        worst: Verdict::Ok,
    };
    checkup.registers("before");
    checkup.first();
    checkup.worst
}

/// Frames that came back from the device itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Came {
    /// The next in order, as it was sent.
    good: u32,
    /// Ours, but not the next in order, or with other bytes.
    bad: u32,
}

impl fmt::Display for Came {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} came as they were sent, {} did not",
            self.good, self.bad
        )
    }
}

struct Checkup<'a> {
    patient: Patient<'a>,
    place: &'a mut dyn Place,
    /// Of drivers that are over.
    counts: NicCounts,
    worst: Verdict,
}

impl Checkup<'_> {
    fn examination(&self) -> Examination {
        self.patient.examination
    }

    fn found(&mut self, step: Step, verdict: Verdict, what: fmt::Arguments<'_>) {
        self.worst = self.worst.max(verdict);
        let number = Step::ALL.iter().position(|other| *other == step);
        let section = number.and_then(|number| self.examination().sections.get(number).copied());
        let section = section.unwrap_or_default();
        self.place.found(step, section, verdict, what);
    }

    fn registers(&mut self, when: &str) {
        for register in self.examination().registers {
            let value = self.patient.bar0.read(*register);
            self.place.register(when, *register, value);
        }
    }

    /// From the start to the interrupt, then on with a device that is reset while it runs.
    fn first(&mut self) {
        let Some(mut started) = self.start(Step::Start) else {
            return self.registers("failed");
        };
        let mac = started.nic.mac();
        let [a, b, c, d, e, f] = mac;
        let text = format_args!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}");
        self.found(Step::Address, Verdict::Ok, text);
        self.link(&mut started);
        self.registers("up");
        if self.loop_back(&mut started, Step::Loopback) {
            self.interrupt(&mut started);
        }
        self.end(started);
        let Some(mut started) = self.start(Step::Restart) else {
            return self.registers("failed");
        };
        self.loop_back(&mut started, Step::Restart);
        self.end(started);
        self.wire();
        self.count();
    }

    /// Brings the device up. A start that works is only told of as [`Step::Start`].
    fn start(&mut self, step: Step) -> Option<Started> {
        let begin = self.place.now();
        let resources = Resources {
            bar0: self.patient.bar0.clone(),
            virtio: None,
            arena: self.patient.arena,
            // Small buffers: there is memory for several starts.
            others: STARTS,
            mtu: super::MTU,
            clock: self.patient.clock,
        };
        match (self.patient.driver.start)(resources) {
            Ok(started) => {
                let micros = self.place.now().saturating_sub(begin) / 1000;
                if step == Step::Start {
                    let name = self.patient.driver.name;
                    let what = format_args!("{name} has brought it up in {micros} us");
                    self.found(step, Verdict::Ok, what);
                }
                Some(started)
            }
            Err(error) => {
                self.found(step, Verdict::No, format_args!("{error}"));
                None
            }
        }
    }

    /// Keeps what a driver has counted, and stops its device.
    fn end(&mut self, started: Started) {
        let (sum, more) = (&mut self.counts, started.nic.counts());
        sum.rx_error += more.rx_error;
        sum.rx_lie += more.rx_lie;
        sum.rx_missed += more.rx_missed;
        sum.no_buffer += more.no_buffer;
        sum.tx_no_room += more.tx_no_room;
        sum.tx_link_down += more.tx_link_down;
        sum.tx_refused += more.tx_refused;
        sum.resets += more.resets;
        sum.given_up |= more.given_up;
    }

    /// Waits for the link: its speed in Mb/s.
    fn await_link(&mut self, started: &mut Started, nanoseconds: u64) -> Option<u32> {
        let end = self.place.now().saturating_add(nanoseconds);
        loop {
            let now = self.place.now();
            started.nic.tend(now);
            if started.nic.link().is_some() || now >= end {
                return started.nic.link();
            }
            self.place.sleep(now + TEND_NANOSECONDS);
        }
    }

    fn link(&mut self, started: &mut Started) {
        match self.await_link(started, LINK_NANOSECONDS) {
            Some(speed) => self.found(Step::Link, Verdict::Ok, format_args!("up, {speed} Mb/s")),
            None => {
                let seconds = LINK_NANOSECONDS / 1_000_000_000;
                let what =
                    format_args!("down for {seconds} s: is a cable plugged in at both ends?");
                self.found(Step::Link, Verdict::Warn, what);
            }
        }
    }

    /// Frames of all lengths; whether they came back.
    fn loop_back(&mut self, started: &mut Started, step: Step) -> bool {
        (self.examination().loop_back)(&self.patient.bar0);
        if self.await_link(started, ANSWER_NANOSECONDS).is_none() {
            let what = format_args!("not tried: this device has no loopback without a link");
            self.found(step, Verdict::Warn, what);
            return false;
        }
        let mut came = Came::default();
        let mut first = 0;
        while first < LOOPED
            && came
                == (Came {
                    good: first,
                    bad: 0,
                })
        {
            let last = LOOPED.min(first + LOOPED_AT_ONCE);
            self.send(started, first..last);
            let end = self.place.now() + ANSWER_NANOSECONDS;
            while came.good + came.bad < last && self.place.now() < end {
                self.hear(started, &mut came);
            }
            first = last;
        }
        let all = came
            == (Came {
                good: LOOPED,
                bad: 0,
            });
        let verdict = if all { Verdict::Ok } else { Verdict::No };
        let what = format_args!("of {LOOPED} frames of 60 to 1514 bytes, {came}");
        self.found(step, verdict, what);
        all
    }

    /// Sends frames with these numbers.
    fn send(&mut self, started: &mut Started, numbers: core::ops::Range<u32>) {
        let mut batch = Batch::new();
        let mac = started.nic.mac();
        for number in numbers {
            let Some(mut frame) = started.pool.alloc(frame_bytes(number)) else {
                break;
            };
            write(frame.bytes_mut(), mac, number);
            // One that finds no room is missed at the other end.
            if batch.push(frame).is_err() {
                break;
            }
        }
        started.nic.transmit(&mut batch);
    }

    /// Receives what is there, or sleeps for a moment; how many frames were others'.
    fn hear(&mut self, started: &mut Started, came: &mut Came) -> u64 {
        let mut batch = Batch::new();
        started.nic.receive(&mut batch);
        if batch.is_empty() {
            let now = self.place.now();
            self.place.sleep(now + LOOK_NANOSECONDS);
        }
        let mac = started.nic.mac();
        let mut others = 0;
        for frame in batch.drain() {
            match number(&frame, mac) {
                None => others += 1,
                Some(Ok(number)) if number == came.good => came.good += 1,
                Some(_) => came.bad += 1,
            }
        }
        others
    }

    /// The device interrupts for a frame that it sends to itself.
    fn interrupt(&mut self, started: &mut Started) {
        if !self.place.interrupts() {
            let what = format_args!("not tried: the manifest gives the device none");
            return self.found(Step::Interrupt, Verdict::Warn, what);
        }
        started.nic.arm();
        let begin = self.place.now();
        self.send(started, 0..1);
        let mut came = Came::default();
        let mut interrupted = false;
        for _ in 0..INTERRUPTS_MAX {
            interrupted = self.place.sleep(begin + ANSWER_NANOSECONDS);
            let micros = self.place.now().saturating_sub(begin) / 1000;
            self.hear(started, &mut came);
            if interrupted && came.good == 1 {
                let what = format_args!("{micros} us behind the doorbell of a frame");
                return self.found(Step::Interrupt, Verdict::Ok, what);
            }
            if !interrupted {
                break;
            }
            started.nic.arm();
        }
        let what = match (interrupted, came.good) {
            (true, _) => "there were some, but not for a frame",
            (false, 0) => "neither an interrupt nor the frame came",
            (false, _) => "none, though the frame is there",
        };
        self.found(Step::Interrupt, Verdict::No, format_args!("{what}"));
    }

    /// What goes to the wire and what comes from it, with a device that is started once more.
    fn wire(&mut self) {
        let Some(mut started) = self.start(Step::Send) else {
            return self.registers("failed");
        };
        if self.await_link(&mut started, LINK_NANOSECONDS).is_none() {
            for step in [Step::Send, Step::Receive] {
                self.found(step, Verdict::Warn, format_args!("not tried: no link"));
            }
            return self.end(started);
        }
        let sent = self.examination().sent;
        self.patient.bar0.read(sent);
        self.send(&mut started, 0..SENT);
        let end = self.place.now() + ANSWER_NANOSECONDS;
        let mut counted = 0_u64;
        while counted < u64::from(SENT) && self.place.now() < end {
            counted += u64::from(self.patient.bar0.read(sent));
            let now = self.place.now();
            self.place.sleep(now + LOOK_NANOSECONDS);
        }
        let verdict = match counted >= u64::from(SENT) {
            true => Verdict::Ok,
            false => Verdict::No,
        };
        let what = format_args!("of {SENT} frames, the card counted {counted} as sent");
        self.found(Step::Send, verdict, what);
        self.listen(&mut started);
        self.registers("end");
        self.end(started);
    }

    fn listen(&mut self, started: &mut Started) {
        let end = self.place.now().saturating_add(self.patient.listen);
        let (mut came, mut others) = (Came::default(), 0);
        let mut tended = self.place.now();
        while self.place.now() < end {
            others += self.hear(started, &mut came);
            let now = self.place.now();
            if now.saturating_sub(tended) >= TEND_NANOSECONDS {
                started.nic.tend(now);
                tended = now;
            }
        }
        let back = came.good + came.bad;
        let seconds = self.patient.listen / 1_000_000_000;
        let verdict = match (others, came) {
            (_, Came { bad: 1.., .. }) => Verdict::No,
            (0, Came { good: 0, .. }) => Verdict::Warn,
            _ => Verdict::Ok,
        };
        let what = format_args!(
            "{others} frames of others in {seconds} s; of our own {back} came back, {} of them \
             damaged",
            came.bad
        );
        self.found(Step::Receive, verdict, what);
    }

    fn count(&mut self) {
        let counts = self.counts;
        let verdict = match counts {
            NicCounts { given_up: true, .. } => Verdict::No,
            NicCounts {
                rx_lie,
                resets,
                tx_refused,
                ..
            } if rx_lie + resets + tx_refused > 0 => Verdict::No,
            NicCounts {
                rx_error,
                rx_missed,
                ..
            } if rx_error + rx_missed > 0 => Verdict::Warn,
            _ => Verdict::Ok,
        };
        let what = format_args!(
            "rx_error {}, rx_lie {}, rx_missed {}, no_buffer {}, tx_no_room {}, tx_link_down {}, \
             tx_refused {}, resets {}",
            counts.rx_error,
            counts.rx_lie,
            counts.rx_missed,
            counts.no_buffer,
            counts.tx_no_room,
            counts.tx_link_down,
            counts.tx_refused,
            counts.resets
        );
        self.found(Step::Counts, verdict, what);
    }
}

/// Starts of the driver in one checkup: the DMA memory has to suffice for all.
pub const STARTS: usize = 3;

/// Bytes of the frame with this number: the least, the largest, and what is between them.
fn frame_bytes(number: u32) -> usize {
    let range = FRAME_BYTES_MAX - FRAME_BYTES_MIN;
    let last = LOOPED as usize - 1;
    FRAME_BYTES_MIN + range * (number as usize % LOOPED as usize) / last
}

fn pattern(number: u32, index: usize) -> u8 {
    (index as u32).wrapping_mul(7).wrapping_add(number) as u8
}

/// Makes the frame with this number of `bytes`: to all, from `mac`.
fn write(bytes: &mut [u8], mac: [u8; 6], number: u32) {
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = match index {
            0..6 => 0xff,
            6..12 => mac.get(index - 6).copied().unwrap_or_default(),
            12..NUMBER_AT => ETHER_TYPE.get(index - 12).copied().unwrap_or_default(),
            NUMBER_AT..PATTERN_AT => (number >> (8 * (index - NUMBER_AT))) as u8,
            _ => pattern(number, index),
        };
    }
}

/// The number of a frame that [`write`] made, or that its bytes are others now; `None` if it is
/// none of `mac`'s.
fn number(frame: &Frame, mac: [u8; 6]) -> Option<Result<u32, ()>> {
    let bytes = frame.bytes();
    if bytes.get(6..12)? != mac || bytes.get(12..NUMBER_AT)? != ETHER_TYPE {
        return None;
    }
    let number = bytes.get(NUMBER_AT..PATTERN_AT)?.first_chunk::<4>()?;
    let number = u32::from_le_bytes(*number);
    let whole = bytes.len() == frame_bytes(number);
    let mut rest = bytes.iter().enumerate().skip(PATTERN_AT);
    let same = whole && rest.all(|(index, byte)| *byte == pattern(number, index));
    Some(if same { Ok(number) } else { Err(()) })
}
