//! Components that somebody looks into with gdb.

use super::{PATIENCE, System, guest};
use crate::harness::build::Images;
use crate::harness::process::Ended;
use crate::harness::programs;
use crate::harness::wait::eventually;
use libtest_mimic::{Completion, Failed};

/// Longer than a component may stand still, and than one takes that is killed for it.
const LOOK: &str = "shell sleep 5";

/// gdb finds who called, in a run that nobody ends meanwhile; the next one is in its jail again.
pub fn looked_into(images: &Images) -> Result<Completion, Failed> {
    if let Some(why) = programs::missing(&["gdb"]) {
        return Ok(Completion::ignored_with(why));
    }
    let text = guest(images, "standstill", "limits.progress = 1");
    let system = System::new(images, &text)?;
    let supervisor = system.up(1)?;
    // It loops, and is ended for that again and again, unless somebody looks into it.
    let ended = eventually(PATIENCE, || {
        let commands = ["rbreak ^standstill::step", "continue", LOOK, "bt"];
        let ended = debug(&system, "standstill", &commands)?;
        match ended.stderr.contains("standstill is not up") {
            true => Err("it is not up".into()),
            false => Ok(ended),
        }
    })?;
    if ended.stderr.contains("ptrace: Operation not permitted") {
        system.down(Some(supervisor))?;
        let why = "needs root, or kernel.yama.ptrace_scope = 0: gdb may not attach";
        return Ok(Completion::ignored_with(why));
    }
    ended.expect_status(0)?;
    ended.expect_stderr("outboard: standstill is up, without a jail\n")?;
    for function in [
        "standstill::step",
        "standstill::stand",
        "outboard_main",
        "_start",
    ] {
        ended.expect_stdout(&format!(" in {function}"))?;
    }
    supervisor.wait_for_stderr("outboard: standstill: nobody looks into it any more\n")?;
    // Back in its jail, it is watched again.
    supervisor.wait_for_stderr("outboard: standstill: it made no progress for 1s")?;
    let nobody = debug(&system, "stanstill", &[])?;
    nobody.expect_refusal(&["no component is called stanstill; did you mean standstill?"])?;
    system.down(Some(supervisor))?;
    Ok(Completion::Completed)
}

fn debug(system: &System<'_>, name: &str, commands: &[&str]) -> Result<Ended, Failed> {
    let mut words = vec!["debug", name, "--", "-nx", "-batch"];
    commands
        .iter()
        .for_each(|command| words.extend(["-ex", command]));
    system.outboard(&words)?.finish()
}
