//! What is said when all is attached and the guest is about to begin.

use super::{Resources, Start};
use crate::attach::Attached;
use crate::options::{Block, Net, NetSource, Options};
use crate::style::{Style, Tone};
use abi::extension::{device_flag, feature};
use abi::manifest::Device;
use image::Image;
use std::io::Write;

/// Says which devices the guest has, on standard error and at once; what may go wrong with them in
/// any case, and all else if `options` ask for it.
pub fn announce(start: &Start<'_>, resources: &Resources) {
    let Start { options, image, .. } = *start;
    let style = Style::of(&std::io::stderr());
    let ports = ports(image, options, &resources.attachments.devices);
    let mut text = String::new();
    let mut say = |line: &str| {
        text += "outboard-tender: ";
        text += line;
        text.push('\n');
    };
    if options.announce {
        let lines = resources.attachments.devices.iter();
        let lines = lines.filter_map(|device| described(image, options, device));
        let nics = options.pci.iter();
        let nics = nics.map(|nic| format!("{}: {}", nic.name, escaped(&nic.source.to_string())));
        let links = options
            .links
            .iter()
            .map(|link| format!("{}: a link", link.name));
        let states = options.states.iter();
        let states = states.map(|state| format!("{}: a state", state.name));
        let lines: Vec<_> = lines.chain(nics).chain(links).chain(states).collect();
        lines.iter().for_each(|line| say(line));
        if !lines.is_empty() {
            let ready = style.paint(Tone::Good, "ready");
            say(&format!("{ready}: {}", summary(options, image)));
        }
    }
    if let Some(warning) = unequal(&ports) {
        let word = style.paint(Tone::Warning, "warning");
        say(&format!("{word}: {warning}"));
    }
    // Who closed standard error does not want to know.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// A network of the guest's: its name, its interface if it is one of the host's, its MTU in bytes.
type Port<'a> = (&'a str, Option<&'a str>, u16);

fn ports<'a>(image: &'a Image, options: &'a Options, devices: &[Attached]) -> Vec<Port<'a>> {
    let port = |device: &Attached| match device.device {
        Device::Net { mtu, .. } => {
            let name = image.entries.get(device.index)?.name()?;
            Some((name, interface(net(options, name)?), mtu))
        }
        _ => None,
    };
    devices.iter().filter_map(port).collect()
}

fn net<'a>(options: &'a Options, name: &str) -> Option<&'a Net> {
    options.nets.iter().find(|net| net.name == name)
}

fn interface(net: &Net) -> Option<&str> {
    match &net.source {
        NetSource::Tap(name) | NetSource::Macvtap(name) => Some(name),
        NetSource::Descriptor(_) => None,
    }
}

/// One device in words.
fn described(image: &Image, options: &Options, device: &Attached) -> Option<String> {
    let name = image.entries.get(device.index)?.name()?;
    match device.device {
        Device::Net { mac, mtu } => {
            let source = match &net(options, name)?.source {
                NetSource::Tap(name) => name.clone(),
                NetSource::Macvtap(parent) => format!("macvtap over {parent}"),
                NetSource::Descriptor(number) => format!("descriptor {number}"),
            };
            let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
            let has = |flag| device.flags & flag != 0;
            let offloads = if has(device_flag::UDP_SEGMENTATION) {
                "checksum, TCP and UDP offloads"
            } else if has(device_flag::VIRTIO_NET_HEADER) {
                "checksum and TCP offloads"
            } else {
                "no offloads"
            };
            let source = escaped(&source);
            Some(format!("{name}: {source}, {mac}, MTU {mtu}, {offloads}"))
        }
        Device::Sockets => Some(format!(
            "{name}: the host's sockets, in this network namespace"
        )),
        Device::Block { .. } => {
            let Block { path, .. } = options.blocks.iter().find(|block| block.name == name)?;
            Some(format!("{name}: {}", escaped(&path.to_string_lossy())))
        }
    }
}

/// Image, host, memory and rules.
fn summary(options: &Options, image: &Image) -> String {
    let file = options.image.file_name().unwrap_or_default();
    let file = escaped(&file.to_string_lossy());
    let host = crate::load::host(image, options.host).map_or("", |host| host.name());
    let mib = options.memory_bytes >> 20;
    let features = image.extension.map_or(0, |extension| extension.features);
    let rules = match &options.rules {
        _ if features & feature::RULES == 0 => String::new(),
        Some(path) => format!(", rules of {}", escaped(&path.to_string_lossy())),
        None if options.has_rules_as_arguments() => ", the rules in its arguments".to_owned(),
        None => ", the rules that are built in".to_owned(),
    };
    format!("{file} on {host}, {mib} MiB of memory{rules}")
}

/// What to say if the ports do not carry frames of the same size.
fn unequal(ports: &[Port<'_>]) -> Option<String> {
    let least = ports.iter().map(|(_, _, mtu)| *mtu).min()?;
    let (_, large, _) = ports.iter().find(|(_, _, mtu)| *mtu > least)?;
    let each = ports.iter().map(|(name, _, mtu)| format!("{name} {mtu}"));
    let each: Vec<_> = each.collect();
    let remedy = large.map(|interface| {
        let interface = escaped(interface);
        format!("; type before the start: sudo ip link set dev {interface} mtu {least}")
    });
    Some(format!(
        "the ports have different MTUs ({}), and larger frames are dropped and counted as \
         too_big{}",
        each.join(", "),
        remedy.unwrap_or_default()
    ))
}

fn escaped(text: &str) -> String {
    text.escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_different_size_are_told() {
        assert_eq!(unequal(&[]), None);
        let same = [("private", Some("tap0"), 1500), ("public", None, 1500)];
        assert_eq!(unequal(&same), None);
        let unequal = unequal(&[("private", Some("tap0"), 9000), ("public", None, 1500)]);
        assert_eq!(
            unequal.unwrap(),
            "the ports have different MTUs (private 9000, public 1500), and larger frames are \
             dropped and counted as too_big; type before the start: sudo ip link set dev tap0 mtu \
             1500"
        );
    }
}
