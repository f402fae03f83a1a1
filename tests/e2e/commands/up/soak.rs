//! Kills, rules and images at random, under connections: none is lost, no byte is wrong, and what
//! one place sends the next one has received or dropped.
//!
//! ```text
//!   test --- wan0 === firewall === link === echo, with its connections in a state
//! ```

use super::kept::{BUSY, Work};
use super::links::{self, Stream, nothing};
use super::{ALL, PATIENCE, System, kill, spares};
use crate::harness::build::Images;
use crate::harness::process::Running;
use crate::harness::wait::eventually;
use fastrand::Rng;
use libtest_mimic::Failed;
use rustix::process::Signal;
use serde_json::Value;
use std::sync::atomic::Ordering;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

/// How many seconds it lasts, and by which seed, if somebody says so.
const SECONDS: &str = "OUTBOARD_SOAK_SECONDS";
const SEED: &str = "OUTBOARD_SOAK_SEED";
/// If nobody does.
const SECONDS_DEFAULT: u64 = 5;
const SEED_DEFAULT: u64 = 16;
/// The longest pause between two things that happen.
const PAUSE_MAX: u64 = 400;
/// Datagrams that are counted at the end.
const COUNTED: u64 = 1000;
/// How often it is looked whether they add up.
const COUNTED_TRIES: u32 = 3;
/// What commands say of a component that is not there at the moment.
const AWAY: [&str; 2] = [" is not up; ", " is called "];
const NAMES: [&str; 2] = ["firewall", "echo"];

/// What may happen.
const HAPPENS: [(&str, Happens); 7] = [
    ("a guest is killed", |soak, name| {
        let guest = eventually(PATIENCE, || soak.system.guest(name))?;
        soak.kill(name, guest)
    }),
    ("a monitor is killed", |soak, name| {
        let monitor = eventually(PATIENCE, || soak.system.monitor(name))?;
        soak.kill(name, monitor)
    }),
    ("a component is started again", |soak, name| {
        soak.command(&["restart", name])
    }),
    ("an image is replaced", |soak, name| {
        let image = soak.image(name);
        soak.command(&["replace", name, &image])
    }),
    ("rules are loaded", |soak, _| {
        let rules = soak.system.runtime.path().join("all.nft");
        soak.command(&["rules", "load", "firewall", &rules.display().to_string()])
    }),
    ("a spare is killed", |soak, _| soak.kill_spares()),
    ("the supervisor is killed", |soak, _| soak.supervise()),
];
type Happens = fn(&mut Soak<'_>, &str) -> Result<(), Failed>;

/// A system to which things happen.
struct Soak<'a> {
    images: &'a Images,
    system: &'a System<'a>,
    supervisor: Option<Running>,
    rng: Rng,
}

impl Soak<'_> {
    /// Has a command done, as soon as the component is there: on a busy machine, one that has begun
    /// a moment ago may have been taken for a spare, and killed.
    fn command(&self, words: &[&str]) -> Result<(), Failed> {
        let ended = eventually(PATIENCE, || {
            let ended = self.system.outboard(words)?.finish()?;
            match AWAY.iter().any(|away| ended.stderr.contains(away)) {
                true => Err(format!("{words:?}: {ended:?}").into()),
                false => Ok(ended),
            }
        })?;
        ended.expect_status(0)?;
        Ok(())
    }

    /// One of two files with the image of a component.
    fn image(&mut self, name: &str) -> String {
        let number = self.rng.u32(0..2);
        let folder = self.system.runtime.path();
        folder
            .join(format!("{name}.{number}"))
            .display()
            .to_string()
    }

    /// Kills a process of a component, and waits for the next run: on a busy machine, a process
    /// that was killed goes on for a while.
    fn kill(&self, name: &str, process: u32) -> Result<(), Failed> {
        let run = self.system.run_of(name);
        // It may have ended meanwhile.
        let _ = kill(process);
        self.system.wait_for_run(name, run + 1)
    }

    fn kill_spares(&self) -> Result<(), Failed> {
        let supervisor = self.supervisor.as_ref().ok_or("no supervisor")?;
        // One that is just being loaded is spared.
        for spare in spares::found(self.system, supervisor)? {
            let _ = kill(spare);
        }
        Ok(())
    }

    /// Kills the supervisor, and has another one take over.
    fn supervise(&mut self) -> Result<(), Failed> {
        let former = self.supervisor.take().ok_or("no supervisor")?;
        former.signal(Signal::KILL);
        former.finish()?.expect_status(137)?;
        self.supervisor = Some(self.system.up(NAMES.len())?);
        Ok(())
    }

    /// Something happens, and afterwards both components are up and each connection goes on.
    fn turn(&mut self, work: &Work) -> Result<&'static str, Failed> {
        let (what, happens) = HAPPENS[self.rng.usize(0..HAPPENS.len())];
        let name = NAMES[self.rng.usize(0..NAMES.len())];
        happens(self, name).map_err(|why| format!("{what}, {name}: {why:?}"))?;
        self.system.wait_for("up again", |status| {
            let all = status["components"].as_array();
            all.is_some_and(|all| all.iter().all(|one| one["state"] == "up"))
        })?;
        work.wait()
            .map_err(|why| format!("behind {what}, {name}: {why:?}"))?;
        sleep(Duration::from_millis(self.rng.u64(0..PAUSE_MAX)));
        Ok(what)
    }
}

