//! `iperf3` in each of its roles, with the stock program at the other end.

use super::{OUR_SIDE, PLAIN, SERVICE, SOCKETS, Served};
use super::{serve, serve_beside, serve_sockets, tender};
use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::process::{Ended, Running, run, start};
use crate::harness::programs;
use libtest_mimic::{Failed, Trial};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use testbed::segment::Segment;

/// What a client is told, and how many streams both ends count then.
const RUNS: [(&str, usize); 14] = [
    ("--bytes 20M", 1),
    ("--bytes 20M --reverse", 1),
    ("--bytes 50M --parallel 8", 8),
    ("--bytes 50M --parallel 8 --reverse", 8),
    ("--bytes 5M --bidir", 2),
    ("--bytes 1M --length 100 --no-delay", 1),
    ("--blockcount 500 --length 10K", 1),
    ("--time 1 --bitrate 8M --omit 1", 1),
    ("--udp --time 1", 1),
    ("--udp --time 1 --bitrate 20M --reverse", 1),
    ("--udp --bytes 2M --bitrate 20M --parallel 4", 4),
    ("--udp --time 1 --bitrate 5M --parallel 2 --bidir", 4),
    ("--udp --blockcount 50 --udp-counters-64bit", 1),
    ("--udp --time 1 --bitrate 5M --length 20000 --reverse", 1),
];

type Test = fn(&Images, &str) -> Result<(), Failed>;

const TESTS: [(&str, &[&str], Test); 8] = [
    ("stock clients are served", &["iperf3"], serves),
    ("tests with stock servers", &["iperf3"], tests),
    ("a server has a name", &["iperf3", "dnsmasq"], named),
    ("reports are the stock program's", &["iperf3"], reports),
    ("a second client is told to wait", &["iperf3"], busy),
    ("what clients send that are none", &["iperf3"], hostile),
    ("stock clients of iperf 2 are served", &["iperf"], iperf2),
    (
        "stock clients of iperf 2 are sent to",
        &["iperf"],
        sends_to_iperf2,
    ),
];

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (name, needed, test) in TESTS {
        for host in ["spt", SOCKETS] {
            let name = format!("iperf3::{name}::{host}");
            let missing = programs::missing(needed);
            trials.push(network.trial_unless(missing, name, move || test(images, host)));
        }
    }
    trials
}

/// A stock client's run against the image.
pub(super) fn client(served: &Served, words: &str) -> Result<Ended, Failed> {
    let mut client = Command::new("iperf3");
    client.args(["--client", &SERVICE.to_string(), "--json"]);
    client.args(words.split(' '));
    served.segment.run(|| run(&mut client))
}

/// The image's run against a stock server, and what both report.
fn image(images: &Images, host: &str, words: &str) -> Result<[String; 2], Failed> {
    let ours = OUR_SIDE.to_string();
    image_beside(images, host, &["--client", &ours], words, |_| Ok(()))
}

/// The same with something in the server's network that is there before.
fn image_beside<T>(
    images: &Images,
    host: &str,
    to: &[&str],
    words: &str,
    before: impl FnOnce(&Segment) -> Result<T, Failed>,
) -> Result<[String; 2], Failed> {
    let arguments = to.iter().copied().chain(["--json"]).chain(words.split(' '));
    let arguments: Vec<&str> = arguments.collect();
    let server = |segment: &Segment| {
        let beside = before(segment)?;
        let mut server = Command::new("iperf3");
        server.args(["--server", "--one-off", "--json", "--forceflush"]);
        let server = segment.run(|| start(&mut server))?;
        wait_for_listener(segment)?;
        Ok::<(Running, T), Failed>((server, beside))
    };
    let image = &images.iperf3;
    let (served, (server, _beside)) = match host {
        SOCKETS => serve_sockets(images, image, &arguments, server),
        _ => serve_beside(tender(images, host), &PLAIN, image, &arguments, server),
    }?;
    let ended = served.running.finish()?;
    ended.expect_status(0)?;
    let document = ended.stdout.lines().find(|line| line.starts_with('{'));
    let document = document.ok_or_else(|| format!("{words}: no document: {}", ended.stdout))?;
    Ok([document.into(), server.finish()?.stdout])
}

