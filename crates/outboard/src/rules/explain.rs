//! `outboard rules explain`: the way of a frame to its verdict.

use super::trace::{Conversation, Judged, Step, Trace};
use super::{Ports, PortsError};
use crate::frame;
use rule_files::{Failure, Gathered};
use serde::Serialize;
use std::path::PathBuf;
use std::{fmt, io};

/// Longest text of a rule in a table, in characters; JSON has all of it.
const TEXT_CHARACTERS_MAX: usize = 72;

/// `outboard rules explain`.
#[derive(clap::Args)]
#[command(after_help = frame::HELP)]
pub struct Arguments {
    /// The rules, in nft's language; - is standard input
    file: PathBuf,
    /// The frames, which come one after the other; each of them in quotes
    #[arg(required = true, value_name = "FRAME")]
    frames: Vec<String>,
    #[command(flatten)]
    ports: Ports,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Why there is nothing to explain.
#[derive(Debug)]
pub enum Error {
    /// No text.
    Source(rule_files::Error),
    /// No frame.
    Frame(frame::Error),
    /// The frame goes into a port that is none of these.
    Port(String, String),
    /// No names of ports.
    Names(PortsError),
    /// Not two ports.
    Ports,
    /// What was found cannot be printed.
    Print(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source(e) => e.fmt(f),
            Self::Frame(e) => e.fmt(f),
            Self::Port(port, ports) => write!(
                f,
                "the frame goes into port {}, and the ports are {ports}; say otherwise with \
                 --ports=A,B",
                port.escape_debug()
            ),
            Self::Names(e) => e.fmt(f),
            Self::Ports => f.write_str("--ports: a firewall has two ports: --ports=A,B"),
            Self::Print(e) => write!(f, "cannot print: {e}"),
        }
    }
}

impl std::error::Error for Error {}

/// Prints the way to the verdict. False if the text is no rules, which is printed too.
///
/// # Errors
/// There is no text or no frame.
pub fn run(arguments: &Arguments) -> Result<bool, Error> {
    let gathered = match Gathered::read(&arguments.file) {
        Ok(gathered) => gathered,
        Err(Failure::Source(error)) => return Err(Error::Source(error)),
        Err(Failure::Include(said)) => {
            eprintln!("{said}");
            return Ok(false);
        }
    };
    let frames = frame::read_all(&arguments.frames).map_err(Error::Frame)?;
    let ports = arguments.ports.names().map_err(Error::Names)?;
    let ports = <[&str; 2]>::try_from(ports).map_err(|_| Error::Ports)?;
    let mut conversation = match Conversation::new(&gathered.source.text, ports) {
        Ok(conversation) => conversation,
        Err(error) => {
            eprintln!("{}", gathered.whole.render(&error));
            return Ok(false);
        }
    };
    let mut explanations = Vec::new();
    for crafted in frames {
        let from = match &crafted.port {
            None => 0,
            Some(port) => {
                let number = ports.iter().position(|name| name == port);
                number.ok_or_else(|| Error::Port(port.clone(), ports.join(" and ")))?
            }
        };
        explanations.push(Explanation {
            bytes: crafted.bytes.len(),
            from: ports[from].to_owned(),
            to: ports[1 - from].to_owned(),
            trace: conversation.trace(&crafted.bytes, from),
        });
    }
    let text = if arguments.json {
        // One frame is an object, and several are a list.
        let printed = match &*explanations {
            [single] => serde_json::to_string_pretty(single),
            several => serde_json::to_string_pretty(several),
        };
        printed.map_err(|e| Error::Print(e.into()))? + "\n"
    } else {
        let texts: Vec<_> = explanations.iter().map(Explanation::to_string).collect();
        texts.join("\n")
    };
    io::Write::write_all(&mut io::stdout(), text.as_bytes()).map_err(Error::Print)?;
    Ok(true)
}

