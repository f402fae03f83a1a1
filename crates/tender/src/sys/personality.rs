//! Whether the kernel gives this process the rights it asks for, and no others.

/// Whether readable memory is executable in this process (`READ_IMPLIES_EXEC`), which would make
/// writable memory executable too.
pub fn read_implies_exec() -> bool {
    const QUERY: libc::c_ulong = 0xffff_ffff;
    // SAFETY: this argument asks and changes nothing.
    let persona = unsafe { libc::personality(QUERY) };
    persona & libc::READ_IMPLIES_EXEC != 0
}
