//! Devices are taken from the host's drivers and given back: on the lab's cards.

use crate::devices::pci_guard;
use crate::devices::pci_run;
use crate::harness::build::Images;
use crate::harness::process::{Ended, run};
use libtest_mimic::{Completion, Failed, Trial};
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

const DEVICES: &str = "/sys/bus/pci/devices";
const STATES: &str = "/run/outboard-pci";
/// An ordinary user, by number: nobody's.
const NOBODY: u32 = 65534;

pub type Test = fn(&Images) -> Result<(), Failed>;

const TESTS: [(&str, Test); 8] = [
    ("a card is listed, taken and given back", there_and_back),
    ("the file of its group is given to a user", a_users),
    ("the default route keeps its card", default_route),
    ("a group is taken as a whole", whole_group),
    ("nothing is taken without vfio-pci", without_vfio),
    ("a card in use is not given back", in_use),
    ("half a state is repaired", half_states),
    ("only root takes cards", only_root),
];

pub fn trials(images: &'static Images) -> Vec<Trial> {
    let tests = TESTS
        .into_iter()
        .chain(pci_guard::TESTS)
        .chain(pci_run::TESTS);
    let missing = (!images.are_prebuilt()).then_some(
        "takes network cards from this machine, and so runs in the lab (the stage `lab` runs it)",
    );
    let trial = |(name, test): (&str, Test)| {
        Trial::ignorable_test(format!("pci::{name}"), move || match missing {
            Some(why) => Ok(Completion::ignored_with(why)),
            None => test(images).map(|()| Completion::Completed),
        })
    };
    tests.map(trial).collect()
}

/// The cards, for one test at a time; all are given back when this is dropped.
pub struct Cards<'a> {
    images: &'a Images,
    /// Alone in its group.
    pub single: String,
    /// Together in one.
    pair: [String; 2],
    _turn: MutexGuard<'a, ()>,
}

impl<'a> Cards<'a> {
    pub fn acquire(images: &'a Images) -> Result<Self, Failed> {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = list(images)?;
        let of_kind = |alone: bool| {
            let rows = rows.iter().filter(move |row| {
                let driver = row["driver"].as_str() == Some("e1000e");
                let others = row["neighbours"].as_array().into_iter().flatten();
                let cards = others.filter(|other| other["driver"] == "e1000e").count();
                driver && (cards == 0) == alone
            });
            rows.filter_map(|row| Some(row["address"].as_str()?.to_owned()))
        };
        let single = of_kind(true).next().ok_or("no card that is alone")?;
        let pair = Vec::from_iter(of_kind(false));
        Ok(Self {
            images,
            single,
            pair: pair.try_into().map_err(|_| "not two cards in one group")?,
            _turn: turn,
        })
    }

    fn pci(&self, words: &[&str]) -> Result<Ended, Failed> {
        pci(self.images, words)
    }

    pub fn succeed(&self, words: &[&str]) -> Result<Ended, Failed> {
        let ended = self.pci(words)?;
        ended.expect_status(0)?;
        Ok(ended)
    }

    /// Fails with one line that says this.
    pub fn refuse(&self, words: &[&str], says: &[&str]) -> Result<(), Failed> {
        self.pci(words)?.expect_refusal(says)
    }
}

impl Drop for Cards<'_> {
    fn drop(&mut self) {
        let [first, second] = &self.pair;
        let _ = self.pci(&["unbind", &self.single, first, second]);
    }
}

fn pci(images: &Images, words: &[&str]) -> Result<Ended, Failed> {
    run(Command::new(images.program("outboard"))
        .arg("pci")
        .args(words))
}

fn list(images: &Images) -> Result<Vec<Value>, Failed> {
    let ended = pci(images, &["list", "--json"])?;
    ended.expect_status(0)?;
    Ok(serde_json::from_str(&ended.stdout)?)
}

/// What is listed of one card.
pub fn row(images: &Images, address: &str) -> Result<Value, Failed> {
    let mut rows = list(images)?.into_iter();
    rows.find(|row| row["address"] == address)
        .ok_or_else(|| format!("{address} is not listed").into())
}

pub fn driver(address: &str) -> Option<String> {
    let link = fs::read_link(Path::new(DEVICES).join(address).join("driver")).ok()?;
    Some(link.file_name()?.to_str()?.to_owned())
}

