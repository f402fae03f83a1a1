//! packetdrill's interface in C (`packetdrill.h`), and functions of the C library in whose place
//! ours come when this library is preloaded: the only unsafe code.
//!
//! Functions that are variadic in C take one number here: x86-64's calling convention passes it
//! the same way. For the same reason one function without parameters stands for all that scripts
//! of what we have do not call.

use crate::sockets::Result;
use crate::world::World;
use crate::{addresses, commands, turns};
use core::ptr;
use libc::{c_char, c_int, c_long, c_void, nfds_t, pollfd, sockaddr, socklen_t, timeval};
use std::ffi::CStr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::Poll;

/// Bytes of what is no packet: packetdrill says that it cannot be parsed, and the script fails.
const NO_PACKET: usize = 1;

/// What one thread at a time reaches, under a lock.
pub struct Alone<T>(pub T);

// SAFETY: what a world shares inside without a lock (its port and frames) is reached through the
// world alone, and that under `turns`'s lock alone.
unsafe impl<T> Send for Alone<T> {}

type User = *mut c_void;

/// Sets `errno`.
fn fail(number: c_int) -> isize {
    // SAFETY: it asks for nothing.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the C library's own place for this thread's number.
    unsafe { *place = number };
    -1
}

fn answer(result: Result<isize>) -> isize {
    result.unwrap_or_else(fail)
}

fn small(result: Result<isize>) -> c_int {
    // A descriptor, or a status.
    answer(result) as c_int
}

/// The bytes that a caller gives; `None` if there are none where it says.
///
/// # Safety
/// `place` is null, or `len` bytes may be read there for as long as the result is used.
unsafe fn bytes<'a>(place: *const c_void, len: usize) -> Option<&'a [u8]> {
    if place.is_null() {
        return (len == 0).then_some(&[]);
    }
    // SAFETY: not null, and the caller promises the rest.
    Some(unsafe { core::slice::from_raw_parts(place.cast(), len) })
}

/// Writes what fits of `value` to a place of a caller's, and how long it is.
///
/// # Safety
/// Both are null, or `*len` may be read and written, and as many bytes may be written at `place`.
unsafe fn give(value: &[u8], place: *mut c_void, len: *mut socklen_t) {
    // SAFETY: null, or the caller's promise.
    let Some(len) = (unsafe { len.as_mut() }) else {
        return;
    };
    let count = value.len().min(*len as usize);
    // SAFETY: there is room for so many, and nothing of ours lies there.
    unsafe { ptr::copy_nonoverlapping(value.as_ptr(), place.cast(), count) };
    *len = count as socklen_t;
}

extern "C" fn missing() -> isize {
    fail(libc::ENOSYS)
}

extern "C" fn free(_: User) {
    turns::end();
}

extern "C" fn socket(_: User, _: c_int, kind: c_int, _: c_int) -> c_int {
    small(turns::quick(|_, sockets, _| sockets.socket(kind)))
}

unsafe extern "C" fn bind(_: User, fd: c_int, place: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: packetdrill gives a whole address.
    let address = unsafe { bytes(place.cast(), len as usize) }.and_then(addresses::read);
    small(turns::quick(|_, sockets, _| {
        sockets.bind(fd, address.ok_or(libc::EAFNOSUPPORT)?)
    }))
}

extern "C" fn listen(_: User, fd: c_int, backlog: c_int) -> c_int {
    small(turns::quick(|net, sockets, _| {
        sockets.listen(net, fd, backlog)
    }))
}

unsafe extern "C" fn accept(
    _: User,
    fd: c_int,
    place: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    let mut peer = Vec::new();
    let result = turns::call(fd, 0, |net, sockets| {
        sockets.accept(net, fd).map_ok(|(fd, from)| {
            peer = addresses::written(from);
            fd as isize
        })
    });
    if result.is_ok() {
        // SAFETY: packetdrill gives a place and its length.
        unsafe { give(&peer, place.cast(), len) };
    }
    small(result)
}

unsafe extern "C" fn connect(_: User, fd: c_int, place: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: packetdrill gives a whole address.
    let address = unsafe { bytes(place.cast(), len as usize) }.and_then(addresses::read);
    small(turns::call(fd, 0, |net, sockets| match address {
        Some(to) => sockets.connect(net, fd, to).map_ok(|value| value as isize),
        None => Poll::Ready(Err(libc::EAFNOSUPPORT)),
    }))
}

