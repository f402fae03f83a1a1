//! Guests as a table that fits a terminal: pure.

use super::sample::{PerSecond, PortRow, Row, Sort};
use crate::stats::table::{columns, printable, scaled};

/// How large a terminal is, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Lines.
    pub rows: usize,
    /// Characters in a line.
    pub columns: usize,
}

const HEAD: [&str; 11] = [
    "<guest",
    "<state",
    "cpu",
    "memory",
    "connections",
    "restarts",
    "received/s",
    "bit/s",
    "sent/s",
    "bit/s",
    "drops/s",
];

/// The table: each guest, and below it its ports.
pub fn table(rows: &[Row]) -> String {
    let mut lines = Vec::new();
    for row in rows {
        lines.push(guest(row));
        // One port is the guest's own line.
        if row.ports.len() != 1 {
            lines.extend(row.ports.iter().map(port));
        }
    }
    columns(&HEAD, &lines)
}

/// The same on a terminal of this size, with what the keys do; lines end as a raw terminal needs.
pub fn screen(rows: &[Row], sort: Sort, size: Size) -> String {
    let cut = |line: &str| line.chars().take(size.columns).collect::<String>();
    let mut keys = String::from("q quits; order:");
    for (key, name, by) in Sort::ALL {
        let mark = if by == sort { "*" } else { "" };
        keys += &format!("  {} {name}{mark}", char::from(key));
    }
    let table = table(rows);
    let room = size.rows.saturating_sub(1);
    let shown = std::iter::once(keys.as_str()).chain(table.lines());
    let lines: Vec<_> = shown.take(room).map(cut).collect();
    lines.join("\r\n")
}

fn guest(row: &Row) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    let sum = |way: fn(&PortRow) -> Option<PerSecond>| {
        let rates: Vec<_> = row.ports.iter().filter_map(way).collect();
        let all = PerSecond {
            frames: rates.iter().map(|rate| rate.frames).sum(),
            bits: rates.iter().map(|rate| rate.bits).sum(),
        };
        (!rates.is_empty()).then_some(all)
    };
    let mut cells = vec![
        printable(&row.name),
        printable(&row.state),
        or_dash(row.cpu_percent.map(|percent| format!("{percent:.1}%"))),
        or_dash(row.memory_bytes.map(|bytes| format!("{}M", bytes >> 20))),
        or_dash(row.connections.map(|count| count.to_string())),
        or_dash(row.restarts.map(|count| count.to_string())),
    ];
    cells.extend(rates(sum(|port| port.receive), sum(|port| port.transmit)));
    cells.push(or_dash(row.drops_per_second.map(scaled)));
    cells
}

fn port(port: &PortRow) -> Vec<String> {
    let mut cells = vec![format!("  {}", printable(&port.name))];
    cells.push(printable(port.interface.as_deref().unwrap_or("")));
    cells.extend(std::iter::repeat_n(String::new(), 4));
    cells.extend(rates(port.receive, port.transmit));
    cells.push(port.drops_per_second.map_or_else(|| "-".into(), scaled));
    cells
}

fn rates(receive: Option<PerSecond>, transmit: Option<PerSecond>) -> [String; 4] {
    let cell = |rate: Option<f64>| rate.map_or_else(|| "-".into(), scaled);
    [
        cell(receive.map(|rate| rate.frames)),
        cell(receive.map(|rate| rate.bits)),
        cell(transmit.map(|rate| rate.frames)),
        cell(transmit.map(|rate| rate.bits)),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::sample::rows;
    use super::super::sample::tests::{TWO, later, sample};
    use super::*;

    #[test]
    fn a_guest_stands_above_its_ports() {
        let expected = "\
guest      state      cpu  memory  connections  restarts  received/s  bit/s  sent/s  bit/s  drops/s
fw         running  25.0%     65M            5         2       1.50k  4.00M       0      0     4.00
  private  tap0                                                1.50k  4.00M       0      0     4.00
  public                                                           0      0       0      0        0
";
        assert_eq!(table(&rows(&[sample("fw")], &[later("fw")], TWO)), expected);
    }

    #[test]
    fn a_screen_is_no_larger_than_the_terminal() {
        let mut guests = rows(&[sample("fw")], &[later("fw")], TWO);
        guests[0].name = "\x1b[2J".repeat(9);
        for (lines, columns) in [(3, 20), (0, 0), (1, 5), (100, 500)] {
            let size = Size {
                rows: lines,
                columns,
            };
            let screen = screen(&guests, Sort::Cpu, size);
            assert!(screen.split("\r\n").count() <= lines.max(1));
            assert!(
                screen
                    .split("\r\n")
                    .all(|line| line.chars().count() <= columns)
            );
            assert!(!screen.contains('\x1b'));
        }
        let size = Size {
            rows: 9,
            columns: 200,
        };
        let screen = screen(&guests, Sort::Cpu, size);
        assert!(screen.starts_with("q quits; order:  n name  c cpu*  m memory"));
    }
}
