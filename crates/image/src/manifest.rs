//! The manifest's JSON: Solo5's format, version 1.
//!
//! ```
//! let json = br#"{ "type": "solo5.manifest", "version": 1, "devices": [
//!     { "name": "private", "type": "NET_BASIC" },
//!     { "name": "disk", "type": "BLOCK_BASIC" } ] }"#;
//! let entries = image::manifest::from_json(json).unwrap();
//! assert_eq!(entries[2].name(), Some("disk"));
//! ```
//!
//! Anything unknown is refused: a manifest is all the authority that an image has, so a misspelt
//! line must not be read as an absent one.

use abi::manifest::{ENTRIES_MAX, Entry, NAME_BYTES_MAX, kind};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny};
use std::fmt;
use std::path::{Path, PathBuf};

/// Most devices of a manifest: the first of its entries is not one.
pub const DEVICES_MAX: usize = ENTRIES_MAX - 1;

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

/// The entries of the manifest in this file, the reserved first one included.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn read(path: &Path) -> Result<Vec<Entry>, ManifestError> {
    let path = path.to_path_buf();
    match std::fs::read(&path) {
        Ok(json) => from_json(&json).map_err(|cause| ManifestError::Malformed { path, cause }),
        Err(cause) => Err(ManifestError::Unreadable { path, cause }),
    }
}

/// The entries of the manifest that this JSON describes, the reserved first one included.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn from_json(json: &[u8]) -> Result<Vec<Entry>, Malformed> {
    Ok(serde_json::from_slice::<File>(json)?.devices.0)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "type")]
    _type: FileType,
    #[serde(rename = "version", deserialize_with = "version")]
    _version: (),
    #[serde(default, rename = "dma_size", deserialize_with = "dma_size")]
    _dma_size: (),
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

fn dma_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    IgnoredAny::deserialize(deserializer)?;
    Err(D::Error::custom(
        "this version of Outboard hands out no DMA memory; remove \"dma_size\"",
    ))
}

/// All entries, the reserved first one included.
#[derive(Deserialize)]
#[serde(try_from = "Vec<Device>")]
struct Devices(Vec<Entry>);

impl TryFrom<Vec<Device>> for Devices {
    type Error = String;

    fn try_from(devices: Vec<Device>) -> Result<Self, String> {
        if devices.len() > DEVICES_MAX {
            let count = devices.len();
            return Err(format!(
                "{count} devices are too many; name at most {DEVICES_MAX}"
            ));
        }
        let mut entries = vec![Entry::RESERVED];
        for Device(entry) in devices {
            if entries.iter().any(|earlier| earlier.name == entry.name) {
                let name = entry.name().unwrap_or_default();
                return Err(format!(
                    "device \"{name}\" is named twice; rename one of the two"
                ));
            }
            entries.push(entry);
        }
        Ok(Self(entries))
    }
}

#[derive(Deserialize)]
#[serde(try_from = "Declaration")]
struct Device(Entry);

#[derive(Deserialize)]
#[serde(tag = "type", deny_unknown_fields)]
enum Declaration {
    #[serde(rename = "NET_BASIC")]
    Net { name: String },
    #[serde(rename = "BLOCK_BASIC")]
    Block { name: String },
    #[serde(rename = "PCI_BASIC")]
    Pci(Pci),
}

/// A PCI device has more fields than these; all of them are let pass, since the answer is no.
#[derive(Deserialize)]
struct Pci {
    name: String,
}

impl TryFrom<Declaration> for Device {
    type Error = String;

    fn try_from(declaration: Declaration) -> Result<Self, String> {
        let (name, kind) = match declaration {
            Declaration::Net { name } => (name, kind::NET_BASIC),
            Declaration::Block { name } => (name, kind::BLOCK_BASIC),
            Declaration::Pci(Pci { name }) => {
                return Err(format!(
                    "device \"{name}\": this version of Outboard hands out no PCI devices; \
                     use NET_BASIC or BLOCK_BASIC"
                ));
            }
        };
        Entry::new(&name, kind).map(Self).ok_or_else(|| {
            format!("device \"{name}\": a name is 1 to {NAME_BYTES_MAX} ASCII letters and digits")
        })
    }
}

#[cfg(test)]
mod tests;
