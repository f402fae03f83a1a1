//! `reject`, and what it tells the sender of a packet.

use super::{Parsed, Parser, expected};
use crate::fields::{ICMPX_CODES, Symbols, Type};
use crate::nft::ast::{RejectWith, Spanned, Statement};
use crate::nft::error::{Error, ErrorKind};
use crate::nft::lex::Token;

impl<'a> Parser<'a, '_> {
    /// What may stand behind `reject`.
    pub(super) fn reject(&mut self) -> Parsed<Statement<'a>> {
        if self.tokens.peek().node != Token::Word("with") {
            return Ok(Statement::Reject(None));
        }
        self.tokens.take()?;
        let Spanned { span, node } = self.tokens.take()?;
        let with = match node {
            Token::Word("icmp") => RejectWith::Icmp(self.code(Type::IcmpCode.symbols())?),
            Token::Word("icmpv6") => RejectWith::Icmpv6(self.code(Type::Icmpv6Code.symbols())?),
            Token::Word("icmpx") => RejectWith::Icmpx(self.code_of_both()?),
            Token::Word("tcp") => {
                self.word("reset")?;
                RejectWith::TcpReset
            }
            _ => return expected(span, "`icmp`, `icmpv6`, `icmpx` or `tcp reset`"),
        };
        Ok(Statement::Reject(Some(with)))
    }

    /// A code, of which nft has four.
    fn code_of_both(&mut self) -> Parsed<u8> {
        let span = self.tokens.peek().span;
        let code = self.code(ICMPX_CODES)?;
        let known = ICMPX_CODES.iter().any(|(_, known)| *known == code.into());
        match known {
            true => Ok(code),
            false => expected(
                span,
                "no-route, port-unreachable, host-unreachable or admin-prohibited",
            ),
        }
    }

    /// The code behind `icmp`, `icmpv6` or `icmpx`, perhaps with `type` in front of it.
    fn code(&mut self, symbols: &Symbols) -> Parsed<u8> {
        if self.tokens.peek().node == Token::Word("type") {
            self.tokens.take()?;
        }
        let Spanned { span, node } = self.tokens.take()?;
        match node {
            Token::Number(number) => u8::try_from(number).map_err(|_| {
                let (what, max) = ("a code", u32::from(u8::MAX));
                Error::new(span, ErrorKind::TooLarge { what, max })
            }),
            Token::Word(word) => {
                let known = symbols.iter().find(|(name, _)| *name == word);
                match known.and_then(|(_, code)| u8::try_from(*code).ok()) {
                    Some(code) => Ok(code),
                    None => expected(span, "a code, such as port-unreachable, or a number"),
                }
            }
            _ => expected(span, "a code, such as port-unreachable, or a number"),
        }
    }
}
