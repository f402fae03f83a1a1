//! Each rule against a tree that keeps it and one that breaks it.

use super::rules::RULES;
use super::source::{code, has_word, lines_without_tests};
use super::{Finding, Tree};

fn tree(files: &[(&str, &str)]) -> Tree {
    Tree(
        files
            .iter()
            .map(|(path, text)| (path.to_string(), text.to_string()))
            .collect(),
    )
}

fn findings(rule: &str, files: &[(&str, &str)]) -> Vec<Finding> {
    let rule = RULES
        .iter()
        .find(|candidate| candidate.name == rule)
        .unwrap();
    (rule.check)(&tree(files))
}

fn kept(rule: &str, files: &[(&str, &str)]) {
    assert_eq!(findings(rule, files), [], "{}", rule);
}

/// The rule is broken once, in this line, and the finding says this.
fn broken(rule: &str, files: &[(&str, &str)], line: usize, says: &str) {
    let found = findings(rule, files);
    assert_eq!(found.len(), 1, "{}: {:?}", rule, found);
    assert_eq!(found[0].line, line, "{:?}", found);
    assert!(found[0].what.contains(says), "{:?}", found);
}

#[test]
fn code_map() {
    let map =
        "# A\n## Code map\n\n| crate | holds |\n|---|---|\n| `abi` | x |\n## B\n| `no` | x |\n";
    let abi = ("crates/abi/src/lib.rs", "");
    kept("code-map", &[("ARCHITECTURE.md", map), abi]);
    broken("code-map", &[("ARCHITECTURE.md", map)], 6, "remove the row");
    let nf = ("crates/nf/src/lib.rs", "");
    broken(
        "code-map",
        &[("ARCHITECTURE.md", map), abi, nf],
        0,
        "add a row `nf`",
    );
}

#[test]
fn invariants() {
    let page = |item: &str| format!("## Invariants\nText.\n1. {}\n## Next\n2. Not one.\n", item);
    let test = ("crates/nf/src/lib.rs", "fn it_holds() {}");
    kept(
        "invariants",
        &[
            (
                "ARCHITECTURE.md",
                &page("A. Held by `line-width`\n   and `it_holds`."),
            ),
            test,
        ],
    );
    broken(
        "invariants",
        &[("ARCHITECTURE.md", &page("A."))],
        3,
        "Held by",
    );
    let gone = page("A. Held by `it_holds`.");
    broken(
        "invariants",
        &[("ARCHITECTURE.md", &gone)],
        3,
        "no rule or test `it_holds`",
    );
    broken("invariants", &[], 0, "no numbered invariants");
}

#[test]
fn forbid_unsafe() {
    let good = "//! Doc.\n\n#![forbid(unsafe_code)]\n";
    kept(
        "forbid-unsafe",
        &[("crates/nf/src/lib.rs", good), ("crates/nf/src/key.rs", "")],
    );
    kept(
        "forbid-unsafe",
        &[
            ("crates/unikernel/src/lib.rs", ""),
            ("tests/guests/src/bin/a.rs", ""),
        ],
    );
    for path in [
        "crates/nf/src/lib.rs",
        "crates/bench/src/main.rs",
        "crates/outboard/src/bin/x.rs",
        "unikernels/firewall/src/main.rs",
        "tests/e2e/main.rs",
    ] {
        broken(
            "forbid-unsafe",
            &[(path, "// #![forbid(unsafe_code)]")],
            0,
            "add #![forbid",
        );
    }
}

#[test]
fn tender_unsafe() {
    let block = "// unsafe\nfn f() {\n    unsafe { g() }\n}\n";
    kept("tender-unsafe", &[("crates/tender/src/sys/mod.rs", block)]);
    kept(
        "tender-unsafe",
        &[("crates/tender/src/jail.rs", "let a = \"unsafe\"; // unsafe")],
    );
    broken(
        "tender-unsafe",
        &[("crates/tender/src/jail.rs", block)],
        3,
        "src/sys",
    );
}

#[test]
fn island_size() {
    let lines = "//\n".repeat(8000);
    kept(
        "island-size",
        &[
            ("crates/unikernel/src/lib.rs", &lines),
            ("crates/nf/src/a.rs", &lines),
        ],
    );
    let more = ("crates/tender/src/sys/mod.rs", "//\n");
    broken(
        "island-size",
        &[("crates/unikernel/src/lib.rs", &lines), more],
        0,
        "8001 lines",
    );
}

