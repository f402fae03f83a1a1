//! Questions and answers that are passed on, byte for byte but for what has to differ (RFC 1035, 4;
//! RFC 2308; RFC 5625; RFC 6891).

use super::message::ANSWER_MAX;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;
use core::time::Duration;
use ports::Instant;

/// Bytes of a message's header.
const HEADER: usize = 12;
/// Bytes of an answer over UDP that each client takes (RFC 1035, 2.3.4).
const PLAIN_MAX: usize = 512;
/// Records of a message that are looked at; one with more is passed to nobody.
const RECORDS_MAX: usize = 256;
/// Answers that are kept.
pub const KEPT_MAX: usize = 256;
/// How long one is kept at most, and one that there is nothing (RFC 8767, 4; RFC 2308, 5).
const KEEP_MAX: u32 = 24 * 60 * 60;
const KEEP_NONE_MAX: u32 = 60 * 60;

// Types and the class of records.
const SOA: u16 = 6;
const OPT: u16 = 41;
/// Of whole zones, which are nobody's business here: IXFR and AXFR.
const TRANSFERS: [u16; 2] = [251, 252];
const INTERNET: u16 = 1;

// The header's third and fourth byte.
const IS_ANSWER: u8 = 0x80;
const OPCODE: u8 = 0x78;
const AUTHORITATIVE: u8 = 0x04;
const TRUNCATED: u8 = 0x02;
const RECURSION_WANTED: u8 = 0x01;
const RECURSION_OFFERED: u8 = 0x80;
const CHECKING_DISABLED: u8 = 0x10;
const CODE: u8 = 0x0f;

/// Codes of answers (RFC 1035, 4.1.1).
const NO_ERROR: u8 = 0;
const FORMAT_ERROR: u8 = 1;
pub const SERVER_FAILURE: u8 = 2;
const NO_SUCH_NAME: u8 = 3;
const NOT_IMPLEMENTED: u8 = 4;
const REFUSED: u8 = 5;

/// A question that can be passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    bytes: Vec<u8>,
    /// Where its name, type and class lie.
    question: Range<usize>,
    /// Where the record lies that says what the client can take.
    extension: Option<usize>,
}

/// A record of a message.
#[derive(Debug)]
struct Record {
    /// 1 for answers, 2 for authority, 3 for what is beside.
    section: usize,
    at: usize,
    kind: u16,
    /// Where its time to live lies.
    ttl: usize,
    data: Range<usize>,
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Where a name ends that begins here: each step is forward, and a pointer is the last one.
fn behind_name(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *bytes.get(at)? {
            0 => return Some(at + 1),
            len @ 1..=63 => at += 1 + usize::from(len),
            192.. => return Some(at + 2),
            _ => return None,
        }
    }
}

/// All records of a message behind its question; `None` if it is none, or has more bytes.
fn records(bytes: &[u8], from: usize) -> Option<Vec<Record>> {
    let (mut all, mut at) = (Vec::new(), from);
    for section in 1..=3 {
        for _ in 0..word(bytes, 4 + 2 * section)? {
            let begin = at;
            at = behind_name(bytes, at)?;
            let kind = word(bytes, at)?;
            let data = at + 10..at + 10 + usize::from(word(bytes, at + 8)?);
            if data.end > bytes.len() || all.len() == RECORDS_MAX {
                return None;
            }
            all.push(Record {
                section,
                at: begin,
                kind,
                ttl: at + 4,
                data: data.clone(),
            });
            at = data.end;
        }
    }
    (at == bytes.len()).then_some(all)
}

