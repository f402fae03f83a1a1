//! Variables that change their meaning, and what a router does anyway.

use super::*;
use std::format;
use std::string::{String, ToString};

/// How many packets to ports of TCP each rule of a chain counts.
fn counts(text: &str, ports: &[u16]) -> Result<Vec<u64>, String> {
    let rules = load(text).map_err(|error| error.to_string())?;
    let mut bench = Bench {
        counts: Counts(vec![0; rules.counters()]),
        rules,
        connections: Connections::new(16, &KEY),
        now: SECOND,
    };
    for port in ports {
        let question = frame::tcp([1000, *port], 1, 0, 2);
        let _ = bench.pass(0, (CLIENT, SERVER), 6, question);
    }
    Ok(bench.counts.0)
}

#[test]
fn a_variable_has_the_meaning_of_its_place() {
    let text = "
    define A = 80
    redefine A = 81
    redefine NEW = 5
    table inet t {
        chain c {
            type filter hook forward priority 0
            tcp dport $A counter
            redefine A = { 82, 5 }
            tcp dport $A counter
            undefine A
            tcp dport $A counter
            redefine A = 6
            jump d
        }
        chain d {
            tcp dport $A counter
        }
    }
    undefine A
    define A = 7
    ";
    let found = counts(text, &[80, 81, 82, 5, 6, 7]).unwrap();
    assert_eq!(found, [1, 2, 1, 6, 1, 6]);
}

#[test]
fn what_has_no_meaning_any_more_is_refused() {
    let table = |rules: &str| {
        format!(
            "define A = 1\ndefine B = {{ $A, 2 }}\ntable inet t {{\nchain c {{\n\
            type filter hook forward priority 0\n{rules}\n}}\n}}\n"
        )
    };
    for (rules, why) in [
        ("undefine A", "there is no such variable here"),
        (
            "define C = 3\nundefine C\ntcp dport $C",
            "there is no such variable",
        ),
        ("define B = 3", "a second definition of this variable"),
        ("redefine A = 3", "another meaning for a variable that"),
        (
            "redefine B = { $B, 3 }",
            "another meaning for a variable that",
        ),
        ("undefine", "expected the name of the variable"),
    ] {
        let said = counts(&table(rules), &[]).unwrap_err();
        assert!(said.starts_with(why), "{rules}: {said}");
    }
    counts(&table("redefine B = 3\ntcp dport $B"), &[]).unwrap();
}

#[test]
fn a_flowtable_is_what_is_done_anyway() {
    let table = |hook: &str, rule: &str| {
        format!(
            "table inet t {{\nflowtable f {{\nhook ingress priority filter\n\
            devices = {{ private, \"public\" }}\n}}\nchain c {{\n\
            type filter hook {hook} priority 0\n{rule}\n}}\n}}\n"
        )
    };
    let rule = "ip protocol { tcp, udp } flow add @f counter";
    assert_eq!(counts(&table("forward", rule), &[80]).unwrap(), [1, 1]);
    for (text, why) in [
        (table("input", rule), "`flow add` at this hook"),
        (
            table("forward", "flow add @g"),
            "there is no such flowtable",
        ),
        (table("forward", "flow @f"), "expected `add`"),
        (
            "table inet t { \n flowtable f { \n}\n}\n".to_string(),
            "expected a flowtable with",
        ),
    ] {
        let said = counts(&text, &[]).unwrap_err();
        assert!(said.starts_with(why), "{said}");
    }
    let text = table("forward", rule);
    let file = crate::nft::parse(&text, &Limits::DEFAULT).unwrap();
    let printed = file.to_string();
    assert!(
        printed.contains("devices = { private, \"public\" }"),
        "{printed}"
    );
    assert_eq!(crate::nft::parse(&printed, &Limits::DEFAULT), Ok(file));
}
