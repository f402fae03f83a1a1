//! The kernel's side of conversations: a router between two taps, under nftables.
//!
//! ```text
//!   side A === private (tap) --- forwarding --- public (tap) === side B     all in one namespace
//! ```
//!
//! Not every kernel tracks the connections of a bridge, and each one tracks those that it routes.
//! A packet leaves with other MAC addresses and one hop less, and apart from that as it came. The
//! kernel also says what it has seen, in bits of the packet's own traffic class (RFC 2474).

use super::packet::{Family, Packet};
use crate::bridge::{self, Error, PORTS};
use linux::tap::Tap;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::process::Command;
use std::thread;
use std::time::Duration;
use testbed::segment::Segment;

/// MAC addresses of the hosts behind the ports.
pub const HOSTS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 0xa2], [2, 0, 0, 0, 0, 0xb2]];
/// MAC addresses of the router's ports.
pub const ROUTER: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 0xa1], [2, 0, 0, 0, 0, 0xb1]];
/// Settings of the namespace.
const SETTINGS: [(&str, &str); 15] = [
    ("ipv4/ip_forward", "1"),
    ("ipv4/igmp_max_memberships", "0"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv4/conf/all/send_redirects", "0"),
    ("ipv4/conf/default/send_redirects", "0"),
    ("ipv6/conf/all/disable_ipv6", "0"),
    ("ipv6/conf/default/disable_ipv6", "0"),
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv6/conf/default/router_solicitations", "0"),
    ("ipv6/conf/default/addr_gen_mode", "1"),
    ("ipv6/conf/all/forwarding", "1"),
    // As many errors as there are reasons for.
    ("ipv4/icmp_ratemask", "0"),
    ("ipv6/icmp/ratelimit", "0"),
    ("ipv6/icmp/ratemask", "200"),
];
/// What makes routes and neighbours: side A has 10.128.0.0/10 and fd0a::/16, side B the rest.
/// Nobody is at 10.3.0.0/16 and fd0c:3::/32, whatever they may be translated to.
const ROUTES: [&str; 14] = [
    "address add 10.1.0.1/24 dev private",
    "address add 10.2.0.1/24 dev public",
    "neighbour add 10.1.0.2 lladdr 02:00:00:00:00:a2 dev private nud permanent",
    "neighbour add 10.2.0.2 lladdr 02:00:00:00:00:b2 dev public nud permanent",
    "route add 10.128.0.0/10 via 10.1.0.2 dev private",
    "route add 10.192.0.0/10 via 10.2.0.2 dev public",
    "-6 neighbour add fe80::a2 lladdr 02:00:00:00:00:a2 dev private nud permanent",
    "-6 neighbour add fe80::b2 lladdr 02:00:00:00:00:b2 dev public nud permanent",
    "-6 route add fd0a::/16 via fe80::a2 dev private",
    "-6 route add fd0b::/16 via fe80::b2 dev public",
    "-6 address add fd0c:1::1/64 dev private nodad",
    "-6 address add fd0c:2::1/64 dev public nodad",
    "route add blackhole 10.3.0.0/16",
    "-6 route add blackhole fd0c:3::/32",
];
/// Attempts to get a first packet through, and the pause between them.
const ATTEMPTS: u32 = 500;
const PAUSE: Duration = Duration::from_millis(10);
/// Frames that are looked at for those that were sent.
const STRANGERS_MAX: usize = 64;
/// Over the longest frame, in bytes.
const BUFFER: usize = 4096;

/// The router. It goes with this value.
#[derive(Debug)]
pub struct Router {
    segment: Segment,
    ports: [Tap; 2],
}

impl Router {
    /// A new one, without rules.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn new() -> Result<Self, Error> {
        let segment = Segment::new()?;
        segment
            .run(|| {
                SETTINGS
                    .iter()
                    .try_for_each(|(name, value)| fs::write(format!("/proc/sys/net/{name}"), value))
            })
            .map_err(|error| Error::Io("cannot make a router", error))?;
        let port = |number: usize| -> Result<Tap, Error> {
            let name = PORTS[number];
            let tap = segment
                .run(|| Tap::create(name, false))
                .map_err(|error| Error::Io("cannot make a tap", error))?;
            segment.netlink(|netlink| {
                netlink.set_mac(name, ROUTER[number])?;
                netlink.set_up(name)
            })?;
            Ok(tap)
        };
        let router = Self {
            ports: [port(0)?, port(1)?],
            segment,
        };
        for arguments in ROUTES {
            router.ip(arguments)?;
        }
        for family in [Family::V4, Family::V6] {
            router.wait(family)?;
        }
        Ok(router)
    }

    /// The namespace that it is in.
    pub(super) fn segment(&self) -> &Segment {
        &self.segment
    }

    fn ip(&self, arguments: &str) -> Result<(), Error> {
        let failed = |error| Error::Io("cannot run ip; type: sudo apt-get install iproute2", error);
        let run = || Command::new("ip").args(arguments.split(' ')).output();
        let output = self.segment.run(run).map_err(failed)?;
        match output.status.success() {
            true => Ok(()),
            false => Err(failed(io::Error::other(format!(
                "ip {arguments}: {}",
                String::from_utf8_lossy(&output.stderr)
            )))),
        }
    }

    fn wait(&self, family: Family) -> Result<(), Error> {
        let packet = Packet::first(family);
        for _ in 0..ATTEMPTS {
            if self.send(&packet)?.is_some() {
                return Ok(());
            }
            thread::sleep(PAUSE);
        }
        Err(Error::Silent)
    }

    /// Replaces all rules; what nft says if it refuses them.
    ///
    /// # Errors
    /// There is no nft.
    pub fn load(&self, text: &str) -> Result<Result<(), String>, Error> {
        bridge::load(&self.segment, text)
    }

    /// Sends a packet, in all its parts; the frames of IP that came out, and the numbers of their
    /// ports.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn send_any(&self, packet: &Packet) -> Result<Vec<(u8, Vec<u8>)>, Error> {
        let failed = |error: rustix::io::Errno| Error::Io("cannot pass a frame", error.into());
        let from = usize::from(packet.from);
        for frame in packet.frames(ROUTER[from], HOSTS[from]) {
            rustix::io::write(self.ports[from].as_fd(), &frame).map_err(failed)?;
        }
        let mut frames = Vec::new();
        let mut buffer = [0; BUFFER];
        for (number, port) in self.ports.iter().enumerate() {
            for _ in 0..STRANGERS_MAX {
                match rustix::io::read(port.as_fd(), &mut buffer) {
                    Ok(length) => {
                        let frame = &buffer[..length];
                        // Neighbours and listeners are the kernel's own affair.
                        let is_ip6 = frame.get(12..14) == Some(&[0x86, 0xdd]);
                        let is_own = is_ip6 && frame.get(38) == Some(&0xff);
                        if !is_own && (is_ip6 || frame.get(12..14) == Some(&[8, 0])) {
                            frames.push((number as u8, frame.to_vec()));
                        }
                    }
                    Err(rustix::io::Errno::AGAIN) => break,
                    Err(error) => return Err(failed(error)),
                }
            }
        }
        Ok(frames)
    }

    /// The packets of each counter, in the order of the file; those that have a name come last.
    ///
    /// # Errors
    /// There is no nft, or it prints something else.
    pub fn counts(&self) -> Result<Vec<u64>, Error> {
        let listed = bridge::list(&self.segment)?;
        let rules = listed.ok_or(Error::Listing("nothing".to_owned()))?;
        let counts = rules.iter().filter_map(|rule| rule.count);
        let mut counts: Vec<u64> = counts.map(|count| count.packets).collect();
        counts.extend(bridge::named(&self.segment)?);
        Ok(counts)
    }

    /// Sends a packet, in all its parts; the traffic class with which it came out, if it did.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn send(&self, packet: &Packet) -> Result<Option<u8>, Error> {
        let failed = |error: rustix::io::Errno| Error::Io("cannot pass a frame", error.into());
        let from = usize::from(packet.from);
        for frame in packet.frames(ROUTER[from], HOSTS[from]) {
            rustix::io::write(self.ports[from].as_fd(), &frame).map_err(failed)?;
        }
        let mut class = None;
        let mut buffer = [0; BUFFER];
        for _ in 0..STRANGERS_MAX {
            match rustix::io::read(self.ports[1 - from].as_fd(), &mut buffer) {
                Ok(length) => class = class.or(packet.class_of(&buffer[..length])),
                Err(rustix::io::Errno::AGAIN) => break,
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(class)
    }
}
