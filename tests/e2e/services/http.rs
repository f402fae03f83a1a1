//! `http`: what stock curl fetches, and what a socket gets that says anything at all.

use super::{PATIENCE, Port, SERVICE, SOCKETS, Served, serve, serve_by, tender};
use crate::devices::software_virtio::model;
use crate::disks::made::{self, Tree};
use crate::harness::build::{Images, root};
use crate::harness::network::Network;
use crate::harness::process::run;
use crate::harness::programs;
use libtest_mimic::{Failed, Trial};
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

type Test = fn(&Images, &str) -> Result<(), Failed>;

const TESTS: &[(&str, Test)] = &[
    ("requests and their answers", answers),
    ("pipelined requests are answered in order", pipelined),
    ("a request in small pieces", in_pieces),
    ("nothing that is sent ends it", hostile),
    ("connections are bounded", bounded),
    ("an idle connection is closed", idle),
    (
        "a client that is one too many is told so while it sends",
        refused,
    ),
];

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let mut trials = vec![
        // What the host's sockets send together is the kernel's to decide.
        network.trial("http::small answers are one segment".into(), || {
            one_segment(images)
        }),
    ];
    for (name, test) in TESTS {
        for host in ["spt", SOCKETS] {
            let name = format!("http::{name}::{host}");
            trials.push(network.trial(name, move || test(images, host)));
        }
    }
    let missing = programs::missing(&["curl"]);
    for host in ["spt", "process", SOCKETS] {
        let name = format!("http::curl::{host}");
        trials.push(network.trial_unless(missing, name, move || curl(images, host)));
    }
    let missing = programs::missing(&["curl", "tar"]);
    let name = String::from("http::an archive on a disk");
    trials.push(network.trial_unless(missing, name, move || archives(images)));
    for kind in &made::KINDS {
        let missing = programs::missing(&["curl"]).or(programs::missing(kind.programs));
        let name = format!("http::a disk with {}", kind.name);
        trials.push(network.trial_unless(missing, name, move || file_system(images, kind)));
    }
    let missing = programs::missing(&["curl"]);
    for kind in ON_NVME.map(|index| &made::KINDS[index]) {
        let missing = missing.or(programs::missing(kind.programs));
        for host in ["spt", "process"] {
            let name = format!("http::an NVM Express disk with {}::{host}", kind.name);
            let test = move || on_nvme(images, host, kind);
            trials.push(network.trial_unless(missing, name, test));
        }
    }
    trials
}

/// What the disk that an image drives holds, as indices of [`made::KINDS`]: ext4, FAT, ISO 9660.
const ON_NVME: [usize; 3] = [2, 4, 6];

type OnHost = fn(&Images) -> Result<(), Failed>;

/// The tests on `hvt`.
pub const ON_HVT: [(&str, OnHost); 1] = [("an NVM Express disk is served", |images| {
    on_nvme(images, "hvt", &made::KINDS[ON_NVME[0]])
})];

/// Connections that the appliance serves at a time: `CONNECTIONS_MAX`.
const CONNECTIONS: usize = 1024;
/// Seconds after which an idle connection is closed: `IDLE`.
const IDLE_SECONDS: u64 = 15;
/// Bytes of the header of a request: `HEADER_MAX`.
const HEADER: usize = 8 << 10;

const PORT: Port = Port {
    mtu: 1500,
    vnet_header: true,
};

fn start(images: &Images, host: &str) -> Result<Served, Failed> {
    serve(images, host, &PORT, &images.http, &[])
}

/// A file of the appliance.
fn file(name: &str) -> Result<Vec<u8>, Failed> {
    Ok(fs::read(root().join("unikernels/http/www").join(name))?)
}

