//! `outboard rules element`: what is in the sets that a guest's rules change. They are shown, added
//! and deleted in the words of nft.

use super::list::{self, of_guest};
use crate::inquiry::{self, Inquiry};
use crate::instance::{self, Instance};
use abi::elements::{CHANGES_MAX, Change, KEY_WORDS, Record, set_number};
use abi::inquiry::Subject;
use nf::elements::values;
use nf::fields::Type;
use nf::nft::ast::{ElementPart, File, Item, Set, Statement, Table, TableItem};
use nf::nft::{self, Limits};
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::{fmt, io};
use zerocopy::IntoBytes;

/// `outboard rules element`.
#[derive(clap::Args)]
pub struct Arguments {
    /// What is done: list, add, delete, or flush, which deletes all
    #[arg(value_enum)]
    verb: Verb,
    /// The name under which the guest runs
    instance: String,
    /// The table's family: bridge, inet, ip or ip6
    family: String,
    /// The table
    table: String,
    /// The set
    set: String,
    /// Elements in the words of nft, as in: '{ 10.0.0.1 timeout 30s, 10.0.0.2 }'
    elements: Vec<String>,
}

/// What is done with elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Verb {
    /// Prints the set.
    List,
    /// Adds some; those that are there already get the timeout that is said.
    Add,
    /// Deletes some.
    Delete,
    /// Deletes all.
    Flush,
}

/// Why nothing was done.
#[derive(Debug)]
pub enum Error {
    /// The guest's rules are not known.
    Rules(list::Error),
    /// What they are is not understood.
    Unread(String),
    /// No such guest.
    Instance(instance::Error),
    /// The guest has not answered.
    Inquiry(inquiry::Error),
    /// No such set in the guest's rules.
    NoSet(String),
    /// Rules do not change the set.
    Fixed(String),
    /// Elements that are none of the set's, and why.
    Elements(String),
    /// Elements are missing, or are there in vain.
    Arguments(&'static str),
    /// It cannot be printed.
    Print(io::Error),
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rules(e) => e.fmt(f),
            Self::Unread(said) | Self::Elements(said) => f.write_str(said),
            Self::Instance(e) => e.fmt(f),
            Self::Inquiry(e) => e.fmt(f),
            Self::NoSet(name) => write!(f, "the rules have no set {name}"),
            Self::Fixed(name) => write!(
                f,
                "the set {name} does not change: write `flags dynamic` or `flags timeout` into it, \
                 and load the rules"
            ),
            Self::Arguments(what) => f.write_str(what),
            Self::Print(e) => write!(f, "cannot print: {e}"),
        }
    }
}

/// Does what is asked. False if something was not there, or had no room.
///
/// # Errors
/// There is no such guest or set, or no such elements can be.
pub fn run(arguments: &Arguments) -> Result<bool, Error> {
    let gathered = of_guest(&arguments.instance).map_err(Error::Rules)?;
    let file = nft::parse(gathered.whole.text(), &Limits::DEFAULT);
    let file = file.map_err(|error| Error::Unread(gathered.whole.render(&error).to_string()))?;
    let (table, set) = find(&file, arguments)?;
    let text = arguments.elements.join(" ");
    match (arguments.verb, text.is_empty()) {
        (Verb::Add | Verb::Delete, true) => {
            return Err(Error::Arguments(
                "say which elements, as in: '{ 10.0.0.1 }'",
            ));
        }
        (Verb::List | Verb::Flush, false) => {
            return Err(Error::Arguments(
                "list and flush are about all elements: name none",
            ));
        }
        _ => {}
    }
    let instance = Instance::open(&arguments.instance).map_err(Error::Instance)?;
    let name = full_name(table, set);
    // Before anybody is asked: others may not ask meanwhile.
    let changes = match arguments.verb {
        Verb::Add | Verb::Delete => {
            let description = instance.description();
            changes(set, &name, &text, &description.ports())?
        }
        Verb::List | Verb::Flush => Vec::new(),
    };
    let inquiry = Inquiry::begin(&instance).map_err(Error::Inquiry)?;
    match arguments.verb {
        Verb::List => {
            let live = Live::ask(&inquiry, &instance)?;
            let text = live.print_set(&file, table, set);
            io::Write::write_all(&mut io::stdout(), text.as_bytes()).map_err(Error::Print)?;
            Ok(true)
        }
        Verb::Add => change(&inquiry, Subject::ElementsAdd, &changes),
        Verb::Delete => change(&inquiry, Subject::ElementsDelete, &changes),
        Verb::Flush => {
            let live = Live::ask(&inquiry, &instance)?;
            let own = live.of(&name).map(|record| Change {
                set: record.set,
                key: record.key,
                timeout: 0,
            });
            change(&inquiry, Subject::ElementsDelete, &own.collect::<Vec<_>>()).map(|_| true)
        }
    }
}

