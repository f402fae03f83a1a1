//! Rules at work over a host that does what a test says.

mod elements;
mod flows;
mod kept;

use super::work::{LOG_BURST, LOG_INTERVAL};
use super::*;
use abi::capture::Fate;
use abi::manifest::Device;
use abi::share::{COUNTERS_PER_PORT, PORT_APPLIANCE, RULES_BYTES_MAX, RulesRefused};
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use device::Netif;
use nf::Way;
use ports::puppet::{Scene, Setup};

/// Drops everything: its only rule is the policy.
const DROP: &str = "table bridge f {
    chain c {
        type filter hook forward priority 0; policy drop;
    }
}
";
/// Accepts everything.
const ACCEPT: &str = "table bridge f {
    chain c {
        type filter hook forward priority 0; policy accept;
    }
}
";
/// Logs and drops UDP, and accepts the rest.
const LOGGED: &str = "table bridge f {
    chain c {
        type filter hook forward priority 0; policy accept;
        ip protocol udp log prefix \"udp: \" drop
    }
}
";

fn setup() -> Setup {
    let device = |last| Device::Net {
        mac: [2, 0, 0, 0, 0, last],
        mtu: 1500,
    };
    Setup {
        devices: vec![("private", device(1), 0), ("public", device(2), 0)],
        rules: true,
        ..Setup::default()
    }
}

/// An Ethernet frame with a UDP packet of 28 bytes.
fn udp() -> [u8; 42] {
    let mut bytes = [0; 42];
    bytes[12] = 8;
    bytes[14] = 0x45;
    bytes[17] = 28;
    bytes[23] = 17;
    bytes[24..26].copy_from_slice(&[0xba, 0xd2]);
    bytes[39] = 8;
    bytes
}

struct Bench {
    private: alloc::boxed::Box<dyn Netif>,
    scene: Scene,
    filter: Filter,
    path: Path,
    pool: device::Pool,
}

fn bench(scene: Scene, built_in: &str) -> Bench {
    let filter = Filter::start(scene.runtime, built_in, || Some([1; 32])).unwrap();
    let [private, public] = ["private", "public"].map(|n| scene.runtime.network(n).unwrap());
    Bench {
        path: filter.path(&*private, &*public),
        private,
        scene,
        filter,
        pool: device::Pool::new(vec![0; 4 * 256].leak(), 256),
    }
}

impl Bench {
    /// Whether a UDP packet of 28 bytes passes.
    fn udp_passes(&mut self) -> bool {
        let mut frame = self.pool.alloc(42).unwrap();
        frame.bytes_mut().copy_from_slice(&udp());
        self.filter.accepts(&frame, self.path)
    }

    fn error(scene: &Scene, built_in: &str) -> alloc::string::String {
        Filter::start(scene.runtime, built_in, || Some([1; 32]))
            .err()
            .unwrap()
            .to_string()
    }
}

#[test]
fn rules_of_the_host_come_first_then_the_command_line_then_the_image() {
    let mut built_in = bench(setup().start(), DROP);
    assert!(!built_in.udp_passes());
    let with_line = || Setup {
        command_line: ACCEPT,
        ..setup()
    };
    let mut line = bench(with_line().start(), DROP);
    assert!(line.udp_passes());
    assert_eq!(line.scene.status().generation, 0);
    let scene = with_line().start();
    scene.offer(1, 1, DROP);
    let mut host = bench(scene, ACCEPT);
    assert!(!host.udp_passes());
    let status = host.scene.status();
    assert_eq!((status.generation, status.slot), (1, 1));
}

#[test]
fn an_image_does_not_start_with_rules_that_are_none() {
    let scene = setup().start();
    assert!(Bench::error(&scene, "table").contains("built-in rules"));
    let line = Setup {
        command_line: "nonsense",
        ..setup()
    };
    assert!(Bench::error(&line.start(), DROP).contains("command line"));
    scene.offer(1, 0, "nonsense");
    assert!(Bench::error(&scene, DROP).contains("--rules"));
    let status = scene.status();
    let refused = (status.refused, status.reason);
    assert_eq!(refused, (1, RulesRefused::Invalid as u64));
    scene.offer_bytes(2, 0, &[0xff; 8], 8);
    assert!(Bench::error(&scene, DROP).contains("no text in UTF-8"));
    let poor = Setup {
        has_room: |_| false,
        ..setup()
    };
    assert!(Bench::error(&poor.start(), DROP).contains("do not fit into memory"));
}

