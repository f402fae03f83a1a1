//! What a segment does to a connection of TCP: Linux's table of transitions, and what its tracker
//! does besides (net/netfilter/nf_conntrack_proto_tcp.c of Linux 6.18).
//!
//! A tracker sees segments that may never arrive, and misses others. So some are *let through*:
//! they belong to the connection, change nothing, and what answers them shows whether they were
//! right.

use super::packet::Numbers;
use super::record::Standing;
use super::timeout::{Class, Timeouts};
use super::window::{self, Side, Window};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What a connection has come to. The numbers are those of Linux; memory that outlives the image
/// has them as they are, so they are no `enum`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub(super) struct State(u8);

impl State {
    pub(super) const NONE: Self = Self(0);
    pub(super) const SYN_SENT: Self = Self(1);
    pub(super) const SYN_RECEIVED: Self = Self(2);
    pub(super) const ESTABLISHED: Self = Self(3);
    pub(super) const FIN_WAIT: Self = Self(4);
    pub(super) const CLOSE_WAIT: Self = Self(5);
    pub(super) const LAST_ACK: Self = Self(6);
    pub(super) const TIME_WAIT: Self = Self(7);
    pub(super) const CLOSE: Self = Self(8);
    /// A SYN from both sides: a simultaneous open (RFC 9293, 3.5).
    pub(super) const SYN_SENT2: Self = Self(9);

    /// Whether it is one.
    pub(super) fn is_sound(self) -> bool {
        self <= Self::SYN_SENT2
    }

    fn class(self) -> Class {
        match self {
            Self::SYN_RECEIVED => Class::SynReceived,
            Self::ESTABLISHED => Class::Established,
            Self::FIN_WAIT => Class::FinWait,
            Self::CLOSE_WAIT => Class::CloseWait,
            Self::LAST_ACK => Class::LastAck,
            Self::TIME_WAIT => Class::TimeWait,
            Self::CLOSE => Class::Close,
            Self::SYN_SENT2 => Class::SynSent2,
            // A SYN of one side.
            _ => Class::SynSent,
        }
    }
}

/// What a segment says, by its flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Syn,
    SynAck,
    Fin,
    Ack,
    Rst,
    /// None of these.
    Empty,
}

/// Flags of TCP (RFC 9293, 3.1).
pub(super) mod flag {
    pub const FIN: u8 = 1;
    pub const SYN: u8 = 2;
    pub const RST: u8 = 4;
    pub const PSH: u8 = 8;
    pub const ACK: u8 = 16;
    pub const URG: u8 = 32;
    pub const ECE: u8 = 64;
    pub const CWR: u8 = 128;
}

/// A segment, as far as it is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment<'a> {
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) window: u16,
    pub(super) flags: u8,
    /// Sequence number behind it: SYN and FIN count as a byte.
    pub(super) end: u32,
    pub(super) options: &'a [u8],
}

impl Segment<'_> {
    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn kind(&self) -> Kind {
        match self.flags {
            flags if flags & flag::RST != 0 => Kind::Rst,
            flags if flags & (flag::SYN | flag::ACK) == flag::SYN => Kind::Syn,
            flags if flags & flag::SYN != 0 => Kind::SynAck,
            flags if flags & flag::FIN != 0 => Kind::Fin,
            flags if flags & flag::ACK != 0 => Kind::Ack,
            _ => Kind::Empty,
        }
    }

    /// Whether the flags are a combination that a stack may send. PSH, ECE and CWR may be anywhere.
    pub(super) fn has_valid_flags(&self) -> bool {
        use flag::{ACK, CWR, ECE, FIN, PSH, RST, SYN, URG};
        const SYN_URG: u8 = SYN | URG;
        const SYN_ACK: u8 = SYN | ACK;
        const RST_ACK: u8 = RST | ACK;
        const FIN_ACK: u8 = FIN | ACK;
        const FIN_ACK_URG: u8 = FIN | ACK | URG;
        const ACK_URG: u8 = ACK | URG;
        matches!(
            self.flags & !(PSH | ECE | CWR),
            SYN | SYN_URG | SYN_ACK | RST | RST_ACK | FIN_ACK | FIN_ACK_URG | ACK | ACK_URG
        )
    }
}

/// Where a segment leads from a state.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    To(State),
    /// It is let through.
    Ignored,
    Invalid,
}

/// One row of the table: what a kind of segment does in each [`State`].
type Row = [Next; 10];

