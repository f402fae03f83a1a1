//! Opens what the command line attaches to the devices of the manifest.

mod block;
mod macvtap;
pub mod pci;
pub mod region;
mod sockets;
mod tap;

use crate::check::{Memory, Pair, Pairs, Source};
use crate::options::{Net, NetSource, Options};
use crate::suggest;
use abi::extension::{device_flag, feature};
use abi::manifest::Device;
use abi::region::Request;
#[cfg(test)]
pub(crate) use block::EXTENDED_DISKS_MAX;
use image::Image;
use linux::descriptor;
use linux::mtu::Watch;
use linux::netlink::links::Link;
use linux::netlink::{self, Netlink};
use linux::tap::{self as linux_tap, offload};
use macvtap::Macvtap;
use pci::Pci;
use region::Region;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::{fmt, io};

/// A device, ready for the guest.
#[derive(Debug)]
pub struct Attached {
    /// Index in the manifest.
    pub index: usize,
    /// Properties that were found.
    pub device: Device,
    /// What the guest reads and writes.
    pub fd: OwnedFd,
    /// Bits of [`device_flag`] that the guest is told.
    pub flags: u32,
}

impl Attached {
    /// Whether it is a disk that is not to be written.
    pub fn is_read_only(&self) -> bool {
        self.flags & device_flag::READ_ONLY != 0
    }
}

/// Why a device cannot be attached.
#[derive(Debug)]
pub struct Error {
    /// The option, as in `--net:lan=tap0`.
    pub option: String,
    /// What is wrong.
    pub reason: Reason,
}

/// What is wrong with something to attach, and what to do about it.
#[derive(Debug)]
pub enum Reason {
    /// There is no interface of this name here.
    NoInterface {
        /// The name.
        name: String,
        /// The taps that there are.
        taps: Vec<String>,
        /// Whether this user may make one.
        may_create: bool,
    },
    /// The interface is down.
    Down(String),
    /// Another process has it.
    Busy,
    /// It is not a tap, or one with several queues; the taps that there are.
    NotTap(Vec<String>),
    /// The descriptor is no tap that gives bare Ethernet frames.
    NotTapDescriptor(i32),
    /// The user may not open it.
    Permission(String),
    /// The tap is there, and it is this user's, by number.
    Owner(String, Option<u32>),
    /// The MTU does not fit the manifest.
    Mtu(i32),
    /// The tap gives virtio-net headers that the image does not understand.
    Headers,
    /// Another process has locked it: its number and name, if that is known.
    Locked(Option<(i32, String)>),
    /// Not a file or a block device.
    NotBlock,
    /// The file system or device cannot do without the host's cache.
    NoDirect,
    /// It can, but not by sectors as small as that; bytes of one.
    DirectSector(u32),
    /// The image does not know that its buffers have to begin at pages.
    DirectUnknown,
    /// The size is not a multiple of the sector's, or zero.
    Size {
        /// Of the file, in bytes.
        size: u64,
        /// Of a sector, in bytes.
        sector: u16,
    },
    /// What the kernel says about a step.
    System(&'static str, io::Error),
    /// There is no interface of this name for a macvtap; those that there are.
    NoParent(String, Vec<String>),
    /// A macvtap over this interface cannot be made.
    Macvtap(String, netlink::Cause),
    /// What is wrong with a PCIe device or DMA memory.
    Pci(pci::Reason),
    /// What is wrong with a link or a state.
    Region(region::Reason),
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.option.escape_debug(), self.reason)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoInterface {
                name,
                taps,
                may_create,
            } => write_no_tap(f, name, taps, *may_create),
            Self::Down(name) => {
                write!(
                    f,
                    "the interface is down; type: sudo ip link set dev {name} up"
                )
            }
            Self::Busy => write!(f, "in use by another process; stop that or choose another"),
            Self::NotTap(taps) => {
                f.write_str("not a tap with a single queue; ")?;
                write_choices(f, "", taps, "tap")?;
                f.write_str("a new one: sudo ip tuntap add dev NAME mode tap user $USER")
            }
            Self::NotTapDescriptor(fd) => write!(
                f,
                "descriptor {fd} is no tap opened with IFF_TAP and IFF_NO_PI; pass an open one"
            ),
            Self::Permission(how) => write!(f, "permission denied; {how}"),
            Self::Owner(name, owner) => {
                match owner {
                    Some(owner) => write!(f, "permission denied; the tap is user {owner}'s")?,
                    None => f.write_str("permission denied; the tap is another user's")?,
                }
                write!(
                    f,
                    "; make it yours: sudo ip tuntap del dev {name} mode tap && sudo ip tuntap add \
                     dev {name} mode tap user $USER && sudo ip link set dev {name} up"
                )
            }
            Self::Mtu(mtu) => write!(
                f,
                "the MTU is {mtu}, not 1 to 65535; type: sudo ip link set dev NAME mtu 1500"
            ),
            Self::Headers => write!(
                f,
                "the tap was opened with IFF_VNET_HDR, which this image does not understand; open \
                 it without"
            ),
            Self::Locked(_)
            | Self::NoDirect
            | Self::DirectSector(_)
            | Self::DirectUnknown
            | Self::NotBlock
            | Self::Size { .. } => self.write_disk(f),
            Self::System(step, error) => write!(f, "{step}: {error}"),
            Self::Pci(reason) => reason.fmt(f),
            Self::Region(reason) => reason.fmt(f),
            Self::NoParent(name, interfaces) => {
                f.write_str("no such interface; ")?;
                write_choices(f, name, interfaces, "interface")?;
                f.write_str("type: ip link")
            }
            Self::Macvtap(parent, cause) => {
                write!(f, "no macvtap over {parent}: {cause}; ")?;
                match cause {
                    netlink::Cause::Kernel(error) => f.write_str(macvtap_advice(error)),
                    _ => f.write_str("name another interface"),
                }
            }
        }
    }
}

