//! The controller as its devices see it: commands to it, and transfers, one at a time.

use super::context::{self, CONTROL, Contexts, Input, Kind, Place, SLOTS_MAX};
use super::error::{Error, Lie, TRANSFER};
use super::init::{self, Capabilities};
use super::registers::Places;
use super::ring::{Events, Ring, Span};
use super::trb::{self, Event, Trb};
use super::wait::{MILLISECOND, again, late};
use crate::block::looks::INTERVAL;
use alloc::rc::Rc;
use alloc::vec::Vec;
use hw::{DmaArena, DmaRing, Done, Mmio, OutOfDma};

/// Hubs between the controller and a device, at most (USB 2.0, 4.1.1).
pub const HUBS_MAX: usize = 5;
/// Devices that are known at once: those hubs, and the one behind them.
pub const LEVELS: usize = HUBS_MAX + 1;
/// Bytes that a device says of itself in one answer, at most.
pub const ANSWER_BYTES: usize = 512;
/// How long a command to the controller may take, in nanoseconds.
const COMMAND_NANOSECONDS: u64 = 5000 * MILLISECOND;
/// How long a control transfer may take (USB 2.0, 9.2.6.1), in nanoseconds.
const CONTROL_NANOSECONDS: u64 = 5000 * MILLISECOND;
/// Words of a device's context.
const CONTEXT_WORDS: usize = 256;
/// DMA memory of all of this, without the pages that the controller asks for.
pub const DMA_BYTES: usize = (9 + 2 * LEVELS) * 4096;

/// A device that has an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    pub slot: u8,
    pub place: Place,
}

/// A bulk endpoint of the one device whose data move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pipe {
    Out = 0,
    In = 1,
}

/// A bulk endpoint, as its device describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its address (USB 2.0, 9.6.6).
    pub address: u8,
    /// Bytes of a packet.
    pub packet: u16,
    /// Packets at once, less one (USB 3.2, 9.6.7).
    pub burst: u8,
}

impl Endpoint {
    /// Its number among contexts.
    fn number(&self) -> u8 {
        (self.address & 0xf) * 2 + (self.address >> 7)
    }
}

/// What became of a transfer.
#[derive(Debug)]
pub struct Moved {
    /// Bytes that were moved.
    pub bytes: u64,
    /// Whether the device refused to go on.
    pub is_stalled: bool,
    /// The controller's word that it is over.
    pub done: Done,
}

/// Memory that the controller has for itself (4.20).
pub struct Pages {
    array: DmaRing<1, { init::PAGES_MAX }>,
    pages: Vec<DmaRing<1, 512>>,
}

impl Pages {
    fn new(arena: &mut DmaArena, count: usize) -> Result<Self, OutOfDma> {
        let array: DmaRing<1, { init::PAGES_MAX }> = arena.ring()?;
        let pages = (0..count)
            .map(|_| arena.ring())
            .collect::<Result<Vec<_>, _>>()?;
        for (index, page) in pages.iter().enumerate() {
            array.store(index, 0, page.iova().raw());
        }
        Ok(Self { array, pages })
    }

    /// Where the controller finds them; 0 if it has none.
    pub fn place(&self) -> u64 {
        match self.pages.is_empty() {
            true => 0,
            false => self.array.iova().raw(),
        }
    }
}

/// What a device on the way to the disk, or the disk, has.
struct Level {
    context: DmaRing<1, CONTEXT_WORDS>,
    control: Ring,
}

/// A controller.
pub struct Host {
    pub(super) bar: Mmio,
    pub(super) capabilities: Capabilities,
    clock: Rc<dyn Fn() -> u64>,
    pub(super) commands: Ring,
    pub(super) events: Events,
    pub(super) contexts: Contexts,
    pub(super) pages: Pages,
    input: Input,
    levels: Vec<Level>,
    bulk: [Ring; 2],
    pipes: [Option<Endpoint>; 2],
    /// What a device says.
    page: DmaRing<1, { ANSWER_BYTES / 8 }>,
    /// What it has said, read once: it may change that at any time.
    pub answer: Vec<u8>,
    /// Slots in use, one bit each.
    used: u32,
    /// The controller's port that the disk is behind, once it is used.
    pub watched: Option<u8>,
    /// When something was done last, and when the controller was looked at last.
    pub answered: u64,
    looked: u64,
}

