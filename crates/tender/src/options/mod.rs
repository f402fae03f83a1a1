//! The command line: Solo5's, and what Outboard adds to it.
//!
//! As in Solo5's tenders, options come before the image and everything behind it is the guest's.
//! This module decides and touches nothing.

mod pci;
mod region;
pub mod table;

use abi::manifest::is_device_name;
use abi::note::Target;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

pub use pci::{Pci, PciSource};
pub use region::{Link, State};
pub use table::{CHOICES, Choice};

/// What `--help` prints.
pub fn help() -> String {
    let options = table::list(CHOICES);
    format!(
        "usage: outboard-tender [OPTIONS] [--] IMAGE [ARGUMENTS]\n\nStarts IMAGE with the devices \
         that its manifest names and nothing else.\n\n{options}  --help, --version\n"
    )
}

/// Guest memory without `--mem`, in MiB; Solo5's default.
pub const MEM_MIB_DEFAULT: u64 = 512;
/// Most guest memory in MiB: below the address of the shared file.
pub const MEM_MIB_MAX: u64 = abi::share::BASE >> 20;
/// Size of a sector without `--block-sector-size`, in bytes.
pub const SECTOR_BYTES_DEFAULT: u16 = 512;

/// What the user asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Print [`help`].
    Help,
    /// Print the version.
    Version,
    /// Start an image.
    Start(Box<Options>),
}

/// How to start an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Size of guest memory in bytes, a multiple of 1 MiB.
    pub memory_bytes: u64,
    /// Networks to attach, in the order of the command line.
    pub nets: Vec<Net>,
    /// Disks to attach, in the order of the command line.
    pub blocks: Vec<Block>,
    /// Sockets of the host's to attach, by their names in the manifest.
    pub sockets: Vec<String>,
    /// PCIe devices to attach, in the order of the command line.
    pub pci: Vec<Pci>,
    /// Links to attach, in the order of the command line.
    pub links: Vec<Link>,
    /// States to attach, in the order of the command line.
    pub states: Vec<State>,
    /// Whether the guest polls its PCIe devices without ever sleeping.
    pub sleepless: bool,
    /// Whether taps that do not exist are made.
    pub create_taps: bool,
    /// Where the guest runs; `None`: where its image says.
    pub host: Option<Host>,
    /// Whether guest memory on `hvt` is of reserved pages of 2 MiB.
    pub huge_pages: bool,
    /// Folder for the core file of a guest that fails on `hvt`.
    pub dump_core: Option<PathBuf>,
    /// The shared file, see [`abi::share`].
    pub share: Option<Location>,
    /// What becomes readable when the host has changed the shared file.
    pub event: Option<Location>,
    /// What becomes readable when a guest that is loaded shall begin; `None`: at once.
    pub standby: Option<Location>,
    /// Rules for the guest to begin with.
    pub rules: Option<PathBuf>,
    /// The process whose end ends the guest.
    pub parent: Option<i32>,
    /// Whether it is said what was attached, once the guest begins.
    pub announce: bool,
    /// Whether it is said what PCIe devices and DMA memory became.
    pub verbose: bool,
    /// The image.
    pub image: PathBuf,
    /// The guest's own arguments.
    pub arguments: Vec<OsString>,
}

impl Options {
    /// Whether the arguments of an image with rules are such rules: a text in nft's language, and
    /// no options of the image.
    pub fn has_rules_as_arguments(&self) -> bool {
        let first = self.arguments.first();
        first.is_some_and(|first| !first.as_encoded_bytes().starts_with(b"-"))
    }
}

/// A network to attach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Net {
    /// Name in the manifest.
    pub name: String,
    /// What to attach.
    pub source: NetSource,
    /// MAC address that the guest should use; random if `None`.
    pub mac: Option<[u8; 6]>,
    /// Whether offloads may be used where the image understands them.
    pub offload: bool,
}