impl Reason {
    /// What is wrong with a disk.
    fn write_disk(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Locked(None) => write!(f, "{}", Self::Busy),
            Self::Locked(Some((pid, name))) => write!(
                f,
                "in use by process {pid} ({}); stop that or choose another, or add \
                 --block-read-only:NAME=on to both",
                name.escape_debug()
            ),
            Self::NoDirect => write!(
                f,
                "its file system cannot pass the host's cache by; remove --block-direct"
            ),
            Self::DirectSector(bytes) => write!(
                f,
                "without the host's cache it has sectors of {bytes} bytes; add \
                 --block-sector-size:NAME={bytes}"
            ),
            Self::DirectUnknown => write!(
                f,
                "this image needs the host's cache, since it was built for another version or has \
                 more than {} disks; remove --block-direct",
                block::EXTENDED_DISKS_MAX
            ),
            Self::NotBlock => write!(f, "neither a file nor a block device; name one"),
            Self::Size { size, sector } => write!(
                f,
                "its size of {size} bytes is no multiple of the sector size of {sector}; type: \
                 truncate -s 1M FILE, or change --block-sector-size"
            ),
            _ => Ok(()),
        }
    }
}

/// What to do where the kernel makes no macvtap.
fn macvtap_advice(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM) => "it takes CAP_NET_ADMIN; type: sudo $(command -v outboard) run ...",
        Some(libc::EBUSY | libc::EINVAL) => {
            "another macvtap has it, or it can be no parent, as a wireless one; name another \
             interface"
        }
        Some(libc::EOPNOTSUPP) => "this kernel needs CONFIG_MACVTAP; type: sudo modprobe macvtap",
        _ => "name another interface",
    }
}

fn write_no_tap(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    taps: &[String],
    may_create: bool,
) -> fmt::Result {
    f.write_str("no such interface; ")?;
    write_choices(f, name, taps, "tap")?;
    if may_create {
        f.write_str("add --create-taps, or ")?;
    }
    write!(
        f,
        "type: sudo ip tuntap add dev {name} mode tap user $USER && sudo ip link set dev {name} \
         up; or let it run in a network of its own: outboard try IMAGE"
    )
}

/// The names there are, the one that may be meant first; a sentence of its own, or nothing.
fn write_choices(
    f: &mut fmt::Formatter<'_>,
    typed: &str,
    names: &[String],
    what: &str,
) -> fmt::Result {
    if let Some(near) = suggest::nearest(typed, names.iter().map(String::as_str)) {
        write!(f, "did you mean {near}? ")?;
    }
    match names {
        [] => Ok(()),
        [one] => write!(f, "the only {what} here is {one}; "),
        several => write!(f, "the {what}s here are {}; ", suggest::listed(several)),
    }
}

/// Names of the interfaces here that are like this; none if they cannot be listed.
fn interfaces(is_wanted: impl Fn(&Link) -> bool) -> Vec<String> {
    let links = Netlink::open().and_then(|mut netlink| netlink.links());
    let links = links.unwrap_or_default().into_iter();
    links
        .filter(|link| is_wanted(link))
        .map(|link| link.name)
        .collect()
}

