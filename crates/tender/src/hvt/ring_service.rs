//! The thread that serves the rings, so that the guest's processor need not leave the guest.
//!
//! It works while there is work, looks for more for some microseconds, and then sleeps until a
//! network has a frame or the guest kicks. The kick is an event that KVM raises without returning
//! to the tender; the guest leaves it out while this thread does not sleep, and this thread wakes
//! the guest only where that waits (see [`abi::ring`]).

use super::cause::{Cause, HostStep};
use super::complaint::Complaint;
use super::error::{Error, step_of};
use super::queues::{Done, Queues};
use super::statistics::Statistics;
use crate::attach::Attached;
use crate::start::{self, Resources, Step};
use crate::sys::guest::GuestMemory;
use crate::sys::machine::Machine;
use crate::sys::rings;
use crate::sys::stop::Stop;
use abi::manifest::{Device, ENTRIES_MAX};
use abi::ring::{KICK_PORT, KICK_VALUE, Rings, asleep, waiting};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often an idle thread looks at the rings before it sleeps: some microseconds, about what it
/// takes to sleep and to be woken up. Where there is one processor, the guest could not run
/// meanwhile, and so it sleeps at once.
const LOOKS_MAX: u32 = 200;
/// Turns with work after which statistics are written at the latest.
const STATISTICS_TURNS: u32 = 1024;
/// And the time without work after which they are.
const STATISTICS_PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};
/// Stack of the thread; it calls little.
const STACK_BYTES: usize = 64 << 10;
/// How long the thread may take to begin.
const START_POLL: Duration = Duration::from_micros(20);
const START_POLLS_MAX: u32 = 250_000;
/// The event in the thread's wait set by which the guest kicks, and the one in the guest's by which
/// the thread wakes it up. Neither is the number of a device.
const KICK: u64 = u64::MAX;
const WAKE: u64 = u64::MAX;

/// The rings of a guest, ready to be served.
#[derive(Debug)]
pub struct RingService {
    rings: Rings<'static>,
    /// What the thread waits on: networks by their index in the manifest, the kick.
    epoll: OwnedFd,
    /// Never read: it is in the wait set, edge-triggered.
    kick: OwnedFd,
    /// What wakes the guest up.
    wake: OwnedFd,
}

/// Numbers of the descriptors that the thread uses beside the devices.
#[derive(Clone, Copy, Debug)]
pub struct Descriptors {
    /// Waited on.
    pub epoll: RawFd,
    /// Written to.
    pub wake: RawFd,
    /// Kept open.
    pub kick: RawFd,
}

impl RingService {
    /// Rings for the devices in `resources`. Its networks wake the thread then, and not the guest.
    ///
    /// # Errors
    /// The step that failed.
    pub fn attach(machine: &Machine, resources: &Resources) -> Result<Self, Error> {
        let devices = &resources.attachments.devices;
        let rings = rings::map(machine).map_err(step_of("rings"))?;
        let kick = machine.event_of_port(KICK_PORT, KICK_VALUE);
        let kick = kick.map_err(step_of("the event of the rings"))?;
        let (epoll, wake) = wait_sets(devices, &kick, &resources.epoll)?;
        Ok(Self {
            rings,
            epoll,
            kick,
            wake,
        })
    }

    /// Numbers of its descriptors.
    pub fn descriptors(&self) -> Descriptors {
        Descriptors {
            epoll: self.epoll.as_raw_fd(),
            wake: self.wake.as_raw_fd(),
            kick: self.kick.as_raw_fd(),
        }
    }

