//! A program, started in namespaces of its own, with a filter that passes its socket calls to us.
//!
//! There are three processes. The *keeper*, our child, makes the namespaces and the filter, and is
//! the parent of *the first* in the namespace of processes. That one is the parent of the program,
//! and takes what becomes an orphan. When the first ends, the kernel ends whoever is left there; so
//! nothing outlives the program. Nor does it outlive us: the keeper ends the first when we end, and
//! the kernel does when the keeper ends. Meanwhile the keeper has our end of the calls, too: they
//! wait until their callers are gone, where the kernel would otherwise say that it knows no such
//! calls, and a program might try them over and over.

use crate::sight::Sight;
use crate::{filter, jail};
use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, PathFdError, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError,
};
use linux::interface::Interfaces;
use linux::namespace::{self, Ids};
use linux::process::{self, Child};
use linux::signal::Held;
use linux::{descriptor, notify};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read, write};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::mount::{mount, mount_change, unmount};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, WaitOptions, WaitStatus};
use rustix::process::{pidfd_getfd, pidfd_open, set_parent_process_death_signal, waitpid};
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fmt, fs, io};

/// Who resolves names for the program.
const RESOLVER: &str = "/etc/resolv.conf";
/// The number of no descriptor.
const NONE: i32 = -1;
/// What ends the program's wait to begin.
const GO: [u8; 1] = [1];
/// The exit status of a program that is not there, and of one that cannot be started: the shell's.
const NOT_FOUND: i32 = 127;
const NOT_STARTED: i32 = 126;
/// The shell's status of a program that a signal has ended, less the signal.
const BY_SIGNAL: i32 = 128;
/// The name under which a loopback interface is there.
const LOOPBACK: &str = "lo";
/// What programs cannot do without: their loader and libraries, and devices that are no devices.
const NEEDED_TO_RUN: [&str; 12] = [
    "/usr",
    "/lib",
    "/lib64",
    "/bin",
    "/sbin",
    "/etc/ld.so.cache",
    "/etc/ssl",
    RESOLVER,
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/localtime",
    "/proc",
];
const NEEDED_DEVICES: [&str; 5] = [
    "/dev/null",
    "/dev/zero",
    "/dev/urandom",
    "/dev/random",
    "/dev/tty",
];

/// Signals that are the program's: whoever gets them passes them on.
pub const PASSED: [Signal; 6] = [
    Signal::TERM,
    Signal::INT,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
];

/// What is to be started.
#[derive(Debug, Default)]
pub struct Program {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// What it may read; everything that its user may, if there is neither this nor `write`.
    pub read: Vec<PathBuf>,
    /// What it may read and write.
    pub write: Vec<PathBuf>,
    /// Whether calls are passed to us that are refused, to be noted.
    pub noted: bool,
    /// Whether its errors go where its output goes.
    pub one_output: bool,
    /// Whether this process stays in the host's network: its sockets are the host's then.
    pub on_host: bool,
    /// Who answers its questions for names, if not who answers the host's.
    pub resolver: Option<PathBuf>,
}

/// Why a program was not started.
#[derive(Debug)]
pub enum Reason {
    /// No namespace.
    Namespace(namespace::Error),
    /// No rules of files.
    Files(RulesetError),
    /// A path that it is to see is not there.
    Path(PathBuf, PathFdError),
    /// A step that the kernel refuses.
    System(&'static str, io::Error),
    /// No jail for what answers it.
    Jail(jail::Error),
    /// The keeper has ended, and has said why.
    Ended,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace(why) => write!(
                f,
                "{why}; a program has namespaces of its own: see outboard doctor, or type: \
                 sudo sysctl kernel.unprivileged_userns_clone=1"
            ),
            Self::Files(why) => write!(f, "what it may see cannot be restricted: {why}"),
            Self::Path(path, why) => write!(f, "{}: {why}", path.display()),
            Self::System(step, why) => write!(f, "{step}: {why}"),
            Self::Jail(why) => why.fmt(f),
            Self::Ended => f.write_str("it has ended before it began"),
        }
    }
}

impl std::error::Error for Reason {}

impl From<namespace::Error> for Reason {
    fn from(why: namespace::Error) -> Self {
        Self::Namespace(why)
    }
}

fn system<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> Reason {
    move |error| Reason::System(step, error.into())
}

/// A program that waits to begin.
#[derive(Debug)]
pub struct Started {
    /// The keeper, which ends as the program does.
    pub keeper: Child,
    /// Where its calls come to.
    pub listener: OwnedFd,
    pub(crate) sight: Sight,
    go: Go,
    /// The program ends when this is closed.
    life: OwnedFd,
}