impl Asked {
    /// Reads a client's question.
    ///
    /// # Errors
    /// What is to be answered, if anything is.
    pub fn read(bytes: &[u8]) -> Result<Self, Option<Vec<u8>>> {
        let header: &[u8; HEADER] = bytes.first_chunk().ok_or(None)?;
        if header[2] & IS_ANSWER != 0 {
            return Err(None);
        }
        // Without a question: who cannot be understood knows its number by itself.
        let wrong = |code| Some(error(header, &[], code));
        if header[2] & OPCODE != 0 {
            return Err(wrong(NOT_IMPLEMENTED));
        }
        let read = || {
            let is_one = header[4..10] == [0, 1, 0, 0, 0, 0];
            let end = behind_name(bytes, HEADER).filter(|_| is_one)? + 4;
            let name = bytes.get(HEADER..end)?;
            // A pointer would lead into the header.
            let is_plain = name[name.len() - 5] == 0;
            Some((HEADER..end, records(bytes, end).filter(|_| is_plain)?))
        };
        let (question, beside) = read().ok_or_else(|| wrong(FORMAT_ERROR))?;
        let extension = match &beside[..] {
            [] => None,
            [one] if one.kind == OPT && one.ttl == one.at + 5 => Some(one.at),
            // What is signed may not change on its way.
            _ => return Err(wrong(REFUSED)),
        };
        let kind = word(bytes, question.end - 4).unwrap_or(0);
        if TRANSFERS.contains(&kind) || word(bytes, question.end - 2) != Some(INTERNET) {
            return Err(wrong(REFUSED));
        }
        Ok(Self {
            bytes: bytes.to_vec(),
            question,
            extension,
        })
    }

    fn question(&self) -> &[u8] {
        &self.bytes[self.question.clone()]
    }

    /// The number that its client gave it.
    pub fn id(&self) -> [u8; 2] {
        [self.bytes[0], self.bytes[1]]
    }

    /// Bytes of an answer over UDP that the client takes.
    pub fn takes(&self) -> usize {
        let told = self.extension.and_then(|at| word(&self.bytes, at + 3));
        let told = told.map_or(PLAIN_MAX, usize::from);
        told.clamp(PLAIN_MAX, ANSWER_MAX.into())
    }

    /// The question for a server, with another number. What is taken over UDP is what we can.
    pub fn to_server(&self, id: u16) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        bytes[..2].copy_from_slice(&id.to_be_bytes());
        if let Some(at) = self.extension {
            bytes[at + 3..at + 5].copy_from_slice(&ANSWER_MAX.to_be_bytes());
        }
        bytes
    }

    /// What a server's message answers the client, if it answers this question under this number.
    pub fn answer(&self, bytes: &[u8], id: u16) -> Option<Vec<u8>> {
        let header: &[u8; HEADER] = bytes.first_chunk()?;
        let is_ours = header[..2] == id.to_be_bytes();
        if !is_ours || header[2] & IS_ANSWER == 0 || header[2] & OPCODE != 0 {
            return None;
        }
        // A server that understands nothing at all may leave the question away.
        let code = header[3] & CODE;
        if header[4..] == [0; 8] && matches!(code, FORMAT_ERROR | NOT_IMPLEMENTED) {
            return Some(self.error(code));
        }
        let asked = self.question();
        let question = bytes.get(HEADER..HEADER + asked.len())?;
        let (name, kind) = asked.split_at(asked.len() - 4);
        let is_same = question[..name.len()].eq_ignore_ascii_case(name);
        if header[4..6] != [0, 1] || !is_same || question[name.len()..] != *kind {
            return None;
        }
        records(bytes, self.question.end)?;
        Some(self.reply(bytes))
    }

    /// An answer with the client's number and question, as it wrote them.
    fn reply(&self, answer: &[u8]) -> Vec<u8> {
        let mut bytes = answer.to_vec();
        bytes[..2].copy_from_slice(&self.id());
        bytes[self.question.clone()].copy_from_slice(self.question());
        bytes
    }

    /// An answer that has only a code.
    pub fn error(&self, code: u8) -> Vec<u8> {
        error(&self.bytes, self.question(), code)
    }

    /// An answer as it goes over UDP: one that the client does not take asks it to come by TCP.
    pub fn over_udp(&self, answer: Vec<u8>) -> Vec<u8> {
        if answer.len() <= self.takes() {
            return answer;
        }
        let mut short = error(&self.bytes, self.question(), NO_ERROR);
        short[2] |= TRUNCATED;
        short
    }

    /// What an answer is kept under: name and type, and what else answers depend on. One that
    /// depends on more is not kept.
    fn key(&self) -> Option<Vec<u8>> {
        let mut key = self.question().to_ascii_lowercase();
        // A type is no text.
        let kind = key.len() - 4;
        key[kind..].copy_from_slice(&self.question()[kind..]);
        key.push(self.bytes[2] & RECURSION_WANTED | self.bytes[3] & CHECKING_DISABLED);
        if let Some(at) = self.extension {
            // Version, flags, and no option.
            let shape = &self.bytes[at + 5..];
            key.extend(shape.get(..4)?);
            (shape.len() == 6).then_some(())?;
        }
        Some(key)
    }
}

