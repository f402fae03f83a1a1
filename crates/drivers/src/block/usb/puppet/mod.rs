//! A controller with devices behind it that does what a test or a fuzzer says, be it true or not.
//! It is no model of any: it knows of rings, contexts and transfers just enough to carry out what
//! the driver asks, and to lie about it.

mod devices;
mod disk;

pub use devices::Node;
pub use disk::{Disk, Fault};

use super::{Driver, Error};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use devices::Device;
use hw::sim::{self, Outside, View};
use hw::{DmaArena, Mmio, Registers};

/// Where its DMA memory lies.
const IOVA: u64 = 0x1_0000_0000;
const BAR_BYTES: usize = 0xa00;
/// Where its registers lie.
const OPERATIONAL: usize = 0x20;
const EXTENDED: usize = 0x700;
const RUNTIME: usize = 0x600;
const DOORBELLS: usize = 0x800;
/// Ports that it has: the first two of USB 2, the others of USB 3.
const PORTS: usize = 4;
const SLOTS: usize = 8;
/// Blocks that one look handles, at most.
const BLOCKS_MAX: usize = 1000;

/// USB Command.
pub const USBCMD: usize = OPERATIONAL;
/// USB Status.
pub const USBSTS: usize = OPERATIONAL + 0x04;
/// Status of the first port.
pub const PORTSC: usize = OPERATIONAL + 0x400;

/// A ring as the controller knows it: where it goes on, and the cycle that it expects there.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    at: u64,
    cycle: bool,
}

impl Place {
    fn of(word: u64) -> Self {
        Self {
            at: word & !0xf,
            cycle: word & 1 != 0,
        }
    }
}

/// A slot in use.
#[derive(Clone, Debug, Default)]
struct Slot {
    /// The device, by where it is.
    device: Option<usize>,
    rings: [Place; 32],
    halted: u32,
}

/// The controller's end.
pub struct Puppet {
    words: Vec<Cell<u32>>,
    view: View,
    commands: Cell<Place>,
    events: Cell<Place>,
    slots: RefCell<Vec<Option<Slot>>>,
    /// Slots and endpoints whose doorbells were rung.
    rung: RefCell<BTreeSet<(usize, usize)>>,
    devices: RefCell<Vec<Device>>,
    /// The disk that all of them have.
    pub disk: RefCell<Disk>,
    /// Whether it was unplugged.
    is_gone: Cell<bool>,
    /// Whether it leaves resets alone.
    pub is_stuck: Cell<bool>,
    /// Whether it leaves everything else alone.
    pub is_silent: Cell<bool>,
    /// Whether it goes on in rings that nobody told it of.
    pub is_eager: Cell<bool>,
    /// How often it was reset.
    pub resets: Cell<usize>,
    now: Cell<u64>,
}

impl Puppet {
    /// A controller behind whose ports, in order, these are; the disk has so many blocks of 512
    /// bytes.
    pub fn new(dma_bytes: usize, blocks: u64, ports: &[Node]) -> (Rc<Self>, Mmio, DmaArena) {
        let (arena, view) = sim::arena(dma_bytes, IOVA);
        let puppet = Rc::new(Self {
            words: (0..BAR_BYTES / 4).map(|_| Cell::new(0)).collect(),
            view,
            commands: Cell::default(),
            events: Cell::default(),
            slots: RefCell::new(vec![None; SLOTS + 1]),
            rung: RefCell::default(),
            devices: RefCell::default(),
            disk: RefCell::new(Disk::new(blocks)),
            is_gone: Cell::new(false),
            is_stuck: Cell::new(false),
            is_silent: Cell::new(false),
            is_eager: Cell::new(false),
            resets: Cell::new(0),
            now: Cell::new(0),
        });
        for (offset, value) in [
            (0x00, 0x0110_0000 | OPERATIONAL),
            (0x04, PORTS << 24 | 1 << 8 | SLOTS),
            (0x10, (EXTENDED / 4) << 16 | 1),
            (0x14, DOORBELLS),
            (0x18, RUNTIME),
            (EXTENDED, 2 << 24 | 4 << 8 | 2),
            (EXTENDED + 8, 2 << 8 | 1),
            (EXTENDED + 16, 3 << 24 | 2),
            (EXTENDED + 24, 2 << 8 | 3),
        ] {
            puppet.set(offset, value as u32);
        }
        puppet.plug(ports);
        puppet.reset();
        puppet.resets.set(0);
        (puppet.clone(), Mmio::asked(puppet), arena)
    }

