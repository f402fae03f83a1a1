//! Which file goes where, as data: for the Debian package below `/`, for the tarball below the
//! folder that `/usr/local` may stand for.

use super::build::{Built, IMAGE_FILES};
use super::{archive, licences, succeed};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where a file's bytes come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// From a file.
    File(PathBuf),
    /// This text.
    Text(String),
    /// It is an empty folder.
    Folder,
}

/// A file of a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its path, without a slash at the front.
    pub path: String,
    /// Its permissions.
    pub mode: u32,
    /// What is in it.
    pub source: Source,
}

/// Permissions of programs and folders.
pub const PROGRAM: u32 = 0o755;
/// Permissions of all other files.
const PLAIN: u32 = 0o644;

impl Entry {
    fn new(path: impl Into<String>, mode: u32, source: Source) -> Self {
        Self {
            path: path.into(),
            mode,
            source,
        }
    }

    fn file(path: impl Into<String>, file: PathBuf) -> Self {
        Self::new(path, PLAIN, Source::File(file))
    }
}

/// All that packages are made of.
pub struct Parts {
    /// Below `/usr`, or below `/usr/local` if somebody unpacks the tarball there.
    usr: Vec<Entry>,
}

/// What is copied from the sources, beside the documents of `docs/`.
const DOCUMENTS: [&str; 6] = [
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "SECURITY.md",
];
/// Below `/usr`: where documents go.
const DOC: &str = "share/doc/outboard";
/// Below `/usr`: where completions go, by shell.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/outboard"),
    ("zsh", ZSH_DEBIAN),
    ("fish", "share/fish/vendor_completions.d/outboard.fish"),
];
/// Where zsh looks in `/usr` on Debian,
const ZSH_DEBIAN: &str = "share/zsh/vendor-completions/_outboard";
/// and in `/usr/local`.
const ZSH_LOCAL: &str = "share/zsh/site-functions/_outboard";
/// Where the unit lies, and the program in it.
const UNIT: &str = "lib/systemd/system/outboard@.service";
const BIN: &str = "/usr/bin/";
/// The dashboard for Grafana.
const DASHBOARD: &str = "grafana-outboard.json";
const BIN_LOCAL: &str = "/usr/local/bin/";

impl Parts {
    /// The parts of what was built; man pages are written to the folder `generated`.
    ///
    /// # Errors
    /// One line, if something is missing.
    pub fn of(built: &Built, generated: &Path) -> Result<Self, String> {
        let program = built.programs.join("outboard");
        let mut usr = fixed(built);
        usr.extend(documents(&built.sources)?);
        let copyright = Source::Text(licences::copyright(&built.sources)?);
        usr.push(Entry::new(format!("{}/copyright", DOC), PLAIN, copyright));
        usr.extend(written(&program, generated)?);
        usr.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(Self { usr })
    }

    /// The files of the Debian package.
    pub fn debian(&self) -> Vec<Entry> {
        let mut entries = vec![Entry::new("etc/outboard", PROGRAM, Source::Folder)];
        entries.extend(self.usr.iter().map(|entry| Entry {
            path: format!("usr/{}", entry.path),
            ..entry.clone()
        }));
        entries
    }

    /// The files of the tarball.
    ///
    /// # Errors
    /// One line, if the unit cannot be read.
    pub fn local(&self) -> Result<Vec<Entry>, String> {
        let entries = self.usr.iter().map(|entry| {
            let mut entry = entry.clone();
            match (&entry.source, entry.path.as_str()) {
                (_, ZSH_DEBIAN) => entry.path = ZSH_LOCAL.into(),
                (Source::File(file), UNIT) => {
                    let text = archive::read(file)?.replace(BIN, BIN_LOCAL);
                    entry.source = Source::Text(text);
                }
                _ => {}
            }
            Ok(entry)
        });
        entries.collect()
    }
}

