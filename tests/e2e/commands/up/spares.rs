//! Spares, which are loaded and wait, and images that take the place of others.
//!
//! ```text
//!   test --- wan0 === firewall === link === echo, with its connections in a state
//! ```

use super::links::{self, Stream, nothing};
use super::{Datagrams, PATIENCE, System, children, descriptors, kill};
use crate::harness::build::Images;
use crate::harness::process::Running;
use crate::harness::wait::eventually;
use abi::state::Mark;
use libtest_mimic::Failed;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;
use zerocopy::IntoBytes;

/// How often each component is killed.
const KILLS: u64 = 5;

/// The system, where each component has a spare if it is to have one.
pub fn file(images: &Images, spare: bool) -> String {
    let linked = links::of_link(images);
    let [plain, kept] = ["-link", "-kept"].map(|name| images.appliance("echo", name));
    let text = linked.replace(&format!("{plain:?}"), &format!("{kept:?}"));
    let text = text + "state.connections = \"memory\"\n";
    text.replace("memory = 32", &format!("memory = 32\nspare = {spare}"))
        .replace("memory = 64", &format!("memory = 64\nspare = {spare}"))
}

impl System<'_> {
    /// Waits until both components have a spare that is loaded, and returns the monitors of these.
    fn spares(&self, supervisor: &Running) -> Result<Vec<u32>, Failed> {
        let mut found = Vec::new();
        eventually(PATIENCE, || {
            found = self::found(self, supervisor)?;
            let loaded = |pid: &&u32| children(**pid).is_ok_and(|all| !all.is_empty());
            let reports = ["firewall", "echo"].map(|name| self.next_report(name));
            let say = reports.iter().filter(|said| said.contains("standby: "));
            match (
                found.len(),
                found.iter().filter(loaded).count(),
                say.count(),
            ) {
                (2, 2, 2) => Ok(()),
                other => Err(format!("not two spares: {other:?}, {found:?}").into()),
            }
        })?;
        Ok(found)
    }

    /// What the spare of a component has said.
    fn next_report(&self, name: &str) -> String {
        let place = (self.run_of(name) + 1) % 12;
        let report = self.place().join(format!("{name}.{place}"));
        std::fs::read_to_string(report).unwrap_or_default()
    }
}

/// Who is killed goes on as its spare, again and again, with the same link, connections and
/// descriptors; without a spare it is started anew.
pub fn begin(images: &Images, host: &str) -> Result<(), Failed> {
    // Unwatched: a supervisor opens what it watches at some time of its own.
    let text = file(images, true).replace("spare = true", "spare = true\nlimits.progress = 0");
    let system = links::system_of(images, &links::on(&text, host))?;
    let supervisor = system.up(2)?;
    let mut stream = Stream::new(&system)?;
    let mut before = None;
    for run in 2..2 + KILLS {
        for name in ["firewall", "echo"] {
            let spares = system.spares(&supervisor)?;
            let keeper = system.keeper(None)?;
            let open = || [supervisor.id(), keeper].map(|pid| descriptors(pid).len());
            let expected = *before.get_or_insert_with(open);
            // What a spare was loaded by may still be open.
            eventually(PATIENCE, || match open() {
                open if open == expected => Ok(()),
                open => Err(format!("{expected:?} descriptors became {open:?}").into()),
            })?;
            stream.round(|| {
                kill(system.guest(name)?)?;
                system.wait_for_run(name, run)
            })?;
            let monitor = system.monitor(name)?;
            if !spares.contains(&monitor) {
                return Err(format!("{name} is {monitor}, and the spares were {spares:?}").into());
            }
        }
    }
    // A spare that ends is told, and the component does without.
    for spare in system.spares(&supervisor)? {
        kill(spare)?;
    }
    let told = "its spare has ended: its monitor was ended by SIGKILL; another one is loaded in";
    supervisor.wait_for_stderr(&format!("outboard: firewall: {told}"))?;
    supervisor.wait_for_stderr(&format!("outboard: echo: {told}"))?;
    stream.round(|| {
        kill(system.guest("firewall")?)?;
        system.wait_for_run("firewall", 2 + KILLS)
    })?;
    // The next supervisor loads its own.
    supervisor.signal(Signal::KILL);
    supervisor.finish()?.expect_status(137)?;
    let supervisor = system.up(2)?;
    system.spares(&supervisor)?;
    stream.round(nothing)?;
    system.down(Some(supervisor))
}

