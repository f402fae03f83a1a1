//! Whether a segment of TCP can be one of its connection, by the windows of both sides.
//!
//! This is the check of Linux's tracker (`tcp_in_window` of Linux 6.18), after Guido van Rooij,
//! "Real Stateful TCP Packet Filtering in IP Filter" (2000). Of what a segment says, `sack` is the
//! highest byte that it acknowledges, selectively or not:
//!
//! 1. `seq <= sender.max_end`: not above what the receiver allows
//! 2. `end >= sender.end - receiver.max_window`: not below what it may still want
//! 3. `sack <= receiver.end`: it acknowledges nothing that was not sent
//! 4. `sack >= receiver.end - MAX`: and nothing too old

use super::packet::Numbers;
use super::tcp::{Segment, State, flag};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Acknowledgements this far below the end of what was sent are old, where no window is larger.
const ACK_AGE_MAX: u32 = 66_000;
/// Largest shift of a window (RFC 7323, 2.3).
const SCALE_MAX: u8 = 14;

/// Options (RFC 9293, 3.2; RFC 7323, 2.2; RFC 2018, 2 and 3).
mod option {
    pub const END: u8 = 0;
    pub const NOTHING: u8 = 1;
    pub const WINDOW_SCALE: u8 = 3;
    pub const SACK_PERMITTED: u8 = 4;
    pub const SACK: u8 = 5;
}

/// What one side has sent and been allowed to send.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Side {
    /// Behind the last byte that it sent.
    pub(super) end: u32,
    /// Behind the last byte that it may send.
    pub(super) max_end: u32,
    /// The largest window that it offered; 0 if it was not heard.
    pub(super) max_window: u32,
    /// The highest acknowledgement that it sent, if [`Window::ACKED`] is set.
    pub(super) max_ack: u32,
}

/// The windows of both sides, original first.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Window {
    sides: [Side; 2],
    flags: [u8; 2],
    /// How far each side's windows are shifted: of the original side in the low half.
    scales: u8,
    /// What the connection has come to.
    pub(super) state: State,
}

/// How a segment lies in the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    Inside,
    /// Outside, which does not matter here: the connection was not seen to begin.
    Tolerated,
    /// A little outside: it is let through.
    Ignored,
    Outside,
}

/// Options of a SYN.
#[derive(Clone, Copy, Default)]
pub(super) struct Options {
    pub(super) scale: Option<u8>,
    pub(super) sack: bool,
}

/// Whether one sequence number is before another one (RFC 9293, 3.4).
#[inline]
pub(super) fn before(first: u32, second: u32) -> bool {
    (first.wrapping_sub(second) as i32) < 0
}

impl Window {
    const SCALED: u8 = 1;
    const SACK: u8 = 2;
    /// This side began to close.
    const CLOSING: u8 = 4;
    /// Nothing of this side is outside: its history or its segments are not known.
    const LIBERAL: u8 = 8;
    /// It has sent what is not acknowledged.
    const UNACKNOWLEDGED: u8 = 16;
    const ACKED: u8 = 32;

    /// Of a connection that begins with this segment, or began before it (`running`).
    pub(super) fn open(segment: &Segment<'_>, running: bool) -> Self {
        let max_window = u32::from(segment.window).max(1);
        let allowed = if running { max_window } else { 0 };
        let side = Side {
            end: segment.end,
            max_end: segment.end.wrapping_add(allowed),
            max_window,
            max_ack: 0,
        };
        let mut window = Self {
            sides: [side, Side::default()],
            flags: [if running {
                Self::SACK | Self::LIBERAL
            } else {
                0
            }; 2],
            scales: 0,
            state: State::NONE,
        };
        if !running {
            window.take_options(0, segment);
        }
        window
    }

