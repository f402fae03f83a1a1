//! Connections: negotiation, requests in, replies out, both at the same time.

use crate::disk::{Disk, Seat, Slot};
use crate::export::{Command, Export, error_of};
use crate::flights::{Flight, Flights};
use crate::negotiation::{Negotiation, Next, greeting};
use crate::reply;
use crate::wire::{
    self, OPTION_BYTES, OPTION_BYTES_MAX, PAYLOAD_MAX, REQUEST_BYTES, command, command_flag,
    option_header,
};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::future::poll_fn;
use core::pin::pin;
use core::task::Poll;
use core::time::Duration;
use device::block::{Durability, Operation};
use net::socket::{Error, Listener, Sockets, Stream};
use net::task::{Clock, Either, Spawner, select};

/// The port that IANA has for it.
pub const PORT: u16 = 10809;
/// Connections that may wait to be accepted.
const BACKLOG: usize = 16;
/// How long a client may take to choose the disk.
const CHOOSING: Duration = Duration::from_secs(10);
/// How long a client may take to make room for a reply.
const SLOW: Duration = Duration::from_secs(60);
/// How long replies are still written to a client that asks for nothing more.
const LINGER: Duration = Duration::from_secs(10);
/// A client that is silent for so long may have vanished, and is asked then.
const SILENT: Duration = Duration::from_secs(60);
/// Bytes of an option that is too long, read away piece by piece; more ends the connection.
const TOO_LONG_MAX: u32 = 1 << 20;
/// As above, of a piece.
const PIECE: usize = 1024;

/// Serves whoever comes; who finds no place at the disk is not.
///
/// # Errors
/// If nobody can come any more.
pub async fn serve<N: Sockets>(
    sockets: N,
    name: &str,
    disk: Disk,
    (clock, spawner): (Clock, Spawner),
) -> Result<(), Error>
where
    N::Stream: 'static,
{
    let mut listener = sockets.listen(([0; 4], PORT).into(), BACKLOG)?;
    let export = Export {
        name: name.into(),
        capacity: disk.capacity(),
        limits: disk.limits(),
    };
    loop {
        let stream = listener.accept().await?;
        let Some(seat) = disk.seat() else {
            continue;
        };
        let (export, clock) = (export.clone(), clock.clone());
        spawner.spawn(async move {
            // A client that goes away in the middle is no event.
            let _ = converse(stream, &export, &seat, &clock).await;
        });
    }
}

/// Serves one client until it goes, or says what no client may.
///
/// # Errors
/// If the connection fails.
pub async fn converse<S: Stream>(
    mut stream: S,
    export: &Export,
    seat: &Seat,
    clock: &Clock,
) -> Result<(), Error> {
    stream.set_no_delay(true);
    stream.set_keep_alive(Some(SILENT));
    let negotiated = {
        let choice = pin!(negotiate(&mut stream, export));
        clock.timeout(CHOOSING, choice).await
    };
    let structured = match negotiated {
        Some(negotiated) => negotiated?,
        None => {
            stream.abort();
            return Ok(());
        }
    };
    let Some(structured) = structured else {
        return Ok(());
    };
    let (mut input, stream) = stream.split();
    let (mut output, stream) = stream.split();
    let talked = talk((&mut input, &mut output), (export, seat, clock), structured).await;
    drop((input, output));
    // What a client does not take is not kept for it.
    match talked {
        Err(ABORTED) => stream.abort(),
        _ => drop(stream),
    }
    talked
}

/// Takes requests and replies to them, until the client goes.
///
/// # Errors
/// As [`converse`]; [`ABORTED`] if the client does not take its replies.
async fn talk<S: Stream>(
    (input, output): (&mut S, &mut S),
    (export, seat, clock): (&Export, &Seat, &Clock),
    structured: bool,
) -> Result<(), Error> {
    let conversation = Conversation {
        export,
        seat,
        clock,
        structured,
        flights: RefCell::default(),
        is_closing: Cell::new(false),
        deferred: RefCell::default(),
    };
    let mut replies = pin!(conversation.reply_to_all(output));
    let requests = pin!(conversation.take_all(input));
    match select(requests, replies.as_mut()).await {
        Either::First(taken) => taken?,
        Either::Second(replied) => return replied,
    }
    // What is under way is done, and said.
    conversation.is_closing.set(true);
    clock.timeout(LINGER, replies).await.unwrap_or(Err(ABORTED))
}

