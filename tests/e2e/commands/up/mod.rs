//! `outboard up`: several guests of one file on real taps, and what becomes of them when guests,
//! monitors and supervisors are killed.
//!
//! ```text
//!   test --- lan0 === firewall === wan0 --- bridge --- svc0 === echo
//! ```

pub mod cards;
mod cores;
mod debug;
mod groups;
mod kept;
mod links;
mod progress;
mod rights;
mod small;
mod soak;
mod sockets;
mod spares;
mod states;
mod systemd;
mod unmodified;

/// What virtual machines must do as well.
pub const ON_HVT: [(&str, Test); 3] = {
    let [killed, spare] = links::ON_HVT;
    [killed, spare, sockets::ON_HVT]
};

use super::messages::shell;
use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::process::{Running, start};
use crate::harness::programs;
use crate::harness::runtime::Runtime;
use libtest_mimic::{Completion, Failed, Trial};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;
use std::fmt::Write;
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};
use testbed::meter::only_child;
use testbed::segment::Segment;

/// How long anything may take on a machine that others use as well.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(2);

type Test = fn(&Images) -> Result<(), Failed>;
/// One that may find that the machine lacks something.
type Optional = fn(&Images) -> Result<Completion, Failed>;

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let plain: [(&str, Test); 17] = [
        ("mistakes are told and nothing is started", mistakes),
        ("a crash loop is slowed and goes on", crash_loop),
        ("a component that may rest does", rests),
        ("a killed monitor leaves nothing at the end", leaves_nothing),
        ("images that take no link are told", links::mistakes),
        (
            "ends that carry different things are told",
            sockets::mistakes,
        ),
        (
            "a state outlives instances and supervisors",
            states::outlive,
        ),
        ("a state of another size begins anew", states::other_size),
        ("states that do not fit are told", states::mistakes),
        ("who makes no progress is started again", progress::hangs),
        ("who hangs alone is started again", progress::hangs_alone),
        ("an image that counts no turns is told", progress::unwatched),
        ("limits are held and told", progress::limits),
        ("too few open files are told", small::few_descriptors),
        ("a full disk ends no monitor", small::no_room),
        (
            "ten components take little of a supervisor",
            small::is_small,
        ),
        ("the last core files are kept", cores::kept),
    ];
    let mut trials = Vec::new();
    for (name, test) in plain {
        let name = format!("up::{name}");
        trials.push(Trial::test(name, move || test(images)));
    }
    let others: [(&str, Optional); 2] = [
        ("gdb looks into a component", debug::looked_into),
        ("systemd runs the unit", systemd::runs),
    ];
    for (name, test) in others {
        let name = format!("up::{name}");
        trials.push(Trial::ignorable_test(name, move || test(images)));
    }
    let networks: [(&str, Test); 5] = [
        ("a service manager is told", notifies),
        ("many restarts leak nothing", small::leaks_nothing),
        ("who is killed comes back", comes_back),
        ("the supervisor's end ends nobody", supervisor_killed),
        ("what the file does not have any more ends", changed),
    ];
    for (name, test) in networks {
        let missing = programs::missing(&["ip"]);
        let name = format!("up::{name}");
        trials.push(network.trial_unless(missing, name, move || test(images)));
    }
    for (name, test) in links::TRIALS {
        let missing = programs::missing(&["ip", "ping"]);
        let name = format!("up::{name}");
        trials.push(network.trial_unless(missing, name, move || test(images)));
    }
    trials.push(kept::trial(images, network));
    trials.extend(sockets::trials(images, network));
    trials.extend(unmodified::trials(images, network));
    trials.extend(groups::trials(images));
    let held: [(&str, Test); 2] = [
        ("a component holds what the file names", holds),
        ("nobody holds what another one does", rights::nobody_holds),
    ];
    trials.extend(held.map(|(name, test)| looking_in(images, network, name, test)));
    trials
}