/// The set that is meant, which rules change.
fn find<'f, 'a>(
    file: &'f File<'a>,
    arguments: &Arguments,
) -> Result<(&'f Table<'a>, &'f Set<'a>), Error> {
    let Arguments {
        family, table, set, ..
    } = arguments;
    let name = format!("{family} {table} {set}");
    let mut all = sets(file);
    let found = all.find(|(table, set)| full_name(table, set) == name);
    let (table, set) = found.ok_or_else(|| Error::NoSet(name.clone()))?;
    match changes_at_work(set) {
        true => Ok((table, set)),
        false => Err(Error::Fixed(name)),
    }
}

/// All sets of a file.
fn sets<'f, 'a>(file: &'f File<'a>) -> impl Iterator<Item = (&'f Table<'a>, &'f Set<'a>)> {
    let tables = file.items.iter().filter_map(|item| match item {
        Item::Table(table) => Some(table),
        _ => None,
    });
    tables.flat_map(|table| {
        table.items.iter().filter_map(move |item| match item {
            TableItem::Set(set) => Some((table, set)),
            _ => None,
        })
    })
}

/// Whether rules change a set.
fn changes_at_work(set: &Set<'_>) -> bool {
    set.dynamic || set.timeouts || set.timeout.is_some()
}

fn full_name(table: &Table<'_>, set: &Set<'_>) -> String {
    format!("{} {} {}", table.family.node.name(), table.name, set.name)
}

/// What the elements in this text are, which stands in braces.
fn changes(set: &Set<'_>, name: &str, text: &str, ports: &[&str]) -> Result<Vec<Change>, Error> {
    let text = text.trim();
    let inner = text
        .strip_prefix('{')
        .and_then(|text| text.strip_suffix('}'));
    let inner = inner.unwrap_or(text);
    if inner.contains(['{', '}', ';', '\n', '"', '@', '$']) {
        return Err(Error::Elements(format!(
            "{inner:?}: write values, and commas between them"
        )));
    }
    let mut changes = Vec::new();
    for element in inner
        .split(',')
        .map(str::trim)
        .filter(|element| !element.is_empty())
    {
        changes.extend(change_of(set, name, element, ports)?);
    }
    match changes.is_empty() {
        true => Err(Error::Elements(format!(
            "{text:?}: there is no element in it"
        ))),
        false => Ok(changes),
    }
}

/// The changes of one of them: as a file says it that has a set of this type with this element.
fn change_of(
    set: &Set<'_>,
    name: &str,
    element: &str,
    ports: &[&str],
) -> Result<Vec<Change>, Error> {
    let (value, timeout) = match element.split_once(" timeout ") {
        Some((value, timeout)) => (value, Some(timeout)),
        None => (element, None),
    };
    if timeout.is_some() && !set.timeouts && set.timeout.is_none() {
        let why = "the set's elements have no timeout: write `flags timeout` into it";
        return Err(Error::Elements(format!("{element}: {why}")));
    }
    let keys = set
        .keys
        .iter()
        .map(|key| key.node.set_name().unwrap_or_default());
    let keys = keys.collect::<Vec<_>>().join(" . ");
    let timeout = timeout
        .map(|timeout| format!("timeout {timeout};"))
        .unwrap_or_default();
    let text = format!(
        "table bridge t {{ set s {{ type {keys}; flags dynamic, timeout; {timeout} elements = {{ \
         {value} }}; }}\nchain c {{ type filter hook forward priority 0; }}\n}}\n"
    );
    let rules = nf::load(&text, ports, &Limits::DEFAULT)
        .map_err(|error| Error::Elements(format!("{element}: {}", error.kind)))?;
    let mut changes = Vec::new();
    let mut from = 0;
    loop {
        from = rules.elements(from, 0, &mut |it| {
            changes.push(Change {
                set: set_number(name),
                key: it.key,
                timeout: it.timeout.unwrap_or(0),
            });
            true
        });
        if from == 0 {
            break;
        }
    }
    match changes.is_empty() {
        // A port that the guest does not have.
        true => Err(Error::Elements(format!(
            "{element}: the guest has no such port; its ports: {}",
            ports.join(", ")
        ))),
        false => Ok(changes),
    }
}