/// An answer to a message with this header that has only a code.
fn error(header: &[u8], question: &[u8], code: u8) -> Vec<u8> {
    let mut bytes = alloc::vec![0; HEADER];
    bytes[..2].copy_from_slice(&header[..2]);
    bytes[2] = IS_ANSWER | header[2] & (OPCODE | RECURSION_WANTED);
    bytes[3] = RECURSION_OFFERED | code;
    bytes[5] = u8::from(!question.is_empty());
    bytes.extend(question);
    bytes
}

/// How long an answer may be kept, in seconds; `None` if it may not.
fn life(answer: &[u8], records: &[Record]) -> Option<u32> {
    let (flags, code) = (answer.get(2)?, answer.get(3)? & CODE);
    if flags & TRUNCATED != 0 || !matches!(code, NO_ERROR | NO_SUCH_NAME) {
        return None;
    }
    let (mut life, mut is_said) = (KEEP_MAX, code == NO_ERROR && word(answer, 6)? > 0);
    for record in records.iter().filter(|record| record.kind != OPT) {
        let ttl = long(answer, record.ttl)?;
        // RFC 2181, 8.
        life = life.min(if ttl > i32::MAX as u32 { 0 } else { ttl });
        if record.section == 2 && record.kind == SOA {
            let minimum = record.data.end.checked_sub(4)?;
            life = life.min(long(answer, minimum)?).min(KEEP_NONE_MAX);
            is_said = true;
        }
    }
    (is_said && life > 0).then_some(life)
}

/// An answer that is kept.
#[derive(Debug)]
struct Kept {
    answer: Vec<u8>,
    since: Instant,
    until: Instant,
}

/// Answers by what was asked.
#[derive(Debug, Default)]
pub struct Cache(BTreeMap<Vec<u8>, Kept>);

impl Cache {
    /// What is known, with times to live as they are now.
    pub fn get(&self, asked: &Asked, now: Instant) -> Option<Vec<u8>> {
        let kept = self.0.get(&asked.key()?).filter(|kept| now < kept.until)?;
        let mut answer = asked.reply(&kept.answer);
        answer[2] &= !AUTHORITATIVE;
        let passed = u32::try_from((now - kept.since).as_secs()).unwrap_or(u32::MAX);
        for record in records(&kept.answer, asked.question.end)? {
            if record.kind != OPT {
                let left = long(&answer, record.ttl)?.saturating_sub(passed);
                answer[record.ttl..record.ttl + 4].copy_from_slice(&left.to_be_bytes());
            }
        }
        Some(answer)
    }