/// What a network is attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetSource {
    /// The tap of this name.
    Tap(String),
    /// The tap behind this descriptor.
    Descriptor(i32),
    /// A macvtap to be made over the interface of this name.
    Macvtap(String),
}

/// A disk to attach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Name in the manifest.
    pub name: String,
    /// File or block device.
    pub path: PathBuf,
    /// Size of a sector in bytes, a power of two from 512.
    pub sector_bytes: u16,
    /// Whether it is not to be written.
    pub read_only: bool,
    /// Whether its bytes pass the host's cache by.
    pub direct: bool,
}

/// Where a guest runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// In the jail.
    Spt,
    /// In a virtual machine.
    Hvt,
    /// As a plain process, which debuggers and profilers can look into.
    Process,
}

impl Host {
    /// All hosts. Of those that speak one ABI, the first is where an image runs that was built for
    /// it.
    pub const ALL: [Self; 3] = [Self::Spt, Self::Hvt, Self::Process];

    /// What users call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Spt => "spt",
            Self::Hvt => "hvt",
            Self::Process => "process",
        }
    }

    /// The ABI that its guests speak.
    pub fn target(self) -> Target {
        match self {
            Self::Spt | Self::Process => Target::Spt,
            Self::Hvt => Target::Hvt,
        }
    }
}

/// Where a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// Open as this descriptor.
    Descriptor(i32),
    /// At this path.
    Path(PathBuf),
}

/// Why a command line cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// There is no image.
    MissingImage,
    /// There is no such option, or not in this form.
    Unknown {
        /// As it was typed.
        option: String,
        /// What to write instead.
        correction: String,
    },
    /// `--x-exec-heap`: Solo5 has it, Outboard promises the opposite.
    ExecutableHeap,
    /// The value of this option is not what it takes.
    Value {
        /// As it was typed.
        option: String,
        /// What it takes.
        expected: &'static str,
    },
    /// The name in this option can be no device's.
    DeviceName(String),
    /// The device is attached, or one property set, more than once.
    Twice(String),
    /// A property of a device that is not attached.
    Unattached {
        /// The option that sets it.
        option: &'static str,
        /// The device.
        name: String,
        /// The option that would attach it.
        attach: &'static str,
    },
}

impl std::error::Error for Error {}

impl Error {
    fn unknown(option: &OsStr) -> Self {
        Self::Unknown {
            option: option.to_string_lossy().into_owned(),
            correction: String::new(),
        }
    }

    /// With what to write instead; `next` is the argument behind the wrong one.
    fn corrected(self, next: Option<OsString>) -> Self {
        let Self::Unknown { option, .. } = self else {
            return self;
        };
        let next = next.as_ref().and_then(|next| next.to_str());
        let correction = table::correction(&option, next, CHOICES.iter());
        Self::Unknown { option, correction }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingImage => {
                write!(
                    f,
                    "no image given; it comes behind the options: --mem=16 -- hello.spt"
                )
            }
            Self::Unknown { option, correction } => {
                write!(f, "no such option: {option:?}; {correction}")
            }
            Self::ExecutableHeap => write!(
                f,
                "--x-exec-heap is refused, since no memory is ever both writable and executable; \
                 remove it"
            ),
            Self::Value { option, expected } => write!(f, "{option:?}: expected {expected}"),
            Self::DeviceName(option) => write!(
                f,
                "{option:?}: a device name is 1 to {} letters and digits, as in --net:tap0=IFACE",
                abi::manifest::NAME_BYTES_MAX
            ),
            Self::Twice(option) => write!(f, "{option:?} is given twice; remove one of them"),
            Self::Unattached {
                option,
                name,
                attach,
            } => write!(
                f,
                "--{option}:{name} is given, but {name} is not attached; add --{attach} or remove \
                 --{option}:{name}"
            ),
        }
    }
}

