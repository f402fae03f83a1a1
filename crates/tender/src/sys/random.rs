//! Random bytes from the kernel.

use std::io;

/// Fills `bytes`, at most 256 of them, which the kernel gives all at once or not at all.
///
/// # Errors
/// What the kernel says.
pub fn fill(bytes: &mut [u8]) -> io::Result<()> {
    // SAFETY: the pointer and the length are those of one slice, which is ours to write.
    let count = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    match usize::try_from(count) {
        Ok(count) if count == bytes.len() => Ok(()),
        Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}
