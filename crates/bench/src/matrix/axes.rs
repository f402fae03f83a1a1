//! The axes along which runs differ, and a run: one value of each.

use serde::{Deserialize, Serialize};
use std::fmt;

/// An axis with named values, the first of which is what a plan means that does not mention it.
macro_rules! axis {
    ($(#[$doc:meta])* $axis:ident: $($(#[$value_doc:meta])* $value:ident = $name:literal,)+) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $axis {
            $($(#[$value_doc])* #[serde(rename = $name)] $value,)+
        }

        impl fmt::Display for $axis {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$value => $name,)+
                })
            }
        }
    };
}

axis! {
    /// What the guest drives.
    Device:
    /// virtio's network card.
    #[default]
    Net = "virtio-net",
    /// virtio's disk.
    Blk = "virtio-blk",
    /// Intel's 82540EM.
    E1000 = "e1000",
    /// Realtek's 8139C+.
    Rtl8139 = "rtl8139",
}
axis! {
    /// Whose devices they are.
    Monitor:
    /// Ours.
    #[default]
    Vmm = "outboard-vmm",
    /// QEMU's own, with its machine `microvm`.
    Qemu = "qemu",
}
axis! {
    /// What the device is plugged into.
    Bus:
    /// virtio over memory-mapped I/O.
    #[default]
    Mmio = "mmio",
    /// PCI.
    Pci = "pci",
}
axis! {
    /// How registers are reached.
    Ioregionfd:
    /// By an exit to user space.
    #[default]
    Off = "off",
    /// By KVM's message to a thread of the monitor's.
    On = "on",
    /// By KVM's message to a process of the device's.
    Process = "process",
    /// By an exit that is passed on to a process of the device's.
    Forward = "forward",
}
axis! {
    /// Who moves frames between rings and tap.
    Vhost:
    /// The monitor.
    #[default]
    Off = "off",
    /// The kernel.
    Kernel = "kernel",
    /// Another process.
    User = "user",
}
axis! {
    /// What is behind a card.
    Interface:
    /// A tap.
    #[default]
    Tap = "tap",
    /// A tap in a bridge of the kernel's.
    Bridge = "bridge",
    /// A macvtap of one end of a cable.
    Macvtap = "macvtap",
    /// The wire of a device behind vfio-user.
    Wire = "wire",
}
axis! {
    /// Who sends frames back.
    Reflector:
    /// A program in the guest.
    #[default]
    User = "user",
    /// XDP in the guest's kernel.
    Xdp = "xdp",
}
axis! {
    /// Whose interrupts a device has.
    Vectors:
    /// Each queue has one of its own (MSI-X), or the device has but one (MMIO).
    #[default]
    Each = "each",
    /// All queues share one (MSI-X).
    Shared = "shared",
    /// The device has a pin of a level (PCI's INTx).
    Line = "line",
}
axis! {
    /// Where the I/O interrupt controller is.
    Irqchip:
    /// In the kernel.
    #[default]
    Kernel = "kernel",
    /// In the monitor: the end of a level interrupt is an exit to it.
    Split = "split",
}
axis! {
    /// What runs in the guest.
    Guest:
    /// Debian's kernel.
    #[default]
    Linux = "linux",
    /// An image of ours.
    Ours = "ours",
}

/// One value of each axis but the load, which is a ladder in each run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Run {
    /// What the guest drives.
    pub device: Device,
    /// Whose it is.
    pub monitor: Monitor,
    /// Where it is plugged in.
    pub bus: Bus,
    /// How its registers are reached.
    pub ioregionfd: Ioregionfd,
    /// Whether the guest waits for no write of a register.
    pub posted: bool,
    /// Whether the device never sleeps.
    pub busy: bool,
    /// Who moves frames.
    pub vhost: Vhost,
    /// What is behind a card.
    pub interface: Interface,
    /// Bytes of a frame, the wire's checksum included.
    pub packet_bytes: u32,
    /// Who sends frames back.
    pub reflector: Reflector,
    /// Entries of the receive ring; 0 for what the monitor has.
    pub queue_size: u32,
    /// Interrupts of the device.
    pub vectors: Vectors,
    /// Where the I/O interrupt controller is.
    pub irqchip: Irqchip,
    /// Whether driver and device tell each other when to notify (VIRTIO_F_EVENT_IDX).
    pub event_idx: bool,
    /// What runs in the guest.
    pub guest: Guest,
    /// Whether clocks of the lab count instructions.
    pub icount: bool,
    /// Processors of the lab.
    pub processors: u32,
}

impl Default for Run {
    fn default() -> Self {
        Self {
            device: Device::default(),
            monitor: Monitor::default(),
            bus: Bus::default(),
            ioregionfd: Ioregionfd::default(),
            posted: false,
            busy: false,
            vhost: Vhost::default(),
            interface: Interface::default(),
            packet_bytes: 64,
            reflector: Reflector::default(),
            queue_size: 0,
            vectors: Vectors::default(),
            irqchip: Irqchip::default(),
            event_idx: true,
            guest: Guest::default(),
            icount: true,
            processors: 1,
        }
    }
}

impl Run {
    /// Its axes by their names in a file, device, monitor and bus first.
    pub fn values(&self) -> Vec<(&'static str, String)> {
        vec![
            ("device", self.device.to_string()),
            ("monitor", self.monitor.to_string()),
            ("bus", self.bus.to_string()),
            ("ioregionfd", self.ioregionfd.to_string()),
            ("posted", self.posted.to_string()),
            ("busy", self.busy.to_string()),
            ("vhost", self.vhost.to_string()),
            ("interface", self.interface.to_string()),
            ("packet_bytes", self.packet_bytes.to_string()),
            ("reflector", self.reflector.to_string()),
            ("queue_size", self.queue_size.to_string()),
            ("vectors", self.vectors.to_string()),
            ("irqchip", self.irqchip.to_string()),
            ("event_idx", self.event_idx.to_string()),
            ("guest", self.guest.to_string()),
            ("icount", self.icount.to_string()),
            ("processors", self.processors.to_string()),
        ]
    }

    /// What tells it from other runs, as a file's name: device, monitor and bus, and whatever is
    /// not as usual.
    pub fn name(&self) -> String {
        const ALWAYS: usize = 3;
        let usual = Self::default().values();
        let mut name = String::new();
        for (number, (value, usual)) in self.values().iter().zip(&usual).enumerate() {
            if number < ALWAYS {
                name.push_str(if number == 0 { "" } else { "_" });
                name.push_str(&value.1);
            } else if value != usual {
                name.push_str(&format!("_{}={}", value.0, value.1));
            }
        }
        name
    }

    /// Whether the device moves frames.
    pub fn is_card(&self) -> bool {
        self.device != Device::Blk
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_what_is_not_as_usual() {
        let run = Run::default();
        assert_eq!(run.name(), "virtio-net_outboard-vmm_mmio");
        let run = Run {
            monitor: Monitor::Qemu,
            bus: Bus::Pci,
            queue_size: 1024,
            vectors: Vectors::Line,
            event_idx: false,
            ..run
        };
        assert_eq!(
            run.name(),
            "virtio-net_qemu_pci_queue_size=1024_vectors=line_event_idx=false"
        );
    }

    #[test]
    fn a_run_is_read_as_it_is_written() {
        let run = Run {
            ioregionfd: Ioregionfd::Process,
            ..Run::default()
        };
        let text = serde_json::to_string(&run).unwrap();
        assert_eq!(serde_json::from_str::<Run>(&text).unwrap(), run);
        assert_eq!(serde_json::from_str::<Run>("{}").unwrap(), Run::default());
    }
}
