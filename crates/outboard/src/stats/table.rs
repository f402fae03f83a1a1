//! A snapshot for people: ports, drops, rules.

use super::net::Net;
use super::rates::{Rate, Rates};
use super::snapshot::{Connections, Port, Rule, Rules, Snapshot};
use std::borrow::Cow;
use std::fmt::Write;

/// Renders a snapshot; with `rates`, how fast it grows too. `all` includes what never happened.
pub fn render(snapshot: &Snapshot, rates: Option<&Rates>, all: bool) -> String {
    let mut text = traffic(&snapshot.ports, rates);
    let happened = happened(&snapshot.ports, all);
    if !happened.is_empty() {
        text.push('\n');
        text += &columns(&["<port", "<dropped, or worth knowing", "times"], &happened);
    }
    if let Some(rules) = &snapshot.rules {
        text.push('\n');
        text += &self::rules(rules, rates);
    }
    if let Some(connections) = &snapshot.connections {
        text.push('\n');
        text += &self::connections(connections, all);
    }
    if let Some(net) = &snapshot.net {
        text.push('\n');
        text += &stack(net, all);
    }
    if let Some(exits) = &snapshot.exits {
        let _ = writeln!(
            text,
            "\nthe virtual machine was left {}, and {} for interrupts",
            counted(exits.others, "time"),
            counted(exits.interrupts, "time")
        );
    }
    if snapshot.captures_lost > 0 {
        let lost = counted(snapshot.captures_lost, "frame");
        let _ = writeln!(text, "\nnot captured, because the ring was full: {lost}");
    }
    for note in &snapshot.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

fn traffic(ports: &[Port], rates: Option<&Rates>) -> String {
    let mut head = vec!["<port", "<interface", "received", "bytes"];
    let rate_head = ["frames/s", "bit/s"];
    if rates.is_some() {
        head.extend(rate_head);
    }
    head.extend(["sent", "bytes"]);
    if rates.is_some() {
        head.extend(rate_head);
    }
    let row = |(number, port): (usize, &Port)| {
        let interface = port.interface.as_deref().unwrap_or("-");
        let mut row = vec![port.name.clone(), printable(interface)];
        for (way, traffic) in [port.receive, port.transmit].into_iter().enumerate() {
            row.extend([traffic.frames, traffic.bytes].map(|count| count.to_string()));
            if let Some(rates) = rates {
                let rate = rates.ports.get(number).and_then(|rates| rates[way]);
                row.extend(rate_cells(rate));
            }
        }
        row
    };
    let rows: Vec<_> = ports.iter().enumerate().map(row).collect();
    columns(&head, &rows)
}

fn happened(ports: &[Port], all: bool) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for port in ports {
        for (name, count) in port.drops.iter().chain(&port.events) {
            if all || *count > 0 {
                rows.push(vec![port.name.clone(), name.to_string(), count.to_string()]);
            }
        }
    }
    rows
}

