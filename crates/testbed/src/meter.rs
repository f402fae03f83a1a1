//! What the kernel counts: CPU time and memory of a process, frames of an interface.

use std::time::{Duration, Instant};
use std::{fs, io, thread};

use crate::segment::Segment;

/// CPU time that the first thread of process `id` has used, in user space and in the kernel; the
/// receiving side's work that the kernel does inside its writes included. A running thread is
/// booked at each tick of the scheduler, so a figure may lag by a few milliseconds.
///
/// # Errors
/// The process is gone, or the kernel keeps no such figures (`CONFIG_SCHED_INFO`).
pub fn cpu_time(id: u32) -> io::Result<Duration> {
    let line = fs::read_to_string(format!("/proc/{id}/schedstat"))?;
    first_field(&line)
        .map(Duration::from_nanos)
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

/// `schedstat`: nanoseconds on the CPU, nanoseconds waiting for it, times it was given
/// (Linux, Documentation/scheduler/sched-stats.rst).
fn first_field(line: &str) -> Option<u64> {
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Ticks of `/proc/stat` in a second: `USER_HZ`, the same on every machine with an x86-64.
const TICKS_PER_SECOND: u64 = 100;

/// CPU time that this machine has spent on anything.
///
/// # Errors
/// `/proc/stat` cannot be read, or has no line of all processors.
pub fn machine() -> io::Result<Duration> {
    let stat = fs::read_to_string("/proc/stat")?;
    worked(&stat).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

/// `/proc/stat` (`proc_stat(5)`): `cpu user nice system idle iowait irq softirq ...` in ticks. Idle
/// and waiting for disks are not work.
fn worked(stat: &str) -> Option<Duration> {
    let figures = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks = figures.split_ascii_whitespace().map(str::parse::<u64>);
    let ticks: Vec<u64> = ticks.collect::<Result<_, _>>().ok()?;
    let [user, nice, system, _, _, hard, soft, ..] = ticks[..] else {
        return None;
    };
    let all = user + nice + system + hard + soft;
    Some(Duration::from_millis(all * 1000 / TICKS_PER_SECOND))
}

/// Processes of a family, beyond which nobody looks.
const FAMILY_MAX: usize = 4096;

/// CPU time that the threads of process `id` and of all its descendants have used so far. Threads
/// that have ended are not in it.
///
/// The kernel adds up what a thread ran at each switch (`schedstat`), in nanoseconds: so it is
/// exact also for work that is in step with the kernel's tick, of which a count by ticks
/// (`/proc/stat`, on most machines) sees all or nothing. What other programs do on the machine is
/// not in it. Work of the kernel's for a packet is in it where the kernel does it inside a thread's
/// call, as with taps and cables; [`softirqs`] has what it leaves for later. What timers do while a
/// processor is idle is in neither.
///
/// # Errors
/// The process is gone, or the kernel keeps no such figures (`CONFIG_SCHED_INFO`).
pub fn family(id: u32) -> io::Result<Duration> {
    let mut used = cpu_of(id)?;
    for child in descendants(id)? {
        // One that ends meanwhile has no figures any more.
        used += cpu_of(child).unwrap_or_default();
    }
    Ok(used)
}

/// CPU time of all threads of one process.
fn cpu_of(id: u32) -> io::Result<Duration> {
    let mut used = Duration::ZERO;
    for thread in fs::read_dir(format!("/proc/{id}/task"))? {
        let line = fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
        used += Duration::from_nanos(first_field(&line).unwrap_or(0));
    }
    Ok(used)
}

/// CPU time of all that this process has started and waited for, and of what those have waited for,
/// once they have ended.
///
/// # Errors
/// `/proc/self/stat` cannot be read.
pub fn ended() -> io::Result<Duration> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    of_children(&stat).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// `stat` (`proc_pid_stat(5)`): behind the name, which is in parentheses, the third field; the 16th
/// and 17th are ticks of children in user space and in the kernel.
fn of_children(stat: &str) -> Option<Duration> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(13);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(Duration::from_millis(
        (next()? + next()?) * 1000 / TICKS_PER_SECOND,
    ))
}

/// The children of process `id`, their children, and so on.
///
/// # Errors
/// The process is gone, or the kernel keeps no such list (`CONFIG_PROC_CHILDREN`).
pub fn descendants(id: u32) -> io::Result<Vec<u32>> {
    let mut found = children(id)?;
    let mut next = 0;
    while next < found.len().min(FAMILY_MAX) {
        found.extend(children(found[next]).unwrap_or_default());
        next += 1;
    }
    Ok(found)
}

/// Each thread has a list of those that it has started.
fn children(id: u32) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    for thread in fs::read_dir(format!("/proc/{id}/task"))? {
        let list = fs::read_to_string(thread?.path().join("children")).unwrap_or_default();
        found.extend(
            list.split_ascii_whitespace()
                .filter_map(|id| id.parse::<u32>().ok()),
        );
    }
    Ok(found)
}

/// CPU time of the kernel's threads that do what it leaves for later: those of all processors that
/// are called `ksoftirqd`.
///
/// # Errors
/// `/proc` cannot be read.
pub fn softirqs() -> io::Result<Duration> {
    let mut used = Duration::ZERO;
    for process in fs::read_dir("/proc")? {
        let path = process?.path();
        let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
        if name.starts_with("ksoftirqd/") {
            let line = fs::read_to_string(path.join("schedstat"))?;
            used += Duration::from_nanos(first_field(&line).unwrap_or(0));
        }
    }
    Ok(used)
}

/// How long a process may take to start another one.
const CHILD_WAIT: Duration = Duration::from_secs(2);
const CHILD_POLL: Duration = Duration::from_millis(1);

/// The child of process `id`, as soon as it has one.
///
/// # Errors
/// The process is gone or stays alone; the kernel keeps no such list (`CONFIG_PROC_CHILDREN`).
pub fn only_child(id: u32) -> io::Result<u32> {
    let begin = Instant::now();
    while begin.elapsed() < CHILD_WAIT {
        if let Some(child) = children(id)?.first() {
            return Ok(*child);
        }
        thread::sleep(CHILD_POLL);
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// Resident memory of process `id` at addresses from `first` on, in KiB: for a tender whose guest
/// lies below `first`, the tender's own.
///
/// # Errors
/// The process is gone, or only root may look (a jailed tender is not dumpable).
pub fn resident_kib(id: u32, first: u64) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{id}/smaps"))?;
    Ok(resident_from(&text, first))
}

/// `smaps` (`proc_pid_smaps(5)`): a line `begin-end rights ...` for each mapping, followed by its
/// figures, `Rss:` among them.
fn resident_from(smaps: &str, first: u64) -> u64 {
    let mut counted = false;
    let mut kib = 0;
    for line in smaps.lines() {
        if let Some(begin) = mapping_begin(line) {
            counted = begin >= first;
        } else if let Some(figure) = line.strip_prefix("Rss:").filter(|_| counted) {
            kib += first_field(figure).unwrap_or(0);
        }
    }
    kib
}

fn mapping_begin(line: &str) -> Option<u64> {
    let (begin, rest) = line.split_once('-')?;
    let (end, _) = rest.split_once(' ')?;
    u64::from_str_radix(end, 16).ok()?;
    u64::from_str_radix(begin, 16).ok()
}

/// Frames that `interface` of `segment` has received. A tap receives what its process writes.
///
/// # Errors
/// There is no such interface.
pub fn frames_received(segment: &Segment, interface: &str) -> io::Result<u64> {
    let table = segment.run(|| fs::read_to_string("/proc/thread-self/net/dev"))?;
    received_by(&table, interface).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}

/// Frames that `interface` of `segment` was to send and has dropped: those for which a tap's
/// process has no room.
///
/// # Errors
/// There is no such interface.
pub fn frames_not_sent(segment: &Segment, interface: &str) -> io::Result<u64> {
    let table = segment.run(|| fs::read_to_string("/proc/thread-self/net/dev"))?;
    figure_of(&table, interface, 11).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}

fn received_by(table: &str, interface: &str) -> Option<u64> {
    figure_of(table, interface, 1)
}

/// `/proc/net/dev` (`proc_pid_net(5)`): `name: bytes packets errs drop ...`, eight figures of what
/// was received and then as many of what was sent.
fn figure_of(table: &str, interface: &str, number: usize) -> Option<u64> {
    let figures = table
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(interface)?.strip_prefix(':'))?;
    figures.split_ascii_whitespace().nth(number)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn received_frames_are_the_second_figure() {
        let table = "Inter-| Receive\n face |bytes packets\n    lo: 1 2 3\n  eth0: 900 15 0\n";
        assert_eq!(received_by(table, "eth0"), Some(15));
        assert_eq!(received_by(table, "eth"), None);
    }

    #[test]
    fn memory_is_counted_from_an_address_on() {
        let smaps = "\
00100000-00110000 r-xp 00000000 00:00 0
Size:                 64 kB
Rss:                  40 kB
7f0000000000-7f0000001000 rw-p 00000000 00:00 0 [stack]
Rss:                   4 kB
Pss:                   4 kB
7f0000002000-7f0000003000 r--p 00000000 fd:00 7 /bin/outboard-tender
Rss:                   8 kB
VmFlags: rd mr mw-me
";
        assert_eq!(resident_from(smaps, 0x100_0000), 12);
        assert_eq!(resident_from(smaps, 0), 52);
        assert_eq!(resident_from("", 0), 0);
    }

    #[test]
    fn the_first_field_is_the_time() {
        assert_eq!(first_field("1234567 89 10\n"), Some(1_234_567));
        assert_eq!(first_field(""), None);
    }

    #[test]
    fn children_are_the_sixteenth_field_and_the_next() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4 10 11 12 13 20 21 150 50 20 0 1 0 9 8";
        assert_eq!(of_children(stat), Some(Duration::from_secs(2)));
        assert_eq!(of_children("7 (a) S 1"), None);
    }

    #[test]
    fn a_machine_that_waits_does_not_work() {
        let stat = "cpu  1 2 3 1000 2000 4 5 0 0 0\ncpu0 1 2 3 1000 2000 4 5 0 0 0\n";
        assert_eq!(worked(stat), Some(Duration::from_millis(150)));
        assert_eq!(worked("cpu  1 2 3\n"), None);
    }

    #[test]
    fn this_process_has_used_some() {
        assert!(cpu_time(std::process::id()).is_ok());
    }

    /// How much a figure lags: the longest tick of Linux (`CONFIG_HZ_100`), and as much again.
    const LAG: Duration = Duration::from_millis(20);

    fn of_this_thread() -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::try_from(time).unwrap()
    }

    /// Work in pieces that are shorter than a tick, each of which begins behind one.
    #[test]
    fn work_in_step_with_the_tick_is_counted() {
        let before = family(std::process::id()).unwrap();
        let worked = thread::spawn(|| {
            for _ in 0..50 {
                thread::sleep(Duration::from_millis(2));
                let begin = of_this_thread();
                while of_this_thread() - begin < Duration::from_millis(1) {}
            }
            let worked = of_this_thread();
            // It is counted while its thread is there.
            (worked, family(std::process::id()).unwrap())
        });
        let (worked, after) = worked.join().unwrap();
        assert!(worked >= Duration::from_millis(50));
        assert!(
            after - before + LAG >= worked,
            "{:?} of {worked:?}",
            after - before
        );
    }

    #[test]
    fn children_of_children_are_of_the_family() {
        let loops = "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done; echo; read line";
        let mut shell = std::process::Command::new("sh")
            .args(["-c", &format!("sh -c '{loops}'; true")])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut byte = [0];
        io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut byte).unwrap();
        let own = cpu_of(shell.id()).unwrap();
        let (all, count) = (
            family(shell.id()).unwrap(),
            descendants(shell.id()).unwrap(),
        );
        drop(shell.stdin.take());
        shell.wait().unwrap();
        assert_eq!(count.len(), 1);
        assert!(
            all > own * 2,
            "{all:?}, of which the first has used {own:?}"
        );
    }
}
