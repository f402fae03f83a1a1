//! A guest on an NVM Express disk in software: the driver inside the image, the model in a process.

use super::software_virtio::model;
use crate::harness::build::Images;
use crate::harness::process::{Ended, start};
use crate::harness::temporary::TemporaryFolder;
use crate::hosts::{self, Test};
use libtest_mimic::{Failed, Trial};
use std::fs;
use std::process::Command;

const BYTES: usize = 1 << 20;

const TESTS: &[(&str, Test)] = &[
    ("a_disk_is_filled_and_read", filled),
    ("a_disk_that_answers_twice_ends_nothing_but_requests", lies),
    ("a_disk_that_is_silent_is_given_up_and_said", silent),
];

pub fn trials(images: &'static Images) -> Vec<Trial> {
    hosts::on_each(images, "software_nvme", TESTS)
}

/// Runs the guest on a disk that misbehaves like that: how the guest ended, how the model did, and
/// what the file holds.
fn guest(images: &Images, host: &str, faults: &str) -> Result<(Ended, Ended, Vec<u8>), Failed> {
    let folder = TemporaryFolder::new("nvme")?;
    let (file, socket) = (folder.path.join("image"), folder.path.join("disk"));
    fs::write(&file, vec![0; BYTES])?;
    let options = [
        format!("--file={}", file.display()),
        format!("--misbehave={faults}"),
    ];
    let disk = model(images, "nvme", &socket, options)?;
    let mut command = Command::new(images.program("outboard"));
    command
        .args(["run", "--mem=16", &format!("--host={host}")])
        .arg(format!("--pci:disk=vfio-user:{}", socket.display()))
        .arg("--")
        .arg(images.guest("nvme_block"));
    let ended = start(&mut command)?.finish()?;
    Ok((ended, disk.finish()?, fs::read(&file)?))
}

fn filled(images: &Images, host: &str) -> Result<(), Failed> {
    let (ended, disk, bytes) = guest(images, host, "")?;
    ended.expect_status(0)?.expect_stdout("SUCCESS")?;
    ended.expect_stdout("NVME")?;
    disk.expect_status(0)?.expect_stdout("\"violations\":0}")?;
    // What the guest writes: see `guests::fill_and_compare`, and what it gives back behind.
    let number = BYTES / 512 - 1;
    let last = vec![number as u8 ^ 0x5a; 512];
    (bytes[number * 512..] == last && bytes[512..1024] == [0; 512])
        .then_some(())
        .ok_or("the file does not have what the guest wrote".into())
}

/// The guest ends at the first request that fails, by its own panic, and says why.
fn lies(images: &Images, host: &str) -> Result<(), Failed> {
    let (ended, ..) = guest(images, host, "twice=500,seed=3")?;
    // An answer that comes when nothing is under way costs a reset and no request; after some of
    // these the disk is given up.
    let says = ["Reset", "Gone"];
    match says.iter().any(|what| ended.stdout.contains(what)) {
        true => Ok(()),
        false => Err(format!("none of {says:?}: {ended:?}").into()),
    }
}

fn silent(images: &Images, host: &str) -> Result<(), Failed> {
    let (ended, ..) = guest(images, host, "stuck=0x1c:0x1:0")?;
    ended
        .expect_stdout("disk: it did not report in time: CSTS.RDY, it is ready")
        .map(drop)
}