/// Reads a command line, without the program's own name.
///
/// # Errors
/// The first thing in it that cannot be followed.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Request, Error> {
    let mut arguments = arguments.into_iter();
    let mut draft = Draft::default();
    let image = loop {
        let argument = arguments.next().ok_or(Error::MissingImage)?;
        match argument.as_bytes() {
            b"--" => break arguments.next().ok_or(Error::MissingImage)?,
            b"--help" => return Ok(Request::Help),
            b"--version" => return Ok(Request::Version),
            [b'-', ..] => {
                let option = draft.option(&argument);
                option.map_err(|error| error.corrected(arguments.next()))?;
            }
            _ => break argument,
        }
    };
    let options = draft.finish(image, arguments.collect())?;
    Ok(Request::Start(Box::new(options)))
}

/// Options as they come: properties may precede the device that they belong to.
#[derive(Default)]
struct Draft {
    memory_mib: Option<u64>,
    nets: Vec<Net>,
    macs: Vec<(String, [u8; 6])>,
    mtus: Vec<(String, u16)>,
    offloads_off: Vec<(String, ())>,
    blocks: Vec<Block>,
    sockets: Vec<String>,
    pci: Vec<Pci>,
    links: Vec<Link>,
    states: Vec<State>,
    sector_sizes: Vec<(String, u16)>,
    read_only: Vec<(String, ())>,
    direct: Vec<(String, ())>,
    sleepless: bool,
    create_taps: bool,
    host: Option<Host>,
    huge_pages: bool,
    dump_core: Option<PathBuf>,
    share: Option<Location>,
    event: Option<Location>,
    standby: Option<Location>,
    rules: Option<PathBuf>,
    parent: Option<i32>,
    announce: bool,
    verbose: bool,
}

/// One option, cut at its first `=`.
struct Typed<'a> {
    whole: &'a OsStr,
    value: &'a [u8],
}

impl Typed<'_> {
    fn text(&self) -> String {
        self.whole.to_string_lossy().into_owned()
    }

    fn wrong(&self, expected: &'static str) -> Error {
        let option = self.text();
        Error::Value { option, expected }
    }

    fn str(&self, expected: &'static str) -> Result<&str, Error> {
        let value = std::str::from_utf8(self.value).map_err(|_| self.wrong(expected))?;
        (!value.is_empty())
            .then_some(value)
            .ok_or_else(|| self.wrong(expected))
    }

    fn number<T: std::str::FromStr>(&self, expected: &'static str) -> Result<T, Error> {
        number(self.value).ok_or_else(|| self.wrong(expected))
    }

    fn path(&self, expected: &'static str) -> Result<PathBuf, Error> {
        if self.value.is_empty() || self.value.contains(&0) {
            return Err(self.wrong(expected));
        }
        Ok(PathBuf::from(OsString::from_vec(self.value.to_vec())))
    }
}

impl Draft {
    fn option(&mut self, whole: &OsStr) -> Result<(), Error> {
        let bytes = whole.as_bytes();
        let unknown = || Error::unknown(whole);
        let Some(equals) = bytes.iter().position(|byte| *byte == b'=') else {
            return match bytes {
                b"--create-taps" => {
                    self.create_taps = true;
                    Ok(())
                }
                b"--hugepages" => {
                    self.huge_pages = true;
                    Ok(())
                }
                b"--announce" => {
                    self.announce = true;
                    Ok(())
                }
                b"--verbose" => {
                    self.verbose = true;
                    Ok(())
                }
                b"--x-exec-heap" => Err(Error::ExecutableHeap),
                _ => Err(unknown()),
            };
        };
        let typed = Typed {
            whole,
            value: &bytes[equals + 1..],
        };
        let key = std::str::from_utf8(&bytes[..equals]).map_err(|_| unknown())?;
        match key.split_once(':') {
            Some((key @ ("--link" | "--state"), name)) => self.memory_option(key, name, &typed),
            Some((key, name)) => self.device_option(key, name, &typed),
            None => self.plain_option(key, &typed),
        }
    }

