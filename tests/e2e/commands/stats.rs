//! What is counted, and who can see it: known traffic, exact counts.

use crate::harness::build::{Images, root};
use crate::harness::exposition::{Samples, samples};
use crate::harness::frames::{self, TEST_MAC};
use crate::harness::network::Network;
use crate::harness::process::{Ended, Running, run, start};
use crate::harness::runtime::{Runtime, unused};
use crate::harness::wait;
use crate::harness::wire::{PORT, Wire};
use libtest_mimic::{Failed, Trial};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// How long a count may take to show.
const PATIENCE: Duration = Duration::from_secs(5);

/// The rules of the firewall in these tests.
const RULES: &str = "unikernels/firewall/rules/default.nft";

type Test = fn(&Images) -> Result<(), Failed>;

const TESTS: &[(&str, Test)] = &[
    ("a table and JSON of a named guest", named),
    ("watching ends with the guest", watching),
    ("ps lists the living and the dead", processes),
    ("metrics over a Unix socket", unix_metrics),
    ("metrics over TCP, beside clients that dawdle", tcp_metrics),
    ("no socket reaches the guest", no_socket),
    (
        "an address that is taken is said before the guest runs",
        taken,
    ),
    ("SIGTERM leaves the final counters", last_words),
    ("a guest that writes nonsense harms nobody", nonsense),
];

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let trial = |&(name, test): &(&str, Test)| {
        network.trial(format!("stats::{name}"), move || test(images))
    };
    TESTS.iter().map(trial).collect()
}

/// The firewall under the monitor, between two wires.
pub(super) struct Watched {
    pub(super) left: Wire,
    right: Wire,
    running: Running,
}

/// Frames that are sent from left to right: a datagram and one more byte, and their size.
const PASSING: u64 = 5;
const DROPPED: u64 = 3;

impl Watched {
    fn start(images: &Images, host: &str, options: &[&str]) -> Result<Self, Failed> {
        let command = Command::new(images.program("outboard"));
        Self::start_with(images, command, host, options)
    }

    fn start_with(
        images: &Images,
        mut command: Command,
        host: &str,
        options: &[&str],
    ) -> Result<Self, Failed> {
        let rules = format!("--rules={}", root().join(RULES).display());
        command.args(["run", "--mem=16", &format!("--host={host}"), &rules]);
        Self::start_by(images, command.args(options))
    }

    /// By a command that lacks the devices and the image.
    fn start_by(images: &Images, command: &mut Command) -> Result<Self, Failed> {
        let (mut left, mut right) = (Wire::new(1500, false)?, Wire::new(1500, false)?);
        command
            .arg(format!("--net:private={}", left.descriptor()?))
            .arg(format!("--net:public={}", right.descriptor()?))
            .arg(&images.firewall);
        let running = start(command)?;
        // The guest answers for the tender: it has all it needs.
        left.send(&frames::udp(53, b"ready"))?;
        right.receive(TEST_MAC)?;
        left.hand_over();
        right.hand_over();
        Ok(Self {
            left,
            right,
            running,
        })
    }

    /// Sends what passes, what the policy drops, and a frame that is none; each is judged when
    /// this returns.
    fn traffic(&self) -> Result<(), Failed> {
        for _ in 0..DROPPED {
            self.left.send(&frames::tcp(1234, b"no"))?;
        }
        let mut broken = frames::udp(53, b"bad checksum");
        broken[22] ^= 1;
        self.left.send(&broken)?;
        // One less, for the first one has shown that the guest runs.
        for _ in 1..PASSING {
            self.left.send(&frames::udp(53, b"ready"))?;
            self.right.receive(TEST_MAC)?;
        }
        Ok(())
    }
}

/// Bytes of the frames of [`Watched::traffic`].
fn bytes() -> [u64; 2] {
    let passing = PASSING * frames::udp(53, b"ready").len() as u64;
    let dropped = DROPPED * frames::tcp(1234, b"no").len() as u64;
    let broken = frames::udp(53, b"bad checksum").len() as u64;
    [passing + dropped + broken, passing]
}

/// Waits until `what` succeeds, for the last frame may have come out before it was counted.
fn eventually<T>(what: impl FnMut() -> Result<T, Failed>) -> Result<T, Failed> {
    wait::eventually(PATIENCE, what)
}

