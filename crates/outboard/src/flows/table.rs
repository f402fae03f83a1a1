//! Connections for people: as a table, and as lines that follow each other.

use super::flow::{ASSURED, DNAT, SEEN_REPLY, SNAT, protocol_name, state};
use super::talkers::Talker;
use super::watch::Event;
use crate::stats::table::{columns, counted};
use nf::conntrack::{Entry, Name};
use nf::protocol;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

/// A table of connections, in this order.
pub fn render(flows: &[Entry]) -> String {
    let head = [
        "<proto",
        "<state",
        "<",
        "<source",
        "<destination",
        "<source is seen as",
        "<destination is",
        "sent",
        "bytes",
        "received",
        "bytes",
        "mark",
        "expires",
    ];
    let rows: Vec<_> = flows.iter().map(row).collect();
    let mut text = columns(&head, &rows);
    let _ = writeln!(text, "{}", counted(flows.len() as u64, "connection"));
    text
}

fn row(flow: &Entry) -> Vec<String> {
    let Entry { name, reply, .. } = flow;
    let or_dash = |is: bool, text: String| if is { text } else { "-".to_owned() };
    let mut row = vec![
        protocol_name(name.protocol),
        state(flow.class).to_owned(),
        standing(flow.status).to_owned(),
        end(name.protocol, name.source, name.ports[0]),
        end(name.protocol, name.destination, name.ports[1]),
        or_dash(
            flow.status & SNAT != 0,
            end(reply.protocol, reply.destination, reply.ports[1]),
        ),
        or_dash(
            flow.status & DNAT != 0,
            end(reply.protocol, reply.source, reply.ports[0]),
        ),
    ];
    for way in 0..2 {
        row.extend([flow.packets[way], flow.bytes[way]].map(|number| number.to_string()));
    }
    row.extend([flow.mark.to_string(), time(flow.left)]);
    row
}

fn standing(status: u8) -> &'static str {
    match (status & SEEN_REPLY != 0, status & ASSURED != 0) {
        (_, true) => "assured",
        (true, false) => "answered",
        (false, false) => "unreplied",
    }
}

/// An end of a connection: with its port, if its protocol has ports.
fn end(number: u8, address: IpAddr, port: u16) -> String {
    match number {
        protocol::TCP | protocol::UDP => SocketAddr::new(address, port).to_string(),
        _ => address.to_string(),
    }
}

/// Milliseconds, in seconds.
fn time(milliseconds: u32) -> String {
    format!("{}s", milliseconds / 1000)
}

/// An event in one line, in the words of `conntrack -E`.
pub fn line(event: Event, flow: &Entry) -> String {
    let event = format!("[{}]", event.name());
    let mut line = format!("{event:>9} {:<6}", protocol_name(flow.name.protocol));
    let _ = write!(line, " {:>6}", flow.left / 1000);
    if flow.name.protocol == protocol::TCP {
        let _ = write!(line, " {}", state(flow.class).to_uppercase());
    }
    direction(&mut line, flow, &flow.name, 0);
    if flow.status & SEEN_REPLY == 0 {
        line += " [UNREPLIED]";
    }
    direction(&mut line, flow, &flow.reply, 1);
    if flow.status & ASSURED != 0 {
        line += " [ASSURED]";
    }
    if flow.mark != 0 {
        let _ = write!(line, " mark={}", flow.mark);
    }
    if flow.name.vlan != 0 {
        let _ = write!(line, " vlan={}", flow.name.vlan);
    }
    let _ = match [flow.name.zone, flow.reply.zone] {
        [0, 0] => Ok(()),
        [zone, 0] => write!(line, " zone-orig={zone}"),
        [0, zone] => write!(line, " zone-reply={zone}"),
        [zone, _] => write!(line, " zone={zone}"),
    };
    line
}

fn direction(line: &mut String, flow: &Entry, name: &Name, way: usize) {
    let _ = write!(line, " src={} dst={}", name.source, name.destination);
    let [first, second] = name.ports;
    let _ = match name.protocol {
        protocol::TCP | protocol::UDP => write!(line, " sport={first} dport={second}"),
        protocol::ICMP | protocol::ICMPV6 => {
            let [kind, code] = second.to_be_bytes();
            write!(line, " type={kind} code={code} id={first}")
        }
        _ => Ok(()),
    };
    let _ = write!(
        line,
        " packets={} bytes={}",
        flow.packets[way], flow.bytes[way]
    );
}

/// Talkers, in this order.
pub fn talkers(talkers: &[Talker]) -> String {
    let head = [
        "<source",
        "connections",
        "sent",
        "bytes",
        "received",
        "bytes",
    ];
    let row = |talker: &Talker| {
        let mut row = vec![talker.source.to_string()];
        let numbers = [
            talker.flows,
            talker.sent_packets,
            talker.sent_bytes,
            talker.received_packets,
            talker.received_bytes,
        ];
        row.extend(numbers.map(|number| number.to_string()));
        row
    };
    let rows: Vec<_> = talkers.iter().map(row).collect();
    columns(&head, &rows)
}

#[cfg(test)]
mod tests {
    use super::super::flow::tests::{echo6, translated};
    use super::super::talkers::{By, top};
    use super::*;

    #[test]
    fn a_table_says_what_is_translated() {
        let text = render(&[translated(2, 4000), echo6()]);
        let mut lines = text.lines();
        let cells = |line: Option<&str>| -> Vec<String> {
            let cells = line.unwrap_or_default().split_whitespace();
            cells.map(str::to_owned).collect()
        };
        assert!(lines.next().unwrap().starts_with("proto   state"));
        let expected = [
            "tcp",
            "established",
            "assured",
            "10.0.0.2:4000",
            "192.0.2.1:443",
            "192.0.2.9:4001",
            "-",
            "10",
            "1000",
            "8",
            "8000",
            "1",
            "431999s",
        ];
        assert_eq!(cells(lines.next()), expected);
        let echo = cells(lines.next());
        assert_eq!(echo[..3], ["icmpv6", "-", "unreplied"]);
        assert_eq!(lines.next(), Some("2 connections"));
    }

    #[test]
    fn an_event_reads_like_those_of_conntrack() {
        assert_eq!(
            line(Event::New, &translated(2, 4000)),
            "    [NEW] tcp    431999 ESTABLISHED src=10.0.0.2 dst=192.0.2.1 sport=4000 dport=443 \
             packets=10 bytes=1000 src=192.0.2.1 dst=192.0.2.9 sport=443 dport=4001 packets=8 \
             bytes=8000 [ASSURED] mark=1"
        );
        let echo = line(Event::Destroy, &echo6());
        assert!(
            echo.starts_with("[DESTROY] icmpv6     29 src=fdfd:"),
            "{echo}"
        );
        assert!(echo.contains(" type=128 code=0 id=77 packets=1 bytes=104 [UNREPLIED] src="));
        assert!(echo.ends_with(" vlan=5"));
    }

    #[test]
    fn talkers_are_rows() {
        let text = talkers(&top(&[translated(2, 1)], By::Bytes, 5));
        let last = text.lines().last().unwrap().split_whitespace();
        assert_eq!(
            last.collect::<Vec<_>>(),
            ["10.0.0.2", "1", "10", "1000", "8", "8000"]
        );
    }
}