    fn plain_option(&mut self, key: &str, typed: &Typed<'_>) -> Result<(), Error> {
        match key {
            "--mem" => {
                let expected = "MiB of guest memory from 1 to 262144, as in --mem=64";
                let mib = typed.number(expected)?;
                if !(1..=MEM_MIB_MAX).contains(&mib) {
                    return Err(typed.wrong(expected));
                }
                self.memory_mib = Some(mib);
            }
            "--host" => {
                let expected = "--host=spt, --host=hvt or --host=process";
                let named = |host: &Host| host.name().as_bytes() == typed.value;
                let host = Host::ALL.into_iter().find(named);
                self.host = Some(host.ok_or_else(|| typed.wrong(expected))?);
            }
            "--poll" => {
                self.sleepless = match typed.value {
                    b"busy" => true,
                    b"interrupt" => false,
                    _ => return Err(typed.wrong("--poll=busy or --poll=interrupt")),
                };
            }
            "--dumpcore" => {
                let expected = "a folder for core files, as in --dumpcore=/tmp";
                self.dump_core = Some(typed.path(expected)?);
            }
            "--share" => {
                let expected = "a file, or @ and an open descriptor, as in --share=@5";
                self.share = Some(location(typed, expected)?);
            }
            "--event" => {
                let expected = "a FIFO, or @ and an open descriptor, as in --event=@6";
                self.event = Some(location(typed, expected)?);
            }
            "--standby" => {
                let expected = "a FIFO, or @ and an open descriptor, as in --standby=@7";
                self.standby = Some(location(typed, expected)?);
            }
            "--rules" => {
                let expected = "a file of rules, as in --rules=firewall.nft";
                self.rules = Some(typed.path(expected)?);
            }
            "--die-with-parent" => {
                let expected = "the process id of the parent, as in --die-with-parent=$$";
                let pid = typed.number(expected)?;
                self.parent = Some(pid);
            }
            _ => return Err(Error::unknown(typed.whole)),
        }
        Ok(())
    }

    /// An option that attaches memory.
    fn memory_option(&mut self, key: &str, name: &str, typed: &Typed<'_>) -> Result<(), Error> {
        if !is_device_name(name.as_bytes()) {
            return Err(Error::DeviceName(typed.text()));
        }
        let link = self.links.iter().any(|link| link.name == name);
        let state = self.states.iter().any(|state| state.name == name);
        match key {
            "--link" if !link => self.links.push(region::link(name, typed)?),
            "--state" if !state => self.states.push(region::state(name, typed)?),
            _ => return Err(Error::Twice(format!("{key}:{name}"))),
        }
        Ok(())
    }

    fn device_option(&mut self, key: &str, name: &str, typed: &Typed<'_>) -> Result<(), Error> {
        let known = [
            "--net",
            "--net-mac",
            "--net-mtu",
            "--net-offload",
            "--block",
            "--block-sector-size",
            "--block-read-only",
            "--block-direct",
            "--sockets",
            "--pci",
        ];
        if !known.contains(&key) {
            return Err(Error::unknown(typed.whole));
        }
        if !is_device_name(name.as_bytes()) {
            return Err(Error::DeviceName(typed.text()));
        }
        let twice = || Error::Twice(format!("{key}:{name}"));
        let name = name.to_owned();
        match key {
            "--net" => {
                if self.nets.iter().any(|net| net.name == name) {
                    return Err(twice());
                }
                let source = net_source(typed)?;
                self.nets.push(Net {
                    name,
                    source,
                    mac: None,
                    offload: true,
                });
            }
            "--sockets" if self.sockets.contains(&name) => return Err(twice()),
            "--sockets" if typed.value == b"host" => self.sockets.push(name),
            "--sockets" => Err(typed.wrong("host, for those of this network namespace"))?,
            "--pci" => {
                if self.pci.iter().any(|pci| pci.name == name) {
                    return Err(twice());
                }
                let source = pci::source(typed)?;
                self.pci.push(Pci { name, source });
            }
            "--net-mac" | "--net-mtu" | "--net-offload" => {
                self.net_option(key, name, typed)?.ok_or_else(twice)?;
            }
            "--block" => {
                if self.blocks.iter().any(|block| block.name == name) {
                    return Err(twice());
                }
                let path = typed.path("a file or block device, as in --block:disk=disk.img")?;
                let sector_bytes = SECTOR_BYTES_DEFAULT;
                self.blocks.push(Block {
                    name,
                    path,
                    sector_bytes,
                    read_only: false,
                    direct: false,
                });
            }
            _ => self.block_option(key, name, typed)?.ok_or_else(twice)?,
        }
        Ok(())
    }

