//! A software device as a process that others drive: the server of vfio-user.
//!
//! The crate `vfio_user` sends and receives messages. This side adds configuration space, memory,
//! interrupts and doorbells to what a [`Device`] is.
//!
//! **How registers are reached, and what can be checked then.**
//!
//! - *By message*: each access is a message that waits for its answer. The device sees every one,
//!   in order.
//! - *With doorbells*: the registers that [`Device::doorbells`] names lie
//!   in a shared page, which is looked at in turns; all else goes by message. Of doorbells the
//!   device sees what was written last since it looked, in order with messages, and in no order
//!   among each other.
//!
//! So with doorbells it goes unnoticed that a tail register was written twice, written with what it
//! held, or written in the wrong order with the tail of another ring; a tail beyond the head, a
//! descriptor outside of memory and all that is done to other registers is noticed as before.
//!
//! **The client is hostile.** Every size, index, range and descriptor is checked; what it can make
//! this side keep is bounded, as is what it can make a log say
//! ([`LogLimit`](crate::client::LogLimit)); it cannot make this side wait but for
//! [`PATIENCE`](crate::client::PATIENCE) within a message. A client that goes, breaks the protocol,
//! or takes away memory that it lent, ends its session: the device is reset, its memory and events
//! are let go of, and the next one is waited for. That the device forgets is a deviation from the
//! protocol, which would have it keep its state; VFIO resets devices that are closed.

mod doorbells;
mod interrupts;
mod pin;
mod session;

pub use interrupts::Interrupts;
pub use session::{Answer, PAYLOAD_MAX, Session};

use crate::client::listener::{Listener, SLEEP_MAX};
use crate::client::{Around, End, ended, wait};
use crate::{Device, Progress};
use ::vfio_user::socket::{Received, Socket};
use ::vfio_user::{command_name, flag};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// Turns without work before the device sleeps if the driver worked last: it takes about as long as
/// to fall asleep and to be woken up, and who rings at a device that sleeps waits for it.
const IDLE_TURNS_DRIVER: u32 = 64;
/// The same if only the wire did, which wakes the device while nobody waits.
const IDLE_TURNS_WIRE: u32 = 8;
/// One turn in so many looks for a message.
const MESSAGE_TURNS: u32 = 4;
/// An interrupt that is held back for no longer is waited for without a sleep.
const AWAKE_MAX: Duration = Duration::from_micros(100);
/// The shortest sleep, but for interrupts that are held back.
const SLEEP_MIN: Duration = Duration::from_millis(1);

/// Where clients come from.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    /// Whether the device never sleeps while it has a client.
    pub busy: bool,
    /// Whether clients may lend memory that is [not sealed](Session::accept_unsealed).
    pub unsealed: bool,
}

impl Server {
    /// Listens at `path`, where nothing may be but the socket of one that has ended; `@` and a
    /// number is the connection to the only client, which the parent has passed as this descriptor.
    ///
    /// # Errors
    /// What the kernel says: `EADDRINUSE` if there is a file, or somebody listens already.
    pub fn bind(path: &Path) -> io::Result<Self> {
        Ok(Self {
            listener: Listener::bind(path)?,
            busy: false,
            unsealed: false,
        })
    }