/// Whether replies are to be structured; `None` if the client wants nothing.
async fn negotiate<S: Stream>(stream: &mut S, export: &Export) -> Result<Option<bool>, Error> {
    stream.write(&greeting()).await?;
    let mut flags = [0; 4];
    if stream.read_exact(&mut flags).await?.is_none() {
        return Ok(None);
    }
    let Some(mut negotiation) = Negotiation::new(u32::from_be_bytes(flags)) else {
        return Ok(None);
    };
    let mut answers = Vec::new();
    loop {
        let mut header = [0; OPTION_BYTES];
        if stream.read_exact(&mut header).await?.is_none() {
            return Ok(None);
        }
        let Some((option, length)) = option_header(&header) else {
            return Ok(None);
        };
        let data = match length {
            0..=OPTION_BYTES_MAX => {
                let mut data = vec![0; length as usize];
                if stream.read_exact(&mut data).await?.is_none() {
                    return Ok(None);
                }
                Some(data)
            }
            length if length <= TOO_LONG_MAX => {
                if read_away(stream, length).await?.is_none() {
                    return Ok(None);
                }
                None
            }
            _ => return Ok(None),
        };
        let next = negotiation.answer(export, option, data.as_deref(), &mut answers);
        stream.write(&answers).await?;
        answers.clear();
        match next {
            Next::Option => {}
            Next::Requests => return Ok(Some(negotiation.structured)),
            Next::End => return Ok(None),
        }
    }
}

/// Reads bytes that nobody looks at; `None` if the connection ends before.
async fn read_away<S: Stream>(stream: &mut S, length: u32) -> Result<Option<()>, Error> {
    let mut piece = [0; PIECE];
    let mut left = length as usize;
    while left > 0 {
        let part = left.min(PIECE);
        if stream.read_exact(&mut piece[..part]).await?.is_none() {
            return Ok(None);
        }
        left -= part;
    }
    Ok(Some(()))
}

/// What is to be replied to.
enum Event<'a> {
    /// A request that is over without anything from the disk.
    Over(u32),
    /// A part of one that the disk has done.
    Part(Slot<'a>),
    /// The client goes, and nothing is under way.
    End,
}

/// A client that has chosen the disk.
struct Conversation<'a> {
    export: &'a Export,
    seat: &'a Seat,
    clock: &'a Clock,
    structured: bool,
    flights: RefCell<Flights>,
    /// Whether the client asks for nothing more.
    is_closing: Cell<bool>,
    /// What came between the parts of a reply that must stay together.
    deferred: RefCell<VecDeque<Event<'a>>>,
}

