//! The calls of a program, answered: socket(2), bind(2), connect(2), and so on.
//!
//! Numbers and pointers of a call are anything until they were looked at. What is none of ours, the
//! kernel does: it says itself what is wrong with it.

use crate::address::{Family, Named, destination};
use crate::caller::Caller;
use crate::error;
use crate::fill::Fillable;
use crate::filter::{LIST, number};
use crate::house::{Found, House, Refused};
use crate::message;
use crate::option::{self, Effect, Shown, Transport};
use crate::socket::{Place, Socket, State};
use crate::{stream, unix};
use linux::interface::ASKED_BYTES;
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, socket_error};
use rustix::net::{SocketFlags, listen};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::task::Poll;

/// Types of sockets and what may be set with them: socket(2).
const TYPE_MASK: i32 = 0xf;
const STREAM: i32 = 1;
const DGRAM: i32 = 2;
const RAW: i32 = 3;
/// Protocols: `/etc/protocols`.
const TCP: i32 = 6;
const UDP: i32 = 17;
/// Most connections that may wait: `net.core.somaxconn`.
const BACKLOG_MAX: i32 = 4096;

/// Answers a call.
pub fn answer<S: Fillable>(house: &Rc<House<S>>, caller: Caller) {
    let call = caller.number();
    match call {
        number::SOCKET => return make(house, &caller),
        number::IO_URING_SETUP | number::IO_URING_ENTER | number::IO_URING_REGISTER => {
            house.refuse(Refused::Call(call));
            return caller.finish(Err(Errno::NOSYS));
        }
        _ => {}
    }
    let found = match house.find(&caller, caller.int(0)) {
        Ok(Some(found)) => found,
        Ok(None) => return house.pass_on(&caller),
        Err(errno) => return caller.finish(Err(errno)),
    };
    let socket = &found.socket;
    match call {
        number::BIND => bind(house, caller, found),
        number::LISTEN => start_listening(house, caller, found),
        number::CONNECT => connect(house, caller, found),
        number::ACCEPT => accept(house, caller, found, 0),
        number::ACCEPT4 => {
            let flags = caller.int(3);
            accept(house, caller, found, flags);
        }
        number::IOCTL => caller.finish(ask(house, &caller)),
        number::GETSOCKNAME => caller.finish(own_name(&caller, socket)),
        number::GETPEERNAME => caller.finish(peer_name(&caller, socket)),
        number::SETSOCKOPT => set_option(house, caller, found),
        number::GETSOCKOPT => {
            let got = get_option(&caller, &found);
            if let Err(Errno::NOPROTOOPT | Errno::OPNOTSUPP) = got {
                house.refuse(Refused::Get(caller.int(1), caller.int(2)));
            }
            caller.finish(got);
        }
        _ => message::answer(house, caller, found),
    }
}

/// socket(2)
fn make<S: Fillable>(house: &Rc<House<S>>, caller: &Caller) {
    let made = kind(caller).and_then(|(family, transport, flags)| {
        let does_not_block = flags.contains(SocketFlags::NONBLOCK);
        let found = house.make(family, transport, does_not_block)?;
        let given = caller.give(found.program.as_fd(), flags.contains(SocketFlags::CLOEXEC));
        match given {
            Ok(Some(descriptor)) => found.socket.place.set(Some(Place {
                thread: caller.thread(),
                descriptor,
            })),
            _ => house.forget(&found.socket),
        }
        given
    });
    // Who was given it has its answer.
    if let Err(errno) = made {
        let [family, kind, protocol] = [0, 1, 2].map(|index| caller.int(index));
        house.refuse(Refused::Socket(family, kind & TYPE_MASK, protocol));
        caller.finish(Err(errno));
    }
}

/// What socket a call asks for.
fn kind(caller: &Caller) -> Result<(Family, Transport, SocketFlags), Errno> {
    let (family, kind, protocol) = (caller.int(0), caller.int(1), caller.int(2));
    let family = Family::of(family.cast_unsigned()).ok_or(Errno::AFNOSUPPORT)?;
    let flags = SocketFlags::from_bits((kind & !TYPE_MASK).cast_unsigned());
    let known = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let flags = flags.filter(|flags| known.contains(*flags));
    let flags = flags.ok_or(Errno::INVAL)?;
    let transport = match (kind & TYPE_MASK, protocol) {
        (STREAM, 0 | TCP) => Transport::Stream,
        (DGRAM, 0 | UDP) => Transport::Datagrams,
        (RAW, _) => return Err(Errno::PERM),
        (STREAM | DGRAM, _) => return Err(Errno::PROTONOSUPPORT),
        _ => return Err(Errno::SOCKTNOSUPPORT),
    };
    Ok((family, transport, flags))
}