/// What lets a program begin.
#[derive(Debug)]
pub struct Go(OwnedFd);

impl Go {
    /// Lets it begin. One that has ended does not.
    pub fn go(self) {
        let _ = write(&self.0, &GO);
    }
}

impl Started {
    /// Its parts; the program lives as long as the last one is open.
    pub(crate) fn parts(self) -> (Child, (OwnedFd, Sight), Go, OwnedFd) {
        (self.keeper, (self.listener, self.sight), self.go, self.life)
    }
}

/// Starts `program`, which waits until it is let go. The calling process is in a network namespace
/// of its own afterwards, in which there is nothing. It has one thread, and holds back the signals
/// [`PASSED`], by `held`.
///
/// # Errors
/// Why it was not started.
pub fn start(program: Program, held: &Held) -> Result<Started, Reason> {
    let users = enter(program.on_host)?;
    let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(system("pipe"));
    let (said, says) = pipe()?;
    let (hears, tell) = pipe()?;
    let (waits, go) = pipe()?;
    let keeper = process::fork(c"proxy-keeper", held, || {
        let kept = [says.as_raw_fd(), hears.as_raw_fd(), waits.as_raw_fd()];
        if descriptor::close_all_but(&mut [0, 1, 2, kept[0], kept[1], kept[2]]).is_err() {
            return NOT_STARTED;
        }
        match keep(&program, &says, &hears, &waits) {
            Ok(status) => status,
            Err(why) => {
                eprintln!("outboard-proxy: {}: {why}", name(&program));
                NOT_STARTED
            }
        }
    });
    let keeper = keeper.map_err(system("fork"))?;
    drop((says, hears, waits));
    hear(&said)?;
    let (ids, alone) = users;
    namespace::map_child(keeper.id(), &ids, alone)?;
    write(&tell, &GO).map_err(|_| Reason::Ended)?;
    let [listener, resolver] = hear_numbers(&said)?;
    let pid = Pid::from_raw(keeper.id().cast_signed()).ok_or(Reason::Ended)?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(system("pidfd_open"))?;
    let taken = |number| {
        let taken = pidfd_getfd(&pidfd, number, PidfdGetfdFlags::empty());
        taken.map_err(system("pidfd_getfd"))
    };
    let listener = taken(listener)?;
    let resolver = (resolver != NONE).then(|| taken(resolver)).transpose()?;
    let sight = Sight::new(keeper.id(), resolver);
    let sight = sight.map_err(|error| Reason::System("the program's network", error))?;
    write(&tell, &GO).map_err(|_| Reason::Ended)?;
    Ok(Started {
        keeper,
        listener,
        sight,
        go: Go(go),
        life: tell,
    })
}

/// Has this process be where it answers the program, and says who the program's users and groups
/// are from there, and whether this process may name no others.
fn enter(on_host: bool) -> Result<([Vec<Ids>; 2], bool), Reason> {
    let [user, group] = [
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    ];
    let one = |inside, outside| {
        vec![Ids {
            inside,
            outside,
            count: 1,
        }]
    };
    let is_root = user == 0;
    if on_host {
        return Ok(match is_root {
            true => (namespace::own_ids()?, false),
            false => ([one(user, user), one(group, group)], true),
        });
    }
    // Names of sockets are of a network: in ours, nobody else is.
    let users = match namespace::unshare_network() {
        Ok(()) => namespace::own_ids()?,
        Err(_) => {
            namespace::enter_user()?;
            namespace::unshare_network()?;
            // There this user is 0.
            [one(user, 0), one(group, 0)]
        }
    };
    lengthen_queues();
    Ok((users, false))
}

/// What a program is called.
fn name(program: &Program) -> String {
    let first = program.command.first();
    first.map_or(String::new(), |first| first.to_string_lossy().into_owned())
}

/// Datagrams that may wait in a socket, as many as Linux may have of a network's. Where that cannot
/// be said there are ten, and more wait with us.
fn lengthen_queues() {
    const DATAGRAMS: &str = "512";
    let _ = std::fs::write("/proc/sys/net/unix/max_dgram_qlen", DATAGRAMS);
}

/// Waits for a byte.
fn hear(from: &OwnedFd) -> Result<(), Reason> {
    let mut byte = [0];
    match read(from, &mut byte) {
        Ok(1) => Ok(()),
        _ => Err(Reason::Ended),
    }
}