fn number<T: std::str::FromStr>(name: &str, default: T) -> Result<T, Failed> {
    match std::env::var(name) {
        Err(_) => Ok(default),
        Ok(text) => text
            .parse()
            .map_err(|_| format!("{name}={text}: no number").into()),
    }
}

pub fn soak(images: &Images) -> Result<(), Failed> {
    let (seconds, seed) = (
        number(SECONDS, SECONDS_DEFAULT)?,
        number(SEED, SEED_DEFAULT)?,
    );
    println!("{SECONDS}={seconds} {SEED}={seed}");
    let system = links::system_of(images, &spares::file(images, true))?;
    for (name, variant) in [("firewall", "-link"), ("echo", "-kept")] {
        for number in 0..2 {
            let copy = system.runtime.path().join(format!("{name}.{number}"));
            std::fs::copy(images.appliance(name, variant), copy)?;
        }
    }
    std::fs::write(system.runtime.path().join("all.nft"), ALL)?;
    let supervisor = Some(system.up(NAMES.len())?);
    let mut soak = Soak {
        images,
        system: &system,
        supervisor,
        rng: Rng::with_seed(seed),
    };
    let busy = (0..BUSY).map(|_| Stream::new(&system));
    let busy = busy.collect::<Result<Vec<_>, _>>()?;
    let (work, begin) = (Work::default(), Instant::now());
    let mut turns = 0;
    scope(|threads| {
        let busy: Vec<_> = busy
            .into_iter()
            .enumerate()
            .map(|(number, stream)| {
                let work = &work;
                threads.spawn(move || work.on(number, stream))
            })
            .collect();
        let mut happened = work.wait();
        while happened.is_ok() && begin.elapsed() < Duration::from_secs(seconds) {
            happened = soak.turn(&work).map(drop);
            turns += 1;
        }
        work.done.store(true, Ordering::Relaxed);
        let mut ends = busy.into_iter().map(|one| {
            let end = one.join();
            end.unwrap_or_else(|_| Err("a connection's thread has panicked".into()))
        });
        ends.try_for_each(|end| end).and(happened)
    })?;
    let rounds: u64 = work.rounds().iter().sum();
    println!("{turns} things happened, and connections had their bytes back {rounds} times");
    soak.adds_up()?;
    let supervisor = soak.supervisor.take();
    system.down(supervisor)
}

impl Soak<'_> {
    /// [`Self::adds_up_once`]. What is still under way while instances change is counted on one
    /// side alone, so a few tries are allowed.
    fn adds_up(&self) -> Result<(), Failed> {
        for _ in 1..COUNTED_TRIES {
            if self.adds_up_once().is_ok() {
                return Ok(());
            }
        }
        self.adds_up_once()
    }

    /// Of datagrams through instances that have begun anew, each place has received what the one
    /// before it has sent, or says what it dropped.
    fn adds_up_once(&self) -> Result<(), Failed> {
        NAMES
            .iter()
            .try_for_each(|name| self.command(&["restart", name]))?;
        Stream::new(self.system)?.round(nothing)?;
        spares::count(self.system, COUNTED)?;
        eventually(PATIENCE, || {
            let firewall = self.counted("firewall", "private")?;
            let echo = self.counted("echo", "service")?;
            let there = [firewall.sent, echo.received + echo.lost];
            let back = [echo.sent, firewall.received + firewall.lost];
            match there[0] == there[1] && back[0] == back[1] && echo.received >= COUNTED {
                true => Ok(()),
                false => Err(format!("sent and received: {there:?}, {back:?}").into()),
            }
        })
    }

    /// What a port counted.
    fn counted(&self, name: &str, port: &str) -> Result<Counted, Failed> {
        let runtime = &self.system.runtime;
        let said = runtime.says(self.images, &["stats", name, "--json"])?;
        let stats: Value = serde_json::from_str(&said)?;
        let ports = stats["ports"].as_array().ok_or("no ports")?;
        let port = ports.iter().find(|found| found["name"] == port);
        let port = port.ok_or("no such port")?;
        let number = |value: &Value| value.as_u64().ok_or("no number");
        Ok(Counted {
            sent: number(&port["transmit"]["frames"])?,
            received: number(&port["receive"]["frames"])?,
            lost: number(&port["drops"]["link_lost"])?,
        })
    }
}

/// Frames of a port.
struct Counted {
    sent: u64,
    received: u64,
    lost: u64,
}
