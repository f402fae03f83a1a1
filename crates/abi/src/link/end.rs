//! One end of a link.

use super::{
    AtomicU64, ENTRIES, Entry, Fault, HEAD_WORDS, MAGIC, SLOT_BYTES, UP, Words, badge, word,
};
use crate::ring::{heard, tell};
use core::sync::atomic::Ordering;
#[cfg(not(loom))]
use core::sync::atomic::fence;
#[cfg(loom)]
use loom::sync::atomic::fence;

/// What [`word::STATE`] goes on by each time that an end comes up.
const TIME: u64 = 2;

/// What became of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Both ends send and receive.
    Up,
    /// The other end went down, or another one has come up in its place. So many frames that were
    /// under way to this end are lost.
    Down {
        /// How many.
        lost: u64,
    },
}

/// One end of a link: it sends and receives.
#[derive(Debug)]
pub struct End<'a> {
    pub(super) own: Words<'a>,
    pub(super) peer: Words<'a>,
    /// How many slots the other end has.
    peer_slots: u32,
    /// What [`word::STATE`] of this end says, and that of the other to which this one has adjusted
    /// itself.
    state: u64,
    seen: u64,
    up: bool,
    failed: bool,
    /// Whether the other end has not been told of what this one says of its state.
    news: bool,
    /// Frames that were ever described, those of them that the other end was told of, and those
    /// that it is known to have taken.
    written: u64,
    posted: u64,
    returned: u64,
    /// Frames that were ever taken, those of them that the other end was told of, and those that
    /// are known to be there.
    taken: u64,
    released: u64,
    arrived: u64,
    /// The number of the last sleep, as [`word::WAITING`] has it.
    sleep: u64,
    /// The sleep of the other end's that was ended last.
    rung: u64,
}

impl<'a> End<'a> {
    /// Begins: the link comes up as soon as the other end has seen it. `own` and `peer` are the
    /// headers of both files, and the other one has `peer_slots` slots. `own` may hold whatever
    /// this end left there before, wherever it was stopped. `None` if there are too few words.
    pub fn begin(own: &'a [AtomicU64], peer: &'a [AtomicU64], peer_slots: usize) -> Option<Self> {
        let own = Words(own.get(..HEAD_WORDS)?);
        let peer = Words(peer.get(..HEAD_WORDS)?);
        Some(Self::of(own, peer, peer_slots as u32))
    }

    pub(super) fn of(own: Words<'a>, peer: Words<'a>, peer_slots: u32) -> Self {
        let found = |number: usize| own.0[number].load(Ordering::Relaxed);
        let (written, taken) = (found(word::SENT), found(word::TAKEN));
        let mut end = Self {
            own,
            peer,
            peer_slots,
            state: found(word::STATE),
            seen: 0,
            up: false,
            failed: false,
            news: false,
            written,
            posted: written,
            returned: written,
            taken,
            released: taken,
            arrived: taken,
            sleep: found(word::WAITING) & !(badge::SLEEP - 1),
            rung: 0,
        };
        end.wake();
        // What this end has left is taken up once.
        let left = found(word::LEFT);
        own.0[word::LEFT].store(0, Ordering::Release);
        if left == 0 || !end.goes_on(left) {
            end.begin_anew();
        }
        end
    }

    /// Takes up what was `left` at this end, if both ends are still as they were.
    fn goes_on(&mut self, left: u64) -> bool {
        let seen = self.own.0[word::SEEN].load(Ordering::Relaxed);
        let is_seen = self.peer.0[word::SEEN].load(Ordering::Acquire) == left;
        let taken = self.peer.0[word::TAKEN].load(Ordering::Acquire);
        let under_way = self.written.wrapping_sub(taken);
        if left != self.state || self.peer_state() != seen || left & seen & UP == 0 || !is_seen {
            return false;
        }
        (self.seen, self.returned) = (seen, taken);
        self.up = under_way <= ENTRIES;
        self.up
    }

    /// Begins, whatever was left.
    pub fn begin_anew(&mut self) {
        self.up = false;
        (self.seen, self.returned) = (0, self.written);
        // Until this end has adjusted itself, the other one must not take it for up.
        self.own.0[word::SEEN].store(0, Ordering::Relaxed);
        self.own.0[word::MAGIC].store(MAGIC, Ordering::Release);
        self.come_up();
    }

    /// Slots of frames that the other end has not taken, in their order, as this end has described
    /// them: for whoever goes on here. They are unchecked.
    pub fn under_way(&self) -> impl Iterator<Item = u32> {
        let own = self.own;
        let (from, count) = (self.returned, self.outstanding());
        let place =
            move |number| own.entry(from.wrapping_add(number))[word::PLACE].load(Ordering::Relaxed);
        (0..count).map(move |number| place(number) as u32)
    }

    /// Says that whoever begins here next goes on as this end; if the link is down, that this end
    /// is.
    pub fn leave(&mut self) {
        if !self.up {
            return self.go_down();
        }
        self.post();
        self.release();
        self.own.0[word::LEFT].store(self.state, Ordering::Release);
    }

