//! The one rule about devices, as for any tender: every device of the manifest is attached, and
//! nothing else is.

use super::Error;
use crate::options::{Device, Kind};
use abi::manifest::Entry;
use abi::pci::{Request, VIRTIO_VENDOR, request_flag};
use tender::check;

/// A device of virtio's that can stand for one of the manifest.
struct Row {
    /// The device ID that the manifest has for it (Virtual I/O Device 1.2, 4.1.2).
    id: u16,
    /// Its option, and what comes behind the name there.
    option: &'static str,
    value: &'static str,
    /// Whether a device of the command line is one.
    is: fn(&Kind) -> bool,
}

const ROWS: [Row; 3] = [
    Row {
        id: 0x1041,
        option: "--virtio-net",
        value: "=TAP",
        is: |kind| matches!(kind, Kind::Net(_)),
    },
    Row {
        id: 0x1042,
        option: "--virtio-blk",
        value: "=FILE",
        is: |kind| matches!(kind, Kind::Blk(_)),
    },
    Row {
        id: 0x1044,
        option: "--virtio-rng",
        value: "",
        is: |kind| matches!(kind, Kind::Rng),
    },
];

/// The devices of the command line in the order in which the image asks for them.
///
/// # Errors
/// If one has no partner, or the image asks for what is not to be had here.
pub fn pair(
    manifest: &[Entry],
    requests: &[Request],
    devices: &[Device],
) -> Result<Vec<Device>, Error> {
    // The reserved first entry has no name.
    let mut names = manifest.iter().filter_map(Entry::name);
    if let Some(name) = names.find(|name| !name.is_empty()) {
        return Err(Error::Kind(name.into()));
    }
    let named: Vec<(&str, &Row)> = requests.iter().map(row).collect::<Result<_, _>>()?;
    for device in devices {
        let request = named.iter().find(|(name, _)| *name == device.name);
        match request {
            Some((_, row)) if (row.is)(&device.kind) => {}
            other => return Err(stranger(device, other.map(|(_, row)| *row), &named)),
        }
    }
    let partner = |name: &str| devices.iter().find(|device| device.name == name);
    let (found, missing): (Vec<_>, Vec<_>) = named
        .iter()
        .map(|(name, row)| partner(name).ok_or_else(|| row.attaches(name)))
        .partition(Result::is_ok);
    let missing: Vec<String> = missing.into_iter().filter_map(Result::err).collect();
    match &*missing {
        [] => Ok(found.into_iter().flatten().cloned().collect()),
        _ => Err(Error::Check(check::Error::Missing(missing))),
    }
}

/// The option that a device was attached by, without what is behind it.
pub fn option(device: &Device) -> String {
    let row = ROWS.iter().find(|row| (row.is)(&device.kind));
    format!("{}:{}", row.map_or("", |row| row.option), device.name)
}

impl Row {
    /// The option that attaches such a device.
    fn attaches(&self, name: &str) -> String {
        format!("{}:{name}{}", self.option, self.value)
    }
}

/// The name of a device that the image asks for, and what can stand for it.
fn row(request: &Request) -> Result<(&str, &'static Row), Error> {
    let name = request.name().unwrap_or_default();
    let mut rows = ROWS.iter();
    let row = rows.find(|row| (VIRTIO_VENDOR, row.id) == (request.vendor, request.device));
    let row = row.ok_or_else(|| Error::Kind(name.into()))?;
    if request.flags & request_flag::BUS_MASTER == 0 {
        return Err(Error::NoMaster(name.into()));
    }
    Ok((name, row))
}

/// A device of the command line that the manifest does not name as one of its kind, but as `other`,
/// if at all.
fn stranger(device: &Device, other: Option<&Row>, named: &[(&str, &'static Row)]) -> Error {
    let named = named.iter().filter(|(_, row)| (row.is)(&device.kind));
    Error::Check(check::Error::NotNamed {
        option: option(device),
        actual: other.map(|row| row.option),
        named: named.map(|(name, row)| row.attaches(name)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Request as Asked, parse};
    use abi::manifest::name_field;

    fn request(name: &str, device: u16, flags: u32) -> Request {
        Request {
            name: name_field(name).unwrap(),
            class: 2,
            subclass: 0,
            progif: 0,
            bars: 1,
            vendor: VIRTIO_VENDOR,
            device,
            flags,
        }
    }

    fn devices(words: &[&str]) -> Vec<Device> {
        let words = [words, &["--image=i"]].concat();
        match parse(words.into_iter().map(Into::into)) {
            Ok(Asked::Image(image)) => image.devices,
            other => panic!("{other:?}"),
        }
    }

    /// What becomes of these devices with an image that asks for these, as names or the error.
    fn paired(requests: &[Request], words: &[&str]) -> Result<Vec<String>, String> {
        let paired = pair(&[Entry::RESERVED], requests, &devices(words));
        let names = |devices: Vec<Device>| devices.into_iter().map(|device| device.name).collect();
        paired.map(names).map_err(|error| error.to_string())
    }

    #[test]
    fn devices_come_in_the_order_of_the_manifest() {
        let requests = [
            request("disk", 0x1042, request_flag::BUS_MASTER),
            request("card", 0x1041, request_flag::BUS_MASTER),
        ];
        let words = ["--virtio-net:card=tap0", "--virtio-blk:disk=/f"];
        let expected = ["disk", "card"].map(String::from);
        assert_eq!(paired(&requests, &words), Ok(expected.into()));
        assert_eq!(paired(&[], &[]), Ok(Vec::new()));
    }

    #[test]
    fn what_has_no_partner_is_named() {
        let card = request("card", 0x1041, request_flag::BUS_MASTER);
        let slave = request("card", 0x1041, 0);
        let gpu = request("card", 0x1050, request_flag::BUS_MASTER);
        let words = "--virtio-net:card=tap0";
        for (request, words, says) in [
            (card, &[][..], "add --virtio-net:card=TAP"),
            (card, &[words, "--virtio-rng:rng"], "--virtio-rng:rng: "),
            (card, &["--virtio-rng:card"], "by --virtio-net"),
            (
                card,
                &["--virtio-net:cart=t"],
                "it names --virtio-net:card=TAP",
            ),
            (slave, &[words], "set bus_master_enable"),
            (gpu, &[words], "outboard run"),
        ] {
            let error = paired(&[request], words).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        let mut entry = Entry::RESERVED;
        entry.name = name_field("lan").unwrap();
        let error = pair(&[Entry::RESERVED, entry], &[], &[]).unwrap_err();
        assert!(error.to_string().contains("names lan, which"), "{error}");
    }
}
