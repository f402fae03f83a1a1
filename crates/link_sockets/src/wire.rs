//! Frames over the port: sessions, and what waits for room.

use crate::fault::Fault;
use crate::message::{self, CONTROL_MAX, FRAME_HEAD, HEAD, Message, Sessions};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::task::{Context, Waker};
use device::ethernet::HEADER_SIZE;
use device::{Batch, Frame, Netif};

/// Messages without data that wait for room. An end that leaves more of them does not read.
const WAITING_MAX: usize = 1 << 16;
/// The smallest MTU of a port, in bytes: with less, nothing crosses it.
const MTU_MIN: usize = 68;
const _: () = assert!(FRAME_HEAD + CONTROL_MAX <= MTU_MIN + HEADER_SIZE);
/// Most bytes behind the head of a message: its length has 16 bits.
const MESSAGE_MAX: usize = u16::MAX as usize;
/// A frame that has room for less data than this, and than what is to be sent, is full.
const DATA_MIN: usize = 4 << 10;

/// An end of a link: what its frames say happens to it.
pub trait End {
    /// Does something with the frames' way.
    fn with_wire<T>(&mut self, work: impl FnOnce(&mut Wire) -> T) -> T;

    /// All sockets are of sessions that are over. [`Wire::is_met`] says whether another one has
    /// begun.
    fn begin_anew(&mut self);

    /// Does what a message says.
    ///
    /// # Errors
    /// If the other end may not say it.
    fn take(&mut self, message: &Message<'_>) -> Result<(), Fault>;
}

/// Takes one batch of frames; whether there was any.
pub fn receive(end: &mut impl End) -> bool {
    let (over, mut arrived) = end.with_wire(Wire::look);
    if over {
        end.begin_anew();
    }
    let any = !arrived.is_empty();
    for frame in arrived.drain() {
        if let Err(fault) = open(end, frame.bytes()) {
            end.with_wire(|wire| wire.cut_off(fault));
            end.begin_anew();
        }
    }
    end.with_wire(|wire| {
        wire.arrived = arrived;
        wire.feed();
    });
    any || over
}

/// Does what a frame says.
fn open(end: &mut impl End, frame: &[u8]) -> Result<(), Fault> {
    let (sessions, mut messages) = message::open(frame)?;
    if end.with_wire(|wire| wire.meet(sessions.from)) {
        end.begin_anew();
    }
    // What was said to the one before is nobody's.
    if end.with_wire(|wire| wire.own != sessions.to) {
        return Ok(());
    }
    end.with_wire(|wire| wire.is_heard = true);
    while let Some((message, rest)) = Message::take(messages)? {
        end.take(&message)?;
        messages = rest;
    }
    Ok(())
}

/// A message without data, as it lies in a frame.
struct Waiting {
    bytes: [u8; CONTROL_MAX],
    len: usize,
}

/// The port, and the sessions over it.
pub struct Wire {
    port: Box<dyn Netif>,
    arrived: Batch,
    leaving: Batch,
    /// The frame that is being filled, and up to where.
    open: Option<(Frame, usize)>,
    waiting: VecDeque<Waiting>,
    own: u64,
    /// 0 if it is not known.
    peer: u64,
    /// As [`Netif::link_changes`] said last.
    changes: u64,
    /// The other end has ever answered.
    is_heard: bool,
    /// The other end has not been greeted yet.
    greets: bool,
    /// Who waits for room.
    hungry: Vec<Waker>,
    /// The other end does not read.
    deaf: bool,
    /// How often the other end was cut off, and why at last.
    faults: u64,
    fault: Option<Fault>,
}

impl Wire {
    /// Over this port. Another image has another `session`.
    pub fn new(port: Box<dyn Netif>, session: u64) -> Self {
        Self {
            changes: port.link_changes(),
            port,
            arrived: Batch::new(),
            leaving: Batch::new(),
            open: None,
            waiting: VecDeque::new(),
            own: session.max(1),
            peer: 0,
            is_heard: false,
            greets: true,
            hungry: Vec::new(),
            deaf: false,
            faults: 0,
            fault: None,
        }
    }

