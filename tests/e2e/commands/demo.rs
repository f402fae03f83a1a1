//! The demonstration, as root or as an ordinary user: it holds, and leaves nothing behind.

use crate::harness::build::{Images, root};
use crate::harness::network::Network;
use crate::harness::process::{run, start};
use crate::harness::programs;
use crate::harness::temporary::TemporaryFolder;
use crate::harness::user;
use libtest_mimic::{Failed, Trial};
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use testbed::privilege::Settings;

/// How long what is left of a killed demonstration may take to go.
const PATIENCE: Duration = Duration::from_secs(5);

/// Whom the demonstration of the router has for company.
const HOME: [&str; 4] = ["dnsmasq", "busybox", "curl", "iperf3"];
/// Who makes the disks of the demonstration of files; the checkers come with them.
const MAKERS: [&str; 4] = ["mke2fs", "mkfs.vfat", "mcopy", "xorriso"];

/// With the real iperf3: it carries something through every contender.
fn iperf3(images: &Images) -> Result<(), Failed> {
    let ended = run(demo(images, "firewall", &images.firewall).arg("--iperf3"))?;
    let value: serde_json::Value = serde_json::from_str(&ended.expect_status(0)?.stdout)?;
    let tcp = value["tcp"].as_array().ok_or("no rates")?;
    let rates = tcp
        .iter()
        .map(|row| row["gigabits_per_second"]["median"].as_f64());
    let carried = tcp.len() == 4 && rates.flatten().filter(|rate| *rate > 0.1).count() == 4;
    carried
        .then_some(())
        .ok_or_else(|| format!("not all carried: {tcp:?}").into())
}

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let missing = programs::missing(&["iperf3"]);
    let mut trials = vec![
        network.trial("demo::all checks hold".into(), || {
            holds(&mut demo(images, "firewall", &images.firewall))
        }),
        network.trial("demo::all checks hold on software NICs".into(), || {
            holds(&mut demo(images, "nic", &images.firewall_on_nics))
        }),
        network.trial_unless(missing, "demo::the real iperf3".into(), || iperf3(images)),
        network.trial("demo::a web server answers".into(), || web_server(images)),
        network.trial("demo::three images are killed in turn".into(), || {
            restarts(&mut restart(images))
        }),
        network.trial_unless(
            programs::missing(&HOME),
            "demo::a home gateway is loaded and killed".into(),
            || gateway(&mut router(images)),
        ),
        network.trial_unless(
            programs::missing(&MAKERS),
            "demo::disks are served and written".into(),
            || files(images),
        ),
        network.trial_unless(
            programs::missing(&["nginx"]),
            "demo::a stock program is behind a firewall".into(),
            || stock_program(&mut program(images)),
        ),
        network.trial("demo::SIGKILL leaves nothing behind".into(), || {
            killed(images)
        }),
    ];
    // Otherwise those above are run by one.
    if network.root().is_none() {
        let name = "demo::all checks hold for an ordinary user".into();
        let missing = Settings::read().remedy();
        trials.push(network.trial_unless(missing, name, || ordinary_user(images)));
        let name = "demo::a home gateway for an ordinary user".into();
        let missing = missing.or(programs::missing(&HOME));
        trials.push(network.trial_unless(missing, name, || ordinary_gateway(images)));
        let name = "demo::a stock program for an ordinary user".into();
        let missing = Settings::read().remedy().or(programs::missing(&["nginx"]));
        trials.push(network.trial_unless(missing, name, || ordinary_program(images)));
    }
    trials
}

fn web_server(images: &Images) -> Result<(), Failed> {
    let mut demo = Command::new(images.program("outboard"));
    demo.args(["demo", "http", "--json", "--image"]);
    let ended = run(demo.arg(&images.http).current_dir(root()))?;
    let value: serde_json::Value = serde_json::from_str(&ended.expect_status(0)?.stdout)?;
    let checks = value["checks"].as_array().ok_or("no checks")?;
    let requests = value["requests_per_second"].as_f64().unwrap_or(0.0);
    let all = checks.len() == 5 && checks.iter().all(|check| check["held"] == true);
    (all && requests > 1.0)
        .then_some(())
        .ok_or_else(|| format!("not all held: {value}").into())
}

