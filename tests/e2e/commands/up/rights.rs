//! Who holds what: each row of `outboard up --show` is looked for in the processes of all
//! components. Its own has it with the right that the row names, and no other has it at all.
//!
//! ```text
//!   wan0 === firewall === link === echo        state: memory      server: a disk, svc0
//!   card: a network card in software           open: the host's sockets
//! ```

use super::links::{of_link, system_of};
use super::{PATIENCE, System, guest};
use crate::commands::messages::shell;
use crate::devices::software_nic::model;
use crate::harness::build::Images;
use crate::harness::wait::eventually;
use libtest_mimic::Failed;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, read_link};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// All kinds of things that a component may hold.
const COMPONENTS: [&str; 6] = ["firewall", "echo", "state", "server", "card", "open"];
/// What every process may share: it says nothing and keeps nothing.
const OF_ALL: [&str; 2] = ["/dev/null", "/dev/urandom"];

/// What processes have open or mapped, and whether they can write there. A file, a pipe or a socket
/// is named by device and inode, a tap by its name, an event by its number; of other things the
/// kernel says of what kind they are.
type Held = BTreeMap<String, bool>;

/// A component's processes.
struct Processes {
    /// Of the guest and of its monitor.
    all: Held,
    guest: Held,
    jailed: bool,
}

fn file(images: &Images, card: &Path) -> String {
    let state = guest(
        images,
        "state",
        "arguments = [\"7\", \"wait\"]\nstate.memory = \"memory\"",
    );
    format!(
        "{}core = 1\n\n{state}\n[component.server]\nimage = {:?}\nmemory = 64\narguments = \
         [\"--ipv4=10.0.1.2/24\"]\nnet.service = \"tap:svc0\"\nblock.files = \"files.img\"\n\n\
         [component.card]\nimage = {:?}\nmemory = 64\narguments = [\"--ipv4=10.0.2.2/24\"]\n\
         pci.service = \"vfio-user:{}\"\n\n[component.open]\nimage = {:?}\nhost = \"process\"\n\
         memory = 64\nsockets.service = \"host\"\n",
        of_link(images),
        images.appliance("http", "-disk"),
        images.appliance("echo", "-82599"),
        card.display(),
        images.appliance("echo", "-sockets"),
    )
}

pub fn nobody_holds(images: &Images) -> Result<(), Failed> {
    let mut system = system_of(images, "")?;
    let folder = system.runtime.path().to_owned();
    let socket = folder.join("card");
    fs::write(&system.file, file(images, &socket))?;
    let segment = system.segment.take().ok_or("no network")?;
    shell(
        &segment,
        "ip tuntap add dev svc0 mode tap && ip link set dev svc0 up",
    )?;
    let disk = folder.join("files.img").display().to_string();
    shell(
        &segment,
        &format!(
            "mkdir {disk}.d && echo hello > {disk}.d/index.html && mke2fs -q -d {disk}.d {disk} 4M"
        ),
    )?;
    let card = model(images, &socket, "loop")?;
    system.segment = Some(segment);
    let supervisor = system.up(COMPONENTS.len())?;
    let shown = {
        let file = system.file.display().to_string();
        system.outboard(&["up", "--show", &file])?.finish()?
    };
    shown.expect_status(0)?;
    // A guest is up before its jail has closed what it was started with.
    eventually(PATIENCE, || judge(&system, card.id(), &shown.stdout))?;
    system.down(Some(supervisor))?;
    card.finish()?.expect_status(0)?;
    Ok(())
}

/// Judges each row, and whatever two components have in common.
fn judge(system: &System<'_>, card: u32, shown: &str) -> Result<(), Failed> {
    let mut all = BTreeMap::new();
    for name in COMPONENTS {
        all.insert(name, Processes::of(system, name)?);
    }
    for line in shown.lines().skip(1) {
        let cells = line.split("  ").map(str::trim);
        let cells: Vec<_> = cells.filter(|cell| !cell.is_empty()).collect();
        let [name, what, source, right] = cells[..] else {
            return Err(format!("no row of four: {line:?}").into());
        };
        let processes = all.get(name).ok_or("a row of nobody")?;
        let row = Row {
            system,
            name,
            what,
            source,
            right,
        };
        row.judge(processes)
            .map_err(|why| format!("{line:?}: {why:?}: {:?}", processes.guest))?;
    }
    nothing_in_common(&all)?;
    // A card is another process, and has its driver's memory.
    let card = held_by(card)?;
    for (name, processes) in &all {
        let shares = card
            .keys()
            .any(|object| processes.guest.contains_key(object));
        if shares != (*name == "card") {
            return Err(format!("{name} and the network card: {shares}").into());
        }
    }
    Ok(())
}

/// A row of the table.
struct Row<'a> {
    system: &'a System<'a>,
    name: &'a str,
    what: &'a str,
    source: &'a str,
    right: &'a str,
}

