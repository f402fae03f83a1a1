//! A device behind its window, and the thread that lets it work.
//!
//! The thread never holds the device while it sleeps, and lets others in between two turns: a
//! processor that has left the guest waits for a turn at most, whose work is bounded.

use crate::complain;
use crate::counters::{Counter, Counters};
use crate::ioregionfd::wire::{Command, Direction};
use crate::ioregionfd::{self, Broken};
use crate::ranges::{Place, Ranges};
use arrayvec::ArrayVec;
use hw::sim::View;
use models::virtio::{Mmio, VirtioDevice};
use models::{Dma, Progress, Violations};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The longest sleep: the device looks at its link this often.
const SLEEP_MAX: Duration = Duration::from_millis(64);
/// Commands that are obeyed until the device works again: more than a
/// [connection](ioregionfd::connect) holds.
const COMMANDS_MAX: usize = 512;
/// How often a thread steps back until whoever waits for the device has had it.
const YIELDS_MAX: usize = 1000;

/// Most events of queues that are waited for.
pub const DOORBELLS_MAX: usize = 14;
/// Beside them: the end of an interrupt, a kick, commands, and the wire.
const WATCHED_MAX: usize = DOORBELLS_MAX + 4;

/// A device of any kind behind its registers.
pub trait Window: Send {
    /// Reads registers.
    fn read(&mut self, place: Place, bytes: &mut [u8]);
    /// Writes registers.
    fn write(&mut self, place: Place, bytes: &[u8]);
    /// A queue was notified.
    fn notify(&mut self, queue: u16);
    /// Lets the device work.
    fn poll(&mut self, dma: &dyn Dma, now: Duration) -> Progress;
    /// Whether to interrupt.
    fn take_raised(&mut self) -> bool;
    /// The guest has served the last interrupt, if that is a level.
    fn end_of_interrupt(&mut self) {}
    /// When it wants to work again though nothing happens, in the time that it is told.
    fn due(&self) -> Option<Duration> {
        None
    }
    /// What its driver did wrong.
    fn violations(&self) -> &Violations;
}

impl<D: VirtioDevice + Send> Window for Mmio<D> {
    fn read(&mut self, place: Place, bytes: &mut [u8]) {
        self.read(place.offset, bytes);
    }

    fn write(&mut self, place: Place, bytes: &[u8]) {
        self.write(place.offset, bytes);
    }

    fn notify(&mut self, queue: u16) {
        self.notify(queue);
    }

    fn poll(&mut self, dma: &dyn Dma, now: Duration) -> Progress {
        self.poll(dma, now)
    }

    fn take_raised(&mut self) -> bool {
        self.take_raised()
    }

    fn violations(&self) -> &Violations {
        self.violations()
    }
}

/// A device, the guest's memory as it has it, and what is counted of it.
pub struct Served {
    /// The device.
    pub window: Box<dyn Window>,
    /// Where its registers are.
    pub ranges: Ranges,
    /// All of the guest's memory.
    pub memory: View,
    /// What is counted.
    pub counters: Counters,
}

impl Served {
    /// An access of the guest.
    pub fn access(&mut self, direction: Direction, place: Place, data: &mut [u8]) {
        let is_write = direction == Direction::Write;
        self.counters.access(place, is_write);
        match direction {
            Direction::Read => self.window.read(place, data),
            Direction::Write => self.window.write(place, data),
        }
    }

    fn obey(&mut self, command: &Command, place: Place) -> u64 {
        let mut word = command.data.to_le_bytes();
        if command.direction == Direction::Read {
            word = [0; 8];
        }
        // The message says 1, 2, 4 or 8.
        let bytes = command.bytes.min(word.len());
        self.access(command.direction, place, &mut word[..bytes]);
        match command.direction {
            Direction::Read => u64::from_le_bytes(word),
            Direction::Write => 0,
        }
    }
}

/// A device that a processor and a thread share.
pub struct Shared {
    served: Mutex<Served>,
    /// How many wait for it, beside the thread that lets it work.
    waiting: AtomicUsize,
}

impl Shared {
    /// Nobody has it.
    pub fn new(served: Served) -> Self {
        Self {
            served: Mutex::new(served),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Waits for the device, for a turn at most.
    pub fn enter(&self) -> MutexGuard<'_, Served> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let served = self.lock();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        served
    }

    /// Takes the device for a turn. A lock is whose thread runs: without stepping back, who was
    /// woken up for it would never be in time.
    fn turn(&self) -> MutexGuard<'_, Served> {
        for _ in 0..YIELDS_MAX {
            if self.waiting.load(Ordering::Relaxed) == 0 {
                break;
            }
            thread::yield_now();
        }
        self.lock()
    }