fn connect(served: &Served) -> Result<TcpStream, Failed> {
    let stream = served.segment.run(|| TcpStream::connect((SERVICE, 80)))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// All that comes until the appliance closes.
fn read_all(mut stream: TcpStream) -> Result<Vec<u8>, Failed> {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

/// All that these bytes are answered with; we say that no more follow.
fn ask(served: &Served, bytes: &[u8]) -> Result<Vec<u8>, Failed> {
    let mut stream = connect(served)?;
    stream.write_all(bytes)?;
    stream.shutdown(Shutdown::Write)?;
    read_all(stream)
}

fn expect(answer: &[u8], begins: &str, ends: &[u8]) -> Result<(), Failed> {
    if answer.starts_with(begins.as_bytes()) && answer.ends_with(ends) {
        return Ok(());
    }
    let start = &answer[..answer.len().min(400)];
    let said = String::from_utf8_lossy(start);
    Err(format!("no {begins:?}, or another end: {said:?}").into())
}

fn answers(images: &Images, host: &str) -> Result<(), Failed> {
    let served = start(images, host)?;
    let (small, large) = (file("1k")?, file("100k")?);
    let nothing = b"\r\n\r\n".as_slice();
    for (request, begins, ends) in [
        ("GET /1k HTTP/1.1\r\nHost: h", "HTTP/1.1 200 OK", &*small),
        ("GET /100k HTTP/1.0", "HTTP/1.1 200 OK", &*large),
        ("HEAD /1k HTTP/1.1\r\nHost: h", "HTTP/1.1 200 OK", nothing),
        (
            "GET /1k HTTP/1.1\r\nHost: h\r\nRange: bytes=1000-",
            "HTTP/1.1 206 Partial Content",
            &small[1000..],
        ),
        (
            "GET /1k HTTP/1.1\r\nHost: h\r\nRange: bytes=1024-",
            "HTTP/1.1 416 Range Not Satisfiable",
            nothing,
        ),
        (
            "GET /1k HTTP/1.1\r\nHost: h\r\nIf-None-Match: *",
            "HTTP/1.1 304 Not Modified",
            nothing,
        ),
        (
            "GET /no HTTP/1.1\r\nHost: h",
            "HTTP/1.1 404 Not Found",
            b"404 Not Found",
        ),
        (
            "DELETE /1k HTTP/1.1\r\nHost: h",
            "HTTP/1.1 405 Method Not Allowed",
            b"405 Method Not Allowed",
        ),
        (
            "GET /1k HTTP/1.1",
            "HTTP/1.1 400 Bad Request",
            b"400 Bad Request",
        ),
        (
            "GET /1k HTTP/3.0",
            "HTTP/1.1 505 HTTP Version Not Supported",
            b"505 HTTP Version Not Supported",
        ),
    ] {
        let answer = ask(&served, format!("{request}\r\n\r\n").as_bytes())?;
        expect(&answer, begins, ends)
            .map_err(|failed| format!("{request:?}: {}", failed.message().unwrap_or_default()))?;
    }
    served.goes_on()
}

fn pipelined(images: &Images, host: &str) -> Result<(), Failed> {
    let served = start(images, host)?;
    let (small, large) = (file("1k")?, file("100k")?);
    let mut requests = String::new();
    for _ in 0..100 {
        requests += "GET /1k HTTP/1.1\r\nHost: h\r\n\r\nHEAD /100k HTTP/1.1\r\nHost: h\r\n\r\n";
        requests += "GET /100k HTTP/1.1\r\nHost: h\r\n\r\n";
    }
    requests += "GET /1k HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\nGET /not/reached";
    let mut stream = connect(&served)?;
    let mut writer = stream.try_clone()?;
    let mut answers = Vec::new();
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || writer.write_all(requests.as_bytes()));
        let read = stream.read_to_end(&mut answers);
        let sent = sender.join().expect("it does not panic");
        read.and(sent)
    })?;
    let mut rest = answers.as_slice();
    for number in 0..301 {
        let body: &[u8] = match (number, number % 3) {
            (300, _) | (_, 0) => &small,
            (_, 1) => &[],
            _ => &large,
        };
        let header = rest.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        let header = header.ok_or_else(|| format!("no header {number}"))? + 4;
        expect(&rest[..header], "HTTP/1.1 200 OK\r\n", b"\r\n")?;
        rest = &rest[header..];
        rest = rest
            .strip_prefix(body)
            .ok_or_else(|| format!("another body {number}"))?;
    }
    match rest {
        [] => served.goes_on(),
        _ => Err(format!("{} bytes more", rest.len()).into()),
    }
}

