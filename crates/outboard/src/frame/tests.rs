use super::*;
use etherparse::{LinkExtSlice, NetSlice, SlicedPacket, TransportSlice};
use nf::{Addresses, Fragment, Key, L4};

fn frame(text: &str) -> Vec<u8> {
    match read(text) {
        Ok(crafted) => crafted.bytes,
        Err(error) => panic!("{text}: {error}"),
    }
}

pub const DESCRIPTIONS: &[&str] = &[
    "tcp 10.0.0.1:999 > 10.0.0.2:7070 in private",
    "tcp 10.0.0.1:999 > 10.0.0.2:7070 flags syn,ack vlan 7 len 1518",
    "tcp [2001:db8::1]:999 > [2001:db8::2]:80 flags none len 75",
    "tcp [::1]:80 > [::2]:81 flags fin,rst,psh,urg,ecn,cwr vlan 4094",
    "udp 10.0.0.1:1 > 255.255.255.255:67 len 65549",
    "udp 10.0.0.1:1 > 224.129.2.3:5353 len 43",
    "udp [fe80::1]:1 > [ff02::fb]:5353 vlan 1 len 65549",
    "icmp 10.0.0.1 > 10.0.0.2",
    "icmp 10.0.0.1 > 10.0.0.2 type timestamp-request",
    "icmp 10.0.0.1 > 10.0.0.2 type destination-unreachable code 3 len 99",
    "icmpv6 fe80::1 > fe80::2 type echo-reply code 1",
    "icmpv6 fe80::1 > ff02::1:ff00:2 type nd-neighbor-solicit",
    "ip 10.0.0.1 > 10.0.0.2 proto 47 len 99",
    "ip ::1 > ::2 proto 0x59",
    "arp who-has 10.0.0.1 tell 10.0.0.2",
    "arp reply 10.0.0.1 is-at 02:00:00:00:00:77 tell 10.0.0.2 vlan 3",
    "ether type 0x88cc from 2:0:0:0:0:9 to 01:80:c2:00:00:0e",
    "tcp 10.0.0.1:999 > 10.0.0.2:7070 fragment first",
    "tcp [::1]:999 > [::2]:7070 fragment later vlan 9",
    "udp 10.0.0.1:1 > 10.0.0.2:2 fragment later len 1514",
    "ip 10.0.0.1 > 10.0.0.2 proto 47 fragment first",
    "icmpv6 fe80::1 > fe80::2 fragment first",
];

/// Whether the transport header's checksum is the one that etherparse would have put there.
fn checksum_holds(packet: &SlicedPacket) -> bool {
    let (source, destination) = match &packet.net {
        Some(NetSlice::Ipv4(ip)) => (
            ip.header().source().to_vec(),
            ip.header().destination().to_vec(),
        ),
        Some(NetSlice::Ipv6(ip)) => (
            ip.header().source().to_vec(),
            ip.header().destination().to_vec(),
        ),
        _ => return true,
    };
    let v4 = |bytes: &[u8]| <[u8; 4]>::try_from(bytes);
    let v6 = |bytes: &[u8]| <[u8; 16]>::try_from(bytes);
    match &packet.transport {
        None => true,
        Some(TransportSlice::Tcp(tcp)) => {
            let header = tcp.to_header();
            let right = match (v4(&source), v4(&destination)) {
                (Ok(a), Ok(b)) => header.calc_checksum_ipv4_raw(a, b, tcp.payload()),
                _ => header.calc_checksum_ipv6_raw(
                    v6(&source).unwrap(),
                    v6(&destination).unwrap(),
                    tcp.payload(),
                ),
            };
            right.unwrap() == tcp.checksum()
        }
        Some(TransportSlice::Udp(udp)) => {
            let header = udp.to_header();
            let right = match (v4(&source), v4(&destination)) {
                (Ok(a), Ok(b)) => header.calc_checksum_ipv4_raw(a, b, udp.payload()),
                _ => header.calc_checksum_ipv6_raw(
                    v6(&source).unwrap(),
                    v6(&destination).unwrap(),
                    udp.payload(),
                ),
            };
            right.unwrap() == udp.checksum()
        }
        Some(TransportSlice::Icmpv4(icmp)) => {
            let header = icmp.header();
            header.icmp_type.calc_checksum(icmp.payload()) == header.checksum
        }
        Some(TransportSlice::Icmpv6(icmp)) => {
            icmp.is_checksum_valid(v6(&source).unwrap(), v6(&destination).unwrap())
        }
        Some(_) => false,
    }
}

