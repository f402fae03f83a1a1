//! Maps: from what a field has to a verdict, or to what an end of a connection is called.

use super::{Parsed, Parser, count, expected, once, refuse, unknown};
use crate::fields::{Field, Type};
use crate::nft::ast::{
    Map, Name, NatElement, NatMap, Operand, Span, Spanned, Statement, Value, Verdict, VerdictMap,
    Verdicts, Vmap,
};
use crate::nft::error::{Error, ErrorKind};
use crate::nft::lex::Token;
use crate::nft::refusals;
use alloc::boxed::Box;
use alloc::vec::Vec;

impl<'a> Parser<'a, '_> {
    /// What stands behind `vmap`.
    pub(super) fn vmap(&mut self, fields: Box<[Spanned<Field>]>) -> Parsed<Statement<'a>> {
        self.tokens.take()?;
        let Spanned { span, node } = self.tokens.peek();
        let map = match node {
            Token::Set(name) => {
                self.tokens.take()?;
                VerdictMap::Named(Spanned::new(span, name))
            }
            _ => VerdictMap::Elements(self.verdicts()?),
        };
        Ok(Statement::Vmap(Box::new(Vmap { fields, map })))
    }

    /// `map NAME { type TYPE : verdict; ... }`.
    pub(super) fn map(&mut self) -> Parsed<Map<'a>> {
        self.tokens.take()?;
        let name = self.name("the name of the map")?;
        let open = self.open()?;
        let mut lines: [Option<Span>; 3] = [None; 3];
        let mut keys = None;
        let (mut interval, mut constant) = (false, false);
        let mut elements = Verdicts::default();
        let mut comment: Option<Name<'a>> = None;
        while let Some(Spanned { span, node }) = self.item(open)? {
            match node {
                Token::Word("type") => {
                    once(&mut lines[0], span, "type")?;
                    self.tokens.take()?;
                    keys = Some(self.map_types()?);
                    self.separator()?;
                }
                Token::Word("flags") => {
                    once(&mut lines[1], span, "line of flags")?;
                    self.tokens.take()?;
                    (interval, constant) = self.flags_of_map()?;
                    self.separator()?;
                }
                Token::Word("elements") => {
                    once(&mut lines[2], span, "list of elements")?;
                    self.tokens.take()?;
                    self.mark("=")?;
                    elements = self.verdicts()?.node;
                }
                Token::Word("comment") => {
                    self.block_comment(&mut comment)?;
                    self.separator()?;
                }
                node => {
                    let what = "`type`, `flags` or `elements`";
                    return unknown(span, node, refusals::IN_SET, what);
                }
            }
        }
        let keys = keys.ok_or(Error::new(
            name.span,
            ErrorKind::Expected("a map with a line `type ... : verdict`"),
        ))?;
        Ok(Map {
            name,
            keys,
            interval,
            constant,
            elements,
            comment,
        })
    }

    /// `TYPE : verdict`.
    fn map_types(&mut self) -> Parsed<Box<[Spanned<Type>]>> {
        let keys = self.set_types()?;
        self.mark(":")?;
        let Spanned { span, node } = self.tokens.take()?;
        match node {
            Token::Word("verdict") => Ok(keys),
            _ => refuse(span, &refusals::MAP_OF_VALUES),
        }
    }

    /// `{ KEY : VERDICT, ... }`.
    fn verdicts(&mut self) -> Parsed<Spanned<Verdicts<'a>>> {
        let start = self.tokens.peek().span.start;
        let elements = self.pairs(Self::element_verdict)?;
        let span = self.tokens.span_from(start);
        Ok(Spanned::new(span, elements.into_boxed_slice()))
    }

    fn element_verdict(&mut self) -> Parsed<Spanned<Verdict<'a>>> {
        let Spanned { span, node } = self.tokens.take()?;
        let verdict = match node {
            Token::Word("accept") => Verdict::Accept,
            Token::Word("drop") => Verdict::Drop,
            Token::Word("return") => Verdict::Return,
            Token::Word("jump") => Verdict::Jump(self.target()?),
            Token::Word("goto") => Verdict::Goto(self.target()?),
            node => return unknown(span, node, refusals::STATEMENTS, "a verdict"),
        };
        Ok(Spanned::new(self.tokens.span_from(span.start), verdict))
    }

    /// `{ KEY : VALUE, ... }`, with newlines where blanks may be.
    fn pairs<T>(
        &mut self,
        mut value: impl FnMut(&mut Self) -> Parsed<T>,
    ) -> Parsed<Vec<(Spanned<Value<'a>>, T)>> {
        self.mark("{")?;
        let mut pairs = Vec::new();
        loop {
            self.newline()?;
            let Spanned { span, node } = self.tokens.peek();
            if node == Token::Mark("}") && !pairs.is_empty() {
                break;
            }
            let max = self.limits.set_elements;
            if pairs.len() == max {
                let what = "elements in one set";
                return Err(Error::new(span, ErrorKind::Limit { what, max }));
            }
            let max = self.limits.elements;
            count(&mut self.counts.elements, max, span, "elements in all sets")?;
            let key = self.element()?;
            self.mark(":")?;
            pairs.push((key, value(self)?));
            self.newline()?;
            let Spanned { span, node } = self.tokens.peek();
            match node {
                Token::Mark(",") => self.tokens.take().map(|_| ())?,
                Token::Mark("}") => break,
                _ => return expected(span, "`,` or `}`"),
            }
        }
        self.tokens.take()?;
        Ok(pairs)
    }

    /// `FIELD map { KEY : ADDRESS, ... }` behind a translation's `to`.
    pub(super) fn nat_map(&mut self) -> Parsed<NatMap<'a>> {
        let Spanned { span, node } = self.tokens.take()?;
        let Token::Word(word) = node else {
            return expected(span, "an address, or a field and `map`");
        };
        let field = match refusals::find(refusals::STATEMENTS, word) {
            Some(refusal) => return refuse(span, refusal),
            None => self.field(word)?,
        };
        let Some(field) = field else {
            return expected(span, "an address, or a field and `map`");
        };
        let field = Spanned::new(self.tokens.span_from(span.start), field);
        self.word("map")?;
        let elements = self.pairs(|parser| {
            let address = Operand::Value(parser.value()?);
            let port = match parser.tokens.peek().node {
                Token::Mark(".") => {
                    parser.tokens.take()?;
                    Some(Operand::Value(parser.value()?))
                }
                _ => None,
            };
            Ok((address, port))
        })?;
        let elements = elements.into_iter();
        let elements = elements.map(|(key, (address, port))| NatElement { key, address, port });
        Ok(NatMap {
            field,
            elements: elements.collect(),
        })
    }
}
