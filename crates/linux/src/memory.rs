//! Memory as a file that no process makes shorter.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::fs::{fcntl_get_seals, fstat};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// So many bytes of zeros, whose number nobody can change.
///
/// # Errors
/// What the kernel says.
pub fn sealed(name: &str, bytes: u64) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create(name, flags)?;
    ftruncate(&file, bytes)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// The number of bytes of such memory; `None` if it is none, or somebody can change that number.
pub fn sealed_bytes(file: BorrowedFd<'_>) -> Option<u64> {
    let seals = fcntl_get_seals(file).ok()?;
    let size = u64::try_from(fstat(file).ok()?.st_size).ok()?;
    seals
        .contains(SealFlags::SHRINK | SealFlags::GROW)
        .then_some(size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use std::os::fd::AsFd;

    #[test]
    fn its_size_stays() {
        let file = sealed("test", 8192).unwrap();
        for bytes in [4096, 12288] {
            assert_eq!(ftruncate(&file, bytes), Err(Errno::PERM));
        }
        assert_eq!(rustix::fs::fstat(&file).unwrap().st_size, 8192);
        assert_eq!(sealed_bytes(file.as_fd()), Some(8192));
    }

    #[test]
    fn other_files_have_no_size_that_stays() {
        let memory = memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        assert_eq!(sealed_bytes(memory.as_fd()), None);
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(sealed_bytes(file.as_fd()), None);
    }
}
