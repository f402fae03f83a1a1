//! Questions of the host about connections: a list, part by part, and an end for some of them.
//!
//! One question is answered in a batch. It looks at [`nf::conntrack::LOOKED_AT_MAX`] connections at
//! most, or ends [`NAMES_MAX`] at most, so whoever asks does not slow frames down.

use abi::flows::{FAMILY_V4, FAMILY_V6, NAMES_MAX, Name, Record, STATUS_ZONE};
use abi::inquiry::Subject;
use core::net::IpAddr;
use nf::conntrack::{self, Conntrack, Entry};
use ports::Runtime;
use ports::inquiry::{Inquiry, Listed, Question};

/// Answers the question that waits.
#[cold]
pub(crate) fn answer(
    inquiry: &mut Inquiry,
    question: Question,
    table: Option<&mut Conntrack>,
    runtime: &Runtime,
) {
    let now = runtime.host.monotonic();
    let Some(table) = table else {
        return inquiry.answer::<Record>(question, |_| Listed::default());
    };
    if question.subject == Subject::FlowsEnd {
        let names = usize::try_from(question.from).unwrap_or(usize::MAX);
        let names = (0..names.min(NAMES_MAX)).filter_map(|number| inquiry.detail(number));
        let names = names.filter_map(|name| name_of(&name));
        let ended = names.filter(|name| table.end(name, now)).count() as u64;
        return inquiry.answer::<Record>(question, |_| Listed {
            ended,
            ..Listed::default()
        });
    }
    inquiry.answer::<Record>(question, |take| Listed {
        next: table.list(question.from, now, &mut |entry| take(&record_of(entry))),
        ..Listed::default()
    });
}

fn record_of(entry: &Entry) -> Record {
    let Entry { name, reply, .. } = entry;
    let is_in_zone = name.zone | reply.zone != 0;
    Record {
        name: Name {
            source: bytes_of(name.source),
            destination: bytes_of(name.destination),
            ports: name.ports,
            place: name.vlan | name.zone,
            protocol: name.protocol,
            family: if name.source.is_ipv4() {
                FAMILY_V4
            } else {
                FAMILY_V6
            },
        },
        reply_source: bytes_of(reply.source),
        reply_destination: bytes_of(reply.destination),
        reply_ports: reply.ports,
        mark: entry.mark,
        packets: entry.packets,
        bytes: entry.bytes,
        left: entry.left,
        class: entry.class as u8,
        status: if is_in_zone {
            entry.status | STATUS_ZONE
        } else {
            entry.status
        },
        reply_zone: reply.zone,
    }
}

fn bytes_of(address: IpAddr) -> [u8; 16] {
    let mut bytes = [0; 16];
    match address {
        IpAddr::V4(address) => bytes[..4].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => bytes = address.octets(),
    }
    bytes
}

/// What the host names, if it can be a flow's name.
fn name_of(name: &Name) -> Option<conntrack::Name> {
    let address = |bytes: [u8; 16]| -> Option<IpAddr> {
        match name.family {
            FAMILY_V4 => Some(IpAddr::from(*bytes.first_chunk::<4>()?)),
            FAMILY_V6 => Some(bytes.into()),
            _ => None,
        }
    };
    Some(conntrack::Name {
        source: address(name.source)?,
        destination: address(name.destination)?,
        ports: name.ports,
        // Of a router it is a zone; where it is looked up, both are the same.
        vlan: name.place,
        zone: 0,
        protocol: name.protocol,
    })
}
