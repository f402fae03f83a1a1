//! A network of its own: an anonymous network namespace with a tap or one end of a cable in it.
//!
//! A [`Segment`] is a descriptor. When it is closed and no socket or process is left inside, the
//! kernel removes the namespace with all that is in it, so nothing stays behind, even after
//! SIGKILL.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::{fmt, fs, io, panic, thread};

use linux::namespace;
use linux::netlink::{self, Netlink};
use linux::tap::Tap;

/// Keeps the kernel from talking IPv6 on interfaces that are made later; of this namespace alone.
const DISABLE_IPV6: &str = "/proc/sys/net/ipv6/conf/default/disable_ipv6";

/// An interface's IPv4 address, and what it carries.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    /// The address.
    pub ip: Ipv4Addr,
    /// Bits of the subnet.
    pub prefix: u8,
    /// Largest IP packet, in bytes.
    pub mtu: u32,
}

/// Why a segment could not be made.
#[derive(Debug)]
pub enum Error {
    /// No namespace.
    Namespace(namespace::Error),
    /// No tap of this name.
    Tap(String, io::Error),
    /// An interface could not be made or configured.
    Netlink(netlink::Error),
    /// This setting could not be made.
    Setting(String, io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Namespace(error) => error.fmt(f),
            Self::Tap(name, error) => write!(f, "cannot make the tap {name:?}: {error}"),
            Self::Netlink(error) => error.fmt(f),
            Self::Setting(path, error) => write!(f, "cannot write {path}: {error}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<namespace::Error> for Error {
    fn from(error: namespace::Error) -> Self {
        Self::Namespace(error)
    }
}

impl From<netlink::Error> for Error {
    fn from(error: netlink::Error) -> Self {
        Self::Netlink(error)
    }
}

/// A network namespace without a name.
#[derive(Debug)]
pub struct Segment {
    namespace: OwnedFd,
}

impl Segment {
    /// A new one: its loopback is up, and it does not speak IPv6.
    ///
    /// # Errors
    /// What the kernel refuses; see [`crate::privilege`].
    pub fn new() -> Result<Self, Error> {
        let namespace = in_thread(|| {
            namespace::unshare_network()?;
            // Neighbour discovery would only add noise to counters; where /proc/sys is read-only,
            // as in many containers, there is noise.
            let _ = fs::write(DISABLE_IPV6, "1");
            Netlink::open()?.set_up("lo")?;
            Ok::<_, Error>(namespace::network()?)
        })?;
        Ok(Self { namespace })
    }

    /// Runs `closure` in a thread inside, and returns what it returns. Sockets and taps that it
    /// makes belong to the segment and can be used anywhere afterwards; processes that it starts
    /// stay inside. They must not ask for a signal at their parent's end (`PR_SET_PDEATHSIG`),
    /// because the kernel takes the thread for the parent.
    ///
    /// # Panics
    /// If the closure does, or the thread cannot enter a namespace that this process made.
    pub fn run<R: Send>(&self, closure: impl FnOnce() -> R + Send) -> R {
        in_thread(|| {
            namespace::enter_network(self.as_fd()).expect("a namespace of ours can be entered");
            closure()
        })
    }

    /// Makes a tap with an address, up. It goes with its descriptor.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn tap(&self, name: &str, vnet_header: bool, address: Address) -> Result<Tap, Error> {
        let refused = |error| Error::Tap(name.to_owned(), error);
        let tap = self
            .run(|| Tap::create(name, vnet_header))
            .map_err(refused)?;
        self.configure(name, address)?;
        Ok(tap)
    }

    /// Lays a cable: the interface `name` here, `peer` in the `other` segment, both down.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn cable(&self, name: &str, other: &Self, peer: &str) -> Result<(), Error> {
        self.netlink(|netlink| netlink.add_veth(name, peer, other.as_fd()))
    }

    /// Gives an interface its MTU and address, and brings it up.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn configure(&self, name: &str, address: Address) -> Result<(), Error> {
        self.netlink(|netlink| {
            netlink.set_mtu(name, address.mtu)?;
            netlink.add_address(name, address.ip.into(), address.prefix)?;
            netlink.set_up(name)
        })
    }

    /// Has the interface speak IPv6, from this address of a subnet of `prefix` bits. Nobody is
    /// asked whether it is free: until the kernel knows that, it speaks from its link-local
    /// address, which no router sends on.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn speak_ipv6(&self, name: &str, address: Ipv6Addr, prefix: u8) -> Result<(), Error> {
        for (setting, value) in [("accept_dad", "0"), ("disable_ipv6", "0")] {
            let path = format!("/proc/sys/net/ipv6/conf/{name}/{setting}");
            self.run(|| fs::write(&path, value))
                .map_err(|error| Error::Setting(path, error))?;
        }
        self.netlink(|netlink| netlink.add_certain_address(name, address.into(), prefix))
    }

    /// Runs `closure` with a netlink socket of the segment.
    ///
    /// # Errors
    /// Those of the closure; there is no socket.
    pub fn netlink(
        &self,
        closure: impl FnOnce(&mut Netlink) -> Result<(), netlink::Error> + Send,
    ) -> Result<(), Error> {
        Ok(self.run(|| closure(&mut Netlink::open()?))?)
    }

    /// Where other processes find the namespace as long as this one lives: what `nsenter --net=`
    /// takes.
    pub fn path(&self) -> String {
        format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            self.namespace.as_raw_fd()
        )
    }
}

impl AsFd for Segment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.namespace.as_fd()
    }
}

/// Namespaces belong to threads, so what changes them has one of its own.
fn in_thread<R: Send>(closure: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| scope.spawn(closure).join())
        .unwrap_or_else(|panic| panic::resume_unwind(panic))
}
