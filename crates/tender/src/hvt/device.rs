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

/// What a user types who may not open the device, which this `group` may.
pub fn remedy(group: Option<&str>) -> String {
    match group {
        Some(group) => format!("sudo usermod -aG {group} $USER   # then log in again"),
        None => format!("sudo chown $USER {DEVICE}"),
    }
}
