//! Statistics of repeated measurements: medians with spread, and ratios to a baseline.
//!
//! A machine that does other things shifts every figure, so contenders take turns (A B A B) and
//! are compared round by round: the ratio that is reported is the median of the rounds' ratios.

use std::fmt;

use serde::Serialize;

/// What repeated measurements of one quantity say.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// How many measurements there were.
    pub count: usize,
    /// The smallest.
    pub min: f64,
    /// A quarter of them are at most this.
    pub lower_quartile: f64,
    /// Half of them are at most this.
    pub median: f64,
    /// Three quarters of them are at most this.
    pub upper_quartile: f64,
    /// The largest.
    pub max: f64,
}

impl Summary {
    /// Summarizes `values`; `None` if there are none or one is not a number.
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() || values.iter().any(|value| value.is_nan()) {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            count: sorted.len(),
            min: sorted[0],
            lower_quartile: quantile(&sorted, 0.25),
            median: quantile(&sorted, 0.5),
            upper_quartile: quantile(&sorted, 0.75),
            max: sorted[sorted.len() - 1],
        })
    }
}

impl fmt::Display for Summary {
    /// The median, and the spread behind it.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let (min, max) = (number(self.min), number(self.max));
        write!(f, "{} ({min}..{max})", number(self.median))
    }
}

/// The value below which a share of `sorted` lies, interpolated between neighbours (the common
/// definition: R's type 7). `sorted` must not be empty.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share * (sorted.len() - 1) as f64;
    let below = place.floor() as usize;
    let above = place.ceil() as usize;
    sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64)
}

/// The ratios of two contenders' measurements, taken in the same rounds.
pub fn ratios(values: &[f64], baseline: &[f64]) -> Vec<f64> {
    values
        .iter()
        .zip(baseline)
        .map(|(value, base)| value / base)
        .collect()
}

/// Contenders in the order in which they take their turns: each round has all of them, and begins
/// with another one, so that none always follows the same neighbour's heat.
pub fn turns(contenders: usize, rounds: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..rounds).flat_map(move |round| {
        (0..contenders).map(move |turn| (round, (round + turn) % contenders))
    })
}

/// A number with three significant digits or none behind the point, whichever is more.
pub fn number(value: f64) -> String {
    match value.abs() {
        magnitude if magnitude >= 100.0 || magnitude == 0.0 => format!("{value:.0}"),
        magnitude if magnitude >= 10.0 => format!("{value:.1}"),
        magnitude if magnitude >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_of_an_odd_count() {
        let summary = Summary::of(&[5.0, 1.0, 4.0, 2.0, 3.0]).unwrap();
        assert_eq!(
            summary,
            Summary {
                count: 5,
                min: 1.0,
                lower_quartile: 2.0,
                median: 3.0,
                upper_quartile: 4.0,
                max: 5.0,
            }
        );
        assert_eq!(summary.to_string(), "3.00 (1.00..5.00)");
    }

    #[test]
    fn an_even_count_has_its_median_between_two() {
        assert_eq!(Summary::of(&[4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
    }

    #[test]
    fn nothing_has_no_summary() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        assert_eq!(ratios(&[8.0, 9.0, 7.0], &[1.0, 3.0]), [8.0, 3.0]);
    }

    #[test]
    fn every_round_has_all_contenders_and_another_first() {
        let turns: Vec<_> = turns(3, 2).collect();
        assert_eq!(turns, [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (1, 0)]);
    }

    #[test]
    fn numbers_have_three_digits() {
        let shown = [0.0, 0.0123, 0.5, 1.234, 12.34, 1234.5].map(number);
        assert_eq!(shown, ["0", "0.012", "0.500", "1.23", "12.3", "1234"]);
    }
}
