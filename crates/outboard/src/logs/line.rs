//! What a rule's `log` statement says ([`nf::log`]), taken apart. A guest can print anything: what
//! is no such line, to the last character, is none, and all values are checked.

use serde::Serialize;
use std::iter::Peekable;
use std::str::Chars;

/// A line of a rule's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Line {
    /// Lines that were left out before this one, since there would have been too many.
    pub suppressed: u64,
    /// What the rule says.
    pub prefix: String,
    /// The number of the rule.
    pub rule: u64,
    /// The port that the frame came in by.
    #[serde(rename = "in")]
    pub from: String,
    /// The port that it would go out by.
    #[serde(rename = "out")]
    pub to: String,
    /// The frame's VLAN, if it has a tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// Its EtherType.
    pub ether: u16,
    /// Its source: of IP, or else of Ethernet.
    #[serde(rename = "source")]
    pub src: String,
    /// Its destination.
    #[serde(rename = "destination")]
    pub dst: String,
    /// Its protocol over IP: a name or a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proto: Option<String>,
    /// `later` if it is a fragment behind the first one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragment: Option<String>,
    /// Of TCP and UDP.
    #[serde(rename = "source_port", skip_serializing_if = "Option::is_none")]
    pub sport: Option<u16>,
    /// Of TCP and UDP.
    #[serde(rename = "destination_port", skip_serializing_if = "Option::is_none")]
    pub dport: Option<u16>,
    /// Of ICMP.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<u8>,
    /// Of ICMP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<u8>,
    /// Bytes of the frame.
    pub length: u64,
}

/// Words of a line that each one has.
const NEEDED: [&str; 8] = ["prefix", "rule", "in", "out", "ether", "src", "dst", "len"];

impl Line {
    /// The line that this text is, if it is one.
    pub fn parse(text: &str) -> Option<Self> {
        let mut line = Self::default();
        let mut seen: Vec<String> = Vec::new();
        let mut rest = text.strip_prefix("log ")?.chars().peekable();
        loop {
            let key: String = taken(&mut rest, |c| c.is_ascii_lowercase());
            if rest.next() != Some('=') || seen.contains(&key) {
                return None;
            }
            let value = match rest.peek() {
                Some('"') if key == "prefix" => quoted(&mut rest)?,
                _ => taken(&mut rest, |c| c.is_ascii_graphic() && c != '"'),
            };
            line.set(&key, value)?;
            seen.push(key);
            match rest.next() {
                Some(' ') => {}
                None => break,
                Some(_) => return None,
            }
        }
        let is_there = |key: &&str| seen.iter().any(|seen| seen == key);
        NEEDED.iter().all(is_there).then_some(line)
    }

    fn set(&mut self, key: &str, value: String) -> Option<()> {
        match key {
            "suppressed" => self.suppressed = value.parse().ok()?,
            "prefix" => self.prefix = value,
            "rule" => self.rule = value.parse().ok()?,
            "in" => self.from = value,
            "out" => self.to = value,
            "vlan" => self.vlan = Some(value.parse().ok()?),
            "ether" => self.ether = u16::from_str_radix(value.strip_prefix("0x")?, 16).ok()?,
            "src" => self.src = value,
            "dst" => self.dst = value,
            "proto" => self.proto = Some(value),
            "fragment" => self.fragment = Some(value),
            "sport" => self.sport = Some(value.parse().ok()?),
            "dport" => self.dport = Some(value.parse().ok()?),
            "type" => self.kind = Some(value.parse().ok()?),
            "code" => self.code = Some(value.parse().ok()?),
            "len" => self.length = value.parse().ok()?,
            _ => return None,
        }
        Some(())
    }
}

/// The characters that are such ones.
fn taken(rest: &mut Peekable<Chars<'_>>, is: impl Fn(char) -> bool) -> String {
    std::iter::from_fn(|| rest.next_if(|c| is(*c))).collect()
}

/// A text in quotes, as [`str::escape_default`] escapes it.
fn quoted(rest: &mut Peekable<Chars<'_>>) -> Option<String> {
    rest.next_if_eq(&'"')?;
    let mut text = String::new();
    loop {
        match rest.next()? {
            '"' => return Some(text),
            '\\' => text.push(escaped(rest)?),
            plain if plain == ' ' || plain.is_ascii_graphic() => text.push(plain),
            _ => return None,
        }
    }
}

fn escaped(rest: &mut Peekable<Chars<'_>>) -> Option<char> {
    Some(match rest.next()? {
        't' => '\t',
        'r' => '\r',
        'n' => '\n',
        same @ ('\\' | '"' | '\'') => same,
        'u' => {
            rest.next_if_eq(&'{')?;
            let digits = taken(rest, |c| c.is_ascii_hexdigit());
            rest.next_if_eq(&'}')?;
            char::from_u32(u32::from_str_radix(&digits, 16).ok()?)?
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nf::Key;
    use proptest::prelude::*;

    /// A question about a name, as its rule would log it.
    fn said(prefix: &str, suppressed: u64) -> String {
        let crafted = crate::frame::read("udp 10.0.0.1:999 > 10.0.0.2:53").unwrap();
        let key = Key::parse(&crafted.bytes).unwrap();
        let line = nf::log::Line {
            suppressed,
            prefix,
            rule: 3,
            from: "private",
            to: "public",
            key: &key,
            bytes: crafted.bytes.len(),
        };
        line.to_string()
    }

    #[test]
    fn a_line_of_a_rule_is_taken_apart() {
        let line = Line::parse(&said("dns \"x\"\n: ", 7)).unwrap();
        let json = serde_json::to_value(&line).unwrap();
        let expected = serde_json::json!({
            "suppressed": 7, "prefix": "dns \"x\"\n: ", "rule": 3, "in": "private",
            "out": "public", "ether": 2048, "source": "10.0.0.1", "destination": "10.0.0.2",
            "proto": "udp", "source_port": 999, "destination_port": 53, "length": line.length,
        });
        assert_eq!(json, expected);
        assert!(line.length >= 42);
    }

    #[test]
    fn what_is_no_line_of_a_rule_is_none() {
        let good = said("a", 0);
        assert!(Line::parse(&good).is_some());
        for bad in [
            "",
            "log",
            "log ",
            "firewall: ready",
            &good[1..],
            &format!("{good} "),
            &format!("{good} len=1"),
            &format!("{good} other=1"),
            &good.replace("rule=3", "rule=-3"),
            &good.replace("rule=3 ", ""),
            &good.replace("in=private", "in=pri\u{1b}vate"),
            &good.replace("\"a\"", "\"a"),
            &good.replace("\"a\"", "\"\\x\""),
            &good.replace("sport=999", "sport=99999"),
        ] {
            assert_eq!(Line::parse(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_prefix_comes_back(prefix: String, suppressed: u64) {
            let line = Line::parse(&said(&prefix, suppressed)).unwrap();
            prop_assert_eq!((line.prefix, line.suppressed), (prefix, suppressed));
        }

        #[test]
        fn any_text_is_a_line_or_none(text: String, at in 0..100usize, with: char) {
            let _ = Line::parse(&text);
            let near: String = said("a", 0)
                .chars()
                .enumerate()
                .map(|(number, c)| if number == at { with } else { c })
                .collect();
            if let Some(line) = Line::parse(&near) {
                let json = serde_json::to_string(&line).unwrap();
                prop_assert!(!json.contains(char::is_control));
            }
        }
    }
}