/// Waits for the numbers of two descriptors, of which the second may be [`NONE`].
fn hear_numbers(from: &OwnedFd) -> Result<[i32; 2], Reason> {
    let mut bytes = [0; 8];
    // A pipe hands over what was written at once as a whole.
    match read(from, &mut bytes) {
        Ok(8) => Ok([0, 4].map(|at| {
            let number = bytes[at..].first_chunk();
            number.map_or(NONE, |number| i32::from_ne_bytes(*number))
        })),
        _ => Err(Reason::Ended),
    }
}

/// The keeper.
fn keep(
    program: &Program,
    says: &OwnedFd,
    hears: &OwnedFd,
    waits: &OwnedFd,
) -> Result<i32, Reason> {
    let held = &Held::new(PASSED).map_err(system("signals"))?;
    namespace::enter_all()?;
    write(says, &GO).map_err(system("write"))?;
    hear(hears)?;
    let up = Interfaces::here().and_then(|here| here.bring_up(LOOPBACK));
    up.map_err(system("loopback interface"))?;
    let resolver = match &program.resolver {
        Some(resolver) => {
            see_resolver(resolver)?;
            None
        }
        // Without a place for such a file the program sees the host's.
        None => see_own_resolver().ok(),
    };
    let listener =
        notify::listen(&filter::program(program.noted)).map_err(system("filter of calls"))?;
    let resolver_number = resolver.as_ref().map_or(NONE, File::as_raw_fd);
    let numbers = [listener.as_raw_fd(), resolver_number].map(i32::to_ne_bytes);
    write(says, numbers.as_flattened()).map_err(system("write"))?;
    hear(hears)?;
    drop(resolver);
    // Closed once the keeper has ended.
    let (lives, _life) = pipe_with(PipeFlags::CLOEXEC).map_err(system("pipe"))?;
    let first = process::fork_first(c"proxy-first", held, || {
        let status = first(program, waits, &lives);
        status.unwrap_or_else(|why| {
            eprintln!("outboard-proxy: {}: {why}", name(program));
            NOT_STARTED
        })
    });
    let first = first.map_err(system("fork"))?;
    // It would be too early: `first` is to be gone before.
    set_parent_process_death_signal(None).map_err(system("prctl"))?;
    let signals = held.descriptor().map_err(system("signals"))?;
    loop {
        let mut ends = [
            PollFd::new(&signals, PollFlags::IN),
            PollFd::new(hears, PollFlags::IN),
        ];
        match poll(&mut ends, None) {
            Err(Errno::INTR) => continue,
            polled => polled.map_err(system("poll"))?,
        };
        // Whoever answers the program has ended.
        if !ends[1].revents().is_empty() {
            kill(&first, Signal::KILL);
            return attend(&first, held).map_err(system("wait"));
        }
        while let Some(sent) = held.take_sent() {
            if let Some(status) = heed(&first, sent) {
                return Ok(status);
            }
        }
    }
}

/// Shows the program another file in the place of `/etc/resolv.conf`.
fn see_resolver(file: &Path) -> Result<(), Reason> {
    keep_mounts()?;
    mount_resolver(file)
}

/// What is mounted here is nobody else's business.
fn keep_mounts() -> Result<(), Reason> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).map_err(system("mounts"))
}

fn mount_resolver(file: &Path) -> Result<(), Reason> {
    mount(file, RESOLVER, c"", MountFlags::BIND, None).map_err(system(RESOLVER))
}

/// Shows the program a file of its own in the place of `/etc/resolv.conf`, which says the same to
/// begin with. It is in no folder any more: whoever answers the program writes to it.
fn see_own_resolver() -> Result<File, Reason> {
    const FOLDER: &str = "/tmp";
    const FILE: &str = "/tmp/resolv.conf";
    let text = fs::read(RESOLVER).map_err(system(RESOLVER))?;
    keep_mounts()?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount(c"tmpfs", FOLDER, c"tmpfs", flags, None).map_err(system(FOLDER))?;
    let made = File::create_new(FILE).map_err(system(FILE));
    let seen = made.and_then(|mut file| {
        file.write_all(&text).map_err(system(FILE))?;
        mount_resolver(Path::new(FILE))?;
        Ok(file)
    });
    unmount(FOLDER, UnmountFlags::DETACH).map_err(system(FOLDER))?;
    seen
}

