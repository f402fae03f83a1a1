//! Files and block devices as disks.

use super::Reason;
use crate::options::Block;
use abi::PAGE_SIZE;
use abi::extension::{device_flag, feature};
use abi::manifest::Device;
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom, Stat, StatxFlags};
use rustix::io::Errno;
use std::fs;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Disks of a guest of which each is flushed, discarded and moved in large pieces, where its image
/// knows how: the filter of the jail has room for no more.
pub(crate) const EXTENDED_DISKS_MAX: usize = 16;
/// `STATX_DIOALIGN` of Linux's `include/uapi/linux/stat.h`: which alignment `O_DIRECT` takes.
const DIRECT_ALIGNMENT: StatxFlags = StatxFlags::from_bits_retain(0x2000);
/// How often the list of locks is read for a holder: the kernel hands it out line by line, and a
/// reader misses lines that move up while others unlock.
const HOLDER_LOOKS: usize = 16;

/// How long the end of a guest's last process is waited for.
const ENDED_POLL: Duration = Duration::from_millis(10);
const ENDED_POLLS_MAX: usize = 100;

/// A disk, open and locked.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) fd: OwnedFd,
    pub(super) device: Device,
    /// Bits of [`device_flag`].
    pub(super) flags: u32,
}

/// Opens the file of `block` and locks it, so that no two guests write one disk, and none reads one
/// that another writes. The lock lasts as long as the guest. The image has these `features`, and
/// so many `disks`.
pub(super) fn open(block: &Block, features: u32, disks: usize) -> Result<Disk, Reason> {
    let system = |step| move |error: Errno| Reason::System(step, error.into());
    let (fd, stat) = open_file(block)?;
    let lock = match block.read_only {
        true => FlockOperation::NonBlockingLockShared,
        false => FlockOperation::NonBlockingLockExclusive,
    };
    take_lock(&fd, lock, &stat)?;
    let capacity = rustix::fs::seek(&fd, SeekFrom::End(0)).map_err(system("no size"))?;
    let block_size = block.sector_bytes;
    if capacity == 0 || !capacity.is_multiple_of(u64::from(block_size)) {
        return Err(Reason::Size {
            size: capacity,
            sector: block_size,
        });
    }
    let mut flags = 0;
    if features & feature::DISKS != 0 && disks <= EXTENDED_DISKS_MAX {
        flags |= device_flag::DISK;
    }
    if block.read_only {
        flags |= device_flag::READ_ONLY;
    }
    if block.direct {
        if flags & device_flag::DISK == 0 {
            return Err(Reason::DirectUnknown);
        }
        check_direct(&fd, block_size)?;
        flags |= device_flag::DIRECT;
    }
    let device = Device::Block {
        capacity,
        block_size,
    };
    Ok(Disk { fd, device, flags })
}

/// Takes the lock. A guest that has just ended leaves it to the process that served its disk
/// (`disk_process`), whose last requests may still be under way: its end is waited for.
fn take_lock(fd: &OwnedFd, lock: FlockOperation, stat: &Stat) -> Result<(), Reason> {
    for _ in 0..ENDED_POLLS_MAX {
        match rustix::fs::flock(fd, lock) {
            Err(Errno::WOULDBLOCK) => {}
            locked => {
                return locked.map_err(|error| Reason::System("cannot be locked", error.into()));
            }
        }
        let holder = holder(stat);
        let lives = holder.as_ref().is_some_and(|(_, name)| !name.is_empty());
        if lives {
            return Err(Reason::Locked(holder));
        }
        std::thread::sleep(ENDED_POLL);
    }
    Err(Reason::Locked(holder(stat)))
}

