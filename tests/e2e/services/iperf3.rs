//! `iperf3`, measured by the stock program.

use super::{PLAIN, SERVICE, Served, serve};
use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::process::{Ended, run};
use crate::harness::programs;
use libtest_mimic::{Failed, Trial};
use serde_json::Value;
use std::process::Command;

/// What the client is told, and how many streams both ends count then.
const RUNS: [(&str, usize); 6] = [
    ("--bytes 20M", 1),
    ("--bytes 20M --reverse", 1),
    ("--bytes 5M --parallel 8", 8),
    ("--bytes 5M --parallel 8 --reverse", 8),
    ("--bytes 5M --bidir", 2),
    ("--bytes 1M --length 100 --no-delay", 1),
];

type Test = fn(&Images) -> Result<(), Failed>;

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let missing = programs::missing(&["iperf3"]);
    let tests: [(&str, Test); 2] = [
        ("stock clients measure both ways", both_ways),
        ("UDP is refused, and the next test goes on", udp),
    ];
    tests
        .into_iter()
        .map(|(name, test)| {
            let name = format!("iperf3::{name}");
            network.trial_unless(missing, name, move || test(images))
        })
        .collect()
}

fn client(served: &Served, words: &str) -> Result<Ended, Failed> {
    let mut client = Command::new("iperf3");
    client.args(["--client", &SERVICE.to_string(), "--json"]);
    client.args(words.split(' '));
    served.segment.run(|| run(&mut client))
}

/// As many bytes arrived as left, on each stream and in the sum, as both ends count them.
fn both_ways(images: &Images) -> Result<(), Failed> {
    let served = serve(images, "spt", &PLAIN, &images.iperf3, &["-s"])?;
    for (words, streams) in RUNS {
        let ended = client(&served, words)?;
        let report: Value = serde_json::from_str(&ended.expect_status(0)?.stdout)?;
        let end = &report["end"];
        let counted = end["streams"].as_array().map_or(0, Vec::len);
        let sums = [&end["sum_sent"]["bytes"], &end["sum_received"]["bytes"]];
        let [sent, received] = sums.map(|bytes| bytes.as_u64().unwrap_or(0));
        // The client stops counting before all has arrived.
        if counted != streams || received == 0 || received > sent + sent / 2 {
            return Err(
                format!("{words}: {counted} streams, {sent} sent, {received} received").into(),
            );
        }
    }
    served.goes_on()
}

fn udp(images: &Images) -> Result<(), Failed> {
    let served = serve(images, "spt", &PLAIN, &images.iperf3, &["-s"])?;
    client(&served, "--udp --bytes 1M")?;
    served.running.wait_for("the client asks for UDP")?;
    client(&served, "--bytes 1M")?.expect_status(0)?;
    served.goes_on()
}