/// A jailed process is nobody's but root's to look into.
fn looking_in(images: &'static Images, network: &Network, name: &str, test: Test) -> Trial {
    let root = network
        .root()
        .map(|_| "needs root: only root looks into a jailed process");
    Trial::ignorable_test(format!("up::{name}"), move || {
        match root.or(programs::missing(&["ip", "mke2fs"])) {
            Some(why) => Ok(Completion::ignored_with(why)),
            None => test(images).map(|()| Completion::Completed),
        }
    })
}

/// A file of components, where they have their files, and the network that they are in.
struct System<'a> {
    images: &'a Images,
    runtime: Runtime,
    segment: Option<Segment>,
    file: PathBuf,
}

impl<'a> System<'a> {
    fn new(images: &'a Images, text: &str) -> Result<Self, Failed> {
        let runtime = Runtime::new()?;
        let file = runtime.path().join("system.toml");
        std::fs::write(&file, text)?;
        Ok(Self {
            images,
            runtime,
            segment: None,
            file,
        })
    }

    /// The firewall, with echo behind it.
    fn of_two(images: &'a Images) -> Result<Self, Failed> {
        let segment = Segment::new()?;
        let taps = "ip link add dev bridge type bridge && for tap in lan0 wan0 svc0; do ip tuntap \
                    add dev $tap mode tap && ip link set dev $tap up; done && ip link set dev wan0 \
                    master bridge && ip link set dev svc0 master bridge && ip link set dev bridge \
                    up && ip addr add 10.0.0.1/24 dev lan0";
        shell(&segment, taps)?;
        let mut system = Self::new(images, &of_two(images))?;
        std::fs::write(system.runtime.path().join("all.nft"), ALL)?;
        system.segment = Some(segment);
        Ok(system)
    }

    fn outboard(&self, words: &[&str]) -> Result<Running, Failed> {
        self.start(self.runtime.outboard(self.images, words))
    }

    fn start(&self, mut command: Command) -> Result<Running, Failed> {
        match &self.segment {
            Some(segment) => segment.run(|| start(&mut command)),
            None => start(&mut command),
        }
    }

    /// Starts a supervisor, and waits until so many components are up.
    fn up(&self, count: usize) -> Result<Running, Failed> {
        let supervisor = self.outboard(&["up", &self.file.display().to_string()])?;
        self.wait_for("they are up", |status| {
            let all = status["components"].as_array();
            let is_up = |one: &&Value| one["state"] == "up";
            // What the one before has written is there as well.
            status["supervisor"] == supervisor.id()
                && all.is_some_and(|all| all.iter().filter(is_up).count() == count)
        })?;
        Ok(supervisor)
    }

    fn place(&self) -> PathBuf {
        self.runtime.path().join("outboard/.up")
    }

    /// What the supervisor has written down.
    fn status(&self) -> Option<Value> {
        let json = std::fs::read(self.place().join("status.json")).ok()?;
        serde_json::from_slice(&json).ok()
    }