/// A part of each rule that [`Watched::traffic`] meets, and what it must count: bytes are those
/// from the network header on.
fn decided() -> [(&'static str, u64, u64); 2] {
    let bytes = |count: u64, frame: Vec<u8>| count * (frame.len() as u64 - 14);
    [
        (
            "ip protocol udp",
            PASSING,
            bytes(PASSING, frames::udp(53, b"ready")),
        ),
        (
            "policy drop",
            DROPPED,
            bytes(DROPPED, frames::tcp(1234, b"no")),
        ),
    ]
}

fn expect<T: PartialEq + std::fmt::Debug>(found: T, expected: T) -> Result<(), Failed> {
    let same = found == expected;
    same.then_some(())
        .ok_or_else(|| format!("{found:?}, not {expected:?}").into())
}

/// One exchange of HTTP: the header and the body of the answer.
fn exchange(mut stream: impl Read + Write, request: &str) -> Result<(String, String), Failed> {
    stream.write_all(request.as_bytes())?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    let (head, body) = reply.split_once("\r\n\r\n").ok_or("no header")?;
    Ok((head.to_owned(), body.to_owned()))
}

fn scrape(stream: impl Read + Write) -> Result<Samples, Failed> {
    let (head, body) = exchange(stream, "GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n")?;
    for line in [
        "HTTP/1.1 200 OK",
        "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8",
        &format!("Content-Length: {}", body.len()),
    ] {
        let found = head.lines().any(|found| found == line);
        found.then_some(()).ok_or(format!("no {line} in {head}"))?;
    }
    samples(&body)
}

/// What must be counted of [`Watched::traffic`].
fn check(samples: Samples) -> Result<Samples, Failed> {
    let value = |series: &str| {
        let value = samples.get(series).copied();
        value.ok_or(Failed::from(format!("no {series}")))
    };
    let [received, sent] = bytes();
    let frames = PASSING + DROPPED + 1;
    for (series, expected) in [
        (
            "outboard_port_receive_frames_total{port=\"private\"}",
            frames,
        ),
        (
            "outboard_port_receive_bytes_total{port=\"private\"}",
            received,
        ),
        (
            "outboard_port_transmit_frames_total{port=\"public\"}",
            PASSING,
        ),
        ("outboard_port_transmit_bytes_total{port=\"public\"}", sent),
        (
            "outboard_port_drops_total{port=\"private\",reason=\"rx_runt\"}",
            0,
        ),
    ] {
        let found = value(series)?;
        let same = found == expected;
        same.then_some(())
            .ok_or(format!("{series} is {found}, not {expected}"))?;
    }
    for (rule, frames, bytes) in decided() {
        let found = samples.iter().filter(|(series, _)| series.contains(rule));
        let found: Vec<_> = found.map(|(_, value)| *value).collect();
        // The family of bytes comes first in the order of names.
        expect(found, vec![bytes, frames])?;
    }
    Ok(samples)
}

/// A named firewall that has seen [`Watched::traffic`] and counted it.
pub(super) fn named_guest(images: &Images, runtime: &Runtime) -> Result<Watched, Failed> {
    let command = runtime.outboard(images, &[]);
    let watched = Watched::start_with(images, command, "spt", &["--name=fw"])?;
    watched.traffic()?;
    eventually(|| check_json(&runtime.json(images, &["stats", "fw", "--json"])?))?;
    Ok(watched)
}

fn check_json(stats: &Value) -> Result<(), Failed> {
    let [received, sent] = bytes();
    let frames = PASSING + DROPPED + 1;
    let nothing = json!({"frames": 0, "bytes": 0});
    let [private, public] = [&stats["ports"][0], &stats["ports"][1]];
    expect(&private["name"], &json!("private"))?;
    expect(&private["interface"], &json!(PORT))?;
    expect(
        &private["receive"],
        &json!({"frames": frames, "bytes": received}),
    )?;
    expect(&private["transmit"], &nothing)?;
    expect(&public["receive"], &nothing)?;
    expect(
        &public["transmit"],
        &json!({"frames": PASSING, "bytes": sent}),
    )?;
    expect(&private["drops"]["bad_ip_checksum"], &json!(1))?;
    expect(&stats["notes"], &json!([]))?;
    check_rules(&stats["rules"])?;
    expect(
        (&stats["version"], &stats["running"]),
        (&json!(1), &json!(true)),
    )
}

/// How often a virtual machine was left.
pub fn exits(images: &Images) -> Result<(), Failed> {
    let runtime = Runtime::new()?;
    let mut command = runtime.outboard(images, &["run", "--mem=16", "--host=hvt", "--name=fw"]);
    let watched = Watched::start_by(images, &mut command)?;
    watched.traffic()?;
    eventually(|| {
        let stats = runtime.json(images, &["stats", "fw", "--json"])?;
        let [interrupts, others] = ["interrupts", "others"].map(|why| stats["exits"][why].as_u64());
        let some = interrupts.is_some() && others.is_some_and(|others| others > 0);
        some.then_some(())
            .ok_or_else(|| format!("exits: {}", stats["exits"]).into())
    })?;
    let table = runtime.says(images, &["stats", "fw"])?;
    let said = table.contains("the virtual machine was left ");
    said.then_some(()).ok_or(table)?;
    watched.running.signal(Signal::TERM);
    watched.running.finish()?;
    Ok(())
}

fn check_rules(rules: &Value) -> Result<(), Failed> {
    expect(
        (&rules["generation"], &rules["refused"]),
        (&json!(1), &Value::Null),
    )?;
    let text = std::fs::read_to_string(root().join(RULES))?;
    let entries = rules["entries"].as_array().ok_or("no entries")?;
    // The policy has one too.
    expect(entries.len(), 1 + text.matches(" counter accept").count())?;
    for (number, entry) in entries.iter().enumerate() {
        let rule = entry["text"].as_str().ok_or("no text")?;
        let met = decided().into_iter().find(|(part, ..)| rule.contains(part));
        let (frames, bytes) = met.map_or((0, 0), |(_, frames, bytes)| (frames, bytes));
        expect(
            (&entry["frames"], &entry["bytes"]),
            (&json!(frames), &json!(bytes)),
        )?;
        expect(
            (&entry["number"], &entry["chain"]),
            (&json!(number), &json!("forward")),
        )?;
        if let Some((part, ..)) = met {
            let line = text
                .lines()
                .position(|line| line.contains(part))
                .ok_or(part)?;
            expect(&entry["line"], &json!(line + 1))?;
        }
    }
    Ok(())
}

fn named(images: &Images) -> Result<(), Failed> {
    let runtime = Runtime::new()?;
    let _watched = named_guest(images, &runtime)?;
    let table = runtime.says(images, &["stats", "fw"])?;
    let row = table.lines().find(|line| line.starts_with("private"));
    let cells: Vec<_> = row.ok_or("no port")?.split_whitespace().collect();
    let [received, _] = bytes();
    let frames = PASSING + DROPPED + 1;
    let expected = [
        "private",
        PORT,
        &frames.to_string(),
        &received.to_string(),
        "0",
        "0",
    ];
    expect(cells, expected.to_vec())?;
    let all = runtime.says(images, &["stats", "fw", "--all"])?;
    expect(
        all.contains("rx_bad_header") && !table.contains("rx_bad_header"),
        true,
    )?;
    let ended = run(&mut runtime.outboard(images, &["stats", "fv"]))?;
    ended.expect_status(1)?.expect_stderr("there is fw")?;
    expect(ended.stderr.lines().count(), 1)
}

fn watching(images: &Images) -> Result<(), Failed> {
    let runtime = Runtime::new()?;
    let watched = named_guest(images, &runtime)?;
    let watcher = start(&mut runtime.outboard(images, &["stats", "fw", "--watch=0.1"]))?;
    thread::sleep(Duration::from_millis(400));
    watched.running.signal(Signal::TERM);
    watched.running.finish()?;
    let ended = watcher.finish()?;
    ended.expect_status(0)?.expect_stdout("frames/s")?;
    ended.expect_stdout("fw has ended")?;
    // A pipe is no terminal.
    expect(ended.stdout.contains('\x1b'), false)?;
    expect(ended.stdout.matches("interface").count() > 1, true)
}

fn processes(images: &Images) -> Result<(), Failed> {
    let runtime = Runtime::new()?;
    expect(runtime.json(images, &["ps", "--json"])?, json!([]))?;
    let watched = named_guest(images, &runtime)?;
    let monitor = watched.running.id();
    let list = runtime.json(images, &["ps", "--json"])?;
    let row = &list[0];
    expect(
        (&row["name"], &row["running"]),
        (&json!("fw"), &json!(true)),
    )?;
    expect(
        (&row["monitor"], &row["host"]),
        (&json!(monitor), &json!("spt")),
    )?;
    expect(&row["ports"][1]["interface"], &json!(PORT))?;
    let table = runtime.says(images, &["ps"])?;
    let cells: Vec<_> = table
        .lines()
        .nth(1)
        .ok_or("no row")?
        .split_whitespace()
        .collect();
    expect(cells[..3].to_vec(), vec!["fw", &monitor.to_string(), "spt"])?;
    watched.running.signal(Signal::KILL);
    watched.running.finish()?;
    // The tender follows its monitor, a moment later.
    let deadline = Instant::now() + PATIENCE;
    let dead = |table: &str| {
        table
            .lines()
            .nth(1)
            .is_some_and(|row| row.contains(" dead "))
    };
    while !dead(&runtime.says(images, &["ps"])?) {
        if Instant::now() > deadline {
            return Err("still running without its monitor".into());
        }
    }
    // Its last counters can still be read.
    let stats = runtime.json(images, &["stats", "fw", "--json"])?;
    expect(&stats["running"], &json!(false))?;
    expect(&stats["ports"][1]["transmit"]["frames"], &json!(PASSING))
}

fn unix_metrics(images: &Images) -> Result<(), Failed> {
    let socket = unused("metrics.sock")?;
    let option = format!("--metrics=unix:{}", socket.path.display());
    let watched = Watched::start(images, "spt", &[&option])?;
    watched.traffic()?;
    let samples = eventually(|| check(scrape(UnixStream::connect(&socket.path)?)?))?;
    let info = samples
        .keys()
        .find(|k| k.starts_with("outboard_guest_info"));
    let info = info.ok_or("no info")?;
    info.contains("firewall.spt\",host=\"spt\"}")
        .then_some(())
        .ok_or(info)?;
    watched.running.signal(Signal::TERM);
    watched.running.finish()?;
    expect(socket.path.exists(), false)
}

/// A port of this machine that nobody had a moment ago.
fn free_port() -> Result<u16, Failed> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn tcp_metrics(images: &Images) -> Result<(), Failed> {
    let port = free_port()?;
    let option = format!("--metrics=127.0.0.1:{port}");
    let watched = Watched::start(images, "spt", &[&option])?;
    watched.traffic()?;
    let connect = || TcpStream::connect(("127.0.0.1", port));
    let mut dawdlers = Vec::new();
    for beginning in ["", "GET", "GET /metrics HTTP/1.1\r\nA: b"] {
        let mut dawdler = connect()?;
        dawdler.write_all(beginning.as_bytes())?;
        dawdlers.push(dawdler);
    }
    eventually(|| check(scrape(connect()?)?))?;
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
        ("\x16\x03\x01\r\n\r\n", "400"),
    ] {
        let (head, _) = exchange(connect()?, request)?;
        let told = head.starts_with(&format!("HTTP/1.1 {status} "));
        told.then_some(()).ok_or(head)?;
    }
    let long = format!("GET /metrics HTTP/1.1\r\nA: {}", "a".repeat(8192));
    let (head, _) = exchange(connect()?, &long)?;
    head.starts_with("HTTP/1.1 431 ")
        .then_some(())
        .ok_or(head)?;
    // The dawdlers' time is over some time, and they are disconnected.
    for mut dawdler in dawdlers {
        dawdler.set_read_timeout(Some(2 * PATIENCE))?;
        let mut rest = Vec::new();
        dawdler.read_to_end(&mut rest)?;
        expect(rest.len(), 0)?;
    }
    Ok(())
}

