//! The networks, the router between them, and the servers outside.

use super::super::error::Error;
use super::super::system::{FILE, Folder, System};
use super::stock::{self, Helper};
use linux::netlink::{self, Netlink};
use linux::tap::Tap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use testbed::segment::{self, Segment};

/// The servers' addresses outside. The router's IPv6 address there is the one behind.
pub const SERVER4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub const SERVER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);
pub const PUBLIC6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 9);
/// The router's address inside.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// What it lends there, from the first to the last, and the network that it announces.
pub const LENT: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 100), Ipv4Addr::new(10, 0, 0, 200)];
pub const ANNOUNCED: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);

/// The router as a component.
pub const ROUTER: &str = "router";
/// Its port for a server inside, which rules are loaded for.
pub const FORWARDED: u16 = 8080;

/// The interface of a client.
pub const CLIENT: &str = "eth0";
/// Taps, and what joins the clients to the router's one.
const TAPS: [&str; 2] = ["private0", "public0"];
const BRIDGE: &str = "home";
const CABLES: [&str; 2] = ["a", "b"];

const MTU: u32 = 1500;
const RULES_FILE: &str = "router.nft";
const RULES: &str = include_str!("rules.nft");

/// All of it; it goes with this.
pub struct Home {
    pub clients: [Segment; 2],
    pub system: System,
    _servers: [Helper; 2],
}

/// A network that speaks IPv6 as well.
///
/// # Errors
/// There is none.
pub fn segment() -> Result<Segment, Error> {
    let segment = Segment::new().map_err(network)?;
    segment.run(|| speak_ipv6("default", true))?;
    Ok(segment)
}

fn network(error: segment::Error) -> Error {
    Error::Contender(error.into())
}

/// Whether an interface of the network of this thread speaks IPv6.
fn speak_ipv6(interface: &str, does: bool) -> Result<(), Error> {
    let path = Path::new("/proc/sys/net/ipv6/conf").join(interface);
    let written = fs::write(path.join("disable_ipv6"), if does { "0" } else { "1" });
    written.map_err(|e| Error::Io("cannot choose who speaks IPv6", e))
}

impl Home {
    /// In the network of this thread, which is outside.
    ///
    /// # Errors
    /// There are no such networks, or the router does not come up.
    pub fn new(image: &Path) -> Result<Self, Error> {
        let clients = [segment()?, segment()?];
        join(&clients).map_err(network)?;
        for inside in [BRIDGE, TAPS[0]].into_iter().chain(CABLES) {
            speak_ipv6(inside, false)?;
        }
        let outside = || {
            let mut netlink = Netlink::open()?;
            netlink.add_address(TAPS[1], SERVER4.into(), 24)?;
            netlink.add_certain_address(TAPS[1], SERVER6.into(), 64)
        };
        outside().map_err(|error: netlink::Error| network(error.into()))?;
        let folder = folder(image)?;
        let servers = [
            stock::dnsmasq(folder.path(), TAPS[1], SERVER4)?,
            stock::httpd(&stock::site(folder.path())?)?,
        ];
        let system = System::start(folder, &[ROUTER])?;
        Ok(Self {
            clients,
            system,
            _servers: servers,
        })
    }

    /// A file of the folder that goes with it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.system.folder().join(name)
    }

    /// Other rules: those that lead connections to [`FORWARDED`] to a client.
    ///
    /// # Errors
    /// They are refused.
    pub fn reload(&self, to: IpAddr) -> Result<(), Error> {
        let path = self.file("new.nft");
        let line = format!("iifname \"public\" tcp dport {FORWARDED} counter dnat ip to {to}:80");
        let text = RULES.replace("# Nothing is led inside.", &line);
        fs::write(&path, text).map_err(|e| Error::Io("cannot write a temporary file", e))?;
        let path = path.display().to_string();
        let mut command = self.system.outboard(&["rules", "load", ROUTER, &path])?;
        stock::finished(&mut command).map(drop)
    }
}

/// Makes taps, and joins the clients to the one inside.
fn join(clients: &[Segment; 2]) -> Result<(), segment::Error> {
    let mut netlink = Netlink::open()?;
    for tap in TAPS {
        let failed = |error| segment::Error::Tap(tap.to_owned(), error);
        let made = Tap::create(tap, true).map_err(failed)?;
        linux::interface::persist(&made).map_err(failed)?;
        netlink.set_mtu(tap, MTU)?;
    }
    netlink.add_bridge(BRIDGE)?;
    for (client, cable) in clients.iter().zip(CABLES) {
        netlink.add_veth(cable, CLIENT, client.as_fd())?;
        netlink.set_master(cable, BRIDGE)?;
        netlink.set_up(cable)?;
    }
    netlink.set_master(TAPS[0], BRIDGE)?;
    for one in [TAPS[0], TAPS[1], BRIDGE] {
        netlink.set_up(one)?;
    }
    clients
        .iter()
        .try_for_each(|client| client.netlink(|netlink| netlink.set_up(CLIENT)))
}

/// What is to be known of the router, which has a spare.
fn folder(image: &Path) -> Result<Folder, Error> {
    let [first, last] = LENT;
    let [inside, outside] = TAPS;
    let text = format!(
        "[component.{ROUTER}]\nspare = true\nimage = {image:?}\nmemory = 32\nrules = \
         \"{RULES_FILE}\"\nnet.private = \"tap:{inside}\"\nnet.public = \
         \"tap:{outside}\"\nstate.connections = \"memory\"\nstate.leases = \"memory\"\narguments = \
         [\n  \"--dhcp:public\",\n  \"--ipv6:public={PUBLIC6}/64\",\n  \
         \"--ipv6-gateway:public={SERVER6}\",\n  \"--ipv4:private={GATEWAY}/24\",\n  \
         \"--lend:private={first}-{last}\",\n  \"--ipv6:private={ANNOUNCED}/64\",\n  \
         \"--advertise:private\",\n  \"--forward-names:private\",\n]\n"
    );
    Folder::new("router", &[(FILE, &*text), (RULES_FILE, RULES)])
}
