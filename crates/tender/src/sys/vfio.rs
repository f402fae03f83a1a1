//! VFIO's group interface (`include/uapi/linux/vfio.h`, version 0), one function for each request.
//!
//! The crate `vfio-ioctls` has no request for the ranges of I/O addresses that an IOMMU can use,
//! loses the errors of resets and of the configuration space, and brings threads' locks, a logger
//! and the memory model of a machine monitor.

use super::window::Window;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const GET_API_VERSION: libc::Ioctl = 0x3b64;
const CHECK_EXTENSION: libc::Ioctl = 0x3b65;
const SET_IOMMU: libc::Ioctl = 0x3b66;
const GROUP_GET_STATUS: libc::Ioctl = 0x3b67;
const GROUP_SET_CONTAINER: libc::Ioctl = 0x3b68;
const GROUP_GET_DEVICE_FD: libc::Ioctl = 0x3b6a;
const DEVICE_GET_INFO: libc::Ioctl = 0x3b6b;
const DEVICE_GET_REGION_INFO: libc::Ioctl = 0x3b6c;
const DEVICE_GET_IRQ_INFO: libc::Ioctl = 0x3b6d;
const DEVICE_SET_IRQS: libc::Ioctl = 0x3b6e;
const IOMMU_GET_INFO: libc::Ioctl = 0x3b70;
const IOMMU_MAP_DMA: libc::Ioctl = 0x3b71;

const API_VERSION: i32 = 0;
/// `VFIO_TYPE1v2_IOMMU`: an IOMMU that translates, such as Intel's and AMD's.
const TYPE1_V2: libc::c_ulong = 3;
const GROUP_VIABLE: u32 = 1 << 0;
const DEVICE_CAN_RESET: u32 = 1 << 0;
const DEVICE_IS_PCI: u32 = 1 << 1;
const REGION_CAN_MAP: u32 = 1 << 2;
/// A trigger, given as an eventfd (`VFIO_IRQ_SET_DATA_EVENTFD`, `VFIO_IRQ_SET_ACTION_TRIGGER`).
const SET_TRIGGER: u32 = 1 << 2 | 1 << 5;
/// The device may read and write.
const DMA_READ_WRITE: u32 = 1 << 0 | 1 << 1;
/// Region of the configuration space.
const CONFIG_REGION: u32 = 7;
/// Most bytes that an answer with capabilities has.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Most capabilities of an answer.
const CAPABILITIES_MAX: usize = 32;

/// Numbers of capabilities.
mod capability {
    pub const REGION_SPARSE_MMAP: u16 = 1;
    pub const IOMMU_IOVA_RANGES: u16 = 1;
    pub const IOMMU_DMA_AVAILABLE: u16 = 3;
}

/// Kinds of message-signalled interrupts: their index in VFIO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Interrupt {
    /// MSI (PCI Local Bus 3.0, 6.8.1).
    Msi = 1,
    /// MSI-X (6.8.2).
    MsiX = 2,
}

/// An address space of I/O addresses, and what holds its IOMMU's mappings: they end when the last
/// descriptor of it and of its devices is closed.
#[derive(Debug)]
pub struct Container(File);

/// A group of devices that the IOMMU cannot keep apart.
#[derive(Debug)]
pub struct Group(File);

/// A device, taken over.
#[derive(Debug)]
pub struct Device {
    file: File,
    flags: u32,
    config_offset: u64,
}

/// A BAR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Size in bytes; 0 if there is none.
    pub bytes: u64,
    /// Where it lies in the device's file.
    pub offset: u64,
    /// The parts of it that can be mapped, by their offsets; nothing if none can.
    pub mappable: Vec<std::ops::Range<u64>>,
}

