//! The commands of the README do what it says. Each block is marked `<!-- test: NAME -->`.

use super::tutorial::users_shell;
use crate::harness::build::{Images, root};
use crate::harness::document::{self, shell};
use crate::harness::network::Network;
use crate::harness::process::{Ended, run, start};
use crate::harness::programs;
use crate::harness::temporary::TemporaryFolder;
use libtest_mimic::{Failed, Trial};
use rustix::process::Signal;
use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use testbed::privilege::Settings;
use testbed::segment::Segment;

/// How long the firewall may take to be up.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a frame is sent until no other one came in with it.
const SENT_MAX: usize = 10;

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let not_root = network.root();
    vec![
        Trial::test("readme::each block is tested", every_block),
        Trial::test("readme::install", || install(images)),
        network.trial("readme::try".into(), || tried(images)),
        network.trial_unless(
            not_root.or_else(|| Settings::read().remedy()),
            "readme::try, by an ordinary user without XDG_RUNTIME_DIR".into(),
            || tried_by_user(images),
        ),
        network.trial_unless(
            programs::missing(&["ip"]),
            "readme::taps, run".into(),
            || taps_and_run(images),
        ),
        network.trial_unless(
            programs::missing(&["git"]),
            "readme::change a line, see a verdict change, undo it".into(),
            || change(images),
        ),
    ]
}

/// The shell commands of a marked block.
fn block(name: &str) -> Result<String, Failed> {
    let mark = format!("test: {name}");
    let blocks = document::blocks("README.md")?;
    let block = blocks.into_iter().find(|block| block.mark == mark);
    Ok(block.ok_or(format!("README has no block {name}"))?.text)
}

/// `demo` is what the tests of the demonstration run, `test` is this; the others are run here. A
/// new block must be added to one of the two.
fn every_block() -> Result<(), Failed> {
    let blocks = document::blocks("README.md")?.len();
    let known = [
        "demo", "test", "install", "try", "look", "taps", "run", "change", "undo",
    ];
    for name in known {
        block(name)?;
    }
    let all = blocks == known.len();
    all.then_some(())
        .ok_or_else(|| format!("{blocks} blocks, {} known", known.len()).into())
}

/// Installs into a folder that goes with the test.
fn install(images: &Images) -> Result<(), Failed> {
    let folder = TemporaryFolder::new("install")?;
    let commands = block("install")?.replace("outboard ", "\"$CARGO_INSTALL_ROOT\"/bin/outboard ");
    let mut command = shell(images, root(), &commands);
    // The programs have been compiled here, and not where appliances are.
    command.env_remove("CARGO_BUILD_BUILD_DIR");
    let ended = run(command.env("CARGO_INSTALL_ROOT", &folder.path))?;
    ended.expect_status(0)?.expect_stdout("private")?;
    ended.expect_stdout("public").map(|_| ())
}

/// What it prints for a second terminal does there what it says, and the README's next block too.
fn tried(images: &Images) -> Result<(), Failed> {
    let folder = TemporaryFolder::new("try")?;
    document::place_image(images, &folder.path)?;
    let here = |commands: &str| {
        let mut shell = shell(images, &folder.path, commands);
        shell.env("XDG_RUNTIME_DIR", &folder.path);
        shell
    };
    let commands = format!("exec {} 2> said", block("try")?.trim_end());
    let firewall = start(&mut here(&commands))?;
    let ready = "until outboard stats fw 2> /dev/null | grep -q policy; do sleep 0.05; done";
    run(&mut here(&format!("timeout 10 sh -c '{ready}'")))?.expect_status(0)?;
    let said = fs::read_to_string(folder.path.join("said"))?;
    for (frame, verdict) in [("passes", "accept"), ("is dropped", "policy drop")] {
        let command = behind(&said, &format!("a frame that {frame}: "))?;
        fs::write(folder.path.join("typed"), command)?;
        let shell = behind(&said, "from another terminal: ")?;
        let sent = certain(|| run(here(&format!("{shell} < typed")).env("SHELL", "/bin/sh")))?;
        // The text of built-in rules is in the counters' table alone.
        let mut words = sent.stdout.split_whitespace().skip_while(|w| *w != "rule");
        let rule = words.nth(1).ok_or("no rule")?.trim_end_matches(',');
        let stats = run(&mut here(&block("look")?))?;
        let rows = stats.expect_status(0)?.expect_stdout("fw")?.stdout.lines();
        let mut rows = rows.filter(|row| row.split_whitespace().next() == Some(rule));
        let decided = rows.any(|row| row.ends_with(verdict));
        decided
            .then_some(())
            .ok_or_else(|| format!("rule {rule} is no {verdict}: {}", stats.stdout))?;
    }
    firewall.signal(Signal::INT);
    firewall.finish()?.expect_status(128 + 2)?;
    behind(&said, "private is tap0")?;
    behind(&said, "public is tap1").map(|_| ())
}

