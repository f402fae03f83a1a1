//! Files that rules include: relative to the file that includes them, or several by a pattern.

use crate::source::{Error, Source};
use nf::nft::{INCLUDED_MAX, Limits, SourceFile, Whole};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// Files of a folder that are looked at for a pattern.
const ENTRIES_MAX: usize = 4096;

/// A file of rules with all that it includes.
#[derive(Debug)]
pub struct Gathered {
    /// The whole text, under the name of the first file.
    pub source: Source,
    /// Which part of it is of which file.
    pub whole: Whole,
}

/// What is wrong with files of rules before they are read as such.
#[derive(Debug)]
pub enum Failure {
    /// The first one cannot be read.
    Source(Error),
    /// Another one, or what includes it: what is to be said, in several lines.
    Include(String),
}

impl From<Source> for Gathered {
    fn from(source: Source) -> Self {
        let Source { name, text } = &source;
        let (name, text) = (name.clone(), text.clone());
        let whole = Whole::from(SourceFile { name, text });
        Self { source, whole }
    }
}

impl Gathered {
    /// Reads a file, or standard input for `-`, and what it includes.
    ///
    /// # Errors
    /// One of the files cannot be read, or there are too many.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let Source { name, text } = Source::read(path).map_err(Failure::Source)?;
        let first = SourceFile {
            name: name.clone(),
            text,
        };
        let whole = Whole::gather(first, &Limits::DEFAULT, &mut |wanted, from| {
            find(Path::new(wanted), Path::new(from))
        });
        let whole = whole.map_err(Failure::Include)?;
        let text = whole.text().to_owned();
        Ok(Self {
            source: Source { name, text },
            whole,
        })
    }
}

/// The files that a path in an `include` means, in the order of their names.
fn find(wanted: &Path, from: &Path) -> Result<Vec<SourceFile>, String> {
    let folder = from.parent().unwrap_or(Path::new(""));
    let path = folder.join(wanted);
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let paths = match name.contains(['*', '?', '[']) {
        true => matching(&path, name)?,
        false => vec![path],
    };
    let read = |path: &PathBuf| {
        let Source { name, text } = Source::read(path).map_err(|error| error.to_string())?;
        Ok(SourceFile { name, text })
    };
    paths.iter().map(read).collect()
}

/// Files in the folder of a path whose names match its last part; none if the folder has none.
fn matching(path: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let say = |error: std::io::Error| format!("cannot read {}: {error}", folder.display());
    let mut found = Vec::new();
    for (number, entry) in fs::read_dir(folder).map_err(say)?.enumerate() {
        if number == ENTRIES_MAX || found.len() > INCLUDED_MAX {
            return Err(format!("{}: too many files", folder.display()));
        }
        let entry = entry.map_err(say)?;
        let name = entry.file_name();
        let name = name.to_str().unwrap_or_default();
        // As in a shell, files that begin with a dot are hidden.
        let visible = !name.starts_with('.') || pattern.starts_with('.');
        if visible && matches(pattern.as_bytes(), name.as_bytes()) && entry.path().is_file() {
            found.push(path.with_file_name(name));
        }
    }
    found.sort();
    Ok(found)
}

/// Whether a name matches a pattern: `*` is any letters, `?` is one, and `[a-z]` is one of those.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut here) = (0, 0);
    // Where the last `*` stands, and where the name went on behind it.
    let mut star: Option<(usize, usize)> = None;
    while here < name.len() {
        let one = match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, here));
                at += 1;
                continue;
            }
            Some(b'[') => one_of(&pattern[at..], name[here]),
            Some(b'?') => Some(1),
            Some(letter) => (*letter == name[here]).then_some(1),
            None => None,
        };
        match (one, star) {
            (Some(length), _) => {
                at += length;
                here += 1;
            }
            (None, Some((before, behind))) => {
                at = before + 1;
                here = behind + 1;
                star = Some((before, behind + 1));
            }
            (None, None) => return false,
        }
    }
    pattern[at..].iter().all(|letter| *letter == b'*')
}

/// How long `[...]` is, if it has this letter.
fn one_of(pattern: &[u8], letter: u8) -> Option<usize> {
    let end = 2 + pattern.get(2..)?.iter().position(|byte| *byte == b']')?;
    let (negated, mut class) = match &pattern[1..end] {
        [b'!' | b'^', class @ ..] => (true, class),
        class => (false, class),
    };
    let mut held = false;
    while let [low, rest @ ..] = class {
        let high = match rest {
            [b'-', high, ..] => high,
            _ => low,
        };
        held |= (low..=high).contains(&&letter);
        class = match rest {
            [b'-', _, rest @ ..] => rest,
            rest => rest,
        };
    }
    (held != negated).then_some(end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_names() {
        for (pattern, name, expected) in [
            ("*.nft", "a.nft", true),
            ("*.nft", "a.nft.old", false),
            ("*", "", true),
            ("a*b*c", "aXbbYc", true),
            ("a*b*c", "aXbbYcd", false),
            ("?-[0-9x].nft", "a-x.nft", true),
            ("?-[0-9x].nft", "a-5.nft", true),
            ("[!a]b", "ab", false),
            ("[!a]b", "cb", true),
            ("[", "[", false),
            ("a", "ab", false),
        ] {
            let found = matches(pattern.as_bytes(), name.as_bytes());
            assert_eq!(found, expected, "{pattern} {name}");
        }
    }

    #[test]
    fn files_include_files_beside_them() {
        let folder = std::env::temp_dir().join(format!("outboard-include-{}", std::process::id()));
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("main.nft", "include \"d/*.nft\"\ninclude \"d/one/last\"\n");
        write("d/2.nft", "define B = 2\n");
        write("d/1.nft", "define A = 1\n");
        write("d/.hidden.nft", "define C = 3\n");
        write("d/one/last", "include \"../3\"\n");
        write("d/3", "define D = 4");
        let main = folder.join("main.nft");
        let gathered = Gathered::read(&main).unwrap();
        let lines = gathered.source.text.lines().filter(|line| !line.is_empty());
        let expected = ["define A = 1", "define B = 2", "define D = 4"];
        assert_eq!(lines.collect::<Vec<_>>(), expected);
        fs::remove_file(folder.join("d/3")).unwrap();
        let Err(Failure::Include(said)) = Gathered::read(&main) else {
            panic!("a file is missing");
        };
        assert!(said.contains("d/one/last:1:9"), "{said}");
        assert!(said.contains("= note: cannot read"), "{said}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
