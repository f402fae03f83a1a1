//! `outboard rules diff`: what two files of rules have that the other one has not.
//!
//! Rules are compared chain by chain, as they are printed: comments outside of rules, and how a
//! text is laid out, make no difference.

use super::{Ports, list, samples};
use nf::nft::ast::{ChainItem, Item, TableItem};
use nf::nft::{self, Limits};
use rule_files::Gathered;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::io;
use std::path::PathBuf;

/// Rules of two chains that are compared one with the other, at most: so many pairs.
const PAIRS_MAX: usize = 1 << 24;

/// `outboard rules diff`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The rules before: a file, - for standard input, or the name of a running guest
    old: PathBuf,
    /// The rules behind: the same
    new: PathBuf,
    /// Show frames, too, that both judge differently: one for each pair of rules that say so
    #[arg(long, conflicts_with = "json")]
    frames: bool,
    #[command(flatten)]
    ports: Ports,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "what")]
enum Difference {
    /// It is there, and was not.
    Added { text: String },
    /// It was there, and is not.
    Removed { text: String },
    /// It says something else in its place.
    Changed { old: String, new: String },
    /// It stands in another place of its chain.
    Moved { text: String },
}

/// The differences of a chain, or of what stands outside of chains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Part {
    /// `table FAMILY NAME` and `chain NAME`; empty for definitions outside of tables.
    place: String,
    differences: Vec<Difference>,
}

/// Prints the differences. False if there are some, or if one of the files is no rules.
///
/// # Errors
/// There is no such file and no such guest.
pub fn run(arguments: &Arguments) -> Result<bool, list::Error> {
    let mut both = Vec::new();
    for what in [&arguments.old, &arguments.new] {
        let found = list::gather(what)?.and_then(|gathered| Ok((parts(&gathered)?, gathered)));
        match found {
            Ok(found) => both.push(found),
            Err(said) => {
                eprintln!("{said}");
                return Ok(false);
            }
        }
    }
    let [(old, old_file), (new, new_file)] = &both[..] else {
        return Ok(false);
    };
    let found = compare(old, new);
    let mut text = match arguments.json {
        true => {
            let json = serde_json::to_string_pretty(&found);
            json.map_err(|e| list::Error::Print(e.into()))? + "\n"
        }
        false => print(&found),
    };
    if arguments.frames {
        let ports = arguments.ports.names().map_err(list::Error::Names)?;
        let lines = old.iter().chain(new).flat_map(|(_, lines)| lines);
        let lines = lines.map(String::as_str);
        match samples::find([old_file, new_file], lines, &ports) {
            Ok(samples) => text += &samples,
            Err(said) => {
                eprintln!("{said}");
                return Ok(false);
            }
        }
    }
    io::Write::write_all(&mut io::stdout(), text.as_bytes()).map_err(list::Error::Print)?;
    Ok(found.is_empty())
}

/// Lines by their place, in the order of the file.
type Parts = Vec<(String, Vec<String>)>;