/// Has a guest make these changes; whether it has made all.
fn change(inquiry: &Inquiry<'_>, subject: Subject, changes: &[Change]) -> Result<bool, Error> {
    let mut missed = 0;
    for some in changes.chunks(CHANGES_MAX) {
        let count = some.len() as u64;
        let answer = inquiry.ask_about(subject, count, some.as_bytes());
        // A guest may claim anything.
        missed += count - answer.map_err(Error::Inquiry)?.ended.min(count);
    }
    if missed > 0 {
        let why = match subject {
            Subject::ElementsAdd => "were not added: the set is full, or other rules are loaded",
            _ => "were not there",
        };
        eprintln!("{missed} of {} {why}", changes.len());
    }
    Ok(missed == 0)
}

/// What a guest has in its sets at the moment.
pub(super) struct Live {
    records: Vec<Record>,
    /// Names of its ports.
    ports: Vec<String>,
}

impl Live {
    /// Asks for it, if any set of this file changes.
    pub(super) fn of_file(file: &File<'_>, name: &str) -> Result<Option<Self>, Error> {
        if !sets(file).any(|(_, set)| changes_at_work(set)) {
            return Ok(None);
        }
        let instance = Instance::open(name).map_err(Error::Instance)?;
        let inquiry = Inquiry::begin(&instance).map_err(Error::Inquiry)?;
        Self::ask(&inquiry, &instance).map(Some)
    }

    fn ask(inquiry: &Inquiry<'_>, instance: &Instance) -> Result<Self, Error> {
        let mut records = Vec::new();
        let take = |record: &Record| records.push(*record);
        inquiry
            .list(Subject::Elements, take)
            .map_err(Error::Inquiry)?;
        let description = instance.description();
        let ports = description.ports().into_iter().map(str::to_owned);
        Ok(Self {
            records,
            ports: ports.collect(),
        })
    }

    fn of(&self, name: &str) -> impl Iterator<Item = &Record> {
        let number = set_number(name);
        let records = self.records.iter();
        records.filter(move |record| record.set == number)
    }

    /// The printed file with what is in its sets at the moment, in the place of what they began
    /// with.
    pub(super) fn print(&self, file: &File<'_>) -> String {
        let mut at_work = file.clone();
        for item in &mut at_work.items {
            let Item::Table(table) = item else { continue };
            for item in &mut table.items {
                if let TableItem::Set(set) = item
                    && changes_at_work(set)
                {
                    set.elements = Box::default();
                }
            }
        }
        // All of them: two tables may have sets of one name.
        let mut all = sets(file);
        let mut next = all.next();
        let (mut out, mut inside) = (String::new(), false);
        for line in at_work.to_string().lines() {
            if let Some((table, set)) = next {
                inside |= line == format!("\tset {} {{", set.name);
                if inside && line == "\t}" {
                    if changes_at_work(set) {
                        out += &self.elements(file, table, set);
                    }
                    (inside, next) = (false, all.next());
                }
            }
            out += line;
            out.push('\n');
        }
        out
    }

    /// The same of one set alone, in its table.
    fn print_set(&self, file: &File<'_>, table: &Table<'_>, set: &Set<'_>) -> String {
        let mut own = set.clone();
        own.elements = Box::default();
        let own = own.to_string();
        let head = own.strip_suffix("\t}").unwrap_or(&own);
        let elements = self.elements(file, table, set);
        let family = table.family.node.name();
        format!(
            "table {family} {} {{\n{head}{elements}\t}}\n}}\n",
            table.name
        )
    }

