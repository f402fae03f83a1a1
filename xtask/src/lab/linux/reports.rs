//! What the device says of its driver, in the summary at its end.

/// What every line of the device's begins with.
const PREFIX: &str = "outboard model: ";
/// The line that the summary begins with contains this; lines with sums for each severity follow.
const SUMMARY: &str = " violations in all: ";

/// One kind of violation.
#[derive(Debug, PartialEq, Eq)]
pub struct Report {
    pub text: String,
    pub times: u64,
}

/// The reports of the last summary in what the device has printed. It prints none if each came
/// once: then, those are all.
pub fn summary(printed: &str) -> Vec<Report> {
    let mut reports = Vec::new();
    for line in printed.lines().filter_map(|line| line.strip_prefix(PREFIX)) {
        if line.contains(SUMMARY) {
            reports.clear();
        } else if line.contains('[') {
            reports.push(report(line));
        }
    }
    reports
}

fn report(line: &str) -> Report {
    let counted = line.strip_suffix(" times").and_then(|line| {
        let (text, times) = line.rsplit_once(", ")?;
        Some((text, times.parse().ok()?))
    });
    let (text, times) = counted.unwrap_or((line, 1));
    Report {
        text: text.to_string(),
        times,
    }
}

/// The kinds of which the device said for the first time, in what it printed during one trial.
pub fn first(printed: &str) -> impl Iterator<Item = &str> {
    printed
        .lines()
        .filter_map(|line| line.strip_prefix(PREFIX))
        .filter(|line| line.contains('['))
}

/// Those that no line of `explained` is about: one that is a part of the report, or, as `@TRIAL
/// PART`, of one that first came in this trial. `#` begins a comment. `of_trial` says of each kind
/// in which trial it came first.
pub fn unexplained<'a>(
    reports: &'a [Report],
    explained: &str,
    of_trial: &[(String, String)],
) -> Vec<&'a Report> {
    let known: Vec<(Option<&str>, &str)> = explained
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(
            |line| match line.strip_prefix('@').and_then(|line| line.split_once(' ')) {
                Some((trial, part)) => (Some(trial), part),
                None => (None, line),
            },
        )
        .collect();
    // The summary may name other bits of a register than the first line did.
    let came_in = |report: &Report, trial: &str, part: &str| {
        let exact = of_trial.iter().find(|(text, _)| *text == report.text);
        let like = || of_trial.iter().find(|(text, _)| text.contains(part));
        exact.or_else(like).map_or(false, |(_, of)| of == trial)
    };
    let is_known = |report: &Report| {
        known.iter().any(|(trial, part)| {
            report.text.contains(part) && trial.map_or(true, |trial| came_in(report, trial, part))
        })
    };
    reports.iter().filter(|report| !is_known(report)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "82599 02:00:00:00:00:01 at nic\n\
        outboard model: RXCTRL was written: early (4.6.3) [the card ignores it]\n\
        outboard model: 5 violations in all: {\"advice\": 5}\n\
        outboard model: 5 violations: the card ignores it\n\
        outboard model: RXCTRL was written: early (4.6.3) [the card ignores it]\n\
        outboard model: EIMS, reserved (8.2) [reserved bits], 4 times\n";

    #[test]
    fn the_summary_counts() {
        let reports = summary(PRINTED);
        let found: Vec<_> = reports
            .iter()
            .map(|one| (&one.text[..4], one.times))
            .collect();
        assert_eq!(found, [("RXCT", 1), ("EIMS", 4)]);
        let once = "outboard model: x [the card would fail]\n";
        assert_eq!(summary(once).len(), 1);
        assert!(summary("82599 02:00:00:00:00:01 at nic\n").is_empty());
    }

    #[test]
    fn what_is_not_explained_is_left() {
        let reports = summary(PRINTED);
        let left = unexplained(&reports, "# RXCTRL\n\nEIMS, reserved\n", &[]);
        assert_eq!(left, [&reports[0]]);
        assert_eq!(unexplained(&reports, "", &[]).len(), 2);
    }

    #[test]
    fn some_are_explained_in_one_trial_only() {
        let reports = summary(PRINTED);
        let begins = "outboard model: RXCTRL was written: early (4.6.3) [the card ignores it]\nx\n";
        let came = |trial: &str| -> Vec<(String, String)> {
            first(begins)
                .map(|text| (text.into(), trial.into()))
                .collect()
        };
        let left = |trial| unexplained(&reports, "@07-x RXCTRL was\n", &came(trial)).len();
        assert_eq!((left("07-x"), left("08-y")), (1, 2));
    }
}
