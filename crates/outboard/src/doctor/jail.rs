//! What the jail is made of: seccomp and Landlock.

use super::finding::{Finding, Verdict};
use super::machine::Machine;
use rustix::io::Errno;
use std::{fs, io};

/// The level that the tender asks for; it takes what it gets.
const LANDLOCK_WANTED: u32 = 6;
/// What each level added, from the second on: `landlock.rst`.
const LANDLOCK_ADDED: [&str; 5] = [
    "moving files",
    "truncating files",
    "TCP",
    "device ioctls",
    "abstract sockets and signals",
];
/// The actions of the tender's filters.
const ACTIONS: [&str; 3] = ["allow", "kill_process", "trap"];

/// The actions that the kernel's seccomp knows: seccomp(2).
pub fn actions() -> io::Result<String> {
    fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail")
}

/// Whether they are enough.
pub fn seccomp(actions: &io::Result<String>) -> Finding {
    let Ok(actions) = actions else {
        let evidence = "the kernel has none, or /proc is not mounted; spt above was tried";
        return Finding::new("seccomp", Verdict::Warn, "unknown", evidence);
    };
    let known: Vec<&str> = actions.split_ascii_whitespace().collect();
    let missing: Vec<&str> = ACTIONS
        .into_iter()
        .filter(|action| !known.contains(action))
        .collect();
    match missing.is_empty() {
        true => Finding::new("seccomp", Verdict::Ok, "usable", known.join(" ")),
        false => {
            let evidence = format!("no {}: the kernel is too old", missing.join(", "));
            Finding::new("seccomp", Verdict::No, "old", evidence)
        }
    }
}

/// The kernel's Landlock.
#[derive(Debug)]
pub struct Landlock {
    /// Its ABI level.
    level: io::Result<u32>,
    /// The security modules that are on, with commas; empty if that is not known.
    modules: String,
}

impl Landlock {
    /// That of this machine.
    pub fn observe() -> Self {
        let modules = fs::read_to_string("/sys/kernel/security/lsm").unwrap_or_default();
        Self {
            level: tender::spt::probe::landlock(),
            modules: modules.trim().to_owned(),
        }
    }
}

/// What the level means.
pub fn landlock(facts: &Landlock, machine: &Machine) -> Finding {
    let finding = |verdict, state, evidence: String| {
        Finding::new("Landlock", verdict, state, evidence)
            .good_for("a second wall behind seccomp; guests are jailed without it as well")
    };
    match &facts.level {
        Ok(level) if *level >= LANDLOCK_WANTED => {
            finding(Verdict::Ok, "usable", format!("ABI level {level}"))
        }
        Ok(level) => {
            let from = (*level as usize)
                .saturating_sub(1)
                .min(LANDLOCK_ADDED.len());
            let missing = LANDLOCK_ADDED[from..].join(", ");
            let evidence =
                format!("ABI level {level} knows nothing of {missing}: a newer kernel does");
            finding(Verdict::Warn, "old", evidence)
        }
        Err(error) if Errno::from_io_error(error) == Some(Errno::OPNOTSUPP) => {
            let evidence = "built in, but not among the security modules chosen at boot (lsm=)";
            let lsm = match &*facts.modules {
                "" => "lsm=landlock".to_owned(),
                others => format!("lsm=landlock,{others}"),
            };
            finding(Verdict::No, "disabled", evidence.into()).mend(machine.boot_with(&lsm))
        }
        Err(error) => finding(Verdict::No, "absent", error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::{cloud, server};
    use super::*;

    #[test]
    fn a_filter_needs_its_actions() {
        let all = "kill_process kill_thread trap errno user_notif trace log allow\n";
        assert_eq!(seccomp(&Ok(all.into())).verdict, Verdict::Ok);
        let old = seccomp(&Ok("kill_thread trap errno trace allow".into()));
        assert_eq!(old.verdict, Verdict::No);
        assert!(old.evidence.contains("kill_process"), "{old:?}");
        let unknown = seccomp(&Err(Errno::NOENT.into()));
        assert_eq!(unknown.verdict, Verdict::Warn);
    }

    fn at(level: Result<u32, Errno>, machine: &Machine) -> Finding {
        let facts = Landlock {
            level: level.map_err(io::Error::from),
            modules: "capability,apparmor".into(),
        };
        landlock(&facts, machine)
    }

    #[test]
    fn each_level_lacks_what_came_later() {
        assert_eq!(at(Ok(7), &server()).verdict, Verdict::Ok);
        let first = at(Ok(1), &server());
        assert!(
            first.evidence.contains("of moving files, truncating"),
            "{first:?}"
        );
        let fifth = at(Ok(5), &server());
        assert_eq!(fifth.verdict, Verdict::Warn);
        assert!(fifth.evidence.contains("of abstract sockets"), "{fifth:?}");
        assert_eq!(at(Ok(0), &server()).verdict, Verdict::Warn);
    }

    #[test]
    fn switched_off_is_not_absent() {
        let disabled = at(Err(Errno::OPNOTSUPP), &server());
        assert_eq!(disabled.state, "disabled");
        let remedy = disabled.remedy.unwrap();
        assert!(
            remedy.contains("lsm=landlock,capability,apparmor "),
            "{remedy}"
        );
        assert_eq!(at(Err(Errno::OPNOTSUPP), &cloud()).remedy, None);
        assert_eq!(at(Err(Errno::NOSYS), &server()).state, "absent");
    }
}
