//! What the driver does all the time, one thing after the other: it brings the disk up, carries
//! requests out, and resets what is not to be relied on.

use super::disk::{ASK_NANOSECONDS, Disk, READY_NANOSECONDS};
use super::scsi::{Command, Meaning, unmap_list};
use super::transport::{FLUSH_NANOSECONDS, Scattered, TRANSFER_NANOSECONDS, Transport};
use super::{Desk, limits};
use crate::block::flight::{self, Flight, State, landed};
use crate::net::recovery::{Recovery, Remedy};
use crate::usb::tree::Found;
use crate::usb::wait::{again, late};
use crate::usb::{Error, Lie};
use alloc::boxed::Box;
use alloc::rc::Rc;
use core::cell::RefCell;
use device::block::{BlockError, Operation, Request};
use hw::Reachable;

/// How often a command is tried that the disk says to try again.
const TRIES_MAX: usize = 8;
/// The status of a transfer that moved less than it should, and of which the disk says that it did
/// it.
pub const SHORT: u16 = 0xffff;

/// The driver at work.
pub struct Task {
    pub way: Transport,
    pub desk: Rc<RefCell<Desk>>,
    pub recovery: Recovery,
    /// What the device has.
    pub flight: Option<Flight>,
    /// The disk as it was found first.
    pub disk: Option<(Found, Disk)>,
    /// Whether something was written since the last flush, and whether some of that may be lost.
    pub is_dirty: bool,
    pub has_lost: bool,
}

/// The driver at work, until the device is given up.
#[expect(
    clippy::await_holding_refcell_ref,
    reason = "nobody else has it as long as this lives"
)]
pub async fn live(task: Rc<RefCell<Task>>) {
    task.borrow_mut().live().await;
}

impl Task {
    /// All of it.
    async fn live(&mut self) {
        let mut error = match self.way.host.reset().await {
            Ok(_done) => self.rise().await.err(),
            Err(error) => Some(error),
        };
        if error.is_none() {
            loop {
                let trouble = self.serve().await;
                self.desk.borrow_mut().trouble.last = Some(trouble);
                error = self.recover(trouble).await.err();
                if error.is_some() {
                    break;
                }
            }
        }
        self.way.host.stop();
        // What it has it keeps: nobody knows whether it still reads and writes there.
        let abandoned = flight::abandoned(core::slice::from_mut(&mut self.flight));
        let mut desk = self.desk.borrow_mut();
        desk.done.extend(abandoned);
        if error.is_some() {
            desk.trouble.last = error;
        }
        desk.give_up();
    }

    /// Brings the disk up behind a reset.
    async fn rise(&mut self) -> Result<(), Error> {
        self.way.host.start().await?;
        let only = self.disk.as_ref().map(|(found, _)| found.way);
        let found = self.way.host.find(only.as_ref()).await?;
        let disk = self.way.open(&found).await?;
        match &mut self.disk {
            // Nothing is read from another one, and nothing written.
            Some((_, known)) if *known != disk => return Err(Error::Another),
            Some((way, _)) => *way = found,
            None => self.disk = Some((found, disk)),
        }
        let host = &mut self.way.host;
        host.watched = Some(found.device.place.root);
        host.answered = host.now();
        self.recovery.comes_up(host.answered);
        let mut desk = self.desk.borrow_mut();
        desk.limits = limits(&disk);
        desk.capacity = disk.capacity;
        desk.state = State::Running;
        Ok(())
    }

    /// Resets a device that is not to be relied on, until it works again.
    ///
    /// # Errors
    /// [`Error`]: it is given up.
    async fn recover(&mut self, mut error: Error) -> Result<(), Error> {
        self.desk.borrow_mut().state = State::Rising;
        self.loses();
        loop {
            if let (false, Some((found, _))) = (is_of_controller(&error), self.disk)
                && self.way.host.is_unplugged(&found).await == Ok(true)
            {
                // Whatever is plugged in there now gets nothing.
                error = Error::Unplugged;
            }
            // A device that is silent works no more: the last answer counts.
            let remedy = self.recovery.failed(self.way.host.answered);
            let stopped = self.stop(&error).await;
            if remedy == Remedy::GiveUp || stopped.is_err() || is_final(&error) {
                return Err(stopped.err().unwrap_or(error));
            }
            self.desk.borrow_mut().trouble.resets += 1;
            match self.rise().await {
                Ok(()) => return Ok(()),
                Err(next) => error = next,
            }
            self.desk.borrow_mut().trouble.last = Some(error);
        }
    }

    /// Has the device stop; what it had comes back, on its word that it has nothing any more.
    async fn stop(&mut self, why: &Error) -> Result<(), Error> {
        let done = self.way.host.reset().await?;
        let error = match is_final(why) {
            true => BlockError::Gone,
            false => BlockError::Reset,
        };
        if let Some(flight) = self.flight.take() {
            let request = landed(flight, &done, Err(error));
            self.desk.borrow_mut().done.push(request);
        }
        Ok(())
    }

    /// Carries requests out, until something is wrong.
    async fn serve(&mut self) -> Error {
        loop {
            let request = self.desk.borrow_mut().waiting.pop_front();
            let carried = match request {
                Some(request) => self.carry_out(request).await,
                None => self.way.host.idle(),
            };
            if let Err(error) = carried {
                return error;
            }
            if self.desk.borrow().waiting.is_empty() {
                again().await;
            }
        }
    }

