//! What a test's user sees: lines as the stock program prints them, or its JSON.

mod rows;

use crate::System;
use crate::count::{Count, Flow};
use crate::measure::Measurement;
use crate::options::Options;
use crate::protocol::{Cookie, Parameters, Results};
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddr;
use core::time::Duration;
use jiff::fmt::rfc2822::DateTimePrinter;
use rows::{Datagrams, Line, Row, Span, both_ends, sum};
use serde::Serialize;

/// The part of an interval below which the last one is not told of, if nothing has moved in it.
const LAST_SHARE: f64 = 0.1;
/// Rows that are kept for JSON; it has no later ones.
const ROWS_MAX: usize = 16 << 10;

/// Collects what is told of a test.
pub struct Report {
    system: System,
    /// Between two reports.
    pub interval: Option<Duration>,
    json: bool,
    udp: bool,
    intervals: Vec<Interval>,
    kept: usize,
    /// What was counted up to the last report, and when that was.
    before: Vec<Count>,
    reported: f64,
    opened: Duration,
    /// What rows of senders and receivers are marked with, where there are both.
    parts: [&'static str; 2],
}

#[derive(Serialize)]
struct Interval {
    streams: Vec<Row>,
    #[serde(flatten)]
    sums: BTreeMap<&'static str, Row>,
}

#[derive(Serialize)]
struct Host {
    host: String,
    port: u16,
}

impl Host {
    fn of(address: SocketAddr) -> Self {
        Self {
            host: address.ip().to_string(),
            port: address.port(),
        }
    }
}

#[derive(Serialize)]
struct Connected {
    socket: u32,
    local_host: String,
    local_port: u16,
    remote_host: String,
    remote_port: u16,
}

#[derive(Serialize)]
struct Timestamp {
    time: String,
    timesecs: u64,
}

#[derive(Serialize)]
struct TestStart {
    protocol: &'static str,
    num_streams: u64,
    blksize: u64,
    omit: u64,
    duration: u64,
    bytes: u64,
    blocks: u64,
    reverse: u8,
    tos: u8,
    target_bitrate: u64,
    bidir: u8,
}

#[derive(Serialize)]
struct Start {
    connected: Vec<Connected>,
    version: &'static str,
    system_info: &'static str,
    timestamp: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    connecting_to: Option<Host>,
    #[serde(skip_serializing_if = "Option::is_none")]
    accepted_connection: Option<Host>,
    cookie: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp_mss_default: Option<u32>,
    target_bitrate: u64,
    sock_bufsize: u64,
    sndbuf_actual: u64,
    rcvbuf_actual: u64,
    test_start: TestStart,
}

/// Percent of processors; an image does not know its own.
#[derive(Default, Serialize)]
struct Cpu {
    host_total: f64,
    host_user: f64,
    host_system: f64,
    remote_total: f64,
    remote_user: f64,
    remote_system: f64,
}

#[derive(Serialize)]
struct End {
    streams: Vec<BTreeMap<&'static str, Row>>,
    #[serde(flatten)]
    sums: BTreeMap<&'static str, Row>,
    cpu_utilization_percent: Cpu,
    #[serde(skip_serializing_if = "Option::is_none")]
    sender_tcp_congestion: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    receiver_tcp_congestion: Option<String>,
}

#[derive(Serialize)]
struct Document<'a> {
    start: Start,
    intervals: &'a [Interval],
    end: End,
}

/// The control connection, and what was said on it.
pub struct Control {
    /// The peer.
    pub peer: SocketAddr,
    /// What tells the test apart.
    pub cookie: Cookie,
    /// We have opened it.
    pub is_client: bool,
    /// Payload of a full segment there, in bytes; 0 if nobody knows.
    pub segment: u32,
}

impl Report {
    /// Of a test that has not begun.
    pub fn new(system: System, options: &Options, udp: bool) -> Self {
        Self {
            opened: (system.wall)(),
            system,
            interval: options.interval,
            json: options.json,
            udp,
            intervals: Vec::new(),
            kept: 0,
            before: Vec::new(),
            reported: 0.0,
            parts: [""; 2],
        }
    }

    fn line(&self, line: fmt::Arguments<'_>) {
        if !self.json {
            (self.system.print)(line);
        }
    }

