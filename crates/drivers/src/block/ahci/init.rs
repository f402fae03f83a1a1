//! Reset and bring-up, step by step (AHCI 1.3.1, 10.1.2 and 10.4). No step waits: it is taken again
//! with the next look at the clock, at the start as well as after trouble.

use super::error::Error;
use super::identify::Disk;
use super::registers::*;
use super::slots::Slots;
use hw::{Done, Mmio};

/// How long the adapter may take for its reset (10.4.3), in nanoseconds.
pub const RESET_NANOSECONDS: u64 = 1_000_000_000;
/// How long the link is reset at least (10.4.2), in nanoseconds.
pub const COMRESET_NANOSECONDS: u64 = 1_000_000;
/// How long a link may take to come up, in nanoseconds: much more than disks take, as a port that
/// has none is waited for as long.
pub const LINK_NANOSECONDS: u64 = 500_000_000;
/// How long a disk may take to be ready behind a reset, in nanoseconds: manuals of disks name 31
/// seconds.
pub const SPIN_UP_NANOSECONDS: u64 = 31_000_000_000;
/// How long IDENTIFY DEVICE may take, in nanoseconds.
pub const IDENTIFY_NANOSECONDS: u64 = 5_000_000_000;

/// What the registers say of the adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Command slots.
    pub slots: usize,
    /// Whether it queues commands.
    pub queues: bool,
    /// Whether addresses have 64 bits.
    pub is_wide: bool,
    /// Ports, one bit each.
    pub ports: u32,
}

/// Reads what the adapter is capable of (3.1.1, 3.1.4).
///
/// # Errors
/// [`Error`], if the driver cannot use such a one.
pub fn capabilities(bar: &Mmio) -> Result<Capabilities, Error> {
    let (wanted, found) = (PORTS + PORT_BYTES, bar.len());
    if found < wanted {
        return Err(Error::Bar { wanted, found });
    }
    let (cap, ports) = (bar.read(CAP), bar.read(PI));
    if cap == ALL_ONES && ports == ALL_ONES {
        return Err(Error::Gone);
    }
    let mapped = (0..PORTS_MAX).filter(|port| PORTS + (port + 1) * PORT_BYTES <= found);
    let ports = ports & mapped.fold(0, |ports, port| ports | 1 << port);
    if ports == 0 {
        return Err(Error::Config("that it has no ports"));
    }
    Ok(Capabilities {
        slots: (cap >> CAP_SLOTS_SHIFT & 0x1f) as usize + 1,
        queues: cap & CAP_QUEUES != 0,
        is_wide: cap & CAP_WIDE != 0,
        ports,
    })
}

/// Has the adapter stop all that it does (10.4.3).
pub fn reset(bar: &Mmio) {
    bar.write(GHC, GHC_ENABLE);
    bar.write(GHC, GHC_ENABLE | GHC_RESET);
}

/// Whether the registers of a running port say that it can go on.
///
/// # Errors
/// [`Error::Gone`], [`Error::Stopped`], [`Error::Link`], [`Error::Fatal`].
pub fn check(bar: &Mmio, port: &Port) -> Result<(), Error> {
    if bar.read(GHC) == ALL_ONES {
        return Err(Error::Gone);
    }
    if bar.read(GHC) & GHC_RESET != 0 || !is_ours(bar, port) {
        return Err(Error::Stopped);
    }
    let is_linked = bar.read(port.link) & LINK_DETECTION == LINK_UP;
    if !is_linked || bar.read(port.errors) & ERRORS_LINK != 0 {
        return Err(Error::Link);
    }
    vouches(bar, port).map(drop)
}

/// Whether the port is as the driver left it, and was not reset and started by something else.
#[inline]
pub fn is_ours(bar: &Mmio, port: &Port) -> bool {
    bar.read(port.control) & CONTROL_DRIVEN == CONTROL_AWAKE
}

/// Whether the port still carries out what it was given, so that slots which are over are commands
/// that are done; and what the disk says of one that failed: its status and error. To be asked
/// behind [`Slots::over`]: a port that is reset forgets its commands before (3.3.14, 10.4).
///
/// # Errors
/// [`Error::Gone`], [`Error::Stopped`], [`Error::Link`], [`Error::Fatal`].
#[inline]
pub fn vouches(bar: &Mmio, port: &Port) -> Result<Option<u16>, Error> {
    let (command, interrupts) = (bar.read(port.command), bar.read(port.interrupts));
    let task = bar.read(port.task);
    if command == ALL_ONES {
        return Err(Error::Gone);
    }
    if command & COMMAND_START == 0 {
        return Err(Error::Stopped);
    }
    if interrupts & INTERRUPT_LINK != 0 {
        return Err(Error::Link);
    }
    match interrupts & INTERRUPT_FATAL {
        0 => {}
        bits => return Err(Error::Fatal(bits)),
    }
    let has_failed = interrupts & INTERRUPT_TASK != 0 || task & TASK_FAILED != 0;
    Ok(has_failed.then_some(task as u16))
}

/// Where the device is on its way. Times are those of entering the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Resetting(u64),
    /// The link of the port is reset.
    Comreset(u64),
    Linking(u64),
    SpinningUp(u64),
    Identifying(u64),
}

/// What a step came to.
#[derive(Debug)]
pub enum Came {
    /// It is not over.
    Nowhere,
    /// To the device's word that it has nothing any more.
    Stopped(Done),
    /// To a disk that runs.
    Up(Disk),
}

