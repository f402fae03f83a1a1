//! What is counted, and who can see it: known traffic, exact counts.

use crate::build::Images;
use crate::exposition::{Samples, samples};
use crate::frames::{self, TEST_MAC};
use crate::network::Network;
use crate::process::{Ended, Running, run, start};
use crate::temporary::TemporaryFile;
use crate::wire::Wire;
use libtest_mimic::{Failed, Trial};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// How long a count may take to show.
const PATIENCE: Duration = Duration::from_secs(5);

type Test = fn(&Images) -> Result<(), Failed>;

const TESTS: &[(&str, Test)] = &[
    ("metrics over a Unix socket", unix_metrics),
    ("metrics over TCP, beside clients that dawdle", tcp_metrics),
    ("no socket reaches the guest", no_socket),
    (
        "an address that is taken is said before the guest runs",
        taken,
    ),
    ("SIGTERM leaves the final counters", last_words),
];

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let trial = |&(name, test): &(&str, Test)| {
        network.trial(format!("stats::{name}"), move || test(images))
    };
    TESTS.iter().map(trial).collect()
}

/// The firewall under the monitor, between two wires.
struct Watched {
    left: Wire,
    right: Wire,
    running: Running,
}

/// Frames that are sent from left to right: a datagram and one more byte, and their size.
const PASSING: u64 = 5;
const DROPPED: u64 = 3;

impl Watched {
    fn start(images: &Images, host: &str, options: &[&str]) -> Result<Self, Failed> {
        let (mut left, mut right) = (Wire::new(1500, false)?, Wire::new(1500, false)?);
        let mut command = Command::new(images.program("outboard"));
        command
            .args(["run", "--mem=16", &format!("--host={host}")])
            .args(options)
            .arg(format!("--net:private={}", left.descriptor()?))
            .arg(format!("--net:public={}", right.descriptor()?))
            .arg(&images.firewall);
        let running = start(&mut command)?;
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

/// Waits until all is counted that must be of [`Watched::traffic`]: the last frame may have come
/// out before it was counted.
fn await_counts(mut scrape: impl FnMut() -> Result<Samples, Failed>) -> Result<Samples, Failed> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let samples = scrape()?;
        match check(&samples) {
            Ok(()) => return Ok(samples),
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn check(samples: &Samples) -> Result<(), Failed> {
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
            "outboard_port_drops_total{port=\"private\",reason=\"bad_ip_checksum\"}",
            1,
        ),
        (
            "outboard_port_drops_total{port=\"private\",reason=\"runt\"}",
            0,
        ),
    ] {
        let found = value(series)?;
        let same = found == expected;
        same.then_some(())
            .ok_or(format!("{series} is {found}, not {expected}"))?;
    }
    Ok(())
}

/// A path for a socket, which is no file yet.
fn socket() -> Result<TemporaryFile, Failed> {
    let file = TemporaryFile::new("metrics.sock", 0)?;
    std::fs::remove_file(&file.path)?;
    Ok(file)
}

fn unix_metrics(images: &Images) -> Result<(), Failed> {
    let socket = socket()?;
    let option = format!("--metrics=unix:{}", socket.path.display());
    let watched = Watched::start(images, "spt", &[&option])?;
    watched.traffic()?;
    let samples = await_counts(|| scrape(UnixStream::connect(&socket.path)?))?;
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
    await_counts(|| scrape(connect()?))?;
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
        let socket = socket()?;
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
        let socket = socket()?;
        let option = format!("--metrics=unix:{}", socket.path.display());
        let watched = Watched::start(images, "spt", &[&option])?;
        watched.traffic()?;
        await_counts(|| scrape(UnixStream::connect(&socket.path)?))?;
        watched.running.signal(signal);
        let ended: Ended = watched.running.finish()?;
        ended.expect_status(128 + signal.as_raw())?;
        let private = format!(
            "outboard: private: received {frames} frames ({received} bytes), sent 0 (0); \
             dropped 1 bad_ip_checksum\n"
        );
        let public =
            format!("outboard: public: received 0 frames (0 bytes), sent {PASSING} ({sent})\n");
        ended.expect_stderr(&private)?.expect_stderr(&public)?;
    }
    Ok(())
}
