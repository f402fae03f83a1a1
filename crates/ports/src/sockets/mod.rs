//! Sockets of the host's: what an image that is a plain process asks the kernel for.

pub mod numbers;

use crate::host::{Errno, Handle};
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use device::WaitHandle;
use numbers::{KEEP_ALIVE, KEEP_IDLE, KEEP_IDLE_MAX, LEVEL_SOCKET, LEVEL_TCP, NO_DELAY};

/// Slices that are sent in one call.
pub const SLICES_MAX: usize = 64;

/// What a socket carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Stream,
    /// UDP.
    Datagrams,
}

/// What has happened to a socket since it was last told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The number under which it is watched.
    pub number: u32,
    /// There may be something to read, or the end.
    pub readable: bool,
    /// There may be room to write.
    pub writable: bool,
    /// The peer sends no more, or it has failed.
    pub ended: bool,
}

/// The host's calls about sockets. None of them waits: where the kernel would, the answer is
/// [`Errno::AGAIN`]. The kernel checks each argument, as it does for any process.
pub trait SocketCalls {
    /// A socket for addresses like `local`.
    ///
    /// # Errors
    /// The kernel's.
    fn open(&self, transport: Transport, local: SocketAddr) -> Result<Handle, Errno>;

    /// Gives the socket an address of its own. One for IPv6 takes IPv4 as well.
    ///
    /// # Errors
    /// The kernel's.
    fn bind(&self, socket: Handle, local: SocketAddr) -> Result<(), Errno>;

    /// Lets other sockets of this user have the same port for datagrams, if they share it as well;
    /// those that are bound before may not have shared it until then.
    ///
    /// # Errors
    /// The kernel's.
    fn share_port(&self, socket: Handle) -> Result<(), Errno>;

    /// Waits for connections to `local`, of which so many may wait to be accepted. What remains of
    /// earlier connections there does not matter.
    ///
    /// # Errors
    /// The kernel's.
    fn listen(&self, socket: Handle, local: SocketAddr, backlog: usize) -> Result<(), Errno>;

    /// The next connection, and the peer.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] if there is none.
    fn accept(&self, socket: Handle) -> Result<(Handle, SocketAddr), Errno>;

    /// Begins to open a connection; once the socket is writable, [`Self::error`] tells how it went.
    ///
    /// # Errors
    /// The kernel's.
    fn connect(&self, socket: Handle, remote: SocketAddr) -> Result<(), Errno>;

    /// The error of a socket, once.
    ///
    /// # Errors
    /// That one.
    fn error(&self, socket: Handle) -> Result<(), Errno>;

    /// Our end.
    ///
    /// # Errors
    /// The kernel's.
    fn local(&self, socket: Handle) -> Result<SocketAddr, Errno>;

    /// Receives into `place`; how many bytes, 0 at the end.
    ///
    /// # Errors
    /// The kernel's.
    fn receive(&self, socket: Handle, place: &mut [u8]) -> Result<usize, Errno>;

    /// Sends bytes; how many of them were taken.
    ///
    /// # Errors
    /// The kernel's.
    fn send(&self, socket: Handle, bytes: &[u8]) -> Result<usize, Errno>;

    /// Sends several slices as one piece; how many bytes of them were taken. Those behind
    /// [`SLICES_MAX`] are not.
    ///
    /// # Errors
    /// The kernel's.
    fn send_vectored(&self, socket: Handle, slices: &[&[u8]]) -> Result<usize, Errno>;

    /// Receives a datagram into `place`; how many bytes, and who has sent them.
    ///
    /// # Errors
    /// The kernel's.
    fn receive_from(&self, socket: Handle, place: &mut [u8]) -> Result<(usize, SocketAddr), Errno>;

    /// Sends a datagram.
    ///
    /// # Errors
    /// The kernel's.
    fn send_to(&self, socket: Handle, bytes: &[u8], to: SocketAddr) -> Result<(), Errno>;

    /// Sends no more.
    fn shutdown(&self, socket: Handle);

    /// Resets the connection: what was not sent is lost, and the peer is told with RST. The socket
    /// stays open, and is good for nothing.
    fn abort(&self, socket: Handle);

    /// Sets an option that is a number, and that nobody relies on.
    fn set_option(&self, socket: Handle, level: usize, option: usize, value: u32);

    /// Small writes leave at once. Else bytes come later, and no others.
    fn set_no_delay(&self, socket: Handle, no_delay: bool) {
        self.set_option(socket, LEVEL_TCP, NO_DELAY, no_delay.into());
    }

