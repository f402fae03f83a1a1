//! The sockets of a stack, for whoever asks from outside.
//!
//! A list is had in parts: each begins where the one before has ended, and sockets that come and go
//! in between may be in it or not.

use crate::stack::Stack;
use crate::tcp::host::Tcp;
use crate::tcp::socket::Socket;
use crate::udp::{self, Udp};
use abi::sockets::{Kind, Record};
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use ports::inquiry::Listed;

/// A place in the list has the kind above this bit, and below it which of that kind.
const KIND_BIT: u32 = 32;
/// Listeners, datagrams, connections.
const KINDS: u64 = 3;

/// Takes a record, or says that there is no room for it.
type Take<'a> = dyn FnMut(&Record) -> bool + 'a;

impl<V4, V6> Stack<V4, V6> {
    /// Lists sockets from this place on, 0 at the beginning.
    pub fn list(&self, from: u64, take: &mut Take<'_>) -> Listed {
        Listed {
            next: self.parts(from, take).unwrap_or(0),
            half_open: self.tcp.half_open_count() as u64,
            time_wait: self.tcp.time_wait_count() as u64,
            ended: 0,
        }
    }

    /// Where there was no more room.
    fn parts(&self, from: u64, take: &mut Take<'_>) -> Option<u64> {
        for kind in 0..KINDS {
            let start = kind << KIND_BIT;
            let first = from.saturating_sub(start);
            // Of a kind that is done, nothing.
            let Ok(first) = u32::try_from(first) else {
                continue;
            };
            let stopped = match kind {
                0 => listeners(&self.tcp, first, take),
                1 => datagrams(&self.udp, first, take),
                _ => connections(&self.tcp, first, take),
            };
            if let Some(stopped) = stopped {
                return Some(start + u64::from(stopped));
            }
        }
        None
    }
}

fn listeners(tcp: &Tcp, first: u32, take: &mut Take<'_>) -> Option<u32> {
    let mut all = tcp.listeners_from(first);
    let left = all.find(|(_, listener)| {
        let (address, port) = end(listener.local);
        !take(&Record {
            kind: Kind::Listener as u8,
            local: address,
            local_port: port,
            receive_queue: listener.waiting as u32,
            send_queue: listener.backlog as u32,
            ..Record::default()
        })
    });
    left.map(|(place, _)| place)
}

fn datagrams(udp: &Udp, first: u32, take: &mut Take<'_>) -> Option<u32> {
    let mut all = udp.sockets_from(first);
    let left = all.find(|(_, socket)| {
        let udp::Shown {
            local,
            port,
            peer,
            waiting,
        } = *socket;
        let (remote, remote_port) = peer.map_or(([0; 16], 0), end);
        !take(&Record {
            kind: Kind::Datagrams as u8,
            local: address(local.unwrap_or(Ipv6Addr::UNSPECIFIED.into())),
            local_port: port,
            remote,
            remote_port,
            receive_queue: waiting as u32,
            ..Record::default()
        })
    });
    left.map(|(place, _)| place)
}

fn connections(tcp: &Tcp, first: u32, take: &mut Take<'_>) -> Option<u32> {
    let mut all = tcp.sockets_from(first);
    let left = all.find(|(_, socket)| !take(&connection(socket)));
    left.map(|(place, _)| place)
}

fn connection(socket: &Socket) -> Record {
    let (local, local_port) = end(socket.ends().local());
    let (remote, remote_port) = end(socket.ends().remote());
    let connection = socket.connection();
    let (round_trip, congestion) = (connection.round_trip(), connection.congestion());
    Record {
        kind: Kind::Connection as u8,
        state: connection.state() as u8,
        local_port,
        remote_port,
        local,
        remote,
        receive_queue: connection.readable(),
        send_queue: connection.unsent_or_unacknowledged(),
        round_trip: round_trip.smoothed().map_or(0, microseconds),
        variation: microseconds(round_trip.variation()),
        timeout: microseconds(round_trip.timeout()),
        window: congestion.window(),
        threshold: congestion.threshold(),
        in_flight: connection.in_flight(),
        segment: connection.peer_segment().into(),
        receive_window: connection.receive_window(),
        send_window: connection.send_window(),
        sent_again: socket.sent_again(),
        ..Record::default()
    }
}

fn end(end: SocketAddr) -> ([u8; 16], u16) {
    (address(end.ip()), end.port())
}

/// All addresses of ours are the same in both versions.
fn address(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) if !address.is_unspecified() => address.to_ipv6_mapped().octets(),
        IpAddr::V4(_) => [0; 16],
        IpAddr::V6(address) => address.octets(),
    }
}

fn microseconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::Hub;
    use crate::tcp::State;
    use crate::testing::{at, stack};
    use std::vec::Vec;

    #[test]
    fn parts_of_a_list_make_the_whole() {
        let (mut stack, _wire) = stack();
        stack.receive(at(1));
        for port in [80, 81] {
            stack.tcp.listen(([0; 4], port).into(), 5).unwrap();
        }
        for port in [53, 54] {
            stack.udp.bind(None, port, 0).unwrap();
        }
        let peer: SocketAddr = ([10, 0, 0, 2], 443).into();
        for _ in 0..3 {
            stack.connect(peer).unwrap();
        }
        let list = |from, room: usize| {
            let mut all = Vec::new();
            let listed = stack.list(from, &mut |record| {
                let fits = all.len() < room;
                if fits {
                    all.push(*record);
                }
                fits
            });
            (all, listed.next)
        };
        let (whole, next) = list(0, usize::MAX);
        assert_eq!((whole.len(), next), (7, 0));
        for room in 1..7 {
            let (mut parts, mut from) = list(0, room);
            for _ in 0..7 {
                if from == 0 {
                    break;
                }
                let (part, next) = list(from, room);
                parts.extend(part);
                from = next;
            }
            assert_eq!((parts.len(), from), (7, 0), "{room}");
            assert_eq!(parts, whole);
        }
        assert_eq!(
            (whole[0].kind, whole[0].local_port),
            (Kind::Listener as u8, 80)
        );
        assert_eq!((whole[0].local, whole[0].send_queue), ([0; 16], 5));
        assert_eq!(
            (whole[2].kind, whole[2].local_port),
            (Kind::Datagrams as u8, 53)
        );
        let connection = &whole[4];
        assert_eq!(connection.state, State::SynSent as u8);
        assert_eq!((connection.remote, connection.remote_port), end(peer));
        assert_eq!(list(u64::MAX, 9), (Vec::new(), 0));
    }
}
