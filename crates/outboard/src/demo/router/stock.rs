//! Programs that others wrote: dnsmasq, busybox's udhcpc, nslookup and httpd, curl and iperf3. Each
//! runs under `timeout`, so that none stays for long if this program is killed.

use super::super::error::Error;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde::Deserialize;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// What is needed, and the package of Debian that has it.
const PROGRAMS: [(&str, &str); 4] = [
    ("dnsmasq", "dnsmasq-base"),
    ("busybox", "busybox"),
    ("curl", "curl"),
    ("iperf3", "iperf3"),
];
/// How long a program may run, in seconds.
const LIMIT: &str = "600";

/// What curl is given to find somebody, in seconds.
const PATIENCE: &str = "5";

/// What is served: a file, and a program that says who asks.
const FILE: &str = "file";
const WHO: &str = "cgi-bin/who";
/// The servers' name.
const NAME: &str = "server.example";
/// Bytes of the file, and of it each second.
const FILE_BYTES: usize = 24 << 20;
pub const FILE_RATE: usize = 2 << 20;

/// What udhcpc runs: it gives the interface what was lent, and says what that is.
const SCRIPT: &str = "#!/bin/sh
[ \"$1\" = bound ] || exit 0
busybox ip address add \"$ip/$mask\" dev \"$interface\"
busybox ip route add default via \"$router\"
echo \"$ip/$mask $router\"
";
/// What the web server runs.
const WHO_SCRIPT: &str = "#!/bin/sh
printf 'Content-Type: text/plain\\r\\n\\r\\n%s' \"$REMOTE_ADDR\"
";

/// Whether all programs are there.
///
/// # Errors
/// One is not.
pub fn require() -> Result<(), Error> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // An ordinary user may have no path to what administrators use.
    let folders = || std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    for (program, package) in PROGRAMS {
        if !folders().any(|folder: PathBuf| folder.join(program).is_file()) {
            return Err(Error::NoProgram(program, package));
        }
    }
    Ok(())
}

/// A program that runs until this goes.
pub struct Helper(Child);

