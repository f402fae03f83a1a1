//! `include`: one text of several files, and the places in them.
//!
//! Whoever reads files hands them over; what a line includes stands in its place, as in nft. A text
//! with `include` in it is none for a firewall: it gets the whole.

use super::ast::Span;
use super::error::{Error, ErrorKind};
use super::lex::{Token, Tokens};
use super::limits::Limits;
use super::render::Report;
use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write;

/// Files that may include one another: how deep (nft's MAX_INCLUDE_DEPTH).
pub const INCLUDE_DEPTH_MAX: usize = 16;
/// Files that a text may consist of.
pub const INCLUDED_MAX: usize = 256;

/// A text and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// For messages.
    pub name: String,
    /// What is in it.
    pub text: String,
}

/// Finds the files that `include "PATH"` in the file `from` means: the function's arguments are
/// that path and the name of that file. What it says of a failure is shown at the place.
pub type Find<'a> = dyn FnMut(&str, &str) -> Result<Vec<SourceFile>, String> + 'a;

/// One text of several files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Whole {
    text: String,
    files: Vec<SourceFile>,
    pieces: Vec<Piece>,
}

/// A part of the text: from where on it is of a file, and from where on in that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    at: usize,
    file: usize,
    from: usize,
}

impl Whole {
    /// Reads a file and what it includes.
    ///
    /// # Errors
    /// What is wrong, and where, as [`Error::render`] says it.
    pub fn gather(file: SourceFile, limits: &Limits, find: &mut Find<'_>) -> Result<Self, String> {
        let mut whole = Self::default();
        whole.add(file, limits, INCLUDE_DEPTH_MAX, find)?;
        Ok(whole)
    }

    /// All of it, without `include`.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The files, each in front of what it includes; one that is included twice stands there twice.
    pub fn files(&self) -> impl Iterator<Item = &SourceFile> {
        self.files.iter()
    }

    /// Whether it is more than one file.
    pub fn is_of_several(&self) -> bool {
        self.files.len() > 1
    }

    fn add(
        &mut self,
        file: SourceFile,
        limits: &Limits,
        depth: usize,
        find: &mut Find<'_>,
    ) -> Result<(), String> {
        let SourceFile { name, text } = file.clone();
        let number = self.files.len();
        self.files.push(file);
        let say = |error: Error| error.render(&name, &text).to_string();
        let mut tokens = Tokens::new(&text).map_err(say)?;
        let (mut begins, mut copied) = (true, 0);
        loop {
            let token = tokens.take().map_err(say)?;
            if !begins || token.node != Token::Word("include") {
                begins = matches!(token.node, Token::Newline | Token::Mark(";" | "{"));
                if token.node != Token::End {
                    continue;
                }
                self.copy(number, &text, copied..text.len());
                return Ok(());
            }
            let path = tokens.take().map_err(say)?;
            let Token::Text(wanted) = path.node else {
                let kind = ErrorKind::Expected("a path in quotes");
                return Err(say(Error::new(path.span, kind)));
            };
            let next = tokens.peek();
            if !matches!(next.node, Token::Newline | Token::Mark(";") | Token::End) {
                let kind = ErrorKind::Expected("a newline or `;`");
                return Err(say(Error::new(next.span, kind)));
            }
            self.copy(number, &text, copied..token.span.start as usize);
            copied = path.span.end as usize;
            let too_many = |what, max| say(Error::new(path.span, ErrorKind::Limit { what, max }));
            if depth == 0 {
                let what = "files that include one another";
                return Err(too_many(what, INCLUDE_DEPTH_MAX));
            }
            let found = find(wanted, &name).map_err(|why| {
                let kind = ErrorKind::Expected("a file that can be read");
                say(Error::new(path.span, kind)) + "\n  = note: " + &why
            })?;
            for file in found {
                if self.files.len() == INCLUDED_MAX {
                    return Err(too_many("files by `include`", INCLUDED_MAX));
                }
                if self.text.len() + file.text.len() > limits.bytes {
                    return Err(too_many("bytes in all files", limits.bytes));
                }
                self.add(file, limits, depth - 1, find)?;
                self.text.push('\n');
            }
        }
    }

    /// Adds a part of a file.
    fn copy(&mut self, file: usize, text: &str, range: core::ops::Range<usize>) {
        self.pieces.push(Piece {
            at: self.text.len(),
            file,
            from: range.start,
        });
        self.text.push_str(text.get(range).unwrap_or_default());
    }

    /// Where a place of the whole is: in which file, and where in that.
    fn locate(&self, place: usize) -> (usize, usize) {
        let behind = self.pieces.partition_point(|piece| piece.at <= place);
        match behind.checked_sub(1).and_then(|at| self.pieces.get(at)) {
            Some(piece) => (piece.file, piece.from + (place - piece.at)),
            None => (0, place),
        }
    }

    /// A part of the whole as one of a file.
    pub fn part(&self, span: Span) -> (&SourceFile, Span) {
        let (file, start) = self.locate(span.start as usize);
        let length = span.end.saturating_sub(span.start);
        let start = start as u32;
        let end = start.saturating_add(length);
        (&self.files[file], Span { start, end })
    }

