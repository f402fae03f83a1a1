//! Segments of open connections, which take fewer steps: what becomes of a table is the same as if
//! each were looked at in full. And what has ended of them is found.

use super::super::flows::SWEPT_MAX;
use super::super::open::FULL;
use super::super::record::Record;
use super::*;

/// A segment near the numbers of a connection.
#[derive(Clone, Copy, Debug)]
struct Near {
    port: u16,
    reply: bool,
    flags: u8,
    /// Beside what is next of its sender, and beside what is next of the other side.
    seq: i32,
    ack: i32,
    window: u16,
    data: usize,
    /// None, a timestamp, a selective acknowledgement, or nonsense.
    options: u8,
    /// Tenths of a second before it.
    tenths: u64,
}

fn near() -> impl Strategy<Value = Near> {
    let usual = prop_oneof![8 => Just(ACK), 2 => Just(ACK | 8), 1 => Just(ACK | 0xc0)];
    let others = proptest::sample::select(vec![SYN, SYN | ACK, FIN | ACK, RST, RST | ACK, 48, 0]);
    let flags = prop_oneof![6 => usual, 1 => others];
    let beside = || prop_oneof![8 => Just(0), 2 => -3000..3000i32, 1 => -80_000..80_000i32];
    let window = prop_oneof![4 => Just(1000u16), 1 => Just(0), 1 => Just(5000)];
    let data = proptest::sample::select(vec![0usize, 0, 1, 500, 1400]);
    let tenths = prop_oneof![8 => Just(0u64), 2 => 1..50u64, 1 => 2900..3100u64];
    let parts = (
        1..3u16,
        any::<bool>(),
        flags,
        beside(),
        beside(),
        window,
        data,
        0..4u8,
        tenths,
    );
    parts.prop_map(
        |(port, reply, flags, seq, ack, window, data, options, tenths)| Near {
            port,
            reply,
            flags,
            seq,
            ack,
            window,
            data,
            options,
            tenths,
        },
    )
}

/// Options of a segment in words.
fn options(kind: u8, ack: u32) -> Vec<u8> {
    match kind {
        0 => vec![],
        1 => vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2],
        2 => {
            let block = [100, 600]
                .map(|more| ack.wrapping_add(more).to_be_bytes())
                .concat();
            [&[1, 1, 5, 10], &block[..]].concat()
        }
        _ => vec![5, 1, 1, 1],
    }
}

/// What each side of a connection sends next.
type Next = [[u32; 2]; 3];

impl Near {
    fn frame(self, next: &mut Next, is_ip6: bool) -> Vec<u8> {
        let side = usize::from(self.reply);
        let numbers = &mut next[usize::from(self.port)];
        let seq = numbers[side].wrapping_add_signed(self.seq);
        let ack = numbers[1 - side].wrapping_add_signed(self.ack);
        if self.seq == 0 && self.flags & (SYN | RST) == 0 {
            numbers[side] = numbers[side].wrapping_add(self.data as u32);
        }
        let ports = if self.reply {
            [80, self.port]
        } else {
            [self.port, 80]
        };
        let options = options(self.options, ack);
        let mut segment = ports.map(u16::to_be_bytes).concat();
        segment.extend([seq, ack].map(u32::to_be_bytes).concat());
        segment.extend([((20 + options.len()) << 2) as u8, self.flags]);
        segment.extend(self.window.to_be_bytes());
        segment.extend([0; 4]);
        segment.extend(options);
        segment.resize(segment.len() + self.data, 0);
        match (is_ip6, self.reply) {
            (false, false) => ip(A, B, 6, 0, &segment),
            (false, true) => ip(B, A, 6, 0, &segment),
            (true, false) => ip6([1; 16], [2; 16], 6, &segment),
            (true, true) => ip6([2; 16], [1; 16], 6, &segment),
        }
    }
}

/// The SYN of either side, which takes selective acknowledgements and scales its windows.
fn opening(port: u16, reply: bool) -> Vec<u8> {
    let flags = if reply { SYN | ACK } else { SYN };
    let ports = if reply { [80, port] } else { [port, 80] };
    let numbers: [u32; 2] = if reply { [5000, 1001] } else { [1000, 0] };
    let mut segment = ports.map(u16::to_be_bytes).concat();
    segment.extend(numbers.map(u32::to_be_bytes).concat());
    segment.extend([0x70, flags, 3, 232, 0, 0, 0, 0, 4, 2, 3, 3, 2, 0, 0, 0]);
    let (from, to) = if reply { (B, A) } else { (A, B) };
    ip(from, to, 6, 0, &segment)
}

/// All that is known of the flows.
fn all<A: Address>(flows: &Flows<A>) -> Vec<std::string::String> {
    let records = (0..flows.records.used()).map(|number| flows.get(number));
    records
        .map(|record| std::format!("{:?} {:?} {:?}", record.name(), record.reply(), **record))
        .collect()
}

