//! Calls that name addresses: sendto(2), recvfrom(2), sendmsg(2), recvmsg(2), and those with many
//! messages.

use crate::address::{Family, Named, STORAGE_BYTES};
use crate::caller::Caller;
use crate::calls::blocks;
use crate::control::{self, Said};
use crate::datagrams::DATAGRAM_MAX;
use crate::fill::Fillable;
use crate::filter::number;
use crate::house::{Found, House};
use crate::option::Transport;
use rustix::io::Errno;
use rustix::net::sockopt::Timeout;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::task::Poll;

/// Flags: Linux's `include/linux/socket.h`.
const PEEK: i32 = 0x2;
const CTRUNC: i32 = 0x8;
const TRUNC: i32 = 0x20;
const ERRQUEUE: i32 = 0x2000;
const DONTWAIT: i32 = 0x40;
/// Parts of a message, and messages of a call: `UIO_MAXIOV`.
const PARTS_MAX: u64 = 1024;
/// Bytes of `struct msghdr`, of `struct mmsghdr`, and of `struct iovec`.
const HEADER_BYTES: usize = 56;
const MANY_BYTES: u64 = 64;
const PART_BYTES: u64 = 16;
/// Where they have what is written back.
const NAME_LEN_AT: u64 = 8;
const CONTROL_LEN_AT: u64 = 40;
const FLAGS_AT: u64 = 48;
const COUNT_AT: u64 = 56;

/// Answers a call that moves bytes and may name an address.
pub fn answer<S: Fillable>(house: &Rc<House<S>>, caller: Caller, found: Found) {
    // The kernel does it for connections, whose peers need no name.
    if found.socket.transport == Transport::Stream {
        return house.pass_on(&caller);
    }
    let task = house.clone();
    let of = caller.clone();
    let flags = match caller.number() {
        number::SENDTO | number::RECVFROM | number::SENDMMSG | number::RECVMMSG => caller.int(3),
        _ => caller.int(2),
    };
    let work = async move {
        match of.number() {
            number::SENDTO => send_to(&task, &of, &found).await,
            number::SENDMSG => send_message(&task, &of, &found, of.argument(1)).await,
            number::SENDMMSG => send_many(&task, &of, &found).await,
            number::RECVFROM => {
                let message = Message::plain(&of);
                receive(&task, &of, &found, &message?, flags, true).await
            }
            number::RECVMSG => {
                let message = Message::read(&of, of.argument(1))?;
                receive(&task, &of, &found, &message, flags, true).await
            }
            number::RECVMMSG => receive_many(&task, &of, &found, flags).await,
            _ => Err(Errno::NOSYS),
        }
    };
    house.hold(caller, work);
}

/// A message as a call names it.
struct Message {
    name_at: u64,
    name_len: i32,
    /// Where the length of the name is written back.
    name_len_at: u64,
    /// Addresses and lengths.
    parts: Vec<(u64, usize)>,
    /// The header, if there is one.
    header_at: Option<u64>,
    /// Where control messages are, or have room, and how much: none, if nowhere.
    control_at: u64,
    control_len: usize,
}

impl Message {
    /// That of recvfrom(2) and sendto(2).
    fn plain(caller: &Caller) -> Result<Self, Errno> {
        let len = usize::try_from(caller.argument(2)).map_err(|_| Errno::INVAL)?;
        Ok(Self {
            name_at: caller.argument(4),
            name_len: caller.int(5),
            name_len_at: caller.argument(5),
            parts: vec![(caller.argument(1), len.min(DATAGRAM_MAX + 1))],
            header_at: None,
            control_at: 0,
            control_len: 0,
        })
    }