impl Row<'_> {
    /// Whether the component has it so. That no other one has it, [`nothing_in_common`] finds.
    fn judge(&self, processes: &Processes) -> Result<(), Failed> {
        let own = |file: &str| identity(&self.system.runtime.file(self.name, file));
        let kind = self.what.split(' ').next().unwrap_or_default();
        match (kind, self.right) {
            // It is read at the start; a process without a jail may keep it open.
            ("image" | "rules", "read") => {
                let file = identity(&self.system.runtime.path().join(self.source))?;
                let writes = processes.all.get(&file);
                is(writes.is_none_or(|writes| !writes), "it could write")
            }
            ("net", "send, receive") => {
                has(&processes.guest, &format!("tap {}", self.source), true)
            }
            ("net", _) => {
                let memory = processes.of_kind("memfd:link");
                is(
                    memory == [false, true],
                    "not an end to write and one to read",
                )?;
                let events = processes.of_kind("event ");
                is(events.len() == 2, "not two events")
            }
            ("block", "read, write") => {
                let file = identity(&self.system.runtime.path().join(self.source))?;
                has(&processes.guest, &file, true)
            }
            ("state", _) => {
                let memory = processes.of_kind("memfd:state");
                is(memory == [true], "not its memory")
            }
            ("sockets", _) => {
                let sockets = processes.of_kind("socket");
                is(!sockets.is_empty() && !processes.jailed, "no socket")
            }
            ("pci", _) => is(processes.jailed, "it is not jailed"),
            // It is made when it is written.
            ("core", "write, at its end") => is(processes.jailed, "it is not jailed"),
            ("memory", "all") => Ok(()),
            ("console", "write") => has(&processes.all, &own("console")?, true),
            ("shared", _) => has(&processes.guest, &own("share")?, true),
            ("event", "wait") => has(&processes.guest, &own("event")?, true),
            ("timer,", "wait") => {
                let kinds = ["[timerfd]", "[eventpoll]"];
                let found = kinds.map(|kind| !processes.of_kind(kind).is_empty());
                is(found == [true; 2], "no timer or wait set")
            }
            // Not a thing: the supervisor holds a component to it (`up::who makes no progress`).
            ("time", _) => Ok(()),
            _ => Err("no test says who cannot".into()),
        }
    }
}

/// What two components have in common is a link, which each end writes its own half of.
fn nothing_in_common(all: &BTreeMap<&str, Processes>) -> Result<(), Failed> {
    for (one, its) in all {
        for (other, theirs) in all.range(..*one) {
            let common = its
                .all
                .iter()
                .filter(|(object, _)| !object.starts_with("anon_inode"));
            let common = common.filter_map(|(object, writes)| {
                Some((object.as_str(), *writes, *theirs.all.get(object)?))
            });
            let common: Vec<_> = common.collect();
            let halves = common
                .iter()
                .filter(|(object, ..)| object.contains("memfd:link"));
            let halves: BTreeSet<_> = halves.map(|(_, writes, write)| (*writes, *write)).collect();
            let ends = [(true, false), (false, true)].into();
            let is_link = common.len() == 4 && halves == ends;
            let joined = (*one, *other) == ("firewall", "echo");
            if is_link != joined || !(joined || common.is_empty()) {
                return Err(format!("{one} and {other} have in common: {common:?}").into());
            }
        }
    }
    Ok(())
}

fn is(so: bool, why: &'static str) -> Result<(), Failed> {
    so.then_some(()).ok_or_else(|| why.into())
}

fn has(held: &Held, object: &str, writable: bool) -> Result<(), Failed> {
    match held.get(object) {
        Some(found) if *found == writable => Ok(()),
        found => Err(format!("{object}: {found:?}").into()),
    }
}

impl Processes {
    fn of(system: &System<'_>, name: &str) -> Result<Self, Failed> {
        let pid = system.guest(name)?;
        let guest = held_by(pid)?;
        let mut all = held_by(system.monitor(name)?)?;
        all.extend(guest.clone());
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        // Filters, by seccomp(2).
        let jailed = status.lines().any(|line| line == "Seccomp:\t2");
        Ok(Self { all, guest, jailed })
    }

    /// Whether the guest can write each thing that it has of this kind, in order.
    fn of_kind(&self, kind: &str) -> Vec<bool> {
        let of = self
            .guest
            .iter()
            .filter(|(object, _)| object.contains(kind));
        let mut writable: Vec<_> = of.map(|(_, writable)| *writable).collect();
        writable.sort_unstable();
        writable
    }
}

/// What a file is called here.
fn identity(path: &Path) -> Result<String, Failed> {
    let file = fs::metadata(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(format!("{} {}", file.ino(), path_of(path)))
}

/// The name of a file, without where it lies: the same for an entry of `/proc` and for its own.
fn path_of(path: &Path) -> String {
    path.file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// What a process has open, and what it has mapped of files that it shares (`proc(5)`).
fn held_by(pid: u32) -> Result<Held, Failed> {
    let mut held = Held::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let place = entry?.path();
        let info = place.display().to_string().replace("/fd/", "/fdinfo/");
        // It may be closed while this is read.
        let (Ok(link), Ok(info)) = (read_link(&place), fs::read_to_string(info)) else {
            continue;
        };
        let link = link.display().to_string();
        let link = link.trim_end_matches(" (deleted)").to_owned();
        if OF_ALL.contains(&link.as_str()) {
            continue;
        }
        let field = |name: &str| {
            let mut lines = info.lines();
            lines.find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
        };
        let object = match (field("iff:"), field("eventfd-id:")) {
            (Some(tap), _) => format!("tap {tap}"),
            (_, Some(event)) => format!("event {event}"),
            _ if link.starts_with("anon_inode") => link,
            _ => {
                let Ok(file) = fs::metadata(&place) else {
                    continue;
                };
                format!("{} {}", file.ino(), path_of(Path::new(&link)))
            }
        };
        // Octal; the lowest two bits are what it was opened for (open(2)).
        let flags = field("flags:").unwrap_or_default();
        *held.entry(object).or_default() |= !flags.ends_with(['0', '4']);
    }
    for line in fs::read_to_string(format!("/proc/{pid}/maps"))?.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        // Private mappings of programs are nobody's but their own.
        if let [_, rights, _, _, inode, path, ..] = words[..]
            && rights.ends_with('s')
            && inode != "0"
        {
            let object = format!("{inode} {}", path_of(Path::new(path)));
            *held.entry(object).or_default() |= rights.contains('w');
        }
    }
    Ok(held)
}