    /// The file and the line of a line of the whole, both from 1.
    pub fn line(&self, line: usize) -> (&str, usize) {
        let mut starts = self.text.match_indices('\n').map(|(at, _)| at + 1);
        let start = match line.checked_sub(2) {
            Some(before) => starts.nth(before).unwrap_or(self.text.len()),
            None => 0,
        };
        let (file, at) = self.locate(start);
        let SourceFile { name, text } = &self.files[file];
        let before = text.get(..at).unwrap_or(text);
        (name, before.matches('\n').count() + 1)
    }

    /// An error of the whole, in the file in which it is; see [`Error::render`].
    pub fn render(&self, error: &Error) -> String {
        let (file, span) = self.part(error.span);
        let error = Error::new(span, error.kind);
        let other = error.kind.other().map(|(span, what)| {
            let (file, span) = self.part(span);
            (&*file.name, &*file.text, span, what)
        });
        let report = Report {
            error: &error,
            file: &file.name,
            text: &file.text,
            other,
        };
        let mut rendered = String::new();
        let _ = write!(rendered, "{report}");
        rendered
    }
}

impl From<SourceFile> for Whole {
    /// A file that includes no other.
    fn from(file: SourceFile) -> Self {
        Self {
            text: file.text.to_owned(),
            files: [file].into(),
            pieces: [Piece {
                at: 0,
                file: 0,
                from: 0,
            }]
            .into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    fn file(name: &str, text: &str) -> SourceFile {
        SourceFile {
            name: name.to_owned(),
            text: text.to_owned(),
        }
    }

    /// Files by name; the first one is read.
    fn gather(files: &[(&str, &str)]) -> Result<Whole, String> {
        let mut find = |path: &str, from: &str| -> Result<Vec<SourceFile>, String> {
            let all = files.iter().filter(|(name, _)| {
                let prefix = path.strip_suffix('*').filter(|_| path.ends_with('*'));
                *name == path || prefix.is_some_and(|prefix| name.starts_with(prefix))
            });
            let found: Vec<_> = all.map(|(name, text)| file(name, text)).collect();
            match found.is_empty() && !path.ends_with('*') {
                true => Err(format!("{from} knows no {path}")),
                false => Ok(found),
            }
        };
        let (name, text) = files[0];
        Whole::gather(file(name, text), &Limits::DEFAULT, &mut find)
    }

    #[test]
    fn a_file_stands_in_the_place_of_its_line() {
        let whole = gather(&[
            ("main", "define A = 1\ninclude \"b.d/*\"; table x\n"),
            ("b.d/1", "include \"c\"\ndefine B = 2"),
            ("b.d/2", "# include \"nothing\"\ndefine C = \"include\"\n"),
            ("c", "define D = 4\n"),
        ])
        .unwrap();
        let expected = "define A = 1\ndefine D = 4\n\n\ndefine B = 2\n\
            # include \"nothing\"\ndefine C = \"include\"\n\n; table x\n";
        assert_eq!(whole.text(), expected);
        assert!(whole.is_of_several());
        for (line, place) in [
            (1, ("main", 1)),
            (2, ("c", 1)),
            (5, ("b.d/1", 2)),
            (7, ("b.d/2", 2)),
            (9, ("main", 2)),
        ] {
            assert_eq!(whole.line(line), place, "{line}");
        }
        let none = gather(&[("main", "include \"b.d/*\"\n")]).unwrap();
        assert_eq!(none.text(), "\n");
    }

    #[test]
    fn a_mistake_is_named_in_its_file() {
        let whole = gather(&[
            (
                "main",
                "table inet t {\n\tinclude \"rules\"\n\tchain a {\n\t}\n}\n",
            ),
            ("rules", "chain a {\n}\n"),
        ])
        .unwrap();
        let error = crate::router::Rules::load(whole.text(), &["a"], &Limits::DEFAULT).unwrap_err();
        let said = whole.render(&error);
        assert!(said.contains("--> main:3:8"), "{said}");
        assert!(said.ends_with("the first one is here: rules:1:7"), "{said}");
        let whole = gather(&[("main", "include \"b\"\n"), ("b", "\n  tabel x")]).unwrap();
        let error = super::super::parse(whole.text(), &Limits::DEFAULT).unwrap_err();
        let said = whole.render(&error);
        assert!(said.contains("--> b:2:3\n"), "{said}");
        assert!(said.contains("2 |   tabel x"), "{said}");
    }

    #[test]
    fn what_cannot_be_included_is_said_where() {
        for (files, says) in [
            (&[("m", "include a\n")][..], "--> m:1:9"),
            (&[("m", "\ninclude \"a\"\n")], "= note: m knows no a"),
            (&[("m", "include \"m\"\n")], "too many files that include"),
            (&[("m", "include \"b\" table\n"), ("b", "")], "--> m:1:13"),
            (&[("m", "include \"b\"\n"), ("b", "a ~")], "--> b:1:3"),
        ] {
            let said = gather(files).unwrap_err();
            assert!(said.contains(says), "{said}");
        }
        let many = "include \"b\"\n".repeat(INCLUDED_MAX);
        let said = gather(&[("m", &many), ("b", "")]).unwrap_err();
        assert!(said.contains("too many files by `include`"), "{said}");
    }
}
