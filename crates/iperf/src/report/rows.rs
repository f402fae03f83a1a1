//! Rows of a report: what a stream, or several, have moved in a time.

use crate::count::{Count, Flow};
use crate::inside::{Extremes, Moment};
use crate::protocol::{Results, StreamResults};
use core::fmt;
use serde::Serialize;

/// A time, in seconds since the beginning.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Span {
    /// Its beginning.
    pub start: f64,
    /// Its end.
    pub end: f64,
}

/// What is told of datagrams.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Datagrams {
    #[serde(skip_serializing_if = "Option::is_none")]
    jitter_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lost_packets: Option<u64>,
    packets: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    lost_percent: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    out_of_order: Option<u64>,
}

impl Datagrams {
    /// What their sender knows.
    pub fn sent(count: &Count) -> Self {
        Self {
            jitter_ms: None,
            lost_packets: None,
            packets: count.packets,
            lost_percent: None,
            out_of_order: None,
        }
    }

    /// What their receiver knows.
    pub fn received(count: &Count) -> Self {
        Self {
            jitter_ms: Some(count.jitter * 1e3),
            lost_packets: Some(count.lost),
            packets: count.packets,
            lost_percent: Some(percent(count.lost, count.packets)),
            out_of_order: None,
        }
    }
}

fn percent(part: u64, all: u64) -> f64 {
    match all {
        0 => 0.0,
        all => 100.0 * part as f64 / all as f64,
    }
}

/// A row.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The stream's number; none of a sum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<u32>,
    /// Its time.
    #[serde(flatten)]
    pub span: Span,
    /// How long that is.
    pub seconds: f64,
    /// What has moved.
    pub bytes: u64,
    /// The mean.
    pub bits_per_second: f64,
    /// Over UDP.
    #[serde(flatten)]
    pub datagrams: Option<Datagrams>,
    /// Of a sender over TCP: segments that were sent again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u64>,
    /// Its TCP at the end of this time.
    #[serde(flatten)]
    pub moment: Option<Moment>,
    /// Its TCP in all this time.
    #[serde(flatten)]
    pub extremes: Option<Extremes>,
    /// It does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub omitted: Option<bool>,
    /// This end sends.
    pub sender: bool,
}

impl Row {
    /// So many bytes in this time.
    pub fn new(span: Span, bytes: u64, datagrams: Option<Datagrams>, sender: bool) -> Self {
        let seconds = span.end - span.start;
        Self {
            socket: None,
            span,
            seconds,
            bytes,
            bits_per_second: match seconds > 0.0 {
                true => bytes as f64 * 8.0 / seconds,
                false => 0.0,
            },
            datagrams,
            retransmits: None,
            moment: None,
            extremes: None,
            omitted: None,
            sender,
        }
    }

    /// The same of one stream.
    #[must_use]
    pub fn of(self, stream: u32) -> Self {
        let socket = Some(stream);
        Self { socket, ..self }
    }
}

/// The sum of rows of the same time and direction, if there are any. Jitter is the mean.
pub fn sum<'a>(rows: impl Iterator<Item = &'a Row> + Clone) -> Option<Row> {
    let first = rows.clone().next()?;
    let count = rows.clone().count() as f64;
    let bytes = rows.clone().map(|row| row.bytes).sum();
    let all = || rows.clone().filter_map(|row| row.datagrams);
    let datagrams = first.datagrams.map(|first| {
        let packets = all().map(|row| row.packets).sum();
        let lost = first
            .lost_packets
            .map(|_| all().filter_map(|row| row.lost_packets).sum());
        let jitter: f64 = all().filter_map(|row| row.jitter_ms).sum();
        Datagrams {
            jitter_ms: first.jitter_ms.map(|_| jitter / count),
            lost_packets: lost,
            packets,
            lost_percent: lost.map(|lost| percent(lost, packets)),
            out_of_order: None,
        }
    });
    let retransmits = rows.clone().filter_map(|row| row.retransmits);
    Some(Row {
        omitted: first.omitted,
        retransmits: first.retransmits.map(|_| retransmits.sum()),
        ..Row::new(first.span, bytes, datagrams, first.sender)
    })
}

/// A stream's row as its sender has counted, and as its receiver has.
pub fn both_ends(flow: &Flow, udp: bool, seconds: f64, theirs: &Results) -> (Row, Row) {
    let nothing = StreamResults::default();
    let has_retransmits = theirs.sender_has_retransmits > 0;
    let theirs = theirs.streams.iter().find(|stream| stream.id == flow.id);
    let theirs = theirs.unwrap_or(&nothing);
    let our_count = flow.count.get().net();
    let their_count = Count {
        bytes: theirs.bytes,
        packets: theirs.packets.saturating_sub(theirs.omitted_packets),
        lost: theirs.errors.saturating_sub(theirs.omitted_errors),
        jitter: theirs.jitter,
        sent_again: theirs.retransmits.try_into().unwrap_or(0),
        ..Count::default()
    };
    let (ours, their) = (seconds, theirs.end_time - theirs.start_time);
    let (sent, received) = match flow.sends {
        true => ((our_count, ours), (their_count, their)),
        false => ((their_count, their), (our_count, ours)),
    };
    let is_known = match flow.sends {
        true => flow.inside.get().last.is_some(),
        false => theirs.retransmits >= 0 && has_retransmits,
    };
    let row = |(count, end): (Count, f64), is_receiver: bool| {
        // What nobody knows of a sender's datagrams is 0.
        let count = match is_receiver {
            true => count,
            false => Count {
                lost: 0,
                jitter: 0.0,
                ..count
            },
        };
        let datagrams = udp.then(|| Datagrams {
            out_of_order: Some(count.out_of_order),
            ..Datagrams::received(&count)
        });
        let tells = !udp && !is_receiver && is_known;
        Row {
            retransmits: tells.then_some(count.sent_again),
            extremes: tells.then(|| flow.inside.get().extremes()),
            ..Row::new(Span { start: 0.0, end }, count.bytes, datagrams, flow.sends).of(flow.id)
        }
    };
    (row(sent, false), row(received, true))
}