/// All devices of a guest. What was made for them alone disappears when this is dropped, which it
/// never is once the guest runs.
#[derive(Debug)]
pub struct Attachments {
    /// In the order of the manifest.
    pub devices: Vec<Attached>,
    /// PCIe devices and DMA memory.
    pub pci: Pci,
    /// Links and states, in the order of the manifest.
    pub regions: Vec<Region>,
    _macvtaps: Vec<Macvtap>,
}

/// Attaches all of `pairs` to `image`.
///
/// # Errors
/// The first device that cannot be attached. Whatever was made for others is removed.
pub fn attach(pairs: &Pairs<'_>, options: &Options, image: &Image) -> Result<Attachments, Error> {
    let features = image.extension.map_or(0, |extension| extension.features);
    let understands = features & feature::VIRTIO_NET_HEADER != 0;
    let is_disk = |pair: &&Pair<'_>| matches!(pair.source, Source::Block(_));
    let disks = pairs.devices.iter().filter(is_disk).count();
    let mut macvtaps = Vec::new();
    let mut devices = Vec::with_capacity(pairs.devices.len());
    for pair in &pairs.devices {
        let index = pair.index;
        devices.push(match pair.source {
            Source::Net(net) => {
                let result = attach_net(net, options.create_taps, understands, &mut macvtaps);
                let reason = |reason| Error {
                    option: net_option(net),
                    reason,
                };
                let (Opened { fd, flags, .. }, device) = result.map_err(reason)?;
                Attached {
                    index,
                    device,
                    fd,
                    flags,
                }
            }
            Source::Sockets(name) => {
                let reason = |reason| Error {
                    option: format!("--sockets:{name}=host"),
                    reason,
                };
                Attached {
                    index,
                    device: Device::Sockets,
                    fd: sockets::open().map_err(reason)?,
                    flags: 0,
                }
            }
            Source::Block(block) => {
                let option = || format!("--block:{}={}", block.name, block.path.display());
                let reason = |reason| Error {
                    option: option(),
                    reason,
                };
                let disk = block::open(block, features, disks).map_err(reason)?;
                Attached {
                    index,
                    device: disk.device,
                    fd: disk.fd,
                    flags: disk.flags,
                }
            }
        });
    }
    // Processes that serve disks are copies of this one: before devices have memory here.
    let regions = regions(&image.regions, &pairs.regions, &devices)?;
    Ok(Attachments {
        devices,
        pci: pci::attach(&image.pci, &pairs.pci, image.dma_bytes)?,
        regions,
        _macvtaps: macvtaps,
    })
}

