//! Answers: what is asked, what is found, and how much of it fits.

use crate::zone::of_type;
use crate::{Found, Record, Zone};
use alloc::vec::Vec;
use domain::base::iana::{Class, Opcode, OptRcode, Rcode};
use domain::base::message_builder::{AdditionalBuilder, StaticCompressor};
use domain::base::{
    Message, MessageBuilder, Name, ParsedName, Rtype, ToName, Ttl, UnknownRecordData,
};

/// Bytes of an answer over UDP, whatever the client would take: more is cut on some ways, and helps
/// those who have others flooded with answers (RFC 6891, 6.2.5; DNS flag day of 2020).
const UDP_MAX: u16 = 1232;
/// Bytes that every client takes (RFC 1035, 4.2.1).
const UDP_MIN: u16 = 512;
/// Bytes of an OPT record without options.
const OPT: usize = 11;
/// Aliases that are followed for one question.
const ALIASES_MAX: usize = 8;

/// How a question came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// In a datagram.
    Udp,
    /// On a connection, over which anything fits.
    Tcp,
}

/// What is answered, in the order of the sections.
#[derive(Default)]
struct Reply<'z> {
    rcode: Option<Rcode>,
    is_ours: bool,
    /// Each with its owner, where that is not its own: a wildcard's.
    answer: Vec<(Vec<u8>, &'z Record<'z>)>,
    authority: &'z [Record<'z>],
    glue: Vec<&'z Record<'z>>,
}

type Builder = AdditionalBuilder<StaticCompressor<Vec<u8>>>;

/// The zone's answer to a message; `None` if it deserves none.
pub fn answer(zone: &Zone<'_>, bytes: &[u8], transport: Transport) -> Option<Vec<u8>> {
    let message = Message::from_octets(bytes).ok()?;
    let header = message.header();
    if header.qr() {
        return None;
    }
    let opt = message.opt();
    let limit = match (transport, &opt) {
        (Transport::Tcp, _) => u16::MAX,
        (Transport::Udp, None) => UDP_MIN,
        (Transport::Udp, Some(opt)) => opt.udp_payload_size().clamp(UDP_MIN, UDP_MAX),
    };
    let version = opt.as_ref().map(|opt| opt.version());
    let question = message.sole_question();
    let found = match (&question, version) {
        _ if header.opcode() != Opcode::QUERY => refused(Rcode::NOTIMP),
        (_, Some(1..)) => refused(Rcode::NOERROR),
        (Err(_), _) => refused(Rcode::FORMERR),
        (Ok(question), _) if question.qclass() != Class::IN => refused(Rcode::REFUSED),
        (Ok(question), _) => search(zone, question.qname(), question.qtype()),
    };
    let write = |found: &Reply<'_>| write(&message, found, version, limit);
    write(&found)
        .or_else(|| {
            // Whoever asked is to ask again over TCP.
            let mut builder = write(&refused(found.rcode.unwrap_or(Rcode::NOERROR)))?;
            builder.header_mut().set_tc(true);
            builder.header_mut().set_aa(found.is_ours);
            Some(builder)
        })
        .map(|builder| builder.finish().into_target())
}

fn refused<'z>(rcode: Rcode) -> Reply<'z> {
    Reply {
        rcode: Some(rcode),
        ..Reply::default()
    }
}