/// The way of a frame, and where it came in.
#[derive(Debug, Serialize)]
struct Explanation {
    /// Bytes of the frame.
    bytes: usize,
    /// The port that it enters.
    from: String,
    /// The port by which it would leave.
    to: String,
    #[serde(flatten)]
    trace: Trace,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            bytes, from, to, ..
        } = self;
        match &self.trace {
            Trace::Malformed { verdict, reason } => {
                writeln!(f, "frame    {bytes} bytes, from {from} to {to}")?;
                writeln!(f)?;
                writeln!(f, "verdict  {verdict}, in front of all rules")?;
                writeln!(f, "reason   {reason}: {}", reason.meaning())
            }
            Trace::Refused { verdict, reason } => {
                writeln!(f, "frame    {bytes} bytes, from {from} to {to}")?;
                writeln!(f)?;
                writeln!(f, "verdict  {verdict}, in front of all rules")?;
                writeln!(f, "reason   {reason}: {}", reason.meaning())
            }
            Trace::Part { verdict, by } => {
                writeln!(f, "frame    {bytes} bytes, from {from} to {to}")?;
                writeln!(f, "         part of a packet whose first part was judged")?;
                writeln!(f)?;
                writeln!(f, "verdict  {verdict}")?;
                writeln!(f, "rule     {by}")
            }
            Trace::Judged(judged) => {
                writeln!(f, "frame    {}", judged.frame)?;
                writeln!(f, "         {bytes} bytes, from {from} to {to}")?;
                if let Some(connection) = &judged.connection {
                    writeln!(f, "         connection: {connection}")?;
                }
                writeln!(f)?;
                write_path(f, judged)?;
                writeln!(f)?;
                writeln!(f, "verdict  {}", judged.verdict)?;
                writeln!(f, "rule     {}", judged.by)
            }
        }
    }
}

/// The rules as a table: line, chain and text, what came of it, and whether it counts.
fn write_path(f: &mut fmt::Formatter<'_>, judged: &Judged) -> fmt::Result {
    let place = |step: &Step| format!("{:indent$}{}", "", step.rule.chain, indent = 2 * step.depth);
    let rows: Vec<_> = judged
        .steps
        .iter()
        .map(|step| (step, place(step), shortened(&step.rule.text)))
        .collect();
    let width =
        |text: fn(&(&Step, String, String)) -> usize| rows.iter().map(text).max().unwrap_or(0);
    let places = width(|(_, place, _)| place.chars().count());
    let texts = width(|(_, _, text)| text.chars().count());
    for (step, place, text) in &rows {
        let line = step.rule.line;
        write!(f, "{line:>5}  {place:places$}  {text:texts$}  ")?;
        match step.mismatch {
            Some(field) => write!(f, "no match: {field}")?,
            None => f.write_str(step.effect)?,
        }
        if step.counted {
            f.write_str(", counted")?;
        }
        if let Some(prefix) = &step.log {
            write!(f, ", logged as {prefix:?}")?;
        }
        writeln!(f)?;
    }
    Ok(())
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(TEXT_CHARACTERS_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::super::trace::tests::trace;
    use super::*;

    fn explained(words: &str) -> String {
        let explanation = Explanation {
            bytes: 60,
            from: "public".to_owned(),
            to: "private".to_owned(),
            trace: trace(words),
        };
        explanation.to_string()
    }

    #[test]
    fn the_path_is_a_table() {
        let expected = "\
frame    udp 10.0.0.1:9 > 10.0.0.2:53 from 02:00:00:00:00:01 to 02:00:00:00:00:02
         60 bytes, from public to private

    4  f    iifname public counter jump g          jump, counted
    8    g  udp dport 53 return                    return, counted
    5  f    tcp dport 80 log prefix \"web \" accept  no match: meta l4proto
    3  f    policy drop                            drop, counted

verdict  drop
rule     4, line 3 of chain f: policy drop
";
        let found = explained("udp 10.0.0.1:9 > 10.0.0.2:53 in public");
        assert_eq!(found, expected, "{found}");
    }

    #[test]
    fn a_reason_is_a_sentence() {
        let found = explained("0200 in public");
        assert!(
            found.ends_with("reason   runt: it is shorter than an Ethernet header\n"),
            "{found}"
        );
    }

    #[test]
    fn long_rules_are_shortened() {
        assert_eq!(shortened("short"), "short");
        let long = shortened(&"ä".repeat(100));
        assert_eq!(long.chars().count(), TEXT_CHARACTERS_MAX + 3);
    }
}
