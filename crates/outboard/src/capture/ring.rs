//! Reading of the ring that a guest writes: nothing in it is believed.

use abi::share::{
    CAPTURE_PASSED, CAPTURE_RING_BYTES, CAPTURE_RULE, COUNTERS_PER_PORT, CaptureRecord, RULES_MAX,
};
use std::fmt;
use zerocopy::FromBytes;

/// Records begin at multiples of this.
const ALIGNMENT: usize = 8;
/// Most bytes of a frame: the largest one, and one byte by which a longer one was noticed.
const CAPTURED_MAX: u32 = device::FRAME_BYTES_MAX as u32 + 1;

/// What the guest wrote that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nonsense {
    /// A position behind the reader's, or further in front of it than the ring is long, or not
    /// aligned.
    Head(u64),
    /// A record that ends behind the last one.
    Length(u32),
    /// More captured than there was, or than a frame can have.
    Captured(u32),
    /// A port that is not captured.
    Port(u16),
    /// Neither received nor transmitted.
    Direction(u16),
    /// No counter of a port, and no rule.
    Fate(u32),
}

impl fmt::Display for Nonsense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Head(head) => write!(f, "a position {head} that cannot be"),
            Self::Length(bytes) => write!(f, "a record of {bytes} bytes that does not end"),
            Self::Captured(bytes) => write!(f, "a frame of which {bytes} bytes are captured"),
            Self::Port(port) => write!(f, "a frame of port {port}, which is not captured"),
            Self::Direction(number) => write!(f, "a frame with direction {number}"),
            Self::Fate(number) => write!(f, "a frame with fate {number:#x}"),
        }
    }
}

/// A record that holds what its length says, and numbers that mean something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked<'a> {
    /// Its numbers.
    pub record: CaptureRecord,
    /// What was captured of the frame.
    pub bytes: &'a [u8],
}

/// How many bytes wait between the reader's position and the writer's.
///
/// # Errors
/// The writer's position cannot be.
pub fn waiting(tail: u64, head: u64) -> Result<usize, Nonsense> {
    let waiting = head.checked_sub(tail).and_then(|n| usize::try_from(n).ok());
    waiting
        .filter(|n| *n <= CAPTURE_RING_BYTES && n.is_multiple_of(ALIGNMENT))
        .ok_or(Nonsense::Head(head))
}

/// Takes the first record off a private copy of what waits; `None` if it goes on behind the copy,
/// which holds all that waits if `whole`. `ports` are those that are captured.
///
/// # Errors
/// The record cannot be.
pub fn take<'a>(
    copy: &mut &'a [u8],
    whole: bool,
    ports: u64,
) -> Result<Option<Checked<'a>>, Nonsense> {
    let Ok((record, rest)) = CaptureRecord::read_from_prefix(copy) else {
        return match whole && !copy.is_empty() {
            true => Err(Nonsense::Length(copy.len() as u32)),
            false => Ok(None),
        };
    };
    check(&record, ports)?;
    let captured = record.captured as usize;
    match rest.split_at_checked(captured.next_multiple_of(ALIGNMENT)) {
        Some((padded, rest)) => {
            *copy = rest;
            let bytes = &padded[..captured];
            Ok(Some(Checked { record, bytes }))
        }
        None if whole => Err(Nonsense::Length(record.captured)),
        None => Ok(None),
    }
}

