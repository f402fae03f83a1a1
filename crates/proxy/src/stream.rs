//! Bytes of a connection: between the program's socket and the stack's, in both directions.
//!
//! The program reads and writes a socket of the kernel's, so that no call of it is passed to us.
//! What it has not read fills that socket's buffer, then the stack's window, and stops the peer.

use crate::error::number;
use crate::fill::{Fill, Fillable};
use crate::house::House;
use crate::reactor::Watched;
use crate::socket::{Control, Socket, State};
use crate::unix;
use net::socket::{Error, Stream};
use net::task::{Either, select};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

/// Bytes that are thrown away at once.
const PIECE_BYTES: usize = 64 << 10;

/// How a direction has ended, or both.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// Whoever sent sends no more.
    Closed,
    /// Nobody has the program's end any more.
    Broken,
}

/// What may be changed of a connection while its bytes go back and forth.
struct Wishes<T>(RefCell<T>);

impl<T: Stream> Control for Wishes<T> {
    fn no_delay(&self, no_delay: bool) {
        self.0.borrow_mut().set_no_delay(no_delay);
    }

    fn keep_alive(&self, idle: Option<Duration>) {
        self.0.borrow_mut().set_keep_alive(idle);
    }
}

/// Begins to move the bytes of a connection. What comes first from the program, so many bytes, is
/// filler.
///
/// # Errors
/// What the kernel says; the connection is reset then.
pub fn begin<S: Fillable>(
    house: &Rc<House<S>>,
    socket: Rc<Socket>,
    stream: S::Stream,
    ours: OwnedFd,
    filler: usize,
) -> Result<(), Errno> {
    let ours = match house.reactor.watch(ours) {
        Ok(ours) => Rc::new(ours),
        Err(errno) => {
            stream.abort();
            return Err(errno);
        }
    };
    socket.local.set(Some(stream.local()));
    socket.peer.set(Some(stream.peer()));
    let (up, stream) = stream.split();
    let (down, mut wishes) = stream.split();
    let options = socket.options.borrow().clone();
    if options.no_delay() {
        wishes.set_no_delay(true);
    }
    if let Some(idle) = options.keep_alive() {
        wishes.set_keep_alive(Some(idle));
    }
    *socket.control.borrow_mut() = Some(Box::new(Wishes(RefCell::new(wishes))));
    house.count(|counts| counts.connections += 1);
    let house = house.clone();
    house.clone().spawner.spawn(async move {
        serve::<S>(&house, &socket, (up, down), &ours, filler).await;
        drop(ours);
        socket.control.borrow_mut().take();
        // Who still has it may ask for its name: it is looked after until nobody has.
        if !socket.is_alive() {
            house.forget(&socket);
        }
    });
    Ok(())
}

/// Moves bytes until both directions have ended.
async fn serve<S: Fillable>(
    house: &Rc<House<S>>,
    socket: &Rc<Socket>,
    (mut up, mut down): (S::Stream, S::Stream),
    ours: &Watched,
    filler: usize,
) {
    let result = both(&mut up, &mut down, ours, filler).await;
    let told = matches!(socket.state.get(), State::Connected { told: true });
    socket.state.set(State::Over { told });
    let is_gone = unix::is_ready(ours, PollFlags::HUP) == Ok(true);
    match result {
        Ok(_) if is_gone && socket.options.borrow().resets() => up.abort(),
        // What was written still leaves.
        Ok(_) => {}
        Err(Broken::Stack(error)) => {
            socket.error.set(Some(number(error)));
            reset(house, socket);
            up.abort();
        }
        Err(Broken::Program) => up.abort(),
    }
}

/// Moves bytes in both directions.
async fn both<T: Fill>(
    up: &mut T,
    down: &mut T,
    ours: &Watched,
    filler: usize,
) -> Result<End, Broken> {
    let mut sending = pin!(from_program(up, ours, filler));
    let mut receiving = pin!(to_program(down, ours));
    match select(sending.as_mut(), receiving.as_mut()).await {
        Either::First(Ok(End::Closed)) => receiving.await,
        // What the program wrote before it went is still to leave.
        Either::Second(Ok(_)) => sending.await,
        Either::First(ended) | Either::Second(ended) => ended,
    }
}

/// Why a connection is no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    /// The stack says so.
    Stack(Error),
    /// The program has gone and left something unread, or nobody takes what comes.
    Program,
}

/// Moves what the program writes, until it writes no more.
async fn from_program<T: Fill>(
    stream: &mut T,
    ours: &Watched,
    filler: usize,
) -> Result<End, Broken> {
    skip(ours, filler).await?;
    loop {
        stream.room().await.map_err(Broken::Stack)?;
        let read = ours.reads(|ours| {
            stream.fill(|place| recv(ours, place, RecvFlags::DONTWAIT).map(|(count, _)| count))
        });
        // It is gone, and has not read all that we wrote (ECONNRESET).
        match read.await.map_err(|_| Broken::Program)? {
            // Others have taken the room since, or it left.
            None | Some(1..) => {}
            Some(0) => {
                // Nobody has its end any more, or it only sends no more.
                if unix::is_ready(ours, PollFlags::HUP) == Ok(true) {
                    return Ok(End::Broken);
                }
                stream.shutdown();
                return Ok(End::Closed);
            }
        }
    }
}

/// Takes out what was put in front of the program's bytes.
async fn skip(ours: &Watched, mut filler: usize) -> Result<(), Broken> {
    let mut piece = vec![0; filler.min(PIECE_BYTES)];
    while filler > 0 {
        let most = filler.min(piece.len());
        let read = ours.reads(|ours| recv(ours, &mut piece[..most], RecvFlags::DONTWAIT));
        match read.await {
            Ok((count @ 1.., _)) => filler -= count,
            Ok((0, _)) | Err(_) => return Err(Broken::Program),
        }
    }
    Ok(())
}

/// Moves what comes to the program, until nothing comes any more or nobody is there to take it.
async fn to_program<T: Stream>(stream: &mut T, ours: &Watched) -> Result<End, Broken> {
    loop {
        let next = select(pin!(stream.take()), pin!(ours.hung_up())).await;
        let bytes = match next {
            Either::First(Ok(Some(bytes))) => bytes,
            Either::First(Ok(None)) => {
                // It may be gone already.
                let _ = shutdown(ours, Shutdown::Write);
                return Ok(End::Closed);
            }
            Either::First(Err(error)) => return Err(Broken::Stack(error)),
            Either::Second(()) => return Ok(End::Broken),
        };
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let written =
                ours.writes(|ours| send(ours, rest, SendFlags::DONTWAIT | SendFlags::NOSIGNAL));
            rest = match written.await {
                Ok(count) => &rest[count..],
                // It reads no more, and goes on otherwise: what comes is thrown away.
                Err(Errno::PIPE) if unix::is_ready(ours, PollFlags::HUP) != Ok(true) => &[],
                Err(_) => return Err(Broken::Program),
            };
        }
    }
}

/// Has the program's end say that the connection was reset: the kernel's sockets do so if the other
/// one is closed before it has read everything. So the program's end is written to, by us.
fn reset<S: Fillable>(house: &Rc<House<S>>, socket: &Socket) {
    if let Some(program) = house.program_end(socket) {
        let _ = send(&program, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}
