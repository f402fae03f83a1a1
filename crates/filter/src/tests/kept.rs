//! Filters that go on with what the last instance left.

use super::*;
use abi::flows::Record;
use abi::inquiry::Subject;
use abi::state::HEAD_BYTES;
use alloc::string::String;
use core::sync::atomic::{AtomicU64, Ordering};
use ports::state::StateMemory;
use std::fs::File;
use std::os::unix::fs::FileExt;
use zerocopy::IntoBytes;

/// Bytes of a state behind its header.
const BODY: usize = 64 << 10;

/// The memory of a state, as whoever keeps it has it.
struct Memory {
    head: &'static [AtomicU64],
    body: usize,
}

impl Memory {
    /// Memory that begins with this.
    fn new(head: &[u64], bytes: &[u8]) -> (Self, StateMemory) {
        let words = (0..HEAD_BYTES / 8).map(|at| head.get(at).copied().unwrap_or(0));
        let head: &'static [AtomicU64] = words.map(AtomicU64::new).collect::<Vec<_>>().leak();
        let body: &'static mut [[u8; 64]] = vec![[0; 64]; BODY / 64 + 1].leak();
        let body = body.as_flattened_mut();
        let shift = body.as_ptr().align_offset(64);
        let body = &mut body[shift..shift + BODY];
        body[..bytes.len()].copy_from_slice(bytes);
        let memory = Self {
            head,
            body: body.as_ptr().addr(),
        };
        (memory, StateMemory { head, body })
    }

    /// What the next instance finds, if this one ends now.
    fn next(&self) -> (Self, StateMemory) {
        let mut bytes = vec![0; BODY];
        let memory = File::open("/proc/self/mem").unwrap();
        memory.read_exact_at(&mut bytes, self.body as u64).unwrap();
        let head: Vec<_> = self
            .head
            .iter()
            .map(|w| w.load(Ordering::Relaxed))
            .collect();
        Self::new(&head, &bytes)
    }
}

/// An instance over this memory, with rules of the host's.
fn instance((memory, state): (Memory, StateMemory), rules: &str) -> (Bench, Memory, String) {
    let mut setup = setup();
    setup.states.push((STATE, state));
    let scene = setup.start();
    scene.offer(1, 0, rules);
    let bench = bench(scene, DROP);
    let said = bench.filter.said().unwrap_or_default().to_string();
    (bench, memory, said)
}

/// How many frames the rules have counted, and bytes.
fn counted(bench: &Bench) -> [(u64, u64); 3] {
    [0, 1, 2].map(|rule| bench.scene.rule_counted(0, rule))
}

const COUNTED: &str = "table bridge f {
    chain c {
        type filter hook forward priority 0; policy drop;
        ct state established counter accept
        iifname private ct state new counter accept
    }
}
";

#[test]
fn connections_and_counters_go_on() {
    let (mut bench, mut memory, said) = instance(Memory::new(&[], &[]), COUNTED);
    assert_eq!(said, "");
    // All addresses and ports are zero: the second one is like an answer to the first.
    assert!(bench.udp_passes() && bench.udp_passes());
    let mut total = counted(&bench);
    assert_eq!(total, [(1, 28), (1, 28), (0, 0)]);
    for run in 2..5 {
        let (mut bench, next, said) = instance(memory.next(), COUNTED);
        assert_eq!(said, "connections: 1 go on");
        assert_eq!(counted(&bench), total);
        assert!(bench.udp_passes());
        total[0] = (run, 28 * run);
        assert_eq!(counted(&bench), total);
        memory = next;
    }
}

#[test]
fn connections_that_went_on_are_listed_and_can_be_ended_for_good() {
    let (mut bench, memory, _) = instance(Memory::new(&[], &[]), COUNTED);
    assert!(bench.udp_passes() && bench.udp_passes());
    let (mut bench, memory, _) = instance(memory.next(), COUNTED);
    bench.scene.ask(1, Subject::Flows, 0);
    bench.filter.refresh();
    let (_, records) = bench.scene.answer::<Record>();
    assert_eq!((records.len(), records[0].packets), (1, [1, 1]));
    bench.scene.details(records[0].name.as_bytes());
    bench.scene.ask(2, Subject::FlowsEnd, 1);
    bench.filter.refresh();
    assert_eq!(bench.scene.answer::<Record>().0.ended, 1);
    let (_, _, said) = instance(memory.next(), COUNTED);
    assert_eq!(said, "connections: 0 go on");
}

