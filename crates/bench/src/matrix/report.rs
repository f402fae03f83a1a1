//! The report: a page that needs no other file, and the same figures as data and in words.

use super::axes::Run;
use super::figures::{self, PLACES};
use super::ladder::Point;
use super::outcome::{Counts, Events, Outcome, Step};
use crate::plot::{self, Line};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write;
use testbed::stats::number;
use testbed::table;

/// The load, in percent of the limit, at which latencies are compared.
const HALF: u32 = 50;

const STYLE: &str = "body{font-family:sans-serif;max-width:70em;margin:2em auto;padding:0 1em}\
    table{border-collapse:collapse;font-size:85%;margin:1em 0}\
    td,th{border:1px solid #ccc;padding:.2em .5em;text-align:right}\
    td:first-child,th:first-child{text-align:left}svg{max-width:100%}";

/// What is reported.
pub struct Report<'a> {
    /// First line.
    pub title: &'a str,
    /// On what it was measured, as a list.
    pub machine: &'a str,
    /// Raw data of each run, and the plans that it belongs to.
    pub outcomes: &'a [(Outcome, Vec<String>)],
    /// What was left out, and why.
    pub impossible: &'a [(Run, &'static str)],
    /// What was not run yet.
    pub to_do: &'a [Run],
}

/// A table, and what is over it.
struct Table {
    title: &'static str,
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Report<'_> {
    /// The page.
    pub fn page(&self) -> String {
        let mut page = format!(
            "<!DOCTYPE html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n<title>{0}</title>\n\
             <style>{STYLE}</style>\n<h1>{0}</h1>\n<ul>\n",
            escaped(self.title),
        );
        for line in self.machine.lines() {
            let _ = writeln!(page, "<li>{}", escaped(line.trim_start_matches("- ")));
        }
        page.push_str("</ul>\n");
        for plan in self.plans() {
            let _ = writeln!(page, "<h2>{}</h2>", escaped(plan));
            let outcomes = self.of(plan);
            for chart in charts(&outcomes) {
                page.push_str(&chart);
            }
            for table in tables(&outcomes) {
                page.push_str(&html(&table));
            }
        }
        page.push_str("<h2>Left out</h2>\n<ul>\n");
        for (run, reason) in self.impossible {
            let _ = writeln!(page, "<li>{}: {}", escaped(&run.name()), escaped(reason));
        }
        for (outcome, _) in self.outcomes {
            if let Some(failure) = &outcome.failure {
                let name = outcome.run.name();
                let _ = writeln!(page, "<li>{}: failed: {}", escaped(&name), escaped(failure));
            }
        }
        for run in self.to_do {
            let _ = writeln!(page, "<li>{}: not run yet", escaped(&run.name()));
        }
        page.push_str("</ul>\n</html>\n");
        page
    }

    /// As data.
    pub fn json(&self) -> String {
        let of = |(outcome, plans): &(Outcome, Vec<String>)| {
            let values: serde_json::Map<String, Value> = figures::of(outcome)
                .into_iter()
                .map(|(name, _, value)| (name.to_owned(), json!(value)))
                .collect();
            json!({"run": outcome.run, "plans": plans, "failure": outcome.failure,
                "figures": values})
        };
        let all: Vec<Value> = self.outcomes.iter().map(of).collect();
        format!("{:#}\n", Value::Array(all))
    }

    /// In words.
    pub fn words(&self) -> String {
        let mut words = String::new();
        for plan in self.plans() {
            let _ = writeln!(words, "## {plan}\n");
            for Table { title, head, rows } in tables(&self.of(plan)) {
                let head: Vec<&str> = head.iter().map(String::as_str).collect();
                let _ = writeln!(words, "{title}\n\n{}", table::render(&head, &rows));
            }
        }
        words
    }

    /// Plans in the order in which they first appear.
    fn plans(&self) -> Vec<&str> {
        let mut plans = Vec::new();
        for plan in self.outcomes.iter().flat_map(|(_, plans)| plans) {
            if !plans.contains(&plan.as_str()) {
                plans.push(plan);
            }
        }
        plans
    }

    fn of(&self, plan: &str) -> Vec<&Outcome> {
        let belongs = |plans: &[String]| plans.iter().any(|other| other == plan);
        let found = self.outcomes.iter().filter(|(_, plans)| belongs(plans));
        found.map(|(outcome, _)| outcome).collect()
    }
}

