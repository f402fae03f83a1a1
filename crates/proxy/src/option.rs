//! Options of sockets, as programs use them: socket(7), tcp(7), ip(7), ipv6(7), udp(7).
//!
//! What has an effect in the stack is passed on. What says something of packets that the stack
//! decides by itself is kept, so that a program reads what it has written. What nobody would heed
//! is refused with the kernel's own words for an option that it does not know, so that programs do
//! without.

use crate::address::Family;
use crate::control::Wanted;
use rustix::io::Errno;
use std::time::Duration;

/// What a socket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// `SOCK_STREAM`: TCP.
    Stream,
    /// `SOCK_DGRAM`: UDP.
    Datagrams,
}

/// Levels: Linux's `include/linux/socket.h`.
const SOCKET: i32 = 1;
const IP: i32 = 0;
const TCP: i32 = 6;
const UDP: i32 = 17;
const IPV6: i32 = 41;

/// Options of `SOCKET`: Linux's `include/uapi/asm-generic/socket.h`.
mod so {
    pub const REUSEADDR: i32 = 2;
    pub const ERROR: i32 = 4;
    pub const DONTROUTE: i32 = 5;
    pub const SNDBUF: i32 = 7;
    pub const RCVBUF: i32 = 8;
    pub const KEEPALIVE: i32 = 9;
    pub const OOBINLINE: i32 = 10;
    pub const NO_CHECK: i32 = 11;
    pub const PRIORITY: i32 = 12;
    pub const LINGER: i32 = 13;
    pub const REUSEPORT: i32 = 15;
    pub const BINDTODEVICE: i32 = 25;
    pub const TIMESTAMP: i32 = 29;
    pub const PROTOCOL: i32 = 38;
    pub const DOMAIN: i32 = 39;
    pub const MAX_PACING_RATE: i32 = 47;
    pub const INCOMING_CPU: i32 = 49;
}

/// Options of `TCP`: Linux's `include/uapi/linux/tcp.h`.
mod tcp {
    pub const NODELAY: i32 = 1;
    pub const MAXSEG: i32 = 2;
    pub const KEEPIDLE: i32 = 4;
    pub const INFO: i32 = 11;
    pub const CONGESTION: i32 = 13;
    /// CORK, KEEPINTVL, KEEPCNT, SYNCNT, LINGER2, DEFER_ACCEPT, WINDOW_CLAMP, QUICKACK,
    /// USER_TIMEOUT, NOTSENT_LOWAT.
    pub const KEPT: [i32; 10] = [3, 5, 6, 7, 8, 9, 10, 12, 18, 25];
}

/// Options of `IP`: Linux's `include/uapi/linux/in.h`.
mod ip {
    pub const OPTIONS: i32 = 4;
    pub const PKTINFO: i32 = 8;
    pub const MTU: i32 = 14;
    pub const ADD_MEMBERSHIP: i32 = 35;
    pub const DROP_MEMBERSHIP: i32 = 36;
    /// TOS, TTL, PKTINFO, MTU_DISCOVER, RECVERR, RECVTTL, RECVTOS, FREEBIND,
    /// BIND_ADDRESS_NO_PORT, MULTICAST_IF, MULTICAST_TTL, MULTICAST_LOOP, MULTICAST_ALL.
    pub const KEPT: [i32; 13] = [1, 2, 8, 10, 11, 12, 13, 15, 24, 32, 33, 34, 49];
}

/// Options of `IPV6`: Linux's `include/uapi/linux/in6.h`.
mod ipv6 {
    pub const V6ONLY: i32 = 26;
    pub const RECVPKTINFO: i32 = 49;
    pub const MTU: i32 = 24;
    pub const ADD_MEMBERSHIP: i32 = 20;
    pub const DROP_MEMBERSHIP: i32 = 21;
    /// UNICAST_HOPS, MULTICAST_IF, MULTICAST_HOPS, MULTICAST_LOOP, MTU_DISCOVER, RECVERR,
    /// RECVPKTINFO, RECVHOPLIMIT, RECVTCLASS, TCLASS, AUTOFLOWLABEL, FREEBIND.
    pub const KEPT: [i32; 12] = [16, 17, 18, 19, 23, 25, 49, 51, 66, 67, 70, 78];
}

