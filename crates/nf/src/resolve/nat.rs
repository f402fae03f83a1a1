//! Statements that translate: what they may say, and where they may stand.

use super::Resolver;
use super::context::Context;
use crate::fields::{Header, Type};
use crate::ir::{Nat, NatAddress, Outcome, Statement};
use crate::nft::ast::{self, ChainKind, Family, Hook, NatKind, Operand, Operator, Span, Spanned};
use crate::nft::{Error, ErrorKind, Refusal};
use crate::router::TRACKING;
use alloc::vec;
use alloc::vec::Vec;

const IN_FILTER: Refusal = Refusal {
    what: "a translation in a chain of the type `filter`",
    why: "is not accepted by nft either: only the first packet of a connection is translated",
    instead: Some("put it into a chain with `type nat hook ...`"),
};
const SOURCE_ELSEWHERE: Refusal = Refusal {
    what: "`snat` at this hook",
    why: "is not accepted by nft either: sources are translated where packets leave",
    instead: Some("put it into a chain with `type nat hook postrouting priority srcnat`"),
};
const MASQUERADE_ELSEWHERE: Refusal = Refusal {
    what: "`masquerade` at this hook",
    why: "is not accepted by nft either: it takes the address of the port that packets leave by",
    instead: Some("put it into a chain with `type nat hook postrouting priority srcnat`"),
};
const DESTINATION_ELSEWHERE: Refusal = Refusal {
    what: "`dnat` or `redirect` at this hook",
    why: "is not accepted by nft either: destinations are translated before packets are routed",
    instead: Some("put it into a chain with `type nat hook prerouting priority dstnat`"),
};
const REDIRECT_OUTPUT: Refusal = Refusal {
    what: "`redirect` at the hook `output`",
    why: "is not supported: the router has no address for packets to itself",
    instead: Some("`dnat to` an address"),
};
pub(super) const UNTRACK_LATE: Refusal = Refusal {
    what: "`notrack` in this chain",
    why: "does nothing: there, packets are tracked already",
    instead: Some("put it into a chain with `type filter hook prerouting priority raw`"),
};
const WHICH_FAMILY: Refusal = Refusal {
    what: "an address of a translation in a table `inet`",
    why: "may be of IPv4 or of IPv6, and nft cannot tell",
    instead: Some("write `dnat ip to` or `dnat ip6 to`"),
};
const PORTS_OF_ANY: Refusal = Refusal {
    what: "a translation of ports of any protocol",
    why: "is not accepted by nft either",
    instead: Some("`meta l4proto tcp`, `tcp dport` or the like in front of it"),
};
const NO_RANGE: Refusal = Refusal {
    what: "a set of addresses or ports to translate to",
    why: "is not supported",
    instead: Some("one of them, or a range"),
};

impl<'f, 'a> Resolver<'f, 'a> {
    /// What a translation means; it asks for its family, if the rule has not.
    pub(super) fn nat(
        &mut self,
        nat: &'f ast::Nat<'a>,
        span: Span,
        context: &mut Context,
        out: &mut Vec<Statement>,
    ) -> Result<Outcome, Error> {
        self.nats
            .push((self.program.chains.len(), Spanned::new(span, nat.kind)));
        if let Some(map) = &nat.map {
            let is_ip6 = self.nat_family(nat, span, context, out)?;
            let kind = if is_ip6 { Type::Ipv6 } else { Type::Ipv4 };
            return self.nat_map(map, (kind, nat), context, out);
        }
        let address = match (&nat.address, nat.kind.names_address()) {
            (Some(address), _) => {
                let is_ip6 = self.nat_family(nat, span, context, out)?;
                let kind = if is_ip6 { Type::Ipv6 } else { Type::Ipv4 };
                self.nat_address(kind, address, nat.prefix, span)?
            }
            (None, true) => NatAddress::Kept,
            (None, false) => NatAddress::OfPort,
        };
        let ports = match &nat.ports {
            Some(ports) => {
                check_ports(context, span)?;
                Some(self.nat_ports(ports, span)?)
            }
            None => None,
        };
        Ok(self.push_nat(nat, address, ports))
    }

    /// The ports that an end gets.
    pub(super) fn nat_ports(
        &mut self,
        ports: &'f ast::Operand<'a>,
        span: Span,
    ) -> Result<(u16, u16), Error> {
        let (low, high) = self.interval(Type::Service, ports, span)?;
        Ok((low as u16, high as u16))
    }

