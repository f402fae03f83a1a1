//! What the kernel says of a PCI device before it is opened (`sysfs-bus-pci`).

use std::fs;
use std::path::{Path, PathBuf};

/// The name of groups that no IOMMU is behind: those of `enable_unsafe_noiommu_mode`.
const NO_IOMMU: &str = "vfio-noiommu";
/// Drivers whose devices a group may hold beside: VFIO's own, and that of bridges, which only pass
/// on what others send (`vfio_dev_viable` of Linux).
const HARMLESS: [&str; 3] = ["vfio-pci", "pcieport", "pci-stub"];

/// What a device is, as a manifest describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Class code, subclass, programming interface.
    pub class: [u8; 3],
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [class, subclass, progif] = self.class;
        let (vendor, device) = (self.vendor, self.device);
        write!(
            f,
            "{vendor:04x}:{device:04x} of class {class:02x}{subclass:02x}{progif:02x}"
        )
    }
}

/// A device as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What it is.
    pub identity: Identity,
    /// Who drives it.
    pub driver: Option<String>,
    /// Its group of the IOMMU, if one keeps it in its place.
    pub group: Option<u32>,
}

/// The device with this address, if there is one.
pub fn find(address: &str) -> Option<Found> {
    let folder = Path::new("/sys/bus/pci/devices").join(address);
    let number = |file: &str| {
        let text = fs::read_to_string(folder.join(file)).ok()?;
        u32::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
    };
    let [_, class, subclass, progif] = number("class")?.to_be_bytes();
    Some(Found {
        identity: Identity {
            vendor: number("vendor")?.try_into().ok()?,
            device: number("device")?.try_into().ok()?,
            class: [class, subclass, progif],
        },
        driver: link(&folder.join("driver")),
        group: group(&folder.join("iommu_group")),
    })
}

fn group(folder: &Path) -> Option<u32> {
    let number = link(folder)?.parse().ok()?;
    let name = fs::read_to_string(folder.join("name")).unwrap_or_default();
    (name.trim() != NO_IOMMU).then_some(number)
}

/// A device that keeps a group from being handed out, and its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its address.
    pub address: String,
    /// Who drives it.
    pub driver: String,
}

/// Those of a group that somebody else drives.
pub fn neighbours(group: u32) -> Vec<Neighbour> {
    let folder = PathBuf::from(format!("/sys/kernel/iommu_groups/{group}/devices"));
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
    let neighbour = |entry: fs::DirEntry| {
        let driver = link(&entry.path().join("driver"))?;
        let address = entry.file_name().to_string_lossy().into_owned();
        let alive = !HARMLESS.contains(&driver.as_str());
        alive.then_some(Neighbour { address, driver })
    };
    let mut neighbours: Vec<_> = entries.filter_map(neighbour).collect();
    neighbours.sort_by(|a, b| a.address.cmp(&b.address));
    neighbours
}

/// The last part of what a link points to.
fn link(path: &Path) -> Option<String> {
    let target = fs::read_link(path).ok()?;
    Some(target.file_name()?.to_string_lossy().into_owned())
}