/// What the stack uses (RFC 9438), and the only one.
const CONGESTION: &[u8] = b"cubic";
/// The largest buffer that a program may ask for: `net.core.rmem_max` of a Linux as it comes.
const BUFFER_MAX: i32 = 212_992;
/// Least bytes of a buffer: socket(7).
const BUFFER_MIN: i32 = 2304;
/// Longest option that is read.
pub const BYTES_MAX: usize = 64;
/// Different options that a socket keeps: all that there are.
const KEPT_MAX: usize = 64;
/// `tcpi_state` of an open connection: Linux's `include/net/tcp_states.h`.
const ESTABLISHED: u8 = 1;
/// Bytes of `struct tcp_info` that are shown, and where it has both segment sizes.
const INFO_BYTES: usize = 232;
const INFO_SND_MSS_AT: usize = 16;
const INFO_RCV_MSS_AT: usize = 20;
/// Bytes of a segment without options over an Ethernet's MTU, less those of timestamps.
const SEGMENT: i32 = 1448;
const MTU: i32 = 1500;

/// What the stack is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    None,
    /// Send small pieces at once, or not.
    NoDelay(bool),
    /// Ask the peer whether it is there after so much silence, or never.
    KeepAlive(Option<Duration>),
    /// Take what goes to this group, or no longer.
    Group(std::net::IpAddr, bool),
}

/// What a program reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// A number.
    Int(i32),
    /// Other bytes.
    Bytes(Vec<u8>),
    /// The error of the socket, which is taken by that.
    Error,
}

/// Options of a socket.
#[derive(Clone, Debug, Default)]
pub struct Options {
    kept: Vec<((i32, i32), i32)>,
    /// Seconds, as `SO_LINGER` says.
    linger: Option<i32>,
}

impl Options {
    fn kept(&self, level: i32, name: i32) -> Option<i32> {
        let is_it = |(key, _): &&((i32, i32), i32)| *key == (level, name);
        self.kept.iter().find(is_it).map(|(_, value)| *value)
    }

    fn keep(&mut self, level: i32, name: i32, value: i32) {
        let is_it = |(key, _): &((i32, i32), i32)| *key == (level, name);
        match self.kept.iter().position(is_it) {
            Some(at) => self.kept[at].1 = value,
            None if self.kept.len() < KEPT_MAX => self.kept.push(((level, name), value)),
            None => {}
        }
    }

    fn is_on(&self, level: i32, name: i32) -> bool {
        self.kept(level, name).is_some_and(|value| value != 0)
    }

    /// Whether an address may be used again that others use up.
    pub fn reuses_address(&self) -> bool {
        self.is_on(SOCKET, so::REUSEADDR)
    }

    /// Whether several sockets may listen at one address.
    pub fn reuses_port(&self) -> bool {
        self.is_on(SOCKET, so::REUSEPORT)
    }

    /// Whether a socket of IPv6 takes no IPv4.
    pub fn v6_only(&self) -> bool {
        self.is_on(IPV6, ipv6::V6ONLY)
    }

    /// What is to be said of datagrams that come.
    pub fn wanted(&self) -> Wanted {
        Wanted {
            v4: self.is_on(IP, ip::PKTINFO),
            v6: self.is_on(IPV6, ipv6::RECVPKTINFO),
        }
    }

    /// It takes no IPv4 from now on.
    pub fn be_v6_only(&mut self) {
        self.keep(IPV6, ipv6::V6ONLY, 1);
    }

    /// Whether small pieces leave at once.
    pub fn no_delay(&self) -> bool {
        self.is_on(TCP, tcp::NODELAY)
    }

    /// After how much silence the peer is asked.
    pub fn keep_alive(&self) -> Option<Duration> {
        /// tcp(7): `tcp_keepalive_time`.
        const IDLE: i32 = 7200;
        let idle = self.kept(TCP, tcp::KEEPIDLE).unwrap_or(IDLE).max(1);
        self.is_on(SOCKET, so::KEEPALIVE)
            .then(|| Duration::from_secs(idle.unsigned_abs().into()))
    }

