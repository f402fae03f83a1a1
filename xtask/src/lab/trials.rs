//! The end-to-end tests of the host `hvt` and of PCI devices, brought into the lab, and the trial
//! of `outboard-vmm`.

use super::{ioregionfd, vmm};
use crate::appliances;
use crate::process::{self, target_folder};
use crate::stages::{END_TO_END, GUESTS};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A machine, and what runs there.
struct Trial {
    /// The tests, by the beginnings of their names.
    filters: &'static str,
    /// Bits of its addresses.
    address_bits: u32,
    /// What the cards are that guests drive: see [`CARDS`].
    cards: &'static str,
    /// Its devices.
    devices: &'static [&'static str],
}

impl Trial {
    /// What the machine's shell does with the program of the tests.
    fn script(&self, program: &str) -> String {
        format!(
            "{}{}export {}=/lab {}=/lab {}={} {}={}; for filter in {}; do /lab/{} --color=never \
             $filter || status=$?; done; exit ${{status:-0}}",
            LIBRARIES,
            install(),
            PREBUILT,
            PEER,
            ADDRESS_BITS,
            self.address_bits,
            CARDS,
            self.cards,
            self.filters,
            program,
        )
    }
}

const TRIALS: [Trial; 5] = [
    Trial {
        filters: "hvt:: pci:: vfio:: groups::",
        address_bits: 48,
        cards: INTEL,
        devices: &DEVICES,
    },
    // Images that drive cards: two of them, each wired to one for Linux.
    Trial {
        filters: "cards::",
        address_bits: 48,
        cards: INTEL,
        devices: &WIRED,
    },
    // The same with virtio devices for the guests, behind an IOMMU as narrow as many are.
    Trial {
        filters: "cards::",
        address_bits: 39,
        cards: VIRTIO,
        devices: &WIRED_VIRTIO,
    },
    // Disks that Linux's drivers fill, and images drive then.
    Trial {
        filters: "stored::",
        address_bits: 48,
        cards: INTEL,
        devices: &STORED,
    },
    // With no more bits than many machines have.
    Trial {
        filters: "vfio::",
        address_bits: 39,
        cards: INTEL,
        devices: &DEVICES,
    },
];
/// The cards that tests of PCI devices take: one that is alone, and two that share a group, being
/// functions of one device behind a port that cannot keep them apart.
///
/// And the devices that guests drive: two `edu` on ports of their own, by which they can be reset,
/// and one that cannot be, and one with registers in BAR 0 and memory in BAR 2. Then virtio's: a
/// disk, a source of entropy, and one that passes by the IOMMU. Then an NVM Express disk, and a
/// Serial ATA one. Last, USB disks, each behind a controller: on USB 3, on USB 2 behind a keyboard,
/// behind a hub behind a hub, and one that is taken out.
const DEVICES: [&str; 46] = [
    "--device=pcie-root-port,id=root3,chassis=3,x-speed=2_5",
    "--device=e1000e,bus=root3",
    "--device=pcie-root-port,id=root0,disable-acs=true",
    "--device=e1000e,bus=root0,addr=0.0,multifunction=on",
    "--device=e1000e,bus=root0,addr=0.1",
    "--device=pcie-root-port,id=root1,chassis=1",
    "--device=edu,bus=root1,dma_mask=0xffffffffffffffff",
    "--device=pcie-root-port,id=root2,chassis=2",
    "--device=edu,bus=root2,dma_mask=0xffffffffffffffff",
    "--device=edu",
    "--object=memory-backend-ram,id=shared,size=1M,share=on",
    "--device=pcie-root-port,id=root4,chassis=4",
    "--device=ivshmem-plain,memdev=shared,bus=root4",
    "--disk=1",
    "--device=pcie-root-port,id=root5,chassis=5",
    "--device=virtio-blk-pci,bus=root5,drive=disk,disable-legacy=on,iommu_platform=on",
    "--device=pcie-root-port,id=root6,chassis=6",
    "--device=virtio-rng-pci,bus=root6,disable-legacy=on,iommu_platform=on",
    "--device=pcie-root-port,id=root7,chassis=7",
    "--device=virtio-rng-pci,bus=root7,disable-legacy=on",
    "--disk=1",
    "--device=pcie-root-port,id=root8,chassis=8",
    "--device=nvme,bus=root8,drive=disk1,serial=outboard",
    "--disk=1",
    "--device=pcie-root-port,id=root9,chassis=9",
    "--device=ich9-ahci,id=sata,bus=root9",
    "--device=ide-hd,bus=sata.0,drive=disk2",
    "--disk=1",
    "--device=pcie-root-port,id=root10,chassis=10",
    "--device=qemu-xhci,id=usb,bus=root10",
    "--device=usb-storage,bus=usb.0,drive=disk3",
    "--disk=1",
    "--device=pcie-root-port,id=root11,chassis=11",
    "--device=qemu-xhci,id=usb1,bus=root11,p3=0",
    "--device=usb-kbd,bus=usb1.0,port=1",
    "--device=usb-storage,bus=usb1.0,port=2,drive=disk4",
    "--disk=1",
    "--device=pcie-root-port,id=root12,chassis=12",
    "--device=qemu-xhci,id=usb2,bus=root12",
    "--device=usb-hub,bus=usb2.0,port=1",
    "--device=usb-hub,bus=usb2.0,port=1.2",
    "--device=usb-storage,bus=usb2.0,port=1.2.3,drive=disk5",
    "--disk=1",
    "--device=pcie-root-port,id=root13,chassis=13",
    "--device=qemu-xhci,id=usb3,bus=root13",
    "--device=usb-storage,id=stick,bus=usb3.0,drive=disk6",
];
/// An NVM Express disk, a Serial ATA one, virtio's and a USB one, with Linux's drivers.
const STORED: [&str; 24] = [
    "--disk=24",
    "--device=pcie-root-port,id=root1,chassis=1",
    "--device=nvme,bus=root1,drive=disk,serial=outboard",
    "--disk=24",
    "--device=pcie-root-port,id=root2,chassis=2",
    "--device=ich9-ahci,id=sata,bus=root2",
    "--device=ide-hd,bus=sata.0,drive=disk1",
    "--disk=24",
    "--device=pcie-root-port,id=root3,chassis=3",
    "--device=virtio-blk-pci,bus=root3,drive=disk2,disable-legacy=on,iommu_platform=on",
    "--disk=24",
    "--device=pcie-root-port,id=root4,chassis=4",
    "--device=qemu-xhci,id=usb,bus=root4",
    "--device=usb-storage,bus=usb.0,drive=disk3",
    "--module=nvme",
    "--module=ahci",
    "--module=sd_mod",
    "--module=virtio_pci",
    "--module=virtio_blk",
    "--module=xhci_pci",
    "--module=usb_storage",
    "--module=vfat",
    "--module=nls_cp437",
    "--module=nls_ascii",
];
const WIRED: [&str; 4] = [
    "--nic=e1000e,hub",
    "--nic=e1000e,hub",
    "--nic=e1000e,hub1",
    "--nic=e1000e,hub1",
];
/// Ports of their own, by which the devices can be reset; and addresses that the IOMMU translates.
const WIRED_VIRTIO: [&str; 6] = [
    "--device=pcie-root-port,id=root5,chassis=5",
    "--device=pcie-root-port,id=root6,chassis=6",
    "--nic=virtio-net-pci,hub,bus=root5,disable-legacy=on,iommu_platform=on",
    "--nic=e1000e,hub",
    "--nic=virtio-net-pci,hub1,bus=root6,disable-legacy=on,iommu_platform=on",
    "--nic=e1000e,hub1",
];
/// Memory of the machine in MiB: all programs and images lie in it, twice while it begins.
const MEMORY_MIB: u32 = 2048;
/// More than the tests take, in seconds, on a machine that is busy with something else.
const TIMEOUT_SECONDS: u32 = 600;
/// Tells the tests where everything lies, so that they build nothing:
/// `tests/e2e/harness/build.rs`.
const PREBUILT: &str = "OUTBOARD_PREBUILT";
/// Tells them how many bits the addresses of their machine have; see `tests/e2e/devices/vfio.rs`.
const ADDRESS_BITS: &str = "OUTBOARD_ADDRESS_BITS";
/// Tells them what the cards are that guests drive: see `tests/e2e/devices/cards/mod.rs`.
const CARDS: &str = "OUTBOARD_CARDS";
const INTEL: &str = "intel";
const VIRTIO: &str = "virtio";
/// Names the folder of a built Solo5, the peer; see `tests/e2e/hosts/compatibility.rs`.
const PEER: &str = "SOLO5_DIR";
/// The programs of the host that the tests run, where they are installed:
/// `tests/e2e/harness/programs.rs`.
const PROGRAMS: [&str; 10] = [
    "curl",
    "dig",
    "iperf3",
    "mke2fs",
    "mkfs.vfat",
    "nbdcopy",
    "nc",
    "ping",
    "wrk",
    "xorriso",
];
/// Puts shared libraries, which programs of the host's need, where they are looked for.
const LIBRARIES: &str = "mkdir -p /lib; ln -s /lib /lib64; ln -s /lab/*.so* /lib; ";
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Builds what the tests need, and returns the commands that run them, each in a machine.
///
/// # Errors
/// One line that says what cannot be built.
pub fn commands(root: &Path, verbose: bool) -> Result<Vec<Command>, String> {
    let guests = root.join("tests/guests");
    let release = |folder: &Path| target_folder(folder).join(TARGET).join("release");
    let outboard = release(root).join("outboard");

    let programs = [
        "build",
        "--release",
        "-p",
        "outboard",
        "-p",
        "tender",
        "-p",
        "vmm",
    ];
    build(cargo(root).args(programs), verbose)?;
    build(&mut GUESTS.command(root), verbose)?;
    let images = appliances::provide(root, verbose)?;
    let tests = ["--no-run", "--message-format=json"];
    let messages = build(cargo(root).args(END_TO_END).args(tests), verbose)?;
    let tests = executable(&messages).ok_or("cargo names no program of the end-to-end tests")?;

    let mut files = vec![
        PathBuf::from(tests),
        outboard,
        release(root).join("outboard-tender"),
    ];
    files.extend(entries(&images)?);
    for name in names(&guests.join("src/bin"))? {
        files.push(release(&guests).join(name));
    }
    let mut programs: Vec<PathBuf> = PROGRAMS
        .iter()
        .filter_map(|name| process::find(name))
        .collect();
    if let Some((tender, tests)) = solo5()? {
        programs.push(tender);
        files.extend(tests);
    }
    files.extend(shared_libraries(&programs)?);
    files.extend(programs);
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let program = Path::new(tests).file_name().unwrap_or_default();
    let command = |trial: &Trial| {
        let mut command = Command::new(&this);
        command
            .arg("lab")
            .arg(format!("--timeout={}", TIMEOUT_SECONDS))
            .arg(format!("--memory={}", MEMORY_MIB))
            .arg(format!("--address-bits={}", trial.address_bits))
            .args(trial.devices);
        for file in &files {
            command.arg(format!("--file={}", file.display()));
        }
        command
            .arg("--")
            .arg(trial.script(&program.to_string_lossy()));
        command
    };
    // The longest begin first.
    let mut commands = monitored(root, &release(root).join("outboard-vmm"))?;
    commands.extend(TRIALS.iter().map(command));
    Ok(commands)
}