    /// Whether it can have come to this.
    pub(super) fn is_sound(&self) -> bool {
        const FLAGS: u8 = 2 * Window::ACKED - 1;
        let scales = [0, 1].map(|direction| self.scale(direction));
        self.state.is_sound()
            && (self.flags[0] | self.flags[1]) <= FLAGS
            && scales.iter().all(|scale| *scale <= SCALE_MAX)
    }

    /// Nothing of this connection is outside from now on.
    pub(super) fn be_liberal(&mut self) {
        self.flags = self.flags.map(|flags| flags | Self::LIBERAL);
    }

    pub(super) fn begin_close(&mut self, direction: usize) {
        self.flags[direction] |= Self::CLOSING;
    }

    pub(super) fn is_closing(&self) -> bool {
        (self.flags[0] | self.flags[1]) & Self::CLOSING != 0
    }

    #[inline]
    pub(super) fn is_unacknowledged(&self) -> bool {
        (self.flags[0] | self.flags[1]) & Self::UNACKNOWLEDGED != 0
    }

    /// The highest acknowledgement that this side sent.
    pub(super) fn acknowledged(&self, direction: usize) -> Option<u32> {
        let set = self.flags[direction] & Self::ACKED != 0;
        set.then_some(self.sides[direction].max_ack)
    }

    /// Whether a segment to this side with these options may acknowledge something selectively.
    #[inline(always)]
    pub(super) fn may_have_sack(&self, direction: usize, options: &[u8]) -> bool {
        let may = !options.is_empty() && !is_timestamp(options);
        may && self.flags[direction & 1] & Self::SACK != 0
    }

    pub(super) fn max_ack(&self, direction: usize) -> u32 {
        self.sides[direction].max_ack
    }

    /// Begins anew with a SYN of this side, and nothing of the other one. `options` are whether it
    /// scales its windows, and whether it takes selective acknowledgements.
    pub(super) fn restart(
        &mut self,
        direction: usize,
        side: Side,
        scale: u8,
        (scaled, sack): (bool, bool),
    ) {
        let other = 1 - direction;
        self.sides[direction] = side;
        let scaled = if scaled { Self::SCALED } else { 0 };
        let sack = if sack { Self::SACK } else { 0 };
        self.flags[direction] = scaled | sack;
        self.set_scale(direction, scale);
        self.sides[other] = Side::default();
        self.flags[other] &= Self::LIBERAL;
        self.set_scale(other, 0);
    }

    fn scale(&self, direction: usize) -> u8 {
        self.scales >> (4 * direction) & 0xf
    }

    fn set_scale(&mut self, direction: usize, scale: u8) {
        let shift = 4 * direction;
        self.scales = self.scales & !(0xf << shift) | scale << shift;
    }

    /// Whether a segment fits, and takes down what it says if it does.
    #[inline(always)]
    pub(super) fn check(&mut self, segment: &Segment<'_>, direction: usize) -> Fit {
        let other = 1 - direction;
        let sack = match self.flags[other] & Self::SACK != 0 {
            true => highest_sack(segment.options, segment.ack),
            false => segment.ack,
        };
        let opening = matches!(self.state, State::SYN_SENT | State::SYN_RECEIVED);
        let again = before(self.sides[direction].end, segment.end);
        if self.sides[direction].max_window == 0 {
            if segment.has(flag::SYN) {
                self.begin(segment, direction);
                if !segment.has(flag::ACK) {
                    return Fit::Tolerated; // A simultaneous open: there is nothing to check.
                }
            } else {
                self.join(segment, direction, sack);
            }
        } else if segment.has(flag::SYN) && again && opening {
            // Sequence numbers above those of the SYN before: the connection begins anew.
            self.begin(segment, direction);
            if direction == 1 && !segment.has(flag::ACK) {
                return Fit::Tolerated;
            }
        }

        let [sender, receiver] = [self.sides[direction], self.sides[other]];
        let (mut seq, mut end) = (segment.seq, segment.end);
        let (mut ack, mut sack) = (segment.ack, sack);
        // Some stacks send a RST with ACK and no number.
        let is_reset = segment.has(flag::RST);
        if !segment.has(flag::ACK) || is_reset && ack == 0 {
            (ack, sack) = (receiver.end, receiver.end);
        }
        if is_reset && seq == 0 && self.state == State::SYN_SENT {
            (seq, end) = (sender.end, sender.end); // It answers a SYN.
        }
        let fit = self.place(direction, seq, end, sack);
        if fit != Fit::Inside {
            let liberal = self.flags[direction] & Self::LIBERAL != 0;
            return if liberal { Fit::Tolerated } else { fit };
        }
        self.update(segment, direction, end, ack, sack);
        Fit::Inside
    }

