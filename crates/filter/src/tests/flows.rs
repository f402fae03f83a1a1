//! Questions of the host about connections.

use super::*;
use abi::flows::{FAMILY_V4, NAMES_MAX, Name, Record};
use abi::inquiry::{Answer, Subject, records_max};
use nf::conntrack::Class;
use zerocopy::IntoBytes;

/// A UDP packet from this port.
fn from(port: u16) -> [u8; 42] {
    let mut bytes = udp();
    bytes[34..36].copy_from_slice(&port.to_be_bytes());
    bytes
}

/// A filter that has seen a question from each of so many ports.
fn asked(flows: u16) -> Bench {
    let mut bench = bench(setup().start(), STATEFUL);
    for port in 1..=flows {
        let mut frame = bench.pool.alloc(42).unwrap();
        frame.bytes_mut().copy_from_slice(&from(port));
        assert!(bench.filter.accepts(&frame, bench.path));
    }
    bench
}

fn ask(bench: &mut Bench, number: u64, subject: Subject, from: u64) -> (Answer, Vec<Record>) {
    bench.scene.ask(number, subject, from);
    bench.filter.refresh();
    let (answer, records) = bench.scene.answer::<Record>();
    assert_eq!((answer.number, answer.subject), (number, subject as u64));
    (answer, records)
}

/// One that asks as well which port a question comes from.
const NARROW: &str = "table bridge f {
    chain c {
        type filter hook forward priority 0; policy drop;
        ct state established accept
        iifname private udp sport < 3 ct state new accept
    }
}
";

#[test]
fn who_reloads_may_end_what_would_not_begin() {
    let mut bench = asked(4);
    bench.scene.offer(1, 1, NARROW);
    bench.filter.refresh();
    assert_eq!(bench.scene.revalidated(), 0);
    let passes = |bench: &mut Bench, port: u16| {
        let mut frame = bench.pool.alloc(42).unwrap();
        frame.bytes_mut().copy_from_slice(&from(port));
        bench.filter.accepts(&frame, bench.path)
    };
    let seen = [1, 4].map(|port| passes(&mut bench, port));
    assert_eq!(seen, [true, false], "nobody answered: they are new");
    bench.scene.revalidate(2);
    bench.scene.offer(2, 0, STATEFUL);
    bench.filter.refresh();
    assert_eq!(bench.scene.revalidated(), 2);
    assert!(passes(&mut bench, 3));
    bench.scene.revalidate(3);
    bench.scene.offer(3, 1, NARROW);
    bench.filter.refresh();
    let seen = [1, 2, 3, 4].map(|port| passes(&mut bench, port));
    assert_eq!(seen, [true, true, false, false]);
    let (_, records) = ask(&mut bench, 1, Subject::Flows, 0);
    assert_eq!(records.len(), 2, "the others are gone");
    // The next one says nothing of it.
    bench.scene.offer(4, 0, NARROW);
    bench.filter.refresh();
    assert_eq!(bench.scene.revalidated(), 3);
}

#[test]
fn each_flow_is_listed_once_however_many_there_are() {
    let flows = 3 * records_max::<Record>() as u16;
    let mut bench = asked(flows);
    let (mut ports, mut from, mut number) = (Vec::new(), 0, 0);
    loop {
        number += 1;
        let (answer, records) = ask(&mut bench, number, Subject::Flows, from);
        assert!(records.len() <= records_max::<Record>());
        for record in records {
            let status = 8;
            assert_eq!((record.class, record.status), (Class::Udp as u8, status));
            assert_eq!((record.packets, record.bytes), ([1, 0], [28, 0]));
            assert_eq!((record.name.family, record.name.protocol), (FAMILY_V4, 17));
            ports.push(record.name.ports[0]);
        }
        if answer.next == 0 {
            break;
        }
        assert!(answer.next > from);
        from = answer.next;
    }
    assert_eq!(ports, (1..=flows).collect::<Vec<_>>());
    assert!(number >= 4, "a part is small");
}

#[test]
fn named_flows_end_and_others_go_on() {
    let mut bench = asked(4);
    let name = |port, protocol| Name {
        ports: [port, 0],
        protocol,
        family: FAMILY_V4,
        ..Name::default()
    };
    // One of another protocol, one of no family, and one that there is not.
    let stranger = Name {
        family: 7,
        ..name(1, 17)
    };
    let names = [name(2, 17), name(3, 6), stranger, name(9, 17), name(4, 17)];
    bench.scene.details(names.as_bytes());
    let (answer, _) = ask(&mut bench, 1, Subject::FlowsEnd, names.len() as u64);
    assert_eq!(answer.ended, 2);
    let (_, left) = ask(&mut bench, 2, Subject::Flows, 0);
    let left: Vec<_> = left.iter().map(|record| record.name.ports[0]).collect();
    assert_eq!(left, [1, 3]);
}

#[test]
fn no_question_is_too_much() {
    let mut bench = asked(1);
    for (number, from) in [(1, u64::MAX), (2, 1 << 33), (3, u64::from(u32::MAX))] {
        let (answer, records) = ask(&mut bench, number, Subject::Flows, from);
        assert!(records.is_empty(), "{from}");
        // Behind the flows of IPv4 there are those of IPv6.
        assert_eq!(answer.next, if from >> 32 == 0 { 1 << 32 } else { 0 });
    }
    bench.scene.details(&[0xff; NAMES_MAX * size_of::<Name>()]);
    let (answer, _) = ask(&mut bench, 4, Subject::FlowsEnd, u64::MAX);
    assert_eq!(answer.ended, 0);
}

#[test]
fn rules_without_connections_have_an_empty_list() {
    let mut bench = bench(setup().start(), ACCEPT);
    let (answer, records) = ask(&mut bench, 1, Subject::Flows, 0);
    assert_eq!((answer.next, records.len()), (0, 0));
}
