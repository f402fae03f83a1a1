//! Makes the folder of a new appliance: a small one that builds and runs, to be changed.

use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

/// Files that a template has for itself. In them `@NAME@` is the appliance's name, `@CRATE@` the
/// same as Rust writes it, `@CRATES@` the folder of Outboard's crates.
struct Files {
    own: [(&'static str, &'static str); 5],
    /// What to type next.
    next: &'static str,
}

macro_rules! text {
    ($folder:literal, $file:literal) => {
        include_str!(concat!("../template/", $folder, "/", $file, ".in"))
    };
}

/// The files of the template in this folder.
macro_rules! template {
    ($folder:literal) => {
        Files {
            own: [
                ("Cargo.toml", text!($folder, "Cargo.toml")),
                ("manifest.json", text!($folder, "manifest.json")),
                ("src/lib.rs", text!($folder, "lib.rs")),
                ("src/main.rs", text!($folder, "main.rs")),
                ("README.md", text!($folder, "README.md")),
            ],
            next: text!($folder, "next"),
        }
    };
}

const FRAMES: Files = template!("frames");
const SERVICE: Files = template!("service");
/// Files that all templates share.
const SHARED: [(&str, &str); 3] = [
    ("build.rs", include_str!("../template/build.rs.in")),
    (
        ".cargo/config.toml",
        include_str!("../template/config.toml.in"),
    ),
    (".gitignore", include_str!("../template/gitignore.in")),
];
/// Longest name, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Names that would be taken twice: by the crates that every image is made of, or in cargo's folder
/// of what it built.
const NAMES_TAKEN: [&str; 14] = [
    "abi",
    "alloc",
    "build",
    "core",
    "deps",
    "device",
    "examples",
    "image",
    "incremental",
    "net",
    "service",
    "std",
    "test",
    "unikernel",
];
/// Keywords of Rust (Reference, "Keywords", edition 2024) but for `Self`: no library has such a
/// name.
const KEYWORDS: [&str; 51] = [
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate",
    "do", "dyn", "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl",
    "in", "let", "loop", "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref",
    "return", "self", "static", "struct", "super", "trait", "true", "try", "type", "typeof",
    "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];
/// Outboard's crates, where this program was built; it is in no registry. A package says elsewhere:
/// it is built in a folder that anybody could make later, and fill with crates of theirs.
const CRATES: &str = match option_env!("OUTBOARD_CRATES") {
    Some(crates) => crates,
    None => concat!(env!("CARGO_MANIFEST_DIR"), "/.."),
};
/// The versions that Outboard's own images are tested with, beside the folder of its crates. Cargo
/// keeps of them what the appliance needs.
const LOCK: &str = "../unikernels/Cargo.lock";
/// What tells the folder of Outboard's crates from any other.
const RUNTIME: &str = "unikernel/Cargo.toml";

/// `outboard new`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Its name; the folder of this name is made here
    name: String,
    /// The folder of Outboard's sources, instead of the one that this program was built from
    #[arg(long, value_name = "DIRECTORY")]
    outboard: Option<PathBuf>,
    /// What it does at first
    #[arg(long, value_enum, default_value = "frames")]
    template: Template,
}

/// What an appliance does at first, to be changed.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Template {
    /// Counts the frames of a port
    Frames,
    /// Answers over TCP
    Service,
}

impl Template {
    fn files(self) -> Files {
        match self {
            Self::Frames => FRAMES,
            Self::Service => SERVICE,
        }
    }
}

/// Why there is no new folder.
#[derive(Debug)]
pub enum Error {
    /// Not a name that cargo and files can have.
    Name(String),
    /// A name that something else has.
    Taken(String),
    /// There is a file or folder of this name.
    Exists(String),
    /// Outboard's crates are not where this program was built.
    Moved(PathBuf),
    /// Outboard's crates are not in the folder that was named.
    NotOutboard(PathBuf),
    /// This cannot be written.
    Write(PathBuf, io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(
                f,
                "{name:?} is no name for an appliance: choose one of 1 to {NAME_BYTES_MAX} \
                 lower-case letters, digits, '-' and '_' that begins with a letter"
            ),
            Self::Taken(name) => write!(
                f,
                "{name} is a name that Rust, cargo or Outboard uses already: choose another one"
            ),
            Self::Exists(name) => write!(f, "{name} is here already: choose another name"),
            Self::Moved(path) => write!(
                f,
                "Outboard's sources are no longer in {}: name their folder with --outboard",
                path.display()
            ),
            Self::NotOutboard(path) => write!(
                f,
                "--outboard: {} has no crates/{RUNTIME}: name the folder of Outboard's sources",
                path.display()
            ),
            Self::Write(path, e) => write!(f, "cannot write {}: {e}", path.display()),
        }
    }
}

impl std::error::Error for Error {}

/// Makes the folder here, and prints what to type next.
///
/// # Errors
/// See [`create`]; Outboard's crates are not to be found.
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    let crates = crates(arguments.outboard.as_deref())?;
    let Arguments { name, template, .. } = arguments;
    create(Path::new(""), name, *template, &crates)?;
    print!("{}", template.files().next.replace("@NAME@", name));
    Ok(())
}

