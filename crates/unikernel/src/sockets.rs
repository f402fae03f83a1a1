//! The system calls of sockets, on the host `process`: there is no jail, and the kernel checks each
//! argument.

use crate::spt::{EpollEvent, call, epoll_wait};
use abi::spt::socket_call::{
    ACCEPT4, BIND, CLOSE, CONNECT, EPOLL_CTL, GETSOCKNAME, GETSOCKOPT, LISTEN, RECVFROM, SENDMSG,
    SETSOCKOPT, SHUTDOWN, SOCKET,
};
use abi::spt::syscall::{MSG_NOSIGNAL, SENDTO};
use core::net::SocketAddr;
use ports::sockets::numbers::{self, ADD, CLOSE_ON_EXEC, ERROR, INFO, LEVEL_IPV6};
use ports::sockets::numbers::{LEVEL_SOCKET, LEVEL_TCP, NON_BLOCKING, REUSE_ADDRESS};
use ports::sockets::numbers::{Message, NOBODY, Piece, REUSE_PORT, V6_ONLY, WRITES};
use ports::sockets::{ADDRESS_BYTES, Event, FAMILY_V4, FAMILY_V6};
use ports::sockets::{SocketCalls, Transport, from_kernel, to_kernel};
use ports::{Errno, Handle};

/// Events taken in one call.
const EVENTS_MAX: usize = 64;

/// The sockets of this process.
pub(crate) struct Sockets;

/// Sets an option that is a number.
fn set(socket: Handle, level: usize, option: usize, value: u32) -> Result<(), Errno> {
    let place = (&raw const value).addr();
    let arguments = [socket.0 as usize, level, option, place, size_of::<u32>(), 0];
    // SAFETY: the kernel reads one number there.
    unsafe { call(SETSOCKOPT, arguments) }.map(drop)
}

/// Reads an option into `place`; how many bytes of it there are.
fn get(socket: Handle, level: usize, option: usize, place: &mut [u8]) -> Result<usize, Errno> {
    let mut len = place.len() as u32;
    let places = (place.as_mut_ptr().addr(), (&raw mut len).addr());
    let arguments = [socket.0 as usize, level, option, places.0, places.1, 0];
    // SAFETY: the kernel writes at most that many bytes there, and how many they are.
    unsafe { call(GETSOCKOPT, arguments) }?;
    Ok(len as usize)
}

/// Calls that are given an address.
#[repr(u64)]
enum Addressed {
    Bind = BIND,
    Connect = CONNECT,
}

fn addressed(number: Addressed, socket: Handle, address: SocketAddr) -> Result<(), Errno> {
    let (bytes, len) = to_kernel(address);
    let arguments = [socket.0 as usize, bytes.as_ptr().addr(), len, 0, 0, 0];
    // SAFETY: the kernel reads an address there, of that length.
    unsafe { call(number as u64, arguments) }.map(drop)
}

/// Calls that are given a number, or nothing, and touch no memory.
#[repr(u64)]
enum Plain {
    Listen = LISTEN,
    Shutdown = SHUTDOWN,
    Close = CLOSE,
}

fn plain(number: Plain, socket: Handle, argument: usize) -> Result<(), Errno> {
    // SAFETY: no pointer is passed.
    unsafe { call(number as u64, [socket.0 as usize, argument, 0, 0, 0, 0]) }.map(drop)
}

impl SocketCalls for Sockets {
    fn open(&self, transport: Transport, local: SocketAddr) -> Result<Handle, Errno> {
        let family = match local {
            SocketAddr::V4(_) => FAMILY_V4,
            SocketAddr::V6(_) => FAMILY_V6,
        };
        let kind = numbers::kind(transport);
        // SAFETY: the call takes no address.
        let socket = unsafe { call(SOCKET, [family.into(), kind, 0, 0, 0, 0]) };
        socket.map(|number| Handle(number as i32))
    }

    fn bind(&self, socket: Handle, local: SocketAddr) -> Result<(), Errno> {
        if local.is_ipv6() {
            set(socket, LEVEL_IPV6, V6_ONLY, 0)?;
        }
        addressed(Addressed::Bind, socket, local)
    }

    fn share_port(&self, socket: Handle) -> Result<(), Errno> {
        set(socket, LEVEL_SOCKET, REUSE_PORT, 1)
    }

    fn listen(&self, socket: Handle, local: SocketAddr, backlog: usize) -> Result<(), Errno> {
        // Of datagrams, two sockets would share what comes.
        set(socket, LEVEL_SOCKET, REUSE_ADDRESS, 1)?;
        self.bind(socket, local)?;
        plain(Plain::Listen, socket, backlog.min(i32::MAX as usize))
    }

    fn accept(&self, socket: Handle) -> Result<(Handle, SocketAddr), Errno> {
        let (mut bytes, mut len) = ([0u8; ADDRESS_BYTES], ADDRESS_BYTES as u32);
        let places = (bytes.as_mut_ptr().addr(), (&raw mut len).addr());
        let flags = NON_BLOCKING | CLOSE_ON_EXEC;
        let arguments = [socket.0 as usize, places.0, places.1, flags, 0, 0];
        // SAFETY: the kernel writes an address of at most that length, and its length.
        let accepted = Handle(unsafe { call(ACCEPT4, arguments) }? as i32);
        let Some(peer) = from_kernel(&bytes) else {
            self.close(accepted);
            return Err(Errno::NO_FAMILY);
        };
        Ok((accepted, peer))
    }

    fn connect(&self, socket: Handle, remote: SocketAddr) -> Result<(), Errno> {
        addressed(Addressed::Connect, socket, remote)
    }

