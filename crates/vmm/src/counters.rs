//! What is counted of a device, in a page that the process of the device and the monitor share.

use hw::sim::View;
use linux::memory;
use models::virtio::mmio::{BYTES as WINDOW_BYTES, name};
use std::fmt::Write;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Bytes of the page.
const PAGE_BYTES: u64 = 4096;
const WORD_BYTES: u64 = 8;
/// Bytes of a register, each of which has two words: for reads and for writes.
const REGISTER_BYTES: u64 = 4;
const READS: u64 = 64;
const WRITES: u64 = READS + WINDOW_BYTES / REGISTER_BYTES;
/// Registers behind this offset are the device's own, which differ from device to device.
const CONFIG: u64 = 0x100;

const _: () = assert!((WRITES + WINDOW_BYTES / REGISTER_BYTES) * WORD_BYTES <= PAGE_BYTES);

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

/// A page of counters.
pub struct Counters(View);

/// The page's file, of which each process has a view of its own.
#[derive(Debug)]
pub struct File(OwnedFd);

impl File {
    /// Counters that are zero.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new() -> io::Result<Self> {
        memory::sealed("counters", PAGE_BYTES).map(Self)
    }

    /// The counters, for one side.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn view(&self) -> io::Result<Counters> {
        View::of_file(self.0.as_fd(), 0, PAGE_BYTES, 0, true).map(Counters)
    }
}

impl Counters {
    /// Counts, on the side that counts.
    pub fn add(&self, counter: Counter, count: u64) {
        self.add_word(counter as u64, count);
    }

    /// Sets a counter, on the side that counts.
    pub fn set(&self, counter: Counter, count: u64) {
        // All words lie in the page.
        let _ = self.0.store(counter as u64 * WORD_BYTES, count);
    }

    /// Counts an access to a place in the window.
    pub fn access(&self, offset: u64, is_write: bool) {
        let first = if is_write { WRITES } else { READS };
        let register = (offset % WINDOW_BYTES) / REGISTER_BYTES;
        self.add_word(first + register, 1);
    }

    fn add_word(&self, word: u64, count: u64) {
        // All words lie in the page.
        let before = self.word(word);
        let _ = self.0.store(word * WORD_BYTES, before.wrapping_add(count));
    }

    fn word(&self, word: u64) -> u64 {
        self.0.load(word * WORD_BYTES).unwrap_or(0)
    }

    /// A counter.
    pub fn get(&self, counter: Counter) -> u64 {
        self.word(counter as u64)
    }

    /// Accesses of all registers.
    pub fn accesses(&self) -> u64 {
        (READS..WRITES + WINDOW_BYTES / REGISTER_BYTES)
            .map(|word| self.word(word))
            .sum()
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
        for offset in (0..CONFIG).step_by(REGISTER_BYTES as usize) {
            self.register(&mut text, name(offset), offset..offset + REGISTER_BYTES);
        }
        self.register(&mut text, Some("configuration"), CONFIG..WINDOW_BYTES);
        text.push('\n');
        text
    }

    fn register(&self, text: &mut String, name: Option<&str>, bytes: std::ops::Range<u64>) {
        let words = bytes.start / REGISTER_BYTES..bytes.end / REGISTER_BYTES;
        let sum = |first: u64| words.clone().map(|word| self.word(first + word)).sum();
        let (reads, writes): (u64, u64) = (sum(READS), sum(WRITES));
        if reads + writes > 0 {
            let name = name.unwrap_or("no register");
            let _ = write!(text, " {name} {reads} r {writes} w;");
        }
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

    #[test]
    fn both_sides_see_what_is_counted() {
        let file = File::new().unwrap();
        let (device, monitor) = (file.view().unwrap(), file.view().unwrap());
        device.add(Counter::Received, 3);
        device.add(Counter::Transmitted, 1);
        device.access(0x60, false);
        device.access(0x64, true);
        device.access(0x104, false);
        device.access(0x1ff, true);
        assert_eq!(monitor.accesses(), 4);
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
