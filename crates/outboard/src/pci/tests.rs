//! Decisions on trees of files as the kernel shows them.

use super::routes::{Route, carriers};
use super::state::{Former, Store};
use super::verdict::{Refusal, Verdict, judge};
use super::{Address, Error, bind, list, unbind};
use linux::netlink::routes::DefaultRoute;
use linux::pci::sysfs::{Group, Machine, Member, Tree};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::LazyLock;

/// Two network cards in groups of their own, a third that shares one with a bridge and a sound
/// card, and a disk.
const DEVICES: [(&str, &str, &str, &str, u32); 6] = [
    ("0000:00:1f.2", "0x010601", "ahci", "block/sda", 1),
    ("0000:01:00.0", "0x020000", "e1000e", "net/eth0", 2),
    ("0000:02:00.0", "0x020000", "igc", "net/eth1", 3),
    ("0000:03:00.0", "0x060400", "pcieport", "", 4),
    ("0000:04:00.0", "0x020000", "e1000e", "net/eth2", 4),
    ("0000:04:01.0", "0x040300", "snd", "", 4),
];

/// A tree of files, removed when dropped.
struct Fixture(PathBuf);

impl Fixture {
    fn new(test: &str) -> Self {
        let name = format!("outboard-sysfs-{}-{test}", std::process::id());
        let fixture = Self(std::env::temp_dir().join(name));
        for (address, class, driver, child, group) in DEVICES {
            fixture.add(address, class, driver, child, group);
        }
        fixture.folder("sys/bus/pci/drivers/vfio-pci");
        // A bridge of the kernel's, of which eth0 is a port.
        fixture.folder("sys/devices/virtual/net/br0");
        fixture.link("sys/class/net/br0", "sys/devices/virtual/net/br0");
        fixture.link(
            "sys/devices/virtual/net/br0/lower_eth0",
            "sys/class/net/eth0",
        );
        fixture.file(
            "proc/self/mountinfo",
            "22 1 8:0 / / rw - ext4 /dev/root rw\n",
        );
        fixture
    }

    fn add(&self, address: &str, class: &str, driver: &str, child: &str, group: u32) {
        let real = format!("sys/devices/pci0000:00/{address}");
        self.file(&format!("{real}/class"), class);
        self.file(&format!("{real}/vendor"), "0x8086\n");
        self.file(&format!("{real}/device"), "0x10d3\n");
        self.file(&format!("{real}/driver_override"), "(null)\n");
        self.link(&format!("sys/bus/pci/devices/{address}"), &real);
        let driver = format!("sys/bus/pci/drivers/{driver}");
        self.folder(&driver);
        self.link(&format!("{real}/driver"), &driver);
        let group = format!("sys/kernel/iommu_groups/{group}");
        self.link(&format!("{group}/devices/{address}"), &real);
        self.link(&format!("{real}/iommu_group"), &group);
        if let Some((kind, name)) = child.split_once('/') {
            // Some have a bus of their own in between.
            let folder = format!("{real}/virtio0/{kind}/{name}");
            self.folder(&folder);
            self.file(&format!("{folder}/dev"), "8:0\n");
            self.link(&format!("sys/class/{kind}/{name}"), &folder);
        }
    }

    fn folder(&self, path: &str) {
        fs::create_dir_all(self.0.join(path)).unwrap();
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn link(&self, path: &str, target: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&path);
        symlink(self.0.join(target), path).unwrap();
    }

    fn driven_by(&self, address: &str, driver: &str) {
        let real = format!("sys/devices/pci0000:00/{address}");
        self.link(
            &format!("{real}/driver"),
            &format!("sys/bus/pci/drivers/{driver}"),
        );
    }

    fn tree(&self) -> Tree {
        Tree::at(self.0.clone())
    }

