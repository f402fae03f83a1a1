//! Concatenations: several types, fields or values as one.

use super::{Parsed, Parser, expected, refuse};
use crate::fields::{Field, Type};
use crate::nft::ast::{Joint, Operator, Spanned, Statement, Value};
use crate::nft::lex::Token;
use crate::nft::refusals;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

impl<'a> Parser<'a, '_> {
    /// What stands behind `type`: one, or several with ` . ` between them.
    pub(super) fn set_types(&mut self) -> Parsed<Box<[Spanned<Type>]>> {
        let mut keys = vec![self.set_type()?];
        while self.joins()? {
            keys.push(self.set_type()?);
        }
        Ok(keys.into())
    }

    /// The field that has been read, and those that are joined to it.
    pub(super) fn fields(&mut self, first: Spanned<Field>) -> Parsed<Box<[Spanned<Field>]>> {
        let mut fields = vec![first];
        while self.joins()? {
            fields.push(self.field_from_here()?);
        }
        Ok(fields.into())
    }

    /// One field, or several with ` . ` between them.
    pub(super) fn fields_from_here(&mut self) -> Parsed<Box<[Spanned<Field>]>> {
        let first = self.field_from_here()?;
        self.fields(first)
    }

    fn field_from_here(&mut self) -> Parsed<Spanned<Field>> {
        let Spanned { span, node } = self.tokens.take()?;
        let Token::Word(word) = node else {
            return expected(span, "a field");
        };
        if let Some(refusal) = refusals::find(refusals::STATEMENTS, word) {
            return refuse(span, refusal);
        }
        match self.field(word)? {
            Some(field) => Ok(Spanned::new(self.tokens.span_from(span.start), field)),
            None => expected(span, "a field"),
        }
    }

    /// What stands behind the fields of a condition on several.
    pub(super) fn joint(&mut self, fields: Box<[Spanned<Field>]>) -> Parsed<Statement<'a>> {
        let operator = match self.operator()? {
            Some(operator) => operator,
            None => {
                let span = fields.first().map(|field| field.span);
                Spanned::new(span.unwrap_or_default(), Operator::Equal)
            }
        };
        let operand = self.operand()?;
        Ok(Statement::Joint(Box::new(Joint {
            fields,
            operator,
            operand,
        })))
    }

    /// A value, range, prefix or variable, or several of them that are joined.
    pub(super) fn element(&mut self) -> Parsed<Spanned<Value<'a>>> {
        let first = self.value()?;
        if self.tokens.peek().node != Token::Mark(".") {
            return Ok(first);
        }
        let start = first.span.start;
        let mut parts: Vec<Spanned<Value<'a>>> = Vec::with_capacity(2);
        parts.push(first);
        while self.joins()? {
            parts.push(self.value()?);
        }
        let span = self.tokens.span_from(start);
        Ok(Spanned::new(span, Value::Joined(parts.into())))
    }

    /// Whether another part follows, behind a point that is taken.
    fn joins(&mut self) -> Parsed<bool> {
        let joins = self.tokens.peek().node == Token::Mark(".");
        if joins {
            self.tokens.take()?;
        }
        Ok(joins)
    }
}