/// Whoever has no directory for what runs finds a guest in spite of that.
fn tried_by_user(images: &Images) -> Result<(), Failed> {
    let folder = TemporaryFolder::new("try")?;
    document::place_image(images, &folder.path)?;
    // No name of another test's.
    let name = format!("tried{}", std::process::id());
    let block = block("try")?.replace("--name=fw", &format!("--name={name}"));
    let commands = format!(
        "timeout 20 {} 2> said &\n\
         until outboard stats {name} 2> /dev/null | grep -q policy; do sleep 0.05; done\n\
         outboard stop {name}; stat -c %a /tmp/outboard-$(id -u)",
        block.trim_end()
    );
    let mut shell = users_shell(images, &folder.path, &format!("{commands} || cat said"))?;
    let ended = run(&mut shell)?;
    ended.expect_stdout(&format!("{name} has ended with status 143\n700\n"))?;
    ended.expect_status(0).map(drop)
}

/// The kernel sends frames of its own when a tap comes up, and beside one of them counters prove
/// nothing. So it is sent again, as a reader would.
fn certain(send: impl Fn() -> Result<Ended, Failed>) -> Result<Ended, Failed> {
    let mut sent = send()?;
    for _ in 1..SENT_MAX {
        if !sent
            .stdout
            .contains("the counters agree, and prove nothing")
        {
            break;
        }
        sent = send()?;
    }
    sent.expect_status(0)?.expect_stdout("it was this one")?;
    Ok(sent)
}

/// What stands behind these words in their line.
fn behind<'a>(said: &'a str, words: &str) -> Result<&'a str, Failed> {
    let mut lines = said.lines().filter_map(|line| line.split_once(words));
    let line = lines
        .next()
        .ok_or_else(|| format!("no {words:?} in: {said}"))?;
    Ok(line.1)
}

fn taps_and_run(images: &Images) -> Result<(), Failed> {
    let segment = Segment::new()?;
    let folder = TemporaryFolder::new("run")?;
    document::place_image(images, &folder.path)?;
    let here = |commands: &str| shell(images, &folder.path, commands);
    segment
        .run(|| run(&mut here(&block("taps")?)))?
        .expect_status(0)?;
    let firewall = segment.run(|| start(&mut here(&format!("exec {}", block("run")?))))?;
    let carrier = "ip -oneline link show dev public0";
    let deadline = Instant::now() + PATIENCE;
    while !segment
        .run(|| run(&mut here(carrier)))?
        .stdout
        .contains("LOWER_UP")
    {
        if Instant::now() > deadline {
            return Err(format!("no carrier: {:?}", firewall.finish()).into());
        }
        thread::sleep(Duration::from_millis(20));
    }
    firewall.signal(Signal::INT);
    firewall.finish()?.expect_status(128 + 2).map(|_| ())
}

/// A folder with the sources that an image is made of, and nothing that was built from them.
fn sources() -> Result<TemporaryFolder, Failed> {
    let copy = TemporaryFolder::new("sources")?;
    let mut archive = Command::new("sh");
    archive
        .args([
            "-c",
            "tar -c --exclude=target \"$@\" | tar -x -C \"$TO\"",
            "sh",
        ])
        .args([
            "Cargo.toml",
            "Cargo.lock",
            ".cargo",
            "crates",
            "unikernels",
            "xtask",
        ])
        .env("TO", &copy.path)
        .current_dir(root());
    run(&mut archive)?.expect_status(0)?;
    let commit = "git init -q && git add unikernels/firewall/rules && \
                  git -c user.name=test -c user.email=test@localhost commit -qm rules";
    let mut repository = Command::new("sh");
    repository.args(["-c", commit]).current_dir(&copy.path);
    run(&mut repository)?.expect_status(0)?;
    Ok(copy)
}

fn change(images: &Images) -> Result<(), Failed> {
    let copy = sources()?;
    // The programs are those of this repository; image and rules are the changed copy's.
    let commands = block("change")?;
    let demo = "cargo xtask demo";
    if !commands.contains(demo) {
        return Err("the block does not end with the demonstration".into());
    }
    let commands = commands.replace(
        demo,
        "outboard build unikernels/firewall >&2\n\
         outboard demo firewall --quick --json --image unikernels/firewall/firewall.spt",
    );
    let ended: Ended = run(&mut shell(images, &copy.path, &commands))?;
    let value: serde_json::Value = serde_json::from_str(&ended.expect_status(1)?.stdout)?;
    let checks = value["checks"].as_array().ok_or("no checks")?;
    let dropped = |check: &&serde_json::Value| check["expected"] == "dropped";
    let changed = checks
        .iter()
        .filter(dropped)
        .all(|check| check["passed"] == true);
    if !changed {
        return Err(format!("TCP 1234 did not pass: {checks:?}").into());
    }
    if !built_in_rules(&copy)?.contains("policy accept") {
        return Err("the image does not carry the changed rules".into());
    }
    run(&mut shell(images, &copy.path, &block("undo")?))?.expect_status(0)?;
    let undone = built_in_rules(&copy)?.contains("policy drop");
    undone
        .then_some(())
        .ok_or_else(|| "the image has not the old rules again".into())
}

/// The rules of the image that was built in a copy of the sources.
fn built_in_rules(copy: &TemporaryFolder) -> Result<String, Failed> {
    let bytes = fs::read(copy.path.join("unikernels/firewall/firewall.spt"))?;
    let rules = image::built_in_rules(&bytes).ok_or("the image carries no rules")?;
    Ok(rules.to_owned())
}
