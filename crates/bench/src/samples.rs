//! Measurements as they come, and what was promised about them.

use serde::Serialize;

use testbed::stats::{Summary, ratios};

/// One quantity that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Measure {
    /// Its name in tables, files and options.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
}

impl Measure {
    /// A quantity of this name, in this unit.
    pub const fn new(name: &'static str, unit: &'static str) -> Self {
        Self { name, unit }
    }
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// What was measured.
    pub measure: Measure,
    /// Who was measured.
    pub contender: &'static str,
    /// In which round.
    pub round: usize,
    /// In the measure's unit.
    pub value: f64,
}

/// First line of raw figures.
pub const RAW_HEADER: &str = "measure,unit,contender,round,value";

/// All measurements of a run.
#[derive(Debug, Default)]
pub struct Samples(Vec<Sample>);

impl Samples {
    /// Adds a measurement.
    pub fn add(&mut self, measure: Measure, contender: &'static str, round: usize, value: f64) {
        self.0.push(Sample {
            measure,
            contender,
            round,
            value,
        });
    }

    /// All of them, in the order in which they were taken.
    pub fn iter(&self) -> impl Iterator<Item = &Sample> {
        self.0.iter()
    }

    /// The rounds of one contender, in their order.
    pub fn values(&self, measure: Measure, contender: &str) -> Vec<f64> {
        self.0
            .iter()
            .filter(|sample| sample.measure == measure && sample.contender == contender)
            .map(|sample| sample.value)
            .collect()
    }

    /// What the rounds of one contender say.
    pub fn summary(&self, measure: Measure, contender: &str) -> Option<Summary> {
        Summary::of(&self.values(measure, contender))
    }

    /// Reads the lines of [`Self::csv`] behind the first; `None` if one is not of these measures
    /// and contenders, or there is none.
    pub fn parse<'a>(
        lines: impl Iterator<Item = &'a str>,
        measures: &[Measure],
        contenders: &[&'static str],
    ) -> Option<Self> {
        let mut samples = Self::default();
        for line in lines {
            let mut words = line.split(',');
            let (name, unit) = (words.next()?, words.next()?);
            let measure = measures.iter().find(|m| m.name == name && m.unit == unit)?;
            let contender = words.next()?;
            let contender = contenders.iter().find(|known| **known == contender)?;
            let (round, value) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            samples.add(*measure, contender, round, value);
        }
        (!samples.0.is_empty()).then_some(samples)
    }

    /// A line for each measurement, for who wants to compute for themselves.
    pub fn csv(&self) -> String {
        let lines = self.0.iter().map(|sample| {
            let Measure { name, unit } = sample.measure;
            let (contender, round, value) = (sample.contender, sample.round, sample.value);
            format!("{name},{unit},{contender},{round},{value}\n")
        });
        std::iter::once(format!("{RAW_HEADER}\n"))
            .chain(lines)
            .collect()
    }
}

/// A bound that was promised.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// Not less than this.
    AtLeast(f64),
    /// Not more than this.
    AtMost(f64),
    /// Equal but for such a factor, whichever is the larger one.
    Within(f64),
}

/// What was promised about a contender.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Promise {
    /// Of what.
    pub measure: Measure,
    /// By whom.
    pub contender: &'static str,
    /// Times whose figure of the same rounds; `None` if the bound is the figure itself.
    pub baseline: Option<&'static str>,
    /// The bound of the median.
    pub bound: Bound,
}

impl Promise {
    /// The figure that the bound is about; `None` if it was not measured.
    pub fn figure(&self, samples: &Samples) -> Option<Summary> {
        let values = samples.values(self.measure, self.contender);
        match self.baseline {
            None => Summary::of(&values),
            Some(baseline) => {
                Summary::of(&ratios(&values, &samples.values(self.measure, baseline)))
            }
        }
    }

    /// Whether `figure` keeps the promise.
    pub fn is_kept(&self, figure: &Summary) -> bool {
        match self.bound {
            Bound::AtLeast(least) => figure.median >= least,
            Bound::AtMost(most) => figure.median <= most,
            Bound::Within(factor) => (factor.recip()..=factor).contains(&figure.median),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Measure = Measure {
        name: "rate",
        unit: "Gb/s",
    };

    fn samples() -> Samples {
        let mut samples = Samples::default();
        for (round, (ours, relay)) in [(8.0, 1.0), (9.0, 3.0), (14.0, 2.0)].iter().enumerate() {
            samples.add(RATE, "ours", round, *ours);
            samples.add(RATE, "relay", round, *relay);
        }
        samples
    }

    #[test]
    fn values_keep_their_rounds() {
        assert_eq!(samples().values(RATE, "relay"), [1.0, 3.0, 2.0]);
        assert_eq!(samples().summary(RATE, "ours").unwrap().median, 9.0);
        assert_eq!(samples().summary(RATE, "nobody"), None);
    }

    #[test]
    fn a_ratio_is_the_median_of_the_rounds_ratios() {
        let promise = Promise {
            measure: RATE,
            contender: "ours",
            baseline: Some("relay"),
            bound: Bound::AtLeast(7.0),
        };
        // 8, 3 and 7; the ratio of the medians would be 4.5.
        let figure = promise.figure(&samples()).unwrap();
        assert_eq!(figure.median, 7.0);
        assert!(promise.is_kept(&figure));
    }

    #[test]
    fn a_promise_can_be_missed_or_unmeasured() {
        let promise = Promise {
            measure: RATE,
            contender: "ours",
            baseline: None,
            bound: Bound::AtMost(8.9),
        };
        assert!(!promise.is_kept(&promise.figure(&samples()).unwrap()));
        assert_eq!(promise.figure(&Samples::default()), None);
    }

    #[test]
    fn within_a_factor_is_so_in_both_directions() {
        let within = |factor| Promise {
            measure: RATE,
            contender: "relay",
            baseline: None,
            bound: Bound::Within(factor),
        };
        let figure = within(1.0).figure(&samples()).unwrap();
        assert_eq!(figure.median, 2.0);
        assert!(within(2.0).is_kept(&figure) && !within(1.9).is_kept(&figure));
        let half = Promise {
            contender: "ours",
            baseline: Some("relay"),
            ..within(7.0)
        };
        assert!(half.is_kept(&half.figure(&samples()).unwrap()));
        let inverse = Promise {
            contender: "relay",
            baseline: Some("ours"),
            ..half
        };
        assert!(inverse.is_kept(&inverse.figure(&samples()).unwrap()));
    }

    #[test]
    fn raw_figures_are_read_back() {
        let csv = samples().csv();
        let lines = || csv.lines().skip(1);
        let read = Samples::parse(lines(), &[RATE], &["ours", "relay"]).unwrap();
        assert_eq!(read.csv(), csv);
        assert!(Samples::parse(lines(), &[RATE], &["ours"]).is_none());
        assert!(Samples::parse(["rate,Gb/s,ours,0"].into_iter(), &[RATE], &["ours"]).is_none());
        assert!(Samples::parse([].into_iter(), &[RATE], &["ours"]).is_none());
    }

    #[test]
    fn raw_figures_are_lines() {
        let csv = samples().csv();
        assert_eq!(csv.lines().count(), 7);
        assert_eq!(csv.lines().nth(1), Some("rate,Gb/s,ours,0,8"));
    }
}
