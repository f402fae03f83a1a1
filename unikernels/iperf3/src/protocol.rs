//! What both ends say to each other on the control connection.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use net::socket::{Error as Broken, Stream};
use serde::{Deserialize, Serialize};

/// What a client sends first on each connection, and what tells its tests apart: letters, digits
/// and a NUL.
pub type Cookie = [u8; 37];

/// Longest text that is accepted: that of a stock server.
const TEXT_MAX: usize = 64 << 10;

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
    /// It is over.
    pub const IPERF_DONE: i8 = 16;
    /// Another test is going on.
    pub const ACCESS_DENIED: i8 = -1;
    /// Something went wrong; two numbers follow.
    pub const SERVER_ERROR: i8 = -2;
}

/// What a client wants. Fields that are not here do not concern this server.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Parameters {
    /// Over UDP.
    pub udp: bool,
    /// Streams.
    pub parallel: Option<u32>,
    /// The server sends.
    pub reverse: bool,
    /// Both send.
    pub bidirectional: bool,
    /// Bytes of a block.
    pub len: Option<u32>,
    /// Small segments leave at once.
    pub nodelay: bool,
}

/// What one end has counted of a stream.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StreamResults {
    /// Its number: 1, 3, 4, 5, ...
    pub id: u32,
    /// Bytes of data.
    pub bytes: u64,
    /// Segments sent again, or -1 if unknown.
    pub retransmits: i64,
    /// Of UDP.
    pub jitter: f64,
    /// Of UDP: datagrams that are missing.
    pub errors: i64,
    /// Of UDP.
    pub packets: i64,
    /// Seconds.
    pub start_time: f64,
    /// Seconds.
    pub end_time: f64,
}

/// What one end has counted.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Results {
    /// Percent of a processor; an image does not know.
    pub cpu_util_total: f64,
    /// As above.
    pub cpu_util_user: f64,
    /// As above.
    pub cpu_util_system: f64,
    /// 1 if `retransmits` count, 0 if not, -1 if this end does not send.
    pub sender_has_retransmits: i64,
    /// Each stream's.
    pub streams: Vec<StreamResults>,
}

/// Why a test ends early.
#[derive(Debug)]
pub enum Error {
    /// A connection has failed.
    Broken(Broken),
    /// A connection has ended.
    Ended,
    /// A text cannot be read.
    Text(String),
    /// The peer asks for something that there is not.
    Unsupported(&'static str),
}

impl From<Broken> for Error {
    fn from(error: Broken) -> Self {
        Self::Broken(error)
    }
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Broken(error) => error.fmt(f),
            Self::Ended => f.write_str("the client has closed the control connection"),
            Self::Text(why) => write!(f, "the client's text is no JSON: {why}"),
            Self::Unsupported(what) => write!(f, "the client asks for {what}"),
        }
    }
}

/// Fills `place` from `stream`.
///
/// # Errors
/// If the stream ends before, or fails.
pub async fn read_exact(stream: &mut impl Stream, place: &mut [u8]) -> Result<(), Error> {
    let mut filled = 0;
    while filled < place.len() {
        match stream.read(&mut place[filled..]).await? {
            0 => return Err(Error::Ended),
            count => filled += count,
        }
    }
    Ok(())
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
    stream.write(&(text.len() as u32).to_be_bytes()).await?;
    Ok(stream.write(&text).await?)
}
