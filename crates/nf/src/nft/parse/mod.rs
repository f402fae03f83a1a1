//! The grammar of a file: one function for each of its parts, and one token of foresight.
//!
//! Nothing is nested deeper than a rule in a chain in a table, so the functions do not recurse.

mod base;
mod change;
mod fib;
mod flags;
mod flowtable;
mod joint;
mod limit;
mod map;
mod mark;
mod nat;
mod object;
mod reject;
mod statement;
mod timeout;
mod value;
mod zone;

use super::ast::{
    Define, Elements, Family, File, Item, Name, ObjectKind, Operand, Set, Span, Spanned, Table,
    TableItem,
};
use super::error::{Error, ErrorKind, Refusal};
use super::lex::{Token, Tokens};
use super::limits::Limits;
use super::{refusals, words};
use crate::fields::Type;
use alloc::boxed::Box;
use alloc::vec::Vec;

type Parsed<T> = Result<T, Error>;

/// Longest comment, in bytes (nft's NFTNL_UDATA_COMMENT_MAXLEN).
const COMMENT_MAX: usize = 128;
/// The end of a line or of what stands on it.
const SEPARATOR: &str = "a newline or `;`";

/// Reads a whole file.
///
/// # Errors
///
/// The first thing in it that is not accepted.
pub fn parse<'a>(text: &'a str, limits: &Limits) -> Parsed<File<'a>> {
    let bytes = limits.bytes.min(u32::MAX as usize);
    if text.len() > bytes {
        let end = u32::try_from(bytes).unwrap_or(u32::MAX);
        let kind = ErrorKind::Limit {
            what: "bytes in the file",
            max: bytes,
        };
        return Err(Error::new(Span { start: end, end }, kind));
    }
    Parser {
        tokens: Tokens::new(text)?,
        limits,
        counts: Counts::default(),
        family: Family::Bridge,
    }
    .file()
}

/// What there is so far, for the limits.
#[derive(Default)]
struct Counts {
    rules: usize,
    chains: usize,
    sets: usize,
    objects: usize,
    defines: usize,
    elements: usize,
}

struct Parser<'a, 'l> {
    tokens: Tokens<'a>,
    limits: &'l Limits,
    counts: Counts,
    /// The family of the table at hand.
    family: Family,
}