/// A value with three digits and the prefix of its size.
fn scaled(value: f64, kilo: f64) -> (f64, usize, &'static str) {
    let (mut value, mut prefixes) = (value, ["", "K", "M", "G", "T"].into_iter());
    let mut prefix = prefixes.next().unwrap_or_default();
    for larger in prefixes {
        if value < kilo {
            break;
        }
        (value, prefix) = (value / kilo, larger);
    }
    let digits = match value {
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    (value, digits, prefix)
}

/// A row as a line, behind its part in a test in which both send.
pub struct Line<'a>(pub &'a Row, pub &'static str);

impl Line<'_> {
    /// The columns of TCP, which are as wide where nothing is known.
    fn inside(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.retransmits, &self.0.moment) {
            (None, _) => write!(f, "{:18}", ""),
            (Some(retransmits), None) => write!(f, "  {retransmits:3}{:13}", ""),
            (Some(retransmits), Some(moment)) => {
                let (window, digits, prefix) = scaled(moment.snd_cwnd as f64, 1024.0);
                write!(
                    f,
                    "  {retransmits:3}   {window:4.digits$} {prefix}Bytes       "
                )
            }
        }
    }
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(row, part) = self;
        match row.socket {
            Some(socket) => write!(f, "[{socket:3}]{part}")?,
            None => write!(f, "[SUM]{part}")?,
        }
        let Span { start, end } = row.span;
        let (bytes, bytes_digits, bytes_prefix) = scaled(row.bytes as f64, 1024.0);
        let (rate, rate_digits, rate_prefix) = scaled(row.bits_per_second, 1000.0);
        write!(
            f,
            " {start:6.2}-{end:<6.2} sec  {bytes:4.bytes_digits$} {bytes_prefix}Bytes  \
             {rate:4.rate_digits$} {rate_prefix}bits/sec"
        )?;
        let Some(datagrams) = &row.datagrams else {
            return self.inside(f);
        };
        let packets = datagrams.packets;
        match (datagrams.jitter_ms, datagrams.lost_packets) {
            (Some(jitter), Some(lost)) => {
                let percent = percent(lost, packets);
                write!(f, "  {jitter:.3} ms  {lost}/{packets} ({percent:.2}%)  ")
            }
            _ => write!(f, "  {packets}  "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inside::Inside;
    use alloc::string::ToString;
    use net::report::Report;

    const SECOND: Span = Span {
        start: 0.0,
        end: 1.0,
    };

    #[test]
    fn lines_are_those_of_the_stock_program() {
        let row = Row::new(SECOND, 1_471_026_299, None, true).of(5);
        let line = "[  5]   0.00-1.00   sec  1.37 GBytes  11.8 Gbits/sec                  ";
        assert_eq!(Line(&row, "").to_string(), line);
        let mut inside = Inside::default();
        inside.take(&Report {
            window: 4_452_844,
            ..Report::default()
        });
        let row = Row {
            retransmits: Some(4),
            moment: inside.moment(),
            ..Row::new(SECOND, 276_824_064, None, true).of(5)
        };
        let line =
            "[  5][TX-C]   0.00-1.00   sec   264 MBytes  2.21 Gbits/sec    4   4.25 MBytes       ";
        assert_eq!(Line(&row, "[TX-C]").to_string(), line);
        let mut count = Count::default();
        count.arrived(1000, 4, 0.0);
        let row = Row::new(SECOND, 1000, Some(Datagrams::received(&count)), false);
        let line = "[SUM]   0.00-1.00   sec  1000 Bytes  8.00 Kbits/sec  0.000 ms  3/4 (75.00%)  ";
        assert_eq!(Line(&row, "").to_string(), line);
    }

    #[test]
    fn a_sum_has_all_bytes_and_the_mean_jitter() {
        let row = |jitter| {
            let count = Count {
                bytes: 10,
                packets: 4,
                lost: 1,
                jitter,
                ..Count::default()
            };
            Row::new(
                SECOND,
                count.bytes,
                Some(Datagrams::received(&count)),
                false,
            )
        };
        let rows = [row(0.001), row(0.003)];
        let sum = sum(rows.iter()).unwrap();
        let datagrams = sum.datagrams.unwrap();
        assert_eq!((sum.bytes, datagrams.packets), (20, 8));
        assert_eq!(
            (datagrams.jitter_ms, datagrams.lost_percent),
            (Some(2.0), Some(25.0))
        );
        assert!(super::sum([].iter()).is_none());
    }
}
