//! One frame, from what a person types: words, hexadecimal digits, or a packet of a capture.
//!
//! docs/frames.md is the reference of the words.

mod capture;
mod craft;
mod description;
mod hex;
mod names;
mod summary;
mod words;

use std::fmt;
use std::path::{Path, PathBuf};

pub use capture::Error as CaptureError;
pub use description::{Error as DescriptionError, Reason};
pub use summary::summary;

type MacAddress = [u8; 6];

/// Longest packet that IP has, in bytes.
const PACKET_BYTES_MAX: usize = u16::MAX as usize;
/// Longest frame, in bytes: Ethernet header, VLAN tag, packet.
const FRAME_BYTES_MAX: usize = 18 + PACKET_BYTES_MAX;
/// Longest frame that is crafted: its packet fits IP's length with a VLAN tag and without.
const LENGTH_MAX: usize = 14 + PACKET_BYTES_MAX;
/// Longest text that is read, in bytes: a frame in digits with separators.
const TEXT_BYTES_MAX: usize = 4 * FRAME_BYTES_MAX;

/// How to give a frame, for `--help`.
pub const HELP: &str = "\
A frame is one of
  words       'tcp 10.0.0.1:999 > 10.0.0.2:7070 in private' (quote the >)
  digits      '02:00:00:00:00:01 02:00:00:00:00:02 88cc 0207...'
  a capture   ./FILE#N, packet N of a pcap or pcapng file; #1 without it

  tcp A:P > B:P [flags syn,ack]     udp A:P > B:P
  icmp A > B [type T] [code N]      icmpv6 A > B [type T] [code N]
  ip A > B proto N                  ether type N
  arp who-has A tell B              arp reply A is-at MAC tell B

Behind the words: in PORT, vlan N, len N (bytes of the frame), from MAC, to MAC, and behind IP
fragment first|later. Behind digits and captures: in PORT. See docs/frames.md.";

/// A frame on a command line.
#[derive(clap::Args)]
pub struct Typed {
    /// The frame
    frame: String,
    /// The rest of a frame that was not quoted
    #[arg(hide = true)]
    rest: Vec<String>,
}

impl Typed {
    /// The frame as it was typed.
    ///
    /// # Errors
    /// It is several words of the command line.
    pub fn text(&self) -> Result<&str, Error> {
        match self.rest.is_empty() {
            true => Ok(&self.frame),
            false => Err(Error::Unquoted),
        }
    }
}

/// Frames on a command line, each of them one argument.
///
/// # Errors
/// One of them is no frame.
pub fn read_all(texts: &[String]) -> Result<Vec<Crafted>, Error> {
    let is_word = |text: &String| !text.contains(char::is_whitespace);
    texts
        .iter()
        .map(|text| match read(text) {
            Err(Error::Description(..)) if texts.len() > 1 && texts.iter().all(is_word) => {
                Err(Error::Unquoted)
            }
            frame => frame,
        })
        .collect()
}

/// A frame, and the port into which it goes if that was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crafted {
    /// From the Ethernet header on, without check sequence.
    pub bytes: Vec<u8>,
    /// Name of a port.
    pub port: Option<String>,
    /// Whether a capture names the port, and not who typed the frame.
    pub is_captured: bool,
}

