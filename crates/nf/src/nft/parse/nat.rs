//! Statements that translate addresses and ports.

use super::{Parsed, Parser, expected, refuse};
use crate::nft::ast::{Family, Nat, NatKind, Operand, Range, Spanned, Statement, Value};
use crate::nft::lex::Token;
use crate::nft::refusals;
use alloc::boxed::Box;

impl<'a> Parser<'a, '_> {
    /// The statement that begins with this word, in a table of a router.
    pub(super) fn nat(&mut self, word: &str) -> Parsed<Option<Statement<'a>>> {
        let kind = NatKind::ALL.into_iter().find(|kind| kind.name() == word);
        let Some(kind) = kind.filter(|_| self.family != Family::Bridge) else {
            return Ok(None);
        };
        let mut nat = Nat {
            kind,
            family: None,
            prefix: false,
            address: None,
            map: None,
            ports: None,
            random: false,
            fully_random: false,
            persistent: false,
        };
        if kind.names_address() {
            (nat.family, nat.prefix) = self.nat_family()?;
        }
        let to = self.tokens.peek().node == Token::Word("to");
        if to {
            self.tokens.take()?;
        }
        let next = self.tokens.peek();
        match next.node {
            Token::Word(_) if to && kind.names_address() => nat.map = Some(self.nat_map()?),
            Token::Mark(":") => {}
            _ if kind.names_address() => nat.address = Some(self.nat_address()?),
            _ => {}
        }
        let next = self.tokens.peek();
        if next.node == Token::Mark(":") && nat.map.is_none() {
            self.tokens.take()?;
            nat.ports = Some(Operand::Value(self.value()?));
        } else if to && !kind.names_address() {
            return expected(next.span, "`:` and a port");
        }
        self.nat_flags(&mut nat)?;
        Ok(Some(Statement::Nat(Box::new(nat))))
    }

    /// `ip` or `ip6`, if it comes next, and whether `prefix` is behind it. What nft may be told of
    /// a map with ports, `addr . port`, is passed over.
    fn nat_family(&mut self) -> Parsed<(Option<Family>, bool)> {
        let family = match self.tokens.peek().node {
            Token::Word("ip") => Some(Family::Ip),
            Token::Word("ip6") => Some(Family::Ip6),
            _ => None,
        };
        if family.is_some() {
            self.tokens.take()?;
        }
        match self.tokens.peek().node {
            Token::Word("prefix") if family.is_some() => {
                self.tokens.take()?;
                Ok((family, true))
            }
            Token::Word("addr") if family.is_some() => {
                self.tokens.take()?;
                self.mark(".")?;
                self.word("port")?;
                Ok((family, false))
            }
            _ => Ok((family, false)),
        }
    }

    /// An address or a range of them; IPv6 in brackets, or in none.
    fn nat_address(&mut self) -> Parsed<Operand<'a>> {
        let Spanned { span, node } = self.tokens.peek();
        let address = match node {
            Token::Mark("[") => self.nat_brackets()?,
            Token::Mark("{") | Token::Set(_) => return expected(span, "an address"),
            _ => self.value()?,
        };
        let behind = self.tokens.peek();
        match behind.node {
            Token::Mark(".") => refuse(behind.span, &refusals::NAT_MAP),
            _ => Ok(Operand::Value(address)),
        }
    }

    fn nat_brackets(&mut self) -> Parsed<Spanned<Value<'a>>> {
        let from = self.nat_bracket()?;
        if self.tokens.peek().node != Token::Mark("-") {
            return Ok(from);
        }
        self.tokens.take()?;
        let to = self.nat_bracket()?;
        let span = self.tokens.span_from(from.span.start);
        Ok(Spanned::new(
            span,
            Value::Range(Box::new(Range { from, to })),
        ))
    }

    fn nat_bracket(&mut self) -> Parsed<Spanned<Value<'a>>> {
        self.mark("[")?;
        let Spanned { span, node } = self.tokens.take()?;
        let Token::Ipv6(address) = node else {
            return expected(span, "an IPv6 address");
        };
        self.mark("]")?;
        Ok(Spanned::new(span, Value::Ipv6(address)))
    }

    /// `random`, `fully-random` and `persistent`, with `,` between them.
    fn nat_flags(&mut self, nat: &mut Nat<'a>) -> Parsed<()> {
        let mut must = false;
        loop {
            let Spanned { span, node } = self.tokens.peek();
            match node {
                Token::Word("random") => nat.random = true,
                Token::Word("fully-random") => nat.fully_random = true,
                Token::Word("persistent") => nat.persistent = true,
                _ if must => return expected(span, "`random`, `fully-random` or `persistent`"),
                _ => return Ok(()),
            }
            self.tokens.take()?;
            if self.tokens.peek().node != Token::Mark(",") {
                return Ok(());
            }
            self.tokens.take()?;
            must = true;
        }
    }
}
