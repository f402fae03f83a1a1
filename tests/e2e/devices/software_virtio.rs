//! A guest on virtio devices in software other than NICs: the drivers inside the image, each model
//! in a process.

use super::software_nic::await_until;
use crate::harness::build::Images;
use crate::harness::process::{Running, start};
use crate::harness::temporary::TemporaryFolder;
use crate::hosts::{self, Test};
use libtest_mimic::{Failed, Trial};
use std::fs;
use std::path::Path;
use std::process::Command;

const BLOCK: usize = 512;
const BLOCKS: usize = 512;

const TESTS: &[(&str, Test)] = &[("a_disk_is_filled_and_random_bytes_come", filled)];

pub fn trials(images: &'static Images) -> Vec<Trial> {
    hosts::on_each(images, "software_virtio", TESTS)
}

/// The same on one host.
pub fn on(images: &'static Images, host: &'static str) -> Vec<Trial> {
    hosts::on(images, host, "software_virtio", TESTS)
}

/// A model that serves one guest at `socket`.
pub fn model(
    images: &Images,
    name: &str,
    socket: &Path,
    options: impl IntoIterator<Item = String>,
) -> Result<Running, Failed> {
    let mut command = Command::new(images.program("outboard"));
    command.args(["model", name, "--once", "--json", "--socket"]);
    let running = start(command.arg(socket).args(options))?;
    await_until("its socket", || socket.exists())?;
    Ok(running)
}

fn filled(images: &Images, host: &str) -> Result<(), Failed> {
    let folder = TemporaryFolder::new("virtio")?;
    let at = |name: &str| folder.path.join(name);
    fs::write(at("image"), vec![0; BLOCKS * BLOCK])?;
    let file = format!("--file={}", at("image").display());
    let disk = model(images, "virtio-blk", &at("disk"), Some(file))?;
    let entropy = model(images, "virtio-rng", &at("entropy"), None)?;
    let mut command = Command::new(images.program("outboard"));
    command
        .args(["run", "--mem=16", &format!("--host={host}")])
        .args(["disk", "entropy"].map(|name| {
            let socket = at(name);
            format!("--pci:{name}=vfio-user:{}", socket.display())
        }))
        .arg("--")
        .arg(images.guest("virtio_bar0"));
    let ended = start(&mut command)?.finish()?;
    ended.expect_status(0)?.expect_stdout("SUCCESS")?;
    for device in [disk, entropy] {
        let ended = device.finish()?;
        ended.expect_status(0)?.expect_stdout("\"violations\":0}")?;
    }
    // What the guest writes: see `guests::fill_and_compare`.
    let expected = (0..BLOCKS).flat_map(|number| [number as u8 ^ 0x5a; BLOCK]);
    if !fs::read(at("image"))?.into_iter().eq(expected) {
        return Err("the file does not have what the guest wrote".into());
    }
    Ok(())
}