/// In JSON a stock server says nothing before its first client comes.
pub(super) fn wait_for_listener(segment: &Segment) -> Result<(), Failed> {
    let listens = || {
        let sockets = std::fs::read_to_string("/proc/thread-self/net/tcp6")?;
        Ok::<bool, std::io::Error>(sockets.contains(":1451 "))
    };
    let deadline = std::time::Instant::now() + super::PATIENCE;
    while !segment.run(listens)? {
        if std::time::Instant::now() > deadline {
            return Err("no stock server on port 5201".into());
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    Ok(())
}

/// As many bytes arrived as left, on each stream and in the sum, as both ends count them.
pub(super) fn judge(words: &str, document: &str, streams: usize) -> Result<(), Failed> {
    let report: Value = serde_json::from_str(document)?;
    let end = &report["end"];
    let counted = end["streams"].as_array().map_or(0, Vec::len);
    let of = |name: &str| end[name]["bytes"].as_u64().unwrap_or(0);
    let (sent, received) = (of("sum_sent"), of("sum_received"));
    // The client stops counting before all has arrived.
    if counted != streams || received == 0 || received > sent + sent / 2 {
        let wrong = format!("{words}: {counted} streams, {sent} sent, {received} received");
        return Err(wrong.into());
    }
    if words.contains("--udp") {
        let sum = &end["sum_received"];
        let (lost, packets) = (&sum["lost_packets"], &sum["packets"]);
        let lost = lost.as_u64().unwrap_or(u64::MAX);
        if packets.as_u64().unwrap_or(0) == 0 || lost > packets.as_u64().unwrap_or(0) {
            return Err(format!("{words}: {lost} of {packets} datagrams lost").into());
        }
    }
    Ok(())
}

fn serves(images: &Images, host: &str) -> Result<(), Failed> {
    let served = serve(images, host, &PLAIN, &images.iperf3, &["-s"])?;
    for (words, streams) in RUNS {
        let ended = client(&served, words)?;
        judge(words, &ended.expect_status(0)?.stdout, streams)?;
    }
    served.goes_on()
}

fn tests(images: &Images, host: &str) -> Result<(), Failed> {
    for (words, streams) in RUNS {
        for document in image(images, host, words)? {
            judge_end(words, &document, streams)?;
        }
    }
    Ok(())
}

/// The server's name is one that a stock server of names knows.
fn named(images: &Images, host: &str) -> Result<(), Failed> {
    let names = |segment: &Segment| {
        let mut command = Command::new("dnsmasq");
        command
            .args([
                "--keep-in-foreground",
                "--conf-file=/dev/null",
                "--log-facility=-",
            ])
            .args([
                "--no-resolv",
                "--no-hosts",
                "--bind-interfaces",
                "--pid-file=",
            ])
            .args(["--user=root", &format!("--listen-address={OUR_SIDE}")])
            .arg(format!("--address=/server.test/{OUR_SIDE}"));
        let names = segment.run(|| start(&mut command))?;
        names.wait_for_stderr("started")?;
        Ok::<Running, Failed>(names)
    };
    let words = "--bytes 1M";
    let dns = format!("--dns={OUR_SIDE}");
    let to = [&dns, "--client", "server.test"];
    for document in image_beside(images, host, &to, words, names)? {
        judge_end(words, &document, 1)?;
    }
    Ok(())
}

/// A stock server's sums lack the client's side; its streams do not.
fn judge_end(words: &str, document: &str, streams: usize) -> Result<(), Failed> {
    let report: Value = serde_json::from_str(document)?;
    match report["start"]["connecting_to"].is_null() {
        false => judge(words, document, streams),
        true if report["error"].is_null() => Ok(()),
        true => Err(format!("{words}: the stock server says {}", report["error"]).into()),
    }
}

/// Each key with its path; one element of a list stands for all.
fn keys(value: &Value, path: &str, all: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = format!("{path}.{name}");
                keys(value, &path, all);
                all.insert(path);
            }
        }
        Value::Array(elements) => elements.iter().for_each(|element| keys(element, path, all)),
        _ => {}
    }
}

/// The image's document has each key of the stock client's with the same arguments.
fn reports(images: &Images, host: &str) -> Result<(), Failed> {
    let served = serve(images, host, &PLAIN, &images.iperf3, &["-s"])?;
    for words in [
        "--time 1",
        "--time 1 --reverse",
        "--time 1 --bidir --parallel 2",
        "--udp --time 1",
        "--udp --time 1 --reverse",
        "--udp --time 1 --bidir",
    ] {
        let stock = client(&served, words)?;
        let [ours, _] = image(images, host, words)?;
        let [mut stock_keys, mut our_keys] = [BTreeSet::new(), BTreeSet::new()];
        let document = &stock.expect_status(0)?.stdout;
        keys(&serde_json::from_str(document)?, "", &mut stock_keys);
        keys(&serde_json::from_str(&ours)?, "", &mut our_keys);
        let missing: Vec<&String> = stock_keys.difference(&our_keys).collect();
        if !missing.is_empty() {
            return Err(format!("{words}: without {missing:?}").into());
        }
    }
    served.goes_on()
}

