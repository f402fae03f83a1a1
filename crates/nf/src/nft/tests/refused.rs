//! What is refused: where, and with which words.

use super::{file, read};
use crate::nft::{Limits, parse};
use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

/// Rules that nft accepts, and ones that it does not either: the rule, the place, the message.
/// The end-to-end tests show the former to nft.
const RULES: [&str; 2] = [include_str!("unsupported.txt"), include_str!("refused.txt")];

/// The place and the message.
fn refusal(text: &str) -> (&str, String) {
    let error = read(text).expect_err(text);
    let place = error.span.start as usize..error.span.end as usize;
    (&text[place], error.to_string())
}

#[test]
fn rules_are_refused_where_they_are_wrong() {
    for line in RULES.iter().flat_map(|rules| rules.lines()) {
        let mut parts = line.split(" => ");
        let mut part = || parts.next().expect(line);
        let text = file(part());
        let (place, message) = refusal(&text);
        assert_eq!((place, &*message), (part(), part()), "{text}");
    }
}

#[test]
fn files_are_refused_where_they_are_wrong() {
    const FILES: &[(&str, &str, &str)] = &[
        (
            "table arp t { }",
            "arp",
            "the family `arp` is not supported",
        ),
        (
            "table t { }",
            "t",
            "a table without a family is not supported",
        ),
        (
            "table bridge t { }; table bridge u { }",
            "table",
            "a second table is not supported",
        ),
        (
            "table bridge t { } table bridge u { }",
            "table",
            "expected a newline or `;`",
        ),
        (
            "table bridge t { chain c { } }",
            "}",
            "expected a newline or `;`",
        ),
        ("table bridge t {", "", "expected `}`"),
        ("table bridge t\n{ }", "\n", "expected `{`"),
        ("table bridge 5 { }", "5", "expected the name of the table"),
        (
            "table bridge \"t\" { }",
            "\"t\"",
            "expected the name of the table",
        ),
        (
            "table bridge t { chain ip { } }",
            "ip",
            "this word is a keyword of nft, and no name",
        ),
        (
            "add table bridge t",
            "add",
            "`add` is not supported: each load replaces the whole file in one step",
        ),
        (
            "include \"x\"",
            "include",
            "`include` is not supported: the rules reach the firewall as one file",
        ),
        (
            "flush table bridge t",
            "flush table",
            "`flush` of a part is not supported: each load replaces everything",
        ),
        (
            "table bridge t { }\nflush ruleset",
            "flush ruleset",
            "`flush ruleset` behind a table would remove that table",
        ),
        (
            "define x = @s",
            "@s",
            "a variable for a named set is not supported",
        ),
        ("define x = ip saddr", "saddr", "expected a newline or `;`"),
        ("define x =", "", "expected a value"),
        ("define x = -5", "-", "expected a value"),
        (
            "define ip = 5",
            "ip",
            "this word is a keyword of nft, and no name",
        ),
        (
            "table bridge t { map m { } }",
            "m",
            "expected a map with a line `type ... : verdict`",
        ),
        (
            "table bridge t { flags dormant; }",
            "flags",
            "a flag of a table is not supported",
        ),
        (
            "table bridge t { set s { } }",
            "s",
            "expected a set with a line `type ...`",
        ),
        (
            "table bridge t { set s { typeof ip saddr; } }",
            "typeof",
            "`typeof` is not supported",
        ),
        (
            "table bridge t { set s { type ct_state; } }",
            "ct_state",
            "a set of `ct` states is not supported",
        ),
        (
            "table bridge t { set s { type ipv4_addr; timeout 5; } }",
            "5",
            "expected a time, such as 30s or 1d2h",
        ),
        (
            "table bridge t { set s { type ipv4_addr; size 0; } }",
            "0",
            "expected a number from 1 on",
        ),
        (
            "table bridge t { set s { type ipv4_addr; type ipv4_addr; } }",
            "type",
            "a second type",
        ),
        (
            "table bridge t { set s { type ipv4_addr; elements = { 1.2.3.4,\n\n1.2.3.5 }; } }",
            "\n",
            "a blank line in a set is not accepted by nft either",
        ),
        (
            "table bridge t { set s { type ipv4_addr; elements = 1.2.3.4; } }",
            "1.2.3.4",
            "expected `{`",
        ),
        (
            "table bridge t { chain c { type nat hook forward priority 0; } }",
            "nat",
            "the chain type `nat` is not supported yet: the firewall is a bridge",
        ),
        (
            "table bridge t { chain c { type filter hook input priority 0; } }",
            "input",
            "the hook `input` has no meaning here: no frame is for the firewall itself",
        ),
        (
            "table bridge t { chain c { type filter hook forward priority raw; } }",
            "raw",
            "expected a number or `filter`, perhaps with `+` or `-`",
        ),
        (
            "table bridge t { chain c { type filter hook forward priority 2147483648; } }",
            "2147483648",
            "a priority is at most 2147483647",
        ),
        (
            "table bridge t { chain c { type filter hook forward priority $p; } }",
            "$p",
            "a variable is not supported here",
        ),
        (
            "table bridge t { chain c { policy drop; } }",
            "policy drop",
            "expected `type filter hook forward priority ...` first",
        ),
        (
            "table bridge t { chain c { type filter hook forward priority 0; policy \
            drop; policy drop; } }",
            "policy",
            "a second policy",
        ),
        ("table bridge t { }\r\n", "\r", "`\\r` begins nothing here"),
        ("# \u{fc}\n\u{fc}", "\u{fc}", "`\u{fc}` begins nothing here"),
        (
            "define x = \"a\tb\"",
            "\t",
            "a string holds no control characters",
        ),
        (
            "define x = \"a\nb\"",
            "\"a",
            "this string has no end on its line",
        ),
    ];
    for (text, place, message) in FILES {
        let refused = refusal(text);
        assert_eq!((refused.0, &*refused.1), (*place, *message), "{text}");
    }
}

