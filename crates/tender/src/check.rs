//! The one rule about devices: every device of the manifest is attached, and nothing else is.

use crate::options::{Block, Host, Link, Net, Options, Pci, State};
use crate::suggest;
use abi::extension::VERSION;
use abi::manifest::{Entry, kind};
use abi::pci::Request;
use abi::region;
use image::Image;
use std::fmt;

/// Stands for PCIe devices among the kinds of the manifest's entries, of which it is none.
const PCI: u32 = u32::MAX;
/// Stand for links and states in the same way.
const LINK: u32 = u32::MAX - 1;
const STATE: u32 = u32::MAX - 2;

/// A device of the manifest and what the command line attaches to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair<'a> {
    /// Index in the manifest.
    pub index: usize,
    /// What to attach.
    pub source: Source<'a>,
}

/// What to attach, by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source<'a> {
    /// A network.
    Net(&'a Net),
    /// A disk.
    Block(&'a Block),
    /// Sockets of the host's, by their name.
    Sockets(&'a str),
}

/// Everything that the manifest names, and what is attached to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs<'a> {
    /// Networks and disks, in the manifest's order.
    pub devices: Vec<Pair<'a>>,
    /// PCIe devices, in the manifest's order.
    pub pci: Vec<&'a Pci>,
    /// Links and states, in the manifest's order.
    pub regions: Vec<Memory<'a>>,
}

/// What to attach as a region, by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory<'a> {
    /// An end of a link.
    Link(&'a Link),
    /// A state.
    State(&'a State),
    /// The queue of a disk, which has this index in the manifest.
    Queue(usize, &'a Block),
}

/// How manifest and command line differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// Devices that the manifest names and the command line does not: the options to add.
    Missing(Vec<String>),
    /// What attaches such devices stands behind the image, among the guest's arguments.
    Behind(Vec<String>),
    /// An option for a device that the manifest does not name as one of this kind.
    NotNamed {
        /// The option, with the device.
        option: String,
        /// What the manifest says of a device of this name.
        actual: Option<&'static str>,
        /// The devices of this kind that it names, as options.
        named: Vec<String>,
    },
    /// Two options that attach one PCIe device.
    Twice(String, String),
    /// These sockets are named by the manifest, and the host has none.
    Jailed(String),
    /// This option is for a PCIe device, a link or a state, and the image names those in an
    /// extension of this version, which is not known here.
    Version(String, u32),
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(options) => write!(
                f,
                "the manifest names devices that nothing is attached to; add {}",
                options.join(" ")
            ),
            Self::Behind(arguments) => write!(
                f,
                "write {} in front of the image; behind it are the guest's own arguments",
                suggest::listed(arguments).escape_debug()
            ),
            Self::Twice(option, other) => write!(
                f,
                "{option}: {other} has this device; name another one; type: outboard pci list"
            ),
            Self::Jailed(name) => write!(
                f,
                "the manifest names sockets of the host's ({name}), which only a plain process \
                 has; type: --host=process --sockets:{name}=host, or build the image with a \
                 NET_BASIC in place of SOCKETS"
            ),
            Self::Version(option, version) => write!(
                f,
                "{option}: the image was built by an Outboard that shares version {version} with \
                 its images, and this one shares version {VERSION}; build it again with: outboard \
                 build"
            ),
            Self::NotNamed {
                option,
                actual: None,
                named,
            } => {
                write!(f, "{option}: the manifest names no such device; ")?;
                let all = suggest::listed(named);
                match suggest::nearest(name(option), named.iter().map(|named| name(named))) {
                    Some(_) if named.len() == 1 => write!(f, "did you mean {all}?"),
                    Some(near) => write!(f, "did you mean {near}? It names {all}"),
                    None if named.is_empty() => {
                        write!(f, "remove the option, or name the device in manifest.json")
                    }
                    None => write!(f, "it names {all}"),
                }
            }
            Self::NotNamed {
                option,
                actual: Some(attach),
                ..
            } => write!(
                f,
                "the manifest names a device of another kind; replace {option} by {attach}"
            ),
        }
    }
}