/// By direction, original first, and [`Kind`]: `tcp_conntracks`.
const TRANSITIONS: [[Row; 6]; 2] = {
    use Next::{Ignored as IG, Invalid as IV};
    const SS: Next = Next::To(State::SYN_SENT);
    const SR: Next = Next::To(State::SYN_RECEIVED);
    const ES: Next = Next::To(State::ESTABLISHED);
    const FW: Next = Next::To(State::FIN_WAIT);
    const CW: Next = Next::To(State::CLOSE_WAIT);
    const LA: Next = Next::To(State::LAST_ACK);
    const TW: Next = Next::To(State::TIME_WAIT);
    const CL: Next = Next::To(State::CLOSE);
    const S2: Next = Next::To(State::SYN_SENT2);
    [
        // No, SynSent, SynReceived, Established, FinWait, CloseWait, LastAck, TimeWait, Close,
        // SynSent2
        [
            [SS, SS, IG, IG, IG, IG, IG, SS, SS, S2], // Syn
            [IV, IV, SR, IV, IV, IV, IV, IV, IV, SR], // SynAck
            [IV, IV, FW, FW, LA, LA, LA, TW, CL, IV], // Fin
            [ES, IV, ES, ES, CW, CW, TW, TW, CL, IV], // Ack
            [IV, CL, CL, CL, CL, CL, CL, CL, CL, CL], // Rst
            [IV, IV, IV, IV, IV, IV, IV, IV, IV, IV], // Empty
        ],
        [
            [IV, S2, IV, IV, IV, IV, IV, SS, IV, S2], // Syn
            [IV, SR, IG, IG, IG, IG, IG, IG, IG, SR], // SynAck
            [IV, IV, FW, FW, LA, LA, LA, TW, CL, IV], // Fin
            [IV, IG, SR, ES, CW, CW, TW, TW, CL, IG], // Ack
            [IV, CL, CL, CL, CL, CL, CL, CL, CL, CL], // Rst
            [IV, IV, IV, IV, IV, IV, IV, IV, IV, IV], // Empty
        ],
    ]
};

/// Retransmissions of one segment after which a connection stays for less time
/// (`tcp_max_retrans`).
const RETRANSMISSIONS_MAX: u8 = 3;

/// What is known of a connection.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Tcp {
    pub(super) window: Window,
    /// Of the last segment that changed something or was let through.
    last_seq: u32,
    /// What it acknowledged, if a question about that may come.
    last_ack: u32,
    /// Up to its end; a packet is shorter than 2^16.
    last_length: u16,
    last_window: u16,
    /// Its direction and kind, and the window scale of a SYN that was let through.
    last: Last,
    memory: Memory,
    /// The flow's own, and none of TCP's.
    flow: Standing,
}

/// Direction (1 bit), kind (3) and window scale (4) in a byte.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
struct Last(u8);

impl Last {
    fn new(direction: usize, kind: Kind, scale: u8) -> Self {
        Self((direction as u8) | (kind as u8) << 1 | scale << 4)
    }

    fn direction(self) -> usize {
        usize::from(self.0 & 1)
    }

    fn is(self, kind: Kind) -> bool {
        self.0 >> 1 & 7 == kind as u8
    }

    fn scale(self) -> u8 {
        self.0 >> 4
    }
}

/// Flags of a SYN that was let through, what else is remembered, and how often the last segment
/// came: the two highest bits.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub(super) struct Memory(u8);

impl Memory {
    const SCALE: u8 = 1;
    const SACK: u8 = 2;
    /// A SYN was let through in [`State::LAST_ACK`]: the ACK of a receiver that challenges it
    /// (RFC 5961, 4.2) acknowledges no FIN.
    const CHALLENGE: u8 = 4;
    const SIMULTANEOUS: u8 = 8;
    const REPEATED: u8 = 0xc0;
    const REPEATED_SHIFT: u32 = 6;

    fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    fn repeated(self) -> u8 {
        self.0 >> Self::REPEATED_SHIFT
    }

    fn set_repeated(&mut self, count: u8) {
        self.0 = self.0 & !Self::REPEATED | count.min(3) << Self::REPEATED_SHIFT;
    }
}

/// What a segment did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It belongs to no connection.
    Invalid,
    /// The same, and each side has said that it ends the connection, in a way that cannot be: what
    /// is known of it may be wrong, and it stays no longer than what waits.
    Doubted,
    /// It is let through.
    Ignored,
    /// It belongs to the connection, which stays for the time of this class from now on.
    Stays {
        class: Class,
        /// Whether an open connection was confirmed by both sides.
        assured: bool,
    },
    /// The connection is over.
    Ends,
    /// The connection was over, and this SYN begins another one.
    Reopens,
}