    /// Of a segment that has an ACK, no SYN and no RST, and acknowledges nothing selectively:
    /// whether both sides were heard and it lies inside.
    #[inline(always)]
    pub(super) fn has_inside(&self, segment: &Segment<'_>, direction: usize) -> bool {
        let &Segment { seq, ack, end, .. } = segment;
        let [sender, receiver] = [&self.sides[direction & 1], &self.sides[direction & 1 ^ 1]];
        let heard = sender.max_window != 0 && receiver.max_window != 0;
        let age_max = sender.max_window.max(ACK_AGE_MAX);
        let oldest = receiver.end.wrapping_sub(age_max).wrapping_sub(1);
        let lowest = sender.end.wrapping_sub(receiver.max_window).wrapping_sub(1);
        heard
            && before(seq, sender.max_end.wrapping_add(1))
            && before(ack, receiver.end.wrapping_add(1))
            && before(lowest, end)
            && before(oldest, ack)
    }

    /// Takes down what such a segment says, as [`Self::update`] does; whether anything is not
    /// acknowledged behind it.
    #[inline(always)]
    pub(super) fn go_on(&mut self, segment: &Segment<'_>, direction: usize) -> bool {
        let &Segment { ack, end, .. } = segment;
        let window = u32::from(segment.window) << self.scale(direction);
        let (direction, other) = (direction & 1, direction & 1 ^ 1);
        let (mut sent, mut received) = (self.flags[direction], self.flags[other]);
        let sender = &mut self.sides[direction];
        sender.max_window = sender.max_window.max(window);
        if before(sender.end, end) {
            sender.end = end;
            sent |= Self::UNACKNOWLEDGED;
        }
        if sent & Self::ACKED == 0 || before(sender.max_ack, ack) {
            sender.max_ack = ack;
        }
        sent |= Self::ACKED;
        let max_end = sender.max_end;
        let receiver = &mut self.sides[other];
        if before(max_end, end) {
            let over = end.wrapping_sub(max_end);
            receiver.max_window = receiver.max_window.wrapping_add(over);
        }
        let allowed = ack.wrapping_add(window);
        if before(receiver.max_end.wrapping_sub(1), allowed) {
            receiver.max_end = allowed.wrapping_add(u32::from(window == 0));
        }
        if ack == receiver.end {
            received &= !Self::UNACKNOWLEDGED;
        }
        self.flags[direction] = sent;
        self.flags[other] = received;
        (sent | received) & Self::UNACKNOWLEDGED != 0
    }

    /// Whether such a segment is what its side of an open connection sends next: what
    /// [`Self::has_inside`] says of it, as distances. Windows that are larger than any that can be
    /// offered have come about otherwise; with others, a distance is never taken for its opposite.
    #[inline(always)]
    pub(super) fn has_next(&self, numbers: &Numbers, direction: usize) -> bool {
        const NEAR: u32 = (u16::MAX as u32 + 1) << SCALE_MAX;
        let &Numbers { seq, ack, .. } = numbers;
        let [sender, receiver] = [&self.sides[direction & 1], &self.sides[direction & 1 ^ 1]];
        let age_max = sender.max_window.max(ACK_AGE_MAX);
        // Nor is either one 0.
        let windows = sender.max_window.wrapping_sub(1) | receiver.max_window.wrapping_sub(1);
        sender.end == seq
            && self.state == State::ESTABLISHED
            && numbers.window != 0
            && windows < NEAR
            && sender.max_end.wrapping_sub(numbers.end()) < NEAR
            && receiver.end.wrapping_sub(ack) <= age_max
            && !before(ack, sender.max_ack)
    }