/// Connections by class, and what has happened to them.
fn connections(connections: &Connections, all: bool) -> String {
    let row = |(name, count): &(Cow<'static, str>, u64)| vec![name.to_string(), count.to_string()];
    let shown = |counted: &[(Cow<'static, str>, u64)]| -> Vec<_> {
        let shown = counted.iter().filter(|(_, count)| all || *count > 0);
        shown.map(row).collect()
    };
    let open: u64 = connections.open.iter().map(|(_, count)| count).sum();
    let mut rows = vec![vec!["open".to_owned(), open.to_string()]];
    rows.extend(shown(&connections.open));
    rows.extend(shown(&connections.events));
    let mut text = columns(&["<connections", "count"], &rows);
    let _ = writeln!(
        text,
        "room for {} connections of IPv4, and as many of IPv6",
        connections.capacity
    );
    text
}

/// What a TCP/IP stack has counted.
fn stack(net: &Net, all: bool) -> String {
    let shown = net.numbers().filter(|number| all || number.value > 0);
    let row = |number: super::net::Number| {
        let (name, unit) = (number.name.to_owned(), number.unit.to_owned());
        vec![name, number.value.to_string(), unit]
    };
    let rows: Vec<_> = shown.map(row).collect();
    columns(&["<tcp/ip", "count", "<unit"], &rows)
}

/// The rules in force, with what they have counted.
pub fn rules(rules: &Rules, rates: Option<&Rates>) -> String {
    let mut head = vec!["rule", "line", "<chain", "frames", "bytes"];
    if rates.is_some() {
        head.extend(["frames/s", "bit/s"]);
    }
    head.push("<text");
    let row = |rule: &Rule| {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        let mut row = vec![
            rule.number.to_string(),
            or_dash(rule.line.map(|line| line.to_string())),
            or_dash(rule.chain.clone()),
            rule.counted.frames.to_string(),
            rule.counted.bytes.to_string(),
        ];
        if let Some(rates) = rates {
            row.extend(rate_cells(rates.rules.get(rule.number).copied().flatten()));
        }
        row.push(printable(&rule.label()));
        row
    };
    let rows: Vec<_> = rules.entries.iter().map(row).collect();
    let mut text = columns(&head, &rows);
    let _ = writeln!(text, "rules in force: {}", generation(rules));
    if let Some(refused) = &rules.refused {
        let _ = writeln!(
            text,
            "generation {} was refused by the guest: {}, at byte {}",
            refused.generation, refused.reason, refused.position
        );
    }
    text
}

/// Which rules are in force, in words.
pub fn generation(rules: &Rules) -> String {
    let in_force = match rules.generation {
        0 => "generation 0, built in".to_owned(),
        generation => format!("generation {generation}"),
    };
    if rules.loaded == rules.generation {
        return in_force;
    }
    format!("{in_force}, of {} loaded", rules.loaded)
}

fn rate_cells(rate: Option<Rate>) -> [String; 2] {
    let cell = |rate: Option<f64>| rate.map_or_else(|| "-".into(), scaled);
    [cell(rate.map(|r| r.frames)), cell(rate.map(|r| r.bits))]
}

/// A rate with three significant digits and the prefix of its magnitude (SI).
pub fn scaled(rate: f64) -> String {
    const STEP: f64 = 1000.0;
    let mut rate = rate;
    for prefix in ["", "k", "M", "G"] {
        // What rounds up to the step belongs to the next prefix.
        if rate < STEP - 0.5 {
            return testbed::stats::number(rate) + prefix;
        }
        rate /= STEP;
    }
    format!("{rate:.0}T")
}

/// So many of what has this name.
pub fn counted(count: u64, name: &str) -> String {
    format!("{count} {name}{}", if count == 1 { "" } else { "s" })
}

/// Text of a file on a terminal: control characters are shown, not obeyed.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character.is_control() {
            true => shown.extend(character.escape_default()),
            false => shown.push(character),
        }
    }
    shown
}

