//! `outboard run --pci-bind`: a card is the guest's while it runs, and the host's again afterwards,
//! however it ends: on the lab's cards.

use crate::devices::pci::{Cards, Test, driver, expect, expect_home, interface, ip};
use crate::harness::build::Images;
use crate::harness::process::{Running, run, start};
use libtest_mimic::Failed;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

pub const TESTS: [(&str, Test); 6] = [
    ("a run gives its card back", ended),
    (
        "a run that is asked to end gives its card back",
        asked_to_end,
    ),
    (
        "a card is back though monitor and tender were killed",
        killed,
    ),
    (
        "a card is left to unbind if the guard was killed too",
        all_killed,
    ),
    (
        "a run whose guest does not start gives its card back",
        not_started,
    ),
    ("a run does not take the default route's card", refused),
];

const GUEST: &str = "nic_idle";
/// No step takes longer.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked.
const PAUSE: Duration = Duration::from_millis(20);

/// A run of `guest` with the card, which is taken for it.
fn command(images: &Images, guest: &str, card: &str, argument: &[&str]) -> Command {
    command_on("spt", images, guest, card, argument)
}

fn command_on(host: &str, images: &Images, guest: &str, card: &str, argument: &[&str]) -> Command {
    let mut command = Command::new(images.program("outboard"));
    command
        .args(["run", "--mem=16", "--pci-bind", &format!("--host={host}")])
        .args([&format!("--pci:nic={card}"), "--"])
        .arg(images.guest(guest))
        .args(argument);
    command
}

/// A monitor, and the processes that it has started.
struct Family {
    monitor: Running,
    tender: Pid,
    guard: Pid,
}

impl Family {
    /// Once the tender is about to be the guest.
    fn start(images: &Images, card: &str) -> Result<Self, Failed> {
        let monitor = start(&mut command(images, GUEST, card, &[]))?;
        let child = |name: &'static str| {
            let monitor = monitor.id();
            until(name, move || child_named(monitor, name))
        };
        let (guard, tender) = (child("outboard-guard")?, child("outboard-tender")?);
        expect(driver(card).as_deref(), Some("vfio-pci"))?;
        let opened = |file: &Path| file.starts_with("/dev/vfio");
        until("a group that is open", || {
            descriptors(tender)
                .iter()
                .any(|file| opened(Path::new(file)))
                .then_some(())
        })?;
        Ok(Self {
            monitor,
            tender,
            guard,
        })
    }
}

/// Waits until there is something.
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T, Failed> {
    let begin = Instant::now();
    loop {
        match look() {
            Some(found) => return Ok(found),
            None if begin.elapsed() > PATIENCE => return Err(format!("no {what}").into()),
            None => sleep(PAUSE),
        }
    }
}

fn child_named(parent: u32, name: &str) -> Option<Pid> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    let mut children = children.split_whitespace();
    let child = children.find(|child| {
        let own = fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default();
        own.trim() == name
    });
    Pid::from_raw(child?.parse().ok()?)
}

/// What a process has open.
fn descriptors(process: Pid) -> Vec<String> {
    let folder = format!("/proc/{}/fd", process.as_raw_pid());
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let links = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    links.map(|link| link.display().to_string()).collect()
}

fn wait_for_home(card: &str) -> Result<(), Failed> {
    until("card at home", || expect_home(card).ok())
}

fn ended(images: &Images) -> Result<(), Failed> {
    let cards = Cards::acquire(images)?;
    for host in ["spt", "process", "hvt"] {
        let ended = run(&mut command_on(
            host,
            images,
            GUEST,
            &cards.single,
            &["end"],
        ))?;
        ended.expect_status(0)?.expect_stdout("READY")?;
        // Not a moment later.
        expect_home(&cards.single)?;
    }
    // What was bound before stays.
    cards.succeed(&["bind", &cards.single])?;
    let ended = run(&mut command(images, GUEST, &cards.single, &["end"]))?;
    ended.expect_status(0)?;
    expect(driver(&cards.single).as_deref(), Some("vfio-pci"))
}

fn asked_to_end(images: &Images) -> Result<(), Failed> {
    let cards = Cards::acquire(images)?;
    let family = Family::start(images, &cards.single)?;
    family.monitor.signal(Signal::TERM);
    family.monitor.finish()?;
    expect_home(&cards.single)
}

fn killed(images: &Images) -> Result<(), Failed> {
    let cards = Cards::acquire(images)?;
    for both in [true, false] {
        let family = Family::start(images, &cards.single)?;
        // The guard would keep neither a terminal nor a pipe of the run's open.
        let kept = descriptors(family.guard);
        let foreign = |file: &&String| file.starts_with("pipe:") || file.starts_with("/dev/tty");
        expect(kept.iter().find(foreign), None)?;
        family.monitor.signal(Signal::KILL);
        if both {
            // It may have gone with its parent.
            let _ = kill_process(family.tender, Signal::KILL);
        }
        wait_for_home(&cards.single)?;
    }
    let family = Family::start(images, &cards.single)?;
    kill_process(family.tender, Signal::KILL)?;
    family.monitor.finish()?.expect_status(128 + 9)?;
    expect_home(&cards.single)
}

fn all_killed(images: &Images) -> Result<(), Failed> {
    let cards = Cards::acquire(images)?;
    let family = Family::start(images, &cards.single)?;
    // While the guest runs, its card is not given back.
    cards.refuse(&["unbind", &cards.single], &["in use"])?;
    kill_process(family.guard, Signal::KILL)?;
    family.monitor.signal(Signal::KILL);
    let _ = kill_process(family.tender, Signal::KILL);
    family.monitor.finish()?;
    expect(driver(&cards.single).as_deref(), Some("vfio-pci"))?;
    cards.succeed(&["unbind", &cards.single])?;
    expect_home(&cards.single)
}

/// Its manifest has no such device.
fn not_started(images: &Images) -> Result<(), Failed> {
    let cards = Cards::acquire(images)?;
    let ended = run(&mut command(images, "hello", &cards.single, &[]))?;
    ended.expect_status(1)?;
    expect_home(&cards.single)
}

fn refused(images: &Images) -> Result<(), Failed> {
    let cards = Cards::acquire(images)?;
    let name = interface(&cards.single)?;
    ip(&format!("link set {name} up"))?;
    ip(&format!("-6 route add default dev {name}"))?;
    let ended = run(&mut command(images, GUEST, &cards.single, &["end"]));
    ip(&format!("-6 route del default dev {name}"))?;
    let ended = ended?;
    ended.expect_status(1)?;
    ended.expect_stderr("carries the default route")?;
    expect(ended.stdout.contains("READY"), false)?;
    expect_home(&cards.single)?;
    let mut nothing = Command::new(images.program("outboard"));
    nothing
        .args(["run", "--pci-bind"])
        .arg(images.guest("hello"));
    let ended = run(&mut nothing)?;
    ended.expect_status(1)?;
    ended.expect_stderr("there is nothing to bind").map(|_| ())
}
