//! IOMMU and VFIO, by which a guest gets a real device: `vfio.rst` of the kernel's documentation.

use super::finding::{Finding, Verdict};
use super::machine::{Machine, Vendor};
use std::fs;
use std::path::Path;

const GROUPS: &str = "/sys/kernel/iommu_groups";
/// Tables of the firmware that announce an IOMMU: Intel's, AMD's.
const TABLES: [&str; 2] = ["DMAR", "IVRS"];
/// Class of network controllers of PCI, in front of the subclass.
const NETWORK_CLASS: &str = "0x02";
/// Cards that are named.
const CARDS_MAX: usize = 8;
const PURPOSE: &str = "guests with drivers for real devices, which are to come";

/// The IOMMU.
#[derive(Clone, Debug, Default)]
pub struct Iommu {
    /// Groups of devices that it keeps apart.
    groups: usize,
    /// What the kernel calls its units.
    units: Vec<String>,
    /// The firmware announces one.
    announced: bool,
}

impl Iommu {
    /// That of this machine.
    pub fn observe() -> Self {
        let table = |name| Path::new("/sys/firmware/acpi/tables").join(name).exists();
        Self {
            groups: names(GROUPS).len(),
            units: names("/sys/class/iommu"),
            announced: TABLES.into_iter().any(table),
        }
    }
}

/// Whether devices are kept apart.
pub fn iommu(facts: &Iommu, machine: &Machine) -> Finding {
    let finding = |verdict, state, evidence: String| {
        Finding::new("IOMMU", verdict, state, evidence).good_for(PURPOSE)
    };
    if facts.groups > 0 {
        let units = facts.units.join(" ");
        let evidence = format!("{} groups of devices ({units})", facts.groups);
        return finding(Verdict::Ok, "usable", evidence);
    }
    let words = match machine.vendor {
        Vendor::Intel => "intel_iommu=on iommu=pt",
        Vendor::Amd | Vendor::Other => "iommu=pt",
    };
    let firmware = match machine.vendor {
        Vendor::Intel => "VT-d",
        Vendor::Amd => "AMD-Vi (IOMMU)",
        Vendor::Other => "the IOMMU",
    };
    let off = ["intel_iommu=off", "amd_iommu=off", "iommu=off"]
        .into_iter()
        .find(|word| machine.booted_with(word));
    match (facts.announced, off) {
        (_, Some(word)) => {
            let evidence = format!("switched off by {word} on the kernel's command line");
            let remedy = machine.boot_without(word);
            finding(Verdict::No, "disabled", evidence).mend(remedy)
        }
        (true, None) if words.split(' ').all(|word| machine.booted_with(word)) => {
            let evidence = format!(
                "no groups in spite of {words}: does this kernel have CONFIG_INTEL_IOMMU or \
                 CONFIG_AMD_IOMMU?"
            );
            finding(Verdict::No, "broken", evidence)
        }
        (true, None) => {
            let evidence = format!("there is one, not in use; start the kernel with {words}");
            finding(Verdict::No, "disabled", evidence).mend(machine.boot_with(words))
        }
        (false, None) if machine.virtual_machine => {
            let evidence = "the hypervisor gives this virtual machine none";
            finding(Verdict::No, "absent", evidence.into())
        }
        (false, None) => {
            let evidence = format!(
                "the firmware announces none: switch on {firmware}, and start Linux with {words}"
            );
            finding(Verdict::No, "absent", evidence)
        }
    }
}

/// A network card.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Card {
    /// Where it is plugged in.
    slot: String,
    /// Who drives it.
    driver: Option<String>,
    /// Its group of the IOMMU.
    group: Option<String>,
}

/// VFIO.
#[derive(Clone, Debug, Default)]
pub struct Vfio {
    /// `/dev/vfio/vfio` exists.
    device: bool,
    /// The driver `vfio-pci` is there.
    driver: bool,
    /// The IOMMU has groups.
    grouped: bool,
    /// Network cards on PCI.
    cards: Vec<Card>,
}

impl Vfio {
    /// That of this machine.
    pub fn observe() -> Self {
        Self {
            device: Path::new("/dev/vfio/vfio").exists(),
            driver: Path::new("/sys/bus/pci/drivers/vfio-pci").exists(),
            grouped: !names(GROUPS).is_empty(),
            cards: cards(),
        }
    }
}

fn cards() -> Vec<Card> {
    let devices = Path::new("/sys/bus/pci/devices");
    let card = |slot: String| {
        let folder = devices.join(&slot);
        let class = fs::read_to_string(folder.join("class")).ok()?;
        let target = |link| {
            let path = fs::read_link(folder.join(link)).ok()?;
            Some(path.file_name()?.to_string_lossy().into_owned())
        };
        class.starts_with(NETWORK_CLASS).then(|| Card {
            slot,
            driver: target("driver"),
            group: target("iommu_group"),
        })
    };
    let slots = names("/sys/bus/pci/devices").into_iter();
    slots.filter_map(card).take(CARDS_MAX).collect()
}

