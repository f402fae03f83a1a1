//! Connections that end in a component, or go through one that judges them by their states. It is
//! killed under load: each goes on, and each byte comes back once.
//!
//! ```text
//!   test === wan0 === firewall === link === echo
//! ```
//!
//! The one or the other has its connections in a state.

use super::links::{self, Stream, nothing};
use super::{PATIENCE, System, kill};
use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::process::run;
use crate::harness::programs;
use crate::harness::wait::eventually;
use libtest_mimic::{Failed, Trial};
use serde_json::Value;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{scope, sleep};
use std::time::Duration;

/// Connections that are always at work.
pub const BUSY: usize = 4;
/// How often it is killed.
const KILLS: u64 = 12;
/// A run that lasts longer than a second is no part of a crash loop, which would be slowed with
/// each kill: pauses double, up to half a minute.
const SOUND: Duration = Duration::from_millis(1100);

/// What a router lends outlives it.
pub fn trial(images: &'static Images, network: &Network) -> Trial {
    let missing = programs::missing(&["ip", "busybox"]);
    let name = "up::what a router has lent outlives it".to_owned();
    network.trial_unless(missing, name, || lends(images))
}

/// What all connections have done so far.
#[derive(Default)]
pub struct Work {
    pub rounds: [AtomicU64; BUSY],
    pub done: AtomicBool,
}

impl Work {
    pub fn rounds(&self) -> [u64; BUSY] {
        self.rounds
            .each_ref()
            .map(|rounds| rounds.load(Ordering::Relaxed))
    }

    /// Waits until each connection has had its bytes back once more. Then none waits longer and
    /// longer with what it sends again because somebody is killed each time.
    pub fn wait(&self) -> Result<(), Failed> {
        let first = self.rounds();
        eventually(PATIENCE, || {
            let mut pairs = first.iter().zip(self.rounds());
            match pairs.all(|(first, now)| now > *first) {
                true => Ok(()),
                false => Err("no bytes come back".into()),
            }
        })
    }