/// What the zone has to say to a question (RFC 1034, 4.3.2).
fn search<'z>(zone: &Zone<'z>, name: &ParsedName<&[u8]>, rtype: Rtype) -> Reply<'z> {
    let mut found = Reply {
        is_ours: true,
        ..Reply::default()
    };
    let name: Name<Vec<u8>> = name.to_canonical_name();
    let mut name = name.as_slice().to_vec();
    if matches!(rtype, Rtype::AXFR | Rtype::IXFR) {
        return refused(Rcode::REFUSED);
    }
    for _ in 0..=ALIASES_MAX {
        let records = match zone.find(&name) {
            Found::Foreign if found.answer.is_empty() => return refused(Rcode::REFUSED),
            Found::Foreign => break,
            Found::Delegated(ns) => {
                found.is_ours = !found.answer.is_empty();
                found.authority = ns;
                found.glue = glue(zone, ns);
                break;
            }
            Found::Records(records) => records,
            Found::Nothing => {
                found.rcode = Some(Rcode::NXDOMAIN);
                found.authority = zone.soa();
                break;
            }
        };
        let alias = of_type(records, Rtype::CNAME).first();
        let wanted = match (alias, rtype) {
            (Some(_), Rtype::CNAME | Rtype::ANY) | (None, _) => None,
            (Some(alias), _) => Some(alias),
        };
        if let Some(alias) = wanted {
            if found.answer.iter().any(|(_, other)| *other == alias) {
                break;
            }
            found.answer.push((name, alias));
            name = alias.data.to_ascii_lowercase();
            continue;
        }
        // Of all types one is enough (RFC 8482, 4.1).
        let first = records.first().map_or(rtype, Record::rtype);
        let rtype = if rtype == Rtype::ANY { first } else { rtype };
        let these = of_type(records, rtype);
        found
            .answer
            .extend(these.iter().map(|record| (name.clone(), record)));
        if these.is_empty() {
            found.authority = zone.soa();
        }
        break;
    }
    found
}

/// The addresses of servers that the zone knows (RFC 1034, 4.2.1).
fn glue<'z>(zone: &Zone<'z>, ns: &[Record<'_>]) -> Vec<&'z Record<'z>> {
    let known = ns
        .iter()
        .flat_map(|ns| zone.records(&ns.data.to_ascii_lowercase()));
    let addresses = [Rtype::A, Rtype::AAAA];
    known
        .filter(|record| addresses.contains(&record.rtype()))
        .collect()
}

/// Writes an answer; `None` if it exceeds the limit.
fn write(
    asked: &Message<&[u8]>,
    found: &Reply<'_>,
    version: Option<u8>,
    limit: u16,
) -> Option<Builder> {
    let target = StaticCompressor::new(Vec::new());
    let mut builder = MessageBuilder::from_target(target).ok()?;
    let reserved = version.map_or(0, |_| OPT);
    builder.set_push_limit(usize::from(limit) - reserved);
    let (header, from) = (builder.header_mut(), asked.header());
    header.set_id(from.id());
    header.set_qr(true);
    header.set_opcode(from.opcode());
    header.set_rd(from.rd());
    header.set_aa(found.is_ours);
    header.set_rcode(found.rcode.unwrap_or(Rcode::NOERROR));
    let mut builder = builder.question();
    if let Ok(question) = asked.sole_question() {
        builder.push(question).ok()?;
    }
    let mut builder = builder.answer();
    for (owner, record) in &found.answer {
        builder.push(parts(owner, record, record.ttl)?).ok()?;
    }
    let mut builder = builder.authority();
    for record in found.authority {
        builder
            .push(parts(record.owner, record, none_ttl(record))?)
            .ok()?;
    }
    let mut builder = builder.additional();
    for record in &found.glue {
        builder
            .push(parts(record.owner, record, record.ttl)?)
            .ok()?;
    }
    builder.clear_push_limit();
    if let Some(version) = version {
        let told = builder.opt(|opt| {
            opt.set_udp_payload_size(UDP_MAX);
            if version > 0 {
                opt.set_rcode(OptRcode::BADVERS);
            }
            Ok(())
        });
        told.ok()?;
    }
    Some(builder)
}

/// That there is nothing is known no longer than the zone says (RFC 2308, 3).
fn none_ttl(record: &Record<'_>) -> u32 {
    match (record.rtype(), record.data.last_chunk()) {
        (Rtype::SOA, Some(minimum)) => record.ttl.min(u32::from_be_bytes(*minimum)),
        _ => record.ttl,
    }
}

type Parts<'a> = (Name<&'a [u8]>, Class, Ttl, UnknownRecordData<&'a [u8]>);

fn parts<'a>(owner: &'a [u8], record: &Record<'a>, ttl: u32) -> Option<Parts<'a>> {
    let owner = Name::from_octets(owner).ok()?;
    let data = UnknownRecordData::from_octets(record.rtype(), record.data).ok()?;
    Some((owner, Class::IN, Ttl::from_secs(ttl), data))
}