    /// Carries a request out, and hands it back.
    async fn carry_out(&mut self, request: Box<Request>) -> Result<(), Error> {
        let operation = request.operation;
        self.flight = Some(Flight {
            request,
            buffers: None,
        });
        let result = self.attempt().await?;
        match (operation, result) {
            (Operation::Write, Ok(())) => self.is_dirty = true,
            (Operation::Flush, Ok(())) => self.is_dirty = false,
            _ => {}
        }
        if let Some(Flight { mut request, .. }) = self.flight.take() {
            request.result = result;
            self.desk.borrow_mut().done.push(request);
        }
        Ok(())
    }

    /// What becomes of the request that is to be carried out; its buffers are back then.
    async fn attempt(&mut self) -> Result<Result<(), BlockError>, Error> {
        let command = match self.describe() {
            Ok(Some(command)) => command,
            Ok(None) => return Ok(Ok(())),
            Err(error) => return Ok(Err(error)),
        };
        let since = self.way.host.now();
        let mut last = BlockError::Reset;
        for _ in 0..TRIES_MAX {
            match self.once(command).await? {
                Ok(true) => return Ok(Ok(())),
                Ok(false) => {}
                Err(error) => return Ok(Err(error)),
            }
            let sense = self.way.sense().await?;
            last = BlockError::Device(sense.number());
            match sense.means() {
                Meaning::Done => return Ok(Ok(())),
                Meaning::Again => {}
                Meaning::Restarted => self.loses(),
                Meaning::Later => loop {
                    self.way.host.sleep(ASK_NANOSECONDS).await;
                    if late(since, self.way.host.now(), READY_NANOSECONDS) {
                        return Ok(Err(last));
                    }
                    if self.way.is_ready().await? {
                        break;
                    }
                },
                Meaning::Taken => return Err(Error::Unplugged),
                Meaning::Protected => return Ok(Err(BlockError::ReadOnly)),
                Meaning::Failed => return Ok(Err(last)),
            }
        }
        Ok(Err(last))
    }

    /// The command of the request; `None` if nothing is to be done.
    fn describe(&mut self) -> Result<Option<Command>, BlockError> {
        let (Some((_, disk)), Some(flight)) = (&self.disk, &self.flight) else {
            return Err(BlockError::Gone);
        };
        let (request, limits) = (&flight.request, limits(disk));
        request.check(&limits, disk.capacity)?;
        let shift = limits.block_size.trailing_zeros();
        let (block, blocks) = (request.offset >> shift, request.length >> shift);
        let data = request.length as u32;
        let command = match request.operation {
            Operation::Flush => {
                if core::mem::take(&mut self.has_lost) {
                    return Err(BlockError::Reset);
                }
                match disk {
                    Disk {
                        has_cache: false, ..
                    } => return Ok(None),
                    Disk { flushes: true, .. } => return Ok(Some(Command::synchronize_cache())),
                    Disk { flushes: false, .. } => return Err(BlockError::Unsupported),
                }
            }
            // A transfer has fewer blocks, and a discard (`limits`).
            Operation::Read => Command::transfer(false, block, blocks as u16, data),
            Operation::Write => Command::transfer(true, block, blocks as u16, data),
            Operation::Discard => {
                self.way.fill(&unmap_list(block, blocks as u32));
                Command::unmap()
            }
            Operation::WriteZeroes => return Err(BlockError::Unsupported),
        };
        Ok((request.length > 0).then_some(command))
    }

    /// Has the disk carry the request out once: whether it did.
    async fn once(&mut self, command: Command) -> Result<Result<bool, BlockError>, Error> {
        let Some(flight) = &mut self.flight else {
            return Ok(Err(BlockError::Gone));
        };
        let request = &mut flight.request;
        if !matches!(request.operation, Operation::Read | Operation::Write) {
            return self.way.ask(command, FLUSH_NANOSECONDS).await.map(Ok);
        }
        if request.buffers.iova().is_none() {
            return Ok(Err(BlockError::Unsupported));
        }
        let parts = || {
            let parts = request.buffers.addresses(request.length);
            parts.map(|(address, bytes)| (address.raw(), bytes))
        };
        let prepared = match self.way.prepare(command, parts) {
            Ok(prepared) => prepared,
            Err(Scattered) => return Ok(Err(BlockError::Unsupported)),
        };
        match flight::lend(request) {
            Ok(buffers) => flight.buffers = Some(buffers),
            Err(error) => return Ok(Err(error)),
        }
        let answered = self.way.run(prepared, TRANSFER_NANOSECONDS).await?;
        if let Some(flight) = &mut self.flight
            && let Some(buffers) = flight.buffers.take()
        {
            flight.request.buffers = buffers.done(&answered.done);
        }
        let is_whole = answered.bytes == u64::from(command.data);
        Ok(match (answered.has_passed, is_whole) {
            (true, true) => Ok(true),
            (true, false) => Err(BlockError::Device(SHORT)),
            (false, _) => Ok(false),
        })
    }

    /// The disk may have lost its power: what was not flushed may be lost.
    fn loses(&mut self) {
        let has_cache = self.disk.as_ref().is_some_and(|(_, disk)| disk.has_cache);
        self.has_lost |= self.is_dirty && has_cache;
    }
}

/// Whether the controller is not to be relied on, so that it is asked nothing more.
fn is_of_controller(error: &Error) -> bool {
    match error {
        Error::Timeout(what) => *what != crate::usb::TRANSFER,
        Error::Gone | Error::Failed(_) | Error::Lie(Lie::Event(_) | Lie::Slot(_)) => true,
        _ => false,
    }
}

/// Whether the disk is gone for good.
fn is_final(error: &Error) -> bool {
    matches!(error, Error::Unplugged | Error::Another)
}
