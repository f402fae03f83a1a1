//! The lab, which is QEMU under `cargo xtask lab`.

use super::finding::{Finding, Verdict};
use std::env;

/// What the lab starts, and the Debian package of each.
const PROGRAMS: [(&str, &str); 3] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("cpio", "cpio"),
];

/// Of [`PROGRAMS`], those that are not on the path.
pub fn missing() -> Vec<(&'static str, &'static str)> {
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = |program| env::split_paths(&path).any(|folder| folder.join(program).is_file());
    let programs = PROGRAMS.into_iter();
    programs.filter(|(program, _)| !on_path(*program)).collect()
}

/// Whether the lab can be started without them.
pub fn judge(missing: &[(&'static str, &'static str)]) -> Finding {
    let finding = |verdict, state, evidence: String| {
        Finding::new("lab", verdict, state, evidence)
            .good_for("tests with KVM, an IOMMU and network cards that this machine need not have")
    };
    if missing.is_empty() {
        let programs = PROGRAMS.map(|(program, _)| program).join(", ");
        return finding(Verdict::Ok, "usable", programs);
    }
    let (programs, packages): (Vec<_>, Vec<_>) = missing.iter().copied().unzip();
    finding(
        Verdict::No,
        "incomplete",
        format!("no {}", programs.join(", ")),
    )
    .mend(format!("sudo apt-get install {}", packages.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_what_to_install() {
        assert_eq!(judge(&[]).verdict, Verdict::Ok);
        let finding = judge(&PROGRAMS[..2]);
        let remedy = "sudo apt-get install qemu-system-x86 busybox-static";
        assert_eq!(finding.remedy.unwrap(), remedy);
        assert_eq!(finding.evidence, "no qemu-system-x86_64, busybox");
    }
}
