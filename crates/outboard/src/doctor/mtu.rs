//! Interfaces that are joined, or wait to be, and do not carry frames of the same size.
//!
//! A bridge drops what is larger than the MTU of the port that it would leave by, and tells nobody;
//! the firewall drops it too, and counts it as `too_big`.

use super::finding::{Finding, Verdict};
use linux::netlink::Netlink;
use linux::netlink::links::Link;
use std::collections::{BTreeMap, BTreeSet};

/// An interface of this network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    name: String,
    mtu: u32,
    /// The bridge that it is a port of.
    bridge: Option<String>,
    /// It is a tap.
    tap: bool,
    /// Somebody has it open, if it is one.
    open: bool,
}

/// All interfaces; the error is one of asking the kernel.
pub fn observe() -> Result<Vec<Interface>, String> {
    let links = Netlink::open().and_then(|mut netlink| netlink.links());
    let links = links.map_err(|error| error.to_string())?;
    let bridge = |link: &Link| {
        let is_it = |other: &&Link| Some(other.index) == link.master && other.is_bridge;
        links.iter().find(is_it).map(|bridge| bridge.name.clone())
    };
    let interfaces = links.iter().map(|link| Interface {
        name: link.name.clone(),
        mtu: link.mtu,
        bridge: bridge(link),
        tap: link.is_tap,
        open: link.has_carrier,
    });
    let mut interfaces: Vec<_> = interfaces.collect();
    interfaces.sort_by(|a: &Interface, b| a.name.cmp(&b.name));
    Ok(interfaces)
}

/// Whether those that belong together agree.
pub fn judge(interfaces: &Result<Vec<Interface>, String>) -> Finding {
    let finding = |verdict, state, evidence: String| {
        Finding::new("MTU", verdict, state, evidence)
            .good_for("large frames between joined interfaces, which are dropped otherwise")
    };
    let interfaces = match interfaces {
        Ok(interfaces) => interfaces,
        Err(why) => return finding(Verdict::Warn, "unknown", why.clone()),
    };
    let mut joined: BTreeMap<String, Vec<&Interface>> = BTreeMap::new();
    for interface in interfaces {
        match &interface.bridge {
            Some(bridge) => joined.entry(format!("bridge {bridge}")).or_default(),
            None if !interface.tap => continue,
            None if interface.open => joined.entry("taps in use".to_owned()).or_default(),
            None => joined.entry("free taps".to_owned()).or_default(),
        }
        .push(interface);
    }
    let odd: Vec<_> = joined
        .iter()
        .filter(|(_, members)| differ(members))
        .collect();
    if odd.is_empty() {
        let evidence = match joined.is_empty() {
            true => "no bridges and no taps that could differ".to_owned(),
            false => {
                let names: Vec<&str> = joined.keys().map(String::as_str).collect();
                format!("the same in each of: {}", names.join(", "))
            }
        };
        return finding(Verdict::Ok, "same", evidence);
    }
    let describe = |(name, members): &(&String, &Vec<&Interface>)| {
        let members = members.iter().map(|i| format!("{} {}", i.name, i.mtu));
        format!("{name}: {}", members.collect::<Vec<_>>().join(", "))
    };
    let evidence: Vec<String> = odd.iter().map(describe).collect();
    let commands: Vec<String> = odd.iter().flat_map(|(_, members)| lower(members)).collect();
    finding(Verdict::Warn, "differs", evidence.join("; ")).mend(commands.join(" && "))
}

fn differ(members: &[&Interface]) -> bool {
    let sizes: BTreeSet<u32> = members.iter().map(|interface| interface.mtu).collect();
    sizes.len() > 1
}

/// Commands that make all as small as the smallest, which every interface can be.
fn lower(members: &[&Interface]) -> Vec<String> {
    let least = members
        .iter()
        .map(|interface| interface.mtu)
        .min()
        .unwrap_or(0);
    let larger = members.iter().filter(|interface| interface.mtu > least);
    larger
        .map(|interface| format!("sudo ip link set dev {} mtu {least}", interface.name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, mtu: u32, bridge: Option<&str>, tap: bool) -> Interface {
        Interface {
            name: name.into(),
            mtu,
            bridge: bridge.map(str::to_owned),
            tap,
            open: false,
        }
    }

    fn judge(interfaces: &[Interface]) -> Finding {
        super::judge(&Ok(interfaces.to_vec()))
    }

    #[test]
    fn a_bridge_is_as_wide_as_its_narrowest_port() {
        let finding = judge(&[
            interface("br0", 1500, None, false),
            interface("eth0", 9000, Some("br0"), false),
            interface("tap0", 1500, Some("br0"), true),
            interface("tap1", 9000, None, true),
        ]);
        assert_eq!(finding.verdict, Verdict::Warn);
        assert_eq!(finding.evidence, "bridge br0: eth0 9000, tap0 1500");
        assert_eq!(
            finding.remedy.unwrap(),
            "sudo ip link set dev eth0 mtu 1500"
        );
    }

    #[test]
    fn a_tap_that_somebody_reads_is_not_free() {
        let tap = |name, mtu, open| Interface {
            open,
            ..interface(name, mtu, None, true)
        };
        let finding = judge(&[tap("tap0", 9000, true), tap("tap1", 1500, false)]);
        assert_eq!(
            finding.evidence,
            "the same in each of: free taps, taps in use"
        );
        let finding = judge(&[tap("tap0", 9000, true), tap("tap1", 1500, true)]);
        assert_eq!(finding.evidence, "taps in use: tap0 9000, tap1 1500");
    }

    #[test]
    fn free_taps_may_be_joined_and_cards_need_not() {
        let taps = [
            interface("eth0", 9000, None, false),
            interface("tap0", 1500, None, true),
            interface("tap1", 1400, None, true),
        ];
        let finding = judge(&taps);
        assert_eq!(finding.evidence, "free taps: tap0 1500, tap1 1400");
        assert_eq!(
            finding.remedy.unwrap(),
            "sudo ip link set dev tap0 mtu 1400"
        );
        let finding = judge(&taps[..2]);
        assert_eq!((finding.verdict, finding.state), (Verdict::Ok, "same"));
        assert_eq!(judge(&[]).verdict, Verdict::Ok);
        assert_eq!(super::judge(&Err("no socket".into())).state, "unknown");
    }
}