/// Why a text is no frame.
#[derive(Debug)]
pub enum Error {
    /// The shell has taken it apart.
    Unquoted,
    /// It is too long.
    Length,
    /// Something is wrong with its words.
    Description(String, DescriptionError),
    /// A hexadecimal digit stands alone.
    Digits,
    /// More bytes than a frame can have.
    TooLong(usize),
    /// What stands behind `#` is no number.
    Number(String),
    /// There is no such packet in the file.
    Capture(PathBuf, CaptureError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unquoted => f.write_str(
                "quote the frame, as in 'tcp 10.0.0.1:999 > 10.0.0.2:80': without quotes the shell \
                 writes into a file behind >",
            ),
            Self::Length => write!(f, "a frame of more than {TEXT_BYTES_MAX} characters"),
            Self::Description(text, error) => render(f, text, error),
            Self::Digits => f.write_str(
                "a frame's hexadecimal digits come in pairs, with spaces or colons between them",
            ),
            Self::TooLong(size) => {
                write!(
                    f,
                    "a frame of {size} bytes; it has at most {FRAME_BYTES_MAX}"
                )
            }
            Self::Number(text) => write!(
                f,
                "no packet #{}; write FILE#N with a number from 1 on",
                text.escape_debug()
            ),
            Self::Capture(path, error) => write!(
                f,
                "{}: {error} (a frame is words such as 'tcp 10.0.0.1:999 > 10.0.0.2:80', digits, \
                 or FILE#N)",
                path.display().to_string().escape_debug()
            ),
        }
    }
}

impl std::error::Error for Error {}

/// As a compiler says it.
fn render(f: &mut fmt::Formatter<'_>, text: &str, error: &DescriptionError) -> fmt::Result {
    // A control character would move the caret, or the terminal.
    let clean = |part: &str| part.replace(char::is_control, " ");
    let before = clean(&text[..error.at.start]).chars().count();
    let marked = clean(&text[error.at.clone()]).chars().count().max(1);
    writeln!(f, "the frame: {}", error.reason)?;
    writeln!(f, "  |")?;
    writeln!(f, "  | {}", clean(text))?;
    writeln!(f, "  | {}{}", " ".repeat(before), "^".repeat(marked))?;
    write!(f, "  = help: {}", error.reason.help())
}

/// Reads a frame.
///
/// # Errors
/// It is none; see [`Error`].
pub fn read(text: &str) -> Result<Crafted, Error> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(Error::Length);
    }
    if description::is_description(text) {
        let description =
            description::parse(text).map_err(|error| Error::Description(text.to_owned(), error))?;
        return Ok(Crafted {
            bytes: description.craft(),
            port: description.port,
            is_captured: false,
        });
    }
    let (frame, port) = split_port(text);
    if hex::is_hex(frame) {
        let bytes = hex::bytes(frame).ok_or(Error::Digits)?;
        if bytes.len() > FRAME_BYTES_MAX {
            return Err(Error::TooLong(bytes.len()));
        }
        return Ok(Crafted {
            bytes,
            port,
            is_captured: false,
        });
    }
    let (path, number) = split_number(frame)?;
    match capture::read(Path::new(path), number) {
        Ok(captured) => Ok(Crafted {
            bytes: captured.bytes,
            is_captured: port.is_none(),
            port: port.or(captured.interface),
        }),
        Err(CaptureError::Read(_)) if frame.contains(char::is_whitespace) => {
            // More likely words of which not even the first is right.
            let error = DescriptionError::kind(text);
            Err(Error::Description(text.to_owned(), error))
        }
        Err(error) => Err(Error::Capture(path.into(), error)),
    }
}

/// Takes `in PORT` off the end.
fn split_port(text: &str) -> (&str, Option<String>) {
    let text = text.trim();
    let split = text
        .rsplit_once(char::is_whitespace)
        .and_then(|(rest, port)| {
            let frame = rest.trim_end().strip_suffix("in")?;
            Some((frame.strip_suffix(char::is_whitespace)?, port.to_owned()))
        });
    match split {
        Some((frame, port)) => (frame.trim_end(), Some(port)),
        None => (text, None),
    }
}

/// Takes `#N` off the end of a path.
fn split_number(text: &str) -> Result<(&str, u64), Error> {
    match text.rsplit_once('#') {
        None => Ok((text, 1)),
        Some((path, number)) => match number.parse() {
            Ok(number) if number > 0 => Ok((path, number)),
            _ => Err(Error::Number(number.to_owned())),
        },
    }
}

#[cfg(test)]
mod tests;
