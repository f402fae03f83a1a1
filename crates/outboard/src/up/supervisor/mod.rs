//! The supervisor: it feeds the machines of its components with what happens, and does what comes
//! out of them. All of its decisions are in [`super::machine`], and all processes are the keeper's.

mod commands;
mod debug;
mod join;
mod leave;
mod pool;
mod replace;
mod spares;
mod takeover;
mod watch;

use super::channel::{self, Channel, Received};
use super::component::Component;
use super::file::COMPONENTS_MAX;
use super::groups::Groups;
use super::handed::Handed;
use super::machine::{Effect, Event, Machine, START_MAX, State};
use super::message::{Answer, Request, Start};
use super::notify::Notify;
use super::place::Place;
use super::program::Program;
use super::spare;
use super::status::{self, Status};
use super::{Error, cause, cores, keeper, policy};
use crate::instance::{self, Instance};
use crate::said;
use debug::Debugger;
use join::Joined;
use linux::signal::{Held, is_ignored};
use replace::Replacement;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions, waitpid};
use spares::Spare;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tender::attach;
use watch::Progress;

/// Signals that end the system.
const ENDS: [Signal; 3] = [Signal::HUP, Signal::INT, Signal::TERM];
/// How often it is looked whether a component that was started is up.
const LOOK: Duration = Duration::from_millis(1);
/// How long the keeper may take to end.
const KEEPER_MAX: Duration = Duration::from_secs(10);
/// How long the keeper may take to say what there is.
const LIST_MAX: Duration = Duration::from_secs(10);
/// Messages that are taken before others have their turn.
const TURN_MAX: usize = 64;
/// Commands that are heard at a time; others wait.
const CLIENTS_MAX: usize = 16;

/// A component, and the command line by which it is started.
#[derive(Clone)]
struct Form {
    component: Component,
    command_line: Vec<String>,
}

impl Form {
    /// How the keeper is to start this run of it.
    fn start(&self, run: u64, groups: Option<&Groups>) -> Start {
        let Component { name, limits, .. } = &self.component;
        Start {
            name: name.clone(),
            run,
            command_line: self.command_line.clone(),
            program: self.component.program.as_ref().map(Program::settings),
            handed: self.component.handed().collect(),
            kept: self.component.kept().collect(),
            memory_limit: match groups.is_some_and(|groups| groups.memory) {
                true => None,
                false => limits.memory.map(|mib| mib << 20),
            },
            group: groups
                .filter(|groups| groups.bound(limits))
                .map(|groups| groups.of(name)),
        }
    }
}

/// A component and its life.
struct Managed {
    form: Form,
    machine: Machine,
    /// What its next run begins with.
    spare: Spare,
    /// The image that takes the place of its own.
    replacement: Replacement,
    status: status::Component,
    /// Whether the file does not have it any more.
    leaving: bool,
    /// Why this ends its run, if nobody asked for that.
    killed: Option<String>,
    /// Whether its run makes progress, once it is up.
    progress: Option<Progress>,
    /// When it was last not up any more.
    lost: Option<Duration>,
}

impl Managed {
    fn component(&self) -> &Component {
        &self.form.component
    }

    fn name(&self) -> &str {
        &self.form.component.name
    }
}

/// A command that is being answered.
struct Client {
    channel: Channel,
    waits: Option<Wait>,
}

/// What a command waits for.
enum Wait {
    /// This run of a component.
    Run(String, u64),
    /// That the image of a component is replaced.
    Replacement(String),
}

/// A system under supervision.
pub struct Supervisor {
    place: Place,
    file: PathBuf,
    held: Held,
    keeper: Channel,
    control: OwnedFd,
    clients: Vec<Client>,
    debuggers: Vec<Debugger>,
    joined: Vec<Joined>,
    all: Vec<Managed>,
    /// The descriptors that components are handed.
    pool: BTreeMap<Handed, Vec<OwnedFd>>,
    /// Whether all components are to end.
    down: bool,
    notify: Notify,
    /// What bounds components, if a group was delegated.
    groups: Option<Groups>,
    /// Whether the service manager knows that all are up.
    is_ready: bool,
    /// What is written down.
    written: Vec<status::Component>,
    /// When it has to hear of this process again.
    alive: Duration,
    _lock: OwnedFd,
}