/// Whether `host` has what the manifest names.
///
/// # Errors
/// If the manifest names sockets of the host's, and the guest will not be a plain process.
pub fn host(manifest: &[Entry], host: Host) -> Result<(), Error> {
    let sockets = manifest.iter().find(|entry| entry.kind == kind::SOCKETS);
    match sockets.and_then(Entry::name) {
        Some(name) if host != Host::Process => Err(Error::Jailed(name.to_owned())),
        _ => Ok(()),
    }
}

/// Whether the image can name the devices that the command line attaches.
///
/// # Errors
/// If there are PCIe devices, links or states among them, and the image is of another version.
pub fn version(image: &Image, options: &Options) -> Result<(), Error> {
    let pci = options.pci.first().map(Pci::option);
    let link = || options.links.first().map(Link::option);
    let state = || options.states.first().map(State::option);
    match (image.other_version, pci.or_else(link).or_else(state)) {
        (Some(version), Some(option)) => Err(Error::Version(option, version)),
        _ => Ok(()),
    }
}

/// Pairs each device of the manifest with what the command line attaches to it, in the manifest's
/// order.
///
/// # Errors
/// If one of them has no partner.
pub fn pair<'a>(
    manifest: &[Entry],
    requests: &[Request],
    regions: &[region::Request],
    options: &'a Options,
) -> Result<Pairs<'a>, Error> {
    check_named(manifest, requests, regions, options)?;
    let mut pairs = Pairs::default();
    let mut missing = Vec::new();
    for (index, entry) in manifest.iter().enumerate() {
        let Some(name) = entry.name() else { continue };
        match source(entry.kind, name, options) {
            Some(source) => pairs.devices.push(Pair { index, source }),
            None => missing.push(option(entry.kind, name)),
        }
    }
    for name in requests.iter().filter_map(Request::name) {
        match options.pci.iter().find(|pci| pci.name == name) {
            Some(pci) => {
                if let Some(other) = pairs.pci.iter().find(|other| other.source == pci.source) {
                    return Err(Error::Twice(pci.option(), other.option()));
                }
                pairs.pci.push(pci);
            }
            None => missing.push(option(PCI, name)),
        }
    }
    for region in regions {
        let Some(name) = region.name() else { continue };
        if region.kind == region::kind::QUEUE {
            // A disk that is missing was found to be, above.
            pairs.regions.extend(queue_of(&pairs.devices, name));
            continue;
        }
        match memory(kind_of(region), name, options) {
            Some(memory) => pairs.regions.push(memory),
            None => missing.push(option(kind_of(region), name)),
        }
    }
    if missing.is_empty() {
        return Ok(pairs);
    }
    let behind = behind(&missing, options);
    Err(match behind.is_empty() {
        true => Error::Missing(missing),
        false => Error::Behind(behind),
    })
}

/// Whether the image names all that the command line attaches, as devices of these kinds.
fn check_named(
    manifest: &[Entry],
    requests: &[Request],
    regions: &[region::Request],
    options: &Options,
) -> Result<(), Error> {
    let entries = manifest.iter().map(|entry| (entry.kind, entry.name()));
    let cards = requests.iter().map(|request| (PCI, request.name()));
    // The queue of a disk comes with its disk.
    let shared = regions.iter().filter(|r| r.kind != region::kind::QUEUE);
    let shared = shared.map(|r| (kind_of(r), r.name()));
    let named: Vec<_> = entries.chain(cards).chain(shared).collect();
    for (kind, name) in attached(options) {
        let found = named.iter().find(|(_, found)| *found == Some(name));
        let actual = found.map(|(actual, _)| *actual);
        if actual != Some(kind) {
            let like = named.iter().filter(|(other, _)| *other == kind);
            let like = like.filter_map(|(_, name)| *name);
            return Err(Error::NotNamed {
                option: key(kind, name),
                actual: actual.map(form),
                named: like.map(|name| key(kind, name)).collect(),
            });
        }
    }
    Ok(())
}