#[test]
fn counters_of_another_text_begin_at_zero() {
    let (mut bench, memory, _) = instance(Memory::new(&[], &[]), COUNTED);
    assert!(bench.udp_passes());
    // Loaded while it runs, even the same one does.
    bench.scene.offer(2, 0, COUNTED);
    bench.filter.refresh();
    assert_eq!(counted(&bench), [(0, 0); 3]);
    assert!(bench.udp_passes());
    let other = COUNTED.replace("private", "\"private\"");
    let (bench, memory, said) = instance(memory.next(), &other);
    assert_eq!(said, "connections: 1 go on");
    assert_eq!(counted(&bench), [(0, 0); 3]);
    let (bench, _, _) = instance(memory.next(), COUNTED);
    assert_eq!(counted(&bench), [(0, 0); 3]);
}

#[test]
fn a_quota_that_has_a_name_outlives_the_instance() {
    const QUOTA: &str = "table bridge f {
        quota few { over 60 bytes; }
        chain c {
            type filter hook forward priority 0; policy accept;
            ct state new,established quota name few drop
        }
    }
    ";
    let (mut bench, memory, _) = instance(Memory::new(&[], &[]), QUOTA);
    assert!(bench.udp_passes() && bench.udp_passes());
    let (mut bench, _, _) = instance(memory.next(), QUOTA);
    assert!(!bench.udp_passes());
    assert_eq!(bench.scene.rule_counted(0, 2), (3, 84));
}

#[test]
fn rules_that_ask_for_no_connections_forget_them() {
    let (mut bench, memory, _) = instance(Memory::new(&[], &[]), COUNTED);
    assert!(bench.udp_passes());
    let (mut bench, memory, said) = instance(memory.next(), ACCEPT);
    assert_eq!(said, "");
    // In the memory of the state as well, once rules ask for some.
    bench.scene.offer(2, 0, COUNTED);
    bench.filter.refresh();
    let begun = 1 + nf::conntrack::Class::ALL.len();
    let counter = abi::share::CONNECTION_COUNTERS + begun;
    assert_eq!(bench.scene.runtime.counter(counter).get(), 0);
    assert!(bench.udp_passes());
    let (mut bench, memory, said) = instance(memory.next(), COUNTED);
    assert_eq!(said, "connections: 1 go on");
    for (generation, rules) in [(2, ACCEPT), (3, COUNTED)] {
        bench.scene.offer(generation, 0, rules);
        bench.filter.refresh();
    }
    let (_, _, said) = instance(memory.next(), COUNTED);
    assert_eq!(said, "connections: 0 go on");
}

#[test]
fn what_is_not_sound_is_refused_and_said() {
    let (mut bench, memory, _) = instance(Memory::new(&[], &[]), COUNTED);
    assert!(bench.udp_passes());
    let (next, state) = memory.next();
    let table = state.body.len() / 8;
    state.body[table] ^= 1;
    let (bench, memory, said) = instance((next, state), COUNTED);
    let expected = "connections: none goes on: what is there is no table of connections";
    assert_eq!(said, expected);
    drop(bench);
    let (next, state) = memory.next();
    // Of another layout.
    for word in next.head {
        word.store(1, Ordering::Relaxed);
    }
    let (bench, _, said) = instance((next, state), COUNTED);
    assert_eq!(
        said,
        "connections: none goes on: no copy of its header is whole"
    );
    assert_eq!(counted(&bench), [(0, 0); 3]);
}

#[test]
fn a_state_that_is_too_small_stops_the_start() {
    let (_, StateMemory { head, body }) = Memory::new(&[], &[]);
    let mut setup = setup();
    let body = &mut body[..256];
    setup.states.push((STATE, StateMemory { head, body }));
    let error = Bench::error(&setup.start(), COUNTED);
    assert_eq!(error, "connections: it has no room for a connection");
}