impl Host {
    /// A controller that nothing is known of. It takes [`DMA_BYTES`] from `arena`, and what the
    /// controller asks for.
    ///
    /// # Errors
    /// [`Error`], if the driver cannot use it.
    pub fn new(bar: Mmio, arena: &mut DmaArena, clock: Rc<dyn Fn() -> u64>) -> Result<Self, Error> {
        let capabilities = init::capabilities(&bar)?;
        let mut levels = Vec::with_capacity(LEVELS);
        for _ in 0..LEVELS {
            levels.push(Level {
                context: arena.ring()?,
                control: Ring::new(arena)?,
            });
        }
        let host = Self {
            commands: Ring::new(arena)?,
            events: Events::new(arena)?,
            contexts: Contexts::new(arena)?,
            input: Input::new(arena, capabilities.has_large_contexts)?,
            levels,
            bulk: [Ring::new(arena)?, Ring::new(arena)?],
            pipes: [None; 2],
            page: arena.ring()?,
            pages: Pages::new(arena, capabilities.pages)?,
            answer: Vec::with_capacity(ANSWER_BYTES),
            used: 0,
            watched: None,
            answered: 0,
            looked: 0,
            bar,
            capabilities,
            clock,
        };
        match host.reaches_all() {
            true => Ok(host),
            false => Err(Error::Lacks(
                "no addresses of 64 bits, which its memory has",
            )),
        }
    }

    /// Whether it reaches all its memory.
    fn reaches_all(&self) -> bool {
        let ends = [
            self.commands.end(),
            self.events.end(),
            self.contexts.end(),
            self.input.end(),
            self.bulk[0].end(),
            self.bulk[1].end(),
            self.page.iova().raw() + ANSWER_BYTES as u64,
            self.pages.array.iova().raw() + 4096,
        ];
        let pages = self.pages.pages.iter().map(|page| page.iova().raw() + 4096);
        let levels = self.levels.iter().map(|level| {
            let context = level.context.iova().raw() + 8 * CONTEXT_WORDS as u64;
            context.max(level.control.end())
        });
        ends.into_iter()
            .chain(pages)
            .chain(levels)
            .all(|end| self.reaches(end))
    }

    /// Whether it reaches the bytes before this address.
    #[inline]
    pub fn reaches(&self, end: u64) -> bool {
        self.capabilities.is_wide || end <= 1 << 32
    }

    /// Has it stop all that it does, and waits for nothing.
    pub fn stop(&self) {
        init::stop(&self.bar, &self.places());
    }

    /// Where its registers lie.
    pub fn places(&self) -> Places {
        self.capabilities.places
    }

    /// Slots that are used.
    pub(super) fn slots(&self) -> u8 {
        self.capabilities.slots.min(SLOTS_MAX as u8)
    }

    /// Nothing of what was before its reset is known any more.
    pub(super) fn forget(&mut self) {
        self.used = 0;
        self.pipes = [None; 2];
        self.watched = None;
    }

    /// The time.
    #[inline]
    pub fn now(&self) -> u64 {
        (self.clock)()
    }

    /// Lets so many nanoseconds pass.
    pub async fn sleep(&self, nanoseconds: u64) {
        let since = self.now();
        while !late(since, self.now(), nanoseconds) {
            again().await;
        }
    }

    /// The next event that is about a command or a transfer.
    ///
    /// # Errors
    /// [`Error`], if the controller cannot go on, or says so.
    #[inline]
    fn next(&mut self) -> Result<Option<(Event, Done)>, Error> {
        let Some((event, done)) = self.events.next(&self.bar, &self.capabilities.places) else {
            return Ok(None);
        };
        match event.kind {
            trb::EVENT_TRANSFER | trb::EVENT_COMMAND => return Ok(Some((event, done))),
            trb::EVENT_PORT => {
                if self.watched.is_some_and(|port| self.has_lost(port)) {
                    self.watched = None;
                    return Err(Error::Unplugged);
                }
            }
            trb::EVENT_HOST => return Err(Error::Lie(Lie::Event(event.kind))),
            trb::EVENT_TRANSFER..=trb::EVENT_LAST => {}
            kind => return Err(Error::Lie(Lie::Event(kind))),
        }
        Ok(None)
    }

