//! An MTU that the host changes while an image runs: what both sides send follows, and a connection
//! that is in the middle of it loses no byte.

use super::{OUR_SIDE, PATIENCE, Port, SERVICE, Served, serve_by};
use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::runtime::Runtime;
use libtest_mimic::{Failed, Trial};
use linux::interface::Interfaces;
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, recv, socket_with};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// The tap of [`super::tap`].
const TAP: &str = "tap0";
/// Bytes of an Ethernet header, and of those of IPv4 and UDP.
const ETHERNET: usize = 14;
const HEADERS: usize = 28;
/// What goes through a connection at a time.
const CHUNK: usize = 300_000;
/// More than any frame here.
const FRAME: usize = 1 << 16;
/// What a socket may hold that is read now and then.
const BUFFER: usize = 8 << 20;
/// All protocols (`ETH_P_ALL`), as the network has it.
const ALL: u32 = 3_u16.to_be() as u32;

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let mut trials = Vec::new();
    for host in ["spt", "process"] {
        let name = format!("mtu::it changes while the image runs::{host}");
        trials.push(network.trial(name, move || changes(images, host)));
        let name = format!("mtu::large frames follow it::{host}");
        trials.push(network.trial(name, move || large_frames(images, host)));
    }
    trials
}

/// `echo` under the monitor, which tells it of changes.
fn echo(images: &Images, runtime: &Runtime, host: &str, port: &Port) -> Result<Served, Failed> {
    let command = runtime.outboard(images, &["run", &format!("--host={host}")]);
    serve_by(command, port, &images.echo, &[])
}

fn set(served: &Served, mtu: usize) -> Result<(), Failed> {
    let mtu = u32::try_from(mtu)?;
    Ok(served
        .segment
        .netlink(|netlink| netlink.set_mtu(TAP, mtu))?)
}

fn connect(served: &Served) -> Result<TcpStream, Failed> {
    let stream = served.segment.run(|| TcpStream::connect((SERVICE, 7)))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// All bytes come back as they were, while `meanwhile` is called now and then.
fn round(
    stream: &mut TcpStream,
    len: usize,
    mut meanwhile: impl FnMut(usize) -> Result<(), Failed>,
) -> Result<(), Failed> {
    let sent: Vec<u8> = (0..len).map(|n| (n / 251 + n % 251) as u8).collect();
    let mut writer = stream.try_clone()?;
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| writer.write_all(&sent));
        let mut place = [0; 10_000];
        let mut at = 0;
        while at < len {
            let count = match stream.read(&mut place) {
                // By a signal, as there is a time limit (`signal(7)`).
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                count => count?,
            };
            if count == 0 || sent.get(at..at + count) != Some(&place[..count]) {
                return Err(format!("other bytes than were sent, behind {at} of {len}").into());
            }
            at += count;
            meanwhile(at)?;
        }
        Ok(writing.join().expect("it does not panic")?)
    })
}

/// What crosses the tap.
struct Seen {
    socket: OwnedFd,
    /// Linux's address there.
    linux: [u8; 6],
}

/// Bytes of the longest frame of Linux and of the image, without Ethernet's header.
type Longest = [usize; 2];

impl Seen {
    fn new(served: &Served) -> Result<Self, Failed> {
        served.segment.run(|| {
            let protocol = NonZeroU32::new(ALL).map(Protocol::from_raw);
            let flags = SocketFlags::CLOEXEC;
            let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, protocol)?;
            set_socket_recv_buffer_size(&socket, BUFFER)?;
            let linux = Interfaces::here()?.mac(TAP)?;
            Ok(Self { socket, linux })
        })
    }

    /// Of what has crossed since the last time that somebody asked.
    fn longest(&self, mut so_far: Longest) -> Result<Longest, Failed> {
        let mut frame = vec![0; FRAME];
        loop {
            match recv(&self.socket, &mut frame, RecvFlags::DONTWAIT) {
                Ok((_, len)) if len > ETHERNET => {
                    let image = usize::from(frame[6..12] != self.linux);
                    so_far[image] = so_far[image].max(len - ETHERNET);
                }
                Ok(_) => {}
                Err(Errno::AGAIN) => return Ok(so_far),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Repeats `work` until it finds what is expected: the image learns of a change a little later.
fn eventually(
    what: &str,
    expected: Longest,
    mut work: impl FnMut() -> Result<Longest, Failed>,
) -> Result<(), Failed> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = work()?;
        if found == expected {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("{what}: {found:?} and not {expected:?}").into());
        }
    }
}

