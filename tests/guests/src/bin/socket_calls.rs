//! Makes calls about sockets that make no sense: each is an error, and the guest goes on.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::net::SocketAddr;
use ports::sockets::{Event, HostSockets, SocketCalls, Transport};
use ports::{Errno, Handle};
use unikernel::println;

unikernel::entry!(main);

/// What is no socket: no descriptor, one that cannot be, the console, what the guest waits on.
fn no_sockets(set: Handle) -> [Handle; 5] {
    [
        Handle(-1),
        Handle(i32::MIN),
        Handle(i32::MAX),
        Handle(1),
        set,
    ]
}

fn main() -> i32 {
    let Ok(Some(HostSockets { calls, set, .. })) = unikernel::sockets("service") else {
        println!("FAILURE: no sockets");
        return 1;
    };
    if unikernel::sockets("service").is_ok() {
        println!("FAILURE: they are handed out twice");
        return 1;
    }
    for handle in no_sockets(set) {
        if let Some(what) = accepted(calls, set, handle) {
            println!("FAILURE: {what} of {handle:?}");
            return 1;
        }
    }
    match opened(calls, set) {
        Ok(()) => println!("SUCCESS"),
        Err(error) => println!("FAILURE: {error:?}"),
    }
    0
}

/// The first call that takes what is no socket for one.
fn accepted(calls: &dyn SocketCalls, set: Handle, handle: Handle) -> Option<&'static str> {
    let place = &mut [0; 16];
    let to = SocketAddr::from(([127, 0, 0, 1], 1));
    calls.shutdown(handle);
    calls.set_no_delay(handle, true);
    calls.set_keep_alive(handle, Some(u32::MAX));
    let results = [
        ("bind", calls.bind(handle, to).is_err()),
        ("listen", calls.listen(handle, to, usize::MAX).is_err()),
        ("accept", calls.accept(handle).is_err()),
        ("connect", calls.connect(handle, to).is_err()),
        ("error", calls.error(handle).is_err()),
        ("local", calls.local(handle).is_err()),
        ("receive", calls.receive(handle, place).is_err()),
        ("send", calls.send(handle, place).is_err()),
        ("receive_from", calls.receive_from(handle, place).is_err()),
        ("send_to", calls.send_to(handle, place, to).is_err()),
        // The console may be something to wait for.
        (
            "watch",
            handle.0 == 1 || calls.watch(set, handle, u32::MAX).is_err(),
        ),
        (
            "events",
            handle == set || calls.events(handle, &mut [Event::default()]) == 0,
        ),
    ];
    let taken = results.iter().find(|(_, refused)| !refused);
    taken.map(|(what, _)| *what)
}

/// Sockets in states in which they are not to be used so.
fn opened(calls: &dyn SocketCalls, set: Handle) -> Result<(), Errno> {
    let here = SocketAddr::from(([127, 0, 0, 1], 4000));
    let none = |result: Result<usize, Errno>| match result {
        Err(_) => Ok(()),
        Ok(_) => Err(Errno(0)),
    };
    let listening = calls.open(Transport::Stream, here)?;
    none(calls.accept(listening).map(|_| 0))?;
    none(calls.send(listening, &[0]))?;
    none(calls.receive(listening, &mut [0]))?;
    calls.listen(listening, here, usize::MAX)?;
    calls.watch(set, listening, u32::MAX)?;
    none(calls.watch(set, listening, 0).map(|()| 0))?;
    let other = calls.open(Transport::Stream, here)?;
    none(calls.listen(other, here, 0).map(|()| 0))?;
    calls.connect(other, here).or_else(|error| match error {
        Errno::IN_PROGRESS => Ok(()),
        error => Err(error),
    })?;
    let events = &mut [Event::default(); 1000];
    if calls.events(set, events) != 1 || events[0].number != u32::MAX {
        return Err(Errno(0));
    }
    none(
        Ok(calls.events(set, &mut [])).and_then(|count| match count {
            0 => Err(Errno::AGAIN),
            more => Ok(more),
        }),
    )?;
    let (accepted, _) = calls.accept(listening)?;
    none(calls.receive(accepted, &mut [0]))?;
    calls.close(other);
    // What a closed peer is sent raises no signal.
    while calls.send(accepted, &[0; 4096]).is_ok() {}
    calls.close(accepted);
    calls.close(accepted);
    none(calls.receive(accepted, &mut [0]))?;
    let datagrams = calls.open(Transport::Datagrams, here)?;
    calls.bind(datagrams, here)?;
    none(calls.send_to(datagrams, &[0; 70_000], here).map(|()| 0))?;
    none(calls.listen(datagrams, here, 1).map(|()| 0))?;
    none(calls.accept(datagrams).map(|_| 0))?;
    calls.send_to(datagrams, &[], here)?;
    calls.receive_from(datagrams, &mut []).map(|_| ())
}