impl Drop for Helper {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.0.id().cast_signed()) {
            // `timeout` leads a group, to which the program belongs, unless it has just begun.
            let _ = kill_process_group(pid, Signal::KILL);
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

/// A program, in the network of this thread.
pub fn program(name: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args([LIMIT, name]).stdin(Stdio::null());
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin"));
    command
}

fn failed(command: &Command, error: io::Error) -> Error {
    Error::Spawn(command.get_program().into(), error)
}

/// Starts a program that says nothing.
pub fn started(command: &mut Command) -> Result<Helper, Error> {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().map_err(|e| failed(command, e))?;
    Ok(Helper(child))
}

/// What a program prints.
///
/// # Errors
/// It cannot be started, or fails.
pub fn finished(command: &mut Command) -> Result<String, Error> {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().map_err(|e| failed(command, e))?;
    let [stdout, stderr] = [stdout, stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    if status.success() {
        return Ok(stdout);
    }
    let words = command.get_args().map(|word| word.to_string_lossy());
    let words: Vec<_> = words.collect();
    Err(Error::Stock(
        words.join(" "),
        format!("{status}\n{}", stderr.trim()),
    ))
}

/// The address that a server of names has for [`NAME`].
pub fn nslookup(server: IpAddr) -> Result<Ipv4Addr, Error> {
    let mut command = program("busybox");
    command.args(["nslookup", "-type=a", NAME, &server.to_string()]);
    let said = finished(&mut command)?;
    // The server's own address comes first, with its port: the last one is the name's.
    let addresses = said
        .lines()
        .filter_map(|line| line.strip_prefix("Address: "));
    let found = addresses.filter_map(|address| address.trim().parse().ok());
    let last = found.last();
    last.ok_or_else(|| Error::Stock("nslookup".into(), said))
}

/// Lends addresses outside, and knows a name.
pub fn dnsmasq(folder: &Path, interface: &str, own: Ipv4Addr) -> Result<Helper, Error> {
    let [a, b, c, _] = own.octets();
    let mut command = program("dnsmasq");
    // It may have no right to be somebody else, and needs none.
    command
        .args([
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--pid-file=",
        ])
        .args([
            "--user=root",
            "--group=",
            "--no-ping",
            "--no-resolv",
            "--no-hosts",
        ])
        .args(["--bind-interfaces", &format!("--interface={interface}")])
        .arg(format!("--dhcp-range={a}.{b}.{c}.50,{a}.{b}.{c}.60,2m"))
        .arg(format!("--dhcp-option=option:router,{own}"))
        .arg(format!("--dhcp-option=option:dns-server,{own}"))
        .arg(format!("--address=/{NAME}/{own}"))
        .arg(format!("--dhcp-leasefile={}", leases(folder).display()));
    started(&mut command)
}

/// Where dnsmasq writes down what it has lent.
fn leases(folder: &Path) -> PathBuf {
    folder.join("leases")
}

/// What dnsmasq has lent, if anything: the third word of its file.
pub fn lent_outside(folder: &Path) -> Option<IpAddr> {
    let text = fs::read_to_string(leases(folder)).ok()?;
    text.split_whitespace().nth(2)?.parse().ok()
}

/// Asks for an address and gives it to the interface: what udhcpc was lent, and by which router.
pub fn udhcpc(folder: &Path, interface: &str) -> Result<Lent, Error> {
    let script = folder.join("udhcpc");
    write_program(&script, SCRIPT)?;
    let mut command = program("busybox");
    command
        .args(["udhcpc", "-f", "-q", "-n", "-t", "10", "-T", "1", "-i"])
        .arg(interface)
        .arg("-s")
        .arg(&script);
    let said = finished(&mut command)?;
    let line = said.lines().find_map(Lent::read);
    line.ok_or_else(|| Error::Stock("udhcpc".into(), "it was lent nothing".into()))
}

/// What a client was lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lent {
    pub address: Ipv4Addr,
    pub bits: u8,
    pub router: Ipv4Addr,
}

impl Lent {
    fn read(line: &str) -> Option<Self> {
        let (own, router) = line.split_once(' ')?;
        let (address, bits) = own.split_once('/')?;
        Some(Self {
            address: address.parse().ok()?,
            bits: bits.parse().ok()?,
            router: router.parse().ok()?,
        })
    }
}

fn write_program(path: &Path, text: &str) -> Result<(), Error> {
    let written = fs::write(path, text)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o755)));
    written.map_err(|e| Error::Io("cannot write a temporary file", e))
}

/// A folder with what web servers serve.
pub fn site(folder: &Path) -> Result<PathBuf, Error> {
    let site = folder.join("site");
    let made =
        fs::create_dir_all(site.join("cgi-bin")).and_then(|()| fs::write(site.join(FILE), file()));
    made.map_err(|e| Error::Io("cannot write a temporary file", e))?;
    write_program(&site.join(WHO), WHO_SCRIPT)?;
    Ok(site)
}

/// The file's bytes: no part of it is like another.
pub fn file() -> Vec<u8> {
    let words = (0..FILE_BYTES as u64 / 8).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    words.flat_map(u64::to_le_bytes).collect()
}

/// A web server in the network of this thread.
pub fn httpd(site: &Path) -> Result<Helper, Error> {
    let mut command = program("busybox");
    command.args(["httpd", "-f", "-p", "80", "-h"]).arg(site);
    started(&mut command)
}

/// Whom the web server at an address sees.
pub fn who(server: IpAddr, port: u16) -> Result<IpAddr, Error> {
    let mut command = program("curl");
    command
        .args(["--silent", "--show-error", "--fail", "--max-time", PATIENCE])
        .args(["--retry", "3", "--retry-connrefused"])
        .arg(url(server, port, WHO));
    let said = finished(&mut command)?;
    let address = said.trim().trim_matches(['[', ']']);
    let parsed: Result<IpAddr, _> = address.parse();
    let address = parsed.map_err(|_| Error::Stock("curl".into(), format!("{said:?} is nobody")))?;
    Ok(address.to_canonical())
}

