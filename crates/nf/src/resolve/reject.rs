//! What `reject` tells whom.

use super::Resolver;
use super::context::Context;
use crate::fields::Slot;
use crate::ir::{Condition, Outcome, Statement, normal};
use crate::key::{ether_type, protocol};
use crate::nft::ast::{Hook, RejectWith, Span};
use crate::nft::{Error, ErrorKind, Refusal};
use crate::router::Rejection;
use alloc::vec;
use alloc::vec::Vec;

const NO_COMMON_CODE: Refusal = Refusal {
    what: "`icmpx` in a table of one family",
    why: "is not accepted by nft either",
    instead: Some("`icmp` in a table `ip`, `icmpv6` in a table `ip6`"),
};
const RESET_OF_OTHER: Refusal = Refusal {
    what: "`tcp reset` in a rule about other protocols",
    why: "is not accepted by nft either: only TCP has one",
    instead: Some("`meta l4proto tcp`, or a rule for each protocol"),
};
const REJECT_LATE: Refusal = Refusal {
    what: "`reject` at the hook `postrouting`",
    why: "is not accepted by the kernel either",
    instead: Some("put it into a chain at `prerouting`, `input`, `forward` or `output`"),
};

/// Codes of `destination-unreachable` that nft's four common ones stand for, in their order: of
/// ICMP (RFC 792; RFC 1812, 5.2.7.1), and of ICMPv6 (RFC 4443, 3.1).
const COMMON: [(u8, u8); 4] = [(0, 0), (3, 4), (1, 3), (13, 1)];
const PORT_UNREACHABLE: u8 = 1;

impl Resolver<'_, '_> {
    /// How a rule with `reject` ends. It asks for the protocol of what is told, in front of all
    /// that the rule asks for, unless the rule has asked for it already.
    pub(super) fn reject(
        &mut self,
        with: Option<RejectWith>,
        span: Span,
        context: &Context,
        out: &mut Vec<Statement>,
    ) -> Result<Outcome, Error> {
        self.rejects.push((self.program.chains.len(), span));
        let refused = |refusal| Err(Error::new(span, ErrorKind::Refused(refusal)));
        let (asks, told) = match with {
            None => (None, of_both(PORT_UNREACHABLE)),
            Some(RejectWith::Icmpx(_)) if context.is_of_one_family() => {
                return refused(&NO_COMMON_CODE);
            }
            Some(RejectWith::Icmpx(code)) => (None, of_both(code)),
            Some(RejectWith::Icmp(ip)) => {
                context.check_network("ip", span)?;
                let told = Rejection::Unreachable { ip, ip6: 0 };
                let asks = (Slot::Protocol, ether_type::IPV4);
                (context.network_name().is_none().then_some(asks), told)
            }
            Some(RejectWith::Icmpv6(ip6)) => {
                context.check_network("ip6", span)?;
                let told = Rejection::Unreachable { ip: 0, ip6 };
                let asks = (Slot::Protocol, ether_type::IPV6);
                (context.network_name().is_none().then_some(asks), told)
            }
            Some(RejectWith::TcpReset) if context.excludes_tcp() => {
                return refused(&RESET_OF_OTHER);
            }
            Some(RejectWith::TcpReset) => {
                let asks = (Slot::L4Protocol, protocol::TCP.into());
                // What it has asked for is TCP, and nothing else.
                ((!context.has_transport()).then_some(asks), Rejection::Reset)
            }
        };
        if let Some((slot, value)) = asks {
            let set = self.number(normal(vec![(value.into(), value.into())]));
            out.insert(0, Statement::Match(Condition::new(slot, set)));
        }
        Ok(Outcome::Reject(told))
    }

    /// Refuses `reject` where nobody can be told.
    pub(super) fn check_rejects(&self, hook: Hook, reached: &[bool]) -> Result<(), Error> {
        let mut here = self.rejects.iter().filter(|(chain, _)| reached[*chain]);
        match here.next() {
            Some((_, span)) if hook == Hook::Postrouting => {
                Err(Error::new(*span, ErrorKind::Refused(&REJECT_LATE)))
            }
            _ => Ok(()),
        }
    }
}

/// What nft's common code says in either family.
fn of_both(code: u8) -> Rejection {
    let code = COMMON.get(usize::from(code)).copied();
    let (ip, ip6) = code.unwrap_or(COMMON[usize::from(PORT_UNREACHABLE)]);
    Rejection::Unreachable { ip, ip6 }
}
