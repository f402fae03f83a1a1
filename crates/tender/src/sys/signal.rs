//! Signal dispositions that a parent may have left.

/// Gives SIGPIPE its default disposition: a guest whose console is a closed pipe ends by it.
pub fn reset_pipe() {
    // SAFETY: SIG_DFL is no handler of ours, so no code can run in an unexpected place.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}
