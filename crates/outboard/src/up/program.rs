//! Components that are programs as they are, on the sockets of a stack in an image: what a file
//! says of one, and the command line of its proxy.

use super::component::{Component, Device, FIRST_HANDED};
use super::handed::SIDE_DESCRIPTORS;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Slots of a program's end of its link.
pub const SLOTS: usize = image::manifest::SLOTS as usize;
/// What a program has of the environment of whoever has typed `outboard up`.
const INHERITED: [&str; 9] = [
    "PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TERM", "TZ", "USER", "LOGNAME",
];
/// The variable that says where programs are.
const PATH: &str = "PATH";

/// What a file says of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// Its path, or its name in a folder of `PATH`; then its arguments.
    pub words: Vec<String>,
    /// What it has beside the environment that all have.
    pub environment: BTreeMap<String, String>,
    /// Where it begins.
    pub folder: Option<PathBuf>,
    /// What it may read, with all that is below; everything that its user may, if neither this nor
    /// `write` says anything.
    pub read: Vec<PathBuf>,
    /// What it may write as well.
    pub write: Vec<PathBuf>,
}

/// What its proxy is started with, beside the command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// What stands in the environment beside what is inherited.
    pub environment: BTreeMap<String, String>,
    /// The working directory.
    pub folder: PathBuf,
}

impl Program {
    /// The program that is started: its path, or its name.
    pub fn name(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    /// Where that is found, if it is there.
    pub fn find(&self) -> Option<PathBuf> {
        let path = environment(&self.environment).remove(OsStr::new(PATH));
        find(self.name(), path.as_deref())
    }

    /// What its proxy is started with, beside [`Self::command_line`].
    pub fn settings(&self) -> Settings {
        Settings {
            environment: self.environment.clone(),
            folder: self.folder.clone().unwrap_or_else(|| PathBuf::from("/")),
        }
    }

    /// What stands behind `outboard proxy`, where `device` is the end of its link, whose
    /// descriptors are those from [`FIRST_HANDED`] on.
    pub fn command_line(&self, device: Option<&Device>) -> Vec<String> {
        let descriptors = (FIRST_HANDED..).take(SIDE_DESCRIPTORS);
        let descriptors: Vec<_> = descriptors.map(|number| number.to_string()).collect();
        let link = format!("--link={}", descriptors.join(","));
        let mut line = vec!["--component".to_owned(), link];
        let mtu = device.and_then(|device| device.mtu);
        line.extend(mtu.map(|mtu| format!("--mtu={mtu}")));
        let all = [("read", &self.read), ("write", &self.write)];
        for (right, paths) in all {
            let option = |path: &PathBuf| format!("--{right}={}", path.display());
            line.extend(paths.iter().map(option));
        }
        line.push("--".to_owned());
        line.extend(self.words.iter().cloned());
        line
    }

    /// What is wrong with it on this machine.
    pub fn mistakes(&self) -> Vec<String> {
        let mut mistakes = Vec::new();
        if self.find().is_none() {
            let name = self.name();
            mistakes.push(match name.contains('/') {
                true => format!("program: {name} is no program that may be started"),
                false => format!("program: {name} is in no folder of PATH; write its whole path"),
            });
        }
        if let Some(folder) = self.folder.as_ref().filter(|folder| !folder.is_dir()) {
            mistakes.push(format!("folder: {} is no folder", folder.display()));
        }
        for (right, paths) in [("read", &self.read), ("write", &self.write)] {
            let missing = paths.iter().filter(|path| !path.exists());
            mistakes.extend(missing.map(|path| {
                format!(
                    "files.{right}: {} is not there; make it first",
                    path.display()
                )
            }));
        }
        mistakes
    }

    /// Who holds what: what it is, where it is, and what the program may do with it.
    pub fn holdings(&self) -> Vec<[String; 3]> {
        let row = |what: &str, which: &str, right: &str| [what, which, right].map(str::to_owned);
        let mut rows = vec![row("program", &self.words.join(" "), "run")];
        let paths = |right, paths: &[PathBuf]| -> Vec<_> {
            let path = |path: &PathBuf| row("files", &path.display().to_string(), right);
            paths.iter().map(path).collect()
        };
        rows.extend(paths("read", &self.read));
        rows.extend(paths("read, write", &self.write));
        if self.read.is_empty() && self.write.is_empty() {
            rows.push(row("files", "all", "what its user may"));
        }
        let names = self.environment.keys();
        rows.extend(names.map(|name| row("environment", name, "read")));
        rows
    }
}

impl Component {
    /// The end of a program's link.
    pub fn link_end(&self) -> Option<&Device> {
        self.devices.iter().find(|device| device.link().is_some())
    }

