//! A description's words, with their places.

use super::description::error::{Error, Reason};
use std::ops::Range;

/// A word and where it stands, in bytes.
#[derive(Clone, Debug)]
pub(super) struct Word<'a> {
    pub text: &'a str,
    pub at: Range<usize>,
}

impl Word<'_> {
    pub fn error(&self, reason: Reason) -> Error {
        Error {
            at: self.at.clone(),
            reason,
        }
    }
}

/// The words that are left. White space separates them; `>` is one wherever it stands.
pub(super) struct Words<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Words<'a> {
    pub fn new(text: &'a str) -> Self {
        Self { text, position: 0 }
    }

    pub fn next(&mut self) -> Option<Word<'a>> {
        let rest = &self.text[self.position..];
        let rest = rest.trim_start();
        let start = self.text.len() - rest.len();
        let size = match rest.find(|c: char| c.is_whitespace() || c == '>') {
            Some(0) => 1, // `>`
            Some(size) => size,
            None => rest.len(),
        };
        if size == 0 {
            return None;
        }
        self.position = start + size;
        Some(Word {
            text: &rest[..size],
            at: start..self.position,
        })
    }

    /// The next word, of which there must be one; `what` it should be.
    pub fn expect(&mut self, what: &'static str) -> Result<Word<'a>, Error> {
        let end = self.text.trim_end().len();
        self.next().ok_or(Error {
            at: end..end,
            reason: Reason::Missing(what),
        })
    }

    /// The next word, which must be `text`.
    pub fn expect_literal(&mut self, text: &'static str) -> Result<(), Error> {
        let word = self.expect(text)?;
        if word.text != text {
            return Err(word.error(Reason::NotLiteral(text)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_know_where_they_stand() {
        let text = "  tcp a>\tb > ";
        let mut words = Words::new(text);
        let mut found = Vec::new();
        while let Some(word) = words.next() {
            assert_eq!(&text[word.at.clone()], word.text);
            found.push(word.text);
        }
        assert_eq!(found, ["tcp", "a", ">", "b", ">"]);
        let missing = words.expect("an address").unwrap_err();
        assert_eq!(missing.at, 12..12);
    }
}