    /// The port's name.
    pub fn name(&self) -> &str {
        self.port.name()
    }

    /// Whether the other end is there, and its session is known.
    pub fn is_met(&self) -> bool {
        self.peer != 0
    }

    /// Whether the other end has ever said something to this one.
    pub fn is_heard(&self) -> bool {
        self.is_heard
    }

    /// Whether all that was to be sent has left.
    pub fn has_left(&self) -> bool {
        self.waiting.is_empty() && !self.has_begun()
    }

    /// Whether a frame is being filled.
    fn has_begun(&self) -> bool {
        let says = |(_, filled): &(Frame, usize)| *filled > FRAME_HEAD;
        self.open.as_ref().is_some_and(says)
    }

    /// How often the other end was cut off.
    pub fn faults(&self) -> u64 {
        self.faults
    }

    /// Why it was cut off, once.
    pub fn take_fault(&mut self) -> Option<Fault> {
        self.fault.take()
    }

    /// Whether the session is over, and the frames that have come.
    fn look(&mut self) -> (bool, Batch) {
        let mut arrived = core::mem::take(&mut self.arrived);
        self.port.receive(&mut arrived);
        let changes = self.port.link_changes();
        let mut over = changes != self.changes;
        if over {
            // Whoever has sent these was of the session before, or will greet again.
            arrived.drain();
            self.changes = changes;
            self.peer = 0;
            self.begin_anew();
        }
        if core::mem::take(&mut self.deaf) {
            self.cut_off(Fault::Deaf);
            over = true;
        }
        (over, arrived)
    }

    /// Another session.
    fn begin_anew(&mut self) {
        self.own = self.own.wrapping_add(1).max(1);
        self.forget();
    }

    /// Nothing that was to be sent is to be sent any more, but who we are.
    fn forget(&mut self) {
        self.open = None;
        self.leaving.drain();
        self.waiting.clear();
        self.greets = true;
        // Whoever waits is to see what becomes of its socket.
        self.hungry.drain(..).for_each(Waker::wake);
    }

    /// The other end has broken a rule.
    fn cut_off(&mut self, fault: Fault) {
        self.faults += 1;
        self.fault = Some(fault);
        self.begin_anew();
    }

    /// The other end says who it is; whether it is another one than before.
    fn meet(&mut self, peer: u64) -> bool {
        let other = self.peer != peer;
        if other {
            self.peer = peer;
            self.forget();
        }
        other
    }

    /// Sends a message without data. It waits, if there is no room, and is lost, if nobody is
    /// there.
    pub fn say(&mut self, message: &Message<'_>) {
        if !self.is_met() {
            return;
        }
        if self.waiting.is_empty() && self.put(message) {
            return;
        }
        if self.waiting.len() >= WAITING_MAX {
            self.deaf = true;
            return;
        }
        let mut bytes = [0; CONTROL_MAX];
        if let Some(len) = message.put(&mut bytes) {
            self.waiting.push_back(Waiting { bytes, len });
        }
    }

    /// How many bytes of data, and of what is in front of it in its message, can be sent now, in
    /// one piece; 0 if none can be. Of `wanted` bytes at least a part is worth sending.
    pub fn room(&mut self, wanted: usize) -> usize {
        if !self.is_met() || !self.waiting.is_empty() {
            return 0;
        }
        let most = self.frame_bytes() - FRAME_HEAD - HEAD;
        let least = HEAD + wanted.min(DATA_MIN).min(most);
        match self.place(least) {
            Some(place) => (place.len() - HEAD).min(MESSAGE_MAX),
            None => 0,
        }
    }

    /// Sends a message for which there is room; `false` if there is none.
    pub fn put(&mut self, message: &Message<'_>) -> bool {
        let Some(place) = self.place(message.size()) else {
            return false;
        };
        let Some(count) = message.put(place) else {
            return false;
        };
        if let Some((_, filled)) = &mut self.open {
            *filled += count;
        }
        true
    }