    /// A device whose thread panicked is as its driver left it.
    fn lock(&self) -> MutexGuard<'_, Served> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a device is told by, and tells by.
#[derive(Debug)]
pub struct Lines {
    /// Events of its queues, in their order: at most [`DOORBELLS_MAX`].
    pub doorbells: Vec<OwnedFd>,
    /// Interrupts the guest.
    pub interrupt: OwnedFd,
    /// Tells that the guest has served the interrupt, if that is a level.
    pub resample: Option<OwnedFd>,
    /// Tells that a processor has written a register, where that may ask for work.
    pub kick: Option<OwnedFd>,
    /// What it receives from.
    pub wire: Option<OwnedFd>,
    /// Where commands come from, if its registers are reached so.
    pub commands: Option<OwnedFd>,
    /// Whether the device never sleeps.
    pub busy: bool,
}

/// Why a device does not work any more.
#[derive(Debug)]
pub enum End {
    /// No command will come.
    Commands(Broken),
    /// What the kernel says of its lines.
    Lines(io::Error),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Commands(broken) => broken.fmt(f),
            Self::Lines(error) => write!(f, "its events: {error}"),
        }
    }
}

impl std::error::Error for End {}

/// What ended a sleep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ready {
    /// Queues that were notified, one bit each.
    queues: u64,
    /// The guest has served an interrupt.
    served: bool,
    commands: bool,
    wire: bool,
}

impl Lines {
    /// Lets the device `name` work as long as it can, and says of each thing that its driver does
    /// wrong when it does it first.
    pub fn serve(&self, name: &str, device: &Shared) -> End {
        let start = Instant::now();
        let mut said = 0;
        let mut worked = true;
        let mut watch_wire = true;
        let mut due = None;
        loop {
            let sleeps = !worked && !self.busy;
            let most = match due {
                _ if !sleeps => Duration::ZERO,
                None => SLEEP_MAX,
                Some(due) => SLEEP_MAX.min(Duration::saturating_sub(due, start.elapsed())),
            };
            let ready = match self.wait(watch_wire, most) {
                Ok(ready) => ready,
                Err(error) => return End::Lines(error),
            };
            let mut served = device.turn();
            worked = match self.turn(&mut served, ready, start.elapsed()) {
                Ok(worked) => worked,
                Err(end) => return end,
            };
            due = served.window.due();
            served.counters.add(Counter::Turns, 1);
            if sleeps {
                served.counters.add(Counter::Sleeps, 1);
            }
            let violations = served.window.violations();
            for report in violations.reports().iter().skip(said) {
                complain(name, &report.to_string());
                said += 1;
            }
            let total = violations.total();
            served.counters.set(Counter::Violations, total);
            // Frames that the device does not take would keep it awake: the driver has no room for
            // them, and will say when it has.
            watch_wire = worked || !ready.wire;
        }
    }

    /// One turn of the device; whether it moved anything, so that there may be more.
    fn turn(&self, served: &mut Served, ready: Ready, now: Duration) -> Result<bool, End> {
        // What the driver wrote before it notified, or had served an interrupt, is obeyed before
        // that: writes may be posted.
        if let Some(socket) = &self.commands
            && (ready.commands || ready.served || ready.queues != 0)
        {
            Self::obey(served, socket.as_fd()).map_err(End::Commands)?;
        }
        if ready.served {
            served.window.end_of_interrupt();
        }
        let mut queues = ready.queues;
        served
            .counters
            .add(Counter::Notifications, queues.count_ones().into());
        while queues != 0 {
            served.window.notify(queues.trailing_zeros() as u16);
            queues &= queues - 1;
        }
        let progress = served.window.poll(&served.memory, now);
        let counters = &served.counters;
        counters.add(Counter::Received, progress.received.into());
        counters.add(Counter::Transmitted, progress.transmitted.into());
        if served.window.take_raised() {
            counters.add(Counter::Interrupts, 1);
            let one = 1_u64.to_ne_bytes();
            match rustix::io::write(&self.interrupt, &one) {
                // An event that is full has not been seen: once is enough.
                Ok(_) | Err(Errno::AGAIN) => {}
                Err(error) => return Err(End::Lines(error.into())),
            }
        }
        Ok(!progress.is_idle())
    }