    /// What [`Self::go_on`] does with it.
    #[inline(always)]
    pub(super) fn go_straight(&mut self, numbers: &Numbers, direction: usize) -> bool {
        let &Numbers { ack, .. } = numbers;
        let window = u32::from(numbers.window) << self.scale(direction & 1);
        let (direction, other) = (direction & 1, direction & 1 ^ 1);
        let sender = &mut self.sides[direction];
        sender.max_window = sender.max_window.max(window);
        sender.end = numbers.end();
        // Whether it was the first one or not.
        sender.max_ack = ack;
        let sent = u8::from(numbers.data != 0) * Self::UNACKNOWLEDGED;
        self.flags[direction] |= Self::ACKED | sent;
        let receiver = &mut self.sides[other];
        if ack == receiver.end {
            self.flags[other] &= !Self::UNACKNOWLEDGED;
        }
        let allowed = ack.wrapping_add(window);
        if before(receiver.max_end.wrapping_sub(1), allowed) {
            receiver.max_end = allowed;
        }
        self.is_unacknowledged()
    }

    /// A SYN begins this side.
    fn begin(&mut self, segment: &Segment<'_>, direction: usize) {
        let side = &mut self.sides[direction];
        side.end = segment.end;
        side.max_end = segment.end;
        side.max_window = u32::from(segment.window).max(1);
        self.take_options(direction, segment);
        let scaled = self.flags[0] & self.flags[1] & Self::SCALED != 0;
        if direction == 1 && !scaled {
            self.scales = 0;
        }
    }

    /// This side is heard for the first time in the middle of a connection.
    fn join(&mut self, segment: &Segment<'_>, direction: usize, sack: u32) {
        let window = u32::from(segment.window) << self.scale(direction);
        let sender = &mut self.sides[direction];
        sender.end = segment.end;
        sender.max_window = window.max(1);
        sender.max_end = segment.end.wrapping_add(sender.max_window);
        let receiver = &mut self.sides[1 - direction];
        if receiver.max_window == 0 {
            (receiver.end, receiver.max_end) = (sack, sack);
        } else if sack == receiver.end.wrapping_add(1) {
            receiver.end = sack; // It answers a keep-alive.
        }
    }

    fn take_options(&mut self, direction: usize, segment: &Segment<'_>) {
        if segment.options.is_empty() {
            return;
        }
        let said = options(segment.options);
        self.set_scale(direction, said.scale.unwrap_or(0));
        let flags = &mut self.flags[direction];
        *flags &= Self::LIBERAL;
        if said.scale.is_some() {
            *flags |= Self::SCALED;
        }
        if said.sack {
            *flags |= Self::SACK;
        }
    }

    /// The four conditions.
    fn place(&mut self, direction: usize, seq: u32, end: u32, sack: u32) -> Fit {
        let [sender, receiver] = [self.sides[direction], self.sides[1 - direction]];
        let age_max = sender.max_window.max(ACK_AGE_MAX);
        let oldest = receiver.end.wrapping_sub(age_max).wrapping_sub(1);
        let lowest = sender.end.wrapping_sub(receiver.max_window).wrapping_sub(1);
        let heard = receiver.max_window != 0;
        if !before(seq, sender.max_end.wrapping_add(1)) {
            let overshot = end.wrapping_sub(sender.max_end).wrapping_add(1);
            let slightly = heard
                && before(lowest, end)
                && before(oldest, sack)
                && overshot <= receiver.max_window
                && before(sack, receiver.end.wrapping_add(1));
            if !slightly {
                return Fit::Outside;
            }
            // If it passes and is acknowledged, that has to be right.
            self.sides[direction].end = end;
            self.flags[direction] |= Self::UNACKNOWLEDGED;
            return Fit::Ignored;
        }
        if !before(sack, receiver.end.wrapping_add(1)) {
            return Fit::Outside;
        }
        if heard && !before(lowest, end) || !before(oldest, sack) {
            return Fit::Ignored;
        }
        Fit::Inside
    }

