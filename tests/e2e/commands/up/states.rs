//! State of a component: it outlives each instance, and the supervisor.

use super::{PATIENCE, System, guest, kill};
use crate::harness::build::Images;
use crate::harness::wait::eventually;
use abi::manifest::name_field;
use abi::region::kind::STATE;
use libtest_mimic::Failed;
use rustix::process::Signal;

/// What the guest's manifest asks for, and what another image would.
const BYTES: [u32; 2] = [65_536, 131_072];

/// A guest that counts its starts in a state, whose layout is a number of the file's.
fn file(images: &Images, layout: &str) -> String {
    let more = format!("arguments = [{layout:?}, \"wait\"]\nstate.memory = \"memory\"");
    guest(images, "state", &more)
}

/// A state that an image asks for (`abi::region::Request`).
fn request(bytes: u32) -> Vec<u8> {
    let name = name_field("memory").unwrap_or([0; _]);
    [&name[..], &STATE.to_le_bytes(), &bytes.to_le_bytes()].concat()
}

/// Waits until the guest has said that.
fn wait_for(system: &System<'_>, text: &str) -> Result<(), Failed> {
    eventually(PATIENCE, || {
        let said = system.outboard(&["logs", "state"])?.finish()?.stdout;
        match said.contains(text) {
            true => Ok(()),
            false => Err(format!("it does not say {text:?} but {said:?}").into()),
        }
    })
}

/// Each instance finds what the last one left, whoever was killed.
pub fn outlive(images: &Images) -> Result<(), Failed> {
    let system = System::new(images, &file(images, "7"))?;
    let supervisor = system.up(1)?;
    wait_for(&system, "start 1 of 1\n")?;
    for run in 2..5 {
        kill(system.guest("state")?)?;
        wait_for(&system, &format!("start {run} of {run}\n"))?;
        system.wait_for_run("state", run)?;
    }
    supervisor.signal(Signal::KILL);
    supervisor.finish()?.expect_status(137)?;
    kill(system.guest("state")?)?;
    let supervisor = system.up(1)?;
    wait_for(&system, "start 5 of 5\n")?;
    // What is kept there is called otherwise: the guest begins anew, and says so.
    supervisor.signal(Signal::KILL);
    supervisor.finish()?.expect_status(137)?;
    std::fs::write(&system.file, file(images, "8"))?;
    let supervisor = system.up(1)?;
    wait_for(&system, "refused: it is of another image: layout 0x7\n")?;
    wait_for(&system, "start 1 of 6\n")?;
    system.down(Some(supervisor))
}

/// An image that asks for another size begins anew.
pub fn other_size(images: &Images) -> Result<(), Failed> {
    let original = images.guest("state");
    let text = file(images, "7").replace(&format!("{original:?}"), "\"state.spt\"");
    let system = System::new(images, &text)?;
    let image = system.runtime.path().join("state.spt");
    std::fs::copy(&original, &image)?;
    let supervisor = system.up(1)?;
    wait_for(&system, "start 1 of 1\n")?;
    let mut bytes = std::fs::read(&original)?;
    let [asks, other] = BYTES.map(request);
    let at = bytes.windows(asks.len()).position(|found| found == asks);
    let at = at.ok_or("the image does not ask for it")?;
    bytes[at..at + other.len()].copy_from_slice(&other);
    let draft = image.with_extension("draft");
    std::fs::write(&draft, bytes)?;
    std::fs::rename(&draft, &image)?;
    system
        .outboard(&["restart", "state"])?
        .finish()?
        .expect_status(0)?;
    supervisor.wait_for_stderr(
        "outboard: state: state.memory begins anew: it had 65536 bytes, and the image asks for \
         131072\n",
    )?;
    wait_for(&system, "start 1 of 1\n")?;
    system.down(Some(supervisor))
}

/// A file without the state, and one with a state that the image does not have; then who holds it.
pub fn mistakes(images: &Images) -> Result<(), Failed> {
    let whole = file(images, "7");
    let image = images.guest("state").display().to_string();
    let without = whole.replace("state.memory = \"memory\"", "");
    let system = System::new(images, &without)?;
    let file = system.file.display().to_string();
    let check = || -> Result<_, Failed> { system.outboard(&["up", "--check", &file])?.finish() };
    check()?.expect_status(1)?.expect_stderr(&format!(
        "{file}:1:12: {image} leaves memory to its next instance; write state.memory = \"memory\"\n"
    ))?;
    std::fs::write(&system.file, whole.clone() + "state.other = \"memory\"\n")?;
    check()?.expect_status(1)?.expect_stderr(&format!(
        "{file}:1:12: --state:other: the manifest names no such device; it names --state:memory\n"
    ))?;
    std::fs::write(&system.file, whole)?;
    check()?.expect_status(0)?;
    let shown = system.outboard(&["up", "--show", &file])?.finish()?;
    shown.expect_status(0)?;
    shown.expect_stdout("state memory")?;
    shown.expect_stdout("read, write; its next instance as well")?;
    Ok(())
}