/// The first read has header and body.
fn one_segment(images: &Images) -> Result<(), Failed> {
    let served = start(images, "spt")?;
    let mut stream = connect(&served)?;
    let small = file("1k")?;
    for _ in 0..100 {
        stream.write_all(b"GET /1k HTTP/1.1\r\nHost: h\r\n\r\n")?;
        let mut bytes = [0; 4096];
        let count = stream.read(&mut bytes)?;
        expect(&bytes[..count], "HTTP/1.1 200 OK\r\n", &small)?;
    }
    served.goes_on()
}

fn in_pieces(images: &Images, host: &str) -> Result<(), Failed> {
    let served = start(images, host)?;
    let mut stream = connect(&served)?;
    for byte in b"\r\nGET /1k HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n" {
        stream.write_all(&[*byte])?;
    }
    expect(&read_all(stream)?, "HTTP/1.1 200 OK\r\n", &file("1k")?)?;
    served.goes_on()
}

fn hostile(images: &Images, host: &str) -> Result<(), Failed> {
    let served = start(images, host)?;
    let long = "a".repeat(2 * HEADER);
    let get = |target: &str, fields: &str| {
        format!("GET {target} HTTP/1.1\r\nHost: h\r\n{fields}\r\n").into_bytes()
    };
    let cases: &[(Vec<u8>, u16)] = &[
        (get(&format!("/{long}"), ""), 414),
        (get("/", &format!("a: {long}\r\n")), 431),
        (get("/", &"a: b\r\n".repeat(100)), 431),
        (get("/../../etc/passwd", ""), 404),
        (get("/%2e%2e/%2e%2e/etc/passwd", ""), 404),
        (get("/1k%00", ""), 404),
        (get("/\0", ""), 400),
        (get("/%zz", ""), 404),
        (get("/", "Content-Length: 1\r\nContent-Length: 2\r\n"), 400),
        (get("/", "Transfer-Encoding: chunked, x\r\n"), 400),
        (get("/", "Transfer-Encoding: x, chunked\r\n"), 200),
        (
            [
                get("/", "Transfer-Encoding: chunked\r\n"),
                b"zz\r\nGET /".to_vec(),
            ]
            .concat(),
            200,
        ),
        (
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
            400,
        ),
        (vec![0; 100_000], 400),
        (vec![b'\n'; HEADER], 414),
    ];
    for (bytes, status) in cases {
        // The answer arrives, although much of this comes after it.
        let answer = ask(&served, bytes)?;
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(80)]);
        expect(&answer, &format!("HTTP/1.1 {status} "), b"")
            .map_err(|failed| format!("{shown:?}: {}", failed.message().unwrap_or_default()))?;
        let answers = answer.windows(9).filter(|bytes| bytes == b"HTTP/1.1 ");
        if answers.count() != 1 {
            return Err(format!("{shown:?}: more than one answer").into());
        }
    }
    let mut rng = fastrand::Rng::with_seed(7);
    for _ in 0..200 {
        let mut bytes = get("/1k", "Range: bytes=0-5\r\nIf-None-Match: \"a\"\r\n");
        for _ in 0..rng.usize(1..8) {
            let place = rng.usize(..bytes.len());
            bytes[place] = rng.u8(..);
        }
        ask(&served, &bytes)?;
    }
    let answer = ask(&served, &get("/1k", ""))?;
    expect(&answer, "HTTP/1.1 200 OK", &file("1k")?)?;
    served.goes_on()
}