    fn wait_for(&self, what: &str, is: impl Fn(&Value) -> bool) -> Result<Value, Failed> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.status();
            match status {
                Some(status) if is(&status) => return Ok(status),
                status if Instant::now() > deadline => {
                    return Err(format!("not {what}: {status:?}").into());
                }
                _ => sleep(PAUSE),
            }
        }
    }

    /// A component's monitor.
    fn monitor(&self, name: &str) -> Result<u32, Failed> {
        let json = std::fs::read(self.runtime.file(name, "instance.json"))?;
        let json: Value = serde_json::from_slice(&json)?;
        let pid = json["monitor"].as_u64().and_then(|pid| pid.try_into().ok());
        pid.ok_or_else(|| format!("no monitor: {json}").into())
    }

    /// A component's guest.
    fn guest(&self, name: &str) -> Result<u32, Failed> {
        Ok(only_child(self.monitor(name)?)?)
    }

    fn run_of(&self, name: &str) -> u64 {
        let status = self.status().unwrap_or_default();
        let all = status["components"].as_array().cloned().unwrap_or_default();
        let one = all.iter().find(|one| one["name"] == name);
        one.and_then(|one| one["run"].as_u64()).unwrap_or(0)
    }

    /// Waits until a later run of a component is up.
    fn wait_for_run(&self, name: &str, run: u64) -> Result<(), Failed> {
        self.wait_for(&format!("run {run} of {name}"), |status| {
            let all = status["components"].as_array();
            let mut all = all.into_iter().flatten();
            all.any(|one| {
                one["name"] == name
                    && one["state"] == "up"
                    && one["run"].as_u64().is_some_and(|found| found >= run)
            })
        })?;
        Ok(())
    }

    /// Ends it all, and looks whether anything is left.
    fn down(self, supervisor: Option<Running>) -> Result<(), Failed> {
        let keeper = self.keeper(supervisor.as_ref())?;
        let monitors = children(keeper)?;
        self.outboard(&["down"])?.finish()?.expect_status(0)?;
        if let Some(supervisor) = supervisor {
            supervisor.finish()?.expect_status(0)?;
        }
        for pid in monitors.into_iter().chain([keeper]) {
            let deadline = Instant::now() + PATIENCE;
            while runs(pid) {
                if Instant::now() > deadline {
                    return Err(format!("process {pid} is left").into());
                }
                sleep(PAUSE);
            }
        }
        let left = self.runtime.path().join("outboard");
        match left.exists() {
            true => Err(format!("files are left: {:?}", files(&left)).into()),
            false => Ok(()),
        }
    }

    /// The keeper: the parent of each monitor, and the only child of the supervisor that began.
    fn keeper(&self, supervisor: Option<&Running>) -> Result<u32, Failed> {
        for folder in files(&self.runtime.path().join("outboard")) {
            let name = folder.file_name().and_then(|name| name.to_str());
            // One that is started again meanwhile has none.
            let monitor = name.and_then(|name| self.monitor(name).ok());
            if let Some(keeper) = monitor.and_then(|monitor| parent(monitor).ok()) {
                return Ok(keeper);
            }
        }
        let supervisor = supervisor.ok_or("neither a monitor nor a supervisor")?;
        Ok(only_child(supervisor.id())?)
    }
}

/// The parent of a process (proc_pid_stat(5)).
fn parent(pid: u32) -> Result<u32, Failed> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let behind = stat.rsplit_once(')').ok_or("no name")?.1;
    Ok(behind
        .split_whitespace()
        .nth(1)
        .ok_or("no parent")?
        .parse()?)
}

fn children(pid: u32) -> Result<Vec<u32>, Failed> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    Ok(text
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect())
}

impl Drop for System<'_> {
    /// A test that has failed leaves nothing running: supervisors' ends end no component.
    fn drop(&mut self) {
        if let Ok(down) = self.outboard(&["down"]) {
            let _ = down.finish();
        }
    }
}

