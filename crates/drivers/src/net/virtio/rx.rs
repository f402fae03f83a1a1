//! Receiving (5.1.6.3, 5.1.6.4): each descriptor has a buffer. The header goes into the headroom of
//! the frame, so that both are one buffer, and nothing has to be taken off.

use super::config::Config;
use super::registers::{GUEST_CSUM, MRG_RXBUF, RECEIVE_QUEUE};
use crate::net::Error;
use crate::virtio::queue::{Queue, Table};
use crate::virtio::{self, Lie, Transport};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;
use core::ops::Range;
use device::ethernet::{HEADER_SIZE, VLAN_TAG_SIZE};
use device::virtio::{HEADER_SIZE as VIRTIO_BYTES, is_plain, parse};
use device::{BATCH_BYTES_MAX, Batch, FRAME_BYTES_MAX, Frame, NicCounts, Offload, Pool};
use hw::{DmaArena, Done, FromDevice, InFlight, Iova};

/// Shortest frame: an Ethernet header.
const FRAME_BYTES_MIN: usize = HEADER_SIZE;
/// Two tags.
const TAGS_BYTES: usize = 2 * VLAN_TAG_SIZE;

/// Bytes of the largest frame of this MTU, tags included.
pub fn frame_bytes(mtu: usize) -> usize {
    mtu.saturating_add(HEADER_SIZE + TAGS_BYTES)
}

/// The receive queue.
///
/// Each descriptor always has a buffer: those that come back are replaced, and made available again
/// at the end of each call.
pub struct Receiver<const N: usize> {
    queue: Queue<N>,
    /// By descriptor. Never freed, so that they are not given back while the device may write them.
    buffers: &'static mut [InFlight<Frame, FromDevice>; N],
    pool: Pool,
    /// Bytes that the device may write behind the shortest frame.
    payload_max: usize,
    /// Most frames of a call: what fills a batch by bytes, unless frames are large.
    call_max: usize,
    /// Whether frames may be large.
    large: bool,
    /// Whether a frame may lie in several buffers.
    merges: bool,
    /// Whether checksums may be left to be completed.
    checksums: bool,
}

impl<const N: usize> Receiver<N> {
    /// A queue full of buffers of `pool`.
    pub fn new(arena: &mut DmaArena, pool: Pool, config: &Config) -> Result<Self, Error> {
        let found = pool.frame_bytes_max();
        let wanted = match config.large {
            true => FRAME_BYTES_MAX,
            false => frame_bytes(config.mtu),
        };
        if found < wanted {
            return Err(Error::BufferSize { wanted, found });
        }
        // First, for what is lent does not come back.
        let queue = Queue::new(arena)?;
        let lend = |_| {
            let frame = pool.alloc_max().ok_or(Error::Buffers)?;
            let lent = InFlight::lend(frame);
            lent.map_or(Err(Error::Buffers), |(buffer, _)| Ok(buffer))
        };
        let buffers = (0..N).map(lend).collect::<Result<Vec<_>, _>>()?;
        let buffers = Box::try_from(buffers).map_err(|_| Error::Buffers)?;
        Ok(Self {
            queue,
            buffers: Box::leak(buffers),
            pool,
            payload_max: found - FRAME_BYTES_MIN,
            call_max: BATCH_BYTES_MAX / found,
            large: config.large,
            merges: false,
            checksums: false,
        })
    }

    /// Bytes of the largest frame that fits a buffer.
    pub fn frame_bytes_max(&self) -> usize {
        self.pool.frame_bytes_max()
    }

    /// Gives the queue to a device that has just been reset and has accepted `features`.
    pub fn set_up<T: Transport>(
        &mut self,
        transport: &T,
        features: u64,
    ) -> Result<(), virtio::Error> {
        self.merges = features & MRG_RXBUF != 0;
        self.checksums = features & GUEST_CSUM != 0;
        let queue = &mut self.queue;
        queue.set_up(transport, RECEIVE_QUEUE, features, true)?;
        let (table, bytes) = (queue.table(), VIRTIO_BYTES + self.pool.frame_bytes_max());
        for (descriptor, buffer) in self.buffers.iter().enumerate() {
            // Only what devices can reach was ever lent.
            if let Some(iova) = buffer.iova() {
                table.single(descriptor, place(iova), bytes, true);
            }
        }
        Ok(())
    }

    /// Makes all buffers available to a device that runs.
    pub fn offer_all<T: Transport>(&mut self, transport: &T) {
        self.queue.publish(transport, N);
    }

