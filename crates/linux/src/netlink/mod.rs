//! Network interfaces over rtnetlink: made, joined, configured and deleted.
//!
//! Each function is one request and one acknowledgement. Keep open: `rtnetlink(7)`, `netlink(7)`.

mod dump;
pub mod links;
pub mod routes;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoBridge, InfoData, InfoKind, InfoMacVtap, InfoVeth, InfoVlan, LinkAttribute, LinkFlags,
    LinkInfo, LinkMessage, MacVtapMode,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;
use std::{fmt, io};

/// How long the kernel may take to answer a request.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
/// Messages that are looked at for the answer to one request.
const REPLIES_MAX: usize = 16;
/// Room for one reply: an error repeats the request, which is shorter than this.
const REPLY_BYTES_MAX: usize = 8 << 10;
/// Longest name of an interface, in bytes (`IFNAMSIZ` without the NUL).
const NAME_BYTES_MAX: usize = 15;

/// What was tried, on which interface, and why it failed.
#[derive(Debug)]
pub struct Error {
    /// What was tried, to be read behind "cannot".
    pub action: &'static str,
    /// Name of the interface; empty if none was involved.
    pub interface: String,
    /// Why it failed.
    pub cause: Cause,
}

/// Why a request failed.
#[derive(Debug)]
pub enum Cause {
    /// The name is empty, longer than 15 bytes, or holds a byte that no name may.
    BadName,
    /// What the kernel said.
    Kernel(io::Error),
    /// What the kernel sent was no answer.
    BadReply,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.interface.is_empty() {
            write!(f, "interface {:?}: ", self.interface)?;
        }
        write!(f, "cannot {}: {}", self.action, self.cause)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadName => write!(
                f,
                "a name has 1 to {NAME_BYTES_MAX} bytes, no space or slash"
            ),
            Self::Kernel(error) => error.fmt(f),
            Self::BadReply => f.write_str("the kernel's answer makes no sense"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.cause {
            Cause::Kernel(error) => Some(error),
            Cause::BadName | Cause::BadReply => None,
        }
    }
}

impl<E: Into<io::Error>> From<E> for Cause {
    fn from(error: E) -> Self {
        Self::Kernel(error.into())
    }
}

