use super::*;

/// The words that an error points at, and why.
fn error(text: &str) -> (&str, Reason) {
    let error = parse(text).expect_err(text);
    (&text[error.at], error.reason)
}

#[test]
fn each_mistake_has_its_place_and_reason() {
    let cases: &[(&str, &str, Reason)] = &[
        ("tpc 1.2.3.4:5 > 1.2.3.4:5", "tpc", Reason::Kind),
        ("", "", Reason::Missing("what kind of frame it is")),
        ("tcp", "", Reason::Missing("an address with a port")),
        (
            "tcp 10.0.0.1 > 10.0.0.2:70",
            "10.0.0.1",
            Reason::AddressAndPort,
        ),
        (
            "tcp fe80::1:7 > 10.0.0.2:70",
            "fe80::1:7",
            Reason::AddressAndPort,
        ),
        (
            "tcp [fe80::1%1]:7 > [::1]:7",
            "[fe80::1%1]:7",
            Reason::AddressAndPort,
        ),
        (
            "tcp 10.0.0.1:1 10.0.0.2:7",
            "10.0.0.2:7",
            Reason::NotLiteral(">"),
        ),
        (
            "tcp 10.0.0.1:1 > 10.0.0.2:70000",
            "10.0.0.2:70000",
            Reason::Port,
        ),
        ("udp 10.0.0.1:1 > [::1]:7", "[::1]:7", Reason::Version),
        ("icmp 10.0.0.1 > 10.0.0.", "10.0.0.", Reason::Address),
        ("icmp ::1 > ::2", "::2", Reason::VersionOf("icmp", 4)),
        (
            "icmpv6 1.1.1.1 > 2.2.2.2",
            "2.2.2.2",
            Reason::VersionOf("icmpv6", 6),
        ),
        ("icmp 1.1.1.1 > 2.2.2.2 type pong", "pong", Reason::IcmpType),
        (
            "icmp 1.1.1.1 > 2.2.2.2 type 256",
            "256",
            Reason::Number(0, 255),
        ),
        (
            "icmp 1.1.1.1 > 2.2.2.2 code -1",
            "-1",
            Reason::Number(0, 255),
        ),
        ("ip 1.1.1.1 > 2.2.2.2", "", Reason::Missing("proto")),
        (
            "ip 1.1.1.1 > 2.2.2.2 proto 6",
            "6",
            Reason::Described("tcp A:P > B:P"),
        ),
        ("ip ::1 > ::2 proto 44", "44", Reason::Extension),
        ("arp is 10.0.0.1", "is", Reason::NotLiteral("who-has")),
        (
            "arp who-has ::1 tell ::2",
            "::1",
            Reason::VersionOf("arp", 4),
        ),
        ("arp reply 10.0.0.1 is-at 02:00", "02:00", Reason::Mac),
        (
            "ether type 0x800",
            "0x800",
            Reason::Described("ip A > B proto N"),
        ),
        ("ether type 38", "38", Reason::Length),
        ("ether type 0x10000", "0x10000", Reason::Number(0, 65535)),
        ("ether 0x88cc", "0x88cc", Reason::NotLiteral("type")),
        (
            "tcp 1.1.1.1:1 > 2.2.2.2:2 flags syn,fun",
            "syn,fun",
            Reason::Flag,
        ),
        (
            "udp 1.1.1.1:1 > 2.2.2.2:2 flags syn",
            "flags",
            Reason::NotFor("UDP"),
        ),
        (
            "tcp 1.1.1.1:1 > 2.2.2.2:2 type 8",
            "type",
            Reason::NotFor("TCP"),
        ),
        (
            "icmp 1.1.1.1 > 2.2.2.2 flags syn",
            "flags",
            Reason::NotFor("ICMP"),
        ),
        (
            "ether type 0x88cc flags syn",
            "flags",
            Reason::NotFor("a frame without such a header"),
        ),
        (
            "arp who-has 1.1.1.1 tell 1.1.1.2 fragment first",
            "fragment",
            Reason::NotFor("a frame that is not IP"),
        ),
        (
            "udp 1.1.1.1:1 > 2.2.2.2:2 fragment last",
            "last",
            Reason::Part,
        ),
        (
            "udp 1.1.1.1:1 > 2.2.2.2:2 vlan 4095",
            "4095",
            Reason::Number(0, 4094),
        ),
        (
            "udp 1.1.1.1:1 > 2.2.2.2:2 len 41",
            "41",
            Reason::TooShort(42),
        ),
        (
            "udp 1.1.1.1:1 > 2.2.2.2:2 len 45 vlan 1",
            "45",
            Reason::TooShort(46),
        ),
        (
            "udp [::1]:1 > [::2]:2 len 69 fragment first",
            "69",
            Reason::TooShort(70),
        ),
        (
            "udp 1.1.1.1:1 > 2.2.2.2:2 len 65550",
            "65550",
            Reason::Number(0, 65549),
        ),
        ("udp 1.1.1.1:1 > 2.2.2.2:2 via eth0", "via", Reason::Clause),
        (
            "udp 1.1.1.1:1 > 2.2.2.2:2 in a vlan 1 in b",
            "in",
            Reason::Twice,
        ),
        (
            "udp 1.1.1.1:1 > 2.2.2.2:2 in",
            "",
            Reason::Missing("the name of a port"),
        ),
        (
            "udp 1.1.1.1:1 > 2.2.2.2:2 from 2:0:0:0:0:0:1",
            "2:0:0:0:0:0:1",
            Reason::Mac,
        ),
        (
            "udp 1.1.1.1:1 > 2.2.2.2:2 to 2:0:0:0:0:+1",
            "2:0:0:0:0:+1",
            Reason::Mac,
        ),
        (
            "ip 1.1.1.1 > 2.2.2.2 proto 0x+1",
            "0x+1",
            Reason::Number(0, 255),
        ),
    ];
    for (text, at, reason) in cases {
        assert_eq!(error(text), (*at, reason.clone()), "{text}");
        assert!(!reason.help().is_empty() && !reason.to_string().is_empty());
    }
}

#[test]
fn the_second_clause_is_the_one_too_many() {
    let text = "udp 1.1.1.1:1 > 2.2.2.2:2 in a in b";
    assert_eq!(parse(text).unwrap_err().at, 31..33);
}

#[test]
fn defaults_are_filled_in() {
    let description = parse("tcp 10.0.0.1:999 > 10.0.0.2:7070 in private").unwrap();
    assert_eq!(description.port.as_deref(), Some("private"));
    let syn = L4::Tcp {
        source: 999,
        destination: 7070,
        flags: 2,
    };
    assert!(matches!(description.content, Content::Ip { l4: Some(l4), .. } if l4 == syn));
    let tight = parse("tcp 10.0.0.1:999>10.0.0.2:7070   in private").unwrap();
    assert_eq!(tight, description);
    let ping = parse("icmpv6 ::1 > ::2").unwrap();
    let request = L4::Icmpv6 { kind: 128, code: 0 };
    assert!(matches!(ping.content, Content::Ip { l4: Some(l4), .. } if l4 == request));
}