    /// A look while nothing is waited for.
    ///
    /// # Errors
    /// [`Error`], if the controller cannot go on.
    pub fn idle(&mut self) -> Result<(), Error> {
        // What is late, such as the second report of a short transfer, is no news.
        self.next()?;
        self.check(self.now())
    }

    /// Waits until the controller has come to an end with what it has just reported: it answers a
    /// read of a register no sooner.
    ///
    /// # Errors
    /// [`Error`], if the controller cannot go on.
    pub fn settle(&self) -> Result<(), Error> {
        init::check(&self.bar, &self.capabilities.places)
    }

    /// Looks from time to time whether the controller can go on.
    fn check(&mut self, now: u64) -> Result<(), Error> {
        match late(self.looked, now, INTERVAL) {
            true => {
                self.looked = now;
                init::check(&self.bar, &self.capabilities.places)
            }
            false => Ok(()),
        }
    }

    /// Waits for an event that `is_it`, for so long at most. Others are about what is over.
    async fn wait<T>(
        &mut self,
        what: &'static str,
        most: u64,
        mut is_it: impl FnMut(&mut Self, &Event, Done) -> Result<Option<T>, Error>,
    ) -> Result<T, Error> {
        let mut since = None;
        loop {
            if let Some((event, done)) = self.next()? {
                if let Some(found) = is_it(self, &event, done)? {
                    return Ok(found);
                }
            } else {
                let now = self.now();
                self.check(now)?;
                if late(*since.get_or_insert(now), now, most) {
                    return Err(Error::Timeout(what));
                }
            }
            again().await;
        }
    }

    /// Has the controller do something (4.6).
    async fn command(&mut self, command: &'static str, block: Trb) -> Result<Event, Error> {
        self.commands.put(block, 0);
        let span = self.commands.close();
        self.commands.commit();
        self.bar.doorbell(self.places().doorbell(0), 0);
        let event = self
            .wait(
                "a command, it is done",
                COMMAND_NANOSECONDS,
                |host, event, _| {
                    if event.kind != trb::EVENT_COMMAND {
                        return Ok(None);
                    }
                    let found = host.commands.find(span, event.pointer);
                    found.ok_or(Error::Lie(Lie::Event(event.kind)))?;
                    Ok(Some(*event))
                },
            )
            .await?;
        match event.code {
            trb::SUCCESS => Ok(event),
            code => Err(Error::Refused { command, code }),
        }
    }

    /// Gives the device at `place` an address (4.3.3, 4.3.4).
    ///
    /// # Errors
    /// [`Error`].
    pub async fn address(&mut self, place: Place) -> Result<Device, Error> {
        let protocol = init::protocol(&self.bar, &self.capabilities, place.root);
        let block = trb::enable_slot(protocol.slot_type);
        let slot = self.command("a slot", block).await?.slot;
        let is_free = self.used & 1 << (slot & 0x1f) == 0;
        if !is_free || slot == 0 || slot > self.slots() {
            return Err(Error::Lie(Lie::Slot(slot)));
        }
        self.used |= 1 << slot;
        let device = Device { slot, place };
        let level = &mut self.levels[place.depth.min(LEVELS - 1)];
        (0..CONTEXT_WORDS).for_each(|index| level.context.store(index, 0, 0));
        level.control.clear();
        let context = level.context.iova().raw();
        self.contexts.set(slot, context);
        self.tell_control(&device, place.speed.first_packet(), true);
        let block = trb::address_device(self.input.iova().raw(), slot);
        match self.command("an address", block).await {
            Ok(_) => {}
            Err(error) if error.is_local() => {
                self.release(&device).await?;
                return Err(error);
            }
            Err(error) => return Err(error),
        }
        // USB 2.0, 9.2.6.3 says 2 ms.
        self.sleep(10 * MILLISECOND).await;
        Ok(device)
    }

    /// Tells how a device's control endpoint is.
    fn tell_control(&mut self, device: &Device, packet: u16, and_device: bool) {
        let slot = context::slot(&device.place, None, CONTROL);
        let ring = self.levels[device.place.depth.min(LEVELS - 1)]
            .control
            .place();
        let endpoint = context::endpoint(Kind::Control, packet, 0, ring);
        match and_device {
            true => self.input.tell(&[(0, &slot), (CONTROL, &endpoint)]),
            false => self.input.tell(&[(CONTROL, &endpoint)]),
        }
    }

