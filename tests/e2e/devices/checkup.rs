//! `outboard doctor --card`: a card is examined, and its report is what happened. In software
//! everywhere, and through VFIO in the lab.

use super::software_nic;
use crate::harness::build::Images;
use crate::harness::process::{Ended, run};
use crate::harness::temporary::TemporaryFolder;
use libtest_mimic::{Failed, Trial};
use serde_json::Value;
use std::fs;
use std::process::Command;

/// The steps that depend on nobody at the other end of the wire.
const ALONE: [&str; 8] = [
    "start",
    "address",
    "link",
    "loopback",
    "interrupt",
    "restart",
    "send",
    "counts",
];

pub fn trials(images: &'static Images) -> Vec<Trial> {
    vec![
        Trial::test("checkup::a card in software passes", || passes(images)),
        Trial::test("checkup::a card that goes wrong does not", || fails(images)),
    ]
}

/// Examines the card that is named so, with this variant of checkup: `-82599`.
pub fn examine(
    images: &Images,
    card: &str,
    variant: &str,
    more: &[String],
) -> Result<Ended, Failed> {
    let image = images.appliance("checkup", variant);
    let mut command = Command::new(images.program("outboard"));
    command.args(["doctor", "--json", "--listen=1"]);
    command.arg(format!("--card={card}"));
    command.arg(format!("--image={}", image.display()));
    run(command.args(more))
}

/// The verdict of a step, in what the doctor prints as JSON.
pub fn verdict(report: &Value, step: &str) -> String {
    let steps = report["steps"].as_array().into_iter().flatten();
    let found = steps.filter(|found| found["name"] == step);
    let verdicts: Vec<_> = found
        .filter_map(|found| found["verdict"].as_str())
        .collect();
    verdicts.join(" ")
}

/// All steps that need nobody else went well.
pub fn expect_good(ended: &Ended) -> Result<(), Failed> {
    let report: Value = serde_json::from_str(&ended.stdout)
        .map_err(|error| format!("{error}: {} {}", ended.stdout, ended.stderr))?;
    for step in ALONE {
        let verdict = verdict(&report, step);
        if verdict != "ok" {
            return Err(format!("{step} is {verdict:?}: {report:#}").into());
        }
    }
    if report["passed"] != true || ended.status != 0 {
        return Err(format!("it has not passed: {report:#}").into());
    }
    Ok(())
}

fn on_model(images: &Images, wire: &str, misbehave: &str) -> Result<(Ended, String), Failed> {
    let folder = TemporaryFolder::new("checkup")?;
    let at = |name: &str| folder.path.join(name);
    let nic = software_nic::misbehaving(images, &at("nic"), wire, misbehave)?;
    let card = format!("vfio-user:{}", at("nic").display());
    let report = format!("--report={}", at("report").display());
    let ended = examine(images, &card, "-82599", &[report])?;
    let nic = nic.finish()?;
    if misbehave.is_empty() {
        nic.expect_status(0)?.expect_stdout("\"violations\":0}")?;
    }
    Ok((ended, fs::read_to_string(at("report"))?))
}

fn passes(images: &Images) -> Result<(), Failed> {
    let (ended, report) = on_model(images, "loop", "")?;
    expect_good(&ended)?;
    let json: Value = serde_json::from_str(&ended.stdout)?;
    if verdict(&json, "receive") != "ok" {
        return Err(format!("a plug sends back: {json:#}").into());
    }
    for part in [
        "Checkup of the network card vfio-user:",
        "kernel: Linux ",
        "ok  loopback   8.2.3.22.8  of 64 frames of 60 to 1514 bytes, 64 came as they were sent",
        "The card does what its driver expects.",
        "before STATUS (0x8, section 8.2.3.1.2): 0x",
        "up LINKS (0x42a4, section 8.2.3.22.20): 0x",
    ] {
        if !report.contains(part) {
            return Err(format!("{part:?} is not in the report:\n{report}").into());
        }
    }
    Ok(())
}

fn fails(images: &Images) -> Result<(), Failed> {
    let (ended, report) = on_model(images, "loop", "lost-interrupt=1")?;
    let json: Value = serde_json::from_str(&ended.stdout)?;
    ended.expect_status(1)?;
    let found = ["start", "loopback", "interrupt"].map(|step| verdict(&json, step));
    if found != ["ok", "ok", "no"] || !report.contains("The card does not do what its driver") {
        return Err(format!("{found:?}\n{report}").into());
    }
    Ok(())
}
