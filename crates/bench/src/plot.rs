//! Bar charts as SVG.

use std::fmt::Write;

use testbed::stats::{Summary, number};

/// A bar: whose, and what its rounds say.
pub type Bar = (&'static str, Summary);

const WIDTH: f64 = 640.0;
const LABEL_WIDTH: f64 = 170.0;
/// Room behind the longest bar for its figure.
const FIGURE_WIDTH: f64 = 90.0;
const TITLE_HEIGHT: f64 = 36.0;
const ROW_HEIGHT: f64 = 30.0;
const BAR_HEIGHT: f64 = 18.0;

/// Horizontal bars from zero to the median, with a line from the smallest round to the largest.
/// `title` and names must not hold the characters that XML reserves.
pub fn bars(title: &str, bars: &[Bar]) -> String {
    let longest = bars
        .iter()
        .map(|(_, summary)| summary.max)
        .fold(0.0, f64::max);
    let room = WIDTH - LABEL_WIDTH - FIGURE_WIDTH;
    // A chart of nothing but zeros has bars of no length.
    let scale = if longest > 0.0 { room / longest } else { 0.0 };
    let height = TITLE_HEIGHT + ROW_HEIGHT * bars.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"8\" y=\"22\" font-weight=\"bold\">{title}</text>\n"
    );
    for (row, (name, summary)) in bars.iter().enumerate() {
        let top = TITLE_HEIGHT + ROW_HEIGHT * row as f64;
        let middle = top + BAR_HEIGHT / 2.0;
        let place = |value: f64| LABEL_WIDTH + value * scale;
        let (text_x, text_y) = (LABEL_WIDTH - 8.0, middle + 4.5);
        let (bar_width, figure_x) = (summary.median * scale, place(summary.max) + 6.0);
        let (min_x, max_x, figure) = (
            place(summary.min),
            place(summary.max),
            number(summary.median),
        );
        let _ = write!(
            svg,
            "<text x=\"{text_x}\" y=\"{text_y}\" text-anchor=\"end\">{name}</text>\n\
             <rect x=\"{LABEL_WIDTH}\" y=\"{top}\" width=\"{bar_width:.1}\" \
             height=\"{BAR_HEIGHT}\" fill=\"#4a7ab5\"/>\n\
             <line x1=\"{min_x:.1}\" y1=\"{middle}\" x2=\"{max_x:.1}\" y2=\"{middle}\" \
             stroke=\"#222\" stroke-width=\"2\"/>\n\
             <text x=\"{figure_x:.1}\" y=\"{text_y}\">{figure}</text>\n"
        );
    }
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_round_fills_the_room() {
        let short = Summary::of(&[1.0, 1.0]).unwrap();
        let long = Summary::of(&[2.0, 3.0, 4.0]).unwrap();
        let svg = bars("TCP, Gb/s", &[("relay", short), ("firewall", long)]);
        // 380 of room for 4.0: medians 1 and 3.
        assert!(svg.contains("width=\"95.0\"") && svg.contains("width=\"285.0\""));
        assert!(svg.contains("x1=\"360.0\"") && svg.contains("x2=\"550.0\""));
        assert!(svg.contains(">TCP, Gb/s<") && svg.contains(">relay<"));
    }

    #[test]
    fn zeros_and_nothing_can_be_drawn() {
        let zero = Summary::of(&[0.0]).unwrap();
        assert!(!bars("zero", &[("relay", zero)]).contains("NaN"));
        assert!(bars("nothing", &[]).ends_with("</svg>\n"));
    }
}