/// Takes all files from this process but those that the program is to see.
fn restrict(program: &Program) -> Result<(), Reason> {
    if program.read.is_empty() && program.write.is_empty() {
        return Ok(());
    }
    // Kernels that know less restrict less.
    let known = ABI::V5;
    let reads = AccessFs::from_read(known);
    let all = AccessFs::from_all(known);
    let set = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all);
    let mut set = set.and_then(Ruleset::create).map_err(Reason::Files)?;
    let asked = |paths: &[PathBuf], access| {
        let one = move |path: &PathBuf| (path.clone(), access, true);
        paths.iter().map(one).collect::<Vec<_>>()
    };
    let needed = |paths: &[&str], access| {
        let one = move |path: &&str| (PathBuf::from(path), access, false);
        paths.iter().map(one).collect::<Vec<_>>()
    };
    let rules = [
        asked(&program.read, reads),
        asked(&program.write, all),
        needed(&NEEDED_TO_RUN, reads),
        needed(&NEEDED_DEVICES, all),
    ];
    for (path, access, must) in rules.concat() {
        let at = match PathFd::new(&path) {
            Ok(at) => at,
            Err(_) if !must => continue,
            Err(why) => return Err(Reason::Path(path, why)),
        };
        let is_file = !path.is_dir();
        let access = match is_file {
            true => access & AccessFs::from_file(known),
            false => access,
        };
        set = set
            .add_rule(PathBeneath::new(at, access))
            .map_err(Reason::Files)?;
    }
    set.restrict_self().map(drop).map_err(Reason::Files)
}

/// The first process of the program's namespace.
fn first(program: &Program, waits: &OwnedFd, lives: &OwnedFd) -> Result<i32, Reason> {
    let held = &Held::new(PASSED).map_err(system("signals"))?;
    let kept = &mut [0, 1, 2, waits.as_raw_fd(), lives.as_raw_fd()];
    descriptor::close_all_but(kept).map_err(system("descriptors"))?;
    // The keeper may have ended before it was agreed that we end with it.
    if is_closed(lives).map_err(system("poll"))? {
        return Err(Reason::Ended);
    }
    // What is in /proc is to be of this namespace. Where that may not be, in some containers, the
    // program sees the host's.
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let _ = mount(c"proc", c"/proc", c"proc", flags, None);
    restrict(program)?;
    let child = process::fork(c"proxy-program", held, || run(program, waits));
    let child = child.map_err(system("fork"))?;
    attend(&child, held).map_err(system("wait"))
}

/// Whether nobody has the other end of this pipe.
fn is_closed(pipe: &OwnedFd) -> Result<bool, Errno> {
    let mut ends = [PollFd::new(pipe, PollFlags::empty())];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    Ok(poll(&mut ends, Some(&now))? > 0)
}

/// Passes signals on to a child, and takes what becomes an orphan, until the child has ended: its
/// status.
fn attend(child: &Child, held: &Held) -> io::Result<i32> {
    loop {
        if let Some(status) = heed(child, held.wait_sent()?) {
            return Ok(status);
        }
    }
}

/// Passes a signal on to a child, unless it is a terminal's, which the child has as well; and takes
/// whoever has ended: the child's status, if that has.
fn heed(child: &Child, (signal, by_kernel): (Signal, bool)) -> Option<i32> {
    if signal != Signal::CHILD {
        if !by_kernel {
            kill(child, signal);
        }
        return None;
    }
    // As many as have ended: one signal may stand for several.
    while let Ok(Some((ended, status))) = waitpid(None, WaitOptions::NOHANG) {
        if ended.as_raw_pid().cast_unsigned() == child.id() {
            return Some(as_shell(status));
        }
    }
    None
}

/// Sends a child a signal. One that has just ended no longer minds.
fn kill(child: &Child, signal: Signal) {
    if let Some(child) = Pid::from_raw(child.id().cast_signed()) {
        let _ = rustix::process::kill_process(child, signal);
    }
}

/// How a process has ended, as a shell says it: its status, or 128 and the signal.
pub(crate) fn as_shell(status: WaitStatus) -> i32 {
    let by_signal = || status.terminating_signal().map(|number| BY_SIGNAL + number);
    // It is not asked for those that were only stopped.
    status
        .exit_status()
        .or_else(by_signal)
        .unwrap_or(NOT_STARTED)
}

/// The program, from its first instruction on.
fn run(program: &Program, waits: &OwnedFd) -> i32 {
    if hear(waits).is_err() {
        return NOT_STARTED;
    }
    let Some((path, arguments)) = program.command.split_first() else {
        return NOT_STARTED;
    };
    let mut command = Command::new(path);
    command.args(arguments);
    if program.one_output
        && let Ok(output) = io::stdout().as_fd().try_clone_to_owned()
    {
        command.stderr(output);
    }
    let error = command.exec();
    eprintln!("outboard-proxy: {}: {error}", name(program));
    match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_STARTED,
    }
}
