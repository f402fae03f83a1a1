//! Events of the lab's kernel, counted by the kernel itself (Documentation/trace/histogram.rst of
//! Linux): what the guest was left for, which registers it accessed, and who ran.

use crate::matrix::axes::Bus;
use crate::matrix::outcome::{Counts, Events};
use models::virtio::mmio;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

const TRACING: &str = "/sys/kernel/tracing";

/// An event, and what it is counted by.
type Event = (&'static str, &'static str);

const REGISTERS: Event = ("kvm/kvm_mmio", "gpa,type");
const RETURNS: Event = ("kvm/kvm_userspace_exit", "reason,errno");
const EXITS: Event = ("kvm/kvm_exit", "exit_reason");
const SWITCHES: Event = ("sched/sched_switch", "next_comm");
const ALL: [Event; 4] = [REGISTERS, RETURNS, EXITS, SWITCHES];

/// Windows of devices: of outboard-vmm's, and of QEMU's machine microvm.
const WINDOWS: [(std::ops::Range<u64>, u64); 2] = [
    (0xc000_0000..0xc001_0000, 0x1000),
    (0xfeb0_0000..0xfeb0_3000, 0x200),
];
const LOCAL_APIC: u64 = 0xfee0_0000;
const IO_APIC: u64 = 0xfec0_0000;
const PAGE: u64 = 0x1000;

/// Counts events of a guest whose devices are on that bus while `act` runs.
///
/// # Errors
/// Those of `act`; or the kernel does not count.
pub fn during<T>(bus: Bus, act: impl FnOnce() -> io::Result<T>) -> io::Result<(T, Events)> {
    let mounted = Path::new(TRACING).join("events");
    if !mounted.exists() {
        let words = ["-t", "tracefs", "tracefs", TRACING];
        Command::new("mount").args(words).status()?;
    }
    for event in ALL {
        fs::write(file(event, "trigger"), trigger(event))?;
    }
    let acted = act();
    let read = |event| fs::read_to_string(file(event, "hist"));
    let seen = (|| {
        Ok::<_, io::Error>(Events {
            registers: counts(&read(REGISTERS)?, |keys| register(bus, keys)),
            returns: counts(&read(RETURNS)?, reason_of_return),
            exits: counts(&read(EXITS)?, reason_of_exit),
            switches: counts(&read(SWITCHES)?, |keys| {
                Some(value(keys, "next_comm")?.into())
            }),
        })
    })();
    for event in ALL {
        fs::write(file(event, "trigger"), format!("!{}", trigger(event)))?;
    }
    Ok((acted?, seen?))
}

fn file((event, _): Event, name: &str) -> PathBuf {
    Path::new(TRACING).join("events").join(event).join(name)
}

fn trigger((_, keys): Event) -> String {
    format!("hist:keys={keys}:size=4096")
}

/// Sums of the hits of a histogram, by what `name` makes of the keys.
fn counts(histogram: &str, name: impl Fn(&str) -> Option<String>) -> Counts {
    let mut counts = Counts::new();
    for line in histogram.lines() {
        let Some((keys, rest)) = line
            .trim()
            .strip_prefix('{')
            .and_then(|l| l.split_once('}'))
        else {
            continue;
        };
        let hits = value(rest, "hitcount").and_then(|hits| hits.parse().ok());
        if let (Some(name), Some(hits)) = (name(keys), hits) {
            let hits: u64 = hits;
            *counts.entry(name).or_insert(0) += hits;
        }
    }
    counts
}

/// What is behind `key:` in `key: value, key: value`.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let of = |pair: &'a str| {
        let (name, value) = pair.split_once(':')?;
        (name.trim() == key).then(|| value.trim())
    };
    text.split(',').find_map(of)
}

fn number(text: &str, key: &str) -> Option<u64> {
    value(text, key)?.parse().ok()
}

