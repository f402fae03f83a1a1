//! What the guest says on its second serial line: lines that begin with `@@` are for us.

/// A line.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// A trial begins.
    Begin(&'a str),
    /// Something for the table.
    Note(&'a str),
    /// The host is to do something: words for `lab/linux/host`.
    Host(Vec<&'a str>),
    /// A trial is not for this device, for this reason.
    Skip(&'a str, &'a str),
    /// A trial has ended, with this status, and took so many hundredths of a second.
    End(&'a str, i32, u64),
    /// All is over, with this status.
    Done(i32),
    /// Anything else.
    Output(&'a str),
}

/// Reads a line. What is not as it should be is output like any other.
pub fn parse(line: &str) -> Line<'_> {
    let line = line.trim_end();
    let told = match line.strip_prefix("@@ ") {
        Some(told) => told,
        None => return Line::Output(line),
    };
    let (word, rest) = told.split_once(' ').unwrap_or((told, ""));
    let mut words = rest.split(' ');
    let known = match word {
        "begin" => Some(Line::Begin(rest)),
        "note" => Some(Line::Note(rest)),
        "host" => Some(Line::Host(words.collect())),
        "skip" => rest
            .split_once(' ')
            .map(|(name, why)| Line::Skip(name, why)),
        "end" => end(&mut words),
        "done" => rest.parse().ok().map(Line::Done),
        _ => None,
    };
    known.unwrap_or(Line::Output(line))
}

fn end<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<Line<'a>> {
    let name = words.next()?;
    let status = words.next()?.parse().ok()?;
    let hundredths = words.next()?.parse().ok()?;
    Some(Line::End(name, status, hundredths))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_apart() {
        assert_eq!(parse("@@ begin 01-x\r"), Line::Begin("01-x"));
        assert_eq!(parse("@@ note 1 2"), Line::Note("1 2"));
        assert_eq!(parse("@@ host mtu 9000"), Line::Host(vec!["mtu", "9000"]));
        assert_eq!(parse("@@ end 01-x 1 250"), Line::End("01-x", 1, 250));
        assert_eq!(
            parse("@@ skip 01-x one queue"),
            Line::Skip("01-x", "one queue")
        );
        assert_eq!(parse("@@ done 7"), Line::Done(7));
        for line in ["", "PING", "@@ end 01-x", "@@ done x", "@@ what"] {
            assert_eq!(parse(line), Line::Output(line));
        }
    }
}
