//! Load on both clients, while rules are loaded and the router is killed.

use super::super::error::Error;
use super::checks::{self, Check};
use super::home::{FORWARDED, Home, ROUTER, SERVER4, SERVER6};
use super::stock::{self, Arrived, Iperf3};
use serde::Serialize;
use std::fs;
use std::net::IpAddr;
use std::process::{Child, Stdio};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};
use testbed::segment::Segment;

/// Ports of the servers of iperf3, one for each client.
const PORTS: [u16; 2] = [5201, 5202];
/// From the beginning to the new rules, from them to the first kill, and from one kill to the next:
/// whoever is killed sooner is slowed.
const PAUSE: Duration = Duration::from_secs(3);
/// Connections that are open all the time: two of each iperf3, and one of each curl.
const CONNECTIONS: usize = 6;
/// How long a server of iperf3 may take to listen.
const LISTENS: Duration = Duration::from_millis(300);

/// What was done under load, and what it cost.
#[derive(Clone, Debug, Serialize)]
pub struct Event {
    pub what: &'static str,
    /// Seconds since the load began.
    pub at: f64,
    /// The longest time until the next event in which nothing arrived, of each client.
    pub silence_milliseconds: [f64; 2],
}

/// What iperf3 has carried for a client.
#[derive(Clone, Debug, Serialize)]
pub struct Carried {
    pub gigabits_per_second: f64,
    /// Why the connection was lost, if it was.
    pub lost: Option<String>,
}

/// What was seen.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Load {
    pub events: Vec<Event>,
    pub iperf3: Vec<Carried>,
    #[serde(skip)]
    checks: Vec<Check>,
}

impl Load {
    /// What is to be reported of it.
    pub fn checks(&self) -> impl Iterator<Item = Check> + use<> {
        self.checks.clone().into_iter()
    }
}

/// How long it takes.
pub fn lasts(kills: u32) -> Duration {
    PAUSE * (kills + 2)
}

/// Loads rules and kills the router under load.
///
/// # Errors
/// What cannot be tried.
pub fn run(home: &mut Home, kills: u32) -> Result<Load, Error> {
    let _servers = PORTS.map(stock::iperf3_server);
    sleep(LISTENS);
    let time = lasts(kills);
    let traffic = Traffic::start(home, time)?;
    let begin = Instant::now();
    let mut events = vec![("start", Duration::ZERO)];
    sleep(PAUSE);
    let mut checks = reload(home, begin, &mut events)?;
    for run in 1..=u64::from(kills) {
        sleep((PAUSE * (run as u32 + 1)).saturating_sub(begin.elapsed()));
        events.push(("kill", begin.elapsed()));
        home.system.kill(ROUTER)?;
        home.system.wait_for(ROUTER, run + 1)?;
    }
    let (said, fetched) = traffic.end(home)?;
    checks.push(went_on(home, kills)?);
    checks.extend(fetched);
    let arrived: Vec<_> = said.iter().map(|said| Iperf3::read(said)).collect();
    let iperf3: Vec<_> = arrived.iter().map(carried).collect();
    for (carried, version) in iperf3.iter().zip(["IPv4", "IPv6"]) {
        let seen = match &carried.lost {
            None => format!("{:.2} Gb/s", carried.gigabits_per_second),
            Some(why) => format!("lost: {why}"),
        };
        checks.push(Check::new(
            &format!("all the time: bulk by {version}"),
            "iperf3",
            seen,
            carried.lost.is_none() && carried.gigabits_per_second > 0.0,
        ));
    }
    let end = [("", time)];
    let ends = events.iter().skip(1).chain(&end).map(|event| event.1);
    let silent = |of: &Result<Vec<Arrived>, String>, from: Duration, to: Duration| {
        of.as_ref().map_or(f64::NAN, |all| {
            silence(all, from.as_secs_f64(), to.as_secs_f64()) * 1000.0
        })
    };
    let each = events.iter().zip(ends).map(|(&(what, at), to)| Event {
        what,
        at: at.as_secs_f64(),
        silence_milliseconds: [0, 1].map(|n| silent(&arrived[n], at, to)),
    });
    Ok(Load {
        events: each.collect(),
        iperf3,
        checks,
    })
}