    /// That with the header at `at`: `struct msghdr`, sendmsg(2).
    fn read(caller: &Caller, at: u64) -> Result<Self, Errno> {
        let mut header = [0; HEADER_BYTES];
        caller.read(at, &mut header)?;
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&header[at..at + 8]);
            u64::from_ne_bytes(bytes)
        };
        let (name_at, name_len) = (word(0), word(8) as i32);
        if name_at != 0 && name_len < 0 {
            return Err(Errno::INVAL);
        }
        let (parts_at, count) = (word(16), word(24));
        if count > PARTS_MAX {
            return Err(Errno::MSGSIZE);
        }
        let mut bytes = vec![0; (count * PART_BYTES) as usize];
        caller.read(parts_at, &mut bytes)?;
        let mut parts = Vec::new();
        let mut left = DATAGRAM_MAX + 1;
        for part in bytes.chunks_exact(PART_BYTES as usize) {
            let (address, len) = part.split_at(8);
            let number = |bytes: &[u8]| {
                let mut number = [0; 8];
                number.copy_from_slice(bytes);
                u64::from_ne_bytes(number)
            };
            // More than a datagram has is neither sent nor received.
            let len = usize::try_from(number(len)).unwrap_or(usize::MAX).min(left);
            left -= len;
            parts.push((number(address), len));
        }
        Ok(Self {
            name_at,
            name_len: name_len.min(STORAGE_BYTES as i32),
            name_len_at: at.wrapping_add(NAME_LEN_AT),
            parts,
            header_at: Some(at),
            control_at: word(32),
            control_len: match word(32) {
                0 => 0,
                _ => usize::try_from(word(40)).unwrap_or(usize::MAX),
            },
        })
    }

    /// From where the caller wants to send it, if it says so.
    fn source(&self, caller: &Caller, family: Family) -> Result<Option<IpAddr>, Errno> {
        if self.control_len > control::BYTES_MAX {
            return Err(Errno::NOBUFS);
        }
        let mut bytes = vec![0; self.control_len];
        caller.read(self.control_at, &mut bytes)?;
        control::source(family, &bytes)
    }

    /// All bytes that the caller wants to send.
    fn bytes(&self, caller: &Caller) -> Result<Vec<u8>, Errno> {
        let len: usize = self.parts.iter().map(|(_, len)| len).sum();
        if len > DATAGRAM_MAX {
            return Err(Errno::MSGSIZE);
        }
        let mut bytes = vec![0; len];
        let mut rest = &mut bytes[..];
        for (at, len) in &self.parts {
            let (place, behind) = std::mem::take(&mut rest).split_at_mut(*len);
            caller.read(*at, place)?;
            rest = behind;
        }
        Ok(bytes)
    }

    /// Gives the caller these bytes.
    fn give(&self, caller: &Caller, mut bytes: &[u8]) -> Result<(), Errno> {
        for (at, len) in &self.parts {
            let (first, rest) = bytes.split_at(bytes.len().min(*len));
            caller.write(*at, first)?;
            bytes = rest;
        }
        Ok(())
    }
}

async fn send_to<S: Fillable>(
    house: &Rc<House<S>>,
    caller: &Caller,
    found: &Found,
) -> Result<i64, Errno> {
    send(house, caller, found, &Message::plain(caller)?).await
}

async fn send_message<S: Fillable>(
    house: &Rc<House<S>>,
    caller: &Caller,
    found: &Found,
    at: u64,
) -> Result<i64, Errno> {
    send(house, caller, found, &Message::read(caller, at)?).await
}

/// Sends a message; how many bytes it had.
async fn send<S: Fillable>(
    house: &Rc<House<S>>,
    caller: &Caller,
    found: &Found,
    message: &Message,
) -> Result<i64, Errno> {
    let socket = &found.socket;
    let named = match message.name_at {
        0 => None,
        at => match caller.address(socket.family, at, message.name_len)? {
            Named::Address(address) => Some(address),
            Named::Nothing => None,
        },
    };
    let to: SocketAddr = named.or(socket.peer.get()).ok_or(Errno::DESTADDRREQ)?;
    let bytes = message.bytes(caller)?;
    let from = message.source(caller, socket.family)?;
    if let Some(errno) = socket.error.take() {
        return Err(errno);
    }
    let datagrams = house.datagrams(socket).await?;
    let to = house.destination(to, from.unwrap_or(datagrams.local()))?;
    match datagrams.send(&bytes, from, to) {
        // Linux drops what finds no room as well, on its way out.
        Ok(()) | Err(Errno::NOBUFS) => Ok(bytes.len() as i64),
        Err(errno) => Err(errno),
    }
}