    /// What is said of a network beside what it is; `None` if it was said before.
    fn net_option(
        &mut self,
        key: &str,
        name: String,
        typed: &Typed<'_>,
    ) -> Result<Option<()>, Error> {
        Ok(match key {
            "--net-mac" => insert(&mut self.macs, name, mac(typed)?),
            "--net-mtu" => insert(&mut self.mtus, name, mtu(typed)?),
            _ if typed.value == b"off" => insert(&mut self.offloads_off, name, ()),
            _ => return Err(typed.wrong("off; offloads are used wherever both sides can")),
        })
    }

    /// What is said of a disk beside what it is; `None` if it was said before.
    fn block_option(
        &mut self,
        key: &str,
        name: String,
        typed: &Typed<'_>,
    ) -> Result<Option<()>, Error> {
        let on = || (typed.value == b"on").then_some(());
        Ok(match key {
            "--block-read-only" => {
                on().ok_or_else(|| typed.wrong("on; without it, the disk is written"))?;
                insert(&mut self.read_only, name, ())
            }
            "--block-direct" => {
                on().ok_or_else(|| typed.wrong("on; without it, the host caches the disk"))?;
                insert(&mut self.direct, name, ())
            }
            _ => insert(&mut self.sector_sizes, name, sector_bytes(typed)?),
        })
    }

    fn finish(mut self, image: OsString, arguments: Vec<OsString>) -> Result<Options, Error> {
        for (name, mac) in self.macs {
            match self.links.iter_mut().find(|link| link.name == name) {
                Some(link) => link.mac = Some(mac),
                None => find_net(&mut self.nets, "net-mac", name)?.mac = Some(mac),
            }
        }
        for (name, mtu) in self.mtus {
            let link = self.links.iter_mut().find(|link| link.name == name);
            let (option, attach) = ("net-mtu", "link:NAME=OWN,PEER,BELL,PEERBELL");
            link.ok_or(Error::Unattached {
                option,
                name,
                attach,
            })?
            .mtu = Some(mtu);
        }
        for (name, ()) in self.offloads_off {
            find_net(&mut self.nets, "net-offload", name)?.offload = false;
        }
        for (name, bytes) in self.sector_sizes {
            find_block(&mut self.blocks, "block-sector-size", name)?.sector_bytes = bytes;
        }
        for (name, ()) in self.read_only {
            find_block(&mut self.blocks, "block-read-only", name)?.read_only = true;
        }
        for (name, ()) in self.direct {
            find_block(&mut self.blocks, "block-direct", name)?.direct = true;
        }
        Ok(Options {
            memory_bytes: self.memory_mib.unwrap_or(MEM_MIB_DEFAULT) << 20,
            nets: self.nets,
            blocks: self.blocks,
            sockets: self.sockets,
            pci: self.pci,
            links: self.links,
            states: self.states,
            sleepless: self.sleepless,
            create_taps: self.create_taps,
            host: self.host,
            huge_pages: self.huge_pages,
            dump_core: self.dump_core,
            share: self.share,
            event: self.event,
            standby: self.standby,
            rules: self.rules,
            parent: self.parent,
            announce: self.announce,
            verbose: self.verbose,
            image: image.into(),
            arguments,
        })
    }
}