    /// Sends bytes and has them back until all is done.
    pub fn on(&self, number: usize, mut stream: Stream) -> Result<(), Failed> {
        while !self.done.load(Ordering::Relaxed) {
            stream.round(nothing)?;
            self.rounds[number].fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Rules by which a connection passes that was seen to begin, and no other.
const STRICT: &str = "table bridge t {
    chain f {
        type filter hook forward priority filter; policy drop;
        ether type arp counter accept
        ct state established counter accept
        ct state new tcp dport 7 tcp flags & (fin | syn | rst | ack) == syn counter accept
        counter
    }
}
";

/// A router leads connections to its own address to echo, which sees them come from the router.
const TRANSLATED: &str = "table ip nat {
    chain p {
        type nat hook prerouting priority dstnat;
        tcp dport 7 dnat to 192.0.2.2
    }
    chain s {
        type nat hook postrouting priority srcnat;
        oifname public masquerade
    }
}
table inet filter {
    chain f {
        type filter hook forward priority filter; policy drop;
        ct state established counter accept
        ct state new ct status dnat tcp flags & (fin | syn | rst | ack) == syn counter accept
    }
}
";

/// No connection is lost, and no byte of any; one that was silent all the time is still there.
pub fn connections(images: &Images) -> Result<(), Failed> {
    let linked = links::of_link(images);
    let [plain, kept] = ["-link", "-kept"].map(|name| images.appliance("echo", name));
    let text = linked.replace(&format!("{plain:?}"), &format!("{kept:?}"));
    let system = links::system_of(images, &(text + "state.connections = \"memory\"\n"))?;
    let supervisor = system.up(2)?;
    under_load(&system, "echo", nothing)?;
    let said = system.runtime.says(images, &["logs", "echo"])?;
    let expected = format!("echo: connections: {} go on, 0 are damaged\n", BUSY + 1);
    if !said.contains(&expected) {
        return Err(format!("it does not say {expected:?} but {said:?}").into());
    }
    system.down(Some(supervisor))
}

/// The same of a firewall between them, whose rules know them. No rule has counted less than
/// before.
pub fn judged(images: &Images) -> Result<(), Failed> {
    let linked = links::of_link(images);
    let [plain, kept] = ["-link", "-kept"].map(|name| images.appliance("firewall", name));
    let text = linked.replace(
        &format!("{plain:?}\n"),
        &format!("{kept:?}\nstate.connections = \"memory\"\n"),
    );
    let system = links::system_of(images, &text)?;
    std::fs::write(system.runtime.path().join("all.nft"), STRICT)?;
    let supervisor = system.up(2)?;
    let mut before = Vec::new();
    under_load(&system, "firewall", || {
        let now = counted(&system)?;
        let fewer = before.iter().zip(&now).any(|(before, now)| now < before);
        if fewer || now.len() < before.len() {
            return Err(format!("{before:?} became {now:?}").into());
        }
        before = now;
        Ok(())
    })?;
    let said = system.runtime.says(images, &["logs", "firewall"])?;
    let expected = format!("firewall: connections: {} go on\n", BUSY + 1);
    if !said.contains(&expected) {
        return Err(format!("it does not say {expected:?} but {said:?}").into());
    }
    system.down(Some(supervisor))
}

/// The same of a router that translates both ends of each connection.
pub fn translated(images: &Images) -> Result<(), Failed> {
    let text = format!(
        "[component.router]\nimage = {:?}\nmemory = 32\nrules = \"all.nft\"\n\
         arguments = [\"--ipv4:private=10.0.0.2/24\", \"--ipv4:public=192.0.2.1/24\"]\n\
         net.private = \"tap:wan0\"\nnet.public = \"link:inner\"\n\
         state.connections = \"memory\"\nstate.leases = \"memory\"\nafter = [\"echo\"]\n\n\
         [component.echo]\nimage = {:?}\nmemory = 64\narguments = [\"--ipv4=192.0.2.2/24\"]\n\
         net.service = \"link:inner\"\n",
        images.appliance("router", "-link-kept"),
        images.appliance("echo", "-link"),
    );
    let system = links::system_of(images, &text)?;
    std::fs::write(system.runtime.path().join("all.nft"), TRANSLATED)?;
    let supervisor = system.up(2)?;
    under_load(&system, "router", nothing)?;
    let said = system.runtime.says(images, &["logs", "router"])?;
    let expected = format!("router: connections: {} go on\n", BUSY + 1);
    if !said.contains(&expected) {
        return Err(format!("it does not say {expected:?} but {said:?}").into());
    }
    system.down(Some(supervisor))
}

/// A router that has lent all addresses lends nobody else one when it is killed, and whoever has
/// one has it again.
fn lends(images: &Images) -> Result<(), Failed> {
    let text = format!(
        "[component.router]\nimage = {:?}\nmemory = 32\nnet.public = \"tap:lan0\"\n\
         net.private = \"tap:wan0\"\nstate.connections = \"memory\"\nstate.leases = \"memory\"\n\
         arguments = [\"--ipv4:private=10.1.0.1/24\", \"--ipv4:public=192.0.2.9/24\",\n\
         \"--lend:private=10.1.0.100-10.1.0.101\"]\n",
        images.appliance("router", "-kept"),
    );
    let system = System::of_two(images)?;
    std::fs::write(&system.file, text)?;
    let segment = system.segment.as_ref().ok_or("no network")?;
    let script = system.runtime.path().join("udhcpc");
    std::fs::write(
        &script,
        "#!/bin/sh\n[ \"$1\" = bound ] && echo \"lent $ip\"\n",
    )?;
    std::fs::set_permissions(&script, Permissions::from_mode(0o755))?;
    let ask = |identifier: &str| {
        let mut command = Command::new("busybox");
        command
            .args(["udhcpc", "-f", "-q", "-n", "-t", "3", "-T", "1", "-i"])
            .args(["bridge", "-x", &format!("0x3d:{identifier}"), "-s"])
            .arg(&script);
        segment.run(|| run(&mut command))
    };
    let supervisor = system.up(1)?;
    let mut had = Vec::new();
    for identifier in ["0001", "0002"] {
        let ended = ask(identifier)?;
        ended.expect_status(0)?.expect_stdout("lent 10.1.0.10")?;
        had.push(ended.stdout);
    }
    for round in 2..4 {
        sleep(SOUND);
        kill(system.guest("router")?)?;
        system.wait_for_run("router", round)?;
        ask("0003")?.expect_status(1)?;
        for (identifier, lent) in ["0001", "0002"].into_iter().zip(&had) {
            ask(identifier)?.expect_status(0)?.expect_stdout(lent)?;
        }
    }
    let said = system.runtime.says(images, &["logs", "router"])?;
    if !said.contains("router: leases: 2 go on\n") {
        return Err(format!("it does not say so: {said:?}").into());
    }
    system.down(Some(supervisor))
}

/// Frames that each of the firewall's rules has counted, once they are in force.
fn counted(system: &System<'_>) -> Result<Vec<u64>, Failed> {
    eventually(PATIENCE, || {
        let words = ["rules", "show", "--json", "firewall"];
        let rules: Value = system.runtime.json(system.images, &words)?;
        if rules["generation"] != 1 {
            return Err(format!("they are not in force: {rules}").into());
        }
        let entries = rules["entries"].as_array().ok_or("no rules")?;
        let frames = entries.iter().map(|rule| rule["frames"].as_u64());
        let frames = frames.collect::<Option<_>>();
        frames.ok_or_else(|| format!("no counters: {rules}").into())
    })
}

/// A component is killed again and again while connections are at work. Each goes on, and so does
/// one that is silent meanwhile. `each` looks at it once it is up again.
fn under_load(
    system: &System<'_>,
    name: &str,
    each: impl FnMut() -> Result<(), Failed>,
) -> Result<(), Failed> {
    let mut silent = Stream::new(system)?;
    silent.round(nothing)?;
    let busy = (0..BUSY).map(|_| Stream::new(system));
    let busy = busy.collect::<Result<Vec<_>, _>>()?;
    let work = &Work::default();
    scope(|threads| {
        let busy: Vec<_> = busy
            .into_iter()
            .enumerate()
            .map(|(number, stream)| threads.spawn(move || work.on(number, stream)))
            .collect();
        let killed = kill_often(system, name, work, each);
        work.done.store(true, Ordering::Relaxed);
        let mut ends = busy.into_iter().map(|one| {
            let end = one.join();
            end.unwrap_or_else(|_| Err("a connection's thread has panicked".into()))
        });
        ends.try_for_each(|end| end).and(killed)
    })?;
    silent.round(nothing)?;
    Stream::new(system)?.round(nothing)
}

/// Each time while bytes are under way.
fn kill_often(
    system: &System<'_>,
    name: &str,
    work: &Work,
    mut each: impl FnMut() -> Result<(), Failed>,
) -> Result<(), Failed> {
    for run in 2..2 + KILLS {
        work.wait()?;
        sleep(SOUND);
        kill(system.guest(name)?)?;
        system.wait_for_run(name, run)?;
        each()?;
    }
    work.wait()
}
