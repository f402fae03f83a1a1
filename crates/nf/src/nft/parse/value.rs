//! Values and sets of them.

use super::{Parsed, Parser, count, expected, refuse};
use crate::nft::ast::{Elements, Operand, Range, Span, Spanned, Value};
use crate::nft::error::{Error, ErrorKind};
use crate::nft::lex::Token;
use crate::nft::{refusals, words};
use alloc::boxed::Box;
use alloc::vec::Vec;

const VALUE: &str = "a value";

impl<'a> Parser<'a, '_> {
    /// What a field is compared with, or a variable stands for.
    pub(super) fn operand(&mut self) -> Parsed<Operand<'a>> {
        let Spanned { span, node } = self.tokens.peek();
        match node {
            Token::Set(name) => {
                self.tokens.take()?;
                Ok(Operand::Named(Spanned::new(span, name)))
            }
            Token::Mark("{") => self.braces().map(Operand::Set),
            _ => self.element().map(Operand::Value),
        }
    }

    /// `{ ... }`. A newline may stand where a blank may, but only one.
    fn braces(&mut self) -> Parsed<Spanned<Elements<'a>>> {
        let start = self.tokens.take()?.span.start;
        let rest = self.limits.elements - self.counts.elements;
        let commas = self.tokens.commas();
        let mut elements = Vec::with_capacity((commas + 1).min(rest).min(self.limits.set_elements));
        loop {
            self.newline()?;
            let Spanned { span, node } = self.tokens.peek();
            match node {
                Token::Mark("}") if !elements.is_empty() => break,
                Token::Mark(",") if !elements.is_empty() => {
                    self.tokens.take()?;
                    continue;
                }
                Token::Mark("{") => return refuse(span, &refusals::NESTED_SET),
                Token::Set(_) => return refuse(span, &refusals::NAMED_IN_SET),
                Token::Mark("}") => return expected(span, "an element: nft has no empty sets"),
                _ => {}
            }
            let max = self.limits.set_elements;
            if elements.len() == max {
                let what = "elements in one set";
                return Err(Error::new(span, ErrorKind::Limit { what, max }));
            }
            let max = self.limits.elements;
            count(&mut self.counts.elements, max, span, "elements in all sets")?;
            elements.push(self.element()?);
            self.newline()?;
            let Spanned { span, node } = self.tokens.peek();
            match node {
                Token::Mark(",") => self.tokens.take().map(|_| ())?,
                Token::Mark("}") => break,
                Token::Mark(":") => return refuse(span, &refusals::MAP),
                Token::Word("comment" | "timeout" | "expires" | "counter" | "limit") => {
                    return refuse(span, &refusals::ELEMENT_OPTION);
                }
                Token::Newline => return refuse(span, &refusals::BLANK_LINE),
                _ => return expected(span, "`,` or `}`"),
            }
        }
        self.tokens.take()?;
        let span = self.tokens.span_from(start);
        Ok(Spanned::new(span, elements.into_boxed_slice()))
    }

    /// Takes a newline, if there is one. A second one is an error.
    pub(super) fn newline(&mut self) -> Parsed<()> {
        if self.tokens.peek().node != Token::Newline {
            return Ok(());
        }
        self.tokens.take()?;
        let Spanned { span, node } = self.tokens.peek();
        match node {
            Token::Newline => refuse(span, &refusals::BLANK_LINE),
            _ => Ok(()),
        }
    }

    /// A value, range, prefix or variable.
    pub(super) fn value(&mut self) -> Parsed<Spanned<Value<'a>>> {
        let from = self.single()?;
        let Spanned { span, node } = self.tokens.peek();
        match node {
            Token::Mark("-") => {
                self.tokens.take()?;
                let to = self.single()?;
                let behind = self.tokens.peek();
                if matches!(behind.node, Token::Mark("-" | "/")) {
                    return expected(behind.span, "a range of two single values");
                }
                let span = join(from.span, to.span);
                Ok(Spanned::new(
                    span,
                    Value::Range(Box::new(Range { from, to })),
                ))
            }
            Token::Mark("/") => {
                self.tokens.take()?;
                self.prefix(from)
            }
            Token::Mark("&" | "|" | "^" | "<<" | ">>") => refuse(span, &refusals::BITS),
            _ => Ok(from),
        }
    }

    /// A value that is one token.
    fn single(&mut self) -> Parsed<Spanned<Value<'a>>> {
        let Spanned { span, node } = self.tokens.peek();
        let value = match node {
            Token::Number(number) => Value::Number(u32::try_from(number).map_err(|_| {
                let what = "a number";
                let max = u32::MAX;
                Error::new(span, ErrorKind::TooLarge { what, max })
            })?),
            Token::Time(milliseconds) => Value::Time(milliseconds),
            Token::Ipv4(address) => Value::Ipv4(address),
            Token::Ipv6(address) => Value::Ipv6(address),
            Token::Mac(address) => Value::Mac(address),
            Token::Text(text) => Value::Text(text),
            Token::Variable(name) => Value::Variable(name),
            Token::Word("map" | "vmap") => return refuse(span, &refusals::MAP),
            Token::Word("set") => return refuse(span, &refusals::MANGLE),
            Token::Word(word) if words::is_value(word) => Value::Word(word),
            Token::Mark("&" | "|" | "^" | "<<" | ">>") => return refuse(span, &refusals::BITS),
            _ => return expected(span, VALUE),
        };
        self.tokens.take()?;
        Ok(Spanned::new(span, value))
    }

    /// The length behind the `/` of a prefix.
    fn prefix(&mut self, address: Spanned<Value<'a>>) -> Parsed<Spanned<Value<'a>>> {
        let max = match address.node {
            Value::Ipv4(_) => 32,
            Value::Ipv6(_) => 128,
            Value::Mac(_) => return refuse(address.span, &refusals::MAC_PREFIX),
            _ => return expected(address.span, "an address in front of `/`"),
        };
        let Spanned { span, node } = self.tokens.peek();
        let length = match node {
            Token::Number(length) if length <= max => length as u8,
            Token::Number(_) => {
                let what = "the length of this prefix";
                let max = max as u32;
                return Err(Error::new(span, ErrorKind::TooLarge { what, max }));
            }
            Token::Ipv4(_) | Token::Ipv6(_) => {
                return expected(span, "the length of the prefix, such as 24");
            }
            _ => return expected(span, "the length of the prefix"),
        };
        self.tokens.take()?;
        let behind = self.tokens.peek();
        if behind.node == Token::Mark("-") {
            return expected(behind.span, "a range of two addresses, or a prefix");
        }
        let value = match address.node {
            Value::Ipv4(address) => Value::Ipv4Prefix(address, length),
            Value::Ipv6(address) => Value::Ipv6Prefix(address, length),
            value => value,
        };
        Ok(Spanned::new(join(address.span, span), value))
    }
}

fn join(from: Span, to: Span) -> Span {
    Span {
        start: from.start,
        end: to.end,
    }
}
