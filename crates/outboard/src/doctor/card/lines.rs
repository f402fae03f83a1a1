//! What the image `checkup` prints, line by line. It is checked like anything that a guest says.

use serde::Serialize;

/// The steps of a checkup, in their order.
pub const STEPS: [&str; 9] = [
    "start",
    "address",
    "link",
    "loopback",
    "interrupt",
    "restart",
    "send",
    "receive",
    "counts",
];
/// Registers that are kept of what the image prints.
const REGISTERS_MAX: usize = 256;

/// Whether a step found what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It did.
    Ok,
    /// It could not be tried, or what is missing may not be the card's fault.
    Warn,
    /// The card does not do what its driver was written for.
    No,
}

impl Verdict {
    /// One word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::No => "no",
        }
    }

    fn named(word: &str) -> Option<Self> {
        [Self::Ok, Self::Warn, Self::No]
            .into_iter()
            .find(|verdict| verdict.word() == word)
    }
}

/// A step, and what it found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// One of [`STEPS`].
    pub name: &'static str,
    /// What came of it.
    pub verdict: Verdict,
    /// The section of the card's datasheet that it is about; empty if it was not reached.
    pub section: String,
    /// What was found.
    pub found: String,
}

/// What the image has said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// One for each of [`STEPS`].
    pub steps: Vec<Step>,
    /// Registers, with when they were read, their name, place and value.
    pub registers: Vec<String>,
    /// Whether it came to its end.
    pub complete: bool,
}

/// Reads what the image has printed. A step that is missing was not reached.
pub fn parse(printed: &str) -> Said {
    let mut said = Said::default();
    for line in printed.lines() {
        match line.split_once(' ') {
            Some(("step", rest)) => said.steps.extend(step(rest)),
            Some(("register", rest)) if said.registers.len() < REGISTERS_MAX => {
                said.registers.push(rest.to_owned());
            }
            Some(("done", _)) => said.complete = true,
            _ => {}
        }
    }
    let found = std::mem::take(&mut said.steps);
    said.steps = STEPS.map(|name| one(name, &found)).into();
    said
}

fn step(line: &str) -> Option<Step> {
    let mut words = line.splitn(4, ' ');
    let name = words.next()?;
    Some(Step {
        name: STEPS.into_iter().find(|step| *step == name)?,
        verdict: Verdict::named(words.next()?)?,
        section: words.next()?.to_owned(),
        found: words.next()?.to_owned(),
    })
}

/// The step of this name: the worst, if there are several.
fn one(name: &'static str, found: &[Step]) -> Step {
    let of_name = found.iter().filter(|step| step.name == name);
    let worst = of_name.max_by_key(|step| step.verdict);
    worst.cloned().unwrap_or_else(|| Step {
        name,
        verdict: Verdict::Warn,
        section: String::new(),
        found: "not reached".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_is_there_once_with_the_worst_that_was_found() {
        let said = parse(
            "register before STATUS (0x8, section 8.2.3.1.2): 0x00080000\n\
             step start ok 4.6.3 ixgbe has brought it up in 12 us\n\
             outboard: something else\n\
             step link ok 4.6.4 up, 10000 Mb/s\n\
             step link no 4.6.4 down\nstep what ok 1 x\nstep address maybe 1 x\nstep send ok\n\
             done no\n",
        );
        let names: Vec<_> = said.steps.iter().map(|step| step.name).collect();
        assert_eq!(names, STEPS);
        let of = |name| said.steps.iter().find(|step| step.name == name).unwrap();
        assert_eq!(of("start").found, "ixgbe has brought it up in 12 us");
        assert_eq!(of("link").verdict, Verdict::No);
        for name in ["address", "send"] {
            assert_eq!(of(name).found, "not reached");
        }
        assert_eq!(
            said.registers,
            ["before STATUS (0x8, section 8.2.3.1.2): 0x00080000"]
        );
        assert!(said.complete);
    }

    #[test]
    fn a_guest_cannot_fill_the_report() {
        let said = parse(&"register x y: 1\n".repeat(REGISTERS_MAX + 9));
        assert_eq!(
            (said.registers.len(), said.complete),
            (REGISTERS_MAX, false)
        );
    }
}
