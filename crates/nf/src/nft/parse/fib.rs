//! `fib`: what routes say of an address.

use super::{Parsed, Parser, expected, once, refuse};
use crate::fib::FibPort;
use crate::nft::ast::{
    Fib, FibResult, FibTest, Operand, Operator, Span, Spanned, Statement, Value,
};
use crate::nft::lex::Token;
use crate::nft::refusals;
use alloc::boxed::Box;

impl<'a> Parser<'a, '_> {
    /// What stands behind `fib`.
    pub(super) fn fib(&mut self) -> Parsed<Statement<'a>> {
        let start = self.tokens.peek().span.start;
        let (mut of_source, mut port) = (None, FibPort::Any);
        let (mut address_at, mut port_at): (Option<Span>, Option<Span>) = (None, None);
        loop {
            let Spanned { span, node } = self.tokens.take()?;
            match node {
                Token::Word(word @ ("saddr" | "daddr")) => {
                    once(&mut address_at, span, "address of `fib`")?;
                    of_source = Some(word == "saddr");
                }
                Token::Word(word @ ("iif" | "oif")) => {
                    once(&mut port_at, span, "interface of `fib`")?;
                    port = if word == "iif" {
                        FibPort::Input
                    } else {
                        FibPort::Output
                    };
                }
                Token::Word("mark") => return refuse(span, &refusals::FIB_MARK),
                _ => return expected(span, "saddr, daddr, iif or oif"),
            }
            if self.tokens.peek().node != Token::Mark(".") {
                break;
            }
            self.tokens.take()?;
        }
        let Some(of_source) = of_source else {
            let span = self.tokens.span_from(start);
            return expected(span, "`saddr` or `daddr` in `fib`");
        };
        let test = self.fib_test()?;
        Ok(Statement::Fib(Box::new(Fib {
            of_source,
            port,
            test,
        })))
    }

    /// `oif missing`, or a comparison.
    fn fib_test(&mut self) -> Parsed<FibTest<'a>> {
        let Spanned { span, node } = self.tokens.take()?;
        let result = FibResult::ALL
            .into_iter()
            .find(|result| node == Token::Word(result.name()));
        let Some(result) = result else {
            return expected(span, "oif, oifname or type");
        };
        let next = self.tokens.peek();
        match next.node {
            Token::Word(word @ ("exists" | "missing")) if result == FibResult::Oif => {
                self.tokens.take()?;
                return Ok(FibTest::Exists(word == "exists"));
            }
            Token::Word("vmap") => return refuse(next.span, &refusals::FIB_MAP),
            _ => {}
        }
        let operator = match next.node {
            Token::Mark("==") | Token::Word("eq") => Some(Operator::Equal),
            Token::Mark("!=") | Token::Word("ne") => Some(Operator::NotEqual),
            Token::Mark("<" | ">" | "<=" | ">=") | Token::Word("lt" | "gt" | "le" | "ge") => {
                return refuse(next.span, &refusals::FIB_ORDER);
            }
            _ => None,
        };
        let operator = match operator {
            Some(operator) => Spanned::new(self.tokens.take()?.span, operator),
            None => Spanned::new(span, Operator::Equal),
        };
        let operand = self.operand()?;
        match &operand {
            Operand::Value(value)
                if result == FibResult::Oif && matches!(value.node, Value::Number(_)) =>
            {
                return refuse(value.span, &refusals::FIB_INDEX);
            }
            Operand::Named(name) => return refuse(name.span, &refusals::FIB_NAMED),
            _ => {}
        }
        Ok(FibTest::Compared {
            result,
            operator,
            operand,
        })
    }
}
