//! The report: what was tried and seen, and four bars.

use super::checks::Check;
use super::observed::Decider;
use super::speed::Figures;
use serde_json::json;
use std::fmt::Write;
use std::process::ExitStatus;
use testbed::contender::Contender;
use testbed::stats::number;
use testbed::table;

/// Columns of the longest bar.
const BAR_COLUMNS: f64 = 40.0;

/// One table: what was tried, what was expected and seen, and who decided.
pub fn checks(checks: &[Check]) -> String {
    let rows: Vec<Vec<String>> = checks.iter().flat_map(rows).collect();
    let header = ["tried", "expected", "seen", "", "decided (frames)"];
    format!("\n{}\n", table::render(&header, &rows))
}

/// A row, and one more for each rule but the first that has decided.
fn rows(check: &Check) -> Vec<Vec<String>> {
    let result = if check.held { "ok" } else { "FAILED" };
    let mut decided = check.decided.iter().map(Decider::to_string);
    let first = decided
        .next()
        .unwrap_or_else(|| "nobody: nothing reached the rules".into());
    let row = [&*check.tried, check.expected(), &check.seen, result, &first];
    let mut rows = vec![row.map(str::to_owned).to_vec()];
    rows.extend(decided.map(|next| ["", "", "", "", &next].map(str::to_owned).to_vec()));
    rows
}

/// A bar for each contender, and what the comparison says.
pub fn speed(figures: &[Figures]) -> String {
    let longest = figures
        .iter()
        .map(|f| f.gigabits_per_second.median)
        .fold(0.0, f64::max);
    let mut text =
        String::from("\nTCP, private to public, median of the rounds (smallest..largest):\n");
    for figure in figures {
        let rate = &figure.gigabits_per_second;
        // At least one column: every contender has carried something.
        let columns = (rate.median / longest * BAR_COLUMNS).ceil() as usize;
        let cpu = match &figure.cpu_seconds_per_gigabyte {
            Some(cpu) => format!("{} CPU s/GB", number(cpu.median)),
            None => "CPU time is the senders'".to_owned(),
        };
        let _ = writeln!(
            text,
            "  {:16} {:40}  {:>19} Gb/s  {cpu}",
            figure.contender,
            "#".repeat(columns),
            rate.to_string(),
        );
    }
    text.push_str(&comparison(figures));
    text
}

/// Where the gain comes from; nothing if a contender is missing.
fn comparison(figures: &[Figures]) -> String {
    let median = |contender: Contender| {
        let figure = figures
            .iter()
            .find(|figure| figure.contender == contender.name())?;
        Some(figure.gigabits_per_second.median)
    };
    let medians = Contender::ALL.map(median);
    let [Some(plain), Some(offloaded), Some(firewall), Some(bridge)] = medians else {
        return on_nics(Contender::BESIDE_NICS.map(median));
    };
    // Offload is what the relay with offloads has and the plain one lacks.
    let most = match offloaded >= (plain + firewall) / 2.0 {
        true => "Most of that is offload",
        false => "Only some of that is offload",
    };
    format!(
        "\nThe firewall carries {} times what the plain relay does. {most} (frames of\n\
         up to 64 KiB, checksums left to the kernel): a relay that has it too, and no rules,\n\
         reaches {} times. The firewall is at {} of that relay, and at {} of the kernel's\n\
         bridge, which has it too.\n",
        number(firewall / plain),
        number(offloaded / plain),
        number(firewall / offloaded),
        number(firewall / bridge),
    )
}

/// What it costs to drive NICs in software; nothing if a contender is missing.
fn on_nics(medians: [Option<f64>; 3]) -> String {
    let [Some(plain), Some(offloaded), Some(nics)] = medians else {
        return String::new();
    };
    format!(
        "\nThe firewall drives two software NICs, and carries {} times what the plain relay does\n\
         between taps, and {} of what the relay with offloads does.\n",
        number(nics / plain),
        number(nics / offloaded),
    )
}

/// What the software NICs have to say of their driver; nothing if there are none.
pub fn nics(verdicts: &[ExitStatus]) -> &'static str {
    match verdicts {
        [] => "",
        all if all.iter().all(ExitStatus::success) => {
            "Both NICs found their driver to keep to the datasheet.\n"
        }
        _ => "A NIC found its driver to break the datasheet: see what it said above.\n",
    }
}

/// The last line.
pub fn verdict(checks: &[Check]) -> String {
    let held = checks.iter().filter(|check| check.held).count();
    format!("{held} of {} checks held.", checks.len())
}

/// All of it for programs.
pub fn json(checks: &[Check], figures: &[Figures], held: bool) -> String {
    json!({ "checks": checks, "tcp": figures, "held": held }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use testbed::contender::Contender;
    use testbed::stats::Summary;

    fn figures(medians: [f64; 4]) -> Vec<Figures> {
        let named = Contender::ALL.into_iter().zip(medians);
        let figure = |(contender, median): (Contender, f64)| Figures {
            contender: contender.name(),
            gigabits_per_second: Summary::of(&[median]).unwrap(),
            cpu_seconds_per_gigabyte: None,
        };
        named.map(figure).collect()
    }

    #[test]
    fn bars_are_in_proportion() {
        let text = speed(&figures([1.0, 10.0, 5.0, 20.0]));
        let columns: Vec<usize> = text
            .lines()
            .filter(|line| line.contains("Gb/s"))
            .map(|line| line.matches('#').count())
            .collect();
        assert_eq!(columns, [2, 20, 10, 40]);
    }

    #[test]
    fn offload_is_praised_for_no_more_than_it_did() {
        assert!(speed(&figures([1.0, 2.0, 9.0, 9.0])).contains("Only some of that is offload"));
    }

    #[test]
    fn what_nics_cost_is_told() {
        let named = Contender::BESIDE_NICS.into_iter().zip([1.0, 8.0, 4.0]);
        let figure = |(contender, median): (Contender, f64)| Figures {
            contender: contender.name(),
            gigabits_per_second: Summary::of(&[median]).unwrap(),
            cpu_seconds_per_gigabyte: None,
        };
        let text = speed(&named.map(figure).collect::<Vec<_>>());
        assert!(
            text.contains("4.00 times what") && text.contains("0.500 of what"),
            "{text}"
        );
    }

    #[test]
    fn ratios_are_told() {
        let text = speed(&figures([1.0, 10.0, 9.0, 18.0]));
        for part in [
            "9.00 times what",
            "reaches 10.0 times",
            "0.900 of that",
            "0.500 of the",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}
