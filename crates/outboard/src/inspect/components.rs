//! `outboard inspect --components`: which crates an image is made of, and how much of each.

use super::lines::{self, Contents, Data, Linked};
use super::sources;
use crate::stats::table::{columns, printable};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// What code is called that has no lines: assembly, and what the toolchain brings.
const WITHOUT_LINES: &str = "(code without lines)";
/// What data is called that is no static with a name: constants, tables, the stack.
const WITHOUT_NAMES: &str = "(data without names)";
/// The crate of files whose names tell none: what build scripts write, for instance.
const OTHER_FILES: &str = "(other files)";

/// The crates of an image, under the names that the JSON has. Sizes are in bytes.
#[derive(Debug, Serialize)]
pub struct Report {
    file: PathBuf,
    components: Vec<Crate>,
    code_without_lines: u64,
    data_without_names: Data,
}

/// A crate.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Crate {
    #[serde(flatten)]
    origin: Origin,
    /// Files with lines that became instructions.
    files: usize,
    /// Lines that became instructions.
    lines: usize,
    /// Bytes of these instructions.
    text: u64,
    #[serde(flatten)]
    data: Data,
    /// Of its source, if that is where it was when the image was built.
    source: Option<Source>,
}

/// A crate's source.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Source {
    /// Lines of code in the files that are linked.
    linked_lines: u64,
    /// All of its files, without tests.
    files: usize,
    /// Lines of code in all of them.
    lines: u64,
}

/// Where a crate comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum From {
    /// A folder.
    Folder,
    /// A registry, or a repository of git.
    Registry,
    /// Rust's own library.
    Rust,
}

impl From {
    fn word(self) -> &'static str {
        match self {
            Self::Folder => "folder",
            Self::Registry => "registry",
            Self::Rust => "rust",
        }
    }
}

/// What crate it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Origin {
    from: From,
    name: String,
    version: Option<String>,
}

impl Report {
    /// What the image in `file`, which has these bytes, is made of.
    ///
    /// # Errors
    /// The image has no line table, or a damaged one.
    pub fn new(file: &Path, bytes: &[u8]) -> Result<Self, lines::Error> {
        Ok(Self::of(file, &lines::contents(bytes)?))
    }

    fn of(file: &Path, contents: &Contents) -> Self {
        let mut crates: BTreeMap<Origin, Vec<(&Path, &Linked)>> = BTreeMap::new();
        for (path, linked) in &contents.files {
            crates.entry(origin(path)).or_default().push((path, linked));
        }
        let (mut text, mut data) = (contents.text, contents.data);
        let mut components = Vec::new();
        for (origin, files) in crates {
            let statics = contents.statics.get(&origin.name.replace('-', "_"));
            let one = Crate::new(origin, &files, statics.copied().unwrap_or_default());
            text = text.saturating_sub(one.text);
            data.valued = data.valued.saturating_sub(one.data.valued);
            data.zeros = data.zeros.saturating_sub(one.data.zeros);
            components.push(one);
        }
        components.sort_by_key(|one| (one.origin.from, Reverse(one.text)));
        Self {
            file: file.to_owned(),
            components,
            code_without_lines: text,
            data_without_names: data,
        }
    }
}

impl Crate {
    fn new(origin: Origin, files: &[(&Path, &Linked)], data: Data) -> Self {
        let linked = || files.iter().map(|(_, linked)| linked);
        let folder = files.first().and_then(|(path, _)| package(path));
        Self {
            origin,
            files: files.len(),
            lines: linked().map(|linked| linked.lines.len()).sum(),
            text: linked().map(|linked| linked.text).sum(),
            data,
            source: folder.and_then(|folder| Source::read(folder, files)),
        }
    }
}

