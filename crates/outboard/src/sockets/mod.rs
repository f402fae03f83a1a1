//! `outboard sockets`: the connections, listeners and other sockets of a guest that speaks TCP/IP.
//!
//! | module | what |
//! |---|---|
//! | [`ask`] | asks the guest, and waits for its answers |
//! | [`socket`] | what a guest says of one socket, checked |

pub mod ask;
pub mod socket;

use crate::instance::{self, Instance};
use crate::stats::net::Net;
use crate::stats::raw::Raw;
use crate::stats::table::columns;
use crate::{inquiry, stats};
use ask::List;
use serde::Serialize;
use socket::{Kind, Socket};
use std::{fmt, io};

/// Version of the JSON; it goes up when a field goes or changes its meaning.
const VERSION: u32 = 1;

/// `outboard sockets`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The name under which the guest runs
    instance: String,
    /// Print JSON, with more of each connection
    #[arg(long)]
    json: bool,
}

/// Why there is nothing to show.
#[derive(Debug)]
pub enum Error {
    /// No such guest.
    Instance(instance::Error),
    /// The counters cannot be read.
    Stats(stats::Error),
    /// The image has no TCP/IP stack.
    NoStack(String),
    /// The guest has not answered.
    Inquiry(inquiry::Error),
    /// What was read cannot be printed.
    Print(io::Error),
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instance(e) => e.fmt(f),
            Self::Stats(e) => e.fmt(f),
            Self::NoStack(name) => write!(
                f,
                "{name} has no TCP/IP stack; images that are built on the crate service have one, \
                 such as unikernels/echo. What {name} counts shows: outboard stats {name}"
            ),
            Self::Inquiry(e) => e.fmt(f),
            Self::Print(e) => write!(f, "cannot print: {e}"),
        }
    }
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    name: &'a str,
    #[serde(flatten)]
    list: &'a List,
}

/// Shows the sockets of a guest.
///
/// # Errors
/// There is no such guest, it has no stack, or it does not answer.
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    let instance = Instance::open(&arguments.instance).map_err(Error::Instance)?;
    let raw = Raw::read(instance.share()).map_err(Error::Stats)?;
    // One that counts by another table answers all the same.
    if Net::of(&raw.counters) == Ok(None) {
        return Err(Error::NoStack(instance.name().to_owned()));
    }
    let list = ask::ask(&instance).map_err(Error::Inquiry)?;
    let text = match arguments.json {
        true => {
            let (version, name) = (VERSION, instance.name());
            let (list, document) = (&list, |list| Document {
                version,
                name,
                list,
            });
            serde_json::to_string_pretty(&document(list)).map_err(|e| Error::Print(e.into()))?
                + "\n"
        }
        false => render(&list),
    };
    io::Write::write_all(&mut io::stdout(), text.as_bytes()).map_err(Error::Print)
}

/// The list for people: listeners first, as the guest has them.
fn render(list: &List) -> String {
    let head = [
        "<proto", "<state", "recv-q", "send-q", "<local", "<peer", "rtt/ms", "rto/ms", "cwnd",
        "flight", "retrans",
    ];
    let rows: Vec<_> = list.sockets.iter().map(row).collect();
    let mut text = columns(&head, &rows);
    for (count, what) in [
        (list.half_open, "that peers have begun to open"),
        (list.time_wait, "in time_wait"),
    ] {
        if count > 0 {
            let counted = stats::table::counted(count, "connection");
            text += &format!("and {counted} {what}\n");
        }
    }
    text
}

fn row(socket: &Socket) -> Vec<String> {
    let (protocol, state) = match &socket.kind {
        Kind::Listener => ("tcp", "listen"),
        Kind::Connection(connection) => ("tcp", &*connection.state),
        Kind::Datagrams => ("udp", "-"),
    };
    let mut row = vec![
        protocol.to_owned(),
        state.to_owned(),
        socket.receive_queue.to_string(),
        socket.send_queue.to_string(),
        socket.local.to_string(),
        socket
            .remote
            .as_ref()
            .map_or("*".into(), ToString::to_string),
    ];
    let dashes = || std::iter::repeat_n("-".to_owned(), 5);
    match &socket.kind {
        Kind::Connection(connection) => {
            let milliseconds = |us: u32| format!("{:.3}", f64::from(us) / 1000.0);
            let trip = connection.round_trip.filter(|us| *us > 0);
            row.push(trip.map_or("-".into(), milliseconds));
            row.push((connection.timeout / 1000).to_string());
            let numbers = [
                connection.congestion_window,
                connection.in_flight,
                connection.retransmits,
            ];
            row.extend(numbers.map(|number| number.to_string()));
        }
        Kind::Listener | Kind::Datagrams => row.extend(dashes()),
    }
    row
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use abi::sockets::Record;

    /// An established connection of an echo, as its guest tells it.
    pub fn connection() -> Record {
        Record {
            kind: abi::sockets::Kind::Connection as u8,
            state: net::tcp::State::Established as u8,
            local_port: 7,
            remote_port: 40,
            local: std::net::Ipv4Addr::new(10, 0, 0, 2)
                .to_ipv6_mapped()
                .octets(),
            remote: std::net::Ipv4Addr::new(10, 0, 0, 1)
                .to_ipv6_mapped()
                .octets(),
            receive_queue: 5,
            round_trip: 210,
            timeout: 200_000,
            window: 14_480,
            sent_again: 1,
            ..Record::default()
        }
    }

    #[test]
    fn a_list_for_people() {
        let listener = Record {
            kind: abi::sockets::Kind::Listener as u8,
            local_port: 7,
            send_queue: 128,
            ..Record::default()
        };
        let datagrams = Record {
            kind: abi::sockets::Kind::Datagrams as u8,
            ..listener
        };
        let records = [listener, datagrams, connection()];
        let list = List {
            sockets: records.iter().filter_map(Socket::of).collect(),
            half_open: 1,
            time_wait: 0,
        };
        let expected = "\
proto  state        recv-q  send-q  local       peer         rtt/ms  rto/ms   cwnd  flight  retrans
tcp    listen            0     128  *:7         *                 -       -      -       -        -
udp    -                 0     128  *:7         *                 -       -      -       -        -
tcp    established       5       0  10.0.0.2:7  10.0.0.1:40   0.210     200  14480       0        1
and 1 connection that peers have begun to open
";
        assert_eq!(render(&list), expected);
    }

    #[test]
    fn an_image_without_a_stack_is_told_what_to_do() {
        let says = Error::NoStack("fw".into()).to_string();
        assert!(says.contains("outboard stats fw") && says.contains("service"));
    }
}
