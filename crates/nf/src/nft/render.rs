//! An error as a compiler prints it.
//!
//! ```text
//! error: ct is not supported: rules see each frame alone
//!  --> rules.nft:7:3
//!   |
//! 7 |         ct state established accept
//!   |         ^^
//!   = help: accept the answers by their source port
//! ```

use super::ast::Span;
use super::error::Error;
use core::fmt;

/// Characters of a line that are shown; longer lines are cut around the place.
const COLUMNS_MAX: usize = 96;
/// Characters shown in front of the place in a line that is cut.
const COLUMNS_BEFORE: usize = 40;
/// What a tab is shown as.
const TAB: &str = "    ";

impl Error {
    /// The error as a compiler prints it: what, where, the line with a mark under the place, and
    /// what to write instead. `text` is the text that was parsed, `file` its name for the reader.
    pub fn render<'a>(&'a self, file: &'a str, text: &'a str) -> impl fmt::Display + 'a {
        let other = self.kind.other();
        Report {
            error: self,
            file,
            text,
            other: other.map(|(span, what)| (file, text, span, what)),
        }
    }
}

/// What [`Error::render`] prints.
pub(super) struct Report<'a> {
    pub(super) error: &'a Error,
    pub(super) file: &'a str,
    pub(super) text: &'a str,
    /// Another place: its file, the text of that, where, and what is there.
    pub(super) other: Option<(&'a str, &'a str, Span, &'static str)>,
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            error,
            file,
            text,
            other,
        } = self;
        let place = Place::find(text, error.span);
        let (line, column) = (place.line, place.column);
        writeln!(f, "error: {}", error.kind)?;
        let margin = digits(line);
        writeln!(f, "{:margin$}--> {file}:{line}:{column}", "")?;
        writeln!(f, "{:margin$} |", "")?;
        write!(f, "{line} | ")?;
        place.source(f)?;
        write!(f, "\n{:margin$} | ", "")?;
        place.mark(f)?;
        if let Some((file, text, other, what)) = other {
            let Place { line, column, .. } = Place::find(text, *other);
            write!(f, "\n{:margin$} = note: {what}: {file}:{line}:{column}", "")?;
        }
        if let Some(help) = error.kind.help() {
            write!(f, "\n{:margin$} = help: {help}", "")?;
        }
        Ok(())
    }
}

/// Number of decimal digits.
fn digits(number: usize) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}

/// A span as lines and columns, and the part of its first line that is shown.
struct Place<'a> {
    /// From 1.
    line: usize,
    /// In characters, from 1.
    column: usize,
    /// Whether characters of the line in front of `before` are left out.
    cut_before: bool,
    before: &'a str,
    marked: &'a str,
    after: &'a str,
    cut_after: bool,
}

impl<'a> Place<'a> {
    /// A span outside of the text is taken for its nearest place in it.
    fn find(text: &'a str, span: Span) -> Self {
        let start = floor(text, span.start as usize);
        let end = floor(text, span.end as usize).max(start);
        let head = &text[..start];
        let line_start = head.rfind('\n').map_or(0, |newline| newline + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |n| start + n);
        let before = &text[line_start..start];
        let rest = text[start..line_end].trim_end();
        let marked_bytes = (end - start).min(rest.len());
        let rest_shown = prefix(rest, COLUMNS_MAX - COLUMNS_BEFORE);
        let before_shown = suffix(before, COLUMNS_BEFORE);
        let marked = &rest_shown[..marked_bytes.min(rest_shown.len())];
        Self {
            line: head.bytes().filter(|byte| *byte == b'\n').count() + 1,
            column: before.chars().count() + 1,
            cut_before: before_shown.len() < before.len(),
            before: before_shown,
            marked,
            after: &rest_shown[marked.len()..],
            cut_after: rest_shown.len() < rest.len(),
        }
    }

    fn source(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.cut_before {
            f.write_str("...")?;
        }
        for part in [self.before, self.marked, self.after] {
            part.chars().try_for_each(|character| show(f, character))?;
        }
        if self.cut_after {
            f.write_str("...")?;
        }
        Ok(())
    }

    fn mark(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cut = if self.cut_before { 3 } else { 0 };
        let before = cut + self.before.chars().map(width).sum::<usize>();
        let marked = self.marked.chars().map(width).sum::<usize>().max(1);
        write!(f, "{:before$}{:^<marked$}", "", "")
    }
}

/// A character as the terminal may see it: a control character would be a command to it.
fn show(f: &mut fmt::Formatter<'_>, character: char) -> fmt::Result {
    match character {
        '\t' => f.write_str(TAB),
        character if character.is_control() => write!(f, "\u{fffd}"),
        character => write!(f, "{character}"),
    }
}

/// Columns of a character as [`show`] writes it.
fn width(character: char) -> usize {
    if character == '\t' { TAB.len() } else { 1 }
}

/// The character boundary at or in front of `offset`.
fn floor(text: &str, offset: usize) -> usize {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    offset
}

/// The first `count` characters.
fn prefix(text: &str, count: usize) -> &str {
    match text.char_indices().nth(count) {
        Some((offset, _)) => &text[..offset],
        None => text,
    }
}

/// The last `count` characters.
fn suffix(text: &str, count: usize) -> &str {
    match text.char_indices().rev().nth(count) {
        Some((offset, character)) => &text[offset + character.len_utf8()..],
        None => text,
    }
}