/// The way of an adapter from wherever it is to where a disk of it runs.
pub struct Ascent {
    step: Step,
    /// Ports that may have the disk, one bit each; the first of them is tried.
    ports: u32,
    /// Whether the disk was found once: it is looked for elsewhere no more.
    is_found: bool,
}

impl Ascent {
    /// To the first disk at one of these ports, one bit each.
    pub fn new(ports: u32) -> Self {
        Self {
            step: Step::Resetting(0),
            ports,
            is_found: false,
        }
    }

    /// Begins anew.
    pub fn begin(&mut self, bar: &Mmio, now: u64) {
        reset(bar);
        self.step = Step::Resetting(now);
    }

    /// Whether the device may still have what it had before.
    pub fn is_stopping(&self) -> bool {
        matches!(self.step, Step::Resetting(_))
    }

    /// The registers of the port that is tried, or has the disk.
    pub fn port(&self) -> Port {
        Port::nth((self.ports.trailing_zeros() as usize).min(PORTS_MAX - 1))
    }

    /// One step. To be called again until it leads [up](Came::Up).
    ///
    /// # Errors
    /// [`Error`]: the device cannot be brought up like that.
    pub fn step(&mut self, bar: &Mmio, slots: &mut Slots, now: u64) -> Result<Came, Error> {
        let late = |since: u64, most: u64| now.saturating_sub(since) > most;
        let port = self.port();
        match self.step {
            Step::Resetting(since) => match bar.shows(GHC, GHC_RESET, 0) {
                Some(done) => {
                    bar.write(GHC, GHC_ENABLE);
                    slots.clear();
                    self.wake(bar, slots, now)?;
                    return Ok(Came::Stopped(done));
                }
                None if bar.read(GHC) == ALL_ONES => return Err(Error::Gone),
                None if late(since, RESET_NANOSECONDS) => {
                    return Err(Error::Timeout("GHC.HR, it is reset"));
                }
                None => {}
            },
            Step::Comreset(since) => {
                if late(since, COMRESET_NANOSECONDS) {
                    bar.write(port.control, CONTROL_AWAKE);
                    self.step = Step::Linking(now);
                }
            }
            Step::Linking(since) => {
                if bar.read(port.link) & LINK_DETECTION == LINK_UP {
                    // What was seen so far is of the reset (10.4.2).
                    bar.write(port.errors, ALL_ONES);
                    self.step = Step::SpinningUp(now);
                } else if late(since, LINK_NANOSECONDS) {
                    self.give_port_up(Error::Link, bar, slots, now)?;
                }
            }
            Step::SpinningUp(since) => {
                if bar.read(port.task) & (TASK_BUSY | TASK_REQUEST) == 0 {
                    self.start(bar, slots, now)?;
                } else if late(since, SPIN_UP_NANOSECONDS) {
                    let error = Error::Timeout("PxTFD, the disk is ready");
                    self.give_port_up(error, bar, slots, now)?;
                }
            }
            Step::Identifying(since) => {
                let over = slots.over(bar, &port)?;
                if let Some(task) = vouches(bar, &port)? {
                    return Err(Error::Refused(task));
                }
                if slots.take(bar, &port, over).is_some() {
                    self.is_found = true;
                    return Disk::of(&slots.identity()).map(Came::Up);
                }
                if late(since, IDENTIFY_NANOSECONDS) {
                    return Err(Error::Timeout("IDENTIFY DEVICE, it is done"));
                }
            }
        }
        Ok(Came::Nowhere)
    }

    /// Gives the port that is tried its memory, and has it reset its link (10.1.2, 10.4.2).
    fn wake(&mut self, bar: &Mmio, slots: &Slots, now: u64) -> Result<(), Error> {
        let port = self.port();
        let places = slots.places();
        let places = places.ok_or(Error::Lacks(
            "no addresses of 64 bits, which its memory has",
        ))?;
        for (halves, place) in [port.list, port.received].into_iter().zip(places) {
            let (low, high) = place.halves();
            bar.write(halves[0], low);
            bar.write(halves[1], high);
        }
        bar.write(port.command, COMMAND_SPIN_UP);
        bar.write(port.command, COMMAND_SPIN_UP | COMMAND_RECEIVE);
        bar.write(port.control, CONTROL_AWAKE | CONTROL_RESET);
        self.step = Step::Comreset(now);
        Ok(())
    }

    /// Has the port carry commands out, if what it has is a disk.
    fn start(&mut self, bar: &Mmio, slots: &mut Slots, now: u64) -> Result<(), Error> {
        let port = self.port();
        if bar.read(port.signature) != SIGNATURE_DISK {
            return self.give_port_up(Error::Lacks("another kind of device"), bar, slots, now);
        }
        bar.write(port.errors, ALL_ONES);
        bar.write(port.interrupts, ALL_ONES);
        bar.change(port.command, COMMAND_START, 0);
        slots.identify(bar, &port);
        self.step = Step::Identifying(now);
        Ok(())
    }

    /// There is no disk at this port: the next one is tried, unless it had one.
    fn give_port_up(
        &mut self,
        error: Error,
        bar: &Mmio,
        slots: &Slots,
        now: u64,
    ) -> Result<(), Error> {
        if self.is_found {
            return Err(error);
        }
        bar.write(self.port().command, 0);
        self.ports &= self.ports - 1;
        match self.ports {
            0 => Err(Error::NoDisk),
            _ => self.wake(bar, slots, now),
        }
    }
}
