//! What a run leaves behind: a page to read, raw figures, plots.

use std::fs;
use std::io;
use std::path::Path;

use serde_json::json;

use crate::plot::{self, Bar};
use crate::samples::{Bound, Measure, Promise, Samples};
use testbed::stats::number;
use testbed::table;

/// What a report is about.
pub struct Report<'a> {
    /// First line of the page.
    pub title: &'a str,
    /// What to type to get such figures.
    pub command: &'a str,
    /// On what they were taken, as a list.
    pub machine: &'a str,
    /// The figures.
    pub samples: &'a Samples,
    /// What is shown of them, in this order.
    pub measures: &'a [Measure],
    /// File names, without their ending, and what is drawn in them.
    pub plots: &'a [(&'a str, Measure)],
    /// What was promised about them.
    pub promises: &'a [Promise],
}

impl Report<'_> {
    /// The promises, each with its figure and whether it was kept.
    pub fn promises(&self) -> String {
        let rows: Vec<_> = self
            .promises
            .iter()
            .map(|promise| self.judged(promise))
            .collect();
        table::render(&["promise", "bound", "median (min..max)", "kept"], &rows)
    }

    fn judged(&self, promise: &Promise) -> Vec<String> {
        let Measure { name, unit } = promise.measure;
        let what = match promise.baseline {
            Some(baseline) => format!("{name}: {} / {baseline}", promise.contender),
            None => format!("{name}: {}, {unit}", promise.contender),
        };
        let bound = match promise.bound {
            Bound::AtLeast(least) => format!("at least {}", number(least)),
            Bound::AtMost(most) => format!("at most {}", number(most)),
            Bound::Within(factor) => format!("within {}", number(factor)),
        };
        let (figure, kept) = match promise.figure(self.samples) {
            Some(figure) if promise.is_kept(&figure) => (figure.to_string(), "yes"),
            Some(figure) => (figure.to_string(), "NO"),
            None => (String::new(), "not measured"),
        };
        vec![what, bound, figure, kept.to_owned()]
    }

    /// All measures of all contenders, in long form: contenders differ from measure to measure.
    pub fn figures(&self) -> String {
        let mut rows = Vec::new();
        for &measure in self.measures {
            for (contender, summary) in self.bars(measure) {
                rows.push(vec![
                    measure.name.to_owned(),
                    contender.to_owned(),
                    number(summary.median),
                    format!(
                        "{}..{}",
                        number(summary.lower_quartile),
                        number(summary.upper_quartile)
                    ),
                    format!("{}..{}", number(summary.min), number(summary.max)),
                    summary.count.to_string(),
                    measure.unit.to_owned(),
                ]);
            }
        }
        let header = [
            "measure",
            "contender",
            "median",
            "quartiles",
            "min..max",
            "rounds",
            "unit",
        ];
        table::render(&header, &rows)
    }

    /// Contenders in the order in which they first appear.
    fn bars(&self, measure: Measure) -> Vec<Bar> {
        let mut names = Vec::new();
        for sample in self
            .samples
            .iter()
            .filter(|sample| sample.measure == measure)
        {
            if !names.contains(&sample.contender) {
                names.push(sample.contender);
            }
        }
        names
            .into_iter()
            .filter_map(|name| Some((name, self.samples.summary(measure, name)?)))
            .collect()
    }

    fn page(&self) -> String {
        let plots: String = self
            .plots
            .iter()
            .map(|(file, measure)| format!("![{}]({file}.svg)\n", measure.name))
            .collect();
        format!(
            "# {}\n\n`{}`\n\n{}\n## Promises\n\nRatios are medians of the rounds' ratios.\n\n{}\n\
             ## Figures\n\n{}\n\
             Every measurement is in raw.csv, the summary in summary.json.\n\n{plots}",
            self.title,
            self.command,
            self.machine,
            self.promises(),
            self.figures(),
        )
    }

    fn summary(&self) -> serde_json::Value {
        let measures = self.measures.iter().flat_map(|&measure| {
            let entry = move |(contender, summary)| {
                json!({"measure": measure, "contender": contender, "summary": summary})
            };
            self.bars(measure).into_iter().map(entry)
        });
        measures.collect()
    }

    /// Writes `README.md`, `raw.csv`, `summary.json` and the plots into `folder`.
    ///
    /// # Errors
    /// The folder or a file could not be written.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        fs::write(folder.join("README.md"), self.page())?;
        fs::write(folder.join("raw.csv"), self.samples.csv())?;
        fs::write(
            folder.join("summary.json"),
            format!("{:#}\n", self.summary()),
        )?;
        for (file, measure) in self.plots {
            let title = format!("{}, {}", measure.name, measure.unit);
            let svg = plot::bars(&title, &self.bars(*measure));
            fs::write(folder.join(format!("{file}.svg")), svg)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Measure = Measure {
        name: "TCP",
        unit: "Gb/s",
    };

    fn report<'a>(samples: &'a Samples, promises: &'a [Promise]) -> Report<'a> {
        Report {
            title: "Firewall",
            command: "cargo xtask bench firewall",
            machine: "- kernel: 6\n",
            samples,
            measures: &[RATE],
            plots: &[("tcp", RATE)],
            promises,
        }
    }

    fn promise(baseline: Option<&'static str>, bound: Bound) -> Promise {
        Promise {
            measure: RATE,
            contender: "firewall",
            baseline,
            bound,
        }
    }

    #[test]
    fn misses_and_gaps_are_said() {
        let mut samples = Samples::default();
        samples.add(RATE, "firewall", 0, 4.0);
        samples.add(RATE, "relay", 0, 1.0);
        let promises = [
            promise(Some("relay"), Bound::AtLeast(6.0)),
            promise(None, Bound::AtMost(5.0)),
            promise(Some("bridge"), Bound::AtLeast(1.0)),
        ];
        let text = report(&samples, &promises).promises();
        let kept: Vec<_> = text
            .lines()
            .skip(2)
            .map(|line| line.rsplit('|').nth(1).unwrap().trim())
            .collect();
        assert_eq!(kept, ["NO", "yes", "not measured"]);
        assert!(text.contains("TCP: firewall / relay") && text.contains("at least 6.00"));
    }

    #[test]
    fn figures_are_by_contender() {
        let mut samples = Samples::default();
        for (round, value) in [3.0, 1.0, 2.0].into_iter().enumerate() {
            samples.add(RATE, "relay", round, value);
        }
        let text = report(&samples, &[]).figures();
        let row: Vec<_> = text
            .lines()
            .last()
            .unwrap()
            .split('|')
            .map(str::trim)
            .collect();
        let expected = [
            "",
            "TCP",
            "relay",
            "2.00",
            "1.50..2.50",
            "1.00..3.00",
            "3",
            "Gb/s",
            "",
        ];
        assert_eq!(row, expected);
    }

    #[test]
    fn summary_is_json() {
        let mut samples = Samples::default();
        samples.add(RATE, "relay", 0, 2.0);
        let summary = report(&samples, &[]).summary();
        assert_eq!(summary[0]["contender"], "relay");
        assert_eq!(summary[0]["summary"]["median"], 2.0);
        assert_eq!(summary[0]["measure"]["unit"], "Gb/s");
    }
}
