//! What the host does for a guest, as a trait that each host implements once.

use crate::clock::Instant;
use crate::network::Network;
use alloc::boxed::Box;
use device::Netif;

/// An error number of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// A signal came first: the call is to be repeated.
    pub const INTERRUPTED: Self = Self(4);
    /// A tap whose link is down, or a disk that fails.
    pub const IO: Self = Self(5);
    /// There is nothing now.
    pub const AGAIN: Self = Self(11);
    /// The kernel has no memory.
    pub const NO_MEMORY: Self = Self(12);
    /// The arguments are not accepted.
    pub const INVALID: Self = Self(22);
    /// The peer does not read any more.
    pub const PIPE: Self = Self(32);
    /// The descriptor is in a bad state: the tap behind it is gone.
    pub const BAD_STATE: Self = Self(77);
    /// The peer closed the connection in the middle.
    pub const RESET: Self = Self(104);
    /// A queue of the kernel's is full.
    pub const NO_BUFFERS: Self = Self(105);
}

/// A device, by the number by which the host knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(pub i32);

/// What the host does for a guest.
///
/// None of these calls waits, but for [`Self::wait`], and [`Self::receive`] for as long as the
/// tender has set.
pub trait Host {
    /// The number by which this host knows the device with this index; on hosts that are processes
    /// it is the `descriptor` that the tender named.
    fn handle(&self, index: usize, descriptor: i32) -> Handle;

    /// Takes a frame from a network device; its length in bytes.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] if there is none.
    fn read(&self, device: Handle, buffer: &mut [u8]) -> Result<usize, Errno>;

    /// Gives a frame to a network device.
    ///
    /// # Errors
    /// If the host does not take it.
    fn write(&self, device: Handle, bytes: &[u8]) -> Result<usize, Errno>;

    /// Sends a message to a device that is reached by messages; how many bytes it took.
    ///
    /// # Errors
    /// If the host does not take it.
    fn send(&self, device: Handle, bytes: &[u8]) -> Result<usize, Errno>;

    /// Takes what such a device has answered; how many bytes, 0 if the device has gone.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] if nothing came in time.
    fn receive(&self, device: Handle, buffer: &mut [u8]) -> Result<usize, Errno>;

    /// Reads from a disk at this offset in bytes; how many bytes.
    ///
    /// # Errors
    /// If the host cannot.
    fn pread(&self, device: Handle, buffer: &mut [u8], offset: u64) -> Result<usize, Errno>;

    /// Writes to a disk at this offset in bytes; how many bytes.
    ///
    /// # Errors
    /// If the host cannot.
    fn pwrite(&self, device: Handle, bytes: &[u8], offset: u64) -> Result<usize, Errno>;

    /// Writes to the console; how many bytes it took.
    ///
    /// # Errors
    /// If the console takes nothing.
    fn print(&self, bytes: &[u8]) -> Result<usize, Errno>;

    /// Wakes the host's thread that serves the rings. Hosts without rings do nothing.
    fn kick(&self);

    /// Sleeps until a device has something, the host has something to say, or the deadline has
    /// passed. Returns a bit for each device that has something, by its index. With
    /// [`Instant::PAST`] it only looks.
    fn wait(&self, deadline: Option<Instant>) -> u64;

    /// Nanoseconds of the monotonic clock.
    fn monotonic(&self) -> u64;

    /// Nanoseconds since 1970.
    fn wall(&self) -> u64;

    /// The processor's time-stamp counter: it costs no call and has no known unit.
    fn ticks(&self) -> u64;

    /// Ends the guest.
    fn exit(&self, status: i32) -> !;

    /// A port that calls this host for each frame: a [`crate::TapPort`] of the host's own type, so
    /// that no frame costs a virtual call.
    fn tap(&'static self, network: Network) -> Box<dyn Netif>;
}
