use super::client::Client;
use super::*;
use crate::arp::Arp;
use crate::ipv4::Ipv4;
use crate::ipv6::Ipv6;
use crate::notes::Notes;
use crate::testing::{self, Wire, at};
use crate::version::Addresses;
use alloc::boxed::Box;
use core::net::IpAddr;
use core::time::Duration;
use device::{Batch, Netif};
use proptest::prelude::*;
use smoltcp::wire::{DhcpMessageType, DhcpPacket, DhcpRepr};
use std::string::ToString;
use std::vec;
use std::vec::Vec;

const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 50);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);
const HOUR: u64 = 3_600_000;
const MASK: (u8, &[u8]) = (1, &[255, 255, 255, 0]);
const LEASE: (u8, &[u8]) = (51, &[0, 0, 14, 16]);
const ROUTER: (u8, &[u8]) = (3, &[10, 0, 0, 1, 10, 0, 0, 2]);

/// A server's message, with its options, their type and server.
fn message(kind: u8, xid: u32, server: Ipv4Addr, options: &[(u8, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0; 240];
    bytes[..3].copy_from_slice(&[2, 1, 6]);
    bytes[4..8].copy_from_slice(&xid.to_be_bytes());
    bytes[16..20].copy_from_slice(&OURS.octets());
    bytes[28..34].copy_from_slice(&MAC.0);
    bytes[236..].copy_from_slice(&[0x63, 0x82, 0x53, 0x63]);
    let (kind, server) = ([kind], server.octets());
    let first: [(u8, &[u8]); 2] = [(53, &kind), (54, &server)];
    for (number, value) in first.iter().chain(options) {
        bytes.extend([*number, value.len() as u8]);
        bytes.extend(*value);
    }
    bytes.push(255);
    bytes
}

fn client() -> Client {
    Client::new(MAC, 1, at(0))
}

fn question(output: Option<Output>) -> Question {
    match output {
        Some(Output::Send(question)) => question,
        other => panic!("{other:?}"),
    }
}

fn discovered(client: &mut Client, ms: u64) -> Question {
    let question = question(client.poll(at(ms)));
    assert_eq!(question.kind, DhcpMessageType::Discover);
    question
}

/// The answer to the last question.
fn answer(
    client: &mut Client,
    (kind, xid): (u8, u32),
    options: &[(u8, &[u8])],
    ms: u64,
) -> Option<Output> {
    client.receive(&message(kind, xid, SERVER, options), 67, at(ms))
}

/// A client that has asked for what was offered.
fn requested() -> (Client, u32) {
    let mut client = client();
    let xid = discovered(&mut client, 0).xid;
    let request = question(answer(&mut client, (2, xid), &[MASK, LEASE], 10));
    assert_eq!(request.xid, xid);
    (client, xid)
}

/// A client with a lease of an hour, from 10 ms on.
fn bound() -> Client {
    let (mut client, xid) = requested();
    let checked = answer(&mut client, (5, xid), &[MASK, LEASE, ROUTER], 20);
    assert!(matches!(checked, Some(Output::Check(_))));
    assert_eq!((client.lease(), client.checks()), (None, Some(OURS)));
    assert!(matches!(
        client.checked(true, at(1000)),
        Some(Output::Use(_))
    ));
    client
}

#[test]
fn an_address_is_discovered_requested_and_checked() {
    let mut client = client();
    let asked = discovered(&mut client, 0);
    assert_eq!(
        (asked.to, asked.ours),
        (Ipv4Addr::BROADCAST, Ipv4Addr::UNSPECIFIED)
    );
    assert_eq!(client.poll(at(0)), None);
    let request = question(answer(&mut client, (2, asked.xid), &[MASK, LEASE], 10));
    let expected = Question {
        kind: DhcpMessageType::Request,
        wanted: Some(OURS),
        server: Some(SERVER),
        ..asked
    };
    assert_eq!(request, expected);
    let bound = bound();
    let lease = bound.lease().unwrap();
    assert_eq!(lease.address, Prefix::new(OURS, 24).unwrap());
    assert_eq!(lease.router, Some(SERVER));
    assert_eq!(bound.deadline(), Some(at(10 + HOUR / 2)));
}

#[test]
fn what_is_sent_reads_as_the_rfc_has_it() {
    let mut client = client();
    let question = Question {
        wanted: Some(OURS),
        server: Some(SERVER),
        ..discovered(&mut client, 0)
    };
    let mut bytes = [7; MESSAGE_LEN];
    assert_eq!(question.write(&mut bytes), MESSAGE_LEN);
    let packet = DhcpPacket::new_checked(&bytes[..]).unwrap();
    let repr = DhcpRepr::parse(&packet).unwrap();
    assert!(repr.broadcast && repr.client_ip.is_unspecified());
    assert_eq!(repr.client_hardware_address.0, MAC.0);
    assert_eq!(repr.client_identifier.unwrap().0, MAC.0);
    assert_eq!(
        (repr.requested_ip, repr.server_identifier),
        (Some(OURS), Some(SERVER))
    );
    assert!(repr.parameter_request_list.unwrap().contains(&119));
    assert_eq!(question.write(&mut [0; 299]), 0);
    let renewal = Question {
        ours: OURS,
        ..question
    };
    renewal.write(&mut bytes);
    assert_eq!((bytes[10], &bytes[12..16]), (0, &OURS.octets()[..]));
}

#[test]
fn questions_come_again_ever_more_slowly() {
    let mut client = client();
    let mut last = at(0);
    let waits: Vec<u64> = (0..7)
        .map(|_| {
            let due = client.deadline().unwrap();
            assert!(last == at(0) || client.poll(last).is_none());
            assert!(client.poll(due).is_some());
            let wait = due - last;
            last = due;
            (wait.as_millis() as u64 + 1000) / 2000 * 2
        })
        .collect();
    assert_eq!(waits, [0, 4, 8, 16, 32, 64, 64]);
    let again = question(client.poll(client.deadline().unwrap()));
    assert!(again.secs > 180, "{}", again.secs);
}

#[test]
fn a_server_that_is_silent_after_its_offer_is_left() {
    let (mut client, _) = requested();
    let kinds: Vec<_> = (0..4)
        .map(|_| question(client.poll(client.deadline().unwrap())).kind)
        .collect();
    let request = DhcpMessageType::Request;
    assert_eq!(
        kinds,
        [request, request, request, DhcpMessageType::Discover]
    );
}

#[test]
fn a_refusal_begins_again_later() {
    let (mut client, xid) = requested();
    assert_eq!(answer(&mut client, (6, xid), &[], 20), None);
    assert_eq!(client.deadline(), Some(at(10_020)));
    discovered(&mut client, 10_020);
}

#[test]
fn an_address_that_somebody_has_is_declined() {
    let (mut client, xid) = requested();
    answer(&mut client, (5, xid), &[MASK, LEASE], 20);
    let declined = question(client.checked(false, at(1000)));
    assert_eq!(declined.kind, DhcpMessageType::Decline);
    assert_eq!(
        (declined.wanted, declined.server),
        (Some(OURS), Some(SERVER))
    );
    assert_eq!(client.deadline(), Some(at(11_000)));
    assert_eq!(client.checked(true, at(1000)), None);
}

#[test]
fn a_lease_is_renewed_with_its_server() {
    let mut client = bound();
    let half = 10 + HOUR / 2;
    assert_eq!(client.poll(at(half - 1)), None);
    let renewal = question(client.poll(at(half)));
    assert_eq!((renewal.to, renewal.ours), (SERVER, OURS));
    assert_eq!((renewal.wanted, renewal.server), (None, None));
    let renewed = answer(&mut client, (5, renewal.xid), &[MASK, LEASE], half + 5);
    assert!(matches!(renewed, Some(Output::Use(_))));
    assert_eq!(client.deadline(), Some(at(half + HOUR / 2)));
}

#[test]
fn a_lease_is_renewed_with_anybody_and_ends() {
    let mut client = bound();
    let (mut to, mut end) = (Vec::new(), None);
    while end.is_none() {
        let due = client.deadline().unwrap();
        match client.poll(due).unwrap() {
            Output::Send(question) => to.push((due, question.to)),
            Output::Lose(lease) => end = Some((due, lease.address.address())),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(end, Some((at(10 + HOUR), OURS)));
    let rebinding = at(10 + HOUR * 7 / 8);
    let renewals = to.iter().take_while(|(due, _)| *due < rebinding);
    assert!(renewals.clone().all(|(_, to)| *to == SERVER));
    let count = renewals.count();
    assert!(to[count..].iter().all(|(_, to)| *to == Ipv4Addr::BROADCAST));
    assert_eq!(to[count].0, rebinding);
    // Halves of what is left, but no more often than once a minute.
    assert_eq!((count, to.len()), (6, 10));
    assert_eq!(client.lease(), None);
    assert_eq!(client.deadline(), Some(at(10 + HOUR)));
}

#[test]
fn a_refused_renewal_ends_the_lease() {
    let mut client = bound();
    let renewal = question(client.poll(at(10 + HOUR / 2)));
    let lost = answer(&mut client, (6, renewal.xid), &[], HOUR / 2 + 20);
    assert!(matches!(lost, Some(Output::Lose(_))));
    assert_eq!(client.lease(), None);
}

#[test]
fn a_lease_for_ever_is_not_renewed() {
    let (mut client, xid) = requested();
    answer(&mut client, (5, xid), &[MASK, (51, &[255; 4])], 20);
    client.checked(true, at(1000));
    assert_eq!(
        (client.deadline(), client.lease().unwrap().times),
        (None, None)
    );
}

#[test]
fn each_bad_message_has_its_reason() {
    let bad = |options: &[(u8, &[u8])], edit: &dyn Fn(&mut Vec<u8>), port: u16| {
        let mut client = client();
        let xid = discovered(&mut client, 0).xid;
        let mut bytes = message(2, xid, SERVER, options);
        edit(&mut bytes);
        assert_eq!(client.receive(&bytes, port, at(1)), None);
        let counted: Vec<_> = client
            .dropped()
            .iter()
            .filter(|(_, count)| *count > 0)
            .collect();
        assert_eq!(counted.len(), 1);
        counted[0].0
    };
    let fine = &[MASK, LEASE][..];
    assert_eq!(
        bad(fine, &|bytes| bytes.truncate(239), 67),
        "dhcp_malformed"
    );
    assert_eq!(bad(fine, &|bytes| bytes[0] = 1, 67), "dhcp_malformed");
    assert_eq!(bad(fine, &|bytes| bytes[2] = 16, 67), "dhcp_malformed");
    assert_eq!(bad(fine, &|bytes| bytes[236] = 0, 67), "dhcp_malformed");
    assert_eq!(bad(fine, &|bytes| bytes[240] = 255, 67), "dhcp_malformed");
    assert_eq!(bad(fine, &|_| {}, 68), "dhcp_malformed");
    assert_eq!(bad(fine, &|bytes| bytes[4] ^= 1, 67), "dhcp_foreign");
    assert_eq!(bad(fine, &|bytes| bytes[33] ^= 9, 67), "dhcp_foreign");
    assert_eq!(bad(fine, &|bytes| bytes[242] = 1, 67), "dhcp_unexpected");
    assert_eq!(bad(fine, &|bytes| bytes[242] = 5, 67), "dhcp_unexpected");
    assert_eq!(bad(fine, &|bytes| bytes[243] = 99, 67), "dhcp_server");
    assert_eq!(bad(fine, &|bytes| bytes[16] = 224, 67), "dhcp_address");
    assert_eq!(bad(fine, &|bytes| bytes[19] = 255, 67), "dhcp_address");
    assert_eq!(bad(&[LEASE], &|_| {}, 67), "dhcp_mask");
    assert_eq!(
        bad(&[LEASE, (1, &[255, 0, 255, 0])], &|_| {}, 67),
        "dhcp_mask"
    );
    assert_eq!(bad(&[MASK], &|_| {}, 67), "dhcp_time");
    assert_eq!(bad(&[MASK, (51, &[0; 4])], &|_| {}, 67), "dhcp_time");
}

#[test]
fn only_the_chosen_server_lends_what_it_offered() {
    let (mut client, xid) = requested();
    for (bytes, reason) in [
        (message(5, xid, OTHER, &[MASK, LEASE]), Dropped::Server),
        (message(6, xid, OTHER, &[]), Dropped::Server),
        (
            {
                let mut bytes = message(5, xid, SERVER, &[MASK, LEASE]);
                bytes[19] = 51;
                bytes
            },
            Dropped::Address,
        ),
    ] {
        let before = client.dropped().get(reason);
        assert_eq!(client.receive(&bytes, 67, at(20)), None);
        assert_eq!(client.dropped().get(reason), before + 1);
    }
    assert!(answer(&mut client, (5, xid), &[MASK, LEASE], 30).is_some());
}

#[test]
fn options_are_read() {
    let (mut client, xid) = requested();
    let search = b"\x03lab\x07example\x03org\x00\x02eu\xc0\x04";
    let options: &[(u8, &[u8])] = &[
        MASK,
        LEASE,
        (6, &[10, 0, 0, 1, 10]),
        (6, &[0, 0, 2, 0, 0, 0, 0]),
        (15, b"example.net\0"),
        (26, &[5, 0]),
        (58, &[0, 0, 0, 9]),
        (59, &[0, 0, 0, 19]),
        (119, &search[..9]),
        (119, &search[9..]),
    ];
    let Some(Output::Check(lease)) = answer(&mut client, (5, xid), options, 20) else {
        panic!("no lease");
    };
    // A list in two pieces is one; nobody's address is none.
    assert_eq!(lease.servers[..], [SERVER, Ipv4Addr::new(10, 0, 0, 2)]);
    let names: Vec<_> = lease.search.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["lab.example.org", "eu.example.org"]);
    assert_eq!(lease.mtu, Some(1280));
    let seconds = Duration::from_secs;
    let expected = Times {
        renewal: seconds(9),
        rebinding: seconds(19),
        end: seconds(3600),
    };
    assert_eq!(lease.times, Some(expected));
    let (mut client, xid) = requested();
    let options: &[(u8, &[u8])] = &[
        MASK,
        LEASE,
        (15, b"example.net\0"),
        (119, b"\xc0\0"),
        (26, &[0, 68]),
    ];
    let Some(Output::Check(lease)) = answer(&mut client, (5, xid), options, 20) else {
        panic!("no lease");
    };
    assert_eq!(
        (lease.search[0].to_string().as_str(), lease.mtu),
        ("example.net", None)
    );
}

/// A stack's lower half with a client.
struct Host {
    ip: Ip<Ipv4<Arp>, Ipv6>,
    udp: Udp,
    dhcp: Dhcp,
    wire: Wire,
}

impl Host {
    fn new() -> Self {
        Self::noting(None)
    }

    fn noting(note: Option<LeaseNote>) -> Self {
        let (port, wire) = testing::port();
        let (large, mut udp) = (testing::large(2), Udp::new());
        let mac = Mac(port.mac());
        let dhcp = Dhcp::new(mac, 1, Dhcp::bind(&mut udp).unwrap(), note, at(0));
        let (v4, v6) = (Ipv4::new(large, 1), Ipv6::new(large, 1));
        let ip = Ip::new(Ethernet::new(Box::new(port)), v4, v6);
        Self {
            ip,
            udp,
            dhcp,
            wire,
        }
    }

    /// One turn; the payloads of what was sent to servers.
    fn turn(&mut self, ms: u64) -> Vec<Vec<u8>> {
        let mut batch = Batch::new();
        self.ip.receive(&mut batch);
        for frame in batch.drain() {
            if let Some(crate::version::Arrived::Packet(packet)) = self.ip.accept(frame, at(ms)) {
                self.udp.accept(packet, Some(0)).unwrap();
            }
        }
        self.ip.poll(at(ms));
        while let Some(datagram) = self.udp.receive(self.dhcp.socket()) {
            self.dhcp.receive(&datagram, &mut self.ip, at(ms));
        }
        self.dhcp.turn(&mut self.ip, at(ms));
        self.ip.flush();
        let sent = self.wire.sent().into_iter();
        let ours = sent.filter(|frame| frame[12..14] == [8, 0] && frame[36..38] == [0, 67]);
        ours.map(|frame| frame[42..].to_vec()).collect()
    }

    /// The server says something, to everybody.
    fn answer(&self, kind: u8, asked: &[u8], options: &[(u8, &[u8])]) {
        let xid = u32::from_be_bytes(asked[4..8].try_into().unwrap());
        let mut payload = message(kind, xid, SERVER, options);
        payload[28..34].copy_from_slice(&asked[28..34]);
        let mut frame = vec![0xff; 6];
        frame.extend([2, 0, 0, 0, 0, 9, 8, 0, 0x45, 0]);
        frame.extend((28 + payload.len() as u16).to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, 17, 0, 0]);
        frame.extend(SERVER.octets().iter().chain(&[255; 4]));
        let sum = !device::checksum::fold(device::checksum::sum(&frame[14..34]));
        frame[24..26].copy_from_slice(&sum.to_ne_bytes());
        frame.extend([0, 67, 0, 68]);
        frame.extend((8 + payload.len() as u16).to_be_bytes());
        frame.extend([0, 0]);
        frame.extend(payload);
        self.wire.arrives(&frame);
    }

    /// The server says what link address it has.
    fn answer_arp(&self) {
        const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
        let mut frame = [&[0xff; 6][..], &SERVER_MAC, &[8, 6]].concat();
        frame.extend([0, 1, 8, 0, 6, 4, 0, 2]);
        frame.extend(SERVER_MAC.iter().chain(&SERVER.octets()));
        frame.extend([0; 6].iter().chain(&OURS.octets()));
        self.wire.arrives(&frame);
    }
}

#[test]
fn a_stack_gets_its_address_uses_it_and_loses_it() {
    let mut host = Host::new();
    let asked = host.turn(0).remove(0);
    host.answer(2, &asked, &[MASK, LEASE]);
    let asked = host.turn(10).remove(0);
    host.answer(5, &asked, &[MASK, LEASE, ROUTER, (26, &[5, 0])]);
    host.turn(20);
    assert_eq!(host.ip.v4.standing(OURS), Standing::Tentative);
    let far = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    assert_eq!(host.ip.source(far, at(20)), None);
    for ms in (20..1500).step_by(10) {
        host.turn(ms);
    }
    let prefix = Prefix::new(OURS, 24).unwrap();
    assert_eq!(host.dhcp.change(), Some(Change::Got(prefix)));
    assert_eq!(host.ip.source(far, at(1500)), Some(OURS.into()));
    assert_eq!(host.ip.mtu(far, at(1500)), 1280);
    for ms in [HOUR / 2, HOUR * 7 / 8, HOUR] {
        host.turn(ms + 10);
    }
    assert_eq!(host.dhcp.change(), Some(Change::Lost(prefix)));
    assert_eq!(host.ip.source(far, at(HOUR)), None);
    assert_eq!(host.ip.mtu(far, at(HOUR)), 1500);
    assert!(host.ip.v4.addresses().is_empty());
}

#[test]
fn a_router_outside_of_the_network_is_reached_on_the_link() {
    let lease = Lease {
        address: Prefix::new(OURS, 32).unwrap(),
        router: Some(OTHER),
        servers: Default::default(),
        search: Vec::new(),
        mtu: None,
        server: SERVER,
        times: None,
    };
    let mut v4 = Ipv4::new(testing::large(1), 1);
    apply(&mut v4, None, Some(&lease), at(0));
    let far = Ipv4Addr::new(192, 0, 2, 1);
    assert_eq!(v4.routes().next_hop(far), Some(OTHER));
    assert_eq!(v4.routes().next_hop(OTHER), Some(OTHER));
    apply(&mut v4, Some(&lease), None, at(0));
    assert_eq!(v4.routes().iter().count(), 0);
}

proptest! {
    /// Whatever servers send, there is no panic, and the client asks again.
    #[test]
    fn hostile_servers_do_no_harm(
        messages in proptest::collection::vec(
            (1u8..9, any::<bool>(), proptest::collection::vec(any::<u8>(), 0..80), 0u64..HOUR),
            0..40,
        ),
    ) {
        let mut client = client();
        let (mut now, mut xid) = (0, 0);
        for (kind, fine, options, wait) in messages {
            now += wait;
            let mut step = client.poll(at(now));
            for _ in 0..20 {
                if let Some(Output::Send(question)) = step {
                    xid = question.xid;
                }
                step = client.poll(at(now));
            }
            prop_assert_eq!(step, None);
            let fine: &[(u8, &[u8])] = if fine { &[MASK, LEASE] } else { &[] };
            let mut bytes = message(kind, xid, SERVER, fine);
            bytes.pop();
            bytes.extend(options);
            client.receive(&bytes, 67, at(now));
            client.checked(kind % 2 == 0, at(now));
        }
        let infinite = client.lease().is_some_and(|lease| lease.times.is_none());
        prop_assert!(infinite || client.deadline().is_some());
    }
}

/// Where a lease is noted down; the clock began that long after 1970.
fn note(memory: &'static mut [u8], wall: u64) -> LeaseNote {
    let mut notes = Notes::open(memory, 1, Duration::from_millis(wall));
    notes.remove(0).lease
}

#[test]
fn a_lease_outlives_its_host_and_its_server_is_asked_again_at_once() {
    let memory = testing::lasting(&[0; 192]);
    let start = memory.as_ptr().addr();
    let left = || testing::lasting(&testing::lying(start, 192));
    let mut host = Host::noting(Some(note(memory, 0)));
    let names: (u8, &[u8]) = (6, &[10, 0, 0, 3]);
    let options = [MASK, LEASE, ROUTER, names];
    let asked = host.turn(0);
    host.answer(2, &asked[0], &options);
    let asked = host.turn(1);
    host.answer(5, &asked[0], &options);
    (2..3000).step_by(50).for_each(|ms| drop(host.turn(ms)));
    let lease = host.dhcp.lease().cloned().unwrap();
    let is_ours = |host: &Host| host.ip.standing(OURS.into()) == Standing::Usable;
    assert!(is_ours(&host));
    // Ten minutes later, and its clock begins anew.
    let mut next = Host::noting(Some(note(left(), 600_000)));
    next.turn(0);
    assert!(is_ours(&next));
    next.answer_arp();
    let asked = next.turn(1);
    let kept = next.dhcp.lease().cloned().unwrap();
    let end = |lease: &Lease| lease.times.unwrap().end.as_secs();
    assert_eq!((end(&lease), end(&kept)), (3600, 3000));
    let times = lease.times;
    assert_eq!(Lease { times, ..kept }, lease);
    let asks = DhcpPacket::new_unchecked(&asked[0][..]);
    assert_eq!(asks.client_ip(), OURS);
    // Nobody answers: the next host has what is left, and the one after it nothing.
    let mut third = Host::noting(Some(note(left(), HOUR - 10_000)));
    third.turn(0);
    assert!(third.dhcp.lease().is_some());
    let mut last = Host::noting(Some(note(left(), HOUR + 1000)));
    last.turn(0);
    assert_eq!(last.dhcp.lease(), None);
    // A server that refuses takes it from the next host as well.
    next.answer(6, &asked[0], &[]);
    next.turn(2);
    assert_eq!(next.dhcp.lease(), None);
}
