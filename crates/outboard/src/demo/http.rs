//! `outboard demo http`: a web server that is an image, asked by the host.

use super::build::built;
use super::error::Error;
use super::shown;
use rustix::io::FdFlags;
use serde::Serialize;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};
use testbed::contender::Process;
use testbed::segment::{Address, Segment};
use testbed::{privilege, table};

/// The appliance's folder in the repository, and what it becomes.
const APPLIANCE: &str = "unikernels/http";
const IMAGE: &str = "http.spt";
/// The host's end of the tap, and the image's address behind it.
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PORT: u16 = 80;
/// Guest memory in MiB.
const MEMORY: &str = "--mem=64";
/// How long the image may take to answer at all, and how often it is asked.
const STARTS: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(2);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of an answer that are read at most.
const ANSWER_MAX: u64 = 4 << 20;
/// How long requests are counted, and over how many connections.
const MEASURED: Duration = Duration::from_secs(1);
const CONNECTIONS: usize = 8;
/// Of the file that is asked for again and again.
const COUNTED: &str = "/1k";

/// What is asked: method, path, one more line, and the status that is expected.
const PLAN: [(&str, &str, &str, u16); 5] = [
    ("GET", "/", "", 200),
    ("HEAD", "/100k", "", 200),
    ("GET", "/1k", "Range: bytes=0-99", 206),
    ("GET", "/nothing", "", 404),
    ("DELETE", "/", "", 405),
];

/// `outboard demo http`.
#[derive(clap::Args)]
pub struct Options {
    /// The image of unikernels/http, instead of building it
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// A request and its answer.
#[derive(Debug, Serialize)]
struct Check {
    asked: String,
    expected: u16,
    /// Status, or why there is none.
    answered: String,
    bytes: usize,
    held: bool,
}

/// What there is to report.
#[derive(Debug, Serialize)]
struct Report {
    checks: Vec<Check>,
    image_bytes: u64,
    start_milliseconds: f64,
    requests_per_second: f64,
    held: bool,
}

/// Shows it; succeeds if each answer is the expected one.
///
/// # Errors
/// What kept it from being shown.
pub fn run(options: &Options) -> Result<ExitCode, Error> {
    let image = match &options.image {
        Some(path) => path.clone(),
        None => built(APPLIANCE, None, IMAGE)?,
    };
    let read = |error: io::Error| Error::Image(APPLIANCE, image.clone(), error.to_string());
    let image_bytes = fs::metadata(&image).map_err(read)?.len();
    privilege::acquire().map_err(Error::Privilege)?;
    eprintln!("A network of its own, 10.0.0.0/24: this host is .1, the image on spt is .2.");
    let client = Segment::new().map_err(|error| Error::Contender(error.into()))?;
    let begin = Instant::now();
    let _image = start(&client, &image, &[])?;
    let started = client.run(|| await_answer(begin))?;
    let checks: Vec<_> = PLAN.iter().map(|plan| check(&client, plan)).collect();
    let requests_per_second = client.run(count);
    let held = checks.iter().all(|check| check.held) && requests_per_second > 0.0;
    let report = Report {
        checks,
        image_bytes,
        start_milliseconds: started.as_secs_f64() * 1000.0,
        requests_per_second,
        held,
    };
    let text = || text(&report);
    Ok(shown(options.json, &report, text, held))
}

/// The image behind a tap of `client`, with these options of the tender beside.
///
/// # Errors
/// It cannot be started.
pub fn start(client: &Segment, image: &Path, options: &[&str]) -> Result<Process, Error> {
    let this = env::current_exe().map_err(|e| Error::Io("cannot find this program's file", e))?;
    let address = Address {
        ip: CLIENT,
        prefix: 24,
        mtu: 1500,
    };
    let tap = client.tap("tap0", true, address);
    let tap = tap.map_err(|error| Error::Contender(error.into()))?;
    let inherited = rustix::io::fcntl_setfd(&tap, FdFlags::empty());
    inherited.map_err(|e| Error::Io("cannot pass a tap on", e.into()))?;
    let started = Command::new(&this)
        .arg("tender")
        .arg(format!("--die-with-parent={}", std::process::id()))
        .arg(MEMORY)
        .args(options)
        .arg(format!("--net:service=@{}", tap.as_fd().as_raw_fd()))
        .arg("--")
        .arg(image)
        .arg(format!("--ipv4={SERVER}/24"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn();
    Ok(started.map_err(|error| Error::Spawn(this, error))?.into())
}

/// How long after `begin` the first request was answered.
///
/// # Errors
/// None is.
pub fn await_answer(begin: Instant) -> Result<Duration, Error> {
    loop {
        match ask("GET", "/", "") {
            Ok(_) => return Ok(begin.elapsed()),
            Err(error) if begin.elapsed() > STARTS => {
                return Err(Error::Traffic("image", error));
            }
            Err(_) => thread::sleep(POLL),
        }
    }
}

fn check(client: &Segment, &(method, path, line, expected): &(&str, &str, &str, u16)) -> Check {
    let answer = client.run(|| ask(method, path, line));
    let asked = match line {
        "" => format!("{method} {path}"),
        line => format!("{method} {path}, {line}"),
    };
    let (answered, bytes, held) = match answer {
        Ok((status, body)) => (status.to_string(), body.len(), status == expected),
        Err(error) => (error.to_string(), 0, false),
    };
    Check {
        asked,
        expected,
        answered,
        bytes,
        held,
    }
}

fn connect() -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&SocketAddr::from((SERVER, PORT)), PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn request(method: &str, path: &str, line: &str) -> String {
    let end = if line.is_empty() { "" } else { "\r\n" };
    format!("{method} {path} HTTP/1.1\r\nHost: {SERVER}\r\n{line}{end}")
}

/// The status of the answer, and the bytes behind its head.
///
/// # Errors
/// There is none.
pub fn ask(method: &str, path: &str, line: &str) -> io::Result<(u16, Vec<u8>)> {
    let mut stream = connect()?;
    let request = request(method, path, line) + "Connection: close\r\n\r\n";
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX).read_to_end(&mut answer)?;
    let (status, head) = head(&answer)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok((status, answer.split_off(head.len)))
}

/// What the head of an answer says.
struct Head {
    len: usize,
    body: usize,
}

/// Status and lengths of the answer that `bytes` begin with; `None` if its head is not whole.
fn head(bytes: &[u8]) -> io::Result<Option<(u16, Head)>> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut answer = httparse::Response::new(&mut headers);
    let parsed = answer.parse(bytes).map_err(io::Error::other)?;
    let httparse::Status::Complete(len) = parsed else {
        return Ok(None);
    };
    let mut headers = answer.headers.iter();
    let length = headers.find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|header| str::from_utf8(header.value).ok()?.parse().ok());
    let body = length.unwrap_or(0);
    Ok(answer.code.map(|status| (status, Head { len, body })))
}

