//! What it costs to let a device reach DMA memory, made of large pages or of small ones: mappings
//! of the IOMMU, and instructions.
//!
//! The kernel's own trace events tell: `syscalls/sys_enter_ioctl` and `sys_exit_ioctl`, by a clock
//! that counts instructions here, and `iommu/map`.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use super::cards::Cards;
use super::{Error, Programs};
use crate::samples::{Measure, Samples};
use testbed::stats::turns;

/// Has a card and DMA memory, and ends at once.
pub const GUEST: &str = "attached";
/// Pages that its DMA memory takes.
const PAGES: usize = 32;

const LARGE: &str = "pages of 2 MiB";
const SMALL: &str = "pages of 4 KiB";
/// Who is measured.
pub const CONTENDERS: [&str; 2] = [LARGE, SMALL];

/// Ranges that the kernel maps one by one.
const RANGES: Measure = Measure::new("ranges mapped", "each of contiguous memory");
/// Entries of the IOMMU's tables for them.
const ENTRIES_LARGE: Measure = Measure::new("entries of 2 MiB", "or more");
const ENTRIES_SMALL: Measure = Measure::new("entries of 4 KiB", "entries");
/// From `ioctl` to its return, pages made and cleared included.
const MAP: Measure = Measure::new("VFIO_IOMMU_MAP_DMA", "thousand instructions");
/// The tender from its start to its end.
const RUN: Measure = Measure::new("start to end", "thousand instructions");
/// What is shown, in this order.
pub const ALL: [Measure; 5] = [RANGES, ENTRIES_LARGE, ENTRIES_SMALL, MAP, RUN];

const TRACING: &str = "/sys/kernel/tracing";
/// Room for all events of a run.
const BUFFER_KIB: &str = "8192";
const RESERVED: &str = "/proc/sys/vm/nr_hugepages";
/// `VFIO_IOMMU_MAP_DMA`: `_IO(';', 100 + 13)` of `linux/vfio.h`.
const MAP_DMA: u64 = 0x3b71;
const LARGE_PAGE: u64 = 2 << 20;
const SMALL_PAGE: u64 = 4 << 10;

/// Measures both kinds of pages `rounds` times.
///
/// # Errors
/// The kernel does not trace, or the tender does not attach.
pub fn measure(
    rounds: usize,
    programs: &Programs,
    cards: &Cards,
    say: &dyn Fn(&str),
    samples: &mut Samples,
) -> Result<(), Error> {
    let [card, _] = &cards.addresses;
    for (round, index) in turns(CONTENDERS.len(), rounds) {
        let contender = CONTENDERS[index];
        say(&format!("attach, round {}: {contender}", round + 1));
        let figures = figures(programs, card, contender == LARGE);
        let figures = figures.map_err(|error| Error::Case("attach", contender, error))?;
        for (measure, figure) in ALL.into_iter().zip(figures) {
            samples.add(measure, contender, round, figure);
        }
    }
    Ok(())
}

/// The figures of [`ALL`].
fn figures(programs: &Programs, card: &str, large: bool) -> io::Result<[f64; ALL.len()]> {
    let reserved = if large { PAGES } else { 0 };
    fs::write(RESERVED, reserved.to_string())?;
    if fs::read_to_string(RESERVED)?.trim() != reserved.to_string() {
        return Err(io::Error::other("pages of 2 MiB cannot be had"));
    }
    let begin = Instant::now();
    attach(programs, card)?;
    let run = begin.elapsed();
    // Each event costs instructions, so calls and mappings have runs of their own.
    let calls = traced(
        &["syscalls/sys_enter_ioctl", "syscalls/sys_exit_ioctl"],
        || attach(programs, card),
    )?;
    let map = call(&calls).ok_or_else(|| io::Error::other("no call was traced"))?;
    let mappings = traced(&["iommu/map"], || attach(programs, card))?;
    let ranges: Vec<_> = mappings.lines().filter_map(Range::parse).collect();
    let [mut large, mut small] = [0, 0];
    for range in &ranges {
        let entries = range.entries();
        large += entries.0;
        small += entries.1;
    }
    Ok([
        ranges.len() as f64,
        large as f64,
        small as f64,
        map as f64 / 1000.0,
        run.as_nanos() as f64 / 1000.0,
    ])
}

