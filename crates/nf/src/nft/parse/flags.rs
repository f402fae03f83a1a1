//! `tcp flags`, `ct state` and `ct status` in nft's many forms, all of them a mask and the values
//! under it.

use super::{Parsed, Parser, expected, refuse};
use crate::fields::{Field, Type};
use crate::nft::ast::{Flags, Spanned};
use crate::nft::error::{Error, ErrorKind};
use crate::nft::lex::Token;
use crate::nft::refusals;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// How what follows is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    /// Nothing is written.
    Implicit,
    Equal,
    NotEqual,
}

impl Parser<'_, '_> {
    /// What stands behind the name of the field.
    pub(super) fn flags(&mut self, field: Field) -> Parsed<Flags> {
        match self.tokens.peek().node {
            Token::Mark("&") | Token::Word("and") => {
                self.tokens.take()?;
                let mask = self.group(field)?;
                let behind = self.tokens.peek();
                if matches!(behind.node, Token::Mark("|") | Token::Word("or")) {
                    return refuse(behind.span, &refusals::FLAGS_BARE_OR);
                }
                self.masked(field, mask)
            }
            Token::Mark("!") => {
                self.tokens.take()?;
                let (mask, _) = self.flag_list(field)?;
                Ok(test(field, mask, [0].into(), false))
            }
            _ => self.unmasked(field),
        }
    }

    /// What stands behind `& MASK`.
    fn masked(&mut self, field: Field, mask: u16) -> Parsed<Flags> {
        let comparison = self.comparison()?;
        let negated = comparison == Comparison::NotEqual;
        if self.tokens.peek().node == Token::Mark("{") {
            return Ok(test(field, mask, self.flag_set(field)?, negated));
        }
        let (value, _) = self.flag_list(field)?;
        Ok(test(field, mask, [value].into(), negated))
    }

    /// What stands behind the field if it is no mask.
    fn unmasked(&mut self, field: Field) -> Parsed<Flags> {
        let comparison = self.comparison()?;
        let negated = comparison == Comparison::NotEqual;
        let start = self.tokens.peek();
        if start.node == Token::Mark("{") {
            let values = self.flag_set(field)?;
            // One state in braces means the same to nft as without, and one flag among several does
            // not.
            let ambiguous = field.value_type() != Type::CtState && values.len() == 1;
            if comparison == Comparison::Implicit && ambiguous {
                let span = self.tokens.span_from(start.span.start);
                return refuse(span, &refusals::FLAGS_SINGLE);
            }
            return Ok(test(field, field.all_flags(), values, negated));
        }
        let (value, _) = self.flag_list(field)?;
        let behind = self.tokens.peek();
        match behind.node {
            Token::Mark("/") => {
                self.tokens.take()?;
                let start = self.tokens.peek().span.start;
                return match self.flag_list(field)? {
                    (mask, true) => Ok(test(field, mask, [value].into(), negated)),
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
            Comparison::Implicit => test(field, value, [0].into(), true),
            _ => test(field, field.all_flags(), [value].into(), negated),
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
    fn flag_set(&mut self, field: Field) -> Parsed<Box<[u16]>> {
        self.tokens.take()?;
        let mut values = Vec::new();
        loop {
            self.newline()?;
            match self.tokens.peek().node {
                Token::Mark("," | "}") if !values.is_empty() => {}
                _ => {
                    let value = self.alternatives(field)?;
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
    fn flag_list(&mut self, field: Field) -> Parsed<(u16, bool)> {
        let is_group = self.tokens.peek().node == Token::Mark("(");
        let mut flags = self.group(field)?;
        match self.tokens.peek().node {
            Token::Mark("|") | Token::Word("or") => Ok((self.more(field, flags)?, false)),
            Token::Mark(",") if !is_group => {
                while self.tokens.peek().node == Token::Mark(",") {
                    self.tokens.take()?;
                    flags |= self.flag(field)?;
                }
                Ok((flags, true))
            }
            _ => Ok((flags, false)),
        }
    }

    /// `syn`, `syn|ack` or `(syn|ack)`.
    fn alternatives(&mut self, field: Field) -> Parsed<u16> {
        let flags = self.group(field)?;
        self.more(field, flags)
    }

    /// `syn` or `(syn|ack)`.
    fn group(&mut self, field: Field) -> Parsed<u16> {
        if self.tokens.peek().node != Token::Mark("(") {
            return self.flag(field);
        }
        self.tokens.take()?;
        let flags = self.flag(field)?;
        let flags = self.more(field, flags)?;
        self.mark(")")?;
        Ok(flags)
    }

    /// `flags` and what `|` adds to them.
    fn more(&mut self, field: Field, mut flags: u16) -> Parsed<u16> {
        while matches!(
            self.tokens.peek().node,
            Token::Mark("|") | Token::Word("or")
        ) {
            self.tokens.take()?;
            flags |= self.flag(field)?;
        }
        Ok(flags)
    }

    /// A flag by its name, or any by their number.
    fn flag(&mut self, field: Field) -> Parsed<u16> {
        let Spanned { span, node } = self.tokens.peek();
        let flag = match node {
            Token::Word(word) => field.value_type().number_of(word),
            Token::Number(number) => {
                let max = field.all_flags();
                let flag = u16::try_from(number).ok().filter(|flag| *flag <= max);
                Some(flag.ok_or_else(|| {
                    let what = "flags are a number, which";
                    let max = max.into();
                    Error::new(span, ErrorKind::TooLarge { what, max })
                })?)
            }
            Token::Set(_) | Token::Variable(_) => return refuse(span, &refusals::FLAGS_NAME),
            _ => None,
        };
        let Some(flag) = flag else {
            return expected(span, field.value_type().expected());
        };
        self.tokens.take()?;
        Ok(flag)
    }
}

fn test(field: Field, mask: u16, values: Box<[u16]>, negated: bool) -> Flags {
    Flags {
        field,
        mask,
        values,
        negated,
    }
}
