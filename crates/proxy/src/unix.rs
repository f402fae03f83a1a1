//! What a program has in the place of a socket of IP: one of the kernel's own between processes
//! (unix(7)), at whose other end we are.
//!
//! It is made without an end, as the program's `socket` returns it. A later `connect` or `listen`
//! is done in place, on a duplicate: number, flags and whatever waits for it stay the program's.
//! The sockets have names of a network namespace in which only this process is. A name says which
//! socket it is, and by a name we see whether anybody still has it.

use crate::option::Transport;
use net::socket::Ends;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_send_buffer_size, socket_send_buffer_size};
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    getpeername, getsockname, listen, send, socket_with,
};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

/// Connections that wait at the meeting point: we take each one at once.
const MEETING_BACKLOG: i32 = 64;
/// A socket can be written while what was written and not read is less than this part of its
/// buffer (Linux's `unix_writable`).
const WRITABLE_PART: usize = 4;
/// More than that, for what the kernel counts beside the bytes.
const FILLER_MORE: usize = 16 << 10;
/// What the names of those who send in a peer's name begin with.
const SENDER: char = 'a';
/// What a program may leave unread: the most that the kernel allows, mostly 416 KiB.
const UNREAD_BYTES: usize = 1 << 20;
/// Zeros in front of what a program writes.
static FILLER: [u8; 1 << 20] = [0; 1 << 20];

/// Which end of a pair has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The program's.
    Program,
    /// Ours, of a connection that came to it.
    Ours,
    /// Ours, of datagrams.
    Datagrams,
}

impl End {
    fn letter(self) -> char {
        match self {
            Self::Program => 'p',
            Self::Ours => 'o',
            Self::Datagrams => 'd',
        }
    }
}

/// The name of an end of socket `id`.
///
/// # Errors
/// None: it is short enough.
pub fn name(end: End, id: u64) -> Result<SocketAddrUnix, Errno> {
    of_ours(format_args!("{}{id:x}", end.letter()))
}

/// A name that no other process uses for its program.
fn of_ours(name: std::fmt::Arguments<'_>) -> Result<SocketAddrUnix, Errno> {
    let name = format!("outboard/{:x}/{name}", std::process::id());
    SocketAddrUnix::new_abstract_name(name.as_bytes())
}

/// What a name of ours says.
fn said(address: &SocketAddrUnix) -> Option<&str> {
    let name = std::str::from_utf8(address.abstract_name()?).ok()?;
    Some(name.rsplit_once('/')?.1)
}

/// Which socket has this name at this end.
fn id(end: End, address: &SocketAddrUnix) -> Option<u64> {
    u64::from_str_radix(said(address)?.strip_prefix(end.letter())?, 16).ok()
}

fn kind(transport: Transport) -> SocketType {
    match transport {
        Transport::Stream => SocketType::STREAM,
        Transport::Datagrams => SocketType::DGRAM,
    }
}

/// A socket that is end `end` of socket `id`.
///
/// # Errors
/// `EADDRINUSE` if there is one; `EMFILE`, `ENFILE`.
pub fn make(
    transport: Transport,
    end: End,
    id: u64,
    does_not_block: bool,
) -> Result<OwnedFd, Errno> {
    let mut flags = SocketFlags::CLOEXEC;
    if does_not_block {
        flags |= SocketFlags::NONBLOCK;
    }
    let socket = socket_with(AddressFamily::UNIX, kind(transport), flags, None)?;
    bind(&socket, &name(end, id)?)?;
    if end != End::Program {
        widen(&socket);
    }
    Ok(socket)
}

/// Has more of what we send through this socket wait for the program. The kernel says late that
/// there is room again ([`WRITABLE_PART`]): until we are there, the program has something to read.
fn widen(ours: &OwnedFd) {
    // Where that is not allowed, less waits.
    let _ = set_socket_send_buffer_size(ours, UNREAD_BYTES);
}

