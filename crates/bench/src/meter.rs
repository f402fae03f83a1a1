//! CPU time of another process.

use std::io;
use std::time::Duration;

/// CPU time that the first thread of process `id` has used, in user space and in the kernel; the
/// receiving side's work that the kernel does inside its writes included. A running thread is
/// booked at each tick of the scheduler, so a figure may lag by a few milliseconds.
///
/// # Errors
/// The process is gone, or the kernel keeps no such figures (`CONFIG_SCHED_INFO`).
pub fn cpu_time(id: u32) -> io::Result<Duration> {
    let line = std::fs::read_to_string(format!("/proc/{id}/schedstat"))?;
    first_field(&line)
        .map(Duration::from_nanos)
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

/// `schedstat`: nanoseconds on the CPU, nanoseconds waiting for it, times it was given
/// (Linux, Documentation/scheduler/sched-stats.rst).
fn first_field(line: &str) -> Option<u64> {
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_field_is_the_time() {
        assert_eq!(first_field("1234567 89 10\n"), Some(1_234_567));
        assert_eq!(first_field(""), None);
    }

    #[test]
    fn this_process_has_used_some() {
        assert!(cpu_time(std::process::id()).is_ok());
    }
}
