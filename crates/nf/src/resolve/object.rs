//! Counters, quotas, limits and timeouts that have a name.

use super::{Resolver, duplicate};
use crate::conntrack::TIMEOUTS_MAX;
use crate::ir::{Named, Statement};
use crate::limit::Limit;
use crate::nft::ast::{self, Name, ObjectKind, Span, What};
use crate::nft::{Error, ErrorKind, Refusal};
use crate::quota::{Allowance, Quota};
use alloc::format;

const QUOTA_START: Refusal = Refusal {
    what: "a quota of which something is used",
    why: "is not supported: it begins with the rules, or goes on where a quota of its name was",
    instead: Some("leave `used` out; `nft -s list ruleset` does"),
};

/// What a name stands for: where it was given, and the number of a limit, a quota or a counter.
pub(super) type Known = (Span, u32);

impl<'f, 'a> Resolver<'f, 'a> {
    /// Takes down an object of a table, which is known in all of it.
    pub(super) fn object(
        &mut self,
        table: &'f ast::Table<'a>,
        object: &'f ast::Object<'a>,
    ) -> Result<(), Error> {
        let (name, kind) = (object.name, object.what.kind());
        let number = match object.what {
            What::Timeout(policy) => {
                let timeouts = (policy.protocol.number(), policy.timeouts());
                self.program.timeouts.push(timeouts);
                if self.program.timeouts.len() > TIMEOUTS_MAX {
                    let (what, max) = ("`ct timeout` in one file", TIMEOUTS_MAX);
                    return Err(Error::new(name.span, ErrorKind::Limit { what, max }));
                }
                self.program.timeouts.len() as u32 - 1
            }
            What::Limit(rate) => {
                self.program.limits.push(Limit::new(rate));
                self.program.limits.len() as u32 - 1
            }
            What::Counter {
                packets: 0,
                bytes: 0,
            } => self.counted(table, kind, name),
            What::Counter { .. } => {
                let kind = ErrorKind::Refused(&super::COUNTER_START);
                return Err(Error::new(name.span, kind));
            }
            What::Quota { allowance, used } => {
                let counted = self.counted(table, kind, name);
                self.push_quota(allowance, used, Some(counted), name.span)?
            }
        };
        let known = (name.span, number);
        match self.objects.insert((kind, name.node), known) {
            Some((first, _)) => Err(duplicate("object of this name", name.span, first)),
            None => Ok(()),
        }
    }

    /// The number of an object that is counted.
    fn counted(&mut self, table: &ast::Table<'a>, kind: ObjectKind, name: Name<'a>) -> u32 {
        let family = table.family.node.name();
        let name = format!("{family} {} {} {name}", table.name, kind.name());
        self.program.named.push(Named { name: name.into() });
        self.program.named.len() as u32 - 1
    }

    fn push_quota(
        &mut self,
        allowance: Allowance,
        used: u64,
        object: Option<u32>,
        span: Span,
    ) -> Result<u32, Error> {
        if used != 0 {
            return Err(Error::new(span, ErrorKind::Refused(&QUOTA_START)));
        }
        self.program.quotas.push(Quota::new(allowance, object));
        Ok(self.program.quotas.len() as u32 - 1)
    }

    /// A quota that has no name.
    pub(super) fn quota(
        &mut self,
        allowance: Allowance,
        used: u64,
        span: Span,
    ) -> Result<Statement, Error> {
        let number = self.push_quota(allowance, used, None, span)?;
        Ok(Statement::Quota(number))
    }

    /// What a rule does with an object.
    pub(super) fn named(&self, kind: ObjectKind, name: Name<'a>) -> Result<Statement, Error> {
        let Some((_, number)) = self.objects.get(&(kind, name.node)).copied() else {
            let what = match kind {
                ObjectKind::Counter => "counter",
                ObjectKind::Quota => "quota",
                ObjectKind::Limit => "limit",
                ObjectKind::Timeout => "`ct timeout`",
            };
            return Err(Error::new(name.span, ErrorKind::Unknown(what)));
        };
        Ok(match kind {
            ObjectKind::Counter => Statement::CountNamed(number),
            ObjectKind::Quota => Statement::Quota(number),
            ObjectKind::Limit => Statement::Limit(number),
            ObjectKind::Timeout => Statement::Timeout(number),
        })
    }
}
