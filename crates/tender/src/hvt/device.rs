//! The file behind which KVM is, and who may open it.

use std::fs;
use std::os::unix::fs::MetadataExt;

/// Where KVM is.
pub const DEVICE: &str = "/dev/kvm";
/// Bits of a mode that let a group read and write.
const GROUP: u32 = 0o060;

/// The name of the group that may open the device, if there is one.
pub fn group() -> Option<String> {
    let data = fs::metadata(DEVICE).ok()?;
    let id = data.gid();
    let groups = fs::read_to_string("/etc/group").ok()?;
    let mut groups = groups
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>());
    let named = groups.find(|fields| fields.get(2).and_then(|id| id.parse().ok()) == Some(id))?;
    let allowed = id != 0 && data.mode() & GROUP == GROUP;
    allowed.then(|| named[0].to_owned())
}

/// Whether a processor of which `/proc/cpuinfo` says this can run virtual machines.
pub fn can_virtualise(cpuinfo: &str) -> bool {
    let mut lines = cpuinfo.lines();
    let flags = lines.find_map(|line| line.strip_prefix("flags")?.split_once(':'));
    let (_, flags) = flags.unwrap_or_default();
    flags
        .split_whitespace()
        .any(|flag| ["vmx", "svm"].contains(&flag))
}

/// What helps a user who may not open the device, which this `group` may: nothing on a processor
/// that runs no virtual machines.
pub(super) fn advice(group: Option<&str>, cpuinfo: &str) -> String {
    match can_virtualise(cpuinfo) {
        true => format!("type: {}", remedy(group)),
        false => "the processor shows neither vmx nor svm, so guests would hardly run if it \
                  opened; start the image with --host=spt"
            .to_owned(),
    }
}

/// What a user types who may not open the device, which this `group` may.
pub fn remedy(group: Option<&str>) -> String {
    match group {
        Some(group) => format!("sudo usermod -aG {group} $USER   # then log in again"),
        None => format!("sudo chown $USER {DEVICE}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_for_a_right_that_is_worth_nothing() {
        let able = "vendor_id\t: GenuineIntel\nflags\t\t: fpu vmx sse2\n";
        assert_eq!(advice(None, able), "type: sudo chown $USER /dev/kvm");
        let kvm = "type: sudo usermod -aG kvm $USER   # then log in again";
        assert_eq!(advice(Some("kvm"), &able.replace("vmx", "svm")), kvm);
        let says = "the processor shows neither vmx nor svm, so guests would hardly run if it \
                    opened; start the image with --host=spt";
        for cpuinfo in [
            "flags\t\t: fpu vmx2 hypervisor\n",
            "",
            "flags : vmx".trim_end_matches("vmx"),
        ] {
            assert_eq!(advice(Some("kvm"), cpuinfo), says, "{cpuinfo}");
        }
    }
}
