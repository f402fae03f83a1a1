//! Ports over links to other images; see [`abi::link`].
//!
//! A frame that was made from the port's own buffers lies where the other image reads it, and is
//! not copied to be sent; any other is copied into one of those, since the other image may see no
//! buffer that holds what is not for it. Where it may (an open link), what comes in at another port
//! is received into them. A received frame is copied out before anybody looks at it.
//!
//! The other image is believed nothing. What it does that it may not takes the link down, is
//! counted and said, and the image goes on with its other ports.

#[cfg(test)]
mod tests;

use crate::clock::Instant;
use crate::devices::{DeviceError, RegionAttached};
use crate::ledger::{Ledger, Outcome};
use crate::mtu::Mtu;
use crate::port::{Port, Received};
use crate::runtime::Runtime;
use abi::link::{End, Entry, Event, Fault, HEAD_BYTES, SLOT_BYTES, badge, slots};
use abi::share::PortCounter;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicU64, Ordering};
use device::{
    BATCH_BYTES_MAX, BATCH_FRAMES_MAX, Batch, FRAME_BYTES_MAX, Frame, HEADROOM, Netif, Offloads,
    Pool, WaitHandle, virtio,
};

const WORD: usize = size_of::<u64>();
/// Words of a cache line.
const LINE_WORDS: usize = 64 / WORD;
/// How often a port says that its link went up or down, so that an end that does nothing else does
/// not fill the console.
const SAID_MAX: u32 = 1000;
/// A link has room while the other end has not taken fewer bytes than this: two full batches, so
/// that one is filled while the other one is emptied. More would not stay in a cache until they are
/// read, and make nothing faster.
const LENT_BYTES_MAX: usize = 2 * BATCH_BYTES_MAX;

/// The memory of an end of a link.
pub struct LinkMemory {
    /// The words in front of the slots, which this image alone writes.
    pub own: &'static [AtomicU64],
    /// The slots, which the other image may read at any time.
    pub slots: &'static mut [u8],
    /// The other end's file. It is never written here, and may not be writable.
    pub peer: &'static [AtomicU64],
}

/// All links of an image.
pub(crate) struct Links {
    /// Those that nobody has asked for yet, by the numbers of their regions.
    memory: RefCell<Vec<Option<LinkMemory>>>,
    /// Those that were handed out.
    lines: RefCell<Vec<Rc<Line>>>,
    /// Whether there is something else that only the host knows of.
    others: bool,
}

impl Links {
    /// The links with this memory. `others` says whether the host has networks as well.
    pub(crate) fn new(memory: Vec<Option<LinkMemory>>, others: bool) -> Self {
        Self {
            memory: RefCell::new(memory),
            lines: RefCell::default(),
            others,
        }
    }

    /// The port of a link, with this MTU in bytes unless the host says another one.
    ///
    /// # Errors
    /// If there is no such memory.
    pub(crate) fn port(
        &self,
        runtime: &'static Runtime,
        attached: &RegionAttached,
        mtu: usize,
    ) -> Result<LinkPort, DeviceError> {
        let mut memory = self.memory.borrow_mut();
        let memory = memory.get_mut(attached.number).and_then(Option::take);
        let memory = memory.ok_or(DeviceError::NotAttached)?;
        let peer_slots = slots((memory.peer.len() * WORD) as u64);
        let end = End::begin(memory.own, memory.peer, peer_slots);
        let slots = Pool::new(memory.slots, SLOT_BYTES);
        let mut end = end.ok_or(DeviceError::NotAttached)?;
        let lent = lent(&mut end, slots);
        let goes_on = end.is_up();
        let line = Rc::new(Line {
            ledger: Ledger::new(runtime, attached.index, attached.name),
            number: attached.number,
            bell: attached.info.bell,
            open: attached.info.open != 0,
            end: RefCell::new(end),
            slots,
            lent_bytes: Cell::new(lent.iter().map(Frame::len).sum()),
            lent: RefCell::new(lent),
            starved: Cell::new(false),
            changes: Cell::new(u64::from(goes_on)),
            said: Cell::new(0),
        });
        // The other end may sleep, or be up with whoever was here before.
        line.ring_for(badge::STATE);
        if goes_on {
            line.say(format_args!("link goes on"));
        }
        line.look();
        self.lines.borrow_mut().push(Rc::clone(&line));
        Ok(LinkPort {
            port: Port {
                ledger: line.ledger,
                mac: attached.info.mac,
                mtu: Mtu::fixed(match attached.info.mtu {
                    0 => mtu,
                    said => said.into(),
                }),
                offloads: Offloads {
                    checksum: true,
                    tso: true,
                    uso: false,
                },
                pool: line.slots,
            },
            buffers: runtime.pool(),
            before: None,
            peer: memory.peer,
            line,
        })
    }

