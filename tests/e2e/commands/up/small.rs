//! What a supervisor and its keeper take of a machine: little, and no more behind many restarts.

use super::{System, children, descriptors, files};
use crate::harness::build::Images;
use crate::harness::process::{Running, start};
use libtest_mimic::Failed;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// How often a component is started again that shall leak nothing.
const RESTARTS: usize = 30;
/// The variable that asks for another number of them.
const RESTARTS_ASKED: &str = "OUTBOARD_RESTARTS";
/// Restarts before anything is counted: as many reports as are kept, and one more.
const WARM: usize = 12;
/// By how much the memory of supervisor and keeper may grow, in KiB: what the allocator keeps.
const GROWTH_MAX: u64 = 256;

/// Memory of its own that a process has, in KiB (proc_pid_status(5)).
fn memory(pid: u32) -> Result<u64, Failed> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.ok_or("no RssAnon")?.parse()?)
}

/// The namespaces in which a process is (namespaces(7)).
fn namespaces(pid: u32) -> Result<Vec<PathBuf>, Failed> {
    let links = ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"];
    let links = links.map(|kind| std::fs::read_link(format!("/proc/{pid}/ns/{kind}")));
    Ok(links.into_iter().collect::<Result<_, _>>()?)
}

/// Most memory of supervisor and keeper with ten components, in KiB.
const MEMORY_MAX: u64 = 4096;

/// What ten components take of the processes that are there for all of them.
pub fn is_small(images: &Images) -> Result<(), Failed> {
    let image = images.guest("standstill");
    let sleeper = |number| {
        format!(
            "[component.sleeper{number}]\nimage = {image:?}\nmemory = 16\narguments = \
             [\"sleep\"]\n"
        )
    };
    let text: String = (0..10).map(sleeper).collect();
    let system = System::new(images, &text)?;
    let supervisor = system.up(10)?;
    let used = [supervisor.id(), system.keeper(None)?].map(memory);
    let [own, keepers] = used;
    let (own, keepers) = (own?, keepers?);
    println!("with ten components, the supervisor has {own} KiB and its keeper {keepers}");
    if own + keepers > MEMORY_MAX {
        return Err(format!("{own} and {keepers} KiB are over {MEMORY_MAX}").into());
    }
    system.down(Some(supervisor))
}

/// Descriptors, processes, files and namespaces are those of before, and memory hardly more.
pub fn leaks_nothing(images: &Images) -> Result<(), Failed> {
    let system = System::of_two(images)?;
    let supervisor = system.up(2)?;
    let keeper = system.keeper(None)?;
    let count = || -> Result<_, Failed> {
        let open = [supervisor.id(), keeper].map(|pid| descriptors(pid).len());
        let reports = |path: &PathBuf| {
            path.extension()
                .is_some_and(|end| end.to_str() != Some("json"))
        };
        let files = files(&system.place())
            .iter()
            .filter(|path| !reports(path))
            .count();
        let all = [supervisor.id(), keeper, system.monitor("firewall")?];
        let namespaces = all
            .map(namespaces)
            .into_iter()
            .collect::<Result<Vec<_>, _>>()?;
        Ok((open, children(keeper)?.len(), files, namespaces))
    };
    let used = || -> Result<u64, Failed> { Ok(memory(supervisor.id())? + memory(keeper)?) };
    let restart = || -> Result<Duration, Failed> {
        let begin = Instant::now();
        let restarted = system.outboard(&["restart", "firewall"])?.finish()?;
        restarted.expect_status(0)?;
        Ok(begin.elapsed())
    };
    for _ in 0..WARM {
        restart()?;
    }
    let asked = std::env::var(RESTARTS_ASKED).ok();
    let restarts = asked.map(|count| count.parse()).transpose()?;
    let restarts = restarts.unwrap_or(RESTARTS);
    let (before, used_before) = (count()?, used()?);
    let gaps = (0..restarts).map(|_| restart());
    let mut gaps = gaps.collect::<Result<Vec<_>, _>>()?;
    gaps.sort_unstable();
    let (after, used_after) = (count()?, used()?);
    let median = gaps.get(gaps.len() / 2).copied().unwrap_or_default();
    println!(
        "{restarts} restarts by a command: median {median:?}; supervisor and keeper had \
         {used_before} KiB and have {used_after}"
    );
    if before != after {
        return Err(format!("{before:?} became {after:?}").into());
    }
    if used_after > used_before + GROWTH_MAX {
        return Err(format!("{used_before} KiB became {used_after}").into());
    }
    if system.run_of("firewall") <= restarts as u64 {
        return Err(format!("run {}", system.run_of("firewall")).into());
    }
    system.down(Some(supervisor))
}

/// Too few open files are told before anything is started; too few that are allowed are raised.
pub fn few_descriptors(images: &Images) -> Result<(), Failed> {
    let image = images.guest("standstill");
    let text =
        format!("[component.sleeper]\nimage = {image:?}\nmemory = 16\narguments = [\"sleep\"]\n");
    let system = System::new(images, &text)?;
    let file = system.file.display().to_string();
    let limited = |limit: &str| -> Result<Running, Failed> {
        let outboard = system.runtime.outboard(images, &["up", &file]);
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit {limit} && exec \"$0\" \"$@\"")]);
        shell.arg(outboard.get_program()).args(outboard.get_args());
        let set = outboard.get_envs();
        shell.envs(set.filter_map(|(key, value)| Some((key, value?))));
        start(&mut shell)
    };
    let few = limited("-n 20")?.finish()?;
    few.expect_status(1)?;
    few.expect_stderr(
        "outboard: these components need 52 open files, and 20 are allowed; type: ulimit -n 52\n",
    )?;
    let supervisor = limited("-S -n 20")?;
    system.wait_for_run("sleeper", 1)?;
    system.down(Some(supervisor))
}

/// Where standard error has no room, a monitor cannot say how its guest ended, and ends as it did.
pub fn no_room(images: &Images) -> Result<(), Failed> {
    let system = System::new(images, "")?;
    let image = images.guest("null_read").display().to_string();
    let outboard = system
        .runtime
        .outboard(images, &["run", "--mem=16", &image]);
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$0\" \"$@\" 2> /dev/full"]);
    shell.arg(outboard.get_program()).args(outboard.get_args());
    start(&mut shell)?.finish()?.expect_status(139)?;
    Ok(())
}