/// What is known of the flow besides.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    /// How long it stays in each class.
    pub(super) timeouts: &'a Timeouts,
    /// 0 of the original direction, 1 of the reply's.
    pub(super) direction: usize,
    /// Whether the other side has answered before this segment.
    pub(super) replied: bool,
    pub(super) assured: bool,
}

impl Tcp {
    /// A connection that begins with this segment; none if none can. The connection may have begun
    /// before it was tracked.
    pub(super) fn open(segment: &Segment<'_>) -> Option<Self> {
        let Next::To(state) = TRANSITIONS[0][segment.kind() as usize][State::NONE.0 as usize]
        else {
            return None;
        };
        Some(Self {
            window: Window::open(segment, state != State::SYN_SENT),
            last_seq: 0,
            last_ack: 0,
            last_length: 0,
            last_window: 0,
            last: Last::new(0, Kind::Empty, 0),
            memory: Memory(0),
            flow: Standing::default(),
        })
    }

    /// Sequence number behind the last segment.
    fn last_end(&self) -> u32 {
        self.last_seq.wrapping_add(self.last_length.into())
    }

    /// Whether it can have come to this.
    pub(super) fn is_sound(&self) -> bool {
        let kind = self.last.0 >> 1 & 7;
        kind <= Kind::Empty as u8 && self.window.is_sound()
    }

    /// It is closed from now on; whether it was not.
    pub(super) fn close(&mut self) -> bool {
        let old = core::mem::replace(&mut self.window.state, State::CLOSE);
        old != State::CLOSE
    }

    /// What a segment does; an invalid one leaves the connection as it is.
    pub(super) fn segment(&mut self, segment: &Segment<'_>, known: Known<'_>) -> Outcome {
        let (kind, old) = (segment.kind(), self.window.state);
        let next = TRANSITIONS[known.direction][kind as usize][usize::from(old.0)];
        let mut new = match next {
            Next::Invalid => return Outcome::Invalid,
            Next::Ignored if !self.agrees(segment, known.direction) => {
                self.let_through(segment, known.direction);
                return Outcome::Ignored;
            }
            Next::Ignored => State::SYN_RECEIVED,
            Next::To(state) => state,
        };
        // The two sides agree on a connection that was not tracked: the old one counts no more.
        let resynchronised = next == Next::Ignored;
        let old = if resynchronised { State::SYN_SENT } else { old };
        let mut checked = true;
        match new {
            _ if resynchronised => self.resynchronise(known.direction),
            State::SYN_SENT if old >= State::TIME_WAIT => {
                if self.may_reopen(known.direction) {
                    return Outcome::Reopens;
                }
                self.let_through(segment, known.direction);
                return Outcome::Ignored;
            }
            State::TIME_WAIT if self.is_challenge(old, kind, known.direction) => {
                self.memory.0 &= !Memory::CHALLENGE;
                return Outcome::Ignored;
            }
            State::SYN_SENT2 => self.memory.0 |= Memory::SIMULTANEOUS,
            State::SYN_RECEIVED
                if known.direction == 1
                    && kind == Kind::Ack
                    && self.memory.has(Memory::SIMULTANEOUS) =>
            {
                new = State::ESTABLISHED;
            }
            State::CLOSE if kind == Kind::Rst => {
                let Some(reset) = self.reset(segment, known) else {
                    return Outcome::Invalid;
                };
                checked = reset.checked;
                if !reset.ends {
                    new = old;
                }
            }
            _ => {}
        }
        if checked {
            match self.window.check(segment, known.direction) {
                window::Fit::Outside => {
                    return match self.remember_invalid(kind, known) {
                        true => Outcome::Doubted,
                        false => Outcome::Invalid,
                    };
                }
                window::Fit::Ignored => return Outcome::Ignored,
                window::Fit::Tolerated => {}
                window::Fit::Inside => self.count_repeated(segment, kind, known.direction),
            }
        }
        self.advance(kind, old, new, known)
    }

    /// Whether the connection is open, and inside its windows lies a segment that has an ACK and no
    /// other flag that matters. Both sides have confirmed the connection.
    #[inline(always)]
    pub(super) fn goes_on(&self, segment: &Segment<'_>, direction: usize) -> bool {
        self.window.state == State::ESTABLISHED
            && !self.window.may_have_sack(1 - direction, segment.options)
            && self.window.has_inside(segment, direction)
    }

