//! Core files of components: where they lie, and how many are kept.

use super::component::Component;
use super::place::{Place, REPORTS};
use rustix::process::{Pid, test_kill_process};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Most that are kept of a component: as many as of its ends.
pub const CORES_MAX: u64 = REPORTS;
/// Files that are looked at, at most: far more than there are.
const FILES_MAX: usize = 4096;
/// What a monitor says of a core file.
const SAID: &str = "outboard: core file: ";

/// A core file.
struct Core {
    path: PathBuf,
    written: SystemTime,
}

/// The option by which a component's tender leaves them, if any are kept.
pub fn option(place: &Place, component: &Component) -> Option<String> {
    let folder = place.cores(&component.name);
    (component.cores > 0).then(|| format!("--dumpcore={}", folder.display()))
}

/// Makes the folder for those of a component that is started now, if any are kept.
///
/// # Errors
/// It cannot be made.
pub fn make(place: &Place, component: &Component) -> io::Result<()> {
    if component.cores == 0 {
        return Ok(());
    }
    let folder = place.cores(&component.name);
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Removes the oldest of a component of which a run has ended. Best effort: the next end looks
/// again.
pub fn prune(place: &Place, component: &Component) {
    let mut cores = read(&place.cores(&component.name));
    cores.sort_by_key(|core| std::cmp::Reverse(core.written));
    for core in cores.iter().skip(component.cores as usize) {
        let _ = std::fs::remove_file(&core.path);
    }
}

/// What is in a folder. An empty file is of a run that has not ended; or of a monitor that was
/// killed, and is removed.
fn read(folder: &Path) -> Vec<Core> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let core = |entry: std::fs::DirEntry| {
        let (path, metadata) = (entry.path(), entry.metadata().ok()?);
        if metadata.len() == 0 {
            if !is_open(&path) {
                let _ = std::fs::remove_file(path);
            }
            return None;
        }
        let written = metadata.modified().ok()?;
        Some(Core { path, written })
    };
    let entries = entries.take(FILES_MAX).flatten();
    entries.filter_map(core).collect()
}

/// Whether the tender lives whose number is at the end of the name.
fn is_open(path: &Path) -> bool {
    let number = path.extension().and_then(|number| number.to_str());
    let tender = number.and_then(|number| Pid::from_raw(number.parse().ok()?));
    tender.is_some_and(|tender| test_kill_process(tender).is_ok())
}

/// Whether a line of a report names a core file that was removed meanwhile.
pub fn is_gone(place: &Place, line: &str) -> bool {
    let folder = place.path().display().to_string();
    let path = line.strip_prefix(SAID).and_then(|said| {
        let at = said.rfind(&folder)?;
        said.get(at..)
    });
    path.is_some_and(|path| !Path::new(path).exists())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::time::Duration;

    /// A system's directory of its own.
    struct Folder(Place);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("outboard-cores-{name}-{}", std::process::id());
            Self(Place::at(std::env::temp_dir().join(name)))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            self.0.remove();
            assert!(!self.0.path().exists(), "all of it is removed");
        }
    }

    fn component(cores: u64) -> Component {
        Component {
            name: "echo".to_owned(),
            cores,
            ..Component::default()
        }
    }

    #[test]
    fn the_newest_are_kept() {
        let Folder(place) = &Folder::new("kept");
        make(place, &component(2)).unwrap();
        let folder = place.cores("echo");
        let path = |number: u64| folder.join(format!("core.outboard.{number}"));
        for number in [3, 1, 2] {
            let file = File::create(path(number)).unwrap();
            file.set_len(1).unwrap();
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(number);
            file.set_modified(time).unwrap();
        }
        // Of one that runs, and of one that is gone: no process has such a number.
        let (running, gone) = (u64::from(std::process::id()), 0x7fff_fffe);
        File::create(path(running)).unwrap();
        File::create(path(gone)).unwrap();
        let exist = || [1, 2, 3, running, gone].map(|number| path(number).exists());
        prune(place, &component(2));
        assert_eq!(exist(), [false, true, true, true, false]);
        prune(place, &component(0));
        assert_eq!(exist(), [false, false, false, true, false]);
    }

    #[test]
    fn who_keeps_none_has_no_folder_and_no_option() {
        let Folder(place) = &Folder::new("none");
        make(place, &component(0)).unwrap();
        assert!(!place.path().exists());
        assert_eq!(option(place, &component(0)), None);
        let kept = option(place, &component(1)).unwrap();
        assert!(kept.starts_with("--dumpcore=/") && kept.ends_with("/echo.cores"));
        prune(place, &component(1));
    }

    #[test]
    fn a_line_whose_file_is_gone_is_told_from_others() {
        let Folder(place) = &Folder::new("gone");
        make(place, &component(1)).unwrap();
        let file = place.cores("echo").join("core.outboard.1");
        let line = format!("outboard: core file: gdb a b.spt {}", file.display());
        assert!(is_gone(place, &line));
        File::create(file).unwrap();
        assert!(!is_gone(place, &line));
        // A guest may say that as well.
        assert!(!is_gone(place, &format!("console: {line}2")));
        assert!(!is_gone(place, "outboard: core file: gdb a /nowhere/b"));
    }
}
