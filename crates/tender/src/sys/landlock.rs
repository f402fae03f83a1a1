//! The one question to Landlock that its library keeps for itself.

use std::io;

/// `LANDLOCK_CREATE_RULESET_VERSION` of Linux's `include/uapi/linux/landlock.h`.
const VERSION: libc::c_long = 1;

/// The ABI level of the kernel's Landlock: landlock_create_ruleset(2).
///
/// # Errors
/// `ENOSYS` if the kernel has none, `EOPNOTSUPP` if it was not switched on at boot.
pub fn abi() -> io::Result<u32> {
    let none: *const u8 = std::ptr::null();
    // SAFETY: with this flag the kernel wants no attributes, neither a pointer to them nor a size,
    // touches no memory and makes no descriptor: it answers with a number.
    let answer = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0usize, VERSION) };
    u32::try_from(answer).map_err(|_| io::Error::last_os_error())
}