/// The time that all machines share: that of the monotonic clock.
fn now() -> Duration {
    Duration::from_nanos(keeper::now())
}

impl Supervisor {
    /// Takes over what an earlier supervisor has left in `place`, or begins anew.
    ///
    /// # Errors
    /// There is no process for the keeper, or no socket.
    pub fn begin(
        place: Place,
        lock: OwnedFd,
        file: PathBuf,
        components: Vec<Component>,
    ) -> Result<Self, Error> {
        let ends = ENDS.into_iter().filter(|signal| !is_ignored(*signal));
        let held = Held::new(ends).map_err(Error::System)?;
        let former = Status::read(&place);
        let (keeper, found) = reach(&place, &held).map_err(Error::Keeper)?;
        let control = channel::listener(&place.control()).map_err(Error::System)?;
        let mut supervisor = Self {
            place,
            file,
            held,
            keeper,
            control,
            clients: Vec::new(),
            debuggers: Vec::new(),
            joined: Vec::new(),
            all: Vec::new(),
            pool: BTreeMap::new(),
            down: false,
            notify: Notify::of_this_process(),
            groups: Groups::of_this_process(),
            is_ready: false,
            written: Vec::new(),
            alive: Duration::ZERO,
            _lock: lock,
        };
        supervisor.take_over(components, found, former.as_ref());
        supervisor.bound();
        Ok(supervisor)
    }

    /// Ends all components, and then this.
    pub fn go_down(&mut self) {
        self.down = true;
    }

    /// Supervises until everything has ended.
    ///
    /// # Errors
    /// Nothing can be waited for.
    pub fn run(mut self) -> Result<(), Error> {
        let signals = self.held.descriptor().map_err(Error::System)?;
        loop {
            self.advance();
            if self.is_over() {
                break;
            }
            let heard = self.wait(&signals).map_err(Error::System)?;
            while self
                .held
                .take()
                .is_some_and(|signal| ENDS.contains(&signal))
            {
                self.down = true;
            }
            self.hear_keeper().map_err(Error::Keeper)?;
            if heard {
                self.take_client();
            }
            self.hear_clients();
        }
        self.notify.tell("STOPPING=1");
        self.end_keeper();
        for tap in self.pool.keys().filter_map(Handed::tap) {
            attach::release_tap(tap);
        }
        for one in &self.all {
            if let Some(groups) = &self.groups {
                groups.remove(one.name());
            }
            instance::remove_left(one.name());
        }
        self.place.remove();
        Ok(())
    }

    /// Ends the keeper, and waits until it has let go of everything.
    fn end_keeper(&self) {
        let _ = self.keeper.send(&Request::End, &[]);
        let deadline = Instant::now() + KEEPER_MAX;
        let next = || self.keeper.wait::<Answer>(Some(deadline));
        while Instant::now() < deadline && matches!(next(), Ok(Received::Message(..))) {}
        // It is this process's child, or a dead supervisor's and with it nobody's here.
        while Instant::now() < deadline && matches!(waitpid(None, WaitOptions::NOHANG), Ok(None)) {
            sleep(LOOK);
        }
    }

