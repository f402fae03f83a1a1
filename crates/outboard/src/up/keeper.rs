//! The keeper: parent and reaper of all components, and holder of their descriptors, so that the
//! end of a supervisor ends none of them.
//!
//! It is a copy of the supervisor in a session of its own. It decides nothing: it starts, loads,
//! signals and reaps what it is told to, and says what has ended. It never waits for anybody but in
//! `poll`, and has room for [`COMPONENTS_MAX`] components and as many spares. It ends when it is
//! told to, and when it has neither a component that runs nor a supervisor. Its components end with
//! it.

use super::channel::{self, Channel, Received};
use super::component::FIRST_HANDED;
use super::file::COMPONENTS_MAX;
use super::groups;
use super::handed::{self, Handed};
use super::message::{Answer, Request, Start};
use crate::run;
use crate::said;
use abi::exit;
use linux::signal::Held;
use linux::{descriptor, process};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitOptions, kill_process, setrlimit, waitpid,
};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

/// What the keeper is called as a process.
const KEEPER: &CStr = c"outboard-keeper";
/// What the monitor of a component is called.
const MONITOR: &CStr = c"outboard";
/// Signals that are for the supervisor: the keeper outlives it.
const IGNORED: [Signal; 3] = [Signal::HUP, Signal::INT, Signal::TERM];
/// Children that are reaped, and messages that are taken, before the others have their turn.
const TURN_MAX: usize = 64;
/// How long a keeper that nobody needs waits for a supervisor, if components have left states: who
/// kills both a supervisor and a component, or a service manager that starts the supervisor anew,
/// finds them. In nanoseconds.
const ORPHANED_MAX: u64 = 60_000_000_000;

/// Starts a keeper that listens at `path`; the connection to it.
///
/// # Errors
/// There is no process, or no socket for it.
pub fn start(path: &Path, held: &Held) -> io::Result<Channel> {
    let listener = channel::listener(path)?;
    let (ours, its) = Channel::pair()?;
    process::fork_apart(KEEPER, held, || {
        let status = keep(&listener, its);
        // Whoever comes now finds none.
        let _ = rustix::fs::unlink(path);
        match status {
            Ok(()) => exit::SUCCESS,
            Err(_) => exit::FAILURE,
        }
    })?;
    Ok(ours)
}

/// A component, and how it was started last.
struct Entry {
    start: Start,
    /// Those of its command line.
    descriptors: Vec<OwnedFd>,
    started: u64,
    /// Its process, until that is reaped.
    process: Option<Pid>,
    /// How the last run ended.
    status: Option<i32>,
}

/// The spare of a component: what its next run begins with.
struct Spare {
    start: Start,
    descriptors: Vec<OwnedFd>,
    process: Pid,
    /// A byte into it, and the spare is the component.
    begin: OwnedFd,
}

struct Keeper {
    held: Held,
    supervisor: Option<Channel>,
    entries: Vec<Entry>,
    spares: Vec<Spare>,
}

