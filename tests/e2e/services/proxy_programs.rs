//! More stock programs on the sockets of a stack in an image, as servers and as clients.

use super::SERVICE;
use super::proxy::{PATIENCE, Stack, end, site, trials_of};
use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::process::{Running, run, run_with, start};
use crate::harness::programs;
use crate::harness::temporary::TemporaryFolder;
use crate::harness::wait::eventually;
use libtest_mimic::{Failed, Trial};
use rustix::process::Signal;
use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where Debian has PostgreSQL's programs, each version in a folder of its own.
const POSTGRES: &str = "/usr/lib/postgresql";
/// Who runs what root may not.
const NOBODY: [&str; 4] = [
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
];

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let mut trials = trials_of(
        images,
        network,
        &[
            ("dnsmasq answers", &["dnsmasq", "dig"], dnsmasq),
            (
                "a program sees the stack's addresses and resolvers",
                &["python3", "ip"],
                sight,
            ),
            (
                "datagrams stay here that do so on Linux, and a queue has twice its length",
                &["python3"],
                destinations,
            ),
            (
                "programs that need no network do as without",
                &["echo", "dd"],
                without_network,
            ),
            ("sshd serves", &["sshd", "ssh", "ssh-keygen"], sshd),
            (
                "clients ask",
                &["curl", "wrk", "redis-server", "redis-benchmark", "python3"],
                clients,
            ),
        ],
    );
    let missing = programs::missing(&["psql"]).or_else(|| network.root());
    let missing = missing.or_else(|| postgres_folder().is_none().then_some(NO_POSTGRES));
    let name = "proxy::postgres serves".to_owned();
    trials.push(network.trial_unless(missing, name, move || postgres(images)));
    trials
}

/// A server of names that binds each version of IP by itself, asks for addresses by netlink(7),
/// and by `IP_PKTINFO` where a question went.
fn dnsmasq(images: &Images) -> Result<(), Failed> {
    let stack = Stack::new(images)?;
    let server = start(&mut stack.program(&[
        "dnsmasq",
        "--no-daemon",
        "--no-resolv",
        "--no-hosts",
        "--user=",
        "--address=/name.test/192.0.2.7",
    ]))?;
    let at = format!("@{SERVICE}");
    for how in ["+notcp", "+tcp"] {
        let dig = ["dig", "+short", "+time=2", how, &at, "name.test"];
        eventually(PATIENCE, || {
            stack.beside(&dig)?.expect_stdout("192.0.2.7").map(drop)
        })?;
    }
    end(server)?;
    stack.goes_on()
}

fn sight(images: &Images) -> Result<(), Failed> {
    let stack = Stack::with(images, &["--dns=10.0.0.1"])?;
    let text = "
import fcntl, socket, struct, subprocess
one = socket.socket(2, 2)
asked = struct.pack('256s', b'eth0')
print('by ioctl', socket.inet_ntoa(fcntl.ioctl(one, 0x8915, asked)[20:24]))
print('by netlink', subprocess.check_output(['ip', '-4', '-o', 'addr', 'show', 'eth0']).split()[3])
print('resolver', open('/etc/resolv.conf').read().split())
one.bind(('', 5000))
one.setsockopt(0, 8, 1)
for to in ('10.0.0.2', '127.0.0.1'):
    socket.socket(2, 2).sendto(b'x', (to, 5000))
    _, control, _, _ = one.recvmsg(9, 99)
    number, own, went = struct.unpack('=i4s4s', control[0][2])
    print(to, socket.if_indextoname(number), socket.inet_ntoa(own) == socket.inet_ntoa(went) == to)
";
    let ended = run(&mut stack.program(&["python3", "-c", text]))?;
    ended.expect_status(0)?;
    for line in [
        "by ioctl 10.0.0.2",
        "by netlink b'10.0.0.2/24'",
        "resolver ['nameserver', '10.0.0.1']",
        "10.0.0.2 eth0 True",
        "127.0.0.1 lo True",
    ] {
        ended.expect_stdout(line)?;
    }
    stack.goes_on()
}

fn without_network(images: &Images) -> Result<(), Failed> {
    let (stack, site) = (Stack::new(images)?, site()?);
    let ended = run(&mut stack.program(&["echo", "hello, world"]))?;
    ended.expect_status(0)?.expect_stdout("hello, world\n")?;
    let path = |name: &str| site.path.join(name);
    let (from, to) = (path("1m"), path("copied"));
    let words = [
        format!("if={}", from.display()),
        format!("of={}", to.display()),
    ];
    run(&mut stack.program(&["dd", &words[0], &words[1]]))?.expect_status(0)?;
    match fs::read(from)? == fs::read(to)? {
        true => stack.goes_on(),
        false => Err("dd has copied something else".into()),
    }
}