    /// Plugs these in, and what was plugged in before out.
    pub fn plug(&self, ports: &[Node]) {
        *self.devices.borrow_mut() = devices::tree(ports);
        for port in 0..PORTS {
            let at = PORTSC + 0x10 * port;
            let change = 1 << 17;
            self.set(at, self.connected(port) | 1 << 9 | change);
        }
    }

    /// What a port says of what is plugged in.
    fn connected(&self, port: usize) -> u32 {
        let devices = self.devices.borrow();
        let mut at_port = devices.iter();
        match at_port.find(|device| device.is_at(port as u8 + 1, 0)) {
            // A link of USB 3 comes up by itself.
            Some(device) if device.speed >= 4 => u32::from(device.speed) << 10 | 0b11,
            Some(device) => u32::from(device.speed) << 10 | 1,
            None => 0,
        }
    }

    /// The clock of its driver: at each look at it so many nanoseconds have passed, in which the
    /// device has done what it was asked to.
    pub fn clock(self: &Rc<Self>, nanoseconds: u64) -> impl Fn() -> u64 + use<> {
        let puppet = Rc::clone(self);
        move || {
            puppet.serve();
            puppet.sleep(nanoseconds);
            puppet.now.get()
        }
    }

    /// Time passes.
    pub fn sleep(&self, nanoseconds: u64) {
        self.now.set(self.now.get().saturating_add(nanoseconds));
    }

    /// A register.
    pub fn get(&self, offset: usize) -> u32 {
        self.words.get(offset / 4).map_or(u32::MAX, Cell::get)
    }

    /// Changes a register behind the driver's back; outside of the BAR, nothing.
    pub fn set(&self, offset: usize, value: u32) {
        if let Some(word) = self.words.get(offset / 4)
            && !self.is_gone.get()
        {
            word.set(value);
        }
    }

    /// Unplugs the controller.
    pub fn all_ones(&self) {
        self.words.iter().for_each(|word| word.set(u32::MAX));
        self.is_gone.set(true);
    }

    /// The DMA memory.
    pub fn view(&self) -> &View {
        &self.view
    }

    fn long(&self, offset: usize) -> u64 {
        u64::from(self.get(offset)) | u64::from(self.get(offset + 4)) << 32
    }

    fn reset(&self) {
        self.set(USBCMD, 0);
        self.set(USBSTS, 1);
        self.set(OPERATIONAL + 0x08, 1);
        self.slots.borrow_mut().fill(None);
        self.rung.borrow_mut().clear();
        self.disk.borrow_mut().forget();
        self.devices.borrow_mut().iter_mut().for_each(Device::reset);
        for port in 0..PORTS {
            let connected = self.connected(port);
            let change = (connected & 1) << 17;
            self.set(PORTSC + 0x10 * port, connected | 1 << 9 | change);
        }
        self.resets.set(self.resets.get() + 1);
    }

    /// What a controller does by itself. Where there is no memory, it finds none: that is no news.
    pub fn serve(&self) {
        if self.is_gone.get() {
            return;
        }
        let command = self.get(USBCMD);
        if command & 2 != 0 && !self.is_stuck.get() {
            self.reset();
            return;
        }
        let halted = u32::from(command & 1 == 0);
        self.set(USBSTS, self.get(USBSTS) & !1 | halted);
        if halted != 0 || self.is_silent.get() {
            return;
        }
        if self.is_eager.get() {
            let slots = self.slots.borrow();
            let used = (1..=SLOTS).filter(|slot| slots[*slot].is_some());
            let all = used.flat_map(|slot| (1..8).map(move |endpoint| (slot, endpoint)));
            self.rung.borrow_mut().extend(all);
        }
        for _ in 0..BLOCKS_MAX {
            let next = self.rung.borrow().iter().next().copied();
            let Some((slot, endpoint)) = next else {
                break;
            };
            let goes_on = match (slot, endpoint) {
                (0, _) => self.carry_out(),
                (slot, 1) => self.control(slot),
                (slot, endpoint) => self.bulk(slot, endpoint),
            };
            if goes_on != Ok(true) {
                self.rung.borrow_mut().remove(&(slot, endpoint));
            }
        }
    }

