//! One contender's turn between two fresh segments: what is measured of it.

use std::net::UdpSocket;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use std::{fmt, io, thread};

use rustix::net::sockopt;

use crate::measures;
use crate::placement::Apart;
use crate::samples::{Measure, Samples};
use testbed::contender::{self, Standing};
use testbed::meter;
use testbed::topology::{INTERFACE, Side, connect};
use testbed::traffic::{Window, paced, ping, tcp, udp};

/// The TCP port that the firewall lets through.
const TCP_PORT: u16 = 7070;
const UDP_PORT: u16 = 7071;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Frames a second that every contender can carry on half a core.
const MODEST_RATE: u64 = 100_000;
/// Datagrams that fill the receiving socket, which nobody reads: a third busy thread would take
/// CPU time from generator or contender on a machine of two cores. What arrived is counted at the
/// interface.
const SINK_BYTES: usize = 2048;
/// Payload of a paced datagram: its frame has 64 bytes.
const DATAGRAM_BYTES: usize = 64 - paced::OVERHEAD_BYTES;
/// How long a flood runs before one that counts.
pub const FLOOD_WARM_UP: Duration = Duration::from_millis(200);

/// Why a run was given up.
#[derive(Debug)]
pub enum Error {
    /// A contender could not be put in place.
    Contender(&'static str, contender::Error),
    /// A measurement failed.
    Measure(&'static str, Measure, io::Error),
    /// A file could not be read or written.
    File(PathBuf, io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Contender(contender, error) => write!(f, "{contender}: {error}"),
            Self::Measure(contender, measure, error) => {
                write!(f, "{contender}: cannot measure {:?}: {error}", measure.name)
            }
            Self::File(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for Error {}

/// One contender's turn.
pub struct Turn {
    /// Whose.
    pub contender: &'static str,
    /// Which, from 0.
    pub round: usize,
    /// What stands between the segments.
    pub standing: Standing,
}

impl Turn {
    /// Round trips of ICMP and UDP, `round_trips` of each.
    ///
    /// # Errors
    /// A socket failed.
    pub fn latency(&self, round_trips: u16, samples: &mut Samples) -> Result<(), Error> {
        let [median, p99] = [measures::PING_MEDIAN, measures::PING_P99];
        let ping = self.icmp(round_trips).map_err(self.failed(median))?;
        self.add(samples, median, ping.median_us);
        self.add(samples, p99, ping.p99_us);
        let [median, p99] = [measures::ECHO_MEDIAN, measures::ECHO_P99];
        let echo = self.echo(round_trips).map_err(self.failed(median))?;
        self.add(samples, median, echo.median_us);
        self.add(samples, p99, echo.p99_us);
        self.add(samples, measures::LOST, (ping.lost + echo.lost) as f64);
        Ok(())
    }

    fn icmp(&self, round_trips: u16) -> io::Result<ping::Latency> {
        let pair = &self.standing.pair;
        let socket = pair.a.segment.run(|| ping::Icmp::new(pair.b.at(0)))?;
        socket.ping(round_trips)
    }

    fn echo(&self, round_trips: u16) -> io::Result<ping::Latency> {
        let (client, server) = self.udp_sockets()?;
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let echo = scope.spawn(|| ping::echo(&server, &over));
            let latency = ping::udp(&client, round_trips);
            over.store(true, Relaxed);
            echo.join().expect("echo does not panic")?;
            latency
        })
    }

    /// Bulk TCP, one way after the other.
    ///
    /// # Errors
    /// There was no connection, or it broke.
    pub fn transfers(&self, window: Window, samples: &mut Samples) -> Result<(), Error> {
        let (a, b) = (&self.standing.pair.a, &self.standing.pair.b);
        let out = [measures::TCP_OUT, measures::TCP_OUT_CPU];
        self.bulk(a, b, window, out, samples)?;
        let back = [measures::TCP_IN, measures::TCP_IN_CPU];
        self.bulk(b, a, window, back, samples)
    }

    fn bulk(
        &self,
        from: &Side,
        to: &Side,
        window: Window,
        [rate, cpu]: [Measure; 2],
        samples: &mut Samples,
    ) -> Result<(), Error> {
        let bulk = connect(from, to, TCP_PORT, CONNECT_TIMEOUT)
            .and_then(|(client, server)| {
                let clock = || self.standing.cpu_time();
                tcp::bulk(&client, &server, window, &clock)
            })
            .map_err(self.failed(rate))?;
        self.add(samples, rate, bulk.gigabits_per_second());
        self.add_cpu(samples, cpu, bulk.cpu_seconds_per_gigabyte());
        Ok(())
    }

    /// 64-byte datagrams, as many as go.
    ///
    /// # Errors
    /// A socket failed.
    pub fn flood(&self, length: Duration, samples: &mut Samples) -> Result<(), Error> {
        let most = self
            .flood_at(None, length)
            .map_err(self.failed(measures::UDP))?;
        self.add(samples, measures::UDP, most.forwarded_per_second() / 1000.0);
        self.add(
            samples,
            measures::UDP_OFFERED,
            most.offered_per_second() / 1000.0,
        );
        self.add_cpu(samples, measures::UDP_CPU, most.cpu_nanoseconds_per_frame());
        self.add_cpu(samples, measures::UDP_BUSY, most.busy_percent());
        Ok(())
    }

    /// 64-byte datagrams, as many as every contender can carry.
    ///
    /// # Errors
    /// A socket failed.
    pub fn modest_flood(&self, length: Duration, samples: &mut Samples) -> Result<(), Error> {
        let modest = self
            .flood_at(Some(MODEST_RATE), length)
            .map_err(self.failed(measures::UDP_MODEST_CPU))?;
        let lost = modest.offered.saturating_sub(modest.forwarded) as f64;
        let lost_percent = 100.0 * lost / modest.offered as f64;
        self.add(samples, measures::UDP_MODEST_LOST, lost_percent);
        let cpu = modest.cpu_nanoseconds_per_frame();
        self.add_cpu(samples, measures::UDP_MODEST_CPU, cpu);
        Ok(())
    }

    /// Frames a second that arrive when the generator sends all it can.
    ///
    /// # Errors
    /// A socket failed.
    pub fn limit(&self, length: Duration) -> Result<f64, Error> {
        let most = self.flood_at(None, length);
        let most = most.map_err(self.failed(measures::UDP))?;
        Ok(most.forwarded_per_second())
    }

    /// Round trips of `count` datagrams, so many a second: in nanoseconds, and how many are lost.
    ///
    /// # Errors
    /// A socket failed.
    pub fn paced(&self, rate: u64, count: u64) -> io::Result<paced::Answered> {
        let (client, server) = self.udp_sockets()?;
        let load = paced::Load {
            rate,
            count,
            bytes: DATAGRAM_BYTES,
        };
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let echo = scope.spawn(|| ping::echo(&server, &over));
            let answered = paced::offer(&client, &load);
            over.store(true, Relaxed);
            echo.join().expect("echo does not panic")?;
            answered
        })
    }

    fn flood_at(&self, rate: Option<u64>, length: Duration) -> io::Result<udp::Flood> {
        let (sender, sink) = self.udp_sockets()?;
        sockopt::set_socket_recv_buffer_size(&sink, SINK_BYTES)?;
        let _apart = Apart::new(self.standing.processes())?;
        let far = &self.standing.pair.b.segment;
        let arrived = || meter::frames_received(far, INTERFACE);
        let clock = || self.standing.cpu_time();
        udp::flood(&sender, rate, FLOOD_WARM_UP, &arrived, &clock)?;
        udp::flood(&sender, rate, length, &arrived, &clock)
    }

    /// A socket in the private segment, connected to one in the public segment.
    fn udp_sockets(&self) -> io::Result<(UdpSocket, UdpSocket)> {
        let (a, b) = (&self.standing.pair.a, &self.standing.pair.b);
        let server = b.segment.run(|| UdpSocket::bind(b.at(UDP_PORT)))?;
        let client = a.segment.run(|| UdpSocket::bind(a.at(0)))?;
        client.connect(b.at(UDP_PORT))?;
        Ok((client, server))
    }

    /// Adds a measurement of this turn.
    pub fn add(&self, samples: &mut Samples, measure: Measure, value: f64) {
        samples.add(measure, self.contender, self.round, value);
    }

    /// The kernel's bridge works in the generator's time, which cannot be told apart.
    fn add_cpu(&self, samples: &mut Samples, measure: Measure, value: f64) {
        if self.standing.process().is_some() {
            self.add(samples, measure, value);
        }
    }

    /// What an error of a measurement means.
    pub fn failed(&self, measure: Measure) -> impl Fn(io::Error) -> Error {
        let name = self.contender;
        move |error| Error::Measure(name, measure, error)
    }
}
