//! Counters, quotas and limits that have a name, and quotas that have none.

use super::{Parsed, Parser, count, expected, once, unknown};
use crate::nft::ast::{Name, Object, ObjectKind, Spanned, Statement, What};
use crate::nft::lex::Token;
use crate::nft::refusals;
use crate::quota::Allowance;

impl<'a> Parser<'a, '_> {
    /// `counter NAME { ... }` and the like.
    pub(super) fn object(&mut self, kind: ObjectKind) -> Parsed<Object<'a>> {
        let span = self.tokens.take()?.span;
        let objects = self.limits.objects;
        count(&mut self.counts.objects, objects, span, "named objects")?;
        let name = self.name("the name of the object")?;
        let open = self.open()?;
        let (mut what, mut comment, mut first) = (None, None, None);
        while let Some(Spanned { span, node }) = self.item(open)? {
            match node {
                Token::Word("comment") => self.block_comment(&mut comment)?,
                Token::Word("packets") if kind == ObjectKind::Counter => {
                    once(&mut first, span, "line of numbers")?;
                    what = Some(self.numbers()?);
                }
                Token::Word("over" | "until") | Token::Number(_) if kind == ObjectKind::Quota => {
                    once(&mut first, span, "line of bytes")?;
                    let (allowance, used) = self.allowance()?;
                    what = Some(What::Quota { allowance, used });
                }
                Token::Word("rate") if kind == ObjectKind::Limit => {
                    once(&mut first, span, "rate")?;
                    what = Some(What::Limit(self.rate()?));
                }
                node => {
                    let what = match kind {
                        ObjectKind::Counter => "`packets`",
                        ObjectKind::Quota => "`over`, or a number",
                        ObjectKind::Limit | ObjectKind::Timeout => "`rate`",
                    };
                    return unknown(span, node, &[], what);
                }
            }
            self.separator()?;
        }
        let nothing = What::Counter {
            packets: 0,
            bytes: 0,
        };
        let what = match (what, kind) {
            (Some(what), _) => what,
            (None, ObjectKind::Counter) => nothing,
            (None, ObjectKind::Quota) => return expected(name.span, "a quota with its bytes"),
            (None, ObjectKind::Limit | ObjectKind::Timeout) => {
                return expected(name.span, "a limit with its rate");
            }
        };
        Ok(Object {
            name,
            what,
            comment,
        })
    }

    /// `packets N bytes M`.
    fn numbers(&mut self) -> Parsed<What> {
        self.tokens.take()?;
        let packets = self.start()?;
        self.word("bytes")?;
        let bytes = self.start()?;
        Ok(What::Counter { packets, bytes })
    }

    /// What stands behind `quota`.
    pub(super) fn quota(&mut self) -> Parsed<Statement<'a>> {
        if self.tokens.peek().node == Token::Word("name") {
            return self.named(ObjectKind::Quota);
        }
        let (allowance, used) = self.allowance()?;
        Ok(Statement::Quota { allowance, used })
    }

    /// `[over] N UNIT [used N UNIT]`.
    fn allowance(&mut self) -> Parsed<(Allowance, u64)> {
        let first = self.tokens.peek().node;
        if let Token::Word("over" | "until") = first {
            self.tokens.take()?;
        }
        let over = first == Token::Word("over");
        let bytes = self.bytes()?;
        let mut used = 0;
        if self.tokens.peek().node == Token::Word("used") {
            self.tokens.take()?;
            used = self.bytes()?;
        }
        Ok((Allowance { bytes, over }, used))
    }

    /// `N UNIT`.
    fn bytes(&mut self) -> Parsed<u64> {
        let (number, at) = self.number()?;
        let Spanned { span, node } = self.tokens.take()?;
        let factor = match node {
            Token::Word(unit) => super::limit::bytes(unit, span)?,
            _ => return expected(span, super::limit::BYTES),
        };
        match number.checked_mul(factor) {
            Some(bytes) => Ok(bytes),
            None => expected(at, "a smaller number"),
        }
    }

    /// `name NAME` behind the kind of an object, or `set NAME`.
    pub(super) fn named(&mut self, kind: ObjectKind) -> Parsed<Statement<'a>> {
        self.tokens.take()?;
        let next = self.tokens.peek();
        let name: Name<'a> = match next.node {
            Token::Text(name) => {
                self.tokens.take()?;
                Spanned::new(next.span, name)
            }
            Token::Word("ip" | "ip6" | "tcp" | "udp" | "meta" | "ct") => {
                return super::refuse(next.span, &refusals::OBJECT_MAP);
            }
            _ => self.name("the name of the object")?,
        };
        Ok(Statement::Named(kind, name))
    }
}