/// All that the command line attaches, by kind and name.
fn attached(options: &Options) -> impl Iterator<Item = (u32, &str)> {
    let nets = options.nets.iter().map(|net| (kind::NET_BASIC, &net.name));
    let blocks = options.blocks.iter();
    let blocks = blocks.map(|block| (kind::BLOCK_BASIC, &block.name));
    let sockets = options.sockets.iter().map(|name| (kind::SOCKETS, name));
    let pci = options.pci.iter().map(|pci| (PCI, &pci.name));
    let links = options.links.iter().map(|link| (LINK, &link.name));
    let states = options.states.iter().map(|state| (STATE, &state.name));
    let all = nets.chain(blocks).chain(sockets).chain(pci);
    let all = all.chain(links).chain(states);
    all.map(|(kind, name)| (kind, &**name))
}

/// The option that attaches devices of this kind.
fn form(kind: u32) -> &'static str {
    match kind {
        kind::NET_BASIC => "--net:NAME=IFACE",
        kind::SOCKETS => "--sockets:NAME=host",
        PCI => "--pci:NAME=ADDRESS",
        LINK => "--link:NAME=OWN,PEER,BELL,PEERBELL",
        STATE => "--state:NAME=@FD",
        _ => "--block:NAME=PATH",
    }
}

/// The option that attaches the device of this kind and name.
fn option(kind: u32, name: &str) -> String {
    form(kind).replacen("NAME", name, 1)
}

/// The same without its value.
fn key(kind: u32, name: &str) -> String {
    let (key, _) = form(kind).split_once(":NAME").unwrap_or_default();
    format!("{key}:{name}")
}

/// The device in an option such as `--net:lan`.
fn name(option: &str) -> &str {
    option.split_once(':').map_or(option, |(_, name)| name)
}

/// The guest's arguments that would attach what is `missing`.
fn behind(missing: &[String], options: &Options) -> Vec<String> {
    let keys = missing.iter().filter_map(|option| option.split_once('='));
    let keys: Vec<_> = keys.map(|(key, _)| key).collect();
    let arguments = options.arguments.iter().map(|a| a.to_string_lossy());
    let attaching = arguments.filter(|argument| {
        let key = argument.split_once('=').map(|(key, _)| key);
        key.is_some_and(|key| keys.contains(&key))
    });
    attaching.map(|argument| argument.into_owned()).collect()
}

fn kind_of(region: &region::Request) -> u32 {
    match region.kind {
        region::kind::STATE => STATE,
        _ => LINK,
    }
}

/// The queue of the disk of this name.
fn queue_of<'a>(devices: &[Pair<'a>], name: &str) -> Option<Memory<'a>> {
    devices.iter().find_map(|pair| match pair.source {
        Source::Block(block) if block.name == name => Some(Memory::Queue(pair.index, block)),
        _ => None,
    })
}

fn memory<'a>(kind: u32, name: &str, options: &'a Options) -> Option<Memory<'a>> {
    let link = options.links.iter().find(|link| link.name == name);
    let state = options.states.iter().find(|state| state.name == name);
    match kind {
        LINK => link.map(Memory::Link),
        _ => state.map(Memory::State),
    }
}