fn charts(outcomes: &[&Outcome]) -> Vec<String> {
    let cards: Vec<&&Outcome> = outcomes.iter().filter(|o| !o.steps.is_empty()).collect();
    let mut charts = Vec::new();
    if !cards.is_empty() {
        let over_load = |of: &dyn Fn(&Step) -> Option<f64>| -> Vec<Line> {
            cards.iter().map(|outcome| line(outcome, of)).collect()
        };
        let axes = |y| ["offered, frames a second", y];
        let loss = over_load(&|step| Some(step.loss_percent()));
        charts.push(plot::lines("Loss against load", axes("lost, %"), &loss));
        for (share, title) in [
            (0.5, "Median latency against load"),
            (0.99, "Latency of 99 % against load"),
        ] {
            let lines = over_load(&|step| Some(step.latency_ns(share)? as f64 / 1e3));
            charts.push(plot::lines(title, axes("us"), &lines));
        }
        let distributions: Vec<Line> = cards
            .iter()
            .filter_map(|outcome| {
                let (_, step) = figures::step_at(outcome, HALF)?;
                Some(distribution(outcome, &step.latency))
            })
            .collect();
        let title = "Distribution of latency at half of the load limit";
        charts.push(plot::lines(title, ["us", "share"], &distributions));
    }
    let disks = outcomes.iter().filter(|outcome| !outcome.reads.is_empty());
    let disks: Vec<Line> = disks
        .filter_map(|outcome| {
            let first = outcome.reads.first()?;
            Some(distribution(outcome, &first.latency))
        })
        .collect();
    if !disks.is_empty() {
        let title = "Distribution of latency of reads, 4 KiB, one at a time";
        charts.push(plot::lines(title, ["us", "share"], &disks));
    }
    charts
}

fn line(outcome: &Outcome, of: &dyn Fn(&Step) -> Option<f64>) -> Line {
    let mut points: Vec<(f64, f64)> = outcome
        .steps
        .iter()
        .filter_map(|step| Some((step.rate as f64, of(step)?)))
        .collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    Line {
        name: escaped(&outcome.run.name()),
        points,
    }
}

fn distribution(outcome: &Outcome, latency: &[(f64, u64)]) -> Line {
    let points = latency.iter();
    Line {
        name: escaped(&outcome.run.name()),
        // One answer in a thousand would press all others together.
        points: points
            .filter(|(share, _)| *share <= 0.99)
            .map(|(share, ns)| (*ns as f64 / 1e3, *share))
            .collect(),
    }
}

fn tables(outcomes: &[&Outcome]) -> Vec<Table> {
    let mut tables = Vec::new();
    let columns: Vec<Vec<(&str, &str, f64)>> = outcomes
        .iter()
        .map(|outcome| figures::of(outcome))
        .collect();
    let mut names: Vec<(&str, &str)> = Vec::new();
    for (name, unit, _) in columns.iter().flatten() {
        if !names.contains(&(name, unit)) {
            names.push((name, unit));
        }
    }
    let rows = outcomes.iter().zip(&columns).map(|(outcome, column)| {
        let mut row = vec![outcome.run.name()];
        row.extend(names.iter().map(|(name, _)| {
            let found = column.iter().find(|(other, _, _)| other == name);
            found.map_or(String::new(), |(_, _, value)| number(*value))
        }));
        row
    });
    let mut head = vec!["run".to_owned()];
    head.extend(names.iter().map(|(name, unit)| format!("{name}, {unit}")));
    tables.push(Table {
        title: "Figures",
        rows: rows.collect(),
        head,
    });
    let per = |title, of: fn(&Events) -> &Counts| {
        let each: Vec<_> = outcomes
            .iter()
            .flat_map(|outcome| events(outcome, of))
            .collect();
        per_frame(title, &each)
    };
    tables.extend([
        per("Accesses of registers, for each frame or read", |events| {
            &events.registers
        }),
        per(
            "Returns to user space, for each frame or read; those for ports are of the console",
            |events| &events.returns,
        ),
        per("Exits of the guest, for each frame or read", |events| {
            &events.exits
        }),
        per("Switches to a thread, for each frame or read", |events| {
            &events.switches
        }),
    ]);
    tables.push(drops(outcomes));
    tables.retain(|table| !table.rows.is_empty() && table.head.len() > 1);
    tables
}

/// Events that were counted at each load and during reads, with what they are to be divided by.
fn events(outcome: &Outcome, of: fn(&Events) -> &Counts) -> Vec<(String, u64, &Counts)> {
    let name = outcome.run.name();
    let loads = outcome.traced.iter().map(|traced| {
        let label = format!("{name} at {} %", traced.percent);
        (label, traced.step.received, of(&traced.events))
    });
    let reads = outcome.reads.iter().map(|reads| {
        let label = format!("{name} at depth {}", reads.depth);
        (label, reads.count, of(&reads.events))
    });
    let all = loads.chain(reads);
    all.filter(|(_, _, counts)| !counts.is_empty()).collect()
}

/// Counts of each load by the frames that came back.
fn per_frame(title: &'static str, each: &[(String, u64, &Counts)]) -> Table {
    let names: BTreeSet<&String> = each
        .iter()
        .flat_map(|(_, _, counts)| counts.keys())
        .collect();
    let mut head = vec!["run".to_owned()];
    head.extend(names.iter().map(|name| (*name).clone()));
    let row = |(label, frames, counts): &(String, u64, &Counts)| {
        let mut row = vec![label.clone()];
        row.extend(names.iter().map(|name| {
            let count = counts.get(*name).copied().unwrap_or(0);
            number(count as f64 / (*frames).max(1) as f64)
        }));
        row
    };
    Table {
        title,
        rows: each.iter().map(row).collect(),
        head,
    }
}

