//! How often the guest was left, as KVM counts it (Linux `Documentation/virt/kvm/api.rst`, 4.133).

use crate::sys::fault;
use abi::share::Exits;
use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use zerocopy::{FromBytes, IntoBytes};

/// `struct kvm_stats_header`: flags, bytes of a name, number of descriptors, offsets of the id, of
/// the descriptors and of the data.
type Header = [u32; 6];
/// `struct kvm_stats_desc` without the name behind it: flags; exponent and size; offset in the
/// data; size of a bucket.
type Descriptor = [u32; 4];

/// Most counters that a kernel may have.
const COUNTERS_MAX: u32 = 1000;
/// Longest name of a counter, in bytes.
const NAME_BYTES_MAX: usize = 256;
const ALL: &[u8] = b"exits";
const INTERRUPTS: &[u8] = b"irq_exits";

/// The counters of a processor.
#[derive(Debug)]
pub struct Statistics {
    fd: OwnedFd,
    all: u64,
    interrupts: u64,
}

impl Statistics {
    /// Finds the counters in what KVM says of itself; `None` if it has no such.
    pub fn new(fd: OwnedFd) -> Option<Self> {
        let mut header = Header::default();
        read(&fd, header.as_mut_bytes(), 0)?;
        let [_, name_bytes, count, _, descriptors, data] = header;
        let name_bytes = (name_bytes as usize).min(NAME_BYTES_MAX);
        let size = (size_of::<Descriptor>() + name_bytes) as u64;
        let (mut all, mut interrupts) = (None, None);
        for number in 0..u64::from(count.min(COUNTERS_MAX)) {
            let mut bytes = [0; size_of::<Descriptor>() + NAME_BYTES_MAX];
            let bytes = bytes.get_mut(..size as usize)?;
            read(&fd, bytes, u64::from(descriptors) + number * size)?;
            let (descriptor, name) = Descriptor::read_from_prefix(bytes).ok()?;
            let place = u64::from(data) + u64::from(descriptor[2]);
            match name.split(|byte| *byte == 0).next() {
                Some(ALL) => all = Some(place),
                Some(INTERRUPTS) => interrupts = Some(place),
                _ => {}
            }
        }
        Some(Self {
            all: all?,
            interrupts: interrupts?,
            fd,
        })
    }

    /// The number of its descriptor.
    pub fn descriptor(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Writes the numbers into the shared file, which is mapped.
    pub fn publish(&self) {
        let (all, interrupts) = (self.number(self.all), self.number(self.interrupts));
        if let (Some(all), Some(interrupts)) = (all, interrupts) {
            fault::leave_exits(Exits { all, interrupts });
        }
    }

    fn number(&self, place: u64) -> Option<u64> {
        let mut number = 0u64;
        read(&self.fd, number.as_mut_bytes(), place)?;
        Some(number)
    }
}

/// All of `bytes`, from `offset` on.
fn read(fd: &OwnedFd, bytes: &mut [u8], offset: u64) -> Option<()> {
    let length = bytes.len();
    let read = rustix::io::pread(fd, bytes, offset).ok()?;
    (read == length).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::MemfdFlags;

    /// What a kernel says with these counters, of which each has its place in the data as value.
    fn kernel(names: &[&str]) -> OwnedFd {
        const NAME_BYTES: usize = 48;
        let descriptors = 64;
        let data = descriptors + names.len() as u32 * (16 + NAME_BYTES as u32);
        let header: Header = [
            0,
            NAME_BYTES as u32,
            names.len() as u32,
            24,
            descriptors,
            data,
        ];
        let mut bytes = header.as_bytes().to_vec();
        bytes.resize(descriptors as usize, 0);
        for (number, name) in names.iter().enumerate() {
            let descriptor: Descriptor = [0, 1 << 16, 8 * number as u32, 0];
            bytes.extend_from_slice(descriptor.as_bytes());
            let mut name = name.as_bytes().to_vec();
            name.resize(NAME_BYTES, 0);
            bytes.extend_from_slice(&name);
        }
        for number in 0..names.len() as u64 {
            bytes.extend_from_slice(&number.to_ne_bytes());
        }
        let file = rustix::fs::memfd_create("statistics", MemfdFlags::CLOEXEC).unwrap();
        assert_eq!(rustix::io::pwrite(&file, &bytes, 0).unwrap(), bytes.len());
        file
    }

    #[test]
    fn counters_are_found_by_name() {
        let found = Statistics::new(kernel(&["pf", "irq_exits", "halt_exits", "exits"])).unwrap();
        assert_eq!(found.number(found.all), Some(3));
        assert_eq!(found.number(found.interrupts), Some(1));
    }

    #[test]
    fn a_kernel_without_them_has_none() {
        assert!(Statistics::new(kernel(&["exits"])).is_none());
        assert!(Statistics::new(kernel(&[])).is_none());
        let empty = rustix::fs::memfd_create("empty", MemfdFlags::CLOEXEC).unwrap();
        assert!(Statistics::new(empty).is_none());
    }
}