/// Whether calls on this socket wait.
pub fn blocks(program: &OwnedFd) -> bool {
    fcntl_getfl(program).is_ok_and(|flags| !flags.contains(OFlags::NONBLOCK))
}

/// bind(2)
fn bind<S: Fillable>(house: &Rc<House<S>>, caller: Caller, found: Found) {
    let socket = found.socket;
    let address = match caller.address(socket.family, caller.argument(1), caller.int(2)) {
        Ok(Named::Address(address)) => address,
        Ok(Named::Nothing) => return caller.finish(Err(Errno::AFNOSUPPORT)),
        Err(errno) => return caller.finish(Err(errno)),
    };
    let bound = house.bind(&socket, address);
    if socket.transport == Transport::Stream || bound.is_err() {
        return caller.finish(bound.map(|_| 0));
    }
    let house = house.clone();
    house.clone().hold_firmly(caller, async move {
        let opened = house.datagrams(&socket).await;
        opened.inspect_err(|_| socket.local.set(None)).map(|_| 0)
    });
}

/// listen(2)
fn start_listening<S: Fillable>(house: &Rc<House<S>>, caller: Caller, found: Found) {
    let Found { socket, program } = found;
    if socket.transport != Transport::Stream {
        return caller.finish(Err(Errno::OPNOTSUPP));
    }
    let backlog = match caller.int(1) {
        0.. => caller.int(1).min(BACKLOG_MAX),
        // A negative one is the largest, as an unsigned number.
        _ => BACKLOG_MAX,
    };
    match socket.state.get() {
        State::Idle => {}
        State::Listening => {
            return caller.finish(listen(&program, backlog).map(|()| 0));
        }
        _ => return caller.finish(Err(Errno::INVAL)),
    }
    let any = SocketAddr::new(socket.family.any(), 0);
    let local = match socket.local.get() {
        Some(local) => Ok(local),
        None => house.bind(&socket, any),
    };
    let local = match local.and_then(|local| listen(&program, backlog).map(|()| local)) {
        Ok(local) => local,
        Err(errno) => return caller.finish(Err(errno)),
    };
    // Linux has room for one more.
    let count = backlog.unsigned_abs() as usize + 1;
    let listening = house.clone().listen(socket, local, count);
    house.hold_firmly(caller, async move { listening.await.map(|()| 0) });
}

/// connect(2)
fn connect<S: Fillable>(house: &Rc<House<S>>, caller: Caller, found: Found) {
    let socket = found.socket.clone();
    let named = match caller.address(socket.family, caller.argument(1), caller.int(2)) {
        Ok(named) => named,
        Err(errno) => return caller.finish(Err(errno)),
    };
    if socket.transport == Transport::Datagrams {
        let house = house.clone();
        return house.clone().hold(caller, async move {
            match named {
                Named::Address(peer) => house.connect_datagrams(&found, peer).await?,
                Named::Nothing => house.disconnect_datagrams(&found).await?,
            }
            Ok(0)
        });
    }
    let Named::Address(peer) = named else {
        return caller.finish(Err(Errno::AFNOSUPPORT));
    };
    let refused = match socket.state.get() {
        State::Idle => None,
        State::Connecting => Some(Errno::ALREADY),
        State::Connected { told: true } | State::Over { told: true } | State::Listening => {
            Some(Errno::ISCONN)
        }
        State::Connected { told: false } => {
            socket.state.set(State::Connected { told: true });
            return caller.finish(Ok(0));
        }
        State::Over { told: false } => Some(socket.error.take().unwrap_or(Errno::CONNABORTED)),
    };
    if let Some(errno) = refused {
        return caller.finish(Err(errno));
    }
    // The stack chooses where it comes from.
    let peer = destination(peer, socket.family.any());
    socket.state.set(State::Connecting);
    match blocks(&found.program) {
        true => {
            let work = open_and_wait(house.clone(), found, peer);
            house.hold(caller, work);
        }
        false => caller.finish(open_meanwhile(house, &found, peer)),
    }
}

/// Opens a connection while the caller waits for it.
async fn open_and_wait<S: Fillable>(
    house: Rc<House<S>>,
    found: Found,
    peer: SocketAddr,
) -> Result<i64, Errno> {
    let Found { socket, program } = found;
    // Whoever is interrupted finds it as it was.
    let undo = Undo(&socket);
    let opened = async { house.net.connect(peer).await.map_err(error::number) };
    let opened = house.within(&program, Timeout::Send, Errno::INPROGRESS, opened);
    let stream = opened.await?;
    let ours = house.meeting.join(&program, socket.id)?;
    socket.state.set(State::Connected { told: true });
    drop(undo);
    stream::begin(&house, socket.clone(), stream, ours, 0)?;
    Ok(0)
}

