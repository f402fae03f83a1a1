//! Counters of the lab's kernel and of the guest's, which cost nothing while frames are sent.

use super::guest::Guest;
use crate::matrix::outcome::Counts;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

/// Sums over all virtual machines.
const KVM: &str = "/sys/kernel/debug/kvm";
const DEBUGFS: &str = "/sys/kernel/debug";
/// A folder of each network interface.
pub const INTERFACES: &str = "/sys/class/net";
/// Those of KVM's that tell something here.
const OF_KVM: [&str; 6] = [
    "exits",
    "halt_exits",
    "io_exits",
    "irq_exits",
    "irq_injections",
    "mmio_exits",
];
/// What is read of an interface, as its own side sees it, and which of a macvtap's is the same:
/// what a tap sends to its program, a macvtap has received from its parent.
const OF_INTERFACE: [(&str, &str); 4] = [
    ("rx_packets", "tx_packets"),
    ("rx_dropped", "tx_dropped"),
    ("tx_packets", "rx_packets"),
    ("tx_dropped", "rx_dropped"),
];
/// What the guest prints, each line a name and a number: `lab/matrix/counters`.
const COMMAND: &str = ". /lab/counters";

/// All counters now.
///
/// # Errors
/// The guest does not answer.
pub fn read(interface: Option<&str>, guest: &mut Guest) -> io::Result<Counts> {
    let mut counts = Counts::new();
    if !Path::new(KVM).exists() {
        let words = ["-t", "debugfs", "debugfs", DEBUGFS];
        Command::new("mount").args(words).status()?;
    }
    for name in OF_KVM {
        let count = number(&Path::new(KVM).join(name));
        counts.insert(format!("kvm {name}"), count);
    }
    if let Some(interface) = interface {
        let interface = Path::new(INTERFACES).join(interface);
        let is_macvtap = interface.join("macvtap").exists();
        for (name, of_macvtap) in OF_INTERFACE {
            let file = if is_macvtap { of_macvtap } else { name };
            let count = number(&interface.join("statistics").join(file));
            counts.insert(format!("tap {name}"), count);
        }
    }
    let text = |path| fs::read_to_string(path).unwrap_or_default();
    counts.insert("host switches".into(), switches(&text("/proc/stat")));
    counts.extend(udp(&text("/proc/net/snmp"), "host"));
    for line in guest.ask(COMMAND)? {
        if let Some((name, value)) = line.rsplit_once(' ')
            && let Ok(value) = value.parse()
        {
            counts.insert(format!("guest {name}"), value);
        }
    }
    Ok(counts)
}

fn number(path: &Path) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// Context switches since boot (`proc(5)`).
fn switches(stat: &str) -> u64 {
    let line = stat.lines().find_map(|line| line.strip_prefix("ctxt "));
    line.and_then(|count| count.trim().parse().ok())
        .unwrap_or(0)
}

/// Datagrams of UDP: a line of names, and a line of numbers.
fn udp(snmp: &str, whose: &str) -> Counts {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (lines.next().unwrap_or(""), lines.next().unwrap_or(""));
    let pairs = names.split(' ').zip(values.split(' '));
    pairs
        .filter_map(|(name, value)| Some((format!("{whose} udp {name}"), value.parse().ok()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_name() {
        let snmp = "Ip: a b\nIp: 1 2\nUdp: InDatagrams RcvbufErrors\nUdp: 70 5\nUdpLite: x\n";
        let counts = udp(snmp, "host");
        assert_eq!(counts["host udp InDatagrams"], 70);
        assert_eq!(counts["host udp RcvbufErrors"], 5);
        assert!(udp("", "host").is_empty());
        assert_eq!(switches("cpu 1 2\nctxt 99\nbtime 3\n"), 99);
        assert_eq!(switches(""), 0);
    }
}