#[test]
fn each_frame_is_read_by_another_decoder_and_by_the_firewall() {
    for text in DESCRIPTIONS {
        let bytes = frame(text);
        let packet = SlicedPacket::from_ethernet(&bytes).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert!(checksum_holds(&packet), "{text}");
        if let Some(NetSlice::Ipv4(ip)) = &packet.net {
            let header = ip.header().to_header();
            assert_eq!(
                header.calc_header_checksum(),
                header.header_checksum,
                "{text}"
            );
        }
        Key::parse(&bytes).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert!(bytes.len() >= 43, "{text}");
    }
}

#[test]
fn the_key_is_what_the_words_say() {
    let key = Key::parse(&frame("tcp [::1]:80 > [::2]:81 flags fin,cwr vlan 4094"))
        .unwrap()
        .fields();
    assert_eq!(
        (key.vlan, key.ether_type, key.protocol),
        (Some(4094), 0x86dd, Some(6))
    );
    let addresses = Addresses::V6 {
        source: "::1".parse().unwrap(),
        destination: "::2".parse().unwrap(),
    };
    assert_eq!(key.addresses, Some(addresses));
    let l4 = L4::Tcp {
        source: 80,
        destination: 81,
        flags: 0x81,
    };
    assert_eq!(key.l4, Some(l4));
    let key = Key::parse(&frame("udp 10.0.0.1:1 > 10.0.0.2:2 fragment later"))
        .unwrap()
        .fields();
    assert_eq!((key.fragment, key.l4), (Fragment::Later, None));
    let key = Key::parse(&frame("udp [::1]:1 > [::2]:2 fragment first"))
        .unwrap()
        .fields();
    assert_eq!(key.fragment, Fragment::First);
    assert!(matches!(
        key.l4,
        Some(L4::Udp {
            source: 1,
            destination: 2
        })
    ));
    let key = Key::parse(&frame("icmp 10.0.0.1 > 10.0.0.2 type 3 code 4"))
        .unwrap()
        .fields();
    assert_eq!(key.l4, Some(L4::Icmp { kind: 3, code: 4 }));
    let key = Key::parse(&frame(
        "ether type 0x88cc from 2:0:0:0:0:9 to 01:80:c2:0:0:e",
    ))
    .unwrap()
    .fields();
    assert_eq!(key.ether_type, 0x88cc);
    assert_eq!(key.source, [2, 0, 0, 0, 0, 9]);
    assert_eq!(key.destination, [1, 0x80, 0xc2, 0, 0, 0xe]);
}

#[test]
fn destinations_are_the_ones_that_a_stack_would_take() {
    let to = |text: &str| Key::parse(&frame(text)).unwrap().fields().destination;
    assert_eq!(to("udp 10.0.0.1:1 > 255.255.255.255:67"), [0xff; 6]);
    assert_eq!(
        to("udp 10.0.0.1:1 > 224.129.2.3:5353"),
        [1, 0, 0x5e, 1, 2, 3]
    );
    assert_eq!(
        to("udp [fe80::1]:1 > [ff02::fb]:5353"),
        [0x33, 0x33, 0, 0, 0, 0xfb]
    );
    assert_eq!(to("arp who-has 10.0.0.1 tell 10.0.0.2"), [0xff; 6]);
    assert_eq!(to("tcp 10.0.0.1:1 > 10.0.0.2:2"), [2, 0, 0, 0, 0, 2]);
}

