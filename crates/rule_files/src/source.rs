//! A file of rules, read no further than it may be long.

use nf::nft::Limits;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// A text of rules and where it is from.
#[derive(Debug)]
pub struct Source {
    /// For messages: the path, or `standard input`.
    pub name: String,
    /// The text.
    pub text: String,
}

/// Why there is no text.
#[derive(Debug)]
pub enum Error {
    /// It cannot be read.
    Read(PathBuf, io::Error),
    /// It is longer than the limit.
    TooLong(PathBuf),
    /// It is no UTF-8 from this line on.
    Encoding(PathBuf, usize),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path, e) => write!(
                f,
                "cannot read {}: {e}; name a file of rules in nft's language, or - for standard \
                 input",
                path.display()
            ),
            Self::TooLong(path) => write!(
                f,
                "{}: more than {} MiB; rules are at most that long",
                path.display(),
                Limits::DEFAULT.bytes >> 20
            ),
            Self::Encoding(path, line) => {
                write!(f, "{}:{line}: no UTF-8; rules are text", path.display())
            }
        }
    }
}

impl std::error::Error for Error {}

impl Source {
    /// Reads the file, or standard input for `-`.
    ///
    /// # Errors
    /// It cannot be read, is too long or no text.
    pub fn read(path: &Path) -> Result<Self, Error> {
        if path == Path::new("-") {
            return Self::from_reader("standard input".as_ref(), io::stdin().lock());
        }
        let file = File::open(path).map_err(|e| Error::Read(path.to_owned(), e))?;
        Self::from_reader(path, file)
    }

    fn from_reader(path: &Path, reader: impl Read) -> Result<Self, Error> {
        let most = Limits::DEFAULT.bytes;
        let mut bytes = Vec::new();
        // One byte more, which a text that is not too long does not have.
        let mut reader = reader.take(most as u64 + 1);
        reader
            .read_to_end(&mut bytes)
            .map_err(|e| Error::Read(path.to_owned(), e))?;
        if bytes.len() > most {
            return Err(Error::TooLong(path.to_owned()));
        }
        let text = String::from_utf8(bytes).map_err(|e| {
            let before = &e.as_bytes()[..e.utf8_error().valid_up_to()];
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            Error::Encoding(path.to_owned(), line)
        })?;
        Ok(Self {
            name: path.display().to_string(),
            text,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(reader: impl Read) -> Result<Source, Error> {
        Source::from_reader("fw.nft".as_ref(), reader)
    }

    #[test]
    fn a_text_has_its_name() {
        let source = read(&b"table"[..]).unwrap();
        assert_eq!((&*source.name, &*source.text), ("fw.nft", "table"));
    }

    #[test]
    fn what_is_too_long_is_not_read_to_its_end() {
        let mut endless = io::repeat(b' ');
        let error = read(&mut endless).unwrap_err();
        assert!(matches!(error, Error::TooLong(_)));
        assert!(error.to_string().contains("fw.nft: more than 16 MiB"));
        let longest = io::repeat(b' ').take(Limits::DEFAULT.bytes as u64);
        assert_eq!(read(longest).unwrap().text.len(), Limits::DEFAULT.bytes);
    }

    #[test]
    fn what_is_no_text_is_refused_by_line() {
        let error = read(&b"table\n{ \xff"[..]).unwrap_err();
        assert!(
            error.to_string().starts_with("fw.nft:2: no UTF-8"),
            "{error}"
        );
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Source::read("/nonexistent/x.nft".as_ref()).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/x.nft"));
        assert!(Source::read("/".as_ref()).is_err());
    }
}
