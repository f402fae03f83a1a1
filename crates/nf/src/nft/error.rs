//! Why a file is refused, and where.

use super::ast::Span;
use crate::fields::{Field, Type};
use core::fmt;

/// The first thing in a file that is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// Where it stands.
    pub span: Span,
    /// What it is.
    pub kind: ErrorKind,
}

impl Error {
    /// An error at `span`.
    pub fn new(span: Span, kind: ErrorKind) -> Self {
        Self { span, kind }
    }
}

/// What is wrong with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Not what the grammar asks for here.
    Expected(&'static str),
    /// Not the one word or mark that the grammar asks for here.
    ExpectedToken(&'static str),
    /// The text ends in a block.
    Unclosed {
        /// Where the block begins.
        open: Span,
    },
    /// No statement, but almost this word.
    Misspelt(&'static Spelling),
    /// Not one of the fields of a header.
    ExpectedField {
        /// The header's name.
        header: &'static str,
    },
    /// Not one of the types that a set may have.
    ExpectedSetType,
    /// A keyword of nft where a name is asked for.
    Keyword,
    /// A name or string above its length.
    TooLong {
        /// What is too long.
        what: &'static str,
        /// The greatest length, in bytes.
        max: usize,
    },
    /// A quotation without its end on the same line.
    UnterminatedString,
    /// A control character in a string.
    ControlCharacter,
    /// A character that begins nothing.
    UnknownCharacter(char),
    /// A number, address or prefix that is none.
    BadLiteral(&'static str),
    /// A number that begins with a zero, so that it is octal, with digits that are not.
    BadOctal,
    /// A value above what its field holds.
    TooLarge {
        /// What the value is.
        what: &'static str,
        /// The largest one.
        max: u32,
    },
    /// Something of nft's language that has no meaning here, or none yet.
    Unsupported(&'static Refusal),
    /// A limit of [`super::Limits`] is passed.
    Limit {
        /// What there is too much of.
        what: &'static str,
        /// How much there may be.
        max: usize,
    },
    /// A name, or a part of a block, for the second time.
    Duplicate {
        /// What there are two of.
        what: &'static str,
        /// The first one.
        first: Span,
    },
    /// A name that nothing has.
    Unknown(&'static str),
    /// A value that is not of the field's type.
    Mismatch {
        /// What the field holds.
        expected: &'static str,
    },
    /// An element that has not as many parts as there are fields.
    Parts(usize),
    /// A range whose end is below its beginning.
    EmptyRange,
    /// A prefix or range in a set without `flags interval`.
    NeedsInterval,
    /// An element that overlaps another one, in a set without `auto-merge`.
    Overlap {
        /// The other element.
        other: Span,
    },
    /// A statement behind a verdict.
    AfterVerdict,
    /// Conditions on two protocols of which a frame has one.
    Conflict {
        /// The protocol that the rule asks for before.
        before: &'static str,
        /// The one that it asks for here.
        here: &'static str,
    },
    /// A jump that leads back to its own chain.
    Loop,
    /// Jumps nested deeper than nft allows.
    JumpDepth {
        /// The deepest nesting.
        max: usize,
    },
    /// A jump to a base chain.
    JumpToBase,
    /// No base chain, so that no frame would meet a rule.
    NoBaseChain,
    /// A rule that nft accepts, and in which it does something else than the rule says.
    Misleading(&'static Refusal),
    /// Something else that is not accepted.
    Refused(&'static Refusal),
}

/// What is refused, why, and what to write instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What it is, as the subject of a sentence.
    pub what: &'static str,
    /// Why, as the rest of that sentence.
    pub why: &'static str,
    /// What to write instead, if there is something.
    pub instead: Option<&'static str>,
}

/// A word that somebody may have meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spelling {
    /// The word.
    pub word: &'static str,
    /// What is said of it.
    pub help: &'static str,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl core::error::Error for Error {}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Expected(what) => write!(f, "expected {what}"),
            Self::ExpectedToken(token) => write!(f, "expected `{token}`"),
            Self::Unclosed { .. } => f.write_str("expected `}`"),
            Self::Misspelt(_) => f.write_str("expected a statement"),
            Self::ExpectedField { header } => expect_one(f, Field::words_behind(header)),
            Self::ExpectedSetType => expect_one(f, Type::of_sets().filter_map(Type::set_name)),
            Self::Keyword => f.write_str("this word is a keyword of nft, and no name"),
            Self::TooLong { what, max } => {
                write!(f, "this {what} is too long: at most {max} bytes")
            }
            Self::UnterminatedString => f.write_str("this string has no end on its line"),
            Self::ControlCharacter => f.write_str("a string holds no control characters"),
            Self::UnknownCharacter(character) => {
                write!(f, "`{}` begins nothing here", character.escape_debug())
            }
            Self::BadLiteral(what) => write!(f, "this is no {what}"),
            Self::BadOctal => {
                f.write_str("a number with leading zeros is octal, and this one has other digits")
            }
            Self::TooLarge { what, max } => write!(f, "{what} is at most {max}"),
            Self::Unsupported(refusal) | Self::Refused(refusal) | Self::Misleading(refusal) => {
                write!(f, "{} {}", refusal.what, refusal.why)
            }
            Self::Limit { what, max } => write!(f, "too many {what}: at most {max}"),
            Self::Duplicate { what, .. } => write!(f, "a second {what}"),
            Self::Unknown(what) => write!(f, "there is no such {what}"),
            Self::Mismatch { expected } => write!(f, "expected {expected}"),
            Self::Parts(1) => f.write_str("expected one value, and no concatenation"),
            Self::Parts(count) => {
                write!(
                    f,
                    "expected a concatenation of {count} parts, one for each field"
                )
            }
            Self::EmptyRange => f.write_str("this range ends below its beginning"),
            Self::NeedsInterval => {
                f.write_str("a set without `flags interval` holds no prefixes and ranges")
            }
            Self::Overlap { .. } => f.write_str("this element overlaps another one"),
            Self::AfterVerdict => f.write_str("a statement behind a verdict has no effect"),
            Self::Conflict { before, here } => {
                write!(
                    f,
                    "no frame is both {before} and {here}: the rule never matches"
                )
            }
            Self::Loop => f.write_str("this jump leads back to its own chain"),
            Self::JumpDepth { max } => write!(f, "jumps nest at most {max} deep"),
            Self::JumpToBase => f.write_str("a base chain is no target of jumps"),
            Self::NoBaseChain => f.write_str("no chain is at a hook: no frame meets a rule"),
        }
    }
}

/// Says that one of `words` is expected.
fn expect_one(
    f: &mut fmt::Formatter<'_>,
    words: impl Iterator<Item = &'static str> + Clone,
) -> fmt::Result {
    let mut words = words.peekable();
    let mut joint = "expected ";
    while let Some(word) = words.next() {
        write!(f, "{joint}{word}")?;
        let mut rest = words.clone();
        rest.next();
        joint = if rest.next().is_none() { " or " } else { ", " };
    }
    Ok(())
}

impl ErrorKind {
    /// What to write instead, if that is known.
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::UnterminatedString => Some("end it with `\"`; strings have no escapes"),
            Self::BadOctal => Some("write it without them, or as 0x.. in hexadecimal"),
            Self::Unsupported(refusal) | Self::Refused(refusal) | Self::Misleading(refusal) => {
                refusal.instead
            }
            Self::Misspelt(spelling) => Some(spelling.help),
            Self::NeedsInterval => Some("add `flags interval` to the set"),
            Self::Overlap { .. } => Some("join the elements, or add `auto-merge` to the set"),
            Self::AfterVerdict => Some("move it in front of the verdict"),
            Self::JumpToBase => Some("put the rules into a chain without `type ... hook`"),
            Self::NoBaseChain => {
                Some("begin a chain with `type filter hook forward priority filter; policy drop;`")
            }
            _ => None,
        }
    }

    /// Another place that the message is about, and what is there.
    pub fn other(&self) -> Option<(Span, &'static str)> {
        match *self {
            Self::Duplicate { first, .. } => Some((first, "the first one is here")),
            Self::Unclosed { open } => Some((open, "the `{` that has no end is here")),
            Self::Overlap { other } => Some((other, "the other one is here")),
            _ => None,
        }
    }
}
