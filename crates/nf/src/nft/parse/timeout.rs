//! How long connections stay that rules say so of.

use super::{Parsed, Parser, count, expected, once, refuse, unknown};
use crate::nft::ast::{
    Family, Object, ObjectKind, Spanned, Statement, TimeoutPolicy, TimeoutsOf, What,
};
use crate::nft::error::{Error, ErrorKind};
use crate::nft::lex::Token;
use crate::nft::refusals;
use crate::nft::timeouts::SECONDS_MAX;
use alloc::vec::Vec;

/// Timeouts of a line that are read: more than there are names.
const TIMEOUTS_MAX: usize = 64;

impl<'a> Parser<'a, '_> {
    /// `ct timeout NAME { ... }` in a table.
    pub(super) fn connection_object(&mut self) -> Parsed<Object<'a>> {
        let ct = self.tokens.take()?.span;
        let span = self.tokens.peek().span;
        match self.tokens.take()?.node {
            Token::Word("timeout") => {}
            Token::Word("helper" | "expectation") => {
                return refuse(
                    self.tokens.span_from(ct.start),
                    &refusals::CONNECTION_OBJECT,
                );
            }
            _ => return expected(span, "`timeout`"),
        }
        let objects = self.limits.objects;
        count(&mut self.counts.objects, objects, span, "named objects")?;
        let name = self.name("the name of the timeouts")?;
        let open = self.open()?;
        let (mut protocol, mut family, mut policy) = (None, None, Vec::new());
        let mut lines = [None; 3];
        while let Some(Spanned { span, node }) = self.item(open)? {
            match node {
                Token::Word("protocol") => {
                    once(&mut lines[0], span, "protocol")?;
                    self.tokens.take()?;
                    protocol = Some(self.protocol_of_timeouts()?);
                }
                Token::Word("l3proto") => {
                    once(&mut lines[1], span, "family")?;
                    self.tokens.take()?;
                    family = Some(self.family_of_timeouts()?);
                }
                Token::Word("policy") => {
                    once(&mut lines[2], span, "list of timeouts")?;
                    self.tokens.take()?;
                    policy = self.timeouts()?;
                }
                node => {
                    return unknown(span, node, &[], "`protocol`, `l3proto` or `policy`");
                }
            }
            self.separator()?;
        }
        let Some(protocol) = protocol else {
            return expected(name.span, "timeouts with a line `protocol ...`");
        };
        let mut what = TimeoutPolicy::new(protocol, family.unwrap_or(self.family));
        for (name, seconds) in policy {
            if what.set(name.node, seconds).is_none() {
                return expected(name.span, protocol.expected());
            }
        }
        let (what, comment) = (What::Timeout(what), None);
        Ok(Object {
            name,
            what,
            comment,
        })
    }

    fn protocol_of_timeouts(&mut self) -> Parsed<TimeoutsOf> {
        let Spanned { span, node } = self.tokens.take()?;
        let mut all = TimeoutsOf::ALL.into_iter();
        match all.find(|protocol| node == Token::Word(protocol.name())) {
            Some(protocol) => Ok(protocol),
            None => expected(span, "`tcp` or `udp`"),
        }
    }

    fn family_of_timeouts(&mut self) -> Parsed<Family> {
        let Spanned { span, node } = self.tokens.take()?;
        let mut all = Family::ALL.into_iter();
        match all.find(|family| node == Token::Word(family.name())) {
            Some(family) => Ok(family),
            None => expected(span, "`ip`, `ip6` or `inet`"),
        }
    }

    /// `= { NAME : SECONDS, ... }`.
    fn timeouts(&mut self) -> Parsed<Vec<(Spanned<&'a str>, u32)>> {
        self.mark("=")?;
        self.mark("{")?;
        let mut timeouts = Vec::new();
        loop {
            let Spanned { span, node } = self.tokens.take()?;
            match node {
                Token::Newline => continue,
                Token::Mark("}") => return Ok(timeouts),
                Token::Word(name) if timeouts.len() < TIMEOUTS_MAX => {
                    self.mark(":")?;
                    timeouts.push((Spanned::new(span, name), self.seconds()?));
                }
                Token::Word(_) => {
                    let (what, max) = ("timeouts in one list", TIMEOUTS_MAX);
                    return Err(Error::new(span, ErrorKind::Limit { what, max }));
                }
                _ => return expected(span, "the name of a timeout, such as `established`"),
            }
            let next = self.tokens.peek();
            match next.node {
                Token::Mark(",") => self.tokens.take().map(|_| ())?,
                Token::Mark("}") | Token::Newline => {}
                _ => return expected(next.span, "`,` or `}`"),
            }
        }
    }

    /// A number of seconds, or a time, which later versions of nft take.
    fn seconds(&mut self) -> Parsed<u32> {
        let Spanned { span, node } = self.tokens.take()?;
        match node {
            Token::Number(seconds) => match u32::try_from(seconds) {
                Ok(seconds) if seconds <= SECONDS_MAX => Ok(seconds),
                _ => {
                    let (what, max) = ("a timeout", SECONDS_MAX);
                    Err(Error::new(span, ErrorKind::TooLarge { what, max }))
                }
            },
            Token::Time(milliseconds) if milliseconds % 1000 == 0 => Ok(milliseconds / 1000),
            _ => expected(span, "a number of seconds"),
        }
    }

    /// `set "NAME"` behind `ct timeout`.
    pub(super) fn timeout_set(&mut self) -> Parsed<Statement<'a>> {
        self.tokens.take()?;
        let next = self.tokens.peek();
        match next.node {
            Token::Word("set") => self.named(ObjectKind::Timeout),
            _ => Err(Error::new(next.span, ErrorKind::ExpectedToken("set"))),
        }
    }
}
