//! What an image with TCP/IP shows of itself while Linux talks to it.

use super::{PATIENCE, PLAIN, SERVICE, Served, serve_by};
use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::runtime::Runtime;
use crate::harness::wait::eventually;
use libtest_mimic::{Failed, Trial};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};

const NAME: &str = "watched";

type Test = fn(&Images) -> Result<(), Failed>;

const TESTS: &[(&str, Test)] = &[
    ("its stack's numbers are known", numbers),
    ("its sockets are known", sockets),
    ("many sockets come in parts", many),
];

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let trial = |&(name, test): &(&str, Test)| {
        network.trial(format!("watched::{name}"), move || test(images))
    };
    TESTS.iter().map(trial).collect()
}

/// `echo` under the monitor, by name.
fn echo(images: &Images, runtime: &Runtime) -> Result<Served, Failed> {
    let command = runtime.outboard(images, &["run", &format!("--name={NAME}")]);
    serve_by(command, &PLAIN, &images.echo, &[])
}

/// A connection that has been answered.
fn talk(served: &Served) -> Result<TcpStream, Failed> {
    let mut stream = served.segment.run(|| TcpStream::connect((SERVICE, 7)))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"hello")?;
    stream.read_exact(&mut [0; 5])?;
    Ok(stream)
}

fn number(value: &Value, path: &str) -> Result<u64, Failed> {
    let number = value.pointer(path).and_then(Value::as_u64);
    number.ok_or_else(|| format!("no {path} in {value}").into())
}

fn numbers(images: &Images) -> Result<(), Failed> {
    let runtime = Runtime::new()?;
    let served = echo(images, &runtime)?;
    let streams = [talk(&served)?, talk(&served)?];
    let socket = served.segment.run(|| UdpSocket::bind("10.0.0.1:0"))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.send_to(b"hello", (SERVICE, 7))?;
    socket.recv(&mut [0; 5])?;
    // Nobody listens there.
    let _ = served.segment.run(|| TcpStream::connect((SERVICE, 8)));
    let expected = [
        ("/net/totals/tcp_connections_accepted", 2),
        ("/net/totals/tcp_resets_sent", 1),
        ("/net/totals/udp_datagrams_received", 1),
        ("/net/totals/udp_datagrams_sent", 1),
        ("/net/drops/tcp_no_connection", 1),
        ("/net/drops/tcp_checksum", 0),
        ("/net/connections/established", 2),
        ("/net/connections/closed", 0),
    ];
    let shown = || {
        let stats = runtime.json(images, &["stats", NAME, "--json"])?;
        for (path, expected) in expected {
            let found = number(&stats, path)?;
            if found != expected {
                return Err(format!("{path} is {found}, not {expected}").into());
            }
        }
        match number(&stats, "/net/totals/tcp_segments_received")? {
            0..8 => Err("too few segments".into()),
            _ => Ok(()),
        }
    };
    // Numbers are told now and then.
    eventually(PATIENCE, shown)?;
    drop(streams);
    let table = || {
        let table = runtime.says(images, &["stats", NAME])?;
        let gone = !table.contains("established");
        gone.then_some(()).ok_or_else(|| Failed::from(table))
    };
    eventually(PATIENCE, table)?;
    served.goes_on()
}

fn sockets(images: &Images) -> Result<(), Failed> {
    let runtime = Runtime::new()?;
    let served = echo(images, &runtime)?;
    let mut stream = talk(&served)?;
    let peer = stream.local_addr()?.to_string();
    let list = runtime.json(images, &["sockets", NAME, "--json"])?;
    let sockets = list["sockets"].as_array().ok_or("no sockets")?;
    let find = |kind: &str| {
        let mut found = sockets.iter().filter(|socket| socket["kind"] == kind);
        found
            .next()
            .ok_or_else(|| Failed::from(format!("no {kind} in {list}")))
    };
    let listener = find("listener")?;
    let datagrams = find("datagrams")?;
    let connection = find("connection")?;
    let good = listener["local"] == "*:7"
        && listener["remote"].is_null()
        && number(listener, "/send_queue")? > 0
        && datagrams["local"] == "*:7"
        && connection["local"] == "10.0.0.2:7"
        && connection["remote"] == peer.as_str()
        && connection["state"] == "established"
        && number(connection, "/congestion_window")? > 0
        && number(connection, "/segment")? > 500
        && number(connection, "/round_trip")? > 0;
    good.then_some(()).ok_or_else(|| format!("{list:#}"))?;
    let table = runtime.says(images, &["sockets", NAME])?;
    let line = table.lines().find(|line| line.contains(&peer));
    let line = line.ok_or_else(|| table.clone())?;
    if !line.starts_with("tcp    established") {
        return Err(table.into());
    }
    // It goes on meanwhile.
    stream.write_all(b"hello")?;
    stream.read_exact(&mut [0; 5])?;
    served.goes_on()
}

/// More than one answer holds.
const MANY: usize = 400;

fn many(images: &Images) -> Result<(), Failed> {
    let runtime = Runtime::new()?;
    let served = echo(images, &runtime)?;
    let streams: Result<Vec<_>, _> = (0..MANY).map(|_| talk(&served)).collect();
    let list = runtime.json(images, &["sockets", NAME, "--json"])?;
    let sockets = list["sockets"].as_array().ok_or("no sockets")?;
    let peers: std::collections::BTreeSet<_> = sockets
        .iter()
        .filter_map(|socket| socket["remote"].as_str())
        .collect();
    let expected: Result<Vec<_>, _> = streams?.iter().map(TcpStream::local_addr).collect();
    for peer in expected? {
        if !peers.contains(peer.to_string().as_str()) {
            return Err(format!("{peer} is not among {} sockets", sockets.len()).into());
        }
    }
    match sockets.len() {
        count if count == MANY + 2 => served.goes_on(),
        count => Err(format!("{count} sockets").into()),
    }
}