#[test]
fn lengths_are_of_the_whole_frame() {
    assert_eq!(frame("tcp 10.0.0.1:1 > 10.0.0.2:2").len(), 60);
    assert_eq!(frame("tcp 10.0.0.1:1 > 10.0.0.2:2 len 54").len(), 54);
    assert_eq!(frame("ether type 0x88cc len 14").len(), 14);
    let longest = frame("udp 10.0.0.1:1 > 10.0.0.2:2 len 65549");
    let packet = SlicedPacket::from_ethernet(&longest).unwrap();
    let Some(TransportSlice::Udp(udp)) = &packet.transport else {
        panic!("no UDP");
    };
    assert_eq!(udp.payload().len(), 65535 - 28);
    // All of a first fragment is whole units of eight bytes.
    let first = frame("tcp 10.0.0.1:1 > 10.0.0.2:2 fragment first");
    let packet = SlicedPacket::from_ethernet(&first).unwrap();
    let Some(NetSlice::Ipv4(ip)) = &packet.net else {
        panic!("no IPv4");
    };
    assert_eq!(ip.payload().payload.len(), 24);
}

#[test]
fn arp_says_who_asks_and_who_answers() {
    let request = frame("arp who-has 10.0.0.1 tell 10.0.0.2 from 2:0:0:0:0:7");
    let packet = SlicedPacket::from_ethernet(&request).unwrap();
    let Some(NetSlice::Arp(arp)) = &packet.net else {
        panic!("no ARP");
    };
    assert_eq!(arp.sender_hw_addr(), [2, 0, 0, 0, 0, 7]);
    assert_eq!(arp.sender_protocol_addr(), [10, 0, 0, 2]);
    assert_eq!(arp.target_protocol_addr(), [10, 0, 0, 1]);
    let reply = frame("arp reply 10.0.0.1 is-at 2:0:0:0:0:8 tell 10.0.0.2");
    assert_eq!(reply[6..12], [2, 0, 0, 0, 0, 8]);
    let packet = SlicedPacket::from_ethernet(&reply).unwrap();
    let Some(NetSlice::Arp(arp)) = &packet.net else {
        panic!("no ARP");
    };
    assert_eq!(arp.operation(), etherparse::ArpOperation::REPLY);
    assert_eq!(arp.sender_hw_addr(), [2, 0, 0, 0, 0, 8]);
}

#[test]
fn a_tag_stands_in_front_of_the_type() {
    let tagged = frame("arp who-has 10.0.0.1 tell 10.0.0.2 vlan 5");
    let packet = SlicedPacket::from_ethernet(&tagged).unwrap();
    assert!(matches!(&packet.link_exts[..], [LinkExtSlice::Vlan(tag)]
        if tag.vlan_identifier().value() == 5));
}

#[test]
fn a_frame_that_the_shell_took_apart_is_to_be_quoted() {
    let typed = |rest: &[&str]| Typed {
        frame: "tcp".into(),
        rest: rest.iter().copied().map(str::to_owned).collect(),
    };
    assert_eq!(typed(&[]).text().unwrap(), "tcp");
    let says = "quote the frame, as in 'tcp 10.0.0.1:999 > 10.0.0.2:80': without quotes the shell \
                writes into a file behind >";
    let error = typed(&["10.0.0.1:999"]).text().unwrap_err();
    assert_eq!(error.to_string(), says);
}

#[test]
fn a_port_out_of_range_is_told_from_no_address() {
    let says = |text| read(text).unwrap_err().to_string();
    let expected = "the frame: its port is no number from 0 to 65535\n  |\n  | tcp 10.0.0.1:999 > \
                    10.0.0.2:70700\n  |                    ^^^^^^^^^^^^^^\n  = help: such as \
                    10.0.0.1:999 or [fe80::1]:999";
    assert_eq!(says("tcp 10.0.0.1:999 > 10.0.0.2:70700"), expected);
    for other in ["tcp 10.0.0:80 > 10.0.0.2:1", "tcp 10.0.0.1:8x > 10.0.0.2:1"] {
        let no_address = "the frame: no IP address with a port\n";
        assert!(says(other).starts_with(no_address), "{other}");
    }
}