impl Source {
    /// The source of the crate in `folder`, of which these files are linked.
    fn read(folder: &Path, linked: &[(&Path, &Linked)]) -> Option<Self> {
        let files = sources::files(&folder.join("src"));
        let linked = linked.iter();
        let linked_lines: Option<u64> = linked.map(|(path, _)| sources::lines_of(path)).sum();
        Some(Self {
            linked_lines: linked_lines?,
            files: files.len(),
            lines: files
                .iter()
                .filter_map(|path| sources::lines_of(path))
                .sum(),
        })
    }
}

/// The folder of the crate that a file belongs to: what stands in front of the last `src`.
fn package(path: &Path) -> Option<&Path> {
    let mut folders = path.ancestors().skip(1);
    let src = folders.find(|folder| folder.ends_with("src"))?;
    src.parent().filter(|folder| folder.file_name().is_some())
}

/// The crate that a file belongs to, by where cargo and rustc keep sources.
fn origin(path: &Path) -> Origin {
    let has = |folder: &str| path.components().any(|part| part.as_os_str() == folder);
    let is_rust = path.starts_with("/rustc") || has("rustlib");
    let folder = package(path).and_then(Path::file_name);
    let name = folder.map_or_else(
        || OTHER_FILES.to_owned(),
        |name| name.to_string_lossy().into_owned(),
    );
    let (from, (name, version)) = match () {
        () if is_rust => (From::Rust, (name, None)),
        () if has("registry") => (From::Registry, versioned(name)),
        () if has("checkouts") => (From::Registry, (name, None)),
        () => (From::Folder, (name, None)),
    };
    Origin {
        from,
        name,
        version,
    }
}

/// Name and version, of a folder of a registry.
fn versioned(folder: String) -> (String, Option<String>) {
    let is_version = |at: usize| folder[at + 1..].starts_with(|c: char| c.is_ascii_digit());
    let dash = folder
        .match_indices('-')
        .map(|(at, _)| at)
        .find(|at| is_version(*at));
    match dash {
        Some(at) => (folder[..at].to_owned(), Some(folder[at + 1..].to_owned())),
        None => (folder, None),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = [
            "<crate",
            "<from",
            "files",
            "of",
            "lines",
            "in files of",
            "of",
            "text",
            "data",
            "zeros",
        ];
        let mut rows: Vec<_> = self.components.iter().map(Crate::row).collect();
        let all = [From::Folder, From::Registry, From::Rust];
        rows.extend(all.into_iter().filter_map(|from| self.sum(from)));
        let Data { valued, zeros } = self.data_without_names;
        rows.push(rest(WITHOUT_LINES, [self.code_without_lines, 0, 0]));
        rows.push(rest(WITHOUT_NAMES, [0, valued, zeros]));
        f.write_str(&columns(&head, &rows))
    }
}

/// A row of bytes that belong to no crate.
fn rest(name: &str, bytes: [u64; 3]) -> Vec<String> {
    let empty = std::iter::repeat_n(String::new(), 6);
    let bytes = bytes.map(|bytes| bytes.to_string());
    std::iter::once(name.to_owned())
        .chain(empty)
        .chain(bytes)
        .collect()
}

impl Crate {
    fn row(&self) -> Vec<String> {
        let Origin { name, version, .. } = &self.origin;
        let version = version.iter().map(|version| format!(" {version}"));
        let name: String = std::iter::once(name.clone()).chain(version).collect();
        self.cells(printable(&name))
    }

    fn cells(&self, name: String) -> Vec<String> {
        let source = |count: fn(&Source) -> u64| {
            let source = self.source.as_ref();
            source.map_or_else(|| "-".to_owned(), |source| count(source).to_string())
        };
        vec![
            name,
            self.origin.from.word().to_owned(),
            self.files.to_string(),
            source(|source| source.files as u64),
            self.lines.to_string(),
            source(|source| source.linked_lines),
            source(|source| source.lines),
            self.text.to_string(),
            self.data.valued.to_string(),
            self.data.zeros.to_string(),
        ]
    }
}