    /// Sleeps as `host` does, and ends that when a link has something. Frames that come over links
    /// whose bits are in `held` are nothing.
    #[inline]
    pub(crate) fn wait(
        &self,
        deadline: Option<Instant>,
        held: u64,
        host: impl Fn(Option<Instant>) -> u64,
    ) -> u64 {
        let lines = self.lines.borrow();
        if lines.is_empty() {
            return host(deadline);
        }
        let ready = || lines.iter().fold(0, |bits, line| bits | line.ready(held));
        // Links that always have something must not keep us from looking at the others.
        let look = || match self.others {
            true => host(Some(Instant::PAST)),
            false => 0,
        };
        match ready() {
            found if found != 0 => return found | look(),
            _ if deadline == Some(Instant::PAST) => return host(deadline),
            _ => {}
        }
        lines.iter().for_each(|line| line.sleep(held));
        let found = match ready() {
            0 => host(deadline),
            found => found | look(),
        };
        lines.iter().for_each(|line| line.wake());
        found | ready()
    }

    /// Leaves all links to the image that goes on in place of this one.
    pub(crate) fn leave(&self) {
        for line in self.lines.borrow().iter() {
            if let Ok(mut end) = line.end.try_borrow_mut() {
                end.leave();
            }
            line.ring_for(badge::STATE | badge::FRAMES | badge::ROOM);
        }
    }

    /// Tells the other ends that this image ends.
    pub(crate) fn go_down(&self) {
        for line in self.lines.borrow().iter() {
            if let Ok(mut end) = line.end.try_borrow_mut() {
                end.go_down();
            }
            line.ring_for(badge::STATE);
        }
    }
}

/// The buffers of frames that the image before has sent and the other end has not taken, where
/// `end` goes on from there. If they are not one buffer each, it begins anew.
fn lent(end: &mut End<'_>, slots: Pool) -> VecDeque<Frame> {
    let mut lent = VecDeque::new();
    if end.outstanding() == 0 {
        return lent;
    }
    let mut all: Vec<_> = core::iter::from_fn(|| slots.alloc(0)).map(Some).collect();
    for slot in end.under_way() {
        let mut free = all.iter_mut();
        let is_it =
            |frame: &&mut Option<Frame>| frame.as_ref().is_some_and(|frame| frame.index() == slot);
        lent.extend(free.find(is_it).and_then(Option::take));
    }
    if lent.len() as u64 != end.outstanding() {
        end.begin_anew();
        lent.clear();
    }
    lent
}

/// A link. The port and whoever waits for it share it.
struct Line {
    ledger: Ledger,
    /// The number of its region.
    number: usize,
    bell: i32,
    /// Whether the other end may see what is not sent after all.
    open: bool,
    end: RefCell<End<'static>>,
    /// What frames are sent from.
    slots: Pool,
    /// Frames that the other end has not taken, in their order.
    lent: RefCell<VecDeque<Frame>>,
    /// Their bytes.
    lent_bytes: Cell<usize>,
    /// Whether somebody waits for the other end to take some.
    starved: Cell<bool>,
    /// How often it went up and down: odd while it is up.
    changes: Cell<u64>,
    /// How often it was said that the link went up or down.
    said: Cell<u32>,
}

impl Line {
    /// A bit for its index if it has something, frames left out where it is `held`.
    #[inline]
    fn ready(&self, held: u64) -> u64 {
        self.look();
        let pending = self.end.borrow().pending() & self.wanted(held);
        u64::from(pending != 0) << self.ledger.index
    }

    /// What there is to wait for.
    #[inline]
    fn wanted(&self, held: u64) -> u64 {
        let is_held = held >> self.ledger.index & 1 != 0;
        let frames = if is_held { 0 } else { badge::FRAMES };
        let room = if self.starved.get() { badge::ROOM } else { 0 };
        frames | room
    }

    fn sleep(&self, held: u64) {
        let badges = badge::STATE | self.wanted(held);
        self.end.borrow_mut().sleep(badges);
    }

    fn wake(&self) {
        self.end.borrow_mut().wake();
    }