    /// What [`Self::segment`] does with such a segment; the class of the connection from now on.
    #[inline(always)]
    pub(super) fn go_on(&mut self, segment: &Segment<'_>, direction: usize) -> Class {
        let waits = self.window.go_on(segment, direction);
        self.count_repeated(segment, Kind::Ack, direction);
        // What [`Self::class_of`] says of an ACK.
        let stuck = self.memory.repeated() >= RETRANSMISSIONS_MAX;
        match (stuck, waits) {
            (true, _) => Class::Retransmitted,
            (false, true) => Class::Unacknowledged,
            (false, false) if segment.window == 0 => Class::Retransmitted,
            (false, false) => Class::Established,
        }
    }

    /// Whether such a segment is next in an open connection, and not the last one once more.
    #[inline(always)]
    pub(super) fn has_next(&self, numbers: &Numbers, direction: usize) -> bool {
        let again = self.last_seq == numbers.seq
            && self.last_ack == numbers.ack
            && self.last_length == numbers.data;
        !again && self.window.has_next(numbers, direction)
    }

    /// What [`Self::go_on`] does with it; whether anything is not acknowledged behind it.
    #[inline(always)]
    pub(super) fn go_straight(&mut self, numbers: &Numbers, direction: usize) -> bool {
        self.memory.0 &= !Memory::REPEATED;
        self.last = Last::new(direction, Kind::Ack, self.last.scale());
        (self.last_seq, self.last_ack) = (numbers.seq, numbers.ack);
        (self.last_length, self.last_window) = (numbers.data, numbers.window);
        self.window.go_straight(numbers, direction)
    }

    /// A segment of this kind is one of the connection's.
    fn advance(&mut self, kind: Kind, old: State, new: State, known: Known<'_>) -> Outcome {
        self.last = Last::new(known.direction, kind, self.last.scale());
        self.window.state = new;
        if old != new && new == State::FIN_WAIT {
            self.window.begin_close(known.direction);
        }
        let mut class = self.class_of(kind, known.timeouts);
        let mut assured = false;
        if !known.replied {
            if kind == Kind::Rst {
                return Outcome::Ends;
            }
            // Else one who tries again and again would keep a port for ever.
            if kind == Kind::Syn && old == State::SYN_SENT {
                return Outcome::Ignored;
            }
            let unacknowledged = Class::Unacknowledged;
            let longer = known.timeouts.of(class) > known.timeouts.of(unacknowledged);
            if new == State::ESTABLISHED && longer {
                class = unacknowledged;
            }
        } else {
            assured = matches!(old, State::SYN_RECEIVED | State::ESTABLISHED)
                && new == State::ESTABLISHED;
        }
        Outcome::Stays { class, assured }
    }

    /// The class of its state, whatever else decides how long it stays.
    pub(super) fn state(&self) -> Class {
        self.window.state.class()
    }

    #[inline(always)]
    fn class_of(&self, kind: Kind, timeouts: &Timeouts) -> Class {
        let class = self.window.state.class();
        let longer = |than| timeouts.of(class) > timeouts.of(than);
        let stuck = self.memory.repeated() >= RETRANSMISSIONS_MAX;
        if stuck && longer(Class::Retransmitted) {
            return Class::Retransmitted;
        }
        if kind == Kind::Rst {
            return Class::Close;
        }
        if self.window.is_unacknowledged() && longer(Class::Unacknowledged) {
            return Class::Unacknowledged;
        }
        if self.last_window == 0 && longer(Class::Retransmitted) {
            return Class::Retransmitted;
        }
        class
    }

    /// Whether a SYN and ACK answers the SYN that was let through before it.
    fn agrees(&self, segment: &Segment<'_>, direction: usize) -> bool {
        segment.kind() == Kind::SynAck
            && self.last.is(Kind::Syn)
            && self.last.direction() != direction
            && segment.ack == self.last_end()
    }

    /// Begins anew with what that SYN said.
    fn resynchronise(&mut self, direction: usize) {
        self.memory.0 &= !Memory::CHALLENGE;
        let asked = Side {
            end: self.last_end(),
            max_end: self.last_end(),
            max_window: u32::from(self.last_window).max(1),
            max_ack: self.window.max_ack(1 - direction),
        };
        let scale = self.last.scale();
        let options = (
            self.memory.has(Memory::SCALE),
            self.memory.has(Memory::SACK),
        );
        self.window.restart(1 - direction, asked, scale, options);
    }

