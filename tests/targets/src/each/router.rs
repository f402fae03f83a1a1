//! A router that others send to: whatever comes, at whatever port and whenever, what leaves is a
//! packet that has no inside address, its checksums are as right as they were, and an open
//! connection stays what it is called. Input: frames, each behind a byte of its length, a byte of
//! the time since the one before, and a byte of what becomes of it.

use nf::nft::Limits;
use nf::router::{Arrival, Connections, Hooks, Local, Passage, Rules};
use nf::{Addresses, Fields, Fragment, Key, protocol};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

const FLOWS: usize = 16;
/// A unit of time in the input, in nanoseconds.
const TIME_UNIT: u64 = 10_000_000;
/// The router's addresses outside.
const OUTSIDE: Local = Local {
    ip4: Some(Ipv4Addr::new(192, 0, 2, 1)),
    ip6: Some(Ipv6Addr::new(0xfc, 0, 0, 0, 0, 0, 0, 1)),
};

static RULES: LazyLock<Rules> = LazyLock::new(|| {
    let text = "table inet nat {
    chain in {
        type nat hook prerouting priority dstnat
        iifname public tcp dport 80 dnat ip to 10.0.0.80:8080
        iifname public meta l4proto udp dnat ip to 10.0.0.53-10.0.0.54
        iifname private tcp dport 1-99 redirect to :1000-1001
    }
    chain out {
        type nat hook postrouting priority srcnat
        oifname public meta l4proto udp ip saddr 10.0.0.1 snat ip to 192.0.2.2:5-6 random
        oifname public masquerade
    }
    chain forward {
        type filter hook forward priority filter; policy drop
        oifname public ip daddr 10.0.0.0/8 drop
        ct state invalid drop
        ct state established,related accept
        iifname private oifname public accept
        ct status dnat accept
    }
}
";
    Rules::load(text, &["private", "public"], &Limits::DEFAULT).expect("they are rules")
});

struct Router {
    connections: Connections,
    now: u64,
}

impl Router {
    /// What leaves by the other port, or what the router itself gets.
    fn pass(&mut self, from: u8, mut frame: Vec<u8>, what: u8) -> Option<Vec<u8>> {
        let mut hooks = Hooks {
            rules: &RULES,
            connections: Some(&mut self.connections),
            now: self.now,
            tally: &mut (),
        };
        let mut passage = Passage::new();
        let to = 1 - from;
        let local = |port| if port == 1 { OUTSIDE } else { Local::default() };
        if what & 2 != 0 {
            let partial = what & 4 != 0;
            hooks.output(&mut passage, &mut frame, to, partial).ok()?;
        } else {
            let arrival = Arrival {
                port: from,
                local: local(from),
                partial: what & 4 != 0,
            };
            hooks.prerouting(&mut passage, &mut frame, arrival).ok()?;
            if what & 8 != 0 {
                hooks.input(&mut passage, &mut frame).ok()?;
                return Some(frame);
            }
            hooks.forward(&mut passage, to).ok()?;
        }
        hooks
            .postrouting(&mut passage, &mut frame, to, local(to))
            .ok()?;
        assert_eq!(
            Key::parse(&frame).expect("it was one").fields(),
            passage.key(&frame).fields()
        );
        Some(frame)
    }
}

/// The sum over the transport header and what it covers, which translation leaves alone.
fn sum(frame: &[u8], fields: &Fields) -> Option<u16> {
    let offset = if fields.vlan.is_some() { 18 } else { 14 };
    let packet = &frame[offset..];
    let size = 4 * usize::from(packet[0] & 0xf);
    let total = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
    let payload = packet.get(size..total)?;
    let checksum = match fields.protocol? {
        protocol::TCP => payload.get(16..18)?,
        protocol::UDP => payload.get(6..8)?,
        _ => return None,
    };
    // None, and what stands for none.
    if fields.protocol == Some(protocol::UDP) && (checksum == [0; 2] || checksum == [0xff; 2]) {
        return None;
    }
    let mut sum = 0u64;
    for pair in packet[12..20].chunks(2).chain(payload.chunks(2)) {
        sum += u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
    }
    // Of two zeros in one's complement, one.
    Some((sum % 0xffff) as u16)
}

