//! Stock programs on the sockets of a stack in an image: `outboard proxy`.
//!
//! ```text
//!   test --- wan0 === stack === link === outboard proxy --- the program
//! ```

use super::links::{SLOTS, inherited, kill};
use super::{PLAIN, SERVICE, Served, tap, tender};
use crate::harness::build::{Images, root};
use crate::harness::network::Network;
use crate::harness::process::{Ended, Running, run, start};
use crate::harness::programs;
use crate::harness::temporary::TemporaryFolder;
use crate::harness::wait::eventually;
use libtest_mimic::{Failed, Trial};
use linux::link::Side;
use rustix::process::Signal;
use std::fs;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::Duration;
use testbed::segment::Segment;

/// How long a program may take to be there.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Calls of sockets, whose results it prints.
const CALLS: &str = "e2e/services/proxy_calls.py";

/// What is tried, with the programs that it takes.
pub type Tried<'a> = (&'a str, &'a [&'a str], fn(&Images) -> Result<(), Failed>);

const TRIALS: [Tried<'static>; 10] = [
    ("nginx serves", &["nginx", "curl", "wrk"], nginx),
    (
        "redis serves",
        &["redis-server", "redis-benchmark", "redis-cli"],
        redis,
    ),
    ("iperf3 measures", &["iperf3"], iperf3),
    ("python serves and asks", &["python3", "curl"], python),
    ("dig asks", &["dig", "dnsmasq"], dig),
    ("there is no other network", &["python3"], no_other),
    (
        "a program that is killed leaves nothing",
        &["nginx", "curl", "pgrep"],
        killed,
    ),
    (
        "what was written before the end still leaves",
        &["python3"],
        written,
    ),
    (
        "a program listens again at the next stack",
        &["nginx", "curl"],
        next_stack,
    ),
    (
        "calls are answered as the kernel answers them",
        &["python3"],
        same_answers,
    ),
];

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    trials_of(images, network, &TRIALS)
}

/// The tests of these.
pub fn trials_of(images: &'static Images, network: &Network, all: &[Tried<'_>]) -> Vec<Trial> {
    let trial = |(name, needed, test): &Tried<'_>| {
        let (name, missing) = (format!("proxy::{name}"), programs::missing(needed));
        let test = *test;
        network.trial_unless(missing, name, move || test(images))
    };
    all.iter().map(trial).collect()
}

/// A stack, with one end of a link that is to be a program's.
pub struct Stack<'a> {
    images: &'a Images,
    sides: [Side; 2],
    tap: std::os::fd::OwnedFd,
    pub served: Served,
}

impl<'a> Stack<'a> {
    pub fn new(images: &'a Images) -> Result<Self, Failed> {
        Self::with(images, &[])
    }

    /// The same with more arguments of the stack's.
    pub fn with(images: &'a Images, more: &[&str]) -> Result<Self, Failed> {
        let segment = Segment::new()?;
        let tap = tap(&segment, &PLAIN)?;
        let sides = inherited(SLOTS)?;
        let running = Self::start(images, &tap, &sides[0], more)?;
        Ok(Self {
            images,
            sides,
            tap,
            served: Served { segment, running },
        })
    }

    fn start(
        images: &Images,
        tap: &std::os::fd::OwnedFd,
        side: &Side,
        more: &[&str],
    ) -> Result<Running, Failed> {
        let mut command = tender(images, "spt");
        command
            .arg("--mem=128")
            .arg(format!("--net:service=@{}", tap.as_raw_fd()))
            .arg(format!("--link:app={}", side.value()))
            .arg(images.appliance("stack", ""))
            .arg(format!("--ipv4={SERVICE}/24"))
            .args(more);
        let running = start(&mut command)?;
        running.wait_for(&format!("{SERVICE}/24 on service"))?;
        Ok(running)
    }

    /// The stack is killed, and the next one has its tap and its link.
    fn restart(&mut self) -> Result<(), Failed> {
        kill(&mut self.served.running);
        self.served.running = Self::start(self.images, &self.tap, &self.sides[0], &[])?;
        Ok(())
    }

