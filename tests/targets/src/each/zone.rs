//! Messages to a server of names with authority: whatever they ask of whatever zone, there is no
//! panic, and an answer is one to the message, can be read, and is no longer than its client takes.

use arbitrary::{Result, Unstructured};
use domain::base::{Message, ParsedRecord};
use std::sync::LazyLock;
use zone::answer::{Transport, answer};
use zone::file::File;
use zone::{Record, Zone};

/// Records of a zone that has only few.
const RECORDS_MAX: usize = 6;
/// Types that decide how a zone is read, and one that does not: A, NS, CNAME, TXT, AAAA.
const TYPES: [u16; 5] = [1, 2, 5, 16, 28];
/// Labels of names, as they are on the wire.
const LABELS: [&[u8]; 5] = [b"\x01a", b"\x01b", b"\x01*", b"\x03org", b"\xff"];
/// Bytes of an answer over UDP, at most and without EDNS.
const UDP_MAX: usize = 1232;
const UDP_MIN: usize = 512;

static FILE: LazyLock<File> = LazyLock::new(|| {
    let text = include_bytes!("../../../../unikernels/dns/zone");
    File::read(text).expect("it is a zone's file")
});

pub fn feed(input: &[u8]) {
    let records = FILE.records();
    let zone = Zone::new(&records).expect("it is a zone");
    ask(&zone, input);
    // It ends with its input.
    let _ = ask_another(&mut Unstructured::new(input));
}

/// Asks a zone that the input makes.
fn ask_another(input: &mut Unstructured<'_>) -> Result<()> {
    let mut rows = vec![(name(input)?, 6, Vec::new())];
    for _ in 0..input.int_in_range(0..=RECORDS_MAX)? {
        let mut owner = name(input)?;
        if input.ratio(7, 8)? {
            owner.pop();
            owner.extend(&rows[0].0);
        }
        rows.push((owner, *input.choose(&TYPES)?, name(input)?));
    }
    rows.sort();
    let records = rows.iter();
    let records = records.map(|(owner, rtype, data)| Record::new(owner, *rtype, 60, data));
    let records: Vec<Record<'_>> = records.collect();
    if let Ok(zone) = Zone::new(&records) {
        ask(&zone, input.bytes(input.len())?);
    }
    Ok(())
}

/// A name, mostly.
fn name(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut name = Vec::new();
    for _ in 0..input.int_in_range(0..=4)? {
        name.extend(*input.choose(&LABELS)?);
    }
    name.push(0);
    Ok(name)
}

fn ask(zone: &Zone<'_>, asked: &[u8]) {
    for transport in [Transport::Udp, Transport::Tcp] {
        let Some(said) = answer(zone, asked, transport) else {
            continue;
        };
        let asked = Message::from_octets(asked).expect("it was read");
        let longest = match (transport, asked.opt()) {
            (Transport::Tcp, _) => usize::from(u16::MAX),
            (Transport::Udp, None) => UDP_MIN,
            (Transport::Udp, Some(_)) => UDP_MAX,
        };
        assert!(said.len() <= longest, "{} bytes", said.len());
        let said = Message::from_octets(&said[..]).expect("it is a message");
        let (from, to) = (asked.header(), said.header());
        assert!(!from.qr() && to.qr(), "an answer is answered");
        assert_eq!((from.id(), from.opcode()), (to.id(), to.opcode()));
        assert!(!(to.tc() && transport == Transport::Tcp), "it is cut");
        if let (Ok(one), Ok(other)) = (asked.sole_question(), said.sole_question()) {
            assert_eq!(one, other);
        }
        let sections = [said.answer(), said.authority(), said.additional()];
        for section in sections {
            let records = section.expect("each section is there");
            let records: Vec<ParsedRecord<'_, _>> = records
                .map(|record| record.expect("a record can be read"))
                .collect();
            drop(records);
        }
    }
}
