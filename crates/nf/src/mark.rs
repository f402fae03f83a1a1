//! Marks: numbers that rules give to a packet on its way (`meta mark`) and to its connection
//! (`ct mark`).
//!
//! A packet's mark is 0 when it comes in, goes with it from hook to hook, and is gone when it has
//! left. That of a connection stays.

use crate::ir::Values;

/// Whose mark it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkOf {
    /// The packet's: `meta mark`.
    Packet,
    /// The connection's: `ct mark`.
    Connection,
}

impl MarkOf {
    /// Its name in nft.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Packet => "meta mark",
            Self::Connection => "ct mark",
        }
    }
}

/// An operation on the bits of a mark, with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitOperator {
    /// `&`.
    And,
    /// `^`.
    Xor,
    /// `|`.
    Or,
}

impl BitOperator {
    /// The mark as nft prints it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::And => "&",
            Self::Xor => "^",
            Self::Or => "|",
        }
    }
}

/// Gives a mark: what it is made of, under a mask, with some bits turned round (the kernel's
/// `nft_bitwise`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SetMark {
    pub(crate) of: MarkOf,
    /// The mark that it is made of; none of a number, which is `xor`.
    pub(crate) from: Option<MarkOf>,
    and: u32,
    xor: u32,
}

impl SetMark {
    /// A copy of another mark, or 0.
    pub(crate) const fn new(of: MarkOf, from: Option<MarkOf>) -> Self {
        Self {
            of,
            from,
            and: u32::MAX,
            xor: 0,
        }
    }

    /// Does one more operation on the bits.
    pub(crate) fn then(&mut self, operator: BitOperator, number: u32) {
        match operator {
            BitOperator::And => {
                self.and &= number;
                self.xor &= number;
            }
            BitOperator::Xor => self.xor ^= number,
            BitOperator::Or => {
                self.and &= !number;
                self.xor = self.xor & !number | number;
            }
        }
    }

    /// Whether it has to do with a connection.
    pub(crate) fn asks_connection(&self) -> bool {
        self.of == MarkOf::Connection || self.from == Some(MarkOf::Connection)
    }

    /// Gives the mark. Without a connection, that has none.
    pub(crate) fn run(&self, values: &Values<'_>) {
        let from = match self.from {
            None => 0,
            Some(MarkOf::Packet) => values.mark.get(),
            Some(MarkOf::Connection) => values.connection.map_or(0, |it| it.mark()),
        };
        let mark = from & self.and ^ self.xor;
        match self.of {
            MarkOf::Packet => values.mark.set(mark),
            MarkOf::Connection => {
                if let Some(connection) = values.connection {
                    connection.set_mark(mark);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn operations_follow_each_other(
            mark: u32,
            steps in proptest::collection::vec((0usize..3, any::<u32>()), 0..6),
        ) {
            let mut set = SetMark::new(MarkOf::Packet, Some(MarkOf::Packet));
            let mut expected = mark;
            for (operator, number) in steps {
                let operators = [BitOperator::And, BitOperator::Xor, BitOperator::Or];
                set.then(operators[operator], number);
                expected = [expected & number, expected ^ number, expected | number][operator];
            }
            prop_assert_eq!(mark & set.and ^ set.xor, expected);
        }
    }
}
