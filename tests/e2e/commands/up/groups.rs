//! Components in control groups, on a machine that has them and delegates one: the lab.

use super::{PATIENCE, System, guest};
use crate::harness::build::Images;
use crate::harness::process::start;
use crate::harness::wait::eventually;
use libtest_mimic::{Completion, Failed, Trial};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Where the lab mounts cgroup v2.
const ROOT: &str = "/sys/fs/cgroup";
/// The controllers that limits are made of.
const CONTROLLERS: [&str; 2] = ["memory", "cpu"];

pub fn trials(images: &'static Images) -> Vec<Trial> {
    let name = "groups::memory and time of a component are its group's";
    let test = move || match missing() {
        Some(why) => Ok(Completion::ignored_with(why)),
        None => bounds(images).map(|()| Completion::Completed),
    };
    vec![Trial::ignorable_test(name, test)]
}

/// What this machine lacks.
fn missing() -> Option<&'static str> {
    let has = fs::read_to_string(Path::new(ROOT).join("cgroup.controllers")).unwrap_or_default();
    let has_all = CONTROLLERS
        .iter()
        .all(|wanted| has.split_whitespace().any(|found| found == *wanted));
    if !has_all {
        return Some("no cgroup v2 with memory and cpu in /sys/fs/cgroup");
    }
    let is_root = rustix::process::geteuid().is_root();
    (!is_root).then_some("needs root: it delegates a control group")
}

/// A supervisor in a group that was delegated to it gives each component that has limits a group
/// with these limits, in which all of its processes are, and removes it.
fn bounds(images: &Images) -> Result<(), Failed> {
    let parent = Path::new(ROOT).join(format!("outboard-{}", std::process::id()));
    let own = parent.join("supervisor");
    fs::write(
        Path::new(ROOT).join("cgroup.subtree_control"),
        "+memory +cpu",
    )?;
    fs::create_dir_all(&own)?;
    let more = "limits.progress = 0\nlimits.memory = 300\nlimits.cpu = 20\nspare = true";
    let system = System::new(images, &guest(images, "standstill", more))?;
    let file = system.file.display().to_string();
    let outboard = system.runtime.outboard(images, &["up", &file]);
    let mut inside = Command::new("sh");
    inside.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]);
    inside.arg(own.join("cgroup.procs"));
    inside.arg(outboard.get_program()).args(outboard.get_args());
    let set = outboard.get_envs();
    inside.envs(set.filter_map(|(key, value)| Some((key, value?))));
    let supervisor = start(&mut inside)?;
    for said in ["limits.memory = 300 MiB", "limits.cpu = 20 %"] {
        supervisor.wait_for_stderr(&format!(
            "outboard: standstill: {said}: by its control group"
        ))?;
    }
    system.wait_for_run("standstill", 1)?;
    let group = parent.join("component-standstill");
    for (file, expected) in [("memory.max", "314572800"), ("cpu.max", "20000 100000")] {
        let found = fs::read_to_string(group.join(file))?;
        if found.trim() != expected {
            return Err(format!("{file} is {found:?}").into());
        }
    }
    // It never sleeps, so it is stopped in each period.
    eventually(PATIENCE, || {
        let stat = fs::read_to_string(group.join("cpu.stat"))?;
        match stat.contains("nr_throttled ") && !stat.contains("nr_throttled 0\n") {
            true => Ok(()),
            false => Err(format!("it is not slowed: {stat}").into()),
        }
    })?;
    // Monitor and tender, those of the spare as well.
    let expected = [system.monitor("standstill")?, system.guest("standstill")?];
    eventually(PATIENCE, || {
        let inside = fs::read_to_string(group.join("cgroup.procs"))?;
        let inside: Vec<u32> = inside.lines().filter_map(|pid| pid.parse().ok()).collect();
        match expected.iter().all(|pid| inside.contains(pid)) && inside.len() == 4 {
            true => Ok(()),
            false => Err(format!("{inside:?} are in it, not {expected:?} and a spare").into()),
        }
    })?;
    system.down(Some(supervisor))?;
    if group.exists() {
        return Err("its group is left".into());
    }
    fs::remove_dir(&own)?;
    fs::remove_dir(&parent)?;
    Ok(())
}
