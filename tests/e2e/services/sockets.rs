//! Sockets of the host's: who has them, and what a guest can do to the host with them.

use super::{PLAIN, SERVICE, SOCKETS, on_sockets, serve};
use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::process::run;
use crate::harness::programs;
use libtest_mimic::{Completion, Failed, Trial};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// What is typed, and what is said then.
const REFUSALS: &[(&[&str], &str)] = &[
    (
        &["--sockets:service=host"],
        "type: --host=process --sockets:service=host",
    ),
    (
        &["--host=hvt", "--sockets:service=host"],
        "type: --host=process --sockets:service=host",
    ),
    (&["--host=process"], "add --sockets:service=host"),
    (
        &["--host=process", "--net:service=tap0"],
        "replace --net:service by --sockets:NAME=host",
    ),
    (
        &["--host=process", "--sockets:service=tap0"],
        "expected host",
    ),
    (
        &["--host=process", "--sockets:other=host"],
        "--sockets:other: the manifest names no such device",
    ),
];

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let nc = programs::missing(&["nc"]);
    let ss = programs::missing(&["ss"]);
    vec![
        Trial::test("sockets::only a plain process has them", || refused(images)),
        Trial::test("sockets::addresses are the host's", || addresses(images)),
        Trial::ignorable_test("sockets::a stock tender has none", || stock(images)),
        network.trial("sockets::calls that make no sense".into(), || {
            succeeds(images, "socket_calls")
        }),
        network.trial("sockets::rules of the host's".into(), || {
            succeeds(images, "host_sockets")
        }),
        network.trial_unless(nc, "sockets::nc".into(), || nc_echoes(images)),
        network.trial_unless(ss, "sockets::silent peers are asked".into(), || {
            silent_peers_are_asked(images)
        }),
    ]
}

fn refused(images: &Images) -> Result<(), Failed> {
    for (typed, said) in REFUSALS {
        let mut tender = Command::new(images.program("outboard-tender"));
        tender.args(*typed).arg(on_sockets(&images.echo));
        let ended = run(&mut tender)?;
        ended.expect_status(1)?.expect_stderr(said)?;
    }
    Ok(())
}

/// An appliance cannot choose addresses there.
fn addresses(images: &Images) -> Result<(), Failed> {
    let mut tender = Command::new(images.program("outboard-tender"));
    tender
        .args(["--host=process", "--sockets:service=host"])
        .arg(on_sockets(&images.echo))
        .arg("--ipv4=10.0.0.2/24");
    let ended = run(&mut tender)?;
    ended.expect_status(1)?.expect_stdout("leave it away")?;
    Ok(())
}

/// Solo5's tender takes the manifest for one with a device that it does not know.
fn stock(images: &Images) -> Result<Completion, Failed> {
    let Some(folder) = std::env::var_os("SOLO5_DIR").map(PathBuf::from) else {
        let why = "SOLO5_DIR does not name a built Solo5";
        return Ok(Completion::ignored_with(why));
    };
    let mut tender = Command::new(folder.join("tenders/spt/solo5-spt"));
    tender.arg(on_sockets(&images.echo));
    let ended = run(&mut tender)?;
    ended
        .expect_status(1)?
        .expect_stderr("declared but not attached")?;
    Ok(Completion::Completed)
}

/// The guest says what did something that it must not.
fn succeeds(images: &Images, guest: &str) -> Result<(), Failed> {
    let segment = testbed::segment::Segment::new()?;
    let mut tender = Command::new(images.program("outboard-tender"));
    tender
        .args(["--mem=16", "--host=process", "--sockets:service=host"])
        .arg(images.guest(guest));
    let ended = segment.run(|| run(&mut tender))?;
    ended.expect_status(0)?.expect_stdout("SUCCESS")?;
    Ok(())
}

fn nc_echoes(images: &Images) -> Result<(), Failed> {
    let served = serve(images, SOCKETS, &PLAIN, &images.echo, &[])?;
    let mut shell = Command::new("sh");
    let line = format!("echo hello | timeout 10 nc -N {SERVICE} 7");
    shell.args(["-c", &line]);
    let ended = served.segment.run(|| run(&mut shell))?;
    ended.expect_status(0)?.expect_stdout("hello")?;
    served.goes_on()
}

/// The kernel does so once the appliance has asked for it.
fn silent_peers_are_asked(images: &Images) -> Result<(), Failed> {
    let served = serve(images, SOCKETS, &PLAIN, &images.echo, &[])?;
    let mut stream = served.segment.run(|| TcpStream::connect((SERVICE, 7)))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(b"x")?;
    stream.read_exact(&mut [0])?;
    let mut ss = Command::new("ss");
    ss.args(["-tnoH", "state", "established", "sport", "=", ":7"]);
    let ended = served.segment.run(|| run(&mut ss))?;
    ended.expect_status(0)?.expect_stdout("timer:(keepalive,")?;
    served.goes_on()
}