    /// Keeps an answer, if it may be kept; the one that ends soonest goes if there are too many.
    pub fn put(&mut self, asked: &Asked, answer: &[u8], now: Instant) {
        let keep = || {
            let all = records(answer, asked.question.end)?;
            Some((asked.key()?, life(answer, &all)?))
        };
        let Some((key, life)) = keep().filter(|_| answer.len() <= ANSWER_MAX.into()) else {
            return;
        };
        if self.0.len() >= KEPT_MAX && !self.0.contains_key(&key) {
            let soonest = self.0.iter().min_by_key(|(_, kept)| kept.until);
            if let Some(key) = soonest.map(|(key, _)| key.clone()) {
                self.0.remove(&key);
            }
        }
        let kept = Kept {
            answer: answer.to_vec(),
            since: now,
            until: now + Duration::from_secs(life.into()),
        };
        self.0.insert(key, kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;
    use proptest::prelude::*;

    /// `www.example` and its IPv4 address.
    const NAME: &[u8] = b"\x03www\x07example\0\0\x01\0\x01";
    const EXTENSION: [u8; 11] = [0, 0, 41, 0x10, 0, 0, 0, 0x80, 0, 0, 0];

    fn question(id: u8, name: &[u8], extension: &[u8]) -> Vec<u8> {
        let beside = u8::from(!extension.is_empty());
        let header = [0, id, 1, 0, 0, 1, 0, 0, 0, 0, 0, beside];
        [&header[..], name, extension].concat()
    }

    fn asked() -> Asked {
        Asked::read(&question(7, NAME, &[])).unwrap()
    }

    /// An answer under the number 9 with one address.
    fn answer(name: &[u8], ttl: u32) -> Vec<u8> {
        let header = [0, 9, 0x85, 0x80, 0, 1, 0, 1, 0, 0, 0, 0];
        let record = [
            &[0xc0, 12, 0, 1, 0, 1][..],
            &ttl.to_be_bytes(),
            &[0, 4, 192, 0, 2, 1],
        ];
        [&header[..], name, &record.concat()].concat()
    }

    #[test]
    fn a_question_is_passed_on_under_another_number() {
        let asked = Asked::read(&question(7, NAME, &EXTENSION)).unwrap();
        assert_eq!((asked.id(), asked.takes()), ([0, 7], 1232));
        let mut expected = question(9, NAME, &EXTENSION);
        let size = expected.len() - 8;
        expected[size..size + 2].copy_from_slice(&1232_u16.to_be_bytes());
        assert_eq!(asked.to_server(9), expected);
        assert_eq!(self::asked().takes(), 512);
    }

    #[test]
    fn what_is_no_question_is_refused_with_its_reason() {
        let code = |bytes: &[u8]| Asked::read(bytes).unwrap_err().map(|said| said[3] & CODE);
        let plain = question(7, NAME, &[]);
        assert_eq!(code(&plain[..11]), None);
        let changed = |at: usize, to: u8| {
            let mut bytes = plain.clone();
            bytes[at] = to;
            bytes
        };
        assert_eq!(code(&changed(2, 0x80)), None);
        assert_eq!(code(&changed(2, 0x28)), Some(NOT_IMPLEMENTED));
        for bytes in [
            changed(5, 2),
            changed(7, 1),
            changed(11, 1),
            changed(12, 0xc0),
        ] {
            assert_eq!(code(&bytes), Some(FORMAT_ERROR));
        }
        assert_eq!(code(&plain[..plain.len() - 1]), Some(FORMAT_ERROR));
        assert_eq!(code(&[&plain[..], &[0]].concat()), Some(FORMAT_ERROR));
        // Of class CHAOS, a zone, and what is signed.
        let end = plain.len();
        assert_eq!(code(&changed(end - 1, 3)), Some(REFUSED));
        assert_eq!(code(&changed(end - 3, 252)), Some(REFUSED));
        let signed = [0, 0, 250, 0, 255, 0, 0, 0, 0, 0, 0];
        assert_eq!(code(&question(7, NAME, &signed)), Some(REFUSED));
    }

    #[test]
    fn an_answer_is_one_to_the_question_that_was_asked() {
        let (asked, loud) = (asked(), NAME.to_ascii_uppercase());
        let mut expected = answer(NAME, 60);
        expected[1] = 7;
        for name in [NAME, &loud] {
            let found = asked.answer(&answer(name, 60), 9);
            assert_eq!(found.as_ref(), Some(&expected));
        }
        assert_eq!(asked.answer(&answer(NAME, 60), 8), None);
        let other = b"\x03wwx\x07example\0\0\x01\0\x01";
        let kind = b"\x03www\x07example\0\0\x1c\0\x01";
        for name in [&other[..], &kind[..]] {
            assert_eq!(asked.answer(&answer(name, 60), 9), None);
        }
        let whole = answer(NAME, 60);
        assert_eq!(asked.answer(&whole[..whole.len() - 1], 9), None);
        assert_eq!(asked.answer(&question(9, NAME, &[]), 9), None);
        let plain = [0, 9, 0x80, FORMAT_ERROR, 0, 0, 0, 0, 0, 0, 0, 0];
        let said = asked.answer(&plain, 9).unwrap();
        assert_eq!((&said[..2], said[3] & CODE), (&[0, 7][..], FORMAT_ERROR));
    }

    #[test]
    fn what_is_too_long_for_udp_asks_for_tcp() {
        let asked = asked();
        let fits = asked.over_udp(alloc::vec![0; 512]);
        assert_eq!(fits.len(), 512);
        let short = asked.over_udp(alloc::vec![0; 513]);
        assert_eq!(
            (short.len(), short[2] & TRUNCATED),
            (HEADER + NAME.len(), TRUNCATED)
        );
        assert!(asked.answer(&[&[0, 9], &short[2..]].concat(), 9).is_some());
    }

    #[test]
    fn answers_are_kept_as_long_as_they_say() {
        let (asked, mut cache) = (asked(), Cache::default());
        let heard = asked.answer(&answer(NAME, 60), 9).unwrap();
        cache.put(&asked, &heard, at(0));
        let name = NAME.to_ascii_uppercase();
        let loud = Asked::read(&question(5, &name, &[])).unwrap();
        let found = cache.get(&loud, at(20_500)).unwrap();
        assert_eq!((found[1], found[2] & AUTHORITATIVE), (5, 0));
        assert_eq!(found[HEADER..HEADER + name.len()], name);
        let ttl = found.len() - 10;
        assert_eq!(long(&found, ttl), Some(40));
        assert_eq!(cache.get(&loud, at(60_000)), None);
        // Of another type, and with what answers depend on as well.
        let mut other = NAME.to_vec();
        other[NAME.len() - 3] = 28;
        let other = Asked::read(&question(5, &other, &[])).unwrap();
        assert_eq!(cache.get(&other, at(1)), None);
        let extended = Asked::read(&question(5, NAME, &EXTENSION)).unwrap();
        assert_eq!(cache.get(&extended, at(1)), None);
    }

    #[test]
    fn what_says_not_how_long_is_not_kept() {
        let (asked, mut cache) = (asked(), Cache::default());
        let mut truncated = answer(NAME, 60);
        truncated[2] |= TRUNCATED;
        let mut failed = answer(NAME, 60);
        failed[3] |= SERVER_FAILURE;
        let none = asked.error(NO_SUCH_NAME);
        for bytes in [
            truncated,
            failed,
            none,
            answer(NAME, 0),
            answer(NAME, u32::MAX),
        ] {
            cache.put(&asked, &bytes, at(0));
        }
        assert!(cache.0.is_empty());
        // With an SOA, whose last word counts.
        let mut none = asked.error(NO_SUCH_NAME);
        none[9] = 1;
        none.extend([0xc0, 16, 0, 6, 0, 1, 0, 0, 2, 0, 0, 22, 0, 0]);
        none.extend([0; 16].iter().chain(&[0, 0, 0, 30]));
        cache.put(&asked, &none, at(0));
        assert!(cache.get(&asked, at(29_000)).is_some() && cache.get(&asked, at(30_000)).is_none());
        for n in 0..300_u32 {
            let [.., a, b] = n.to_be_bytes();
            let name = [b"\x02", &[b'a' + a, b][..], b"\0\0\x01\0\x01"].concat();
            let asked = Asked::read(&question(7, &name, &[])).unwrap();
            cache.put(&asked, &answer(&name, 60 + n), at(0));
        }
        assert_eq!(cache.0.len(), KEPT_MAX);
    }

    proptest! {
        #[test]
        fn hostile_messages_never_panic(
            edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..9),
            cut: prop::sample::Index,
            of_server: bool,
        ) {
            let mut bytes = match of_server {
                true => answer(NAME, 60),
                false => question(7, NAME, &EXTENSION),
            };
            for (place, value) in edits {
                let place = place.index(bytes.len());
                bytes[place] = value;
            }
            bytes.truncate(cut.index(bytes.len()) + 1);
            let mut cache = Cache::default();
            if let Ok(asked) = Asked::read(&bytes) {
                prop_assert_eq!(asked.to_server(9).len(), bytes.len());
                cache.put(&asked, &bytes, at(0));
            }
            let asked = asked();
            if let Some(answer) = asked.answer(&bytes, 9) {
                prop_assert!(answer.starts_with(&[0, 7]));
                cache.put(&asked, &answer, at(0));
                cache.get(&asked, at(1));
            }
        }
    }
}