    /// While nothing comes, the peer is asked after so many seconds whether it is still there;
    /// never with `None`. Else one that has vanished is not noticed.
    fn set_keep_alive(&self, socket: Handle, seconds: Option<u32>) {
        if let Some(seconds) = seconds {
            self.set_option(socket, LEVEL_TCP, KEEP_IDLE, seconds.min(KEEP_IDLE_MAX));
        }
        self.set_option(socket, LEVEL_SOCKET, KEEP_ALIVE, seconds.is_some().into());
    }

    /// What the kernel knows of a connection: its `struct tcp_info` (tcp(7)), as much of it as fits
    /// into `place`; how many bytes.
    ///
    /// # Errors
    /// The kernel's.
    fn tcp_info(&self, socket: Handle, place: &mut [u8]) -> Result<usize, Errno>;

    /// Puts the socket into `set`, under `number`, edge-triggered.
    ///
    /// # Errors
    /// The kernel's.
    fn watch(&self, set: Handle, socket: Handle, number: u32) -> Result<(), Errno>;

    /// What has happened to the sockets of `set`, as far as there is place; how many events.
    fn events(&self, set: Handle, events: &mut [Event]) -> usize;

    /// Closes the socket; it leaves every set.
    fn close(&self, socket: Handle);
}

/// Sockets of the host's, as the manifest names them.
#[derive(Clone, Copy)]
pub struct HostSockets {
    /// The host's calls.
    pub calls: &'static dyn SocketCalls,
    /// What sockets are put into.
    pub set: Handle,
    /// The number by which a wait tells that something has happened to one of them.
    pub wait: WaitHandle,
}

/// Bytes of the longest address: `struct sockaddr_in6`.
pub const ADDRESS_BYTES: usize = 28;
/// Bytes of `struct sockaddr_in`.
const ADDRESS_BYTES_V4: usize = 16;
/// `AF_INET`.
pub const FAMILY_V4: u16 = 2;
/// `AF_INET6`.
pub const FAMILY_V6: u16 = 10;

/// An address as Linux has it, and how many bytes of it count.
pub fn to_kernel(address: SocketAddr) -> ([u8; ADDRESS_BYTES], usize) {
    let mut bytes = [0; ADDRESS_BYTES];
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address {
        SocketAddr::V4(v4) => {
            bytes[..2].copy_from_slice(&FAMILY_V4.to_ne_bytes());
            bytes[4..8].copy_from_slice(&v4.ip().octets());
            (bytes, ADDRESS_BYTES_V4)
        }
        SocketAddr::V6(v6) => {
            bytes[..2].copy_from_slice(&FAMILY_V6.to_ne_bytes());
            bytes[4..8].copy_from_slice(&v6.flowinfo().to_ne_bytes());
            bytes[8..24].copy_from_slice(&v6.ip().octets());
            bytes[24..].copy_from_slice(&v6.scope_id().to_ne_bytes());
            (bytes, ADDRESS_BYTES)
        }
    }
}

/// An address of Linux's. IPv4 inside of IPv6 is IPv4.
pub fn from_kernel(bytes: &[u8; ADDRESS_BYTES]) -> Option<SocketAddr> {
    let [f0, f1, p0, p1, a, b, c, d, rest @ ..] = *bytes;
    let port = u16::from_be_bytes([p0, p1]);
    match u16::from_ne_bytes([f0, f1]) {
        FAMILY_V4 => Some(SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), port).into()),
        FAMILY_V6 => {
            let (ip, scope) = rest.split_first_chunk::<16>()?;
            let scope = u32::from_ne_bytes(scope.try_into().ok()?);
            let ip = Ipv6Addr::from(*ip);
            let flow = u32::from_ne_bytes([a, b, c, d]);
            Some(match ip.to_ipv4_mapped() {
                Some(ip) => SocketAddrV4::new(ip, port).into(),
                None => SocketAddrV6::new(ip, port, flow, scope).into(),
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_linuxs() {
        let v4 = SocketAddr::from(([10, 0, 0, 2], 0x1389));
        let (bytes, len) = to_kernel(v4);
        assert_eq!(len, 16);
        assert_eq!(bytes[..9], [2, 0, 0x13, 0x89, 10, 0, 0, 2, 0]);
        assert_eq!(from_kernel(&bytes), Some(v4));
        let v6: SocketAddr = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 7, 0x0102_0304, 5).into();
        let (bytes, len) = to_kernel(v6);
        assert_eq!((len, bytes[23], bytes[24]), (28, 1, 5));
        assert_eq!(from_kernel(&bytes), Some(v6));
        let mapped = SocketAddr::from((Ipv4Addr::LOCALHOST.to_ipv6_mapped(), 9));
        let inside = SocketAddr::from(([127, 0, 0, 1], 9));
        assert_eq!(from_kernel(&to_kernel(mapped).0), Some(inside));
        assert_eq!(from_kernel(&[0; ADDRESS_BYTES]), None);
    }
}
