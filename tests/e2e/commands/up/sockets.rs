//! A link that carries sockets: applications in images of their own, over the stack of another.
//!
//! ```text
//!   test --- wan0 === stack === link === echo
//!                           === link === http
//! ```

use super::links::{Stream, nothing, of_link, on, system_of};
use super::{ALL, Datagrams, PATIENCE, System, kill};
use crate::commands::messages::shell;
use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::programs;
use crate::harness::wait::eventually;
use libtest_mimic::{Failed, Trial};
use std::io::ErrorKind;

type Test = fn(&Images) -> Result<(), Failed>;

/// What is tried, with the programs that it takes.
const TRIALS: [(&str, &[&str], Test); 4] = [
    (
        "sockets over a link outlive either end: process",
        &["ip", "curl"],
        |images| outlive(images, "process"),
    ),
    (
        "sockets over a link outlive either end: spt",
        &["ip", "curl"],
        |images| outlive(images, "spt"),
    ),
    (
        "stock iperf3 is served over a link: process",
        &["ip", "iperf3"],
        |images| measured(images, "process"),
    ),
    (
        "stock iperf3 is served over a link: spt",
        &["ip", "iperf3"],
        |images| measured(images, "spt"),
    ),
];

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let trial = |(name, needed, test): (&str, &[&str], Test)| {
        let (name, missing) = (format!("up::{name}"), programs::missing(needed));
        network.trial_unless(missing, name, move || test(images))
    };
    TRIALS.into_iter().map(trial).collect()
}

/// How often each image is killed.
const KILLS: usize = 3;

fn of_two(images: &Images) -> String {
    format!(
        "[component.stack]\nimage = {:?}\nmemory = 64\nnet.service = \"tap:wan0\"\n\
         arguments = [\"--ipv4=10.0.0.2/24\", \"--ports:second=80\", \"--connect:second=no\"]\n\
         net.first = \"link:echo\"\nnet.second = \"link:http\"\n\n\
         [component.echo]\nimage = {:?}\nmemory = 64\nnet.service = \"link:echo\"\n\n\
         [component.http]\nimage = {:?}\nmemory = 64\nnet.service = \"link:http\"\n",
        images.appliance("stack", "-two"),
        images.appliance("echo", "-remote"),
        images.appliance("http", "-remote"),
    )
}

/// Stock curl gets the page.
fn fetch(system: &System<'_>) -> Result<(), Failed> {
    let segment = system.segment.as_ref().ok_or("no network")?;
    let curl = "curl --silent --show-error --fail --max-time 10 http://10.0.0.2/100k | wc -c";
    eventually(PATIENCE, || {
        let got = shell(segment, curl)?;
        match got.stdout.trim() == "102400" {
            true => Ok(()),
            false => Err(format!("{} bytes, and {}", got.stdout, got.stderr).into()),
        }
    })
}

/// A new connection to echo works, at the latest after a while.
fn echoes(system: &System<'_>) -> Result<Stream, Failed> {
    let mut stream = None;
    eventually(PATIENCE, || {
        let mut one = Stream::new(system)?;
        one.round(nothing)?;
        stream = Some(one);
        Ok(())
    })?;
    stream.ok_or_else(|| "no connection".into())
}

