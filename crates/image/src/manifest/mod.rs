//! The manifest's JSON: Solo5's format, version 1, with PCIe devices, DMA memory, links, state and
//! sockets of the host's.
//!
//! ```
//! let json = br#"{ "type": "solo5.manifest", "version": 1, "dma_size": 16777216, "devices": [
//!     { "name": "private", "type": "NET_BASIC" },
//!     { "name": "disk", "type": "BLOCK_BASIC" },
//!     { "name": "nic0", "type": "PCI_BASIC", "class": 2, "subclass": 0, "progif": 0,
//!       "vendor": 32902, "device_id": 4347, "bus_master_enable": true, "map_bar0": true } ] }"#;
//! let manifest = image::manifest::from_json(json).unwrap();
//! assert_eq!(manifest.entries[2].name(), Some("disk"));
//! assert_eq!(manifest.pci[0].vendor, 0x8086);
//! ```
//!
//! `{ "name": "service", "type": "SOCKETS" }` asks for sockets of the host's, which only the host
//! `process` has.
//!
//! `{ "name": "public", "type": "LINK", "slots": 64 }` asks for a link to another image, which is a
//! network port: it may send so many frames before the other image has taken one ([`SLOTS`] without
//! `slots`). With `"carries": "sockets"` it is none: one of the two images has its sockets from the
//! other one's stack. `{ "name": "vault", "type": "STATE", "size": 1048576 }` asks for memory that
//! outlives the image.
//!
//! `{ "name": "disk", "type": "BLOCK_BASIC", "queue": 4194304 }` asks for a disk that has several
//! requests in flight, with so many bytes for their buffers.
//!
//! DMA memory is one area: the `dma_size` of the file and those of its PCIe devices add up.
//!
//! Anything unknown is refused: a manifest is all the authority that an image has, so a misspelt
//! line must not be read as an absent one.

mod pci;
mod region;

use abi::manifest::{Entry, NAME_BYTES_MAX, kind, name_of};
use abi::pci::{DEVICES_MAX as PCI_DEVICES_MAX, DMA_BYTES_MAX, DMA_GRANULE, INDICES_MAX, Request};
use abi::region::{self as abi_region, REGIONS_MAX};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};

pub use region::SLOTS;

/// Most devices of a manifest, of all kinds: the first of its entries is not one.
pub const DEVICES_MAX: usize = INDICES_MAX - 1;

/// Why a manifest is not one.
#[derive(Debug)]
pub enum ManifestError {
    /// The file cannot be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The file is not a manifest.
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where in the file, and why.
        cause: Malformed,
    },
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, cause } => {
                let path = path.display();
                write!(f, "cannot read the manifest {path}: {cause}")
            }
            Self::Malformed { path, cause } => write!(f, "{}:{cause}", path.display()),
        }
    }
}

impl std::error::Error for ManifestError {}

/// Why some JSON is not a manifest, and where reading stopped.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Line, from 1.
    pub line: usize,
    /// Column in bytes, from 1; 0 is the end of the line before.
    pub column: usize,
    /// What is wrong; names the device if it is about one.
    pub reason: String,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.reason)
    }
}

impl std::error::Error for Malformed {}

impl From<serde_json::Error> for Malformed {
    fn from(error: serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        let text = error.to_string();
        let place = format!(" at line {line} column {column}");
        let reason = text.strip_suffix(&place).unwrap_or(&text);
        // The text may quote what the file holds, and an error is one line.
        let reason = reason.replace(|c: char| c.is_control(), " ");
        Self {
            line,
            column,
            reason,
        }
    }
}

/// All that an image may touch.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "File")]
pub struct Manifest {
    /// Solo5's devices, behind the reserved first entry.
    pub entries: Vec<Entry>,
    /// PCIe devices.
    pub pci: Vec<Request>,
    /// Memory that is shared with others.
    pub regions: Vec<abi_region::Request>,
    /// DMA memory in bytes, a multiple of [`DMA_GRANULE`].
    pub dma_bytes: u64,
}

impl Manifest {
    /// No device.
    pub fn none() -> Self {
        Self {
            entries: vec![Entry::RESERVED],
            pci: Vec::new(),
            regions: Vec::new(),
            dma_bytes: 0,
        }
    }
}

/// The manifest in this file.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn read(path: &Path) -> Result<Manifest, ManifestError> {
    let path = path.to_path_buf();
    match std::fs::read(&path) {
        Ok(json) => from_json(&json).map_err(|cause| ManifestError::Malformed { path, cause }),
        Err(cause) => Err(ManifestError::Unreadable { path, cause }),
    }
}

/// The manifest that this JSON describes.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn from_json(json: &[u8]) -> Result<Manifest, Malformed> {
    Ok(serde_json::from_slice(json)?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "type")]
    _type: FileType,
    #[serde(rename = "version", deserialize_with = "version")]
    _version: (),
    #[serde(default)]
    dma_size: u64,
    devices: Devices,
}

#[derive(Deserialize)]
enum FileType {
    #[serde(rename = "solo5.manifest")]
    Manifest,
}

fn version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    match u32::deserialize(deserializer)? {
        abi::manifest::VERSION => Ok(()),
        other => Err(D::Error::custom(format_args!(
            "version is {other}; write \"version\": {}",
            abi::manifest::VERSION
        ))),
    }
}

