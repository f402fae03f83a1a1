//! Files and block devices as disks.

use super::Reason;
use abi::manifest::Device;
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;

/// A disk, open and locked.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) fd: OwnedFd,
    pub(super) device: Device,
}

/// Opens `path` for reading and writing and locks it, so that no two guests write one disk. The
/// lock lasts as long as the guest.
pub(super) fn open(path: &Path, sector_bytes: u16) -> Result<Disk, Reason> {
    let system = |step| move |error: Errno| Reason::System(step, error.into());
    // NONBLOCK: a FIFO of this name must not hold the start up.
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(open_reason)?;
    let stat = rustix::fs::fstat(&fd).map_err(system("no status"))?;
    let file_type = FileType::from_raw_mode(stat.st_mode);
    if !matches!(file_type, FileType::RegularFile | FileType::BlockDevice) {
        return Err(Reason::NotBlock);
    }
    match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Err(Reason::Busy),
        locked => locked.map_err(system("cannot be locked"))?,
    }
    let capacity = rustix::fs::seek(&fd, SeekFrom::End(0)).map_err(system("no size"))?;
    if capacity == 0 || !capacity.is_multiple_of(u64::from(sector_bytes)) {
        return Err(Reason::Size {
            size: capacity,
            sector: sector_bytes,
        });
    }
    let device = Device::Block {
        capacity,
        block_size: sector_bytes,
    };
    Ok(Disk { fd, device })
}

fn open_reason(error: Errno) -> Reason {
    match error {
        Errno::ACCESS | Errno::PERM => {
            Reason::Permission("make it readable and writable for this user".to_owned())
        }
        Errno::NOENT => Reason::System("create it with: truncate -s 1M FILE", error.into()),
        Errno::ISDIR | Errno::NXIO => Reason::NotBlock,
        _ => Reason::System("cannot be opened", error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn file(name: &str, bytes: u64) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("tender-{}-{name}", std::process::id()));
        File::create(&path).unwrap().set_len(bytes).unwrap();
        path
    }

    #[test]
    fn a_file_is_a_disk_of_its_size() {
        let path = file("disk", 8192);
        let disk = open(&path, 4096).unwrap();
        assert_eq!(
            disk.device,
            Device::Block {
                capacity: 8192,
                block_size: 4096
            }
        );
        assert!(matches!(open(&path, 4096), Err(Reason::Busy)));
        drop(disk);
        open(&path, 512).unwrap();
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn sizes_that_are_no_disks_are_refused() {
        for (bytes, sector) in [(0, 512), (6144, 4096), (513, 512)] {
            let path = file(&format!("size{bytes}"), bytes);
            assert!(
                matches!(open(&path, sector), Err(Reason::Size { .. })),
                "{bytes}"
            );
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let reason = |path: &str| open(Path::new(path), 512).unwrap_err();
        assert!(matches!(reason("/"), Reason::NotBlock));
        assert!(matches!(reason("/dev/null"), Reason::NotBlock));
        assert!(matches!(reason("/nonexistent"), Reason::System(..)));
    }
}
