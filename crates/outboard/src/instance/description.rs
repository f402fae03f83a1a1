//! What a monitor writes down of the guest that it starts.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Version of what follows; a reader refuses any other.
const VERSION: u32 = 1;

/// A guest as it was started. It holds names from manifest and command line, and nothing that the
/// guest could say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// Version of this description.
    #[serde(deserialize_with = "version")]
    version: u32,
    /// Process id of the monitor.
    pub monitor: u32,
    /// The image, as an absolute path.
    pub image: PathBuf,
    /// `spt` or `process`.
    pub host: String,
    /// When it was started, in seconds since 1970.
    pub started: u64,
    /// Bits of [`abi::extension::feature`] that the image has.
    pub features: u32,
    /// The text of the rules that the image comes with, if it says and nothing else was given.
    #[serde(default)]
    pub built_in_rules: Option<String>,
    /// Its devices, in the order of the manifest.
    pub devices: Vec<Device>,
}

/// A device of a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Name in the manifest.
    pub name: String,
    /// Index in the manifest, by which counters are found.
    pub index: usize,
    /// What it is.
    pub kind: Kind,
    /// The host's interface, if it is a network; a macvtap's parent.
    pub interface: Option<String>,
    /// Inode of the network namespace in which that interface is a tap, so that what is sent out of
    /// it comes to the guest; none for a macvtap, or if the kernel does not tell.
    pub tap_namespace: Option<u64>,
    /// The guest's MAC address there, as six hexadecimal bytes and colons.
    pub mac: Option<String>,
}

/// Kinds of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A network.
    Net,
    /// A disk.
    Block,
}

impl Description {
    /// A guest that is about to be started by this process.
    pub fn new(image: PathBuf, host: String, started: u64, features: u32) -> Self {
        Self {
            version: VERSION,
            monitor: std::process::id(),
            image,
            host,
            started,
            features,
            built_in_rules: None,
            devices: Vec::new(),
        }
    }

    /// The networks, in the order of the manifest, as rules count them.
    pub fn nets(&self) -> impl Iterator<Item = &Device> {
        let devices = self.devices.iter();
        devices.filter(|device| device.kind == Kind::Net)
    }

    /// Their names: the ports that rules speak of.
    pub fn ports(&self) -> Vec<&str> {
        self.nets().map(|device| device.name.as_str()).collect()
    }
}

fn version<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        VERSION => Ok(VERSION),
        other => Err(serde::de::Error::custom(format_args!(
            "version {other} instead of {VERSION}"
        ))),
    }
}