/// A socket that configures the interfaces of the network namespace it was made in.
#[derive(Debug)]
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// For the namespace that this thread is in now.
    ///
    /// # Errors
    /// The kernel gives no socket.
    pub fn open() -> Result<Self, Error> {
        let socket = open_socket().map_err(|cause| Error {
            action: "open a netlink socket",
            interface: String::new(),
            cause,
        })?;
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// Index of the interface `name`, by which `/dev/tapN` of a macvtap is called.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn index(&self, name: &str) -> Result<u32, Error> {
        self.find(name).map_err(error("find it", name))
    }

    /// Makes a pair of joined interfaces, both down: `name` here and `peer` in the network
    /// namespace that `namespace` refers to.
    ///
    /// # Errors
    /// What the kernel says; nothing is left behind.
    pub fn add_veth(
        &mut self,
        name: &str,
        peer: &str,
        namespace: BorrowedFd<'_>,
    ) -> Result<(), Error> {
        let add = |netlink: &mut Self| {
            let mut other = LinkMessage::default();
            let target = LinkAttribute::NetNsFd(namespace.as_raw_fd());
            other.attributes = vec![LinkAttribute::IfName(checked(peer)?.into()), target];
            let data = InfoData::Veth(InfoVeth::Peer(other));
            netlink.add(name, InfoKind::Veth, Some(data), None)
        };
        add(self).map_err(error("make a veth pair", name))
    }

    /// Makes a bridge, down and without ports.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn add_bridge(&mut self, name: &str) -> Result<(), Error> {
        self.add(name, InfoKind::Bridge, None, None)
            .map_err(error("make a bridge", name))
    }

    /// Makes a bridge that is a hub, down and without ports: it learns no addresses, sends every
    /// frame out of all other ports, and does not read what group members say (IGMP, MLD).
    ///
    /// # Errors
    /// What the kernel says.
    pub fn add_hub(&mut self, name: &str) -> Result<(), Error> {
        let data = vec![
            InfoBridge::AgeingTime(0),
            InfoBridge::MulticastSnooping(false),
        ];
        self.add(name, InfoKind::Bridge, Some(InfoData::Bridge(data)), None)
            .map_err(error("make a hub", name))
    }

    /// Makes a macvtap in pass-through mode on the interface `parent`, whose frames then all go
    /// to it; down.
    ///
    /// # Errors
    /// What the kernel says; `EINVAL` or `EBUSY` if `parent` is in such use already.
    pub fn add_macvtap(&mut self, name: &str, parent: &str) -> Result<(), Error> {
        let parent = self.find(parent).map_err(error("find it", parent))?;
        let data = InfoData::MacVtap(vec![InfoMacVtap::Mode(MacVtapMode::Passthrough)]);
        self.add(name, InfoKind::MacVtap, Some(data), Some(parent))
            .map_err(error("make a macvtap", name))
    }

    /// Makes an interface for the VLAN `id` (IEEE 802.1Q) on the interface `parent`, down.
    ///
    /// # Errors
    /// What the kernel says; `EOPNOTSUPP` if it has no VLANs.
    pub fn add_vlan(&mut self, name: &str, parent: &str, id: u16) -> Result<(), Error> {
        let parent = self.find(parent).map_err(error("find it", parent))?;
        let data = InfoData::Vlan(vec![InfoVlan::Id(id)]);
        self.add(name, InfoKind::Vlan, Some(data), Some(parent))
            .map_err(error("make a VLAN", name))
    }

    /// Makes the interface `name` a port of `bridge`.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn set_master(&mut self, name: &str, bridge: &str) -> Result<(), Error> {
        let bridge = self.find(bridge).map_err(error("find it", bridge))?;
        self.set(name, LinkAttribute::Controller(bridge))
            .map_err(error("join it to a bridge", name))
    }

    /// Moves the interface into the network namespace that `namespace` refers to, down. A card
    /// comes back when that ends; any other interface ends with it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn move_to(&mut self, name: &str, namespace: BorrowedFd<'_>) -> Result<(), Error> {
        self.set(name, LinkAttribute::NetNsFd(namespace.as_raw_fd()))
            .map_err(error("move it to another namespace", name))
    }

    /// Brings the interface up.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn set_up(&mut self, name: &str) -> Result<(), Error> {
        self.set_state(name, LinkFlags::Up)
            .map_err(error("bring it up", name))
    }

    /// Takes the interface down.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn set_down(&mut self, name: &str) -> Result<(), Error> {
        self.set_state(name, LinkFlags::empty())
            .map_err(error("take it down", name))
    }

    /// Sets the largest packet that the interface carries, in bytes without Ethernet header.
    ///
    /// # Errors
    /// What the kernel says; `EINVAL` outside what the device can.
    pub fn set_mtu(&mut self, name: &str, mtu: u32) -> Result<(), Error> {
        self.set(name, LinkAttribute::Mtu(mtu))
            .map_err(error("set its MTU", name))
    }

    /// Sets how many segments of TCP the kernel leaves to the interface in one packet, at most; 1
    /// is as good as none.
    ///
    /// # Errors
    /// What the kernel says; `EINVAL` if the device cannot do so many.
    pub fn set_segments_max(&mut self, name: &str, count: u32) -> Result<(), Error> {
        self.set(name, LinkAttribute::GsoMaxSegs(count))
            .map_err(error("set its number of segments", name))
    }

    /// Sets the Ethernet address.
    ///
    /// # Errors
    /// What the kernel says; `EADDRNOTAVAIL` for zero or a group address.
    pub fn set_mac(&mut self, name: &str, mac: [u8; 6]) -> Result<(), Error> {
        self.set(name, LinkAttribute::Address(mac.to_vec()))
            .map_err(error("set its Ethernet address", name))
    }

    /// Gives the interface an address of a subnet of `prefix` bits.
    ///
    /// # Errors
    /// What the kernel says; `EEXIST` if it has that address.
    pub fn add_address(&mut self, name: &str, address: IpAddr, prefix: u8) -> Result<(), Error> {
        let message = self.address(name, address, prefix);
        message
            .and_then(|message| self.new_address(message))
            .map_err(error("give it an address", name))
    }

    /// The same with an address of which it is known that nobody else has it: none is asked.
    ///
    /// # Errors
    /// As above.
    pub fn add_certain_address(
        &mut self,
        name: &str,
        address: IpAddr,
        prefix: u8,
    ) -> Result<(), Error> {
        let add = |netlink: &mut Self| {
            let mut message = netlink.address(name, address, prefix)?;
            let certain = AddressAttribute::Flags(AddressFlags::Nodad);
            message.attributes.push(certain);
            netlink.new_address(message)
        };
        add(self).map_err(error("give it an address", name))
    }

    /// Takes an address from the interface.
    ///
    /// # Errors
    /// What the kernel says; `EADDRNOTAVAIL` if it has none such.
    pub fn remove_address(&mut self, name: &str, address: IpAddr, prefix: u8) -> Result<(), Error> {
        let message = self.address(name, address, prefix);
        message
            .map(RouteNetlinkMessage::DelAddress)
            .and_then(|request| self.request(request, 0))
            .map_err(error("take an address from it", name))
    }

    /// A message about an address of the interface.
    fn address(&self, name: &str, address: IpAddr, prefix: u8) -> Result<AddressMessage, Cause> {
        let mut message = AddressMessage::default();
        message.header.index = self.find(name)?;
        message.header.prefix_len = prefix;
        message.header.family = match address {
            IpAddr::V4(_) => AddressFamily::Inet,
            IpAddr::V6(_) => AddressFamily::Inet6,
        };
        message.attributes = vec![
            AddressAttribute::Local(address),
            AddressAttribute::Address(address),
        ];
        Ok(message)
    }

    fn new_address(&mut self, message: AddressMessage) -> Result<(), Cause> {
        let request = RouteNetlinkMessage::NewAddress(message);
        self.request(request, NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Sends packets of its version to other networks through `gateway`, which is in one of ours.
    ///
    /// # Errors
    /// What the kernel says; `EEXIST` if there is such a route, `ENETUNREACH` if `gateway` is in
    /// none.
    pub fn add_gateway(&mut self, gateway: IpAddr) -> Result<(), Error> {
        let mut message = RouteMessage::default();
        let (family, gateway) = match gateway {
            IpAddr::V4(gateway) => (AddressFamily::Inet, RouteAddress::Inet(gateway)),
            IpAddr::V6(gateway) => (AddressFamily::Inet6, RouteAddress::Inet6(gateway)),
        };
        message.header.address_family = family;
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Static;
        message.header.scope = RouteScope::Universe;
        message.header.kind = RouteType::Unicast;
        message.attributes = vec![RouteAttribute::Gateway(gateway)];
        let request = RouteNetlinkMessage::NewRoute(message);
        self.request(request, NLM_F_CREATE | NLM_F_EXCL)
            .map_err(error("route through a gateway", ""))
    }

    /// Deletes the interface; of a veth pair, both ends.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn delete(&mut self, name: &str) -> Result<(), Error> {
        named(name)
            .and_then(|message| self.request(RouteNetlinkMessage::DelLink(message), 0))
            .map_err(error("delete it", name))
    }

    fn find(&self, name: &str) -> Result<u32, Cause> {
        Ok(rustix::net::netdevice::name_to_index(
            &self.socket,
            checked(name)?,
        )?)
    }

    fn add(
        &mut self,
        name: &str,
        kind: InfoKind,
        data: Option<InfoData>,
        parent: Option<u32>,
    ) -> Result<(), Cause> {
        let mut message = named(name)?;
        let mut info = vec![LinkInfo::Kind(kind)];
        info.extend(data.map(LinkInfo::Data));
        message.attributes.push(LinkAttribute::LinkInfo(info));
        message.attributes.extend(parent.map(LinkAttribute::Link));
        let request = RouteNetlinkMessage::NewLink(message);
        self.request(request, NLM_F_CREATE | NLM_F_EXCL)
    }

    fn set(&mut self, name: &str, attribute: LinkAttribute) -> Result<(), Cause> {
        let mut message = named(name)?;
        message.attributes.push(attribute);
        self.request(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Makes the interface up or down, as `up` has the flag or not.
    fn set_state(&mut self, name: &str, up: LinkFlags) -> Result<(), Cause> {
        let mut message = named(name)?;
        message.header.flags = up;
        message.header.change_mask = LinkFlags::Up;
        self.request(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Sends a request under a sequence number of its own.
    fn send(&mut self, request: RouteNetlinkMessage, flags: u16) -> Result<(), Cause> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(request));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        Ok(())
    }

    /// Sends one request and waits for its acknowledgement.
    fn request(&mut self, request: RouteNetlinkMessage, flags: u16) -> Result<(), Cause> {
        self.send(request, NLM_F_ACK | flags)?;
        for _ in 0..REPLIES_MAX {
            let mut reply = Vec::with_capacity(REPLY_BYTES_MAX);
            let (_, sender) = self.socket.recv_from(&mut reply, 0)?;
            if sender.port_number() != KERNEL {
                continue;
            }
            if let Some(result) = acknowledgement(&reply, self.sequence) {
                return result;
            }
        }
        Err(Cause::BadReply)
    }
}

/// Port number of the kernel.
const KERNEL: u32 = 0;

fn open_socket() -> Result<Socket, Cause> {
    let socket = Socket::new(NETLINK_ROUTE)?;
    socket.connect(&SocketAddr::new(KERNEL, 0))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(REPLY_TIMEOUT))?;
    Ok(socket)
}

/// What `reply` says about the request of that number; `None` if it is about another.
fn acknowledgement(reply: &[u8], sequence: u32) -> Option<Result<(), Cause>> {
    let Ok(message) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(reply) else {
        return Some(Err(Cause::BadReply));
    };
    if message.header.sequence_number != sequence {
        return None;
    }
    match message.payload {
        NetlinkPayload::Error(error) if error.code.is_none() => Some(Ok(())),
        NetlinkPayload::Error(error) => Some(Err(error.to_io().into())),
        _ => Some(Err(Cause::BadReply)),
    }
}

/// A message about the interface of that name.
fn named(name: &str) -> Result<LinkMessage, Cause> {
    let mut message = LinkMessage::default();
    let name = checked(name)?.to_owned();
    message.attributes.push(LinkAttribute::IfName(name));
    Ok(message)
}

/// What the kernel would take as a name (`dev_valid_name`). It would take a longer one as the
/// beginning of it.
fn checked(name: &str) -> Result<&str, Cause> {
    let bad = |byte: u8| byte.is_ascii_whitespace() || matches!(byte, 0 | 0x0b | b'/' | b':');
    let length = 1..=NAME_BYTES_MAX;
    if !length.contains(&name.len()) || name.bytes().any(bad) || matches!(name, "." | "..") {
        return Err(Cause::BadName);
    }
    Ok(name)
}

fn error<'a>(action: &'static str, name: &'a str) -> impl FnOnce(Cause) -> Error + 'a {
    move |cause| Error {
        action,
        interface: name.to_owned(),
        cause,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An acknowledgement: `struct nlmsghdr`, then `struct nlmsgerr`.
    fn reply(sequence: u32, code: i32) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(36u32.to_ne_bytes());
        bytes.extend(2u16.to_ne_bytes());
        bytes.extend(0u16.to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend(0u32.to_ne_bytes());
        bytes.extend(code.to_ne_bytes());
        bytes.extend([0; 16]);
        bytes
    }

    #[test]
    fn an_acknowledgement_counts_for_its_request_alone() {
        assert!(matches!(acknowledgement(&reply(7, 0), 7), Some(Ok(()))));
        assert!(acknowledgement(&reply(6, 0), 7).is_none());
    }

    #[test]
    fn a_refusal_keeps_its_reason() {
        let Some(Err(Cause::Kernel(error))) = acknowledgement(&reply(7, -1), 7) else {
            panic!("no refusal");
        };
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn every_truncation_of_a_reply_is_refused() {
        let whole = reply(7, 0);
        for length in 0..whole.len() {
            let part = &whole[..length];
            assert!(
                matches!(acknowledgement(part, 7), Some(Err(Cause::BadReply))),
                "{length}"
            );
        }
    }

    #[test]
    fn names_that_the_kernel_would_refuse_or_shorten() {
        for name in [
            "",
            ".",
            "..",
            "a b",
            "a/b",
            "a:b",
            "tap\0",
            "a-name-of-16-byt",
        ] {
            assert!(checked(name).is_err(), "{name:?}");
        }
        for name in ["lo", "tap0", "a-name-of-15-by", "tap%d"] {
            assert!(checked(name).is_ok(), "{name:?}");
        }
    }

    #[test]
    fn the_loopback_has_an_index() {
        assert!(Netlink::open().unwrap().index("lo").is_ok());
    }

    #[test]
    fn an_error_names_interface_and_cause() {
        let error = Netlink::open()
            .unwrap()
            .set_mtu("none-such", 1500)
            .unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("interface \"none-such\": cannot set its MTU: "),
            "{text}"
        );
    }
}