    /// The line of elements of a set; nothing if there are none.
    fn elements(&self, file: &File<'_>, table: &Table<'_>, set: &Set<'_>) -> String {
        let kinds: Vec<Type> = set.keys.iter().map(|key| key.node).collect();
        let parts = parts(file, set);
        let mut shown: Vec<_> = self
            .of(&full_name(table, set))
            .filter_map(|record| Some((values(&kinds, &record.key)?, record)))
            .collect();
        shown.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        let own = u64::from(set.timeout.unwrap_or(0));
        let lines = shown.iter().map(|(values, record)| {
            let values = kinds
                .iter()
                .zip(values)
                .map(|(kind, value)| value_text(*kind, *value, &self.ports));
            let mut line = values.collect::<Vec<_>>().join(" . ");
            for part in parts {
                let _ = match part {
                    ElementPart::Limit(rate) => write!(line, " {rate}"),
                    ElementPart::Counter => {
                        let [packets, bytes] = record.counted;
                        write!(line, " counter packets {packets} bytes {bytes}")
                    }
                    ElementPart::Count(count) => write!(line, " {count}"),
                };
            }
            if record.timeout > 0 && record.timeout != own {
                let _ = write!(line, " timeout {}", time(record.timeout));
            }
            if record.timeout > 0 {
                let _ = write!(line, " expires {}", time(record.left));
            }
            line
        });
        let lines: Vec<_> = lines.collect();
        match lines.is_empty() {
            true => String::new(),
            false => format!("\t\telements = {{ {} }}\n", lines.join(",\n\t\t\t     ")),
        }
    }
}

/// What each element of a set has of its own, as rules say.
fn parts<'f>(file: &'f File<'_>, set: &Set<'_>) -> &'f [ElementPart] {
    let mut found: &[ElementPart] = &[];
    for item in &file.items {
        let Item::Table(table) = item else { continue };
        let here = table.items.iter().any(|item| match item {
            TableItem::Set(other) => core::ptr::eq(other, set),
            _ => false,
        });
        let chains = table.items.iter().filter_map(|item| match item {
            TableItem::Chain(chain) if here => Some(chain),
            _ => None,
        });
        for rule in chains.flat_map(|chain| &chain.items) {
            let nft::ast::ChainItem::Rule(rule) = rule else {
                continue;
            };
            for statement in &rule.node.statements {
                if let Statement::Change(change) = &statement.node
                    && change.set.node == set.name.node
                    && !change.parts.is_empty()
                {
                    found = &change.parts;
                }
            }
        }
    }
    found
}

/// A value as nft prints it in a set, of a guest with these ports.
fn value_text(kind: Type, value: u128, ports: &[String]) -> String {
    let port = usize::try_from(value).ok().and_then(|it| ports.get(it));
    let symbol = || {
        let mut symbols = kind.symbols().iter();
        symbols.find(|(_, number)| u128::from(*number) == value)
    };
    match kind {
        Type::Ipv4 => Ipv4Addr::from_bits(value as u32).to_string(),
        Type::Ipv6 => Ipv6Addr::from_bits(value).to_string(),
        Type::EtherAddress => {
            let bytes = &value.to_be_bytes()[10..];
            let bytes: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            bytes.join(":")
        }
        Type::Mark => format!("{value:#010x}"),
        Type::Service => value.to_string(),
        Type::InterfaceName => port.map_or_else(|| value.to_string(), |name| format!("{name:?}")),
        _ => symbol().map_or_else(|| value.to_string(), |(name, _)| (*name).to_owned()),
    }
}

/// Milliseconds, as nft prints a time.
fn time(milliseconds: u64) -> String {
    let mut rest = milliseconds;
    let mut text = String::new();
    for (unit, length) in [
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1000),
        ("ms", 1),
    ] {
        if rest >= length {
            let _ = write!(text, "{}{unit}", rest / length);
            rest %= length;
        }
    }
    match text.is_empty() {
        true => "0s".to_owned(),
        false => text,
    }
}