/// Three kinds of disks are served, and two are written, checked and read by others.
fn files(images: &Images) -> Result<(), Failed> {
    let mut demo = Command::new(images.program("outboard"));
    let image = images.appliance("files", "");
    let folder = image.parent().unwrap_or(Path::new("."));
    demo.args(["demo", "files", "--json"]);
    demo.arg(format!("--images={}", folder.display()));
    let ended = run(demo.current_dir(root()))?;
    let value: serde_json::Value = serde_json::from_str(&ended.expect_status(0)?.stdout)?;
    let checks = value["checks"].as_array().ok_or("no checks")?;
    let all = checks.len() == 9 && checks.iter().all(|check| check["held"] == true);
    all.then_some(())
        .ok_or_else(|| format!("not all held: {value}").into())
}

fn program(images: &Images) -> Command {
    killing(images, "program")
}

/// A demonstration that kills each of its components once.
fn killing(images: &Images, which: &str) -> Command {
    let mut demo = Command::new(images.program("outboard"));
    let image = images.appliance("echo", "-kept");
    let folder = image.parent().unwrap_or(Path::new("."));
    kills_once(&mut demo, which, folder);
    demo
}

fn kills_once(outboard: &mut Command, which: &str, images: &Path) {
    outboard.args(["demo", which, "--kills=1", "--json"]);
    outboard.arg(format!("--images={}", images.display()));
}

/// The same for an ordinary user, who has these images and this program alone.
fn killing_as_user(
    images: &Images,
    which: &str,
    of: &[(&str, &str)],
    holds: fn(&mut Command) -> Result<(), Failed>,
) -> Result<(), Failed> {
    let folder = TemporaryFolder::new("demo")?;
    for (appliance, variant) in of {
        let image = images.appliance(appliance, variant);
        let name = image.file_name().ok_or("a file has a name")?;
        fs::copy(&image, folder.path.join(name))?;
    }
    let program = folder.path.join("outboard");
    fs::copy(images.program("outboard"), &program)?;
    let mut command = user::ordinary(&folder.path)?;
    command.arg(program);
    kills_once(&mut command, which, &folder.path);
    holds(&mut command)
}

/// No request fails by the firewall's end or the stack's, and nginx is there again.
fn stock_program(demo: &mut Command) -> Result<(), Failed> {
    let ended = run(demo)?;
    let value: serde_json::Value = serde_json::from_str(&ended.expect_status(0)?.stdout)?;
    let components = value["components"].as_array().ok_or("no components")?;
    let answered = |row: &serde_json::Value| row["answered"].as_u64() > Some(0);
    let all = components.len() == 3
        && components.iter().all(answered)
        && components[..2].iter().all(|row| row["failed"] == 0)
        && value["closed_is_closed"] == true;
    all.then_some(())
        .ok_or_else(|| format!("not all held: {value}").into())
}

fn ordinary_program(images: &Images) -> Result<(), Failed> {
    let of = [("firewall", "-kept"), ("stack", "-link-kept")];
    killing_as_user(images, "program", &of, stock_program)
}

fn restart(images: &Images) -> Command {
    killing(images, "restart")
}

/// No connection is lost, bytes come back, and datagrams come through behind each kill.
fn restarts(demo: &mut Command) -> Result<(), Failed> {
    let ended = run(demo)?;
    let value: serde_json::Value = serde_json::from_str(&ended.expect_status(0)?.stdout)?;
    let connections = &value["connections"];
    let compared = connections["bytes_compared"].as_u64().unwrap_or(0);
    let all = connections["held"] == 4
        && connections["lost"] == 0
        && connections["bytes_wrong"] == 0
        && value["kills"]
            .as_array()
            .is_some_and(|kills| kills.len() == 3)
        && compared > 0;
    all.then_some(())
        .ok_or_else(|| format!("not all held: {value}").into())
}

fn router(images: &Images) -> Command {
    let mut demo = Command::new(images.program("outboard"));
    demo.args(["demo", "router", "--kills=1", "--json", "--image"]);
    demo.arg(images.appliance("router", "-kept"));
    demo
}