fn busy(images: &Images, host: &str) -> Result<(), Failed> {
    let served = serve(images, host, &PLAIN, &images.iperf3, &["-s"])?;
    let mut first = Command::new("iperf3");
    first.args(["--client", &SERVICE.to_string(), "--time", "60"]);
    let first = served.segment.run(|| start(&mut first))?;
    served.running.wait_for("sec")?;
    let second = client(&served, "--bytes 1M")?;
    if !second.stdout.contains("busy running a test") {
        return Err(format!("the second client says {}", second.stdout).into());
    }
    // A client that goes away in the middle ends its test.
    drop(first);
    served.running.wait_for("iperf3: ")?;
    client(&served, "--bytes 1M")?.expect_status(0)?;
    served.goes_on()
}

fn hostile(images: &Images, host: &str) -> Result<(), Failed> {
    let served = serve(images, host, &PLAIN, &images.iperf3, &["-s"])?;
    let cookie = [b'a'; 37];
    let text = |json: &str| [&(json.len() as u32).to_be_bytes(), json.as_bytes()].concat();
    for parameters in [
        vec![],
        vec![0xff; 4],
        vec![0, 0, 0, 9, b'{'],
        text("null"),
        text("{}"),
        text(r#"{"udp":true,"parallel":1e300}"#),
        text(r#"{"tcp":true,"parallel":-1,"len":1e300}"#),
        text(&"[".repeat(60_000)),
    ] {
        let mut stream = served.segment.run(|| TcpStream::connect((SERVICE, 5201)))?;
        stream.set_read_timeout(Some(super::PATIENCE))?;
        stream.write_all(&cookie)?;
        let mut state = [0];
        stream.read_exact(&mut state)?;
        // The server may end it before it has read all.
        let _ = stream.write_all(&parameters);
    }
    client(&served, "--bytes 1M")?.expect_status(0)?;
    served.goes_on()
}

/// A stock client of iperf 2 against the image: what it prints at the end.
fn iperf2_client(served: &Served, words: &str) -> Result<String, Failed> {
    let mut client = Command::new("iperf");
    client.args(["-c", &SERVICE.to_string()]);
    client.args(words.split(' '));
    let ended = served.segment.run(|| run(&mut client))?;
    Ok(ended.expect_status(0)?.stdout.clone())
}

fn iperf2(images: &Images, host: &str) -> Result<(), Failed> {
    let served = serve(images, host, &PLAIN, &images.iperf3, &["--iperf2"])?;
    for (words, expected) in [
        ("-n 10M", "sec"),
        ("-n 1M -P 4", "[SUM]"),
        ("-u -n 1M -b 10M", "Server Report"),
        ("-u -t 1 -b 5M -P 2", "Server Report"),
    ] {
        let said = iperf2_client(&served, words)?;
        if !said.contains(expected) {
            return Err(format!("{words}: no {expected:?}: {said}").into());
        }
    }
    served.running.wait_for("10485760 bytes")?;
    served.goes_on()
}

/// In each mode of iperf 2 in which a server sends, as often as much arrives as is to.
///
/// Two streams are sent so slowly that each begins before the other ends: iperf 2.1.8 may
/// otherwise free the report that both share while the second one takes it up
/// (`IncrSumReportRefCounter`), and then hangs or aborts, whoever serves it.
fn sends_to_iperf2(images: &Images, host: &str) -> Result<(), Failed> {
    let served = serve(images, host, &PLAIN, &images.iperf3, &["--iperf2"])?;
    for (words, amount, times) in [
        ("-R -n 3M", "3.00 MBytes", 1),
        ("-R -n 3M -b 20M -P 2", "3.00 MBytes", 2),
        ("-R -t 1 -b 2M", "[ *1]", 1),
        ("-r -n 3M -L 6001", "3.00 MBytes", 2),
        ("-d -n 3M -L 6001", "3.00 MBytes", 2),
        ("--full-duplex -n 3M", "3.00 MBytes", 2),
    ] {
        let said = iperf2_client(&served, words)?;
        if said.matches(amount).count() != times {
            return Err(format!("{words}: not {times} times {amount}: {said}").into());
        }
    }
    served.running.wait_for_times("bits/sec, sent", 7)?;
    // Nobody knows who has sent a datagram.
    let said = iperf2_client(&served, "-u -r -t 1 -b 1M -L 6001")?;
    if !said.contains("Server Report") {
        return Err(format!("what it sends is not counted: {said}").into());
    }
    served.running.wait_for("nothing is sent over UDP")?;
    served.goes_on()
}