const _: () = assert!(KEY_WORDS == 16);

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "table inet t {
\tset a {
\t\ttype ipv4_addr
\t\tsize 65535
\t\tflags dynamic, timeout
\t\ttimeout 1m
\t\telements = { 10.0.0.1 }
\t}
\tset fixed {
\t\ttype inet_service
\t\telements = { 80 }
\t}
\tset c {
\t\ttype inet_proto . inet_service
\t\tflags dynamic
\t}
\tchain o {
\t\ttype filter hook output priority filter; policy accept;
\t\tupdate @a { ip daddr limit rate over 5/minute counter }
\t\tadd @c { ip protocol . tcp dport }
\t}
}
";

    fn key(words: &[u32]) -> [u32; KEY_WORDS] {
        let mut key = [0; KEY_WORDS];
        key[..words.len()].copy_from_slice(words);
        key
    }

    fn record(set: &str, words: &[u32], timeout: u64, left: u64) -> Record {
        Record {
            set: set_number(set),
            key: key(words),
            timeout,
            left,
            counted: [3, 252],
        }
    }

    /// As nft 1.0.6 prints the same; but one to a line.
    #[test]
    fn elements_are_listed_as_nft_lists_them() {
        let file = nft::parse(TEXT, &Limits::DEFAULT).unwrap();
        let records = vec![
            record("inet t a", &[0x7f00_0001], 60_000, 59_956),
            record("inet t a", &[0x0a00_0001], 99_000, 98_988),
            record("inet t c", &[6, 80], 0, 0),
            record("inet t c", &[1, 2048], 0, 0),
            // What no rules can have left.
            record("inet t c", &[256, 80], 0, 0),
            record("inet t d", &[1], 0, 0),
        ];
        let ports = vec!["private".to_owned(), "public".to_owned()];
        assert_eq!(value_text(Type::InterfaceName, 1, &ports), "\"public\"");
        assert_eq!(value_text(Type::InterfaceName, 2, &ports), "2");
        let live = Live { records, ports };
        let text = live.print(&file);
        let limit = "limit rate over 5/minute counter packets 3 bytes 252";
        let expected = format!(
            "\t\telements = {{ 10.0.0.1 {limit} timeout 1m39s expires 1m38s988ms,\n\
             \t\t\t     127.0.0.1 {limit} expires 59s956ms }}\n\t}}\n"
        );
        assert!(text.contains(&expected), "{text}");
        let expected =
            "\t\tflags dynamic\n\t\telements = { icmp . 2048,\n\t\t\t     tcp . 80 }\n\t}\n";
        assert!(text.contains(expected), "{text}");
        assert_eq!(text.matches("elements").count(), 3, "{text}");
        let (table, set) = sets(&file).nth(2).unwrap();
        let text = live.print_set(&file, table, set);
        assert!(text.starts_with("table inet t {\n\tset c {\n"), "{text}");
        assert!(text.ends_with("tcp . 80 }\n\t}\n}\n"), "{text}");
    }

    #[test]
    fn elements_are_named_in_the_words_of_nft() {
        let file = nft::parse(TEXT, &Limits::DEFAULT).unwrap();
        let sets: Vec<_> = sets(&file).map(|(_, set)| set).collect();
        let named = |set: usize, text| {
            let changes = changes(sets[set], "inet t a", text, &["public"])
                .map_err(|error| error.to_string())?;
            let short = changes
                .iter()
                .map(|change| (change.key[..2].to_vec(), change.timeout));
            Ok::<_, String>(short.collect::<Vec<_>>())
        };
        let expected = vec![(vec![0x0a00_0001, 0], 30_000), (vec![0x0a00_0002, 0], 0)];
        assert_eq!(named(0, "{ 10.0.0.1 timeout 30s, 10.0.0.2 }"), Ok(expected));
        assert_eq!(named(2, "tcp . 443"), Ok(vec![(vec![6, 443], 0)]));
        for (set, text) in [
            (0, "{ }"),
            (0, "{ 10.0.0.256 }"),
            (0, "{ 10.0.0.0/8 }"),
            (0, "{ 10.0.0.1 timeout soon }"),
            (0, "{ 10.0.0.1 }; }"),
            (2, "{ tcp . 80 timeout 1s }"),
            (2, "{ tcp }"),
        ] {
            assert!(named(set, text).is_err(), "{text}");
        }
    }
}