/// A spare of a file that is another one by now is not used.
pub fn of_its_file(images: &Images) -> Result<(), Failed> {
    let original = images.appliance("firewall", "-link");
    let text = file(images, true).replace(&format!("{original:?}"), "\"firewall.spt\"");
    let system = links::system_of(images, &text)?;
    let image = system.runtime.path().join("firewall.spt");
    std::fs::copy(&original, &image)?;
    let supervisor = system.up(2)?;
    let spares = system.spares(&supervisor)?;
    let draft = image.with_extension("draft");
    std::fs::copy(&original, &draft)?;
    std::fs::rename(&draft, &image)?;
    kill(system.guest("firewall")?)?;
    system.wait_for_run("firewall", 2)?;
    if spares.contains(&system.monitor("firewall")?) {
        return Err("a spare of the former image was used".into());
    }
    Datagrams::new(&system)?.wait()?;
    system.down(Some(supervisor))
}

/// Processes of the keeper's that are no monitors of components: those of spares.
pub fn found(system: &System<'_>, supervisor: &Running) -> Result<Vec<u32>, Failed> {
    // One that ends just now has none until the next one is there.
    let up = eventually(PATIENCE, || {
        let up = ["firewall", "echo"].map(|name| system.monitor(name));
        up.into_iter().collect::<Result<Vec<_>, _>>()
    })?;
    let mut found = children(system.keeper(Some(supervisor))?)?;
    found.retain(|pid| !up.contains(pid));
    Ok(found)
}

/// Sends so many datagrams through the firewall to echo, and has all of them back.
pub fn count(system: &System<'_>, most: u64) -> Result<(), Failed> {
    flow(system, |sent| sent == most).map(drop)
}

/// Datagrams that are under way at a time: fewer than any queue has room for.
const WINDOW: u64 = 32;

/// Sends datagrams through the firewall to echo, as many as come back, until so many are enough,
/// and waits for the last ones: how many there were. None is lost, and none comes twice.
fn flow(system: &System<'_>, is_enough: impl Fn(u64) -> bool) -> Result<u64, Failed> {
    let segment = system.segment.as_ref().ok_or("no network")?;
    let socket = segment.run(|| UdpSocket::bind("10.0.0.1:0"))?;
    socket.connect("10.0.0.2:7")?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let (mut sent, mut under_way) = (0_u64, BTreeSet::new());
    loop {
        while (under_way.len() as u64) < WINDOW && !is_enough(sent) {
            socket.send(&sent.to_ne_bytes())?;
            under_way.insert(sent);
            sent += 1;
        }
        if under_way.is_empty() {
            return Ok(sent);
        }
        let mut bytes = [0; 8];
        let received = socket.recv(&mut bytes);
        let why = |error| format!("of {sent} datagrams, {under_way:?} do not come back: {error}");
        received.map_err(why)?;
        let number = u64::from_ne_bytes(bytes);
        if !under_way.remove(&number) {
            return Err(format!("datagram {number} came twice").into());
        }
    }
}

/// A component that is started again or replaced by a command leaves its tap and its link to the
/// next instance: no frame is lost, with a spare and without.
pub fn loses_nothing(images: &Images) -> Result<(), Failed> {
    for spare in [false, true] {
        let system = links::system_of(images, &file(images, spare))?;
        let supervisor = system.up(2)?;
        Datagrams::new(&system)?.wait()?;
        let next = system.runtime.path().join("next.spt");
        std::fs::copy(images.appliance("firewall", "-link"), &next)?;
        let next = next.display().to_string();
        let done = AtomicBool::new(false);
        let flowed = scope(|threads| {
            let flow = threads.spawn(|| flow(&system, |_| done.load(Ordering::Relaxed)));
            let commands = [
                &["restart", "firewall"][..],
                &["replace", "firewall", &next],
                &["restart", "firewall"],
            ];
            let mut all = commands.into_iter();
            let said = all.try_for_each(|words| {
                system.outboard(words)?.finish()?.expect_status(0)?;
                Ok(())
            });
            done.store(true, Ordering::Relaxed);
            let flowed = flow.join();
            let flowed = flowed.unwrap_or_else(|_| Err("the flow's thread has panicked".into()));
            said.and(flowed)
        })?;
        println!("{flowed} datagrams, none lost, with spare = {spare}");
        let said = system.runtime.says(images, &["logs", "echo"])?;
        if said.matches("link down").count() > 0 || system.run_of("firewall") != 4 {
            return Err(format!("its link did not go on: {said:?}").into());
        }
        system.down(Some(supervisor))?;
    }
    Ok(())
}