proptest! {
    #[test]
    fn fewer_steps_lead_to_the_same(
        segments in proptest::collection::vec((near(), proptest::bool::weighted(0.1)), 1..100)
    ) {
        let mut benches = [Bench::new(8), Bench::new(8), Bench::new(8)];
        for (bench, full) in benches.iter_mut().zip([false, true, false]) {
            FULL.set(full);
            bench.state(&opening(1, false));
            bench.state(&opening(1, true));
            bench.open(2);
        }
        let mut next = [[1001, 5001]; 3];
        let [few, many, fewest] = &mut benches;
        for (segment, is_ip6) in segments {
            let frame = segment.frame(&mut next, is_ip6);
            let mut states = [None; 2];
            for ((bench, full), state) in [(&mut *few, false), (&mut *many, true)]
                .into_iter()
                .zip(&mut states)
            {
                FULL.set(full);
                bench.now += segment.tenths * SECOND / 10;
                bench.table.expire(bench.now);
                *state = bench.look(&frame, Verdict::Accept, |it| it.state()).ok();
                bench.table.table4.check();
                bench.table.table6.check();
            }
            FULL.set(false);
            fewest.now += segment.tenths * SECOND / 10;
            fewest.table.expire(fewest.now);
            let seen = fewest.look_first(&frame, State::Established, |it| it.state()).ok();
            prop_assert_eq!(seen, states[1], "{:?}", segment);
            prop_assert_eq!(all(&fewest.table.table4), all(&many.table.table4), "{:?}", segment);
            prop_assert_eq!(all(&fewest.table.table6), all(&many.table.table6), "{:?}", segment);
            prop_assert_eq!(fewest.table.numbers(), many.table.numbers(), "{:?}", segment);
            prop_assert_eq!(states[0], states[1], "{:?}", segment);
            prop_assert_eq!(all(&few.table.table4), all(&many.table.table4), "{:?}", segment);
            prop_assert_eq!(all(&few.table.table6), all(&many.table.table6), "{:?}", segment);
            prop_assert_eq!(few.table.numbers(), many.table.numbers(), "{:?}", segment);
        }
        FULL.set(false);
    }
}

/// What a frame must be to be looked at before its key is read: one that can be read, and nothing
/// more than that. Each of its bytes is another one in turn.
#[test]
fn what_cannot_be_read_does_not_go_on() {
    let mut bench = Bench::new(8);
    bench.open(1);
    let frame = seg(1, false, ACK, 1001, 5001, 100);
    for (at, other) in (0..54).flat_map(|at| [1, 2, 4, 16, 64, 128].map(|bit| (at, bit))) {
        let mut frame = frame.clone();
        frame[at] ^= other;
        let goes_on = bench.table.goes_on(&frame, bench.now).is_ok();
        assert!(!goes_on || Key::parse(&frame).is_ok(), "byte {at}");
    }
    for length in 0..frame.len() {
        assert!(bench.table.goes_on(&frame[..length], bench.now).is_err());
    }
    assert!(bench.table.goes_on(&frame, bench.now).is_ok());
}

#[test]
fn most_segments_of_an_open_connection_take_fewer_steps() {
    let mut bench = Bench::new(8);
    bench.open(1);
    let begun = super::super::open::TAKEN.get();
    for turn in 0..10 {
        bench.state(&seg(1, false, ACK, 1001 + 100 * turn, 5001, 100));
        bench.state(&seg(1, true, ACK, 5001, 1101 + 100 * turn, 0));
    }
    // The ACK of the handshake has assured it.
    assert_eq!(super::super::open::TAKEN.get() - begun, 20);
}

/// Data and its ACK, whichever side sends: each comes in order. What does not come in order, comes
/// again, or waits for room takes more steps.
#[test]
fn what_comes_in_order_takes_the_fewest_steps() {
    let mut bench = Bench::new(8);
    bench.open(1);
    bench.state(&seg(1, false, ACK, 1001, 5001, 0));
    let mut goes = |frame: &[u8]| {
        let begun = super::super::open::STRAIGHT.get();
        assert!(bench.table.goes_on(frame, bench.now).is_ok());
        super::super::open::STRAIGHT.get() - begun == 1
    };
    for turn in 0..10 {
        assert!(goes(&seg(
            1,
            false,
            ACK,
            1001 + 100 * turn,
            5001 + turn,
            100
        )));
        assert!(goes(&seg(1, true, ACK, 5001 + turn, 1101 + 100 * turn, 1)));
    }
    assert!(!goes(&seg(1, true, ACK, 5010, 2001, 1)), "once more");
    assert!(
        !goes(&seg(1, false, ACK, 2101, 5011, 100)),
        "one before it is missing"
    );
    assert!(goes(&seg(1, true, ACK, 5011, 2001, 0)));
    assert!(
        !goes(&seg(1, true, ACK, 5011, 2001, 0)),
        "it asks for that one"
    );
}

#[test]
fn what_stays_and_has_ended_is_found_by_and_by() {
    let connections = SWEPT_MAX as u16 + 100;
    let mut bench = Bench::new(4 * usize::from(connections));
    for port in 0..connections {
        bench.open(port);
        bench.state(&seg(port, false, ACK, 1001, 5001, 0));
    }
    assert_eq!(bench.table.count(Class::Established), connections.into());
    bench.now += SECOND * u64::from(Class::Established.seconds() + 1);
    // Its time is up, whether or not it was found.
    assert_eq!(bench.state(&seg(7, true, ACK, 5001, 1001, 0)), State::New);
    let mut turns = 0;
    while bench.table.count(Class::Established) > 0 {
        let before = bench.flows();
        bench.table.expire(bench.now);
        assert!(
            before - bench.flows() <= EXPIRED_MAX as u32,
            "it is bounded"
        );
        bench.now += 1 << 26;
        turns += 1;
    }
    assert!(
        turns <= 2 + usize::from(connections) / EXPIRED_MAX,
        "{turns}"
    );
    bench.table.table4.check();
}