impl TryFrom<File> for Manifest {
    type Error = String;

    fn try_from(file: File) -> Result<Self, String> {
        let mut manifest = file.devices.0;
        let wanted = manifest.dma_bytes.saturating_add(file.dma_size);
        if wanted > DMA_BYTES_MAX {
            return Err(format!(
                "{wanted} bytes of DMA memory are too many; \
                 let all \"dma_size\" together be at most {DMA_BYTES_MAX}"
            ));
        }
        manifest.dma_bytes = wanted.next_multiple_of(DMA_GRANULE);
        Ok(manifest)
    }
}

/// All devices, and the DMA memory that is there because of them.
#[derive(Deserialize)]
#[serde(try_from = "Vec<Device>")]
struct Devices(Manifest);

impl TryFrom<Vec<Device>> for Devices {
    type Error = String;

    fn try_from(devices: Vec<Device>) -> Result<Self, String> {
        let too_many =
            |count, what, most| Err(format!("{count} {what} are too many; name at most {most}"));
        if devices.len() > DEVICES_MAX {
            return too_many(devices.len(), "devices", DEVICES_MAX);
        }
        let mut names = HashSet::new();
        let mut manifest = Manifest::none();
        for device in devices {
            let name = match &device {
                Device::Solo5(entry) | Device::Queue(entry, _) => entry.name,
                Device::Pci { request, .. } => request.name,
                Device::Region(request) => request.name,
            };
            if !names.insert(name) {
                let name = name_of(&name).unwrap_or_default();
                return Err(format!(
                    "device \"{name}\" is named twice; rename one of the two"
                ));
            }
            match device {
                Device::Solo5(entry) => manifest.entries.push(entry),
                Device::Pci { request, dma_bytes } => {
                    manifest.pci.push(request);
                    manifest.dma_bytes = manifest.dma_bytes.saturating_add(dma_bytes);
                }
                Device::Region(request) => manifest.regions.push(request),
                Device::Queue(entry, request) => {
                    manifest.entries.push(entry);
                    manifest.regions.push(request);
                }
            }
        }
        let all = manifest.entries.len() + manifest.pci.len() + manifest.regions.len();
        if all > INDICES_MAX {
            return too_many(all - 1, "devices and queues of disks", DEVICES_MAX);
        }
        if manifest.pci.len() > PCI_DEVICES_MAX {
            return too_many(manifest.pci.len(), "PCI devices", PCI_DEVICES_MAX);
        }
        if manifest.regions.len() > REGIONS_MAX {
            let what = "links, states and queues of disks";
            return too_many(manifest.regions.len(), what, REGIONS_MAX);
        }
        Ok(Self(manifest))
    }
}

#[derive(Deserialize)]
#[serde(try_from = "Declaration")]
enum Device {
    Solo5(Entry),
    Pci {
        request: Request,
        dma_bytes: u64,
    },
    Region(abi_region::Request),
    /// A disk, and where its requests in flight lie.
    Queue(Entry, abi_region::Request),
}

#[derive(Deserialize)]
#[serde(tag = "type", deny_unknown_fields)]
enum Declaration {
    #[serde(rename = "NET_BASIC")]
    Net { name: String },
    #[serde(rename = "BLOCK_BASIC")]
    Block(region::Block),
    #[serde(rename = "SOCKETS")]
    Sockets { name: String },
    #[serde(rename = "PCI_BASIC")]
    Pci(pci::Declaration),
    #[serde(rename = "LINK")]
    Link(region::Link),
    #[serde(rename = "STATE")]
    State(region::State),
}

impl TryFrom<Declaration> for Device {
    type Error = String;

    fn try_from(declaration: Declaration) -> Result<Self, String> {
        let (name, device) = match declaration {
            Declaration::Net { name } => solo5(name, kind::NET_BASIC),
            Declaration::Block(block) => {
                let queue = block.queue();
                let (name, disk) = solo5(block.name, kind::BLOCK_BASIC);
                let disk = disk.and_then(|disk| match (disk, queue?) {
                    (Self::Solo5(entry), Some(queue)) => Ok(Self::Queue(entry, queue)),
                    (disk, _) => Ok(disk),
                });
                (name, disk)
            }
            Declaration::Sockets { name } => solo5(name, kind::SOCKETS),
            Declaration::Pci(pci) => {
                let dma_bytes = pci.dma_size;
                let device = pci.request();
                let device = device.map(|request| Self::Pci { request, dma_bytes });
                (pci.name, device)
            }
            Declaration::Link(link) => {
                let request = link.request().map(Self::Region);
                (link.name, request)
            }
            Declaration::State(state) => {
                let request = state.request().map(Self::Region);
                (state.name, request)
            }
        };
        device.map_err(|reason| {
            let reason = reason.unwrap_or_else(|| {
                format!("a name is 1 to {NAME_BYTES_MAX} ASCII letters and digits")
            });
            format!("device \"{name}\": {reason}")
        })
    }
}

/// A device of Solo5's and its name; without a reason, it is the name that is wrong.
fn solo5(name: String, kind: u32) -> (String, Result<Device, Option<String>>) {
    let entry = Entry::new(&name, kind).ok_or(None);
    (name, entry.map(Device::Solo5))
}

#[cfg(test)]
mod tests;
