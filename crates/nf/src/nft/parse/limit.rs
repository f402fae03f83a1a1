//! `limit`: how many packets or bytes a rule takes in a time.

use super::{Parsed, Parser, expected};
use crate::census::{COUNT_MAX, Count};
use crate::limit::{BYTE_UNITS, Period, Rate, Unit};
use crate::nft::ast::{ObjectKind, Span, Spanned, Statement};
use crate::nft::error::{Error, ErrorKind};
use crate::nft::lex::Token;

const PERIODS: &str = "second, minute, hour, day or week";
pub(super) const BYTES: &str = "`bytes`, `kbytes` or `mbytes`";

impl<'a> Parser<'a, '_> {
    /// What stands behind `limit`.
    pub(super) fn limit(&mut self) -> Parsed<Statement<'a>> {
        let Spanned { span, node } = self.tokens.peek();
        match node {
            Token::Word("rate") => self.rate().map(Statement::Limit),
            Token::Word("name") => self.named(ObjectKind::Limit),
            _ => expected(span, "`rate`"),
        }
    }

    /// From `rate` on.
    pub(super) fn rate(&mut self) -> Parsed<Rate> {
        self.tokens.take()?;
        let over = self.tokens.peek().node == Token::Word("over");
        if over {
            self.tokens.take()?;
        }
        let (amount, at) = self.positive()?;
        let Spanned { span, node } = self.tokens.take()?;
        let (unit, factor, period) = match node {
            Token::Mark("/") => {
                let Spanned { span, node } = self.tokens.take()?;
                let Token::Word(word) = node else {
                    return expected(span, PERIODS);
                };
                (Unit::Packets, 1, period(word, span)?)
            }
            Token::Word(word) => {
                let (unit, behind) = word.split_once('/').unwrap_or((word, ""));
                (Unit::Bytes, bytes(unit, span)?, period(behind, span)?)
            }
            _ => return expected(span, "`/second`, or another time"),
        };
        let Some(amount) = amount.checked_mul(factor) else {
            return expected(at, "a smaller number");
        };
        let burst = self.burst(unit)?;
        Ok(Rate {
            amount,
            unit,
            period,
            burst,
            over,
        })
    }

    /// `burst COUNT UNIT`, or what is meant without it.
    fn burst(&mut self, unit: Unit) -> Parsed<u32> {
        if self.tokens.peek().node != Token::Word("burst") {
            return Ok(match unit {
                Unit::Packets => Rate::BURST,
                Unit::Bytes => 0,
            });
        }
        self.tokens.take()?;
        let (count, at) = match unit {
            Unit::Packets => self.positive()?,
            Unit::Bytes => self.number()?,
        };
        let Spanned { span, node } = self.tokens.take()?;
        let factor = match (unit, node) {
            (Unit::Packets, Token::Word("packets")) => 1,
            (Unit::Packets, _) => return expected(span, "`packets`"),
            (Unit::Bytes, Token::Word(word)) => bytes(word, span)?,
            (Unit::Bytes, _) => return expected(span, BYTES),
        };
        let burst = count.checked_mul(factor).map(u32::try_from);
        match burst {
            Some(Ok(burst)) => Ok(burst),
            _ => expected(at, "a smaller number"),
        }
    }

    /// `count [over] N`, behind `ct`.
    pub(super) fn count(&mut self) -> Parsed<Count> {
        self.word("count")?;
        let over = self.tokens.peek().node == Token::Word("over");
        if over {
            self.tokens.take()?;
        }
        let (number, at) = self.number()?;
        match u32::try_from(number) {
            Ok(most) if most <= COUNT_MAX => Ok(Count { most, over }),
            _ => {
                let (what, max) = ("connections in `ct count`", COUNT_MAX as usize);
                Err(Error::new(at, ErrorKind::Limit { what, max }))
            }
        }
    }

    /// A number from 1 on.
    fn positive(&mut self) -> Parsed<(u64, Span)> {
        match self.number()? {
            (0, span) => expected(span, "a number from 1 on"),
            found => Ok(found),
        }
    }

    pub(super) fn number(&mut self) -> Parsed<(u64, Span)> {
        let Spanned { span, node } = self.tokens.take()?;
        match node {
            Token::Number(number) => Ok((number, span)),
            _ => expected(span, "a number"),
        }
    }
}

fn period(word: &str, span: Span) -> Parsed<Period> {
    let found = Period::ALL.into_iter().find(|it| it.name() == word);
    found.map_or_else(|| expected(span, PERIODS), Ok)
}

pub(super) fn bytes(word: &str, span: Span) -> Parsed<u64> {
    let found = BYTE_UNITS.into_iter().find(|(name, _)| *name == word);
    let factor = found.map(|(_, factor)| factor);
    factor.map_or_else(|| expected(span, BYTES), Ok)
}