    /// Whether closing resets the connection.
    pub fn resets(&self) -> bool {
        self.linger == Some(0)
    }

    /// Sets an option to these bytes.
    ///
    /// # Errors
    /// `ENOPROTOOPT` if it is not known, `EINVAL` if there are too few bytes.
    pub fn set(
        &mut self,
        (family, transport): (Family, Transport),
        level: i32,
        name: i32,
        bytes: &[u8],
    ) -> Result<Effect, Errno> {
        let int = bytes.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes));
        // ip(7): a byte does as well.
        let small = bytes.first().map(|byte| i32::from(*byte));
        let int_or_small = || int.or(small).ok_or(Errno::INVAL);
        match (level, name) {
            (IPV6, _) if family == Family::V4 => return Err(Errno::NOPROTOOPT),
            (SOCKET, so::LINGER) => {
                let [on, seconds] = pair(bytes).ok_or(Errno::INVAL)?;
                self.linger = (on != 0).then_some(seconds);
            }
            (SOCKET, so::SNDBUF | so::RCVBUF) => {
                // socket(7): the kernel doubles it.
                let asked = int.ok_or(Errno::INVAL)?.clamp(0, BUFFER_MAX);
                self.keep(level, name, (asked * 2).max(BUFFER_MIN));
            }
            (
                SOCKET,
                so::REUSEADDR
                | so::REUSEPORT
                | so::KEEPALIVE
                | so::OOBINLINE
                | so::DONTROUTE
                | so::NO_CHECK
                | so::TIMESTAMP,
            ) => {
                self.keep(level, name, i32::from(int.ok_or(Errno::INVAL)? != 0));
                if name == so::KEEPALIVE {
                    return Ok(Effect::KeepAlive(self.keep_alive()));
                }
            }
            (SOCKET, so::PRIORITY | so::MAX_PACING_RATE | so::INCOMING_CPU) => {
                self.keep(level, name, int.ok_or(Errno::INVAL)?);
            }
            (TCP, _) if transport == Transport::Stream => {
                return self.set_tcp(name, int, bytes);
            }
            (IP, ip::ADD_MEMBERSHIP | ip::DROP_MEMBERSHIP) => {
                let group: [u8; 4] = *bytes.first_chunk().ok_or(Errno::INVAL)?;
                return Ok(Effect::Group(group.into(), name == ip::ADD_MEMBERSHIP));
            }
            (IPV6, ipv6::ADD_MEMBERSHIP | ipv6::DROP_MEMBERSHIP) => {
                let group: [u8; 16] = *bytes.first_chunk().ok_or(Errno::INVAL)?;
                return Ok(Effect::Group(group.into(), name == ipv6::ADD_MEMBERSHIP));
            }
            (IP, ip::PKTINFO) => self.keep(level, name, i32::from(int_or_small()? != 0)),
            (IPV6, ipv6::RECVPKTINFO) => {
                self.keep(level, name, i32::from(int.ok_or(Errno::INVAL)? != 0));
            }
            (IP, name) if ip::KEPT.contains(&name) => self.keep(level, name, int_or_small()?),
            (IPV6, name) if name == ipv6::V6ONLY || ipv6::KEPT.contains(&name) => {
                self.keep(level, name, int.ok_or(Errno::INVAL)?);
            }
            _ => return Err(Errno::NOPROTOOPT),
        }
        Ok(Effect::None)
    }

    fn set_tcp(&mut self, name: i32, int: Option<i32>, bytes: &[u8]) -> Result<Effect, Errno> {
        if name == tcp::CONGESTION {
            let asked = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
            return match asked == CONGESTION {
                true => Ok(Effect::None),
                false => Err(Errno::NOENT),
            };
        }
        let value = int.ok_or(Errno::INVAL)?;
        match name {
            tcp::NODELAY => {
                self.keep(TCP, name, i32::from(value != 0));
                Ok(Effect::NoDelay(value != 0))
            }
            tcp::KEEPIDLE => {
                if !(1..=32767).contains(&value) {
                    return Err(Errno::INVAL);
                }
                self.keep(TCP, name, value);
                Ok(match self.keep_alive() {
                    None => Effect::None,
                    some => Effect::KeepAlive(some),
                })
            }
            name if name == tcp::MAXSEG || tcp::KEPT.contains(&name) => {
                self.keep(TCP, name, value);
                Ok(Effect::None)
            }
            _ => Err(Errno::NOPROTOOPT),
        }
    }

    /// What an option is.
    ///
    /// # Errors
    /// `ENOPROTOOPT` if it is not known.
    pub fn get(
        &self,
        (family, transport): (Family, Transport),
        level: i32,
        name: i32,
    ) -> Result<Shown, Errno> {
        if let Some(value) = self.kept(level, name) {
            return Ok(Shown::Int(value));
        }
        let is_stream = transport == Transport::Stream;
        let shown = match (level, name) {
            (SOCKET, so::ERROR) => Shown::Error,
            (SOCKET, so::LINGER) => {
                let [on, seconds] = [i32::from(self.linger.is_some()), self.linger.unwrap_or(0)];
                Shown::Bytes([on.to_ne_bytes(), seconds.to_ne_bytes()].concat())
            }
            // Of no device, and none.
            (SOCKET, so::BINDTODEVICE) | (IP, ip::OPTIONS) => Shown::Bytes(Vec::new()),
            (SOCKET, so::PROTOCOL) => Shown::Int(if is_stream { TCP } else { UDP }),
            (SOCKET, so::DOMAIN) => Shown::Int(family.number().into()),
            // What Linux begins with: tcp(7), `net.core.rmem_default`.
            (SOCKET, so::SNDBUF) => Shown::Int(if is_stream { 87_040 } else { BUFFER_MAX }),
            (SOCKET, so::RCVBUF) => Shown::Int(if is_stream { 131_072 } else { BUFFER_MAX }),
            (
                SOCKET,
                so::REUSEADDR
                | so::REUSEPORT
                | so::KEEPALIVE
                | so::OOBINLINE
                | so::DONTROUTE
                | so::NO_CHECK
                | so::TIMESTAMP
                | so::PRIORITY
                | so::INCOMING_CPU,
            ) => Shown::Int(0),
            (TCP, tcp::INFO) if is_stream => Shown::Bytes(info()),
            (TCP, tcp::MAXSEG) if is_stream => Shown::Int(SEGMENT),
            (TCP, tcp::CONGESTION) if is_stream => {
                let mut name = CONGESTION.to_vec();
                name.resize(16, 0);
                Shown::Bytes(name)
            }
            (TCP, tcp::KEEPIDLE) if is_stream => Shown::Int(7200),
            (TCP, name) if is_stream && (name == tcp::NODELAY || tcp::KEPT.contains(&name)) => {
                Shown::Int(0)
            }
            (IP, ip::MTU) | (IPV6, ipv6::MTU) => Shown::Int(MTU),
            (IP, 2) | (IPV6, 16) => Shown::Int(64),
            (IP, name) if ip::KEPT.contains(&name) => Shown::Int(0),
            (IPV6, name) if name == ipv6::V6ONLY || ipv6::KEPT.contains(&name) => Shown::Int(0),
            (SOCKET | IP | IPV6 | UDP, _) => return Err(Errno::NOPROTOOPT),
            (TCP, _) if is_stream => return Err(Errno::NOPROTOOPT),
            _ if family == Family::V6 => return Err(Errno::NOPROTOOPT),
            _ => return Err(Errno::OPNOTSUPP),
        };
        Ok(shown)
    }
}