/// Opens a file or block device, and nothing else.
fn open_file(block: &Block) -> Result<(OwnedFd, Stat), Reason> {
    let system = |step| move |error: Errno| Reason::System(step, error.into());
    // NONBLOCK: a FIFO of this name must not hold the start up.
    let mut flags = OFlags::CLOEXEC | OFlags::NONBLOCK;
    flags |= match block.read_only {
        true => OFlags::RDONLY,
        false => OFlags::RDWR,
    };
    if block.direct {
        flags |= OFlags::DIRECT;
    }
    // EXCL: a block device that is mounted, or part of another one, is in use (open(2)).
    let found = rustix::fs::stat(&block.path);
    let is_device = found.is_ok_and(|stat| is(&stat, FileType::BlockDevice));
    if is_device && !block.read_only {
        flags |= OFlags::EXCL;
    }
    let fd = match rustix::fs::open(&block.path, flags, Mode::empty()) {
        Err(Errno::INVAL) if block.direct => return Err(Reason::NoDirect),
        opened => opened.map_err(|error| open_reason(error, block.read_only))?,
    };
    let stat = rustix::fs::fstat(&fd).map_err(system("no status"))?;
    match is(&stat, FileType::RegularFile) || is(&stat, FileType::BlockDevice) {
        true => Ok((fd, stat)),
        false => Err(Reason::NotBlock),
    }
}

fn is(stat: &Stat, file_type: FileType) -> bool {
    FileType::from_raw_mode(stat.st_mode) == file_type
}

/// Whether transfers of one sector, from and to whole pages, pass no cache. A kernel that does not
/// say so finds out with the first.
fn check_direct(fd: &OwnedFd, sector: u16) -> Result<(), Reason> {
    let status = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, DIRECT_ALIGNMENT);
    let Ok(status) = status else {
        return Ok(());
    };
    if status.stx_mask & DIRECT_ALIGNMENT.bits() == 0 {
        return Ok(());
    }
    match (status.stx_dio_mem_align, status.stx_dio_offset_align) {
        (0, _) | (_, 0) => Err(Reason::NoDirect),
        (memory, _) if u64::from(memory) > PAGE_SIZE => Err(Reason::NoDirect),
        (_, offset) if offset > u32::from(sector) => Err(Reason::DirectSector(offset)),
        _ => Ok(()),
    }
}

/// The process that has locked the file, and what it is called, as far as this user may know.
fn holder(stat: &Stat) -> Option<(i32, String)> {
    let look = |_| {
        let locks = fs::read_to_string("/proc/locks").ok()?;
        holder_in(&locks, stat.st_dev, stat.st_ino)
    };
    let pid = (0..HOLDER_LOOKS).find_map(look)?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm"));
    Some((pid, name.unwrap_or_default().trim().to_owned()))
}

/// The process that has locked this file, in the text of `/proc/locks` (proc(5)):
/// `1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF`.
fn holder_in(locks: &str, device: u64, inode: u64) -> Option<i32> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let file = format!("{major:02x}:{minor:02x}:{inode}");
    let fields = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let kind = words.next()?;
        let pid = words.nth(2)?.parse::<i32>().ok()?;
        // A process of another namespace has no number here.
        (kind == "FLOCK" && words.next()? == file && pid > 0).then_some(pid)
    };
    locks.lines().find_map(fields)
}

