//! What the kernel's files say of PCI devices: `sysfs-bus-pci` of its ABI documentation.
//!
//! Everything here reads and nothing writes. Each path begins at a root folder, which tests put
//! elsewhere. A file that is missing or holds something else counts as not there.

use super::{Address, Class, Identity};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fmt, fs};

const DEVICES: &str = "sys/bus/pci/devices";
const DRIVERS: &str = "sys/bus/pci/drivers";
const GROUPS: &str = "sys/kernel/iommu_groups";
const INTERFACES: &str = "sys/class/net";
/// The driver by which VFIO hands devices out.
pub const VFIO_PCI: &str = "vfio-pci";
/// The name of groups without an IOMMU: those of `enable_unsafe_noiommu_mode`.
const NO_IOMMU: &str = "vfio-noiommu";
/// Ends of names of drivers that are VFIO's: `vfio-pci`, and variants for certain devices.
const VFIO: [&str; 2] = ["vfio-pci", "vfio_pci"];
/// Drivers that do no DMA of their own, beside VFIO's.
const HARMLESS: [&str; 2] = ["pcieport", "pci-stub"];

/// Whether a driver is VFIO's.
pub fn is_vfio(driver: &str) -> bool {
    VFIO.into_iter().any(|end| driver.ends_with(end))
}

/// Whether VFIO hands out a group in which this driver has a device: the kernel's own rule
/// (`driver_managed_dma` of Linux).
fn is_harmless(driver: &str) -> bool {
    is_vfio(driver) || HARMLESS.contains(&driver)
}

/// The tree of files that begins at a root.
#[derive(Clone, Debug)]
pub struct Tree(PathBuf);

/// A PCI device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its address.
    pub address: Address,
    /// Its class.
    pub class: Class,
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// The driver that has it.
    pub driver: Option<String>,
    /// The one driver that may have it, if one was named.
    pub driver_override: Option<String>,
    /// Its group of the IOMMU.
    pub group: Option<u32>,
    /// Network interfaces of this namespace that it is behind; found by [`Tree::machine`] alone.
    pub interfaces: BTreeSet<String>,
    /// Disks and partitions on it that are in use; found by [`Tree::machine`] alone.
    pub disks: BTreeSet<String>,
}

impl Device {
    /// What it is.
    pub fn identity(&self) -> Identity {
        Identity {
            vendor: self.vendor,
            device: self.device,
            class: self.class,
        }
    }
}

/// A device of a group, on whatever bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// What the kernel calls it: its address, on PCI.
    pub name: String,
    /// The driver that has it.
    pub driver: Option<String>,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let driver = self.driver.as_deref().unwrap_or("no driver");
        write!(f, "{} ({driver})", self.name)
    }
}

/// A group: devices between which the IOMMU makes no difference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// The devices in it, by name.
    pub members: Vec<Member>,
    /// There is no IOMMU behind it.
    pub unprotected: bool,
    /// Its file exists, and this user may not open it.
    pub forbidden: bool,
}

impl Group {
    /// The members that keep VFIO from handing the group out, but for the devices `wanted`: those
    /// that a driver of the host's has. A device without a driver does no DMA.
    pub fn live(&self, wanted: &[Address]) -> Vec<Member> {
        let is_live = |member: &&Member| {
            let address = member.name.parse::<Address>().ok();
            let driver = member.driver.as_deref();
            !address.is_some_and(|address| wanted.contains(&address))
                && driver.is_some_and(|driver| !is_harmless(driver))
        };
        self.members.iter().filter(is_live).cloned().collect()
    }
}

/// What was found on a machine.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// All devices.
    pub devices: BTreeMap<Address, Device>,
    /// Groups of the IOMMU.
    pub groups: BTreeMap<u32, Group>,
    /// The driver `vfio-pci` is there.
    pub vfio: bool,
}

impl Machine {
    /// The group of a device and its number, if an IOMMU keeps the group to its own memory.
    pub fn guarded_group(&self, device: &Device) -> Option<(u32, &Group)> {
        let number = device.group?;
        let group = self.groups.get(&number)?;
        (!group.unprotected).then_some((number, group))
    }
}

impl Tree {
    /// The files of this machine.
    pub fn host() -> Self {
        Self("/".into())
    }

    /// A tree below another root: for tests.
    pub fn at(root: PathBuf) -> Self {
        Self(root)
    }

    /// All devices and groups of the machine.
    pub fn machine(&self) -> Machine {
        let mut devices = BTreeMap::new();
        for name in self.names(DEVICES) {
            if let Some(device) = name.parse().ok().and_then(|address| self.device(address)) {
                devices.insert(device.address, device);
            }
        }
        self.add_interfaces(&mut devices);
        self.add_disks(&mut devices);
        let numbers = self.names(GROUPS).into_iter();
        let numbers = numbers.filter_map(|name| name.parse().ok());
        Machine {
            devices,
            groups: numbers.map(|number| (number, self.group(number))).collect(),
            vfio: self.0.join(DRIVERS).join(VFIO_PCI).exists(),
        }
    }

    /// What the kernel calls the units of the IOMMU.
    pub fn iommus(&self) -> Vec<String> {
        self.names("sys/class/iommu")
    }

    /// What the process with this id is called, if there is one.
    pub fn command(&self, process: i32) -> Option<String> {
        let path = self.0.join(format!("proc/{process}/comm"));
        Some(fs::read_to_string(path).ok()?.trim_end().to_owned())
    }

    /// The driver that has a device now.
    pub fn driver(&self, address: Address) -> Option<String> {
        symlink_name(&self.folder(address).join("driver"))
    }