/// Whether an option says of which version of IP a bound address is.
pub fn is_of_binding(level: i32, name: i32) -> bool {
    (level, name) == (IPV6, ipv6::V6ONLY)
}

/// Two numbers.
fn pair(bytes: &[u8]) -> Option<[i32; 2]> {
    let (first, rest) = bytes.split_first_chunk()?;
    let second = rest.first_chunk()?;
    Some([i32::from_ne_bytes(*first), i32::from_ne_bytes(*second)])
}

/// `struct tcp_info` of an open connection: its state and sizes, and no measurement.
fn info() -> Vec<u8> {
    let mut info = vec![0; INFO_BYTES];
    info[0] = ESTABLISHED;
    for at in [INFO_SND_MSS_AT, INFO_RCV_MSS_AT] {
        info[at..at + 4].copy_from_slice(&SEGMENT.to_ne_bytes());
    }
    info
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: (Family, Transport) = (Family::V4, Transport::Stream);
    const DATAGRAMS: (Family, Transport) = (Family::V4, Transport::Datagrams);

    fn set(options: &mut Options, level: i32, name: i32, value: i32) -> Result<Effect, Errno> {
        options.set(STREAM, level, name, &value.to_ne_bytes())
    }

    #[test]
    fn what_is_set_is_read() {
        let mut options = Options::default();
        assert_eq!(
            set(&mut options, TCP, tcp::NODELAY, 7),
            Ok(Effect::NoDelay(true))
        );
        assert_eq!(options.get(STREAM, TCP, tcp::NODELAY), Ok(Shown::Int(1)));
        assert!(options.no_delay());
        assert_eq!(
            set(&mut options, SOCKET, so::SNDBUF, 10_000),
            Ok(Effect::None)
        );
        assert_eq!(
            options.get(STREAM, SOCKET, so::SNDBUF),
            Ok(Shown::Int(20_000))
        );
        assert_eq!(
            set(&mut options, SOCKET, so::RCVBUF, i32::MAX),
            Ok(Effect::None)
        );
        assert_eq!(
            options.get(STREAM, SOCKET, so::RCVBUF),
            Ok(Shown::Int(425_984))
        );
    }

    #[test]
    fn silence_is_asked_about_once_it_is_on() {
        let mut options = Options::default();
        assert_eq!(set(&mut options, TCP, tcp::KEEPIDLE, 5), Ok(Effect::None));
        let idle = Some(Duration::from_secs(5));
        let on = set(&mut options, SOCKET, so::KEEPALIVE, 1);
        assert_eq!(on, Ok(Effect::KeepAlive(idle)));
        let off = set(&mut options, SOCKET, so::KEEPALIVE, 0);
        assert_eq!(off, Ok(Effect::KeepAlive(None)));
        assert_eq!(set(&mut options, TCP, tcp::KEEPIDLE, 0), Err(Errno::INVAL));
    }

    #[test]
    fn what_nobody_heeds_is_not_there() {
        let mut options = Options::default();
        assert_eq!(
            set(&mut options, IPV6, ipv6::V6ONLY, 1),
            Err(Errno::NOPROTOOPT)
        );
        // UDP_SEGMENT, TCP_ULP, SO_ZEROCOPY, SO_MARK, and of another protocol.
        for (level, name) in [(UDP, 103), (TCP, 31), (SOCKET, 60), (SOCKET, 36), (132, 1)] {
            assert_eq!(set(&mut options, level, name, 1), Err(Errno::NOPROTOOPT));
            let expected = match level {
                132 => Errno::OPNOTSUPP,
                _ => Errno::NOPROTOOPT,
            };
            assert_eq!(options.get(STREAM, level, name), Err(expected));
        }
        let udp = options.set(DATAGRAMS, TCP, tcp::NODELAY, &[1, 0, 0, 0]);
        assert_eq!(udp, Err(Errno::NOPROTOOPT));
        assert_eq!(
            options.set(STREAM, TCP, tcp::CONGESTION, b"bbr\0"),
            Err(Errno::NOENT)
        );
    }

    #[test]
    fn too_few_bytes_are_refused() {
        let mut options = Options::default();
        for (level, name) in [
            (SOCKET, so::REUSEADDR),
            (SOCKET, so::LINGER),
            (TCP, tcp::NODELAY),
        ] {
            let short = options.set(STREAM, level, name, &[1, 0]);
            assert_eq!(short, Err(Errno::INVAL));
        }
        // ip(7)
        let small = options.set(DATAGRAMS, IP, 33, &[4]);
        assert_eq!(small, Ok(Effect::None));
    }

    #[test]
    fn a_socket_keeps_no_more_than_there_is() {
        let mut options = Options::default();
        for name in 0..1000 {
            for level in [SOCKET, TCP, IP, IPV6] {
                let _ = set(&mut options, level, name, 1);
            }
        }
        assert!(options.kept.len() <= KEPT_MAX);
        assert!(options.resets() || options.linger.is_none());
    }
}