    fn error(&self, socket: Handle) -> Result<(), Errno> {
        let mut error = [0; size_of::<i32>()];
        get(socket, LEVEL_SOCKET, ERROR, &mut error)?;
        match i32::from_ne_bytes(error) {
            0 => Ok(()),
            error => Err(Errno(error)),
        }
    }

    fn local(&self, socket: Handle) -> Result<SocketAddr, Errno> {
        let (mut bytes, mut len) = ([0u8; ADDRESS_BYTES], ADDRESS_BYTES as u32);
        let places = (bytes.as_mut_ptr().addr(), (&raw mut len).addr());
        let arguments = [socket.0 as usize, places.0, places.1, 0, 0, 0];
        // SAFETY: the kernel writes an address of at most that length, and its length.
        unsafe { call(GETSOCKNAME, arguments) }?;
        from_kernel(&bytes).ok_or(Errno::NO_FAMILY)
    }

    fn receive(&self, socket: Handle, place: &mut [u8]) -> Result<usize, Errno> {
        let (address, len) = (place.as_mut_ptr().addr(), place.len());
        let arguments = [socket.0 as usize, address, len, 0, 0, 0];
        // SAFETY: the place is ours to be written for its whole length.
        unsafe { call(RECVFROM, arguments) }
    }

    fn send(&self, socket: Handle, bytes: &[u8]) -> Result<usize, Errno> {
        let (address, flags) = (bytes.as_ptr().addr(), MSG_NOSIGNAL as usize);
        let arguments = [socket.0 as usize, address, bytes.len(), flags, 0, 0];
        // SAFETY: the bytes are ours to be read for their whole length; there is no address.
        unsafe { call(SENDTO, arguments) }
    }

    fn send_vectored(&self, socket: Handle, slices: &[&[u8]]) -> Result<usize, Errno> {
        let pieces = Piece::of(slices);
        let message = Message::of(&pieces, slices.len());
        let (place, flags) = ((&raw const message).addr(), MSG_NOSIGNAL as usize);
        // SAFETY: the kernel reads the message, as many pieces as it says, and the bytes of each,
        // which are ours to be read for their whole length; there is no address and no control.
        unsafe { call(SENDMSG, [socket.0 as usize, place, flags, 0, 0, 0]) }
    }

    fn receive_from(&self, socket: Handle, place: &mut [u8]) -> Result<(usize, SocketAddr), Errno> {
        let (mut bytes, mut len) = ([0u8; ADDRESS_BYTES], ADDRESS_BYTES as u32);
        let places = (bytes.as_mut_ptr().addr(), (&raw mut len).addr());
        let address = place.as_mut_ptr().addr();
        let arguments = [
            socket.0 as usize,
            address,
            place.len(),
            0,
            places.0,
            places.1,
        ];
        // SAFETY: the place is ours to be written for its whole length; beside it the kernel writes
        // an address of at most that length, and its length.
        let count = unsafe { call(RECVFROM, arguments) }?;
        let from = from_kernel(&bytes).ok_or(Errno::NO_FAMILY);
        from.map(|from| (count.min(place.len()), from))
    }

    fn send_to(&self, socket: Handle, bytes: &[u8], to: SocketAddr) -> Result<(), Errno> {
        let (destination, len) = to_kernel(to);
        let (address, flags) = (bytes.as_ptr().addr(), MSG_NOSIGNAL as usize);
        let destination = destination.as_ptr().addr();
        let arguments = [
            socket.0 as usize,
            address,
            bytes.len(),
            flags,
            destination,
            len,
        ];
        // SAFETY: the bytes are ours to be read for their whole length, and so is the address.
        unsafe { call(SENDTO, arguments) }.map(drop)
    }

    fn shutdown(&self, socket: Handle) {
        // Who has gone is told nothing.
        let _ = plain(Plain::Shutdown, socket, WRITES);
    }

    fn abort(&self, socket: Handle) {
        let place = NOBODY.as_ptr().addr();
        let arguments = [socket.0 as usize, place, NOBODY.len(), 0, 0, 0];
        // SAFETY: the kernel reads an address there, of that length. Who has gone is told nothing.
        let _ = unsafe { call(CONNECT, arguments) };
    }

    fn set_option(&self, socket: Handle, level: usize, option: usize, value: u32) {
        // Those who ask for these lose no bytes without them.
        let _ = set(socket, level, option, value);
    }

    fn tcp_info(&self, socket: Handle, place: &mut [u8]) -> Result<usize, Errno> {
        get(socket, LEVEL_TCP, INFO, place)
    }

    fn watch(&self, events: Handle, socket: Handle, number: u32) -> Result<(), Errno> {
        let event = EpollEvent {
            events: numbers::WATCHED,
            data: number.into(),
        };
        let place = (&raw const event).addr();
        let arguments = [events.0 as usize, ADD, socket.0 as usize, place, 0, 0];
        // SAFETY: the kernel reads one event there.
        unsafe { call(EPOLL_CTL, arguments) }.map(drop)
    }

    fn events(&self, set: Handle, events: &mut [Event]) -> usize {
        let mut taken = [EpollEvent { events: 0, data: 0 }; EVENTS_MAX];
        let most = events.len().min(EVENTS_MAX);
        let count = epoll_wait(set.0, &mut taken[..most], false);
        for (event, taken) in events.iter_mut().zip(&taken[..count]) {
            let EpollEvent { events, data } = *taken;
            *event = numbers::event(events, data);
        }
        count
    }

    fn close(&self, socket: Handle) {
        // The descriptor is gone whatever the kernel says (close(2)).
        let _ = plain(Plain::Close, socket, 0);
    }
}
