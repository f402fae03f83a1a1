//! Captures: copies of frames for the host, in the ring of the shared file ([`abi::share`]).
//!
//! No system call, but for the clock, a hundred times a second at most. A ring that is full costs a
//! record and never a frame. What became of a received frame is known only once the appliance has
//! decided, so records stay invisible, and can be amended, until the next
//! [`crate::Runtime::wait`].

use crate::host::Host;
use crate::share::{HostWord, SharedFile};
use abi::capture::{Fate, Stamp, Writer};
use abi::share::{CaptureHead, CaptureRecord, Control, RulesStatus};
use core::cell::{Cell, RefCell};
use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering};

const WORD: usize = size_of::<u64>();
const HEAD: usize = offset_of!(CaptureHead, head) / WORD;
const LOST: usize = offset_of!(CaptureHead, lost) / WORD;
const GENERATION: usize = offset_of!(RulesStatus, generation) / WORD;
const PORTS: usize = offset_of!(Control, capture_ports) / WORD;
const SNAP: usize = offset_of!(Control, capture_snap) / WORD;
const TAIL: usize = offset_of!(Control, capture_tail) / WORD;

/// Received frames whose records can be amended: as many as there are buffers.
const RECENT: usize = 128;

const RECEIVED: u16 = 0;
const TRANSMITTED: u16 = 1;

/// A received frame: the address of its first byte, and the position of its record.
type Recent = (usize, u64);

/// What the host sees of the ports' frames.
pub struct Capture {
    host: &'static dyn Host,
    control: &'static [HostWord],
    head: &'static [AtomicU64],
    rules: &'static [AtomicU64],
    ring: RefCell<Writer<'static>>,
    stamp: Cell<Stamp>,
    /// Ports whose last reception was captured: a bit for each.
    received: Cell<u64>,
    /// The last received frames, where the next one of them goes, and how many there are.
    recent: [Cell<Recent>; RECENT],
    next: Cell<usize>,
    recorded: Cell<usize>,
}

impl Capture {
    /// Captures into this file; none if it has no room for them.
    pub(crate) fn new(host: &'static dyn Host, share: &SharedFile) -> Self {
        Self {
            host,
            control: share.control().unwrap_or_default(),
            head: share.capture_head().unwrap_or_default(),
            rules: share.rules_status().unwrap_or_default(),
            ring: RefCell::new(Writer::new(share.capture_ring().unwrap_or_default())),
            stamp: Cell::default(),
            received: Cell::new(0),
            recent: [const { Cell::new((0, 0)) }; RECENT],
            next: Cell::new(0),
            recorded: Cell::new(0),
        }
    }

    fn control(&self, word: usize, order: Ordering) -> u64 {
        self.control.get(word).map_or(0, |word| word.load(order))
    }

    /// Whether the host wants to see the frames of this port.
    #[inline]
    pub(crate) fn wants(&self, port: u8) -> bool {
        self.control(PORTS, Ordering::Relaxed) & (1 << port) != 0
    }

    /// Whether the host wants to see the frames that this port receives now. [`Self::dropped`]
    /// needs to know.
    #[inline]
    pub(crate) fn wants_received(&self, port: u8) -> bool {
        let (wants, bit) = (self.wants(port), 1 << port);
        let others = self.received.get() & !bit;
        self.received.set(if wants { others | bit } else { others });
        wants
    }

    /// Captures a frame as one that passed, and returns the position of its record; `None`,
    /// counted, if the ring is full.
    fn record(&self, port: u8, direction: u16, frame: &[u8]) -> Option<u64> {
        let snap = usize::try_from(self.control(SNAP, Ordering::Relaxed)).unwrap_or(usize::MAX);
        let generation = self.rules.get(GENERATION);
        let record = CaptureRecord {
            time: self.now(),
            captured: 0,
            length: frame.len() as u32,
            port: u16::from(port),
            direction,
            fate: Fate::Passed.number(),
            generation: generation.map_or(0, |generation| generation.load(Ordering::Relaxed)),
        };
        let tail = self.control(TAIL, Ordering::Acquire);
        let captured = frame.get(..snap).unwrap_or(frame);
        let position = self.ring.borrow_mut().push(tail, record, captured);
        if position.is_none()
            && let Some(lost) = self.head.get(LOST)
        {
            lost.store(lost.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        self.recorded.set(self.recorded.get() + 1);
        position
    }

    /// Captures a received frame; see [`Self::record`].
    pub(crate) fn received(&self, port: u8, frame: &[u8]) -> Option<u64> {
        let position = self.record(port, RECEIVED, frame)?;
        let next = self.next.get();
        self.recent[next % RECENT].set((frame.as_ptr().addr(), position));
        self.next.set(next + 1);
        Some(position)
    }

    /// Captures a frame that is to be sent; see [`Self::record`].
    pub(crate) fn transmitted(&self, port: u8, frame: &[u8]) -> Option<u64> {
        self.record(port, TRANSMITTED, frame)
    }

    /// Says what became of the frame of a record that is not visible yet.
    pub(crate) fn amend(&self, position: u64, fate: Fate) {
        self.ring.borrow_mut().amend(position, fate);
    }

    /// Says what became of a frame that this port received since the last wait and that the
    /// appliance, or a layer, drops: which of the port's counters counted it, or which rule dropped
    /// it. The frame begins where it began when it was received.
    #[inline]
    pub fn dropped(&self, port: u8, frame: &[u8], fate: Fate) {
        if self.received.get() & (1 << port) != 0 {
            self.amend_received(frame, fate);
        }
    }

    #[cold]
    fn amend_received(&self, frame: &[u8], fate: Fate) {
        let next = self.next.get();
        // The latest first: a buffer may have been used again since.
        let recent = (next.saturating_sub(RECENT)..next).rev();
        let found = recent
            .map(|index| self.recent[index % RECENT].get())
            .find(|(address, _)| *address == frame.as_ptr().addr());
        if let Some((_, position)) = found {
            self.amend(position, fate);
        }
    }

    /// Makes the records since the last call visible to the host.
    #[inline]
    pub(crate) fn publish(&self) {
        if self.recorded.get() != 0 {
            self.store_head();
        }
    }

    #[cold]
    fn store_head(&self) {
        self.recorded.set(0);
        self.next.set(0);
        // A panic publishes too, wherever it comes from.
        if let (Some(head), Ok(ring)) = (self.head.get(HEAD), self.ring.try_borrow()) {
            head.store(ring.head(), Ordering::Release);
        }
    }

    fn now(&self) -> u64 {
        let mut stamp = self.stamp.get();
        let time = stamp.now(self.host.ticks(), || self.host.wall());
        self.stamp.set(stamp);
        time
    }
}