/// Whether a process can be given a device.
pub fn vfio(facts: &Vfio, machine: &Machine) -> Finding {
    let finding = |verdict, state, evidence: String| {
        Finding::new("VFIO", verdict, state, evidence).good_for(PURPOSE)
    };
    let cards = match facts.cards.as_slice() {
        [] => "no network card on PCI".to_owned(),
        cards => cards.iter().map(describe).collect::<Vec<_>>().join(", "),
    };
    if !facts.device || !facts.driver {
        let what = if facts.device {
            "vfio-pci"
        } else {
            "/dev/vfio/vfio"
        };
        let evidence = match machine.modules {
            true => format!("no {what}; {cards}"),
            false => format!("no {what}, and this kernel loads no modules; {cards}"),
        };
        return finding(Verdict::No, "absent", evidence).mend(machine.load("vfio-pci"));
    }
    match facts.grouped {
        true => finding(Verdict::Ok, "usable", format!("vfio-pci is there; {cards}")),
        false => {
            let evidence =
                format!("vfio-pci is there, but no device has a group: see IOMMU; {cards}");
            finding(Verdict::Warn, "unprotected", evidence)
        }
    }
}

fn describe(card: &Card) -> String {
    let driver = card.driver.as_deref().unwrap_or("no driver");
    match &card.group {
        Some(group) => format!("{} ({driver}, group {group})", card.slot),
        None => format!("{} ({driver})", card.slot),
    }
}

/// Names in a directory, in order; none if there is no such directory.
fn names(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::{cloud, server};
    use super::*;

    fn iommu_of(groups: usize, announced: bool) -> Iommu {
        Iommu {
            groups,
            units: vec!["dmar0".into()],
            announced,
        }
    }

    #[test]
    fn an_iommu_that_sleeps_is_woken_on_the_command_line() {
        let present = iommu(&iommu_of(12, true), &server());
        assert_eq!(present.verdict, Verdict::Ok);
        assert!(present.evidence.contains("12 groups") && present.evidence.contains("dmar0"));
        let asleep = iommu(&iommu_of(0, true), &server());
        assert_eq!(asleep.state, "disabled");
        assert!(asleep.remedy.unwrap().contains("intel_iommu=on iommu=pt"));
        let amd = Machine {
            vendor: Vendor::Amd,
            ..server()
        };
        let asleep = iommu(&iommu_of(0, true), &amd);
        assert!(asleep.remedy.unwrap().contains("|&iommu=pt |"));
    }

    #[test]
    fn what_the_command_line_forbids_or_does_not_help() {
        let booted = |command_line: &str| Machine {
            command_line: command_line.into(),
            ..server()
        };
        let forbidden = iommu(&iommu_of(0, true), &booted("quiet intel_iommu=off"));
        assert!(
            forbidden
                .evidence
                .contains("switched off by intel_iommu=off")
        );
        assert!(forbidden.remedy.unwrap().contains("sed"));
        let on = booted("intel_iommu=on iommu=pt");
        assert_eq!(iommu(&iommu_of(0, true), &on).state, "broken");
    }

    #[test]
    fn none_at_all() {
        let firmware = iommu(&iommu_of(0, false), &server());
        assert!(firmware.evidence.contains("VT-d"));
        let cloud = iommu(&iommu_of(0, false), &cloud());
        assert_eq!(cloud.remedy, None);
        assert!(cloud.evidence.contains("hypervisor"));
    }

    #[test]
    fn a_device_needs_its_driver_and_its_group() {
        let card = Card {
            slot: "0000:00:02.0".into(),
            driver: Some("e1000e".into()),
            group: Some("3".into()),
        };
        let all = Vfio {
            device: true,
            driver: true,
            grouped: true,
            cards: vec![card],
        };
        let usable = vfio(&all, &server());
        assert_eq!(usable.verdict, Verdict::Ok);
        assert!(usable.evidence.contains("0000:00:02.0 (e1000e, group 3)"));
        let alone = Vfio {
            grouped: false,
            ..all.clone()
        };
        assert_eq!(vfio(&alone, &server()).verdict, Verdict::Warn);
        for missing in [
            Vfio::default(),
            Vfio {
                driver: false,
                ..all
            },
        ] {
            let finding = vfio(&missing, &server());
            assert_eq!(finding.remedy.unwrap(), "sudo modprobe vfio-pci");
            assert_eq!(vfio(&missing, &cloud()).remedy, None);
        }
    }
}
