//! `outboard-vmm` in the lab: the lab's own kernel is its guest, and images of ours are.

use super::kernel::{self, Kernel};
use super::machine::{archive, busybox, copy};
use super::qemu;
use super::trials::shared_libraries;
use crate::packages::{self, LAB};
use crate::{appliances, process, stages};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const HELP: &str = "\
Usage: cargo xtask lab vmm [images] [WAY...]

Boots the lab's kernel as a guest of outboard-vmm, in the lab, and has it drive virtio's network
card, disk and source of entropy: ping, iperf3 both ways, a file system. Then images of ours: echo,
iperf3, the firewall between two cards, a disk. With `images`, those alone. WAY is how registers are
reached, as behind ioregionfd= (`outboard-vmm --help`): off, on, process, forward, or on,posted. In
front of it may be which devices of Linux's: pci: for the same three on the PCI bus, or e1000: or
rtl8139: for one of these cards, as in e1000:on. Those that need ioregionfd get a KVM that has it,
which is built the first time. What was counted is printed behind each guest.
";

/// What the lab's shell runs; behind it, ways to reach registers.
const COMMAND: &str = "mkdir -p /lib; ln -s /lib /lib64; ln -s /lab/*.so* /lib; sh /lab/trial";
/// Ways that `cargo xtask test` tries where KVM has ioregionfd.
pub const WAYS: [&str; 6] = [
    "on",
    "process",
    "process,posted",
    "pci:on,posted",
    "e1000:process",
    "rtl8139:on",
];
/// More than a guest takes, in seconds, on a machine that is busy with something else.
const TIMEOUT_SECONDS: usize = 1200;
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// What the guest has.
const CONTENTS: Contents<'_> = Contents {
    scripts: &["drive"],
    programs: &["iperf3", "mke2fs", "e2fsck"],
    modules: &[
        "virtio_mmio",
        "virtio_pci",
        "e1000",
        "8139cp",
        "virtio_net",
        "virtio_blk",
        "virtio-rng",
        "crc32c_generic",
        "ext4",
    ],
    ours: &[],
};
/// The program that is its other end.
const PEER: &str = "iperf3";
/// Appliances that are guests, with the manifest that names virtio's devices.
const APPLIANCES: [&str; 3] = ["echo", "firewall", "iperf3"];
const MANIFEST: &str = "manifest-virtio.json";
/// Guests of `tests/guests` that are.
const GUESTS: [&str; 2] = ["null_read", "virtio_bar0"];
/// The word for those alone.
const IMAGES: &str = "images";

/// What the RAM disk of a guest has beside busybox and the first program.
pub struct Contents<'a> {
    /// Scripts that lie beside the first program, for its folder `/lab`.
    pub scripts: &'a [&'a str],
    /// Programs of the host's; busybox has the others.
    pub programs: &'a [&'a str],
    /// Modules of Debian's kernel; what they need comes before them.
    pub modules: &'a [&'a str],
    /// Static programs that were built here.
    pub ours: &'a [PathBuf],
}

/// `cargo xtask lab vmm`.
///
/// # Errors
/// One line that says why the trial did not run.
pub fn main(root: &Path, arguments: &[String]) -> Result<i32, String> {
    if crate::wants_help(arguments) {
        print!("{}", HELP);
        return Ok(0);
    }
    if let Some(option) = arguments.iter().find(|word| word.starts_with('-')) {
        return Err(format!(
            "there is no option `{}`; type: cargo xtask lab vmm --help",
            option
        ));
    }
    if arguments.iter().skip(1).any(|word| word == IMAGES) {
        return Err(format!(
            "`{}` comes first; type: cargo xtask lab vmm {} off",
            IMAGES, IMAGES
        ));
    }
    packages::provide(&[LAB], false)?;
    let mut build = Command::new(process::cargo());
    build.args(["build", "--release", "-p", "vmm", "-p", "outboard"]);
    process::succeed(build.current_dir(root), true)?;
    let program = process::target_folder(root).join(TARGET).join("release");
    build_images(root)?;
    let ways: Vec<&str> = arguments.iter().map(String::as_str).collect();
    process::run(&mut command(root, &program.join("outboard-vmm"), &ways)?)
}

/// Builds the images that the trial runs.
fn build_images(root: &Path) -> Result<(), String> {
    let mut guests = stages::GUESTS.command(root);
    for guest in GUESTS {
        guests.args(["--bin", guest]);
    }
    process::succeed(&mut guests, true)?;
    for name in APPLIANCES {
        let words = format!("--manifest={} unikernels/{}", MANIFEST, name);
        appliances::build(root, &words, true)?;
    }
    Ok(())
}