/// Fetches the file, slowly, into another one.
pub fn fetch(server: IpAddr, into: &Path) -> Command {
    let mut command = program("curl");
    command
        .args(["--silent", "--show-error", "--fail", "--limit-rate"])
        .arg(FILE_RATE.to_string())
        .arg("--output")
        .arg(into)
        .arg(url(server, 80, FILE));
    command
}

fn url(server: IpAddr, port: u16, path: &str) -> String {
    format!("http://{}/{path}", std::net::SocketAddr::new(server, port))
}

/// A server of iperf3 for one client.
pub fn iperf3_server(port: u16) -> Result<Helper, Error> {
    let mut command = program("iperf3");
    command.args(["--server", "--one-off", "--json", "--interval", "0.1"]);
    started(command.args(["--port", &port.to_string()]))
}

/// A client of iperf3 that sends for so long.
pub fn iperf3(server: IpAddr, port: u16, time: Duration) -> Command {
    let mut command = program("iperf3");
    command
        .args(["--json", "--get-server-output", "--interval", "0.1"])
        .args(["--client", &server.to_string(), "--port", &port.to_string()])
        .args(["--time", &time.as_secs().to_string()]);
    command
}

/// What iperf3 says, as far as it matters here.
#[derive(Debug, Deserialize)]
pub struct Iperf3 {
    error: Option<String>,
    server_output_json: Option<Measured>,
}

/// What the one who receives has measured.
#[derive(Debug, Deserialize)]
struct Measured {
    intervals: Vec<Interval>,
}

#[derive(Debug, Deserialize)]
struct Interval {
    sum: Sum,
}

#[derive(Debug, Deserialize)]
struct Sum {
    start: f64,
    end: f64,
    bytes: u64,
}

/// Bytes that have arrived from one time to another, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrived {
    pub from: f64,
    pub to: f64,
    pub bytes: u64,
}

impl Iperf3 {
    /// What has arrived.
    ///
    /// # Errors
    /// The connection was lost.
    pub fn read(said: &str) -> Result<Vec<Arrived>, String> {
        let read: Self = serde_json::from_str(said).map_err(|e| e.to_string())?;
        if let Some(error) = read.error {
            return Err(error);
        }
        let measured = read.server_output_json.ok_or("its server says nothing")?;
        let all = measured
            .intervals
            .into_iter()
            .map(|Interval { sum }| Arrived {
                from: sum.start,
                to: sum.end,
                bytes: sum.bytes,
            });
        Ok(all.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_udhcpc_was_lent_is_read() {
        let lent = Lent::read("10.0.0.100/24 10.0.0.1").unwrap();
        assert_eq!((lent.bits, lent.router), (24, Ipv4Addr::new(10, 0, 0, 1)));
        for line in [
            "",
            "udhcpc: started, v1.35.0",
            "/24 10.0.0.1",
            "10.0.0.1/24 ",
        ] {
            assert_eq!(Lent::read(line), None);
        }
    }

    #[test]
    fn what_arrived_is_the_servers_word() {
        let said = r#"{"intervals": [], "server_output_json": {"intervals":
            [{"sum": {"start": 0, "end": 0.1, "bytes": 7}, "streams": []}]}}"#;
        let expected = Arrived {
            from: 0.0,
            to: 0.1,
            bytes: 7,
        };
        assert_eq!(Iperf3::read(said), Ok(vec![expected]));
        let lost = r#"{"error": "control socket has closed unexpectedly"}"#;
        let said = Iperf3::read(lost).unwrap_err();
        assert_eq!(said, "control socket has closed unexpectedly");
        assert!(Iperf3::read("{}").is_err() && Iperf3::read("x").is_err());
    }
}