/// The image of a component that runs, by `outboard ps`.
fn image_of(system: &System<'_>, name: &str) -> Result<String, Failed> {
    let json = std::fs::read(system.runtime.file(name, "instance.json"))?;
    let json: serde_json::Value = serde_json::from_slice(&json)?;
    Ok(json["image"].as_str().unwrap_or_default().to_owned())
}

/// An image of which the first instruction is none.
fn broken(original: &Path, copy: &Path) -> Result<(), Failed> {
    let mut bytes = std::fs::read(original)?;
    let word = |bytes: &[u8], at: usize| {
        let eight = bytes
            .get(at..at + 8)
            .and_then(|eight| eight.try_into().ok());
        eight.map(u64::from_le_bytes).ok_or("the image is cut")
    };
    let (entry, headers) = (word(&bytes, 24)?, word(&bytes, 32)? as usize);
    let count = usize::from(bytes[56]);
    for header in (0..count).map(|number| headers + number * 56) {
        let [offset, address, size] = [8, 16, 32].map(|at| word(&bytes, header + at));
        let (offset, address, size) = (offset?, address?, size?);
        if bytes[header] == 1 && (address..address + size).contains(&entry) {
            let at = (offset + entry - address) as usize;
            // ud2
            bytes[at..at + 2].copy_from_slice(&[0x0f, 0x0b]);
            return Ok(std::fs::write(copy, bytes)?);
        }
    }
    Err("no segment has the entry".into())
}

/// A copy of an image that says of its state `connections` that it has another layout.
fn marked(image: &Path, copy: &Path) -> Result<(), Failed> {
    let mut bytes = std::fs::read(image)?;
    let layout = Mark::find(&bytes, "connections").ok_or("the image has no mark")?;
    let [mark, other] = [layout, layout + 1].map(|layout| Mark::new("connections", layout));
    let mark = mark.as_bytes();
    let at = bytes.windows(mark.len()).position(|found| found == mark);
    let at = at.ok_or("the mark is not whole")?;
    bytes[at..at + mark.len()].copy_from_slice(other.as_bytes());
    Ok(std::fs::write(copy, bytes)?)
}

/// An image takes the place of another one under a connection; one that does not last goes again,
/// and one that cannot be used stops nothing.
pub fn replace(images: &Images) -> Result<(), Failed> {
    let system = links::system_of(images, &file(images, false))?;
    let folder = system.runtime.path().to_owned();
    let kept = images.appliance("echo", "-kept");
    let [next, fails, other] = ["next.spt", "fails.spt", "other.spt"].map(|name| folder.join(name));
    let newer = folder.join("newer.spt");
    std::fs::copy(&kept, &next)?;
    broken(&kept, &fails)?;
    marked(&kept, &newer)?;
    std::fs::copy(images.appliance("echo", "-link"), &other)?;
    let supervisor = system.up(2)?;
    let mut stream = Stream::new(&system)?;
    let replace =
        |image: &Path| system.outboard(&["replace", "echo", &image.display().to_string()]);
    stream.round(|| {
        let told = replace(&next)?.finish()?;
        told.expect_status(0)?;
        told.expect_stdout("echo runs ")?;
        Ok(())
    })?;
    let found = image_of(&system, "echo")?;
    if found != next.display().to_string() || system.run_of("echo") != 2 {
        return Err(format!("run {} is of {found}", system.run_of("echo")).into());
    }
    // It ends at once: the one before comes back, with the connection.
    stream.round(|| {
        let told = replace(&fails)?.finish()?;
        told.expect_status(1)?;
        told.expect_stderr("echo was not replaced: the guest was ended by SIGILL")?;
        system.wait_for_run("echo", 4)
    })?;
    let found = image_of(&system, "echo")?;
    if found != next.display().to_string() {
        return Err(format!("run 4 is of {found}").into());
    }
    // These stop nothing.
    for (image, why) in [
        (folder.join("none.spt"), "No such file or directory"),
        (folder.join("all.nft"), "ELF file"),
        (
            other,
            "--state:connections: the manifest names no such device",
        ),
        (newer, "does not understand what state.connections holds"),
    ] {
        let told = replace(&image)?.finish()?;
        told.expect_status(1)?;
        told.expect_stderr(why)?;
        told.expect_stderr("nothing was stopped")?;
    }
    if system.run_of("echo") != 4 {
        return Err(format!("run {}", system.run_of("echo")).into());
    }
    stream.round(nothing)?;
    system.down(Some(supervisor))
}
