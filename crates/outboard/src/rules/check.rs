//! `outboard rules check`: whether a file is rules, and how large they are.

use super::warnings::{self, Warning};
use super::{Ports, PortsError};
use nf::Loaded;
use nf::nft::ast::{self, Item, TableItem};
use nf::nft::{self, Limits};
use rule_files::{Failure, Gathered};
use serde::Serialize;
use std::path::PathBuf;
use std::{fmt, io};

/// `outboard rules check`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The rules, in nft's language; - is standard input
    file: PathBuf,
    #[command(flatten)]
    ports: Ports,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Why a file cannot be checked.
#[derive(Debug)]
pub enum Error {
    /// No text.
    Source(rule_files::Error),
    /// No ports.
    Ports(PortsError),
    /// What was found cannot be printed.
    Print(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source(e) => e.fmt(f),
            Self::Ports(e) => e.fmt(f),
            Self::Print(e) => write!(f, "cannot print: {e}"),
        }
    }
}

impl std::error::Error for Error {}

/// Prints what the file holds, or on standard error what is wrong with it. False if it is no rules.
///
/// # Errors
/// There is no text.
pub fn run(arguments: &Arguments) -> Result<bool, Error> {
    let gathered = match Gathered::read(&arguments.file) {
        Ok(gathered) => gathered,
        Err(Failure::Source(error)) => return Err(Error::Source(error)),
        Err(Failure::Include(said)) => {
            eprintln!("{said}");
            return Ok(false);
        }
    };
    let source = &gathered.source;
    let checked = check(
        &source.text,
        &arguments.ports.names().map_err(Error::Ports)?,
    );
    if let Err(error) = &checked {
        eprintln!("{}", gathered.whole.render(error));
    }
    let text = match (&checked, arguments.json) {
        (Ok(found), false) => {
            for warning in &found.warnings {
                warning.print(&gathered);
            }
            format!("{}: {found}\n", source.name)
        }
        (Err(_), false) => return Ok(false),
        (_, true) => {
            let outcome = Outcome {
                file: match &checked {
                    Ok(_) => &source.name,
                    Err(error) => &gathered.whole.part(error.span).0.name,
                },
                rules: checked.as_ref().ok(),
                error: checked
                    .as_ref()
                    .err()
                    .map(|error| Mistake::new(error, &gathered)),
            };
            serde_json::to_string_pretty(&outcome).map_err(|e| Error::Print(e.into()))? + "\n"
        }
    };
    io::Write::write_all(&mut io::stdout(), text.as_bytes()).map_err(Error::Print)?;
    Ok(checked.is_ok())
}

/// What a file holds.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Found {
    chains: usize,
    rules: usize,
    /// Named ones.
    sets: usize,
    /// Of sets with and without names, as they are written.
    elements: usize,
    /// Bytes of the compiled rules, which a guest needs twice while it takes new ones.
    memory_bytes: usize,
    warnings: Vec<Warning>,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |number: usize, what: &str| match number {
            1 => format!("1 {what}"),
            _ => format!("{number} {what}s"),
        };
        write!(
            f,
            "{}, {}, {}, {}; {} compiled",
            count(self.chains, "chain"),
            count(self.rules, "rule"),
            count(self.sets, "set"),
            count(self.elements, "element"),
            size(self.memory_bytes)
        )
    }
}

