//! Answers for the zone that the appliance `dns` comes with.

use crate::answer::{Transport, answer};
use crate::file::{File, expression};
use crate::{Error, Record, Zone};
use domain::base::iana::{Class, Rcode};
use domain::base::{Message, MessageBuilder, Name, Rtype};
use std::vec;
use std::vec::Vec;

const TEXT: &[u8] = include_bytes!("../../../unikernels/dns/zone");

/// What is asked for this name and type.
fn question(name: &str, rtype: Rtype) -> Vec<u8> {
    let mut builder = MessageBuilder::new_vec().question();
    builder.header_mut().set_id(7);
    let name: Name<Vec<u8>> = name.parse().unwrap();
    builder.push((name, rtype, Class::IN)).unwrap();
    builder.finish()
}

/// The answer: its code, whether it has authority, and how many records each section has.
fn ask(name: &str, rtype: Rtype) -> (Rcode, bool, [u16; 3]) {
    let file = File::read(TEXT).unwrap();
    let records = file.records();
    let zone = Zone::new(&records).unwrap();
    let said = answer(&zone, &question(name, rtype), Transport::Udp).unwrap();
    let message = Message::from_octets(said).unwrap();
    let (header, counts) = (message.header(), message.header_counts());
    assert_eq!((header.id(), header.qr()), (7, true));
    let counts = [counts.ancount(), counts.nscount(), counts.arcount()];
    (header.rcode(), header.aa(), counts)
}

#[test]
fn names_find_what_the_zone_has() {
    for (name, rtype, expected) in [
        (
            "www.example.org",
            Rtype::A,
            (Rcode::NOERROR, true, [1, 0, 0]),
        ),
        (
            "WWW.example.ORG",
            Rtype::A,
            (Rcode::NOERROR, true, [1, 0, 0]),
        ),
        (
            "www.example.org",
            Rtype::MX,
            (Rcode::NOERROR, true, [0, 1, 0]),
        ),
        (
            "alias.example.org",
            Rtype::A,
            (Rcode::NOERROR, true, [2, 0, 0]),
        ),
        (
            "far.example.org",
            Rtype::A,
            (Rcode::NOERROR, true, [1, 0, 0]),
        ),
        (
            "round.example.org",
            Rtype::A,
            (Rcode::NOERROR, true, [1, 0, 0]),
        ),
        (
            "no.example.org",
            Rtype::A,
            (Rcode::NXDOMAIN, true, [0, 1, 0]),
        ),
        (
            "empty.example.org",
            Rtype::A,
            (Rcode::NOERROR, true, [0, 1, 0]),
        ),
        (
            "a.b.wild.example.org",
            Rtype::A,
            (Rcode::NOERROR, true, [1, 0, 0]),
        ),
        (
            "a.seen.wild.example.org",
            Rtype::A,
            (Rcode::NXDOMAIN, true, [0, 1, 0]),
        ),
        (
            "a.sub.example.org",
            Rtype::A,
            (Rcode::NOERROR, false, [0, 1, 1]),
        ),
        ("example.net", Rtype::A, (Rcode::REFUSED, false, [0, 0, 0])),
        (".", Rtype::A, (Rcode::REFUSED, false, [0, 0, 0])),
        (
            "example.org",
            Rtype::AXFR,
            (Rcode::REFUSED, false, [0, 0, 0]),
        ),
    ] {
        assert_eq!(ask(name, rtype), expected, "{name} {rtype}");
    }
}

#[test]
fn what_does_not_fit_is_cut_and_whole_over_tcp() {
    let file = File::read(TEXT).unwrap();
    let records = file.records();
    let zone = Zone::new(&records).unwrap();
    let asked = question("big.example.org", Rtype::TXT);
    for (transport, cut, count) in [(Transport::Udp, true, 0), (Transport::Tcp, false, 12)] {
        let said = Message::from_octets(answer(&zone, &asked, transport).unwrap()).unwrap();
        let found = (said.header().tc(), said.header_counts().ancount());
        assert_eq!(found, (cut, count));
    }
}

#[test]
fn what_is_no_question_gets_no_answer() {
    let file = File::read(TEXT).unwrap();
    let records = file.records();
    let zone = Zone::new(&records).unwrap();
    let mut reply = question("www.example.org", Rtype::A);
    reply[2] |= 0x80;
    assert_eq!(answer(&zone, &reply, Transport::Udp), None);
    assert_eq!(answer(&zone, &reply[..11], Transport::Udp), None);
}

#[test]
fn records_that_make_no_zone_are_refused() {
    let soa = Record::new(b"\x01z\0", 6, 1, b"");
    let below = |rtype| Record::new(b"\x01a\x01z\0", rtype, 1, b"");
    for (records, why) in [
        (vec![], Error::Apex),
        (vec![soa, soa], Error::Apex),
        (vec![soa, below(1)], Error::Order),
        (
            vec![below(1), Record::new(b"\x01y\0", 1, 1, b""), soa],
            Error::Outside,
        ),
        (vec![Record::new(b"", 1, 1, b""), soa], Error::Outside),
        (vec![Record::new(b"\x05", 1, 1, b""), soa], Error::Order),
        (vec![below(1), below(5), soa], Error::Alias),
    ] {
        assert_eq!(Zone::new(&records).err(), Some(why), "{records:?}");
    }
    assert!(Zone::new(&[below(5), soa]).is_ok());
    assert!(expression(b"a.b. 1 A 192.0.2.1\n").is_err());
    assert!(expression(b"$INCLUDE other\n").is_err());
    assert!(expression(TEXT).unwrap().contains("zone::Record::new("));
}