/// The tender of a monitor: its only child.
fn tender(monitor: u32) -> Result<u32, Failed> {
    let children = std::fs::read_to_string(format!("/proc/{monitor}/task/{monitor}/children"))?;
    Ok(children.trim().parse()?)
}

fn no_socket(images: &Images) -> Result<(), Failed> {
    for host in ["spt", "process"] {
        let socket = unused("metrics.sock")?;
        let option = format!("--metrics=unix:{}", socket.path.display());
        let watched = Watched::start(images, host, &[&option])?;
        let folder = format!("/proc/{}/fd", tender(watched.running.id())?);
        let mut links = Vec::new();
        for entry in std::fs::read_dir(&folder)? {
            links.push(std::fs::read_link(entry?.path())?);
        }
        let is_socket = |link: &Path| link.to_string_lossy().starts_with("socket:");
        let leaked = links.iter().any(|link| is_socket(link));
        (!leaked && !links.is_empty())
            .then_some(())
            .ok_or(format!("{host}: {links:?}"))?;
    }
    Ok(())
}

fn taken(images: &Images) -> Result<(), Failed> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    for option in [
        format!("--metrics={address}"),
        "--metrics=unix:/nonexistent/socket".to_owned(),
        "--metrics=9100".to_owned(),
    ] {
        let mut command = Command::new(images.program("outboard"));
        let ended = run(command.args(["run", &option]).arg(images.guest("hello")))?;
        let one_line = ended.stderr.lines().count() == 1 && ended.stdout.is_empty();
        ended.expect_status(1)?.expect_stderr(&option)?;
        one_line
            .then_some(())
            .ok_or_else(|| Failed::from(format!("{ended:?}")))?;
    }
    Ok(())
}

