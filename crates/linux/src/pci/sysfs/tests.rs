use super::*;
use std::os::unix::fs::symlink;

const CARD: &str = "0000:01:00.0";

/// A tree of files of this test's own, gone when it is dropped.
struct Fixture(PathBuf);

impl Fixture {
    fn new(name: &str) -> Self {
        let name = format!("outboard-linux-{name}-{}", std::process::id());
        let root = std::env::temp_dir().join(name);
        fs::create_dir_all(&root).unwrap();
        Self(root)
    }

    /// One with a card in group 7, which has this name; `driver` has the card.
    fn with_card(name: &str, group_name: &str, driver: &str) -> Self {
        let fixture = Self::new(name);
        let group = fixture.0.join(GROUPS).join("7");
        let device = fixture.tree().folder(address(CARD));
        fs::create_dir_all(group.join("devices")).unwrap();
        fs::create_dir_all(&device).unwrap();
        for (file, text) in [
            ("vendor", "0x8086"),
            ("device", "0x10fb"),
            ("class", "0x020000"),
        ] {
            fs::write(device.join(file), format!("{text}\n")).unwrap();
        }
        fs::write(group.join("name"), format!("{group_name}\n")).unwrap();
        symlink(&group, device.join("iommu_group")).unwrap();
        symlink(&device, group.join("devices").join(CARD)).unwrap();
        fixture.driven_by(driver);
        fixture
    }

    fn driven_by(&self, driver: &str) {
        let link = self.tree().folder(address(CARD)).join("driver");
        let driver = self.tree().driver_folder(driver);
        fs::create_dir_all(&driver).unwrap();
        let _ = fs::remove_file(&link);
        symlink(&driver, link).unwrap();
    }

    fn tree(&self) -> Tree {
        Tree::at(self.0.clone())
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn address(text: &str) -> Address {
    text.parse().unwrap()
}

#[test]
fn a_device_is_what_its_files_say() {
    let fixture = Fixture::with_card("device", "", "ixgbe");
    let device = fixture.tree().device(address(CARD)).unwrap();
    assert_eq!(device.identity().to_string(), "8086:10fb of class 020000");
    assert_eq!(
        (device.driver.as_deref(), device.group),
        (Some("ixgbe"), Some(7))
    );
    assert_eq!(fixture.tree().device(address("0000:02:00.0")), None);
    for text in ["", "8086", "0x", "0x10000", "0xyz"] {
        let vendor = fixture.tree().folder(address(CARD)).join("vendor");
        fs::write(vendor, text).unwrap();
        assert_eq!(fixture.tree().device(address(CARD)), None, "{text:?}");
    }
}

/// `enable_unsafe_noiommu_mode` makes groups that keep nothing apart.
#[test]
fn a_group_without_an_iommu_is_none() {
    for (name, group_name, guarded) in [("iommu", "", Some(7)), ("noiommu", "vfio-noiommu", None)] {
        let fixture = Fixture::with_card(name, group_name, "vfio-pci");
        let tree = fixture.tree();
        let (device, machine) = (tree.device(address(CARD)).unwrap(), tree.machine());
        let group = tree.guarded_group(&device).map(|(number, _)| number);
        assert_eq!(group, guarded, "{name}");
        let group = machine.guarded_group(&device).map(|(number, _)| number);
        assert_eq!(group, guarded, "{name}");
        fs::remove_file(tree.folder(address(CARD)).join("iommu_group")).unwrap();
        let device = tree.device(address(CARD)).unwrap();
        assert_eq!((device.group, tree.guarded_group(&device)), (None, None));
    }
}

/// A variant of the driver knows more about its device, and hands it out by the same calls.
#[test]
fn variants_of_vfio_hand_devices_out_too() {
    for driver in ["vfio-pci", "mlx5_vfio_pci", "hisi-acc-vfio-pci"] {
        assert!(is_vfio(driver), "{driver}");
    }
    for driver in ["vfio", "vfio-pci-not", "mlx5_core", ""] {
        assert!(!is_vfio(driver), "{driver}");
    }
}

#[test]
fn neighbours_are_those_with_a_driver_of_the_hosts() {
    let fixture = Fixture::with_card("neighbours", "", "igb");
    let devices = fixture.0.join(GROUPS).join("7/devices");
    // A device without a driver.
    fs::create_dir(devices.join("0000:01:00.1")).unwrap();
    let group = fixture.tree().group(7);
    assert_eq!(group.members.len(), 2);
    let live = group.live(&[]);
    assert_eq!(live.len(), 1);
    assert_eq!(live[0].to_string(), "0000:01:00.0 (igb)");
    assert!(group.live(&[address(CARD)]).is_empty());
    for driver in ["vfio-pci", "pcieport", "pci-stub"] {
        fixture.driven_by(driver);
        assert!(fixture.tree().group(7).live(&[]).is_empty(), "{driver}");
    }
}

#[test]
fn no_files_are_no_devices() {
    let machine = Tree::at("/nowhere".into()).machine();
    assert!(machine.devices.is_empty() && machine.groups.is_empty() && !machine.vfio);
    assert!(Tree::at("/nowhere".into()).iommus().is_empty());
}