/// What a file says, or what is wrong with it.
fn parts(gathered: &Gathered) -> Result<Parts, String> {
    let file = nft::parse(gathered.whole.text(), &Limits::DEFAULT)
        .map_err(|error| gathered.whole.render(&error))?;
    let mut parts: Parts = vec![(String::new(), Vec::new())];
    for item in &file.items {
        let table = match item {
            Item::FlushRuleset(_) => continue,
            Item::Define(define) => {
                parts[0].1.push(define.to_string());
                continue;
            }
            Item::Undefine(name) => {
                parts[0].1.push(format!("undefine {name}"));
                continue;
            }
            Item::Table(table) => table,
        };
        let place = format!("table {} {}", table.family.node.name(), table.name);
        let mut own = Vec::new();
        let mut chains = Vec::new();
        for item in &table.items {
            match item {
                TableItem::Define(define) => own.push(define.to_string()),
                TableItem::Undefine(name) => own.push(format!("undefine {name}")),
                TableItem::Object(object) => own.push(one_line(&object.to_string())),
                TableItem::Flowtable(table) => own.push(one_line(&table.to_string())),
                TableItem::Set(set) => own.push(one_line(&set.to_string())),
                TableItem::Map(map) => own.push(one_line(&map.to_string())),
                TableItem::Chain(chain) => {
                    own.push(format!("chain {}", chain.name));
                    let base = chain.base.iter().map(|base| base.node.to_string());
                    let rules = chain.items.iter().map(|item| match item {
                        ChainItem::Define(define) => define.to_string(),
                        ChainItem::Undefine(name) => format!("undefine {name}"),
                        ChainItem::Rule(rule) => rule.node.to_string(),
                    });
                    let lines = base.chain(rules).collect();
                    chains.push((format!("{place} chain {}", chain.name), lines));
                }
            }
        }
        parts.push((place, own));
        parts.extend(chains);
    }
    Ok(parts)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn compare(old: &Parts, new: &Parts) -> Vec<Part> {
    let by_place: BTreeMap<&str, &[String]> = old
        .iter()
        .map(|(place, lines)| (&**place, &**lines))
        .collect();
    let mut found = Vec::new();
    let mut add = |place: &str, differences: Vec<Difference>| {
        if !differences.is_empty() {
            let place = place.to_owned();
            found.push(Part { place, differences });
        }
    };
    for (place, lines) in new {
        let before = by_place.get(&**place).copied().unwrap_or_default();
        add(place, differences(before, lines));
    }
    for (place, lines) in old {
        if !new.iter().any(|(other, _)| other == place) {
            add(place, differences(lines, &[]));
        }
    }
    found
}

/// What became of lines: those of the longest common part stay.
fn differences(old: &[String], new: &[String]) -> Vec<Difference> {
    let front = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[front..], &new[front..]);
    let back = old.iter().rev().zip(new.iter().rev());
    let back = back.take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[..old.len() - back], &new[..new.len() - back]);
    let kept = common(old, new);
    let moved = moved(old, new, &kept);
    let mut found = Vec::new();
    let (mut from, mut to) = (0, 0);
    for (kept_old, kept_new) in kept.into_iter().chain([(old.len(), new.len())]) {
        gap(&old[from..kept_old], &new[to..kept_new], &moved, &mut found);
        (from, to) = (kept_old + 1, kept_new + 1);
    }
    found
}

/// Lines that do not stay, and stand elsewhere.
fn moved<'a>(
    old: &'a [String],
    new: &'a [String],
    kept: &[(usize, usize)],
) -> BTreeSet<&'a String> {
    let [kept_old, kept_new]: [BTreeSet<usize>; 2] = [
        kept.iter().map(|(old, _)| *old).collect(),
        kept.iter().map(|(_, new)| *new).collect(),
    ];
    let rest = |lines: &'a [String], kept: &BTreeSet<usize>| -> BTreeSet<&'a String> {
        let lines = lines.iter().enumerate();
        let rest = lines.filter(|(number, _)| !kept.contains(number));
        rest.map(|(_, line)| line).collect()
    };
    let removed = rest(old, &kept_old);
    let added = rest(new, &kept_new);
    removed.intersection(&added).copied().collect()
}

/// What stands between two lines that stay: of as many old ones as new ones, each has changed.
fn gap(old: &[String], new: &[String], moved: &BTreeSet<&String>, found: &mut Vec<Difference>) {
    let moves = |line: &&String| moved.contains(*line);
    let here = new.iter().filter(moves).cloned();
    found.extend(here.map(|text| Difference::Moved { text }));
    let old: Vec<String> = old.iter().filter(|line| !moves(line)).cloned().collect();
    let new: Vec<String> = new.iter().filter(|line| !moves(line)).cloned().collect();
    if old.len() == new.len() {
        let pairs = old.into_iter().zip(new);
        found.extend(pairs.map(|(old, new)| Difference::Changed { old, new }));
        return;
    }
    let removed = old.into_iter();
    found.extend(removed.map(|text| Difference::Removed { text }));
    let added = new.into_iter();
    found.extend(added.map(|text| Difference::Added { text }));
}