    /// Tells who talks to whom.
    pub fn connected(&mut self, control: &Control, flows: &[Rc<Flow>]) {
        match control.is_client {
            true => self.line(format_args!("Connected to {}", control.peer)),
            false => self.line(format_args!("Accepted connection from {}", control.peer)),
        }
        for flow in flows {
            let (id, local, remote) = (flow.id, flow.local, flow.remote);
            self.line(format_args!("[{id:3}] local {local} connected to {remote}"));
        }
        let sends = |sends| flows.iter().any(|flow| flow.sends == sends);
        self.parts = match (sends(true) && sends(false), control.is_client) {
            (false, _) => ["", ""],
            (true, true) => ["[TX-C]", "[RX-C]"],
            (true, false) => ["[TX-S]", "[RX-S]"],
        };
        self.header(match (self.udp, sends(true)) {
            (true, true) => "Total Datagrams",
            (true, false) => "Jitter    Lost/Total Datagrams",
            (false, true) => "Retr  Cwnd",
            (false, false) => "",
        });
    }

    fn header(&self, last: &str) {
        let part = match self.parts {
            ["", _] => "",
            _ => "[Role]",
        };
        let gap = if last.is_empty() { "" } else { "         " };
        self.line(format_args!(
            "[ ID]{part} Interval           Transfer     Bitrate{gap}{last}"
        ));
    }

    /// Data flows from now on.
    pub fn begin(&mut self) {
        self.before.clear();
        self.reported = 0.0;
    }

    /// Tells what has moved since the last time; `passed` since the beginning.
    pub fn interval(&mut self, flows: &[Rc<Flow>], passed: Duration, omitted: bool) {
        let span = Span {
            start: self.reported,
            end: passed.as_secs_f64(),
        };
        let udp = self.udp;
        self.before.resize(flows.len(), Count::default());
        let row = |(flow, before): (&Rc<Flow>, &mut Count)| {
            let count = flow.count.get();
            let moved = count.since(before);
            *before = count;
            let datagrams = udp.then(|| match flow.sends {
                true => Datagrams::sent(&moved),
                false => Datagrams::received(&moved),
            });
            let row = Row::new(span, moved.bytes, datagrams, flow.sends);
            let moment = flow.inside.get().moment();
            Row {
                retransmits: moment.map(|_| moved.sent_again),
                moment,
                omitted: Some(omitted),
                ..row.of(flow.id)
            }
        };
        let streams: Vec<Row> = flows.iter().zip(&mut self.before).map(row).collect();
        let names = ["sum", "sum_bidir_reverse"];
        let first = streams.first().is_some_and(|row| row.sender);
        let mut sums = BTreeMap::new();
        for (name, sends) in names.into_iter().zip([first, !first]) {
            let rows = streams.iter().filter(|row| row.sender == sends);
            if let Some(sum) = sum(rows) {
                sums.insert(name, sum);
            }
        }
        let is_short = interval_share(self.interval, span) < LAST_SHARE;
        if is_short && streams.iter().all(|row| row.bytes == 0) {
            return;
        }
        self.reported = span.end;
        let note = if omitted { "(omitted)" } else { "" };
        self.lines(&streams, sums.values(), note);
        if self.json && self.kept + streams.len() <= ROWS_MAX {
            self.kept += streams.len();
            self.intervals.push(Interval { streams, sums });
        }
    }