    /// The next block of a ring, and where it was.
    fn fetch(&self, place: &mut Place) -> Result<Option<(u64, [u64; 2])>, Outside> {
        for _ in 0..2 {
            let second = self.view.load(place.at.wrapping_add(8))?;
            if (second >> 32 & 1 != 0) != place.cycle {
                return Ok(None);
            }
            let (at, first) = (place.at, self.view.load(place.at)?);
            if second >> 42 & 0x3f == 6 {
                place.at = first & !0xf;
                place.cycle ^= second >> 33 & 1 != 0;
                continue;
            }
            place.at = at.wrapping_add(16);
            return Ok(Some((at, [first, second])));
        }
        Ok(None)
    }

    /// Reports something, true or not: what it is about, a code and a residue, and the rest of the
    /// second word.
    ///
    /// # Errors
    /// If there is no such memory.
    pub fn report(&self, about: u64, code: u8, residue: u32, rest: u64) -> Result<(), Outside> {
        let table = self.long(RUNTIME + 0x30);
        let (start, size) = (
            self.view.load(table)?,
            self.view.load(table.wrapping_add(8))?,
        );
        let mut place = self.events.get();
        if place.at == 0 {
            place = Place {
                at: start,
                cycle: true,
            };
        }
        self.view.store(place.at, about)?;
        let word = u64::from(code) << 24 | u64::from(residue) | rest | u64::from(place.cycle) << 32;
        self.view.store(place.at.wrapping_add(8), word)?;
        place.at = place.at.wrapping_add(16);
        if place.at == start.wrapping_add(size.saturating_mul(16)) {
            place.at = start;
            place.cycle ^= true;
        }
        self.events.set(place);
        Ok(())
    }

    /// Carries a command out.
    fn carry_out(&self) -> Result<bool, Outside> {
        let mut place = self.commands.get();
        let Some((at, [first, second])) = self.fetch(&mut place)? else {
            return Ok(false);
        };
        self.commands.set(place);
        let slot = (second >> 56) as usize;
        let endpoint = (second >> 48) as usize & 0x1f;
        let mut slots = self.slots.borrow_mut();
        let free = (1..=SLOTS).find(|slot| slots[*slot].is_none());
        let known = slots.get_mut(slot).and_then(Option::as_mut);
        let (code, slot) = match (second >> 42 & 0x3f, known) {
            (9, _) => match free {
                Some(free) => {
                    slots[free] = Some(Slot::default());
                    (1, free)
                }
                None => (9, 0),
            },
            (10, Some(_)) => {
                slots[slot] = None;
                (1, slot)
            }
            (11, Some(known)) => (self.address(known, first)?, slot),
            (12, Some(known)) => {
                self.configure(known, first)?;
                (1, slot)
            }
            (13, Some(_)) => (1, slot),
            (14, Some(known)) => {
                known.halted &= !(1 << endpoint);
                (1, slot)
            }
            (16, Some(known)) => {
                known.rings[endpoint] = Place::of(first);
                (1, slot)
            }
            _ => (17, slot),
        };
        drop(slots);
        self.report(at, code, 0, 33 << 42 | (slot as u64) << 56)?;
        Ok(true)
    }

    /// Gives what is where the context says an address.
    fn address(&self, slot: &mut Slot, input: u64) -> Result<u8, Outside> {
        let words = [self.view.load(input.wrapping_add(32))?];
        let (route, root) = (words[0] as u32 & 0xf_ffff, (words[0] >> 48) as u8);
        slot.rings[1] = Place::of(self.view.load(input.wrapping_add(64 + 8))?);
        let devices = self.devices.borrow();
        slot.device = devices
            .iter()
            .position(|device| device.is_at(root, route) && device.is_enabled);
        Ok(if slot.device.is_some() { 1 } else { 4 })
    }

