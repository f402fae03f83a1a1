//! Reset and bring-up, step by step (Base 2.0, 3.5.1). No step waits: it is taken again with the
//! next look at the clock, at the start as well as after trouble.

use super::command::{Command, Identify};
use super::error::Error;
use super::identify::{self, Controller, Namespace};
use super::queue::{ENTRIES, Pair};
use super::registers::*;
use alloc::vec;
use alloc::vec::Vec;
use hw::{DmaArena, DmaRing, Done, Mmio, OutOfDma};

/// Longest that a controller may say that it takes to become ready, in nanoseconds: CAP.TO allows
/// for two minutes, which nobody waits for.
pub const READY_NANOSECONDS_MAX: u64 = 30_000_000_000;
/// Nanoseconds of a unit of CAP.TO.
const TIMEOUT_UNIT: u64 = 500_000_000;
/// How long an admin command may take, in nanoseconds.
pub const ADMIN_NANOSECONDS: u64 = 5_000_000_000;
/// Queues that have doorbells here: the admin queues, and those for I/O.
const QUEUES: usize = 2;
/// Words of the page that Identify fills.
const PAGE_WORDS: usize = identify::BYTES / 8;

/// What a device that does not get out of its reset fails to report.
const STOPS: &str = "CSTS.RDY, it is disabled";
const STARTS: &str = "CSTS.RDY, it is ready";

/// What the registers say of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Bytes from one doorbell to the next.
    pub stride: usize,
    /// How long it takes to become ready, in nanoseconds.
    pub ready: u64,
}

/// Reads what the device is capable of (3.1.3.1).
///
/// # Errors
/// [`Error`], if the driver cannot use such a one.
pub fn capabilities(bar: &Mmio) -> Result<Capabilities, Error> {
    let bar_has = |wanted: usize| {
        let found = bar.len();
        (found >= wanted)
            .then_some(())
            .ok_or(Error::Bar { wanted, found })
    };
    bar_has(DOORBELLS.offset())?;
    let [low, high] = CAP.map(|half| u64::from(bar.read(half)));
    let cap = low | high << 32;
    if cap == u64::MAX {
        return Err(Error::Gone);
    }
    if cap & CAP_ENTRIES < ENTRIES as u64 - 1 {
        return Err(Error::Lacks("queues that are too short"));
    }
    if cap & CAP_NVM == 0 {
        return Err(Error::Lacks("another command set than that of disks"));
    }
    if cap >> CAP_PAGE_SHIFT & 0xf != 0 {
        return Err(Error::Lacks("pages larger than 4 KiB"));
    }
    let stride = 4 << (cap >> CAP_STRIDE_SHIFT & 0xf);
    bar_has(DOORBELLS.offset() + 2 * QUEUES * stride)?;
    // What it says is rounded down.
    let ready = ((cap >> CAP_TIMEOUT_SHIFT & 0xff) + 1) * TIMEOUT_UNIT;
    Ok(Capabilities {
        stride,
        ready: ready.min(READY_NANOSECONDS_MAX),
    })
}

/// Has the controller stop (3.1.3.5, CC.EN).
pub fn disable(bar: &Mmio) {
    bar.change(CC, 0, CC_ENABLE);
}

/// Has the controller keep what it was given (3.6.1, CC.SHN), and go on with nothing.
pub fn shut_down(bar: &Mmio) {
    bar.change(CC, CC_SHUTDOWN, 0);
}

/// The device's word that it has nothing any more (3.1.3.6, CSTS.RDY).
pub fn is_disabled(bar: &Mmio) -> Option<Done> {
    bar.shows(CSTS, CSTS_READY, 0)
}

/// Gives the controller its admin queues, and has it start.
fn enable(bar: &Mmio, admin: &Pair) {
    let last = ENTRIES as u32 - 1;
    let [submissions, completions] = admin.rings();
    bar.write(AQA, last | last << AQA_COMPLETIONS_SHIFT);
    for (halves, ring) in [(ASQ, submissions), (ACQ, completions)] {
        let (low, high) = ring.halves();
        bar.write(halves[0], low);
        bar.write(halves[1], high);
    }
    bar.write(CC, CC_SETUP);
    bar.write(CC, CC_SETUP | CC_ENABLE);
}

/// Whether the registers say that it can go on.
///
/// # Errors
/// [`Error::Gone`], [`Error::Fatal`].
pub fn is_ready(bar: &Mmio) -> Result<bool, Error> {
    match bar.read(CSTS) {
        ALL_ONES => Err(Error::Gone),
        status if status & CSTS_FATAL != 0 => Err(Error::Fatal),
        status => Ok(status & CSTS_READY != 0),
    }
}

/// Whether it is configured as the driver left it: whatever resets it clears CC.EN (3.7).
pub fn is_ours(bar: &Mmio) -> bool {
    bar.read(CC) & CC_DRIVEN == CC_SETUP | CC_ENABLE
}

/// What the device is asked on its way up, in this order (3.5.1, steps 7 and 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Controller,
    Namespaces,
    Namespace,
    Queues,
    Completions,
    Submissions,
}

impl Question {
    fn name(self) -> &'static str {
        match self {
            Self::Controller => "Identify Controller",
            Self::Namespaces => "the list of its namespaces",
            Self::Namespace => "Identify Namespace",
            Self::Queues => "the number of queues",
            Self::Completions => "a completion queue",
            Self::Submissions => "a submission queue",
        }
    }

    fn next(self) -> Option<Self> {
        match self {
            Self::Controller => Some(Self::Namespaces),
            Self::Namespaces => Some(Self::Namespace),
            Self::Namespace => Some(Self::Queues),
            Self::Queues => Some(Self::Completions),
            Self::Completions => Some(Self::Submissions),
            Self::Submissions => None,
        }
    }
}