pub fn interface(address: &str) -> Result<String, Failed> {
    let folder = Path::new(DEVICES).join(address).join("net");
    let mut entries = fs::read_dir(&folder).map_err(|error| format!("{address}: {error}"))?;
    let entry = entries.next().ok_or("no interface")??;
    Ok(entry.file_name().to_string_lossy().into_owned())
}

pub fn group_file(address: &str) -> Result<PathBuf, Failed> {
    let link = fs::read_link(Path::new(DEVICES).join(address).join("iommu_group"))?;
    let group = link.file_name().ok_or("no group")?;
    Ok(Path::new("/dev/vfio").join(group))
}

pub fn expect<T: PartialEq + std::fmt::Debug>(found: T, wanted: T) -> Result<(), Failed> {
    match found == wanted {
        true => Ok(()),
        false => Err(format!("{found:?}, not {wanted:?}").into()),
    }
}

/// Nothing is remembered of a card, and it is as it was.
pub fn expect_home(address: &str) -> Result<(), Failed> {
    expect(driver(address).as_deref(), Some("e1000e"))?;
    interface(address)?;
    let path = Path::new(DEVICES).join(address).join("driver_override");
    expect(fs::read_to_string(path)?.trim(), "(null)")?;
    let state = Path::new(STATES).join(format!("{address}.json"));
    expect(state.exists(), false)
}

pub fn ip(words: &str) -> Result<(), Failed> {
    let ended = run(Command::new("ip").args(words.split(' ')))?;
    ended.expect_status(0).map(|_| ())
}

fn there_and_back(images: &Images) -> Result<(), Failed> {
    let cards = Cards::acquire(images)?;
    let card = &cards.single;
    let name = interface(card)?;
    let listed = row(images, card)?;
    expect(listed["verdict"].as_str(), Some("bind needed"))?;
    expect(listed["interfaces"][0].as_str(), Some(name.as_str()))?;
    expect(listed["vendor"].as_str(), Some("8086"))?;
    let all = cards.succeed(&["list", "--all"])?;
    all.expect_stdout("host bridge")?.expect_stdout(card)?;

    // By the interface's name there, and, though it is gone, back.
    let node = group_file(card)?;
    let bound = cards.succeed(&["bind", &name, card])?;
    bound.expect_stdout(&node.display().to_string())?;
    expect(driver(card).as_deref(), Some("vfio-pci"))?;
    expect(node.exists(), true)?;
    expect(row(images, card)?["verdict"].as_str(), Some("ready"))?;
    cards.succeed(&["bind", card])?.expect_stdout("already")?;
    cards.succeed(&["unbind", &name])?.expect_stdout("e1000e")?;
    expect_home(card)?;
    expect(node.exists(), false)?;
    cards.succeed(&["unbind", card])?;
    expect_home(card)
}

fn a_users(images: &Images) -> Result<(), Failed> {
    let cards = Cards::acquire(images)?;
    cards.refuse(
        &["bind", "--user=nobody-at-all", &cards.single],
        &["no such user"],
    )?;
    expect_home(&cards.single)?;
    cards.succeed(&["bind", &cards.single])?;
    let node = group_file(&cards.single)?;
    expect(fs::metadata(&node)?.uid(), 0)?;
    // Who may not open it is told how to.
    let mut command = Command::new(images.program("outboard"));
    let listed = run(command.args(["pci", "list"]).uid(NOBODY).gid(NOBODY))?;
    listed.expect_stdout("sudo $(command -v outboard) pci bind --user=\"$(id -un)\"")?;
    cards.succeed(&["bind", &format!("--user={NOBODY}"), &cards.single])?;
    expect(fs::metadata(&node)?.uid(), NOBODY)
}

fn default_route(images: &Images) -> Result<(), Failed> {
    let cards = Cards::acquire(images)?;
    let card = &cards.single;
    let name = interface(card)?;
    let refused = |route: &str, removal: &str| {
        let listed = row(images, card)?;
        expect(listed["default_route"].as_bool(), Some(true))?;
        cards.refuse(
            &["bind", card],
            &["carries the default route", route, removal],
        )?;
        expect_home(card)
    };
    ip("link add name bridge0 type bridge")?;
    ip(&format!("link set {name} master bridge0"))?;
    ip("link set bridge0 up")?;
    ip("address add 192.0.2.1/24 dev bridge0")?;
    ip("route add default via 192.0.2.2 dev bridge0")?;
    let bridged = refused(
        "IPv4, below bridge0",
        "sudo ip route del default dev bridge0",
    );
    ip("link del bridge0")?;
    bridged?;
    ip(&format!("link set {name} up"))?;
    ip(&format!("-6 route add default dev {name}"))?;
    let removal = format!("sudo ip -6 route del default dev {name}");
    refused("IPv6", &removal)?;
    // What it tells to type helps.
    ip(removal.trim_start_matches("sudo ip "))?;
    cards.succeed(&["bind", card]).map(|_| ())
}

