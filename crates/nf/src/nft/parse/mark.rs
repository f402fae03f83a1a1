//! Marks: what they are set to, and conditions on some of their bits.

use super::{Parsed, Parser, expected, refuse};
use crate::fields::{Field, Slot};
use crate::mark::{BitOperator, MarkOf};
use crate::nft::ast::{MarkSource, Masked, SetMark, Spanned, Statement, Value};
use crate::nft::error::{Error, ErrorKind};
use crate::nft::lex::Token;
use crate::nft::marks::Operations;
use crate::nft::refusals;
use alloc::boxed::Box;
use alloc::vec::Vec;

impl<'a> Parser<'a, '_> {
    /// `set ...` behind the name of a mark.
    pub(super) fn mark_set(&mut self, field: Field) -> Parsed<Statement<'a>> {
        self.tokens.take()?;
        let next = self.tokens.peek();
        let source = match next.node {
            Token::Number(_) | Token::Variable(_) => MarkSource::Value(self.mark_number()?),
            Token::Word("ct" | "meta" | "mark") => MarkSource::Mark(self.other_mark()?),
            Token::Word(_) => return refuse(next.span, &refusals::MARK_OF_OTHER),
            _ => return expected(next.span, "a number, or the mark of somebody"),
        };
        let operations = self.mark_operations()?;
        Ok(Statement::Mark(Box::new(SetMark {
            of: whose(field),
            source,
            operations,
        })))
    }

    /// `ct mark`, `meta mark` or `mark`.
    fn other_mark(&mut self) -> Parsed<MarkOf> {
        let Spanned { span, node } = self.tokens.take()?;
        let of = match node {
            Token::Word("mark") => return Ok(MarkOf::Packet),
            Token::Word("ct") => MarkOf::Connection,
            _ => MarkOf::Packet,
        };
        match self.tokens.take()?.node {
            Token::Word("mark") => Ok(of),
            _ => refuse(self.tokens.span_from(span.start), &refusals::MARK_OF_OTHER),
        }
    }

    /// What is done with the bits of a mark. Of what binds tighter than what stands before it, the
    /// order is not that of the text.
    fn mark_operations(&mut self) -> Parsed<Operations<'a>> {
        let mut operations: Vec<(BitOperator, Spanned<Value<'a>>)> = Vec::new();
        loop {
            let Spanned { span, node } = self.tokens.peek();
            let operator = match node {
                Token::Mark("&") | Token::Word("and") => BitOperator::And,
                Token::Mark("^") | Token::Word("xor") => BitOperator::Xor,
                Token::Mark("|") | Token::Word("or") => BitOperator::Or,
                Token::Mark("<<" | ">>") => return refuse(span, &refusals::MARK_SHIFTED),
                _ => return Ok(operations.into()),
            };
            let last = operations.last().map(|(last, _)| *last as u8);
            if last.is_some_and(|last| last > operator as u8) {
                return refuse(span, &refusals::MARK_ORDER);
            }
            let max = self.limits.statements;
            if operations.len() == max {
                let what = "operations on a mark";
                return Err(Error::new(span, ErrorKind::Limit { what, max }));
            }
            self.tokens.take()?;
            operations.push((operator, self.mark_number()?));
        }
    }

    /// What stands behind the name of a mark and `&`.
    pub(super) fn masked_mark(&mut self, field: Spanned<Field>) -> Parsed<Statement<'a>> {
        self.tokens.take()?;
        let mask = self.mark_number()?;
        let next = self.tokens.peek();
        match next.node {
            Token::Mark("&" | "|" | "^" | "<<" | ">>") | Token::Word("and" | "or" | "xor") => {
                return refuse(next.span, &refusals::BITS);
            }
            Token::Word("vmap" | "map") => return refuse(next.span, &refusals::MASKED_MAP),
            _ => {}
        }
        match self.comparison_with(field)? {
            Statement::Match(condition) => {
                Ok(Statement::Masked(Box::new(Masked { condition, mask })))
            }
            other => Ok(other),
        }
    }

    fn mark_number(&mut self) -> Parsed<Spanned<Value<'a>>> {
        let Spanned { span, node } = self.tokens.peek();
        let value = match node {
            Token::Number(number) => Value::Number(u32::try_from(number).map_err(|_| {
                let (what, max) = ("a mark", u32::MAX);
                Error::new(span, ErrorKind::TooLarge { what, max })
            })?),
            Token::Variable(name) => Value::Variable(name),
            Token::Mark("(") => return refuse(span, &refusals::MARK_ORDER),
            _ => return expected(span, "a number"),
        };
        self.tokens.take()?;
        Ok(Spanned::new(span, value))
    }
}

/// Whose mark a field is.
fn whose(field: Field) -> MarkOf {
    match field.slot() {
        Slot::CtMark => MarkOf::Connection,
        _ => MarkOf::Packet,
    }
}
