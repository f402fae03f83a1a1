//! Which devices there are, and which of them were handed out.

use crate::host::{Handle, Host};
use abi::extension::HostInfo;
use abi::manifest::{ENTRIES_MAX, Entry, kind};
use abi::pci::{self, CLASS_NETWORK, DEVICES_MAX, info_flag};
use abi::region::{self, REGIONS_MAX};
use core::cell::Cell;

/// Why a device is not to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceError {
    /// The manifest has no device of this name, but these.
    NotInManifest(Names),
    /// The manifest has this device as another kind.
    OtherKind,
    /// It was handed out already.
    Taken,
    /// The tender knows nothing of it: Solo5's own attach no PCIe devices and no links.
    NotAttached,
    /// This host has no sockets.
    NoSockets,
}

impl core::fmt::Display for DeviceError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::NotInManifest(names) => {
                return write!(
                    f,
                    "no device of this name: ask for one that manifest.json has ({names}), or add \
                     it there"
                );
            }
            Self::OtherKind => "manifest.json has this device as another kind: change it there",
            Self::Taken => "this device was handed out already: ask for it once, and pass it on",
            Self::NoSockets => {
                "only a plain process has sockets of the host's: start it with outboard run \
                 --host=process"
            }
            Self::NotAttached => {
                "this tender attaches no PCI devices and no links: start it with outboard run"
            }
        })
    }
}

impl core::error::Error for DeviceError {}

/// The names of all devices of an image.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Names {
    entries: &'static [Entry],
    requests: &'static [pci::Request],
    regions: &'static [region::Request],
}

impl Names {
    fn iter(&self) -> impl Iterator<Item = &'static str> {
        let entries = self.entries.iter().filter_map(Entry::name);
        let names = entries.chain(self.requests.iter().filter_map(pci::Request::name));
        let names = names.chain(self.regions.iter().filter_map(region::Request::name));
        // The reserved first entry has none.
        names.filter(|name| !name.is_empty())
    }
}

/// What a panic of an appliance that unwraps the error prints.
impl core::fmt::Debug for Names {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl core::fmt::Display for Names {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        for (number, name) in self.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{name}")?;
        }
        match self.iter().next() {
            Some(_) => Ok(()),
            None => f.write_str("none so far"),
        }
    }
}

/// A device of the manifest that was handed out.
pub(crate) struct Attached {
    pub(crate) entry: &'static Entry,
    pub(crate) handle: Handle,
    pub(crate) index: u8,
    /// Bits of [`abi::extension::device_flag`].
    pub(crate) flags: u32,
}

/// A PCIe device that was handed out.
#[derive(Clone, Copy)]
pub struct PciAttached {
    /// What the manifest asks for.
    pub request: &'static pci::Request,
    /// What the tender told of it.
    pub info: pci::Info,
    /// The number of its request.
    pub number: usize,
    /// Its index among all devices.
    pub index: u8,
}

/// A link or a state that was handed out.
pub(crate) struct RegionAttached {
    /// Its name in the manifest.
    pub(crate) name: &'static str,
    /// What the tender told of it.
    pub(crate) info: region::Info,
    /// The number of its region.
    pub(crate) number: usize,
    /// Its index among all devices.
    pub(crate) index: u8,
}

/// All devices of an image: the entries of its manifest, and behind them the PCIe devices and the
/// regions that it asks for. PCIe device `n` has the index `entries + n`.
pub struct Devices {
    entries: &'static [Entry],
    requests: &'static [pci::Request],
    regions: &'static [region::Request],
    flags: [u32; ENTRIES_MAX],
    pci: [pci::Info; DEVICES_MAX],
    region_infos: [region::Info; REGIONS_MAX],
    /// A bit for each that was handed out, by index.
    taken: Cell<u64>,
}

impl Devices {
    /// Devices of these kinds, none of which was handed out. There are at most 64 in all; more
    /// cannot be had.
    pub fn new(
        entries: &'static [Entry],
        requests: &'static [pci::Request],
        regions: &'static [region::Request],
        host_info: &HostInfo,
    ) -> Self {
        let entries = &entries[..entries.len().min(ENTRIES_MAX)];
        let most = DEVICES_MAX.min(pci::INDICES_MAX - entries.len());
        let requests = &requests[..requests.len().min(most)];
        let most = REGIONS_MAX.min(pci::INDICES_MAX - entries.len() - requests.len());
        Self {
            entries,
            requests,
            regions: &regions[..regions.len().min(most)],
            region_infos: host_info.regions,
            flags: host_info.devices,
            pci: host_info.pci,
            taken: Cell::new(0),
        }
    }

    /// How many there are: entries of the manifest, the reserved first one included, PCIe devices,
    /// and regions.
    pub fn count(&self) -> usize {
        self.entries.len() + self.requests.len() + self.regions.len()
    }

    /// How many links there are.
    pub(crate) fn links(&self) -> usize {
        self.regions.iter().filter(|r| r.is_link()).count()
    }

    /// How many networks the host has attached, or may have.
    pub(crate) fn networks(&self) -> usize {
        self.entries.iter().filter(|e| is_network(e)).count()
    }

    /// The bits of those, by their indices.
    pub(crate) fn network_bits(&self) -> u64 {
        let networks = self
            .entries
            .iter()
            .enumerate()
            .filter(|(_, e)| is_network(e));
        networks.fold(0, |bits, (index, _)| bits | 1 << index)
    }