    /// Waits for the next thing to happen; whether a command comes.
    fn wait(&self, signals: &OwnedFd) -> io::Result<bool> {
        let now = now();
        let left = |at: Duration| at.saturating_sub(now);
        let deadlines = self
            .all
            .iter()
            .filter_map(|one| one.machine.deadline())
            .map(left);
        let starting = |one: &Managed| matches!(one.machine.state(), State::Starting { .. });
        let loading = |one: &Managed| matches!(one.spare.state, spare::State::Loading { .. });
        let look = self.all.iter().any(|one| starting(one) || loading(one));
        let look = look.then_some(LOOK);
        let spares = self.all.iter().filter_map(|one| one.spare.state.deadline());
        let replaced = (0..self.all.len()).filter_map(|index| self.replacement_due(index));
        let later = spares.chain(replaced).map(left);
        let watchdog = self.notify.period().map(|_| left(self.alive));
        let watched = self.all.iter().filter_map(Managed::look_at).map(left);
        let soonest = deadlines.chain(look).chain(watchdog).chain(watched);
        let soonest = soonest.chain(later).min();
        let timeout = soonest.map(Timespec::try_from).transpose();
        let timeout = timeout.map_err(io::Error::other)?;
        let mut ends = vec![
            PollFd::new(signals, PollFlags::IN),
            PollFd::new(&self.keeper, PollFlags::IN),
            PollFd::new(&self.control, PollFlags::IN),
        ];
        ends.extend(
            self.clients
                .iter()
                .map(|client| PollFd::new(&client.channel, PollFlags::IN)),
        );
        let debuggers = self.debuggers.iter();
        ends.extend(debuggers.map(|debugger| PollFd::new(&debugger.channel, PollFlags::IN)));
        let joined = self.joined.iter();
        ends.extend(joined.map(|one| PollFd::new(&one.channel, PollFlags::IN)));
        match poll(&mut ends, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(!ends[2].revents().is_empty()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Lets time, and what components wait for, have their effect; then says what has changed.
    fn advance(&mut self) {
        let now = now();
        for index in 0..self.all.len() {
            self.give(index, Event::Tick, now);
            let event = match self.all[index].machine.state() {
                _ if self.is_to_end(index) => Event::Stop,
                State::Waiting if self.is_allowed(index) => Event::Allowed,
                State::Starting { .. } if self.is_up(index) => Event::Ready,
                State::Up { .. } if self.has_hung(index, now) => Event::Hung,
                _ => continue,
            };
            self.give(index, event, now);
        }
        for index in 0..self.all.len() {
            self.tend_spare(index, now);
            self.tend_replacement(index, now);
        }
        let has_left = |one: &Managed| one.leaving && one.machine.state() == State::Ended;
        for gone in self.all.iter().filter(|one| has_left(one)) {
            self.ask(&Request::Forget(gone.name().to_owned()));
            if let Some(groups) = &self.groups {
                groups.remove(gone.name());
            }
        }
        self.all.retain(|one| !has_left(one));
        self.answer_clients();
        self.attend_debuggers();
        self.attend_joined();
        self.write_down();
        self.tell_manager(now);
    }

    /// Sets the limits of all components that have some, and says who holds them. A component that
    /// runs is bounded by what the file says now.
    fn bound(&self) {
        for one in &self.all {
            let Component { name, limits, .. } = one.component();
            let groups = self.groups.as_ref().filter(|groups| groups.bound(limits));
            if let Some(Err(error)) = groups.map(|groups| groups.set(name, *limits)) {
                say(name, format_args!("its control group: {error}"));
            }
            for (what, most, by) in limits.held(self.groups.as_ref()) {
                say(name, format_args!("{what} = {most}: {}", by.words()));
            }
        }
    }

    /// Whether a component is to end, and was not asked to: those that come after it have ended.
    fn is_to_end(&self, index: usize) -> bool {
        let one = &self.all[index];
        let was_asked = matches!(
            one.machine.state(),
            State::Ended | State::Ending { again: false, .. }
        );
        let needs_it = |other: &Managed| {
            other.component().after.contains(&one.component().name)
                && other.machine.state() != State::Ended
        };
        (self.down || one.leaving) && !was_asked && !self.all.iter().any(needs_it)
    }

    fn is_allowed(&self, index: usize) -> bool {
        let settled = |name: &String| {
            let mut others = self
                .all
                .iter()
                .filter(|other| other.component().name == *name);
            others.all(|other| matches!(other.machine.state(), State::Up { .. } | State::Ended))
        };
        !self.down && self.all[index].component().after.iter().all(settled)
    }

    /// Whether a component that was started says that it is up.
    fn is_up(&self, index: usize) -> bool {
        let one = &self.all[index];
        let component = one.component();
        if cause::is_ready(&self.report(&component.name, one.status.run)) {
            return true;
        }
        // Of a guest without devices nothing is said.
        component.devices.is_empty() && Instance::open(&component.name).is_ok()
    }

    /// What was said of a run so far.
    fn report(&self, name: &str, run: u64) -> String {
        String::from_utf8_lossy(&self.place.read_report(name, run)).into_owned()
    }

    fn is_over(&self) -> bool {
        self.all
            .iter()
            .all(|one| one.machine.state() == State::Ended)
    }

    /// Gives an event to a component, and does what follows.
    fn give(&mut self, index: usize, event: Event, now: Duration) {
        let one = &mut self.all[index];
        let before = one.machine.state();
        let effect = one.machine.take(event, now);
        if let (State::Starting { since }, State::Up { .. }) = (before, one.machine.state()) {
            one.begin_watch(now);
            let took = now.saturating_sub(since);
            let gap = one.lost.take().map(|lost| now.saturating_sub(lost));
            let gap = gap.map_or_else(String::new, |gap| format!(", {gap:.1?} after it was lost"));
            say(
                one.name(),
                format_args!("up, {took:.1?} after its start{gap}"),
            );
            self.want_spare(index, now);
        }
        self.carry_out(index, effect, now);
    }

    fn carry_out(&mut self, index: usize, effect: Option<Effect>, now: Duration) {
        let one = &mut self.all[index];
        match effect {
            None => {}
            Some(Effect::Start) => self.start(index, now),
            Some(Effect::Stop) => {
                one.lost = Some(now);
                let again = matches!(one.machine.state(), State::Ending { again: true, .. });
                let name = one.name().to_owned();
                // What another one goes on with is left to it whole.
                if !again || !leave::ask(&name) {
                    self.ask(&Request::Stop(name));
                }
            }
            Some(Effect::Quit) => {
                one.lost = Some(now);
                one.progress = None;
                let most = one.component().may_stand_still().unwrap_or_default();
                one.killed = Some(format!("it made no progress for {most:?}"));
                self.ask(&Request::Quit(self.all[index].component().name.clone()));
            }
            Some(Effect::Kill) => {
                if let State::Starting { .. } = one.machine.state() {
                    one.killed = Some(format!("it was not up {START_MAX:?} after its start"));
                }
                self.ask(&Request::Kill(self.all[index].component().name.clone()));
            }
        }
    }

    /// What the keeper does not take it learns by its end.
    fn ask(&self, request: &Request) {
        let _ = self.keeper.send(request, &[]);
    }

    fn start(&mut self, index: usize, now: Duration) {
        let one = &mut self.all[index];
        one.status.restarts += u64::from(one.status.run > 0);
        one.status.run += 1;
        if self.wake_spare(index, now) {
            return;
        }
        if let Err(why) = self.try_start(index, now) {
            self.end(index, false, format!("not started: {why}"), now);
        }
    }

    fn try_start(&mut self, index: usize, now: Duration) -> Result<(), String> {
        self.fill_pool(index, now)?;
        let one = &self.all[index];
        let made = cores::make(&self.place, one.component());
        made.map_err(|error| format!("no folder for its core files: {error}"))?;
        self.hand_over(&one.form, one.status.run, Request::Start)
    }

    /// Asks the keeper for a process that begins this run, or waits to, with all that the pool has
    /// for it.
    fn hand_over(
        &self,
        form: &Form,
        run: u64,
        request: fn(Start) -> Request,
    ) -> Result<(), String> {
        let start = form.start(run, self.groups.as_ref());
        let report = self.place.begin_report(&start.name, run);
        let report = report.map_err(|error| format!("no file for what is said of it: {error}"))?;
        let handed = start.handed.iter().chain(&start.kept);
        let handed = handed.filter_map(|what| self.pool.get(what));
        let descriptors = [&report].into_iter().chain(handed.flatten());
        let descriptors: Vec<_> = descriptors.map(AsFd::as_fd).collect();
        let sent = self.keeper.send(&request(start), &descriptors);
        sent.map_err(|error| format!("its keeper does not listen: {error}"))
    }

    /// A run has ended, or was none.
    fn end(&mut self, index: usize, well: bool, cause: String, now: Duration) {
        let one = &mut self.all[index];
        cores::prune(&self.place, one.component());
        // Closed when all is done: the last one who closes a file on a disk waits for that.
        let _watched = one.progress.take();
        let cause = match one.killed.take() {
            Some(why) => format!("{why} ({cause})"),
            None => cause,
        };
        let time = SystemTime::now().duration_since(UNIX_EPOCH);
        let time = time.map_or(0, |time| time.as_secs());
        let run = one.status.run;
        one.status.note(status::End {
            run,
            time,
            cause: cause.clone(),
        });
        one.lost.get_or_insert(now);
        self.roll_back(index, &cause, now);
        let one = &mut self.all[index];
        let was_asked = matches!(one.machine.state(), State::Ending { .. });
        let effect = one.machine.take(Event::Ended { well }, now);
        let next = match one.machine.state() {
            State::Starting { .. } if was_asked => "; started again, as was asked".to_owned(),
            State::Starting { .. } => "; started again at once".to_owned(),
            State::Pausing { until } => format!(
                "; started again in {:.1?}, for {} runs in a row were shorter than {:?}",
                until.saturating_sub(now),
                one.machine.short_runs(),
                policy::SOUND
            ),
            _ => String::new(),
        };
        // Before what follows, which may be a start that ends at once.
        say(one.name(), format_args!("{cause}{next}"));
        self.carry_out(index, effect, now);
    }
}

/// Says something of a component, in a line. A guest may have said part of it.
fn say(name: &str, what: impl std::fmt::Display) {
    let what = crate::stats::table::printable(&what.to_string());
    said::line(format_args!("outboard: {name}: {what}"));
}

/// The keeper in `place`, or a new one, and what it has.
///
/// # Errors
/// There is one, and it does not answer; or there is no process for one.
fn reach(place: &Place, held: &Held) -> io::Result<(Channel, Vec<Found>)> {
    if let Ok(keeper) = Channel::connect(&place.keeper()) {
        match list(&keeper) {
            Ok(found) => return Ok((keeper, found)),
            // It has components: beside another one, nobody would ever reach it again.
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(error),
            Err(_) => {}
        }
    }
    Ok((keeper::start(&place.keeper(), held)?, Vec::new()))
}

/// A component that the keeper has.
struct Found {
    start: Start,
    started: Duration,
    status: Option<i32>,
    descriptors: Vec<OwnedFd>,
}

/// What the keeper has. What else it says meanwhile is part of it.
fn list(keeper: &Channel) -> io::Result<Vec<Found>> {
    keeper.send(&Request::List, &[])?;
    let mut found = Vec::new();
    let deadline = Instant::now() + LIST_MAX;
    while found.len() <= COMPONENTS_MAX && Instant::now() < deadline {
        match keeper.wait(Some(deadline))? {
            Received::Message(
                Answer::Found {
                    start,
                    started,
                    status,
                },
                descriptors,
            ) => found.push(Found {
                start,
                started: Duration::from_nanos(started),
                status,
                descriptors,
            }),
            Received::Message(Answer::All, _) => return Ok(found),
            Received::Message(..) => {}
            Received::Nothing => break,
            Received::End => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
    let what =
        "the one that there is does not answer; end it and its components: pkill outboard-keeper";
    Err(io::Error::new(io::ErrorKind::TimedOut, what))
}
