//! `dns`: what stock dig is answered, and what a socket gets that says anything at all.

use super::{PATIENCE, PLAIN, SERVICE, Served, serve};
use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::process::run;
use crate::harness::programs;
use libtest_mimic::{Failed, Trial};
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::Command;

/// How often a datagram is sent that is not answered.
const TRIES: u32 = 5;

type Test = fn(&Images) -> Result<(), Failed>;

/// What a virtual machine must do as well.
pub const ON_HVT: &[(&str, Test)] = &[("questions are answered", |images| plain(images, "hvt"))];

const TESTS: &[(&str, Test)] = &[
    ("questions are answered::spt", |images| plain(images, "spt")),
    ("questions are answered::process", |images| {
        plain(images, "process")
    }),
    ("nothing that is sent ends it", hostile),
    ("connections are bounded", bounded),
];

/// What dig is asked, and what its answer has. The zone is the appliance's own.
const QUESTIONS: &[(&str, &[&str])] = &[
    (
        "www.example.org",
        &[
            "status: NOERROR",
            "flags: qr aa rd;",
            "60\tIN\tA\t192.0.2.80",
            "udp: 1232",
        ],
    ),
    ("WWW.Example.ORG AAAA", &["2001:db8::80"]),
    ("example.org MX", &["10 mail.example.org."]),
    ("www.example.org +tcp", &["192.0.2.80"]),
    (
        "nobody.example.org",
        &[
            "status: NXDOMAIN",
            "AUTHORITY: 1",
            "300\tIN\tSOA\tns.example.org.",
        ],
    ),
    (
        "www.example.org MX",
        &["status: NOERROR", "ANSWER: 0", "300\tIN\tSOA"],
    ),
    ("deep.empty.example.org", &["192.0.2.7"]),
    (
        "empty.example.org",
        &["status: NOERROR", "ANSWER: 0", "SOA"],
    ),
    (
        "alias.example.org",
        &["CNAME\twww.example.org.", "192.0.2.80"],
    ),
    (
        "alias.example.org CNAME",
        &["ANSWER: 1", "CNAME\twww.example.org."],
    ),
    ("far.example.org", &["ANSWER: 1", "CNAME\twww.example.net."]),
    (
        "lost.example.org",
        &["status: NXDOMAIN", "CNAME\tnothing", "SOA"],
    ),
    ("round.example.org", &["ANSWER: 1,", "CNAME\tround"]),
    (
        "any.wild.example.org",
        &["any.wild.example.org.\t3600\tIN\tA\t192.0.2.42"],
    ),
    ("a.b.wild.example.org", &["192.0.2.42"]),
    ("seen.wild.example.org", &["status: NOERROR", "ANSWER: 0"]),
    ("x.seen.wild.example.org", &["status: NXDOMAIN"]),
    (
        "x.sub.example.org",
        &["flags: qr rd;", "NS\tns.sub.example.org.", "A\t192.0.2.53"],
    ),
    ("example.net", &["status: REFUSED", "ANSWER: 0"]),
    ("org", &["status: REFUSED"]),
    ("xexample.org", &["status: REFUSED"]),
    ("www.example.org CH", &["status: REFUSED"]),
    ("example.org AXFR", &["Transfer failed"]),
    ("example.org ANY +notcp", &["ANSWER: 1,"]),
    ("www.example.org +opcode=NOTIFY", &["status: NOTIMP"]),
    ("www.example.org +edns=1 +noednsneg", &["status: BADVERS"]),
    (
        "big.example.org TXT",
        &["Truncated, retrying in TCP mode", "ANSWER: 12"],
    ),
    (
        "big.example.org TXT +ignore +bufsize=65535",
        &["flags: qr aa tc rd;", "ANSWER: 0"],
    ),
    (
        "big.example.org TXT +ignore +noedns",
        &["flags: qr aa tc rd;", "ADDITIONAL: 0"],
    ),
];

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let trial =
        |&(name, test): &(&str, Test)| network.trial(format!("dns::{name}"), move || test(images));
    let mut trials: Vec<Trial> = TESTS.iter().map(trial).collect();
    let missing = programs::missing(&["dig"]);
    for host in ["spt", "process"] {
        let name = format!("dns::dig::{host}");
        trials.push(network.trial_unless(missing, name, move || dig(images, host)));
    }
    trials
}

fn start(images: &Images, host: &str) -> Result<Served, Failed> {
    serve(images, host, &PLAIN, &images.dns, &[])
}

