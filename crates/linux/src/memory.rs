//! Memory as a file that no process makes shorter.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::io;
use std::os::fd::OwnedFd;

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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn its_size_stays() {
        let file = sealed("test", 8192).unwrap();
        for bytes in [4096, 12288] {
            assert_eq!(ftruncate(&file, bytes), Err(Errno::PERM));
        }
        assert_eq!(rustix::fs::fstat(&file).unwrap().st_size, 8192);
    }
}
