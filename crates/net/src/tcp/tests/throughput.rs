//! How fast transfers are over paths of several kinds, kept as a table: whoever changes congestion
//! control or repairs sees what that costs, and where.

use super::simulation::{Network, Simulation};
use crate::tcp::Config;
use core::fmt::Write;
use core::time::Duration;
use std::format;
use std::string::String;

/// The table as it was when it last changed on purpose.
const KEPT: &str = include_str!("throughput.txt");
/// Bytes of a transfer.
const BYTES: u32 = 4 << 20;
/// Where segments are lost, there are so many transfers, each as much shorter.
const TRANSFERS: u32 = 8;
/// Steps after which it hangs.
const STEPS: u32 = 2_000_000;
/// What a receiver takes before its user has read it, in KiB.
const BUFFERS: [u32; 5] = [16, 64, 256, 1024, 4096];
/// Of a thousand segments, so many are lost, on the third of the paths.
const LOSSES: [u32; 3] = [1, 10, 50];
/// Half of a round trip, in microseconds, and a rate in bytes a second.
const PATHS: [(u64, u64); 5] = [
    (20, 1 << 30),
    (500, 1 << 27),
    (10_000, 1 << 24),
    (50_000, 1 << 24),
    (300_000, 1 << 22),
];

/// How long a transfer takes.
fn time(seed: u64, network: Network, bytes: u32, buffer: u32) -> Duration {
    let config = Config {
        receive: buffer << 10,
        receive_max: buffer << 10,
        ..Config::default()
    };
    let mut simulation = Simulation::new(seed, network, [config; 2]);
    let [sender, _] = &mut simulation.ends;
    (sender.to_send, sender.send_buffer) = (bytes, bytes);
    sender.connect();
    let begin = simulation.now;
    for _ in 0..STEPS {
        if simulation.ends[1].read == bytes || !simulation.step() {
            break;
        }
    }
    assert_eq!(simulation.ends[1].read, bytes, "{network:?}");
    simulation.now - begin
}

/// KB a second.
fn rate(network: Network, buffer: u32) -> u64 {
    let transfers = if network.lost > 0 { TRANSFERS } else { 1 };
    let times = (0..transfers).map(|seed| time(seed.into(), network, BYTES / transfers, buffer));
    u64::from(BYTES) * 1000 / times.sum::<Duration>().as_micros().max(1) as u64
}

fn network(lost: u32, (delay, bytes): (u64, u64)) -> Network {
    // A queue for one round trip, and for the initial window.
    let queue = bytes * 2 * delay / 1_000_000;
    Network {
        lost,
        delay: Duration::from_micros(delay),
        rate: bytes,
        queue: queue.max(1 << 17),
        ..Network::GOOD
    }
}

#[test]
fn what_paths_bring_is_what_they_brought() {
    let mut table = String::from(
        "# KB a second over simulated paths, by round trip, loss and receive buffer, of the last\n\
         # commit that changed them on purpose.\n",
    );
    write!(table, "{:<22}", "").unwrap();
    for buffer in BUFFERS {
        write!(table, "{buffer:>6} KiB").unwrap();
    }
    let paths = PATHS.iter().map(|path| (0, *path));
    let losses = LOSSES.iter().map(|lost| (*lost, PATHS[2]));
    for (lost, path) in paths.chain(losses) {
        let name = format!("{} us, {lost} permille", 2 * path.0);
        write!(table, "\n{name:<22}").unwrap();
        for buffer in BUFFERS {
            write!(table, "{:>10}", rate(network(lost, path), buffer)).unwrap();
        }
    }
    table.push('\n');
    assert!(table == KEPT, "tests/throughput.txt is to be:\n{table}");
}
