//! Reset and start of a controller (xHCI 1.2, 4.2).

use super::error::Error;
use super::host::Host;
use super::registers::*;
use super::wait::{MILLISECOND, again, late};
use hw::{Done, Mmio};

/// How long the firmware may take to let go of the controller, in nanoseconds.
const FIRMWARE_NANOSECONDS: u64 = 1000 * MILLISECOND;
/// How long it may take to stand still (5.4.1.1 says 16 ms), in nanoseconds.
const HALT_NANOSECONDS: u64 = 100 * MILLISECOND;
/// How long its reset may take, in nanoseconds.
const RESET_NANOSECONDS: u64 = 1000 * MILLISECOND;
/// Pages that a controller may ask for, at most.
pub const PAGES_MAX: usize = 256;

/// What the registers say of the controller.
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    pub places: Places,
    /// Slots.
    pub slots: u8,
    /// Ports.
    pub ports: u8,
    /// Pages that it asks for.
    pub pages: usize,
    /// Whether addresses have 64 bits.
    pub is_wide: bool,
    /// Whether contexts have 64 bytes.
    pub has_large_contexts: bool,
    /// Where extended capabilities begin.
    extended: usize,
}

/// Reads what the controller is capable of (5.3).
///
/// # Errors
/// [`Error`], if the driver cannot use such a one.
pub fn capabilities(bar: &Mmio) -> Result<Capabilities, Error> {
    let found = bar.len();
    let fits = |wanted| match wanted <= found {
        true => Ok(()),
        false => Err(Error::Bar { wanted, found }),
    };
    fits(CAPABILITY_BYTES)?;
    let (length, first, second) = (
        bar.read(CAPLENGTH),
        bar.read(HCSPARAMS1),
        bar.read(HCSPARAMS2),
    );
    if length == ALL_ONES && first == ALL_ONES {
        return Err(Error::Gone);
    }
    let parameters = bar.read(HCCPARAMS1);
    let places = Places {
        operational: (length & 0xfc) as usize,
        doorbells: (bar.read(DBOFF) & !0x3) as usize,
        runtime: (bar.read(RTSOFF) & !0x1f) as usize,
    };
    let (slots, ports) = ((first & 0xff) as u8, (first >> 24) as u8);
    if slots == 0 || ports == 0 || places.operational < CAPABILITY_BYTES {
        return Err(Error::Config("how many slots and ports it has"));
    }
    fits(places.operational + PORTS + usize::from(ports) * PORT_BYTES)?;
    fits(
        places
            .doorbells
            .saturating_add(4 * (usize::from(slots) + 1)),
    )?;
    fits(places.runtime.saturating_add(RUNTIME_BYTES))?;
    let pages = ((second >> 21 & 0x1f) << 5 | second >> 27) as usize;
    if pages > PAGES_MAX {
        return Err(Error::Lacks("no use for less memory"));
    }
    Ok(Capabilities {
        places,
        slots,
        ports,
        pages,
        is_wide: parameters & PARAMS_WIDE != 0,
        has_large_contexts: parameters & PARAMS_LARGE_CONTEXTS != 0,
        extended: (parameters >> 16) as usize * 4,
    })
}

/// The extended capabilities: where each is, and its first dword.
fn extended(bar: &Mmio, capabilities: &Capabilities) -> impl Iterator<Item = (usize, u32)> {
    let mut at = Some(capabilities.extended).filter(|at| *at != 0);
    let next = move || {
        let here = at.filter(|at| *at < bar.len())?;
        let word = bar.read(hw::Register::at(here));
        let skip = (word >> 8 & 0xff) as usize * 4;
        at = (skip != 0).then_some(here + skip);
        Some((here, word))
    };
    core::iter::from_fn(next).take(CAPABILITIES_MAX)
}

/// What the controller says of a port (7.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protocol {
    /// Whether it is one of USB 3.
    pub is_super: bool,
    /// The type of slots for devices there.
    pub slot_type: u8,
}

/// The protocol of a port; none is USB 2.
pub fn protocol(bar: &Mmio, capabilities: &Capabilities, port: u8) -> Protocol {
    let protocols = extended(bar, capabilities).filter(|(_, word)| word & 0xff == PROTOCOL);
    let of_port = |(at, word): (usize, u32)| {
        let ports = bar.read(hw::Register::at(at + 8));
        let (first, count) = (ports & 0xff, ports >> 8 & 0xff);
        let slot_type = bar.read(hw::Register::at(at + 12)) as u8 & 0x1f;
        let is_here = (first..first + count).contains(&u32::from(port));
        is_here.then_some(Protocol {
            is_super: word >> 24 >= 3,
            slot_type,
        })
    };
    protocols.filter_map(of_port).next().unwrap_or_default()
}