impl<'a> Conversation<'a> {
    /// Takes requests until the client goes, or says what is none.
    async fn take_all<S: Stream>(&self, input: &mut S) -> Result<(), Error> {
        let mut header = [0; REQUEST_BYTES];
        while input.read_exact(&mut header).await?.is_some() {
            let Some(request) = wire::Request::parse(&header) else {
                break;
            };
            let command = self.export.command(&request);
            if command == Ok(Command::Disconnect) || request.payload() > PAYLOAD_MAX {
                break;
            }
            if self.take(input, &request, command).await?.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Begins a request; `None` if the connection ends in its middle.
    async fn take<S: Stream>(
        &self,
        input: &mut S,
        request: &wire::Request,
        command: Result<Command, u32>,
    ) -> Result<Option<()>, Error> {
        let flush = request.flags & command_flag::FUA != 0 || command == Ok(Command::Flush);
        let writes = !matches!(command, Ok(Command::Read) | Err(_));
        let limits = &self.export.limits;
        let number = self.begin(Flight {
            cookie: request.cookie,
            // One that is refused gets the reply of a read as well.
            is_read: request.command == command::READ,
            offset: request.offset,
            length: request.length,
            // Where each write is durable, there is nothing to flush.
            flush: flush && writes && limits.durability == Durability::Flushed,
            left: 0,
            error: command.err(),
        });
        let number = number.await;
        let part = self.seat.part_bytes() as u64;
        let (operation, part) = match command {
            Err(_) => {
                if read_away(input, request.payload()).await?.is_none() {
                    self.end(number);
                    return Ok(None);
                }
                self.over(number);
                return Ok(Some(()));
            }
            Ok(Command::Flush | Command::Disconnect) => {
                self.flush(number).await;
                return Ok(Some(()));
            }
            Ok(Command::Read) => (Operation::Read, part),
            Ok(Command::Write) => (Operation::Write, part),
            Ok(Command::Trim) => (Operation::Discard, limits.range_bytes_max),
            Ok(Command::Zeroes { holes: true }) if limits.write_zeroes => {
                (Operation::WriteZeroes, limits.range_bytes_max)
            }
            Ok(Command::Zeroes { .. }) => (Operation::Write, part),
        };
        let data = match command {
            Ok(Command::Write) => Some(input),
            _ => None,
        };
        self.split(data, request, number, (operation, part)).await
    }

    /// Hands a request to the disk in parts. What it writes comes from `data`, or is zeroes.
    async fn split<S: Stream>(
        &self,
        mut data: Option<&mut S>,
        request: &wire::Request,
        number: u32,
        (operation, part): (Operation, u64),
    ) -> Result<Option<()>, Error> {
        let length = u64::from(request.length);
        self.set_left(number, length.div_ceil(part.max(1)) as u32);
        if length == 0 {
            self.over(number);
        }
        let mut at = 0;
        while at < length {
            let mut slot = self.seat.slot().await;
            slot.operation = operation;
            slot.offset = request.offset + at;
            slot.length = part.min(length - at);
            at += slot.length;
            let bytes = slot.length;
            if operation == Operation::Write {
                for part in slot.buffers.parts_mut(bytes) {
                    match &mut data {
                        Some(input) => {
                            if input.read_exact(part).await?.is_none() {
                                // What is with the disk of it comes back to nobody.
                                self.end(number);
                                return Ok(None);
                            }
                        }
                        None => part.fill(0),
                    }
                }
            }
            slot.submit(number);
        }
        Ok(Some(()))
    }

    /// Finds a place for a request, and waits for one if there is none.
    async fn begin(&self, flight: Flight) -> u32 {
        poll_fn(|context| match self.flights.borrow_mut().begin(flight) {
            Some(number) => Poll::Ready(number),
            None => self.seat.wait(context),
        })
        .await
    }

    fn set_left(&self, number: u32, left: u32) {
        if let Some(flight) = self.flights.borrow_mut().get(number) {
            flight.left = left;
        }
    }

    /// A request is over without the disk.
    fn over(&self, number: u32) {
        self.flights.borrow_mut().is_over(number);
        self.seat.wake();
    }

    /// Flushes the disk for a request.
    async fn flush(&self, number: u32) {
        let mut is_wanted = false;
        if let Some(flight) = self.flights.borrow_mut().get(number) {
            is_wanted = core::mem::take(&mut flight.flush);
            flight.left = 1;
        }
        if !is_wanted {
            self.over(number);
            return;
        }
        let mut slot = self.seat.slot().await;
        (slot.operation, slot.length) = (Operation::Flush, 0);
        slot.submit(number);
    }

    /// Replies to what is over, until the client has gone and nothing is under way.
    async fn reply_to_all<S: Stream>(&self, output: &mut S) -> Result<(), Error> {
        loop {
            let deferred = self.deferred.borrow_mut().pop_front();
            let event = match deferred {
                Some(event) => event,
                None => self.event().await,
            };
            match event {
                Event::Over(number) => self.last_reply(output, number).await?,
                Event::Part(slot) => self.part(output, slot).await?,
                Event::End => return Ok(()),
            }
        }
    }

    async fn event(&self) -> Event<'a> {
        poll_fn(|context| {
            let over = self.flights.borrow_mut().next_over();
            if let Some(number) = over {
                return Poll::Ready(Event::Over(number));
            }
            if let Some(slot) = self.seat.done() {
                return Poll::Ready(Event::Part(slot));
            }
            if self.is_closing.get() && self.flights.borrow().is_empty() {
                return Poll::Ready(Event::End);
            }
            self.seat.wait(context)
        })
        .await
    }

    /// Notes that a part came back; the flight as it is now.
    fn came_back(&self, slot: &Slot<'_>) -> Option<Flight> {
        let mut flights = self.flights.borrow_mut();
        let flight = flights.get(slot.flight())?;
        flight.left = flight.left.saturating_sub(1);
        if let Err(failed) = slot.result {
            flight.error.get_or_insert(error_of(failed));
        }
        Some(*flight)
    }

    /// The disk has done a part of a request.
    async fn part<S: Stream>(&self, output: &mut S, mut slot: Slot<'a>) -> Result<(), Error> {
        let number = slot.flight();
        let Some(flight) = self.came_back(&slot) else {
            return Ok(());
        };
        if flight.is_read && self.structured {
            return self.chunk(output, &slot, &flight).await;
        }
        if flight.is_read {
            return self.together(output, slot, &flight).await;
        }
        if flight.left > 0 {
            return Ok(());
        }
        if flight.flush && flight.error.is_none() {
            if let Some(flight) = self.flights.borrow_mut().get(number) {
                (flight.flush, flight.left) = (false, 1);
            }
            (slot.operation, slot.length) = (Operation::Flush, 0);
            slot.submit(number);
            return Ok(());
        }
        drop(slot);
        self.last_reply(output, number).await
    }

    /// Sends a part of a read as it comes.
    async fn chunk<S: Stream>(
        &self,
        output: &mut S,
        slot: &Slot<'_>,
        flight: &Flight,
    ) -> Result<(), Error> {
        let is_last = flight.left == 0;
        if slot.result.is_ok() {
            // If another part has failed, the last chunk says so.
            let ends = is_last && flight.error.is_none();
            let length = slot.length as u32;
            let head = reply::data(ends, flight.cookie, slot.offset, length);
            self.write(output, &head, Some(slot)).await?;
            if ends {
                self.end(slot.flight());
                return Ok(());
            }
        }
        match is_last {
            true => self.last_reply(output, slot.flight()).await,
            false => Ok(()),
        }
    }

    /// Sends all of a read, whose first part to come is `slot`: a simple reply is in order and in
    /// one piece, and says first whether there was an error.
    async fn together<S: Stream>(
        &self,
        output: &mut S,
        slot: Slot<'a>,
        flight: &Flight,
    ) -> Result<(), Error> {
        let number = slot.flight();
        let (mut next, end) = (flight.offset, flight.offset + u64::from(flight.length));
        let mut held = vec![slot];
        loop {
            while let Some(place) = held.iter().position(|slot| slot.offset == next) {
                let slot = held.swap_remove(place);
                let has_begun = next > flight.offset;
                match (slot.result, has_begun) {
                    (Ok(()), _) => {}
                    // Nothing can be said any more ("Simple reply message").
                    (Err(_), true) => return Err(ABORTED),
                    (Err(_), false) => {
                        drop((slot, held));
                        return self.fail(output, number).await;
                    }
                }
                let head = reply::simple(0, flight.cookie);
                let head = if has_begun { &[][..] } else { &head[..] };
                self.write(output, head, Some(&slot)).await?;
                next += slot.length;
            }
            if next == end {
                self.end(number);
                return Ok(());
            }
            held.push(self.next_part_of(number).await);
        }
    }

    /// The next part of this flight that comes back. What else comes is kept.
    async fn next_part_of(&self, number: u32) -> Slot<'a> {
        loop {
            // It may have come while others were waited for.
            let is_it =
                |event: &Event<'_>| matches!(event, Event::Part(slot) if slot.flight() == number);
            let kept = {
                let mut deferred = self.deferred.borrow_mut();
                let place = deferred.iter().position(is_it);
                place.and_then(|place| deferred.remove(place))
            };
            let event = match kept {
                Some(event) => event,
                None => self.event().await,
            };
            match event {
                Event::Part(slot) if slot.flight() == number => {
                    self.came_back(&slot);
                    return slot;
                }
                other => self.deferred.borrow_mut().push_back(other),
            }
        }
    }

