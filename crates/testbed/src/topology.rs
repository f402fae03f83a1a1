//! Two segments of one subnet, and what joins them.
//!
//! ```text
//!   a, "private"                                        b, "public"
//!   10.10.0.100/24  eth0 ----- contender ----- eth0  10.10.0.200/24
//! ```
//!
//! The contender holds the two taps; or it is the kernel's bridge in a third namespace, and eth0
//! are ends of veth pairs.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use linux::netlink::Netlink;
use linux::tap::Tap;
use rustix::net::sockopt;

use crate::segment::{Address, Error, Segment};

/// Name of the interface in each segment.
pub const INTERFACE: &str = "eth0";
/// Bits of the subnet that both segments are of.
pub const PREFIX: u8 = 24;
/// Largest IP packet on either segment, in bytes: Ethernet's.
pub const MTU: u32 = 1500;

const BRIDGE: &str = "bridge0";

/// One of the two sides.
#[derive(Debug)]
pub struct Side {
    /// What it is called: "private" or "public".
    pub name: &'static str,
    /// Its network.
    pub segment: Segment,
    /// The address of its interface.
    pub ip: Ipv4Addr,
}

impl Side {
    fn new(name: &'static str, host: u8) -> Result<Self, Error> {
        let ip = Ipv4Addr::new(10, 10, 0, host);
        let segment = Segment::new()?;
        Ok(Self { name, segment, ip })
    }

    fn address(&self) -> Address {
        Address {
            ip: self.ip,
            prefix: PREFIX,
            mtu: MTU,
        }
    }

    /// The socket address of a port on this side.
    pub fn at(&self, port: u16) -> SocketAddr {
        (self.ip, port).into()
    }
}

/// Two segments with nothing between them yet.
#[derive(Debug)]
pub struct Pair {
    /// The private side, 10.10.0.100.
    pub a: Side,
    /// The public side, 10.10.0.200.
    pub b: Side,
}

impl Pair {
    fn new() -> Result<Self, Error> {
        Ok(Self {
            a: Side::new("private", 100)?,
            b: Side::new("public", 200)?,
        })
    }

    /// Two segments and their taps, [`Side::a`] first: frames that one sends come out of its tap.
    ///
    /// # Errors
    /// What the kernel refuses.
    ///
    /// [`Side::a`]: Pair::a
    pub fn tapped(vnet_header: bool) -> Result<(Self, [Tap; 2]), Error> {
        let pair = Self::new()?;
        let tap = |side: &Side| side.segment.tap(INTERFACE, vnet_header, side.address());
        let taps = [tap(&pair.a)?, tap(&pair.b)?];
        Ok((pair, taps))
    }

    /// Both sides put at most so many segments of TCP into one frame.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn limit_segments(&self, count: u32) -> Result<(), Error> {
        for side in [&self.a, &self.b] {
            let limit = |netlink: &mut Netlink| netlink.set_segments_max(INTERFACE, count);
            side.segment.netlink(limit)?;
        }
        Ok(())
    }

    /// Two segments that the kernel's bridge joins, for as long as the third one is kept.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn bridged() -> Result<(Self, Segment), Error> {
        let pair = Self::new()?;
        let middle = Segment::new()?;
        middle.netlink(|netlink| {
            netlink.add_bridge(BRIDGE)?;
            netlink.set_up(BRIDGE)
        })?;
        for side in [&pair.a, &pair.b] {
            middle.cable(side.name, &side.segment, INTERFACE)?;
            middle.netlink(|netlink| {
                netlink.set_master(side.name, BRIDGE)?;
                netlink.set_up(side.name)
            })?;
            side.segment.configure(INTERFACE, side.address())?;
        }
        Ok((pair, middle))
    }
}

/// Connects `from` with a port of `to`; the client's end first.
///
/// # Errors
/// `TimedOut` if there was no connection within `timeout`; what else the kernel says.
pub fn connect(
    from: &Side,
    to: &Side,
    port: u16,
    timeout: Duration,
) -> io::Result<(TcpStream, TcpStream)> {
    let target = to.at(port);
    let listener = to.segment.run(|| TcpListener::bind(target))?;
    // Bounds accept, which would otherwise wait for a client that has given up.
    sockopt::set_socket_timeout(&listener, sockopt::Timeout::Recv, Some(timeout))?;
    thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.accept());
        let client = from
            .segment
            .run(|| TcpStream::connect_timeout(&target, timeout));
        let server = accepting.join().expect("accepting does not panic");
        Ok((client?, server?.0))
    })
}
