//! Rules from their file to the frames: at the start, while frames pass, and refused.

use crate::harness::build::Images;
use crate::harness::frames::{self, TEST_MAC};
use crate::harness::network::Network;
use crate::harness::process::{Ended, Running, run, start};
use crate::harness::runtime::Runtime;
use crate::harness::temporary::{TemporaryFile, TemporaryFolder};
use crate::harness::wire::Wire;
use abi::share::{
    BYTES, RULE_COUNTERS_OFFSET, RULES_MAX, RULES_STATUS_OFFSET, RuleCounter, RulesStatus, SLOTS,
};
use libtest_mimic::{Failed, Trial};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, IntoBytes};

/// How long a word of the guest's may take to appear.
const PATIENCE: Duration = Duration::from_secs(10);
/// The name of the guest of each test.
pub(super) const NAME: &str = "fw";
/// Loads in a row while frames pass.
const LOADS: u64 = 100;
/// Frames on their way at a time: less than a tap's queue holds.
const WINDOW: usize = 64;
/// Ports that frames are sent to.
const ONE: u16 = 1001;
const TWO: u16 = 1002;
/// How often sets of 500 are doubled until a small guest has no memory for them.
const DOUBLED_MAX: u32 = 10;

type Test = fn(&Images) -> Result<(), Failed>;

const TESTS: &[(&str, Test)] = &[
    ("the monitor gives them at the start", |images| {
        at_the_start(images, "spt")
    }),
    ("the tender gives them at the start", tender_alone),
    (
        "the monitor gives them with what they include",
        with_included,
    ),
    ("a bad file stops the start", bad_at_the_start),
    ("an image that takes none says so", not_taken),
    ("the command line is rules too", command_line),
    ("an idle guest uses new ones at once", |images| {
        idle(images, "spt")
    }),
    ("a bad file changes nothing", bad_file),
    ("100 loads while frames pass lose none", loads),
    ("loaders take turns", loaders),
    ("a guest without memory for them keeps its own", memory),
    ("log lines are written, and not too many", log),
    ("a guest that lies about them confuses nobody", liar),
    ("a guest that has ended is named", ended),
];

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let trial = |&(name, test): &(&str, Test)| {
        network.trial(format!("rules::{name}"), move || test(images))
    };
    TESTS.iter().map(trial).collect()
}

/// A file of rules in a table with a dropping policy.
fn file(rules: &[&str]) -> Result<TemporaryFile, Failed> {
    let file = TemporaryFile::new("rules.nft", 0)?;
    std::fs::write(&file.path, table(rules))?;
    Ok(file)
}

fn table(rules: &[&str]) -> String {
    format!(
        "table bridge filter {{\n\tchain forward {{\n\t\ttype filter hook forward priority 0; \
         policy drop;\n\t\t{}\n\t}}\n}}\n",
        rules.join("\n\t\t")
    )
}

/// Accepts datagrams to this port.
fn accept(port: u16) -> String {
    format!("udp dport {port} counter accept")
}

/// The firewall under the monitor with a name, between two wires.
pub(super) struct Guest {
    pub(super) runtime: Runtime,
    left: Wire,
    right: Wire,
    running: Running,
}

impl Guest {
    pub(super) fn start(
        images: &Images,
        options: &[&str],
        arguments: &[&str],
    ) -> Result<Self, Failed> {
        let runtime = Runtime::new()?;
        let (left, right) = (Wire::new(1500, false)?, Wire::new(1500, false)?);
        let mut command = runtime.outboard(images, &["run", "--mem=16", "--name", NAME]);
        command
            .args(options)
            .arg(format!("--net:private={}", left.descriptor()?))
            .arg(format!("--net:public={}", right.descriptor()?))
            .arg(&images.firewall)
            .args(arguments);
        let running = start(&mut command)?;
        let guest = Self {
            runtime,
            left,
            right,
            running,
        };
        // What it says of its rules shows that it runs.
        guest.await_status(|status| status.rules > 0)?;
        Ok(guest)
    }