fn bounded(images: &Images, host: &str) -> Result<(), Failed> {
    let served = start(images, host)?;
    let mut streams = Vec::new();
    for _ in 0..CONNECTIONS {
        streams.push(connect(&served)?);
    }
    let refused = read_all(connect(&served)?)?;
    expect(
        &refused,
        "HTTP/1.1 503 Service Unavailable\r\n",
        b"Service Unavailable",
    )?;
    // One that ends makes room.
    let request = b"GET /1k HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    for mut stream in streams.drain(..2) {
        stream.write_all(request)?;
        expect(&read_all(stream)?, "HTTP/1.1 200 OK\r\n", &file("1k")?)?;
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = ask(&served, request);
        if answer.is_ok_and(|answer| answer.starts_with(b"HTTP/1.1 200 OK\r\n")) {
            return served.goes_on();
        }
        if Instant::now() > deadline {
            return Err("no room".into());
        }
    }
}

fn idle(images: &Images, host: &str) -> Result<(), Failed> {
    let served = start(images, host)?;
    let (silent, mut slow) = (connect(&served)?, connect(&served)?);
    slow.write_all(b"GET /1k HTTP/1.1\r\n")?;
    let began = Instant::now();
    for stream in [&silent, &slow] {
        stream.set_read_timeout(Some(PATIENCE + PATIENCE))?;
    }
    expect(
        &read_all(slow)?,
        "HTTP/1.1 408 Request Timeout\r\n",
        b"Timeout",
    )?;
    let answer = read_all(silent)?;
    if !answer.is_empty() || began.elapsed().as_secs() < IDLE_SECONDS - 1 {
        return Err(format!("{:?}, {} bytes", began.elapsed(), answer.len()).into());
    }
    served.goes_on()
}

fn curl(images: &Images, host: &str) -> Result<(), Failed> {
    let served = start(images, host)?;
    let (small, large) = (file("1k")?, file("100k")?);
    let large_half = String::from_utf8_lossy(&large[51_200..]);
    let (small, large) = (
        String::from_utf8_lossy(&small),
        String::from_utf8_lossy(&large),
    );
    for (arguments, expected) in [
        (["/1k", "/100k"].as_slice(), format!("{small}{large}")),
        (&["--range", "51200-", "/100k"], large_half.into_owned()),
        (
            &[
                "--write-out",
                "%{http_code}",
                "--head",
                "--output",
                "/dev/null",
                "/",
            ],
            "200".into(),
        ),
        (
            &[
                "--write-out",
                "%{content_type}",
                "--output",
                "/dev/null",
                "/",
            ],
            "text/html; charset=utf-8".into(),
        ),
        (&["--data", "a=b", "/1k"], "405 Method Not Allowed".into()),
        (&["--http1.0", "/1k"], small.to_string()),
        // Two answers, one connection.
        (
            &[
                "--write-out",
                "%{num_connects} ",
                "--output",
                "/dev/null",
                "--output",
                "/dev/null",
                "/1k",
                "/100k",
            ],
            "1 0 ".into(),
        ),
    ] {
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--max-time", "10"]);
        for argument in arguments {
            match argument.strip_prefix('/') {
                Some(path) if !path.starts_with("dev") => {
                    command.arg(format!("http://{SERVICE}{argument}"))
                }
                _ => command.arg(argument),
            };
        }
        let ended = served.segment.run(|| run(&mut command))?;
        ended.expect_status(0)?;
        if ended.stdout != expected {
            let said = &ended.stdout[..ended.stdout.len().min(400)];
            return Err(format!("curl {arguments:?} says {said:?}").into());
        }
    }
    served.goes_on()
}

/// The answer arrives, although the client sends a request and a long body before it reads.
fn refused(images: &Images, host: &str) -> Result<(), Failed> {
    let served = start(images, host)?;
    let mut streams = Vec::new();
    for _ in 0..CONNECTIONS {
        streams.push(connect(&served)?);
    }
    for _ in 0..20 {
        let mut stream = connect(&served)?;
        stream.write_all(b"GET /1k HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n")?;
        stream.write_all(&[b'a'; 100_000])?;
        stream.shutdown(Shutdown::Write)?;
        let answer = read_all(stream)?;
        expect(
            &answer,
            "HTTP/1.1 503 Service Unavailable\r\n",
            b"Unavailable",
        )?;
    }
    served.goes_on()
}