fn source<'a>(kind: u32, name: &str, options: &'a Options) -> Option<Source<'a>> {
    match kind {
        kind::NET_BASIC => options
            .nets
            .iter()
            .find(|net| net.name == name)
            .map(Source::Net),
        kind::SOCKETS => options
            .sockets
            .iter()
            .find(|sockets| *sockets == name)
            .map(|name| Source::Sockets(name)),
        _ => options
            .blocks
            .iter()
            .find(|block| block.name == name)
            .map(Source::Block),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Request, parse};

    fn options(line: &str) -> Options {
        let arguments = line.split_whitespace().map(Into::into);
        match parse(arguments) {
            Ok(Request::Start(options)) => *options,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn manifest() -> Vec<Entry> {
        vec![
            Entry::RESERVED,
            Entry::new("lan", kind::NET_BASIC).unwrap(),
            Entry::new("disk", kind::BLOCK_BASIC).unwrap(),
        ]
    }

    fn nic(name: &str) -> abi::pci::Request {
        abi::pci::Request {
            name: abi::manifest::name_field(name).unwrap(),
            class: 2,
            subclass: 0,
            progif: 0,
            bars: 1,
            vendor: 0x8086,
            device: 0x10d3,
            flags: 0,
        }
    }

    #[test]
    fn pci_devices_pair_in_the_order_of_the_manifest() {
        let reserved = [Entry::RESERVED];
        let options = options("--pci:b=02:00.0 --pci:a=01:00.0 a.spt");
        let pairs = pair(&reserved, &[nic("a"), nic("b")], &[], &options).unwrap();
        assert_eq!(pairs.pci, [&options.pci[1], &options.pci[0]]);
        let error = pair(&reserved, &[nic("b")], &[], &options).unwrap_err();
        assert_eq!(
            error.to_string(),
            "--pci:a: the manifest names no such device; it names --pci:b"
        );
    }

    #[test]
    fn a_device_that_is_almost_named_is_meant() {
        let two = [
            Entry::RESERVED,
            Entry::new("private", kind::NET_BASIC).unwrap(),
            Entry::new("public", kind::NET_BASIC).unwrap(),
        ];
        let said = |line| {
            pair(&two, &[], &[], &options(line))
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            said("--net:privat=tap0 --net:public=tap1 a.spt"),
            "--net:privat: the manifest names no such device; did you mean private? It names \
             --net:private and --net:public"
        );
        assert_eq!(
            said("--block:disk=d.img a.spt"),
            "--block:disk: the manifest names no such device; remove the option, or name the \
             device in manifest.json"
        );
    }

    #[test]
    fn options_behind_the_image_are_not_missing() {
        let line = "a.spt --net:lan=tap0 --block:disk=d.img --mem=16 lan";
        let said = |line| {
            pair(&manifest(), &[], &[], &options(line))
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            said(line),
            "write --net:lan=tap0 and --block:disk=d.img in front of the image; behind it are the \
             guest's own arguments"
        );
        assert!(said("a.spt --net:other=tap0").contains("add --net:lan=IFACE"));
    }

    #[test]
    fn a_pci_device_is_attached_once() {
        let nics = [nic("a"), nic("b")];
        for source in ["01:00.0", "vfio-user:/tmp/nic0"] {
            let options = options(&format!("--pci:a={source} --pci:b={source} a.spt"));
            let error = pair(&[Entry::RESERVED], &nics, &[], &options).unwrap_err();
            assert!(error.to_string().starts_with("--pci:b="), "{error}");
        }
    }

    #[test]
    fn a_pci_device_is_of_another_kind_than_a_network() {
        let other_way = options("--pci:lan=01:00.0 a.spt");
        let error = pair(&manifest(), &[], &[], &other_way).unwrap_err();
        assert!(
            error.to_string().contains("--pci:lan by --net:NAME=IFACE"),
            "{error}"
        );
        let options = options("--net:nic0=tap0 a.spt");
        let error = pair(&[Entry::RESERVED], &[nic("nic0")], &[], &options).unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("--net:nic0 by --pci:NAME=ADDRESS"),
            "{error}"
        );
    }

    #[test]
    fn only_a_plain_process_has_sockets() {
        let sockets = Entry::new("service", kind::SOCKETS).unwrap();
        let named = [Entry::RESERVED, sockets];
        assert_eq!(host(&named, Host::Process), Ok(()));
        for jailed in [Host::Spt, Host::Hvt] {
            assert_eq!(host(&manifest(), jailed), Ok(()));
            let said = host(&named, jailed).unwrap_err().to_string();
            let typed = "type: --host=process --sockets:service=host";
            assert!(said.contains(typed), "{said}");
        }
        let error = pair(&named, &[], &[], &options("a.spt")).unwrap_err();
        assert!(error.to_string().ends_with("add --sockets:service=host"));
        let options = options("--sockets:service=host a.spt");
        let pairs = pair(&named, &[], &[], &options).unwrap().devices;
        let source = Source::Sockets("service");
        assert_eq!(pairs, [Pair { index: 1, source }]);
    }

    #[test]
    fn devices_pair_in_the_order_of_the_manifest() {
        let options = options("--block:disk=d.img --net:lan=tap0 a.spt");
        let pairs = pair(&manifest(), &[], &[], &options).unwrap().devices;
        assert_eq!(
            pairs[0],
            Pair {
                index: 1,
                source: Source::Net(&options.nets[0])
            }
        );
        assert_eq!(
            pairs[1],
            Pair {
                index: 2,
                source: Source::Block(&options.blocks[0])
            }
        );
        assert_eq!(pairs.len(), 2);
    }

    #[test]
    fn links_and_states_are_attached_by_their_names_and_kinds() {
        let region = |name: &str, kind| region::Request {
            kind,
            ..image::sample::link(name, 1)
        };
        let regions = [
            region("left", region::kind::LINK),
            region("vault", region::kind::STATE),
        ];
        let none = [Entry::RESERVED];
        let both = options("--state:vault=@9 --link:left=5,6,7,8 a.spt");
        let expected = [Memory::Link(&both.links[0]), Memory::State(&both.states[0])];
        let pairs = pair(&none, &[], &regions, &both).unwrap();
        assert_eq!(pairs.regions, expected);
        let said = |line| {
            let options = options(line);
            let error = pair(&none, &[], &regions, &options).unwrap_err();
            error.to_string()
        };
        let missing = said("a.spt");
        let add = "add --link:left=OWN,PEER,BELL,PEERBELL --state:vault=@FD";
        assert!(missing.ends_with(add), "{missing}");
        let other = said("--state:left=@5 a.spt");
        let replace = "replace --state:left by --link:NAME=OWN,PEER,BELL,PEERBELL";
        assert!(other.ends_with(replace), "{other}");
        let unknown = said("--link:lefd=5,6,7,8 a.spt");
        assert!(unknown.ends_with("did you mean --link:left?"), "{unknown}");
        let net = said("--net:left=tap0 a.spt");
        assert!(net.contains("another kind"), "{net}");
    }

    #[test]
    fn an_image_without_devices_needs_none() {
        let options = options("a.spt");
        let none = pair(&[Entry::RESERVED], &[], &[], &options);
        assert_eq!(none, Ok(Pairs::default()));
    }

    /// Invariant 2: a device named and not attached stops the start.
    #[test]
    fn all_missing_devices_are_named_at_once() {
        let error = pair(&manifest(), &[nic("nic0")], &[], &options("a.spt")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the manifest names devices that nothing is attached to; add --net:lan=IFACE \
             --block:disk=PATH --pci:nic0=ADDRESS"
        );
    }

    /// Invariant 2: a device attached and not named stops the start.
    #[test]
    fn cards_of_an_image_of_another_version_are_refused_and_nothing_else_is() {
        let mut image = Image::parse(&image::sample::sample()).unwrap();
        let options = [
            options("--pci:nic=0000:01:00.0 a.spt"),
            options("--net:net=tap0 a.spt"),
        ];
        assert_eq!(version(&image, &options[0]), Ok(()));
        (image.extension, image.other_version) = (None, Some(4));
        assert_eq!(version(&image, &options[1]), Ok(()));
        let said = version(&image, &options[0]).unwrap_err().to_string();
        let begins =
            "--pci:nic=0000:01:00.0: the image was built by an Outboard that shares version 4";
        assert!(
            said.starts_with(begins) && said.ends_with("again with: outboard build"),
            "{said}"
        );
    }

    #[test]
    fn what_the_manifest_does_not_name_is_refused() {
        let line = "--block:disk=d.img --net:lan=tap0 --net:wan=tap1 a.spt";
        let error = pair(&manifest(), &[], &[], &options(line)).unwrap_err();
        assert_eq!(
            error,
            Error::NotNamed {
                option: "--net:wan".into(),
                actual: None,
                named: vec!["--net:lan".into()],
            }
        );
        let options = options("--net:disk=tap0 a.spt");
        let error = pair(&manifest(), &[], &[], &options).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the manifest names a device of another kind; replace --net:disk by --block:NAME=PATH"
        );
    }
}