    /// What cannot be done with it, since it is a program.
    ///
    /// # Errors
    /// It is one, and what to do instead.
    pub fn must_be_image(&self, instead: &str) -> Result<(), String> {
        match &self.program {
            Some(_) => Err(format!("{} is a program; {instead}", self.name)),
            None => Ok(()),
        }
    }
}

/// The environment of a program that has `own` beside what all have.
pub fn environment(own: &BTreeMap<String, String>) -> BTreeMap<OsString, OsString> {
    let inherited = INHERITED.iter();
    let inherited = inherited.filter_map(|name| Some(((*name).into(), env::var_os(name)?)));
    let own = own.iter().map(|(name, value)| (name.into(), value.into()));
    inherited.chain(own).collect()
}

/// The program of this command line of a proxy, where it is found.
pub fn find_in(command_line: &[String], settings: &Settings) -> PathBuf {
    let mut words = command_line.iter().skip_while(|word| *word != "--").skip(1);
    let words = words.next().cloned().into_iter().collect();
    let program = Program {
        words,
        environment: settings.environment.clone(),
        ..Program::default()
    };
    let name = program.name();
    program.find().unwrap_or_else(|| PathBuf::from(name))
}

/// A program by its path, or in one of these folders.
fn find(name: &str, folders: Option<&OsStr>) -> Option<PathBuf> {
    let is_program = |path: &Path| {
        let file = std::fs::metadata(path);
        file.is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| is_program(path));
    }
    let mut paths = env::split_paths(folders?).map(|folder| folder.join(name));
    paths.find(|path| path.is_absolute() && is_program(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::up::component::Kind;

    fn web() -> Program {
        Program {
            words: ["nginx", "-g", "daemon off;"].map(str::to_owned).to_vec(),
            environment: BTreeMap::from([("A".to_owned(), "b".to_owned())]),
            folder: None,
            read: vec!["/etc".into(), "/srv".into()],
            write: vec!["/tmp".into()],
        }
    }

    #[test]
    fn a_program_is_started_by_its_proxy() {
        let line = web().command_line(None);
        let expected = "--component --link=3,4,5,6 --read=/etc --read=/srv --write=/tmp -- nginx \
                        -g daemon off;";
        assert_eq!(line.join(" "), expected);
        let end = Device {
            kind: Kind::Net,
            name: "net".into(),
            source: "link:inner".into(),
            peer: Some("stack".into()),
            mac: None,
            mtu: Some(9000),
            open: false,
            place: 0,
        };
        assert_eq!(web().command_line(Some(&end))[2], "--mtu=9000");
        assert_eq!(web().settings().folder, Path::new("/"));
    }

    #[test]
    fn a_program_has_its_own_environment_and_little_else() {
        let found = environment(&web().environment);
        assert_eq!(found.get(OsStr::new("A")), Some(&"b".into()));
        assert!(found.contains_key(OsStr::new(PATH)));
        // What cargo says to tests is nobody's else.
        assert!(!found.contains_key(OsStr::new("CARGO_MANIFEST_DIR")));
        assert!(env::var_os("CARGO_MANIFEST_DIR").is_some());
    }

    #[test]
    fn a_program_is_looked_for_where_path_says() {
        let found = |name, folders: &str| find(name, Some(OsStr::new(folders)));
        assert_eq!(found("sh", "/nowhere:/bin"), Some("/bin/sh".into()));
        assert_eq!(found("/bin/sh", ""), Some("/bin/sh".into()));
        for (name, folders) in [
            ("sh", "/nowhere"),
            ("passwd", "/etc"),
            ("/etc/passwd", "/bin"),
        ] {
            assert_eq!(found(name, folders), None);
        }
        assert_eq!(find("sh", None), None);
    }

    #[test]
    fn what_is_not_there_is_told() {
        let program = Program {
            words: vec!["no-such-program".into()],
            folder: Some("/etc/passwd".into()),
            read: vec!["/no/such".into(), "/etc".into()],
            ..Program::default()
        };
        let told = program.mistakes();
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[0].contains("in no folder of PATH"), "{told:?}");
        assert!(told[2].contains("/no/such"), "{told:?}");
    }
}
