//! Questions, and what is taken from answers (RFC 1035, 4; RFC 2308; RFC 6891).

use super::{ADDRESSES_MAX, Name};
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;
use domain::base::iana::{Class, Opcode, Rcode};
use domain::base::{Message, MessageBuilder, ParsedName, Rtype, ToName};
use domain::rdata::{A, Aaaa, Cname, Soa};

/// The longest answer over UDP that we take, in bytes: it is cut on hardly any way (RFC 6891,
/// 6.2.5; the number is DNS flag day's of 2020).
pub const ANSWER_MAX: u16 = 1232;
/// Aliases that are followed in one answer.
pub const ALIASES_MAX: usize = 8;
/// Records of an answer that are looked at.
const RECORDS_MAX: usize = 128;
/// An answer is kept no longer (RFC 8767, 4 recommends it).
const KEEP_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// That there is none is kept no longer (RFC 2308, 5).
const KEEP_NONE_MAX: Duration = Duration::from_secs(60 * 60);

/// What an answer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// These addresses, for so long; none if the name has none of this type.
    Addresses(Vec<IpAddr>, Duration),
    /// The name does not exist, for so long.
    NotFound(Duration),
    /// It is an alias of this name, for so long, of which the answer says no more.
    Alias(Name, Duration),
    /// It did not fit: ask again over TCP.
    Truncated,
    /// The server does not know, or does not want to say.
    Failed,
    /// The server does not understand what we can take (RFC 6891, 7).
    NoExtensions,
}

type Parsed<'a> = ParsedName<&'a [u8]>;

/// A question for the addresses of a type. With `extended`, it tells how much we can take.
pub fn question(id: u16, name: &Name, rtype: Rtype, extended: bool) -> Option<Vec<u8>> {
    let mut builder = MessageBuilder::from_target(Vec::new()).ok()?;
    builder.header_mut().set_id(id);
    builder.header_mut().set_rd(true);
    let mut builder = builder.question();
    builder.push((name, rtype)).ok()?;
    let mut builder = builder.additional();
    if extended {
        let told = builder.opt(|opt| {
            opt.set_udp_payload_size(ANSWER_MAX);
            Ok(())
        });
        told.ok()?;
    }
    Some(builder.finish())
}

/// Reads the answer to this question; `None` if it answers another one, or cannot be read.
pub fn answer(bytes: &[u8], id: u16, name: &Name, rtype: Rtype) -> Option<Answer> {
    let message = Message::from_octets(bytes).ok()?;
    let header = message.header();
    if header.id() != id || !header.qr() || header.opcode() != Opcode::QUERY {
        return None;
    }
    // A server that understands nothing at all may leave the question away.
    if header.rcode() == Rcode::FORMERR && message.header_counts().qdcount() == 0 {
        return Some(Answer::NoExtensions);
    }
    let question = message.sole_question().ok()?;
    let same = question.qtype() == rtype && question.qclass() == Class::IN;
    if !same || !question.qname().name_eq(name) {
        return None;
    }
    if header.tc() {
        return Some(Answer::Truncated);
    }
    match header.rcode() {
        Rcode::NOERROR => found(&message, name, rtype),
        Rcode::NXDOMAIN => Some(Answer::NotFound(none_for(&message)?.1)),
        Rcode::FORMERR | Rcode::NOTIMP => Some(Answer::NoExtensions),
        _ => Some(Answer::Failed),
    }
}

/// What records say of a name: its aliases are followed within the answer.
fn found(message: &Message<&[u8]>, name: &Name, rtype: Rtype) -> Option<Answer> {
    let (mut name, mut kept, mut followed) = (name.clone(), KEEP_MAX, 0);
    loop {
        let (addresses, alias, keep) = records(message, &name, rtype)?;
        kept = kept.min(keep);
        if !addresses.is_empty() {
            return Some(Answer::Addresses(addresses, kept));
        }
        match alias {
            Some(alias) if followed < ALIASES_MAX => {
                followed += 1;
                name = alias;
            }
            Some(_) => return Some(Answer::Failed),
            None => break,
        }
    }
    let (is_said, keep) = none_for(message)?;
    Some(match followed > 0 && !is_said {
        true => Answer::Alias(name, kept),
        false => Answer::Addresses(Vec::new(), kept.min(keep)),
    })
}

