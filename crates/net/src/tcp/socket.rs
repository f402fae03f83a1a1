//! A connection with its bytes, and whoever waits for it.

use super::budget::Used;
use super::connection::{Connection, Failure, NEVER, State};
use super::identity::Ends;
use super::queues::{Payload, ReceiveQueue, SendQueue};
use super::saved::Saved;
use super::segment::Segment;
use super::seq::Seq;
use super::vault::{Berth, Body};
use crate::slices::Slices;
use alloc::vec::Vec;
use bytes::{Buf, Bytes};
use core::task::{Context, Poll, Waker};
use device::Frame;
use ports::Instant;

/// Bytes that may be queued and not acknowledged at first. It grows with the congestion window.
const SEND_FIRST: usize = 64 << 10;
/// The most that it grows to.
const SEND_MAX: usize = 4 << 20;

/// A connection with its bytes.
#[derive(Debug)]
pub struct Socket {
    pub(super) ends: Ends,
    pub(super) connection: Connection,
    pub(super) send: SendQueue,
    pub(super) receive: ReceiveQueue,
    /// Number of the first byte of `send`.
    pub(super) send_from: Seq,
    /// Waits for bytes, or for the end.
    reader: Option<Waker>,
    /// Waits for room, or for the opening.
    writer: Option<Waker>,
    /// Waits until all is acknowledged.
    lingerer: Option<Waker>,
    /// It stands in the line of those that may have something to send.
    pub(super) in_line: bool,
    /// When the clock will look at it; it may be too early.
    pub(super) armed: Instant,
    /// Its writer waits for memory.
    hungry: bool,
    /// It stands among those who are woken when there is some.
    pub(super) starves: bool,
    /// Its user has let go of it.
    pub(super) left: bool,
    /// Bytes that were read since the window last grew.
    read_since: u32,
    /// The state under which it is counted; it may be too early.
    pub(super) counted: State,
    /// Segments that were sent again.
    pub(super) again: u32,
    /// Its place in the vault, if the image has one.
    pub(super) berth: Option<Berth>,
}

/// Where the user of a connection is, by the numbers of its bytes: those of the next one that is
/// written, and of the next one that is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// To be written.
    pub written: u32,
    /// To be read.
    pub read: u32,
}

/// Why a socket does not do what it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The connection has failed.
    Failed(Failure),
    /// Its end was closed for sending.
    Closed,
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Failed(Failure::Refused) => "connection refused",
            Self::Failed(Failure::Reset) => "connection reset by the peer",
            Self::Failed(Failure::TimedOut) => "the peer does not answer",
            Self::Failed(Failure::Aborted) => "connection aborted",
            Self::Closed => "closed for sending",
        })
    }
}

impl core::error::Error for Error {}

impl Socket {
    pub(super) fn new(ends: Ends, connection: Connection, berth: Option<Berth>) -> Self {
        Self {
            ends,
            send_from: connection.unacknowledged(),
            connection,
            send: SendQueue::default(),
            receive: ReceiveQueue::default(),
            reader: None,
            writer: None,
            lingerer: None,
            in_line: false,
            armed: NEVER,
            hungry: false,
            starves: false,
            left: false,
            read_since: 0,
            counted: State::SynSent,
            again: 0,
            berth,
        }
    }

    /// Both ends.
    pub fn ends(&self) -> &Ends {
        &self.ends
    }

    /// What the connection knows.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Segments whose data had left before.
    pub fn sent_again(&self) -> u32 {
        self.again
    }

    /// Bytes of both queues.
    pub(super) fn memory(&self) -> usize {
        self.send.len() + self.receive.bytes()
    }

    /// What it has of the memory for queues.
    pub(super) fn used(&self) -> Used {
        Used {
            bytes: self.memory(),
            writes: self.hungry || !self.send.is_empty(),
        }
    }

    /// A segment has come, with its payload at the end of `frame`, `payload` bytes from its start.
    /// What it is answered with is the connection's; a RST for its sender is returned.
    pub(super) fn arrived(
        &mut self,
        segment: &Segment,
        frame: Frame,
        payload: usize,
        now: Instant,
    ) -> super::input::Outcome {
        let outcome = self.connection.receive(segment, now);
        if let Some(keep) = outcome.keep {
            let skip = payload + keep.skip as usize;
            self.receive
                .insert(keep.at, frame, skip, keep.len, self.berth);
        }
        self.caught_up();
        outcome
    }