/// The keeper's life.
fn keep(listener: &OwnedFd, supervisor: Channel) -> io::Result<()> {
    // Of whatever the supervisor has open, only these: a pipe of its would never end.
    descriptor::close_all_but(&mut [supervisor.as_fd().as_raw_fd(), listener.as_raw_fd()])?;
    descriptor::open_standard()?;
    rustix::process::chdir("/")?;
    let held = Held::new(IGNORED)?;
    let signals = held.descriptor()?;
    let mut keeper = Keeper {
        held,
        supervisor: Some(supervisor),
        entries: Vec::new(),
        spares: Vec::new(),
    };
    // Since when nobody needs it.
    let mut orphaned = None;
    loop {
        let mut ends = vec![
            PollFd::new(&signals, PollFlags::IN),
            PollFd::new(listener, PollFlags::IN),
        ];
        let supervisor = keeper.supervisor.as_ref();
        ends.extend(supervisor.map(|channel| PollFd::new(channel, PollFlags::IN)));
        let most = orphaned.map(|since| Timespec {
            tv_sec: left(since, now()).div_ceil(1_000_000_000).cast_signed(),
            tv_nsec: 0,
        });
        match poll(&mut ends, most.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let comes = !ends[1].revents().is_empty();
        drop(ends);
        keeper.reap();
        if keeper.hear() {
            return Ok(());
        }
        if comes && let Some(channel) = Channel::accept(listener.as_fd()) {
            // The lock of supervisors lets one live at a time: an older one is dead.
            keeper.supervisor = Some(channel);
        }
        let has_work = keeper.entries.iter().any(|entry| entry.process.is_some());
        if has_work || keeper.supervisor.is_some() || comes {
            orphaned = None;
            continue;
        }
        let since = *orphaned.get_or_insert_with(now);
        if !keeper.has_states() || left(since, now()) == 0 {
            return Ok(());
        }
    }
}

/// How many nanoseconds a keeper that nobody has needed for so long still waits.
fn left(since: u64, now: u64) -> u64 {
    ORPHANED_MAX.saturating_sub(now.saturating_sub(since))
}

impl Keeper {
    /// Whether a component has left a state to its next instance.
    fn has_states(&self) -> bool {
        let mut handed = self.entries.iter().flat_map(|entry| &entry.start.handed);
        handed.any(|what| matches!(what, Handed::State { .. }))
    }

    /// Notes and tells who has ended. Processes of components that outlived their parent are
    /// nobody's else to reap.
    fn reap(&mut self) {
        while self.held.take().is_some() {}
        for _ in 0..TURN_MAX {
            let Ok(Some((pid, status))) = waitpid(None, WaitOptions::NOHANG) else {
                return;
            };
            let mut entries = self.entries.iter_mut();
            if let Some(entry) = entries.find(|entry| entry.process == Some(pid)) {
                entry.process = None;
                entry.status = Some(status.as_raw());
                // What fails here the next instance does.
                let _ = handed::go_down(&entry.start.handed, &entry.descriptors);
                let ended = Answer::Ended {
                    name: entry.start.name.clone(),
                    run: entry.start.run,
                    spare: false,
                    status: status.as_raw(),
                };
                self.say(&ended);
                continue;
            }
            let mut spares = self.spares.iter();
            if let Some(place) = spares.position(|spare| spare.process == pid) {
                let Start { name, run, .. } = self.spares.remove(place).start;
                let ended = Answer::Ended {
                    name,
                    run,
                    spare: true,
                    status: status.as_raw(),
                };
                self.say(&ended);
            }
        }
    }

    /// Does what the supervisor asks; whether that is the end.
    fn hear(&mut self) -> bool {
        for _ in 0..TURN_MAX {
            let Some(channel) = &self.supervisor else {
                return false;
            };
            match channel.receive() {
                Ok(Received::Message(Request::End, _)) => return true,
                Ok(Received::Message(request, descriptors)) => self.obey(request, descriptors),
                Ok(Received::Nothing) => return false,
                // Who says what is no message is no supervisor.
                Ok(Received::End) | Err(_) => self.supervisor = None,
            }
        }
        false
    }

    fn obey(&mut self, request: Request, descriptors: Vec<OwnedFd>) {
        match request {
            Request::Start(start) => {
                let about = (start.name.clone(), start.run);
                if let Err(why) = self.start(start, descriptors) {
                    self.refuse(about, false, why);
                }
            }
            Request::Load(start) => {
                let about = (start.name.clone(), start.run);
                if let Err(why) = self.load(start, descriptors) {
                    self.refuse(about, true, why);
                }
            }
            Request::Wake(name, run) => self.wake(name, run),
            Request::Dismiss(name) => self.dismiss(|spare| spare.start.name == name),
            Request::Stop(name) => self.signal(&name, Signal::TERM),
            Request::Quit(name) => self.signal(&name, Signal::QUIT),
            Request::Kill(name) => self.signal(&name, Signal::KILL),
            Request::Forget(name) => {
                let is_it = |entry: &Entry| entry.start.name == name && entry.process.is_none();
                self.entries.retain(|entry| !is_it(entry));
            }
            Request::List => self.list(),
            Request::End => {}
        }
    }

    fn start(&mut self, start: Start, descriptors: Vec<OwnedFd>) -> Result<(), String> {
        self.make_room(&start.name)?;
        let (descriptors, process) = self.fork(&start, descriptors, None)?;
        self.enter(start, descriptors, process);
        Ok(())
    }

    /// Lets go of how this component ran before, and, where there are too many, of one that is not
    /// in the file any more.
    fn make_room(&mut self, name: &str) -> Result<(), String> {
        let mut entries = self.entries.iter();
        if entries.any(|entry| entry.start.name == name && entry.process.is_some()) {
            return Err("it runs".to_owned());
        }
        let is_known = self.entries.iter().any(|entry| entry.start.name == name);
        if !is_known && self.entries.len() >= COMPONENTS_MAX {
            let mut entries = self.entries.iter();
            let idle = entries.position(|entry| entry.process.is_none());
            let idle = idle.ok_or_else(|| format!("{COMPONENTS_MAX} run already"))?;
            self.entries.remove(idle);
        }
        Ok(())
    }

    /// A monitor, which begins when a byte comes out of `begins` if there is one; and what is left
    /// of its descriptors here.
    fn fork(
        &self,
        start: &Start,
        mut descriptors: Vec<OwnedFd>,
        begins: Option<&OwnedFd>,
    ) -> Result<(Vec<OwnedFd>, Pid), String> {
        if descriptors.is_empty() {
            return Err("no file for what is said of the run".to_owned());
        }
        let report = descriptors.remove(0);
        let handed = start.handed.iter().map(Handed::descriptors).sum();
        // What it keeps is nobody's who is started.
        let own = descriptors.get(..handed).unwrap_or(&descriptors);
        let child = process::fork(MONITOR, &self.held, || monitor(start, &report, own, begins));
        let child = child.map_err(|error| format!("no process: {error}; see `ulimit -u`"))?;
        let process = Pid::from_raw(child.id().cast_signed()).ok_or("no process")?;
        Ok((descriptors, process))
    }

    /// Notes a component that runs.
    fn enter(&mut self, start: Start, descriptors: Vec<OwnedFd>, process: Pid) {
        self.entries.retain(|entry| entry.start.name != start.name);
        self.entries.push(Entry {
            start,
            descriptors,
            started: now(),
            process: Some(process),
            status: None,
        });
    }

    fn load(&mut self, start: Start, descriptors: Vec<OwnedFd>) -> Result<(), String> {
        self.dismiss(|spare| spare.start.name == start.name);
        if self.spares.len() >= COMPONENTS_MAX {
            return Err(format!("there are {COMPONENTS_MAX} spares already"));
        }
        let pipe = rustix::pipe::pipe_with(PipeFlags::CLOEXEC);
        let (begins, begin) = pipe.map_err(|errno| format!("no pipe: {errno}; see `ulimit -n`"))?;
        let (descriptors, process) = self.fork(&start, descriptors, Some(&begins))?;
        self.spares.push(Spare {
            start,
            descriptors,
            process,
            begin,
        });
        Ok(())
    }

    fn wake(&mut self, name: String, run: u64) {
        let is_it = |spare: &Spare| spare.start.name == name && spare.start.run == run;
        let begun = match self.spares.iter().position(is_it) {
            Some(place) => {
                let spare = self.spares.remove(place);
                self.begin(spare)
            }
            None => Err("its spare has ended".to_owned()),
        };
        if let Err(why) = begun {
            self.refuse((name, run), false, why);
        }
    }

    fn begin(&mut self, spare: Spare) -> Result<(), String> {
        self.make_room(&spare.start.name)?;
        // Where it has just ended, this run of the component ends so.
        let _ = rustix::io::write(&spare.begin, &[1]);
        self.enter(spare.start, spare.descriptors, spare.process);
        Ok(())
    }

    /// Ends some spares. Nobody hears of their ends.
    fn dismiss(&mut self, which: impl Fn(&Spare) -> bool) {
        self.spares.retain(|spare| {
            let goes = which(spare);
            if goes {
                // It has begun nothing, and removes what it has made.
                let _ = kill_process(spare.process, Signal::TERM);
            }
            !goes
        });
    }

    /// Nobody but this process reaps it, so that its number is its own.
    fn signal(&self, name: &str, signal: Signal) {
        let mut entries = self.entries.iter().filter(|entry| entry.start.name == name);
        if let Some(process) = entries.find_map(|entry| entry.process) {
            let _ = kill_process(process, signal);
        }
    }

    /// A supervisor that asks has just begun, and loads spares of its own.
    fn list(&mut self) {
        self.dismiss(|_| true);
        let Some(channel) = &self.supervisor else {
            return;
        };
        let mut told = Ok(());
        for entry in &self.entries {
            let found = Answer::Found {
                start: entry.start.clone(),
                started: entry.started,
                status: entry.status,
            };
            let descriptors: Vec<_> = entry.descriptors.iter().map(AsFd::as_fd).collect();
            told = told.and_then(|()| channel.send(&found, &descriptors));
        }
        if told.and_then(|()| channel.send(&Answer::All, &[])).is_err() {
            self.supervisor = None;
        }
    }

    /// Says that a run of a component, or the spare for it, could not be started.
    fn refuse(&mut self, (name, run): (String, u64), spare: bool, why: String) {
        self.say(&Answer::Refused {
            name,
            run,
            spare,
            why,
        });
    }

    /// A supervisor that does not listen has to come again, and to ask what there is.
    fn say(&mut self, answer: &Answer) {
        let said = self
            .supervisor
            .as_ref()
            .map(|channel| channel.send(answer, &[]));
        if let Some(Err(_)) = said {
            self.supervisor = None;
        }
    }
}

/// Nanoseconds of the monotonic clock.
pub fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = now.tv_sec.cast_unsigned();
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(now.tv_nsec.cast_unsigned())
}

