//! The built-in rules.

use crate::key::{ether_type, protocol};
use crate::rule::{Match, Rule, RuleSet, Verdict};
use alloc::vec;

/// The rules of MirageOS's `simple-fw`, after which this firewall was first shaped: ARP, ICMP, UDP
/// and TCP from or to port 7070 pass, and all else is dropped.
///
/// They are rules for IPv4: IPv6 is dropped by the policy, neighbour discovery included. Fragments
/// of ICMP and UDP pass, for their rules look at the protocol alone. Of a fragmented TCP packet
/// only the first fragment can match a port; the others are dropped by the policy, and such a
/// packet does not arrive. TCP avoids fragments by its segment size.
pub fn seed001() -> RuleSet {
    let ipv4 = Match::EtherType(ether_type::IPV4);
    RuleSet::new(
        vec![
            Rule::accept(&[Match::EtherType(ether_type::ARP)]),
            Rule::accept(&[Match::IpProtocol(protocol::ICMP)]),
            Rule::accept(&[ipv4, Match::TcpDestination(7070)]),
            Rule::accept(&[ipv4, Match::TcpSource(7070)]),
            Rule::accept(&[Match::IpProtocol(protocol::UDP)]),
        ],
        Verdict::Drop,
    )
}