#[test]
fn new_rules_take_the_place_of_the_old_ones_between_batches() {
    let mut bench = bench(setup().start(), DROP);
    bench.scene.offer(1, 0, ACCEPT);
    assert!(!bench.udp_passes());
    bench.filter.refresh();
    assert!(bench.udp_passes());
    bench.scene.offer(2, 1, DROP);
    bench.filter.refresh();
    assert!(!bench.udp_passes());
    assert_eq!(bench.scene.status().generation, 2);
}

#[test]
fn what_is_offered_and_no_good_is_refused_and_the_rules_stay() {
    let mut bench = bench(setup().start(), ACCEPT);
    let offers: [(u64, &[u8], RulesRefused); 4] = [
        (0, b"table nonsense", RulesRefused::Invalid),
        (1, &[0xff; 9], RulesRefused::Invalid),
        (2, b"", RulesRefused::Invalid),
        (u64::MAX, b"", RulesRefused::Invalid),
    ];
    for ((slot, text, reason), generation) in offers.into_iter().zip(1..) {
        match slot {
            0 | 1 => bench
                .scene
                .offer_bytes(generation, slot, text, text.len() as u64),
            // No such slot: there is no text to be written.
            _ => bench.scene.offer_slot(generation, slot, 0),
        }
        bench.filter.refresh();
        let status = bench.scene.status();
        assert_eq!((status.refused, status.reason), (generation, reason as u64));
        assert!(bench.udp_passes());
    }
    // While the host writes, the text has no length: nothing is accepted or refused.
    bench
        .scene
        .offer_bytes(9, 0, b"", RULES_BYTES_MAX as u64 + 1);
    bench.filter.refresh();
    assert_eq!(bench.scene.status().refused, 4);
    bench.scene.offer(9, 0, DROP);
    bench.filter.refresh();
    assert!(!bench.udp_passes());
}

#[test]
fn a_text_that_does_not_hold_still_is_refused() {
    let mut bench = bench(setup().start(), ACCEPT);
    let (mut generation, length) = (1, DROP.len() as u64);
    bench.scene.offer(generation, 0, DROP);
    let Bench { filter, scene, .. } = &mut bench;
    let offer = filter.work.feed.offer_while(|| {
        generation += 1;
        scene.offer_slot(generation, 0, length);
    });
    assert!(offer.is_none());
    let status = scene.status();
    let refused = (status.refused, status.reason);
    assert_eq!(refused, (generation, RulesRefused::Torn as u64));
    bench.filter.refresh();
    assert!(bench.udp_passes(), "it was refused once and for all");
    bench.scene.offer(generation + 1, 1, DROP);
    bench.filter.refresh();
    assert!(!bench.udp_passes());
}

#[test]
fn a_text_that_was_changed_once_is_copied_again() {
    let mut bench = bench(setup().start(), ACCEPT);
    bench.scene.offer(1, 0, "nonsense");
    let Bench { filter, scene, .. } = &mut bench;
    let offer = filter.work.feed.offer_while(|| scene.offer(2, 0, DROP));
    assert_eq!(offer.map(|offer| offer.text().len()), Some(DROP.len()));
}

#[test]
fn frames_are_counted_by_the_rule_that_decides() {
    let mut bench = bench(setup().start(), LOGGED);
    (0..3).for_each(|_| assert!(!bench.udp_passes()));
    let counted = [0, 1].map(|rule| bench.scene.rule_counted(0, rule));
    assert_eq!(counted.iter().map(|(frames, _)| frames).sum::<u64>(), 3);
    assert_eq!(counted.iter().map(|(_, bytes)| bytes).sum::<u64>(), 3 * 28);
    bench.scene.offer(1, 0, LOGGED);
    bench.filter.refresh();
    let counted = [0, 1].map(|rule| bench.scene.rule_counted(0, rule));
    assert_eq!(counted, [(0, 0); 2], "counters begin at zero");
}