/// A socket that sends datagrams to socket `to` in the name of who has sent them, and of our
/// address that they went to.
///
/// # Errors
/// `EMFILE`, `ENFILE`.
pub fn sender(to: u64, ends: Ends) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    let [from, at] = [ends.from.ip(), ends.to].map(bits);
    let port = ends.from.port();
    // As numbers, so that the longest ones fit into a name.
    let name = of_ours(format_args!("{SENDER}{to:x},{from:x},{port:x},{at:x}"))?;
    bind(&socket, &name)?;
    widen(&socket);
    Ok(socket)
}

/// In whose name a datagram was sent.
pub fn sent_by(sender: &SocketAddrUnix) -> Option<Ends> {
    let (_, ends) = said(sender)?.strip_prefix(SENDER)?.split_once(',')?;
    let mut numbers = ends.split(',').map(|text| u128::from_str_radix(text, 16));
    let mut next = || numbers.next()?.ok();
    let (from, port, to) = (ip(next()?), u16::try_from(next()?).ok()?, ip(next()?));
    let from = SocketAddr::new(from, port);
    Some(Ends { from, to })
}

/// An address as a number.
fn bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

fn ip(bits: u128) -> IpAddr {
    IpAddr::from(Ipv6Addr::from_bits(bits)).to_canonical()
}

/// The name of a socket.
///
/// # Errors
/// What the kernel says.
pub fn own_name(socket: &OwnedFd) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::try_from(getsockname(socket)?)
}

/// Whether anybody has the program's end of socket `id`.
pub fn is_alive(transport: Transport, id: u64) -> bool {
    // Where no descriptor is left, nobody is taken to be gone.
    make(transport, End::Program, id, true).is_err()
}

/// Where programs' connections and our ends of them meet.
pub struct Meeting {
    listener: OwnedFd,
    name: SocketAddrUnix,
}

impl Meeting {
    /// A new one.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new() -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let name = of_ours(format_args!("meeting"))?;
        bind(&listener, &name)?;
        listen(&listener, MEETING_BACKLOG)?;
        Ok(Self { listener, name })
    }

    /// Connects socket `id`, of which `program` is a duplicate; our end of it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn join(&self, program: &OwnedFd, id: u64) -> Result<OwnedFd, Errno> {
        connect(program, &self.name)?;
        for _ in 0..=MEETING_BACKLOG {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let ours = accept_with(&self.listener, flags)?;
            if peer(&ours, End::Program) == Some(id) {
                widen(&ours);
                return Ok(ours);
            }
            // Whoever else has found the way here is not wanted.
        }
        Err(Errno::CONNABORTED)
    }
}

/// Which socket is at the other end of this one.
pub fn peer(socket: &OwnedFd, end: End) -> Option<u64> {
    let address = getpeername(socket).ok()??;
    id(end, &SocketAddrUnix::try_from(address).ok()?)
}

/// Has the program's listening socket `listener` see a connection, which is `id`; our end of it.
///
/// # Errors
/// `EAGAIN` if no more may wait there, `ECONNREFUSED` if nobody listens any more.
pub fn offer(listener: u64, id: u64) -> Result<OwnedFd, Errno> {
    let ours = make(Transport::Stream, End::Ours, id, true)?;
    connect(&ours, &name(End::Program, listener)?)?;
    Ok(ours)
}

/// Takes a connection off a program's listening socket, for the program; `EAGAIN` if there is none.
/// Nobody else takes any: the kernel passes each such call to us.
///
/// # Errors
/// What the kernel says.
pub fn take(listener: &OwnedFd, does_not_block: bool) -> Result<OwnedFd, Errno> {
    if !is_ready(listener, PollFlags::IN)? {
        return Err(Errno::AGAIN);
    }
    let mut flags = SocketFlags::CLOEXEC;
    if does_not_block {
        flags |= SocketFlags::NONBLOCK;
    }
    accept_with(listener, flags)
}

