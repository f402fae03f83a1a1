//! What survives a device that misbehaves: Linux's driver, and ours, each with each fault.
//!
//! Both are the receiver and the sender of the same traffic from the same host (`traffic` of
//! `lab/linux/host`), and are asked afterwards whether they still answer.

use super::bench;
use super::guest::Kind;
use super::{Options, Places};
use std::fmt::Write as _;
use std::fs;

/// Faults of `outboard model --misbehave`, each one in so many of its events. The first is none.
/// Those of received frames come many times a second, and again every few seconds: our driver
/// gives a device up that fails more than five times within ten seconds.
/// A wild write needs a device in the driver's thread: `cargo test -p models` has it.
const FAULTS: [&str; 14] = [
    "",
    "length=1000,seed=7",
    "status=1000,seed=7",
    "garbage=1000,seed=7",
    "length=200000,seed=7",
    "status=200000,seed=7",
    "garbage=200000,seed=7",
    "joined=1000,seed=7",
    "early-done=1000,seed=7",
    "skip=1000,seed=7",
    "lost-interrupt=100,seed=7",
    "link-flap=20000,seed=7",
    "transmit-hang=20000,seed=7",
    "gone=300000,seed=7",
];
/// Where our driver answers: `lab/linux/host`.
const OURS: &str = "10.7.0.9";
/// What the guest does: it is sent traffic, and says what its kernel has said of it.
const GUEST: &str = "iperf3 -s > /dev/null 2>&1 &
sleep 1
host traffic 10.7.0.2
dmesg > /tmp/dmesg
note \"$(grep -c 'Reset adapter' /tmp/dmesg) resets\"
grep -E \"$complaints\" /tmp/dmesg | sed \"s/^.*\\] //; s/$driver 0000:[^ ]* *//\" |
    sort | uniq -c | sort -rn | head -2 > /tmp/said
while read -r said; do note \"$said\"; done < /tmp/said
";
/// Counts of our driver's that are told, by their names in `outboard stats`.
const COUNTS: [&str; 5] = [
    "nic_resets",
    "rx_lie",
    "rx_error",
    "nic_given_up",
    "no_buffer",
];

/// One driver with one fault.
struct Outcome {
    /// Mb/s to the driver and from it.
    moved: [f64; 2],
    /// Whether it answers afterwards.
    answers: bool,
    said: String,
}

/// Runs each fault with both drivers, and prints the table; raw data goes to `faults.csv`.
///
/// # Errors
/// One line that says what could not run.
pub fn run(places: &Places, options: &Options) -> Result<i32, String> {
    let mut csv = String::from("fault,driver,in_mbit_s,out_mbit_s,answers,said\n");
    let mut table = format!(
        "{:<27}{:<9}{:>10}{:>10}  {:<8}{}\n",
        "fault", "driver", "in Mb/s", "out Mb/s", "after", "said"
    );
    let wanted = |fault: &&&str| {
        let trial = options.trial.as_deref();
        trial.map_or(true, |trial| fault.contains(trial))
    };
    for fault in FAULTS.iter().filter(wanted) {
        let outcomes = [
            ("Linux", of_linux(places, options, fault)?),
            ("Outboard", of_ours(places, fault)?),
        ];
        for (driver, outcome) in &outcomes {
            let [to, from] = outcome.moved;
            let after = if outcome.answers { "answers" } else { "silent" };
            let name = if fault.is_empty() { "none" } else { fault };
            let line = format!(
                "{:<27}{:<9}{:>10.0}{:>10.0}  {:<8}{}",
                name, driver, to, from, after, outcome.said
            );
            println!("{}", line);
            let _ = writeln!(table, "{}", line);
            let _ = writeln!(
                csv,
                "\"{}\",{},{:.1},{:.1},{},\"{}\"",
                name, driver, to, from, outcome.answers, outcome.said
            );
        }
    }
    let path = places.work.join("faults.csv");
    fs::write(&path, csv).map_err(|error| format!("{}: {}", path.display(), error))?;
    println!("\n{}\nRaw data: {}", table, path.display());
    Ok(0)
}

fn of_linux(places: &Places, options: &Options, fault: &str) -> Result<Outcome, String> {
    let options = Options {
        misbehave: Some(fault.into()),
        command: Some(GUEST.into()),
        ..options.clone()
    };
    forget(places);
    let log = places.work.join("model.log");
    let session = bench::session(places, &options, Kind::Nic, &[], &log)?;
    let mut said = session.notes;
    if let Err(why) = session.ended {
        said.push(why);
    }
    Ok(outcome(places, &said))
}

fn of_ours(places: &Places, fault: &str) -> Result<Outcome, String> {
    forget(places);
    let file = |name: &str| fs::read_to_string(places.work.join(name)).unwrap_or_default();
    std::env::set_var("MISBEHAVE", fault);
    let started = bench::host(places, &["alone", "iperf3", "-s"]);
    std::env::remove_var("MISBEHAVE");
    if started.is_ok() {
        bench::host(places, &["traffic", OURS])?;
    }
    bench::host(places, &["no-alone"])?;
    let mut said = counts(&file("ours-stats.log"));
    if started.is_err() {
        said.push("the image did not come up".into());
    }
    let printed = file("ours-image.log");
    said.extend(
        printed
            .lines()
            .rev()
            .find(|line| is_end(line))
            .map(String::from),
    );
    Ok(outcome(places, &said))
}

/// Whether a line of the image's says why its device is of no use any more.
fn is_end(line: &str) -> bool {
    line.contains("is given up") || line.contains("has ended") || line.contains("panicked")
}

/// The counts of [`COUNTS`] in what `outboard stats` prints that are not zero.
fn counts(printed: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in printed.lines() {
        let mut words = line.split_whitespace();
        while let Some(word) = words.next() {
            if !COUNTS.contains(&word) {
                continue;
            }
            match words.next() {
                Some(count) if count != "0" => found.push(format!("{} {}", word, count)),
                _ => {}
            }
        }
    }
    found
}

/// What was measured before is not taken for this.
fn forget(places: &Places) {
    let _ = fs::remove_file(places.work.join("traffic"));
}

fn outcome(places: &Places, said: &[String]) -> Outcome {
    let text = fs::read_to_string(places.work.join("traffic")).unwrap_or_default();
    let (moved, answers) = measured(&text);
    Outcome {
        moved,
        answers,
        said: said.join("; ").replace('"', "'"),
    }
}

/// What `traffic` of `lab/linux/host` wrote.
fn measured(text: &str) -> ([f64; 2], bool) {
    let mut lines = text.lines();
    let mut megabits = || {
        let bits: f64 = lines
            .next()
            .and_then(|line| line.parse().ok())
            .unwrap_or(0.0);
        bits / 1e6
    };
    let moved = [megabits(), megabits()];
    (moved, lines.next() == Some("answers"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_is_read() {
        assert_eq!(measured("1e9\n2.5e6\nanswers\n"), ([1000.0, 2.5], true));
        assert_eq!(measured("0\n0\nsilent\n"), ([0.0, 0.0], false));
        assert_eq!(measured(""), ([0.0, 0.0], false));
    }
}
