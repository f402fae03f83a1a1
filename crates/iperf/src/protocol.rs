//! What both ends say to each other on the control connection.

use crate::options::STREAMS_MAX;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use net::dns;
use net::socket::{Error as Broken, Stream};
use net::task::Clock;
use serde::{Deserialize, Serialize};

/// What a client sends first on each connection, and what tells its tests apart: letters, digits
/// and a NUL.
pub type Cookie = [u8; 37];

/// Longest text that is accepted: that of a stock server.
const TEXT_MAX: usize = 64 << 10;

/// How long a peer may take for an answer (the stock client's, for UDP).
const PATIENCE: Duration = Duration::from_secs(30);

/// States of a test, as they go over the wire.
pub mod state {
    /// Data flows.
    pub const TEST_START: i8 = 1;
    /// As above; the client has been told so.
    pub const TEST_RUNNING: i8 = 2;
    /// The client has sent all, or received enough.
    pub const TEST_END: i8 = 4;
    /// The client tells what it wants.
    pub const PARAM_EXCHANGE: i8 = 9;
    /// The client opens its streams.
    pub const CREATE_STREAMS: i8 = 10;
    /// Both tell what they counted.
    pub const EXCHANGE_RESULTS: i8 = 13;
    /// The client prints.
    pub const DISPLAY_RESULTS: i8 = 14;
    /// The server ends.
    pub const SERVER_TERMINATE: i8 = 11;
    /// The client ends.
    pub const CLIENT_TERMINATE: i8 = 12;
    /// It is over.
    pub const IPERF_DONE: i8 = 16;
    /// Another test is going on.
    pub const ACCESS_DENIED: i8 = -1;
    /// Something went wrong; two numbers follow.
    pub const SERVER_ERROR: i8 = -2;
}

/// What a client wants. Fields that are not here do not concern this program.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Parameters {
    /// Over TCP.
    #[serde(skip_serializing_if = "is_false")]
    pub tcp: bool,
    /// Over UDP.
    #[serde(skip_serializing_if = "is_false")]
    pub udp: bool,
    /// Seconds that do not count, before the others.
    #[serde(deserialize_with = "number")]
    pub omit: u64,
    /// Seconds; 0 without a bound.
    #[serde(deserialize_with = "number")]
    pub time: u64,
    /// Bytes; 0 without a bound.
    #[serde(deserialize_with = "number")]
    pub num: u64,
    /// Blocks; 0 without a bound.
    #[serde(deserialize_with = "number")]
    pub blockcount: u64,
    /// Small segments leave at once.
    #[serde(skip_serializing_if = "is_false")]
    pub nodelay: bool,
    /// Streams in each direction.
    #[serde(deserialize_with = "number")]
    pub parallel: u64,
    /// The server sends.
    #[serde(skip_serializing_if = "is_false")]
    pub reverse: bool,
    /// Both send.
    #[serde(skip_serializing_if = "is_false")]
    pub bidirectional: bool,
    /// Bytes of a block or datagram; see [`Self::block`].
    #[serde(deserialize_with = "number")]
    pub len: u64,
    /// Bits in a second, for each stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<u64>,
    /// 1 if datagrams have numbers of 64 bits.
    #[serde(skip_serializing_if = "is_zero", deserialize_with = "number")]
    pub udp_counters_64bit: u64,
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// The stock program writes a large number with an exponent.
fn number<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    Ok(f64::deserialize(from)? as u64)
}

/// As above; and -1 as 2 to the power of 64, less 1.
fn signed<'de, D: serde::Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
    Ok(f64::deserialize(from)? as i64)
}

impl Parameters {
    /// Whether the data of each stream leaves the client, in the order in which it opens them.
    ///
    /// # Errors
    /// If there are too many streams, or none.
    pub fn directions(&self) -> Result<Vec<bool>, Error> {
        if !(1..=STREAMS_MAX).contains(&self.parallel) {
            return Err(Error::Unsupported("no stream, or more than 128"));
        }
        let parallel = self.parallel as usize;
        Ok(match (self.bidirectional, self.reverse) {
            // The client's own streams come first.
            (true, _) => [vec![true; parallel], vec![false; parallel]].concat(),
            (false, reverse) => vec![!reverse; parallel],
        })
    }
}

/// What one end has counted of a stream.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct StreamResults {
    /// Its number: 1, 3, 4, 5, ...
    pub id: u32,
    /// Bytes of data.
    #[serde(deserialize_with = "number")]
    pub bytes: u64,
    /// Segments sent again, or -1 if unknown.
    #[serde(deserialize_with = "signed")]
    pub retransmits: i64,
    /// Of UDP, in seconds.
    pub jitter: f64,
    /// Of UDP: datagrams that are missing.
    #[serde(deserialize_with = "number")]
    pub errors: u64,
    /// Those of them that are not to be counted.
    #[serde(deserialize_with = "number")]
    pub omitted_errors: u64,
    /// Of UDP.
    #[serde(deserialize_with = "number")]
    pub packets: u64,
    /// Those of them that are not to be counted.
    #[serde(deserialize_with = "number")]
    pub omitted_packets: u64,
    /// Seconds.
    pub start_time: f64,
    /// Seconds.
    pub end_time: f64,
}

/// What one end has counted.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Results {
    /// Percent of a processor; an image does not know.
    pub cpu_util_total: f64,
    /// As above.
    pub cpu_util_user: f64,
    /// As above.
    pub cpu_util_system: f64,
    /// 1 if `retransmits` count, 0 if not, -1 if this end does not send.
    #[serde(deserialize_with = "signed")]
    pub sender_has_retransmits: i64,
    /// The congestion control, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion_used: Option<String>,
    /// Each stream's.
    pub streams: Vec<StreamResults>,
}