/// The longest frames of a connection in which something goes both ways.
fn of_connection(
    seen: &Seen,
    stream: &mut TcpStream,
    what: &str,
    mtu: usize,
) -> Result<(), Failed> {
    eventually(&format!("a connection {what}"), [mtu; 2], || {
        seen.longest([0; 2])?;
        let mut longest = [0; 2];
        round(stream, CHUNK, |_| {
            longest = seen.longest(longest)?;
            Ok(())
        })?;
        Ok(longest)
    })
}

/// The longest frames of a datagram with so many bytes that comes back.
fn of_datagram(seen: &Seen, socket: &UdpSocket, len: usize, expected: usize) -> Result<(), Failed> {
    let sent = vec![7; len];
    let mut place = vec![0; FRAME];
    eventually(&format!("{len} bytes"), [expected; 2], || {
        seen.longest([0; 2])?;
        socket.send_to(&sent, (SERVICE, 7))?;
        let count = socket.recv(&mut place)?;
        if place[..count] != sent {
            return Err("another datagram came back".into());
        }
        seen.longest([0; 2])
    })
}

/// Frames without offloads are what a wire would carry.
fn changes(images: &Images, host: &str) -> Result<(), Failed> {
    let runtime = Runtime::new()?;
    let port = Port {
        mtu: 9000,
        vnet_header: false,
    };
    let served = echo(images, &runtime, host, &port)?;
    let seen = Seen::new(&served)?;
    let socket = served.segment.run(|| UdpSocket::bind((OUR_SIDE, 0)))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut old = connect(&served)?;
    of_connection(&seen, &mut old, "opened at 9000, at 9000", 9000)?;
    // The least of IPv4 on many links, Ethernet's, and what a tap carries at most.
    for mtu in [576, 1500, 9000, 65_521, 1500] {
        set(&served, mtu)?;
        of_connection(&seen, &mut old, "opened at 9000", mtu.min(9000))?;
        of_datagram(&seen, &socket, mtu - HEADERS, mtu)?;
        // The image knows it: a connection that is opened now agrees on what is carried now.
        of_connection(&seen, &mut connect(&served)?, "that is new", mtu)?;
        // One more byte takes two packets, whose lengths are multiples of eight but for the last.
        if mtu < 65_000 {
            let fragment = (mtu - 20) / 8 * 8 + 20;
            of_datagram(&seen, &socket, mtu - HEADERS + 1, fragment)?;
        }
    }
    // In the middle of a transfer.
    let mtus = [576, 9000, 1500, 8999, 700];
    let mut left = mtus.iter().zip(1..);
    let mut next = left.next();
    let part = 1_000_000;
    round(&mut old, (mtus.len() + 1) * part, |at| {
        if let Some((mtu, number)) = next
            && at > number * part
        {
            next = left.next();
            set(&served, *mtu)?;
        }
        Ok(())
    })?;
    served.goes_on()
}

/// With offloads, the kernel cuts what it gets, at the length that the image says.
fn large_frames(images: &Images, host: &str) -> Result<(), Failed> {
    let runtime = Runtime::new()?;
    let port = Port {
        mtu: 9000,
        vnet_header: true,
    };
    let served = echo(images, &runtime, host, &port)?;
    let mut stream = connect(&served)?;
    for mtu in [576, 9000, 1500, 68, 9000] {
        set(&served, mtu)?;
        round(&mut stream, 1_000_000, |_| Ok(()))?;
    }
    served.goes_on()
}