/// Whether a socket is ready now.
///
/// # Errors
/// What the kernel says.
pub fn is_ready(socket: impl AsFd, flags: PollFlags) -> Result<bool, Errno> {
    let mut ready = [PollFd::new(&socket, flags)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    Ok(poll(&mut ready, Some(&now))? > 0)
}

/// Writes zeros into a connected socket until it cannot be written, as one whose connection is not
/// open yet; how many, which are the first that come out at the other end.
///
/// # Errors
/// What the kernel says.
pub fn fill(program: &OwnedFd) -> Result<usize, Errno> {
    let room = socket_send_buffer_size(program)?;
    let count = (room / WRITABLE_PART + FILLER_MORE).min(FILLER.len());
    send(
        program,
        &FILLER[..count],
        SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{RecvFlags, recv};

    #[test]
    fn a_name_says_which_socket_it_is() {
        for end in [End::Program, End::Ours] {
            let address = name(end, 0xfeed).unwrap();
            assert_eq!(id(end, &address), Some(0xfeed));
        }
        assert_eq!(id(End::Ours, &name(End::Program, 1).unwrap()), None);
        assert_eq!(id(End::Ours, &SocketAddrUnix::new_unnamed()), None);
    }

    #[test]
    fn a_connection_that_is_not_open_cannot_be_written_and_strangers_have_none() {
        let meeting = Meeting::new().unwrap();
        let program = make(Transport::Stream, End::Program, 1, true).unwrap();
        let ours = meeting.join(&program, 1).unwrap();
        assert!(is_ready(&program, PollFlags::OUT).unwrap());
        let count = fill(&program).unwrap();
        assert!(!is_ready(&program, PollFlags::OUT).unwrap());
        let mut place = vec![0; count];
        let (read, _) = recv(&ours, &mut *place, RecvFlags::empty()).unwrap();
        assert_eq!(read, count);
        assert!(is_ready(&program, PollFlags::OUT).unwrap());
        // Whoever else has found the way here is turned away.
        let stranger = make(Transport::Stream, End::Program, 2, true).unwrap();
        connect(&stranger, &meeting.name).unwrap();
        let program = make(Transport::Stream, End::Program, 3, true).unwrap();
        let ours = meeting.join(&program, 3).unwrap();
        assert_eq!(peer(&ours, End::Program), Some(3));
        assert!(is_ready(&stranger, PollFlags::HUP).unwrap());
    }

    #[test]
    fn who_is_gone_is_seen_by_its_name() {
        for transport in [Transport::Stream, Transport::Datagrams] {
            let program = make(transport, End::Program, 7, false).unwrap();
            assert!(is_alive(transport, 7));
            drop(program);
            assert!(!is_alive(transport, 7));
        }
    }

    #[test]
    fn a_connection_that_comes_is_known_by_our_ends_name() {
        let listener = make(Transport::Stream, End::Program, 11, false).unwrap();
        assert_eq!(offer(11, 12).unwrap_err(), Errno::CONNREFUSED);
        listen(&listener, 1).unwrap();
        assert_eq!(take(&listener, false).unwrap_err(), Errno::AGAIN);
        let ours = offer(11, 12).unwrap();
        let theirs = take(&listener, false).unwrap();
        assert_eq!(peer(&theirs, End::Ours), Some(12));
        drop(ours);
        assert!(is_ready(&theirs, PollFlags::IN).unwrap());
    }

    #[test]
    fn a_datagram_says_in_whose_name_it_was_sent() {
        let program = make(Transport::Datagrams, End::Program, 21, true).unwrap();
        let long = "[fffe:ffff:ffff:ffff:ffff:ffff:ffff:fffe]:65535";
        for peer in ["192.0.2.1:53", "[2001:db8::1]:53", long] {
            let from: SocketAddr = peer.parse().unwrap();
            let to = from.ip();
            let ends = Ends { from, to };
            let sender = sender(21, ends).unwrap();
            let to = name(End::Program, 21).unwrap();
            rustix::net::sendto(&sender, b"hello", SendFlags::empty(), &to).unwrap();
            let mut place = [0; 9];
            let received = rustix::net::recvfrom(&program, &mut place[..], RecvFlags::TRUNC);
            let (count, _, from) = received.unwrap();
            assert_eq!(count, 5);
            let from = SocketAddrUnix::try_from(from.unwrap()).unwrap();
            assert_eq!(sent_by(&from), Some(ends));
        }
    }
}