    /// How a rule with this translation ends.
    pub(super) fn push_nat(
        &mut self,
        nat: &ast::Nat<'_>,
        address: NatAddress,
        ports: Option<(u16, u16)>,
    ) -> Outcome {
        self.program.nats.push(Nat {
            address,
            ports,
            random: nat.random || nat.fully_random,
            persistent: nat.persistent,
        });
        Outcome::Nat((self.program.nats.len() - 1) as u32)
    }

    /// Whether the address is one of IPv6. In a table `inet`, the rule sees no packet of another
    /// family.
    fn nat_family(
        &mut self,
        nat: &ast::Nat<'_>,
        span: Span,
        context: &mut Context,
        out: &mut Vec<Statement>,
    ) -> Result<bool, Error> {
        let known = context.network_name();
        let family = match (nat.family, known) {
            (Some(Family::Ip6), _) | (None, Some("ip6")) => Family::Ip6,
            (Some(_), _) | (None, Some("ip")) => Family::Ip,
            (None, _) => return Err(Error::new(span, ErrorKind::Refused(&WHICH_FAMILY))),
        };
        let is_ip6 = family == Family::Ip6;
        let header = match is_ip6 {
            true => Header::Ip6,
            false => Header::Ip,
        };
        self.ask(context.implied(header, span)?, out);
        Ok(is_ip6)
    }

    /// The one range that an operand stands for.
    pub(super) fn interval(
        &mut self,
        kind: Type,
        operand: &'f Operand<'a>,
        span: Span,
    ) -> Result<(u128, u128), Error> {
        let equal = Spanned::new(span, Operator::Equal);
        let values = self.scope.compared(kind, equal, operand)?;
        match *values {
            [interval] => Ok(interval),
            _ => Err(Error::new(span, ErrorKind::Refused(&NO_RANGE))),
        }
    }

    /// Refuses translations where nothing is translated, `notrack` and zones where all is tracked,
    /// and `reject` where nobody can be told.
    pub(super) fn check_nats(&self) -> Result<(), Error> {
        for base in &self.program.bases {
            let mut reached = vec![false; self.jumps.len()];
            let mut open = vec![base.chain];
            while let Some(chain) = open.pop() {
                if !core::mem::replace(&mut reached[chain], true) {
                    open.extend(self.jumps[chain].iter().map(|jump| jump.target as usize));
                }
            }
            let early = matches!(base.hook, Hook::Prerouting | Hook::Output)
                && base.priority < TRACKING
                && base.kind == ChainKind::Filter;
            let mut late = self.early.iter().filter(|_| !early);
            if let Some((_, span, refusal)) = late.find(|(chain, ..)| reached[*chain]) {
                return Err(Error::new(*span, ErrorKind::Refused(refusal)));
            }
            self.check_rejects(base.hook, &reached)?;
            self.check_fibs(base.hook, &reached)?;
            self.check_flows(base.hook, &reached)?;
            let here = self.nats.iter().filter(|(chain, _)| reached[*chain]);
            for (_, nat) in here {
                if let Some(refusal) = misplaced(nat.node, base.kind, base.hook) {
                    return Err(Error::new(nat.span, ErrorKind::Refused(refusal)));
                }
            }
        }
        Ok(())
    }
}

/// Refuses a translation of ports in a rule that has not asked for a protocol with ports.
pub(super) fn check_ports(context: &Context, span: Span) -> Result<(), Error> {
    match context.has_transport() {
        true => Ok(()),
        false => Err(Error::new(span, ErrorKind::Refused(&PORTS_OF_ANY))),
    }
}

/// Why a translation does not belong into a chain of this kind at this hook, if it does not.
fn misplaced(nat: NatKind, kind: ChainKind, hook: Hook) -> Option<&'static Refusal> {
    match (nat, hook) {
        _ if kind == ChainKind::Filter => Some(&IN_FILTER),
        (NatKind::Snat, Hook::Postrouting | Hook::Input) => None,
        (NatKind::Snat, _) => Some(&SOURCE_ELSEWHERE),
        (NatKind::Masquerade, Hook::Postrouting) => None,
        (NatKind::Masquerade, _) => Some(&MASQUERADE_ELSEWHERE),
        (NatKind::Dnat | NatKind::Redirect, Hook::Prerouting) => None,
        (NatKind::Dnat, Hook::Output) => None,
        (NatKind::Redirect, Hook::Output) => Some(&REDIRECT_OUTPUT),
        (NatKind::Dnat | NatKind::Redirect, _) => Some(&DESTINATION_ELSEWHERE),
    }
}
