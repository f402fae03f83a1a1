//! What `cargo xtask bench matrix` brings to the lab: monitors, their guest, and programs of the
//! host's.

use super::kernel;
use super::machine::{copy, STOCK_QEMU};
use super::trials::shared_libraries;
use super::vmm::{self, Contents};
use crate::{appliances, process};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Programs that the guest and the lab run; busybox has the others.
const OF_GUEST: [&str; 3] = ["iperf3", "ip", "ethtool"];
const OF_LAB: [&str; 2] = ["iperf3", "chrt"];
/// What the other monitor boots with.
const FIRMWARE: (&str, &str) = ("/usr/share/qemu/bios-microvm.bin", "bios-microvm.bin");
/// Our guest that sends frames back: what `outboard build` is told, and what becomes of it.
const IMAGE: (&str, &str) = (
    "--manifest=manifest-virtio.json unikernels/echo",
    "echo-virtio.spt",
);
const MODULES: [&str; 6] = [
    "virtio_mmio",
    "virtio_pci",
    "virtio_net",
    "virtio_blk",
    "e1000",
    "8139cp",
];

/// All files, of programs in the folder `programs`.
///
/// # Errors
/// One line that names what cannot be had.
pub fn files(root: &Path, programs: &Path) -> Result<Vec<PathBuf>, String> {
    let cache = process::target_folder(root).join("lab");
    let work = cache.join("matrix");
    let failed = |error| format!("{}: {}", work.display(), error);
    fs::create_dir_all(&work).map_err(failed)?;
    let stripped = strip(programs, &work, "outboard-bench")?;
    let contents = Contents {
        scripts: &["counters", "xdp"],
        programs: &OF_GUEST,
        modules: &MODULES,
        ours: &[stripped],
    };
    let kernel = kernel::provide(&cache)?;
    let mut files = vmm::guest(&root.join("lab/matrix"), &work, &kernel, &contents)?;
    appliances::build(root, IMAGE.0, false)?;
    let find = |name: &str| process::find(name).ok_or_else(|| format!("{} is missing", name));
    let qemu = work.join("qemu");
    copy(&find(STOCK_QEMU)?, &qemu)?;
    let mut others = vec![qemu];
    for name in OF_LAB {
        others.push(find(name)?);
    }
    files.extend(shared_libraries(&others)?);
    files.extend(others);
    files.push(programs.join("outboard-vmm"));
    files.push(strip(programs, &work, "outboard")?);
    files.push(appliances::folder(root).join(IMAGE.1));
    let firmware = work.join(FIRMWARE.1);
    copy(Path::new(FIRMWARE.0), &firmware)?;
    files.push(firmware);
    Ok(files)
}

/// A program without line tables, which would fill memory; where it lies.
fn strip(programs: &Path, work: &Path, name: &str) -> Result<PathBuf, String> {
    let stripped = work.join(name);
    let mut strip = Command::new("strip");
    strip.arg("-o").arg(&stripped).arg(programs.join(name));
    process::succeed(&mut strip, false)?;
    Ok(stripped)
}
