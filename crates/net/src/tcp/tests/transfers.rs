//! Whole transfers: each byte comes once and in order, whatever the network does.

use super::simulation::{Network, Simulation};
use crate::tcp::congestion::Algorithm;
use crate::tcp::segment::{Flags, Options};
use crate::tcp::{Config, Limits, Segment, State};
use core::time::Duration;
use fastrand::Rng;
use std::format;

/// Steps after which a transfer hangs.
const STEPS: u32 = 2_000_000;

/// Until both ends are done, in TIME-WAIT or closed.
fn run(simulation: &mut Simulation, what: &str) {
    for _ in 0..STEPS {
        let done = simulation.ends.iter().all(|end| {
            let connection = end.connection.as_ref();
            connection.is_some_and(|c| matches!(c.state(), State::TimeWait | State::Closed))
        });
        if done || !simulation.step() {
            simulation.ends.iter_mut().for_each(|end| end.drain());
            return;
        }
    }
    let connections = simulation.ends.each_ref().map(|end| end.connection.clone());
    panic!("{what} hangs: {connections:#?}");
}

fn random(seed: u64) -> Simulation {
    let mut rng = Rng::with_seed(seed ^ 0xabcd);
    let network = Network {
        lost: *rng.choice(&[0, 0, 1, 10, 50, 200]).unwrap(),
        doubled: *rng.choice(&[0, 0, 10, 100]).unwrap(),
        late: *rng.choice(&[0, 0, 10, 300]).unwrap(),
        jitter: Duration::from_millis(rng.u64(0..60)),
        delay: Duration::from_micros(*rng.choice(&[10, 1000, 10_000, 100_000]).unwrap()),
        rate: *rng.choice(&[0, 1 << 17, 1 << 20, 1 << 24]).unwrap(),
        queue: rng.u64(3000..200_000),
    };
    let config = |rng: &mut Rng| Config {
        receive: *rng
            .choice(&[3000, 20_000, 65_535, 400_000, 2_000_000])
            .unwrap(),
        receive_max: 0,
        algorithm: *rng.choice(&[Algorithm::Reno, Algorithm::Cubic]).unwrap(),
        no_delay: rng.bool(),
        keep_alive: rng.bool().then_some(Duration::from_secs(20)),
        patience: Duration::from_secs(3600),
    };
    let configs = [config(&mut rng), config(&mut rng)];
    let mut simulation = Simulation::new(seed, network, configs);
    for end in &mut simulation.ends {
        end.to_send = *rng.choice(&[0, 1, 1460, 10_000, 100_000]).unwrap();
        end.send_buffer = *rng.choice(&[1000, 30_000, 300_000]).unwrap();
        if rng.u32(..4) == 0 {
            end.pause = Some((rng.u32(500..9000), Duration::from_millis(rng.u64(1..500))));
        }
    }
    simulation
}

/// Runs in a plain `cargo test`.
const RUNS: u64 = 300;

/// A failing run is one number: `OUTBOARD_SEEDS=17..18 cargo test -p net each_byte` repeats it.
pub fn seeds(runs: u64) -> core::ops::Range<u64> {
    let Ok(asked) = std::env::var("OUTBOARD_SEEDS") else {
        return 0..runs;
    };
    let (first, last) = asked.split_once("..").expect("OUTBOARD_SEEDS=FIRST..LAST");
    first.parse().unwrap()..last.parse().unwrap()
}

#[test]
fn each_byte_comes_once_and_in_order() {
    for seed in seeds(RUNS) {
        let mut simulation = random(seed);
        let expected = simulation.ends.each_ref().map(|end| end.to_send);
        match seed % 3 {
            // Both ends open at once, or one does.
            0 => simulation.ends.iter_mut().for_each(|end| end.connect()),
            1 => simulation.ends[0].connect(),
            _ => simulation.open(),
        }
        run(&mut simulation, &format!("seed {seed}"));
        let read = simulation.ends.each_ref().map(|end| end.read);
        let failures = simulation
            .ends
            .each_ref()
            .map(|end| end.connection.as_ref().unwrap().failure());
        assert_eq!(failures, [None, None], "seed {seed}");
        assert_eq!(read, [expected[1], expected[0]], "seed {seed}");
    }
}

/// Either end is dropped at random steps and made again from what is saved of it: it has its bytes,
/// and nothing else.
#[test]
fn a_connection_outlives_its_image() {
    for seed in seeds(RUNS) {
        let mut simulation = random(seed);
        let expected = simulation.ends.each_ref().map(|end| end.to_send);
        simulation.open();
        let mut rng = Rng::with_seed(seed);
        let every = rng.u32(1..40);
        for step in 0..STEPS {
            let done = simulation.ends.iter().all(|end| {
                let connection = end.connection.as_ref();
                connection.is_some_and(|c| matches!(c.state(), State::TimeWait | State::Closed))
            });
            if done || !simulation.step() {
                break;
            }
            // The first steps are not interrupted for ever.
            if step < 2000 && rng.u32(..every) == 0 {
                let now = simulation.now;
                simulation.ends[rng.usize(..2)].restart(now);
            }
        }
        simulation.ends.iter_mut().for_each(|end| end.drain());
        let read = simulation.ends.each_ref().map(|end| end.read);
        assert_eq!(read, [expected[1], expected[0]], "seed {seed}");
    }
}

/// A sender whose numbers wrap several times: half of the number space behind its beginning, it
/// still knows what was acknowledged.
#[test]
fn numbers_wrap_and_nothing_stops() {
    let mut simulation = Simulation::new(7, Network::GOOD, [Config::default(); 2]);
    simulation.open();
    let [end, peer] = &mut simulation.ends;
    let (connection, peer) = (
        end.connection.as_mut().unwrap(),
        peer.connection.as_ref().unwrap(),
    );
    let limits = Limits {
        segment: 1480,
        largest: 65_000,
    };
    let mut now = simulation.now;
    let mut from = connection.unacknowledged();
    let mut acknowledged = 0_u64;
    while acknowledged < 10 << 30 {
        // The last segment of each turn is a small one.
        connection.queue(500_001 - connection.unsent_or_unacknowledged());
        let mut ack = None;
        while let Some(segment) = connection.next(limits, now) {
            connection.sent(&segment, limits, now);
            // All but the last byte arrives.
            ack = Some(segment.end() - 1);
        }
        now = now + Duration::from_millis(1);
        let ack = Segment {
            seq: peer.numbers().0,
            ack: ack.expect("there is room for more"),
            flags: Flags {
                ack: true,
                ..Flags::default()
            },
            window: u16::MAX,
            options: Options {
                timestamps: peer.stamp(now),
                ..Options::default()
            },
            ..Segment::default()
        };
        connection.receive(&ack, now);
        let to = connection.unacknowledged();
        assert_eq!(to, ack.ack);
        acknowledged += u64::from(to - from);
        from = to;
    }
}