/// Loads rules that lead connections to a client, and tries them.
fn reload(
    home: &Home,
    begin: Instant,
    events: &mut Vec<(&'static str, Duration)>,
) -> Result<Vec<Check>, Error> {
    let client = &home.clients[0];
    let inside = checks::address4(client).map_or(IpAddr::from(SERVER4), IpAddr::from);
    let _server = client.run(|| stock::httpd(&home.file("site")))?;
    events.push(("new rules", begin.elapsed()));
    home.reload(inside)?;
    let public = checks::public(home).map_or(IpAddr::from(SERVER4), IpAddr::from);
    let seen = stock::who(public, FORWARDED);
    let held = matches!(&seen, Ok(from) if *from == IpAddr::from(SERVER4));
    Ok(vec![Check::new(
        "new rules lead outsiders to a server on a",
        "curl",
        match seen {
            Ok(from) => format!("it comes from {from}"),
            Err(error) => error.to_string(),
        },
        held,
    )])
}

/// Whether the last instance has gone on with the connections of the one before.
fn went_on(home: &Home, kills: u32) -> Result<Check, Error> {
    let said = stock::finished(&mut home.system.outboard(&["logs", ROUTER])?)?;
    let count = said.lines().rev().find_map(count).unwrap_or(0);
    Ok(Check::new(
        &format!("the router is killed, {kills} in all"),
        "outboard up",
        format!("{count} connections go on"),
        count >= CONNECTIONS,
    ))
}

/// How many connections a line says that an instance goes on with.
fn count(line: &str) -> Option<usize> {
    let (_, rest) = line.split_once("connections: ")?;
    rest.strip_suffix(" go on")?.parse().ok()
}

/// Clients at work: iperf3, one by each version of IP, and curl by both.
struct Traffic {
    iperf3: Vec<Child>,
    curl: Vec<Child>,
}

impl Traffic {
    fn start(home: &Home, time: Duration) -> Result<Self, Error> {
        let servers = [IpAddr::from(SERVER4), IpAddr::from(SERVER6)];
        let (mut iperf3, mut curl) = (Vec::new(), Vec::new());
        for (number, (client, server)) in home.clients.iter().zip(servers).enumerate() {
            let mut command = stock::iperf3(server, PORTS[number], time);
            iperf3.push(spawn(client, &mut command)?);
            let mut command = stock::fetch(server, &home.file(FETCHED[number]));
            curl.push(spawn(client, &mut command)?);
        }
        Ok(Self { iperf3, curl })
    }

    /// What iperf3 has said, and whether the files are whole.
    fn end(self, home: &Home) -> Result<(Vec<String>, Vec<Check>), Error> {
        let output = |child: Child| {
            let output = child.wait_with_output();
            output.map_err(|e| Error::Io("cannot wait for a program", e))
        };
        let said = scope(|threads| {
            // Each reads on while the others write.
            let all: Vec<_> = self
                .iperf3
                .into_iter()
                .map(|one| threads.spawn(|| output(one)))
                .collect();
            let ended = all.into_iter().map(|one| match one.join() {
                Ok(ended) => Ok(String::from_utf8_lossy(&ended?.stdout).into_owned()),
                Err(_) => Ok(String::new()),
            });
            ended.collect::<Result<Vec<_>, Error>>()
        })?;
        let file = stock::file();
        let mut checks = Vec::new();
        for ((child, name), version) in self.curl.into_iter().zip(FETCHED).zip(["IPv4", "IPv6"]) {
            let ended = output(child)?;
            let fetched = fs::read(home.file(name)).unwrap_or_default();
            let held = ended.status.success() && fetched == file;
            let error = String::from_utf8_lossy(&ended.stderr);
            checks.push(Check::new(
                &format!("all the time: a file by {version}"),
                "curl",
                match held {
                    true => format!("{} MB, each byte right", file.len() / 1_000_000),
                    false => format!("{} bytes; {}", fetched.len(), error.trim()),
                },
                held,
            ));
        }
        Ok((said, checks))
    }
}

/// Where the clients put the file.
const FETCHED: [&str; 2] = ["fetched4", "fetched6"];

fn spawn(client: &Segment, command: &mut std::process::Command) -> Result<Child, Error> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let spawned = client.run(|| command.spawn());
    spawned.map_err(|error| Error::Spawn(command.get_program().into(), error))
}

fn carried(arrived: &Result<Vec<Arrived>, String>) -> Carried {
    let (all, lost) = match arrived {
        Ok(all) => (&all[..], None),
        Err(why) => (&[][..], Some(why.clone())),
    };
    let bytes: u64 = all.iter().map(|one| one.bytes).sum();
    let seconds = all.last().map_or(0.0, |last| last.to);
    Carried {
        gigabits_per_second: match seconds > 0.0 {
            true => bytes as f64 * 8.0 / seconds / 1e9,
            false => 0.0,
        },
        lost,
    }
}

/// The longest time, from one moment to another, in which nothing has arrived, in seconds: as long
/// as what was measured in one go, at least.
fn silence(arrived: &[Arrived], from: f64, to: f64) -> f64 {
    let (mut longest, mut silent) = (0.0_f64, 0.0);
    for one in arrived.iter().filter(|one| one.to > from && one.from < to) {
        match one.bytes {
            0 => silent += one.to - one.from,
            _ => silent = 0.0,
        }
        longest = longest.max(silent);
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrived(bytes: &[u64]) -> Vec<Arrived> {
        let each = bytes.iter().enumerate();
        let each = each.map(|(n, &bytes)| Arrived {
            from: n as f64,
            to: n as f64 + 1.0,
            bytes,
        });
        each.collect()
    }

    #[test]
    fn silence_is_what_nothing_arrives_in() {
        let all = arrived(&[1, 0, 0, 5, 0, 1]);
        assert_eq!(silence(&all, 0.0, 6.0), 2.0);
        assert_eq!(silence(&all, 3.5, 6.0), 1.0);
        assert_eq!(silence(&all, 5.0, 6.0), 0.0);
        assert_eq!(silence(&[], 0.0, 6.0), 0.0);
    }

    #[test]
    fn what_goes_on_is_counted() {
        assert_eq!(count("router: connections: 13 go on"), Some(13));
        for line in ["router: connections: none goes on: x", "13 go on", ""] {
            assert_eq!(count(line), None);
        }
    }

    #[test]
    fn what_was_carried_is_by_time() {
        let carried4 = carried(&Ok(arrived(&[125_000_000, 0])));
        assert_eq!((carried4.gigabits_per_second, carried4.lost), (0.5, None));
        let lost = carried(&Err("reset".into()));
        assert_eq!(
            (lost.gigabits_per_second, lost.lost),
            (0.0, Some("reset".into()))
        );
    }
}
