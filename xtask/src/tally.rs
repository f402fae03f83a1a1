//! Results of test runners, summed.

use std::fmt;

/// What test runners reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub passed: u64,
    pub failed: u64,
    pub skipped: u64,
}

impl Tally {
    /// One check that passed.
    pub const PASSED: Self = Self {
        passed: 1,
        failed: 0,
        skipped: 0,
    };
    /// One check that failed.
    pub const FAILED: Self = Self {
        passed: 0,
        failed: 1,
        skipped: 0,
    };
    /// One check that could not run here.
    pub const SKIPPED: Self = Self {
        passed: 0,
        failed: 0,
        skipped: 1,
    };

    /// Adds another's numbers.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        )
    }
}

/// Sums the `test result:` lines that libtest and its like print.
pub fn sum(output: &str) -> Tally {
    let mut tally = Tally::default();
    for line in output.lines() {
        if let Some(rest) = line.trim_start().strip_prefix("test result: ") {
            tally.add(Tally {
                passed: number_before(rest, "passed"),
                failed: number_before(rest, "failed"),
                skipped: number_before(rest, "ignored"),
            });
        }
    }
    tally
}

/// The number in front of a word: 3 of `ok. 12 passed; 3 failed;` for `failed`; 0 without one.
fn number_before(text: &str, word: &str) -> u64 {
    let words: Vec<&str> = text.split([' ', ';']).collect();
    words
        .windows(2)
        .find(|pair| pair[1] == word)
        .and_then(|pair| pair[0].parse().ok())
        .unwrap_or(0)
}

/// The results that the kernel's own tests print, by TAP: `ok 1 NAME` or `not ok 1 NAME`.
pub fn tap(output: &str) -> Vec<(String, bool)> {
    let result = |line: &str| {
        let (passed, rest) = match line.strip_prefix("not ok ") {
            Some(rest) => (false, rest),
            None => (true, line.strip_prefix("ok ")?),
        };
        let (number, name) = rest.split_once(' ')?;
        number.parse::<u64>().ok()?;
        Some((name.trim().to_string(), passed))
    };
    output.lines().filter_map(result).collect()
}

/// A test that a runner did not run.
#[derive(Debug, PartialEq, Eq)]
pub struct Skipped {
    pub name: String,
    pub reason: String,
}

/// The tests that a runner did not run: libtest prints `ignored, REASON`, libtest-mimic
/// `ignored (REASON)`.
pub fn skipped(output: &str) -> Vec<Skipped> {
    let bare = |reason: &str| {
        let reason = reason.trim_start_matches(',').trim();
        let inner = reason
            .strip_prefix('(')
            .and_then(|rest| rest.strip_suffix(')'));
        match inner.unwrap_or(reason) {
            "" => "no reason given".to_string(),
            reason => reason.to_string(),
        }
    };
    output
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("test "))
        .filter_map(|line| line.split_once("... ignored"))
        .map(|(name, reason)| Skipped {
            name: name.trim().to_string(),
            reason: bare(reason),
        })
        .collect()
}

/// One line for each reason: `REASON: NAME, NAME`, in the order in which they came.
pub fn by_reason(skipped: &[Skipped]) -> Vec<String> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for Skipped { name, reason } in skipped {
        match groups.iter_mut().find(|(known, _)| known == reason) {
            Some((_, names)) => names.push(name),
            None => groups.push((reason, vec![name])),
        }
    }
    groups
        .iter()
        .map(|(reason, names)| format!("{}: {}", reason, names.join(", ")))
        .collect()
}

/// Most characters of what a failed test said.
const SAID_MAX: usize = 800;

/// The tests that failed, and what each said: `NAME: MESSAGE`.
pub fn failed(output: &str) -> Vec<String> {
    output
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("test "))
        .filter_map(|line| line.strip_suffix("... FAILED"))
        .map(|name| match said(output, name.trim()) {
            None => name.trim().to_string(),
            Some(said) => format!("{}: {}", name.trim(), said),
        })
        .collect()
}