    /// Whether there is such a device now.
    pub fn exists(&self, address: Address) -> bool {
        self.folder(address).exists()
    }

    /// The one driver that may have a device now.
    pub fn driver_override(&self, address: Address) -> Option<String> {
        let text = fs::read_to_string(self.folder(address).join("driver_override")).ok()?;
        Some(text.trim().to_owned()).filter(|name| !name.is_empty() && name != "(null)")
    }

    /// The interfaces that a device is behind now.
    pub fn interfaces(&self, address: Address) -> BTreeSet<String> {
        let all = self.names(INTERFACES).into_iter();
        all.filter(|name| self.behind(INTERFACES, name) == Some(address))
            .collect()
    }

    /// The interfaces right below this one, as the ports of a bridge are.
    pub fn lower(&self, interface: &str) -> Vec<String> {
        let folder = Path::new(INTERFACES).join(interface);
        let names = self.names(folder).into_iter();
        names
            .filter_map(|name| Some(name.strip_prefix("lower_")?.to_owned()))
            .collect()
    }

    /// The file by which VFIO hands out a group.
    pub fn node(&self, group: u32) -> PathBuf {
        self.0.join("dev/vfio").join(group.to_string())
    }

    /// The folder of a device.
    pub fn folder(&self, address: Address) -> PathBuf {
        self.0.join(DEVICES).join(address.to_string())
    }

    /// The folder of a driver.
    pub fn driver_folder(&self, driver: &str) -> PathBuf {
        self.0.join(DRIVERS).join(driver)
    }

    /// The file that has the kernel look for a driver for a device whose address is written to it.
    pub fn probe_file(&self) -> PathBuf {
        self.0.join("sys/bus/pci/drivers_probe")
    }

    /// The device with this address, if there is one.
    pub fn device(&self, address: Address) -> Option<Device> {
        let folder = self.folder(address);
        let number = |attribute| {
            let text = fs::read_to_string(folder.join(attribute)).ok()?;
            u32::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
        };
        Some(Device {
            address,
            class: Class(number("class")?),
            vendor: number("vendor")?.try_into().ok()?,
            device: number("device")?.try_into().ok()?,
            driver: self.driver(address),
            driver_override: self.driver_override(address),
            group: symlink_name(&folder.join("iommu_group")).and_then(|name| name.parse().ok()),
            interfaces: BTreeSet::new(),
            disks: BTreeSet::new(),
        })
    }

    fn add_interfaces(&self, devices: &mut BTreeMap<Address, Device>) {
        for name in self.names(INTERFACES) {
            let address = self.behind(INTERFACES, &name);
            if let Some(device) = address.and_then(|address| devices.get_mut(&address)) {
                device.interfaces.insert(name);
            }
        }
    }

    fn add_disks(&self, devices: &mut BTreeMap<Address, Device>) {
        let mut words = BTreeSet::new();
        for list in ["proc/self/mountinfo", "proc/swaps"] {
            let text = fs::read_to_string(self.0.join(list)).unwrap_or_default();
            words.extend(text.split_whitespace().map(str::to_owned));
        }
        for name in self.names("sys/class/block") {
            let folder = Path::new("sys/class/block").join(&name);
            let read = |attribute| {
                let path = self.0.join(&folder).join(attribute);
                fs::read_to_string(path).unwrap_or_default()
            };
            // A hidden disk is one of several paths to another one.
            let used = words.contains(&format!("/dev/{name}"))
                || words.contains(read("dev").trim())
                || read("hidden").trim() == "1"
                || !self.names(folder.join("holders")).is_empty();
            let address = self.behind("sys/class/block", &name).filter(|_| used);
            if let Some(device) = address.and_then(|address| devices.get_mut(&address)) {
                device.disks.insert(name);
            }
        }
    }

    /// The PCI device behind an entry of a class: the last one on its path.
    fn behind(&self, class: &str, name: &str) -> Option<Address> {
        let path = self.0.join(class).join(name).canonicalize().ok()?;
        let mut components = path.components().rev();
        components.find_map(|component| component.as_os_str().to_str()?.parse().ok())
    }

    /// The group of a device and its number, as [`Machine::guarded_group`] gives it.
    pub fn guarded_group(&self, device: &Device) -> Option<(u32, Group)> {
        let number = device.group?;
        let group = self.group(number);
        (!group.unprotected).then_some((number, group))
    }

    /// The group of this number; one without members where there is none.
    pub fn group(&self, number: u32) -> Group {
        let folder = Path::new(GROUPS).join(number.to_string());
        let devices = folder.join("devices");
        let member = |name: String| Member {
            driver: symlink_name(&self.0.join(&devices).join(&name).join("driver")),
            name,
        };
        let label = fs::read_to_string(self.0.join(&folder).join("name")).unwrap_or_default();
        let node = self.node(number);
        let access = rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK;
        Group {
            members: self.names(&devices).into_iter().map(member).collect(),
            unprotected: label.trim() == NO_IOMMU,
            forbidden: node.exists() && rustix::fs::access(&node, access).is_err(),
        }
    }

    /// Names in a directory, in order; none if there is no such directory.
    fn names(&self, folder: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.0.join(folder)).into_iter().flatten();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }
}

/// The last name of what a symbolic link points to.
fn symlink_name(path: &Path) -> Option<String> {
    let target = fs::read_link(path).ok()?;
    Some(target.file_name()?.to_str()?.to_owned())
}

#[cfg(test)]
mod tests;