    /// Something may have happened to the connection: queues and waiting tasks follow.
    pub(super) fn caught_up(&mut self) {
        let acknowledged = self.connection.unacknowledged();
        let count = acknowledged - self.send_from;
        if count > 0 {
            self.publish();
            self.send.acknowledged(count as usize, self.berth);
            self.send_from = acknowledged;
        }
        if self.connection.readable() > 0 || self.connection.is_finished() {
            wake(&mut self.reader);
        }
        let opening = matches!(self.connection.state(), State::SynSent | State::SynReceived);
        if !opening && (self.room() > 0 || self.connection.state() == State::Closed) {
            wake(&mut self.writer);
        }
        if self.lingerer.is_some() && !self.connection.is_outstanding() {
            wake(&mut self.lingerer);
        }
    }

    /// Has the vault know all that the peer or the user may know.
    #[inline]
    pub(super) fn publish(&self) {
        if let Some(berth) = self.berth {
            self.publish_as(berth, self.connection.save());
        }
    }

    /// The same as if this segment had left: it is about to.
    #[inline]
    pub(super) fn publish_leaving(&self, segment: &Segment) {
        if let Some(berth) = self.berth {
            self.publish_as(berth, self.connection.save_leaving(segment));
        }
    }

    fn publish_as(&self, berth: Berth, saved: Option<Saved>) {
        if let Some(saved) = saved {
            berth.publish(Body {
                saved,
                ends: self.ends,
                left: self.left.into(),
            });
        }
    }

    /// It has ended, and leaves nothing in the vault.
    pub(super) fn retract(&self) {
        if let Some(berth) = self.berth {
            berth.retract();
            let frames = self.send.kept().chain(self.receive.kept());
            frames.for_each(|frame| berth.forget(frame));
        }
    }

    /// Bytes that find memory now, if `free` are free of all.
    pub(super) fn free(&self, free: usize) -> usize {
        match self.berth {
            Some(berth) => free.min(self.send.room(berth)),
            None => free,
        }
    }

    /// Bytes that may be queued now: twice what may be on its way.
    fn room(&self) -> usize {
        let window = self.connection.congestion_window() as usize;
        let most = (2 * window).clamp(SEND_FIRST, SEND_MAX);
        most.saturating_sub(self.send.len())
    }

    /// Waits until the connection is open.
    pub(super) fn poll_open(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        match self.connection.state() {
            State::SynSent | State::SynReceived => {
                self.writer = Some(context.waker().clone());
                Poll::Pending
            }
            _ => Poll::Ready(self.failure().map_or(Ok(()), Err)),
        }
    }

    fn failure(&self) -> Option<Error> {
        self.connection.failure().map(Error::Failed)
    }

    /// How many bytes may be queued now, if so many are `free`, and the queue may become as long as
    /// its `share`; waits until it is one.
    pub(super) fn poll_room(
        &mut self,
        free: usize,
        share: usize,
        context: &mut Context<'_>,
    ) -> Poll<Result<usize, Error>> {
        if let Some(error) = self.failure() {
            return Poll::Ready(Err(error));
        }
        if !self.connection.may_queue() {
            return Poll::Ready(Err(Error::Closed));
        }
        let window = self.room();
        let room = window.min(free).min(share.saturating_sub(self.send.len()));
        self.hungry = room == 0 && window > 0;
        match room {
            0 => {
                self.writer = Some(context.waker().clone());
                Poll::Pending
            }
            room => Poll::Ready(Ok(room)),
        }
    }

