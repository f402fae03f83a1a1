//! Zones that rules put packets into.

use super::{Parsed, Parser, expected, refuse};
use crate::fields::Field;
use crate::nft::ast::{Family, SetZone, Spanned, Statement, Value};
use crate::nft::lex::Token;
use crate::nft::refusals;

impl<'a> Parser<'a, '_> {
    /// `set NUMBER` behind `ct zone`, or behind that of a direction.
    pub(super) fn zone_set(&mut self, field: Field) -> Parsed<Statement<'a>> {
        let set = self.tokens.take()?;
        if self.family == Family::Bridge {
            return refuse(set.span, &refusals::ZONE_OF_BRIDGE);
        }
        let Spanned { span, node } = self.tokens.take()?;
        let number = match node {
            Token::Number(number) => Value::Number(u32::try_from(number).unwrap_or(u32::MAX)),
            Token::Variable(name) => Value::Variable(name),
            Token::Word(_) => return refuse(span, &refusals::ZONE_OF_OTHER),
            _ => return expected(span, "the number of a zone"),
        };
        let number = Spanned::new(span, number);
        Ok(Statement::Zone(SetZone { field, number }))
    }
}