/// What stock tar packs, stock curl gets back.
fn archives(images: &Images) -> Result<(), Failed> {
    let tree = Tree::new()?;
    for format in ["gnu", "ustar"] {
        let archive = tree.image(format);
        let mut tar = Command::new("tar");
        tar.arg(format!("--format={format}")).arg("--create");
        tar.arg("--file")
            .arg(&archive)
            .arg("--directory")
            .arg(tree.root())
            .arg(".");
        run(&mut tar)?.expect_status(0)?;
        fetched(images, &tree, &archive)?;
    }
    // What is no archive ends it with a reason.
    let broken = tree.image("broken");
    fs::write(&broken, [b'a'; 10_240])?;
    let mut command = tender(images, "spt");
    command.arg(format!("--block:files={}", broken.display()));
    let ended = serve_by(command, &PORT, &images.http_disk, &[])?
        .running
        .finish()?;
    ended.expect_status(1)?;
    match ended.stdout.contains("no header at byte 0") {
        true => Ok(()),
        false => Err(format!("no reason: {}", ended.stdout).into()),
    }
}

/// The same of a file system, in a partition.
fn file_system(images: &Images, kind: &made::Kind) -> Result<(), Failed> {
    let tree = Tree::new()?;
    let (image, disk) = (tree.image("whole"), tree.image("parts"));
    kind.make(&tree.root(), &image)?;
    made::partitioned(&image, &disk)?;
    fetched(images, &tree, &disk)
}

/// The same of a disk that the image drives itself, whose model is a process.
fn on_nvme(images: &Images, host: &str, kind: &made::Kind) -> Result<(), Failed> {
    let tree = Tree::new()?;
    let (file, socket) = (tree.image("whole"), tree.image("socket"));
    kind.make(&tree.root(), &file)?;
    let option = format!("--file={},ro", file.display());
    let disk = model(images, "nvme", &socket, [option])?;
    let mut command = tender(images, host);
    command.arg(format!("--pci:files=vfio-user:{}", socket.display()));
    fetched_by(command, &images.appliance("http", "-nvme"), &tree)?;
    let disk = disk.finish()?;
    disk.expect_status(0)?.expect_stdout("\"violations\":0}")?;
    Ok(())
}

/// Fetches all files of a disk, and what conditions leave of one.
fn fetched(images: &Images, tree: &Tree, disk: &Path) -> Result<(), Failed> {
    let mut command = tender(images, "spt");
    command.arg(format!("--block:files={}", disk.display()));
    fetched_by(command, &images.http_disk, tree)
}

/// The same by a command that attaches the disk.
pub fn fetched_by(command: Command, image: &Path, tree: &Tree) -> Result<(), Failed> {
    let served = serve_by(command, &PORT, image, &[])?;
    let got = tree.image("got");
    let fetch = |path: &str, arguments: &[&str], expected: &[u8]| {
        fs::write(&got, "")?;
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--fail", "--max-time", "60"]);
        curl.arg("--output").arg(&got).args(arguments);
        curl.arg(format!("http://{SERVICE}{}", path.replace(' ', "%20")));
        served.segment.run(|| run(&mut curl))?.expect_status(0)?;
        match fs::read(&got)? == expected {
            true => Ok(()),
            false => Err(Failed::from(format!("{path} {arguments:?} differs"))),
        }
    };
    for (path, bytes) in &tree.files {
        fetch(path, &[], bytes)?;
    }
    fetch("/", &[], &tree.files[1].1)?;
    let (path, large) = tree.files.last().ok_or("no file")?;
    let range = ["--range", "1000000-2000000"];
    fetch(path, &range, &large[1_000_000..=2_000_000])?;
    // It has not changed since it was packed; FAT has the time of the place, an hour here or there.
    let later = "Fri, 01 Jan 2100 00:00:00 GMT";
    fetch(path, &["--time-cond", later], b"")?;
    served.goes_on()
}
