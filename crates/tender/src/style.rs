//! Colours of what is said to a person: only on a terminal, and not where `NO_COLOR` is set
//! (no-color.org) or the terminal is dumb.

use std::env;
use std::fmt;
use std::io::IsTerminal;

/// What a text means, and so its colour (ECMA-48, 8.3.117: SGR).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// It works.
    Good,
    /// Look at it.
    Warning,
    /// It does not work.
    Bad,
}

impl Tone {
    fn code(self) -> &'static str {
        match self {
            Self::Good => "\x1b[32m",
            Self::Warning => "\x1b[33m",
            Self::Bad => "\x1b[1;31m",
        }
    }
}

/// Whether a stream has colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    coloured: bool,
}

impl Style {
    /// Without colours.
    pub const PLAIN: Self = Self { coloured: false };

    /// With colours, wherever the text goes.
    pub const COLOURED: Self = Self { coloured: true };

    /// That of this stream.
    pub fn of(stream: &impl IsTerminal) -> Self {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty());
        let dumb = set("TERM").is_none_or(|term| term == "dumb");
        Self {
            coloured: stream.is_terminal() && !dumb && set("NO_COLOR").is_none(),
        }
    }

    /// The text in the colour of its meaning.
    pub fn paint<T: fmt::Display>(self, tone: Tone, text: T) -> Painted<T> {
        Painted {
            tone: self.coloured.then_some(tone),
            text,
        }
    }
}

/// A text with its colour.
#[derive(Clone, Copy, Debug)]
pub struct Painted<T> {
    tone: Option<Tone>,
    text: T,
}

impl<T: fmt::Display> fmt::Display for Painted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tone {
            None => self.text.fmt(f),
            Some(tone) => {
                f.write_str(tone.code())?;
                self.text.fmt(f)?;
                f.write_str("\x1b[0m")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_terminals_have_colours() {
        let painted = Style::COLOURED.paint(Tone::Good, "ready").to_string();
        assert_eq!(painted, "\x1b[32mready\x1b[0m");
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(Style::of(&file), Style::PLAIN);
        assert_eq!(Style::PLAIN.paint(Tone::Bad, "no").to_string(), "no");
    }
}
