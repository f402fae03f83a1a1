//! What came of the trials.

use std::fmt::Write;

/// Columns of what is said about a trial.
const NOTE_COLUMNS: usize = 150;

/// A trial, and what came of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    pub name: String,
    pub passed: bool,
    /// Time that it took in the guest, in hundredths of a second.
    pub hundredths: u64,
    pub note: String,
}

impl Row {
    /// One that did not take time.
    pub fn new(name: &str, passed: bool, note: &str) -> Self {
        Self {
            name: name.into(),
            passed,
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
        let result = if row.passed { "passed" } else { "FAILED" };
        let seconds = row.hundredths as f64 / 100.0;
        let note: String = row.note.chars().take(NOTE_COLUMNS).collect();
        let line = format!("{:<22} {} {:>8.2} s  {}", row.name, result, seconds, note);
        text.push_str(line.trim_end());
        text.push('\n');
    }
    let passed = rows.iter().filter(|row| row.passed).count();
    let failed = rows.len() - passed;
    for row in rows.iter().filter(|row| !row.passed) {
        let _ = write!(text, "\ntest {} ... FAILED", row.name);
    }
    let word = if failed == 0 { "ok" } else { "FAILED" };
    let _ = write!(
        text,
        "\ntest result: {}. {} passed; {} failed; 0 ignored",
        word, passed, failed
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::{self, Tally};

    #[test]
    fn the_table_ends_as_runners_do() {
        let mut rows = vec![Row::new("01-x", true, "fine"), Row::new("02-y", false, "")];
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
            skipped: 0,
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