impl Report {
    /// The row of all crates from there, if there are any.
    fn sum(&self, from: From) -> Option<Vec<String>> {
        let components = self.components.iter();
        let mut crates = components.filter(|one| one.origin.from == from).peekable();
        crates.peek()?;
        let none = Crate {
            origin: Origin {
                from,
                name: String::new(),
                version: None,
            },
            files: 0,
            lines: 0,
            text: 0,
            data: Data::default(),
            source: Some(Source {
                linked_lines: 0,
                files: 0,
                lines: 0,
            }),
        };
        let all = crates.fold(none, |sum, one| Crate {
            files: sum.files + one.files,
            lines: sum.lines + one.lines,
            text: sum.text + one.text,
            data: Data {
                valued: sum.data.valued + one.data.valued,
                zeros: sum.data.zeros + one.data.zeros,
            },
            // Of all, or not at all.
            source: sum
                .source
                .zip(one.source.as_ref())
                .map(|(sum, one)| Source {
                    linked_lines: sum.linked_lines + one.linked_lines,
                    files: sum.files + one.files,
                    lines: sum.lines + one.lines,
                }),
            ..sum
        });
        Some(all.cells("all".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str) -> (From, String, Option<String>) {
        let Origin {
            from,
            name,
            version,
        } = origin(Path::new(path));
        (from, name, version)
    }

    #[test]
    fn the_name_of_a_file_tells_its_crate() {
        let registry = "/a/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/";
        let (from, name, version) = of(&format!("{registry}crossbeam-queue-0.3.12/src/seg.rs"));
        assert_eq!((from, &*name), (From::Registry, "crossbeam-queue"));
        assert_eq!(version.as_deref(), Some("0.3.12"));
        let (from, name, version) = of("/rustc/59807616e1fa/library/core/src/num/mod.rs");
        assert_eq!((from, &*name, version), (From::Rust, "core", None));
        assert_eq!(of("/a/crates/net/src/tcp/mod.rs").1, "net");
        // A crate inside a folder of sources.
        assert_eq!(of("/usr/src/a/crates/net/src/lib.rs").1, "net");
        assert_eq!(of("/a/target/build/x/out/table.rs").1, OTHER_FILES);
        assert_eq!(of("/src/lib.rs").1, OTHER_FILES);
    }

    #[test]
    fn what_no_crate_has_is_the_rest() {
        let linked = |lines: &[u64], text| Linked {
            lines: lines.iter().copied().collect(),
            text,
        };
        let data = |valued, zeros| Data { valued, zeros };
        let contents = Contents {
            files: [
                ("/absent/net/src/lib.rs".into(), linked(&[1, 2], 40)),
                ("/absent/net/src/arp.rs".into(), linked(&[7], 10)),
                ("/rustc/0/library/core/src/lib.rs".into(), linked(&[9], 20)),
            ]
            .into(),
            statics: [("net".to_owned(), data(5, 100))].into(),
            text: 100,
            data: data(50, 300),
        };
        let report = Report::of(Path::new("a.spt"), &contents);
        let expected = "\
crate                 from    files  of  lines  in files of  of  text  data  zeros
net                   folder      2   -      3            -   -    50     5    100
core                  rust        1   -      1            -   -    20     0      0
all                   folder      2   -      3            -   -    50     5    100
all                   rust        1   -      1            -   -    20     0      0
(code without lines)                                               30     0      0
(data without names)                                                0    45    200
";
        let said = report.to_string();
        let said: Vec<_> = said.lines().collect();
        assert_eq!(said, expected.lines().collect::<Vec<_>>());
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["components"][0]["name"], "net");
        assert_eq!(json["components"][0]["valued"], 5);
        assert_eq!(json["code_without_lines"], 30);
    }

    #[test]
    fn the_share_of_a_crate_is_known_where_its_source_is() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let path = folder.join("src/inspect/sources.rs");
        let linked = Linked::default();
        let source = Source::read(folder, &[(&path, &linked)]).unwrap();
        assert_eq!(source.linked_lines, sources::lines_of(&path).unwrap());
        assert!(source.lines > source.linked_lines && source.files > 10);
    }
}