/// The images that the trial runs, where they were built.
fn images(root: &Path) -> Vec<PathBuf> {
    let folder = appliances::folder(root);
    let guests = process::target_folder(&root.join("tests/guests"));
    let guests = guests.join(TARGET).join("release");
    let built = APPLIANCES.iter();
    let built = built.map(|name| folder.join(format!("{}-virtio.spt", name)));
    built
        .chain(GUESTS.iter().map(|name| guests.join(name)))
        .collect()
}

/// The trial in the lab, whose images were built: of the console and of ways without ioregionfd, or
/// of these ways.
///
/// # Errors
/// One line that says what cannot be had.
pub fn command(root: &Path, program: &Path, ways: &[&str]) -> Result<Command, String> {
    let cache = process::target_folder(root).join("lab");
    let mut files = files(root, &cache, &kernel::provide(&cache)?)?;
    files.push(program.to_path_buf());
    files.extend(images(root));
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(this);
    command
        .arg("lab")
        .arg(format!("--timeout={}", TIMEOUT_SECONDS * ways.len().max(1)));
    let needs = |way: &&str| {
        let way = way.rsplit_once(':').map_or(*way, |(_, way)| way);
        way.starts_with("on") || way.starts_with("process")
    };
    if ways.iter().any(needs) {
        command.arg("--ioregionfd");
    }
    if qemu::built(root, &cache).is_some() {
        command.arg("--mended-qemu");
    }
    for file in &files {
        command.arg(format!("--file={}", file.display()));
    }
    command.arg("--").arg(COMMAND).args(ways);
    Ok(command)
}

/// The files that the trial takes beside the monitor: kernel, RAM disk, the trial itself, and the
/// other end of the guest's network.
///
/// # Errors
/// One line that names what cannot be read or written.
fn files(root: &Path, cache: &Path, kernel: &Kernel) -> Result<Vec<PathBuf>, String> {
    let ours = root.join("lab/vmm");
    let mut files = guest(&ours, &cache.join("vmm"), kernel, &CONTENTS)?;
    files.extend([ours.join("trial"), ours.join(IMAGES)]);
    let peer = process::find(PEER).ok_or_else(|| format!("{} is missing", PEER))?;
    files.extend(shared_libraries(std::slice::from_ref(&peer))?);
    files.push(peer);
    Ok(files)
}

/// The kernel and the RAM disk of a guest whose first program is `ours/init`, made in `work`.
///
/// # Errors
/// One line that names what cannot be read or written.
pub fn guest(
    ours: &Path,
    work: &Path,
    kernel: &Kernel,
    contents: &Contents<'_>,
) -> Result<Vec<PathBuf>, String> {
    let folder = work.join("root");
    let failed = |error: io::Error| format!("{}: {}", folder.display(), error);
    let _ = fs::remove_dir_all(&folder);
    for name in ["bin", "dev", "lab/bin", "lab/lib", "modules", "proc", "sys"] {
        fs::create_dir_all(folder.join(name)).map_err(failed)?;
    }
    copy(&busybox()?, &folder.join("bin/busybox"))?;
    let init = folder.join("init");
    copy(&ours.join("init"), &init)?;
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755)).map_err(failed)?;
    for name in contents.scripts {
        copy(&ours.join(name), &folder.join("lab").join(name))?;
    }
    let mut order = String::new();
    for module in kernel.order(contents.modules)? {
        let name = module.file_stem().unwrap_or_default().to_string_lossy();
        copy(module, &folder.join(format!("modules/{}.ko", name)))?;
        order.push_str(&name);
        order.push('\n');
    }
    fs::write(folder.join("modules/order"), order).map_err(failed)?;
    let mut programs = Vec::new();
    for name in contents.programs {
        let program = process::find(name).ok_or_else(|| format!("{} is missing", name))?;
        copy(&program, &folder.join("lab/bin").join(name))?;
        programs.push(program);
    }
    for library in shared_libraries(&programs)? {
        let name = library.file_name().unwrap_or_default();
        copy(&library, &folder.join("lab/lib").join(name))?;
    }
    for program in contents.ours {
        let name = program.file_name().unwrap_or_default();
        copy(program, &folder.join("lab/bin").join(name))?;
    }
    let image = work.join("vmlinuz");
    copy(&kernel.image, &image)?;
    let ram_disk = archive(&folder, &work.join("guest.gz"))?;
    Ok(vec![image, ram_disk])
}
