//! `--pci:NAME=...`: a PCIe device to attach.

use super::{Error, Typed};
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
    Address(PciAddress),
    /// The software device behind this socket, by vfio-user.
    Socket(PathBuf),
}

/// The address of a PCI device as the kernel writes it: `0000:01:00.0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciAddress(String);

impl Pci {
    /// As it was typed.
    pub fn option(&self) -> String {
        match &self.source {
            PciSource::Address(address) => format!("--pci:{}={address}", self.name),
            PciSource::Socket(path) => {
                format!("--pci:{}=vfio-user:{}", self.name, path.display())
            }
        }
    }
}

impl PciAddress {
    /// Reads `DOMAIN:BUS:DEVICE.FUNCTION` in hexadecimal; without a domain it is 0.
    pub fn parse(text: &str) -> Option<Self> {
        let (slot, function) = text.split_once('.')?;
        let (bus, device) = slot.rsplit_once(':')?;
        let (domain, bus) = bus.split_once(':').unwrap_or(("0000", bus));
        let number = |digits: &str, count: usize, most: u32| {
            let good = digits.len() == count && digits.bytes().all(|b| b.is_ascii_hexdigit());
            let number = good.then(|| u32::from_str_radix(digits, 16).ok())?;
            number.filter(|number| *number <= most)
        };
        // Some root complexes have domains of more than 16 bits.
        let domain = number(domain, domain.len().clamp(4, 8), u32::MAX)?;
        let bus = number(bus, 2, 0xff)?;
        let device = number(device, 2, 0x1f)?;
        let function = number(function, 1, 7)?;
        let address = format!("{domain:04x}:{bus:02x}:{device:02x}.{function}");
        Some(Self(address))
    }

    /// The address.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

pub(super) fn source(typed: &Typed<'_>) -> Result<PciSource, Error> {
    let wrong = || typed.wrong(EXPECTED);
    if let Some(socket) = typed.value.strip_prefix(b"vfio-user:") {
        let socket = Typed {
            whole: typed.whole,
            value: socket,
        };
        return socket.path(EXPECTED).map(PciSource::Socket);
    }
    let address = PciAddress::parse(typed.str(EXPECTED)?);
    address.map(PciSource::Address).ok_or_else(wrong)
}
