//! Charts as SVG: bars, and lines.

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

/// A line: its name, and its points from left to right.
#[derive(Clone, Debug)]
pub struct Line {
    /// What the legend calls it.
    pub name: String,
    /// Where it goes.
    pub points: Vec<(f64, f64)>,
}

const CHART_HEIGHT: f64 = 320.0;
const MARGIN_LEFT: f64 = 60.0;
const MARGIN_BOTTOM: f64 = 44.0;
const LEGEND_HEIGHT: f64 = 16.0;
/// Marks on each axis beside zero.
const MARKS: u32 = 5;
/// Colours of lines, in turn: those of Okabe and Ito, which most people can tell apart.
const COLOURS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999",
];

/// Lines over axes that begin at zero. Names must not hold the characters that XML reserves.
pub fn lines(title: &str, [x_name, y_name]: [&str; 2], lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    let most = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(0.0, f64::max);
    // A chart of nothing but zeros has an axis all the same.
    let end = |most: f64| if most > 0.0 { most } else { 1.0 };
    let (x_end, y_end) = (end(most(|point| point.0)), end(most(|point| point.1)));
    let (left, right) = (MARGIN_LEFT, WIDTH - 20.0);
    let (top, bottom) = (TITLE_HEIGHT, CHART_HEIGHT - MARGIN_BOTTOM);
    let x = |value: f64| left + (right - left) * value / x_end;
    let y = |value: f64| bottom - (bottom - top) * value / y_end;
    let height = CHART_HEIGHT + LEGEND_HEIGHT * lines.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"8\" y=\"20\" font-weight=\"bold\" font-size=\"13\">{title}</text>\n\
         <text x=\"{right}\" y=\"{}\" text-anchor=\"end\">{x_name}</text>\n\
         <text x=\"{left}\" y=\"{}\">{y_name}</text>\n\
         <path d=\"M{left},{top}V{bottom}H{right}\" fill=\"none\" stroke=\"#222\"/>\n",
        bottom + 34.0,
        top - 3.0,
    );
    for mark in 0..=MARKS {
        let share = f64::from(mark) / f64::from(MARKS);
        let (at_x, at_y) = (x_end * share, y_end * share);
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n\
             <path d=\"M{left},{:.1}H{right}\" stroke=\"#ddd\"/>\n",
            x(at_x),
            bottom + 16.0,
            number(at_x),
            left - 5.0,
            y(at_y) + 4.0,
            number(at_y),
            y(at_y),
        );
    }
    for (index, line) in lines.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let below = CHART_HEIGHT + LEGEND_HEIGHT * index as f64;
        let places = line.points.iter();
        let places: Vec<String> = places
            .map(|point| format!("{:.1},{:.1}", x(point.0), y(point.1)))
            .collect();
        let _ = write!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n\
             <path d=\"M{left},{}h24\" stroke=\"{colour}\" stroke-width=\"3\"/>\n\
             <text x=\"{}\" y=\"{}\">{}</text>\n",
            places.join(" "),
            below - 4.0,
            left + 30.0,
            below,
            line.name,
        );
    }
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_where_the_axes_end() {
        let line = Line {
            name: "mmio".into(),
            points: vec![(0.0, 0.0), (50.0, 2.0), (100.0, 4.0)],
        };
        let svg = lines("Loss", ["load", "%"], &[line]);
        // 560 and 240 of room.
        assert!(svg.contains("points=\"60.0,276.0 340.0,156.0 620.0,36.0\""));
        assert!(svg.contains(">mmio<") && svg.contains(">load<"));
        assert!(!lines("Nothing", ["x", "y"], &[]).contains("NaN"));
    }

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