    /// Says that this end is up, for one more time. What follows is not seen before that: whoever
    /// has copied a frame that is overwritten now will see another state.
    fn come_up(&mut self) {
        let next = |state: u64| (state & !UP).wrapping_add(TIME) | UP;
        self.state = next(self.state);
        // Whatever was left in the file: the other end must see another number than it knows.
        if self.peer.0[word::SEEN].load(Ordering::Relaxed) == self.state {
            self.state = next(self.state);
        }
        self.own.0[word::STATE].store(self.state, Ordering::Release);
        fence(Ordering::SeqCst);
        self.news = true;
    }

    /// Says that this end is down.
    pub fn go_down(&mut self) {
        self.up = false;
        self.state &= !UP;
        self.own.0[word::STATE].store(self.state, Ordering::Release);
        self.news = true;
    }

    /// Whether this end has said something of its state since it was asked last: the other one is
    /// to be rung for it ([`badge::STATE`]).
    #[inline]
    pub fn has_news(&mut self) -> bool {
        core::mem::take(&mut self.news)
    }

    /// What the other end's state is; 0 before it has ever begun.
    #[inline]
    fn peer_state(&self) -> u64 {
        let state = self.peer.0[word::STATE].load(Ordering::Acquire);
        match self.peer.0[word::MAGIC].load(Ordering::Relaxed) {
            MAGIC => state,
            _ => 0,
        }
    }

    /// Whether both ends send and receive, as far as [`Self::look`] knows.
    #[inline]
    pub fn is_up(&self) -> bool {
        self.up
    }

    /// What has become of the link since the last time, to be called until it is nothing.
    #[inline]
    pub fn look(&mut self) -> Option<Event> {
        let state = self.peer_state();
        if state == self.seen && self.up {
            return None;
        }
        self.change(state)
    }

    #[cold]
    fn change(&mut self, state: u64) -> Option<Event> {
        if state != self.seen {
            let was_up = core::mem::take(&mut self.up);
            let lost = self.adjust(state);
            if was_up || lost > 0 {
                return Some(Event::Down { lost });
            }
        }
        let seen = self.peer.0[word::SEEN].load(Ordering::Acquire) == self.state;
        if self.failed || state & UP == 0 || !seen {
            return None;
        }
        self.up = true;
        Some(Event::Up)
    }

    /// Adjusts this end to the other one, whose state is this. Returns how many frames that were
    /// under way are lost by that; of an end that broke the rules, nobody knows.
    fn adjust(&mut self, state: u64) -> u64 {
        let sent = self.peer.0[word::SENT].load(Ordering::Acquire);
        let lost = Some(sent.wrapping_sub(self.taken)).filter(|lost| *lost <= ENTRIES);
        (self.taken, self.arrived) = (sent, sent);
        self.release();
        self.seen = state;
        self.rung = 0;
        self.own.0[word::SEEN].store(state, Ordering::Release);
        self.news = true;
        if core::mem::take(&mut self.failed) {
            self.come_up();
        }
        lost.unwrap_or(0)
    }

    /// Takes the link down until the other end begins anew.
    #[cold]
    fn fail(&mut self, fault: Fault) -> Fault {
        self.failed = true;
        self.go_down();
        fault
    }

    /// How many frames can be described.
    #[inline]
    pub fn free_entries(&self) -> u64 {
        ENTRIES - self.outstanding()
    }

    /// How many were described and not taken by the other end.
    #[inline]
    pub fn outstanding(&self) -> u64 {
        self.written.wrapping_sub(self.returned)
    }

    /// Describes a frame, of which the other end learns by [`Self::post`]; `false`, and nothing
    /// done, if there is no room.
    #[inline]
    #[must_use]
    pub fn write(&mut self, entry: &Entry) -> bool {
        if self.free_entries() == 0 {
            return false;
        }
        let words = self.own.entry(self.written);
        let [low @ .., a, b, c, d] = entry.header;
        let place = u64::from(entry.slot) | u64::from(entry.offset) << 32;
        let end = u32::from_le_bytes([a, b, c, d]);
        words[word::PLACE].store(place, Ordering::Relaxed);
        words[word::LENGTH].store(entry.length.into(), Ordering::Relaxed);
        words[word::HEADER].store(u64::from_le_bytes(low), Ordering::Relaxed);
        words[word::HEADER_END].store(end.into(), Ordering::Relaxed);
        self.written = self.written.wrapping_add(1);
        true
    }

    /// Tells the other end of all that was described; whether there was anything.
    #[inline]
    pub fn post(&mut self) -> bool {
        tell(&self.own.0[word::SENT], &mut self.posted, self.written)
    }