/// A component's process: the monitor of its guest, which has nothing of the keeper's. Its exit
/// status.
fn monitor(
    start: &Start,
    report: &OwnedFd,
    descriptors: &[OwnedFd],
    begins: Option<&OwnedFd>,
) -> i32 {
    let all: Vec<_> = descriptors.iter().chain(begins).collect();
    let prepared = prepare(start, report, &all);
    let done = prepared.map_err(|error| error.to_string()).and_then(|()| {
        if let Some(settings) = &start.program {
            let ended = run::program::run(start, settings);
            return ended.map_err(|error| error.to_string());
        }
        let line = start.command_line.iter().map(Into::into);
        let mut request = run::Request::parse(line).map_err(|error| error.to_string())?;
        request.keeps_console = true;
        // It comes behind the others.
        request.standby = begins.map(|_| FIRST_HANDED + descriptors.len() as i32);
        run::run(&request).map_err(|error| error.to_string())
    });
    match done {
        Ok(status) => status.into(),
        Err(error) => {
            said::line(format_args!("outboard: {error}"));
            exit::FAILURE
        }
    }
}

fn prepare(start: &Start, report: &OwnedFd, descriptors: &[&OwnedFd]) -> io::Result<()> {
    // Its console is kept by itself: outboard logs.
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(report)?;
    // Before its number is somebody else's.
    drop(null);
    hand_over(descriptors, start.program.is_some())?;
    if let Some(group) = &start.group {
        let entered = groups::enter(group);
        entered.map_err(|error| named(group, &error))?;
    }
    if let Some(bytes) = start.memory_limit {
        let limit = Rlimit {
            current: Some(bytes),
            maximum: Some(bytes),
        };
        setrlimit(Resource::As, limit)?;
    }
    Ok(())
}

