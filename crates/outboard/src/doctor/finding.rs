//! What was found, and how it is printed.

use crate::stats::table::{columns, printable};
use serde::Serialize;
use tender::style::{Style, Tone};

/// Whether something works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It does.
    Ok,
    /// Partly, or not for this user.
    Warn,
    /// It does not.
    No,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::No => "no",
        }
    }

    fn tone(self) -> Tone {
        match self {
            Self::Ok => Tone::Good,
            Self::Warn => Tone::Warning,
            Self::No => Tone::Bad,
        }
    }
}

/// The last line: what [`Report::runs`] says.
const RUNS: &str = "Images run here, on spt and process.";
const RUNS_NOT: &str = "Images do not run here: see spt and process above.";

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub name: &'static str,
    /// Whether it works.
    pub verdict: Verdict,
    /// The verdict's reason in one word, for programs.
    pub state: &'static str,
    /// What was seen.
    pub evidence: String,
    /// What it is good for, unless every guest needs it.
    pub purpose: Option<&'static str>,
    /// What to type so that it works, where something can be typed.
    pub remedy: Option<String>,
}

impl Finding {
    /// Of something that works, with no more to say.
    pub fn new(
        name: &'static str,
        verdict: Verdict,
        state: &'static str,
        evidence: impl Into<String>,
    ) -> Self {
        Self {
            name,
            verdict,
            state,
            evidence: evidence.into(),
            purpose: None,
            remedy: None,
        }
    }

    /// With what it is good for.
    pub fn good_for(self, purpose: &'static str) -> Self {
        Self {
            purpose: Some(purpose),
            ..self
        }
    }

    /// With what to type.
    pub fn mend(self, remedy: impl Into<Option<String>>) -> Self {
        Self {
            remedy: remedy.into(),
            ..self
        }
    }
}

/// All that was found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Whether images can run on `spt` and `process`.
    pub runs: bool,
    /// One entry for each thing that was looked at.
    pub checks: Vec<Finding>,
}

impl Report {
    /// Of these findings.
    pub fn new(checks: Vec<Finding>) -> Self {
        let works = |name| {
            let mut of_name = checks.iter().filter(|finding| finding.name == name);
            of_name.any(|finding| finding.verdict != Verdict::No)
        };
        Self {
            runs: works("spt") && works("process"),
            checks,
        }
    }
}

impl Report {
    /// A table, with what to do below each row that is not all right, and what follows from it.
    pub fn text(&self, style: Style) -> String {
        let row = |finding: &Finding| {
            let evidence = printable(&finding.evidence);
            vec![
                finding.verdict.word().to_owned(),
                finding.name.to_owned(),
                evidence,
            ]
        };
        let rows: Vec<_> = self.checks.iter().map(row).collect();
        let table = columns(&["<", "<check", "<what was found"], &rows);
        let mut lines = table.lines();
        let mut text = format!("{}\n", lines.next().unwrap_or_default());
        for (line, finding) in lines.zip(&self.checks) {
            text += &below(line, finding, style);
        }
        let (tone, closing) = match self.runs {
            true => (Tone::Good, RUNS),
            false => (Tone::Bad, RUNS_NOT),
        };
        text + &format!("{}\n", style.paint(tone, closing))
    }
}

/// The line of a finding, its verdict in colour, and what to do below it.
fn below(line: &str, finding: &Finding, style: Style) -> String {
    let word = finding.verdict.word();
    let rest = line.strip_prefix(word).unwrap_or_default();
    let mut text = format!("{}{rest}\n", style.paint(finding.verdict.tone(), word));
    if finding.verdict == Verdict::Ok {
        return text;
    }
    if let Some(purpose) = finding.purpose {
        text += &format!("        good for: {purpose}\n");
    }
    if let Some(remedy) = &finding.remedy {
        text += &format!("        type: {}\n", printable(remedy));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_all_right_says_what_for_and_what_to_type() {
        let report = Report::new(vec![
            Finding::new("spt", Verdict::Ok, "usable", "a guest ran"),
            Finding::new("process", Verdict::Ok, "usable", "a guest ran").good_for("debuggers"),
            Finding::new("VFIO", Verdict::No, "absent", "no\x1b[31m driver")
                .good_for("real devices")
                .mend("sudo modprobe vfio-pci".to_owned()),
        ]);
        assert!(report.runs);
        let expected = "    check    what was found
ok  spt      a guest ran
ok  process  a guest ran
no  VFIO     no\\u{1b}[31m driver
        good for: real devices
        type: sudo modprobe vfio-pci
Images run here, on spt and process.
";
        assert_eq!(report.text(Style::PLAIN), expected);
    }

    #[test]
    fn verdicts_and_the_last_line_have_colours() {
        let report = Report::new(vec![
            Finding::new("KVM", Verdict::Ok, "usable", "ran"),
            Finding::new("ip", Verdict::Warn, "off-path", "ok, but hidden"),
        ]);
        let expected = "      check  what was found
\x1b[32mok\x1b[0m    KVM    ran
\x1b[33mwarn\x1b[0m  ip     ok, but hidden
\x1b[1;31mImages do not run here: see spt and process above.\x1b[0m
";
        assert_eq!(report.text(Style::COLOURED), expected);
    }

    #[test]
    fn a_machine_runs_guests_if_it_runs_both_kinds() {
        let finding = |name, verdict| Finding::new(name, verdict, "", "");
        let runs =
            |spt, process| Report::new(vec![finding("spt", spt), finding("process", process)]).runs;
        assert!(runs(Verdict::Ok, Verdict::Ok));
        assert!(!runs(Verdict::No, Verdict::Ok));
        assert!(!runs(Verdict::Ok, Verdict::No));
        assert!(!Report::new(vec![finding("spt", Verdict::Ok)]).runs);
    }
}