/// sendmmsg(2)
async fn send_many<S: Fillable>(
    house: &Rc<House<S>>,
    caller: &Caller,
    found: &Found,
) -> Result<i64, Errno> {
    let count = caller.argument(2).min(PARTS_MAX);
    for index in 0..count {
        let at = caller.argument(1).wrapping_add(index * MANY_BYTES);
        let sent = match send_message(house, caller, found, at).await {
            Ok(sent) => sent,
            Err(errno) if index == 0 => return Err(errno),
            Err(_) => return Ok(index as i64),
        };
        caller.write(at.wrapping_add(COUNT_AT), &(sent as u32).to_ne_bytes())?;
    }
    Ok(count as i64)
}

/// Receives a message; how many bytes it had.
async fn receive<S: Fillable>(
    house: &Rc<House<S>>,
    caller: &Caller,
    found: &Found,
    message: &Message,
    flags: i32,
    may_wait: bool,
) -> Result<i64, Errno> {
    let socket = &found.socket;
    // Nothing is ever noted of a datagram that was sent (ip(7), IP_RECVERR).
    if flags & ERRQUEUE != 0 {
        return Err(Errno::AGAIN);
    }
    // Who receives first is at a port that the stack chooses.
    house.datagrams(socket).await?;
    let room: usize = message.parts.iter().map(|(_, len)| len).sum();
    let mut place = vec![0; room];
    let waits = may_wait && flags & DONTWAIT == 0 && blocks(&found.program);
    let arrived =
        poll_fn(
            |context| match house.take_datagram(found, &mut place, flags & PEEK != 0) {
                Err(Errno::AGAIN) => match socket.error.take() {
                    Some(errno) => Poll::Ready(Err(errno)),
                    None if waits => {
                        socket.wait(context.waker());
                        Poll::Pending
                    }
                    None => Poll::Ready(Err(Errno::AGAIN)),
                },
                done => Poll::Ready(done),
            },
        );
    let arrived = house.within(&found.program, Timeout::Recv, Errno::AGAIN, arrived);
    let arrived = arrived.await?;
    message.give(caller, &place[..arrived.count])?;
    let from = arrived
        .from
        .unwrap_or(SocketAddr::new(socket.family.any(), 0));
    if message.name_at != 0 {
        caller.show(socket.family, from, message.name_at, message.name_len_at)?;
    }
    let is_cut = arrived.whole > arrived.count;
    if let Some(at) = message.header_at {
        let wanted = socket.options.borrow().wanted();
        let (interface, room) = (house.interface(arrived.to), message.control_len);
        let said = Said::new(socket.family, wanted, arrived.to, interface, room);
        caller.write(message.control_at, &said.bytes)?;
        let shown = if is_cut { TRUNC } else { 0 } | if said.is_cut { CTRUNC } else { 0 };
        let len = said.bytes.len() as u64;
        caller.write(at.wrapping_add(CONTROL_LEN_AT), &len.to_ne_bytes())?;
        caller.write(at.wrapping_add(FLAGS_AT), &shown.to_ne_bytes())?;
    }
    Ok(match flags & TRUNC {
        0 => arrived.count as i64,
        _ => arrived.whole as i64,
    })
}

/// recvmmsg(2), which waits for the first message alone, as with `MSG_WAITFORONE`.
async fn receive_many<S: Fillable>(
    house: &Rc<House<S>>,
    caller: &Caller,
    found: &Found,
    flags: i32,
) -> Result<i64, Errno> {
    let count = caller.argument(2).min(PARTS_MAX);
    for index in 0..count {
        let at = caller.argument(1).wrapping_add(index * MANY_BYTES);
        let message = Message::read(caller, at)?;
        let received = receive(house, caller, found, &message, flags, index == 0).await;
        let received = match received {
            Ok(received) => received,
            Err(errno) if index == 0 => return Err(errno),
            Err(_) => return Ok(index as i64),
        };
        caller.write(at.wrapping_add(COUNT_AT), &(received as u32).to_ne_bytes())?;
    }
    Ok(count as i64)
}