    /// Ends the guest's wait for devices, or its next one.
    fn wake_up(&self) -> Result<(), Errno> {
        match rustix::io::write(&self.wake, &1u64.to_ne_bytes()) {
            // A counter that is full has woken the guest up before.
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Starts the thread, and returns once it asks the kernel for nothing but what serving takes.
    /// When the guest has to be ended, that is a `complaint` for the thread that runs its
    /// processor, which is stopped; if that does not hear it, `ended` ends this process.
    ///
    /// # Errors
    /// There can be no thread.
    pub fn start(
        self,
        devices: &'static [Attached],
        memory: GuestMemory,
        statistics: Option<Statistics>,
        (complaint, stop): (&'static Complaint, Stop),
        ended: impl FnOnce(Cause) + Send + 'static,
    ) -> io::Result<()> {
        let processors = rustix::thread::sched_getaffinity(None)?.count();
        let mut worker = Worker {
            queues: Queues::new(self.rings, devices, memory),
            looks_max: if processors > 1 { LOOKS_MAX } else { 0 },
            woken: 0,
            statistics,
            unsaid: 0,
            service: self,
        };
        let begun = Arc::new(AtomicBool::new(false));
        let begins = Arc::clone(&begun);
        let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
        builder.spawn(move || {
            begins.store(true, Ordering::Release);
            // Dropping it could free memory, which the jail forbids.
            std::mem::forget(begins);
            let cause = worker.run();
            complaint.make(cause);
            stop.send();
            // It may wait for devices.
            worker.service.wake_up().ok();
            complaint.wait(Stop::take);
            ended(cause);
        })?;
        for _ in 0..START_POLLS_MAX {
            if begun.load(Ordering::Acquire) {
                std::mem::forget(begun);
                return Ok(());
            }
            std::thread::sleep(START_POLL);
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

/// The thread's wait set, and the event that wakes the guest up, which takes the place of the
/// networks in the guest's. All are edge-triggered, so that nobody need read them.
fn wait_sets(
    devices: &[Attached],
    kick: &OwnedFd,
    guest: &OwnedFd,
) -> Result<(OwnedFd, OwnedFd), start::Error> {
    let failed = |step| move |errno: Errno| start::Error::System(step, errno.into());
    let edge = EventFlags::IN | EventFlags::ET;
    let add = |set: &OwnedFd, fd: &OwnedFd, number| {
        epoll::add(set, fd, EventData::new_u64(number), edge).map_err(failed(Step::Wait))
    };
    let own = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed(Step::Epoll))?;
    add(&own, kick, KICK)?;
    let nets = devices
        .iter()
        .filter(|device| matches!(device.device, Device::Net { .. }));
    for net in nets {
        epoll::delete(guest, &net.fd).map_err(failed(Step::Wait))?;
        add(&own, &net.fd, net.index as u64)?;
    }
    let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    let wake = wake.map_err(failed(Step::Event))?;
    add(guest, &wake, WAKE)?;
    Ok((own, wake))
}

struct Worker {
    queues: Queues<'static>,
    service: RingService,
    looks_max: u32,
    /// The guest's sleep that it was woken from last.
    woken: u64,
    /// How often the guest was left, if anybody wants to know.
    statistics: Option<Statistics>,
    /// Turns with work since that was last said.
    unsaid: u32,
}

impl Worker {
    /// Serves the guest until there is a reason to end it.
    fn run(&mut self) -> Cause {
        let mut looks = 0;
        loop {
            match self.turn(looks >= self.looks_max) {
                Ok(true) => looks = 0,
                Ok(false) => {
                    looks += 1;
                    std::hint::spin_loop();
                }
                Err(cause) => return cause,
            }
        }
    }

    /// Does what there is to do, or sleeps if it may; whether there was anything.
    fn turn(&mut self, may_sleep: bool) -> Result<bool, Cause> {
        let done = self.queues.serve()?;
        if done != Done::default() {
            self.wake(done)?;
            self.unsaid += 1;
            if self.unsaid >= STATISTICS_TURNS {
                self.say_statistics();
            }
            if !self.queues.all_readable() {
                self.wait(Some(&Timespec::default()))?;
            }
            return Ok(true);
        }
        if !may_sleep {
            return Ok(false);
        }
        let sleepers = self.service.rings.sleepers();
        let no_buffer = self.queues.any_readable();
        sleepers.host_sleeps(asleep::IDLE | if no_buffer { asleep::NO_BUFFER } else { 0 });
        if !self.queues.has_work()? {
            let unsaid = self.statistics.is_some() && self.unsaid > 0;
            let woken = self.wait(unsaid.then_some(&STATISTICS_PAUSE))?;
            if unsaid && !woken {
                self.say_statistics();
            }
        }
        sleepers.host_sleeps(0);
        Ok(true)
    }

    fn say_statistics(&mut self) {
        self.unsaid = 0;
        if let Some(statistics) = &self.statistics {
            statistics.publish();
        }
    }

    /// Wakes the guest up if it waits for what was done; once from each sleep.
    fn wake(&mut self, done: Done) -> Result<(), Cause> {
        let sleep = self.service.rings.sleepers().guest_waits();
        let for_received = done.received && sleep & waiting::RECEIVE != 0;
        let for_sent = done.sent && sleep & waiting::SENT != 0;
        if (for_received || for_sent) && sleep != self.woken {
            self.woken = sleep;
            let woken = self.service.wake_up();
            woken.map_err(|errno| Cause::Host(HostStep::Wake, errno))?;
        }
        Ok(())
    }

    /// Waits, at most as long as said, and learns which networks have frames; whether anything
    /// happened.
    fn wait(&mut self, timeout: Option<&Timespec>) -> Result<bool, Cause> {
        let mut events = [MaybeUninit::uninit(); ENTRIES_MAX + 1];
        let waited = epoll::wait(&self.service.epoll, &mut events, timeout);
        let (events, _) = match waited {
            Err(Errno::INTR) => return Ok(true),
            waited => waited.map_err(|errno| Cause::Host(HostStep::Wait, errno))?,
        };
        let happened = !events.is_empty();
        for event in events {
            self.queues.set_readable(event.data.u64());
        }
        Ok(happened)
    }
}