    /// Learns whether the link went up or down.
    #[inline]
    fn look(&self) {
        loop {
            let event = self.end.borrow_mut().look();
            match event {
                None => break,
                Some(event) => self.changed(event),
            }
        }
        let news = self.end.borrow_mut().has_news();
        if news {
            self.ring_for(badge::STATE);
        }
    }

    #[cold]
    fn changed(&self, event: Event) {
        self.is_now(event == Event::Up);
        let says = match event {
            Event::Up => "link up",
            Event::Down { lost } => {
                self.ledger.count(PortCounter::LinkLost, lost);
                "link down"
            }
        };
        self.say(format_args!("{says}"));
    }

    fn is_now(&self, up: bool) {
        let changes = self.changes.get();
        let was_up = !changes.is_multiple_of(2);
        self.changes.set(changes + u64::from(was_up != up));
    }

    fn say(&self, what: core::fmt::Arguments<'_>) {
        let said = self.said.get();
        if said < SAID_MAX {
            self.said.set(said + 1);
            let Ledger { runtime, name, .. } = self.ledger;
            runtime.print(format_args!("outboard: port {name}: {what}\n"));
        }
    }

    /// The other end has broken a rule: the link is down until it begins anew.
    #[cold]
    fn failed(&self, fault: Fault) {
        self.is_now(false);
        self.ledger.count(PortCounter::LinkFaults, 1);
        self.say(format_args!(
            "link down: the other end breaks the rules: {fault}"
        ));
    }

    /// Wakes the other end up, if it sleeps and waits for this.
    #[inline]
    fn ring_for(&self, badges: u64) {
        let rings = self
            .end
            .try_borrow_mut()
            .is_ok_and(|mut end| end.must_ring(badges));
        if rings {
            self.ledger.runtime.host.ring(self.number, self.bell);
        }
    }

    /// Gives buffers back whose frames the other end has taken.
    #[inline]
    fn take_back(&self) {
        let taken = self.end.borrow_mut().take_back();
        match taken {
            Ok(0) => {}
            Ok(count) => {
                self.starved.set(false);
                let mut lent = self.lent.borrow_mut();
                let count = lent.len().min(count as usize);
                let bytes: usize = lent.drain(..count).map(|frame| frame.len()).sum();
                self.lent_bytes.set(self.lent_bytes.get() - bytes);
            }
            Err(fault) => self.failed(fault),
        }
    }

    /// Whether a full batch can be sent; if not, somebody waits for that. Where the other end has
    /// nothing to take, there is nothing to wait for.
    fn has_room(&self) -> bool {
        self.take_back();
        let end = self.end.borrow();
        let slots = BATCH_FRAMES_MAX.min(self.slots.count() / 2);
        let has_room = self.lent_bytes.get() < LENT_BYTES_MAX && self.slots.free() >= slots;
        let has_room = has_room || !end.is_up() || end.outstanding() == 0;
        self.starved.set(!has_room || self.starved.get());
        has_room
    }

    /// One of this end's buffers; `None` if the other end has all.
    #[inline]
    fn alloc(&self, len: usize) -> Option<Frame> {
        let frame = self.slots.alloc(len).or_else(|| {
            self.take_back();
            self.slots.alloc(len)
        });
        if frame.is_none() {
            self.starved.set(true);
        }
        frame
    }

    /// Sends a frame, of which the other end learns by [`Self::post`].
    #[inline]
    fn send(&self, frame: Frame) -> Outcome {
        if !self.end.borrow().is_up() {
            return self.ledger.lost(PortCounter::TxLinkDown);
        }
        let frame = match frame.pool() == self.slots {
            true => frame,
            false => {
                let Some(mut copy) = self.alloc(frame.len()) else {
                    return self.ledger.lost(PortCounter::TxNoRoom);
                };
                copy.bytes_mut().copy_from_slice(frame.bytes());
                copy.set_offload(frame.offload());
                copy
            }
        };
        let length = frame.len();
        let entry = Entry {
            slot: frame.index(),
            offset: frame.headroom() as u32,
            length: length as u32,
            header: virtio::emit(frame.offload()),
        };
        if !self.end.borrow_mut().write(&entry) {
            self.starved.set(true);
            return self.ledger.lost(PortCounter::TxNoRoom);
        }
        self.lent.borrow_mut().push_back(frame);
        self.lent_bytes.set(self.lent_bytes.get() + length);
        Outcome::sent(length as u64)
    }

    /// Tells the other end of all that was sent.
    #[inline]
    fn post(&self) {
        let posted = self.end.borrow_mut().post();
        if posted {
            self.ring_for(badge::FRAMES);
        }
    }
}

