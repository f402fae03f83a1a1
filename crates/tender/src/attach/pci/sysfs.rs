//! What the kernel says of a PCI device before it is opened (`sysfs-bus-pci`).

use std::fs;
use std::path::{Path, PathBuf};

/// The name of groups that no IOMMU is behind: those of `enable_unsafe_noiommu_mode`.
pub const NO_IOMMU: &str = "vfio-noiommu";
/// Ends of names of drivers that are VFIO's: `vfio-pci`, and variants for certain devices.
const VFIO: [&str; 2] = ["vfio-pci", "vfio_pci"];
/// Drivers that do no DMA of their own, beside VFIO's.
const HARMLESS: [&str; 2] = ["pcieport", "pci-stub"];

/// Whether a driver is VFIO's.
pub fn is_vfio(driver: &str) -> bool {
    VFIO.into_iter().any(|end| driver.ends_with(end))
}

/// Whether a group may hold a device of this driver and still be handed out: the kernel's own rule
/// (`driver_managed_dma` of Linux).
pub fn is_harmless(driver: &str) -> bool {
    is_vfio(driver) || HARMLESS.contains(&driver)
}

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
    read(&Path::new("/sys/bus/pci/devices").join(address))
}

fn read(folder: &Path) -> Option<Found> {
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
    alive(&PathBuf::from(format!(
        "/sys/kernel/iommu_groups/{group}/devices"
    )))
}

fn alive(folder: &Path) -> Vec<Neighbour> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let neighbour = |entry: fs::DirEntry| {
        let driver = link(&entry.path().join("driver"))?;
        let address = entry.file_name().to_string_lossy().into_owned();
        (!is_harmless(&driver)).then_some(Neighbour { address, driver })
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A folder of this test's own, gone when it is dropped.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("outboard-sysfs-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        /// A card in group 7, of this name, that `driver` drives.
        fn card(&self, group_name: &str, driver: &str) -> PathBuf {
            let device = self.0.join("0000:01:00.0");
            let group = self.0.join("groups/7");
            let driver = self.0.join("drivers").join(driver);
            for folder in [&device, &group, &driver] {
                fs::create_dir_all(folder).unwrap();
            }
            for (file, text) in [
                ("vendor", "0x8086"),
                ("device", "0x10fb"),
                ("class", "0x020000"),
            ] {
                fs::write(device.join(file), format!("{text}\n")).unwrap();
            }
            fs::write(group.join("name"), format!("{group_name}\n")).unwrap();
            symlink(&group, device.join("iommu_group")).unwrap();
            symlink(&driver, device.join("driver")).unwrap();
            device
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_device_is_what_its_files_say() {
        let folder = Folder::new("device");
        let found = read(&folder.card("", "ixgbe")).unwrap();
        assert_eq!(found.identity.to_string(), "8086:10fb of class 020000");
        assert_eq!(
            (found.driver.as_deref(), found.group),
            (Some("ixgbe"), Some(7))
        );
        assert_eq!(read(&folder.0.join("0000:02:00.0")), None);
    }

    /// `enable_unsafe_noiommu_mode` makes groups that keep nothing apart.
    #[test]
    fn a_group_without_an_iommu_is_none() {
        let folder = Folder::new("noiommu");
        assert_eq!(
            read(&folder.card("vfio-noiommu", "vfio-pci"))
                .unwrap()
                .group,
            None
        );
        let device = folder.0.join("0000:01:00.0");
        fs::remove_file(device.join("iommu_group")).unwrap();
        assert_eq!(read(&device).unwrap().group, None);
    }

    /// A variant of the driver knows more about its device, and hands it out by the same calls.
    #[test]
    fn variants_of_vfio_hand_devices_out_too() {
        for driver in ["vfio-pci", "mlx5_vfio_pci", "hisi-acc-vfio-pci"] {
            assert!(is_vfio(driver), "{driver}");
        }
        for driver in ["vfio", "vfio-pci-not", "mlx5_core", ""] {
            assert!(!is_vfio(driver), "{driver}");
        }
    }

    #[test]
    fn neighbours_are_those_with_a_driver_of_the_hosts() {
        let folder = Folder::new("neighbours");
        folder.card("", "igb");
        let devices = folder.0.join("devices");
        fs::create_dir(&devices).unwrap();
        symlink(folder.0.join("0000:01:00.0"), devices.join("0000:01:00.0")).unwrap();
        fs::create_dir(devices.join("0000:01:00.1")).unwrap();
        let found = alive(&devices);
        assert_eq!(found.len(), 1);
        assert_eq!(
            (&*found[0].address, &*found[0].driver),
            ("0000:01:00.0", "igb")
        );
        let device = folder.0.join("0000:01:00.0/driver");
        fs::remove_file(&device).unwrap();
        symlink(folder.0.join("drivers/vfio-pci"), &device).unwrap();
        assert!(alive(&devices).is_empty());
    }
}