fn insert<T>(list: &mut Vec<(String, T)>, name: String, value: T) -> Option<()> {
    if list.iter().any(|(other, _)| *other == name) {
        return None;
    }
    list.push((name, value));
    Some(())
}

fn find_net<'a>(
    nets: &'a mut [Net],
    option: &'static str,
    name: String,
) -> Result<&'a mut Net, Error> {
    let attach = "net:NAME=IFACE";
    let net = nets.iter_mut().find(|net| net.name == name);
    net.ok_or(Error::Unattached {
        option,
        name,
        attach,
    })
}

fn find_block<'a>(
    blocks: &'a mut [Block],
    option: &'static str,
    name: String,
) -> Result<&'a mut Block, Error> {
    let attach = "block:NAME=PATH";
    let block = blocks.iter_mut().find(|block| block.name == name);
    block.ok_or(Error::Unattached {
        option,
        name,
        attach,
    })
}

fn net_source(typed: &Typed<'_>) -> Result<NetSource, Error> {
    let expected = "a tap, @ and an open descriptor, or macvtap:PARENT, as in --net:lan=tap0; \
                    names of interfaces have 1 to 15 characters";
    let value = typed.str(expected)?;
    if value.starts_with('@') {
        return descriptor(typed.value)
            .map(NetSource::Descriptor)
            .ok_or(typed.wrong(expected));
    }
    let parent = value.strip_prefix("macvtap:");
    let interface = parent.unwrap_or(value);
    if !is_interface_name(interface) {
        return Err(typed.wrong(expected));
    }
    let interface = interface.to_owned();
    Ok(match parent {
        Some(_) => NetSource::Macvtap(interface),
        None => NetSource::Tap(interface),
    })
}

/// What the kernel takes (`dev_valid_name`), without `%`, by which it would choose a name itself.
fn is_interface_name(name: &str) -> bool {
    let forbidden = |byte: u8| byte.is_ascii_whitespace() || b"/:%\0\x0b".contains(&byte);
    (1..=linux::tap::NAME_BYTES_MAX).contains(&name.len())
        && name != "."
        && name != ".."
        && !name.bytes().any(forbidden)
}

fn location(typed: &Typed<'_>, expected: &'static str) -> Result<Location, Error> {
    if let [b'@', ..] = typed.value {
        return descriptor(typed.value)
            .map(Location::Descriptor)
            .ok_or(typed.wrong(expected));
    }
    typed.path(expected).map(Location::Path)
}

fn descriptor(value: &[u8]) -> Option<i32> {
    number(value.strip_prefix(b"@")?)
}

/// A decimal number without sign.
fn number<T: std::str::FromStr>(digits: &[u8]) -> Option<T> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn mac(typed: &Typed<'_>) -> Result<[u8; 6], Error> {
    let expected = "six bytes of a unicast address in hexadecimal, as in 02:00:00:00:00:01";
    let wrong = || typed.wrong(expected);
    let mut mac = [0; 6];
    let mut parts = typed.str(expected)?.split(':');
    for byte in &mut mac {
        let part = parts
            .next()
            .filter(|part| (1..=2).contains(&part.len()))
            .ok_or_else(wrong)?;
        if !part.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        *byte = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
    }
    let unicast = mac[0] & 1 == 0 && mac != [0; 6];
    if parts.next().is_some() || !unicast {
        return Err(wrong());
    }
    Ok(mac)
}

fn mtu(typed: &Typed<'_>) -> Result<u16, Error> {
    let expected = "bytes from 68 to 65535";
    let bytes: u16 = typed.number(expected)?;
    (bytes >= abi::link::MTU_MIN)
        .then_some(bytes)
        .ok_or_else(|| typed.wrong(expected))
}

fn sector_bytes(typed: &Typed<'_>) -> Result<u16, Error> {
    let expected = "a power of two from 512 to 32768";
    let bytes: u16 = typed.number(expected)?;
    if bytes < SECTOR_BYTES_DEFAULT || !bytes.is_power_of_two() {
        return Err(typed.wrong(expected));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
