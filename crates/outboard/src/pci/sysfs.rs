//! What the kernel's files say of PCI devices: `sysfs-bus-pci` of its ABI documentation.
//!
//! Every path begins at a root that tests put elsewhere.

use super::Address;
use super::class::Class;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tender::attach::pci::sysfs::NO_IOMMU;

const DEVICES: &str = "sys/bus/pci/devices";
const DRIVERS: &str = "sys/bus/pci/drivers";
const GROUPS: &str = "sys/kernel/iommu_groups";
/// The driver by which VFIO hands devices out.
pub const VFIO_PCI: &str = "vfio-pci";

/// The tree of files that begins at a root.
#[derive(Clone, Debug)]
pub struct Tree(PathBuf);

/// A PCI device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Where it is plugged in.
    pub address: Address,
    /// What kind it is of.
    pub class: Class,
    /// Who made it.
    pub vendor: u16,
    /// Which of its maker's devices it is.
    pub device: u16,
    /// Who drives it.
    pub driver: Option<String>,
    /// The one driver that may, if that was said.
    pub driver_override: Option<String>,
    /// Its group of the IOMMU.
    pub group: Option<u32>,
    /// Network interfaces of this namespace that it is behind.
    pub interfaces: BTreeSet<String>,
    /// Disks and partitions on it that are in use.
    pub disks: BTreeSet<String>,
}

/// A device of a group, on whatever bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// What the kernel calls it: its address, on PCI.
    pub name: String,
    /// Who drives it.
    pub driver: Option<String>,
}

/// A group of devices that the IOMMU cannot keep apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Who is in it.
    pub members: Vec<Member>,
    /// There is no IOMMU behind it.
    pub unprotected: bool,
    /// Its file exists, and this user may not open it.
    pub forbidden: bool,
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

impl Tree {
    /// Everything.
    pub fn host() -> Self {
        Self("/".into())
    }

    /// What is below this folder.
    #[cfg(test)]
    pub fn at(root: PathBuf) -> Self {
        Self(root)
    }

    /// What is found in it; nothing where there are no such files.
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

    /// Who drives a device now.
    pub fn driver(&self, address: Address) -> Option<String> {
        link(&self.folder(address).join("driver"))
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
        let all = self.names("sys/class/net").into_iter();
        all.filter(|name| self.behind("sys/class/net", name) == Some(address))
            .collect()
    }

    /// The interfaces right below this one, as the ports of a bridge are.
    pub fn lower(&self, interface: &str) -> Vec<String> {
        let folder = Path::new("sys/class/net").join(interface);
        let names = self.names(folder).into_iter();
        names
            .filter_map(|name| Some(name.strip_prefix("lower_")?.to_owned()))
            .collect()
    }

    /// The file by which VFIO hands out a group.
    pub fn node(&self, group: u32) -> PathBuf {
        self.0.join("dev/vfio").join(group.to_string())
    }

    /// Writes to the file `attribute` of a device.
    ///
    /// # Errors
    /// The path, and what the kernel says.
    pub fn write(&self, address: Address, attribute: &str, text: &str) -> Result<(), Refused> {
        write(self.folder(address).join(attribute), text)
    }

    /// Writes an address to the file `attribute` of a driver.
    ///
    /// # Errors
    /// The path, and what the kernel says.
    pub fn tell_driver(
        &self,
        driver: &str,
        attribute: &str,
        address: Address,
    ) -> Result<(), Refused> {
        let path = self.0.join(DRIVERS).join(driver).join(attribute);
        write(path, &address.to_string())
    }

    /// Has the kernel look for a driver for a device.
    ///
    /// # Errors
    /// The path, and what the kernel says.
    pub fn probe(&self, address: Address) -> Result<(), Refused> {
        let path = self.0.join("sys/bus/pci/drivers_probe");
        write(path, &address.to_string())
    }

    fn folder(&self, address: Address) -> PathBuf {
        self.0.join(DEVICES).join(address.to_string())
    }

    fn device(&self, address: Address) -> Option<Device> {
        let folder = self.folder(address);
        let number = |attribute| {
            let text = fs::read_to_string(folder.join(attribute)).ok()?;
            u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
        };
        Some(Device {
            address,
            class: Class(number("class")?),
            vendor: number("vendor")?.try_into().ok()?,
            device: number("device")?.try_into().ok()?,
            driver: self.driver(address),
            driver_override: self.driver_override(address),
            group: link(&folder.join("iommu_group")).and_then(|name| name.parse().ok()),
            interfaces: BTreeSet::new(),
            disks: BTreeSet::new(),
        })
    }

    fn add_interfaces(&self, devices: &mut BTreeMap<Address, Device>) {
        for name in self.names("sys/class/net") {
            let address = self.behind("sys/class/net", &name);
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
            // What is hidden is a path to a disk that has several.
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

    fn group(&self, number: u32) -> Group {
        let folder = Path::new(GROUPS).join(number.to_string());
        let devices = folder.join("devices");
        let member = |name: String| Member {
            driver: link(&self.0.join(&devices).join(&name).join("driver")),
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

/// A file of the kernel's that could not be written.
#[derive(Debug)]
pub struct Refused {
    /// Which one.
    pub path: PathBuf,
    /// What the kernel says.
    pub error: io::Error,
}

/// Without making the file: all of these are the kernel's.
fn write(path: PathBuf, text: &str) -> Result<(), Refused> {
    let written = fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()));
    written.map_err(|error| Refused { path, error })
}

/// The last name of what a link points to.
fn link(path: &Path) -> Option<String> {
    let target = fs::read_link(path).ok()?;
    Some(target.file_name()?.to_str()?.to_owned())
}
