//! `tcp flags` in nft's many forms, all of them a mask and the values under it.

use super::{Parsed, Parser, expected, refuse};
use crate::fields::TCP_FLAGS;
use crate::nft::ast::{Spanned, TcpFlags};
use crate::nft::error::{Error, ErrorKind};
use crate::nft::lex::Token;
use crate::nft::refusals;
use alloc::boxed::Box;
use alloc::vec::Vec;

const FLAGS: &str = "flags of TCP: fin, syn, rst, psh, ack, urg, ecn or cwr";

/// How what follows is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    /// Nothing is written.
    Implicit,
    Equal,
    NotEqual,
}

impl Parser<'_, '_> {
    /// What stands behind `tcp flags`.
    pub(super) fn tcp_flags(&mut self) -> Parsed<TcpFlags> {
        match self.tokens.peek().node {
            Token::Mark("&") | Token::Word("and") => {
                self.tokens.take()?;
                let mask = self.group()?;
                let behind = self.tokens.peek();
                if matches!(behind.node, Token::Mark("|") | Token::Word("or")) {
                    return refuse(behind.span, &refusals::FLAGS_BARE_OR);
                }
                self.masked(mask)
            }
            Token::Mark("!") => {
                self.tokens.take()?;
                let (mask, _) = self.flag_list()?;
                Ok(test(mask, [0].into(), false))
            }
            _ => self.unmasked(),
        }
    }

    /// What stands behind `tcp flags & MASK`.
    fn masked(&mut self, mask: u8) -> Parsed<TcpFlags> {
        let comparison = self.comparison()?;
        let negated = comparison == Comparison::NotEqual;
        if self.tokens.peek().node == Token::Mark("{") {
            return Ok(test(mask, self.flag_set()?, negated));
        }
        let (value, _) = self.flag_list()?;
        Ok(test(mask, [value].into(), negated))
    }

    /// What stands behind `tcp flags` if it is no mask.
    fn unmasked(&mut self) -> Parsed<TcpFlags> {
        let comparison = self.comparison()?;
        let negated = comparison == Comparison::NotEqual;
        let start = self.tokens.peek();
        if start.node == Token::Mark("{") {
            let values = self.flag_set()?;
            if comparison == Comparison::Implicit && values.len() == 1 {
                let span = self.tokens.span_from(start.span.start);
                return refuse(span, &refusals::FLAGS_SINGLE);
            }
            return Ok(test(u8::MAX, values, negated));
        }
        let (value, _) = self.flag_list()?;
        let behind = self.tokens.peek();
        match behind.node {
            Token::Mark("/") => {
                self.tokens.take()?;
                let start = self.tokens.peek().span.start;
                return match self.flag_list()? {
                    (mask, true) => Ok(test(mask, [value].into(), negated)),
                    _ => expected(
                        self.tokens.span_from(start),
                        "two or more flags with `,` between them behind `/`",
                    ),
                };
            }
            Token::Mark("-") => return refuse(behind.span, &refusals::FLAGS_ORDER),
            _ => {}
        }
        Ok(match comparison {
            Comparison::Implicit => test(value, [0].into(), true),
            _ => test(u8::MAX, [value].into(), negated),
        })
    }

    fn comparison(&mut self) -> Parsed<Comparison> {
        let Spanned { span, node } = self.tokens.peek();
        let comparison = match node {
            Token::Mark("==") | Token::Word("eq") => Comparison::Equal,
            Token::Mark("!=") | Token::Word("ne") => Comparison::NotEqual,
            Token::Mark("<" | "<=" | ">" | ">=") | Token::Word("lt" | "le" | "gt" | "ge") => {
                return refuse(span, &refusals::FLAGS_ORDER);
            }
            _ => return Ok(Comparison::Implicit),
        };
        self.tokens.take()?;
        Ok(comparison)
    }

    /// `{ ... }`, ascending and each once.
    fn flag_set(&mut self) -> Parsed<Box<[u8]>> {
        self.tokens.take()?;
        let mut values = Vec::new();
        loop {
            self.newline()?;
            match self.tokens.peek().node {
                Token::Mark("," | "}") if !values.is_empty() => {}
                _ => {
                    let value = self.alternatives()?;
                    if let Err(at) = values.binary_search(&value) {
                        values.insert(at, value);
                    }
                    self.newline()?;
                }
            }
            let Spanned { span, node } = self.tokens.take()?;
            match node {
                Token::Mark("}") => return Ok(values.into_boxed_slice()),
                Token::Mark(",") => {}
                _ => return expected(span, "`,` or `}`"),
            }
        }
    }

    /// `syn`, `syn,ack` or `syn|ack`; and whether there is a comma in it.
    fn flag_list(&mut self) -> Parsed<(u8, bool)> {
        let is_group = self.tokens.peek().node == Token::Mark("(");
        let mut flags = self.group()?;
        match self.tokens.peek().node {
            Token::Mark("|") | Token::Word("or") => Ok((self.more(flags)?, false)),
            Token::Mark(",") if !is_group => {
                while self.tokens.peek().node == Token::Mark(",") {
                    self.tokens.take()?;
                    flags |= self.flag()?;
                }
                Ok((flags, true))
            }
            _ => Ok((flags, false)),
        }
    }

    /// `syn`, `syn|ack` or `(syn|ack)`.
    fn alternatives(&mut self) -> Parsed<u8> {
        let flags = self.group()?;
        self.more(flags)
    }

    /// `syn` or `(syn|ack)`.
    fn group(&mut self) -> Parsed<u8> {
        if self.tokens.peek().node != Token::Mark("(") {
            return self.flag();
        }
        self.tokens.take()?;
        let flags = self.flag()?;
        let flags = self.more(flags)?;
        self.mark(")")?;
        Ok(flags)
    }

    /// `flags` and what `|` adds to them.
    fn more(&mut self, mut flags: u8) -> Parsed<u8> {
        while matches!(
            self.tokens.peek().node,
            Token::Mark("|") | Token::Word("or")
        ) {
            self.tokens.take()?;
            flags |= self.flag()?;
        }
        Ok(flags)
    }

    /// A flag by its name, or any by their number.
    fn flag(&mut self) -> Parsed<u8> {
        let Spanned { span, node } = self.tokens.peek();
        let flag = match node {
            Token::Word(word) => {
                let bit = TCP_FLAGS.iter().position(|flag| *flag == word);
                bit.map(|bit| 1 << bit)
            }
            Token::Number(number) => Some(u8::try_from(number).map_err(|_| {
                let what = "flags are a number, which";
                let max = u32::from(u8::MAX);
                Error::new(span, ErrorKind::TooLarge { what, max })
            })?),
            Token::Set(_) | Token::Variable(_) => return refuse(span, &refusals::FLAGS_NAME),
            _ => None,
        };
        let Some(flag) = flag else {
            return expected(span, FLAGS);
        };
        self.tokens.take()?;
        Ok(flag)
    }
}

fn test(mask: u8, values: Box<[u8]>, negated: bool) -> TcpFlags {
    TcpFlags {
        mask,
        values,
        negated,
    }
}
