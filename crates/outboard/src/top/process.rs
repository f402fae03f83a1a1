//! What a guest costs the host: the processor time and the memory of its tender, which on `spt`
//! and `process` is the guest. Linux says so in /proc (proc(5)).

use std::fs::File;
use std::io::Read;
use std::time::Duration;

/// Longest file that is read, in bytes.
const BYTES_MAX: u64 = 64 << 10;
/// Children of a monitor that are looked at; it has one, and a helper now and then.
const CHILDREN_MAX: usize = 8;
/// Where `utime` stands in /proc/PID/stat behind the name, which may hold anything; `stime`
/// follows it.
const UTIME: usize = 11;
/// Clock ticks in a second, in what Linux tells programs on x86-64 (`USER_HZ`).
const USER_HZ: f64 = 100.0;

/// What the processes of a guest have cost so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Time of processors.
    pub cpu: Duration,
    /// Memory in RAM, in bytes.
    pub memory: u64,
}

/// What the monitor of this process id and its children cost; `None` if it has gone.
pub fn cost(monitor: u32) -> Option<Cost> {
    let mut cost = cost_of(monitor)?;
    let children = read(&format!("/proc/{monitor}/task/{monitor}/children")).unwrap_or_default();
    for child in numbers(&children).take(CHILDREN_MAX) {
        if let Some(more) = cost_of(child as u32) {
            cost.cpu += more.cpu;
            cost.memory += more.memory;
        }
    }
    Some(cost)
}

fn cost_of(process: u32) -> Option<Cost> {
    let ticks = ticks(&read(&format!("/proc/{process}/stat"))?)?;
    let kilobytes = resident(&read(&format!("/proc/{process}/status"))?).unwrap_or(0);
    Some(Cost {
        cpu: Duration::from_secs_f64(ticks as f64 / USER_HZ),
        memory: kilobytes.saturating_mul(1024),
    })
}

fn read(path: &str) -> Option<String> {
    let mut text = Vec::new();
    let file = File::open(path).ok()?;
    file.take(BYTES_MAX).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

fn numbers(text: &str) -> impl Iterator<Item = u64> {
    text.split_whitespace().filter_map(|word| word.parse().ok())
}

/// User and system time in /proc/PID/stat, in clock ticks.
fn ticks(stat: &str) -> Option<u64> {
    let (_, behind) = stat.rsplit_once(')')?;
    let mut fields = behind.split_whitespace().skip(UTIME);
    let [user, system] = [fields.next()?, fields.next()?];
    Some(
        user.parse::<u64>()
            .ok()?
            .saturating_add(system.parse().ok()?),
    )
}

/// Kilobytes in RAM in /proc/PID/status; a process that is ending has none.
fn resident(status: &str) -> Option<u64> {
    let mut values = status
        .lines()
        .filter_map(|line| line.strip_prefix("VmRSS:"));
    numbers(values.next()?).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_proc_are_read_as_they_are_defined() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194304 1 2 3 4 150 50 5 6 20 0 1 0 9 1000 100 0";
        assert_eq!(ticks(stat), Some(200));
        let status = "Name:\tx\nVmHWM:\t  90 kB\nVmRSS:\t  25 kB\n";
        assert_eq!(resident(status), Some(25));
        for broken in [
            "",
            "7 (a",
            "7 (a) S 1 2",
            "7 (a) S 1 7 7 0 -1 4 1 2 3 4 x 5",
        ] {
            assert_eq!(ticks(broken), None, "{broken}");
        }
        assert_eq!((resident(""), resident("VmRSS: x")), (None, None));
    }

    #[test]
    fn this_process_costs_something() {
        let cost = cost(std::process::id()).unwrap();
        assert!(cost.memory > 1 << 20, "{cost:?}");
        assert_eq!(super::cost(u32::MAX), None);
    }
}