fn whole_group(images: &Images) -> Result<(), Failed> {
    let cards = Cards::acquire(images)?;
    let [first, second] = &cards.pair;
    let both = format!("sudo $(command -v outboard) pci bind {first} {second}");
    cards.refuse(&["bind", first], &["is also that of", second, &both])?;
    expect_home(first)?;
    cards.succeed(&["bind", first, second])?;
    for card in &cards.pair {
        expect(driver(card).as_deref(), Some("vfio-pci"))?;
        expect(row(images, card)?["verdict"].as_str(), Some("ready"))?;
    }
    // A port of PCIe is in the group too, with a driver that does no DMA.
    let neighbours = row(images, first)?["neighbours"].to_string();
    expect(neighbours.contains("pcieport"), true)?;
    cards.succeed(&["unbind", first, second])?;
    expect_home(first)?;
    expect_home(second)
}

fn without_vfio(images: &Images) -> Result<(), Failed> {
    let cards = Cards::acquire(images)?;
    run(Command::new("rmmod").arg("vfio_pci"))?.expect_status(0)?;
    let refused = cards.refuse(&["bind", &cards.single], &["type: sudo modprobe vfio-pci"]);
    run(Command::new("insmod").arg("/modules/vfio-pci.ko"))?.expect_status(0)?;
    refused?;
    expect_home(&cards.single)
}

fn in_use(images: &Images) -> Result<(), Failed> {
    let cards = Cards::acquire(images)?;
    cards.succeed(&["bind", &cards.single])?;
    let node = group_file(&cards.single)?;
    let opened = OpenOptions::new().read(true).write(true).open(&node)?;
    let who = format!("sudo fuser -v {}", node.display());
    cards.refuse(&["unbind", &cards.single], &["in use", &who])?;
    expect(driver(&cards.single).as_deref(), Some("vfio-pci"))?;
    drop(opened);
    cards.succeed(&["unbind", &cards.single])?;
    expect_home(&cards.single)
}

/// What a command that was killed between two steps leaves behind.
fn half_states(images: &Images) -> Result<(), Failed> {
    let cards = Cards::acquire(images)?;
    let card = cards.single.as_str();
    let folder = Path::new(DEVICES).join(card);
    let overridden = || fs::write(folder.join("driver_override"), "vfio-pci");
    let unbound = || fs::write(folder.join("driver/unbind"), card);
    let state = Path::new(STATES).join(format!("{card}.json"));
    let repaired = || {
        cards.succeed(&["unbind", card])?;
        expect_home(card)
    };
    overridden()?;
    repaired()?;
    overridden()?;
    unbound()?;
    repaired()?;
    unbound()?;
    repaired()?;
    // The file of a card that is taken is lost, or spoilt.
    for spoil in [None, Some(""), Some("[1]")] {
        cards.succeed(&["bind", card])?;
        match spoil {
            None => fs::remove_file(&state)?,
            Some(text) => fs::write(&state, text)?,
        }
        repaired()?;
    }
    // Taken again when half of it is done already.
    cards.succeed(&["bind", card])?;
    unbound()?;
    cards.succeed(&["bind", card])?;
    repaired()?;
    // Without a driver before, it has none afterwards.
    unbound()?;
    cards.succeed(&["bind", card])?;
    cards.succeed(&["unbind", card])?;
    expect(driver(card), None)?;
    repaired()
}

fn only_root(images: &Images) -> Result<(), Failed> {
    let cards = Cards::acquire(images)?;
    for command in ["bind", "unbind"] {
        let mut outboard = Command::new(images.program("outboard"));
        outboard.args(["pci", command, &cards.single]);
        let ended = run(outboard.uid(NOBODY).gid(NOBODY))?;
        ended.expect_status(1)?;
        ended.expect_stderr(&format!(
            "sudo $(command -v outboard) pci {command} {}",
            cards.single
        ))?;
    }
    expect_home(&cards.single)
}