    /// Takes the rings of endpoints.
    fn configure(&self, slot: &mut Slot, input: u64) -> Result<(), Outside> {
        let added = self.view.load(input)? >> 32;
        for endpoint in (2..32).filter(|endpoint| added & 1 << endpoint != 0) {
            let at = input.wrapping_add(32 * (endpoint as u64 + 1) + 8);
            slot.rings[endpoint] = Place::of(self.view.load(at)?);
        }
        Ok(())
    }

    /// What an endpoint has, unless it is halted.
    fn endpoint(&self, slot: usize, endpoint: usize) -> Option<(usize, Place)> {
        let slots = self.slots.borrow();
        let slot = slots.get(slot)?.as_ref()?;
        let is_halted = slot.halted & 1 << (endpoint & 31) != 0;
        Some((slot.device?, slot.rings[endpoint & 31])).filter(|_| !is_halted)
    }

    /// Where an endpoint goes on, and whether it is halted now.
    fn goes_on(&self, slot: usize, endpoint: usize, place: Place, is_halted: bool) {
        if let Some(Some(slot)) = self.slots.borrow_mut().get_mut(slot) {
            slot.rings[endpoint & 31] = place;
            slot.halted |= u32::from(is_halted) << (endpoint & 31);
        }
    }

    /// Carries a control transfer out.
    fn control(&self, slot: usize) -> Result<bool, Outside> {
        let Some((device, mut place)) = self.endpoint(slot, 1) else {
            return Ok(false);
        };
        let rest = (slot as u64) << 56 | 1 << 48 | 32 << 42;
        let Some((_, [request, setup])) = self.fetch(&mut place)? else {
            return Ok(false);
        };
        let mut answer = None;
        if setup >> 48 & 3 != 0 {
            answer = self.fetch(&mut place)?;
        }
        let Some((end, _)) = self.fetch(&mut place)? else {
            return Ok(false);
        };
        let said = self.ask(device, request.to_le_bytes());
        self.goes_on(slot, 1, place, said.is_none());
        let Some(said) = said else {
            self.report(answer.map_or(end, |(at, _)| at), 6, 0, rest)?;
            return Ok(true);
        };
        if let Some((at, [to, second])) = answer {
            let wanted = second as usize & 0x1_ffff;
            let said = &said[..said.len().min(wanted)];
            self.view.write(to, said)?;
            if said.len() < wanted {
                self.report(at, 13, (wanted - said.len()) as u32, rest)?;
            }
        }
        self.report(end, 1, 0, rest)?;
        Ok(true)
    }

    /// What a device answers to a request; `None` is a stall.
    fn ask(&self, device: usize, request: [u8; 8]) -> Option<Vec<u8>> {
        let mut devices = self.devices.borrow_mut();
        let (answer, port) = {
            let device = devices.get_mut(device)?;
            (
                device.ask(request, &self.disk.borrow())?,
                device.resets_port.take(),
            )
        };
        if let Some((root, route)) = port {
            let mut behind = devices.iter_mut();
            if let Some(device) = behind.find(|device| device.is_at(root, route)) {
                device.is_enabled = true;
            }
        }
        Some(answer)
    }

    /// Carries a bulk transfer out, if the device lets it.
    fn bulk(&self, slot: usize, endpoint: usize) -> Result<bool, Outside> {
        let Some((_, mut place)) = self.endpoint(slot, endpoint) else {
            return Ok(false);
        };
        let mut parts = Vec::new();
        loop {
            let Some((at, [to, second])) = self.fetch(&mut place)? else {
                return Ok(false);
            };
            parts.push((at, to, second as usize & 0x1_ffff));
            if second >> 36 & 1 == 0 || parts.len() == 64 {
                break;
            }
        }
        let rest = (slot as u64) << 56 | (endpoint as u64) << 48 | 32 << 42;
        let is_in = endpoint & 1 != 0;
        let wanted: usize = parts.iter().map(|(.., bytes)| bytes).sum();
        let moved = match is_in {
            true => self.disk.borrow_mut().give(wanted),
            false => {
                let mut bytes = vec![0; wanted];
                let mut left = &mut bytes[..];
                for (_, from, length) in &parts {
                    let (part, behind) = left.split_at_mut(*length);
                    self.view.read(*from, part)?;
                    left = behind;
                }
                self.disk.borrow_mut().take(bytes)
            }
        };
        match moved {
            disk::Moved::Nothing => return Ok(false),
            disk::Moved::Stall => {
                self.goes_on(slot, endpoint, place, true);
                self.report(parts[0].0, 6, parts[0].2 as u32, rest)?;
            }
            disk::Moved::Bytes(bytes) => {
                self.goes_on(slot, endpoint, place, false);
                self.deliver(&parts, &bytes, is_in, rest)?;
            }
        }
        Ok(true)
    }