/// Requests that are answered each second, over connections that stay.
fn count() -> f64 {
    let begin = Instant::now();
    let count: u64 = thread::scope(|scope| {
        let clients: Vec<_> = (0..CONNECTIONS)
            .map(|_| scope.spawn(|| ask_again(begin + MEASURED)))
            .collect();
        let counts = clients.into_iter().map(|client| client.join());
        counts.map(|count| count.unwrap_or(0)).sum()
    });
    count as f64 / begin.elapsed().as_secs_f64()
}

/// Asks until then; how often there was an answer.
fn ask_again(until: Instant) -> u64 {
    let Ok(mut stream) = connect() else {
        return 0;
    };
    let request = request("GET", COUNTED, "") + "\r\n";
    let (mut place, mut filled, mut count) = ([0; 4096], 0, 0);
    while Instant::now() < until && stream.write_all(request.as_bytes()).is_ok() {
        loop {
            match head(&place[..filled]) {
                Ok(Some((200, head))) if filled >= head.len + head.body => break,
                Ok(_) if filled < place.len() => {}
                _ => return count,
            }
            match stream.read(&mut place[filled..]) {
                Ok(more) if more > 0 => filled += more,
                _ => return count,
            }
        }
        (filled, count) = (0, count + 1);
    }
    count
}

fn text(report: &Report) -> String {
    let row = |check: &Check| {
        let result = if check.held { "ok" } else { "FAILED" };
        let bytes = check.bytes.to_string();
        let expected = check.expected.to_string();
        let cells = [&check.asked, &expected, &check.answered, &bytes];
        let cells = cells.into_iter().cloned();
        cells.chain([result.to_owned()]).collect()
    };
    let rows: Vec<Vec<String>> = report.checks.iter().map(row).collect();
    let header = ["asked", "expected", "answered", "bytes", ""];
    let held = report.checks.iter().filter(|check| check.held).count();
    format!(
        "\n{}\nThe image has {} KiB, and answered its first request {:.0} ms after its start.\n\
         {:.0} requests a second of 1 KiB over {CONNECTIONS} connections, this program's time \
         included.\n{held} of {} checks held.\n",
        table::render(&header, &rows),
        report.image_bytes / 1024,
        report.start_milliseconds,
        report.requests_per_second,
        report.checks.len(),
    )
}
