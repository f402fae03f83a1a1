//! Tables that outlive their image, which may end between any two stores, and what is refused.
//!
//! Whoever takes a table up sees the memory as it was when the image ended. So does a test: it
//! looks through `/proc/self/mem`, while the table still has the memory.

use super::super::record::{Flow, Flow4, Flow6, Record, status};
use super::super::store::{Head, Records};
use super::super::tcp::Tcp;
use super::super::tuple::{Address, Tuple};
use super::*;
use core::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;

const FLOWS: usize = 16;
/// Where things lie.
const HEAD4: usize = 64;
const RECORDS4: usize = HEAD4 + size_of::<Head>();
const HEAD6: usize = HEAD4 + Records::<Flow4>::bytes(FLOWS);
const RECORDS6: usize = HEAD6 + size_of::<Head>();
const LEN: usize = HEAD4 + Records::<Flow4>::bytes(FLOWS) + Records::<Flow6>::bytes(FLOWS);
/// Status and queue of what changes.
const STANDING: usize = size_of::<Flow>() - 2;
/// The same in a record of IPv4.
const STANDING4: usize = size_of::<Flow4>() - 2;

/// Memory of a table, as others see it.
#[derive(Clone, Copy, Default)]
struct Place {
    address: usize,
    len: usize,
}

impl Place {
    fn bytes(self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        let memory = File::open("/proc/self/mem").unwrap();
        memory
            .read_exact_at(&mut bytes, self.address as u64)
            .unwrap();
        bytes
    }
}

std::thread_local! {
    /// What lay in a place each time that something was stored.
    static WATCH: RefCell<Option<(Place, Vec<Vec<u8>>)>> = const { RefCell::new(None) };
}

/// Something was stored, and something else is about to be.
pub(in super::super) fn moment() {
    WATCH.with_borrow_mut(|watch| {
        if let Some((place, seen)) = watch {
            let bytes = place.bytes();
            if seen.last() != Some(&bytes) {
                seen.push(bytes);
            }
        }
    });
}

/// What `work` leaves in a place whenever the image ends: at its beginning, between stores, and at
/// its end.
fn watched(place: Place, work: impl FnOnce()) -> Vec<Vec<u8>> {
    WATCH.set(Some((place, vec![place.bytes()])));
    work();
    moment();
    WATCH.take().unwrap().1
}

/// Memory that begins with these bytes.
fn memory(bytes: &[u8]) -> (&'static mut [u8], Place) {
    let memory: &'static mut [u64] = vec![0; LEN / 8].leak();
    let memory = memory.as_mut_bytes();
    memory[..bytes.len()].copy_from_slice(bytes);
    let address = memory.as_ptr().addr();
    let len = memory.len();
    (memory, Place { address, len })
}

/// A table over memory that begins with these bytes, and what it took up.
fn open(bytes: &[u8], now: u64) -> (Conntrack, Place, TakenUp) {
    let (memory, place) = memory(bytes);
    // Another key each time.
    let key = [place.address as u8 ^ (place.address >> 12) as u8; 16];
    let (table, taken) = Conntrack::take_up(memory, &key, now).unwrap();
    table.table4.check();
    table.table6.check();
    (table, place, taken)
}

fn flows_of<A: Address>(flows: &Flows<A>) -> Vec<(Tuple<A>, Flow)> {
    let all = (0..flows.records.used()).map(|number| flows.get(number));
    let confirmed = all.filter(|flow| flow.has(status::CONFIRMED));
    confirmed.map(|flow| (flow.name(), **flow)).collect()
}

/// All flows of a table.
fn contents(table: &Conntrack) -> Vec<(std::string::String, Flow)> {
    let v4 = flows_of(&table.table4).into_iter();
    let v4 = v4.map(|(tuple, flow)| (std::format!("{tuple:?}"), flow));
    let v6 = flows_of(&table.table6).into_iter();
    let mut all: Vec<_> = v4
        .chain(v6.map(|(tuple, flow)| (std::format!("{tuple:?}"), flow)))
        .collect();
    all.sort_by(|one, other| one.0.cmp(&other.0));
    all
}