/// A port over a link.
pub(crate) struct LinkPort {
    port: Port,
    /// What frames are received into.
    buffers: Pool,
    /// What they are received into as long as there are some.
    before: Option<Pool>,
    peer: &'static [AtomicU64],
    line: Rc<Line>,
}

impl LinkPort {
    /// The next frame, copied out of the other end's memory, or why it is dropped.
    #[inline]
    fn next(&self) -> Option<Received> {
        let Self { line, .. } = self;
        let found = line.end.borrow_mut().frame();
        let entry = match found {
            Ok(entry) => entry?,
            Err(fault) => {
                line.failed(fault);
                return None;
            }
        };
        let Some(frame) = self.copy(&entry) else {
            line.ledger.count(PortCounter::NoBuffer, 1);
            return None;
        };
        // What another sender has begun to write over is no frame.
        if !line.end.borrow_mut().take() {
            return None;
        }
        Some(match entry.length as usize {
            0..=FRAME_BYTES_MAX => Received::of(frame, &entry.header),
            _ => Received::Drop(PortCounter::RxTooLong, frame),
        })
    }

    /// Copies a frame that lies wholly in its slot; of one that is too long, nothing. `None` if
    /// there is no buffer.
    #[inline]
    fn copy(&self, entry: &Entry) -> Option<Frame> {
        let length = match entry.length as usize {
            length @ 0..=FRAME_BYTES_MAX => length,
            _ => 0,
        };
        let start = HEAD_BYTES + entry.slot as usize * SLOT_BYTES + entry.offset as usize;
        let (first, skipped) = (start / WORD, start % WORD);
        let count = (skipped + length).div_ceil(WORD);
        let before = self.before.and_then(|pool| pool.alloc(count * WORD));
        let mut frame = before.or_else(|| self.buffers.alloc(count * WORD))?;
        // Whole words go to where words begin.
        frame.push_front(HEADROOM % WORD)?;
        let (to, _) = frame.bytes_mut().as_chunks_mut::<WORD>();
        let from = self.peer.get(first..first + count).unwrap_or_default();
        copy_words(to, from);
        let cut = frame.pop_front(skipped);
        frame.truncate(length);
        Some(frame).filter(|_| cut)
    }
}

/// Copies words that somebody else may write meanwhile, a cache line at a time.
#[inline]
fn copy_words(to: &mut [[u8; WORD]], from: &[AtomicU64]) {
    let load = |from: &AtomicU64| from.load(Ordering::Relaxed).to_ne_bytes();
    let (lines, rest) = from.as_chunks::<LINE_WORDS>();
    let (to_lines, to_rest) = to.as_chunks_mut::<LINE_WORDS>();
    for (to, from) in to_lines.iter_mut().zip(lines) {
        *to = from.each_ref().map(load);
    }
    for (to, from) in to_rest.iter_mut().zip(rest) {
        *to = load(from);
    }
}

impl Netif for LinkPort {
    fn name(&self) -> &str {
        self.port.ledger.name
    }

    fn mac(&self) -> [u8; 6] {
        self.port.mac
    }

    fn mtu(&self) -> usize {
        self.port.mtu.get()
    }

    fn offloads(&self) -> Offloads {
        self.port.offloads
    }

    fn alloc(&mut self, len: usize) -> Option<Frame> {
        (len <= self.max_frame()).then(|| self.line.alloc(len))?
    }

    fn receive(&mut self, batch: &mut Batch) {
        self.line.look();
        self.port.receive(batch, BATCH_FRAMES_MAX, || self.next());
        let released = self.line.end.borrow_mut().release();
        if released {
            self.line.ring_for(badge::ROOM);
        }
        self.line.look();
    }

    fn transmit(&mut self, batch: &mut Batch) {
        let Self { port, line, .. } = self;
        line.look();
        line.take_back();
        let outcome = port.transmit(batch, &mut |frame| line.send(frame));
        port.ledger.sent(&outcome);
        line.post();
    }

    fn open_buffers(&self) -> Option<Pool> {
        self.line.open.then_some(self.line.slots)
    }

    fn receive_into(&mut self, buffers: Option<Pool>) {
        self.before = buffers;
    }

    fn has_room(&mut self) -> bool {
        self.line.look();
        self.line.has_room()
    }

    fn wait_handle(&self) -> WaitHandle {
        self.port.wait_handle()
    }

    fn link_changes(&self) -> u64 {
        self.line.changes.get()
    }
}
