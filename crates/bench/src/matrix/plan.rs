//! A file with plans, and the runs that they mean: a product of axes each, without what cannot be.

use super::axes::{
    Bus, Device, Guest, Interface, Ioregionfd, Irqchip, Monitor, Reflector, Run, Vectors, Vhost,
};
use serde::Deserialize;

/// Most runs of a file: more are a mistake in it.
const RUNS_MAX: usize = 4096;

/// A file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plans {
    /// First line of the report.
    pub title: String,
    /// Offered loads, in percent of the load limit, which each run looks for first.
    pub percent: Vec<u32>,
    /// How long each load is offered, in milliseconds of the lab's clock.
    pub step_ms: u64,
    /// The plans.
    pub plan: Vec<Plan>,
}

/// A product of axes: values of each; of one that is not mentioned, the usual one.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// What it is to show.
    pub name: String,
    device: Option<Vec<Device>>,
    monitor: Option<Vec<Monitor>>,
    bus: Option<Vec<Bus>>,
    ioregionfd: Option<Vec<Ioregionfd>>,
    posted: Option<Vec<bool>>,
    busy: Option<Vec<bool>>,
    vhost: Option<Vec<Vhost>>,
    interface: Option<Vec<Interface>>,
    packet_bytes: Option<Vec<u32>>,
    reflector: Option<Vec<Reflector>>,
    queue_size: Option<Vec<u32>>,
    vectors: Option<Vec<Vectors>>,
    irqchip: Option<Vec<Irqchip>>,
    event_idx: Option<Vec<bool>>,
    guest: Option<Vec<Guest>>,
    icount: Option<Vec<bool>>,
    processors: Option<Vec<u32>>,
}

/// What a file means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expanded {
    /// Runs, each once, with the plans that it belongs to.
    pub runs: Vec<(Run, Vec<String>)>,
    /// Runs that cannot be, and why.
    pub impossible: Vec<(Run, &'static str)>,
}

impl Plans {
    /// Reads a file.
    ///
    /// # Errors
    /// One line that says what in it is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let plans: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        let runs: usize = plans.plan.iter().map(|plan| plan.runs().len()).sum();
        match runs {
            0 => Err("it has no [[plan]] with a run".into()),
            runs if runs > RUNS_MAX => Err(format!("{runs} runs are more than {RUNS_MAX}")),
            _ => Ok(plans),
        }
    }

    /// The runs of all plans.
    pub fn expand(&self) -> Expanded {
        let mut expanded = Expanded::default();
        for plan in &self.plan {
            for run in plan.runs() {
                if let Some(reason) = impossible(&run) {
                    if expanded.impossible.iter().all(|(other, _)| *other != run) {
                        expanded.impossible.push((run, reason));
                    }
                    continue;
                }
                match expanded.runs.iter_mut().find(|(other, _)| *other == run) {
                    Some((_, plans)) => plans.push(plan.name.clone()),
                    None => expanded.runs.push((run, vec![plan.name.clone()])),
                }
            }
        }
        expanded
    }
}

impl Plan {
    /// Each combination once, in the order of the file.
    fn runs(&self) -> Vec<Run> {
        let mut runs = vec![Run::default()];
        macro_rules! vary {
            ($($axis:ident)+) => {$(
                if let Some(values) = &self.$axis {
                    let with = |run: &Run| -> Vec<Run> {
                        let of = |value: &_| Run { $axis: *value, ..run.clone() };
                        values.iter().map(of).collect()
                    };
                    runs = runs.iter().flat_map(with).take(RUNS_MAX + 1).collect();
                }
            )+};
        }
        vary!(device monitor bus ioregionfd posted busy vhost interface packet_bytes reflector
            queue_size vectors irqchip event_idx guest icount processors);
        runs
    }
}

/// Why a run cannot be, if it cannot.
fn impossible(run: &Run) -> Option<&'static str> {
    let first = RULES.iter().find(|(applies, _)| applies(run));
    first.map(|(_, reason)| *reason)
}

