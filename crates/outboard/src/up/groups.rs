//! Control groups of components (Linux `Documentation/admin-guide/cgroup-v2.rst`): what bounds
//! their memory and their time on the processors, where somebody has delegated a group.
//!
//! A supervisor that is in a group called `supervisor` may use the group around that, and nothing
//! else: as systemd has it with `Delegate=` and `DelegateSubgroup=supervisor`. It moves nobody but
//! its components, so that it never meets the rule that a group with controllers has no processes.

use std::io;
use std::path::{Component as Part, Path, PathBuf};

/// The group in which a supervisor is, for the one around it to be its own.
const OWN: &str = "supervisor";
/// What stands in front of a component's name in that of its group.
const PREFIX: &str = "component-";
/// Period of `cpu.max`, in microseconds: the kernel's own choice.
const PERIOD: u64 = 100_000;

/// The groups of a supervisor's components.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    parent: PathBuf,
    /// Whether they bound memory.
    pub memory: bool,
    /// Whether they bound time on the processors.
    pub cpu: bool,
}

/// What a component may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Memory in MiB.
    pub memory: Option<u64>,
    /// Time on the processors, in percent of one.
    pub cpu: Option<u64>,
}

/// Who bounds something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Its control group.
    Group,
    /// A limit of each process (setrlimit(2)).
    Process,
    /// Nobody can.
    Nobody,
}

impl Limits {
    /// Each limit that there is, in words, and who bounds it.
    pub fn held(&self, groups: Option<&Groups>) -> Vec<(&'static str, String, By)> {
        let memory = match groups.is_some_and(|groups| groups.memory) {
            true => By::Group,
            false => By::Process,
        };
        let cpu = match groups.is_some_and(|groups| groups.cpu) {
            true => By::Group,
            false => By::Nobody,
        };
        let memory = self
            .memory
            .map(|mib| ("limits.memory", format!("{mib} MiB"), memory));
        let cpu = self
            .cpu
            .map(|percent| ("limits.cpu", format!("{percent} %"), cpu));
        memory.into_iter().chain(cpu).collect()
    }
}

impl By {
    /// It in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Group => "by its control group",
            Self::Process => {
                "of each process's address space, by rlimit, for no group was delegated"
            }
            Self::Nobody => "not in force: no control group was delegated",
        }
    }
}

impl Groups {
    /// Those that this process may make; `None` if none was delegated to it.
    pub fn of_this_process() -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        Some(Self::within(delegated(&mounts, &own)?))
    }

    /// Groups in `parent`, with the controllers that can be had there.
    fn within(parent: PathBuf) -> Self {
        let asked = |controller: &str| {
            let control = parent.join("cgroup.subtree_control");
            std::fs::write(control, format!("+{controller}")).is_ok()
        };
        let (memory, cpu) = (asked("memory"), asked("cpu"));
        Self {
            parent,
            memory,
            cpu,
        }
    }

    /// Whether a component of these limits is bounded by its group.
    pub fn bound(&self, limits: &Limits) -> bool {
        self.memory && limits.memory.is_some() || self.cpu && limits.cpu.is_some()
    }

    /// The group of the component of this name.
    pub fn of(&self, name: &str) -> PathBuf {
        self.parent.join(format!("{PREFIX}{name}"))
    }

    /// Makes the group of this component if it is not there, and sets its limits.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn set(&self, name: &str, limits: Limits) -> io::Result<()> {
        let group = self.of(name);
        match std::fs::create_dir(&group) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        if self.memory {
            let most = limits.memory.map(|mib| (mib << 20).to_string());
            std::fs::write(group.join("memory.max"), most.as_deref().unwrap_or("max"))?;
        }
        if self.cpu {
            let most = limits.cpu.map(|percent| percent * PERIOD / 100);
            let most = most.map_or_else(|| "max".to_owned(), |quota| quota.to_string());
            std::fs::write(group.join("cpu.max"), format!("{most} {PERIOD}"))?;
        }
        Ok(())
    }

    /// Removes the group of this component. Best effort: one in which somebody runs stays.
    pub fn remove(&self, name: &str) {
        let _ = std::fs::remove_dir(self.of(name));
    }
}

/// Moves this process into a group.
///
/// # Errors
/// What the kernel says.
pub fn enter(group: &Path) -> io::Result<()> {
    std::fs::write(group.join("cgroup.procs"), "0")
}

/// The group that was delegated to a process, by its `/proc/self/mountinfo` (proc_pid_mountinfo(5))
/// and `/proc/self/cgroup` (cgroups(7)): the one around its own, if that is called [`OWN`].
fn delegated(mounts: &str, own: &str) -> Option<PathBuf> {
    let own = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mount = mounts.lines().find_map(|line| {
        let (front, kind) = line.split_once(" - ")?;
        let mut fields = front.split(' ').skip(3);
        let (root, place) = (fields.next()?, fields.next()?);
        kind.starts_with("cgroup2 ").then_some((root, place))
    });
    let (root, place) = mount?;
    let below = Path::new(own).strip_prefix(root).ok()?;
    let is_name = |part: Part<'_>| matches!(part, Part::Normal(_));
    if below.file_name()? != OWN || !below.components().all(is_name) {
        return None;
    }
    Some(Path::new(place).join(below.parent()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 0:20 / /proc rw - proc proc rw\n\
30 1 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn only_who_is_in_a_group_of_that_name_has_the_one_around_it() {
        let own = |path: &str| delegated(MOUNTS, &format!("1:name=systemd:/x\n0::{path}\n"));
        let found = Path::new("/sys/fs/cgroup/system.slice/site.service");
        assert_eq!(own("/system.slice/site.service/supervisor").unwrap(), found);
        let none = [
            "/system.slice/site.service",
            "/",
            "",
            "/../supervisor",
            "/a/../supervisor",
        ];
        for path in none {
            assert_eq!(own(path), None, "{path}");
        }
        assert_eq!(delegated(MOUNTS, "4:memory:/supervisor\n"), None);
        assert_eq!(delegated("", "0::/supervisor"), None);
        let inner = MOUNTS.replace("0:26 / ", "0:26 /box ");
        let found = delegated(&inner, "0::/box/a/supervisor").unwrap();
        assert_eq!(found, Path::new("/sys/fs/cgroup/a"));
        assert_eq!(delegated(&inner, "0::/other/supervisor"), None);
    }

    #[test]
    fn each_limit_says_who_bounds_it() {
        let limits = Limits {
            memory: Some(64),
            cpu: Some(150),
        };
        let by = |groups: Option<&Groups>| limits.held(groups).into_iter().map(|(.., by)| by);
        assert!(by(None).eq([By::Process, By::Nobody]));
        let groups = |memory, cpu| Groups {
            parent: "/g".into(),
            memory,
            cpu,
        };
        assert!(by(Some(&groups(true, false))).eq([By::Group, By::Nobody]));
        assert!(by(Some(&groups(true, true))).eq([By::Group, By::Group]));
        assert!(Limits::default().held(None).is_empty());
    }
}