    /// Lets the next frame interrupt; whether there is one already.
    pub fn arm(&mut self) -> bool {
        self.queue.arm()
    }

    /// Moves frames to `batch` until it is full or there are no more.
    #[inline]
    pub fn receive<T: Transport>(
        &mut self,
        transport: &T,
        batch: &mut Batch,
        counts: &mut NicCounts,
    ) -> Result<(), Lie> {
        let Some((done, used)) = self.queue.used()? else {
            counts.polls_idle += 1;
            return Ok(());
        };
        counts.polls_busy += 1;
        let first = self.queue.seen();
        let mut turn = Turn {
            position: first,
            end: first + used,
            done,
        };
        loop {
            let stop = match (self.queue.is_shuffled(), self.large) {
                (true, _) => self.take_one(&mut turn, batch),
                (false, true) => self.take::<true>(&mut turn, batch),
                (false, false) => self.take::<false>(&mut turn, batch),
            };
            match stop {
                Stop::End => break,
                Stop::NoBuffer => {
                    counts.no_buffer += 1;
                    break;
                }
                Stop::Lie => return Err(Lie),
                Stop::OutOfTurn(descriptor) => {
                    self.queue.overtake(turn.position, descriptor)?;
                }
                Stop::Examine(frame) => {
                    let examined = self.examine(frame, &mut turn, counts)?;
                    // There is room: that was counted before.
                    examined.map(|frame| batch.push(frame));
                }
            }
        }
        self.queue.saw(turn.position);
        let next = self.queue.next() + (turn.position - first);
        self.queue.publish(transport, next);
        Ok(())
    }

    /// Moves plain frames, as long as they come in their turn. One for devices whose frames are
    /// large and one for the others, which pay nothing for it.
    #[inline]
    fn take<const LARGE: bool>(&mut self, turn: &mut Turn, batch: &mut Batch) -> Stop {
        // At hand for the loop: what is in memory would be loaded anew after each store.
        let (reports, table) = (self.queue.reports(), self.queue.table());
        let (buffers, pool) = (&mut *self.buffers, self.pool);
        let payload_max = self.payload_max;
        let room = match LARGE {
            true => batch.room(),
            false => batch.room().min(self.call_max),
        };
        let mut position = turn.position;
        let end = turn.end.min(position + room);
        let stop = loop {
            if position == end || LARGE && batch.is_full() {
                break Stop::End;
            }
            let (descriptor, length) = reports.element(position);
            if !reports.is_next(position, descriptor) {
                break Stop::OutOfTurn(descriptor);
            }
            if length.wrapping_sub(VIRTIO_BYTES + FRAME_BYTES_MIN) > payload_max {
                break Stop::Lie;
            }
            let slot = position & (N - 1);
            let buffer = &mut buffers[slot];
            let Some(mut frame) = exchange(pool, table, buffer, slot, &turn.done) else {
                break Stop::NoBuffer;
            };
            position += 1;
            frame.truncate(length - VIRTIO_BYTES);
            if !is_good(&frame) {
                break Stop::Examine(frame);
            }
            // There is room: that was counted before.
            let _ = batch.push(frame);
        };
        turn.position = position;
        stop
    }

    /// Moves one frame, whether it comes in its turn or not.
    fn take_one(&mut self, turn: &mut Turn, batch: &Batch) -> Stop {
        if turn.position == turn.end || batch.is_full() {
            return Stop::End;
        }
        let (descriptor, length) = self.queue.reports().element(turn.position);
        if length.wrapping_sub(VIRTIO_BYTES + FRAME_BYTES_MIN) > self.payload_max {
            return Stop::Lie;
        }
        let Ok(descriptor) = self.queue.overtake(turn.position, descriptor) else {
            return Stop::Lie;
        };
        let (table, buffer) = (self.queue.table(), &mut self.buffers[descriptor & (N - 1)]);
        let Some(mut frame) = exchange(self.pool, table, buffer, descriptor, &turn.done) else {
            return Stop::NoBuffer;
        };
        turn.position += 1;
        frame.truncate(length - VIRTIO_BYTES);
        Stop::Examine(frame)
    }

