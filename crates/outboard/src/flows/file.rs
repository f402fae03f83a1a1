//! Connections in a file: JSON, one in a line, behind a line that says what it is.

use super::flow::{Line, NoFlow};
use nf::conntrack::Entry;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;

/// Version of the file; it goes up when a field goes or changes its meaning.
const VERSION: u32 = 1;
/// Longest file that is read, in bytes: about two million connections.
const BYTES_MAX: u64 = 1 << 30;
/// Longest line, in bytes.
const LINE_BYTES_MAX: u64 = 4096;
/// The name that stands for standard output.
const STDOUT: &str = "-";

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    /// [`VERSION`].
    outboard_flows: u32,
    /// The guest that had them.
    name: String,
    /// When, in seconds since 1970.
    time: u64,
}

/// Why a file cannot be read.
#[derive(Debug)]
pub enum Error {
    /// What the kernel says.
    Read(io::Error),
    /// The first line is no head of such a file.
    Head(serde_json::Error),
    /// It is of another version.
    Version(u32),
    /// A line, by its number from 1, is no connection.
    Line(usize, serde_json::Error),
    /// The same.
    Flow(usize, NoFlow),
    /// A line, by its number from 1, is too long.
    TooLong(usize),
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(e) => e.fmt(f),
            Self::Head(e) => write!(
                f,
                "line 1 is not what outboard flows --export begins with: {e}"
            ),
            Self::Version(version) => write!(
                f,
                "it is of version {version}, and this program reads version {VERSION}"
            ),
            Self::Line(line, e) => write!(f, "line {line}: {e}"),
            Self::Flow(line, why) => write!(f, "line {line}: {why}"),
            Self::TooLong(line) => {
                write!(f, "line {line} has more than {LINE_BYTES_MAX} bytes")
            }
        }
    }
}

/// The file as text.
fn text(name: &str, time: u64, flows: &[Entry]) -> Result<String, serde_json::Error> {
    let head = Head {
        outboard_flows: VERSION,
        name: name.to_owned(),
        time,
    };
    let mut text = serde_json::to_string(&head)? + "\n";
    for flow in flows {
        // A string takes everything.
        let _ = writeln!(text, "{}", serde_json::to_string(&Line::from(flow))?);
    }
    Ok(text)
}

/// Writes a file, or to standard output if it is called `-`.
///
/// # Errors
/// What the kernel says.
pub fn write(path: &Path, name: &str, time: u64, flows: &[Entry]) -> io::Result<()> {
    let text = text(name, time, flows)?;
    let mut out: Box<dyn Write> = match path.as_os_str() == STDOUT {
        true => Box::new(io::stdout()),
        false => Box::new(BufWriter::new(File::create(path)?)),
    };
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Reads a file: the name of the guest that had these connections, and the connections.
///
/// # Errors
/// It is none, or not all of it.
pub fn read(path: &Path) -> Result<(String, Vec<Entry>), Error> {
    parse(BufReader::new(File::open(path).map_err(Error::Read)?))
}

fn parse(file: impl BufRead) -> Result<(String, Vec<Entry>), Error> {
    let mut file = file.take(BYTES_MAX);
    let mut line = Vec::new();
    let mut next = |number: usize| -> Result<Option<Vec<u8>>, Error> {
        line.clear();
        let mut limited = (&mut file).take(LINE_BYTES_MAX);
        let read = limited.read_until(b'\n', &mut line).map_err(Error::Read)?;
        match read as u64 == LINE_BYTES_MAX && line.last() != Some(&b'\n') {
            true => Err(Error::TooLong(number)),
            false => Ok((read > 0).then(|| line.clone())),
        }
    };
    let head = next(1)?.unwrap_or_default();
    let head: Head = serde_json::from_slice(&head).map_err(Error::Head)?;
    if head.outboard_flows != VERSION {
        return Err(Error::Version(head.outboard_flows));
    }
    let mut flows = Vec::new();
    for number in 2.. {
        let Some(line) = next(number)? else { break };
        let line: Line = serde_json::from_slice(&line).map_err(|e| Error::Line(number, e))?;
        flows.push(Entry::try_from(line).map_err(|why| Error::Flow(number, why))?);
    }
    Ok((head.name, flows))
}

#[cfg(test)]
mod tests {
    use super::super::flow::tests::{echo6, translated};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_was_written_can_be_read() {
        let flows = [translated(2, 4000), echo6()];
        let text = text("gw", 1_700_000_000, &flows).unwrap();
        let head = r#"{"outboard_flows":1,"name":"gw","time":1700000000}"#;
        assert_eq!(text.lines().next(), Some(head));
        assert_eq!(text.lines().count(), 3);
        let (name, read) = parse(text.as_bytes()).unwrap();
        assert_eq!((name.as_str(), &read[..]), ("gw", &flows[..]));
    }

    #[test]
    fn each_mistake_in_a_file_has_its_place() {
        let says = |text: &str| parse(text.as_bytes()).unwrap_err().to_string();
        let head = "{\"outboard_flows\":1,\"name\":\"gw\",\"time\":0}\n";
        assert!(says("").starts_with("line 1 is not"));
        assert!(says("{}").starts_with("line 1 is not"));
        assert!(says(&head.replace(":1,", ":2,")).contains("version 2"));
        assert!(says(&format!("{head}{{}}\n")).starts_with("line 2: "));
        let good = text("gw", 0, &[echo6()]).unwrap();
        let bad = good.replace("\"class\":\"icmp\"", "\"class\":\"x\"");
        assert_eq!(says(&bad), "line 2: no class is called \"x\"");
        let long = format!("{head}{}", " ".repeat(5000));
        assert_eq!(says(&long), "line 2 has more than 4096 bytes");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_file_or_none(bytes: Vec<u8>, at in 0..400usize, byte: u8) {
            let _ = parse(&bytes[..]);
            let mut near = text("gw", 0, &[translated(2, 1)]).unwrap().into_bytes();
            near[at] = byte;
            let _ = parse(&near[..]);
        }
    }
}