fn dig(images: &Images, host: &str) -> Result<(), Failed> {
    let served = start(images, host)?;
    for (words, expected) in QUESTIONS {
        let mut command = Command::new("dig");
        command.arg(format!("@{SERVICE}")).args(words.split(' '));
        command.args(["+nocookie", "+tries=2"]);
        let answer = served.segment.run(|| run(&mut command))?;
        for text in *expected {
            let found = answer.expect_stdout(text);
            found.map_err(|_| format!("dig {words}: no {text:?}: {}", answer.stdout))?;
        }
    }
    served.goes_on()
}

/// A question for the address of `www.example.org`.
fn question() -> Vec<u8> {
    let header = [0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    [&header[..], b"\x03www\x07example\x03org\0\0\x01\0\x01"].concat()
}

fn expect_address(answer: &[u8]) -> Result<(), Failed> {
    let same = answer.starts_with(&[0x12, 0x34]) && answer.ends_with(&[192, 0, 2, 80]);
    match same {
        true => Ok(()),
        false => Err(format!("{answer:?}").into()),
    }
}

fn socket(served: &Served) -> Result<UdpSocket, Failed> {
    let socket = served.segment.run(|| UdpSocket::bind("10.0.0.1:0"))?;
    socket.connect((SERVICE, 53))?;
    socket.set_read_timeout(Some(PATIENCE / TRIES))?;
    Ok(socket)
}

fn connect(served: &Served) -> Result<TcpStream, Failed> {
    let stream = served.segment.run(|| TcpStream::connect((SERVICE, 53)))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Asks over UDP; again if nothing comes, because the image drops what exceeds its queues.
fn ask(socket: &UdpSocket) -> Result<(), Failed> {
    let mut answer = [0; 512];
    for _ in 0..TRIES {
        socket.send(&question())?;
        // Answers to what was sent before come before.
        while let Ok(count) = socket.recv(&mut answer) {
            if expect_address(&answer[..count]).is_ok() {
                return Ok(());
            }
        }
    }
    Err("no answer".into())
}

/// Asks over TCP, twice in one segment.
fn ask_tcp(mut stream: TcpStream) -> Result<(), Failed> {
    let question = question();
    let framed = [&(question.len() as u16).to_be_bytes()[..], &question].concat();
    stream.write_all(&framed.repeat(2))?;
    for _ in 0..2 {
        let mut len = [0; 2];
        stream.read_exact(&mut len)?;
        let mut answer = vec![0; u16::from_be_bytes(len).into()];
        stream.read_exact(&mut answer)?;
        expect_address(&answer)?;
    }
    Ok(())
}

fn plain(images: &Images, host: &str) -> Result<(), Failed> {
    let served = start(images, host)?;
    ask(&socket(&served)?)?;
    ask_tcp(connect(&served)?)?;
    served.goes_on()
}

fn hostile(images: &Images) -> Result<(), Failed> {
    let served = start(images, "spt")?;
    let socket = socket(&served)?;
    let question = question();
    for len in 0..question.len() {
        socket.send(&question[..len])?;
    }
    // Each byte is everything; names that point at themselves are among them.
    let mut rng = fastrand::Rng::with_seed(1);
    for place in 0..question.len() {
        let mut changed = question.clone();
        changed[place] = rng.u8(..);
        socket.send(&changed)?;
        changed[12..14].copy_from_slice(&[0xc0, 12]);
        socket.send(&changed)?;
        // One at a time, so that none is dropped because too many wait.
        ask(&socket)?;
    }
    let mut stream = connect(&served)?;
    stream.write_all(&[0xff, 0xff])?;
    let closed = stream.read(&mut [0]).unwrap_or(0);
    if closed != 0 {
        return Err("a question of 65,535 bytes is answered".into());
    }
    drop(connect(&served)?);
    ask_tcp(connect(&served)?)?;
    served.goes_on()
}

/// Those beyond the bound are closed, and datagrams are answered all the time.
fn bounded(images: &Images) -> Result<(), Failed> {
    let served = start(images, "spt")?;
    let open: Vec<TcpStream> = (0..300)
        .map(|_| connect(&served))
        .collect::<Result<_, _>>()?;
    ask(&socket(&served)?)?;
    let mut last = open.last().ok_or("none")?;
    if last.read(&mut [0])? != 0 {
        return Err("the last one is open".into());
    }
    drop(open);
    ask_tcp(connect(&served)?).or_else(|_| ask_tcp(connect(&served)?))?;
    served.goes_on()
}