/// Why a test ends early.
#[derive(Debug)]
pub enum Error {
    /// The server's name has no address, or nobody knows.
    Name(dns::Error),
    /// A connection has failed.
    Broken(Broken),
    /// A connection has ended.
    Ended,
    /// A text cannot be read.
    Text(String),
    /// The peer asks for something that there is not.
    Unsupported(&'static str),
    /// The peer says another thing than the protocol has here.
    State(i8),
    /// The peer says nothing.
    Silent,
    /// No stream moves any more.
    Idle,
}

impl From<Broken> for Error {
    fn from(error: Broken) -> Self {
        Self::Broken(error)
    }
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Name(error) => write!(f, "the server's name: {error}"),
            Self::Broken(error) => error.fmt(f),
            Self::Ended => f.write_str("the peer has closed a connection"),
            Self::Text(why) => write!(f, "the peer's text is no JSON: {why}"),
            Self::Unsupported(what) => write!(f, "the client asks for {what}"),
            Self::State(state::ACCESS_DENIED) => f.write_str("the server runs another test"),
            Self::State(state::SERVER_ERROR) => f.write_str("the server has given up"),
            Self::State(state::SERVER_TERMINATE) => f.write_str("the server has ended"),
            Self::State(state::CLIENT_TERMINATE) => f.write_str("the client has ended"),
            Self::State(other) => write!(f, "the peer says {other}, which does not belong here"),
            Self::Silent => f.write_str("the peer does not answer"),
            Self::Idle => f.write_str("nothing has moved for two minutes"),
        }
    }
}

impl core::error::Error for Error {}

/// Fills `place` from `stream`.
///
/// # Errors
/// If the stream ends before, or fails.
pub async fn read_exact(stream: &mut impl Stream, place: &mut [u8]) -> Result<(), Error> {
    stream.read_exact(place).await?.ok_or(Error::Ended)
}

/// Reads a state.
///
/// # Errors
/// If the stream ends before, or fails.
pub async fn read_state(stream: &mut impl Stream) -> Result<i8, Error> {
    let mut byte = [0];
    read_exact(stream, &mut byte).await?;
    Ok(byte[0] as i8)
}

/// Sends a state.
///
/// # Errors
/// If the stream fails.
pub async fn send_state(stream: &mut impl Stream, state: i8) -> Result<(), Error> {
    Ok(stream.write(&[state as u8]).await?)
}

/// Reads a text: its length in four bytes, and JSON.
///
/// # Errors
/// If it is too long, no JSON, or the stream ends before.
pub async fn read_text<T: for<'a> Deserialize<'a>>(stream: &mut impl Stream) -> Result<T, Error> {
    let mut len = [0; 4];
    read_exact(stream, &mut len).await?;
    let len = u32::from_be_bytes(len) as usize;
    if len > TEXT_MAX {
        return Err(Error::Text(alloc::format!("{len} bytes")));
    }
    let mut text = vec![0; len];
    read_exact(stream, &mut text).await?;
    serde_json::from_slice(&text).map_err(|error| Error::Text(alloc::format!("{error}")))
}

/// Sends a text.
///
/// # Errors
/// If the stream fails.
pub async fn send_text(stream: &mut impl Stream, what: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_vec(what).map_err(|error| Error::Text(alloc::format!("{error}")))?;
    let len = (text.len() as u32).to_be_bytes();
    Ok(stream.write(&[&len, text.as_slice()].concat()).await?)
}

/// What `work` gives, within the time that a peer may take for an answer.
///
/// # Errors
/// [`Error::Silent`], or what it gives.
pub async fn patiently<T>(
    clock: &Clock,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    clock
        .timeout(PATIENCE, work)
        .await
        .unwrap_or(Err(Error::Silent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stock_clients_wishes_are_read() {
        let text = r#"{"tcp":true,"omit":0,"time":10,"num":1.5e+15,"blockcount":0,"parallel":2,
            "bidirectional":true,"len":131072,"pacing_timer":1000,"client_version":"3.12"}"#;
        let parameters: Parameters = serde_json::from_str(text).unwrap();
        assert_eq!(parameters.num, 1_500_000_000_000_000);
        assert_eq!(parameters.directions().unwrap(), [true, true, false, false]);
    }

    #[test]
    fn a_stock_clients_results_are_read() {
        let text = r#"{"cpu_util_total":1,"cpu_util_user":1,"cpu_util_system":1,
            "sender_has_retransmits":18446744073709551615,"streams":[{"id":1,"bytes":7e15,
            "retransmits":18446744073709551615,"jitter":0.5,"errors":1,"packets":2}]}"#;
        let results: Results = serde_json::from_str(text).unwrap();
        let stream = &results.streams[0];
        assert_eq!((stream.bytes, stream.errors), (7_000_000_000_000_000, 1));
    }

    #[test]
    fn hostile_numbers_are_bounded() {
        for text in [
            "{}",
            r#"{"parallel":129}"#,
            r#"{"parallel":-1}"#,
            r#"{"parallel":1e99}"#,
        ] {
            let parameters: Parameters = serde_json::from_str(text).unwrap();
            assert!(parameters.directions().is_err(), "{text}");
        }
        let text = r#"{"udp":true,"len":1e99}"#;
        assert_eq!(
            serde_json::from_str::<Parameters>(text).unwrap().block(),
            65_507
        );
        let text = r#"{"tcp":true,"len":1e9}"#;
        assert_eq!(
            serde_json::from_str::<Parameters>(text).unwrap().block(),
            1 << 20
        );
    }
}