unsafe extern "C" fn read(user: User, fd: c_int, place: *mut c_void, len: usize) -> isize {
    // SAFETY: the same promise.
    unsafe { recv(user, fd, place, len, 0) }
}

unsafe extern "C" fn recv(
    _: User,
    fd: c_int,
    place: *mut c_void,
    len: usize,
    flags: c_int,
) -> isize {
    if place.is_null() && len > 0 {
        return fail(libc::EFAULT);
    }
    let mut bytes = vec![0; len];
    let result = turns::call(fd, flags, |net, sockets| sockets.read(net, fd, &mut bytes));
    if let (Ok(count), false) = (result, place.is_null()) {
        // SAFETY: packetdrill gives `len` bytes, and these are at most as many.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), place.cast(), count as usize) };
    }
    answer(result)
}

unsafe extern "C" fn write(user: User, fd: c_int, place: *const c_void, len: usize) -> isize {
    // SAFETY: the same promise.
    unsafe { send(user, fd, place, len, 0) }
}

unsafe extern "C" fn send(
    _: User,
    fd: c_int,
    place: *const c_void,
    len: usize,
    flags: c_int,
) -> isize {
    // SAFETY: packetdrill gives `len` bytes, or null.
    match unsafe { bytes(place, len) } {
        Some(bytes) => answer(turns::send(fd, bytes, flags)),
        None => fail(libc::EFAULT),
    }
}

unsafe extern "C" fn sendto(
    user: User,
    fd: c_int,
    place: *const c_void,
    len: usize,
    flags: c_int,
    _: *const sockaddr,
    _: socklen_t,
) -> isize {
    // SAFETY: the same promise.
    unsafe { send(user, fd, place, len, flags) }
}

extern "C" fn fcntl(_: User, fd: c_int, command: c_int, argument: c_long) -> c_int {
    small(turns::quick(|_, sockets, _| {
        sockets.fcntl(fd, command, argument as c_int)
    }))
}

unsafe extern "C" fn ioctl(_: User, fd: c_int, request: u64, place: *mut c_int) -> c_int {
    let result = turns::quick(|net, sockets, _| sockets.ioctl(net, fd, request));
    // SAFETY: packetdrill gives a place for a number.
    if let (Ok(found), Some(place)) = (result, unsafe { place.as_mut() }) {
        *place = found as c_int;
    }
    small(result.map(|_| 0))
}

extern "C" fn close(_: User, fd: c_int) -> c_int {
    small(turns::quick(|net, sockets, _| sockets.close(net, fd)))
}

extern "C" fn shutdown(_: User, fd: c_int, how: c_int) -> c_int {
    small(turns::quick(|net, sockets, _| {
        sockets.shutdown(net, fd, how)
    }))
}

unsafe extern "C" fn option(
    _: User,
    fd: c_int,
    level: c_int,
    name: c_int,
    place: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let mut value = Vec::new();
    let result = turns::quick(|net, sockets, now| {
        value = sockets.option(net, fd, (level, name), now)?;
        Ok(0)
    });
    if result.is_ok() {
        // SAFETY: packetdrill gives a place and its length.
        unsafe { give(&value, place, len) };
    }
    small(result)
}

unsafe extern "C" fn set_option(
    _: User,
    fd: c_int,
    level: c_int,
    name: c_int,
    place: *const c_void,
    len: socklen_t,
) -> c_int {
    // SAFETY: packetdrill gives so many bytes.
    let value = unsafe { bytes(place, len as usize) };
    let value = value.and_then(|bytes| bytes.first_chunk());
    small(turns::quick(|net, sockets, _| {
        let value = c_int::from_ne_bytes(*value.ok_or(libc::EINVAL)?);
        sockets.set(net, fd, (level, name), value)
    }))
}

unsafe extern "C" fn poll(_: User, place: *mut pollfd, count: nfds_t, _: c_int) -> c_int {
    if place.is_null() {
        return fail(libc::EFAULT) as c_int;
    }
    // SAFETY: not null, and packetdrill gives so many.
    let entries = unsafe { core::slice::from_raw_parts_mut(place, count as usize) };
    small(turns::quick(|net, sockets, _| {
        for entry in &mut *entries {
            entry.revents = sockets.poll(net, entry.fd, entry.events);
        }
        Ok(entries.iter().filter(|entry| entry.revents != 0).count() as c_int)
    }))
}

