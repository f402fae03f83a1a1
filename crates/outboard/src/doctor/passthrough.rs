//! IOMMU and VFIO, by which a guest gets a real device: `vfio.rst` of the kernel's documentation.

use super::finding::{Finding, Verdict};
use super::machine::{Machine, Vendor};
use linux::pci::sysfs::{Device, Tree};
use std::path::Path;

/// Tables of the firmware that announce an IOMMU: Intel's, AMD's.
const TABLES: [&str; 2] = ["DMAR", "IVRS"];
/// Cards that are named.
const CARDS_MAX: usize = 8;
const PURPOSE: &str = "guests that drive real devices; which ones says: outboard pci list";

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
            groups: Tree::host().machine().groups.len(),
            units: Tree::host().iommus(),
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
    cards: Vec<Device>,
}

impl Vfio {
    /// That of this machine.
    pub fn observe() -> Self {
        let machine = Tree::host().machine();
        let cards = machine.devices.into_values();
        Self {
            device: Path::new("/dev/vfio/vfio").exists(),
            driver: machine.vfio,
            grouped: !machine.groups.is_empty(),
            cards: cards
                .filter(|device| device.class.is_network())
                .take(CARDS_MAX)
                .collect(),
        }
    }
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
        true => finding(
            Verdict::Ok,
            "usable",
            format!("vfio-pci is there; {cards}; all of them: outboard pci list --all"),
        ),
        false => {
            let evidence =
                format!("vfio-pci is there, but no device has a group: see IOMMU; {cards}");
            finding(Verdict::Warn, "unprotected", evidence)
        }
    }
}

fn describe(card: &Device) -> String {
    let driver = card.driver.as_deref().unwrap_or("no driver");
    match &card.group {
        Some(group) => format!("{} ({driver}, group {group})", card.address),
        None => format!("{} ({driver})", card.address),
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::{cloud, server};
    use super::*;
    use linux::pci::Class;
    use std::collections::BTreeSet;

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
        let card = Device {
            address: "0000:00:02.0".parse().unwrap(),
            class: Class(0x02_00_00),
            vendor: 0x8086,
            device: 0x10d3,
            driver: Some("e1000e".into()),
            driver_override: None,
            group: Some(3),
            interfaces: BTreeSet::new(),
            disks: BTreeSet::new(),
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