/// Where Linux sends datagrams, and where it has no route for them (ip(7); RFC 1122, 3.2.1.3 g);
/// and how many connections a queue takes that the stack and the kernel have half each.
fn destinations(images: &Images) -> Result<(), Failed> {
    let stack = Stack::new(images)?;
    let text = "
import socket
def bound(ip):
    one = socket.socket(2, 2); one.bind((ip, 0)); one.settimeout(5); return one
def says(name, work):
    try: print(name, work())
    except OSError as error: print(name, error.errno)
for ip, to in (('10.0.0.2', '10.0.0.2'), ('127.0.0.1', '127.0.0.1'), ('', '127.0.0.1')):
    one = bound(ip)
    one.sendto(b'x', ('0.0.0.0', one.getsockname()[1]))
    print('from', ip, one.recvfrom(9)[1] == (to, one.getsockname()[1]))
    one.connect(('0.0.0.0', 7))
    print('peer of', ip, one.getpeername())
listener = socket.create_server(('127.0.0.1', 0), backlog=1)
open = [socket.create_connection(listener.getsockname(), 5) for _ in range(4)]
print('queue of 2 has', len(open))
says('sent', lambda: bound('127.0.0.1').sendto(b'x', ('10.0.0.1', 9)))
says('connected', lambda: bound('127.0.0.1').connect(('10.0.0.1', 9)))
says('to own', lambda: bound('127.0.0.1').sendto(b'x', ('10.0.0.2', 9)))
";
    let ended = run(&mut stack.program(&["python3", "-c", text]))?;
    ended.expect_status(0)?;
    for line in [
        "from 10.0.0.2 True",
        "from 127.0.0.1 True",
        "from  True",
        "peer of 10.0.0.2 ('10.0.0.2', 7)",
        "peer of 127.0.0.1 ('127.0.0.1', 7)",
        "peer of  ('127.0.0.1', 7)",
        "queue of 2 has 4",
        "sent 22",
        "connected 22",
        "to own 1",
    ] {
        ended.expect_stdout(line)?;
    }
    stack.goes_on()
}

/// It forks for each connection, gives up rights, and hands descriptors on.
fn sshd(images: &Images) -> Result<(), Failed> {
    const BYTES: usize = 32 << 10;
    let (stack, folder) = (Stack::new(images)?, TemporaryFolder::new("sshd")?);
    let path = |name: &str| folder.path.join(name).display().to_string();
    for name in ["host", "key"] {
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-f", &path(name)]);
        run(&mut keygen)?.expect_status(0)?;
    }
    // Where root's sshd has a process without rights; Debian's unit makes it.
    let _ = fs::create_dir_all("/run/sshd");
    let keys = format!("AuthorizedKeysFile={}", path("key.pub"));
    let sshd = programs_path("sshd")?;
    let (host, sshd) = (path("host"), sshd.display().to_string());
    let mut command = vec![
        &*sshd,
        "-D",
        "-e",
        "-p",
        "22",
        "-h",
        &host,
        "-f",
        "/dev/null",
    ];
    for option in ["PidFile=none", "UsePAM=yes", "StrictModes=no", &keys] {
        command.extend(["-o", option]);
    }
    let server = start(&mut stack.program(&command))?;
    eventually(PATIENCE, || listens(&stack, 22))?;
    let typed = "0123456789abcdef".repeat(BYTES / 16);
    let (key, to) = (path("key"), format!("root@{SERVICE}"));
    for _ in 0..2 {
        let mut client = Command::new("ssh");
        client.args(["-i", &key, "-o", "StrictHostKeyChecking=no"]);
        client.args([
            "-o",
            "UserKnownHostsFile=/dev/null",
            "-o",
            "BatchMode=yes",
            &to,
        ]);
        client.arg("echo $SSH_CONNECTION; wc -c");
        let ended = stack.served.segment.run(|| run_with(&mut client, &typed))?;
        ended.expect_status(0)?.expect_stdout("10.0.0.2 22")?;
        ended.expect_stdout(&BYTES.to_string())?;
    }
    end(server)?;
    stack.goes_on()
}

/// Why PostgreSQL is not tried.
const NO_POSTGRES: &str = "needs postgres: sudo apt-get install postgresql";

fn postgres_folder() -> Option<PathBuf> {
    let versions = fs::read_dir(POSTGRES).ok()?;
    let mut folders = versions.filter_map(|version| Some(version.ok()?.path().join("bin")));
    folders.find(|folder| folder.join("postgres").is_file())
}