    fn judge(&self, name: &str, together: &[&str], routes: &[Route]) -> Verdict {
        let (tree, machine) = (self.tree(), self.tree().machine());
        let together = Vec::from_iter(together.iter().map(|name| address(name)));
        let carriers = carriers(routes, |interface| tree.lower(interface));
        judge(
            &machine.devices[&address(name)],
            &together,
            &machine,
            &carriers,
        )
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

fn default_route(interface: &str) -> Route {
    Route {
        interface: interface.into(),
        ipv6: false,
        table: DefaultRoute::MAIN,
    }
}

fn refusal(verdict: Verdict) -> Refusal {
    match verdict {
        Verdict::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_machine_is_read_off_its_files() {
    let fixture = Fixture::new("read");
    let machine = fixture.tree().machine();
    assert!(machine.vfio);
    assert_eq!(machine.devices.len(), DEVICES.len());
    let card = &machine.devices[&address("0000:01:00.0")];
    assert_eq!(
        (card.vendor, card.device, card.group),
        (0x8086, 0x10d3, Some(2))
    );
    assert_eq!(card.driver.as_deref(), Some("e1000e"));
    assert_eq!(card.driver_override, None);
    assert!(card.interfaces.contains("eth0") && card.disks.is_empty());
    let disk = &machine.devices[&address("0000:00:1f.2")];
    assert!(disk.disks.contains("sda") && disk.interfaces.is_empty());
    assert_eq!(machine.groups[&4].members.len(), 3);
}

#[test]
fn no_files_are_no_devices() {
    let machine = Tree::at("/nowhere".into()).machine();
    assert!(machine.devices.is_empty() && machine.groups.is_empty() && !machine.vfio);
}

#[test]
fn a_card_of_its_own_group_can_be_bound_and_then_is_ready() {
    let fixture = Fixture::new("ready");
    assert_eq!(fixture.judge("0000:02:00.0", &[], &[]), Verdict::BindNeeded);
    for driver in ["vfio-pci", "mlx5_vfio_pci"] {
        fixture.driven_by("0000:02:00.0", driver);
        assert_eq!(fixture.judge("0000:02:00.0", &[], &[]), Verdict::Ready);
    }
}

#[test]
fn what_carries_the_default_route_stays() {
    let fixture = Fixture::new("route");
    let direct = refusal(fixture.judge("0000:02:00.0", &[], &[default_route("eth1")]));
    assert_eq!(direct.to_string(), "eth1 carries the default route of IPv4");
    let below = [default_route("br0")];
    let bridged = refusal(fixture.judge("0000:01:00.0", &[], &below));
    assert_eq!(
        bridged.to_string(),
        "eth0 carries the default route of IPv4, below br0"
    );
    let remedy = bridged.remedy(address("0000:01:00.0")).unwrap();
    assert_eq!(remedy, "sudo ip route del default dev br0");
    assert_eq!(
        fixture.judge("0000:02:00.0", &[], &below),
        Verdict::BindNeeded
    );
}

#[test]
fn live_neighbours_go_together_or_not_at_all() {
    let fixture = Fixture::new("neighbours");
    let alone = refusal(fixture.judge("0000:04:00.0", &[], &[]));
    assert_eq!(
        alone.to_string(),
        "IOMMU group 4 is also that of 0000:04:01.0 (snd)"
    );
    assert_eq!(
        alone.remedy(address("0000:04:00.0")).unwrap(),
        "sudo $(command -v outboard) pci bind 0000:04:00.0 0000:04:01.0"
    );
    let both = ["0000:04:00.0", "0000:04:01.0"];
    assert_eq!(fixture.judge(both[0], &both, &[]), Verdict::BindNeeded);
    // Bound, and then somebody gave the neighbour back.
    fixture.driven_by(both[0], "vfio-pci");
    assert!(matches!(
        fixture.judge(both[0], &[], &[]),
        Verdict::Refused(Refusal::LiveNeighbours { .. })
    ));
    fixture.driven_by(both[1], "pci-stub");
    assert_eq!(fixture.judge(both[0], &[], &[]), Verdict::Ready);
}

#[test]
fn what_the_host_needs_stays() {
    let fixture = Fixture::new("needs");
    assert_eq!(
        fixture.judge("0000:03:00.0", &[], &[]),
        Verdict::Refused(Refusal::Bridge)
    );
    let disk = refusal(fixture.judge("0000:00:1f.2", &[], &[]));
    assert_eq!(disk.to_string(), "its disk is in use: sda");
    assert_eq!(
        disk.remedy(address("0000:00:1f.2")).unwrap(),
        "sudo umount /dev/sda"
    );
    fixture.file("proc/self/mountinfo", "");
    assert_eq!(fixture.judge("0000:00:1f.2", &[], &[]), Verdict::BindNeeded);
    fixture.file("sys/class/block/sda/holders/dm-0", "");
    assert!(matches!(
        refusal(fixture.judge("0000:00:1f.2", &[], &[])),
        Refusal::Disks(_)
    ));
}

#[test]
fn without_iommu_or_driver_nothing_is_handed_out() {
    let fixture = Fixture::new("iommu");
    fs::remove_dir(fixture.0.join("sys/bus/pci/drivers/vfio-pci")).unwrap();
    let refused = refusal(fixture.judge("0000:02:00.0", &[], &[]));
    assert_eq!(refused, Refusal::NoVfio);
    let remedy = refused.remedy(address("0000:02:00.0")).unwrap();
    assert_eq!(remedy, "sudo modprobe vfio-pci");
    // What `enable_unsafe_noiommu_mode` makes is a group by name only.
    fixture.file("sys/kernel/iommu_groups/3/name", "vfio-noiommu\n");
    fixture.driven_by("0000:02:00.0", "vfio-pci");
    let refused = refusal(fixture.judge("0000:02:00.0", &[], &[]));
    assert_eq!(refused, Refusal::NoIommu);
    fs::remove_file(
        fixture
            .0
            .join("sys/bus/pci/devices/0000:01:00.0/iommu_group"),
    )
    .unwrap();
    let refused = refusal(fixture.judge("0000:01:00.0", &[], &[]));
    assert_eq!(refused, Refusal::NoIommu);
}

#[test]
fn the_list_has_network_cards_first_and_a_command_for_each() {
    let fixture = Fixture::new("list");
    let machine = fixture.tree().machine();
    let routes = carriers(&[default_route("br0")], |name| fixture.tree().lower(name));
    let cards = list::render(&list::rows(&machine, &routes, false));
    assert_eq!(cards.lines().count(), 4, "{cards}");
    let line = |text: &str, address| {
        let mut lines = text.lines();
        lines
            .find(|line| line.starts_with(address))
            .unwrap()
            .to_owned()
    };
    let carrier = line(&cards, "0000:01:00.0");
    assert!(carrier.contains("eth0 (default route)") && carrier.contains("refused"));
    let free = line(&cards, "0000:02:00.0");
    assert!(free.contains("8086:10d3  igc"), "{free}");
    assert!(
        free.ends_with("bind needed; type: sudo $(command -v outboard) pci bind 0000:02:00.0"),
        "{free}"
    );
    assert!(line(&cards, "0000:04:00.0").contains("0000:04:01.0 (snd)"));
    let all = list::render(&list::rows(&machine, &routes, true));
    let addresses: Vec<_> = all.lines().skip(1).map(|line| &line[..12]).collect();
    let expected = [
        "0000:01:00.0",
        "0000:02:00.0",
        "0000:04:00.0",
        "0000:00:1f.2",
        "0000:03:00.0",
        "0000:04:01.0",
    ];
    assert_eq!(addresses, expected);
    assert!(list::render(&[]).contains("outboard pci list --all"));
}

#[test]
fn every_error_is_one_line_that_says_what_to_type() {
    let card = address("0000:01:00.0");
    for (error, command) in [
        (Error::Unknown("eth9".into()), "outboard pci list --all"),
        (
            Error::Root("bind", vec!["eth0".into(), "eth1".into()]),
            "sudo $(command -v outboard) pci bind eth0 eth1",
        ),
        (Error::Refused(card, Refusal::NoIommu), "outboard doctor"),
        (Error::NotTaken(card), "sudo dmesg | tail"),
        (
            Error::NotReturned(card, "igc".into()),
            "sudo $(command -v outboard) pci unbind 0000:01:00.0",
        ),
        (
            Error::InUse(card, "/dev/vfio/7".into()),
            "sudo fuser -v /dev/vfio/7",
        ),
        (Error::OfRun(card, 7), "ps -o pid,lstart,cmd -p 7"),
        (Error::User("nobdy".into()), "getent passwd"),
    ] {
        let line = error.to_string();
        assert!(line.contains(command) && !line.contains('\n'), "{line}");
    }
}

#[test]
fn what_is_not_taken_needs_no_giving_back() {
    let fixture = Fixture::new("back");
    let store = Store::at(fixture.0.join("run"));
    let driver = unbind::give_back(&fixture.tree(), &store, address("0000:01:00.0"), 1).unwrap();
    assert_eq!(driver.as_deref(), Some("e1000e"));
    let gone = unbind::give_back(&fixture.tree(), &store, address("0000:09:00.0"), 1).unwrap();
    assert_eq!(gone, None);
}

/// The process id of a guard.
const GUARD: i32 = 4711;

/// What a run whose guard was killed has left: VFIO has the card, for nobody.
fn left_behind(fixture: &Fixture, store: &Store, card: &str) -> Former {
    fixture.driven_by(card, "vfio-pci");
    let former = Former {
        driver: Some("e1000e".into()),
        driver_override: None,
        interfaces: vec!["eth0".into()],
        guard: Some(GUARD),
    };
    drop(store.lock().unwrap());
    store.write(address(card), &former).unwrap();
    former
}

#[test]
fn what_a_run_left_behind_is_the_next_ones_or_kept() {
    let fixture = Fixture::new("left");
    let store = Store::at(fixture.0.join("run"));
    let card = "0000:01:00.0";
    let former = left_behind(&fixture, &store, card);
    let take = |guard| {
        let taken = bind::take_beside(
            &fixture.tree(),
            &store,
            &[address(card); 2],
            guard,
            &BTreeMap::new(),
        );
        let taken = taken.unwrap().into_iter();
        Vec::from_iter(taken.map(|device| device.address))
    };
    assert_eq!(take(Some(7)), [address(card)], "for this run to give back");
    let adopted = Former {
        guard: Some(7),
        ..former.clone()
    };
    assert_eq!(store.read(address(card)).unwrap(), Some(adopted));
    assert_eq!(take(None), []);
    let kept = Former {
        guard: None,
        ..former
    };
    assert_eq!(store.read(address(card)).unwrap(), Some(kept));
    assert_eq!(take(Some(7)), [], "no run's any more");
}

/// A guard that lives gives its devices back itself, and so to nobody else's run.
#[test]
fn what_a_living_guard_has_is_no_other_runs() {
    let fixture = Fixture::new("living");
    let store = Store::at(fixture.0.join("run"));
    let card = "0000:01:00.0";
    let former = left_behind(&fixture, &store, card);
    let take = |guard| {
        let (tree, none) = (fixture.tree(), BTreeMap::new());
        bind::take_beside(&tree, &store, &[address(card)], guard, &none)
    };
    fixture.file(&format!("proc/{GUARD}/comm"), "outboard-guard\n");
    let refused = take(Some(7)).unwrap_err();
    assert!(matches!(refused, Error::OfRun(_, GUARD)), "{refused}");
    assert_eq!(store.read(address(card)).unwrap(), Some(former));
    // The number has become another process's.
    fixture.file(&format!("proc/{GUARD}/comm"), "sh\n");
    assert_eq!(take(Some(7)).unwrap().len(), 1);
}

/// One of two cannot be bound: the other one remains what it was, a run's, in whatever order they
/// are named.
#[test]
fn what_is_not_bound_together_changes_nothing() {
    let fixture = Fixture::new("together");
    let store = Store::at(fixture.0.join("run"));
    let left = "0000:01:00.0";
    let former = left_behind(&fixture, &store, left);
    // The kernel does not do as it is told here, and a bridge is refused.
    for other in ["0000:02:00.0", "0000:03:00.0"] {
        for names in [[left, other], [other, left]] {
            for guard in [None, Some(7)] {
                let taken = bind::take_beside(
                    &fixture.tree(),
                    &store,
                    &names.map(address),
                    guard,
                    &BTreeMap::new(),
                );
                assert!(taken.is_err(), "{taken:?}");
                assert_eq!(store.read(address(left)).unwrap(), Some(former.clone()));
                assert_eq!(store.read(address(other)).unwrap(), None);
            }
        }
    }
}

/// That of the files, read once.
static MACHINE: LazyLock<Machine> = LazyLock::new(|| Fixture::new("property").tree().machine());

proptest! {
    /// Whatever the drivers of a group are: a device is handed out only if none of the others has
    /// a driver that is neither VFIO's nor harmless nor taken with it.
    #[test]
    fn no_group_with_a_live_neighbour_is_handed_out(
        drivers in proptest::collection::vec(0..5usize, 1..6),
        together in proptest::collection::vec(any::<bool>(), 6),
    ) {
        const DRIVERS: [Option<&str>; 5] =
            [None, Some("e1000e"), Some("vfio-pci"), Some("pcieport"), Some("pci-stub")];
        let mut machine = MACHINE.clone();
        let slot = |number: usize| format!("0000:0{number}:00.0");
        let mut members = vec![Member { name: "0000:02:00.0".into(), driver: Some("igc".into()) }];
        let others = (3..).zip(&drivers);
        members.extend(others.clone().map(|(number, driver)| Member {
            name: slot(number),
            driver: DRIVERS[*driver].map(str::to_owned),
        }));
        machine.groups.insert(3, Group { members, ..Group::default() });
        let with = (3..).zip(&together).filter(|(_, with)| **with);
        let with = Vec::from_iter(with.map(|(number, _)| address(&slot(number))));
        let device = &machine.devices[&address("0000:02:00.0")];
        let verdict = judge(device, &with, &machine, &BTreeMap::new());
        let mut others = others.filter(|(number, _)| !with.contains(&address(&slot(*number))));
        let live = others.any(|(_, driver)| *driver == 1);
        prop_assert_eq!(verdict == Verdict::BindNeeded, !live);
    }
}
