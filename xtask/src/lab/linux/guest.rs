//! The guest: its RAM disk, and its machine.

use super::{Front, Options, Places};
use crate::lab::kernel::Kernel;
use crate::lab::machine::{archive, busybox, copy};
use crate::lab::qemu::FIRMWARE;
use crate::lab::trials::shared_libraries;
use crate::process;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Memory of the guest in MiB.
const MEMORY_MIB: u32 = 512;
/// Programs of the host's that trials of NICs run; busybox has the others.
const PROGRAMS: [&str; 3] = ["ethtool", "iperf3", "nc"];
/// The same of disks.
const PROGRAMS_DISK: [&str; 4] = ["mke2fs", "e2fsck", "blkdiscard", "fio"];

/// What kind of device it is: each has trials of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Nic,
    Disk,
    Entropy,
}

impl Kind {
    /// The kind of the device, by what its settings say.
    ///
    /// # Errors
    /// If they cannot be read, or name none that there is.
    pub fn of(places: &Places, options: &Options) -> Result<Self, String> {
        let path = places.ours().join(&options.device).join("settings");
        let text =
            fs::read_to_string(&path).map_err(|error| format!("{}: {}", path.display(), error))?;
        let kind = text.lines().find_map(|line| line.strip_prefix("kind="));
        match kind {
            None => Ok(Self::Nic),
            Some("disk") => Ok(Self::Disk),
            Some("entropy") => Ok(Self::Entropy),
            Some(other) => Err(format!("{}: no kind is `{}`", path.display(), other)),
        }
    }

    /// The folder of its trials.
    fn trials(self) -> &'static str {
        match self {
            Self::Nic => "trials",
            Self::Disk => "disk",
            Self::Entropy => "entropy",
        }
    }

    /// What its trials are written with, beside what all are.
    fn library(self) -> Option<&'static str> {
        match self {
            Self::Nic => None,
            Self::Disk => Some("disk.sh"),
            Self::Entropy => Some("entropy.sh"),
        }
    }

    fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Nic => &PROGRAMS,
            Self::Disk => &PROGRAMS_DISK,
            Self::Entropy => &[],
        }
    }
}

/// Names of the trials to run, in their order: all, or the first, which loads the driver, and those
/// that were named.
///
/// # Errors
/// One line, if there are none.
pub fn trials(places: &Places, options: &Options, kind: Kind) -> Result<Vec<String>, String> {
    let folder = places.ours().join(kind.trials());
    let failed = |error: io::Error| format!("{}: {}", folder.display(), error);
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        names.push(name.to_string_lossy().into_owned());
    }
    names.sort();
    Ok(choose(names, options.trial.as_deref()))
}

fn choose(names: Vec<String>, wanted: Option<&str>) -> Vec<String> {
    let is_wanted = |name: &str| wanted.map_or(true, |wanted| name.contains(wanted));
    names
        .into_iter()
        .enumerate()
        .filter(|(number, name)| *number == 0 || is_wanted(name))
        .map(|(_, name)| name)
        .collect()
}