/// Places of a longest common subsequence; none if that would take too long.
fn common(old: &[String], new: &[String]) -> Vec<(usize, usize)> {
    let width = new.len() + 1;
    if old.len().saturating_mul(new.len()) > PAIRS_MAX {
        return Vec::new();
    }
    let mut lengths = vec![0u32; (old.len() + 1) * width];
    for (i, a) in old.iter().enumerate().rev() {
        for (j, b) in new.iter().enumerate().rev() {
            lengths[i * width + j] = match a == b {
                true => lengths[(i + 1) * width + j + 1] + 1,
                false => lengths[(i + 1) * width + j].max(lengths[i * width + j + 1]),
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut kept = Vec::new();
    while i < old.len() && j < new.len() {
        if old[i] == new[j] {
            kept.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if lengths[(i + 1) * width + j] >= lengths[i * width + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    kept
}

fn print(found: &[Part]) -> String {
    let mut text = String::new();
    for Part { place, differences } in found {
        let place = match &**place {
            "" => "outside of tables",
            place => place,
        };
        let _ = writeln!(text, "{place}");
        for difference in differences {
            let _ = match difference {
                Difference::Added { text: line } => writeln!(text, "  + {line}"),
                Difference::Removed { text: line } => writeln!(text, "  - {line}"),
                Difference::Moved { text: line } => writeln!(text, "  > {line}"),
                Difference::Changed { old, new } => {
                    writeln!(text, "  ~ {old}\n    {new}")
                }
            };
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use rule_files::Source;

    fn file(text: &str) -> Parts {
        let source = Source {
            name: "x".to_owned(),
            text: text.to_owned(),
        };
        parts(&source.into()).unwrap()
    }

    fn diff(old: &str, new: &str) -> String {
        print(&compare(&file(old), &file(new)))
    }

    #[test]
    fn rules_are_compared_in_their_chains() {
        let old = "define A = 1
table inet t {
    set s { type inet_service; elements = { 1 }
    }
    chain a {
        type filter hook forward priority 0; policy accept;
        ct state established accept
        tcp dport 22 accept # a comment
        tcp dport 80 accept
        udp dport 53 accept
        drop
    }
    chain gone {
        accept
    }
}
";
        assert_eq!(diff(old, &old.replace("        ", " ")), "");
        let new = old
            .replace("policy accept", "policy drop")
            .replace("define A = 1", "define A = 2")
            .replace("dport 80", "dport { 80, 443 }")
            .replace("        udp dport 53 accept\n", "")
            .replace("elements = { 1 }", "elements = { 1, 2 }")
            .replace(
                "        ct state",
                "        udp dport 53 accept\n        ct state",
            )
            .replace("    chain gone {\n        accept\n    }\n", "")
            .replace("        drop", "        counter\n        drop");
        let expected = "outside of tables
  ~ define A = 1
    define A = 2
table inet t
  ~ set s { type inet_service elements = { 1 } }
    set s { type inet_service elements = { 1, 2 } }
  - chain gone
table inet t chain a
  > udp dport 53 accept
  ~ type filter hook forward priority 0; policy accept;
    type filter hook forward priority 0; policy drop;
  - tcp dport 80 accept
  + tcp dport { 80, 443 } accept
  + counter
table inet t chain gone
  - accept
";
        let found = diff(old, &new);
        assert_eq!(found, expected, "{found}");
    }

    #[test]
    fn a_difference_is_one_of_four() {
        let lines = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let between = |old: &str, new: &str| {
            let found = differences(&lines(old), &lines(new));
            let place = String::new();
            let differences = found;
            print(&[Part { place, differences }]).replace("outside of tables\n", "")
        };
        assert_eq!(between("a b c", "a b c"), "");
        assert_eq!(between("a b c", "a c"), "  - b\n");
        assert_eq!(between("a c", "a b c"), "  + b\n");
        assert_eq!(between("a b c", "a x c"), "  ~ b\n    x\n");
        assert_eq!(between("a b c", "c a b"), "  > c\n");
        assert_eq!(between("a b a", "b a a"), "  > a\n");
    }
}