    /// Names and indices of the network ports, in the order in which rules number them: the
    /// networks of the manifest, then PCIe devices of that class, then links.
    pub fn ports(&self) -> impl Iterator<Item = (&'static str, u8)> {
        let first = self.entries.len();
        let networks = self.entries.iter().enumerate();
        let networks = networks.filter(|(_, entry)| is_network(entry));
        let networks = networks.filter_map(|(index, entry)| Some((entry.name()?, index as u8)));
        let cards = (first..).zip(self.requests);
        let cards = cards.filter(|(_, request)| request.class == CLASS_NETWORK);
        let cards = cards.filter_map(|(index, request)| Some((request.name()?, index as u8)));
        let first = first + self.requests.len();
        let links = (first..).zip(self.regions).filter(|(_, r)| r.is_link());
        let links = links.filter_map(|(index, request)| Some((request.name()?, index as u8)));
        networks.chain(cards).chain(links)
    }

    /// Whether the device of this index was handed out.
    pub fn is_taken(&self, index: u8) -> bool {
        self.taken.get() >> index & 1 != 0
    }

    /// Whether the manifest has sockets of the host's under this name.
    pub(crate) fn is_sockets(&self, name: &str) -> bool {
        let named = |entry: &Entry| entry.name() == Some(name);
        let entry = self.entries.iter().find(|entry| named(entry));
        entry.is_some_and(|entry| entry.kind == kind::SOCKETS)
    }

    /// Names of the links that carry sockets, in the order of the manifest.
    pub fn socket_links(&self) -> impl Iterator<Item = &'static str> {
        let regions = self.regions.iter();
        let links = regions.filter(|region| region.kind == region::kind::SOCKETS);
        links.filter_map(region::Request::name)
    }

    /// Hands out the device of the manifest that has this name.
    pub(crate) fn take(&self, host: &dyn Host, name: &str) -> Result<Attached, DeviceError> {
        let index = (1..self.entries.len())
            .find(|i| self.entries[*i].name() == Some(name))
            .ok_or_else(|| self.not_in_manifest())?;
        self.mark_taken(index)?;
        let entry = &self.entries[index];
        Ok(Attached {
            entry,
            handle: host.handle(index, entry.descriptor()),
            index: index as u8,
            flags: self.flags[index],
        })
    }

    /// Hands out the region of this kind that has this name; `None` if there is none.
    ///
    /// # Errors
    /// If it was handed out already, or the tender attaches none.
    pub(crate) fn take_region(
        &self,
        kind: u32,
        name: &str,
    ) -> Result<Option<RegionAttached>, DeviceError> {
        let mut regions = self.regions.iter().enumerate();
        let found = regions.find_map(|(number, region)| {
            let found = region.name().filter(|found| *found == name);
            found
                .filter(|_| region.kind == kind)
                .map(|name| (number, name))
        });
        let Some((number, name)) = found else {
            return Ok(None);
        };
        let info = self.region_infos[number];
        if info.own_bytes == 0 {
            return Err(DeviceError::NotAttached);
        }
        let index = self.entries.len() + self.requests.len() + number;
        self.mark_taken(index)?;
        Ok(Some(RegionAttached {
            name,
            info,
            number,
            index: index as u8,
        }))
    }

    /// Hands out the PCIe device that has this name.
    ///
    /// # Errors
    /// If the manifest has no such device, it was handed out already, or the tender attaches none.
    pub fn take_pci(&self, name: &str) -> Result<PciAttached, DeviceError> {
        let mut entries = self.entries.iter();
        let mut requests = self.requests.iter().enumerate();
        let (number, request) = requests
            .find(|(_, request)| request.name() == Some(name))
            .ok_or_else(|| match entries.any(|entry| entry.name() == Some(name)) {
                true => DeviceError::OtherKind,
                false => self.not_in_manifest(),
            })?;
        let info = self.pci[number];
        if info.flags & info_flag::ATTACHED == 0 {
            return Err(DeviceError::NotAttached);
        }
        let index = self.entries.len() + number;
        self.mark_taken(index)?;
        Ok(PciAttached {
            request,
            info,
            number,
            index: index as u8,
        })
    }

    #[cold]
    pub(crate) fn not_in_manifest(&self) -> DeviceError {
        DeviceError::NotInManifest(Names {
            entries: self.entries,
            requests: self.requests,
            regions: self.regions,
        })
    }

    fn mark_taken(&self, index: usize) -> Result<(), DeviceError> {
        let bit = 1 << index;
        if self.taken.get() & bit != 0 {
            return Err(DeviceError::Taken);
        }
        self.taken.set(self.taken.get() | bit);
        Ok(())
    }

    /// How many PCIe devices nobody has asked for yet: who takes DMA memory leaves as much to each
    /// of them.
    pub fn pci_left(&self) -> usize {
        let first = self.entries.len();
        let requests = (first..first + self.requests.len()).map(|index| index as u8);
        requests.filter(|index| !self.is_taken(*index)).count()
    }

    /// The name of the PCIe device with this index.
    pub(crate) fn pci_name(&self, index: usize) -> &'static str {
        let number = index.checked_sub(self.entries.len());
        let request = number.and_then(|number| self.requests.get(number));
        request.and_then(pci::Request::name).unwrap_or("of no name")
    }
}

fn is_network(entry: &Entry) -> bool {
    entry.kind == kind::NET_BASIC
}