/// Makes the RAM disk.
///
/// # Errors
/// One line that names what cannot be read or written.
pub fn pack(
    places: &Places,
    kernel: &Kernel,
    options: &Options,
    kind: Kind,
    trials: &[String],
) -> Result<PathBuf, String> {
    let folder = places.work.join("root");
    let failed = |error: io::Error| format!("{}: {}", folder.display(), error);
    let _ = fs::remove_dir_all(&folder);
    for name in [
        "bin",
        "dev",
        "lab/bin",
        "lab/lib",
        "lab/trials",
        "modules",
        "proc",
        "sys",
    ] {
        fs::create_dir_all(folder.join(name)).map_err(failed)?;
    }
    let ours = places.ours();
    copy(&busybox()?, &folder.join("bin/busybox"))?;
    let init = folder.join("init");
    copy(&ours.join("init"), &init)?;
    executable(&init)?;
    copy(&ours.join("lib.sh"), &folder.join("lab/lib.sh"))?;
    if let Some(library) = kind.library() {
        copy(&ours.join(library), &folder.join("lab/kind.sh"))?;
    }
    let (settings, drivers) = settings(places, options)?;
    fs::write(folder.join("lab/settings"), settings).map_err(failed)?;
    modules(kernel, &folder, &ours.join("modules"), &drivers)?;
    match &options.command {
        Some(command) => fs::write(folder.join("lab/command"), command).map_err(failed)?,
        None => {
            for name in trials {
                let trial = ours.join(kind.trials()).join(name);
                copy(&trial, &folder.join("lab/trials").join(name))?;
            }
        }
    }
    let mut programs = Vec::new();
    for name in kind.programs() {
        let program = process::find(name).ok_or_else(|| format!("{} is missing", name))?;
        copy(&program, &folder.join("lab/bin").join(name))?;
        programs.push(program);
    }
    for library in shared_libraries(&programs)? {
        let name = library.file_name().unwrap_or_default();
        copy(&library, &folder.join("lab/lib").join(name))?;
    }
    archive(&folder, &places.work.join("initrd.gz"))
}

fn executable(path: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        .map_err(|error| format!("{}: {}", path.display(), error))
}

/// The settings of a device and of a run, and the drivers that they name: its own, behind others
/// that it takes.
fn settings(places: &Places, options: &Options) -> Result<(String, Vec<String>), String> {
    let path = places.ours().join(&options.device).join("settings");
    let mut text =
        fs::read_to_string(&path).map_err(|error| format!("{}: {}", path.display(), error))?;
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let driver = value("driver=").ok_or_else(|| format!("{} names no driver", path.display()))?;
    let others = value("also=").unwrap_or("").trim_matches('\'');
    let (over, bus, transport) = match options.front {
        Front::VfioUser => ("vfio-user", "pci", None),
        Front::VhostUserPci => ("vhost-user", "pci", None),
        Front::VhostUserMmio => ("vhost-user", "mmio", Some("virtio_mmio")),
    };
    let drivers = others.split_whitespace().chain([driver]).chain(transport);
    let drivers = drivers.map(String::from).collect();
    text += &format!(
        "over={}\nbus={}\nreloads={}\nseconds={}\ncompared={}\n",
        over,
        bus,
        options.reloads(),
        options.transfer_seconds(),
        options.compared_seconds()
    );
    Ok((text, drivers))
}

fn modules(kernel: &Kernel, folder: &Path, list: &Path, drivers: &[String]) -> Result<(), String> {
    let text =
        fs::read_to_string(list).map_err(|error| format!("{}: {}", list.display(), error))?;
    let mut wanted: Vec<&str> = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    wanted.extend(drivers.iter().map(String::as_str));
    let mut order = String::new();
    for module in kernel.order(&wanted)? {
        let name = module.file_stem().unwrap_or_default().to_string_lossy();
        copy(module, &folder.join(format!("modules/{}.ko", name)))?;
        order.push_str(&name);
        order.push('\n');
    }
    let to = folder.join("modules/order");
    fs::write(&to, order).map_err(|error| format!("{}: {}", to.display(), error))
}

/// Options of QEMU for the device behind `socket`, where `lab/linux/lib.sh` looks for it. QEMU
/// connects again to a back end that comes back.
pub fn device(front: Front, kind: Kind, socket: &str) -> Vec<String> {
    let device = match (front, kind) {
        (Front::VfioUser, _) => {
            let device = format!("vfio-user,socket={},addr=1", socket);
            return vec!["-device".into(), device];
        }
        // With MSI-X and without KVM, QEMU 7.2 crashes when the driver starts the card.
        (Front::VhostUserPci, Kind::Nic) => {
            "virtio-net-pci,netdev=n,mq=on,vectors=0,speed=10000,duplex=full,romfile=,addr=1"
        }
        (Front::VhostUserMmio, Kind::Nic) => {
            "virtio-net-device,netdev=n,mq=on,speed=10000,duplex=full"
        }
        (Front::VhostUserPci, _) => "vhost-user-blk-pci,chardev=c,num-queues=2,addr=1",
        // The driver takes as many descriptors as virtio-mmio has, whatever this says; but this is
        // what QEMU says of them to the back end.
        (Front::VhostUserMmio, _) => "vhost-user-blk,chardev=c,num-queues=2,queue-size=1024",
    };
    let back_end = format!("socket,id=c,path={},reconnect=1", socket);
    let mut options = vec!["-chardev", &back_end];
    if kind == Kind::Nic {
        options.extend(["-netdev", "vhost-user,id=n,chardev=c,queues=2"]);
    }
    options.extend(["-device", device]);
    options.into_iter().map(String::from).collect()
}

