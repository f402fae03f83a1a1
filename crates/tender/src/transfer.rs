//! What a guest asks of a disk, checked and done.

use crate::attach::Attached;
use crate::memory::Gpa;
use crate::sys::guest::{GuestMemory, Outside};
use abi::extension::device_flag;
use abi::ring::{Operation, Request};
use abi::spt::syscall::DISCARD;
use rustix::fd::AsFd;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

/// Does what a ring asks of a disk of this capacity; how many bytes were moved, or what the kernel
/// says. The buffer lies in `memory`.
///
/// # Errors
/// It does not.
pub fn perform(
    disk: &Attached,
    capacity: u64,
    request: &Request,
    memory: &GuestMemory,
) -> Result<Result<usize, Errno>, Outside> {
    let (length, address) = (u64::from(request.length), Gpa::new(request.address));
    let (offset, fd) = (request.offset, disk.fd.as_fd());
    let knows_more = disk.flags & device_flag::DISK != 0;
    match request.operation {
        Operation::Flush | Operation::Discard if !knows_more => Ok(Err(Errno::INVAL)),
        Operation::Flush => Ok(flush(disk).map(|()| 0)),
        Operation::Discard => Ok(discard(disk, offset, length, capacity).map(|()| 0)),
        _ if !is_inside(offset, length, capacity) => Ok(Err(Errno::INVAL)),
        Operation::Write if disk.is_read_only() => Ok(Err(Errno::ROFS)),
        Operation::Write => memory.write_at(fd, offset, address, length),
        Operation::Read => memory.read_at(fd, offset, address, length),
    }
}

/// What a ring says of a transfer.
pub fn result(transfer: Result<usize, Errno>) -> i64 {
    match transfer {
        Ok(bytes) => bytes as i64,
        Err(errno) => -i64::from(errno.raw_os_error()),
    }
}

/// Makes what was written durable; nothing is on a disk that is read-only.
///
/// # Errors
/// What the kernel says.
pub fn flush(disk: &Attached) -> Result<(), Errno> {
    match disk.is_read_only() {
        true => Ok(()),
        false => rustix::fs::fdatasync(&disk.fd),
    }
}

/// Makes these bytes of a disk zeroes, which take no room.
///
/// # Errors
/// They are not the disk's, it is read-only, or what the kernel says.
pub fn discard(disk: &Attached, offset: u64, length: u64, capacity: u64) -> Result<(), Errno> {
    if disk.is_read_only() || !is_inside(offset, length, capacity) {
        return Err(Errno::INVAL);
    }
    let hole = FallocateFlags::from_bits_retain(DISCARD);
    rustix::fs::fallocate(&disk.fd, hole, offset, length)
}

/// Whether these bytes are those of a disk of this capacity.
pub fn is_inside(offset: u64, length: u64, capacity: u64) -> bool {
    let end = offset.checked_add(length);
    offset < capacity && end.is_some_and(|end| end <= capacity)
}