/// The addresses of a name, or what it is an alias of; for how long.
fn records(
    message: &Message<&[u8]>,
    name: &Name,
    rtype: Rtype,
) -> Option<(Vec<IpAddr>, Option<Name>, Duration)> {
    let (mut addresses, mut alias, mut keep) = (Vec::new(), None, KEEP_MAX);
    for record in message.answer().ok()?.take(RECORDS_MAX) {
        let record = record.ok()?;
        if !record.owner().name_eq(name) || record.class() != Class::IN {
            continue;
        }
        let kind = record.rtype();
        if kind == Rtype::CNAME {
            let to: Cname<Parsed<'_>> = record.to_record().ok()??.into_data();
            alias = Some(to.cname().to_name());
        } else if kind == rtype && kind == Rtype::A {
            let a: A = record.to_record().ok()??.into_data();
            addresses.push(a.addr().into());
        } else if kind == rtype && kind == Rtype::AAAA {
            let a: Aaaa = record.to_record().ok()??.into_data();
            addresses.push(a.addr().into());
        } else {
            continue;
        }
        keep = keep.min(record.ttl().into_duration());
    }
    addresses.truncate(ADDRESSES_MAX);
    Some((addresses, alias, keep))
}

/// Whether a server says with an SOA that there is nothing, and how long that is kept
/// (RFC 2308, 5).
fn none_for(message: &Message<&[u8]>) -> Option<(bool, Duration)> {
    let records = message.authority().ok()?.limit_to_in::<Soa<Parsed<'_>>>();
    match records.take(RECORDS_MAX).next() {
        Some(record) => {
            let record = record.ok()?;
            let keep = record.ttl().min(record.data().minimum()).into_duration();
            Some((true, keep.min(KEEP_NONE_MAX)))
        }
        None => Some((false, Duration::ZERO)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use domain::base::{Serial, Ttl};
    use proptest::prelude::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    enum Has {
        Address(&'static str, u32),
        Alias(&'static str, &'static str, u32),
        Nothing(u32),
    }

    /// An answer to the question for `www.example.org`.
    fn message(rcode: Rcode, tc: bool, has: &[Has]) -> Vec<u8> {
        let mut builder = MessageBuilder::from_target(Vec::new()).unwrap();
        let header = builder.header_mut();
        header.set_id(7);
        header.set_qr(true);
        header.set_tc(tc);
        header.set_rcode(rcode);
        let mut builder = builder.question();
        builder.push((name("WWW.example.org"), Rtype::A)).unwrap();
        let mut builder = builder.answer();
        for record in has {
            match record {
                Has::Address(owner, ttl) => {
                    let data = A::new(Ipv4Addr::new(192, 0, 2, 1));
                    let owner = name(owner);
                    builder.push((owner, Ttl::from_secs(*ttl), data)).unwrap();
                }
                Has::Alias(owner, to, ttl) => {
                    let data = Cname::new(name(to));
                    let owner = name(owner);
                    builder.push((owner, Ttl::from_secs(*ttl), data)).unwrap();
                }
                Has::Nothing(_) => {}
            }
        }
        let mut builder = builder.authority();
        for record in has {
            if let Has::Nothing(ttl) = record {
                let (zone, second) = (name("example.org"), Ttl::from_secs(1));
                let minimum = Ttl::from_secs(*ttl);
                let (serial, host) = (Serial(1), zone.clone());
                let data = Soa::new(host.clone(), host, serial, second, second, second, minimum);
                builder.push((zone, Ttl::from_secs(9000), data)).unwrap();
            }
        }
        builder.finish()
    }

    fn read(bytes: &[u8]) -> Option<Answer> {
        answer(bytes, 7, &name("www.example.org"), Rtype::A)
    }

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn addresses_and_aliases_are_read() {
        let address = || alloc::vec![IpAddr::from([192, 0, 2, 1])];
        let direct = [
            Has::Address("www.example.org", 60),
            Has::Address("x.org", 5),
        ];
        let direct = read(&message(Rcode::NOERROR, false, &direct));
        assert_eq!(direct, Some(Answer::Addresses(address(), seconds(60))));
        let aliased = [
            Has::Address("b.example.org", 90),
            Has::Alias("a.example.org", "b.example.org", 20),
            Has::Alias("www.example.org", "a.example.org", 30),
        ];
        let followed = read(&message(Rcode::NOERROR, false, &aliased));
        assert_eq!(followed, Some(Answer::Addresses(address(), seconds(20))));
        let open = read(&message(Rcode::NOERROR, false, &aliased[1..]));
        assert_eq!(
            open,
            Some(Answer::Alias(name("b.example.org"), seconds(20)))
        );
        let round = [Has::Alias("www.example.org", "www.example.org", 1)];
        assert_eq!(
            read(&message(Rcode::NOERROR, false, &round)),
            Some(Answer::Failed)
        );
    }

    #[test]
    fn nothing_is_kept_as_long_as_the_zone_says() {
        let gone = read(&message(Rcode::NXDOMAIN, false, &[Has::Nothing(300)]));
        assert_eq!(gone, Some(Answer::NotFound(seconds(300))));
        let long = read(&message(Rcode::NXDOMAIN, false, &[Has::Nothing(9000)]));
        assert_eq!(long, Some(Answer::NotFound(seconds(3600))));
        let none = read(&message(Rcode::NOERROR, false, &[Has::Nothing(9)]));
        assert_eq!(none, Some(Answer::Addresses(Vec::new(), seconds(9))));
        let unsaid = read(&message(Rcode::NOERROR, false, &[]));
        assert_eq!(unsaid, Some(Answer::Addresses(Vec::new(), seconds(0))));
    }

    #[test]
    fn what_answers_another_question_is_none() {
        let fine = message(
            Rcode::NOERROR,
            false,
            &[Has::Address("www.example.org", 60)],
        );
        assert!(read(&fine).is_some());
        assert_eq!(answer(&fine, 8, &name("www.example.org"), Rtype::A), None);
        assert_eq!(answer(&fine, 7, &name("ww.example.org"), Rtype::A), None);
        assert_eq!(
            answer(&fine, 7, &name("www.example.org"), Rtype::AAAA),
            None
        );
        let mut asks = fine.clone();
        asks[2] &= 0x7f;
        assert_eq!(read(&asks), None);
        assert_eq!(read(&fine[..fine.len() - 1]), None);
        assert_eq!(
            read(&message(Rcode::NOERROR, true, &[])),
            Some(Answer::Truncated)
        );
        assert_eq!(
            read(&message(Rcode::REFUSED, false, &[])),
            Some(Answer::Failed)
        );
        assert_eq!(
            read(&message(Rcode::FORMERR, false, &[])),
            Some(Answer::NoExtensions)
        );
    }

    #[test]
    fn a_question_says_what_we_take() {
        let bytes = question(7, &name("www.example.org"), Rtype::A, true).unwrap();
        let message = Message::from_octets(&bytes[..]).unwrap();
        assert_eq!(message.opt().unwrap().udp_payload_size(), ANSWER_MAX);
        assert!(message.header().rd());
        assert_eq!(
            question(7, &name("x"), Rtype::A, false).unwrap().len(),
            12 + 3 + 4
        );
    }

    proptest! {
        #[test]
        fn random_answers_never_panic(
            edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
            cut: prop::sample::Index,
        ) {
            let has = [
                Has::Alias("www.example.org", "a.example.org", 30),
                Has::Address("a.example.org", 90),
                Has::Nothing(1),
            ];
            let mut bytes = message(Rcode::NOERROR, false, &has);
            for (place, value) in edits {
                let place = place.index(bytes.len());
                bytes[place] = value;
            }
            bytes.truncate(cut.index(bytes.len()) + 1);
            read(&bytes);
        }
    }
}