    /// How many frames the other end has taken since the last time, the oldest ones first.
    ///
    /// # Errors
    /// It has taken what was never sent, or gives a frame back. The link is down then.
    #[inline]
    pub fn take_back(&mut self) -> Result<u64, Fault> {
        if !self.up || self.returned == self.posted {
            return Ok(0);
        }
        let most = self.posted.wrapping_sub(self.returned);
        let taken = heard(&self.peer.0[word::TAKEN], self.returned, most);
        let taken = taken.map_err(|jump| self.fail(Fault::Taken(jump)))?;
        let before = core::mem::replace(&mut self.returned, taken);
        Ok(taken.wrapping_sub(before))
    }

    /// Whether there is a frame.
    ///
    /// # Errors
    /// The other end has sent more than there are entries, or takes a frame back. The link is down
    /// then.
    #[inline]
    fn has_frame(&mut self) -> Result<bool, Fault> {
        if self.arrived == self.taken {
            let sent = heard(&self.peer.0[word::SENT], self.taken, ENTRIES);
            self.arrived = sent.map_err(|jump| self.fail(Fault::Sent(jump)))?;
        }
        Ok(self.arrived != self.taken)
    }

    /// The oldest frame that was not taken, which lies in its slot; `None` if there is none. It
    /// stays there until [`Self::take`].
    ///
    /// # Errors
    /// What the other end says cannot be. The link is down then.
    #[inline]
    pub fn frame(&mut self) -> Result<Option<Entry>, Fault> {
        if !self.up || !self.has_frame()? {
            return Ok(None);
        }
        let words = self.peer.entry(self.taken);
        let place = words[word::PLACE].load(Ordering::Relaxed);
        let length = words[word::LENGTH].load(Ordering::Relaxed);
        let low = words[word::HEADER].load(Ordering::Relaxed);
        let end = words[word::HEADER_END].load(Ordering::Relaxed);
        let mut header = [0; 12];
        header[..8].copy_from_slice(&low.to_le_bytes());
        header[8..].copy_from_slice(&(end as u32).to_le_bytes());
        let entry = Entry {
            slot: place as u32,
            offset: (place >> 32) as u32,
            length: u32::try_from(length).unwrap_or(u32::MAX),
            header,
        };
        if entry.slot >= self.peer_slots {
            return Err(self.fail(Fault::Slot(entry.slot)));
        }
        let end = u64::from(entry.offset) + u64::from(entry.length);
        if end > SLOT_BYTES as u64 {
            let Entry { offset, length, .. } = entry;
            return Err(self.fail(Fault::Range { offset, length }));
        }
        Ok(Some(entry))
    }

    /// Takes the frame that [`Self::frame`] has returned; the other end learns of it by
    /// [`Self::release`]. Returns whether what was read of it was the frame: if not, its sender has
    /// begun anew meanwhile, and nothing was taken.
    #[inline]
    #[must_use]
    pub fn take(&mut self) -> bool {
        fence(Ordering::Acquire);
        if self.peer.0[word::STATE].load(Ordering::Relaxed) != self.seen {
            return false;
        }
        self.taken = self.taken.wrapping_add(1);
        true
    }

    /// Tells the other end of all that was taken; whether there was anything.
    #[inline]
    pub fn release(&mut self) -> bool {
        tell(&self.own.0[word::TAKEN], &mut self.released, self.taken)
    }

    /// What there is to look at, bits of [`badge`].
    #[inline]
    pub fn pending(&self) -> u64 {
        let state = self.peer_state();
        if state != self.seen {
            return badge::STATE;
        }
        if !self.up {
            let seen = self.peer.0[word::SEEN].load(Ordering::Acquire) == self.state;
            return match !self.failed && state & UP != 0 && seen {
                true => badge::STATE,
                false => 0,
            };
        }
        let frames = self.peer.0[word::SENT].load(Ordering::Acquire) != self.taken;
        let room = self.returned != self.posted
            && self.peer.0[word::TAKEN].load(Ordering::Acquire) != self.returned;
        let frames = if frames { badge::FRAMES } else { 0 };
        frames | if room { badge::ROOM } else { 0 }
    }

    /// Whether the other end is to be rung, since it sleeps and waits for one of these [`badge`]s:
    /// to be asked after what they stand for was done. Once for each of its sleeps.
    #[inline]
    #[must_use]
    pub fn must_ring(&mut self, badges: u64) -> bool {
        fence(Ordering::SeqCst);
        let waiting = self.peer.0[word::WAITING].load(Ordering::Relaxed);
        if waiting & badges == 0 || waiting == self.rung {
            return false;
        }
        self.rung = waiting;
        true
    }

    /// Says that this end sleeps until there is one of these [`badge`]s. Whoever sleeps looks once
    /// more before that, by [`Self::pending`].
    #[inline]
    pub fn sleep(&mut self, badges: u64) {
        self.sleep = self.sleep.wrapping_add(badge::SLEEP);
        self.own.0[word::WAITING].store(self.sleep | badges, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Says that this end is awake.
    #[inline]
    pub fn wake(&mut self) {
        self.own.0[word::WAITING].store(self.sleep, Ordering::Relaxed);
    }
}