fn check(record: &CaptureRecord, ports: u64) -> Result<(), Nonsense> {
    if record.captured > record.length.min(CAPTURED_MAX) {
        return Err(Nonsense::Captured(record.captured));
    }
    let wanted = ports.checked_shr(record.port.into()).unwrap_or(0) & 1;
    if wanted == 0 {
        return Err(Nonsense::Port(record.port));
    }
    if record.direction > 1 {
        return Err(Nonsense::Direction(record.direction));
    }
    let rules = CAPTURE_RULE..CAPTURE_RULE + RULES_MAX as u32;
    match record.fate {
        CAPTURE_PASSED => Ok(()),
        counter if (counter as usize) < COUNTERS_PER_PORT => Ok(()),
        rule if rules.contains(&rule) => Ok(()),
        other => Err(Nonsense::Fate(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::capture::{Fate, Writer};
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use zerocopy::IntoBytes;

    const PORTS: u64 = 1 << 2;

    fn record(length: u32) -> CaptureRecord {
        CaptureRecord {
            length,
            captured: length,
            port: 2,
            fate: CAPTURE_PASSED,
            ..CaptureRecord::default()
        }
    }

    #[test]
    fn what_a_guest_writes_is_read() {
        let ring: Vec<AtomicU64> = (0..128).map(|_| AtomicU64::new(0)).collect();
        let mut writer = Writer::new(&ring);
        writer.push(0, record(3), b"abc").unwrap();
        let second = writer.push(0, record(90), &[9; 64]).unwrap();
        writer.amend(second, Fate::Rule(5));
        let copy: Vec<u8> = ring[..writer.head() as usize / 8]
            .iter()
            .flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes())
            .collect();
        let mut copy = copy.as_slice();
        assert_eq!(take(&mut copy, true, PORTS).unwrap().unwrap().bytes, b"abc");
        let checked = take(&mut copy, true, PORTS).unwrap().unwrap();
        assert_eq!(checked.bytes, [9; 64]);
        assert_eq!(checked.record.length, 90);
        assert_eq!(checked.record.fate, CAPTURE_RULE + 5);
        assert_eq!(take(&mut copy, true, PORTS), Ok(None));
    }

    #[test]
    fn positions_that_cannot_be_are_noticed() {
        let most = CAPTURE_RING_BYTES as u64;
        assert_eq!(waiting(8, 8), Ok(0));
        assert_eq!(waiting(8, 8 + most), Ok(CAPTURE_RING_BYTES));
        for head in [0, 9, 16 + most, u64::MAX] {
            assert_eq!(waiting(8, head), Err(Nonsense::Head(head)));
        }
    }

    #[test]
    fn each_number_is_checked() {
        type Change = fn(&mut CaptureRecord);
        let cases: [(Change, Nonsense); 7] = [
            (|r| r.captured = 17, Nonsense::Captured(17)),
            (
                |r| (r.captured, r.length) = (u32::MAX, u32::MAX),
                Nonsense::Captured(u32::MAX),
            ),
            (|r| r.port = 1, Nonsense::Port(1)),
            (|r| r.port = u16::MAX, Nonsense::Port(u16::MAX)),
            (|r| r.direction = 2, Nonsense::Direction(2)),
            (|r| r.fate = 64, Nonsense::Fate(64)),
            (
                |r| r.fate = CAPTURE_RULE - 1,
                Nonsense::Fate(CAPTURE_RULE - 1),
            ),
        ];
        for (change, nonsense) in cases {
            let mut record = record(16);
            change(&mut record);
            let bytes = [record.as_bytes(), &[0; 16]].concat();
            assert_eq!(take(&mut bytes.as_slice(), true, PORTS), Err(nonsense));
        }
    }

    #[test]
    fn a_record_that_goes_on_is_waited_for_unless_nothing_follows() {
        let bytes = [record(100).as_bytes(), &[0; 64]].concat();
        for length in [1, 31, 32, 95] {
            assert_eq!(take(&mut &bytes[..length], false, PORTS), Ok(None));
            let error = take(&mut &bytes[..length], true, PORTS).unwrap_err();
            assert!(matches!(error, Nonsense::Length(_)), "{error}");
        }
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..4096)) {
            let mut copy = bytes.as_slice();
            while let Ok(Some(checked)) = take(&mut copy, true, u64::MAX) {
                prop_assert!(checked.bytes.len() <= checked.record.length as usize);
            }
        }

        #[test]
        fn plausible_records_never_panic(
            records in vec((0..80u32, 0..80u32, 0..4u16, 0..3u16, 0..40u32), 1..9),
            cut in 0..400usize,
        ) {
            let mut bytes = Vec::new();
            for (captured, length, port, direction, fate) in records {
                let record = CaptureRecord { captured, length, port, direction, fate, ..record(0) };
                bytes.extend_from_slice(record.as_bytes());
                bytes.resize(bytes.len() + captured as usize, 1);
            }
            bytes.truncate(cut);
            let mut copy = bytes.as_slice();
            while let Ok(Some(_)) = take(&mut copy, true, 0b0110) {}
        }
    }
}