/// The folder of Outboard's crates: in its sources, if they are named.
fn crates(sources: Option<&Path>) -> Result<PathBuf, Error> {
    let crates = sources.map_or_else(|| PathBuf::from(CRATES), |sources| sources.join("crates"));
    match crates.canonicalize() {
        Ok(crates) if crates.join(RUNTIME).is_file() => Ok(crates),
        _ => Err(match sources {
            Some(sources) => Error::NotOutboard(sources.to_owned()),
            None => Error::Moved(crates),
        }),
    }
}

/// Makes the folder of the appliance `name` in `parent` from a template. Its image is made of
/// `crates`.
///
/// # Errors
/// The name is none, or taken, or something cannot be written; no folder stays behind then.
pub fn create(parent: &Path, name: &str, template: Template, crates: &Path) -> Result<(), Error> {
    if !is_name(name) {
        return Err(Error::Name(name.to_owned()));
    }
    if NAMES_TAKEN.contains(&name) || KEYWORDS.contains(&name) {
        return Err(Error::Taken(name.to_owned()));
    }
    let folder = parent.join(name);
    match fs::create_dir(&folder) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            return Err(Error::Exists(name.to_owned()));
        }
        other => other.map_err(|e| Error::Write(folder.clone(), e))?,
    }
    let filled = fill(&folder, name, template, crates);
    if filled.is_err() {
        // What cannot be removed either is reported by what could not be written.
        let _ = fs::remove_dir_all(&folder);
    }
    filled
}

fn fill(folder: &Path, name: &str, template: Template, crates: &Path) -> Result<(), Error> {
    for parent in ["src", ".cargo"] {
        let parent = folder.join(parent);
        fs::create_dir(&parent).map_err(|e| Error::Write(parent, e))?;
    }
    let lock = folder.join("Cargo.lock");
    fs::copy(crates.join(LOCK), &lock).map_err(|e| Error::Write(lock, e))?;
    let crates = toml(crates);
    for (file, text) in template.files().own.into_iter().chain(SHARED) {
        let text = text
            .replace("@NAME@", name)
            .replace("@CRATE@", &name.replace('-', "_"))
            .replace("@CRATES@", &crates);
        let path = folder.join(file);
        fs::write(&path, text).map_err(|e| Error::Write(path, e))?;
    }
    Ok(())
}

fn is_name(name: &str) -> bool {
    name.len() <= NAME_BYTES_MAX
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
}

/// A path as it stands between the quotes of a basic string of TOML.
fn toml(path: &Path) -> String {
    path.display()
        .to_string()
        .replace('\\', r"\\")
        .replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    /// A folder of the test's own.
    fn parent(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("outboard-new-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        path
    }

    #[test]
    fn nothing_of_a_template_is_left_to_fill_in() {
        for template in Template::value_variants() {
            let parent = parent(&format!("{template:?}"));
            let make = || create(&parent, "my-box2", *template, &crates(None).unwrap());
            make().unwrap();
            for (file, _) in template.files().own.into_iter().chain(SHARED) {
                let text = fs::read_to_string(parent.join("my-box2").join(file)).unwrap();
                assert!(!text.contains('@'), "{file}: {text}");
            }
            let again = make().unwrap_err();
            fs::remove_dir_all(&parent).unwrap();
            assert!(matches!(again, Error::Exists(_)), "{again}");
        }
    }

    #[test]
    fn each_manifest_is_one() {
        for template in Template::value_variants() {
            let files = template.files().own;
            let text = files.iter().find(|(name, _)| *name == "manifest.json");
            assert!(image::manifest::from_json(text.unwrap().1.as_bytes()).is_ok());
        }
    }

    #[test]
    fn other_names_are_refused() {
        let make = |name: &str| create(Path::new(""), name, Template::Frames, Path::new("/c"));
        let long = "a".repeat(NAME_BYTES_MAX + 1);
        for name in [
            "", "..", "a/b", "/tmp/x", "2x", "-x", "A", "a b", "a\n", "ä", &long,
        ] {
            let error = make(name).unwrap_err();
            assert!(matches!(error, Error::Name(_)), "{error}");
            assert!(!error.to_string().contains('\n'));
        }
        for name in NAMES_TAKEN.into_iter().chain(KEYWORDS) {
            let error = make(name).unwrap_err();
            assert!(matches!(error, Error::Taken(_)), "{error}");
        }
    }

    #[test]
    fn the_crates_are_found_or_asked_for() {
        assert!(crates(None).unwrap().join("abi/Cargo.toml").is_file());
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        assert_eq!(crates(Some(&root)).unwrap(), crates(None).unwrap());
        let error = crates(Some(Path::new("/nonexistent"))).unwrap_err();
        assert!(matches!(error, Error::NotOutboard(_)), "{error}");
    }

    #[test]
    fn a_path_is_quoted() {
        assert_eq!(toml(Path::new(r#"/a "b"\c"#)), r#"/a \"b\"\\c"#);
    }
}
