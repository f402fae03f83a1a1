//! What came of the trials.

use std::fmt::Write;

/// Columns of what is said about a trial.
const NOTE_COLUMNS: usize = 150;

/// What came of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Result {
    Passed,
    Failed,
    /// It is not for this device.
    Skipped,
}

impl From<bool> for Result {
    fn from(passed: bool) -> Self {
        match passed {
            true => Result::Passed,
            false => Result::Failed,
        }
    }
}

/// A trial, and what came of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    pub name: String,
    pub result: Result,
    /// Time that it took in the guest, in hundredths of a second.
    pub hundredths: u64,
    pub note: String,
}

impl Row {
    /// One that did not take time.
    pub fn new(name: &str, result: impl Into<Result>, note: &str) -> Self {
        Self {
            name: name.into(),
            result: result.into(),
            hundredths: 0,
            note: note.into(),
        }
    }
}

/// Adds a row that failed for each trial of `wanted` that has none.
pub fn complete(rows: &mut Vec<Row>, wanted: &[String], why: &str) {
    for name in wanted {
        if !rows.iter().any(|row| row.name == *name) {
            rows.push(Row::new(name, false, why));
        }
    }
}

/// The table, and behind it what a runner of tests prints.
pub fn print(rows: &[Row]) -> String {
    let mut text = format!("\n{:<22} {:<7} {:>8}  what\n", "trial", "result", "time");
    for row in rows {
        let result = match row.result {
            Result::Passed => "passed",
            Result::Failed => "FAILED",
            Result::Skipped => "skipped",
        };
        let seconds = row.hundredths as f64 / 100.0;
        let note: String = row.note.chars().take(NOTE_COLUMNS).collect();
        let line = format!(
            "{:<22} {:<7} {:>7.2} s  {}",
            row.name, result, seconds, note
        );
        text.push_str(line.trim_end());
        text.push('\n');
    }
    let count = |result| rows.iter().filter(|row| row.result == result).count();
    let (passed, failed) = (count(Result::Passed), count(Result::Failed));
    for row in rows.iter().filter(|row| row.result == Result::Failed) {
        let _ = write!(text, "\ntest {} ... FAILED", row.name);
    }
    let word = if failed == 0 { "ok" } else { "FAILED" };
    let _ = write!(
        text,
        "\ntest result: {}. {} passed; {} failed; {} ignored",
        word,
        passed,
        failed,
        count(Result::Skipped)
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::{self, Tally};

    #[test]
    fn the_table_ends_as_runners_do() {
        let mut rows = vec![
            Row::new("01-x", true, "fine"),
            Row::new("02-y", false, ""),
            Row::new("03-z", Result::Skipped, "one queue"),
        ];
        rows[0].hundredths = 123;
        let text = print(&rows);
        assert!(
            text.contains("01-x                   passed     1.23 s  fine\n"),
            "{}",
            text
        );
        let tally = Tally {
            passed: 1,
            failed: 1,
            skipped: 1,
        };
        assert_eq!(tally::sum(&text), tally);
        assert_eq!(tally::failed(&text), ["02-y"]);
    }

    #[test]
    fn what_did_not_run_failed() {
        let mut rows = vec![Row::new("01-x", true, "")];
        complete(&mut rows, &["01-x".into(), "02-y".into()], "not run");
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[1], Row::new("02-y", false, "not run"));
    }
}