/// A bench over memory that begins with these bytes.
fn bench(bytes: &[u8]) -> (Bench, Place, TakenUp) {
    let now = 1000 * SECOND;
    let (table, place, taken) = open(bytes, now);
    (Bench { table, now }, place, taken)
}

/// A table with connections of each kind.
fn valid() -> Vec<u8> {
    let (mut bench, place, taken) = bench(&[]);
    assert_eq!(taken, TakenUp::default());
    bench.open(1);
    bench.state(&seg(1, false, ACK, 1001, 5001, 500));
    bench.state(&seg(2, false, SYN, 1, 0, 0));
    bench.state(&udp(7, 53, false));
    bench.state(&udp(7, 53, true));
    bench.state(&ip(A, B, 1, 0, &[8, 0, 0, 0, 0, 5, 0, 1]));
    bench.state(&ip(A, B, 47, 0, &[0; 8]));
    bench.state(&ip6([1; 16], [2; 16], 17, &udp_header(5, 6, 0)));
    assert_eq!(bench.flows(), 6);
    place.bytes()
}

#[test]
fn connections_go_on() {
    let bytes = valid();
    let (mut bench, _, taken) = bench(&bytes);
    let expected = TakenUp {
        flows: 6,
        refused: None,
    };
    assert_eq!(taken, expected);
    assert_eq!(bench.table.counts().begun, 6);
    assert_eq!(bench.table.count(Class::Unacknowledged), 1);
    let states = [
        (seg(1, true, ACK, 5001, 1501, 0), State::Established),
        (seg(1, true, ACK, 5001, 21_501, 0), State::Invalid),
        (seg(1, false, ACK, 51_501, 5001, 10), State::Invalid),
        (seg(2, true, SYN | ACK, 9, 2, 0), State::Established),
        (udp(7, 53, true), State::Established),
        (
            ip(B, A, 1, 0, &[0, 0, 0, 0, 0, 5, 0, 1]),
            State::Established,
        ),
        (ip(B, A, 47, 0, &[0; 8]), State::Established),
        (
            ip6([2; 16], [1; 16], 17, &udp_header(6, 5, 0)),
            State::Established,
        ),
    ];
    for (number, (frame, state)) in states.into_iter().enumerate() {
        assert_eq!(bench.state(&frame), state, "{number}");
    }
    assert_eq!(bench.flows(), 6);
    bench.table.table4.check();
}

/// What comes next: what it is, of which connection, in which direction, and whether rules accept
/// it.
#[derive(Clone, Copy, Debug)]
struct Step {
    kind: u8,
    port: u16,
    reply: bool,
    accepted: bool,
}

/// The next number of each side, by connection.
type Numbers = [[u32; 2]; 4];

fn step() -> impl Strategy<Value = Step> {
    let parts = (0..16u8, 1..4u16, any::<bool>(), 0..8u8);
    parts.prop_map(|(kind, port, reply, accepted)| Step {
        kind,
        port,
        reply,
        accepted: accepted != 0,
    })
}

