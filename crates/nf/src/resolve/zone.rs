//! Zones that rules put packets into.

use super::Resolver;
use crate::conntrack::Zone;
use crate::fields::{Slot, Type};
use crate::ir::Statement;
use crate::nft::ast::{self, Span};
use crate::nft::{Error, Refusal};
use crate::values;

/// Where connections are known.
const LATE: Refusal = Refusal {
    what: "`ct zone set` in this chain",
    why: "has no effect: connections are looked up before it",
    instead: Some("a chain at `hook prerouting` or `hook output`, with `priority raw`"),
};

impl<'f, 'a> Resolver<'f, 'a> {
    /// What puts a packet into a zone.
    pub(super) fn set_zone(
        &mut self,
        set: &'f ast::SetZone<'a>,
        span: Span,
    ) -> Result<Statement, Error> {
        let direction = match set.field.slot() {
            Slot::CtOriginalZone => Some(0),
            Slot::CtReplyZone => Some(1),
            _ => None,
        };
        let (held, _) = self.scope.key(Type::Zone, &set.number)?;
        let [(number, high)] = *held else {
            return Err(values::mismatch(Type::Zone, set.number.span));
        };
        if number != high {
            return Err(values::mismatch(Type::Zone, set.number.span));
        }
        self.early.push((self.program.chains.len(), span, &LATE));
        Ok(Statement::Zone(Zone::new(number as u16, direction)))
    }
}