    /// Obeys the commands that wait, up to a bound.
    fn obey(served: &mut Served, socket: BorrowedFd<'_>) -> Result<(), Broken> {
        for _ in 0..COMMANDS_MAX {
            let Some((command, place)) = ioregionfd::take(socket, &served.ranges)? else {
                break;
            };
            let data = served.obey(&command, place);
            if command.wants_answer {
                ioregionfd::reply(socket, data)?;
            }
        }
        Ok(())
    }

    /// Waits until there is something to do, and takes the notifications.
    fn wait(&self, watch_wire: bool, most: Duration) -> io::Result<Ready> {
        let wire = self.wire.iter().filter(|_| watch_wire);
        let others = [&self.resample, &self.kick, &self.commands];
        let fds = self.doorbells.iter().chain(others.into_iter().flatten());
        let mut watched: ArrayVec<PollFd<'_>, WATCHED_MAX> = fds
            .chain(wire)
            .take(WATCHED_MAX)
            .map(|fd| PollFd::new(fd, PollFlags::IN))
            .collect();
        let most = Timespec {
            tv_sec: most.as_secs().cast_signed(),
            tv_nsec: most.subsec_nanos().into(),
        };
        match poll(&mut watched, Some(&most)) {
            Ok(0) | Err(Errno::INTR) => return Ok(Ready::default()),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        // Who hung up is found by the next call.
        let mut is_ready = watched.iter().map(|watched| !watched.revents().is_empty());
        let mut ready = Ready::default();
        for (number, doorbell) in self.doorbells.iter().enumerate() {
            if is_ready.next() == Some(true) && took(doorbell.as_fd())? {
                ready.queues |= 1 << number;
            }
        }
        if let Some(resample) = &self.resample {
            ready.served = is_ready.next() == Some(true) && took(resample.as_fd())?;
        }
        if let Some(kick) = &self.kick
            && is_ready.next() == Some(true)
        {
            took(kick.as_fd())?;
        }
        if self.commands.is_some() {
            ready.commands = is_ready.next() == Some(true);
        }
        ready.wire = is_ready.next() == Some(true);
        Ok(ready)
    }
}

/// Sets an event back; whether it was set.
fn took(event: BorrowedFd<'_>) -> io::Result<bool> {
    match rustix::io::read(event, &mut [0; 8]) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN | Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::File;
    use crate::ioregionfd::{Commands, connect, wire};
    use linux::memory;
    use models::Misbehaviour;
    use models::virtio::VirtioRng;
    use models::virtio::mmio::NOTIFY;
    use rustix::net::{SendFlags, send};
    use std::thread::JoinHandle;

    const MEMORY: u64 = 0x1_0000;
    /// Areas of the queue, and its buffer.
    const DESCRIPTORS: u64 = 0x1000;
    const AVAILABLE: u64 = 0x2000;
    const USED: u64 = 0x3000;
    const BUFFER: u64 = 0x4000;

    fn event() -> OwnedFd {
        linux::event::new().unwrap()
    }

    /// A source of entropy that a thread serves, and the other ends of its lines.
    struct Machine {
        commands: Commands,
        doorbell: OwnedFd,
        interrupt: OwnedFd,
        memory: View,
        counters: Counters,
        device: &'static Shared,
        thread: JoinHandle<End>,
    }

    impl Machine {
        fn new() -> Self {
            let file = memory::sealed("guest", MEMORY).unwrap();
            let view = || View::of_file(file.as_fd(), 0, MEMORY, 0, true).unwrap();
            let ranges = Ranges::window(1);
            let counters = File::new(&ranges).unwrap();
            let source = VirtioRng::new().unwrap();
            let device: &'static Shared = Box::leak(Box::new(Shared::new(Served {
                window: Box::new(Mmio::new(source, &Misbehaviour::default())),
                ranges,
                memory: view(),
                counters: counters.view().unwrap(),
            })));
            let (commands, socket) = connect().unwrap();
            let (doorbell, interrupt) = (event(), event());
            let lines = Lines {
                doorbells: vec![doorbell.try_clone().unwrap()],
                interrupt: interrupt.try_clone().unwrap(),
                resample: None,
                kick: None,
                wire: None,
                commands: Some(socket),
                busy: false,
            };
            let thread = thread::spawn(move || lines.serve("entropy", device));
            Self {
                commands,
                doorbell,
                interrupt,
                memory: view(),
                counters: counters.view().unwrap(),
                device,
                thread,
            }
        }

        fn read(&self, offset: u64) -> u32 {
            let mut data = [0; 4];
            let place = Place { bar: 0, offset };
            let asked = self.commands.ask(Direction::Read, place, &mut data);
            asked.unwrap();
            u32::from_le_bytes(data)
        }

        /// A write that nobody waits for, as KVM posts it.
        fn post(&self, offset: u64, value: u64) {
            let command = Command {
                direction: Direction::Write,
                bytes: 4,
                wants_answer: false,
                user_data: 0,
                offset,
                data: value,
            };
            send(&self.commands, &command.encode(), SendFlags::NOSIGNAL).unwrap();
        }

        /// All writes that bring it up, posted, and a buffer of 16 bytes.
        fn bring_up(&self) {
            self.memory.store(DESCRIPTORS, BUFFER).unwrap();
            let writable = 16 | 2 << 32;
            self.memory.store(DESCRIPTORS + 8, writable).unwrap();
            self.memory.store16(AVAILABLE + 2, 1).unwrap();
            for select in 0..100 {
                self.post(0x14, select);
            }
            for (offset, value) in [
                (0x70, 1),
                (0x70, 3),
                (0x24, 1),
                (0x20, 1),
                (0x70, 11),
                (0x38, 8),
                (0x80, DESCRIPTORS),
                (0x90, AVAILABLE),
                (0xa0, USED),
                (0x44, 1),
                (0x70, 15),
            ] {
                self.post(offset, value);
            }
        }
    }

    fn wait_for(event: &OwnedFd) {
        let mut watched = [PollFd::new(event, PollFlags::IN)];
        let most = Timespec {
            tv_sec: 10,
            tv_nsec: 0,
        };
        assert_eq!(poll(&mut watched, Some(&most)), Ok(1));
        assert!(took(event.as_fd()).unwrap());
    }

    /// The doorbell takes another way than the writes before it, and is not obeyed before them.
    #[test]
    fn what_was_posted_before_a_doorbell_is_done_before_it() {
        for _ in 0..50 {
            let machine = Machine::new();
            machine.bring_up();
            rustix::io::write(&machine.doorbell, &1_u64.to_ne_bytes()).unwrap();
            wait_for(&machine.interrupt);
            assert_eq!(machine.memory.load16(USED + 2), Ok(1));
            assert_eq!((machine.read(0x60), machine.read(0x70)), (1, 15));
            assert_eq!(machine.counters.get(Counter::Violations), 0);
            assert_eq!(machine.counters.get(Counter::Notifications), 1);
            assert_eq!(machine.counters.get(Counter::Interrupts), 1);
            drop(machine.commands);
            let end = machine.thread.join().unwrap();
            assert!(matches!(end, End::Commands(Broken::Gone)), "{end}");
        }
    }

    #[test]
    fn a_processor_and_commands_reach_the_same_registers() {
        let machine = Machine::new();
        assert_eq!(machine.read(0), 0x7472_6976);
        let mut data = [0; 4];
        let mut device = machine.device.enter();
        let place = |offset| Place { bar: 0, offset };
        device.access(Direction::Read, place(8), &mut data);
        device.access(Direction::Write, place(NOTIFY), &mut [0; 4]);
        drop(device);
        assert_eq!(data, [4, 0, 0, 0]);
        // One turn counts what the driver did wrong before it.
        let mut turns = 0..1000;
        while machine.counters.get(Counter::Violations) == 0 && turns.next().is_some() {
            machine.read(0);
        }
        assert!(machine.counters.get(Counter::Violations) > 0);
        assert!(machine.counters.accesses() >= 4);
    }

    #[test]
    fn nonsense_ends_the_device_with_a_reason() {
        let machine = Machine::new();
        send(&machine.commands, &[9; wire::BYTES], SendFlags::NOSIGNAL).unwrap();
        let end = machine.thread.join().unwrap();
        assert_eq!(
            end.to_string(),
            "no command: 9 is neither a read nor a write"
        );
        let place = Place { bar: 0, offset: 0 };
        let gone = machine.commands.ask(Direction::Read, place, &mut [0; 4]);
        assert!(gone.is_err());
    }
}
