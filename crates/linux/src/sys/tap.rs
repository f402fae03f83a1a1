//! Taps: Ethernet interfaces whose frames a process reads and writes.
//!
//! Keep open: `Documentation/networking/tuntap.rst` and `include/uapi/linux/if_tun.h`.

use super::ioctl::{self, Command, Request};
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

/// What may be left to the reader of a tap, bits of `TUNSETOFFLOAD`.
pub mod offload {
    /// Checksums of TCP and UDP (`TUN_F_CSUM`).
    pub const CHECKSUM: u32 = 0x01;
    /// Segmentation of TCP over IPv4 (`TUN_F_TSO4`); needs [`CHECKSUM`].
    pub const TSO4: u32 = 0x02;
    /// Segmentation of TCP over IPv6 (`TUN_F_TSO6`); needs [`CHECKSUM`].
    pub const TSO6: u32 = 0x04;
    /// Segmentation of UDP over IPv4 and IPv6 (`TUN_F_USO4` and `TUN_F_USO6`, from Linux 6.2 on);
    /// needs [`CHECKSUM`].
    pub const USO: u32 = 0x20 | 0x40;
    /// All that a virtio-net header of Outboard can express.
    pub const ALL: u32 = CHECKSUM | TSO4 | TSO6;
}

/// Bytes of the virtio-net header, version 1 with `num_buffers` (virtio 1.2, 5.1.6).
pub const VNET_HEADER_BYTES: i32 = 12;

/// Longest name of an interface, in bytes (`IFNAMSIZ` without the NUL).
pub const NAME_BYTES_MAX: usize = libc::IFNAMSIZ - 1;

const CLONE_DEVICE: &str = "/dev/net/tun";

/// An open tap. It disappears when the last descriptor closes, unless it was made persistent.
#[derive(Debug)]
pub struct Tap {
    fd: OwnedFd,
    name: String,
}

impl Tap {
    /// Opens the tap `name` of this thread's network namespace, non-blocking, and makes it if it
    /// does not exist; `name` may hold `%d` for a number of the kernel's choice. With
    /// `vnet_header`, each frame begins with [`VNET_HEADER_BYTES`] of virtio-net header. A new tap
    /// is down.
    ///
    /// # Errors
    /// What the kernel says: `EBUSY` if another process has it, `EINVAL` if it is no tap or has
    /// several queues, `EPERM` without `CAP_NET_ADMIN` for a tap that is not this user's.
    pub fn create(name: &str, vnet_header: bool) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::open(CLONE_DEVICE, flags, Mode::empty())?;
        let name = set_interface(fd.as_fd(), name, vnet_header)?;
        Ok(Self { fd, name })
    }

    /// The tap behind what the parent passed as `number`, made non-blocking.
    ///
    /// # Errors
    /// What the kernel says; `EINVAL` if it is no tap with virtio-net headers.
    pub fn adopt(number: RawFd) -> io::Result<Self> {
        let fd = super::descriptor::adopt(number)?;
        let interface = interface(fd.as_fd())?;
        let fits = interface.is_tap && interface.no_packet_information && interface.vnet_header;
        if !fits {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        set_vnet_header_size(fd.as_fd())?;
        rustix::fs::fcntl_setfl(&fd, OFlags::NONBLOCK)?;
        let name = interface.name;
        Ok(Self { fd, name })
    }

    /// Takes a descriptor of `/dev/tapN`, a macvtap.
    ///
    /// # Errors
    /// What the kernel says; `EINVAL` if it is none.
    pub fn from_macvtap(fd: OwnedFd, vnet_header: bool) -> io::Result<Self> {
        let name = set_interface(fd.as_fd(), "", vnet_header)?;
        Ok(Self { fd, name })
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Says what the kernel may leave to the reader: bits of [`offload`]. A persistent tap
    /// remembers it when the descriptor is closed.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn set_offloads(&self, bits: u32) -> io::Result<()> {
        set_offloads(self.fd.as_fd(), bits)
    }

    /// The descriptor.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What `TUNGETIFF` says about a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name in the namespace of the interface, which need not be ours.
    pub name: String,
    /// It carries Ethernet frames.
    pub is_tap: bool,
    /// Frames come without the four bytes of packet information.
    pub no_packet_information: bool,
    /// Frames begin with a virtio-net header.
    pub vnet_header: bool,
}

/// Asks what interface lies behind a descriptor.
///
/// # Errors
/// `ENOTTY` or `EBADFD` if it is none.
pub fn interface(fd: BorrowedFd<'_>) -> io::Result<Interface> {
    let mut request = Request::new("")?;
    ioctl::send(fd, Command::TunGetInterface, &mut request)?;
    let flags = request.flags();
    Ok(Interface {
        name: request.name(),
        is_tap: flags & libc::IFF_TAP != 0,
        no_packet_information: flags & libc::IFF_NO_PI != 0,
        vnet_header: flags & libc::IFF_VNET_HDR != 0,
    })
}

/// [`Tap::set_offloads`] of a descriptor.
///
/// # Errors
/// What the kernel says.
pub fn set_offloads(fd: BorrowedFd<'_>, bits: u32) -> io::Result<()> {
    ioctl::tun_set_offloads(fd, bits)
}

/// Makes the virtio-net headers of a descriptor [`VNET_HEADER_BYTES`] long.
///
/// # Errors
/// What the kernel says.
pub fn set_vnet_header_size(fd: BorrowedFd<'_>) -> io::Result<()> {
    ioctl::tun_set_vnet_header_size(fd, VNET_HEADER_BYTES)
}

/// The network namespace of the interface behind a descriptor.
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN` there; `EINVAL` on a macvtap.
pub fn namespace(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    ioctl::tun_get_namespace(fd)
}

fn set_interface(fd: BorrowedFd<'_>, name: &str, vnet_header: bool) -> io::Result<String> {
    let mut flags = libc::IFF_TAP | libc::IFF_NO_PI;
    if vnet_header {
        flags |= libc::IFF_VNET_HDR;
    }
    let mut request = Request::new(name)?;
    request.set_flags(flags);
    ioctl::send(fd, Command::TunSetInterface, &mut request)?;
    if vnet_header {
        set_vnet_header_size(fd)?;
    }
    Ok(request.name())
}
