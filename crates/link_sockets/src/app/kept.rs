//! Connections that outlive their stack. What was sent to it stays here until it has that, and the
//! next one is told how far this end is.

use super::place::{Place, wake};
use super::{GONE, STACK_PATIENCE, Table};
use crate::fault::Fault;
use crate::message::{Message, What};
use crate::window::{Credit, Window};
use alloc::collections::VecDeque;

/// Bytes that may have come on a connection without a word to the stack, unless another one leaves
/// anyway.
const UNSAID_MAX: u32 = 16 << 10;
/// Memory that stays with a connection that has sent all, in bytes.
const IDLE_MAX: usize = 16 << 10;

/// What is known of such a connection.
pub struct Kept {
    /// What the stack calls it.
    name: u64,
    /// The number of the byte behind the last one that was ever sent.
    written: u32,
    /// The number of the byte behind the last one that has come.
    read: u32,
    /// Bytes that have come since the stack was told so.
    unsaid: u32,
    /// What was sent, and no stack may have.
    held: VecDeque<u8>,
    /// Bytes of it that this stack was sent.
    sent: usize,
    /// The stack has yet to say how far it is.
    resumes: bool,
    /// The stack is yet to be sent what the one before may not have had.
    is_behind: bool,
    /// And then to be told that it is closed.
    closes: bool,
}

impl Kept {
    fn new(name: u64, written: u32, read: u32) -> Self {
        Self {
            name,
            written,
            read,
            unsaid: 0,
            held: VecDeque::new(),
            sent: 0,
            resumes: false,
            is_behind: false,
            closes: false,
        }
    }

    /// Whether nothing new can be sent before what the stack does not have.
    pub fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// These bytes were sent.
    pub fn wrote(&mut self, bytes: &[u8]) {
        self.held.extend(bytes);
        self.sent += bytes.len();
        // A message is shorter than 64 KiB.
        self.written = self.written.wrapping_add(bytes.len() as u32);
    }

    /// The stack has the first `count` of those that it was sent, which are as many at least.
    pub fn has(&mut self, count: u32) {
        let count = (count as usize).min(self.sent);
        self.held.drain(..count);
        self.sent -= count;
        if self.held.is_empty() && self.held.capacity() > IDLE_MAX {
            self.held = VecDeque::new();
        }
    }

    /// So many bytes have come; whether that is the first that the stack is to be told of.
    fn came(&mut self, count: u32) -> bool {
        self.read = self.read.wrapping_add(count);
        let was = self.unsaid;
        self.unsaid += count;
        was == 0
    }

    /// There is no stack.
    fn lose(&mut self) {
        (self.unsaid, self.sent) = (0, 0);
        (self.resumes, self.is_behind) = (true, true);
    }

    /// What the next one is told.
    pub fn resume(&self, window: &mut Window) -> What<'static> {
        window.renew();
        What::Resume {
            name: self.name,
            written: self.written,
            read: self.read,
            window: window.size(),
            left: window.left(),
        }
    }

    /// The stack has all bytes before this number; `false` if that cannot be.
    fn resumed(&mut self, written: u32) -> bool {
        let missing = self.written.wrapping_sub(written) as usize;
        let Some(had) = self.held.len().checked_sub(missing) else {
            return false;
        };
        self.held.drain(..had);
        core::mem::take(&mut self.resumes)
    }

    /// What is to be sent again, as far as it lies in one piece.
    fn rest(&self) -> &[u8] {
        let (front, back) = self.held.as_slices();
        match front.get(self.sent..) {
            Some(rest @ [_, ..]) => rest,
            _ => &back[self.sent - front.len()..],
        }
    }
}

impl Place {
    /// Whether it outlives its stack.
    pub fn outlives(&self) -> bool {
        self.is_open && self.kept.is_some()
    }

    /// Whether the stack cannot be told more of it yet.
    pub fn is_behind(&self) -> bool {
        self.kept.as_ref().is_some_and(Kept::is_behind)
    }

    /// Its stack is gone, and the next one is waited for.
    fn lose(&mut self) {
        self.has_ended = false;
        self.credit = Credit::default();
        if let Some(kept) = &mut self.kept {
            kept.lose();
            kept.closes = self.is_dropped && !self.is_aborted;
        }
    }

    /// Nobody has it any more, and the stack is to be told when that can be.
    pub fn close_later(&mut self, how: What<'static>) {
        self.is_aborted |= how == What::Abort;
        if let Some(kept) = &mut self.kept {
            kept.closes = !self.is_aborted;
        }
    }

    /// Whether it is to be closed once the stack has all. That is said at most once.
    fn take_closes(&mut self) -> bool {
        let closes = |kept: &mut Kept| core::mem::take(&mut kept.closes);
        self.kept.as_mut().is_some_and(closes)
    }
}

