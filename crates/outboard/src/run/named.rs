//! What a monitor does for a guest with a name before it starts.

use crate::instance::{Claim, Description, Device, Error, Kind};
use crate::rules;
use abi::extension::feature;
use abi::manifest::{Entry, kind};
use image::Image;
use linux::interface::Interfaces;
use linux::{descriptor, tap};
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::time::{SystemTime, UNIX_EPOCH};
use tender::options::{Host, Net, NetSource, Options, Request};
use tender::{attach, load};

/// A guest with a name.
pub(super) struct Named {
    name: String,
    claim: Claim,
    options: Vec<String>,
    /// What is about to run. Arguments that make no sense, or an image that is none, are left for
    /// the tender to complain of, and not described.
    description: Option<Description>,
}

impl Named {
    /// The guest of a request, if that gives it a name. Others find it from now on, unless it
    /// stands by.
    ///
    /// # Errors
    /// Its name is taken, or something cannot be written.
    pub fn of(request: &super::Request) -> Result<Option<Self>, Error> {
        let Some(name) = request.name.clone() else {
            return Ok(None);
        };
        let claim = match request.standby {
            Some(_) => Claim::aside(&name)?,
            None => Claim::new(&name)?,
        };
        let mut options = vec![claim.option()];
        let description = prepare(&request.arguments, &mut options);
        if let (Some(description), None) = (&description, request.standby) {
            claim.describe(description)?;
        }
        Ok(Some(Self {
            name,
            claim,
            options,
            description,
        }))
    }

    /// Its directory.
    pub fn claim(&self) -> &Claim {
        &self.claim
    }

    /// The options that its tender needs.
    pub fn options(&self) -> impl Iterator<Item = String> {
        self.options.iter().cloned()
    }

    /// A guest that stood by begins, and others find it.
    ///
    /// # Errors
    /// Its name is taken, or something cannot be written.
    pub fn appear(&mut self) -> Result<(), Error> {
        match &mut self.description {
            None => Ok(()),
            Some(description) => {
                description.started = now();
                self.claim.appear(&self.name, description)
            }
        }
    }
}

/// What is about to run, and more options for its tender.
fn prepare(arguments: &[OsString], more: &mut Vec<String>) -> Option<Description> {
    let Ok(Request::Start(mut options)) = tender::options::parse(arguments.iter().cloned()) else {
        return None;
    };
    let (_, image) = load::open(&options.image).ok()?;
    more.extend(options.nets.iter_mut().filter_map(choose_mac));
    Some(describe(&options, &image))
}

/// The option for a MAC address that the tender would otherwise choose, where nobody learns it. A
/// macvtap has its parent's.
fn choose_mac(net: &mut Net) -> Option<String> {
    if net.mac.is_some() || matches!(net.source, NetSource::Macvtap(_)) {
        return None;
    }
    let mac = attach::random_mac().ok()?;
    net.mac = Some(mac);
    Some(format!("--net-mac:{}={}", net.name, hexadecimal(mac)))
}

/// The guest that is started with these options.
pub(super) fn describe(options: &Options, image: &Image) -> Description {
    let path = std::fs::canonicalize(&options.image).unwrap_or_else(|_| options.image.clone());
    // Where there is none, the tender will say so.
    let host = load::host(image, options.host).map_or("none", Host::name);
    let features = image.extension.map_or(0, |extension| extension.features);
    let mut description = Description::new(path, host.to_owned(), now(), features);
    let entries = image.entries.iter().enumerate();
    let nics = image
        .networks()
        .filter(|(index, _)| *index >= image.entries.len());
    // Rules on the command line come before those of the image, and have the same generation.
    if features & feature::RULES != 0 && !options.has_rules_as_arguments() {
        description.built_in_rules = rules::built_in(&options.image);
    }
    description.devices = entries
        .filter_map(|(index, entry)| device(index, entry, options))
        .chain(nics.map(|(index, name)| nic(index, name, options)))
        .collect();
    description
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

/// A NIC that the image drives itself, or a link.
fn nic(index: usize, name: &str, options: &Options) -> Device {
    let pci = options.pci.iter().find(|pci| pci.name == name);
    let link = options.links.iter().find(|link| link.name == name);
    let link = link.map(|_| "link".to_owned());
    Device {
        name: name.to_owned(),
        index,
        kind: Kind::Net,
        interface: pci.map(|pci| pci.source.to_string()).or(link),
        tap_namespace: None,
        mac: None,
    }
}

fn device(index: usize, entry: &Entry, options: &Options) -> Option<Device> {
    let name = entry.name()?.to_owned();
    let kind = match entry.kind {
        kind::NET_BASIC => Kind::Net,
        kind::BLOCK_BASIC => Kind::Block,
        _ => return None,
    };
    let net = options.nets.iter().find(|net| net.name == name);
    let net = net.filter(|_| kind == Kind::Net);
    Some(Device {
        index,
        kind,
        interface: net.and_then(|net| interface(&net.source)),
        tap_namespace: net.and_then(|net| tap_namespace(&net.source)),
        mac: net.and_then(mac).map(hexadecimal),
        name,
    })
}

fn interface(source: &NetSource) -> Option<String> {
    match source {
        NetSource::Tap(name) | NetSource::Macvtap(name) => Some(name.clone()),
        NetSource::Descriptor(number) => {
            let tap = descriptor::adopt(*number).ok()?;
            tap::interface(tap.as_fd()).ok().map(|tap| tap.name)
        }
    }
}

fn tap_namespace(source: &NetSource) -> Option<u64> {
    let ours = || std::fs::metadata("/proc/self/ns/net");
    let metadata = match source {
        NetSource::Tap(_) => ours(),
        NetSource::Descriptor(number) => {
            let tap = descriptor::adopt(*number).ok()?;
            match tap::namespace(tap.as_fd()) {
                Ok(namespace) => std::fs::File::from(namespace).metadata(),
                // Without the right to ask, it can only be one of ours.
                Err(_) => ours(),
            }
        }
        NetSource::Macvtap(_) => return None,
    };
    metadata.ok().map(|metadata| metadata.ino())
}

fn mac(net: &Net) -> Option<[u8; 6]> {
    net.mac.or_else(|| match &net.source {
        NetSource::Macvtap(parent) => Interfaces::here().ok()?.mac(parent).ok(),
        _ => None,
    })
}

/// A MAC address as options and people write it.
pub(crate) fn hexadecimal(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nic_of_the_images_own_and_a_link_are_ports_behind_the_manifests() {
        let image = Image::parse(&image::sample::sample()).unwrap();
        let typed = [
            "--net:net=tap0",
            "--pci:nic=0000:01:00.0",
            "--link:peer=3,4,5,6",
            "--",
            "image",
        ];
        let Ok(Request::Start(options)) = tender::options::parse(typed.map(OsString::from)) else {
            panic!("these are options");
        };
        let description = describe(&options, &image);
        let found = description.devices.iter();
        let found: Vec<_> = found
            .map(|device| (device.index, device.kind, device.interface.as_deref()))
            .collect();
        let expected = [
            (1, Kind::Net, Some("tap0")),
            (2, Kind::Block, None),
            (3, Kind::Net, Some("0000:01:00.0")),
            (4, Kind::Net, Some("link")),
        ];
        assert_eq!(found, expected);
        assert_eq!(description.ports(), ["net", "nic", "peer"]);
    }
}