/// What a process has open, without standard input, output and error.
fn descriptors(pid: u32) -> Vec<String> {
    let folder = format!("/proc/{pid}/fd");
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let standard = |entry: &std::fs::DirEntry| {
        ["0", "1", "2"].contains(&entry.file_name().to_str().unwrap_or("0"))
    };
    let links = entries.filter(|entry| !standard(entry));
    let links = links.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let mut links: Vec<_> = links.map(|link| link.display().to_string()).collect();
    links.sort_unstable();
    links
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

fn pid(number: u32) -> Result<Pid, Failed> {
    Pid::from_raw(number.cast_signed()).ok_or_else(|| "no process".into())
}

fn runs(number: u32) -> bool {
    pid(number).is_ok_and(|pid| test_kill_process(pid).is_ok())
}

fn kill(number: u32) -> Result<(), Failed> {
    Ok(kill_process(pid(number)?, Signal::KILL)?)
}

/// Rules that pass everything.
const ALL: &str = "table bridge t {\n chain f {\n type filter hook forward priority 0; policy \
                   accept;\n }\n}\n";

fn of_two(images: &Images) -> String {
    format!(
        "[component.firewall]\nimage = {:?}\nmemory = 32\nrules = \"all.nft\"\n\
         net.private = \"tap:lan0\"\nnet.public = \"tap:wan0\"\nafter = [\"echo\"]\n\n\
         [component.echo]\nimage = {:?}\nmemory = 64\narguments = [\"--ipv4=10.0.0.2/24\"]\n\
         net.service = \"tap:svc0\"\n",
        images.firewall, images.echo
    )
}

/// A component without devices, of the guest `name` of `tests/guests`.
fn guest(images: &Images, name: &str, more: &str) -> String {
    let image = images.guest(name);
    format!("[component.{name}]\nimage = {image:?}\nmemory = 16\n{more}\n")
}

/// Datagrams through the firewall to echo and back.
struct Datagrams {
    socket: UdpSocket,
    sent: u64,
}

impl Datagrams {
    fn new(system: &System<'_>) -> Result<Self, Failed> {
        let segment = system.segment.as_ref().ok_or("no network")?;
        let socket = segment.run(|| UdpSocket::bind("10.0.0.1:0"))?;
        socket.connect("10.0.0.2:7")?;
        socket.set_read_timeout(Some(Duration::from_millis(1)))?;
        Ok(Self { socket, sent: 0 })
    }

    /// Sends until one that was sent meanwhile comes back; how long that took.
    fn wait(&mut self) -> Result<Duration, Failed> {
        let begin = Instant::now();
        let first = self.sent + 1;
        while begin.elapsed() < PATIENCE {
            self.sent += 1;
            // A network that is not there for a moment refuses.
            let _ = self.socket.send(&self.sent.to_ne_bytes());
            let mut bytes = [0; 8];
            if self.socket.recv(&mut bytes).is_ok_and(|count| count == 8)
                && u64::from_ne_bytes(bytes) >= first
            {
                return Ok(begin.elapsed());
            }
        }
        Err("no datagram comes back".into())
    }
}

/// Every mistake of a file and of what it names has its line.
fn mistakes(images: &Images) -> Result<(), Failed> {
    let mut text = of_two(images).replace("net.private", "net.privat");
    text.push_str("[component.none]\nimage = \"none.spt\"\n");
    let system = System::new(images, &text)?;
    std::fs::write(system.runtime.path().join("all.nft"), "table {")?;
    let file = system.file.display().to_string();
    let ended = system.outboard(&["up", "--check", &file])?.finish()?;
    ended.expect_status(1)?;
    ended.expect_stderr(&format!(
        "{file}:1:12: --net:privat: the manifest names no such device; did you mean private?"
    ))?;
    ended
        .expect_stderr(&format!("{file}:1:12: "))?
        .expect_stderr("all.nft: no rules: ")?;
    ended.expect_stderr("none.spt: ")?;
    ended.expect_stderr(&format!(
        "outboard: {file}: 3 mistakes; nothing was started\n"
    ))?;
    if ended.stderr.lines().count() != 4 {
        return Err(format!("not a line for each: {ended:?}").into());
    }
    std::fs::write(
        &system.file,
        "[component.a]\nimage = 5\nmemory = \"x\"\n[x]\n",
    )?;
    let ended = system.outboard(&["up", &file])?.finish()?;
    ended.expect_status(1)?;
    for place in [":2:9: ", ":3:10: ", ":4:2: "] {
        ended.expect_stderr(&format!("{file}{place}"))?;
    }
    let down = system.outboard(&["down"])?.finish()?;
    down.expect_refusal(&[
        "no system is up in ",
        "; start one with: outboard up FILE\n",
    ])?;
    if system.place().exists() {
        return Err("something was started".into());
    }
    // A file without a mistake is shown, and becomes a unit.
    std::fs::write(&system.file, of_two(images))?;
    std::fs::write(system.runtime.path().join("all.nft"), ALL)?;
    let shown = system.outboard(&["up", "--show", &file])?.finish()?;
    shown
        .expect_status(0)?
        .expect_stdout("firewall   net private")?;
    let unit = system.outboard(&["up", "--systemd", &file])?.finish()?;
    unit.expect_status(0)?
        .expect_stdout(&format!(" up {file}\n"))?;
    let checked = system.outboard(&["up", "--check", &file])?.finish()?;
    checked
        .expect_status(0)?
        .expect_stdout("2 components, no mistake\n")?;
    Ok(())
}

/// A guest that panics at once is started again, later and later.
fn crash_loop(images: &Images) -> Result<(), Failed> {
    let system = System::new(images, &guest(images, "panic", ""))?;
    let supervisor = system.outboard(&["up", &system.file.display().to_string()])?;
    for pause in [
        "at once",
        "in 100.0ms, for 2 runs",
        "in 200.0ms, for 3 runs",
        "in 400.0ms",
    ] {
        supervisor.wait_for_stderr(&format!("; started again {pause}"))?;
    }
    let status = system.wait_for("six runs", |status| {
        let run = status["components"][0]["run"].as_u64();
        run.is_some_and(|run| run >= 6)
    })?;
    let ends = status["components"][0]["ends"].as_array().cloned();
    let ends = ends.unwrap_or_default();
    let said = |end: &Value| {
        end["cause"]
            .as_str()
            .is_some_and(|cause| cause.contains("a panic"))
    };
    if ends.len() < 5 || !ends.iter().all(said) {
        return Err(format!("not its panics: {ends:?}").into());
    }
    let listed = system.runtime.says(images, &["ps"])?;
    if !listed.contains("panic") || !listed.contains("a panic, or out of memory: ") {
        return Err(format!("not the last end: {listed}").into());
    }
    let logs = system.runtime.says(images, &["logs", "--ends", "panic"])?;
    if logs.matches("outboard: the guest gave up").count() < 2 {
        return Err(format!("not what was said: {logs}").into());
    }
    system.down(Some(supervisor))
}

/// What a killed monitor has left is nobody's when nobody is started again.
fn leaves_nothing(images: &Images) -> Result<(), Failed> {
    let more = "restart = \"never\"\narguments = [\"sleep\"]";
    let system = System::new(images, &guest(images, "standstill", more))?;
    let supervisor = system.up(1)?;
    kill(system.monitor("standstill")?)?;
    supervisor.finish()?;
    let left = files(&system.runtime.path().join("outboard"));
    match left.is_empty() {
        true => Ok(()),
        false => Err(format!("files are left: {left:?}").into()),
    }
}

/// Who ended well, and is to be started again only on failure, rests; when all rest, it is over.
fn rests(images: &Images) -> Result<(), Failed> {
    let mut text = guest(images, "status", "restart = \"on-failure\"");
    text += &guest(images, "hello", "restart = \"never\"\nafter = [\"status\"]");
    let system = System::new(images, &text)?;
    let ended = system
        .outboard(&["up", &system.file.display().to_string()])?
        .finish()?;
    ended.expect_status(0)?;
    ended.expect_stderr("outboard: status: the guest ended with status 0\n")?;
    ended.expect_stderr("outboard: hello: the guest ended with status 0\n")?;
    match system.runtime.path().join("outboard").exists() {
        true => Err("files are left".into()),
        false => Ok(()),
    }
}

fn comes_back(images: &Images) -> Result<(), Failed> {
    let system = System::of_two(images)?;
    let supervisor = system.up(2)?;
    let mut datagrams = Datagrams::new(&system)?;
    datagrams.wait()?;
    let mut said = String::new();
    for (victim, name) in [
        ("guest", "firewall"),
        ("monitor", "firewall"),
        ("guest", "echo"),
    ] {
        let run = system.run_of(name);
        let victim_pid = match victim {
            "guest" => system.guest(name)?,
            _ => system.monitor(name)?,
        };
        kill(victim_pid)?;
        let gap = datagrams.wait()?;
        system.wait_for_run(name, run + 1)?;
        let _ = writeln!(
            said,
            "{victim} of {name} killed: nothing came back for {gap:.1?}"
        );
        datagrams.wait()?;
    }
    print!("{said}");
    // All that is asked of a guest by its name is asked of a component.
    let stats = system.runtime.says(images, &["stats", "firewall"])?;
    if !stats.contains("private") {
        return Err(format!("no counters: {stats}").into());
    }
    let rules = system.runtime.path().join("all.nft").display().to_string();
    system
        .runtime
        .says(images, &["rules", "load", "firewall", &rules])?;
    let listed = system.runtime.json(images, &["ps", "--json"])?;
    let restarts = |name: &str| {
        let all = listed.as_array().into_iter().flatten();
        let mut found = all.filter(|row| row["name"] == name);
        found.find_map(|row| row["restarts"].as_u64())
    };
    if restarts("firewall") < Some(2) || restarts("echo") < Some(1) {
        return Err(format!("not two and one restarts: {listed}").into());
    }
    system
        .outboard(&["restart", "firewal"])?
        .finish()?
        .expect_refusal(&[
            "no component is called firewal; did you mean firewall? there is echo and firewall",
        ])?;
    system.down(Some(supervisor))
}

fn supervisor_killed(images: &Images) -> Result<(), Failed> {
    let system = System::of_two(images)?;
    let supervisor = system.up(2)?;
    let mut datagrams = Datagrams::new(&system)?;
    datagrams.wait()?;
    let guests = || -> Result<_, Failed> { Ok([system.guest("firewall")?, system.guest("echo")?]) };
    let before = guests()?;
    let file = system.file.display().to_string();
    system
        .outboard(&["up", &file])?
        .finish()?
        .expect_refusal(&[&format!(
            "a system is up already (process {}); end it with",
            supervisor.id()
        )])?;
    supervisor.signal(Signal::KILL);
    supervisor.finish()?.expect_status(137)?;
    datagrams.wait()?;
    // One that ends while nobody looks is started again by the next supervisor.
    kill(before[1])?;
    let supervisor = system.up(2)?;
    supervisor.wait_for_stderr("outboard: echo: ")?;
    datagrams.wait()?;
    let after = guests()?;
    if before[0] != after[0] || before[1] == after[1] {
        return Err(format!("{before:?} became {after:?}").into());
    }
    // Its keeper's end is that of all components, which come back.
    kill(system.keeper(None)?)?;
    system.wait_for_run("firewall", 2)?;
    system.wait_for_run("echo", 3)?;
    datagrams.wait()?;
    supervisor.signal(Signal::KILL);
    supervisor.finish()?.expect_status(137)?;
    // Without a supervisor, `down` does its work.
    system.down(None)
}

/// As systemd listens: all are up, how many, it lives, it ends.
fn notifies(images: &Images) -> Result<(), Failed> {
    let system = System::of_two(images)?;
    let path = system.runtime.path().join("notify");
    let manager = UnixDatagram::bind(&path)?;
    manager.set_read_timeout(Some(PATIENCE))?;
    let file = system.file.display().to_string();
    let mut command = system.runtime.outboard(images, &["up", &file]);
    command
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "100000");
    let supervisor = system.start(command)?;
    let wait_for = |text: &str| -> Result<(), Failed> {
        let deadline = Instant::now() + PATIENCE;
        let mut bytes = [0; 256];
        while Instant::now() < deadline {
            let count = manager.recv(&mut bytes)?;
            if String::from_utf8_lossy(&bytes[..count]).starts_with(text) {
                return Ok(());
            }
        }
        Err(format!("it does not say {text}").into())
    };
    let own = format!("READY=1\nMAINPID={}", supervisor.id());
    for text in [own.as_str(), "WATCHDOG=1", "WATCHDOG=1"] {
        wait_for(text)?;
    }
    system.wait_for("both are up", |status| {
        status["components"][1]["state"] == "up"
    })?;
    supervisor.signal(Signal::TERM);
    wait_for("STOPPING=1")?;
    supervisor.finish()?.expect_status(0)?;
    match system.place().exists() {
        true => Err("files are left".into()),
        false => Ok(()),
    }
}

