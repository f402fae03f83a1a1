//! What a checkup has found, for people, for programs, and for whoever has no such card.

use super::facts::Fact;
use super::lines::{Step, Verdict};
use crate::stats::table::{columns, printable};
use serde::Serialize;
use tender::style::{Style, Tone};

const PASSED: &str = "The card does what its driver expects.";
const WARNED: &str = "Some steps could not be judged: see warn above.";
const FAILED: &str = "The card does not do what its driver expects: see no above.";

/// What a checkup has found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Whether no step found the card wanting, and all were reached.
    pub passed: bool,
    /// As it was named on the command line.
    pub card: String,
    /// What is known of host and card beside the checkup.
    pub facts: Vec<Fact>,
    /// Each step.
    pub steps: Vec<Step>,
    /// Registers, with when they were read, their name, place and value.
    pub registers: Vec<String>,
    /// How the image ended, if not as it should.
    pub ending: Option<String>,
}

impl Report {
    /// The table of the steps, and what follows from it.
    pub fn table(&self, style: Style) -> String {
        let row = |step: &Step| {
            let found = printable(&step.found);
            let section = printable(&step.section);
            vec![
                step.verdict.word().to_owned(),
                step.name.to_owned(),
                section,
                found,
            ]
        };
        let rows: Vec<_> = self.steps.iter().map(row).collect();
        let table = columns(&["<", "<step", "<section", "<what was found"], &rows);
        let mut lines = table.lines();
        let mut text = format!("{}\n", lines.next().unwrap_or_default());
        for (line, step) in lines.zip(&self.steps) {
            let word = step.verdict.word();
            let rest = line.strip_prefix(word).unwrap_or_default();
            let tone = match step.verdict {
                Verdict::Ok => Tone::Good,
                Verdict::Warn => Tone::Warning,
                Verdict::No => Tone::Bad,
            };
            text += &format!("{}{rest}\n", style.paint(tone, word));
        }
        if let Some(ending) = &self.ending {
            text += &format!("{}\n", printable(ending));
        }
        let warned = self.steps.iter().any(|step| step.verdict == Verdict::Warn);
        let (tone, closing) = match (self.passed, warned) {
            (false, _) => (Tone::Bad, FAILED),
            (true, true) => (Tone::Warning, WARNED),
            (true, false) => (Tone::Good, PASSED),
        };
        text + &format!("{}\n", style.paint(tone, closing))
    }

    /// All of it, as a file that can be sent to somebody.
    pub fn file(&self) -> String {
        let mut text = format!("Checkup of the network card {}\n\n", printable(&self.card));
        for fact in &self.facts {
            text += &format!("{}: {}\n", fact.name, printable(&fact.value));
        }
        text += &format!("\n{}\nRegisters:\n", self.table(Style::PLAIN));
        for register in &self.registers {
            text += &format!("{}\n", printable(register));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(verdict: Verdict, ending: Option<&str>) -> Report {
        Report {
            passed: verdict != Verdict::No && ending.is_none(),
            card: "0000:03:00.0".to_owned(),
            facts: vec![Fact::new("driver", "vfio-pci")],
            steps: vec![Step {
                name: "link",
                verdict,
                section: "4.6.4".to_owned(),
                found: "up\x1b, 10000 Mb/s".to_owned(),
            }],
            registers: vec!["before STATUS (0x8, section 8.2.3.1.2): 0x00080000".to_owned()],
            ending: ending.map(str::to_owned),
        }
    }

    #[test]
    fn a_file_says_all_that_is_known() {
        let expected = "Checkup of the network card 0000:03:00.0

driver: vfio-pci

    step  section  what was found
ok  link  4.6.4    up\\u{1b}, 10000 Mb/s
The card does what its driver expects.

Registers:
before STATUS (0x8, section 8.2.3.1.2): 0x00080000
";
        assert_eq!(report(Verdict::Ok, None).file(), expected);
    }

    #[test]
    fn the_last_line_says_the_worst() {
        let last = |verdict, ending| {
            let table = report(verdict, ending).table(Style::PLAIN);
            table.lines().last().unwrap_or_default().to_owned()
        };
        assert_eq!(last(Verdict::Warn, None), WARNED);
        assert_eq!(last(Verdict::No, None), FAILED);
        assert_eq!(last(Verdict::Ok, Some("it was killed")), FAILED);
    }
}
