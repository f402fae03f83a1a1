//! Questions of the host about elements of sets that rules change.

use super::*;
use abi::elements::{CHANGES_MAX, Change, Record, set_number};
use abi::inquiry::{Answer, Subject};
use zerocopy::IntoBytes;

const RULES: &str = "table bridge f {
    set blocked { type ipv4_addr; size 4; flags dynamic, timeout; timeout 1h; }
    chain c {
        type filter hook forward priority 0; policy accept;
        ip saddr @blocked drop
    }
}
";

fn ask(bench: &mut Bench, number: u64, subject: Subject, from: u64) -> (Answer, Vec<Record>) {
    bench.scene.ask(number, subject, from);
    bench.filter.refresh();
    let (answer, records) = bench.scene.answer::<Record>();
    assert_eq!((answer.number, answer.subject), (number, subject as u64));
    (answer, records)
}

fn passes(bench: &mut Bench) -> bool {
    let bytes = udp();
    let mut frame = bench.pool.alloc(bytes.len()).unwrap();
    frame.bytes_mut().copy_from_slice(&bytes);
    bench.filter.accepts(&frame, bench.path)
}

/// The source of the packet.
fn source() -> u32 {
    u32::from_be_bytes(*udp()[26..].first_chunk().unwrap())
}

fn change(name: &str, address: u32, timeout: u64) -> Change {
    let mut change = Change {
        set: set_number(name),
        timeout,
        ..Change::default()
    };
    change.key[0] = address;
    change
}

#[test]
fn who_is_added_by_hand_is_dropped_until_deleted() {
    let mut bench = bench(setup().start(), RULES);
    assert!(passes(&mut bench));
    let changes = [
        change("bridge f blocked", source(), 5000),
        change("bridge f others", source(), 0),
        change("bridge f blocked", 7, 0),
    ];
    bench.scene.details(changes.as_bytes());
    let (answer, _) = ask(&mut bench, 1, Subject::ElementsAdd, 3);
    assert_eq!(answer.ended, 2, "there is no other set");
    assert!(!passes(&mut bench));
    let (answer, mut records) = ask(&mut bench, 2, Subject::Elements, 0);
    records.sort_unstable_by_key(|record| record.key[0]);
    let seen = records.iter().map(|record| (record.key[0], record.timeout));
    assert_eq!(seen.collect::<Vec<_>>(), [(source(), 5000), (7, 3_600_000)]);
    assert_eq!(answer.next, 0);
    bench.scene.details(changes.as_bytes());
    let (answer, _) = ask(&mut bench, 3, Subject::ElementsDelete, 1);
    assert_eq!(answer.ended, 1);
    assert!(passes(&mut bench));
    let (_, records) = ask(&mut bench, 4, Subject::Elements, 0);
    assert_eq!(records.len(), 1);
}

#[test]
fn no_change_is_too_much() {
    let mut bench = bench(setup().start(), RULES);
    bench
        .scene
        .details(&[0xff; CHANGES_MAX * size_of::<Change>()]);
    let (answer, _) = ask(&mut bench, 1, Subject::ElementsAdd, u64::MAX);
    assert_eq!(answer.ended, 0);
    let all: Vec<_> = (0..CHANGES_MAX as u32)
        .map(|address| change("bridge f blocked", address, u64::MAX))
        .collect();
    bench.scene.details(all.as_bytes());
    let (answer, _) = ask(&mut bench, 2, Subject::ElementsAdd, u64::MAX);
    assert_eq!(answer.ended, 4, "the set has no more room");
    for (number, from) in [(3, u64::MAX), (4, 1 << 33), (5, u64::from(u32::MAX))] {
        let (answer, records) = ask(&mut bench, number, Subject::Elements, from);
        assert_eq!((records.len(), answer.next), (0, 0), "{from}");
    }
}
