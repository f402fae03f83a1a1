//! Programs of others: those of the lab, which is QEMU under `cargo xtask lab`, and those that the
//! tours of the documents type.

use super::finding::{Finding, Verdict};
use std::env;
use std::path::{Path, PathBuf};

/// What the lab starts, and the Debian package of each.
const LAB: [(&str, &str); 3] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("cpio", "cpio"),
];
/// What the tours type, the Debian package of each, and what it does there.
const TOURS: [(&str, &str, &str); 6] = [
    ("ip", "iproute2", "taps of your own"),
    ("ping", "iputils-ping", "the tours of the documents"),
    ("unshare", "util-linux", "networks to try appliances in"),
    ("nsenter", "util-linux", "a shell in such a network"),
    (
        "iperf3",
        "iperf3",
        "figures of your own (docs/one-namespace.md)",
    ),
    (
        "sysctl",
        "procps",
        "both taps in one namespace (docs/one-namespace.md)",
    ),
];
/// Where Debian keeps administrators' programs: an ordinary user's PATH may lack it.
const ADMINISTRATORS: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Where a program is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a folder of the PATH.
    Path(PathBuf),
    /// In a folder that the PATH lacks.
    Elsewhere(PathBuf),
    /// Nowhere.
    Nowhere,
}

impl Place {
    /// That of this program.
    pub fn of(program: &str) -> Self {
        let path = env::var_os("PATH").unwrap_or_default();
        let in_folder = |folder: &Path| Some(folder.join(program)).filter(|file| file.is_file());
        let mut folders = env::split_paths(&path);
        let mut others = ADMINISTRATORS.into_iter().map(Path::new);
        match folders.find_map(|folder| in_folder(&folder)) {
            Some(file) => Self::Path(file),
            None => others
                .find_map(in_folder)
                .map_or(Self::Nowhere, Self::Elsewhere),
        }
    }
}

/// Whether the lab can be started.
pub fn lab(place: &impl Fn(&str) -> Place) -> Finding {
    let finding = |verdict, state, evidence: String| {
        Finding::new("lab", verdict, state, evidence)
            .good_for("tests with KVM, an IOMMU and network cards that this machine need not have")
    };
    let missing = |(program, _): &(&str, &str)| !matches!(place(program), Place::Path(_));
    let missing: Vec<_> = LAB.into_iter().filter(missing).collect();
    if missing.is_empty() {
        let programs = LAB.map(|(program, _)| program).join(", ");
        return finding(Verdict::Ok, "usable", programs);
    }
    let (programs, packages): (Vec<_>, Vec<_>) = missing.into_iter().unzip();
    finding(
        Verdict::No,
        "incomplete",
        format!("no {}", programs.join(", ")),
    )
    .mend(install(&packages.join(" ")))
}

/// Whether the programs of the tours are there: one line for each.
pub fn tours(place: &impl Fn(&str) -> Place) -> Vec<Finding> {
    let judge = |(program, package, purpose)| {
        let finding = |verdict, state, evidence: String| {
            Finding::new(program, verdict, state, evidence).good_for(purpose)
        };
        match place(program) {
            Place::Path(file) => finding(Verdict::Ok, "usable", file.display().to_string()),
            Place::Elsewhere(file) => {
                let evidence = format!("{}, which is not on the PATH", file.display());
                let folder = file.parent().unwrap_or(Path::new("/")).display();
                let remedy = format!("export PATH=\"$PATH:{folder}\"");
                finding(Verdict::Warn, "off-path", evidence).mend(remedy)
            }
            Place::Nowhere => {
                finding(Verdict::No, "absent", "not installed".to_owned()).mend(install(package))
            }
        }
    };
    TOURS.into_iter().map(judge).collect()
}

fn install(packages: &str) -> String {
    format!("sudo apt-get install {packages}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_path(program: &str) -> Place {
        Place::Path(Path::new("/usr/bin").join(program))
    }

    #[test]
    fn what_the_lab_lacks_is_what_to_install() {
        assert_eq!(lab(&on_path).verdict, Verdict::Ok);
        let finding = lab(&|program: &str| match program {
            "cpio" => on_path(program),
            "busybox" => Place::Elsewhere("/sbin/busybox".into()),
            _ => Place::Nowhere,
        });
        let remedy = "sudo apt-get install qemu-system-x86 busybox-static";
        assert_eq!(finding.remedy.unwrap(), remedy);
        assert_eq!(finding.evidence, "no qemu-system-x86_64, busybox");
    }

    #[test]
    fn each_program_of_the_tours_has_its_line() {
        let findings = tours(&|program: &str| match program {
            "sysctl" => Place::Elsewhere("/usr/sbin/sysctl".into()),
            "iperf3" => Place::Nowhere,
            _ => on_path(program),
        });
        let line = |name| {
            let finding = findings
                .iter()
                .find(|finding| finding.name == name)
                .unwrap();
            let remedy = finding.remedy.as_deref();
            (
                finding.verdict,
                finding.state,
                finding.evidence.as_str(),
                remedy,
            )
        };
        assert_eq!(findings.len(), TOURS.len());
        assert_eq!(line("ip"), (Verdict::Ok, "usable", "/usr/bin/ip", None));
        let install = Some("sudo apt-get install iperf3");
        assert_eq!(
            line("iperf3"),
            (Verdict::No, "absent", "not installed", install)
        );
        let evidence = "/usr/sbin/sysctl, which is not on the PATH";
        let export = Some("export PATH=\"$PATH:/usr/sbin\"");
        assert_eq!(
            line("sysctl"),
            (Verdict::Warn, "off-path", evidence, export)
        );
    }

    #[test]
    fn a_program_is_found_or_not() {
        assert!(matches!(Place::of("sh"), Place::Path(_)));
        assert_eq!(Place::of("no-such-program"), Place::Nowhere);
    }
}