impl<'a> Parser<'a, '_> {
    fn file(mut self) -> Parsed<File<'a>> {
        let mut items = Vec::new();
        let mut table: Option<Family> = None;
        loop {
            let Spanned { span, node } = self.tokens.peek();
            match node {
                Token::End => return Ok(File { items }),
                Token::Newline | Token::Mark(";") => {
                    self.tokens.take()?;
                    continue;
                }
                Token::Word("flush") => {
                    let flush = self.flush()?;
                    if table.is_some() {
                        return refuse(flush.span, &refusals::FLUSH_LATE);
                    }
                    items.push(Item::FlushRuleset(flush));
                }
                Token::Word("define" | "redefine") => items.push(Item::Define(self.define()?)),
                Token::Word("undefine") => items.push(Item::Undefine(self.undefine()?)),
                Token::Word("table") => {
                    let next = self.table()?;
                    let family = next.family.node;
                    let of_bridge = |family| family == Family::Bridge;
                    if table.is_some_and(|before| of_bridge(before) || of_bridge(family)) {
                        return refuse(span, &refusals::SECOND_TABLE);
                    }
                    table = Some(family);
                    items.push(Item::Table(next));
                }
                Token::Word(word) => {
                    if let Some(refusal) = refusals::find(refusals::COMMANDS, word) {
                        return refuse(span, refusal);
                    }
                    return expected(span, "`table`, `define` or `flush ruleset`");
                }
                _ => return expected(span, "`table`, `define` or `flush ruleset`"),
            }
            if self.tokens.peek().node != Token::End {
                self.separator()?;
            }
        }
    }

    fn flush(&mut self) -> Parsed<Spanned<()>> {
        let start = self.tokens.take()?.span.start;
        let what = self.tokens.take()?;
        let span = self.tokens.span_from(start);
        match what.node {
            Token::Word("ruleset") => Ok(Spanned::new(span, ())),
            Token::Word(_) => refuse(span, &refusals::FLUSH_PART),
            _ => expected(what.span, "`ruleset`"),
        }
    }

    fn define(&mut self) -> Parsed<Define<'a>> {
        let Spanned { span, node } = self.tokens.take()?;
        let again = node == Token::Word("redefine");
        count(
            &mut self.counts.defines,
            self.limits.defines,
            span,
            "variables",
        )?;
        let name = self.name("the name of the variable")?;
        self.mark("=")?;
        let value = self.operand()?;
        match value {
            Operand::Named(set) => refuse(set.span, &refusals::DEFINED_NAME),
            value => Ok(Define { name, again, value }),
        }
    }

    fn undefine(&mut self) -> Parsed<Name<'a>> {
        self.tokens.take()?;
        self.name("the name of the variable")
    }

    fn table(&mut self) -> Parsed<Table<'a>> {
        self.tokens.take()?;
        let family = self.family()?;
        self.family = family.node;
        let name = self.name("the name of the table")?;
        let open = self.open()?;
        let mut items = Vec::new();
        let mut comment = None;
        while let Some(Spanned { span, node }) = self.item(open)? {
            match node {
                Token::Word("define" | "redefine") => {
                    items.push(TableItem::Define(self.define()?));
                }
                Token::Word("undefine") => items.push(TableItem::Undefine(self.undefine()?)),
                Token::Word("flowtable") if self.family != Family::Bridge => {
                    items.push(TableItem::Flowtable(self.flowtable()?));
                }
                Token::Word("set") => {
                    count(&mut self.counts.sets, self.limits.sets, span, "sets")?;
                    items.push(TableItem::Set(self.set()?));
                }
                Token::Word("map") => {
                    count(&mut self.counts.sets, self.limits.sets, span, "sets")?;
                    items.push(TableItem::Map(self.map()?));
                }
                Token::Word("counter") => {
                    items.push(TableItem::Object(self.object(ObjectKind::Counter)?));
                }
                Token::Word("quota") => {
                    items.push(TableItem::Object(self.object(ObjectKind::Quota)?));
                }
                Token::Word("limit") => {
                    items.push(TableItem::Object(self.object(ObjectKind::Limit)?));
                }
                Token::Word("ct") => items.push(TableItem::Object(self.connection_object()?)),
                Token::Word("chain") => {
                    count(&mut self.counts.chains, self.limits.chains, span, "chains")?;
                    items.push(TableItem::Chain(self.chain()?));
                }
                Token::Word("comment") => self.block_comment(&mut comment)?,
                node => {
                    return unknown(
                        span,
                        node,
                        refusals::IN_TABLE,
                        "`chain`, `set`, `map` or `define`",
                    );
                }
            }
            self.separator()?;
        }
        Ok(Table {
            family,
            name,
            items,
            comment,
        })
    }

    fn family(&mut self) -> Parsed<Spanned<Family>> {
        let Spanned { span, node } = self.tokens.take()?;
        let Token::Word(word) = node else {
            return expected(span, "the family of the table");
        };
        if let Some(family) = Family::ALL.into_iter().find(|it| it.name() == word) {
            return Ok(Spanned::new(span, family));
        }
        let refusal = refusals::find(refusals::FAMILIES, word);
        refuse(span, refusal.unwrap_or(&refusals::NO_FAMILY))
    }

    /// The brace that begins a block.
    fn open(&mut self) -> Parsed<Span> {
        let span = self.tokens.peek().span;
        self.mark("{").map(|()| span)
    }

    /// The first token of the next thing in the block that begins at `open`, or none if the block
    /// ends here.
    fn item(&mut self, open: Span) -> Parsed<Option<Spanned<Token<'a>>>> {
        loop {
            let token = self.tokens.peek();
            match token.node {
                Token::Newline | Token::Mark(";") => self.tokens.take()?,
                Token::Mark("}") => {
                    self.tokens.take()?;
                    return Ok(None);
                }
                Token::End => return Err(Error::new(token.span, ErrorKind::Unclosed { open })),
                _ => return Ok(Some(token)),
            };
        }
    }

    fn set(&mut self) -> Parsed<Set<'a>> {
        self.tokens.take()?;
        let name = self.name("the name of the set")?;
        let open = self.open()?;
        let mut keys = None;
        let mut lines: [Option<Span>; 5] = [None; 5];
        let mut set = change::empty_set(name);
        while let Some(Spanned { span, node }) = self.item(open)? {
            match node {
                Token::Word("type") => {
                    once(&mut lines[0], span, "type")?;
                    self.tokens.take()?;
                    keys = Some(self.set_types()?);
                    self.separator()?;
                }
                Token::Word("flags") => {
                    once(&mut lines[1], span, "line of flags")?;
                    self.tokens.take()?;
                    self.flags_of_set(&mut set)?;
                    self.separator()?;
                }
                Token::Word("timeout") => {
                    once(&mut lines[3], span, "timeout")?;
                    self.tokens.take()?;
                    set.timeout = Some(self.time()?);
                    self.separator()?;
                }
                Token::Word("size") => {
                    once(&mut lines[4], span, "size")?;
                    self.tokens.take()?;
                    set.size = Some(self.size()?);
                    self.separator()?;
                }
                Token::Word("auto-merge") => {
                    self.tokens.take()?;
                    set.auto_merge = true;
                }
                Token::Word("elements") => {
                    once(&mut lines[2], span, "list of elements")?;
                    self.tokens.take()?;
                    self.mark("=")?;
                    set.elements = self.set_elements()?;
                }
                Token::Word("comment") => {
                    self.block_comment(&mut set.comment)?;
                    self.separator()?;
                }
                node => {
                    let what = "`type`, `flags`, `timeout`, `size`, `auto-merge` or `elements`";
                    return unknown(span, node, refusals::IN_SET, what);
                }
            }
        }
        set.keys = keys.ok_or(Error::new(
            name.span,
            ErrorKind::Expected("a set with a line `type ...`"),
        ))?;
        Ok(set)
    }

    fn set_type(&mut self) -> Parsed<Spanned<Type>> {
        let Spanned { span, node } = self.tokens.take()?;
        let wrong = match node {
            Token::Word(word) => match Type::of_sets().find(|key| key.set_name() == Some(word)) {
                Some(key) => return Ok(Spanned::new(span, key)),
                None => refusals::find(refusals::SET_TYPES, word),
            },
            Token::Variable(_) => Some(&refusals::VARIABLE_HERE),
            _ => None,
        };
        match wrong {
            Some(refusal) => refuse(span, refusal),
            None => Err(Error::new(span, ErrorKind::ExpectedSetType)),
        }
    }

    /// `{ ... }`, or `$NAME` for a set of that.
    fn set_elements(&mut self) -> Parsed<Elements<'a>> {
        let at = self.tokens.peek().span;
        match self.operand()? {
            Operand::Set(set) => Ok(set.node),
            Operand::Value(value) if matches!(value.node, super::ast::Value::Variable(_)) => {
                Ok(Box::new([value]))
            }
            _ => expected(at, "`{`"),
        }
    }

    /// `comment "..."` of a block.
    fn block_comment(&mut self, comment: &mut Option<Name<'a>>) -> Parsed<()> {
        let mut first = comment.map(|comment| comment.span);
        once(&mut first, self.tokens.peek().span, "comment")?;
        *comment = Some(self.comment()?);
        Ok(())
    }

    fn comment(&mut self) -> Parsed<Name<'a>> {
        self.tokens.take()?;
        self.string("comment", COMMENT_MAX)
    }

    /// A string of at most `max` bytes.
    fn string(&mut self, what: &'static str, max: usize) -> Parsed<Name<'a>> {
        let Spanned { span, node } = self.tokens.take()?;
        match node {
            Token::Text(text) if text.len() <= max => Ok(Spanned::new(span, text)),
            Token::Text(_) => Err(Error::new(span, ErrorKind::TooLong { what, max })),
            _ => expected(span, "a string in quotes"),
        }
    }

    /// The name of something.
    fn name(&mut self, what: &'static str) -> Parsed<Name<'a>> {
        let Spanned { span, node } = self.tokens.take()?;
        let Token::Word(name) = node else {
            return expected(span, what);
        };
        if words::is_keyword(name) {
            return Err(Error::new(span, ErrorKind::Keyword));
        }
        if name.ends_with('*') || name.starts_with(|first: char| first.is_ascii_digit()) {
            return expected(span, what);
        }
        if name.len() > self.limits.name {
            let max = self.limits.name;
            let what = "name";
            return Err(Error::new(span, ErrorKind::TooLong { what, max }));
        }
        Ok(Spanned::new(span, name))
    }

    fn word(&mut self, word: &'static str) -> Parsed<()> {
        let Spanned { span, node } = self.tokens.take()?;
        match node {
            Token::Word(found) if found == word => Ok(()),
            _ => Err(Error::new(span, ErrorKind::ExpectedToken(word))),
        }
    }

    fn mark(&mut self, mark: &'static str) -> Parsed<()> {
        let Spanned { span, node } = self.tokens.take()?;
        if node == Token::Mark(mark) {
            return Ok(());
        }
        Err(Error::new(span, ErrorKind::ExpectedToken(mark)))
    }

    /// What nft wants behind each statement, in front of `}` too.
    fn separator(&mut self) -> Parsed<()> {
        let Spanned { span, node } = self.tokens.peek();
        match node {
            Token::Newline | Token::Mark(";") => self.tokens.take().map(|_| ()),
            _ => expected(span, SEPARATOR),
        }
    }
}

fn expected<T>(span: Span, what: &'static str) -> Parsed<T> {
    Err(Error::new(span, ErrorKind::Expected(what)))
}

fn refuse<T>(span: Span, refusal: &'static Refusal) -> Parsed<T> {
    Err(Error::new(span, ErrorKind::Unsupported(refusal)))
}

/// The error for a token that is not one of `what`: a refusal with its reason if there is one.
fn unknown<T>(
    span: Span,
    token: Token<'_>,
    refusals: &'static [(&'static str, Refusal)],
    what: &'static str,
) -> Parsed<T> {
    match token {
        Token::Word(word) => match refusals::find(refusals, word) {
            Some(refusal) => refuse(span, refusal),
            None => expected(span, what),
        },
        Token::Variable(_) => refuse(span, &refusals::VARIABLE_HERE),
        _ => expected(span, what),
    }
}

/// Counts one more, up to `max`.
fn count(counter: &mut usize, max: usize, span: Span, what: &'static str) -> Parsed<()> {
    if *counter == max {
        return Err(Error::new(span, ErrorKind::Limit { what, max }));
    }
    *counter += 1;
    Ok(())
}

/// Remembers where something stands that there is one of.
fn once(first: &mut Option<Span>, span: Span, what: &'static str) -> Parsed<()> {
    match *first {
        Some(first) => Err(Error::new(span, ErrorKind::Duplicate { what, first })),
        None => {
            *first = Some(span);
            Ok(())
        }
    }
}
