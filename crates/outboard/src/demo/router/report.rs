//! What was tried and seen, and what each event under load cost.

use super::checks::Check;
use super::load::Load;
use serde::Serialize;
use testbed::table;

/// What there is to report.
#[derive(Debug, Serialize)]
pub struct Report {
    checks: Vec<Check>,
    load: Load,
    pub held: bool,
}

impl Report {
    pub fn new(checks: Vec<Check>, load: Load) -> Self {
        let held = checks.iter().all(|check| check.held);
        Self { checks, load, held }
    }

    pub fn text(&self) -> String {
        let rows = self.checks.iter().map(|check| {
            let result = if check.held { "ok" } else { "FAILED" };
            [&*check.tried, check.by, &check.seen, result].map(str::to_owned)
        });
        let rows: Vec<_> = rows.map(|row| row.to_vec()).collect();
        let tried = table::render(&["tried", "by", "seen", ""], &rows);
        let rows = self.load.events.iter().map(|event| {
            let [v4, v6] = event.silence_milliseconds.map(silence);
            vec![event.what.to_owned(), format!("{:.1} s", event.at), v4, v6]
        });
        let rows: Vec<_> = rows.collect();
        let events = table::render(&["under load", "at", "silence, IPv4", "IPv6"], &rows);
        let held = self.checks.iter().filter(|check| check.held).count();
        format!(
            "\n{tried}\n{events}\nSilence is the longest time until the next event in which \
             nothing arrived, by iperf3's word\nevery 0.1 s. {held} of {} checks held.\n",
            self.checks.len()
        )
    }
}

/// Nothing is what was not long enough to be seen.
fn silence(milliseconds: f64) -> String {
    match milliseconds {
        0.0 => "< 100 ms".to_owned(),
        _ => format!("{milliseconds:.0} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_failed_is_told() {
        let load = Load::default();
        let check = |held| Check::new("a asks", "curl", "it".into(), held);
        let report = Report::new(vec![check(true), check(false)], load.clone());
        let text = report.text();
        assert!(
            !report.held && text.contains("1 of 2 checks held"),
            "{text}"
        );
        assert!(text.contains("| a asks | curl | it   | FAILED |"), "{text}");
        assert!(Report::new(vec![check(true)], load).held);
    }
}