    /// A program on this stack's sockets.
    pub fn program(&self, program: &[&str]) -> Command {
        let mut command = Command::new(self.images.program("outboard"));
        command
            .args(["proxy", "--counts"])
            .arg(format!("--link={}", self.sides[1].value()))
            .arg("--")
            .args(program);
        command
    }

    /// Runs a program beside the stack, in the network of the host.
    pub fn beside(&self, program: &[&str]) -> Result<Ended, Failed> {
        let mut command = Command::new(program[0]);
        command.args(&program[1..]);
        self.served.segment.run(|| run(&mut command))
    }

    pub fn goes_on(self) -> Result<(), Failed> {
        self.served.goes_on()
    }
}

/// A folder with a file of a kilobyte, one of a megabyte, and what nginx is to do.
pub fn site() -> Result<TemporaryFolder, Failed> {
    let site = TemporaryFolder::new("site")?;
    for (name, len) in [("1k", 1 << 10), ("1m", 1 << 20)] {
        let bytes: Vec<u8> = (0..len).map(|n: u32| (n ^ n >> 7) as u8).collect();
        fs::write(site.path.join(name), bytes)?;
    }
    let folder = site.path.display();
    let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let paths: String = paths
        .iter()
        .map(|path| format!("{path}_temp_path {folder}/{path};\n"))
        .collect();
    let text = format!(
        "user root root; daemon off; worker_processes 2; pid {folder}/pid; error_log stderr;\n\
         events {{ worker_connections 512; }}\n\
         http {{ access_log off; sendfile on; {paths}\n\
         server {{ listen 80 reuseport; listen [::]:80 reuseport; root {folder}; }} }}\n"
    );
    fs::write(site.path.join("nginx.conf"), text)?;
    Ok(site)
}

/// nginx on a stack, once it serves.
fn start_nginx(stack: &Stack<'_>, site: &TemporaryFolder) -> Result<Running, Failed> {
    let config = site.path.join("nginx.conf");
    let nginx = start(&mut stack.program(&["nginx", "-c", &config.display().to_string()]))?;
    eventually(PATIENCE, || fetch(stack, site, "1k"))?;
    Ok(nginx)
}

/// Fetches a file and compares it.
pub fn fetch(stack: &Stack<'_>, site: &TemporaryFolder, name: &str) -> Result<(), Failed> {
    let to = site.path.join("fetched");
    let to_text = to.display().to_string();
    let url = format!("http://{SERVICE}/{name}");
    let curl = ["curl", "-sf", "--max-time", "10", "-o", &to_text, &url];
    stack.beside(&curl)?.expect_status(0)?;
    match fs::read(to)? == fs::read(site.path.join(name))? {
        true => Ok(()),
        false => Err(format!("{name} is not what was fetched").into()),
    }
}

/// Ends a program by the signal that ends such programs.
pub fn end(program: Running) -> Result<Ended, Failed> {
    program.signal(Signal::TERM);
    program.finish()
}

fn nginx(images: &Images) -> Result<(), Failed> {
    let (stack, site) = (Stack::new(images)?, site()?);
    let nginx = start_nginx(&stack, &site)?;
    fetch(&stack, &site, "1m")?;
    let url = format!("http://{SERVICE}/1k");
    let wrk = stack.beside(&["wrk", "-c", "32", "-t", "1", "-d", "1", &url])?;
    wrk.expect_status(0)?.expect_stdout("Requests/sec")?;
    if wrk.stdout.contains("Socket errors") || wrk.stdout.contains("Non-2xx") {
        return Err(format!("requests failed: {}", wrk.stdout).into());
    }
    end(nginx)?.expect_status(0)?;
    stack.goes_on()
}

