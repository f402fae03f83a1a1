//! A server and where its clients run: an image behind a tap, with a driver of its own or without,
//! or an image with Linux's sockets or a program on Linux, behind a cable.
//!
//! ```text
//!   client - Linux === tap  - the image on spt
//!   client - Linux === tap  - a software NIC - the image on spt, with the NIC's driver
//!   client - Linux === veth - Linux - the image on process
//!   client - Linux === veth - Linux - the program
//! ```

use std::io;
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use testbed::contender::{Error, Port, Process, spawn_nic};
use testbed::segment::{Address, Segment};

/// The client's address.
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// The server's.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// The client's interface.
pub const INTERFACE: &str = "eth0";
/// How long a server may take to answer its first connection.
const LISTENS: Duration = Duration::from_secs(10);
/// How long one attempt to connect may take, and how long it is until the next one.
const ATTEMPT: Duration = Duration::from_millis(100);

/// A server, and where its clients run.
#[derive(Debug)]
pub struct Served {
    /// Ends before what follows does.
    pub process: Option<Process>,
    /// The software NIC that it drives.
    pub nic: Option<Process>,
    /// Where clients run.
    pub client: Segment,
    /// What is behind the cable: Linux's side, or a bridge to the image's tap.
    pub server: Option<Segment>,
}

/// An interface of this address, with Ethernet's MTU.
pub const fn at(ip: Ipv4Addr) -> Address {
    Address {
        ip,
        prefix: 24,
        mtu: 1500,
    }
}

/// Starts an image with this `port`: `options` are the tender's, `words` the image's.
///
/// # Errors
/// The tender cannot be started.
pub fn start(
    tender: &Path,
    image: &Path,
    port: &Port,
    options: &[&str],
    words: &[&str],
) -> Result<Process, Error> {
    port.inherit(true)?;
    let started = Command::new(tender)
        .arg(format!("--die-with-parent={}", std::process::id()))
        .arg(port.option("service"))
        .args(options)
        .arg("--")
        .arg(image)
        .arg(format!("--ipv4={SERVER}/24"))
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn();
    let process = started.map_err(|error| Error::Spawn(tender.to_owned(), error))?;
    port.inherit(false)?;
    Ok(process.into())
}

/// The client's segment and the server's.
fn cabled() -> Result<(Segment, Segment), Error> {
    let (client, server) = (Segment::new()?, Segment::new()?);
    client.cable(INTERFACE, &server, INTERFACE)?;
    client.configure(INTERFACE, at(CLIENT))?;
    server.configure(INTERFACE, at(SERVER))?;
    Ok((client, server))
}

impl Served {
    /// An image behind a tap, which takes all offloads.
    ///
    /// # Errors
    /// What could not be made or started.
    pub fn image(
        tender: &Path,
        image: &Path,
        options: &[&str],
        words: &[&str],
    ) -> Result<Self, Error> {
        Self::on_tap(true, tender, image, options, words)
    }

    /// An image behind a tap that knows no offloads: no frame is longer than the MTU allows, and
    /// all have their checksums.
    ///
    /// # Errors
    /// What could not be made or started.
    pub fn on_plain_tap(
        tender: &Path,
        image: &Path,
        options: &[&str],
        words: &[&str],
    ) -> Result<Self, Error> {
        Self::on_tap(false, tender, image, options, words)
    }

    fn on_tap(
        vnet_header: bool,
        tender: &Path,
        image: &Path,
        options: &[&str],
        words: &[&str],
    ) -> Result<Self, Error> {
        let client = Segment::new()?;
        let tap = client.tap(INTERFACE, vnet_header, at(CLIENT))?;
        let process = start(tender, image, &Port::tap(tap), options, words)?;
        Ok(Self {
            process: Some(process),
            nic: None,
            client,
            server: None,
        })
    }

    /// An image that drives a software NIC, which is a command of `outboard` and has the tap.
    ///
    /// # Errors
    /// What could not be made or started.
    pub fn on_nic(
        outboard: &Path,
        tender: &Path,
        image: &Path,
        options: &[&str],
        words: &[&str],
    ) -> Result<Self, Error> {
        let client = Segment::new()?;
        let tap = client.tap(INTERFACE, true, at(CLIENT))?;
        let (port, nic) = spawn_nic(outboard, tap)?;
        let process = start(tender, image, &port, options, words)?;
        Ok(Self {
            process: Some(process),
            nic: Some(nic),
            client,
            server: None,
        })
    }

    /// An image that has the sockets of Linux, behind a cable. It has no jail, as nothing has that
    /// uses the host's sockets.
    ///
    /// # Errors
    /// What could not be made or started.
    pub fn on_sockets(
        tender: &Path,
        image: &Path,
        options: &[&str],
        words: &[&str],
    ) -> Result<Self, Error> {
        let (client, server) = cabled()?;
        let mut command = Command::new(tender);
        command
            .args(["--host=process", "--sockets:service=host"])
            .args(options)
            .arg("--")
            .arg(image)
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let started = server.run(|| command.spawn());
        let process = started.map_err(|error| Error::Spawn(tender.to_owned(), error))?;
        Ok(Self {
            process: Some(process.into()),
            nic: None,
            client,
            server: Some(server),
        })
    }

    /// Linux behind a cable, with no program yet.
    ///
    /// # Errors
    /// What could not be made.
    pub fn linux() -> Result<Self, Error> {
        let (client, server) = cabled()?;
        Ok(Self {
            process: None,
            nic: None,
            client,
            server: Some(server),
        })
    }

    /// Waits until the server takes a connection at `port`.
    ///
    /// # Errors
    /// It does not within ten seconds.
    pub fn listens(&self, port: u16) -> io::Result<()> {
        let begin = Instant::now();
        let to = (SERVER, port).into();
        loop {
            let connected = self.client.run(|| TcpStream::connect_timeout(&to, ATTEMPT));
            match connected {
                Ok(_) => return Ok(()),
                Err(error) if begin.elapsed() > LISTENS => return Err(error),
                Err(_) => thread::sleep(ATTEMPT),
            }
        }
    }
}