    /// Reports a transfer of these bytes, which go into its parts if they come from the device.
    fn deliver(
        &self,
        parts: &[(u64, u64, usize)],
        bytes: &[u8],
        is_in: bool,
        rest: u64,
    ) -> Result<(), Outside> {
        let mut left = bytes;
        for (index, (at, to, length)) in parts.iter().enumerate() {
            let here = left.len().min(*length);
            let (part, behind) = left.split_at(here);
            if is_in {
                self.view.write(*to, part)?;
            }
            left = behind;
            if here < *length {
                return self.report(*at, 13, (*length - here) as u32, rest);
            }
            if index + 1 == parts.len() {
                return self.report(*at, 1, 0, rest);
            }
        }
        Ok(())
    }
}

impl Registers for Puppet {
    fn len(&self) -> usize {
        BAR_BYTES
    }

    fn read32(&self, offset: usize) -> u32 {
        self.get(offset)
    }

    fn write32(&self, offset: usize, value: u32) {
        const COMMANDS: usize = OPERATIONAL + 0x18;
        const LAST_PORT: usize = PORTSC + 0x10 * PORTS;
        match offset {
            DOORBELLS.. => {
                let slot = (offset - DOORBELLS) / 4;
                self.rung.borrow_mut().insert((slot, value as usize & 0xff));
            }
            COMMANDS | OPERATIONAL..USBSTS => {
                self.set(offset, value);
                self.events.set(Place::default());
            }
            PORTSC..LAST_PORT if offset & 0xf == 0 => {
                let old = self.get(offset) & !(value & 0xfe_0000);
                let is_reset = value & (1 << 4 | 1 << 31) != 0 && old & 1 != 0;
                let reset = if is_reset { 1 << 1 | 1 << 21 } else { 0 };
                self.set(offset, old | reset | value & 1 << 9);
                let port = ((offset - PORTSC) / 0x10) as u8 + 1;
                for device in self.devices.borrow_mut().iter_mut() {
                    device.is_enabled |= is_reset && device.is_at(port, 0);
                }
            }
            _ => self.set(offset, value),
        }
        if offset == COMMANDS + 4 {
            self.commands.set(Place::of(self.long(COMMANDS)));
        }
    }

    /// The driver has none of these.
    fn read_narrow(&self, _offset: usize, _bytes: usize) -> u32 {
        u32::MAX
    }

    fn write_narrow(&self, _offset: usize, _bytes: usize, _value: u32) {}
}

impl Driver {
    /// Makes the driver as new: a fuzzer has no memory for one per input. No request may be on its
    /// way.
    ///
    /// # Errors
    /// As for [`Driver::new`].
    pub fn renew(&mut self) -> Result<(), Error> {
        self.task = None;
        {
            let mut task = self.home.borrow_mut();
            (task.disk, task.flight) = (None, None);
            (task.is_dirty, task.has_lost) = (false, false);
            task.recovery = super::Recovery::default();
            let mut desk = self.desk.borrow_mut();
            desk.trouble = super::Trouble::default();
            desk.state = super::State::Rising;
        }
        self.task = Some(Box::pin(super::task::live(Rc::clone(&self.home))));
        self.rise()
    }
}

impl Puppet {
    /// What is at a port of the hub at this port of the controller's is taken out, for a moment or
    /// for good.
    pub fn disturb(&self, port: usize, root: usize, stays: bool) {
        let mut devices = self.devices.borrow_mut();
        let root = root as u8 + 2;
        if let Some(hub) = devices.iter_mut().find(|device| device.is_at(root, 0)) {
            hub.disturb(port, stays);
        }
    }
}