/// Checks what left, which came as `before`.
fn check(before: &[u8], left: &[u8], to: u8, what: u8) {
    let fields = Key::parse(left).expect("its checksum is right").fields();
    let Some(Addresses::V4 { source, .. }) = fields.addresses else {
        return;
    };
    if to == 1 && what & (2 | 8) == 0 {
        assert_ne!(source.octets()[0], 10, "an inside address leaves");
    }
    if what & 4 == 0 && fields.fragment == Fragment::Whole {
        let same = Key::parse(before).expect("it was one").fields();
        if let (Some(before), Some(left)) = (sum(before, &same), sum(left, &fields)) {
            assert_eq!(before, left, "checksums");
        }
    }
}

/// Makes the checksum of an IPv4 header right: else most inputs are no packets.
fn mend(frame: &mut [u8]) {
    let Some([8, 0, first, ..]) = frame.get(12..) else {
        return;
    };
    let size = 4 * usize::from(first & 0xf);
    let Some(header) = frame[14..].get_mut(..size).filter(|it| it.len() >= 20) else {
        return;
    };
    header[10..12].fill(0);
    let words = header
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let mut sum: u32 = words.sum();
    for _ in 0..2 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    header[10..12].copy_from_slice(&(!sum as u16).to_be_bytes());
}

/// A segment of a connection that the input cannot name: its addresses are not IPv4's.
fn segment(ends: [[u8; 16]; 2], ports: [u16; 2], numbers: [u32; 2], flags: u8) -> Vec<u8> {
    let mut frame = vec![
        2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 6, 64,
    ];
    frame.extend(ends.concat());
    frame.extend(ports.map(u16::to_be_bytes).concat());
    frame.extend(numbers.map(u32::to_be_bytes).concat());
    frame.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    frame
}

/// Addresses and ports of such a segment.
fn called(frame: &[u8]) -> (IpAddr, IpAddr, [u8; 4]) {
    let address = |at: usize| IpAddr::from(*frame[at..].first_chunk::<16>().expect("a segment"));
    let ports = *frame[54..].first_chunk().expect("a segment");
    (address(22), address(38), ports)
}

pub fn feed(input: &[u8]) {
    const SYN: u8 = 2;
    const ACK: u8 = 16;
    const CLIENT: [u8; 16] = [0xfd; 16];
    const SERVER: [u8; 16] = [0xfe; 16];
    let outside = OUTSIDE
        .ip6
        .map(|address| address.octets())
        .expect("it has one");
    let mut router = Router {
        connections: Connections::new(FLOWS, &[5; 16]),
        now: 0,
    };
    let (asked, answered) = ([0x1234, 443], [443, 0x1234]);
    let send = |router: &mut Router, numbers, flags| {
        let out = router.pass(0, segment([CLIENT, SERVER], asked, numbers, flags), 0);
        let (source, _, ports) = called(&out.expect("it goes out"));
        assert_eq!((source, ports), (outside.into(), [0x12, 0x34, 1, 0xbb]));
    };
    let answer = |router: &mut Router, numbers, flags| {
        let back = router.pass(1, segment([SERVER, outside], answered, numbers, flags), 0);
        let (_, destination, ports) = called(&back.expect("it comes back"));
        assert_eq!((destination, ports), (CLIENT.into(), [1, 0xbb, 0x12, 0x34]));
    };
    send(&mut router, [1000, 0], SYN);
    answer(&mut router, [2000, 1001], SYN | ACK);
    send(&mut router, [1001, 2001], ACK);
    let mut rest = input;
    while let [length, time, what, tail @ ..] = rest {
        let (frame, behind) = tail.split_at(usize::from(*length).min(tail.len()));
        rest = behind;
        router.now += u64::from(*time) * TIME_UNIT;
        router.connections.table.expire(router.now);
        // What names the connection itself may change it.
        let names_it = frame
            .windows(16)
            .any(|part| part == [0xfd; 16] || part == [0xfe; 16]);
        let mut frame = frame.to_vec();
        mend(&mut frame);
        if !names_it && let Some(left) = router.pass(what & 1, frame.clone(), *what) {
            check(&frame, &left, 1 - (what & 1), *what);
        }
        send(&mut router, [1001, 2001], ACK);
        answer(&mut router, [2001, 1001], ACK);
    }
}
