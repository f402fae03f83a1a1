//! Requests that a device has, and what drivers of disks do with them alike.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;
use device::block::{BlockError, Buffers, Request};
use hw::{Done, FromDevice, InFlight};

/// Requests on their way, of which a box moves.
pub type Requests = Vec<Box<Request>>;

/// What a device is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Running,
    /// On its way up, from wherever it is.
    Rising,
    GivenUp,
}

/// A request that the device has.
pub struct Flight {
    /// The request, without its buffers.
    pub request: Box<Request>,
    /// The buffers of a transfer.
    pub buffers: Option<InFlight<Buffers, FromDevice>>,
}

/// A request that the device is not given, and why.
#[inline]
pub fn refused<T>(mut request: Box<Request>, error: BlockError) -> Result<T, Box<Request>> {
    request.result = Err(error);
    Err(request)
}

/// The buffers of a request that is a transfer, for the device.
#[inline]
pub fn lend(request: &mut Request) -> Result<InFlight<Buffers, FromDevice>, BlockError> {
    match InFlight::lend(mem::take(&mut request.buffers)) {
        Ok((buffers, _)) => Ok(buffers),
        Err(buffers) => {
            request.buffers = buffers;
            Err(BlockError::Unsupported)
        }
    }
}

/// A request that is over, with its buffers, on the device's word.
#[inline]
pub fn landed(flight: Flight, word: &Done, result: Result<(), BlockError>) -> Box<Request> {
    let Flight {
        mut request,
        buffers,
    } = flight;
    if let Some(buffers) = buffers {
        request.buffers = buffers.done(word);
    }
    request.result = result;
    request
}

/// Slots of requests that move no data, but may change all of the disk, one bit each: these may
/// take long.
pub fn slow(flights: &[Option<Flight>]) -> u32 {
    let is_slow = |flight: &Flight| flight.buffers.is_none();
    let slots = flights.iter().enumerate();
    slots
        .filter(|(_, flight)| flight.as_ref().is_some_and(is_slow))
        .fold(0, |slots, (slot, _)| slots | 1 << slot)
}

/// What a device that is given up has it keeps: nobody knows whether it still reads and writes
/// there.
pub fn abandoned(flights: &mut [Option<Flight>]) -> impl Iterator<Item = Box<Request>> {
    flights.iter_mut().filter_map(Option::take).map(|flight| {
        let mut request = flight.request;
        request.result = Err(BlockError::Gone);
        request
    })
}