#[test]
fn no_std() {
    let crates = |nf| {
        [
            ("crates/abi/src/lib.rs", "#![no_std]\n"),
            ("crates/device/src/lib.rs", "#![no_std]\n"),
            ("crates/nf/src/lib.rs", nf),
        ]
    };
    kept("no-std", &crates("//! Doc.\n#![no_std]\n"));
    broken("no-std", &crates("// #![no_std]"), 0, "#![no_std]");
}

#[test]
fn plain_tests() {
    kept(
        "plain-tests",
        &[("Cargo.toml", "default-members = [\"crates/*\"]\n")],
    );
    let all = "default-members = [\"crates/*\", \"tests\"]\n";
    broken("plain-tests", &[("Cargo.toml", all)], 0, "end-to-end");
}

#[test]
fn workspace_lints() {
    kept(
        "workspace-lints",
        &[("crates/a/Cargo.toml", "x\n[lints]\nworkspace = true\n")],
    );
    broken(
        "workspace-lints",
        &[("crates/a/Cargo.toml", "[package]\n")],
        0,
        "[lints]",
    );
}

#[test]
fn line_width() {
    kept(
        "line-width",
        &[("a.rs", &"ä".repeat(100)), ("a.md", &"a".repeat(101))],
    );
    broken(
        "line-width",
        &[("a.rs", &format!("\n{}", "a".repeat(101)))],
        2,
        "101 columns",
    );
}

#[test]
fn file_length() {
    let body = "//\n".repeat(800);
    let with_tests = format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", body, body);
    kept(
        "file-length",
        &[("a.rs", &with_tests), ("b/tests.rs", &with_tests.repeat(2))],
    );
    broken(
        "file-length",
        &[("a.rs", &format!("{}//\n", body))],
        0,
        "801 lines",
    );
}

#[test]
fn unfinished() {
    kept("unfinished", &[("a.rs", "let todos = mastodon; // debug")]);
    for word in [
        "TO-DO",
        "FIX-ME",
        "XX-X",
        "to-do!()",
        "unimple-mented!()",
        "db-g!(x)",
    ] {
        let line = format!("// {}", word.replace('-', ""));
        broken("unfinished", &[("a.rs", &line)], 1, ": ");
    }
}

#[test]
fn one_machine() {
    kept(
        "one-machine",
        &[("a.md", "crates/abi and /usr/bin"), ("Cargo.lock", "")],
    );
    for place in ["/wo-rk/main", "/ro-ot/x", "/ho-me/x", "/tmp/tar-get-x"] {
        broken(
            "one-machine",
            &[("a.md", &place.replace('-', ""))],
            1,
            "one machine",
        );
    }
}

#[test]
fn licences() {
    let mit = ("LICENSE-MIT", "THE SOFTWARE IS PROVIDED \"AS IS\"");
    kept(
        "licences",
        &[mit, ("LICENSE-APACHE", "END OF TERMS AND CONDITIONS")],
    );
    broken(
        "licences",
        &[mit, ("LICENSE-APACHE", "see the web")],
        0,
        "whole licence",
    );
}

#[test]
fn changelog() {
    kept(
        "changelog",
        &[("CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n")],
    );
    broken(
        "changelog",
        &[("CHANGELOG.md", "# Changelog\n")],
        0,
        "Unreleased",
    );
}

#[test]
fn every_rule_has_a_test() {
    let tests = include_str!("tests.rs");
    for rule in RULES {
        assert!(
            tests.contains(&format!("fn {}()", rule.name.replace('-', "_"))),
            "{}",
            rule.name
        );
    }
}

#[test]
fn code_is_told_from_comments_and_strings() {
    for (text, expected) in [
        ("a // b\nc", "a     \nc"),
        ("a /* b /* c */ d */ e", "a                   e"),
        ("a \"b \\\" c\" d", "a          d"),
        ("a r#\"b \" c\"# d", "a            d"),
        ("'a 'x' '\\'' '\"' b", "'a              b"),
        ("for r#in x", "for r#in x"),
        ("a \"never ended", "a             "),
    ] {
        assert_eq!(code(text), expected, "{}", text);
    }
}

#[test]
fn words_stand_by_themselves() {
    assert!(has_word("(unsafe {", "unsafe"));
    assert!(!has_word("unsafe_code", "unsafe"));
}

#[test]
fn tests_do_not_count() {
    assert_eq!(lines_without_tests("a\n#[cfg(test)]\nmod tests;\nb\n"), 4);
    assert_eq!(lines_without_tests("a\n#[cfg(test)]\nmod tests {\n}\n"), 1);
}
