//! Sets that rules change: how they are declared, and the statements that do it.

use super::{Parsed, Parser, expected, refuse, unknown};
use crate::nft::ast::{Change, ChangeKind, ElementPart, Elements, Name, Set, Spanned, Statement};
use crate::nft::error::{Error, ErrorKind};
use crate::nft::lex::Token;
use crate::nft::refusals;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// A set of which nothing is known but its name.
pub(super) fn empty_set(name: Name<'_>) -> Set<'_> {
    Set {
        name,
        keys: Box::new([]),
        interval: false,
        constant: false,
        dynamic: false,
        timeouts: false,
        timeout: None,
        size: None,
        auto_merge: false,
        elements: Elements::default(),
        comment: None,
    }
}

impl<'a> Parser<'a, '_> {
    /// The flags of a set.
    pub(super) fn flags_of_set(&mut self, set: &mut Set<'_>) -> Parsed<()> {
        loop {
            let Spanned { span, node } = self.tokens.take()?;
            match node {
                Token::Word("interval") => set.interval = true,
                Token::Word("constant") => set.constant = true,
                Token::Word("dynamic") => set.dynamic = true,
                Token::Word("timeout") => set.timeouts = true,
                node => {
                    let what = "`interval`, `constant`, `dynamic` or `timeout`";
                    return unknown(span, node, &[], what);
                }
            }
            if self.tokens.peek().node != Token::Mark(",") {
                return Ok(());
            }
            self.tokens.take()?;
        }
    }

    /// Those of a map: `interval` and `constant`.
    pub(super) fn flags_of_map(&mut self) -> Parsed<(bool, bool)> {
        let (mut interval, mut constant) = (false, false);
        loop {
            let Spanned { span, node } = self.tokens.take()?;
            match node {
                Token::Word("interval") => interval = true,
                Token::Word("constant") => constant = true,
                node => {
                    return unknown(span, node, refusals::MAP_FLAGS, "`interval` or `constant`");
                }
            }
            if self.tokens.peek().node != Token::Mark(",") {
                return Ok((interval, constant));
            }
            self.tokens.take()?;
        }
    }

    /// A time with its unit, in milliseconds.
    pub(super) fn time(&mut self) -> Parsed<u32> {
        let Spanned { span, node } = self.tokens.take()?;
        match node {
            Token::Time(0) => expected(span, "a time above 0"),
            Token::Time(milliseconds) => Ok(milliseconds),
            _ => expected(span, "a time, such as 30s or 1d2h"),
        }
    }

    /// How many elements a set has at most.
    pub(super) fn size(&mut self) -> Parsed<u32> {
        let Spanned { span, node } = self.tokens.take()?;
        let max = self.limits.set_elements;
        match node {
            Token::Number(0) => expected(span, "a number from 1 on"),
            Token::Number(size) => match u32::try_from(size) {
                Ok(size) if size as usize <= max => Ok(size),
                _ => {
                    let what = "elements in one set";
                    Err(Error::new(span, ErrorKind::Limit { what, max }))
                }
            },
            _ => expected(span, "a number"),
        }
    }

    /// What stands behind `add`, `update` and `delete`.
    pub(super) fn change(&mut self, kind: ChangeKind) -> Parsed<Statement<'a>> {
        let Spanned { span, node } = self.tokens.take()?;
        let Token::Set(name) = node else {
            return expected(span, "`@` and the name of a set");
        };
        let set = Spanned::new(span, name);
        self.mark("{")?;
        let fields = self.fields_from_here()?;
        let mut timeout = None;
        let mut parts: Vec<ElementPart> = Vec::new();
        loop {
            let Spanned { span, node } = self.tokens.take()?;
            let part = match node {
                Token::Mark("}") => break,
                Token::Word("timeout") if timeout.is_none() && parts.is_empty() => {
                    timeout = Some(self.time()?);
                    continue;
                }
                Token::Word("limit") => match self.limit()? {
                    Statement::Limit(rate) => ElementPart::Limit(rate),
                    _ => return expected(span, "a limit"),
                },
                Token::Word("counter") => match self.counter()? {
                    Statement::Counter {
                        packets: 0,
                        bytes: 0,
                    } => ElementPart::Counter,
                    _ => return refuse(span, &refusals::ELEMENT_COUNTER),
                },
                Token::Word("ct") => ElementPart::Count(self.count()?),
                node => {
                    let what = "`timeout`, `limit`, `counter`, `ct count` or `}`";
                    return unknown(span, node, refusals::IN_ELEMENT, what);
                }
            };
            let kind = core::mem::discriminant(&part);
            if parts
                .iter()
                .any(|other| core::mem::discriminant(other) == kind)
            {
                return refuse(span, &refusals::SECOND_PART);
            }
            parts.push(part);
        }
        Ok(Statement::Change(Box::new(Change {
            kind,
            set,
            fields,
            timeout,
            parts: parts.into(),
        })))
    }
}