/// What a failed test said, on one line: libtest prints it behind `---- NAME stdout ----`,
/// libtest-mimic behind `---- NAME ----`.
fn said(output: &str, name: &str) -> Option<String> {
    let heads = [
        format!("---- {} stdout ----", name),
        format!("---- {} ----", name),
    ];
    let behind = |line: &&str| heads.iter().all(|head| line.trim() != head);
    let ends = |line: &str| line.starts_with("---- ") || line == "failures:";
    let words: Vec<&str> = output
        .lines()
        .skip_while(behind)
        .skip(1)
        .take_while(|line| !ends(line) && !line.starts_with("test result: "))
        .flat_map(str::split_whitespace)
        .collect();
    let said: String = words.join(" ").chars().take(SAID_MAX).collect();
    Some(said).filter(|said| !said.is_empty())
}

/// What a stage with a runner amounts to: a status that is not 0 without a failed test, or no test
/// at all, is a failure of its own. The second value says so.
pub fn judge(output: &str, status: i32) -> (Tally, Option<String>) {
    let mut tally = sum(output);
    let reason = if tally.passed + tally.failed == 0 {
        format!("no test ran (exit status {})", status)
    } else if status != 0 && tally.failed == 0 {
        format!("exit status {}, although no test failed", status)
    } else {
        return (tally, None);
    };
    tally.failed += 1;
    (tally, Some(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_tap_are_read() {
        let output = "TAP version 13\n1..2\n# a remark\nok 1 memory\nnot ok 2 ports\nok then\n";
        let wanted = [("memory".to_string(), true), ("ports".to_string(), false)];
        assert_eq!(tap(output), wanted);
        assert!(tap("1..0 # SKIP no capability\n").is_empty());
    }

    const OUTPUT: &str = "\
running 3 tests
test a ... ok
test b ... ignored, no /dev/net/tun
test c ... ignored
test g h ... ignored (no /dev/net/tun)
test result: ok. 1 passed; 0 failed; 2 ignored; 0 measured; 4 filtered out; finished in 0.00s
     Running tests
test d::e ... FAILED
test result: FAILED. 12 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out
";

    #[test]
    fn result_lines_are_summed() {
        assert_eq!(
            sum(OUTPUT),
            Tally {
                passed: 13,
                failed: 1,
                skipped: 2
            }
        );
        assert_eq!(sum("nothing here"), Tally::default());
        assert_eq!(sum("test result: odd"), Tally::default());
    }

    #[test]
    fn skipped_tests_name_their_reason() {
        assert_eq!(
            by_reason(&skipped(OUTPUT)),
            ["no /dev/net/tun: b, g h", "no reason given: c"]
        );
    }

    #[test]
    fn failed_tests_are_named() {
        assert_eq!(failed(OUTPUT), ["d::e"]);
    }

    #[test]
    fn failed_tests_say_why() {
        let output = "\
test a b ... FAILED
test c ... FAILED

failures:

---- a b ----
3 of 4
are lost

---- c stdout ----

thread 'c' panicked at src/c.rs:1:
no

failures:
    a b
    c

test result: FAILED. 0 passed; 2 failed; 0 ignored";
        let said = failed(output);
        assert_eq!(said[0], "a b: 3 of 4 are lost");
        assert_eq!(said[1], "c: thread 'c' panicked at src/c.rs:1: no");
    }

    #[test]
    fn failed_tests_fail_a_stage_once() {
        assert_eq!(
            judge(OUTPUT, 101),
            (
                Tally {
                    passed: 13,
                    failed: 1,
                    skipped: 2
                },
                None
            )
        );
    }

    #[test]
    fn a_runner_that_ran_nothing_fails() {
        for output in [
            "",
            "test result: ok. 0 passed; 0 failed; 3 ignored; 0 measured",
        ] {
            let (tally, reason) = judge(output, 0);
            assert_eq!(tally.failed, 1);
            assert_eq!(reason.unwrap(), "no test ran (exit status 0)");
        }
    }

    #[test]
    fn a_runner_that_died_fails() {
        let (tally, reason) = judge("test result: ok. 2 passed; 0 failed; 0 ignored", 101);
        assert_eq!(
            tally,
            Tally {
                passed: 2,
                failed: 1,
                skipped: 0
            }
        );
        assert_eq!(reason.unwrap(), "exit status 101, although no test failed");
    }

    #[test]
    fn the_closing_line_has_its_form() {
        let tally = Tally {
            passed: 1,
            failed: 0,
            skipped: 2,
        };
        assert_eq!(
            format!("total: {}", tally),
            "total: 1 passed, 0 failed, 2 skipped"
        );
    }
}