    /// Waits for a client and serves it until it goes. `wires` are what the device receives from:
    /// it is woken up when one of them is readable.
    pub fn serve<D: Device>(
        &self,
        device: &mut D,
        wires: &[BorrowedFd<'_>],
        around: &mut impl Around<D>,
    ) -> End {
        loop {
            let socket = match self.listener.accept(device, around) {
                Ok(socket) => socket,
                Err(end) => return end,
            };
            let mut session = match Session::new(device) {
                Ok(session) => session,
                Err(error) => return End::System(error),
            };
            if self.unsealed {
                session.accept_unsealed();
            }
            let end = self.run(&socket, &mut session, device, wires, around);
            device.reset();
            // Who goes without a word only looked whether somebody is there.
            if session.is_introduced() || !matches!(end, End::Closed) {
                return end;
            }
        }
    }

    fn run<D: Device>(
        &self,
        socket: &Socket,
        session: &mut Session,
        device: &mut D,
        wires: &[BorrowedFd<'_>],
        around: &mut impl Around<D>,
    ) -> End {
        let mut watched = vec![socket.as_fd()];
        watched.extend(wires);
        let mut connection = Connection::new(socket);
        let start = Instant::now();
        let (mut turns, mut idle, mut sleep) = (0u32, 0, SLEEP_MIN);
        let (mut idle_max, mut slept) = (IDLE_TURNS_DRIVER, true);
        loop {
            let progress = session.poll(device, start.elapsed());
            if session.is_lost() {
                return End::Lost;
            }
            turns = turns.wrapping_add(1);
            let mut worked = progress != Progress::default();
            if worked {
                idle_max = match progress.transmitted {
                    0 => IDLE_TURNS_WIRE,
                    _ => IDLE_TURNS_DRIVER,
                };
            }
            // To ask the kernel for a message costs as much as some frames.
            if std::mem::take(&mut slept) || turns.is_multiple_of(MESSAGE_TURNS) {
                match connection.obey(session, device, around) {
                    Ok(obeyed) => worked |= obeyed,
                    Err(end) => return end,
                }
            }
            if around.turn(device).is_break() {
                return End::Stopped;
            }
            if worked {
                (idle, sleep) = (0, SLEEP_MIN);
                continue;
            }
            idle += 1;
            if idle < idle_max || self.busy {
                continue;
            }
            // A sleep would be longer.
            let due = device.due().map(|due| due.saturating_sub(start.elapsed()));
            if due.is_some_and(|due| due < AWAKE_MAX) {
                continue;
            }
            let most = due.map_or(sleep, |due| due.min(sleep));
            if !session.sleep(device) && !wait(&watched, most) {
                sleep = (sleep * 2).min(SLEEP_MAX);
            }
            session.wake();
            // One look at everything after a sleep, and back to it if there is nothing.
            (idle, slept) = (idle_max - 1, true);
        }
    }
}

/// A connection with room for a message and its reply.
struct Connection<'a> {
    socket: &'a Socket,
    payload: Box<[u8; PAYLOAD_MAX]>,
    reply: Box<[u8; PAYLOAD_MAX]>,
}

impl<'a> Connection<'a> {
    fn new(socket: &'a Socket) -> Self {
        Self {
            socket,
            payload: Box::new([0; PAYLOAD_MAX]),
            reply: Box::new([0; PAYLOAD_MAX]),
        }
    }

    /// Takes one message, if there is one, and answers it; whether there was one.
    fn obey<D: Device>(
        &mut self,
        session: &mut Session,
        device: &mut D,
        around: &mut impl Around<D>,
    ) -> Result<bool, End> {
        if !wait(&[self.socket.as_fd()], Duration::ZERO) {
            return Ok(false);
        }
        let Received {
            header,
            payload,
            descriptors,
        } = self.socket.receive(&mut self.payload[..]).map_err(ended)?;
        let payload = &self.payload[..payload];
        let reply = &mut self.reply[..];
        let done = session.command(device, &header, payload, descriptors, reply);
        if let Err(why) = &done {
            around.refused(command_name(header.command), why);
        }
        if header.flags & flag::NO_REPLY != 0 {
            return Ok(true);
        }
        let sent = match done {
            Ok(answer) => {
                let file = session.doorbells_file().filter(|_| answer.with_doorbells);
                let parts = [&reply[..answer.payload]];
                let header = header.reply(answer.payload);
                self.socket.send(&header, &parts, file.as_slice())
            }
            Err(why) => self.socket.send(&header.refusal(why.errno()), &[], &[]),
        };
        sent.map_err(ended)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