    /// Tells the controller how many bytes packets of a device's control endpoint have (4.6.7).
    ///
    /// # Errors
    /// [`Error`].
    pub async fn set_packet(&mut self, device: &Device, packet: u16) -> Result<(), Error> {
        self.tell_control(device, packet, false);
        let block = trb::evaluate_context(self.input.iova().raw(), device.slot);
        self.command("the size of packets", block).await.map(drop)
    }

    /// Tells the controller that a device is a hub (4.6.6).
    ///
    /// # Errors
    /// [`Error`].
    pub async fn set_hub(
        &mut self,
        device: &Device,
        hub: context::HubContext,
    ) -> Result<(), Error> {
        let slot = context::slot(&device.place, Some(hub), CONTROL);
        self.input.tell(&[(0, &slot)]);
        let block = trb::configure_endpoint(self.input.iova().raw(), device.slot);
        self.command("a hub", block).await.map(drop)
    }

    /// Tells the controller which bulk endpoints a device has: out, and in (4.6.6).
    ///
    /// # Errors
    /// [`Error`].
    pub async fn set_pipes(&mut self, device: &Device, pipes: [Endpoint; 2]) -> Result<(), Error> {
        self.bulk.iter_mut().for_each(Ring::clear);
        let [out, into] = pipes;
        let kinds = [(out, Kind::BulkOut), (into, Kind::BulkIn)];
        let last = out.number().max(into.number());
        let slot = context::slot(&device.place, None, last);
        let [first, second] = [0, 1].map(|index| {
            let (end, kind) = kinds[index];
            context::endpoint(kind, end.packet, end.burst, self.bulk[index].place())
        });
        self.input
            .tell(&[(0, &slot), (out.number(), &first), (into.number(), &second)]);
        self.pipes = pipes.map(Some);
        let block = trb::configure_endpoint(self.input.iova().raw(), device.slot);
        self.command("its endpoints", block).await.map(drop)
    }

    /// Nothing more is wanted of a device (4.6.4).
    ///
    /// # Errors
    /// [`Error`].
    pub async fn release(&mut self, device: &Device) -> Result<(), Error> {
        self.command("a free slot", trb::disable_slot(device.slot))
            .await?;
        self.contexts.set(device.slot, 0);
        self.used &= !(1 << device.slot);
        Ok(())
    }

    /// A control transfer (4.11.2.2): what the device answers is in [`Self::answer`] then, at most
    /// as many bytes as the request says. Nothing is sent beside the request.
    ///
    /// # Errors
    /// [`Error::Stalled`] if the device refuses, or another [`Error`].
    pub async fn control(&mut self, device: &Device, request: [u8; 8]) -> Result<(), Error> {
        let [kind, .., low, high] = request;
        let bytes = u16::from_le_bytes([low, high]).min(ANSWER_BYTES as u16);
        let answers = kind & 0x80 != 0 && bytes > 0;
        // Or what is not answered would be what was answered before.
        (0..ANSWER_BYTES / 8).for_each(|index| self.page.store(index, 0, 0));
        let level = device.place.depth.min(LEVELS - 1);
        let ring = &mut self.levels[level].control;
        ring.put(trb::setup(request, answers.then_some(true)), 8);
        if answers {
            ring.put(trb::data(self.page.iova().raw(), bytes), bytes.into());
        }
        ring.put(trb::status(answers), 0);
        let span = ring.close();
        ring.commit();
        let mut moved = bytes;
        self.bar
            .doorbell(self.places().doorbell(device.slot), CONTROL.into());
        let code = self
            .wait(TRANSFER, CONTROL_NANOSECONDS, |host, event, _| {
                let ring = &host.levels[level].control;
                let Some(place) = ours(event, device.slot, CONTROL, ring, span)? else {
                    return Ok(None);
                };
                if event.code == trb::SHORT_PACKET && place == 1 && answers {
                    // The status is to come.
                    let left = u16::try_from(event.residue).map_err(|_| Lie::Length)?;
                    moved = bytes.checked_sub(left).ok_or(Lie::Length)?;
                    return Ok(None);
                }
                Ok(Some(event.code))
            })
            .await?;
        if code != trb::SUCCESS {
            self.halted(device, CONTROL).await?;
            return Err(match code {
                trb::STALL => Error::Stalled,
                code => Error::Transfer(code),
            });
        }
        self.keep(if answers { moved.into() } else { 0 });
        Ok(())
    }