/// A failure, with the group of which it is.
fn named(group: &Path, error: &io::Error) -> io::Error {
    io::Error::other(format!("control group {}: {error}", group.display()))
}

/// Gives these descriptors the numbers from [`FIRST_HANDED`] on, and closes all others but the
/// standard ones: nobody may use what this process had open before. What the keeper owns is closed
/// behind its back, and never dropped here: this process ends by `_exit`. They are inherited by
/// programs if these are to be (`programs`).
fn hand_over(descriptors: &[&OwnedFd], programs: bool) -> io::Result<()> {
    let behind = FIRST_HANDED + i32::try_from(descriptors.len()).map_err(io::Error::other)?;
    // Out of the way first: one may have the number that another is to get.
    let away = |fd: &&OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, behind);
    let away = descriptors
        .iter()
        .map(away)
        .collect::<Result<Vec<OwnedFd>, _>>()?;
    let standard = 0..FIRST_HANDED;
    let mut kept: Vec<i32> = standard
        .chain(away.iter().map(AsRawFd::as_raw_fd))
        .collect();
    descriptor::close_all_but(&mut kept)?;
    for fd in &away {
        // The lowest that is free: all are, one after the other.
        std::mem::forget(match programs {
            true => rustix::io::dup(fd)?,
            false => rustix::io::fcntl_dupfd_cloexec(fd, FIRST_HANDED)?,
        });
    }
    std::mem::forget(away);
    descriptor::close_all_but(&mut Vec::from_iter(0..behind))
}