    fn let_through(&mut self, segment: &Segment<'_>, direction: usize) {
        let (kind, old) = (segment.kind(), self.window.state);
        let mut scale = self.last.scale();
        self.last_seq = segment.seq;
        self.last_length = segment.end.wrapping_sub(segment.seq) as u16;
        self.last_window = segment.window;
        if kind == Kind::Syn && direction == 0 {
            let said = window::options(segment.options);
            scale = said.scale.unwrap_or(0);
            self.memory.0 &= Memory::REPEATED;
            if said.scale.is_some() {
                self.memory.0 |= Memory::SCALE;
            }
            if said.sack {
                self.memory.0 |= Memory::SACK;
            }
            if old == State::LAST_ACK {
                self.memory.0 |= Memory::CHALLENGE;
            }
        }
        self.last = Last::new(direction, kind, scale);
        if old == State::SYN_SENT && kind == Kind::Ack && direction == 1 {
            self.last_ack = segment.ack;
        }
    }

    /// Whether a SYN may take the place of a connection that is over (RFC 9293, 3.6.1): one side
    /// had begun to close it, or this one had reset it.
    fn may_reopen(&self, direction: usize) -> bool {
        let reset = self.last.is(Kind::Rst) && self.last.direction() == direction;
        self.window.is_closing() || reset
    }

    fn is_challenge(&self, old: State, kind: Kind, direction: usize) -> bool {
        old == State::LAST_ACK
            && kind == Kind::Ack
            && self.last.is(Kind::Syn)
            && self.last.direction() != direction
            && self.memory.has(Memory::CHALLENGE)
    }

    /// What a RST does (RFC 5961, 3.2); none if it is invalid.
    fn reset(&self, segment: &Segment<'_>, known: Known<'_>) -> Option<Reset> {
        let (seq, old) = (segment.seq, self.window.state);
        let mut ends = true;
        // Once a connection closes, what is known of it may be another's already.
        if old > State::ESTABLISHED && old < State::SYN_SENT2 {
            let checked = false;
            return Some(Reset { ends, checked });
        }
        let checked = true;
        if let Some(acked) = self.window.acknowledged(1 - known.direction)
            && !self.last.is(Kind::Syn)
        {
            let established = old == State::ESTABLISHED && known.assured;
            if seq == 0 && !established {
                return Some(Reset { ends, checked });
            }
            if window::before(seq, acked) {
                return None;
            }
            let follows = self.last.is(Kind::Ack)
                && self.last.direction() == known.direction
                && seq == self.last_end();
            if !established || seq == acked || follows {
                return Some(Reset { ends, checked });
            }
            // The receiver may answer it with a challenge.
            ends = false;
        }
        let answers_syn =
            known.replied && self.last.is(Kind::Syn) && self.last.direction() != known.direction;
        let answers_ack = !known.assured && self.last.is(Kind::Ack);
        let answers = (answers_syn || answers_ack) && segment.ack == self.last_end();
        let answers_challenge = old == State::SYN_SENT
            && self.last.is(Kind::Ack)
            && self.last.direction() == 1
            && seq == self.last_ack;
        let checked = !answers && !answers_challenge;
        Some(Reset { ends, checked })
    }

    /// Takes note of an invalid segment that is to end the connection; whether the last one was the
    /// other side's (`nf_tcp_handle_invalid`).
    fn remember_invalid(&mut self, kind: Kind, known: Known<'_>) -> bool {
        if !known.assured || !matches!(kind, Kind::Rst | Kind::Fin) {
            return false;
        }
        let from_other = self.last.direction() != known.direction;
        let answers = from_other && (self.last.is(Kind::Fin) || self.last.is(Kind::Rst));
        if !answers {
            self.last = Last::new(known.direction, kind, self.last.scale());
        }
        answers
    }

    /// Counts how often the same segment came.
    #[inline(always)]
    fn count_repeated(&mut self, segment: &Segment<'_>, kind: Kind, direction: usize) {
        if kind != Kind::Ack {
            return;
        }
        let same = self.last.direction() == direction
            && self.last_seq == segment.seq
            && self.last_ack == segment.ack
            && self.last_end() == segment.end
            && self.last_window == segment.window;
        if same {
            self.memory.set_repeated(self.memory.repeated() + 1);
        } else {
            self.memory.set_repeated(0);
        }
        self.last = Last::new(direction, kind, self.last.scale());
        self.last_seq = segment.seq;
        self.last_ack = segment.ack;
        self.last_length = segment.end.wrapping_sub(segment.seq) as u16;
        self.last_window = segment.window;
    }
}

/// What a RST does.
struct Reset {
    /// Whether it ends the connection.
    ends: bool,
    /// Whether it has to lie in the window.
    checked: bool,
}