    #[inline(always)]
    fn update(&mut self, segment: &Segment<'_>, direction: usize, end: u32, ack: u32, sack: u32) {
        let other = 1 - direction;
        let mut window = u32::from(segment.window);
        if !segment.has(flag::SYN) {
            window <<= self.scale(direction);
        }
        let sender = &mut self.sides[direction];
        let offered = window.wrapping_add(sack.wrapping_sub(ack));
        sender.max_window = sender.max_window.max(offered);
        if before(sender.end, end) {
            sender.end = end;
            self.flags[direction] |= Self::UNACKNOWLEDGED;
        }
        if segment.has(flag::ACK) {
            let first = self.flags[direction] & Self::ACKED == 0;
            if first || before(sender.max_ack, ack) {
                sender.max_ack = ack;
            }
            self.flags[direction] |= Self::ACKED;
        }
        let max_end = sender.max_end;
        let receiver = &mut self.sides[other];
        if receiver.max_window != 0 && before(max_end, end) {
            let over = end.wrapping_sub(max_end);
            receiver.max_window = receiver.max_window.wrapping_add(over);
        }
        let allowed = sack.wrapping_add(window);
        if before(receiver.max_end.wrapping_sub(1), allowed) {
            receiver.max_end = allowed.wrapping_add(u32::from(window == 0));
        }
        if ack == receiver.end {
            self.flags[other] &= !Self::UNACKNOWLEDGED;
        }
    }
}

/// Whether these are the options of most segments: a timestamp (RFC 7323, appendix A).
#[inline(always)]
fn is_timestamp(options: &[u8]) -> bool {
    options.len() == 12 && options.first_chunk() == Some(&[1, 1, 8, 10])
}

/// Options with their contents, as long as they make sense.
fn each_option(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    core::iter::from_fn(move || {
        loop {
            let (&kind, rest) = bytes.split_first()?;
            match kind {
                option::END => return None,
                option::NOTHING => bytes = rest,
                _ => {
                    let content = usize::from(*rest.first()?).checked_sub(2)?;
                    let found = rest.get(1..1 + content)?;
                    bytes = &rest[1 + content..];
                    return Some((kind, found));
                }
            }
        }
    })
}

/// The options of a SYN that matter here.
pub(super) fn options(bytes: &[u8]) -> Options {
    let mut said = Options::default();
    for (kind, content) in each_option(bytes) {
        match (kind, content) {
            (option::WINDOW_SCALE, [scale]) => said.scale = Some((*scale).min(SCALE_MAX)),
            (option::SACK_PERMITTED, []) => said.sack = true,
            _ => {}
        }
    }
    said
}

/// The highest byte that a segment acknowledges.
fn highest_sack(bytes: &[u8], ack: u32) -> u32 {
    let mut options = each_option(bytes);
    let is_sack = |(kind, content): &(u8, &[u8])| {
        *kind == option::SACK && !content.is_empty() && content.len().is_multiple_of(8)
    };
    let Some((_, blocks)) = options.find(is_sack) else {
        return ack;
    };
    blocks
        .as_chunks::<8>()
        .0
        .iter()
        .fold(ack, |highest, block| {
            let right = u32::from_be_bytes([block[4], block[5], block[6], block[7]]);
            if before(highest, right) {
                right
            } else {
                highest
            }
        })
}