    /// Has `read` put up to so many bytes of a connection where they leave from: those, of which
    /// there are none at its end. `None` if there is no room.
    pub fn fill<E>(
        &mut self,
        socket: u32,
        most: usize,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Option<Result<&[u8], E>> {
        if most == 0 {
            return None;
        }
        let most = most.min(self.room(most));
        if most == 0 {
            return None;
        }
        let (head, body) = self.place(HEAD + most)?.split_first_chunk_mut()?;
        let count = match read(&mut body[..most]) {
            Ok(count) => count.min(most),
            Err(error) => return Some(Err(error)),
        };
        if count == 0 {
            return Some(Ok(&[]));
        }
        *head = message::head_of_data(socket, count)?;
        let (frame, filled) = self.open.as_mut()?;
        let start = *filled + HEAD;
        *filled = start + count;
        Some(Ok(&frame.bytes()[start..start + count]))
    }

    /// Wakes this task once there is room again.
    pub fn wait_for_room(&mut self, context: &Context<'_>) {
        let waker = context.waker();
        if !self.hungry.iter().any(|hungry| hungry.will_wake(waker)) {
            self.hungry.push(waker.clone());
        }
    }

    /// Longest datagram that fits into a frame, in bytes.
    pub fn datagram_max(&self) -> usize {
        let heads = FRAME_HEAD + HEAD + message::DATAGRAM_HEAD;
        self.frame_bytes() - heads.min(self.frame_bytes())
    }

    /// Bytes of a frame. The smallest MTU that a link has leaves room for any message without data.
    fn frame_bytes(&self) -> usize {
        self.port.mtu().max(MTU_MIN) + HEADER_SIZE
    }

    /// At least so many bytes of a frame, and all behind them; `None` if there is no room.
    fn place(&mut self, least: usize) -> Option<&mut [u8]> {
        let is_full =
            |(frame, filled): &(Frame, usize)| *filled > FRAME_HEAD && frame.len() - filled < least;
        if self.open.as_ref().is_some_and(is_full) {
            self.close();
        }
        if self.open.is_none() {
            let frame = self.begin()?;
            self.open = Some((frame, FRAME_HEAD));
        }
        let (frame, filled) = self.open.as_mut()?;
        let place = frame.bytes_mut().get_mut(*filled..)?;
        (place.len() >= least).then_some(place)
    }

    /// A frame with its head.
    fn begin(&mut self) -> Option<Frame> {
        if self.changes.is_multiple_of(2) {
            return None;
        }
        let mut frame = self.port.alloc(self.frame_bytes())?;
        let sessions = Sessions {
            from: self.own,
            to: self.peer,
        };
        message::put_head(frame.bytes_mut(), self.port.mac(), sessions);
        Some(frame)
    }

    /// The frame that is being filled is to leave.
    fn close(&mut self) {
        let Some((mut frame, filled)) = self.open.take() else {
            return;
        };
        frame.truncate(filled);
        if self.leaving.is_full() {
            self.port.transmit(&mut self.leaving);
        }
        // A batch that is not full has room.
        let _ = self.leaving.push(frame);
        self.greets = false;
    }

    /// Has everything leave for which there is room.
    pub fn flush(&mut self) {
        while let Some(Waiting { bytes, len }) = self.waiting.pop_front() {
            let Some(place) = self.place(len) else {
                self.waiting.push_front(Waiting { bytes, len });
                break;
            };
            place[..len].copy_from_slice(&bytes[..len]);
            if let Some((_, filled)) = &mut self.open {
                *filled += len;
            }
        }
        if self.greets {
            self.place(0);
        }
        if self.greets || self.has_begun() {
            self.close();
        }
        if !self.leaving.is_empty() {
            self.port.transmit(&mut self.leaving);
        }
    }

    /// Wakes who waits for room, if there is some.
    fn feed(&mut self) {
        if !self.hungry.is_empty() && self.room(DATA_MIN) > 0 {
            self.hungry.drain(..).for_each(Waker::wake);
        }
    }
}