/// Which runs cannot be, and why.
type Rule = (fn(&Run) -> bool, &'static str);

const RULES: [Rule; 22] = [
    (
        |run| is_of_pci_alone(run) && run.bus == Bus::Mmio,
        "e1000 and rtl8139 are cards of PCI's",
    ),
    (
        |run| run.bus == Bus::Pci && run.vectors != Vectors::Line && is_ours(run),
        "outboard-vmm has no MSI-X: its devices on PCI have a pin",
    ),
    (
        |run| is_of_pci_alone(run) && run.vectors != Vectors::Line,
        "e1000 and rtl8139 have a pin",
    ),
    (
        |run| run.guest == Guest::Ours && (!is_ours(run) || run.bus == Bus::Pci),
        "images of ours run by outboard-vmm, and look for their devices in windows",
    ),
    (
        |run| run.guest == Guest::Ours && run.device != Device::Net,
        "the image that sends frames back has a network card of virtio's",
    ),
    (
        |run| run.guest == Guest::Ours && run.reflector == Reflector::Xdp,
        "XDP is of Linux",
    ),
    (
        |run| run.posted && run.device == Device::Rtl8139,
        "its driver acknowledges interrupts by writes, which must not be posted",
    ),
    (
        |run| !run.is_card() && is_about_frames(run),
        "a disk has no such thing",
    ),
    (
        |run| !is_ours(run) && run.ioregionfd != Ioregionfd::Off,
        "no release of QEMU has ioregionfd for its own devices",
    ),
    (
        |run| run.posted && !matches!(run.ioregionfd, Ioregionfd::On | Ioregionfd::Process),
        "only writes by ioregionfd can be posted",
    ),
    (|run| run.busy && !is_ours(run), "QEMU's devices sleep"),
    (
        |run| run.busy && run.icount,
        "a device that never sleeps takes all instructions of a lab that counts them",
    ),
    (
        |run| run.vhost == Vhost::Kernel && is_ours(run),
        "outboard-vmm has no vhost",
    ),
    (
        |run| {
            let has_tap = run.interface != Interface::Macvtap;
            run.vhost == Vhost::User && (is_ours(run) || run.device != Device::Net || !has_tap)
        },
        "our back end of vhost-user stands behind QEMU's card, and has a tap",
    ),
    (
        |run| run.interface == Interface::Macvtap && is_ours(run),
        "outboard-vmm opens taps",
    ),
    (
        |run| run.interface == Interface::Wire,
        "the wire of vfio-user is on the bench of `cargo xtask lab linux`",
    ),
    (
        |run| run.queue_size != 0 && run.bus == Bus::Mmio,
        "rings over MMIO have the size that the monitor offers: 1024 in QEMU",
    ),
    (
        |run| run.vectors != Vectors::Each && run.bus == Bus::Mmio,
        "virtio over MMIO has one interrupt",
    ),
    (
        |run| run.irqchip == Irqchip::Kernel && has_irqfds_for_msi(run),
        "the first irqfd for MSI-X takes QEMU's microvm all lines of the kernel's I/O APIC",
    ),
    (
        |run| is_ours(run) && run.irqchip == Irqchip::Split,
        "outboard-vmm leaves interrupt controllers to the kernel",
    ),
    (
        |run| is_ours(run) && !run.event_idx,
        "outboard-vmm always offers VIRTIO_F_EVENT_IDX",
    ),
    (
        |run| run.icount && run.processors != 1,
        "a lab that counts instructions has one processor",
    ),
];

fn is_ours(run: &Run) -> bool {
    run.monitor == Monitor::Vmm
}

fn is_of_pci_alone(run: &Run) -> bool {
    matches!(run.device, Device::E1000 | Device::Rtl8139)
}

/// Whether QEMU routes MSI-X to irqfds, as it does for whatever does not pass its main loop. It has
/// KVM replace its table of routes by one that `hw/i386/microvm.c` never filled in: without those
/// of the I/O APIC, so that the console and all else that has a line is silent from then on. With
/// `irqchip=split`, the I/O APIC is QEMU's, and fills the table in itself.
fn has_irqfds_for_msi(run: &Run) -> bool {
    let msi = run.bus == Bus::Pci && run.vectors != Vectors::Line && !is_of_pci_alone(run);
    !is_ours(run) && msi && (run.vhost != Vhost::Off || run.device == Device::Blk)
}

/// Whether it differs from the usual run in what only cards have.
fn is_about_frames(run: &Run) -> bool {
    let usual = Run::default();
    run.interface != usual.interface
        || run.packet_bytes != usual.packet_bytes
        || run.reflector != usual.reflector
        || run.vhost != usual.vhost
        || run.queue_size != usual.queue_size
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        title = "A title"
        percent = [50, 100]
        step_ms = 100

        [[plan]]
        name = "ways"
        ioregionfd = ["off", "on"]
        posted = [false, true]

        [[plan]]
        name = "buses"
        monitor = ["qemu", "outboard-vmm"]
        bus = ["mmio", "pci"]
    "#;

    #[test]
    fn plans_are_products_without_what_cannot_be() {
        let expanded = Plans::parse(FILE).unwrap().expand();
        let names: Vec<String> = expanded.runs.iter().map(|(run, _)| run.name()).collect();
        assert_eq!(
            names,
            [
                "virtio-net_outboard-vmm_mmio",
                "virtio-net_outboard-vmm_mmio_ioregionfd=on",
                "virtio-net_outboard-vmm_mmio_ioregionfd=on_posted=true",
                "virtio-net_qemu_mmio",
                "virtio-net_qemu_pci",
            ]
        );
        assert_eq!(expanded.runs[0].1, ["ways", "buses"]);
        let reasons: Vec<_> = expanded
            .impossible
            .iter()
            .map(|(run, reason)| (run.name(), *reason))
            .collect();
        let posted = "virtio-net_outboard-vmm_mmio_posted=true";
        assert_eq!(reasons[0].0, posted);
        let no_msix = "outboard-vmm has no MSI-X: its devices on PCI have a pin";
        assert_eq!(reasons[1].1, no_msix);
        assert_eq!(reasons.len(), 2);
    }

    /// The repository's own file, which the lab's README names.
    #[test]
    fn the_plan_of_the_lab_is_one() {
        let text = include_str!("../../../../lab/matrix/virtio.toml");
        let expanded = Plans::parse(text).unwrap().expand();
        assert!(expanded.runs.iter().all(|(_, plans)| !plans.is_empty()));
        assert!(expanded.runs.len() > 20);
        // No two of them share a file.
        let mut names: Vec<String> = expanded.runs.iter().map(|(run, _)| run.name()).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), expanded.runs.len());
    }

    #[test]
    fn nonsense_is_named() {
        for (from, to, named) in [
            ("\"on\"", "\"yes\"", "yes"),
            ("step_ms", "step", "step"),
            ("posted =", "poster =", "poster"),
        ] {
            let error = Plans::parse(&FILE.replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
        let none = "title = \"x\"\npercent = []\nstep_ms = 1\nplan = []";
        assert!(Plans::parse(none).unwrap_err().contains("[[plan]]"));
    }

    #[test]
    fn a_disk_has_no_axes_of_a_card() {
        let run = Run {
            device: Device::Blk,
            packet_bytes: 1500,
            ..Run::default()
        };
        assert_eq!(impossible(&run), Some("a disk has no such thing"));
        let run = Run {
            device: Device::Blk,
            ..Run::default()
        };
        assert_eq!(impossible(&run), None);
    }
}