/// Sets a socket whose connection is not opened after all back to what it was.
struct Undo<'a>(&'a Socket);

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if self.0.state.get() == State::Connecting {
            self.0.state.set(State::Idle);
        }
    }
}

/// Opens a connection while the caller goes on. Until it is open, the program's end cannot be
/// written.
fn open_meanwhile<S: Fillable>(
    house: &Rc<House<S>>,
    found: &Found,
    peer: SocketAddr,
) -> Result<i64, Errno> {
    let socket = found.socket.clone();
    let begun = house.meeting.join(&found.program, socket.id);
    let begun = begun.and_then(|ours| Ok((unix::fill(&found.program)?, ours)));
    let (filler, ours) = begun.inspect_err(|_| socket.state.set(State::Over { told: false }))?;
    socket.peer.set(Some(peer));
    let task = house.clone();
    house.spawner.spawn(async move {
        match task.net.connect(peer).await {
            Ok(stream) => {
                socket.state.set(State::Connected { told: false });
                if stream::begin(&task, socket.clone(), stream, ours, filler).is_err() {
                    socket.state.set(State::Over { told: false });
                }
            }
            Err(why) => {
                socket.state.set(State::Over { told: false });
                socket.error.set(Some(error::number(why)));
                // What is not read of the filler makes the program's end fail (unix(7)).
                drop(ours);
            }
        }
    });
    Err(Errno::INPROGRESS)
}

/// accept(2)
fn accept<S: Fillable>(house: &Rc<House<S>>, caller: Caller, found: Found, flags: i32) {
    let flags = SocketFlags::from_bits(flags.cast_unsigned());
    let known = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let Some(flags) = flags.filter(|flags| known.contains(*flags)) else {
        return caller.finish(Err(Errno::INVAL));
    };
    if found.socket.transport != Transport::Stream {
        return caller.finish(Err(Errno::OPNOTSUPP));
    }
    if found.socket.state.get() != State::Listening {
        return caller.finish(Err(Errno::INVAL));
    }
    match next(&found, flags) {
        Ok(next) => hand_over(house, &caller, &found.socket, next, flags),
        Err(Errno::AGAIN) if blocks(&found.program) => {
            let task = house.clone();
            let of = caller.clone();
            house.hold_all(caller, async move {
                let next = poll_fn(|context| match next(&found, flags) {
                    Err(Errno::AGAIN) => {
                        found.socket.wait(context.waker());
                        Poll::Pending
                    }
                    done => Poll::Ready(done),
                });
                let next = task.within(&found.program, Timeout::Recv, Errno::AGAIN, next);
                match next.await {
                    Ok(next) => hand_over(&task, &of, &found.socket, next, flags),
                    Err(errno) => return Some(Err(errno)),
                }
                None
            });
        }
        Err(errno) => caller.finish(Err(errno)),
    }
}

/// The next connection of a listening socket.
fn next(found: &Found, flags: SocketFlags) -> Result<OwnedFd, Errno> {
    let returned = found.socket.returned.borrow_mut().pop_front();
    match returned {
        Some(returned) => Ok(returned),
        None => unix::take(&found.program, flags.contains(SocketFlags::NONBLOCK)),
    }
}

/// Gives a connection to whoever has asked for one.
fn hand_over<S: Fillable>(
    house: &Rc<House<S>>,
    caller: &Caller,
    listener: &Socket,
    next: OwnedFd,
    flags: SocketFlags,
) {
    let (at, len_at) = (caller.argument(1), caller.argument(2));
    let socket = unix::peer(&next, unix::End::Ours);
    let socket = socket.and_then(|id| house.table.borrow().get(id));
    if at != 0 {
        let peer = socket.as_ref().and_then(|socket| socket.peer.get());
        let peer = peer.unwrap_or(SocketAddr::new(listener.family.any(), 0));
        match caller.show(listener.family, peer, at, len_at) {
            // As Linux does: it is lost.
            Err(errno @ (Errno::FAULT | Errno::INVAL)) => return caller.finish(Err(errno)),
            Err(_) => return give_back(listener, next),
            Ok(()) => {}
        }
    }
    match caller.give(next.as_fd(), flags.contains(SocketFlags::CLOEXEC)) {
        Ok(Some(descriptor)) => {
            if let Some(socket) = socket {
                socket.place.set(Some(Place {
                    thread: caller.thread(),
                    descriptor,
                }));
            }
        }
        Ok(None) => give_back(listener, next),
        Err(errno) => {
            give_back(listener, next);
            caller.finish(Err(errno));
        }
    }
}

/// Keeps a connection for whoever accepts next: its own caller did not wait any more, or could have
/// no descriptor.
fn give_back(listener: &Socket, next: OwnedFd) {
    listener.returned.borrow_mut().push_front(next);
    listener.arrived();
}