#[test]
fn what_cannot_be_read_is_counted_by_reason_at_the_port() {
    let mut bench = bench(setup().start(), ACCEPT);
    let mut frame = bench.pool.alloc(20).unwrap();
    frame.bytes_mut().fill(0);
    frame.bytes_mut()[12] = 8;
    assert!(!bench.filter.accepts(&frame, bench.path));
    let of_port = |index: usize| {
        let numbers = PORT_APPLIANCE..COUNTERS_PER_PORT;
        let counters = numbers.map(|n| bench.scene.runtime.counter(index * COUNTERS_PER_PORT + n));
        counters.map(|counter| counter.get()).sum::<u64>()
    };
    assert_eq!([1, 2].map(of_port), [1, 0]);
}

#[test]
fn the_log_is_limited_and_says_how_much_it_left_out() {
    let mut bench = bench(setup().start(), LOGGED);
    let lines = |bench: &Bench| bench.scene.host.text().lines().count() as u64;
    (0..3 * LOG_BURST).for_each(|_| assert!(!bench.udp_passes()));
    assert_eq!(lines(&bench), LOG_BURST);
    let text = bench.scene.host.text();
    let first = text.lines().next().unwrap();
    assert!(
        first.contains("udp: ") && first.contains("private"),
        "{first}"
    );
    bench.scene.host.now.set(LOG_INTERVAL);
    assert!(!bench.udp_passes());
    assert_eq!(
        lines(&bench),
        LOG_BURST,
        "the time is asked for once in a batch"
    );
    bench.filter.refresh();
    assert!(!bench.udp_passes());
    assert_eq!(lines(&bench), LOG_BURST + 1);
    let text = bench.scene.host.text();
    let suppressed = (2 * LOG_BURST + 1).to_string();
    assert!(text.lines().last().unwrap().contains(&suppressed), "{text}");
}

#[test]
fn a_rule_takes_what_its_limit_allows() {
    const LIMITED: &str = "table bridge f {
        chain c {
            type filter hook forward priority 0; policy drop;
            limit rate 10/second burst 2 packets accept
        }
    }
    ";
    let mut bench = bench(setup().start(), LIMITED);
    let mut three = |now| {
        bench.scene.host.now.set(now);
        bench.filter.refresh();
        [(); 3].map(|()| bench.udp_passes())
    };
    assert_eq!(three(0), [true, true, false]);
    assert_eq!(three(100_000_000), [true, false, false]);
    assert_eq!(three(900_000_000), [true, true, false]);
}

/// The rule counts, and a quota and a counter that have names.
const NAMED: &str = "table bridge f {
    counter each { }
    quota few { over 60 bytes; }
    chain c {
        type filter hook forward priority 0; policy accept;
        counter name each quota name few drop
    }
}
";

#[test]
fn what_has_a_name_goes_on_with_other_rules() {
    let mut bench = bench(setup().start(), NAMED);
    assert!(bench.udp_passes() && bench.udp_passes() && !bench.udp_passes());
    let counted = |bench: &Bench, slot| [0, 1, 2, 3].map(|at| bench.scene.rule_counted(slot, at));
    let named = (3, 84);
    assert_eq!(counted(&bench, 0), [(1, 28), (2, 56), named, named]);
    // The quota allows more; the counter stands behind another rule.
    let more = NAMED
        .replace("60", "120")
        .replace("policy", "counter; policy");
    bench.scene.offer(1, 1, &more);
    bench.filter.refresh();
    let zero = (0, 0);
    let found = [0, 1, 2, 3, 4].map(|at| bench.scene.rule_counted(1, at));
    assert_eq!(found, [zero, zero, zero, named, named]);
    assert!(bench.udp_passes() && !bench.udp_passes());
    // Another name is another object.
    bench.scene.offer(2, 0, &more.replace("few", "some"));
    bench.filter.refresh();
    assert_eq!(bench.scene.rule_counted(0, 3), (5, 140));
    assert_eq!(bench.scene.rule_counted(0, 4), zero);
    assert!(bench.udp_passes());
}

/// Accepts what a UDP packet begins, and nothing else.
const STATEFUL: &str = "table bridge f {
    chain c {
        type filter hook forward priority 0; policy drop;
        ct state established accept
        iifname private ct state new accept
    }
}
";