/// Where frames were lost, of each load at which some were.
fn drops(outcomes: &[&Outcome]) -> Table {
    let mut head = vec!["run".to_owned(), "offered a second".into(), "lost".into()];
    head.extend(PLACES.map(str::to_owned));
    let mut rows = Vec::new();
    for outcome in outcomes {
        let mut steps: Vec<&Step> = outcome.steps.iter().collect();
        steps.sort_by_key(|step| step.rate);
        for step in steps.into_iter().filter(|step| step.loss_percent() > 0.0) {
            let lost = step.sent + step.refused - step.received;
            let mut row = vec![outcome.run.name(), step.rate.to_string(), lost.to_string()];
            row.extend(figures::places(step).map(|count| count.to_string()));
            rows.push(row);
        }
    }
    Table {
        title: "Frames that were lost, by place",
        head,
        rows,
    }
}

fn html(table: &Table) -> String {
    let cells = |cells: &[String], kind: &str| -> String {
        let cell = |text: &String| format!("<{kind}>{}</{kind}>", escaped(text));
        cells.iter().map(cell).collect()
    };
    let mut text = format!(
        "<h3>{}</h3>\n<table>\n<tr>{}</tr>\n",
        escaped(table.title),
        cells(&table.head, "th")
    );
    for row in &table.rows {
        let _ = writeln!(text, "<tr>{}</tr>", cells(row, "td"));
    }
    text.push_str("</table>\n");
    text
}

/// Text as HTML and SVG have it.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// Points of a run's ladder.
pub fn points(outcome: &Outcome) -> Vec<Point> {
    let steps = outcome.steps.iter();
    steps
        .map(|step| Point {
            offered: step.rate as f64,
            reflected: step.reflected(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::outcome::Traced;
    use std::time::Duration;
    use testbed::traffic::paced::Answered;

    fn outcome() -> Outcome {
        let step = |rate: u64, received: u64| {
            let answered = Answered {
                sent: 100,
                sending: Duration::from_secs_f64(100.0 / rate as f64),
                latencies: vec![5000; received as usize],
                ..Answered::default()
            };
            let counts = [("tap tx_dropped".to_owned(), 100 - received)];
            Step::new(rate, &answered, counts.into_iter().collect())
        };
        let counts = |name: &str, count| [(name.to_owned(), count)].into_iter().collect();
        Outcome {
            run: Run::default(),
            steps: vec![step(1000, 100), step(2000, 50)],
            traced: vec![Traced {
                percent: 100,
                step: step(1000, 100),
                events: Events {
                    registers: counts("InterruptStatus r", 25),
                    returns: counts("register", 50),
                    exits: counts("HLT", 10),
                    switches: counts("vmm-device", 5),
                },
            }],
            transfers: Vec::new(),
            reads: Vec::new(),
            failure: None,
        }
    }

    #[test]
    fn a_page_has_plots_tables_and_what_was_left_out() {
        let outcomes = [(outcome(), vec!["ways < all".to_owned()])];
        let report = Report {
            title: "Title & more",
            machine: "- kernel: 6\n",
            outcomes: &outcomes,
            impossible: &[(Run::default(), "no such thing")],
            to_do: &[Run::default()],
        };
        let page = report.page();
        for part in [
            "<h1>Title &amp; more</h1>",
            "<li>kernel: 6",
            "<h2>ways &lt; all</h2>",
            ">Loss against load<",
            "<th>InterruptStatus r</th>",
            "no such thing",
            "mmio: not run yet",
        ] {
            assert!(page.contains(part), "{part}");
        }
        assert!(!page.contains("http-equiv") && !page.contains("<script"));
        let words = report.words();
        // A quarter of the frames had an access of this register.
        assert!(words.contains("InterruptStatus r") && words.contains("0.250"));
        // Half of the frames at twice the limit, all of them at the tap.
        let drops: Vec<&str> = words
            .lines()
            .filter(|line| line.contains(" 2000 "))
            .collect();
        assert_eq!(drops.len(), 1);
        assert!(drops[0].contains(" 50 "), "{}", drops[0]);
        let data: Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(data[0]["figures"]["load limit"], 1000.0);
        assert_eq!(data[0]["run"]["bus"], "mmio");
    }

    #[test]
    fn a_failure_is_said() {
        let failed = Outcome {
            failure: Some("it is silent".into()),
            steps: Vec::new(),
            traced: Vec::new(),
            ..outcome()
        };
        let outcomes = [(failed, vec!["x".to_owned()])];
        let report = Report {
            title: "",
            machine: "",
            outcomes: &outcomes,
            impossible: &[],
            to_do: &[],
        };
        assert!(report.page().contains("failed: it is silent"));
    }
}