/// What the IOMMU of a container can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Iommu {
    /// I/O addresses that can be used.
    pub ranges: Vec<RangeInclusive<u64>>,
    /// Mappings that can still be made.
    pub mappings_left: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct GroupStatus {
    size: u32,
    flags: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct DeviceInfo {
    size: u32,
    flags: u32,
    regions: u32,
    interrupts: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RegionInfo {
    size: u32,
    flags: u32,
    index: u32,
    capabilities: u32,
    bytes: u64,
    offset: u64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct InterruptInfo {
    size: u32,
    flags: u32,
    index: u32,
    count: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct SetInterrupt {
    size: u32,
    flags: u32,
    index: u32,
    start: u32,
    count: u32,
    event: i32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct IommuInfo {
    size: u32,
    flags: u32,
    page_sizes: u64,
    capabilities: u32,
    padding: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct MapDma {
    size: u32,
    flags: u32,
    address: u64,
    iova: u64,
    bytes: u64,
}

/// A request whose argument is a number.
fn plain(fd: BorrowedFd<'_>, request: libc::Ioctl, number: libc::c_ulong) -> io::Result<i32> {
    // SAFETY: the requests that this module sends so take a number and no memory.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request, number) })
}

/// A request about a structure whose first field is its size, which the kernel does not exceed.
fn ask<T: FromBytes + IntoBytes>(
    fd: BorrowedFd<'_>,
    request: libc::Ioctl,
    argument: &mut T,
) -> io::Result<i32> {
    let argument: *mut T = argument;
    // SAFETY: the requests that this module sends so read and write the structure of that request,
    // of which `T` is a copy that begins with its own size and may hold any bytes.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request, argument) })
}

/// The same for a structure that capabilities follow: the whole answer.
fn ask_all<T: FromBytes + IntoBytes + Immutable>(
    fd: BorrowedFd<'_>,
    request: libc::Ioctl,
    mut argument: T,
) -> io::Result<Vec<u8>> {
    ask(fd, request, &mut argument)?;
    let known = argument.as_bytes();
    let size = u32::read_from_prefix(known).map_or(0, |(size, _)| size as usize);
    let size = size.clamp(known.len(), ANSWER_BYTES_MAX);
    // Words, for the alignment that the kernel expects.
    let mut words = vec![0u64; size.div_ceil(8)];
    let bytes = words.as_mut_bytes();
    bytes[..known.len()].copy_from_slice(known);
    bytes[..4].copy_from_slice(&(size as u32).to_ne_bytes());
    let place = words.as_mut_ptr();
    // SAFETY: as for `ask`; the size that the structure says is that of the memory behind it.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request, place) })?;
    let mut bytes = words.as_bytes().to_vec();
    bytes.truncate(size);
    Ok(bytes)
}

fn check(result: libc::c_int) -> io::Result<i32> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

/// The body of the capability `wanted`, behind its header, in an answer whose first one lies at
/// `first` (`struct vfio_info_cap_header`).
fn find_capability(answer: &[u8], first: u32, wanted: u16) -> Option<&[u8]> {
    let mut at = first as usize;
    for _ in 0..CAPABILITIES_MAX {
        let header = answer.get(at..)?;
        let (id, _) = u16::read_from_prefix(header).ok()?;
        let (next, body) = u32::read_from_prefix(header.get(4..)?).ok()?;
        if at == 0 {
            return None;
        }
        if id == wanted {
            return Some(body);
        }
        at = next as usize;
    }
    None
}

/// A list of pairs of numbers behind their count and a reserved word, as capabilities hold them.
fn pairs(body: &[u8]) -> Vec<[u64; 2]> {
    let count = u32::read_from_prefix(body).map_or(0, |(count, _)| count as usize);
    let list = body.get(8..).unwrap_or_default().chunks_exact(16);
    let pairs = list.filter_map(|pair| <[u64; 2]>::read_from_bytes(pair).ok());
    pairs.take(count).collect()
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

impl Container {
    /// A container without groups.
    ///
    /// # Errors
    /// What the kernel says of `/dev/vfio/vfio`; `ENOTSUP` if its VFIO is of another version or
    /// has no such IOMMU.
    pub fn open() -> io::Result<Self> {
        let file = open(Path::new("/dev/vfio/vfio"))?;
        let fits = plain(file.as_fd(), GET_API_VERSION, 0)? == API_VERSION
            && plain(file.as_fd(), CHECK_EXTENSION, TYPE1_V2)? > 0;
        if !fits {
            return Err(io::Error::from_raw_os_error(libc::ENOTSUP));
        }
        Ok(Self(file))
    }

    /// Chooses the kind of IOMMU, once the first group is in.
    ///
    /// # Errors
    /// What the kernel says: `EPERM` if interrupts are not remapped.
    pub fn set_iommu(&self) -> io::Result<()> {
        plain(self.0.as_fd(), SET_IOMMU, TYPE1_V2).map(drop)
    }

    /// What the IOMMU can do, for the groups that are in.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn iommu(&self) -> io::Result<Iommu> {
        let argument = IommuInfo {
            size: size_of::<IommuInfo>() as u32,
            flags: 0,
            page_sizes: 0,
            capabilities: 0,
            padding: 0,
        };
        let answer = ask_all(self.0.as_fd(), IOMMU_GET_INFO, argument)?;
        let info = IommuInfo::read_from_prefix(&answer);
        let first = info.map_or(0, |(info, _)| info.capabilities);
        let ranges = find_capability(&answer, first, capability::IOMMU_IOVA_RANGES);
        let left = find_capability(&answer, first, capability::IOMMU_DMA_AVAILABLE);
        let left = left.and_then(|body| u32::read_from_prefix(body).ok());
        Ok(Iommu {
            ranges: pairs(ranges.unwrap_or_default())
                .into_iter()
                .map(|[start, end]| start..=end)
                .collect(),
            // Kernels before 5.10 do not say, and have a limit that one mapping does not reach.
            mappings_left: left.map_or(u32::MAX, |(left, _)| left),
        })
    }

    /// Lets all devices of the container read and write `memory`, at the I/O addresses from `iova`
    /// on. The kernel keeps it in memory from now on.
    ///
    /// # Errors
    /// What the kernel says: `ENOMEM` for more than may be locked.
    pub fn map(&self, memory: &Window, iova: u64) -> io::Result<()> {
        let mut argument = MapDma {
            size: size_of::<MapDma>() as u32,
            flags: DMA_READ_WRITE,
            address: memory.address(),
            iova,
            bytes: memory.bytes(),
        };
        // Devices may write there at any time: nobody has a reference to a window.
        ask(self.0.as_fd(), IOMMU_MAP_DMA, &mut argument).map(drop)
    }
}

impl Group {
    /// Opens group `number`.
    ///
    /// # Errors
    /// What the kernel says: `EBUSY` if another process has it.
    pub fn open(number: u32) -> io::Result<Self> {
        open(&Path::new("/dev/vfio").join(number.to_string())).map(Self)
    }

    /// Whether all of its devices are VFIO's or nobody's.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn is_viable(&self) -> io::Result<bool> {
        let mut status = GroupStatus {
            size: size_of::<GroupStatus>() as u32,
            flags: 0,
        };
        ask(self.0.as_fd(), GROUP_GET_STATUS, &mut status)?;
        Ok(status.flags & GROUP_VIABLE != 0)
    }

    /// Puts it into `container`.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn join(&self, container: &Container) -> io::Result<()> {
        let mut number: RawFd = container.0.as_raw_fd();
        ask(self.0.as_fd(), GROUP_SET_CONTAINER, &mut number).map(drop)
    }

    /// Takes the device with this address over; the group is in a container whose IOMMU is chosen.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn device(&self, address: &str) -> io::Result<Device> {
        let name = CString::new(address)?;
        let pointer = name.as_ptr();
        // SAFETY: the kernel reads a string that ends with NUL, which outlives the call.
        let raw = unsafe { libc::ioctl(self.0.as_raw_fd(), GROUP_GET_DEVICE_FD, pointer) };
        // SAFETY: the kernel has just made this descriptor for us; nothing else owns it.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(check(raw)?) });
        let mut info = DeviceInfo {
            size: size_of::<DeviceInfo>() as u32,
            flags: 0,
            regions: 0,
            interrupts: 0,
        };
        ask(file.as_fd(), DEVICE_GET_INFO, &mut info)?;
        let mut device = Device {
            file,
            flags: info.flags,
            config_offset: 0,
        };
        if info.flags & DEVICE_IS_PCI == 0 {
            return Err(io::Error::from_raw_os_error(libc::ENOTSUP));
        }
        device.config_offset = device.region(CONFIG_REGION)?.offset;
        Ok(device)
    }
}

impl Device {
    /// Whether it can be reset, by function, by power state or by bus; if so, the kernel has done
    /// that for whoever opened it, and does it again once it is closed.
    pub fn can_reset(&self) -> bool {
        self.flags & DEVICE_CAN_RESET != 0
    }

    /// The BAR of this number.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn region(&self, index: u32) -> io::Result<Region> {
        let argument = RegionInfo {
            size: size_of::<RegionInfo>() as u32,
            flags: 0,
            index,
            capabilities: 0,
            bytes: 0,
            offset: 0,
        };
        let answer = ask_all(self.file.as_fd(), DEVICE_GET_REGION_INFO, argument)?;
        let (info, _) = RegionInfo::read_from_prefix(&answer)
            .map_err(|_| io::Error::from_raw_os_error(libc::EPROTO))?;
        let sparse = find_capability(&answer, info.capabilities, capability::REGION_SPARSE_MMAP);
        let mappable = match sparse {
            _ if info.flags & REGION_CAN_MAP == 0 => Vec::new(),
            Some(body) => pairs(body)
                .into_iter()
                .map(|[offset, bytes]| offset..offset.saturating_add(bytes))
                .collect(),
            None => std::iter::once(0..info.bytes).collect(),
        };
        Ok(Region {
            bytes: info.bytes,
            offset: info.offset,
            mappable,
        })
    }

    /// How many interrupts of this kind it has.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn interrupts(&self, kind: Interrupt) -> io::Result<u32> {
        let mut info = InterruptInfo {
            size: size_of::<InterruptInfo>() as u32,
            flags: 0,
            index: kind as u32,
            count: 0,
        };
        ask(self.file.as_fd(), DEVICE_GET_IRQ_INFO, &mut info)?;
        Ok(info.count)
    }

    /// Has the first interrupt of this kind raise `event`, an eventfd.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn trigger(&self, kind: Interrupt, event: BorrowedFd<'_>) -> io::Result<()> {
        let mut argument = SetInterrupt {
            size: size_of::<SetInterrupt>() as u32,
            flags: SET_TRIGGER,
            index: kind as u32,
            start: 0,
            count: 1,
            event: event.as_raw_fd(),
        };
        ask(self.file.as_fd(), DEVICE_SET_IRQS, &mut argument).map(drop)
    }

    /// Reads 16 bits of the configuration space.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn config(&self, offset: u64) -> io::Result<u16> {
        let mut bytes = [0; 2];
        self.file
            .read_exact_at(&mut bytes, self.config_offset + offset)?;
        Ok(u16::from_le_bytes(bytes))
    }

    /// Writes 16 bits of the configuration space.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn set_config(&self, offset: u64, value: u16) -> io::Result<()> {
        let bytes = value.to_le_bytes();
        self.file.write_all_at(&bytes, self.config_offset + offset)
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The descriptors that keep a device, its group or its container.
macro_rules! into_descriptor {
    ($($type:ty: $field:tt),*) => {$(
        impl From<$type> for OwnedFd {
            fn from(value: $type) -> Self {
                value.$field.into()
            }
        }
    )*};
}