    /// Keeps the first bytes of what a device has said.
    fn keep(&mut self, bytes: usize) {
        let words = (0..ANSWER_BYTES / 8).map(|index| self.page.load(index, 0));
        self.answer.clear();
        self.answer
            .extend(words.flat_map(u64::to_le_bytes).take(bytes));
    }

    /// An endpoint that was halted goes on behind what it had (4.6.8, 4.6.10).
    async fn halted(&mut self, device: &Device, number: u8) -> Result<(), Error> {
        let block = trb::reset_endpoint(device.slot, number);
        self.command("the reset of an endpoint", block).await?;
        let ring = match number {
            CONTROL => &self.levels[device.place.depth.min(LEVELS - 1)].control,
            _ => &self.bulk[usize::from(number & 1)],
        };
        let block = trb::set_dequeue(device.slot, number, ring.place());
        self.command("the place in a ring", block).await.map(drop)
    }

    /// The ring of a pipe, and bytes of its packets.
    #[inline]
    pub fn pipe(&mut self, pipe: Pipe) -> (&mut Ring, u16) {
        let packet = self.pipes[pipe as usize].map_or(1, |end| end.packet);
        (&mut self.bulk[pipe as usize], packet.max(1))
    }

    /// Gives the controller what was put into a pipe.
    #[inline]
    pub fn send(&mut self, device: &Device, pipe: Pipe) {
        self.bulk[pipe as usize].commit();
        let number = self.pipes[pipe as usize].map_or(0, |end| end.number());
        let doorbell = self.capabilities.places.doorbell(device.slot);
        self.bar.doorbell(doorbell, number.into());
    }

    /// Waits for a bulk transfer, for so long at most. A pipe that is stalled stays so.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn moved(
        &mut self,
        device: &Device,
        pipe: Pipe,
        span: Span,
        most: u64,
    ) -> Result<Moved, Error> {
        let number = self.pipes[pipe as usize].map_or(0, |end| end.number());
        let (place, code, residue, done) = self
            .wait(TRANSFER, most, |host, event, done| {
                let ring = &host.bulk[pipe as usize];
                let found = ours(event, device.slot, number, ring, span)?;
                Ok(found.map(|place| (place, event.code, event.residue, done)))
            })
            .await?;
        let ring = &self.bulk[pipe as usize];
        let moved = ring.bytes(span, place + 1).checked_sub(residue.into());
        let before = ring.bytes(span, place);
        let bytes = moved.filter(|bytes| *bytes >= before).ok_or(Lie::Length)?;
        match code {
            trb::SUCCESS if bytes != ring.bytes(span, usize::MAX) => Err(Lie::Length.into()),
            trb::SUCCESS | trb::SHORT_PACKET | trb::STALL => Ok(Moved {
                bytes,
                is_stalled: code == trb::STALL,
                done,
            }),
            code => Err(Error::Transfer(code)),
        }
    }

    /// A pipe that the device has stalled goes on (4.6.8; USB 2.0, 9.4.5).
    ///
    /// # Errors
    /// [`Error`].
    pub async fn clear_halt(&mut self, device: &Device, pipe: Pipe) -> Result<(), Error> {
        let Some(end) = self.pipes[pipe as usize] else {
            return Ok(());
        };
        self.halted(device, end.number()).await?;
        /// CLEAR_FEATURE of an endpoint: ENDPOINT_HALT.
        const CLEAR_HALT: [u8; 4] = [0x02, 1, 0, 0];
        let [kind, request, low, high] = CLEAR_HALT;
        self.control(device, [kind, request, low, high, end.address, 0, 0, 0])
            .await
    }
}

/// The place in `span` that an event is about; `None` if it is about what was before.
#[inline]
fn ours(
    event: &Event,
    slot: u8,
    endpoint: u8,
    ring: &Ring,
    span: Span,
) -> Result<Option<usize>, Error> {
    if event.kind != trb::EVENT_TRANSFER {
        return Err(Error::Lie(Lie::Event(event.kind)));
    }
    if (event.slot, event.endpoint) != (slot, endpoint) {
        return Ok(None);
    }
    Ok(ring.find(span, event.pointer))
}
