//! Memory that outlives its guest, on each host.

use crate::harness::build::Images;
use crate::harness::process::{run, start};
use crate::hosts::{Test, on, on_each};
use libtest_mimic::{Failed, Trial};
use linux::memory::sealed;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::Signal;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;

/// What the guest's manifest asks for.
const BYTES: u64 = 65_536;

const GROUP: &str = "state";

const TESTS: &[(&str, Test)] = &[
    ("each start finds what the last one left", kept),
    ("what another image left is refused", refused),
    ("memory of another size is refused", other_size),
];

/// The tests on the hosts that this machine has.
pub fn trials(images: &'static Images) -> Vec<Trial> {
    on_each(images, GROUP, TESTS)
}

/// The tests on `hvt`.
pub fn on_hvt(images: &'static Images) -> Vec<Trial> {
    on(images, "hvt", GROUP, TESTS)
}

/// Memory that programs inherit.
fn memory(bytes: u64) -> Result<OwnedFd, Failed> {
    let memory = sealed("state", bytes)?;
    fcntl_setfd(&memory, FdFlags::empty())?;
    Ok(memory)
}

fn guest(images: &Images, host: &str, memory: &OwnedFd, arguments: &[&str]) -> Command {
    let mut command = Command::new(images.program("outboard-tender"));
    command
        .args([format!("--host={host}"), "--mem=16".to_owned()])
        .arg(format!("--state:memory=@{}", memory.as_raw_fd()))
        .arg(images.guest("state"))
        .args(arguments);
    command
}

fn kept(images: &Images, host: &str) -> Result<(), Failed> {
    let memory = memory(BYTES)?;
    for turn in 0..3 {
        let ended = run(&mut guest(images, host, &memory, &["7"]))?;
        let says = format!("start {} of {}\n", 2 * turn + 1, 2 * turn + 1);
        ended.expect_status(0)?.expect_stdout(&says)?;
        let killed = start(&mut guest(images, host, &memory, &["7", "wait"]))?;
        killed.wait_for(&format!("start {} of {}\n", 2 * turn + 2, 2 * turn + 2))?;
        killed.signal(Signal::KILL);
        killed.finish()?.expect_status(128 + 9)?;
    }
    Ok(())
}

fn refused(images: &Images, host: &str) -> Result<(), Failed> {
    let memory = memory(BYTES)?;
    let run = |layout| run(&mut guest(images, host, &memory, &[layout]));
    run("7")?.expect_stdout("start 1 of 1\n")?;
    let other = run("8")?;
    other.expect_stdout("refused: it is of another image: layout 0x7\nstart 1 of 2\n")?;
    rustix::io::pwrite(&memory, &[0x55; 1024], 0)?;
    let cut = run("8")?;
    cut.expect_stdout("refused: no copy of its header is whole\nstart 1 of 1\n")?;
    run("8")?.expect_stdout("start 2 of 2\n")?;
    Ok(())
}

fn other_size(images: &Images, host: &str) -> Result<(), Failed> {
    let memory = memory(BYTES * 2)?;
    let ended = run(&mut guest(images, host, &memory, &[]))?;
    ended.expect_refusal(&["--state:memory=@", "131072 bytes", "asks for 65536"])
}