/// The trials of the monitor, those of ioregionfd where that is built: else the stage of its own
/// test says so.
fn monitored(root: &Path, program: &Path) -> Result<Vec<Command>, String> {
    let mut commands = vec![vmm::command(root, program, &[])?];
    if ioregionfd::missing(root).is_none() {
        commands.push(vmm::command(root, program, &vmm::WAYS)?);
    }
    Ok(commands)
}

/// Puts the programs of the host before those of the lab's shell that have the same names.
fn install() -> String {
    format!(
        "for program in {}; do [ ! -e /lab/$program ] || ln -sf /lab/$program /bin; done; ",
        PROGRAMS.join(" ")
    )
}

fn cargo(folder: &Path) -> Command {
    let mut command = Command::new(process::cargo());
    command.current_dir(folder);
    command
}

/// Runs a command that builds something, and returns what it printed.
fn build(command: &mut Command, verbose: bool) -> Result<String, String> {
    let finished = process::capture(command, verbose)?;
    match finished.status {
        0 => Ok(finished.output),
        _ => Err(format!("{:?} failed:\n{}", command, finished.output)),
    }
}

/// The one program that cargo says it has built, or had.
fn executable(messages: &str) -> Option<&str> {
    const KEY: &str = "\"executable\":\"";
    messages
        .lines()
        .find_map(|line| line.split_once(KEY))
        .and_then(|(_, rest)| rest.split('"').next())
}