    /// Waits until the peer has acknowledged all that was queued, and the end if there is one.
    pub(super) fn poll_acknowledged(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        if let Some(error) = self.failure() {
            return Poll::Ready(Err(error));
        }
        if self.connection.is_outstanding() {
            self.lingerer = Some(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    /// There is memory again.
    pub(super) fn feed(&mut self) {
        self.starves = false;
        wake(&mut self.writer);
    }

    /// Queues as much of `bytes` as there was room for; how many.
    pub(super) fn write(&mut self, bytes: &[u8]) -> usize {
        queue(&mut self.send, &mut self.connection, self.berth, bytes)
    }

    /// The same with slices, as many bytes as there is `room` for.
    pub(super) fn write_vectored(&mut self, slices: &Slices<'_>, room: usize) -> usize {
        let mut written = 0;
        for slice in slices.parts() {
            let count = slice.len().min(room - written);
            let taken = self.write(&slice[..count]);
            written += taken;
            if taken < slice.len() {
                break;
            }
        }
        written
    }

    /// The same with the first `count` of bytes that are handed over; they are taken off.
    pub(super) fn give(&mut self, bytes: &mut Bytes, count: usize) -> usize {
        if self.berth.is_some() {
            let kept = self.write(&bytes[..count]);
            bytes.advance(kept);
            return kept;
        }
        self.connection.queue(count as u32);
        self.send.give(bytes.split_to(count));
        count
    }

    /// Bytes that can be read now; 0 at the end.
    pub(super) fn poll_readable(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<usize, Error>> {
        match self.connection.readable() {
            0 if self.connection.is_finished() => Poll::Ready(match self.failure() {
                Some(error) => Err(error),
                None => Ok(0),
            }),
            0 => {
                self.reader = Some(context.waker().clone());
                Poll::Pending
            }
            count => Poll::Ready(Ok(count as usize)),
        }
    }

    pub(super) fn read(&mut self, readable: usize, place: &mut [u8]) -> usize {
        let mut done = Vec::new();
        let keeps = self.berth.is_some();
        let count = self.receive.read(readable, place, |piece| {
            if keeps {
                done.push(piece);
            }
        });
        self.has_read(count);
        self.release(&done);
        count
    }

    pub(super) fn take(&mut self, readable: usize) -> Option<Payload> {
        let payload = self.receive.take(readable)?;
        self.has_read(payload.len());
        self.release(core::slice::from_ref(&payload));
        Some(payload)
    }

    /// Bytes that can be given back whatever others have: while nothing is to be sent, what comes
    /// would have no way out of memory that it fills. They take a buffer and make one free.
    pub(super) fn turned_over(&self) -> usize {
        let buffer = match self.berth {
            Some(berth) if berth.vault().pool().free() > 0 => berth.buffer(),
            Some(_) => 0,
            None => usize::MAX,
        };
        match self.send.is_empty() {
            true => self.receive.first().len().min(buffer),
            false => 0,
        }
    }

    /// Bytes behind the first `skip` ones that can be read, which stay; none at the end.
    pub(super) fn poll_look(
        &mut self,
        skip: usize,
        context: &Context<'_>,
    ) -> Poll<Result<&[u8], Error>> {
        let readable = self.connection.readable() as usize;
        if let Some(count @ 1..) = readable.checked_sub(skip) {
            // Less than the largest window.
            let bytes = self.receive.from(self.connection.unread + skip as u32);
            return Poll::Ready(Ok(&bytes[..bytes.len().min(count)]));
        }
        if !self.connection.is_finished() {
            self.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(self.failure().map_or(Ok(&[]), Err))
    }

    /// The first `count` bytes are read, or as many as there are.
    pub(super) fn pass(&mut self, count: usize) {
        let mut left = count.min(self.connection.readable() as usize);
        let mut done = Vec::new();
        while left > 0 {
            let now = self.receive.first().len().min(left);
            if now == 0 {
                break;
            }
            done.extend(self.receive.skip(now));
            left -= now;
            self.has_read(now);
        }
        self.release(&done);
    }

    /// Where the user is in both streams, if the vault has the connection.
    pub(super) fn marks(&self) -> Option<Marks> {
        self.berth.map(|_| Marks {
            written: self.connection.queued.0,
            read: self.connection.unread.0,
        })
    }

    /// Queues what has come to be sent back, at most `most` bytes, and takes as much as read; how
    /// many. The vault knows of both or of neither.
    pub(super) fn give_back(&mut self, most: usize) -> usize {
        let first = self.receive.first();
        let bytes = &first[..first.len().min(most)];
        let count = queue(&mut self.send, &mut self.connection, self.berth, bytes);
        let done = self.receive.skip(count);
        self.has_read(count);
        self.release(done.as_slice());
        count
    }

    /// What was read needs its place in the vault no more.
    fn release(&self, read: &[Payload]) {
        if let Some(berth) = self.berth {
            self.publish();
            let frames = read.iter().filter_map(Payload::frame);
            frames.for_each(|frame| berth.forget(frame));
        }
    }

    /// A user that keeps up with a full window gets a larger one.
    fn has_read(&mut self, count: usize) {
        self.connection.read(count as u32);
        self.read_since = self.read_since.saturating_add(count as u32);
        let window = self.connection.receive_window();
        if self.read_since / 2 >= window && self.connection.readable() < window / 4 {
            self.connection.set_receive(window.saturating_mul(2));
            self.read_since = 0;
        }
    }
}

/// Queues as much of `bytes` to be sent as there was room for; how many. With a berth, they lie in
/// the vault.
fn queue(
    send: &mut SendQueue,
    connection: &mut Connection,
    berth: Option<Berth>,
    bytes: &[u8],
) -> usize {
    let count = match berth {
        Some(berth) => send.keep(berth, connection.queued, bytes),
        None => {
            send.write(bytes);
            bytes.len()
        }
    };
    connection.queue(count as u32);
    count
}

/// Wakes whoever waits.
pub(super) fn wake(waiting: &mut Option<Waker>) {
    if let Some(waker) = waiting.take() {
        waker.wake();
    }
}