fn open_reason(error: Errno, read_only: bool) -> Reason {
    match error {
        Errno::ACCESS | Errno::PERM if read_only => {
            Reason::Permission("make it readable for this user".to_owned())
        }
        Errno::ACCESS | Errno::PERM => {
            Reason::Permission("make it readable and writable for this user".to_owned())
        }
        Errno::ROFS => Reason::System("add --block-read-only:NAME=on", error.into()),
        Errno::BUSY => Reason::Busy,
        Errno::NOENT => Reason::System("create it with: truncate -s 1M FILE", error.into()),
        Errno::ISDIR | Errno::NXIO => Reason::NotBlock,
        _ => Reason::System("cannot be opened", error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::path::{Path, PathBuf};

    fn file(name: &str, bytes: u64) -> PathBuf {
        let path = std::env::temp_dir().join(format!("tender-{}-{name}", std::process::id()));
        File::create(&path).unwrap().set_len(bytes).unwrap();
        path
    }

    fn block(path: &Path, sector_bytes: u16) -> Block {
        Block {
            name: "disk".to_owned(),
            path: path.to_owned(),
            sector_bytes,
            read_only: false,
            direct: false,
        }
    }

    fn open_plain(path: &Path, sector_bytes: u16) -> Result<Disk, Reason> {
        open(&block(path, sector_bytes), feature::RUNTIME, 1)
    }

    #[test]
    fn a_file_is_a_disk_of_its_size_that_one_guest_has() {
        let path = file("disk", 8192);
        let disk = open_plain(&path, 4096).unwrap();
        let expected = Device::Block {
            capacity: 8192,
            block_size: 4096,
        };
        assert_eq!((disk.device, disk.flags), (expected, device_flag::DISK));
        match open_plain(&path, 4096) {
            Err(Reason::Locked(Some((pid, name)))) => {
                assert_eq!(pid.cast_unsigned(), std::process::id());
                assert!(!name.is_empty());
            }
            other => panic!("{other:?}"),
        }
        drop(disk);
        open_plain(&path, 512).unwrap();
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_disk_that_is_only_read_has_many_readers_and_no_writer() {
        let path = file("read-only", 8192);
        let reads = Block {
            read_only: true,
            ..block(&path, 512)
        };
        let open_one = || open(&reads, feature::RUNTIME, 1).unwrap();
        let (first, second) = (open_one(), open_one());
        let flags = device_flag::DISK | device_flag::READ_ONLY;
        assert_eq!((first.flags, second.flags), (flags, flags));
        let refused = open_plain(&path, 512);
        assert!(matches!(refused, Err(Reason::Locked(_))));
        let written = rustix::io::pwrite(&first.fd, &[1], 0);
        assert_eq!(written, Err(Errno::BADF));
        drop((first, second));
        let _writes = open_plain(&path, 512).unwrap();
        let refused = open(&reads, feature::RUNTIME, 1);
        assert!(matches!(refused, Err(Reason::Locked(_))));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn an_image_is_told_what_it_knows_of() {
        let path = file("told", 8192);
        let flags = |features, disks| open(&block(&path, 512), features, disks).unwrap().flags;
        assert_eq!(flags(0, 1), 0);
        assert_eq!(flags(feature::DISKS, EXTENDED_DISKS_MAX), device_flag::DISK);
        assert_eq!(flags(feature::DISKS, EXTENDED_DISKS_MAX + 1), 0);
        let direct = Block {
            direct: true,
            ..block(&path, 512)
        };
        let refused = open(&direct, 0, 1);
        assert!(matches!(
            refused,
            Err(Reason::DirectUnknown | Reason::NoDirect)
        ));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn sizes_that_are_no_disks_are_refused() {
        for (bytes, sector) in [(0, 512), (6144, 4096), (513, 512)] {
            let path = file(&format!("size{bytes}"), bytes);
            assert!(
                matches!(open_plain(&path, sector), Err(Reason::Size { .. })),
                "{bytes}"
            );
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let reason = |path: &str| open_plain(Path::new(path), 512).unwrap_err();
        assert!(matches!(reason("/"), Reason::NotBlock));
        assert!(matches!(reason("/dev/null"), Reason::NotBlock));
        assert!(matches!(reason("/nonexistent"), Reason::System(..)));
    }

    #[test]
    fn who_has_a_lock_is_read_from_the_kernels_table() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 fe:00:5678 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 12 fe:01:5678 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE -1 fe:00:5678 0 EOF\n\
                     3: -> FLOCK\n\n\
                     4: FLOCK  ADVISORY  READ 42 fe:00:5678 0 EOF\n";
        let device = rustix::fs::makedev(0xfe, 0);
        assert_eq!(holder_in(locks, device, 5678), Some(42));
        assert_eq!(holder_in(locks, device, 567), None);
    }
}