unsafe extern "C" fn netdev_send(_: User, place: *const c_void, len: usize) -> c_int {
    // SAFETY: packetdrill gives a whole packet.
    let packet = unsafe { bytes(place, len) };
    match packet.and_then(|packet| turns::change(|world| world.arrives(packet))) {
        Some(()) => 0,
        None => -1,
    }
}

unsafe extern "C" fn netdev_receive(
    _: User,
    place: *mut c_void,
    len: *mut usize,
    micros: *mut i64,
) -> c_int {
    let (at, packet) = turns::pass(None).unwrap_or((0, vec![0; NO_PACKET]));
    // SAFETY: packetdrill gives a number's place.
    let Some(len) = (unsafe { len.as_mut() }) else {
        return -1;
    };
    *len = packet.len().min(*len);
    // SAFETY: there is room for as many bytes as it said.
    unsafe { ptr::copy_nonoverlapping(packet.as_ptr(), place.cast(), *len) };
    // SAFETY: packetdrill gives a place for the time.
    unsafe { micros.write(at as i64) };
    0
}

extern "C" fn usleep(_: User, micros: u32) -> c_int {
    turns::sleep(micros);
    0
}

unsafe extern "C" fn gettimeofday(_: User, place: *mut timeval, _: *mut c_void) -> c_int {
    let micros = turns::time() as i64;
    // SAFETY: packetdrill gives a place.
    if let Some(place) = unsafe { place.as_mut() } {
        (place.tv_sec, place.tv_usec) = (micros / 1_000_000, micros % 1_000_000);
    }
    0
}

/// `struct packetdrill_interface`: a word for its user, and functions in this order.
const FUNCTIONS: usize = 32;
type Interface = [*const c_void; 1 + FUNCTIONS];

/// What packetdrill calls first. `flags` is the script's version of IP.
///
/// # Safety
/// packetdrill gives a string or null, and a place for an interface.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetdrill_interface_init(flags: *const c_char, place: *mut Interface) {
    // SAFETY: a string, as it ends with a zero byte, or null.
    let ipv6 = !flags.is_null() && unsafe { CStr::from_ptr(flags) } == c"ipv6";
    turns::begin(World::new(ipv6));
    let none = missing as *const c_void;
    #[rustfmt::skip]
    let interface = [
        ptr::null(), free as _, socket as _, bind as _, listen as _, accept as _, connect as _,
        // readv; recvfrom and recvmsg; writev; sendmsg.
        read as _, none, recv as _, none, none, write as _, none, send as _, sendto as _, none,
        fcntl as _, ioctl as _, close as _, shutdown as _, option as _, set_option as _,
        poll as _, netdev_send as _, netdev_receive as _, usleep as _, gettimeofday as _,
        // epoll_create, epoll_ctl and epoll_wait; pipe; splice.
        none, none, none, none, none,
    ];
    // SAFETY: the place is one for an interface.
    unsafe { place.write(interface) };
}

/// In the C library's place: what a script knows of a connection, packetdrill asks the kernel.
///
/// # Safety
/// As getsockopt(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    place: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the same promise.
    unsafe { option(ptr::null_mut(), fd, level, name, place, len) }
}

/// In the C library's place: a script's commands are read, and not executed; only its assertions
/// are.
///
/// # Safety
/// As system(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn system(command: *const c_char) -> c_int {
    if command.is_null() {
        return 0;
    }
    // SAFETY: a string, as it ends with a zero byte.
    commands::run(&unsafe { CStr::from_ptr(command) }.to_string_lossy())
}

/// In the C library's place: packetdrill counts ticks of it to begin in the middle of one.
#[unsafe(no_mangle)]
pub extern "C" fn times(_: *mut c_void) -> c_long {
    static TICKS: AtomicI64 = AtomicI64::new(0);
    TICKS.fetch_add(1, Ordering::Relaxed)
}

/// In the C library's place: time is not real, and memory need not be locked for its sake.
#[unsafe(no_mangle)]
pub extern "C" fn mlockall(_: c_int) -> c_int {
    0
}

/// In the C library's place: for the same reason.
#[unsafe(no_mangle)]
pub extern "C" fn sched_setscheduler(_: c_int, _: c_int, _: *const c_void) -> c_int {
    0
}