/// Several processes for each connection, one that accepts, and shared memory; not as root.
fn postgres(images: &Images) -> Result<(), Failed> {
    let programs = postgres_folder().ok_or(NO_POSTGRES)?;
    let program = |name: &str| programs.join(name).display().to_string();
    let (stack, folder) = (Stack::new(images)?, TemporaryFolder::new("postgres")?);
    fs::set_permissions(&folder.path, fs::Permissions::from_mode(0o777))?;
    let (data, own) = (folder.path.join("data"), folder.path.display().to_string());
    let data = data.display().to_string();
    let mut init = Command::new(NOBODY[0]);
    init.args(&NOBODY[1..]).arg(program("initdb"));
    init.args(["--no-sync", "-A", "trust", "-U", "test", "-D", &data]);
    run(&mut init)?.expect_status(0)?;
    let trusted = format!("host all all {SERVICE}/24 trust\n");
    let rules = Path::new(&data).join("pg_hba.conf");
    fs::write(&rules, fs::read_to_string(&rules)? + &trusted)?;
    let postgres = program("postgres");
    let mut command = NOBODY.to_vec();
    command.extend([&*postgres, "-D", &data, "-k", &own]);
    command.extend(["-c", "listen_addresses=*", "-c", "fsync=off"]);
    let server = start(&mut stack.program(&command))?;
    let address = SERVICE.to_string();
    let ask = |sql: &str| {
        stack.beside(&[
            "psql", "-h", &address, "-U", "test", "postgres", "-Atc", sql,
        ])
    };
    eventually(PATIENCE, || {
        ask("select 6 * 7")?.expect_stdout("42").map(drop)
    })?;
    ask("create table one as select n from generate_series(1, 10000) n")?.expect_status(0)?;
    ask("select sum(n) from one")?.expect_stdout("50005000")?;
    // A megabyte of rows.
    let rows = ask("select repeat('x', 1000) from generate_series(1, 1000)")?;
    if rows.expect_status(0)?.stdout.len() != 1001 * 1000 {
        return Err(format!("{} bytes of rows", rows.stdout.len()).into());
    }
    server.signal(Signal::INT);
    server.finish()?.expect_status(0)?;
    stack.goes_on()
}

/// Programs that open connections, to servers that have no proxy.
fn clients(images: &Images) -> Result<(), Failed> {
    let (stack, site) = (Stack::new(images)?, site()?);
    let folder = site.path.display().to_string();
    let beside = |program: &[&str]| -> Result<Running, Failed> {
        let mut command = Command::new(program[0]);
        command.args(&program[1..]);
        stack.served.segment.run(|| start(&mut command))
    };
    let web = beside(&[
        "python3",
        "-m",
        "http.server",
        "8000",
        "--directory",
        &folder,
    ])?;
    let redis = beside(&["redis-server", "--save", "", "--protected-mode", "no"])?;
    let to = site.path.join("fetched");
    let to_text = to.display().to_string();
    let curl = ["curl", "-sf", "-o", &to_text, "http://10.0.0.1:8000/1m"];
    eventually(PATIENCE, || {
        run(&mut stack.program(&curl))?.expect_status(0).map(drop)
    })?;
    if fs::read(&to)? != fs::read(site.path.join("1m"))? {
        return Err("1m is not what was fetched".into());
    }
    let wrk = [
        "wrk",
        "-c",
        "4",
        "-t",
        "2",
        "-d",
        "1",
        "http://10.0.0.1:8000/1k",
    ];
    let wrk = run(&mut stack.program(&wrk))?;
    wrk.expect_status(0)?.expect_stdout("Requests/sec")?;
    let benchmark = [
        "redis-benchmark",
        "-h",
        "10.0.0.1",
        "-q",
        "-n",
        "500",
        "-t",
        "get,set",
    ];
    let benchmark = run(&mut stack.program(&benchmark))?;
    benchmark
        .expect_status(0)?
        .expect_stdout("requests per second")?;
    end(web)?;
    end(redis)?;
    stack.goes_on()
}

/// Whether somebody accepts connections at a port of the stack's.
fn listens(stack: &Stack<'_>, port: u16) -> Result<(), Failed> {
    let connected = stack
        .served
        .segment
        .run(|| TcpStream::connect((SERVICE, port)));
    connected.map(drop).map_err(Failed::from)
}

/// Where a program is: sshd wants to know that of itself.
fn programs_path(name: &str) -> Result<PathBuf, Failed> {
    let found = programs::find_on(&std::env::var_os("PATH").unwrap_or_default(), name);
    found.ok_or_else(|| format!("no {name} on the PATH").into())
}
