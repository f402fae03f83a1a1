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
use crate::harness::process::start;
use crate::harness::programs;
use crate::harness::wait::eventually;
use libtest_mimic::{Failed, Trial};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::Duration;
use testbed::segment::Segment;

type Test = fn(&Images) -> Result<(), Failed>;

/// What is tried, with the programs that it takes.
const TRIALS: [(&str, &[&str], Test); 6] = [
    (
        "both versions of IP go over a link: spt",
        &["curl"],
        |images| carried(images, ["spt"; 3], &["echo", "stack"]),
    ),
    (
        "an application opens connections over a link: spt",
        &["iperf3"],
        |images| opens(images, "spt"),
    ),
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

/// What a virtual machine must do as well, beside others that are none.
pub const ON_HVT: (&str, Test) = ("sockets over a link: hvt, spt, hvt", |images| {
    carried(images, ["hvt", "spt", "hvt"], &["stack"])
});

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let trial = |(name, needed, test): (&str, &[&str], Test)| {
        let (name, missing) = (format!("up::{name}"), programs::missing(needed));
        network.trial_unless(missing, name, move || test(images))
    };
    TRIALS.into_iter().map(trial).collect()
}

/// How often each image is killed.
const KILLS: usize = 3;

/// The stack with two applications, on these hosts.
fn on_hosts(images: &Images, hosts: [&str; 3]) -> String {
    let mut text = of_two(images);
    for (name, host) in ["stack", "echo", "http"].into_iter().zip(hosts) {
        let head = format!("[component.{name}]\n");
        text = text.replace(&head, &format!("{head}host = {host:?}\n"));
    }
    text.replace(
        "--ipv4=10.0.0.2/24\"",
        "--ipv4=10.0.0.2/24\", \"--ipv6=fd00::2/64\"",
    )
}

/// Has Linux speak IPv6 there, as fd00::1.
fn speak6(segment: &Segment) -> Result<(), Failed> {
    Ok(segment.speak_ipv6("wan0", "fd00::1".parse()?, 64)?)
}

/// Connections, datagrams and pages of two applications, by both versions of IP, before and after
/// the end of each of these images.
fn carried(images: &Images, hosts: [&str; 3], killed: &[&str]) -> Result<(), Failed> {
    let system = system_of(images, &on_hosts(images, hosts))?;
    let segment = system.segment.as_ref().ok_or("no network")?;
    speak6(segment)?;
    let supervisor = system.up(3)?;
    let all = || {
        for (own, service) in [("10.0.0.1:0", "10.0.0.2:7"), ("[fd00::1]:0", "[fd00::2]:7")] {
            comes_back(segment, own, service)?;
        }
        fetch_from(&system, "10.0.0.2")?;
        fetch_from(&system, "[fd00::2]")
    };
    all()?;
    for name in killed {
        let run = system.run_of(name);
        kill(system.guest(name)?)?;
        system.wait_for_run(name, run + 1)?;
        all()?;
    }
    system.down(Some(supervisor))
}

/// Bytes come back by a connection, and in a datagram.
fn comes_back(segment: &Segment, own: &str, service: &str) -> Result<(), Failed> {
    let service: SocketAddr = service.parse()?;
    let patience = Some(Duration::from_secs(1));
    let socket = segment.run(|| UdpSocket::bind(own))?;
    socket.set_read_timeout(patience)?;
    eventually(PATIENCE, || {
        socket.send_to(b"datagram", service)?;
        match socket.recv(&mut [0; 9])? {
            8 => Ok(()),
            count => Err(format!("a datagram of {count} bytes").into()),
        }
    })?;
    let bytes: Vec<u8> = (0..200_000).map(|n| (n / 9) as u8).collect();
    eventually(PATIENCE, || {
        let connect = || TcpStream::connect_timeout(&service, Duration::from_secs(5));
        let mut stream = segment.run(connect)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut back = vec![0; bytes.len()];
        thread::scope(|threads| {
            let (mut writer, bytes) = (stream.try_clone()?, &bytes);
            let writes = threads.spawn(move || -> std::io::Result<()> {
                bytes
                    .chunks(4096)
                    .try_for_each(|some| writer.write_all(some))
            });
            stream.read_exact(&mut back)?;
            Ok::<_, Failed>(writes.join().map_err(|_| "the writer panicked")??)
        })?;
        match back == bytes {
            true => Ok(()),
            false => Err("other bytes came back".into()),
        }
    })
}

/// The other way: an application connects to a stock server, by both versions of IP.
fn opens(images: &Images, host: &str) -> Result<(), Failed> {
    for server in ["10.0.0.1", "fd00::1"] {
        let text = format!(
            "[component.stack]\nimage = {:?}\nmemory = 64\narguments = [\"--ipv4=10.0.0.2/24\", \
             \"--ipv6=fd00::2/64\"]\nnet.service = \"tap:wan0\"\nnet.app = \"link:inner\"\n\n\
             [component.iperf3]\nimage = {:?}\nmemory = 64\narguments = [\"-c\", {server:?}, \
             \"-n\", \"4M\"]\nrestart = \"never\"\nnet.service = \"link:inner\"\n",
            images.appliance("stack", ""),
            images.appliance("iperf3", "-remote"),
        );
        let system = system_of(images, &on(&text, host))?;
        let segment = system.segment.as_ref().ok_or("no network")?;
        speak6(segment)?;
        let mut stock = Command::new("iperf3");
        let stock = segment.run(|| start(stock.args(["--server", "--one-off", "--forceflush"])))?;
        stock.wait_for("Server listening")?;
        let supervisor = system.outboard(&["up", &system.file.display().to_string()])?;
        // As the server says what it has received.
        let ended = stock.finish()?;
        ended.expect_status(0)?.expect_stdout("4.00 MBytes")?;
        system.down(Some(supervisor))?;
    }
    Ok(())
}

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
    fetch_from(system, "10.0.0.2")
}

/// The same from this address.
fn fetch_from(system: &System<'_>, address: &str) -> Result<(), Failed> {
    let segment = system.segment.as_ref().ok_or("no network")?;
    let url = format!("http://{address}/100k");
    let curl = format!("curl --silent --show-error --fail --globoff --max-time 10 {url} | wc -c");
    eventually(PATIENCE, || {
        let got = shell(segment, &curl)?;
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