    /// Does what the header of a frame says: it lies in several buffers, of which the first is
    /// taken, or something is left to be done. `None` if it cannot be, or there is no room for it.
    #[cold]
    fn examine(
        &mut self,
        mut frame: Frame,
        turn: &mut Turn,
        counts: &mut NicCounts,
    ) -> Result<Option<Frame>, Lie> {
        // Whatever was read of it before: this copy counts.
        let header: Header = frame.before().ok_or(Lie)?;
        let [.., low, high] = header;
        let count = usize::from(u16::from_le_bytes([low, high]));
        // 5.1.6.4: without that feature, nothing is said.
        if self.merges && count != 1 {
            // The device shows all of them at once, and the first one is among them.
            let end = turn.position + count.checked_sub(1).ok_or(Lie)?;
            if end > turn.end {
                return Err(Lie);
            }
            let merged = self.merge(frame, turn.position..end, &turn.done)?;
            turn.position = end;
            let Some(whole) = merged else {
                counts.no_buffer += 1;
                return Ok(None);
            };
            frame = whole;
        }
        if is_plain(&header) {
            return Ok(Some(frame));
        }
        // What was not agreed on, the device cannot ask for.
        let agreed = |offload: &Offload| self.checksums && (self.large || offload.gso.is_none());
        let offload = parse(&header, frame.bytes()).ok().filter(agreed);
        let Some(offload) = offload else {
            counts.rx_error += 1;
            return Ok(None);
        };
        frame.set_offload(offload);
        Ok(Some(frame))
    }

    /// The frame with what lies in the buffers at these positions behind it, in a buffer that is
    /// large enough; `None` if there is none.
    fn merge(
        &mut self,
        frame: Frame,
        positions: Range<usize>,
        done: &Done,
    ) -> Result<Option<Frame>, Lie> {
        let mut whole = self.pool.alloc_max();
        let mut bytes = frame.len();
        if let Some(whole) = &mut whole {
            whole.bytes_mut()[..bytes].copy_from_slice(frame.bytes());
        }
        for position in positions {
            let (descriptor, length) = self.queue.reports().element(position);
            let descriptor = self.queue.overtake(position, descriptor)?;
            if length > VIRTIO_BYTES + self.pool.frame_bytes_max() {
                return Err(Lie);
            }
            let start = bytes;
            bytes += length;
            let target = whole.as_mut();
            let target = target.and_then(|whole| whole.bytes_mut().get_mut(start..bytes));
            // Without room, the buffer stays where it is: nobody looks into it.
            let (table, buffer) = (self.queue.table(), &mut self.buffers[descriptor & (N - 1)]);
            let piece = target
                .is_some()
                .then(|| exchange(self.pool, table, buffer, descriptor, done));
            match (piece.flatten(), target) {
                (Some(mut piece), Some(target)) => {
                    // No header comes before it.
                    piece.push_front(VIRTIO_BYTES).ok_or(Lie)?;
                    target.copy_from_slice(&piece.bytes()[..length]);
                }
                _ => whole = None,
            }
        }
        if let Some(whole) = &mut whole {
            whole.truncate(bytes);
        }
        Ok(whole)
    }
}

/// Buffers that the device says that it has used: those that were not looked at.
struct Turn {
    position: usize,
    end: usize,
    done: Done,
}

/// The header in front of a frame.
type Header = [u8; VIRTIO_BYTES];

/// Why no more plain frames are moved.
enum Stop {
    /// There are no more, or there is no room.
    End,
    /// No buffer is left to replace one.
    NoBuffer,
    /// The device cannot have written that.
    Lie,
    /// Another descriptor's buffer was used than the one whose turn it was.
    OutOfTurn(u32),
    /// The header of a frame says more than that this is one; its buffer is replaced.
    Examine(Frame),
}

/// Whether a frame lies in one buffer, and nothing is left to be done.
#[inline]
fn is_good(frame: &Frame) -> bool {
    let header: Option<Header> = frame.before();
    header.is_some_and(|header| header[10..] == [1, 0] && is_plain(&header))
}

/// Where the device writes the header of the frame that lies at this address.
#[inline]
fn place(frame: Iova) -> u64 {
    frame.raw() - VIRTIO_BYTES as u64
}

/// Puts a fresh buffer into the place of one that the device is done with.
#[inline]
fn exchange(
    pool: Pool,
    table: Table,
    buffer: &mut InFlight<Frame, FromDevice>,
    descriptor: usize,
    done: &Done,
) -> Option<Frame> {
    let (fresh, iova) = InFlight::lend(pool.alloc_max()?).ok()?;
    table.replace(descriptor, place(iova));
    Some(mem::replace(buffer, fresh).done(done))
}
