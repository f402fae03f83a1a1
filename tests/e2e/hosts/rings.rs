//! Rings on `hvt`: what a hostile guest writes into them, and a guest's view of a hostile host.

use crate::harness::build::Images;
use crate::harness::process::{Ended, run as run_command};
use crate::harness::temporary::{TemporaryFile, TemporaryFolder};
use crate::hosts::guests::disk;
use libtest_mimic::{Failed, Trial};
use std::process::Command;

const SIGSYS: i32 = 128 + 31;
const SECTOR_BYTES: u32 = 512;

/// What the guest `ring` is told to do, the status that it ends with, and what is said.
struct Ring(&'static str, i32, &'static str);

const RINGS: &[Ring] = &[
    // Honest, but by hand.
    Ring("entry self 512 0 post 1 kick wait", 0, "result 512"),
    Ring("kick kick kick wait read", 0, "read: Ok(())"),
    // Indices that jump, before and after a request.
    Ring(
        "post 257 kick wait",
        SIGSYS,
        "device 1 of its manifest from 0 to 257",
    ),
    Ring(
        "post 0xffffffffffffffff kick wait",
        SIGSYS,
        "from 0 to 18446744073709551615",
    ),
    Ring("post 2 kick wait post 1 kick wait", SIGSYS, "from 2 to 1"),
    // Of a guest that asks for nothing any more.
    Ring("post 257 kick spin", SIGSYS, "from 0 to 257"),
    Ring("read post 300 kick wait", SIGSYS, "from 1 to 300"),
    // Buffers outside of memory, around its end and that of addresses.
    Ring(
        "entry 0x1000000 1 0 post 1 kick wait",
        SIGSYS,
        "1 bytes at 0x1000000",
    ),
    Ring(
        "entry 0xffffff 2 0 post 1 kick wait",
        SIGSYS,
        "2 bytes at 0xffffff",
    ),
    Ring(
        "entry 0xffffffffffffffff 2 0 post 1 kick wait",
        SIGSYS,
        "outside of its memory",
    ),
    Ring(
        "entry 0x6000000000 512 0 post 1 kick wait",
        SIGSYS,
        "outside of its memory",
    ),
    Ring("entry self 0x10ffff000 0 post 1 kick wait", 0, "result -22"),
    // Places outside of the disk: a result.
    Ring("entry self 512 0x100000 post 1 kick wait", 0, "result -22"),
    Ring(
        "entry self 512 0xfffffffffffffe00 post 1 kick wait",
        0,
        "result -22",
    ),
    Ring("entry self 1024 0xffe00 post 1 kick wait", 0, "result -22"),
    // The runtime does not believe the host either, which sleeps meanwhile.
    Ring(
        "wait mute done 7 read",
        1,
        "the host's ring makes no sense: its index went from 0 to 7",
    ),
];

pub fn trials(images: &'static Images) -> Vec<Trial> {
    let trial = |ring: &'static Ring| {
        Trial::test(format!("hvt::ring::{}", ring.0), move || run(images, ring))
    };
    let core = Trial::test("hvt::ring::a violation leaves a core file", move || {
        core_file(images)
    });
    RINGS.iter().map(trial).chain([core]).collect()
}

fn run(images: &Images, Ring(words, status, says): &Ring) -> Result<(), Failed> {
    let words: Vec<&str> = ["ring"].into_iter().chain(words.split(' ')).collect();
    let ended = disk(images, "hvt", SECTOR_BYTES, &words)?;
    ended.expect_status(*status)?;
    let said = ended.stdout.contains(says) || ended.stderr.contains(says);
    said.then_some(())
        .ok_or_else(|| format!("nothing of {says:?}: {ended:?}"))?;
    match *status {
        SIGSYS => placed(&ended),
        _ => Ok(()),
    }
}

/// The tender says where the guest was: the instruction, and at least `main` and who called it.
fn placed(ended: &Ended) -> Result<(), Failed> {
    ended.expect_stderr("outboard-tender: to see the lines: addr2line -fipCe /")?;
    let places = ended.stderr.lines().last().unwrap_or_default();
    match places.matches(" 0x1").count() {
        3.. => Ok(()),
        count => Err(format!("{count} addresses: {ended:?}").into()),
    }
}

fn core_file(images: &Images) -> Result<(), Failed> {
    let folder = TemporaryFolder::new("cores")?;
    let disk = TemporaryFile::new("disk", 1 << 20)?;
    let mut command = Command::new(images.program("outboard-tender"));
    command
        .args(["--mem=16", "--host=hvt"])
        .arg(format!("--dumpcore={}", folder.path.display()))
        .arg(format!("--block:disk={}", disk.path.display()))
        .arg(images.guest("ring"))
        .args(["post", "257", "kick", "wait"]);
    let ended = run_command(&mut command)?;
    placed(ended.expect_status(SIGSYS)?)?;
    let file = std::fs::read_dir(&folder.path)?.next();
    let bytes = file.ok_or("there is no core file")??.metadata()?.len();
    // Memory, and a page in front of it.
    match bytes == (16 << 20) + 4096 {
        true => Ok(()),
        false => Err(format!("a core file of {bytes} bytes").into()),
    }
}