#[test]
fn digits_and_captures_take_a_port() {
    let crafted = read("0200 00:00 in private").unwrap();
    assert_eq!(crafted.bytes, [2, 0, 0, 0]);
    assert_eq!(crafted.port.as_deref(), Some("private"));
    assert_eq!(read("0200").unwrap().port, None);
    assert!(matches!(read("020"), Err(Error::Digits)));
    assert!(matches!(
        read(&"00".repeat(70_000)),
        Err(Error::TooLong(70_000))
    ));
    assert!(matches!(read(&"00".repeat(200_000)), Err(Error::Length)));
    assert!(matches!(read("x.pcap#0"), Err(Error::Number(_))));
    assert!(matches!(read("x.pcap#1x"), Err(Error::Number(_))));
    assert_eq!(
        split_port("a b#3  in  lan "),
        ("a b#3", Some("lan".to_owned()))
    );
    assert_eq!(split_port("within x"), ("within x", None));
}

#[test]
fn errors_point_at_their_words() {
    let message = read("udp 10.0.0.1:1 > 10.0.0.2 in private")
        .unwrap_err()
        .to_string();
    let expected = "\
the frame: no IP address with a port
  |
  | udp 10.0.0.1:1 > 10.0.0.2 in private
  |                  ^^^^^^^^
  = help: such as 10.0.0.1:999 or [fe80::1]:999";
    assert_eq!(message, expected);
    // A name that is no file and has several words is taken for a misspelt description.
    let message = read("upd 10.0.0.1:1 > 10.0.0.2:2").unwrap_err().to_string();
    assert!(message.contains("  | ^^^\n"), "{message}");
    let message = read("no-such-file.pcap").unwrap_err().to_string();
    assert!(
        message.starts_with("no-such-file.pcap: No such file"),
        "{message}"
    );
    assert_eq!(message.lines().count(), 1);
    assert!(
        !read("tcp \u{1b}[2J > x")
            .unwrap_err()
            .to_string()
            .contains('\u{1b}')
    );
}

#[test]
fn the_reference_has_only_frames() {
    let reference = include_str!("../../../../docs/frames.md");
    let blocks: Vec<_> = reference.split("```frames\n").skip(1).collect();
    assert_eq!(blocks.len(), 3);
    for block in blocks {
        let (examples, _) = block.split_once("```").unwrap();
        assert!(examples.lines().count() > 1);
        for example in examples.lines() {
            assert!(!frame(example).is_empty(), "{example}");
        }
    }
    for name in ["fin", "syn", "rst", "psh", "ack", "urg", "ecn", "cwr"] {
        assert!(reference.contains(&format!("`{name}`")) && names::tcp_flag(name).is_some());
    }
}

/// Words of the language, and some that are none.
const VOCABULARY: &[&str] = &[
    "tcp",
    "udp",
    "icmp",
    "icmpv6",
    "ip",
    "arp",
    "ether",
    "who-has",
    "reply",
    "tell",
    "is-at",
    "type",
    "proto",
    "flags",
    "code",
    "in",
    "vlan",
    "len",
    "from",
    "to",
    "fragment",
    "first",
    "later",
    ">",
    "10.0.0.1",
    "10.0.0.1:80",
    "::1",
    "[::1]:80",
    "02:00:00:00:00:01",
    "none",
    "syn,ack",
    "echo-request",
    "0",
    "60",
    "1514",
    "65549",
    "0x88cc",
    "134",
    "é",
    "\u{1b}",
];

#[test]
fn an_error_carries_no_escape_sequence() {
    let error = read(" \u{1b}[2J").unwrap_err().to_string();
    assert!(!error.contains('\u{1b}'), "{error:?}");
}

proptest::proptest! {
    #[test]
    fn any_text_is_a_frame_or_an_error(text in "\\PC{0,80}") {
        if let Err(error) = read(&text) {
            assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn any_words_are_a_frame_or_an_error(
        words in proptest::collection::vec(proptest::sample::select(VOCABULARY), 0..14),
        start in proptest::sample::select(DESCRIPTIONS),
        kept in 0..12_usize,
    ) {
        let start: Vec<_> = start.split(' ').take(kept).collect();
        let text = format!("{} {}", start.join(" "), words.join(" "));
        match read(&text) {
            Ok(crafted) => {
                assert!(crafted.bytes.len() <= FRAME_BYTES_MAX);
                if description::is_description(&text) {
                    Key::parse(&crafted.bytes).unwrap_or_else(|e| panic!("{text}: {e}"));
                }
            }
            Err(error) => assert!(!error.to_string().contains('\u{1b}')),
        }
    }
}
