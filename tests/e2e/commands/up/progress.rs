//! Components that make no progress, and one that sleeps.

use super::{PATIENCE, System, guest, pid};
use crate::harness::build::Images;
use crate::harness::wait::eventually;
use libtest_mimic::Failed;
use rustix::process::{Signal, kill_process};

/// One that loops is asked where it is and started again; one that sleeps is left alone.
pub fn hangs(images: &Images) -> Result<(), Failed> {
    let image = images.guest("standstill");
    let sleeper = format!(
        "[component.sleeper]\nimage = {image:?}\nmemory = 16\narguments = [\"sleep\"]\n\
         limits.progress = 1\n"
    );
    let text = guest(images, "standstill", "limits.progress = 1") + &sleeper;
    let system = System::new(images, &text)?;
    let supervisor = system.up(2)?;
    let said = "outboard: standstill: it made no progress for 1s (the guest was ended by SIGQUIT \
                at instruction 0x";
    supervisor.wait_for_stderr(said)?;
    supervisor.wait_for_stderr(": somebody asked where it was); started again at once\n")?;
    // What is said on standard error is written down a moment later.
    eventually(PATIENCE, || {
        let words = ["logs", "--ends", "standstill"];
        let logs = system.runtime.says(images, &words)?;
        let parts = [
            "outboard:   0x",
            "standstill::stand + 0x",
            "console: looping",
        ];
        match parts.iter().find(|part| !logs.contains(**part)) {
            None => Ok(()),
            Some(part) => Err(format!("without {part}: {logs}").into()),
        }
    })?;
    // One that does not end when it is asked where it is, is killed.
    // Between two runs there is none.
    eventually(PATIENCE, || {
        let monitor = pid(system.monitor("standstill")?)?;
        Ok(kill_process(monitor, Signal::STOP)?)
    })?;
    supervisor.wait_for_stderr("it made no progress for 1s (its monitor was ended by SIGKILL)")?;
    // What a killed monitor has left is the next one's then.
    system.wait_for_run("standstill", 3)?;
    if system.run_of("sleeper") != 1 {
        return Err("the one that sleeps was started again".into());
    }
    system.down(Some(supervisor))
}

/// A system of one component, where nothing else ever happens, is watched as well.
pub fn hangs_alone(images: &Images) -> Result<(), Failed> {
    let system = System::new(images, &guest(images, "standstill", "limits.progress = 1"))?;
    let supervisor = system.up(1)?;
    supervisor.wait_for_stderr("outboard: standstill: it made no progress for 1s")?;
    system.down(Some(supervisor))
}

/// Where no control group was delegated, a limit of memory is each process's, one of time is none,
/// and both is said.
pub fn limits(images: &Images) -> Result<(), Failed> {
    let image = images.guest("standstill");
    let text = format!(
        "[component.sleeper]\nimage = {image:?}\nmemory = 16\narguments = [\"sleep\"]\n\
         limits.memory = 300\nlimits.cpu = 50\n"
    );
    let system = System::new(images, &text)?;
    let supervisor = system.up(1)?;
    supervisor.wait_for_stderr(
        "outboard: sleeper: limits.memory = 300 MiB: of each process's address space, by rlimit",
    )?;
    supervisor.wait_for_stderr("outboard: sleeper: limits.cpu = 50 %: not in force: ")?;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", system.guest("sleeper")?))?;
    let most = (300_u64 << 20).to_string();
    let held = |line: &str| line.starts_with("Max address space") && line.contains(&most);
    if !limits.lines().any(held) {
        return Err(format!("not {most} bytes: {limits}").into());
    }
    let file = system.file.display().to_string();
    let shown = system.outboard(&["up", "--show", &file])?.finish()?;
    shown.expect_status(0)?.expect_stdout("limits.cpu")?;
    system.down(Some(supervisor))
}

/// An image that does not count its turns, as those of earlier versions, is not watched.
pub fn unwatched(images: &Images) -> Result<(), Failed> {
    /// Name of the note, and what lies in front of the features: the version.
    const NOTE: &[u8] = b"Outboard\0\0\0\0";
    let mut bytes = std::fs::read(images.guest("standstill"))?;
    let place = bytes.windows(NOTE.len()).position(|name| name == NOTE);
    let features = place.ok_or("no note")? + NOTE.len() + size_of::<u32>();
    bytes[features] &= !u8::try_from(abi::extension::feature::PROGRESS)?;
    let system = System::new(images, "[component.old]\nimage = \"old.spt\"\n")?;
    std::fs::write(system.runtime.path().join("old.spt"), bytes)?;
    let file = system.file.display().to_string();
    let checked = system.outboard(&["up", "--check", &file])?.finish()?;
    checked.expect_status(0)?;
    checked.expect_stdout(": old: not watched for progress: ")?;
    Ok(())
}