fn last_words(images: &Images) -> Result<(), Failed> {
    let [received, sent] = bytes();
    let frames = PASSING + DROPPED + 1;
    for signal in [Signal::TERM, Signal::INT] {
        let socket = unused("metrics.sock")?;
        let option = format!("--metrics=unix:{}", socket.path.display());
        let watched = Watched::start(images, "spt", &[&option])?;
        watched.traffic()?;
        eventually(|| check(scrape(UnixStream::connect(&socket.path)?)?))?;
        watched.running.signal(signal);
        let ended: Ended = watched.running.finish()?;
        ended.expect_status(128 + signal.as_raw())?;
        let private = format!(
            "outboard: private: received {frames} frames ({received} bytes), sent 0 (0); dropped 1 \
             bad_ip_checksum\n"
        );
        let public =
            format!("outboard: public: received 0 frames (0 bytes), sent {PASSING} ({sent})\n");
        ended.expect_stderr(&private)?.expect_stderr(&public)?;
        for (rule, frames, _) in decided() {
            ended.expect_stderr(&format!("outboard: {frames} frames: {rule}"))?;
        }
    }
    Ok(())
}

/// Looks at a guest that writes nonsense all the while.
const LOOKS: usize = 8;

fn nonsense(images: &Images) -> Result<(), Failed> {
    let runtime = Runtime::new()?;
    let socket = unused("metrics.sock")?;
    let mut wire = Wire::new(1500, false)?;
    let mut command = runtime.outboard(images, &["run", "--mem=16", "--name=liar"]);
    command
        .arg(format!("--metrics=unix:{}", socket.path.display()))
        .arg(format!("--net:net={}", wire.descriptor()?))
        .arg(images.guest("nonsense"));
    let guest = start(&mut command)?;
    wire.hand_over();
    eventually(|| runtime.json(images, &["stats", "liar", "--json"]))?;
    for _ in 0..LOOKS {
        let stats = runtime.json(images, &["stats", "liar", "--json"])?;
        expect(&stats["ports"][0]["name"], &json!("net"))?;
        for arguments in [&["stats", "liar", "--all"][..], &["ps"], &["ps", "--json"]] {
            let mut command = runtime.outboard(images, arguments);
            let ended = run(&mut command)?;
            ended.expect_status(0)?;
            expect(ended.stderr, String::new())?;
        }
        scrape(UnixStream::connect(&socket.path)?)?;
    }
    guest.signal(Signal::TERM);
    let ended = guest.finish()?;
    ended.expect_status(128 + Signal::TERM.as_raw())?;
    let lines = ended.stderr.lines().count();
    expect(
        (ended.stderr.contains("panicked"), lines < 20),
        (false, true),
    )
}
