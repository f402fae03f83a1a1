//! Where a program may run.

use super::{ALONE, HOSTS, OURS, Programs, SLIRP};
use crate::http::behind_cable;
use crate::served::{CLIENT, INTERFACE, Served, at};
use linux::link;
use serde_json::json;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{fs, thread};
use testbed::contender::{self, Port, Process};
use testbed::segment::Segment;

/// Slots of each end of the link, as manifests have them that say nothing.
const SLOTS: usize = image::manifest::SLOTS as usize;
/// Guest memory.
const MEMORY: &str = "--mem=128";
/// How long slirp4netns may take to listen for orders, in steps.
const READY: (u32, Duration) = (100, Duration::from_millis(50));

/// A program and its arguments where this contender has it, listening at a port. The second process
/// is to end before the first one.
///
/// # Errors
/// What could not be made or started.
pub fn start(
    name: &str,
    programs: &Programs,
    words: &[OsString],
    port: u16,
) -> Result<(Served, Option<Process>), contender::Error> {
    let command = |first: &Path, words: &[&str]| {
        let mut command = Command::new(first);
        command.args(words).stdout(Stdio::null());
        command
    };
    let served = match name {
        OURS => {
            let (served, program) = on_stack(programs, words)?;
            return Ok((served, Some(program)));
        }
        HOSTS => {
            let mut proxy = command(&programs.outboard, &["proxy", "--net=host", "--"]);
            proxy.args(words);
            behind_cable(proxy)?
        }
        ALONE => {
            let mut program = command(Path::new(&words[0]), &[]);
            program.args(&words[1..]);
            behind_cable(program)?
        }
        _ => on_slirp(words, &[("tcp", port)])?,
    };
    Ok((served, None))
}

/// A program and its arguments, on the sockets of a stack in an image, which is jailed. The program
/// is to end before the stack does.
pub fn on_stack(
    programs: &Programs,
    program: &[OsString],
) -> Result<(Served, Process), contender::Error> {
    let client = Segment::new()?;
    let tap = client.tap(INTERFACE, true, at(CLIENT))?;
    let io = |error: io::Error| contender::Error::Spawn(programs.outboard.clone(), error);
    let [theirs, ours] = link::make([SLOTS; 2]).map_err(io)?;
    theirs.inherit().and_then(|()| ours.inherit()).map_err(io)?;
    let link = format!("--link:app={}", theirs.value());
    let options = ["--host=spt", MEMORY, &link];
    let port = Port::tap(tap);
    let process = crate::served::start(&programs.tender, &programs.image, &port, &options, &[])?;
    let program = Command::new(&programs.outboard)
        .arg("proxy")
        .arg(format!("--link={}", ours.value()))
        .arg("--")
        .args(program)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn();
    let served = Served {
        process: Some(process),
        nic: None,
        client,
        server: None,
    };
    Ok((served, program.map_err(io)?.into()))
}

/// A program in a network of its own, which slirp4netns joins to the server's: it passes on what
/// comes to these ports.
pub fn on_slirp(words: &[OsString], passed: &[(&str, u16)]) -> Result<Served, contender::Error> {
    let failed = |error| contender::Error::Spawn(SLIRP.into(), error);
    let mut program = Command::new("unshare");
    program.arg("--net").args(words).stdout(Stdio::null());
    let mut served = behind_cable(program)?;
    let id = served.process.as_ref().map_or(0, Process::id);
    let orders = std::env::temp_dir().join(format!("outboard-bench-{}.slirp", std::process::id()));
    // The last one's.
    let _ = fs::remove_file(&orders);
    // Until `unshare` is the program, its network is the server's.
    thread::sleep(READY.1 * 4);
    let mut slirp = Command::new(SLIRP);
    slirp.args(["--configure", "--mtu=65520", "--api-socket"]);
    slirp.arg(&orders).arg(id.to_string()).arg("tap0");
    slirp.stdin(Stdio::null()).stdout(Stdio::null());
    slirp.stderr(Stdio::null());
    let started = match &served.server {
        Some(segment) => segment.run(|| slirp.spawn()),
        None => slirp.spawn(),
    };
    served.nic = Some(started.map_err(failed)?.into());
    for port in passed {
        order(&orders, *port).map_err(failed)?;
    }
    fs::remove_file(&orders).map_err(failed)?;
    Ok(served)
}

/// Has slirp4netns pass on what comes to the port.
fn order(orders: &Path, (protocol, port): (&str, u16)) -> io::Result<()> {
    let order = json!({"execute": "add_hostfwd", "arguments": {
        "proto": protocol, "host_addr": "0.0.0.0", "host_port": port, "guest_port": port,
    }});
    let mut steps = 0;
    let mut socket = loop {
        match UnixStream::connect(orders) {
            Ok(socket) => break socket,
            Err(error) if steps == READY.0 => return Err(error),
            Err(_) => thread::sleep(READY.1),
        }
        steps += 1;
    };
    socket.write_all(order.to_string().as_bytes())?;
    socket.shutdown(std::net::Shutdown::Write)?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer)?;
    match answer.contains("\"return\"") {
        true => Ok(()),
        false => Err(io::Error::other(answer)),
    }
}