/// The machine, with the wire of its device in `tap`; the guest talks through its input and output.
/// The device is not yet among its options. Firmware is that of Debian's package of QEMU.
pub fn machine(
    front: Front,
    qemu: &Path,
    kernel: &Kernel,
    ram_disk: &Path,
    console: &Path,
    tap: &str,
) -> Command {
    // What a driver takes to load is compared with, and the other end of VLANs. `lab/linux/lib.sh`
    // looks for it there.
    let peer = ["-device", "e1000e,netdev=peer,romfile=,addr=2"];
    // Microvm has one serial line by itself; with a second I/O APIC, interrupts that Linux does not
    // get; devices of the time before virtio 1.0; a SeaBIOS that reads disks, into memory that QEMU
    // lends nobody; and nothing to measure the processor's clock by while the host is busy. It has
    // no bus for the peer.
    let (machine, clock, more): (_, _, &[&[_]]) = match front {
        Front::VhostUserMmio => (
            "microvm,acpi=on,ioapic2=off,memory-backend=m",
            clock(),
            &[
                &["-device", "isa-serial,chardev=talk,index=1"],
                &["-global", "virtio-mmio.force-legacy=false"],
                &["-bios", "qboot.rom"],
            ],
        ),
        _ => (
            "q35,memory-backend=m",
            None,
            &[&["-serial", "chardev:talk"], &peer],
        ),
    };
    let mut command = Command::new(qemu);
    command
        .args(FIRMWARE)
        .args(["-nodefaults", "-display", "none", "-no-reboot"])
        .args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2"])
        .args(["-m", &MEMORY_MIB.to_string()])
        // Devices are lent memory that nobody can make shorter.
        .arg("-object")
        .arg(format!(
            "memory-backend-memfd,id=m,size={}M,share=on,seal=on",
            MEMORY_MIB
        ))
        .args(["-machine", machine])
        .arg("-kernel")
        .arg(kernel.image.as_os_str())
        .arg("-initrd")
        .arg(ram_disk)
        // The host may have other things to do for long: that is no lockup of the guest's.
        .arg("-append")
        .arg(format!(
            "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check watchdog_thresh=60{}",
            clock.map_or(String::new(), |khz| format!(" tsc_early_khz={}", khz))
        ))
        .arg("-netdev")
        .arg(format!(
            "tap,id=peer,ifname={}peer,script=no,downscript=no",
            tap
        ))
        .arg("-serial")
        .arg(format!("file:{}", console.display()))
        .args(["-chardev", "stdio,id=talk,signal=off"])
        .args(more.concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command
}

/// How fast the counter of this machine's processor runs, in kHz: the guest's is the same.
fn clock() -> Option<u64> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("cpu MHz"))?;
    let mhz: f64 = line.split_once(':')?.1.trim().parse().ok()?;
    Some((mhz * 1000.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_trial_is_always_there() {
        let names = || ["01-load", "02-tcp", "03-udp"].map(String::from).to_vec();
        assert_eq!(choose(names(), None), names());
        assert_eq!(choose(names(), Some("udp")), ["01-load", "03-udp"]);
        assert_eq!(choose(names(), Some("load")), ["01-load"]);
    }
}