/// Runs the image that has the card.
fn attach(programs: &Programs, card: &str) -> io::Result<()> {
    let mut command = Command::new(&programs.tender);
    command
        .args(["--host=spt", "--mem=32"])
        .arg(format!("--pci:nic={card}"))
        .arg("--")
        .arg(programs.image(GUEST));
    let status = command.status()?;
    let ended = || io::Error::other(format!("the tender ended with {status}"));
    status.success().then_some(()).ok_or_else(ended)
}

/// What the kernel says of these events while `act` runs.
fn traced(events: &[&str], act: impl FnOnce() -> io::Result<()>) -> io::Result<String> {
    let tracing = Path::new(TRACING);
    if !tracing.join("trace").exists() {
        let words = ["-t", "tracefs", "tracefs", TRACING];
        Command::new("mount").args(words).status()?;
    }
    let set = |file: &str, value: &str| fs::write(tracing.join(file), value);
    set("buffer_size_kb", BUFFER_KIB)?;
    set("trace_clock", "x86-tsc")?;
    let enable = |value| {
        let all = |event| set(&format!("events/{event}/enable"), value);
        events.iter().try_for_each(all)
    };
    enable("1")?;
    set("trace", "")?;
    let acted = act();
    let said = fs::read_to_string(tracing.join("trace"))?;
    enable("0")?;
    acted.map(|()| said)
}

/// How long the first call of [`MAP_DMA`] took.
fn call(trace: &str) -> Option<u64> {
    let command = format!("cmd: {MAP_DMA:x},");
    let mut lines = trace.lines();
    let begin = lines.find(|line| line.contains("sys_ioctl(") && line.contains(&command))?;
    let end = lines.find(|line| line.contains("sys_ioctl -> 0x0"))?;
    time(end)?.checked_sub(time(begin)?)
}

/// `TASK-PID [CPU] FLAGS TIME: WHAT`.
fn time(line: &str) -> Option<u64> {
    let (before, _) = line.split_once(": ")?;
    before.rsplit(' ').next()?.parse().ok()
}

/// What the kernel maps at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    iova: u64,
    physical: u64,
    bytes: u64,
}

impl Range {
    /// `... map: IOMMU: iova=0x0 - 0x1000 paddr=0x5000 size=4096`.
    fn parse(line: &str) -> Option<Self> {
        let word = |key| {
            let (_, rest) = line.split_once(key)?;
            rest.split(' ').next()
        };
        let address = |key| u64::from_str_radix(word(key)?.strip_prefix("0x")?, 16).ok();
        Some(Self {
            iova: address("iova=")?,
            physical: address("paddr=")?,
            bytes: word("size=")?.trim().parse().ok()?,
        })
    }

    /// Entries of 2 MiB and of 4 KiB that it takes: the largest that fit both addresses.
    fn entries(&self) -> (u64, u64) {
        let (mut large, mut small) = (0, 0);
        let mut done = 0;
        while done < self.bytes {
            let places = (self.iova + done) | (self.physical + done);
            if places.is_multiple_of(LARGE_PAGE) && self.bytes - done >= LARGE_PAGE {
                large += 1;
                done += LARGE_PAGE;
            } else {
                small += 1;
                done += SMALL_PAGE;
            }
        }
        (large, small)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_timed_by_what_follows_it() {
        let trace = "# tracer: nop\n\
             a-1 [000] .....  100: sys_ioctl(fd: 5, cmd: 3b64, arg: 0)\n\
             a-1 [000] .....  170: sys_ioctl -> 0x0\n\
             a-1 [000] .....  200: sys_ioctl(fd: 5, cmd: 3b71, arg: 7f)\n\
             a-1 [000] .....  1250: sys_ioctl -> 0x0\n";
        assert_eq!(call(trace), Some(1050));
        assert_eq!(call("a-1 [000] ..... 9: sys_ioctl -> 0x0\n"), None);
    }

    #[test]
    fn a_range_takes_large_entries_where_both_addresses_allow() {
        let parse = |rest: &str| Range::parse(&format!("a-1 [000] ..... 7: map: IOMMU: {rest}"));
        let whole = "iova=0x10000000000 - 0x10000400000 paddr=0x200000 size=4194304";
        assert_eq!(parse(whole).unwrap().entries(), (2, 0));
        let shifted = "iova=0x10000000000 - 0x10000200000 paddr=0x201000 size=2097152";
        assert_eq!(parse(shifted).unwrap().entries(), (0, 512));
        let beyond = "iova=0x1ff000 - 0x401000 paddr=0x5ff000 size=2105344";
        assert_eq!(parse(beyond).unwrap().entries(), (1, 2));
        assert_eq!(parse("iova=0x1000 paddr=none"), None);
    }
}