/// Where the device is on its way. Times are those of entering the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Stopping(u64),
    Starting(u64),
    Asking(Question, u64),
}

/// What a step came to.
#[derive(Debug)]
pub enum Came {
    /// It is not over.
    Nowhere,
    /// To the device's word that it has nothing any more.
    Stopped(Done),
    /// To a device that runs.
    Up(Controller, Namespace),
}

/// The way of a device from wherever it is to where it runs.
pub struct Ascent {
    step: Step,
    capabilities: Capabilities,
    wanted: Option<u32>,
    number: u32,
    controller: Option<Controller>,
    namespace: Option<Namespace>,
    /// What Identify fills.
    page: DmaRing<1, PAGE_WORDS>,
}

impl Ascent {
    /// Of a device with these capabilities, to a namespace, or the first one.
    ///
    /// # Errors
    /// If less DMA memory is left.
    pub fn new(
        arena: &mut DmaArena,
        capabilities: Capabilities,
        wanted: Option<u32>,
    ) -> Result<Self, OutOfDma> {
        Ok(Self {
            step: Step::Stopping(0),
            capabilities,
            wanted,
            number: 0,
            controller: None,
            namespace: None,
            page: arena.ring()?,
        })
    }

    /// Begins anew.
    pub fn begin(&mut self, bar: &Mmio, now: u64) {
        disable(bar);
        self.step = Step::Stopping(now);
    }

    /// Whether the device may still have what it had before.
    pub fn is_stopping(&self) -> bool {
        matches!(self.step, Step::Stopping(_))
    }

    /// One step. To be called again until it leads [up](Came::Up).
    ///
    /// # Errors
    /// [`Error`]: the device cannot be brought up like that.
    pub fn step(
        &mut self,
        bar: &Mmio,
        admin: &mut Pair,
        io: &mut Pair,
        now: u64,
    ) -> Result<Came, Error> {
        let ready = self.capabilities.ready;
        let late = |since: u64, most: u64| now.saturating_sub(since) > most;
        match self.step {
            Step::Stopping(since) => match is_disabled(bar) {
                Some(done) => {
                    admin.clear(self.capabilities.stride);
                    io.clear(self.capabilities.stride);
                    enable(bar, admin);
                    self.step = Step::Starting(now);
                    return Ok(Came::Stopped(done));
                }
                None if bar.read(CSTS) == ALL_ONES => return Err(Error::Gone),
                None if late(since, ready) => return Err(Error::Timeout(STOPS)),
                None => {}
            },
            Step::Starting(since) => {
                if is_ready(bar)? {
                    self.ask(Question::Controller, bar, admin, io, now);
                } else if late(since, ready) {
                    return Err(Error::Timeout(STARTS));
                }
            }
            Step::Asking(question, since) => {
                let Some(answer) = admin.next()? else {
                    return match late(since, ADMIN_NANOSECONDS) {
                        true => Err(Error::Timeout(question.name())),
                        false => Ok(Came::Nowhere),
                    };
                };
                admin.tell(bar);
                if !answer.status.is_success() {
                    return Err(Error::Refused {
                        command: question.name(),
                        status: answer.status,
                    });
                }
                self.learn(question)?;
                match question.next() {
                    Some(question) => self.ask(question, bar, admin, io, now),
                    None => return self.up(),
                }
            }
        }
        Ok(Came::Nowhere)
    }

    /// Asks the device something. No other admin command is under way.
    fn ask(&mut self, question: Question, bar: &Mmio, admin: &mut Pair, io: &Pair, now: u64) {
        // Or an answer without one would be the one before.
        (0..PAGE_WORDS).for_each(|index| self.page.store(index, 0, 0));
        let page = self.page.iova();
        let identify = |what, namespace| Command::identify(what, namespace, page);
        let [submissions, completions] = io.rings();
        let (number, entries) = (io.number(), ENTRIES as u16);
        let command = match question {
            Question::Controller => identify(Identify::Controller, 0),
            Question::Namespaces => identify(Identify::Namespaces, identify::behind(self.wanted)),
            Question::Namespace => identify(Identify::Namespace, self.number),
            Question::Queues => Command::one_queue(),
            Question::Completions => Command::create_completions(number, entries, completions),
            Question::Submissions => Command::create_submissions(number, entries, submissions),
        };
        // After a reset, all slots are free.
        if let Some(slot) = admin.free() {
            admin.put(slot, &command);
            admin.ring(bar);
        }
        self.step = Step::Asking(question, now);
    }

    /// What the device answered, read once: it may change the page at any time.
    fn learn(&mut self, question: Question) -> Result<(), Error> {
        match question {
            Question::Controller => self.controller = Some(Controller::of(&self.read())?),
            Question::Namespaces => {
                self.number = identify::namespace(&self.read(), self.wanted)?;
            }
            Question::Namespace => {
                self.namespace = Some(Namespace::of(self.number, &self.read())?);
            }
            Question::Queues | Question::Completions | Question::Submissions => {}
        }
        Ok(())
    }

    fn read(&self) -> Vec<u8> {
        let mut bytes = vec![0; identify::BYTES];
        for (index, word) in bytes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *word = self.page.load(index, 0).to_le_bytes();
        }
        bytes
    }

    fn up(&self) -> Result<Came, Error> {
        let both = self.controller.zip(self.namespace);
        let (controller, namespace) = both.ok_or(Error::Namespace(self.wanted))?;
        Ok(Came::Up(controller, namespace))
    }
}
