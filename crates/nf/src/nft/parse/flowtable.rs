//! Flowtables: they say which connections are handed on without asking the rules again.

use super::{Parsed, Parser, count, expected, once, unknown};
use crate::nft::ast::{Flowtable, Hook, Operand, Spanned, Statement};
use crate::nft::lex::Token;
use alloc::boxed::Box;

impl<'a> Parser<'a, '_> {
    /// `flowtable NAME { ... }`.
    pub(super) fn flowtable(&mut self) -> Parsed<Flowtable<'a>> {
        let span = self.tokens.take()?.span;
        let objects = self.limits.objects;
        count(&mut self.counts.objects, objects, span, "named objects")?;
        let name = self.name("the name of the flowtable")?;
        let open = self.open()?;
        let (mut priority, mut hook, mut first) = (None, None, None);
        let mut devices = Box::default();
        while let Some(Spanned { span, node }) = self.item(open)? {
            match node {
                Token::Word("hook") => {
                    once(&mut hook, span, "hook")?;
                    self.tokens.take()?;
                    self.word("ingress")?;
                    self.word("priority")?;
                    let names = &[("filter", 0)];
                    priority = Some(self.priority(names, Hook::Prerouting)?.node);
                }
                Token::Word("devices") => {
                    once(&mut first, span, "list of devices")?;
                    self.tokens.take()?;
                    self.mark("=")?;
                    let at = self.tokens.peek().span;
                    devices = match self.operand()? {
                        Operand::Set(set) => set.node,
                        _ => return expected(at, "`{`"),
                    };
                }
                Token::Word("counter") => self.tokens.take().map(|_| ())?,
                node => return unknown(span, node, &[], "`hook` or `devices`"),
            }
            self.separator()?;
        }
        let Some(priority) = priority else {
            return expected(name.span, "a flowtable with `hook ingress priority ...`");
        };
        Ok(Flowtable {
            name,
            priority,
            devices,
        })
    }

    /// `add @NAME` behind `flow`.
    pub(super) fn flow(&mut self) -> Parsed<Statement<'a>> {
        let Spanned { span, node } = self.tokens.take()?;
        if !matches!(node, Token::Word("add" | "offload")) {
            return expected(span, "`add`");
        }
        let Spanned { span, node } = self.tokens.take()?;
        match node {
            Token::Set(name) => Ok(Statement::Flow(Spanned::new(span, name))),
            _ => expected(span, "`@` and the name of a flowtable"),
        }
    }
}