/// What is always there.
fn fixed(built: &Built) -> Vec<Entry> {
    let program = |name: &str| {
        let file = Source::File(built.programs.join(name));
        Entry::new(format!("bin/{}", name), PROGRAM, file)
    };
    let image = |name: &str| {
        let file = built.images.join(name);
        Entry::file(format!("lib/outboard/{}", name), file)
    };
    let packaging = |path: &str, name: &str| {
        let file = built.sources.join("packaging").join(name);
        Entry::file(path, file)
    };
    let rules = built.sources.join("unikernels/firewall/rules/default.nft");
    let mut entries = vec![
        program("outboard"),
        program("outboard-tender"),
        packaging(UNIT, "outboard@.service"),
        packaging("lib/sysusers.d/outboard.conf", "outboard.sysusers"),
        packaging(&format!("{}/examples/firewall.conf", DOC), "firewall.conf"),
        Entry::file(format!("{}/examples/firewall.nft", DOC), rules),
        packaging(&format!("{}/examples/{}", DOC, DASHBOARD), DASHBOARD),
    ];
    entries.extend(IMAGE_FILES.map(image));
    entries
}

/// The documents, in the folders in which they find each other.
fn documents(sources: &Path) -> Result<Vec<Entry>, String> {
    let mut names: Vec<String> = DOCUMENTS.iter().map(|name| name.to_string()).collect();
    let docs = archive::names(&sources.join("docs"))?;
    names.extend(docs.iter().map(|name| format!("docs/{}", name)));
    let entry = |name: &String| Entry::file(format!("{}/{}", DOC, name), sources.join(name));
    Ok(names.iter().map(entry).collect())
}

/// What the program itself writes: man pages and completions.
fn written(program: &Path, folder: &Path) -> Result<Vec<Entry>, String> {
    archive::empty(folder)?;
    let mut man = Command::new(program);
    succeed(man.arg("man").arg(folder), "outboard wrote no man pages")?;
    let pages = archive::names(folder)?.into_iter();
    let mut entries: Vec<Entry> = pages
        .map(|name| Entry::file(format!("share/man/man1/{}", name), folder.join(&name)))
        .collect();
    for (shell, path) in COMPLETIONS {
        let mut completions = Command::new(program);
        let text = super::printed(completions.args(["completions", shell]))?;
        entries.push(Entry::new(path, PLAIN, Source::Text(text)));
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> Parts {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let built = Built {
            sources: root.clone(),
            programs: "/programs".into(),
            images: "/images".into(),
        };
        let mut usr = fixed(&built);
        usr.extend(documents(&root).unwrap());
        usr.push(Entry::new(ZSH_DEBIAN, PLAIN, Source::Text("z".into())));
        Parts { usr }
    }

    fn paths(entries: &[Entry]) -> Vec<&str> {
        entries.iter().map(|entry| entry.path.as_str()).collect()
    }

    #[test]
    fn the_debian_package_is_laid_out_as_debian_does() {
        let entries = parts().debian();
        let paths = paths(&entries);
        for path in [
            "etc/outboard",
            "usr/bin/outboard",
            "usr/bin/outboard-tender",
            "usr/lib/outboard/checkup-82599.spt",
            "usr/lib/outboard/firewall.hvt",
            "usr/lib/outboard/firewall.spt",
            "usr/lib/systemd/system/outboard@.service",
            "usr/share/doc/outboard/LICENSE-MIT",
            "usr/share/doc/outboard/README.md",
            "usr/share/doc/outboard/docs/installing.md",
            "usr/share/zsh/vendor-completions/_outboard",
        ] {
            assert!(paths.contains(&path), "{} is not in {:?}", path, paths);
        }
    }

    #[test]
    fn only_programs_and_folders_can_be_executed() {
        for entry in parts().debian() {
            let expected = entry.path.starts_with("usr/bin/") || entry.source == Source::Folder;
            assert_eq!(entry.mode == PROGRAM, expected, "{}", entry.path);
        }
    }

    #[test]
    fn the_tarball_is_for_usr_local() {
        let entries = parts().local().unwrap();
        assert!(paths(&entries).contains(&ZSH_LOCAL));
        assert!(!paths(&entries).contains(&ZSH_DEBIAN));
        let unit = entries.iter().find(|entry| entry.path == UNIT).unwrap();
        match &unit.source {
            Source::Text(text) => {
                assert!(
                    text.contains("ExecStart=/usr/local/bin/outboard run"),
                    "{}",
                    text
                );
                assert!(!text.contains("=/usr/bin/"), "{}", text);
            }
            other => panic!("{:?}", other),
        }
    }

    #[test]
    fn every_file_of_the_sources_is_there() {
        for entry in parts().debian() {
            match entry.source {
                Source::File(file)
                    if !file.starts_with("/programs") && !file.starts_with("/images") =>
                {
                    assert!(file.is_file(), "{}", file.display());
                }
                _ => {}
            }
        }
    }
}