/// Attaches links and states, and queues of the disks among `devices`.
fn regions(
    requests: &[Request],
    pairs: &[Memory<'_>],
    devices: &[Attached],
) -> Result<Vec<Region>, Error> {
    let pairs = requests.iter().zip(pairs).enumerate();
    let regions = pairs.map(|(number, (request, memory))| match memory {
        Memory::Link(link) => {
            let option = link.option();
            region::link(number, request, link).map_err(|reason| Error { option, reason })
        }
        Memory::State(state) => {
            let option = state.option();
            region::state(number, request, state).map_err(|reason| Error { option, reason })
        }
        Memory::Queue(index, block) => {
            let option = format!("--block:{}={}", block.name, block.path.display());
            let disk = devices.iter().find(|disk| disk.index == *index);
            let disk = disk.ok_or(Reason::NotBlock);
            let region = disk.and_then(|disk| region::queue(number, request, disk));
            region.map_err(|reason| Error { option, reason })
        }
    });
    regions.collect()
}

/// Whether the image understands virtio-net headers, and whether the user wants offloads.
#[derive(Clone, Copy, Debug)]
struct Headers {
    understood: bool,
    offload: bool,
}

impl Headers {
    /// Whether a tap that we open gets headers: without offloads they would say nothing.
    fn wanted(self) -> bool {
        self.understood && self.offload
    }

    /// Tells the kernel what it may leave to the guest, whose frames at `tap` have headers or not;
    /// bits of [`device_flag`], as the guest is told.
    fn agree(self, tap: BorrowedFd<'_>, has_headers: bool) -> io::Result<u32> {
        if !(has_headers && self.wanted()) {
            linux_tap::set_offloads(tap, 0)?;
            return Ok(match has_headers {
                true => device_flag::VIRTIO_NET_HEADER,
                false => 0,
            });
        }
        // A kernel that knows this offload segments UDP itself. It shall not leave that to us.
        let cuts_udp = linux_tap::set_offloads(tap, offload::ALL | offload::USO).is_ok();
        linux_tap::set_offloads(tap, offload::ALL)?;
        Ok(match cuts_udp {
            true => device_flag::VIRTIO_NET_HEADER | device_flag::UDP_SEGMENTATION,
            false => device_flag::VIRTIO_NET_HEADER,
        })
    }
}

/// Opens the tap `name` for a guest whose image has these features, for who hands it over by
/// descriptor, to one guest after the other.
///
/// # Errors
/// What a guest to which it is attached by name would not be started for.
pub fn open_tap(name: &str, features: u32) -> Result<OwnedFd, Reason> {
    let headers = Headers {
        understood: features & feature::VIRTIO_NET_HEADER != 0,
        offload: true,
    };
    Ok(tap::open(name, false, headers)?.fd)
}

/// Makes the tap `name`, which nobody has open any more, forget what [`open_tap`] has set.
pub fn release_tap(name: &str) {
    tap::reset(name);
}

/// A tap, ready but for the guest's MAC address.
#[derive(Debug)]
struct Opened {
    fd: OwnedFd,
    mtu: i32,
    /// Bits of [`device_flag`].
    flags: u32,
}

fn attach_net(
    net: &Net,
    create: bool,
    understood: bool,
    macvtaps: &mut Vec<Macvtap>,
) -> Result<(Opened, Device), Reason> {
    let headers = Headers {
        understood,
        offload: net.offload,
    };
    let mut own_mac = None;
    let opened = match &net.source {
        NetSource::Tap(name) => tap::open(name, create, headers)?,
        NetSource::Descriptor(number) => tap::adopt(*number, headers)?,
        NetSource::Macvtap(parent) => {
            macvtaps.push(Macvtap::add(parent, macvtaps.len())?);
            let (opened, mac) = macvtaps[macvtaps.len() - 1].open(headers)?;
            own_mac = Some(mac);
            opened
        }
    };
    let mtu = u16::try_from(opened.mtu).ok().filter(|mtu| *mtu > 0);
    let mtu = mtu.ok_or(Reason::Mtu(opened.mtu))?;
    let mac = match net.mac.or(own_mac) {
        Some(mac) => mac,
        None => random_mac().map_err(|error| Reason::System("no random MAC address", error))?,
    };
    Ok((opened, Device::Net { mac, mtu }))
}

/// A locally administered unicast address (IEEE 802, 8.2), otherwise random.
///
/// # Errors
/// What the kernel says.
pub fn random_mac() -> io::Result<[u8; 6]> {
    let mut mac = [0; 6];
    crate::sys::random::fill(&mut mac)?;
    mac[0] = mac[0] & !1 | 2;
    Ok(mac)
}

fn net_option(net: &Net) -> String {
    let name = &net.name;
    match &net.source {
        NetSource::Tap(interface) => format!("--net:{name}={interface}"),
        NetSource::Descriptor(fd) => format!("--net:{name}=@{fd}"),
        NetSource::Macvtap(parent) => format!("--net:{name}=macvtap:{parent}"),
    }
}

/// Watches the interfaces that the tender `tender` attaches, or has attached: each with the name
/// that it has in the manifest. Where one cannot be watched, there is none.
pub fn watches(options: &Options, tender: u32) -> Vec<(String, Watch)> {
    let mut macvtaps = 0;
    let watch = |net: &Net| {
        let watch = match &net.source {
            NetSource::Tap(name) => Watch::new(name),
            NetSource::Descriptor(number) => {
                descriptor::adopt(*number).and_then(|tap| Watch::of_tap(tap.as_fd()))
            }
            NetSource::Macvtap(_) => {
                macvtaps += 1;
                Watch::new(&macvtap::link_name(tender, macvtaps - 1))
            }
        };
        Some((net.name.clone(), watch.ok()?))
    };
    options.nets.iter().filter_map(watch).collect()
}

/// Undoes, after the guest has ended, what attaching left behind and the jail could not undo: the
/// offloads that persistent taps remember, and macvtaps. For the monitor; a tender that runs alone
/// leaves both. Taps that came as descriptors are left to whoever opened them.
///
/// `tender` is the process id of the tender that has ended, by which its macvtaps are known.
pub fn cleanup(options: &Options, tender: u32) {
    let mut macvtaps = 0;
    for net in &options.nets {
        match &net.source {
            NetSource::Tap(name) => tap::reset(name),
            NetSource::Descriptor(_) => {}
            NetSource::Macvtap(_) => {
                macvtap::remove(&macvtap::link_name(tender, macvtaps));
                macvtaps += 1;
            }
        }
    }
}