impl Step {
    fn frame(self, numbers: &mut Numbers) -> Vec<u8> {
        let Self {
            kind, port, reply, ..
        } = self;
        let side = usize::from(reply);
        let ours = &mut numbers[usize::from(port)];
        let mut segment = |flags, data: usize| {
            let (seq, ack) = (ours[side], ours[1 - side]);
            let counted = u32::from(flags & (SYN | FIN) != 0);
            ours[side] = seq.wrapping_add(data as u32 + counted);
            let ack = if flags & ACK == 0 { 0 } else { ack };
            seg(port, reply, flags, seq, ack, data)
        };
        match kind {
            0 | 1 => segment(SYN, 0),
            2 | 3 => segment(SYN | ACK, 0),
            4..=8 => segment(ACK, usize::from(kind - 4) * 100),
            9 => segment(FIN | ACK, 0),
            10 => segment(RST, 0),
            11 => udp(port, 53, reply),
            12 if reply => ip(B, A, 1, 0, &[0, 0, 0, 0, 0, port as u8, 0, 1]),
            12 => ip(A, B, 1, 0, &[8, 0, 0, 0, 0, port as u8, 0, 1]),
            13 if reply => ip6([2; 16], [1; 16], 17, &udp_header(6, port, 0)),
            13 => ip6([1; 16], [2; 16], 17, &udp_header(port, 6, 0)),
            // Far outside, and the first part of a packet.
            14 => seg(port, reply, ACK, ours[side].wrapping_add(90_000), 0, 10),
            _ => ip(A, B, 6, 0x2000, &segment(ACK, 16)[34..]),
        }
    }
}

/// A table of random numbers.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        self.0 >> 33
    }

    /// Memory as it may be when some of the stores from `old` to `new` were made, in any order: by
    /// words, and by bytes where bytes are stored.
    fn between(&mut self, old: &[u8], new: &[u8]) -> Vec<u8> {
        let mut mixed = old.to_vec();
        for at in (0..old.len()).step_by(4) {
            let bytes = (RECORDS4..HEAD6).contains(&at) && {
                let in_record = (at - RECORDS4) % size_of::<Flow4>();
                in_record == STANDING4 / 4 * 4
            };
            let pieces = if bytes { 4 } else { 1 };
            for piece in 0..pieces {
                let range = at + piece * 4 / pieces..at + (piece + 1) * 4 / pieces;
                if self.next() & 1 == 0 {
                    mixed[range.clone()].copy_from_slice(&new[range]);
                }
            }
        }
        mixed
    }
}