    fn lines<'a>(&self, streams: &[Row], sums: impl Iterator<Item = &'a Row>, note: &str) {
        for row in streams {
            self.line(format_args!("{}{note}", self.of(row)));
        }
        // One stream's sum says nothing more.
        let several = |sends| streams.iter().filter(|row| row.sender == sends).count() > 1;
        for sum in sums.filter(|sum| several(sum.sender)) {
            self.line(format_args!("{}{note}", self.of(sum)));
        }
    }

    fn of<'a>(&self, row: &'a Row) -> Line<'a> {
        let [sends, receives] = self.parts;
        Line(row, if row.sender { sends } else { receives })
    }

    /// Tells of a test that is over, with what the peer has counted.
    pub fn end(&self, control: &Control, measurement: &Measurement, theirs: &Results) {
        let (test, flows) = (&measurement.test.parameters, &measurement.flows);
        let seconds = measurement.seconds();
        let both = |flow: &Rc<Flow>| both_ends(flow, test.udp, seconds, theirs);
        let ends: Vec<(Row, Row)> = flows.iter().map(both).collect();
        if !self.json {
            self.line(format_args!(
                "- - - - - - - - - - - - - - - - - - - - - - - - -"
            ));
            self.header(match self.udp {
                true => "Jitter    Lost/Total Datagrams",
                false => "Retr",
            });
            let sent: Vec<Row> = ends.iter().map(|(sent, _)| sent.clone()).collect();
            let received: Vec<Row> = ends.iter().map(|(_, received)| received.clone()).collect();
            for (rows, note) in [(sent, "sender"), (received, "receiver")] {
                let sums: Vec<Row> = [true, false]
                    .into_iter()
                    .filter_map(|sends| sum(rows.iter().filter(|row| row.sender == sends)))
                    .collect();
                self.lines(&rows, sums.iter(), note);
            }
            return;
        }
        let document = Document {
            start: self.start(control, test, flows),
            intervals: &self.intervals,
            end: end(test, &ends, theirs),
        };
        if let Ok(text) = serde_json::to_string(&document) {
            (self.system.print)(format_args!("{text}"));
        }
    }

    fn start(&self, control: &Control, test: &Parameters, flows: &[Rc<Flow>]) -> Start {
        let connected = |flow: &Rc<Flow>| Connected {
            socket: flow.id,
            local_host: flow.local.ip().to_string(),
            local_port: flow.local.port(),
            remote_host: flow.remote.ip().to_string(),
            remote_port: flow.remote.port(),
        };
        let opened = self.opened.as_secs();
        let text = String::from_utf8_lossy(&control.cookie);
        let rate = test.bandwidth.unwrap_or(0);
        Start {
            connected: flows.iter().map(connected).collect(),
            version: concat!("outboard ", env!("CARGO_PKG_VERSION")),
            system_info: "outboard",
            timestamp: Timestamp {
                time: date(opened),
                timesecs: opened,
            },
            connecting_to: control.is_client.then(|| Host::of(control.peer)),
            accepted_connection: (!control.is_client).then(|| Host::of(control.peer)),
            cookie: text.trim_end_matches('\0').into(),
            tcp_mss_default: Some(control.segment).filter(|_| !test.udp),
            target_bitrate: rate,
            sock_bufsize: 0,
            sndbuf_actual: 0,
            rcvbuf_actual: 0,
            test_start: TestStart {
                protocol: if test.udp { "UDP" } else { "TCP" },
                num_streams: test.parallel,
                blksize: test.block(),
                omit: test.omit,
                duration: test.time,
                bytes: test.num,
                blocks: test.blockcount,
                reverse: u8::from(test.reverse),
                tos: 0,
                target_bitrate: rate,
                bidir: u8::from(test.bidirectional),
            },
        }
    }
}

/// How much of an interval this is.
fn interval_share(interval: Option<Duration>, span: Span) -> f64 {
    let whole = interval.map_or(f64::INFINITY, |whole| whole.as_secs_f64());
    (span.end - span.start) / whole
}

/// The part `end` of the document.
fn end(test: &Parameters, ends: &[(Row, Row)], theirs: &Results) -> End {
    let streams = ends.iter().map(|(sent, received)| {
        if test.udp {
            // One row: the receiver's, with what the sender has sent.
            let row = Row {
                sender: sent.sender,
                ..received.clone()
            };
            BTreeMap::from([("udp", row)])
        } else {
            BTreeMap::from([("sender", sent.clone()), ("receiver", received.clone())])
        }
    });
    let mut sums = BTreeMap::new();
    let first = ends.first().is_some_and(|(sent, _)| sent.sender);
    let names = [
        ["sum", "sum_sent", "sum_received"],
        [
            "sum_bidir_reverse",
            "sum_sent_bidir_reverse",
            "sum_received_bidir_reverse",
        ],
    ];
    for ([all, sent, received], sends) in names.into_iter().zip([first, !first]) {
        let rows = || ends.iter().filter(move |(row, _)| row.sender == sends);
        let (Some(sum_sent), Some(sum_received)) = (
            sum(rows().map(|(sent, _)| sent)),
            sum(rows().map(|(_, received)| received)),
        ) else {
            continue;
        };
        if test.udp {
            sums.insert(all, sum_received.clone());
        }
        sums.insert(sent, sum_sent);
        sums.insert(received, sum_received);
    }
    let congestion = (!test.udp).then(|| String::from("cubic"));
    let remote = theirs.congestion_used.clone().filter(|_| !test.udp);
    let (sender, receiver) = match first {
        true => (congestion, remote),
        false => (remote, congestion),
    };
    End {
        streams: streams.collect(),
        sums,
        cpu_utilization_percent: Cpu {
            remote_total: theirs.cpu_util_total,
            remote_user: theirs.cpu_util_user,
            remote_system: theirs.cpu_util_system,
            ..Cpu::default()
        },
        sender_tcp_congestion: sender,
        receiver_tcp_congestion: receiver,
    }
}

/// So many seconds after 1970-01-01 00:00 UTC, as a text; empty beyond the year 9999.
fn date(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok();
    let time = time.and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    let text = time.map(|time| DateTimePrinter::new().timestamp_to_rfc9110_string(&time));
    text.and_then(Result::ok).unwrap_or_default()
}