#[test]
fn an_answer_passes_once_somebody_asked() {
    let mut bench = bench(setup().start(), STATEFUL);
    let [private, public] = ["private", "public"].map(|name| {
        let ports = &bench.filter.work.ports;
        ports.iter().position(|port| *port == name).unwrap() as u8
    });
    let back = Path {
        way: Way {
            from: public,
            to: private,
        },
        index: 2,
    };
    let answers = |bench: &mut Bench| {
        let mut frame = bench.pool.alloc(42).unwrap();
        frame.bytes_mut().copy_from_slice(&udp());
        bench.filter.accepts(&frame, back)
    };
    assert!(!answers(&mut bench));
    assert!(bench.udp_passes());
    // All addresses and ports are zero: the answer is like the question.
    assert!(answers(&mut bench));
    bench.filter.refresh();
    bench.scene.host.now.set(1 << 30);
    bench.filter.refresh();
    let counter = |number| {
        bench
            .scene
            .runtime
            .counter(abi::share::CONNECTION_COUNTERS + number)
    };
    assert!(counter(0).get() > 0);
    let udp = 1 + nf::conntrack::Class::Udp as usize;
    assert_eq!(counter(udp).get(), 1);
    bench.scene.offer(1, 0, ACCEPT);
    bench.filter.refresh();
    let counter = bench.scene.runtime.counter(abi::share::CONNECTION_COUNTERS);
    assert_eq!(counter.get(), 0, "rules without ct track nothing");
}

/// Lets a frame pass if its source is in the set, and puts it there otherwise.
const REMEMBERS: &str = "table bridge f {
    set seen { type ipv4_addr; flags dynamic, timeout; timeout 10s; }
    chain c {
        type filter hook forward priority 0; policy drop;
        ip saddr @seen accept
        add @seen { ip saddr }
    }
}
";

#[test]
fn elements_of_a_set_go_on_under_the_next_rules_for_as_long_as_they_have() {
    let mut bench = bench(setup().start(), REMEMBERS);
    let second = 1_000_000_000;
    let passes = |bench: &mut Bench, now: u64| {
        bench.scene.host.now.set(now * second);
        bench.filter.refresh();
        bench.udp_passes()
    };
    assert_eq!([1, 2].map(|now| passes(&mut bench, now)), [false, true]);
    bench.scene.offer(1, 0, REMEMBERS);
    assert_eq!(
        [3, 10, 11].map(|now| passes(&mut bench, now)),
        [true, true, false]
    );
    let other = REMEMBERS.replace("seen", "other");
    bench.scene.offer(2, 1, &other);
    assert!(!passes(&mut bench, 12));
}

#[test]
fn rules_that_change_sets_need_random_bytes() {
    let scene = setup().start();
    let error = Filter::start(scene.runtime, REMEMBERS, || None)
        .err()
        .unwrap();
    assert!(error.to_string().contains("random bytes"));
}

#[test]
fn rules_with_ct_need_random_bytes() {
    let scene = setup().start();
    let error = Filter::start(scene.runtime, STATEFUL, || None)
        .err()
        .unwrap();
    assert!(error.to_string().contains("random bytes"));
}

#[test]
fn what_does_not_pass_is_captured_with_the_reason() {
    let mut bench = bench(setup().start(), LOGGED);
    bench.scene.capture(1 << 1, 64);
    let reads = [
        Ok(udp().to_vec()),
        Ok(vec![0; 60]),
        Ok(udp()[..20].to_vec()),
    ];
    bench.scene.host.reads.borrow_mut().extend(reads);
    let mut batch = device::Batch::new();
    (0..3).for_each(|_| bench.private.receive(&mut batch));
    batch.retain(|frame| bench.filter.accepts(frame, bench.path));
    assert_eq!(batch.len(), 1);
    bench.scene.runtime.wait(Some(ports::Instant::PAST));
    let captures = bench.scene.captures().into_iter();
    let fates: Vec<_> = captures.map(|(record, _)| record.fate).collect();
    let truncated = PORT_APPLIANCE + nf::Malformed::TruncatedIp.index();
    let expected = [Fate::Rule(0), Fate::Passed, Fate::Counter(truncated as u16)];
    assert_eq!(fates, expected.map(Fate::number));
}