/// Memory between two moments of a step is whole: each flow is what it was before the step or is
/// after it.
fn check_between(
    found: &[(std::string::String, Flow)],
    before: &[(std::string::String, Flow)],
    after: &[(std::string::String, Flow)],
) -> Result<(), TestCaseError> {
    let find = |all: &[(std::string::String, Flow)], name: &str| {
        let found = all.iter().find(|(it, _)| it == name);
        found.map(|(_, flow)| *flow)
    };
    for (name, _) in found.iter().chain(before).chain(after) {
        let [now, old, new] = [found, before, after].map(|all| find(all, name));
        // The packet that begins it anew has ended the one before.
        let anew = now.is_none()
            && new.is_some_and(|new| new.traffic.packets(0) + new.traffic.packets(1) == 1);
        prop_assert!(
            now == old || now == new || anew,
            "{name}: {now:?} is neither {old:?} nor {new:?}"
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_table_outlives_its_image_between_any_two_stores(
        steps in proptest::collection::vec(step(), 1..50),
        first in any::<[[u32; 2]; 4]>(),
        seed in any::<u64>(),
    ) {
        let mut numbers: Numbers = first;
        let mut random = Random(seed);
        // Where nothing was used yet, anything may lie.
        let mut bytes: Vec<_> = (0..LEN).map(|_| random.next() as u8).collect();
        bytes[..HEAD4].fill(0);
        let (mut bench, mut place, taken) = bench(&bytes);
        prop_assert_eq!(taken, TakenUp::default());
        for step in steps {
            let frame = step.frame(&mut numbers);
            let pause = [0, 0, 0, 1, 3, 40, 150][random.next() as usize % 7];
            bench.now += pause * SECOND;
            let verdict = if step.accepted { Verdict::Accept } else { Verdict::Drop };
            let mark = random.next() as u32;
            let seen = watched(place, || {
                bench.table.expire(bench.now);
                let _ = bench.look(&frame, verdict, |connection| {
                    if mark & 3 == 0 {
                        connection.set_mark(mark);
                    }
                });
            });
            bench.table.table4.check();
            bench.table.table6.check();
            let lying = |bytes: &[u8]| {
                let key = [bytes[HEAD4 + 60]; 16];
                let taken = Conntrack::take_up_copy(bytes, &key, bench.now);
                let (table, taken) = taken.unwrap();
                (contents(&table), taken)
            };
            let (before, _) = lying(&seen[0]);
            let (after, _) = lying(&seen[seen.len() - 1]);
            prop_assert_eq!(&after, &contents(&bench.table));
            for pair in seen.windows(2) {
                for _ in 0..3 {
                    let (found, taken) = lying(&random.between(&pair[0], &pair[1]));
                    prop_assert_eq!(taken.refused, None);
                    check_between(&found, &before, &after)?;
                }
            }
            // Now and then it does end, and the next one may end while it takes all of it up.
            if random.next().is_multiple_of(8) {
                let end = &seen[random.next() as usize % seen.len()];
                let (left, _) = lying(end);
                let (memory, its) = memory(end);
                let seen = watched(its, || {
                    let taken = Conntrack::take_up(memory, &KEY, bench.now);
                    bench.table = taken.unwrap().0;
                });
                place = its;
                prop_assert_eq!(&contents(&bench.table), &left);
                for pair in seen.windows(2) {
                    let (found, taken) = lying(&random.between(&pair[0], &pair[1]));
                    prop_assert_eq!(taken.refused, None);
                    prop_assert_eq!(&found, &left);
                }
            }
        }
    }
}

#[test]
fn timeouts_that_rules_gave_are_kept() {
    let mut timeouts = Timeouts::DEFAULT;
    timeouts.set(Class::Udp, 1000);
    let (mut bench, place, _) = bench(&[]);
    for port in [9, 10] {
        let frame = udp(port, 53, false);
        let key = Key::parse(&frame).unwrap();
        let accepted = bench
            .table
            .judge(&key, &frame, Sought::NOTHING, bench.now, |connection| {
                if port == 9 {
                    connection.set_timeouts(17, &timeouts);
                }
                (Verdict::Accept, 0)
            });
        assert_eq!(accepted, Ok((Verdict::Accept, 0)));
    }
    let (mut table, _, taken) = open(&place.bytes(), bench.now);
    assert_eq!((taken.flows, table.count(Class::Udp)), (2, 2));
    bench.now += 500 * SECOND;
    table.expire(bench.now);
    assert_eq!(table.count(Class::Udp), 1);
    table.table4.check();
    // No clock makes it stay for longer than that.
    let (table, _, _) = open(&place.bytes(), 0);
    let mut longest = 0;
    table.list(0, 0, &mut |entry| {
        longest = longest.max(entry.left);
        true
    });
    assert_eq!(longest / 1000, 1000);
}

/// Why nothing of these bytes is taken up. The table is empty, and of use.
fn refused(bytes: &[u8]) -> Option<Unsound> {
    let (mut bench, place, taken) = bench(bytes);
    assert!(taken.refused.is_none() || taken.flows == 0 && bench.flows() == 0);
    if taken.refused.is_some() {
        bench.open(3);
        assert_eq!(bench.table.counts().begun, 1);
        let (_, _, again) = open(&place.bytes(), bench.now);
        assert_eq!((again.flows, again.refused), (1, None));
    }
    taken.refused
}

#[test]
fn what_no_image_can_have_left_is_refused() {
    let valid = valid();
    let with = |changes: &[(usize, u8)]| {
        let mut bytes = valid.clone();
        for (at, byte) in changes {
            bytes[*at] = *byte;
        }
        refused(&bytes)
    };
    assert_eq!(with(&[]), None);
    assert_eq!(with(&[(0, b'x')]), Some(Unsound::Magic));
    assert_eq!(refused(&[0x55; LEN]), Some(Unsound::Magic));
    assert_eq!(with(&[(8, 99)]), Some(Unsound::Version));
    assert_eq!(with(&[(12, 15)]), Some(Unsound::Shape));
    assert_eq!(with(&[(57, 1)]), Some(Unsound::Shape));
    // More records than there are, and one that is changed and was never used.
    assert_eq!(with(&[(HEAD4 + 4, 17)]), Some(Unsound::Table));
    assert_eq!(with(&[(HEAD4, 6)]), Some(Unsound::Table));
    // One that is changed, and was nothing before.
    assert_eq!(with(&[(HEAD4, 1), (HEAD4 + 8 + STANDING, 0)]), None);
    assert_eq!(
        with(&[(HEAD4, 1), (HEAD4 + 8 + STANDING, 0xff)]),
        Some(Unsound::Flow)
    );
    // Status, queue, and what TCP has come to.
    assert_eq!(with(&[(RECORDS4 + STANDING4, 8 | 1)]), Some(Unsound::Flow));
    assert_eq!(with(&[(RECORDS4 + STANDING4, 8)]), Some(Unsound::Flow));
    assert_eq!(with(&[(RECORDS4 + STANDING4 + 1, 15)]), Some(Unsound::Flow));
    // Timeouts that nobody has given.
    let queue = valid[RECORDS4 + STANDING4 + 1];
    let unknown = [(RECORDS4 + STANDING4 + 1, queue | 0x20)];
    assert_eq!(with(&unknown), Some(Unsound::Flow));
    assert_eq!(
        with(&[(RECORDS4 + STANDING4 + 1, Class::Icmp as u8)]),
        Some(Unsound::Flow)
    );
    let window = RECORDS4 + size_of::<Flow4>() - size_of::<Tcp>();
    for (place, byte) in [(32, 64), (33, 64), (34, 15), (34, 0xf0), (35, 10)] {
        assert_eq!(
            with(&[(window + place, byte)]),
            Some(Unsound::Flow),
            "{place}"
        );
    }
    // Another protocol than TCP's, and a VLAN that there is not.
    for protocol in [0, 1, 17, 58] {
        assert_eq!(with(&[(RECORDS4 + 26, protocol)]), Some(Unsound::Flow));
    }
    assert_eq!(with(&[(RECORDS4 + 25, 0x10)]), Some(Unsound::Flow));
    // Of a question, what no one asks; and a port where there are none.
    assert_eq!(with(&[(RECORDS4 + 3 * 120 + 11, 3)]), Some(Unsound::Flow));
    assert_eq!(with(&[(RECORDS4 + 4 * 120 + 8, 3)]), Some(Unsound::Flow));
    // The same of IPv6.
    assert_eq!(with(&[(RECORDS6 + 74, 47)]), Some(Unsound::Flow));
    // An answer that is another's, of a connection that is not translated.
    for place in [12, 16, 20, 22] {
        assert_eq!(with(&[(RECORDS4 + place, 99)]), Some(Unsound::Flow));
    }
}

#[test]
fn two_flows_with_one_tuple_are_refused() {
    let mut bytes = valid();
    let record = size_of::<Flow4>();
    bytes.copy_within(RECORDS4..RECORDS4 + record, RECORDS4 + record);
    assert_eq!(refused(&bytes), Some(Unsound::Twice));
    // As answers.
    let second = RECORDS4 + record;
    bytes[second..second + 24].rotate_left(12);
    assert_eq!(refused(&bytes), Some(Unsound::Twice));
}

/// What leads from flow to flow is made anew, whatever lies there.
#[test]
fn lists_that_loop_lead_nowhere() {
    let mut bytes = valid();
    for number in 0..4 {
        let links = RECORDS4 + number * size_of::<Flow4>() + 28;
        bytes[links..links + 12].copy_from_slice(&[number as u8, 0, 0].repeat(4));
    }
    let (bench, _, taken) = bench(&bytes);
    assert_eq!((taken.flows, taken.refused), (6, None));
    bench.table.table4.check();
}

#[test]
fn memory_that_is_too_small_has_no_table() {
    assert_eq!(Conntrack::flows_in(LEN), FLOWS);
    assert_eq!(Conntrack::flows_in(LEN - 1), FLOWS - 1);
    assert_eq!(Conntrack::flows_in(usize::MAX), FLOWS_MAX);
    let of = |memory: &'static mut [u8]| Conntrack::take_up(memory, &KEY, 0).is_some();
    assert!(!of(&mut []));
    assert!(!of(vec![0; 400].leak()));
    let memory: &'static mut [u64] = vec![0; LEN / 8 + 1].leak();
    assert!(!of(&mut memory.as_mut_bytes()[4..]));
}

#[test]
fn nothing_stays_longer_than_its_timeout_by_another_clock() {
    let bytes = valid();
    // The clock has begun anew.
    let (mut table, _, taken) = open(&bytes, 0);
    assert_eq!(taken.flows, 6);
    let longest = u64::from(Class::Unacknowledged.seconds());
    table.expire((longest - 1) * SECOND);
    assert_eq!(table.count(Class::Unacknowledged), 1);
    for seconds in [longest + 1, 601] {
        table.expire(seconds * SECOND);
    }
    assert_eq!(contents(&table).len(), 0);
    // By the same clock, time goes on.
    let (mut table, _, taken) = open(&bytes, 1031 * SECOND);
    assert_eq!(taken.flows, 6);
    table.expire(1031 * SECOND);
    assert_eq!((table.count(Class::Icmp), table.count(Class::Udp)), (0, 0));
    assert_eq!(table.count(Class::Unacknowledged), 1);
    assert_eq!(table.counts().expired, 3);
}

#[test]
fn what_is_forgotten_is_not_taken_up() {
    let (mut table, place, _) = open(&valid(), 1000 * SECOND);
    table.clear();
    let (table, _, taken) = open(&place.bytes(), 1000 * SECOND);
    assert_eq!((taken, contents(&table).len()), (TakenUp::default(), 0));
    let mut bytes = valid();
    Conntrack::forget(&mut bytes);
    let (_, _, taken) = open(&bytes, 1000 * SECOND);
    assert_eq!(taken, TakenUp::default());
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        places in proptest::collection::vec((0..LEN, any::<u8>()), 0..6),
        heads in proptest::collection::vec((0..RECORDS4 + 240, 0..12_u8), 0..4),
        steps in proptest::collection::vec(step(), 1..20),
    ) {
        let mut bytes = valid();
        for (place, byte) in places.into_iter().chain(heads) {
            bytes[place] = byte;
        }
        let (mut bench, _, taken) = bench(&bytes);
        prop_assert_eq!(contents(&bench.table).len(), taken.flows as usize);
        let mut numbers = Numbers::default();
        for step in steps {
            let frame = step.frame(&mut numbers);
            let _ = bench.look(&frame, Verdict::Accept, |_| ());
            bench.now += SECOND;
            bench.table.expire(bench.now);
        }
        bench.table.table4.check();
        bench.table.table6.check();
    }
}

#[test]
fn what_is_to_be_judged_anew_is_so_with_the_next_image() {
    let (mut bench, place, _) = bench(&[]);
    bench.open(1);
    bench.open(2);
    bench.table.revalidate();
    let next = seg(1, false, ACK, 1001, 5001, 1);
    assert_eq!(bench.state(&next), State::Established);
    let (mut bench, _, taken) = self::bench(&place.bytes());
    assert_eq!(taken.flows, 2);
    let now = bench.now;
    assert!(bench.table.goes_on(&next, now).is_ok(), "it was judged");
    let other = seg(2, false, ACK, 1001, 5001, 1);
    assert!(bench.table.goes_on(&other, now).is_err());
}
