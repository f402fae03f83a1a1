//! Flows as they are listed.

use super::*;
use crate::conntrack::entry::LOOKED_AT_MAX;

fn list(table: &Conntrack, now: u64) -> Vec<Entry> {
    let (mut entries, mut from) = (Vec::new(), 0);
    loop {
        let take = &mut |entry: &Entry| {
            entries.push(*entry);
            true
        };
        match table.list(from, now, take) {
            0 => return entries,
            next => {
                assert!(next > from, "a list goes on");
                from = next;
            }
        }
    }
}

#[test]
fn a_flow_is_listed_as_rules_see_it() {
    let mut bench = Bench::new(64);
    bench.open(7);
    bench.state(&udp(5, 53, false));
    let entries = list(&bench.table, bench.now);
    let classes: Vec<_> = entries.iter().map(|entry| entry.class).collect();
    assert_eq!(classes, [Class::Established, Class::Udp]);
    let tcp = entries[0];
    assert_eq!((tcp.name.ports, tcp.reply.ports), ([7, 80], [80, 7]));
    assert_eq!((tcp.name.source, tcp.name.protocol), (A.into(), 6));
    assert_eq!((tcp.reply.source, tcp.packets), (B.into(), [2, 1]));
    let seen = tcp.connection(|it| (it.state(), it.is_reply(), it.mark()));
    assert_eq!(seen, Some((State::Established, false, 0)));
    let state = entries[1].connection(|it| it.state());
    assert_eq!(state, Some(State::New));
    // Data that waits for its acknowledgement is no other state.
    bench.state(&seg(7, false, ACK, 1001, 5001, 500));
    let waiting = list(&bench.table, bench.now)[0];
    assert_eq!(waiting.class, Class::Established);
    assert!(waiting.left < 301_000, "{waiting:?}");
    // 432,000 s, and what rules see of it.
    assert!((432_000_000..432_000_100).contains(&tcp.left), "{tcp:?}");
    let expiration = |it: &Connection<'_>| it.narrow(crate::fields::Slot::CtExpiration);
    let seen = tcp.connection(expiration).expect("it is a flow");
    assert!(seen.abs_diff(tcp.left) <= 68, "{seen}");
}

#[test]
fn one_whose_time_is_up_is_not_listed() {
    let mut bench = Bench::new(8);
    bench.state(&udp(5, 53, false));
    bench.now += 31 * SECOND;
    assert_eq!(list(&bench.table, bench.now), []);
}

#[test]
fn a_part_of_a_list_is_small() {
    let mut bench = Bench::new(4096);
    for port in 1..=600 {
        bench.open(port);
    }
    let mut taken = 0;
    let next = bench.table.list(0, bench.now, &mut |_| {
        taken += 1;
        true
    });
    assert_eq!((taken, next), (LOOKED_AT_MAX, LOOKED_AT_MAX.into()));
    let next = bench.table.list(3, bench.now, &mut |_| false);
    assert_eq!(next, 3, "who has no room asks again");
    assert_eq!(list(&bench.table, bench.now).len(), 600);
}

#[test]
fn a_flow_that_is_to_end_ends_and_no_other() {
    let mut bench = Bench::new(8);
    bench.open(1);
    bench.open(2);
    let [one, two] = list(&bench.table, bench.now)[..] else {
        panic!("there are two");
    };
    assert!(
        !bench.table.end(&one.reply, bench.now),
        "it has another name"
    );
    assert!(bench.table.end(&one.name, bench.now));
    assert!(!bench.table.end(&one.name, bench.now));
    bench.table.table4.check();
    assert_eq!(list(&bench.table, bench.now), [two]);
    // What comes behind is judged as the first packet of something.
    assert_eq!(bench.state(&seg(1, false, ACK, 1001, 5001, 4)), State::New);
}

proptest! {
    #[test]
    fn anything_can_be_seen(
        source: [u8; 16], destination: [u8; 4], mixed: bool, class in 0..13usize,
        status: u8, left: u32, packets: [u64; 2], bytes: [u64; 2],
    ) {
        let source = core::net::IpAddr::from(source);
        let destination = match mixed {
            true => core::net::IpAddr::from(destination),
            false => source,
        };
        let name = Name { source, destination, ports: [1, 2], vlan: 0xffff, zone: 0, protocol: 6 };
        let entry = Entry {
            name, reply: name, class: Class::ALL[class], status, mark: 0, left, packets, bytes,
        };
        let seen = entry.connection(|it| {
            it.narrow(crate::fields::Slot::CtExpiration);
            it.wide(crate::fields::Slot::CtBytes)
        });
        prop_assert_eq!(seen.is_none(), mixed);
    }
}
