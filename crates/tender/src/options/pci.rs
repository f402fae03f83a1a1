//! `--pci:NAME=...`: a PCIe device to attach.

use super::{Error, Typed};
use linux::pci::Address;
use std::fmt;
use std::path::PathBuf;

const EXPECTED: &str = "the address of a PCI device or vfio-user: and a socket, as in \
                        --pci:nic0=0000:01:00.0; `outboard pci list` shows addresses";

/// A PCIe device to attach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pci {
    /// Name in the manifest.
    pub name: String,
    /// What to attach.
    pub source: PciSource,
}

/// What a PCIe device is attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PciSource {
    /// The device with this address, by VFIO.
    Address(Address),
    /// The software device behind this socket, by vfio-user.
    Socket(PathBuf),
}

impl Pci {
    /// As it was typed.
    pub fn option(&self) -> String {
        format!("--pci:{}={}", self.name, self.source)
    }
}

impl fmt::Display for PciSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Socket(path) => write!(f, "vfio-user:{}", path.display()),
        }
    }
}

pub(super) fn source(typed: &Typed<'_>) -> Result<PciSource, Error> {
    if let Some(socket) = typed.value.strip_prefix(b"vfio-user:") {
        let socket = Typed {
            whole: typed.whole,
            value: socket,
        };
        return socket.path(EXPECTED).map(PciSource::Socket);
    }
    let address = typed.str(EXPECTED)?.parse();
    address
        .map(PciSource::Address)
        .map_err(|()| typed.wrong(EXPECTED))
}
