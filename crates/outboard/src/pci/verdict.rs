//! Whether a device can be handed to a guest, and why not. A pure function of what was found.

use super::Address;
use super::routes::Route;
use linux::pci::sysfs::{Device, Machine, Member, is_vfio};
use std::collections::BTreeMap;
use std::fmt;

/// Whether a device can be handed to a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it is.
    Ready,
    /// After `outboard pci bind`.
    BindNeeded,
    /// No.
    Refused(Refusal),
}

/// Why a device cannot be handed to a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Other devices are behind it.
    Bridge,
    /// Nothing would keep it from writing anywhere.
    NoIommu,
    /// The machine would lose its default route.
    DefaultRoute {
        /// The device's interface.
        interface: String,
        /// The route.
        route: Route,
    },
    /// The machine would lose disks that it uses.
    Disks(Vec<String>),
    /// The host drives other devices of its group.
    LiveNeighbours {
        /// The group.
        group: u32,
        /// Who they are.
        live: Vec<Member>,
        /// The devices that were to be bound.
        wanted: Vec<Address>,
    },
    /// There is no driver `vfio-pci`.
    NoVfio,
    /// This user may not open the file of its group.
    Forbidden {
        /// The group.
        group: u32,
    },
}

/// Judges a device. `together` are those that are bound with it, and so are no live neighbours;
/// `carriers` are the interfaces with a default route.
pub fn judge(
    device: &Device,
    together: &[Address],
    machine: &Machine,
    carriers: &BTreeMap<String, Route>,
) -> Verdict {
    let Some((number, group)) = machine.guarded_group(device) else {
        let refusal = match device.class.is_bridge() {
            true => Refusal::Bridge,
            false => Refusal::NoIommu,
        };
        return Verdict::Refused(refusal);
    };
    let bound = device.driver.as_deref().is_some_and(is_vfio);
    let own = (!bound).then(|| disqualified(device, carriers)).flatten();
    let wanted = Vec::from_iter(
        [device.address].into_iter().chain(
            together
                .iter()
                .copied()
                .filter(|other| *other != device.address),
        ),
    );
    let live = group.live(&wanted);
    let refusal = match own {
        Some(refusal) => Some(refusal),
        None if !live.is_empty() => Some(Refusal::LiveNeighbours {
            group: number,
            live,
            wanted,
        }),
        None if !bound && !machine.vfio => Some(Refusal::NoVfio),
        None if bound && group.forbidden => Some(Refusal::Forbidden { group: number }),
        None => None,
    };
    match refusal {
        Some(refusal) => Verdict::Refused(refusal),
        None if bound => Verdict::Ready,
        None => Verdict::BindNeeded,
    }
}

/// Why the machine cannot do without a device.
fn disqualified(device: &Device, carriers: &BTreeMap<String, Route>) -> Option<Refusal> {
    if device.class.is_bridge() {
        return Some(Refusal::Bridge);
    }
    let mut interfaces = device.interfaces.iter();
    if let Some((interface, route)) = interfaces.find_map(|name| carriers.get_key_value(name)) {
        return Some(Refusal::DefaultRoute {
            interface: interface.clone(),
            route: route.clone(),
        });
    }
    let disks = Vec::from_iter(device.disks.iter().cloned());
    (!disks.is_empty()).then_some(Refusal::Disks(disks))
}

impl Refusal {
    /// What to type so that the device `address` can be handed out, where something can be typed.
    pub fn remedy(&self, address: Address) -> Option<String> {
        match self {
            Self::Bridge => None,
            Self::NoIommu => Some("outboard doctor".into()),
            Self::DefaultRoute { route, .. } => Some(route.removal()),
            Self::Disks(disks) => {
                let disks = disks.iter().map(|disk| format!(" /dev/{disk}"));
                Some(format!("sudo umount{}", String::from_iter(disks)))
            }
            Self::LiveNeighbours { live, wanted, .. } => {
                let mut all = wanted.clone();
                for member in live {
                    all.push(member.name.parse().ok()?);
                }
                let all = all.iter().map(|address| format!(" {address}"));
                Some(format!(
                    "sudo $(command -v outboard) pci bind{}",
                    String::from_iter(all)
                ))
            }
            Self::NoVfio => Some("sudo modprobe vfio-pci".into()),
            Self::Forbidden { .. } => Some(format!(
                "sudo $(command -v outboard) pci bind --user=\"$(id -un)\" {address}"
            )),
        }
    }
}

/// Why, without a remedy.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bridge => f.write_str("a bridge stays with the host"),
            Self::NoIommu => {
                f.write_str("no IOMMU keeps it apart, so that it could read and write all memory")
            }
            Self::DefaultRoute { interface, route } => {
                let version = if route.ipv6 { "IPv6" } else { "IPv4" };
                write!(f, "{interface} carries the default route of {version}")?;
                match *interface == route.interface {
                    true => Ok(()),
                    false => write!(f, ", below {}", route.interface),
                }
            }
            Self::Disks(disks) => write!(f, "its disk is in use: {}", disks.join(", ")),
            Self::LiveNeighbours { group, live, .. } => {
                let names = Vec::from_iter(live.iter().map(Member::to_string)).join(", ");
                write!(f, "IOMMU group {group} is also that of {names}")
            }
            Self::NoVfio => f.write_str("the kernel has no driver vfio-pci yet"),
            Self::Forbidden { group } => {
                write!(f, "this user may not open /dev/vfio/{group}")
            }
        }
    }
}
