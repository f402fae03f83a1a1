//! The requests to taps and interfaces that no library wraps, one function each.
//!
//! Numbers from `include/uapi/linux/if_tun.h` and `sockios.h`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `struct ifreq`, its union as bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Request {
    name: [u8; libc::IFNAMSIZ],
    value: [u8; 24],
}

/// Bytes of a [`Request`].
pub const BYTES: usize = 40;
const _: () = assert!(size_of::<Request>() == size_of::<libc::ifreq>());
const _: () = assert!(size_of::<Request>() == BYTES);

impl Request {
    /// A request about the interface `name`, the rest zero.
    pub(crate) fn new(name: &str) -> io::Result<Self> {
        let bytes = name.as_bytes();
        if bytes.len() >= libc::IFNAMSIZ || bytes.contains(&0) {
            return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
        }
        let mut request = Self {
            name: [0; libc::IFNAMSIZ],
            value: [0; 24],
        };
        request.name[..bytes.len()].copy_from_slice(bytes);
        Ok(request)
    }

    /// The name that the kernel wrote.
    pub(crate) fn name(&self) -> String {
        let end = self.name.iter().position(|byte| *byte == 0);
        let name = &self.name[..end.unwrap_or(self.name.len())];
        String::from_utf8_lossy(name).into_owned()
    }

    /// `ifr_flags`, sixteen bits.
    pub(crate) fn flags(&self) -> i32 {
        i32::from(u16::from_ne_bytes([self.value[0], self.value[1]]))
    }

    /// Sets `ifr_flags`; bits above the sixteenth are not sent.
    pub(crate) fn set_flags(&mut self, flags: i32) {
        let [low, high, ..] = flags.to_le_bytes();
        self.value[0..2].copy_from_slice(&u16::from_le_bytes([low, high]).to_ne_bytes());
    }

    /// A request as a program has made it.
    pub(crate) fn of(bytes: [u8; BYTES]) -> Self {
        zerocopy::transmute!(bytes)
    }

    /// The request as the kernel has answered it.
    pub(crate) fn bytes(self) -> [u8; BYTES] {
        zerocopy::transmute!(self)
    }

    /// `ifr_mtu`, and any other `int` of the union.
    pub(crate) fn int(&self) -> i32 {
        let v = &self.value;
        i32::from_ne_bytes([v[0], v[1], v[2], v[3]])
    }

    /// `ifr_hwaddr` of an Ethernet interface, behind its address family.
    pub(crate) fn mac(&self) -> [u8; 6] {
        let v = &self.value;
        [v[2], v[3], v[4], v[5], v[6], v[7]]
    }
}

/// The requests that take a [`Request`].
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub(crate) enum Command {
    TunSetInterface = 0x4004_54ca,
    TunGetInterface = 0x8004_54d2,
    TunSetPersistent = 0x4004_54cb,
    GetName = 0x8910,
    GetFlags = 0x8913,
    SetFlags = 0x8914,
    GetOwn = 0x8915,
    GetPeer = 0x8917,
    GetBroadcast = 0x8919,
    GetMask = 0x891b,
    GetMetric = 0x891d,
    GetMtu = 0x8921,
    GetAddress = 0x8927,
    GetIndex = 0x8933,
}

const TUN_SET_OFFLOAD: libc::Ioctl = 0x4004_54d0;
const TUN_SET_VNET_HEADER_SIZE: libc::Ioctl = 0x4004_54d8;
const TUN_GET_DEVICE_NAMESPACE: libc::Ioctl = 0x54e3;

/// Sends `request`, which the kernel may answer in place.
pub(crate) fn send(fd: BorrowedFd<'_>, command: Command, request: &mut Request) -> io::Result<()> {
    let request: *mut Request = request;
    // SAFETY: each `Command` makes the kernel read and write one `struct ifreq` at the pointer and
    // nothing else; `Request` has its size (asserted above) and may hold any bytes, and the unique
    // reference that the pointer comes from outlives the call.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), command as libc::Ioctl, request) };
    check(result).map(drop)
}

/// `TUNSETOFFLOAD`.
pub(crate) fn tun_set_offloads(fd: BorrowedFd<'_>, bits: u32) -> io::Result<()> {
    let bits = libc::c_ulong::from(bits);
    // SAFETY: the third argument is a number; no memory is passed.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), TUN_SET_OFFLOAD, bits) }).map(drop)
}

/// `TUNSETVNETHDRSZ`.
pub(crate) fn tun_set_vnet_header_size(fd: BorrowedFd<'_>, bytes: i32) -> io::Result<()> {
    let bytes: *const i32 = &bytes;
    // SAFETY: the kernel reads one `int` at the pointer, and that one outlives the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), TUN_SET_VNET_HEADER_SIZE, bytes) }).map(drop)
}

/// `TUNGETDEVNETNS`.
pub(crate) fn tun_get_namespace(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: the request has no argument.
    let raw = check(unsafe { libc::ioctl(fd.as_raw_fd(), TUN_GET_DEVICE_NAMESPACE) })?;
    // SAFETY: the kernel has just made this descriptor for us; nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}