impl Table {
    /// The connection that will be opened under this number outlives the stack.
    pub(super) fn keep(&mut self, number: u32, kept: (u64, u32, u32)) -> Result<(), Fault> {
        let place = &mut self.places[number as usize];
        if place.is_open || !place.kind.connects() || place.kept.is_some() {
            return Err(Fault::State(number));
        }
        let (name, written, read) = kept;
        place.kept = Some(Kept::new(name, written, read));
        Ok(())
    }

    /// There is no stack, and a connection waits for the next one.
    pub(super) fn lose(&mut self, number: u32) {
        let until = self.now + STACK_PATIENCE;
        let place = self.place(number);
        place.until = until;
        place.lose();
    }

    /// Nobody has gone on with a connection in time.
    pub(super) fn give_up(&mut self, number: u32) {
        let place = self.place(number);
        place.kept = None;
        place.fail(GONE);
        if place.is_dropped {
            self.release(number);
        }
    }

    /// Bytes of a connection have come.
    pub(super) fn data(&mut self, number: u32, bytes: &[u8]) -> Result<(), Fault> {
        let place = &mut self.places[number as usize];
        place.data(bytes).map_err(|fault| fault(number))?;
        if let Some(kept) = &mut place.kept
            // A message is shorter than 64 KiB.
            && kept.came(bytes.len() as u32)
        {
            self.unsaid.push(number);
        }
        Ok(())
    }

    /// What was sent to a stack, and taken by it.
    pub(super) fn credit(&mut self, number: u32, count: u32) -> Result<(), Fault> {
        let place = &mut self.places[number as usize];
        if !place.credit.give(count) {
            return Err(Fault::Credit(number));
        }
        if let Some(kept) = &mut place.kept {
            kept.has(count);
        }
        wake(&mut place.writer);
        Ok(())
    }

    /// The stack goes on with a connection.
    pub(super) fn resumed(&mut self, number: u32, written: u32, window: u32) -> Result<(), Fault> {
        let place = &mut self.places[number as usize];
        let kept = place.kept.as_mut().filter(|kept| kept.resumes);
        let kept = kept.ok_or(Fault::State(number))?;
        if !kept.resumed(written) {
            return Err(Fault::Credit(number));
        }
        place.credit = Credit::new(window);
        self.behind.push(number);
        Ok(())
    }

    /// The stack does not go on with a connection, or it has failed.
    pub(super) fn failed(&mut self, number: u32, why: net::socket::Error) {
        let place = &mut self.places[number as usize];
        place.fail(why);
        let closes = place.take_closes();
        place.kept = None;
        if closes {
            self.wire.say(&Message::new(number, What::Close));
        }
    }

    /// Sends what the stack before may not have had, as there is room.
    pub(super) fn send_again(&mut self) {
        let behind = core::mem::take(&mut self.behind);
        let rest = behind.into_iter().filter(|number| !self.catch_up(*number));
        self.behind = rest.collect();
    }

    /// Whether nothing is left to be sent again.
    fn catch_up(&mut self, number: u32) -> bool {
        let place = &mut self.places[number as usize];
        let waits = |kept: &&mut Kept| kept.is_behind && !kept.resumes && !place.is_aborted;
        let Some(kept) = place.kept.as_mut().filter(waits) else {
            return true;
        };
        while kept.sent < kept.held.len() {
            let rest = kept.rest();
            let count = rest.len().min(place.credit.left());
            let count = count.min(self.wire.room(count));
            let message = Message::new(number, What::Data(&rest[..count]));
            if count == 0 || !self.wire.put(&message) {
                return false;
            }
            // A message is shorter than 64 KiB.
            place.credit.spend(count as u32);
            kept.sent += count;
        }
        kept.is_behind = false;
        let closes = core::mem::take(&mut kept.closes);
        let more = [
            (place.is_shut, What::End),
            (place.asked > place.answered, What::Ask),
            (closes, What::Close),
        ];
        wake(&mut place.writer);
        for (_, what) in more.into_iter().filter(|(is, _)| *is) {
            self.wire.say(&Message::new(number, what));
        }
        true
    }

    /// Tells the stack what has come, where something is said anyway, or it is much.
    pub(super) fn say_what_came(&mut self) {
        let much = |number: &u32| {
            let kept = self.places[*number as usize].kept.as_ref();
            kept.is_some_and(|kept| kept.unsaid >= UNSAID_MAX)
        };
        if self.wire.has_left() && !self.unsaid.iter().any(much) {
            return;
        }
        for number in core::mem::take(&mut self.unsaid) {
            self.say_came(number);
        }
    }

    /// The same of one connection.
    pub(super) fn say_came(&mut self, number: u32) {
        let place = &mut self.places[number as usize];
        let is_heard = place.is_known && !place.is_dropped && !place.is_aborted;
        if let Some(kept) = place.kept.as_mut().filter(|_| is_heard) {
            let count = core::mem::take(&mut kept.unsaid);
            if count > 0 {
                self.wire.say(&Message::new(number, What::Have(count)));
            }
        }
    }
}
