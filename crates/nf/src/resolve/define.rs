//! Variables: what they mean, from where to where.

use super::{Resolver, duplicate};
use crate::nft::ast::{self, Flowtable, Name, Operand, Span, Value};
use crate::nft::{Error, ErrorKind, Refusal};

const REDEFINED: Refusal = Refusal {
    what: "another meaning for a variable that another one is made of",
    why: "is not supported: it would have both",
    instead: Some("define a variable of another name"),
};
const FLOW_OF_OTHER: Refusal = Refusal {
    what: "`flow add` at this hook",
    why: "is not accepted by nft either: packets are sent on at `forward`",
    instead: Some("put it into a chain at the hook `forward`, or leave it out"),
};

/// A variable that was given a meaning, and the one that it had before.
pub(super) struct Defined<'f, 'a> {
    name: &'a str,
    before: Option<(Span, &'f Operand<'a>)>,
}

impl<'f, 'a> Resolver<'f, 'a> {
    pub(super) fn define(&mut self, define: &'f ast::Define<'a>) -> Result<(), Error> {
        let name = define.name;
        let before = self.scope.variables.get(name.node).copied();
        if let (Some((first, _)), false) = (before, define.again) {
            return Err(duplicate("definition of this variable", name.span, first));
        }
        self.scope.check_variables(&define.value)?;
        for_names(&define.value, |made_of| {
            self.made_of.insert(made_of);
        });
        if before.is_some() {
            self.check_unused(name)?;
        }
        let variable = (name.span, &define.value);
        self.scope.variables.insert(name.node, variable);
        let name = name.node;
        self.defined.push(Defined { name, before });
        Ok(())
    }

    /// Refuses another meaning of what another variable, or the new meaning, is made of.
    fn check_unused(&self, name: Name<'a>) -> Result<(), Error> {
        match self.made_of.contains(name.node) {
            true => Err(Error::new(name.span, ErrorKind::Refused(&REDEFINED))),
            false => Ok(()),
        }
    }

    /// `undefine`: of the variables of the block at hand, as in nft.
    pub(super) fn undefine(&mut self, name: Name<'a>) -> Result<(), Error> {
        let here = &self.defined[self.block..];
        let Some(at) = here.iter().rposition(|defined| defined.name == name.node) else {
            return Err(Error::new(name.span, ErrorKind::Unknown("variable here")));
        };
        self.check_unused(name)?;
        // What it meant before it was defined again in this block is gone, too.
        let first = here.iter().position(|defined| defined.name == name.node);
        let first = self.block + first.unwrap_or(at);
        let before = self.defined[first].before;
        self.restore(name.node, before);
        let block = self.block;
        let mut number = 0;
        self.defined.retain(|defined| {
            number += 1;
            number <= block || defined.name != name.node
        });
        Ok(())
    }

    /// A block begins; where the one around it began.
    pub(super) fn open(&mut self) -> usize {
        core::mem::replace(&mut self.block, self.defined.len())
    }

    /// The block at hand ends: its variables have the meaning that they had before.
    pub(super) fn close(&mut self, around: usize) {
        while self.defined.len() > self.block
            && let Some(Defined { name, before }) = self.defined.pop()
        {
            self.restore(name, before);
        }
        self.block = around;
    }

    fn restore(&mut self, name: &'a str, before: Option<(Span, &'f Operand<'a>)>) {
        match before {
            Some(before) => self.scope.variables.insert(name, before),
            None => self.scope.variables.remove(name),
        };
    }

    /// A flowtable: which connections need not pass all rules. A router here asks none of them of
    /// packets of open connections that the first rule of a chain accepts, and does so of each.
    pub(super) fn flowtable(&mut self, flowtable: &Flowtable<'a>) -> Result<(), Error> {
        let name = flowtable.name;
        if self.flowtables.contains(&name.node) {
            return Err(duplicate("flowtable of this name", name.span, name.span));
        }
        self.flowtables.push(name.node);
        Ok(())
    }

    /// `flow add @NAME`, which changes nothing.
    pub(super) fn flow(&mut self, name: Name<'a>, span: Span) -> Result<(), Error> {
        if !self.flowtables.contains(&name.node) {
            return Err(Error::new(name.span, ErrorKind::Unknown("flowtable")));
        }
        self.flows.push((self.program.chains.len(), span));
        Ok(())
    }

    /// Refuses `flow add` where nothing is sent on.
    pub(super) fn check_flows(&self, hook: ast::Hook, reached: &[bool]) -> Result<(), Error> {
        let mut here = self.flows.iter().filter(|(chain, _)| reached[*chain]);
        match here.next() {
            Some((_, span)) if hook != ast::Hook::Forward => {
                Err(Error::new(*span, ErrorKind::Refused(&FLOW_OF_OTHER)))
            }
            _ => Ok(()),
        }
    }
}

/// Shows each variable that an operand names.
fn for_names<'a>(operand: &Operand<'a>, mut show: impl FnMut(&'a str)) {
    let elements = match operand {
        Operand::Value(value) => core::slice::from_ref(value),
        Operand::Set(elements) => &elements.node,
        Operand::Named(_) => &[],
    };
    for element in elements {
        let ends = match &element.node {
            Value::Range(range) => [&range.from.node, &range.to.node],
            value => [value; 2],
        };
        for end in ends {
            if let Value::Variable(name) = end {
                show(name);
            }
        }
    }
}
