//! What is counted of a device, in memory that the process of the device and the monitor share.

use crate::ranges::{BARS, Place, Ranges};
use hw::sim::View;
use linux::memory;
use std::fmt::Write;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

const WORD_BYTES: u64 = 8;
/// The words of accesses, which are behind all others: two for each byte of each BAR, for reads and
/// for writes that begin there. What no access touches takes no memory.
const ACCESSES: u64 = 64;
const PAGE_BYTES: u64 = 4096;

/// What is counted beside accesses, by its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Frames that went to the driver.
    Received,
    /// Frames or requests that came from it.
    Transmitted,
    /// How often it was interrupted.
    Interrupts,
    /// Notifications that an event told of.
    Notifications,
    /// How often the device worked.
    Turns,
    /// How often it slept.
    Sleeps,
    /// How often its driver broke a rule.
    Violations,
}

/// Counters of a device.
pub struct Counters {
    words: View,
    ranges: Ranges,
}

/// Their file, of which each process has a view of its own.
#[derive(Debug)]
pub struct File {
    file: OwnedFd,
    ranges: Ranges,
}

/// How many bytes the first so many BARs have.
fn bytes_before(ranges: &Ranges, bars: usize) -> u64 {
    ranges.sizes[..bars.min(BARS)].iter().sum()
}

fn file_bytes(ranges: &Ranges) -> u64 {
    let words = ACCESSES + 2 * bytes_before(ranges, BARS);
    (words * WORD_BYTES).next_multiple_of(PAGE_BYTES)
}

impl File {
    /// Counters that are zero, of a device with these registers.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new(ranges: &Ranges) -> io::Result<Self> {
        Ok(Self {
            file: memory::sealed("counters", file_bytes(ranges))?,
            ranges: *ranges,
        })
    }

    /// The counters, for one side.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn view(&self) -> io::Result<Counters> {
        let bytes = file_bytes(&self.ranges);
        Ok(Counters {
            words: View::of_file(self.file.as_fd(), 0, bytes, 0, true)?,
            ranges: self.ranges,
        })
    }
}

impl Counters {
    /// Counts, on the side that counts.
    pub fn add(&self, counter: Counter, count: u64) {
        self.add_word(counter as u64, count);
    }

    /// Sets a counter, on the side that counts.
    pub fn set(&self, counter: Counter, count: u64) {
        // All words lie in the file.
        let _ = self.words.store(counter as u64 * WORD_BYTES, count);
    }

    /// Counts an access that begins at a place; none of configuration space.
    pub fn access(&self, place: Place, is_write: bool) {
        if self.ranges.sizes.get(usize::from(place.bar)) > Some(&place.offset) {
            self.add_word(self.access_word(place, is_write), 1);
        }
    }

    fn access_word(&self, place: Place, is_write: bool) -> u64 {
        let before = bytes_before(&self.ranges, place.bar.into());
        ACCESSES + 2 * (before + place.offset) + u64::from(is_write)
    }

    fn add_word(&self, word: u64, count: u64) {
        // All words lie in the file.
        let before = self.word(word);
        let _ = self
            .words
            .store(word * WORD_BYTES, before.wrapping_add(count));
    }

    fn word(&self, word: u64) -> u64 {
        self.words.load(word * WORD_BYTES).unwrap_or(0)
    }

    /// A counter.
    pub fn get(&self, counter: Counter) -> u64 {
        self.word(counter as u64)
    }

    /// Reads and writes of registers by their names, in the order of their places.
    fn registers(&self) -> Vec<(&'static str, u64, u64)> {
        let mut registers: Vec<(&'static str, u64, u64)> = Vec::new();
        for bar in self.ranges.bars() {
            for offset in 0..self.ranges.bytes(bar) {
                let place = Place { bar, offset };
                let [reads, writes] =
                    [false, true].map(|is_write| self.word(self.access_word(place, is_write)));
                if reads + writes == 0 {
                    continue;
                }
                let name = (self.ranges.name)(bar, offset).unwrap_or("no register");
                match registers.iter_mut().find(|(known, ..)| *known == name) {
                    Some(known) => (known.1, known.2) = (known.1 + reads, known.2 + writes),
                    None => registers.push((name, reads, writes)),
                }
            }
        }
        registers
    }

    /// Accesses of all registers.
    pub fn accesses(&self) -> u64 {
        let registers = self.registers().into_iter();
        registers.map(|(_, reads, writes)| reads + writes).sum()
    }

    /// What was counted, in lines about the device `name`.
    pub fn report(&self, device: &str) -> String {
        let of = |counter| self.get(counter);
        let done = of(Counter::Received) + of(Counter::Transmitted);
        let accesses = self.accesses();
        let mut text = format!(
            "{device}: {} received, {} transmitted; {} notifications, {} interrupts, {} turns, \
             {} sleeps, {} violations; {accesses} register accesses, {} a frame or request\n",
            of(Counter::Received),
            of(Counter::Transmitted),
            of(Counter::Notifications),
            of(Counter::Interrupts),
            of(Counter::Turns),
            of(Counter::Sleeps),
            of(Counter::Violations),
            ratio(accesses, done),
        );
        let _ = write!(text, "{device}:");
        for (name, reads, writes) in self.registers() {
            let _ = write!(text, " {name} {reads} r {writes} w;");
        }
        text.push('\n');
        text
    }
}

/// A quotient with three decimals.
pub fn ratio(count: u64, of: u64) -> String {
    match of {
        0 => "-".into(),
        of => format!("{:.3}", count as f64 / of as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranges::CONFIG;

    #[test]
    fn both_sides_see_what_is_counted() {
        let file = File::new(&Ranges::window(1)).unwrap();
        let (device, monitor) = (file.view().unwrap(), file.view().unwrap());
        device.add(Counter::Received, 3);
        device.add(Counter::Transmitted, 1);
        for (offset, is_write) in [(0x60, false), (0x64, true), (0x104, false), (0x1ff, true)] {
            device.access(Place { bar: 0, offset }, is_write);
        }
        for (bar, offset) in [(0, 0x200), (1, 0), (CONFIG, 4), (0, u64::MAX)] {
            device.access(Place { bar, offset }, false);
        }
        let report = monitor.report("net0");
        assert!(
            report.contains("net0: 3 received, 1 transmitted;"),
            "{report}"
        );
        assert!(report.contains("4 register accesses, 1.000 a"), "{report}");
        let registers =
            "net0: InterruptStatus 1 r 0 w; InterruptACK 0 r 1 w; configuration 1 r 1 w;";
        assert!(report.contains(registers), "{report}");
        assert_eq!(ratio(1, 0), "-");
    }
}
