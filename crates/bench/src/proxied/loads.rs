//! What is asked of each program, by a stock client. Each load is run for nothing before it counts.

use super::{
    BULK, BULK_CPU, CONNECTED, CPU, FAILED, GET, GET_16, INWARD, INWARD_CPU, OUTWARD, OUTWARD_CPU,
    P99, REDIS_16_CPU, REDIS_CPU, REQUESTS, SET, SET_16,
};
use crate::http::{self, CLOSE, FILE, LARGE, LARGE_BYTES, Reached, SCRIPT, reached, spread_ports};
use crate::samples::Measure;
use crate::served::{SERVER, Served};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;
use std::{io, thread};
use testbed::meter;
use testbed::traffic::{Window, iperf3, redis};

/// Where redis and iperf3 listen.
const REDIS_PORT: u16 = 6379;
const IPERF3_PORT: u16 = 5201;
/// About as many questions does redis answer in a second, one by one and 16 at once: a run takes as
/// long as others do.
const QUESTIONS: [(u64, u32); 2] = [(50_000, 1), (500_000, 16)];
/// How long redis may take to answer, in looks.
const ANSWERS: (u32, Duration) = (100, Duration::from_millis(50));
/// Behind each client, iperf3 listens anew, even if that asked for nothing.
pub const LISTENS_ANEW: Duration = Duration::from_millis(500);

/// A program, and what is measured of it.
pub struct Load {
    /// The program and its arguments.
    pub words: Vec<OsString>,
    /// Where it listens.
    pub port: u16,
    /// What is measured first.
    pub first: Measure,
    /// Takes all measurements.
    pub take: Take,
}

type Take = fn(&Served, &Path, Window, &mut dyn FnMut(Measure, f64)) -> io::Result<()>;

impl Load {
    /// What the program is called.
    pub fn name(&self) -> String {
        self.words[0].to_string_lossy().into_owned()
    }
}

/// All loads. Files of the programs are in this folder.
pub fn all(folder: &Path) -> [Load; 3] {
    let words = |words: &[&str]| words.iter().map(OsString::from).collect();
    [
        Load {
            words: http::words(folder).into(),
            port: http::PORT,
            first: REQUESTS,
            take: web,
        },
        Load {
            words: words(&["redis-server", "--save", "", "--protected-mode", "no"]),
            port: REDIS_PORT,
            first: GET,
            take: questions,
        },
        Load {
            words: words(&["iperf3", "--server"]),
            port: IPERF3_PORT,
            first: INWARD,
            take: bytes,
        },
    ]
}

/// Files of nginx, with wrk.
fn web(
    served: &Served,
    folder: &Path,
    window: Window,
    add: &mut dyn FnMut(Measure, f64),
) -> io::Result<()> {
    served.listens(http::PORT)?;
    spread_ports(&served.client)?;
    let script = folder.join(SCRIPT);
    let run = |file, header| reached(&served.client, &script, file, header, window);
    let kept = run(FILE, None)?;
    let large = run(LARGE, None)?;
    let measures = [REQUESTS, P99, CPU, BULK, BULK_CPU].into_iter();
    let values = kept.requests().into_iter().chain(large.bytes(LARGE_BYTES));
    measures
        .zip(values)
        .for_each(|(measure, value)| add(measure, value));
    let Reached { load: closed, .. } = run(FILE, Some(CLOSE))?;
    add(CONNECTED, closed.requests_per_second());
    let failed = kept.load.failed + large.load.failed + closed.failed;
    add(FAILED, failed as f64);
    Ok(())
}

/// Questions of redis-benchmark.
fn questions(
    served: &Served,
    _: &Path,
    window: Window,
    add: &mut dyn FnMut(Measure, f64),
) -> io::Result<()> {
    served.listens(REDIS_PORT)?;
    answers(served)?;
    let measures = [[GET, SET, REDIS_CPU], [GET_16, SET_16, REDIS_16_CPU]];
    for ((rate, pipelined), measures) in QUESTIONS.into_iter().zip(measures) {
        let ask = |time: Duration| {
            // GET and SET take half of the time each.
            let count = (rate as f64 * time.as_secs_f64() / 2.0) as u64;
            let (output, cpu) = run(served, redis::client(SERVER.into(), count, pipelined))?;
            let rates = redis::requests_per_second(&output.stdout).map_err(io::Error::other)?;
            let million = 2.0 * count as f64 / 1e6;
            Ok::<_, io::Error>([rates[0], rates[1], cpu.as_secs_f64() / million])
        };
        ask(window.warm_up)?;
        let values = ask(window.measured)?;
        measures
            .into_iter()
            .zip(values)
            .for_each(|(measure, value)| add(measure, value));
    }
    Ok(())
}

/// Waits until redis answers: slirp4netns takes connections before that.
fn answers(served: &Served) -> io::Result<()> {
    let ask = || {
        let mut connection = served
            .client
            .run(|| TcpStream::connect((SERVER, REDIS_PORT)))?;
        connection.write_all(b"PING\r\n")?;
        connection.read_exact(&mut [0; b"+PONG\r\n".len()])
    };
    for _ in 0..ANSWERS.0 {
        if ask().is_ok() {
            return Ok(());
        }
        thread::sleep(ANSWERS.1);
    }
    ask()
}

/// Bytes of iperf3, in both directions.
fn bytes(
    served: &Served,
    _: &Path,
    window: Window,
    add: &mut dyn FnMut(Measure, f64),
) -> io::Result<()> {
    served.listens(IPERF3_PORT)?;
    let ways: [(&[&str], _); 2] = [
        (&[], [INWARD, INWARD_CPU]),
        (&["--reverse"], [OUTWARD, OUTWARD_CPU]),
    ];
    for (words, [rate, cpu]) in ways {
        thread::sleep(LISTENS_ANEW);
        let mut client = iperf3::client(SERVER.into(), window);
        client.args(words);
        let (output, used) = run(served, client)?;
        let gigabits = iperf3::gigabits_per_second(&output.stdout).map_err(io::Error::other)?;
        add(rate, gigabits);
        // What comes before the seconds that count takes CPU time as well.
        let seconds = (window.warm_up + window.measured).as_secs_f64();
        add(cpu, used.as_secs_f64() / (gigabits / 8.0 * seconds));
    }
    Ok(())
}

/// What a client printed, and CPU time of the machine meanwhile.
fn run(served: &Served, mut client: Command) -> io::Result<(Output, Duration)> {
    let before = meter::machine()?;
    let output = served.client.run(|| client.output())?;
    Ok((output, meter::machine()? - before))
}