#[test]
fn an_error_is_shown_in_its_line() {
    let text = "table bridge t {\n\tchain c {\n\t\treject\n\t}\n}\n";
    let shown = read(text)
        .unwrap_err()
        .render("rules.nft", text)
        .to_string();
    let expected = "\
error: `reject` is not supported: the firewall sends no frames of its own
 --> rules.nft:3:3
  |
3 |         reject
  |         ^^^^^^
  = help: write `drop`";
    assert_eq!(shown, expected);
}

#[test]
fn an_error_in_a_long_line_is_shown_with_what_stands_around_it() {
    let many = "10.0.0.1, ".repeat(10_000);
    let text = format!("\n\n\ndefine x = {{ {many}10.0.0.256, {many} }}");
    let shown = read(&text).unwrap_err().render("x", &text).to_string();
    let lines: std::vec::Vec<&str> = shown.lines().collect();
    assert_eq!(lines[1], " --> x:4:100014");
    assert!(
        lines[3].starts_with("4 | ...") && lines[3].ends_with("..."),
        "{shown}"
    );
    assert!(lines[3].len() < 120, "{shown}");
    let column = lines[3].find("10.0.0.256").expect(&shown);
    assert_eq!(lines[4].find("^^^^^^^^^^"), Some(column), "{shown}");
}

#[test]
fn an_error_shows_no_control_characters() {
    let text = "define x = \"\u{1b}[31m\"";
    let shown = read(text).unwrap_err().render("x", text).to_string();
    assert!(!shown.contains('\u{1b}'), "{shown}");
}

#[test]
fn an_error_at_the_end_of_the_text_has_a_place() {
    let shown = read("table bridge t {")
        .unwrap_err()
        .render("x", "table bridge t {")
        .to_string();
    assert!(shown.contains("x:1:17"), "{shown}");
}