/// A file that says something else: what it has not changed runs on.
fn changed(images: &Images) -> Result<(), Failed> {
    let system = System::of_two(images)?;
    let supervisor = system.up(2)?;
    let firewall = system.guest("firewall")?;
    supervisor.signal(Signal::KILL);
    supervisor.finish()?.expect_status(137)?;
    let whole = std::fs::read_to_string(&system.file)?;
    let (first, _) = whole.split_once("[component.echo]").ok_or("no echo")?;
    std::fs::write(&system.file, first.replace("after = [\"echo\"]", ""))?;
    let supervisor = system.up(1)?;
    supervisor.wait_for_stderr("outboard: echo: is not in the file any more\n")?;
    system.wait_for("one component", |status| {
        status["components"]
            .as_array()
            .is_some_and(|all| all.len() == 1)
    })?;
    if system.guest("firewall")? != firewall || system.monitor("echo").is_ok() {
        return Err("the firewall was started again, or echo runs".into());
    }
    supervisor.signal(Signal::KILL);
    supervisor.finish()?.expect_status(137)?;
    let text = std::fs::read_to_string(&system.file)?;
    std::fs::write(&system.file, text.replace("memory = 32", "memory = 33"))?;
    let supervisor = system.up(1)?;
    system.wait_for_run("firewall", 2)?;
    supervisor.wait_for_stderr("outboard: firewall: what the file says of it has changed\n")?;
    system.down(Some(supervisor))
}

