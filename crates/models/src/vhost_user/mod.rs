//! A virtio device as a process, for front ends that have its registers themselves, as QEMU and
//! DPDK's virtio-user have: the back end of vhost-user (QEMU `docs/interop/vhost-user.rst`).
//!
//! The front end settles features with the driver, lends its memory, and passes an event for each
//! direction of each queue; from then on the device and the driver share queues and nothing else.
//!
//! | module | what |
//! |---|---|
//! | `message` | messages of the protocol |
//! | `session` | what one front end has |
//! | `ring` | a queue as it sets it up |
//!
//! A back end that is killed comes back: the front end connects again, hands over the memory in
//! which inflight chains are noted, and what had been begun is done again before anything else.
//!
//! Why not rust-vmm's crates `vhost` and `vhost-user-backend`: they bring `vm-memory` and a thread
//! for each queue, take memory that can be shrunk under them, and wait for ever for a front end
//! that stops within a message.
//!
//! **The front end is hostile**, as clients of [`vfio_user`](crate::vfio_user) are, and is treated
//! alike. One that is refused something, and did not ask to be told, is dropped: it would go on
//! with a device that is not what it thinks.
//!
//! What is left out: logs of dirty memory for migration, packed virtqueues, an IOMMU of the front
//! end's, and the channel from the back end to the front end.

pub(crate) mod message;
mod ring;
mod session;
#[cfg(test)]
mod tests;

pub use message::Header;
pub use session::{Answer, BackEnd, PAYLOAD_MAX};

use crate::client::listener::{Listener, SLEEP_MAX};
use crate::client::{Around, End, ended, wait};
use crate::device::Progress;
use crate::virtio::VirtioDevice;
use ::vfio_user::socket::{Received, Socket};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};
use std::{io, iter};

/// Turns without work before the device sleeps: it takes about as long as to fall asleep and to be
/// woken up.
const IDLE_TURNS: u32 = 64;
/// One turn in so many looks for a message.
const MESSAGE_TURNS: u32 = 16;
/// How long it sleeps at most if its driver gives no notifications.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Where front ends come from.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    /// Whether the device never sleeps while it has a front end.
    pub busy: bool,
}

impl Server {
    /// Listens at `path`, as [`vfio_user::Server::bind`](crate::vfio_user::Server::bind) does.
    ///
    /// # Errors
    /// The same.
    pub fn bind(path: &Path) -> io::Result<Self> {
        Ok(Self {
            listener: Listener::bind(path)?,
            busy: false,
        })
    }

    /// Waits for a front end and serves it until it goes.
    pub fn serve<D: VirtioDevice>(
        &self,
        device: &mut BackEnd<D>,
        around: &mut impl Around<BackEnd<D>>,
    ) -> End {
        let socket = match self.listener.accept(device, around) {
            Ok(socket) => socket,
            Err(end) => return end,
        };
        let end = self.run(&socket, device, around);
        device.disconnect();
        end
    }

    fn run<D: VirtioDevice>(
        &self,
        socket: &Socket,
        device: &mut BackEnd<D>,
        around: &mut impl Around<BackEnd<D>>,
    ) -> End {
        let start = Instant::now();
        let (mut turns, mut idle, mut now) = (0u32, 0, Duration::ZERO);
        loop {
            let mut worked = device.poll(now) != Progress::default();
            if device.is_lost() {
                return End::Lost;
            }
            // To ask the kernel for either takes as long as some frames.
            if turns.is_multiple_of(MESSAGE_TURNS) {
                now = start.elapsed();
                match obey(socket, device, around) {
                    Ok(obeyed) => worked |= obeyed,
                    Err(end) => return end,
                }
            }
            turns = turns.wrapping_add(1);
            if around.turn(device).is_break() {
                return End::Stopped;
            }
            if worked {
                idle = 0;
                continue;
            }
            idle += 1;
            if idle < IDLE_TURNS || self.busy {
                continue;
            }
            let fixed = iter::once(socket.as_fd()).chain(device.wire_descriptor());
            let watched: Vec<BorrowedFd<'_>> = fixed.chain(device.kicks()).collect();
            let most = match device.must_look() {
                true => LOOK_EVERY,
                false => SLEEP_MAX,
            };
            if wait(&watched, most) {
                device.hear();
            }
            // One look at everything after a sleep, and back to it if there is nothing.
            (idle, turns) = (IDLE_TURNS - 1, 0);
        }
    }
}

/// Takes one message, if there is one, and answers it; whether there was one.
fn obey<D: VirtioDevice>(
    socket: &Socket,
    device: &mut BackEnd<D>,
    around: &mut impl Around<BackEnd<D>>,
) -> Result<bool, End> {
    if !wait(&[socket.as_fd()], Duration::ZERO) {
        return Ok(false);
    }
    let (mut payload, mut reply) = ([0; PAYLOAD_MAX], [0; PAYLOAD_MAX]);
    let Received {
        header,
        payload: len,
        descriptors,
    } = socket.receive_as::<Header>(&mut payload).map_err(ended)?;
    let acknowledged = device.acknowledges(&header);
    let done = device.message(&header, &payload[..len], descriptors, &mut reply);
    let (bytes, file) = match done {
        Ok(Answer::Bytes(bytes)) => (bytes, None),
        Ok(Answer::File(bytes, file)) => (bytes, Some(file)),
        Ok(Answer::Done) if !acknowledged => return Ok(true),
        Ok(Answer::Done) => (session::put(&mut reply, &0u64), None),
        Err(why) if acknowledged => {
            around.refused(message::name(header.request), &why);
            (session::put(&mut reply, &1u64), None)
        }
        Err(why) => return Err(End::Refused(message::name(header.request), why)),
    };
    let file = file.as_ref().map(AsFd::as_fd);
    let sent = socket.send(&header.reply(bytes), &[&reply[..bytes]], file.as_slice());
    sent.map_err(ended)?;
    Ok(true)
}