    /// Waits for the rest of a read that has failed, and says so.
    async fn fail<S: Stream>(&self, output: &mut S, number: u32) -> Result<(), Error> {
        while self
            .flights
            .borrow_mut()
            .get(number)
            .is_some_and(|flight| flight.left > 0)
        {
            self.next_part_of(number).await;
        }
        self.last_reply(output, number).await
    }

    /// The last reply to a request, which has no data.
    async fn last_reply<S: Stream>(&self, output: &mut S, number: u32) -> Result<(), Error> {
        let flight = self.flights.borrow_mut().get(number).copied();
        let Some(Flight {
            cookie,
            is_read,
            error,
            ..
        }) = flight
        else {
            return Ok(());
        };
        self.end(number);
        // To a read, a client that wants structured replies gets no other.
        match (self.structured && is_read, error) {
            (true, Some(error)) => self.write(output, &reply::error(error, cookie), None).await,
            (true, None) => self.write(output, &reply::nothing(cookie), None).await,
            (false, error) => {
                let head = reply::simple(error.unwrap_or(0), cookie);
                self.write(output, &head, None).await
            }
        }
    }

    /// A request is no longer under way.
    fn end(&self, number: u32) {
        self.flights.borrow_mut().end(number);
        self.seat.wake();
    }

    /// Writes a head and the data of a part, as one.
    async fn write<S: Stream>(
        &self,
        output: &mut S,
        head: &[u8],
        slot: Option<&Slot<'_>>,
    ) -> Result<(), Error> {
        let data = slot.and_then(|slot| slot.buffers.parts(slot.length).next());
        let slices = [head, data.unwrap_or_default()];
        let written = pin!(output.write_vectored(&slices));
        match self.clock.timeout(SLOW, written).await {
            Some(written) => written,
            None => Err(ABORTED),
        }
    }
}

/// The connection has to end.
const ABORTED: Error = Error::Failed(net::tcp::socket::Error::Closed);