/// getsockname(2)
fn own_name(caller: &Caller, socket: &Socket) -> Result<i64, Errno> {
    let any = SocketAddr::new(socket.family.any(), 0);
    let local = socket.local.get().unwrap_or(any);
    caller.show(socket.family, local, caller.argument(1), caller.argument(2))?;
    Ok(0)
}

/// getpeername(2)
fn peer_name(caller: &Caller, socket: &Socket) -> Result<i64, Errno> {
    let is_there = matches!(socket.state.get(), State::Connected { .. });
    let peer = socket.peer.get().filter(|_| is_there);
    let peer = peer.ok_or(Errno::NOTCONN)?;
    caller.show(socket.family, peer, caller.argument(1), caller.argument(2))?;
    Ok(0)
}

/// ioctl(2), of netdevice(7): what the program sees of its network answers.
fn ask<S: Fillable>(house: &House<S>, caller: &Caller) -> Result<i64, Errno> {
    let (question, at) = (caller.int(1).cast_unsigned(), caller.argument(2));
    let sight = house.sight.borrow();
    if question != LIST {
        let mut request = [0; ASKED_BYTES];
        caller.read(at, &mut request)?;
        caller.write(at, &sight.ask(question, request)?)?;
        return Ok(0);
    }
    // `struct ifconf`: bytes of room, and where; how many there would be, if nowhere.
    let room = usize::try_from(caller.read_int(at)?).map_err(|_| Errno::INVAL)?;
    let mut place = [0; 8];
    caller.read(at.wrapping_add(8), &mut place)?;
    let all = sight.list();
    let count = match u64::from_ne_bytes(place) {
        0 => all.len(),
        place => {
            let count = all.len().min(room / ASKED_BYTES);
            caller.write(place, all[..count].as_flattened())?;
            count
        }
    };
    let len = (count * ASKED_BYTES) as i32;
    caller.write(at, &len.to_ne_bytes())?;
    Ok(0)
}

/// setsockopt(2)
fn set_option<S: Fillable>(house: &Rc<House<S>>, caller: Caller, found: Found) {
    let socket = found.socket;
    let set = || {
        let len = usize::try_from(caller.int(4)).map_err(|_| Errno::INVAL)?;
        let mut bytes = [0; option::BYTES_MAX];
        let bytes = &mut bytes[..len.min(option::BYTES_MAX)];
        caller.read(caller.argument(3), bytes)?;
        // Who has an address cannot change of which version it is.
        if option::is_of_binding(caller.int(1), caller.int(2)) && socket.local.get().is_some() {
            return Err(Errno::INVAL);
        }
        let mut options = socket.options.borrow_mut();
        options.set(
            (socket.family, socket.transport),
            caller.int(1),
            caller.int(2),
            bytes,
        )
    };
    let effect = match set() {
        Ok(effect) => effect,
        Err(errno) => {
            if [Errno::NOPROTOOPT, Errno::NOENT].contains(&errno) {
                house.refuse(Refused::Set(caller.int(1), caller.int(2)));
            }
            return caller.finish(Err(errno));
        }
    };
    let control = socket.control.borrow();
    match (effect, &*control) {
        (Effect::NoDelay(no_delay), Some(control)) => control.no_delay(no_delay),
        (Effect::KeepAlive(idle), Some(control)) => control.keep_alive(idle),
        (Effect::Group(group, is_in), _) if socket.transport == Transport::Datagrams => {
            let task = house.clone();
            let of = socket.clone();
            return house.hold(caller, async move {
                task.datagrams(&of).await?.group(group, is_in).map(|()| 0)
            });
        }
        // A connection that begins later has it from the options.
        _ => {}
    }
    caller.finish(Ok(0));
}

/// getsockopt(2)
fn get_option(caller: &Caller, found: &Found) -> Result<i64, Errno> {
    let socket = &found.socket;
    let kind = (socket.family, socket.transport);
    let shown = socket
        .options
        .borrow()
        .get(kind, caller.int(1), caller.int(2))?;
    let int;
    let bytes = match &shown {
        Shown::Int(value) => {
            int = value.to_ne_bytes();
            &int[..]
        }
        Shown::Bytes(bytes) => bytes,
        Shown::Error => {
            // The kernel's own is taken with it.
            let kernels = socket_error(&found.program).ok().and_then(Result::err);
            let error = socket.error.take().or(kernels);
            int = error.map_or(0, Errno::raw_os_error).to_ne_bytes();
            &int[..]
        }
    };
    let (at, len_at) = (caller.argument(3), caller.argument(4));
    let room = usize::try_from(caller.read_int(len_at)?).map_err(|_| Errno::INVAL)?;
    let len = bytes.len().min(room);
    caller.write(at, &bytes[..len])?;
    caller.write(len_at, &(len as i32).to_ne_bytes())?;
    Ok(0)
}