fn redis(images: &Images) -> Result<(), Failed> {
    let stack = Stack::new(images)?;
    let redis =
        start(&mut stack.program(&["redis-server", "--save", "", "--protected-mode", "no"]))?;
    let address = SERVICE.to_string();
    let benchmark = |more: &[&str]| {
        let mut all = vec![
            "redis-benchmark",
            "-h",
            &address,
            "-q",
            "-n",
            "2000",
            "-t",
            "get,set",
        ];
        all.extend(more);
        stack
            .beside(&all)?
            .expect_status(0)?
            .expect_stdout("requests per second")?;
        Ok::<_, Failed>(())
    };
    // One that finds nobody tries for ever.
    let ping = ["redis-cli", "-h", &address, "ping"];
    eventually(PATIENCE, || {
        stack.beside(&ping)?.expect_stdout("PONG").map(drop)
    })?;
    benchmark(&[])?;
    benchmark(&["-P", "16"])?;
    end(redis)?.expect_status(0)?;
    stack.goes_on()
}

fn iperf3(images: &Images) -> Result<(), Failed> {
    let stack = Stack::new(images)?;
    let address = SERVICE.to_string();
    for more in [&[][..], &["-R"], &["-u", "-b", "20M", "-l", "1400"]] {
        let server = start(&mut stack.program(&["iperf3", "-s", "-1", "--forceflush"]))?;
        server.wait_for("Server listening")?;
        let mut client = vec!["iperf3", "-c", &address, "-t", "1", "-J"];
        client.extend(more);
        stack.beside(&client)?.expect_status(0)?;
        server.finish()?.expect_status(0)?;
    }
    stack.goes_on()
}

fn python(images: &Images) -> Result<(), Failed> {
    let (stack, site) = (Stack::new(images)?, site()?);
    let folder = site.path.display().to_string();
    let server = ["python3", "-m", "http.server", "80", "--directory", &folder];
    let server = start(&mut stack.program(&server))?;
    eventually(PATIENCE, || fetch(&stack, &site, "1m"))?;
    end(server)?;
    // Clients and their server, of one program.
    let text = "
import asyncio
async def serve(reader, writer):
    writer.write((await reader.readline()).upper()); await writer.drain(); writer.close()
async def ask(n):
    reader, writer = await asyncio.open_connection('127.0.0.1', 8055)
    writer.write(b'%d abc\\n' % n); got = await reader.read(); writer.close()
    return got == b'%d ABC\\n' % n
async def main():
    await asyncio.start_server(serve, '127.0.0.1', 8055)
    print(sum(await asyncio.gather(*[ask(n) for n in range(100)])), 'of 100')
asyncio.run(main())
";
    let ended = run(&mut stack.program(&["python3", "-c", text]))?;
    ended.expect_status(0)?.expect_stdout("100 of 100")?;
    stack.goes_on()
}

fn dig(images: &Images) -> Result<(), Failed> {
    let stack = Stack::new(images)?;
    let mut server = Command::new("dnsmasq");
    server.args([
        "--no-daemon",
        "--no-resolv",
        "--no-hosts",
        "--bind-interfaces",
    ]);
    server.args([
        "--listen-address=10.0.0.1",
        "--address=/name.test/192.0.2.7",
    ]);
    let server = stack.served.segment.run(|| start(&mut server))?;
    for how in ["+notcp", "+tcp"] {
        let dig = ["dig", "+short", how, "@10.0.0.1", "name.test"];
        eventually(PATIENCE, || {
            run(&mut stack.program(&dig))?
                .expect_stdout("192.0.2.7")
                .map(drop)
        })?;
    }
    server.signal(Signal::TERM);
    server.finish()?;
    stack.goes_on()
}

