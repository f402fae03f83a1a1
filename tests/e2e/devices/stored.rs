//! Disks of the lab that Linux's own driver filled with file systems of stock programs, and that an
//! image drives then: all files come out as they went in.

use super::vfio::{AHCI, NVME, USB, VIRTIO_DISK, bind, until, with_ids};
use crate::disks::made::{self, Tree};
use crate::harness::build::Images;
use crate::harness::process::run;
use crate::harness::programs;
use crate::harness::temporary::TemporaryFolder;
use crate::services::{http, nbd, tender};
use libtest_mimic::{Completion, Failed, Trial};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

const BLOCKS: &str = "/sys/block";
const HOSTS: [&str; 2] = ["spt", "hvt"];
/// What is read from each disk, by its name in [`made::KINDS`].
const KINDS: [&str; 3] = ["ext4", "fat16", "rock ridge"];
/// How Linux mounts FAT: names of 8 and 3 characters are in the code page that mkfs.vfat takes.
const VFAT: [&str; 4] = ["-t", "vfat", "-o", "codepage=437,iocharset=ascii"];

/// A disk of the machine.
struct Card {
    name: &'static str,
    ids: [&'static str; 2],
    /// How images that drive it are called, behind the appliance's name.
    variant: &'static str,
}

const CARDS: [Card; 4] = [
    Card {
        name: "NVM Express",
        ids: NVME,
        variant: "-nvme",
    },
    Card {
        name: "Serial ATA",
        ids: AHCI,
        variant: "-ahci",
    },
    Card {
        name: "virtio",
        ids: VIRTIO_DISK,
        variant: "-virtio-blk",
    },
    Card {
        name: "USB",
        ids: USB,
        variant: "-usb",
    },
];

pub fn trials(images: &'static Images) -> Vec<Trial> {
    let on_lab = (!images.are_prebuilt())
        .then_some("takes devices that only the lab has (the stage `lab` runs it)");
    let missing = on_lab.or(programs::missing(&["curl", "nbdcopy"]));
    let mut trials = Vec::new();
    for card in &CARDS {
        for host in HOSTS {
            let name = format!("stored::{} serves what Linux put there::{host}", card.name);
            trials.push(Trial::ignorable_test(name, move || match missing {
                Some(why) => Ok(Completion::ignored_with(why)),
                None => all(images, card, host).map(|()| Completion::Completed),
            }));
        }
    }
    trials
}

fn all(images: &Images, card: &Card, host: &str) -> Result<(), Failed> {
    // Devices are handed to one guest at a time.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let can_reset = |address: &String| {
        let methods = format!("/sys/bus/pci/devices/{address}/reset_method");
        Path::new(&methods).exists()
    };
    let mut found = with_ids(card.ids)?.into_iter().filter(can_reset);
    let address = found.next().ok_or("no such disk that can be reset")?;
    for kind in made::KINDS.iter().filter(|kind| KINDS.contains(&kind.name)) {
        let tree = Tree::new()?;
        let image = tree.image("whole");
        if kind.name.starts_with("fat") {
            kind.make_empty(&image)?;
            fill(&address, &image, |disk| keep(disk, &tree, &image))?;
        } else {
            if let Some(why) = programs::missing(kind.programs) {
                return Err(why.into());
            }
            kind.make(&tree.root(), &image)?;
            fill(&address, &image, |_| Ok(()))?;
        }
        let served = served(images, card, host, &address, &tree, &image);
        served.map_err(|failed| format!("{}: {failed:?}", kind.name))?;
    }
    Ok(())
}

/// Has Linux's driver write an image onto a disk, and what else is to be done with that, and takes
/// it away from Linux.
fn fill(
    address: &str,
    image: &Path,
    then: impl FnOnce(&Path) -> Result<(), Failed>,
) -> Result<(), Failed> {
    bind(address, "")?;
    // The file may be there before the disk is.
    let open = |path: PathBuf| Some((OpenOptions::new().write(true).open(&path).ok()?, path));
    let mut found = None;
    until(|| {
        found = block_device(address).and_then(open);
        found.is_some()
    })?;
    let (mut disk, path) = found.ok_or("no disk")?;
    io::copy(&mut File::open(image)?, &mut disk)?;
    disk.sync_all()?;
    drop(disk);
    then(&path)?;
    bind(address, "vfio-pci")
}

/// Has Linux's FAT keep all files on a disk, and reads what that is then into its image.
fn keep(disk: &Path, tree: &Tree, image: &Path) -> Result<(), Failed> {
    let on = TemporaryFolder::new("on")?;
    let mut mount = Command::new("mount");
    run(mount.args(VFAT).arg(disk).arg(&on.path))?.expect_status(0)?;
    let written = tree.copy_to(&on.path);
    run(Command::new("umount").arg(&on.path))?.expect_status(0)?;
    written?;
    let size = fs::metadata(image)?.len();
    io::copy(&mut File::open(disk)?.take(size), &mut File::create(image)?)?;
    Ok(())
}

/// The file of the disk at an address, once there is one.
fn block_device(address: &str) -> Option<PathBuf> {
    let mut entries = fs::read_dir(BLOCKS).ok()?.flatten();
    let of_address = |path: PathBuf| path.components().any(|part| part.as_os_str() == address);
    let entry = entries.find(|entry| fs::canonicalize(entry.path()).is_ok_and(of_address))?;
    let path = Path::new("/dev").join(entry.file_name());
    path.exists().then_some(path)
}

/// All of it, by each appliance.
fn served(
    images: &Images,
    card: &Card,
    host: &str,
    address: &str,
    tree: &Tree,
    image: &Path,
) -> Result<(), Failed> {
    let command = |name: &str| {
        let mut command = tender(images, host);
        command.arg(format!("--pci:{name}={address}"));
        command
    };
    let http = images.appliance("http", card.variant);
    http::fetched_by(command("files"), &http, tree)?;
    let mut compare = command("from");
    compare.arg("--mem=64");
    compare.arg(format!("--block:to={}", image.display()));
    compare.arg(images.appliance("files", card.variant));
    let ended = run(compare.args(["compare", "from", "to"]))?;
    let files = format!("the same: {} files of", tree.files.len());
    ended.expect_status(0)?.expect_stdout(&files)?;
    let nbd = images.appliance("nbd", card.variant);
    nbd::copied_by(command("disk"), &nbd, image)
}