/// Descriptors as `/proc` has them (proc_pid_fd(5)).
const TAP: &str = "/dev/net/tun";
const EVENT: &str = "anon_inode:[eventfd]";
const MEMORY: &str = "/memfd:link";

/// A component's processes have open what the file names, and what each guest has.
fn holds(images: &Images) -> Result<(), Failed> {
    hold(
        System::of_two(images)?,
        [("firewall", 2, 0), ("echo", 1, 0)],
    )?;
    hold(links::system(images)?, [("firewall", 1, 1), ("echo", 0, 1)])
}

/// Components hold so many taps and links.
fn hold(system: System<'_>, all: [(&str, usize, usize); 2]) -> Result<(), Failed> {
    let supervisor = system.up(2)?;
    for (name, taps, links) in all {
        // A guest is up before its jail has closed what it was started with.
        let deadline = Instant::now() + PATIENCE;
        while let Err(why) = held(&system, name, taps, links) {
            if Instant::now() > deadline {
                return Err(why);
            }
            sleep(PAUSE);
        }
    }
    system.down(Some(supervisor))
}

/// What a component and its monitor hold is theirs, and no more.
fn held(system: &System<'_>, name: &str, taps: usize, links: usize) -> Result<(), Failed> {
    let own = |file: &str| system.runtime.file(name, file).display().to_string();
    let guest = descriptors(system.guest(name)?);
    let mut expected = vec![TAP.to_owned(); taps];
    // Its memory is mapped and closed: what is left wakes it up, and the other end.
    expected.extend(vec![EVENT.to_owned(); 2 * links]);
    // Beside a link, taps can be left out of what is waited for.
    let wait_sets = if taps > 0 && links > 0 { 2 } else { 1 };
    expected.extend(vec!["anon_inode:[eventpoll]".to_owned(); wait_sets]);
    expected.extend(["anon_inode:[timerfd]".to_owned(), own("event")]);
    expected.sort_unstable();
    if guest != expected {
        return Err(format!("{name} holds {guest:?}, not {expected:?}").into());
    }
    // Its monitor has its own files and taps, and nothing of others'.
    let all = descriptors(system.monitor(name)?);
    let known = |link: &String| {
        // Its own folder, whatever that is called: a spare's is renamed.
        let folder = system.runtime.file(name, "share").parent() == Some(Path::new(link));
        let own = ["share", "event", "ending.json", "console"].map(own);
        let kinds = ["pipe:", "socket:", TAP];
        let kinds = kinds
            .into_iter()
            .chain([EVENT, MEMORY].into_iter().take(2 * links));
        folder || own.contains(link) || kinds.clone().any(|kind| link.starts_with(kind))
    };
    if let Some(other) = all.iter().find(|link| !known(link)) {
        return Err(format!("the monitor of {name} holds {other}").into());
    }
    for (kind, count) in [(TAP, taps), (EVENT, 2 * links), (MEMORY, 2 * links)] {
        let held = all.iter().filter(|link| link.starts_with(kind)).count();
        if held != count {
            return Err(format!("the monitor of {name} holds {held} of {kind}").into());
        }
    }
    let keeper = descriptors(system.keeper(None)?);
    let shared = |link: &&String| link.starts_with("socket:") && keeper.contains(link);
    match all.iter().find(shared) {
        Some(link) => Err(format!("{name} and the keeper share {link}").into()),
        None => Ok(()),
    }
}
