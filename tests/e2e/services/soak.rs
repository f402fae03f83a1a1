//! `http` under wrk and `iperf3` under the stock program, both at once, for a while.

use super::{PLAIN, SERVICE, serve};
use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::process::start;
use crate::harness::programs;
use libtest_mimic::{Failed, Trial};
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

/// How many seconds it lasts, if somebody says so.
const SECONDS: &str = "OUTBOARD_SOAK_SECONDS";
/// If nobody does.
const SECONDS_DEFAULT: u64 = 5;

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let missing = programs::missing(&["wrk", "iperf3"]);
    let name = String::from("soak::wrk and iperf3 together lose nothing");
    vec![network.trial_unless(missing, name, move || soak(images))]
}

fn soak(images: &Images) -> Result<(), Failed> {
    let seconds = std::env::var(SECONDS).ok();
    let seconds = match seconds.as_deref().map(str::parse) {
        None => SECONDS_DEFAULT,
        Some(seconds) => seconds.map_err(|error| format!("{SECONDS}: {error}"))?,
    };
    let http = serve(images, "spt", &PLAIN, &images.http, &[])?;
    let iperf3 = serve(images, "spt", &PLAIN, &images.iperf3, &["-s"])?;
    let mut wrk = Command::new("wrk");
    wrk.args(["--threads", "1", "--connections", "64"]);
    wrk.arg(format!("--duration={seconds}s"));
    // It counts answers that come later as errors, by default after two seconds. On a machine whose
    // cores others want as well, the image may wait that long for one.
    wrk.arg(format!("--timeout={}s", super::PATIENCE.as_secs()));
    wrk.arg(format!("http://{SERVICE}/100k"));
    let mut client = Command::new("iperf3");
    client.args(["--client", &SERVICE.to_string(), "--json", "--bidir"]);
    client.args(["--parallel", "4", "--time", &seconds.to_string()]);
    let wrk = http.segment.run(|| start(&mut wrk))?;
    let client = iperf3.segment.run(|| start(&mut client))?;
    std::thread::sleep(Duration::from_secs(seconds));
    let (wrk, client) = (wrk.finish()?, client.finish()?);
    let said = &wrk.expect_status(0)?.stdout;
    // wrk names what went wrong, and says nothing of it otherwise.
    if !said.contains("requests in") || said.contains("errors") || said.contains("Non-2xx") {
        return Err(format!("wrk says {said}").into());
    }
    let report: Value = serde_json::from_str(&client.expect_status(0)?.stdout)?;
    for name in ["sum_received", "sum_received_bidir_reverse"] {
        if report["end"][name]["bytes"].as_u64().unwrap_or(0) == 0 {
            return Err(format!("iperf3: nothing in {name}").into());
        }
    }
    http.goes_on()?;
    iperf3.goes_on()
}