#[test]
fn limits_are_kept_with_a_message() {
    let limits = Limits {
        bytes: 200,
        rules: 2,
        chains: 2,
        sets: 1,
        defines: 2,
        set_elements: 3,
        elements: 4,
        statements: 3,
        name: 8,
        ..Limits::DEFAULT
    };
    let cases = [
        (" ".repeat(201), "too many bytes in the file: at most 200"),
        (file("accept; accept; accept"), "too many rules: at most 2"),
        (
            file("accept; }; chain d { }; chain e {"),
            "too many chains: at most 2",
        ),
        (
            file("}; set s { type ipv4_addr; }; set t { "),
            "too many sets: at most 1",
        ),
        ("define a = 1; ".repeat(3), "too many variables: at most 2"),
        (
            "define a = { 1, 2, 3, 4 }".into(),
            "too many elements in one set: at most 3",
        ),
        (
            "define a = { 1, 2, 3 }; define b = { 1, 2 }".into(),
            "too many elements in all sets: at most 4",
        ),
        (
            file("log log log log"),
            "too many statements in one rule: at most 3",
        ),
        (
            "define abcdefghi = 1".into(),
            "this name is too long: at most 8 bytes",
        ),
    ];
    for (text, message) in cases {
        let error = parse(&text, &limits).expect_err(&text);
        assert_eq!(error.to_string(), message);
    }
    let long = file(&format!("accept comment \"{}\"", "x".repeat(129)));
    let error = read(&long).unwrap_err().to_string();
    assert_eq!(error, "this comment is too long: at most 128 bytes");
}

#[test]
fn a_million_elements_are_refused_and_a_hundred_thousand_are_not() {
    let text = |count: usize| format!("define x = {{ {} }}", "10.0.0.1, ".repeat(count));
    assert!(read(&text(100_000)).is_ok());
    let error = read(&text(1_000_000)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "too many elements in one set: at most 262144"
    );
}

#[test]
fn deep_nesting_is_refused_at_once() {
    for text in [
        "{",
        "(",
        "define x = {",
        "table bridge t {",
        "tcp flags & (",
    ] {
        assert!(read(&text.repeat(100_000)).is_err(), "{text}");
        assert!(read(&file(&text.repeat(100_000))).is_err(), "{text}");
    }
}

#[test]
fn a_word_that_is_almost_one_is_corrected() {
    let text = file("tcp dport 80 acept");
    let error = read(&text).expect_err("no word");
    let says = format!(
        "error: expected a statement\n --> a.nft:3:16\n  |\n3 |         tcp dport 80 acept\n  | \
         {:21}^^^^^\n  = help: did you mean `accept`?",
        ""
    );
    assert_eq!(error.render("a.nft", &text).to_string(), says);
}

#[test]
fn a_brace_without_its_end_is_named() {
    let text = "table bridge t {\n  chain c {\n    accept\n  }\n";
    let error = read(text)
        .expect_err("no end")
        .render("a.nft", text)
        .to_string();
    let note = "\n  = note: the `{` that has no end is here: a.nft:1:16";
    assert!(
        error.starts_with("error: expected `}`\n") && error.ends_with(note),
        "{error}"
    );
}

/// Each line of the table in docs/firewall.md is what the parser does.
#[test]
fn the_documented_language_is_the_parsers() {
    let document = include_str!("../../../../../docs/firewall.md");
    let (_, table) = document
        .split_once(" | example | supported |")
        .expect("a table");
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let mut answers = [0, 0];
    for row in rows {
        let columns: Vec<_> = row.split(" | ").collect();
        let [what, example, answer] = columns[..] else {
            panic!("{row}");
        };
        let example = example.trim_matches('`').replace("\\|", "|");
        let text = match example.split(' ').next() {
            Some("table" | "include" | "define") => example.clone() + "\n",
            Some("set" | "map") => format!("table bridge t {{\n{example}\n}}\n"),
            _ => file(&example),
        };
        let is_yes = answer.starts_with("yes");
        assert_eq!(
            read(&text).is_ok(),
            is_yes,
            "{what}: {:?}",
            read(&text).err()
        );
        answers[usize::from(is_yes)] += 1;
    }
    assert!(answers.iter().all(|count| *count > 5), "{answers:?}");
}
