//! `fib`: which answers of a router's routes a rule asks for.

use super::Resolver;
use crate::fib::{Asked, Fib, FibPort, NO_PORT};
use crate::fields::Type;
use crate::ir::{Statement, complement};
use crate::nft::ast::{self, FibResult, FibTest, Hook, Span};
use crate::nft::{Error, ErrorKind, Refusal};
use alloc::boxed::Box;

const FIB_LATE: Refusal = Refusal {
    what: "`fib` at the hooks `output` and `postrouting`",
    why: "is not supported: there, the packet is routed already",
    instead: Some("put it into a chain at `prerouting`, `input` or `forward`"),
};
const FIB_OUTPUT: Refusal = Refusal {
    what: "`oif` beside the address of `fib`",
    why: "is known at the hook `forward` alone",
    instead: Some("leave it out, or write `iif`"),
};

/// Where `fib` stands: in which chain, and whether it asks for the port that a packet leaves by.
pub(super) type Asks = (usize, Span, bool);

impl<'f, 'a> Resolver<'f, 'a> {
    pub(super) fn fib(&mut self, fib: &'f ast::Fib<'a>, span: Span) -> Result<Statement, Error> {
        let none = u128::from(NO_PORT);
        let (asked, held) = match &fib.test {
            FibTest::Exists(false) => (Asked::Port, Box::from([(none, none)])),
            FibTest::Exists(true) => (Asked::Port, complement(&[(none, none)], none)),
            FibTest::Compared {
                result,
                operator,
                operand,
            } => {
                let (asked, kind) = match result {
                    FibResult::Type => (Asked::Kind, Type::AddressKind),
                    FibResult::Oif | FibResult::Oifname => (Asked::Port, Type::InterfaceName),
                };
                (asked, self.scope.compared(kind, *operator, operand)?)
            }
        };
        let asks = (self.program.chains.len(), span, fib.port == FibPort::Output);
        self.fibs.push(asks);
        self.program.fibs.push(Fib {
            of_source: fib.of_source,
            port: fib.port,
            asked,
            held,
        });
        Ok(Statement::Fib(self.program.fibs.len() as u32 - 1))
    }

    /// Refuses `fib` where no routes are known.
    pub(super) fn check_fibs(&self, hook: Hook, reached: &[bool]) -> Result<(), Error> {
        let mut here = self.fibs.iter().filter(|(chain, ..)| reached[*chain]);
        let refuse = |span: &Span, why| Err(Error::new(*span, ErrorKind::Refused(why)));
        let refused = here.find_map(|(_, span, output)| match hook {
            Hook::Output | Hook::Postrouting => Some((span, &FIB_LATE)),
            Hook::Prerouting | Hook::Input if *output => Some((span, &FIB_OUTPUT)),
            _ => None,
        });
        refused.map_or(Ok(()), |(span, why)| refuse(span, why))
    }
}