    fn await_status(&self, holds: impl Fn(&RulesStatus) -> bool) -> Result<RulesStatus, Failed> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Ok(found) = status(&self.share())
                && holds(&found)
            {
                return Ok(found);
            }
            if Instant::now() > deadline {
                return Err(format!("the guest says {:?}", status(&self.share())).into());
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn share(&self) -> PathBuf {
        self.runtime.file(NAME, "share")
    }

    /// Loads rules, however it ends.
    fn load(&self, images: &Images, rules: &Path) -> Result<Ended, Failed> {
        let mut command = self.runtime.outboard(images, &["rules", "load", NAME]);
        run(command.arg(rules))
    }

    /// A datagram to this port must pass, or must not.
    pub(super) fn expect(&self, port: u16, passes: bool) -> Result<(), Failed> {
        expect(&self.left, &self.right, port, passes)
    }

    fn counters(&self) -> Result<Vec<u64>, Failed> {
        counters(&self.share())
    }
}

fn expect(left: &Wire, right: &Wire, port: u16, passes: bool) -> Result<(), Failed> {
    let frame = frames::udp(port, b"a datagram");
    left.send(&frame)?;
    if !passes {
        let silent = right.expect_silence(TEST_MAC);
        return silent.map_err(|_| format!("a frame to port {port} passed").into());
    }
    let came = right.receive(TEST_MAC);
    let came = came.map_err(|_| format!("no frame to port {port} came"))?;
    same(came, frame)
}

fn same<T: PartialEq + std::fmt::Debug>(found: T, expected: T) -> Result<(), Failed> {
    let same = found == expected;
    same.then_some(())
        .ok_or_else(|| format!("{found:?}, not {expected:?}").into())
}

fn read<T: FromBytes + IntoBytes>(share: &Path, offset: usize) -> Result<T, Failed> {
    let mut value = T::new_zeroed();
    File::open(share)?.read_exact_at(value.as_mut_bytes(), offset as u64)?;
    Ok(value)
}

fn status(share: &Path) -> Result<RulesStatus, Failed> {
    read(share, RULES_STATUS_OFFSET)
}

/// Frames that each rule in force has counted, the policy last.
fn counters(share: &Path) -> Result<Vec<u64>, Failed> {
    let status = status(share)?;
    let first = status.slot as usize % SLOTS * RULES_MAX;
    let one = |rule: usize| {
        let offset = RULE_COUNTERS_OFFSET + (first + rule) * size_of::<RuleCounter>();
        Ok(read::<RuleCounter>(share, offset)?.frames)
    };
    (0..status.rules as usize).map(one).collect()
}

/// Held on every host.
pub fn at_the_start(images: &Images, host: &str) -> Result<(), Failed> {
    let rules = file(&[&accept(ONE)])?;
    let host = format!("--host={host}");
    let option = format!("--rules={}", rules.path.display());
    let guest = Guest::start(images, &[&host, &option], &[])?;
    guest.expect(ONE, true)?;
    guest.expect(53, false)?;
    let status = status(&guest.share())?;
    same((status.generation, status.rules), (1, 2))?;
    same(guest.counters()?, vec![1, 1])
}

fn tender_alone(images: &Images) -> Result<(), Failed> {
    let rules = file(&[&accept(ONE)])?;
    let share = TemporaryFile::new("share", BYTES)?;
    let (left, right) = (Wire::new(1500, false)?, Wire::new(1500, false)?);
    let mut command = Command::new(images.program("outboard-tender"));
    command
        .args(["--mem=16", &format!("--share={}", share.path.display())])
        .arg(format!("--rules={}", rules.path.display()))
        .arg(format!("--net:private={}", left.descriptor()?))
        .arg(format!("--net:public={}", right.descriptor()?))
        .arg(&images.firewall);
    let _running = start(&mut command)?;
    expect(&left, &right, ONE, true)?;
    expect(&left, &right, TWO, false)?;
    same(counters(&share.path)?, vec![1, 1])
}

fn bad_at_the_start(images: &Images) -> Result<(), Failed> {
    let bad = file(&["udp dport nonsense accept"])?;
    let option = format!("--rules={}", bad.path.display());
    let (left, right) = (Wire::new(1500, false)?, Wire::new(1500, false)?);
    let share = TemporaryFile::new("share", BYTES)?;
    let own = format!("--share={}", share.path.display());
    for (program, first) in [("outboard", vec!["run"]), ("outboard-tender", vec![&*own])] {
        let mut command = Command::new(images.program(program));
        command
            .args(first)
            .arg(&option)
            .arg(format!("--net:private={}", left.descriptor()?))
            .arg(format!("--net:public={}", right.descriptor()?))
            .arg(&images.firewall);
        let ended = run(&mut command)?;
        ended.expect_status(1)?;
        // The monitor says so itself; without it, the guest does.
        let said = match program {
            "outboard" => &ended.stderr,
            _ => &ended.stdout,
        };
        for part in [":4:", "nonsense", "^"] {
            let found = said.contains(part);
            found.then_some(()).ok_or(format!("no {part} in {said}"))?;
        }
    }
    same(status(&share.path)?.refused, 1)?;
    let missing = ["run", "--rules=/nonexistent.nft"];
    let mut command = Command::new(images.program("outboard"));
    let ended = run(command.args(missing).arg(&images.firewall))?;
    ended.expect_status(1)?.expect_stderr("/nonexistent.nft")?;
    same(ended.stderr.lines().count(), 1)
}

fn not_taken(images: &Images) -> Result<(), Failed> {
    let rules = file(&[])?;
    let option = format!("--rules={}", rules.path.display());
    for arguments in [vec!["run", &*option], vec!["tender", &option]] {
        let mut command = Command::new(images.program("outboard"));
        let ended = run(command.args(arguments).arg(images.guest("hello")))?;
        ended
            .expect_status(1)?
            .expect_stderr("this image takes no rules")?;
        same(ended.stderr.lines().count(), 1)?;
    }
    let wire = Wire::new(1500, false)?;
    let mut command = Command::new(images.program("outboard-tender"));
    command
        .arg(&option)
        .arg(format!("--net:net={}", wire.descriptor()?))
        .arg(images.guest("nonsense"));
    let ended = run(&mut command)?;
    ended.expect_status(1)?.expect_stderr("add --share=FILE")?;
    same(ended.stderr.lines().count(), 1)
}

fn command_line(images: &Images) -> Result<(), Failed> {
    let rules = table(&[&format!("{};", accept(ONE))]);
    let guest = Guest::start(images, &[], &[&rules])?;
    guest.expect(ONE, true)?;
    guest.expect(TWO, false)?;
    same(status(&guest.share())?.generation, 0)?;
    // The host's rules come before.
    let two = file(&[&accept(TWO)])?;
    let option = format!("--rules={}", two.path.display());
    let guest = Guest::start(images, &[&option], &[&rules])?;
    guest.expect(ONE, false)?;
    guest.expect(TWO, true)
}

/// Held on every host.
pub fn idle(images: &Images, host: &str) -> Result<(), Failed> {
    let guest = Guest::start(images, &[&format!("--host={host}")], &[])?;
    let only_one = file(&[&accept(ONE)])?;
    guest.expect(TWO, true)?;
    // Not one frame passes between load and answer.
    let ended = guest.load(images, &only_one.path)?;
    ended.expect_status(0)?.expect_stdout(&format!(
        "fw: generation 1 of its rules is in force, from {}; it counts from zero\n",
        only_one.path.display()
    ))?;
    let status = status(&guest.share())?;
    same((status.generation, status.rules), (1, 2))?;
    same(guest.counters()?, vec![0, 0])?;
    guest.expect(TWO, false)?;
    guest.expect(ONE, true)?;
    same(guest.counters()?, vec![1, 1])
}

fn bad_file(images: &Images) -> Result<(), Failed> {
    let guest = Guest::start(images, &[], &[])?;
    guest.expect(ONE, true)?;
    let before = (status(&guest.share())?, guest.counters()?);
    let bad = file(&[&accept(TWO), "udp dport nonsense accept"])?;
    let ended = guest.load(images, &bad.path)?;
    ended.expect_status(1)?.expect_stderr(":5:")?;
    ended.expect_stderr("^")?;
    let not_text = TemporaryFile::new("binary", 0)?;
    std::fs::write(&not_text.path, b"table \xff")?;
    for path in [
        &not_text.path,
        Path::new("/nonexistent.nft"),
        Path::new("/dev/zero"),
    ] {
        let ended = guest.load(images, path)?;
        ended.expect_status(1)?;
        same(ended.stderr.lines().count(), 1)?;
    }
    same((status(&guest.share())?, guest.counters()?), before)?;
    guest.expect(ONE, true)
}

/// Two sets whose rules are the same in another order: each accepts either port by one rule, and
/// a mixture of both would count or drop the wrong frames.
fn loads(images: &Images) -> Result<(), Failed> {
    let [one, two] = [&accept(ONE), &accept(TWO)];
    let files = [file(&[one, two])?, file(&[two, one])?];
    let option = format!("--rules={}", files[0].path.display());
    let guest = Guest::start(images, &[&option], &[])?;
    let done = AtomicBool::new(false);
    let (guest, done, files) = (&guest, &done, &files);
    thread::scope(|scope| {
        let loader = scope.spawn(move || {
            let loaded = (0..LOADS).try_for_each(|n| {
                let next = &files[(n as usize + 1) % 2].path;
                guest.load(images, next)?.expect_status(0).map(|_| ())
            });
            done.store(true, Ordering::Relaxed);
            loaded
        });
        let passed = pass_frames(&guest.left, &guest.right, done);
        // A failure of either ends the other.
        let loaded = loader
            .join()
            .map_err(|_| Failed::from("the loader panicked"))?;
        loaded.and(passed)
    })?;
    same(status(&guest.share())?.generation, 1 + LOADS)?;
    // The last load was of the first file.
    for (counter, port) in [(0, ONE), (1, TWO)] {
        let before = guest.counters()?;
        guest.expect(port, true)?;
        let mut expected = before;
        expected[counter] += 1;
        same(guest.counters()?, expected)?;
    }
    same(guest.counters()?[2], 0)
}

/// Sends frames to both ports in turn and takes them at the other end, all of them and in order,
/// until `done`.
fn pass_frames(left: &Wire, right: &Wire, done: &AtomicBool) -> Result<(), Failed> {
    let mut number = 0u32;
    while !done.load(Ordering::Relaxed) {
        let frames: Vec<_> = (0..WINDOW)
            .map(|i| {
                let port = if i % 2 == 0 { ONE } else { TWO };
                frames::udp(port, &(number + i as u32).to_be_bytes())
            })
            .collect();
        for frame in &frames {
            left.send(frame)?;
        }
        for frame in &frames {
            let came = right.receive(TEST_MAC);
            let came = came.map_err(|_| format!("frame {number} was lost"))?;
            same(&came, frame)?;
            number += 1;
        }
    }
    let many = number > 0;
    many.then_some(()).ok_or_else(|| "no frame passed".into())
}

/// A file that includes all that a folder has.
fn with_included(images: &Images) -> Result<(), Failed> {
    let folder = TemporaryFolder::new("included")?;
    let rules = folder.path.join("rules.nft");
    let parts = folder.path.join("rules.d");
    std::fs::create_dir(&parts)?;
    std::fs::write(parts.join("1.nft"), format!("define OPEN = {ONE}\n"))?;
    std::fs::write(
        parts.join("2.nft"),
        table(&["udp dport $OPEN counter accept"]),
    )?;
    std::fs::write(&rules, "include \"rules.d/*.nft\"\n")?;
    let option = format!("--rules={}", rules.display());
    let guest = Guest::start(images, &[&option], &[])?;
    guest.expect(ONE, true)?;
    guest.expect(TWO, false)?;
    let source = guest
        .runtime
        .says(images, &["rules", "show", NAME, "--source"])?;
    let whole = source.contains("define OPEN") && !source.contains("include");
    whole.then_some(()).ok_or(source)?;
    // What is wrong is said with the file that it is in.
    std::fs::write(parts.join("2.nft"), table(&["udp dport $SHUT accept"]))?;
    let mut command = guest.runtime.outboard(images, &["run", &option]);
    let ended = run(command.arg("--net:private=@0").arg(&images.firewall))?;
    ended.expect_status(1)?.expect_stderr("rules.d/2.nft")?;
    Ok(())
}

fn loaders(images: &Images) -> Result<(), Failed> {
    let guest = Guest::start(images, &[], &[])?;
    let files = [file(&[&accept(ONE)])?, file(&[&accept(TWO)])?];
    let mut running = Vec::new();
    for _ in 0..4 {
        for rules in &files {
            let mut command = guest.runtime.outboard(images, &["rules", "load", NAME]);
            running.push(start(command.arg(&rules.path))?);
        }
    }
    let count = running.len() as u64;
    for loader in running {
        loader.finish()?.expect_status(0)?;
    }
    same(status(&guest.share())?.generation, count)?;
    guest.load(images, &files[0].path)?.expect_status(0)?;
    guest.expect(ONE, true)?;
    guest.expect(TWO, false)
}

fn memory(images: &Images) -> Result<(), Failed> {
    let only_one = file(&[&accept(ONE)])?;
    for many in [a_set, many_rules, variables] {
        let guest = Guest::start(images, &[], &[])?;
        // From what fits to what does not: a bound that is too low would end the guest.
        let large = TemporaryFile::new("large.nft", 0)?;
        let mut refused = false;
        for doubled in 0..DOUBLED_MAX {
            std::fs::write(&large.path, many(500 << doubled))?;
            guest.load(images, &only_one.path)?.expect_status(0)?;
            let in_force = status(&guest.share())?.generation;
            let ended = guest.load(images, &large.path)?;
            refused = ended.status != 0;
            if refused {
                ended.expect_status(1)?.expect_stderr("--mem")?;
                let keeps = format!("fw keeps generation {in_force} of its rules:");
                ended.expect_stderr(&keeps)?;
                same(ended.stderr.lines().count(), 1)?;
                break;
            }
        }
        refused
            .then_some(())
            .ok_or("a small guest held everything")?;
        guest.expect(TWO, false)?;
        guest.expect(ONE, true)?;
        // It can still be given others.
        let two = file(&[&accept(TWO)])?;
        guest.load(images, &two.path)?.expect_status(0)?;
        guest.expect(TWO, true)?;
    }
    Ok(())
}

/// A set of so many addresses.
fn a_set(elements: u32) -> String {
    let address = |n| std::net::Ipv4Addr::from(0x0a00_0000 + 2 * n).to_string();
    let addresses: Vec<_> = (0..elements).map(address).collect();
    table(&[&format!("ip saddr {{ {} }} accept", addresses.join(", "))])
}

/// So many rules, as far as there may be that many.
fn many_rules(rules: u32) -> String {
    let rule = |n: u32| format!("udp dport {} counter drop", n % 60_000);
    let rules: Vec<_> = (0..rules.min(60_000)).map(rule).collect();
    table(&rules.iter().map(String::as_str).collect::<Vec<_>>())
}

/// A short text of so many elements: one variable in many sets.
fn variables(elements: u32) -> String {
    let ports: Vec<_> = (0..500).map(|n| (2 * n).to_string()).collect();
    let rule = |n| {
        format!(
            "udp dport {{ $PORTS, {} }} ip saddr 10.0.0.{} accept",
            2 * n + 1,
            n % 256
        )
    };
    let rules: Vec<_> = (0..elements / 500).map(rule).collect();
    let rules: Vec<_> = rules.iter().map(String::as_str).collect();
    format!(
        "define PORTS = {{ {} }}\n{}",
        ports.join(", "),
        table(&rules)
    )
}

fn log(images: &Images) -> Result<(), Failed> {
    const FRAMES: u16 = 500;
    let logging = r#"log prefix "seen: ""#;
    let rules = file(&[&format!("udp dport {ONE} {logging} counter accept")])?;
    let option = format!("--rules={}", rules.path.display());
    let guest = Guest::start(images, &[&option], &[])?;
    for _ in 0..FRAMES {
        guest.expect(ONE, true)?;
    }
    guest.running.signal(rustix::process::Signal::TERM);
    let said = guest.running.finish()?.stdout;
    let lines: Vec<_> = said.lines().filter(|l| l.starts_with("log ")).collect();
    let first = lines.first().ok_or("no line")?;
    for part in [
        "log prefix=\"seen: \" rule=0 in=private out=public ether=0x0800 ",
        " src=10.10.0.1 dst=10.10.0.2 proto=udp ",
        &format!(" sport=999 dport={ONE} len="),
    ] {
        let found = first.contains(part);
        found.then_some(()).ok_or(format!("no {part} in {first}"))?;
    }
    let bounded = lines.len() < usize::from(FRAMES) / 2;
    bounded
        .then_some(())
        .ok_or(format!("{} lines", lines.len()))?;
    Ok(())
}

fn liar(images: &Images) -> Result<(), Failed> {
    let runtime = Runtime::new()?;
    let wire = Wire::new(1500, false)?;
    let mut command = runtime.outboard(images, &["run", "--mem=16", "--name", NAME]);
    command
        .arg(format!("--net:net={}", wire.descriptor()?))
        .arg(images.guest("nonsense"));
    let mut running = start(&mut command)?;
    let deadline = Instant::now() + PATIENCE;
    while !status(&runtime.file(NAME, "share")).is_ok_and(|status| status.rules > 0) {
        (Instant::now() < deadline)
            .then_some(())
            .ok_or("it says nothing")?;
        thread::sleep(Duration::from_millis(2));
    }
    let rules = file(&[&accept(ONE)])?;
    for _ in 0..5 {
        let mut command = runtime.outboard(images, &["rules", "load", NAME]);
        let ended = run(command.arg(&rules.path))?;
        // It may say yes, no or nothing; it is its own loss.
        let known = matches!(ended.status, 0 | 1) && ended.stderr.lines().count() <= 1;
        known.then_some(()).ok_or(format!("{ended:?}"))?;
    }
    let alive = running.is_alive();
    alive.then_some(()).ok_or_else(|| "the guest ended".into())
}

fn ended(images: &Images) -> Result<(), Failed> {
    let guest = Guest::start(images, &[], &[])?;
    let rules = file(&[&accept(ONE)])?;
    guest.running.signal(rustix::process::Signal::KILL);
    let Guest {
        runtime, running, ..
    } = guest;
    running.finish()?;
    let load = || {
        run(runtime
            .outboard(images, &["rules", "load", NAME])
            .arg(&rules.path))
    };
    // What a killed monitor left behind.
    load()?.expect_status(1)?.expect_stderr("fw has ended")?;
    std::fs::remove_dir_all(runtime.file(NAME, ""))?;
    load()?
        .expect_status(1)?
        .expect_stderr("no guest is called fw")
        .map(|_| ())
}
