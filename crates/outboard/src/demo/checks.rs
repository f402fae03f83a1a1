//! What must pass the firewall and what must not, tried with real traffic.

use super::error::Error;
use super::observed::{Counters, Decider, deciders};
use serde::Serialize;
use std::io::{self, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;
use testbed::topology::{Pair, Side, connect};
use testbed::traffic::ping::Icmp;

/// How long anything may take before it counts as dropped; before TCP tries again.
const PATIENCE: Duration = Duration::from_millis(800);
/// What is still on its way when an attempt is over, such as the end of a connection, gets this
/// long to be counted to it.
const SETTLE: Duration = Duration::from_millis(20);
/// What is sent, and must come back.
const MESSAGE: &[u8] = b"outboard";
const PINGS: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Traffic {
    Ping,
    Tcp(u16),
    Udp(u16),
}

/// What the firewall is to do with each kind of traffic under its default rules.
const PLAN: [(Traffic, Expected); 4] = [
    (Traffic::Ping, Expected::Passes),
    (Traffic::Tcp(7070), Expected::Passes),
    (Traffic::Udp(8080), Expected::Passes),
    (Traffic::Tcp(1234), Expected::Dropped),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Expected {
    Passes,
    Dropped,
}

/// What came of an attempt.
#[derive(Debug, Serialize)]
pub struct Check {
    /// What was tried, and which way.
    pub tried: String,
    expected: Expected,
    passed: bool,
    /// What was seen, in words.
    pub seen: String,
    /// Who decided, by the firewall's own counters; all frames of the attempt, both ways.
    pub decided: Vec<Decider>,
    /// Whether it went as expected, and a rule of the firewall made it so.
    pub held: bool,
}

impl Check {
    /// What was expected, in a word.
    pub fn expected(&self) -> &'static str {
        match self.expected {
            Expected::Passes => "passes",
            Expected::Dropped => "dropped",
        }
    }
}

/// Tries all of it, both ways.
///
/// # Errors
/// A socket cannot be made, or the counters cannot be read.
pub fn run(pair: &Pair, counters: &mut Counters) -> Result<Vec<Check>, Error> {
    let mut checks = Vec::new();
    for (traffic, expected) in PLAN {
        for (from, to) in [(&pair.a, &pair.b), (&pair.b, &pair.a)] {
            let before = counters.read()?;
            let seen = attempt(traffic, from, to);
            thread::sleep(SETTLE);
            let decided = deciders(&before, &counters.read()?);
            let passed = seen.is_ok();
            checks.push(Check {
                tried: format!("{}, {} to {}", traffic.name(), from.name, to.name),
                expected,
                passed,
                seen: seen.unwrap_or_else(|e| e),
                held: passed == (expected == Expected::Passes) && !decided.is_empty(),
                decided,
            });
        }
    }
    Ok(checks)
}

impl Traffic {
    fn name(self) -> String {
        match self {
            Self::Ping => "ping".into(),
            Self::Tcp(port) => format!("TCP {port}"),
            Self::Udp(port) => format!("UDP {port}"),
        }
    }
}

/// Whether it passed, in words.
fn attempt(traffic: Traffic, from: &Side, to: &Side) -> Result<String, String> {
    let result = match traffic {
        Traffic::Ping => ping(from, to),
        Traffic::Tcp(port) => tcp(from, to, port),
        Traffic::Udp(port) => udp(from, to, port),
    };
    result.map_err(|e| match e.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            format!("nothing in {} ms", PATIENCE.as_millis())
        }
        _ => e.to_string(),
    })
}

fn ping(from: &Side, to: &Side) -> io::Result<String> {
    let socket = from.segment.run(|| Icmp::new(to.at(0)))?;
    for _ in 0..PINGS {
        if !socket.reaches(PATIENCE)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    Ok(format!("{PINGS} of {PINGS} replies"))
}

fn tcp(from: &Side, to: &Side, port: u16) -> io::Result<String> {
    let (client, server) = connect(from, to, port, PATIENCE)?;
    exchange(&client, &server)?;
    exchange(&server, &client)?;
    Ok("connected, data both ways".into())
}

/// Sends the message from one end to the other.
fn exchange(mut from: &TcpStream, mut to: &TcpStream) -> io::Result<()> {
    to.set_read_timeout(Some(PATIENCE))?;
    from.write_all(MESSAGE)?;
    let mut received = [0; MESSAGE.len()];
    to.read_exact(&mut received)?;
    same(&received)
}

fn udp(from: &Side, to: &Side, port: u16) -> io::Result<String> {
    let server = to.segment.run(|| UdpSocket::bind(to.at(port)))?;
    let client = from.segment.run(|| UdpSocket::bind(from.at(0)))?;
    server.set_read_timeout(Some(PATIENCE))?;
    client.set_read_timeout(Some(PATIENCE))?;
    client.connect(to.at(port))?;
    client.send(MESSAGE)?;
    let mut received = [0; 2 * MESSAGE.len()];
    let (bytes, source) = server.recv_from(&mut received)?;
    same(&received[..bytes])?;
    server.send_to(MESSAGE, source)?;
    let bytes = client.recv(&mut received)?;
    same(&received[..bytes])?;
    Ok("datagram and answer".into())
}

fn same(received: &[u8]) -> io::Result<()> {
    if received == MESSAGE {
        Ok(())
    } else {
        Err(io::Error::other("other bytes came out"))
    }
}