/// The name of a register, and `r` or `w`. A read that KVM cannot do itself is traced twice: first
/// as one that is not satisfied, of type 0.
fn register(bus: Bus, keys: &str) -> Option<String> {
    let (address, kind) = (number(keys, "gpa")?, number(keys, "type")?);
    let direction = match kind {
        1 => "r",
        2 => "w",
        _ => return None,
    };
    // QEMU has BARs where outboard-vmm has windows.
    let mut windows = WINDOWS.iter().filter(|_| bus == Bus::Mmio);
    let window = windows.find(|(window, _)| window.contains(&address));
    let place = match window {
        Some((_, stride)) => match mmio::name((address % stride) & !3) {
            Some(name) => name.to_owned(),
            None => "configuration".to_owned(),
        },
        None if address & !(PAGE - 1) == LOCAL_APIC => "local APIC".to_owned(),
        None if address & !(PAGE - 1) == IO_APIC => "I/O APIC".to_owned(),
        None => format!("PCI ...{:x}", address & 0xffff),
    };
    Some(format!("{place} {direction}"))
}

/// `KVM_EXIT_*` of linux/kvm.h; with an error, the call did not return for that reason.
fn reason_of_return(keys: &str) -> Option<String> {
    if value(keys, "errno")?.parse::<i64>().ok()? != 0 {
        return Some("signal".to_owned());
    }
    Some(match number(keys, "reason")? {
        2 => "port".to_owned(),
        5 => "halt".to_owned(),
        6 => "register".to_owned(),
        10 => "signal".to_owned(),
        26 => "end of interrupt".to_owned(),
        other => format!("reason {other}"),
    })
}

/// Exit codes of SVM (AMD64 Architecture Programmer's Manual, volume 2, appendix C).
fn reason_of_exit(keys: &str) -> Option<String> {
    Some(match number(keys, "exit_reason")? {
        0x060 => "interrupt".to_owned(),
        0x064 => "interrupt window".to_owned(),
        0x072 => "CPUID".to_owned(),
        0x078 => "HLT".to_owned(),
        0x07b => "port".to_owned(),
        0x07c => "MSR".to_owned(),
        0x400 => "nested page fault".to_owned(),
        other => format!("code {other:#x}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HISTOGRAM: &str = "# event histogram\n#\n# trigger info: hist:keys=gpa,type [active]\n\
        { gpa: 3221225568, type:          1 } hitcount:         12\n\
        { gpa: 3221225568, type:          0 } hitcount:         12\n\
        { gpa: 4272947812, type:          2 } hitcount:          3\n\
        { gpa: 4276093104, type:          2 } hitcount:          7\n\
        \nTotals:\n    Hits: 34\n";

    #[test]
    fn registers_have_names() {
        let of = |bus| counts(HISTOGRAM, |keys| register(bus, keys));
        let windows = of(Bus::Mmio);
        assert_eq!(windows["InterruptStatus r"], 12);
        assert_eq!(windows["InterruptACK w"], 3);
        assert_eq!(windows["local APIC w"], 7);
        assert_eq!(windows.len(), 3);
        let bars = of(Bus::Pci);
        assert_eq!(bars["PCI ...60 r"], 12);
        assert_eq!(bars["local APIC w"], 7);
    }

    #[test]
    fn reasons_have_names() {
        let text = "{ reason:          6, errno:          0 } hitcount:         9\n\
                    { reason:          6, errno:         -4 } hitcount:         2\n\
                    { reason:         77, errno:          0 } hitcount:         1\n";
        let returns = counts(text, reason_of_return);
        assert_eq!((returns["register"], returns["signal"]), (9, 2));
        assert_eq!(returns["reason 77"], 1);
        let exits = counts("{ exit_reason:       1024 } hitcount:  5\n", reason_of_exit);
        assert_eq!(exits["nested page fault"], 5);
    }

    #[test]
    fn names_of_threads_are_kept_whole() {
        let text = "{ next_comm: CPU 0/KVM          } hitcount: 5\n";
        let name = |keys: &str| Some(value(keys, "next_comm")?.to_owned());
        assert_eq!(counts(text, name)["CPU 0/KVM"], 5);
        assert!(counts("nonsense\n{ a: b }\n", name).is_empty());
    }
}
