//! Rules without what Outboard refuses. What is refused stays as a comment, with the reason.

use super::{Left, Line};
use nf::Loaded;
use nf::nft::Limits;
use std::fmt::Write;

/// Words that begin what a table holds besides chains.
const BLOCKS: [&str; 10] = [
    "chain",
    "set",
    "map",
    "flowtable",
    "counter",
    "quota",
    "limit",
    "ct",
    "synproxy",
    "table",
];

/// The lines of what `nft list ruleset` prints. Its counters have counted, and begin anew here.
pub fn lines_of(text: &str) -> Vec<Line> {
    let lines = text.lines().enumerate();
    lines
        .map(|(number, line)| Line {
            text: without_used(&without_counts(line)),
            from: number + 1,
        })
        .collect()
}

/// A line without `packets N bytes M` behind its counters.
fn without_counts(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, behind)) = rest.split_once("counter packets ") {
        out += before;
        out += "counter";
        let mut words = behind.splitn(4, ' ');
        let counts = (words.next(), words.next(), words.next());
        match (counts, words.next()) {
            ((Some(_), Some("bytes"), Some(_)), Some(behind)) => {
                out += " ";
                rest = behind;
            }
            ((Some(_), Some("bytes"), Some(_)), None) => rest = "",
            _ => {
                out += " packets ";
                rest = behind;
            }
        }
    }
    out + rest
}

/// A line of a counter or a quota without what it has counted.
fn without_used(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    match &words[..] {
        ["packets", _, "bytes", _] => {
            let indent = line.len() - line.trim_start().len();
            format!("{}packets 0 bytes 0", &line[..indent])
        }
        ["over", _, _, "used", _, _] | [_, "bytes" | "kbytes" | "mbytes", "used", _, _] => {
            let (before, _) = line.split_once(" used ").unwrap_or((line, ""));
            before.to_owned()
        }
        _ => line.to_owned(),
    }
}

/// The rules that are left, and what is not; the error as a compiler prints it if nothing is.
pub fn prune(mut lines: Vec<Line>, ports: &[&str], left: &mut Vec<Left>) -> Result<String, String> {
    // Each time, a line less is left.
    for _ in 0..=lines.len() {
        let text = joined(&lines);
        let error = match Loaded::load(&text, ports, &Limits::DEFAULT) {
            Ok(_) => return Ok(text),
            Err(error) => error,
        };
        let before = text.get(..error.span.start as usize).unwrap_or_default();
        let at = before.bytes().filter(|byte| *byte == b'\n').count();
        let Some((first, last)) = lines.get(at).and_then(|_| extent(&lines, at)) else {
            return Err(error.render("rules", &text).to_string());
        };
        left.push(Left {
            line: lines[at].from,
            why: format!("{}: {}", error.kind, lines[at].text.trim()),
        });
        for line in &mut lines[first..=last] {
            line.text = format!("# not taken: {}", line.text.trim());
        }
    }
    Err("it does not end".to_owned())
}

fn joined(lines: &[Line]) -> String {
    let mut text = String::new();
    for line in lines {
        let _ = writeln!(text, "{}", line.text);
    }
    text
}

/// The lines that go with one that is refused: a rule alone, or all of its block. None if it is
/// none of either.
fn extent(lines: &[Line], at: usize) -> Option<(usize, usize)> {
    let first_word = |line: usize| lines[line].text.split_whitespace().next();
    let begins = |line: usize| {
        let is_open = lines[line].text.trim_end().ends_with('{');
        is_open && first_word(line).is_some_and(|word| BLOCKS.contains(&word))
    };
    match first_word(at)? {
        "#" | "}" => None,
        _ if begins(at) => Some((at, end_of(lines, at)?)),
        // What a chain or set is: without it, there is no block.
        "type" | "typeof" | "flags" | "policy" | "hook" | "elements" | "timeout" | "size"
        | "gc-interval" | "auto-merge" => {
            let first = (0..at).rev().find(|line| begins(*line))?;
            Some((first, end_of(lines, first)?))
        }
        _ => {
            // Elements of a set go with the set.
            let first = (0..at).rev().find(|line| begins(*line))?;
            match first_word(first) {
                Some("chain") => Some((at, at)),
                _ => Some((first, end_of(lines, first)?)),
            }
        }
    }
}

/// The last line of the block that begins here.
fn end_of(lines: &[Line], first: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (number, line) in lines.iter().enumerate().skip(first) {
        if line.text.trim_start().starts_with('#') {
            continue;
        }
        depth += line.text.matches('{').count();
        depth = depth.checked_sub(line.text.matches('}').count())?;
        if depth == 0 {
            return Some(number);
        }
    }
    None
}
