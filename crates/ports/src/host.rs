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
    /// This user may not, as below port 1024.
    pub const ACCESS: Self = Self(13);
    /// The arguments are not accepted.
    pub const INVALID: Self = Self(22);
    /// All of this machine's files are open.
    pub const MACHINE_FILES: Self = Self(23);
    /// So many files are open as this process may have.
    pub const FILES: Self = Self(24);
    /// The peer does not read any more.
    pub const PIPE: Self = Self(32);
    /// The descriptor is in a bad state: the tap behind it is gone.
    pub const BAD_STATE: Self = Self(77);
    /// Longer than what can be sent in one piece.
    pub const TOO_LONG: Self = Self(90);
    /// The host cannot do this with this device.
    pub const NOT_SUPPORTED: Self = Self(95);
    /// Addresses of this kind are not known here.
    pub const NO_FAMILY: Self = Self(97);
    /// Another socket has the address.
    pub const IN_USE: Self = Self(98);
    /// No address or port is left.
    pub const NOT_AVAILABLE: Self = Self(99);
    /// No route to the network.
    pub const NET_UNREACHABLE: Self = Self(101);
    /// The connection was aborted.
    pub const ABORTED: Self = Self(103);
    /// The peer closed the connection in the middle.
    pub const RESET: Self = Self(104);
    /// A queue of the kernel's is full.
    pub const NO_BUFFERS: Self = Self(105);
    /// The peer does not answer.
    pub const TIMED_OUT: Self = Self(110);
    /// The peer does not want it.
    pub const REFUSED: Self = Self(111);
    /// No route to the host.
    pub const HOST_UNREACHABLE: Self = Self(113);
    /// It has begun.
    pub const IN_PROGRESS: Self = Self(115);
}

impl core::fmt::Display for Errno {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match *self {
            Self::ACCESS => f.write_str(
                "permission denied; type: sudo sysctl net.ipv4.ip_unprivileged_port_start=0",
            ),
            Self(number) => write!(f, "error {number} of the host's"),
        }
    }
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

    /// Makes durable what was written to a disk; the number says nothing.
    ///
    /// # Errors
    /// If the host cannot.
    fn sync(&self, device: Handle) -> Result<usize, Errno>;

    /// Makes these bytes of a disk zeroes, which take no room; the number says nothing.
    ///
    /// # Errors
    /// [`Errno::NOT_SUPPORTED`] if the host cannot do so with this disk.
    fn discard(&self, device: Handle, offset: u64, length: u64) -> Result<usize, Errno>;

    /// Writes to the console; how many bytes it took.
    ///
    /// # Errors
    /// If the console takes nothing.
    fn print(&self, bytes: &[u8]) -> Result<usize, Errno>;

    /// Wakes the host's thread that serves the rings. Hosts without rings do nothing.
    fn kick(&self);

    /// Wakes the other end of the link that is region `number` up; hosts that are processes have
    /// the descriptor `bell` for that.
    fn ring(&self, number: usize, bell: i32);

    /// Sleeps until a device has something, the host has something to say, or the deadline has
    /// passed. Returns a bit for each device that has something, by its index. With
    /// [`Instant::PAST`] it only looks. Who gives a wait set ([`Parts::quiet`]) hears of no
    /// network.
    ///
    /// [`Parts::quiet`]: crate::Parts::quiet
    fn wait(&self, deadline: Option<Instant>, set: Option<Handle>) -> u64;

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
