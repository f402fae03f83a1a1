//! The lanes of a disk, and how threads serve them.
//!
//! Threads share nothing but the lanes, and wait for none: who finds a lane taken looks at the next
//! one. A thread that finds nothing says that it sleeps, looks once more, and sleeps on the bell,
//! which wakes one of them for each time that it was rung.

use super::Served;
use crate::attach::Attached;
use crate::sys::guest::GuestMemory;
use crate::transfer::{perform, result};
use abi::ring::lanes::LANES;
use abi::ring::{Jump, Server, Sleepers, waiting};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// A disk and its lanes.
pub struct Lanes {
    disk: Attached,
    capacity: u64,
    memory: GuestMemory,
    bell: OwnedFd,
    guest_bell: OwnedFd,
    sleepers: Sleepers<'static>,
    /// Nobody waits for a lock: the jail has no call for that.
    lanes: Vec<Mutex<Server<'static>>>,
    /// The guest's sleep that it was woken from last.
    woken: AtomicU64,
}

/// Why a thread serves no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The guest has broken a rule of the rings.
    Ring(Jump),
    /// What the kernel says of one of the bells.
    Bell(Errno),
}

impl From<Jump> for End {
    fn from(jump: Jump) -> Self {
        Self::Ring(jump)
    }
}

impl Lanes {
    /// Of a disk of this capacity; and what says that the guest has ended.
    pub fn new(served: Served, capacity: u64) -> (Self, OwnedFd) {
        let lanes = (0..LANES).filter_map(|lane| served.rings.server(lane));
        let all = Self {
            capacity,
            sleepers: served.rings.sleepers(),
            lanes: lanes.map(Mutex::new).collect(),
            woken: AtomicU64::new(0),
            disk: served.disk,
            memory: served.memory,
            bell: served.bell,
            guest_bell: served.guest_bell,
        };
        (all, served.guest)
    }

    /// Serves as thread `number`, until there is a reason not to.
    pub fn serve(&self, number: usize) -> End {
        loop {
            match self.turn(number) {
                Ok(true) => {}
                Ok(false) => {
                    if let Err(end) = self.sleep() {
                        return end;
                    }
                }
                Err(end) => return end,
            }
        }
    }

    /// Does one request, of the first lane from `first` on that has one and is nobody's; whether
    /// there was one.
    pub fn turn(&self, first: usize) -> Result<bool, End> {
        for at in 0..self.lanes.len() {
            let lane = &self.lanes[(first + at) % self.lanes.len()];
            let Ok(mut lane) = lane.try_lock() else {
                continue;
            };
            let Some(request) = lane.request()? else {
                continue;
            };
            self.call_another()?;
            let done = match perform(&self.disk, self.capacity, &request, &self.memory) {
                Ok(done) => done,
                Err(_) => Err(Errno::FAULT),
            };
            if done != Err(Errno::INTR) {
                lane.serve(result(done));
                lane.publish();
            }
            drop(lane);
            self.wake_guest()?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Whether a lane that is nobody's has a request. Who serves one of the others looks himself.
    fn has_work(&self) -> Result<bool, End> {
        for lane in &self.lanes {
            if let Ok(mut lane) = lane.try_lock()
                && lane.has_request()?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Wakes another thread up, if one sleeps and there is more to do.
    fn call_another(&self) -> Result<(), End> {
        match self.sleepers.host_waits() != 0 && self.has_work()? {
            true => ring(&self.bell),
            false => Ok(()),
        }
    }

    /// Wakes the guest up if it waits; once from each sleep.
    fn wake_guest(&self) -> Result<(), End> {
        let sleep = self.sleepers.guest_waits();
        let is_new = sleep & waiting::RECEIVE != 0;
        match is_new && self.woken.swap(sleep, Ordering::Relaxed) != sleep {
            true => ring(&self.guest_bell),
            false => Ok(()),
        }
    }

    fn sleep(&self) -> Result<(), End> {
        self.sleepers.one_sleeps();
        let slept = match self.has_work() {
            Ok(false) => match rustix::io::read(&self.bell, &mut [0; 8]) {
                Ok(_) | Err(Errno::INTR) => Ok(()),
                Err(errno) => Err(End::Bell(errno)),
            },
            other => other.map(drop),
        };
        self.sleepers.one_wakes();
        slept
    }
}

fn ring(bell: &OwnedFd) -> Result<(), End> {
    match rustix::io::write(bell, &1u64.to_ne_bytes()) {
        // A counter that is full has been heard.
        Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
        Err(errno) => Err(End::Bell(errno)),
    }
}
