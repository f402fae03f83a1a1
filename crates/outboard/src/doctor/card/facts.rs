//! What the host knows of a card, and of itself.

use linux::pci::Address;
use linux::pci::sysfs::Tree;
use serde::Serialize;
use std::fs;
use std::path::Path;

/// Files of sysfs that say how a card is plugged in: `sysfs-bus-pci` of the kernel's ABI
/// documentation.
const ATTRIBUTES: [&str; 8] = [
    "revision",
    "subsystem_vendor",
    "subsystem_device",
    "current_link_speed",
    "current_link_width",
    "max_link_speed",
    "max_link_width",
    "numa_node",
];

/// A name, and what there is to say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// What it is about.
    pub name: &'static str,
    /// What is known of it.
    pub value: String,
}

impl Fact {
    /// Of a thing that is known.
    pub fn new(name: &'static str, value: impl Into<String>) -> Self {
        Self {
            name,
            value: value.into(),
        }
    }
}

/// Which program, on which kernel and processor.
pub fn of_host() -> Vec<Fact> {
    let kernel = read(Path::new("/proc/sys/kernel/osrelease")).unwrap_or_default();
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processors.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == "model name").then(|| value.trim().to_owned())
    });
    vec![
        Fact::new("outboard", env!("CARGO_PKG_VERSION")),
        Fact::new("kernel", format!("Linux {kernel}")),
        Fact::new("processor", model.unwrap_or_default()),
    ]
}

/// The card at this address, as the kernel sees it.
pub fn of_card(tree: &Tree, address: Address) -> Vec<Fact> {
    let mut facts = Vec::new();
    if let Some(device) = tree.device(address) {
        facts.push(Fact::new("identity", device.identity().to_string()));
        let driver = device.driver.unwrap_or_else(|| "none".to_owned());
        facts.push(Fact::new("driver", driver));
        let group = device.group.map(|group| group.to_string());
        let group = group.unwrap_or_else(|| "none".to_owned());
        facts.push(Fact::new("IOMMU group", group));
    }
    let folder = tree.folder(address);
    let known = |name| read(&folder.join(name)).map(|value| Fact::new(name, value));
    facts.extend(ATTRIBUTES.into_iter().filter_map(known));
    facts
}

fn read(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_does_not_say_is_left_out() {
        let root = std::env::temp_dir().join(format!("outboard-facts-{}", std::process::id()));
        let tree = Tree::at(root.clone());
        let address = "0000:03:00.0".parse().unwrap();
        assert!(of_card(&tree, address).is_empty());
        let folder = tree.folder(address);
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in [
            ("vendor", "0x8086\n"),
            ("device", "0x10fb\n"),
            ("class", "0x020000\n"),
            ("current_link_width", "8\n"),
            ("numa_node", "\n"),
        ] {
            fs::write(folder.join(name), text).unwrap();
        }
        let facts = of_card(&tree, address);
        fs::remove_dir_all(root).unwrap();
        let known = [
            ("identity", "8086:10fb of class 020000"),
            ("driver", "none"),
            ("IOMMU group", "none"),
            ("current_link_width", "8"),
        ];
        assert_eq!(facts, known.map(|(name, value)| Fact::new(name, value)));
    }
}