/// Solo5's hvt tender, and its tests; none without a peer.
fn solo5() -> Result<Option<(PathBuf, Vec<PathBuf>)>, String> {
    let folder = match std::env::var_os(PEER) {
        Some(folder) => PathBuf::from(folder),
        None => return Ok(None),
    };
    let tender = folder.join("tenders/hvt/solo5-hvt");
    if !tender.is_file() {
        return Ok(None);
    }
    let mut images = Vec::new();
    let tests = entries(&folder.join("tests"))?;
    for test in tests.iter().filter(|path| path.is_dir()) {
        let files = entries(test)?.into_iter();
        images.extend(files.filter(|path| path.extension() == Some("hvt".as_ref())));
    }
    Ok(Some((tender, images)))
}

/// The shared libraries that `programs` need.
///
/// # Errors
/// One line, if they cannot be listed.
pub fn shared_libraries(programs: &[PathBuf]) -> Result<BTreeSet<PathBuf>, String> {
    let mut files = BTreeSet::new();
    for program in programs {
        let printed = process::capture(Command::new("ldd").arg(program), false)?.output;
        files.extend(libraries(&printed).map(PathBuf::from));
    }
    Ok(files)
}

/// The files that `ldd` names.
fn libraries(printed: &str) -> impl Iterator<Item = &str> {
    printed
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
}

/// Names in this folder, without extensions.
fn names(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = entries(folder)?;
    let stems = entries.iter().filter_map(|path| path.file_stem());
    Ok(stems.map(PathBuf::from).collect())
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error| format!("{}: {}", folder.display(), error);
    let entries = fs::read_dir(folder).map_err(failed)?;
    entries
        .map(|entry| Ok(entry.map_err(failed)?.path()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_files() {
        let printed =
            "linux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/libc.so.6 (2)\n\t/lib64/ld.so (3)";
        let found: Vec<&str> = libraries(printed).collect();
        assert_eq!(found, ["/lib/libc.so.6", "/lib64/ld.so"]);
    }

    #[test]
    fn the_program_is_found_among_messages() {
        let messages = "   Compiling e2e\n{\"reason\":\"x\",\"executable\":null}\n\
                        {\"reason\":\"artifact\",\"executable\":\"/t/e2e-1\",\"a\":1}\n";
        assert_eq!(executable(messages), Some("/t/e2e-1"));
        assert_eq!(executable("{\"executable\":null}"), None);
    }
}
