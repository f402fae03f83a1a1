//! What a table says of how long connections stay, and how that is printed.

use super::ast::Family;
use crate::conntrack::{Class, Timeouts};
use crate::key::protocol;
use core::fmt::{self, Display, Formatter};

/// Names of timeouts of TCP, and the class that has each.
const TCP: &[(&str, Class)] = &[
    ("syn_sent", Class::SynSent),
    ("syn_recv", Class::SynReceived),
    ("established", Class::Established),
    ("fin_wait", Class::FinWait),
    ("close_wait", Class::CloseWait),
    ("last_ack", Class::LastAck),
    ("time_wait", Class::TimeWait),
    ("close", Class::Close),
    ("syn_sent2", Class::SynSent2),
    ("retrans", Class::Retransmitted),
    ("unack", Class::Unacknowledged),
];
/// The same of UDP.
const UDP: &[(&str, Class)] = &[("unreplied", Class::Udp), ("replied", Class::UdpStream)];

/// The longest one, in seconds: what a kernel holds that counts 250 ticks a second.
pub(super) const SECONDS_MAX: u32 = u32::MAX / 250;

/// What stands in `ct timeout NAME { ... }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeoutPolicy {
    /// `protocol tcp` or `protocol udp`: which connections can have it.
    pub protocol: TimeoutsOf,
    /// `l3proto`, or the family of the table. It decides nothing, as in the kernel.
    pub family: Family,
    /// Seconds that differ from the defaults, by name.
    seconds: [Option<u32>; TCP.len()],
}

/// Protocols whose connections can have other timeouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutsOf {
    /// `tcp`.
    Tcp,
    /// `udp`.
    Udp,
}

impl TimeoutsOf {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::Tcp, Self::Udp];

    /// Its name in nft.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }

    /// Its number over IP.
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Tcp => protocol::TCP,
            Self::Udp => protocol::UDP,
        }
    }

    /// What stands in its list.
    pub(super) const fn expected(self) -> &'static str {
        match self {
            Self::Tcp => {
                "a timeout of TCP: syn_sent, syn_recv, established, fin_wait, close_wait, \
                 last_ack, time_wait, close, syn_sent2, retrans or unack"
            }
            Self::Udp => "a timeout of UDP: unreplied or replied",
        }
    }

    const fn classes(self) -> &'static [(&'static str, Class)] {
        match self {
            Self::Tcp => TCP,
            Self::Udp => UDP,
        }
    }
}

impl TimeoutPolicy {
    /// The defaults.
    pub(super) fn new(protocol: TimeoutsOf, family: Family) -> Self {
        Self {
            protocol,
            family,
            seconds: [None; TCP.len()],
        }
    }

    /// What has this name stays for so many seconds. None if nothing of the protocol has it.
    pub(super) fn set(&mut self, name: &str, seconds: u32) -> Option<()> {
        let mut classes = self.protocol.classes().iter();
        let at = classes.position(|(known, _)| *known == name)?;
        let (_, class) = self.protocol.classes()[at];
        self.seconds[at] = (seconds != class.seconds()).then_some(seconds);
        Some(())
    }

    /// How long connections stay that have it.
    pub(crate) fn timeouts(&self) -> Timeouts {
        let mut timeouts = Timeouts::DEFAULT;
        for (class, seconds) in self.differing() {
            timeouts.set(class.1, seconds);
        }
        timeouts
    }

    fn differing(&self) -> impl Iterator<Item = (&'static (&'static str, Class), u32)> {
        let classes = self.protocol.classes().iter().zip(self.seconds);
        classes.filter_map(|(class, seconds)| Some((class, seconds?)))
    }
}

impl Display for TimeoutPolicy {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "protocol {}", self.protocol.name())?;
        writeln!(f, "\t\tl3proto {}", self.family.name())?;
        f.write_str("\t\tpolicy = { ")?;
        for (number, ((name, _), seconds)) in self.differing().enumerate() {
            let comma = if number > 0 { ", " } else { "" };
            write!(f, "{comma}{name} : {seconds}")?;
        }
        f.write_str(" }")
    }
}