/// Bytes for a person.
fn size(bytes: usize) -> String {
    match bytes {
        0..10_240 => format!("{bytes} bytes"),
        10_240..10_485_760 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

/// Where and why a file is no rules.
#[derive(Debug, Serialize)]
struct Mistake {
    line: usize,
    /// In characters, from 1.
    column: usize,
    message: String,
    help: Option<&'static str>,
}

impl Mistake {
    fn new(error: &nft::Error, gathered: &Gathered) -> Self {
        let (file, span) = gathered.whole.part(error.span);
        let (line, column) = position(&file.text, span);
        Self {
            line,
            column,
            message: error.to_string(),
            help: error.kind.help(),
        }
    }
}

/// Line and column, in characters, from 1.
fn position(text: &str, span: ast::Span) -> (usize, usize) {
    let before = text.get(..span.start as usize).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    (line, before[line_start..].chars().count() + 1)
}

/// What the file says, for programs.
#[derive(Serialize)]
struct Outcome<'a> {
    file: &'a str,
    rules: Option<&'a Found>,
    error: Option<Mistake>,
}

fn check(text: &str, ports: &[&str]) -> Result<Found, nft::Error> {
    let file = nft::parse(text, &Limits::DEFAULT)?;
    let rules = Loaded::load(text, ports, &Limits::DEFAULT)?;
    let items = file.items.iter().filter_map(|item| match item {
        Item::Table(table) => Some(&table.items),
        Item::FlushRuleset(_) | Item::Define(_) | Item::Undefine(_) => None,
    });
    let mut found = Found {
        chains: 0,
        rules: rules.len(),
        sets: 0,
        elements: 0,
        memory_bytes: rules.memory(),
        warnings: warnings::find(&file, text, ports),
    };
    for item in items.flatten() {
        match item {
            TableItem::Define(_)
            | TableItem::Undefine(_)
            | TableItem::Flowtable(_)
            | TableItem::Object(_) => {}
            TableItem::Set(set) => {
                found.sets += 1;
                found.elements += set.elements.len();
            }
            TableItem::Map(map) => {
                found.sets += 1;
                found.elements += map.elements.len();
            }
            TableItem::Chain(chain) => {
                found.chains += 1;
                found.elements += anonymous_elements(chain);
            }
        }
    }
    Ok(found)
}

fn anonymous_elements(chain: &ast::Chain) -> usize {
    let rules = chain.items.iter().filter_map(|item| match item {
        ast::ChainItem::Rule(rule) => Some(&rule.node),
        ast::ChainItem::Define(_) | ast::ChainItem::Undefine(_) => None,
    });
    let statements = rules.flat_map(|rule| &rule.statements);
    let sizes = statements.map(|statement| match &statement.node {
        ast::Statement::Match(ast::Match {
            operand: ast::Operand::Set(set),
            ..
        }) => set.node.len(),
        ast::Statement::Vmap(vmap) => match &vmap.map {
            ast::VerdictMap::Elements(elements) => elements.node.len(),
            ast::VerdictMap::Named(_) => 0,
        },
        ast::Statement::Nat(nat) => nat.map.as_ref().map_or(0, |map| map.elements.len()),
        _ => 0,
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORTS: [&str; 2] = ["private", "public"];
    const RULES: &str = "\
define WEB = { 80, 443 }
table bridge t {
    set s { type ipv4_addr; elements = { 10.0.0.1, 10.0.0.2 } }
    chain f {
        type filter hook forward priority 0; policy drop;
        ip saddr @s tcp dport { 1, 2, 3 } accept
        jump g
    }
    chain g { accept; }
}
";

    #[test]
    fn what_a_file_holds_is_counted() {
        let found = check(RULES, &PORTS).unwrap();
        let counts = (found.chains, found.rules, found.sets, found.elements);
        assert_eq!(counts, (2, 3, 1, 5));
        assert!(found.memory_bytes > 0 && found.warnings.is_empty());
        let text = found.to_string();
        assert!(
            text.starts_with("2 chains, 3 rules, 1 set, 5 elements; "),
            "{text}"
        );
    }

    #[test]
    fn a_mistake_has_line_and_column() {
        let text = RULES.replace("@s", "@no");
        let error = check(&text, &PORTS).unwrap_err();
        let name = "fw.nft".to_owned();
        let mistake = Mistake::new(&error, &rule_files::Source { name, text }.into());
        assert_eq!(mistake.line, 6);
        assert!((18..=19).contains(&mistake.column), "{mistake:?}");
    }

    #[test]
    fn positions_are_of_characters() {
        let at = |start| position("a\nbäc", ast::Span { start, end: start });
        assert_eq!((at(0), at(2), at(5)), ((1, 1), (2, 1), (2, 3)));
        assert_eq!(at(99), (2, 4), "behind the end");
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(size(999), "999 bytes");
        assert_eq!(size(10_240), "10 KiB");
        assert_eq!(size(64 << 20), "64 MiB");
    }
}