/// Everybody has addresses and reaches the servers; and while rules are loaded and the router is
/// killed, each connection goes on.
fn gateway(demo: &mut Command) -> Result<(), Failed> {
    let ended = run(demo)?;
    let value: serde_json::Value = serde_json::from_str(&ended.expect_status(0)?.stdout)?;
    let checks = value["checks"].as_array().ok_or("no checks")?;
    let events = value["load"]["events"].as_array().ok_or("no events")?;
    let whats: Vec<_> = events.iter().map(|event| event["what"].as_str()).collect();
    let carried = value["load"]["iperf3"].as_array().ok_or("no rates")?;
    let lost = carried.iter().any(|one| !one["lost"].is_null());
    let all = checks.len() == 17
        && checks.iter().all(|check| check["held"] == true)
        && whats == [Some("start"), Some("new rules"), Some("kill")]
        && (carried.len(), lost) == (2, false);
    all.then_some(())
        .ok_or_else(|| format!("not all held: {value}").into())
}

fn demo(images: &Images, which: &str, image: &Path) -> Command {
    let mut command = Command::new(images.program("outboard"));
    command
        .args(["demo", which, "--quick", "--json", "--image"])
        .arg(image)
        .current_dir(root());
    command
}

fn holds(demo: &mut Command) -> Result<(), Failed> {
    let ended = run(demo)?;
    let value: serde_json::Value = serde_json::from_str(&ended.expect_status(0)?.stdout)?;
    let checks = value["checks"].as_array().ok_or("no checks")?;
    let all = checks.len() == 8 && checks.iter().all(|check| check["held"] == true);
    all.then_some(())
        .ok_or_else(|| format!("not all held: {checks:?}").into())
}

fn ordinary_user(images: &Images) -> Result<(), Failed> {
    for (which, image) in [
        ("firewall", &images.firewall),
        ("nic", &images.firewall_on_nics),
    ] {
        let folder = TemporaryFolder::new("demo")?;
        // The repository may lie where nobody else can go.
        let copy = |file: &Path| -> Result<PathBuf, Failed> {
            let name = file.file_name().ok_or("a file has a name")?;
            let to = folder.path.join(name);
            fs::copy(file, &to)?;
            Ok(to)
        };
        let mut command = user::ordinary(&folder.path)?;
        command
            .arg(copy(&images.program("outboard"))?)
            .args(["demo", which, "--quick", "--json", "--image"])
            .arg(copy(image)?);
        holds(&mut command)?;
    }
    let of = [
        ("firewall", "-link"),
        ("firewall", "-links-kept"),
        ("echo", "-kept"),
    ];
    killing_as_user(images, "restart", &of, restarts)
}

fn ordinary_gateway(images: &Images) -> Result<(), Failed> {
    let folder = TemporaryFolder::new("demo")?;
    let [program, image] = ["outboard", "router-kept.spt"].map(|name| folder.path.join(name));
    fs::copy(images.program("outboard"), &program)?;
    fs::copy(images.appliance("router", "-kept"), &image)?;
    let mut command = user::ordinary(&folder.path)?;
    command.arg(program);
    command.args(["demo", "router", "--kills=1", "--json", "--image"]);
    gateway(command.arg(image))
}

/// Processes with this word on their command line.
fn processes(word: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = entries.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
    lines.filter(|line| line.contains(word)).collect()
}

fn killed(images: &Images) -> Result<(), Failed> {
    // A path of its own, so that only this demonstration's processes have it.
    let image = format!(
        "{}.{}.killed",
        images.firewall.display(),
        std::process::id()
    );
    fs::copy(&images.firewall, &image)?;
    let mut command = Command::new(images.program("outboard"));
    let demonstration = start(command.args(["demo", "firewall", "--image", &image]))?;
    let deadline = Instant::now() + PATIENCE;
    while processes(&image).len() < 2 && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
    }
    let begun = processes(&image).len();
    demonstration.signal(Signal::KILL);
    demonstration.finish()?.expect_status(128 + 9)?;
    while !processes(&image).is_empty() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
    }
    fs::remove_file(&image)?;
    let left = processes(&image);
    let gone = begun >= 2 && left.is_empty();
    gone.then_some(())
        .ok_or_else(|| format!("{begun} processes, left: {left:?}").into())
}
