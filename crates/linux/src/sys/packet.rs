//! Packet sockets, which transmit frames out of an interface past the network stack: packet(7).

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, netdevice, socket_with};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// A socket that transmits whole frames out of one interface, and receives none.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// One for the interface `name` of this thread's network namespace.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`, `ENODEV` if there is no such interface.
    pub fn open(name: &str) -> io::Result<Self> {
        // No protocol: nothing that arrives is for this socket.
        let socket = socket_with(
            AddressFamily::PACKET,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let index = netdevice::name_to_index(&socket, name)?;
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as libc::sa_family_t,
            sll_protocol: 0,
            sll_ifindex: index.cast_signed(),
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let size = size_of_val(&address) as libc::socklen_t;
        // SAFETY: `address` is a whole sockaddr_ll that outlives the call, `size` is its size, and
        // the kernel only reads it. The descriptor is open: `socket` owns it.
        let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(socket))
    }

    /// Transmits `frame`, from its Ethernet header on.
    ///
    /// # Errors
    /// `ENETDOWN` if the interface is down, `EMSGSIZE` beyond its MTU, `EINVAL` if the frame is
    /// shorter than an Ethernet header, `ENOBUFS` if the interface's queue is full.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        // A packet socket takes a frame whole or not at all.
        rustix::net::send(&self.0, frame, SendFlags::empty())?;
        Ok(())
    }
}
