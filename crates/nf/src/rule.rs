//! Rules as data: the first one that matches decides.

use crate::key::{Key, L4, ether_type, protocol};
use alloc::vec::Vec;
use core::fmt;

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It passes.
    Accept,
    /// It is dropped.
    Drop,
}

/// The way of a frame through the appliance: ports by their position in the manifest's order of
/// network devices, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Where it came in: `iifname`.
    pub from: u8,
    /// Where it would go out: `oifname`.
    pub to: u8,
}

/// Takes down what rules do besides giving a verdict. `()` ignores it.
pub trait Tally {
    /// The counter of a rule, or of the policy, counts this frame.
    fn count(&mut self, rule: RuleIndex);
    /// A rule's `log` statement was reached.
    fn log(&mut self, rule: RuleIndex, prefix: &str);
}

impl Tally for () {
    #[inline]
    fn count(&mut self, _: RuleIndex) {}
    #[inline]
    fn log(&mut self, _: RuleIndex, _: &str) {}
}

/// One condition on a frame. Conditions on a transport header hold only where there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// The EtherType, behind an 802.1Q tag if there is one.
    EtherType(u16),
    /// The protocol of an IPv4 packet; known in every fragment.
    IpProtocol(u8),
    /// TCP's source port.
    TcpSource(u16),
    /// TCP's destination port.
    TcpDestination(u16),
    /// UDP's source port.
    UdpSource(u16),
    /// UDP's destination port.
    UdpDestination(u16),
}

impl Match {
    #[inline]
    fn holds(self, key: &Key) -> bool {
        match self {
            Self::EtherType(number) => key.ether_type == number,
            Self::IpProtocol(number) => {
                key.ether_type == ether_type::IPV4 && key.protocol == Some(number)
            }
            Self::TcpSource(port) => {
                matches!(key.l4, Some(L4::Tcp { source, .. }) if source == port)
            }
            Self::TcpDestination(port) => {
                matches!(key.l4, Some(L4::Tcp { destination, .. }) if destination == port)
            }
            Self::UdpSource(port) => {
                matches!(key.l4, Some(L4::Udp { source, .. }) if source == port)
            }
            Self::UdpDestination(port) => {
                matches!(key.l4, Some(L4::Udp { destination, .. }) if destination == port)
            }
        }
    }
}

/// A verdict for the frames on which all of its conditions hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    matches: Vec<Match>,
    verdict: Verdict,
}

impl Rule {
    /// Accepts frames on which all of `matches` hold.
    pub fn accept(matches: &[Match]) -> Self {
        Self {
            matches: matches.into(),
            verdict: Verdict::Accept,
        }
    }

    /// Drops frames on which all of `matches` hold.
    pub fn drop(matches: &[Match]) -> Self {
        Self {
            matches: matches.into(),
            verdict: Verdict::Drop,
        }
    }
}

/// Who decided: the position of a rule in its [`RuleSet`], or the number of rules for the policy.
/// Fit to be the number of a counter.
pub type RuleIndex = usize;

/// Rules in order, and the policy for frames that none of them matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleSet {
    rules: Vec<Rule>,
    policy: Verdict,
}

impl RuleSet {
    /// Rules in order, and what becomes of the frames that none of them matches.
    pub fn new(rules: Vec<Rule>, policy: Verdict) -> Self {
        Self { rules, policy }
    }

    /// The verdict of the first rule that matches, and who decided. Counts and logs on the way go
    /// to `tally`.
    #[inline]
    pub fn verdict(&self, key: &Key, _way: Way, tally: &mut impl Tally) -> (Verdict, RuleIndex) {
        for (index, rule) in self.rules.iter().enumerate() {
            if rule.matches.iter().all(|condition| condition.holds(key)) {
                tally.count(index);
                return (rule.verdict, index);
            }
        }
        tally.count(self.rules.len());
        (self.policy, self.rules.len())
    }

    /// Number of rules, and the index of the policy.
    pub fn len(&self) -> RuleIndex {
        self.rules.len()
    }

    /// Whether the policy alone decides.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// One line in nft's syntax for a person: `ether type ip tcp dport 7070 accept`. An index
    /// behind the last rule is the policy.
    pub fn describe(&self, index: RuleIndex) -> impl fmt::Display {
        match self.rules.get(index) {
            Some(rule) => Decider::Rule(rule),
            None => Decider::Policy(self.policy),
        }
    }
}

/// What [`RuleSet::describe`] prints.
enum Decider<'a> {
    Rule(&'a Rule),
    Policy(Verdict),
}

impl fmt::Display for Decider<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(rule) => write!(f, "{rule}"),
            Self::Policy(verdict) => write!(f, "policy {verdict}"),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accept => "accept",
            Self::Drop => "drop",
        })
    }
}

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::EtherType(ether_type::IPV4) => f.write_str("ether type ip"),
            Self::EtherType(ether_type::IPV6) => f.write_str("ether type ip6"),
            Self::EtherType(ether_type::ARP) => f.write_str("ether type arp"),
            Self::EtherType(ether_type::VLAN) => f.write_str("ether type vlan"),
            Self::EtherType(number) => write!(f, "ether type {number:#06x}"),
            Self::IpProtocol(protocol::ICMP) => f.write_str("ip protocol icmp"),
            Self::IpProtocol(protocol::TCP) => f.write_str("ip protocol tcp"),
            Self::IpProtocol(protocol::UDP) => f.write_str("ip protocol udp"),
            Self::IpProtocol(number) => write!(f, "ip protocol {number}"),
            Self::TcpSource(port) => write!(f, "tcp sport {port}"),
            Self::TcpDestination(port) => write!(f, "tcp dport {port}"),
            Self::UdpSource(port) => write!(f, "udp sport {port}"),
            Self::UdpDestination(port) => write!(f, "udp dport {port}"),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for condition in &self.matches {
            write!(f, "{condition} ")?;
        }
        write!(f, "{}", self.verdict)
    }
}