/// Each image is killed in turn. The others go on, and with them what does not end in it.
fn outlive(images: &Images, host: &str) -> Result<(), Failed> {
    let system = system_of(images, &on(&of_two(images), host))?;
    let supervisor = system.up(3)?;
    let mut datagrams = Datagrams::new(&system)?;
    for _ in 0..KILLS {
        datagrams.wait()?;
        fetch(&system)?;
        let mut stream = echoes(&system)?;
        let guests = || -> Result<_, Failed> {
            let guest = |name| system.guest(name);
            Ok([guest("stack")?, guest("echo")?, guest("http")?])
        };
        let [stack, echo, http] = guests()?;
        let run = system.run_of("echo");
        kill(echo)?;
        // The stack resets what ended in that image, and serves the other one.
        stream.is_reset()?;
        fetch(&system)?;
        system.wait_for_run("echo", run + 1)?;
        datagrams.wait()?;
        echoes(&system)?;
        if system.guest("stack")? != stack || system.guest("http")? != http {
            return Err("others were started again with echo".into());
        }
        let (echo, run) = (system.guest("echo")?, system.run_of("stack"));
        kill(stack)?;
        system.wait_for_run("stack", run + 1)?;
        datagrams.wait()?;
        fetch(&system)?;
        echoes(&system)?;
        let [_, echo_now, http_now] = guests()?;
        if (echo_now, http_now) != (echo, http) {
            return Err("applications were started again with the stack".into());
        }
    }
    // One that is started again by a command leaves its link as it is.
    for name in ["stack", "echo"] {
        let mut stream = echoes(&system)?;
        system
            .outboard(&["restart", name])?
            .finish()?
            .expect_status(0)?;
        stream.is_gone()?;
        datagrams.wait()?;
        fetch(&system)?;
        echoes(&system)?;
    }
    for name in ["stack", "echo", "http"] {
        let said = system.runtime.says(images, &["logs", name])?;
        if said.contains("breaks the rules") {
            return Err(said.into());
        }
    }
    system.down(Some(supervisor))
}

/// Ends that carry different things are told, and nothing is started.
pub fn mistakes(images: &Images) -> Result<(), Failed> {
    let sockets = images.appliance("echo", "-remote");
    let text = of_link(images).replace(
        &format!("{:?}", images.appliance("echo", "-link")),
        &format!("{sockets:?}"),
    );
    let system = System::new(images, &text)?;
    std::fs::write(system.runtime.path().join("all.nft"), ALL)?;
    let file = system.file.display().to_string();
    let ended = system.outboard(&["up", "--check", &file])?.finish()?;
    ended.expect_status(1)?;
    ended.expect_stderr(&format!(
        "{file}:9:12: link:inner: echo takes a link there that carries sockets, and firewall one \
         that carries frames; build either with the manifest of the other's kind\n"
    ))?;
    Ok(())
}

/// Stock iperf3 measures an image that has its sockets from another one.
fn measured(images: &Images, host: &str) -> Result<(), Failed> {
    let text = format!(
        "[component.stack]\nimage = {:?}\nmemory = 64\narguments = [\"--ipv4=10.0.0.2/24\"]\n\
         net.service = \"tap:wan0\"\nnet.app = \"link:inner\"\n\n\
         [component.iperf3]\nimage = {:?}\nmemory = 64\narguments = [\"-s\"]\n\
         net.service = \"link:inner\"\n",
        images.appliance("stack", ""),
        images.appliance("iperf3", "-remote"),
    );
    let system = system_of(images, &on(&text, host))?;
    let supervisor = system.up(2)?;
    let segment = system.segment.as_ref().ok_or("no network")?;
    for more in [
        "",
        "--reverse",
        "--parallel 4",
        "--udp --bitrate 20M",
        "--udp --reverse",
    ] {
        let client = format!("iperf3 --client 10.0.0.2 --time 1 --omit 0 {more}");
        eventually(PATIENCE, || {
            let ended = shell(segment, &client)?;
            ended.expect_stdout("iperf Done.").map(|_| ())
        })?;
    }
    system.down(Some(supervisor))
}

impl Stream {
    /// The other side resets it.
    fn is_reset(&mut self) -> Result<(), Failed> {
        match self.next() {
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(()),
            other => Err(format!("not reset: {other:?}").into()),
        }
    }

    /// It does not go on, however it ends.
    fn is_gone(&mut self) -> Result<(), Failed> {
        match self.round(nothing) {
            Err(_) => Ok(()),
            Ok(()) => Err("it goes on".into()),
        }
    }
}
