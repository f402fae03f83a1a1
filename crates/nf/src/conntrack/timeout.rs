//! How long a flow stays without a packet: one constant for each class of flows, and what rules
//! have instead of it for the connections that they say so of ([`Timeouts`]).

use core::fmt;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Time since some moment, in units of 2^26 ns (67 ms). A flow has four bytes for it, which last
/// for nine years.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
)]
#[repr(transparent)]
pub struct Ticks(pub(super) u32);

/// Binary digits of nanoseconds that a tick leaves away.
const TICK_BITS: u32 = 26;
/// The same in milliseconds, for what rules see, as a fraction: 2^26 ns are 67.108864 ms.
const TICK_MILLISECONDS: (u64, u64) = (67_108_864, 1_000_000);

impl Ticks {
    /// Of a time in nanoseconds.
    #[inline]
    pub(super) fn of(nanoseconds: u64) -> Self {
        Self((nanoseconds >> TICK_BITS) as u32)
    }

    /// Of a number of seconds, rounded up: a flow lives at least as long as its timeout says. One
    /// without any has ended when it begins, as in the kernel.
    pub(super) const fn of_seconds(seconds: u32) -> Self {
        if seconds == 0 {
            return Self(0);
        }
        let nanoseconds = seconds as u64 * 1_000_000_000;
        Self((nanoseconds >> TICK_BITS) as u32 + 1)
    }

    /// Of so many milliseconds, rounded up: what [`Self::milliseconds_from`] says of it is as much
    /// or less than a tick more.
    pub(super) const fn of_milliseconds(milliseconds: u32) -> Self {
        let (numerator, denominator) = TICK_MILLISECONDS;
        let ticks = (milliseconds as u64 * denominator).div_ceil(numerator);
        // Fewer than there are milliseconds.
        Self(ticks as u32)
    }

    #[inline]
    pub(super) fn after(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Milliseconds from `now` on; 0 if the time has come.
    pub(super) fn milliseconds_from(self, now: Self) -> u32 {
        let ticks = u64::from(self.0.saturating_sub(now.0));
        let milliseconds = ticks * TICK_MILLISECONDS.0 / TICK_MILLISECONDS.1;
        u32::try_from(milliseconds).unwrap_or(u32::MAX)
    }
}

/// Flows that have the same timeout: those of TCP by their state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Class {
    /// TCP: a SYN without an answer, or one from both sides.
    SynSent,
    /// TCP: a SYN was answered with SYN and ACK.
    SynReceived,
    /// TCP: the handshake is complete.
    Established,
    /// TCP: one side has sent a FIN.
    FinWait,
    /// TCP: that FIN was acknowledged.
    CloseWait,
    /// TCP: the other side has sent a FIN, too.
    LastAck,
    /// TCP: both FINs were acknowledged.
    TimeWait,
    /// TCP: a RST came.
    Close,
    /// TCP: a SYN from both sides.
    SynSent2,
    /// TCP, in a state that would last longer: data is sent again and again, or cannot be received.
    Retransmitted,
    /// TCP, in a state that would last longer: data is not acknowledged, or only one side was
    /// heard.
    Unacknowledged,
    /// UDP: without an answer, or younger than [`STREAM_SECONDS`].
    Udp,
    /// UDP: answered, and older than that.
    UdpStream,
    /// Questions of ICMP and ICMPv6.
    Icmp,
    /// Any other protocol.
    Generic,
}

/// A flow of UDP that still has packets after so many seconds is a stream.
pub const STREAM_SECONDS: u32 = 2;

impl Class {
    /// Every class, each at its number.
    pub const ALL: [Self; 15] = [
        Self::SynSent,
        Self::SynReceived,
        Self::Established,
        Self::FinWait,
        Self::CloseWait,
        Self::LastAck,
        Self::TimeWait,
        Self::Close,
        Self::SynSent2,
        Self::Retransmitted,
        Self::Unacknowledged,
        Self::Udp,
        Self::UdpStream,
        Self::Icmp,
        Self::Generic,
    ];

    /// How long a flow of this class stays without a packet, in seconds, if no rule says otherwise:
    /// the defaults of Linux
    /// (`nf_conntrack_*_timeout*`, Documentation/networking/nf_conntrack-sysctl.rst).
    pub const fn seconds(self) -> u32 {
        match self {
            Self::SynSent | Self::SynSent2 | Self::FinWait | Self::TimeWait | Self::UdpStream => {
                120
            }
            Self::SynReceived | Self::CloseWait => 60,
            Self::Established => 432_000,
            Self::LastAck | Self::Udp | Self::Icmp => 30,
            Self::Close => 10,
            Self::Retransmitted | Self::Unacknowledged => 300,
            Self::Generic => 600,
        }
    }

    pub(super) const fn ticks(self) -> Ticks {
        Ticks::of_seconds(self.seconds())
    }

    /// Name of the number of flows in this class.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SynSent => "tcp_syn_sent",
            Self::SynReceived => "tcp_syn_received",
            Self::Established => "tcp_established",
            Self::FinWait => "tcp_fin_wait",
            Self::CloseWait => "tcp_close_wait",
            Self::LastAck => "tcp_last_ack",
            Self::TimeWait => "tcp_time_wait",
            Self::Close => "tcp_close",
            Self::SynSent2 => "tcp_syn_sent2",
            Self::Retransmitted => "tcp_retransmitted",
            Self::Unacknowledged => "tcp_unacknowledged",
            Self::Udp => "udp",
            Self::UdpStream => "udp_stream",
            Self::Icmp => "icmp",
            Self::Generic => "generic",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How long flows stay, by class: what a rule says with `ct timeout set`, or [`Self::DEFAULT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct Timeouts([Ticks; Class::ALL.len()]);

impl Timeouts {
    /// Those of Linux.
    pub const DEFAULT: Self = {
        let mut ticks = [Ticks(0); Class::ALL.len()];
        let mut at = 0;
        while at < ticks.len() {
            ticks[at] = Class::ALL[at].ticks();
            at += 1;
        }
        Self(ticks)
    };

    /// Flows of this class stay for so many seconds.
    pub(crate) fn set(&mut self, class: Class, seconds: u32) {
        self.0[class as usize] = Ticks::of_seconds(seconds);
    }

    #[inline]
    pub(super) fn of(&self, class: Class) -> Ticks {
        self.0[class as usize]
    }
}