/// Has the controller stop all that it does, and waits for nothing.
pub fn stop(bar: &Mmio, places: &Places) {
    bar.write(places.command(), 0);
    bar.write(places.command(), COMMAND_RESET);
}

/// Whether the controller says that it can go on.
///
/// # Errors
/// [`Error::Gone`], [`Error::Failed`].
pub fn check(bar: &Mmio, places: &Places) -> Result<(), Error> {
    match bar.read(places.status()) {
        ALL_ONES => Err(Error::Gone),
        status => match status & (STATUS_SYSTEM | STATUS_CONTROLLER | STATUS_HALTED) {
            0 => Ok(()),
            bits => Err(Error::Failed(bits)),
        },
    }
}

impl Host {
    /// Resets the controller (4.2): its word that it has nothing any more.
    ///
    /// # Errors
    /// [`Error::Gone`] or [`Error::Timeout`]: it may still have what it had.
    pub async fn reset(&mut self) -> Result<Done, Error> {
        self.take_from_firmware().await?;
        let (command, status) = (self.places().command(), self.places().status());
        self.bar.write(command, 0);
        // One that does not halt is reset all the same.
        let _ = self
            .see(status, STATUS_HALTED, STATUS_HALTED, HALT_NANOSECONDS)
            .await;
        self.bar.write(command, COMMAND_RESET);
        let reset = self.see(command, COMMAND_RESET, 0, RESET_NANOSECONDS).await;
        let done = reset?.ok_or(Error::Timeout("USBCMD.HCRST, it is reset"))?;
        let ready = self.see(status, STATUS_NOT_READY, 0, RESET_NANOSECONDS);
        ready
            .await?
            .ok_or(Error::Timeout("USBSTS.CNR, it is ready"))?;
        Ok(done)
    }

    /// Waits until the bits of `mask` are those of `wanted`, for so long at most.
    async fn see(
        &self,
        register: hw::Register,
        mask: u32,
        wanted: u32,
        most: u64,
    ) -> Result<Option<Done>, Error> {
        let since = self.now();
        loop {
            if let Some(done) = self.bar.shows(register, mask, wanted) {
                return Ok(Some(done));
            }
            if self.bar.read(register) == ALL_ONES {
                return Err(Error::Gone);
            }
            if late(since, self.now(), most) {
                return Ok(None);
            }
            again().await;
        }
    }

    /// Has the firmware let go of the controller (4.22.1). One that does not loses it all the same.
    async fn take_from_firmware(&mut self) -> Result<(), Error> {
        let mut all = extended(&self.bar, &self.capabilities);
        let Some((at, word)) = all.find(|(_, word)| word & 0xff == LEGACY) else {
            return Ok(());
        };
        drop(all);
        let register = hw::Register::at(at);
        if word & LEGACY_FIRMWARE != 0 {
            self.bar.write(register, word | LEGACY_SYSTEM);
            let free = self.see(register, LEGACY_FIRMWARE, 0, FIRMWARE_NANOSECONDS);
            if free.await?.is_none() {
                self.bar.change(register, LEGACY_SYSTEM, LEGACY_FIRMWARE);
            }
        }
        Ok(())
    }

    /// Gives a controller that was reset its memory, and has it run (4.2).
    ///
    /// # Errors
    /// [`Error`], if it does not.
    pub async fn start(&mut self) -> Result<(), Error> {
        let places = self.places();
        if self.bar.read(places.page_size()) & PAGES_4K == 0 {
            return Err(Error::Lacks("no pages of 4 KiB"));
        }
        let slots = u32::from(self.slots());
        self.bar.write(places.configure(), slots);
        self.contexts.begin(&self.bar, &places, self.pages.place());
        self.commands.clear();
        let place = self.commands.place();
        let [low, high] = places.commands();
        self.bar.write(low, place as u32 & !0x3f | COMMANDS_CYCLE);
        self.bar.write(high, (place >> 32) as u32);
        self.events.begin(&self.bar, &places);
        self.forget();
        self.bar.write(places.command(), COMMAND_RUN);
        let runs = self.see(places.status(), STATUS_HALTED, 0, HALT_NANOSECONDS);
        runs.await?.ok_or(Error::Timeout("USBSTS.HCH, it runs"))?;
        check(&self.bar, &places)
    }
}