into_descriptor!(Container: 0, Group: 0, Device: file);

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer of 16 bytes and capabilities, each with its number and body.
    fn answer(capabilities: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; 16];
        for (position, (id, body)) in capabilities.iter().enumerate() {
            let last = position + 1 == capabilities.len();
            let next = if last {
                0
            } else {
                bytes.len() + 8 + body.len()
            };
            bytes.extend_from_slice(&id.to_ne_bytes());
            bytes.extend_from_slice(&1u16.to_ne_bytes());
            bytes.extend_from_slice(&(next as u32).to_ne_bytes());
            bytes.extend_from_slice(body);
        }
        bytes
    }

    #[test]
    fn capabilities_are_found_by_number() {
        let bytes = answer(&[(7, b"first..."), (1, b"second..")]);
        assert_eq!(find_capability(&bytes, 16, 7).unwrap()[..8], *b"first...");
        assert_eq!(find_capability(&bytes, 16, 1), Some(&b"second.."[..]));
        assert_eq!(find_capability(&bytes, 16, 3), None);
        assert_eq!(find_capability(&bytes, 0, 7), None, "no capabilities");
        assert_eq!(find_capability(&bytes, 1000, 7), None);
    }

    #[test]
    fn a_chain_without_an_end_ends() {
        let mut bytes = answer(&[(7, b"....")]);
        bytes[20..24].copy_from_slice(&16u32.to_ne_bytes());
        assert_eq!(find_capability(&bytes, 16, 1), None);
    }

    #[test]
    fn pairs_are_as_many_as_said_and_there() {
        let mut body = vec![2, 0, 0, 0, 0, 0, 0, 0];
        for word in [1u64, 2, 3, 4, 5, 6] {
            body.extend_from_slice(&word.to_ne_bytes());
        }
        assert_eq!(pairs(&body), [[1, 2], [3, 4]]);
        body[0] = 200;
        assert_eq!(pairs(&body).len(), 3);
        assert!(pairs(&[]).is_empty());
    }
}