/// Rows under a header, in columns: right-aligned, or left-aligned where the header begins with
/// `<`.
pub fn columns(head: &[&str], rows: &[Vec<String>]) -> String {
    let titles: Vec<String> = head
        .iter()
        .map(|title| title.trim_start_matches('<').to_owned())
        .collect();
    let lines = || std::iter::once(&titles).chain(rows);
    let widths: Vec<usize> = (0..head.len())
        .map(|column| {
            lines()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for row in lines() {
        let mut line = String::new();
        for ((cell, title), &width) in row.iter().zip(head).zip(&widths) {
            // Not by the width of a format, which ends at 65,535 characters.
            let padding = " ".repeat(width - cell.chars().count());
            match title.starts_with('<') {
                true => line.extend([cell, padding.as_str(), "  "]),
                false => line.extend([padding.as_str(), cell, "  "]),
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::Refused;
    use super::super::snapshot::tests::snapshot;
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_table_says_what_has_happened() {
        let expected = "\
port     interface  received  bytes  sent  bytes
private  tap0             12   1200     3    300
public   -                 0      0     0      0

port     dropped, or worth knowing  times
private  too_big                        2
private  bad_ip_checksum                1
private  no_buffer                      4

rule  line  chain    frames  bytes  text
   0     5  forward       8    800  tcp dport 7070 accept
   1     6  forward       0      0  log prefix \"odd \\ \" drop
   2     3  forward       4    399  policy drop
rules in force: generation 2

not captured, because the ring was full: 6 frames
";
        assert_eq!(render(&snapshot(), None, false), expected);
    }

    #[test]
    fn a_stack_shows_what_has_happened() {
        let mut snapshot = snapshot();
        snapshot.net = Net::of(&super::super::net::tests::counters()).unwrap();
        let text = render(&snapshot, None, false);
        let line = |name: &str| text.lines().find(|line| line.starts_with(name));
        assert_eq!(line("tcp_segments_received"), None, "it is zero");
        let cells = line("tcp_segments_sent").unwrap().split_whitespace();
        assert_eq!(
            cells.collect::<Vec<_>>(),
            ["tcp_segments_sent", "1", "segments"]
        );
        assert!(render(&snapshot, None, true).contains("tcp_segments_received"));
    }

    #[test]
    fn rules_are_told_apart_by_their_generation() {
        let mut rules = snapshot().rules.unwrap();
        assert_eq!(generation(&rules), "generation 2");
        rules.loaded = 3;
        rules.refused = Some(Refused {
            generation: 3,
            reason: "memory".into(),
            position: 7,
        });
        let last = "rules in force: generation 2, of 3 loaded\n\
                    generation 3 was refused by the guest: memory, at byte 7\n";
        let text = super::rules(&rules, None);
        assert!(text.ends_with(last), "{text}");
        (rules.generation, rules.loaded) = (0, 0);
        assert_eq!(generation(&rules), "generation 0, built in");
    }

    #[test]
    fn all_is_all() {
        let text = render(&snapshot(), None, true);
        assert_eq!(text.matches("truncated_vlan").count(), 2);
    }

    #[test]
    fn rates_stand_beside_what_they_belong_to() {
        let before = snapshot();
        let mut after = before.clone();
        after.ports[0].receive.frames += 1500;
        let rates = Rates::between(&before, &after, Duration::from_secs(1));
        let text = render(&after, Some(&rates), false);
        let private = text
            .lines()
            .find(|line| line.starts_with("private"))
            .unwrap();
        let cells: Vec<_> = private.split_whitespace().collect();
        assert_eq!(cells[2..6], ["1512", "1200", "1.50k", "0"]);
    }

    #[test]
    fn a_text_may_be_longer_than_a_format_is_wide() {
        let long = "x".repeat(70_000);
        let rows = [vec![long.clone(), "1".into()], vec!["y".into(), "2".into()]];
        let text = columns(&["<text", "n"], &rows);
        assert!(text.contains(&format!("{long}  1\n")));
        assert_eq!(text.lines().nth(2).unwrap().len(), 70_003);
    }

    #[test]
    fn rates_have_three_digits() {
        let cases = [
            (0.0, "0"),
            (1.0, "1.00"),
            (999.4, "999"),
            (999.6, "1.000k"),
            (123_456.0, "123k"),
            (9.41e9, "9.41G"),
            (1e18, "1000000T"),
        ];
        for (rate, text) in cases {
            assert_eq!(scaled(rate), text, "{rate}");
        }
    }

    #[test]
    fn rules_of_a_file_say_nothing_to_a_terminal() {
        let mut snapshot = snapshot();
        let rules = snapshot.rules.as_mut().unwrap();
        rules.entries[0].text = Some("log prefix \"\x1b[2J\"".into());
        assert!(!render(&snapshot, None, false).contains('\x1b'));
    }
}
