//! `outboard rules list`: a file of rules, or those of a running guest, as nft prints them.

use super::elements::{self, Live};
use crate::instance::{self, Instance};
use crate::stats;
use crate::stats::reader::Reader;
use nf::nft::ast::{ChainItem, File, Item, Operand, Rule, Statement, Table, TableItem, VerdictMap};
use nf::nft::{self, Limits};
use rule_files::{Failure, Gathered};
use std::path::{Path, PathBuf};
use std::{fmt, io};

/// `outboard rules list`.
#[derive(clap::Args)]
pub struct Arguments {
    /// A file of rules, - for standard input, or else the name of a running guest
    what: PathBuf,
    /// Show handles: the numbers by which the kernel's nft names tables, chains and rules once it
    /// has loaded the same text into an empty ruleset
    #[arg(short = 'a', long)]
    handle: bool,
}

/// Why there is nothing to list.
#[derive(Debug)]
pub enum Error {
    /// No file.
    Source(rule_files::Error),
    /// No guest.
    Instance(instance::Error),
    /// Its rules cannot be read.
    Stats(stats::Error),
    /// The text of its rules is not known, and why.
    NoSource(String, &'static str),
    /// What is in its sets cannot be listed.
    Elements(Box<elements::Error>),
    /// No names of ports.
    Names(super::PortsError),
    /// It cannot be printed.
    Print(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source(e) => e.fmt(f),
            Self::Instance(e) => e.fmt(f),
            Self::Stats(e) => e.fmt(f),
            Self::NoSource(name, why) => {
                write!(f, "{name}: the text of its rules is not known: {why}")
            }
            Self::Elements(e) => e.fmt(f),
            Self::Names(e) => e.fmt(f),
            Self::Print(e) => write!(f, "cannot print: {e}"),
        }
    }
}

impl std::error::Error for Error {}

/// Prints the rules. False if they are none, which is said on standard error.
///
/// # Errors
/// There is no such file and no such guest.
pub fn run(arguments: &Arguments) -> Result<bool, Error> {
    let gathered = match gather(&arguments.what)? {
        Ok(gathered) => gathered,
        Err(said) => {
            eprintln!("{said}");
            return Ok(false);
        }
    };
    let file = match nft::parse(gathered.whole.text(), &Limits::DEFAULT) {
        Ok(file) => file,
        Err(error) => {
            eprintln!("{}", gathered.whole.render(&error));
            return Ok(false);
        }
    };
    let mut text = file.to_string();
    if !is_file(&arguments.what) {
        let name = arguments.what.display().to_string();
        match Live::of_file(&file, &name) {
            Ok(live) => text = live.map_or(text, |live| live.print(&file)),
            // An older image does not say.
            Err(error) => eprintln!("the elements that rules have added are not known: {error}"),
        }
    }
    if arguments.handle {
        text = with_handles(&file, &text);
    }
    io::Write::write_all(&mut io::stdout(), text.as_bytes()).map_err(Error::Print)?;
    Ok(true)
}

/// The text of a file, or of a guest's rules; or what is wrong with what it includes.
pub(super) fn gather(what: &Path) -> Result<Result<Gathered, String>, Error> {
    if is_file(what) {
        return match Gathered::read(what) {
            Ok(gathered) => Ok(Ok(gathered)),
            Err(Failure::Include(said)) => Ok(Err(said)),
            Err(Failure::Source(error)) => Err(Error::Source(error)),
        };
    }
    of_guest(&what.display().to_string()).map(Ok)
}

/// Whether this names a file, or else a guest.
fn is_file(what: &Path) -> bool {
    what == Path::new("-") || what.exists()
}

/// The text of a guest's rules.
pub(super) fn of_guest(name: &str) -> Result<Gathered, Error> {
    let instance = Instance::open(name).map_err(Error::Instance)?;
    let reader = Reader::of(&instance).map_err(Error::Stats)?;
    let text = reader.text().map_err(Error::Stats)?;
    let text = text.map_err(|why| Error::NoSource(name.to_owned(), why))?;
    let name = name.to_owned();
    Ok(rule_files::Source { name, text }.into())
}