/// Nothing that the kernel has of networks, and no way around the filter.
fn no_other(images: &Images) -> Result<(), Failed> {
    let stack = Stack::new(images)?;
    let text = "
import ctypes, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def says(name, work):
    try: work(); print(name, 'worked')
    except OSError as error: print(name, error.errno)
says('packet', lambda: socket.socket(17, 3, 3))
says('raw', lambda: socket.socket(2, 3, 1))
says('vsock', lambda: socket.socket(40, 1, 0))
ring = libc.syscall(425, 8, 0); print('ring', ring, ctypes.get_errno())
print('interfaces', os.listdir('/sys/class/net') if os.path.isdir('/sys/class/net') else [])
print('names', [name for _, name in socket.if_nameindex()])
";
    let ended = run(&mut stack.program(&["python3", "-c", text]))?;
    ended.expect_status(0)?;
    for line in [
        "packet 97",
        "raw 1",
        "vsock 97",
        "ring -1 38",
        "names ['lo', 'eth0']",
    ] {
        ended.expect_stdout(line)?;
    }
    stack.goes_on()
}

/// Whatever a program has started ends with it, and with the proxy.
fn killed(images: &Images) -> Result<(), Failed> {
    let (stack, site) = (Stack::new(images)?, site()?);
    let nginx = start_nginx(&stack, &site)?;
    nginx.signal(Signal::KILL);
    nginx.finish()?;
    let config = site.path.join("nginx.conf").display().to_string();
    eventually(PATIENCE, || {
        let left = Command::new("pgrep").args(["-f", &config]).output()?;
        match left.stdout.is_empty() {
            true => Ok(()),
            false => Err(Failed::from("some process is left")),
        }
    })?;
    // The next program has the link, and the port.
    let nginx = start_nginx(&stack, &site)?;
    end(nginx)?.expect_status(0)?;
    stack.goes_on()
}

/// Bytes that a program writes before it closes and ends, to somebody who reads slowly.
fn written(images: &Images) -> Result<(), Failed> {
    const BYTES: usize = 4 << 20;
    let stack = Stack::new(images)?;
    let listener = stack
        .served
        .segment
        .run(|| std::net::TcpListener::bind("10.0.0.1:9"))?;
    let text = format!(
        "import socket\nwith socket.create_connection(('10.0.0.1', 9)) as one: \
         one.sendall(bytes(range(256)) * {})\n",
        BYTES / 256
    );
    let program = start(&mut stack.program(&["python3", "-c", &text]))?;
    let (mut connection, _) = listener.accept()?;
    connection.set_read_timeout(Some(PATIENCE))?;
    std::thread::sleep(Duration::from_secs(1));
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut connection, &mut bytes)?;
    program.finish()?.expect_status(0)?;
    let is_right = bytes.iter().zip((0..=255).cycle()).all(|(a, b)| *a == b);
    if bytes.len() != BYTES || !is_right {
        return Err(format!("{} bytes came, right: {is_right}", bytes.len()).into());
    }
    stack.goes_on()
}

fn next_stack(images: &Images) -> Result<(), Failed> {
    let (mut stack, site) = (Stack::new(images)?, site()?);
    let nginx = start_nginx(&stack, &site)?;
    for _ in 0..2 {
        stack.restart()?;
        eventually(PATIENCE, || fetch(&stack, &site, "1m"))?;
    }
    end(nginx)?.expect_status(0)?;
    stack.goes_on()
}

/// The same calls on the host's own sockets, by the kernel alone and through the proxy.
fn same_answers(images: &Images) -> Result<(), Failed> {
    let segment = Segment::new()?;
    segment.netlink(|netlink| netlink.set_up("lo"))?;
    let script = root().join("tests").join(CALLS).display().to_string();
    let mut alone = Command::new("python3");
    alone.arg(&script);
    let alone = segment.run(|| run(&mut alone))?;
    alone.expect_status(0)?.expect_stdout("the end")?;
    let mut through = Command::new(images.program("outboard"));
    through.args(["proxy", "--net=host", "--", "python3", &script]);
    let through = segment.run(|| run(&mut through))?;
    through.expect_status(0)?;
    for (a, b) in alone.stdout.lines().zip(through.stdout.lines()) {
        if a != b {
            return Err(format!("the kernel says {a:?}, the proxy {b:?}").into());
        }
    }
    through.expect_stdout("the end").map(drop)
}