/// The file as it is printed, with a number behind each thing that nft numbers.
fn with_handles(file: &File<'_>, text: &str) -> String {
    let mut tables = 0;
    let mut numbers = Vec::new();
    for item in &file.items {
        if let Item::Table(table) = item {
            tables += 1;
            numbers.push(tables);
            handles(table, &mut numbers);
        }
    }
    let mut numbers = numbers.into_iter();
    let mut in_chain = false;
    let mut out = String::new();
    for line in text.lines() {
        out += line;
        let depth = line.bytes().take_while(|byte| *byte == b'\t').count();
        let first = line.trim_start().split([' ', ';']).next();
        let first = first.unwrap_or_default();
        let opens = line.ends_with('{') && !line.contains('=');
        let numbered = match depth {
            0 => first == "table",
            1 if opens => {
                in_chain = first == "chain";
                true
            }
            2 if in_chain => !matches!(
                first,
                "type" | "comment" | "define" | "redefine" | "undefine"
            ),
            _ => false,
        };
        if let (true, Some(number)) = (numbered, numbered.then(|| numbers.next()).flatten()) {
            out += &format!(" # handle {number}");
        }
        out.push('\n');
    }
    out
}

/// The numbers of what is in a table, in the order of the text. The kernel gives them to chains
/// first, then to objects, sets and flowtables, and then to rules, each behind the sets in it.
fn handles(table: &Table<'_>, numbers: &mut Vec<u32>) {
    let mut next = 0;
    let mut take = |count: u32| {
        next += count;
        next
    };
    let kinds: [fn(&TableItem<'_>) -> bool; 4] = [
        |item| matches!(item, TableItem::Chain(_)),
        |item| matches!(item, TableItem::Object(_)),
        |item| matches!(item, TableItem::Set(_) | TableItem::Map(_)),
        |item| matches!(item, TableItem::Flowtable(_)),
    ];
    let mut own = vec![0; table.items.len()];
    for is_of in kinds {
        for (item, number) in table.items.iter().zip(&mut own) {
            if is_of(item) {
                *number = take(1);
            }
        }
    }
    for (item, own) in table.items.iter().zip(own) {
        if own > 0 {
            numbers.push(own);
        }
        if let TableItem::Chain(chain) = item {
            for item in &chain.items {
                if let ChainItem::Rule(rule) = item {
                    numbers.push(take(1 + sets_in(&rule.node)));
                }
            }
        }
    }
}

/// Sets and maps in braces.
fn sets_in(rule: &Rule<'_>) -> u32 {
    let of = |statement: &Statement<'_>| match statement {
        Statement::Match(condition) => matches!(condition.operand, Operand::Set(_)),
        Statement::Masked(masked) => matches!(masked.condition.operand, Operand::Set(_)),
        Statement::Flags(flags) => flags.values.len() > 1,
        Statement::Vmap(vmap) => matches!(vmap.map, VerdictMap::Elements(_)),
        Statement::Nat(nat) => nat.map.is_some(),
        _ => false,
    };
    let statements = rule.statements.iter();
    statements.filter(|statement| of(&statement.node)).count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `nft -a list ruleset` numbers it, which was compared.
    #[test]
    fn handles_are_those_of_the_kernel() {
        let text = "table inet t { # 1
\tset s { # 6
\t\ttype inet_service
\t\telements = { 1, 2 }
\t}
\tchain a { # 1
\t\ttype filter hook forward priority 0
\t\ttcp dport { 80, 443 } accept # 8
\t\ttcp dport @s accept # 9
\t\ttcp dport vmap { 5 : accept } # 11
\t\tct state { new, established } drop # 13
\t\tcounter name \"w\" # 14
\t}
\tcounter w { # 3
\t}
\tquota q { # 4
\t\tover 5 bytes
\t}
\tlimit l { # 5
\t\trate 1/second
\t}
\tchain c { # 2
\t\taccept # 15
\t}
}
table ip u { # 2
\tchain a { # 1
\t\tdrop # 2
\t}
}
";
        let file = nft::parse(text, &Limits::DEFAULT).unwrap();
        let numbers_of = |text: &str, mark: &str| -> Vec<u32> {
            let lines = text.lines().filter_map(|line| line.split_once(mark));
            lines.map(|(_, number)| number.parse().unwrap()).collect()
        };
        let listed = with_handles(&file, &file.to_string());
        let found = numbers_of(&listed, " # handle ");
        assert_eq!(found, numbers_of(text, " # "), "{listed}");
        // What is listed is a file.
        assert_eq!(nft::parse(&listed, &Limits::DEFAULT), Ok(file));
    }
}
