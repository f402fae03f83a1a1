//! Each rule against a tree that keeps it and one that breaks it.

use super::ratchets::ISLAND_LINES_MAX;
use super::rules::RULES;
use super::source::{code, functions, has_word, lines_without_tests};
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
fn sys_unsafe() {
    let block = "// unsafe\nfn f() {\n    unsafe { g() }\n}\n";
    kept("sys-unsafe", &[("crates/linux/src/sys/tap.rs", block)]);
    broken(
        "sys-unsafe",
        &[("crates/linux/src/lib.rs", block)],
        3,
        "the island",
    );
    kept("sys-unsafe", &[("crates/tender/src/sys/mod.rs", block)]);
    kept("sys-unsafe", &[("tests/packetdrill/src/edge.rs", block)]);
    broken(
        "sys-unsafe",
        &[("tests/packetdrill/src/world.rs", block)],
        3,
        "the island",
    );
    kept(
        "sys-unsafe",
        &[("crates/tender/src/jail.rs", "let a = \"unsafe\"; // unsafe")],
    );
    broken(
        "sys-unsafe",
        &[("crates/tender/src/jail.rs", block)],
        3,
        "the island",
    );
}

/// The file of the ratchets with these lines.
fn ratchets(lines: &str) -> (&'static str, &str) {
    ("xtask/ratchets.txt", lines)
}

#[test]
fn may_use() {
    let manifest =
        "[dependencies]\nzerocopy.workspace = true\nnf = { path = \"x\" }\nabi.workspace = \
                    true\narrayvec=\"1\"\n\n[dev-dependencies]\nproptest = \"1\"\n";
    let files = |says: &'static str, manifest: &'static str| {
        let page = format!(
            "| crate | may use |\n|---|---|\n| `a` | {} |\n| `b` | x |\n",
            says
        );
        findings(
            "may-use",
            &[
                ("ARCHITECTURE.md", &page),
                ("crates/a/Cargo.toml", manifest),
                ("crates/abi/Cargo.toml", ""),
                ("crates/nf/Cargo.toml", ""),
            ],
        )
    };
    assert_eq!(files("abi, nf; arrayvec, zerocopy", manifest), []);
    assert_eq!(files("nothing", "[package]\n"), []);
    for says in ["abi", "", "abi, nf; arrayvec, zerocopy, proptest"] {
        let found = files(says, manifest);
        assert_eq!((found.len(), found[0].line), (1, 3), "{:?}", found);
        let write = "write \"abi, nf; arrayvec, zerocopy\"";
        assert!(found[0].what.ends_with(write), "{:?}", found);
    }
}

#[test]
fn factions() {
    let map = "# A\n## Code map\n| crate | lives where | holds |\n|---|---|---|\n\
               | `abi` | both sides, no_std | x |\n| `drivers` | both, no_std | x |\n\
               | `net` | guest, no_std | x |\n| `service` | guest | x |\n| `tender` | host | x |\n";
    let table = "## Factions\n| faction | crates | may use |\n|---|---|---|\n\
                 | below | `abi` | nothing |\n| device | `drivers` | below |\n\
                 | net | `net` | below |\n| fs | none yet | below |\n\
                 | above | `service` | all |\n## Next\n| x | `tender` | all |\n";
    let page = format!("{}{}", map, table);
    let crates = |uses: &'static str| {
        [
            ("crates/abi/Cargo.toml", "[package]\n"),
            ("crates/drivers/Cargo.toml", uses),
            ("crates/net/Cargo.toml", "[dependencies]\nabi = \"1\"\n"),
            (
                "crates/service/Cargo.toml",
                "[dependencies]\nnet.workspace = true\ndrivers = { path = \"x\" }\n",
            ),
            ("crates/tender/Cargo.toml", "[dependencies]\nnet = \"1\"\n"),
        ]
    };
    let with = |page: &str, uses: &'static str| {
        let files = [&[("ARCHITECTURE.md", page)], &crates(uses)[..]].concat();
        findings("factions", &files)
    };
    for kept in [
        "[dependencies]\nabi = \"1\"\narrayvec = \"1\"\n",
        "[dependencies]\n\n[dev-dependencies]\nnet = \"1\"\n",
    ] {
        assert_eq!(with(&page, kept), [], "{}", kept);
    }
    for (uses, says) in [
        ("[dependencies]\nnet = \"1\"\n", "`net` of `net`: join them"),
        (
            "[dependencies]\nnet = { path = \"x\", optional = true }\n",
            "`net` of `net`",
        ),
        (
            "[dependencies]\nservice.workspace = true\n",
            "`service` of `above`",
        ),
        (
            "[dependencies]\ntender.workspace = true\n",
            "`tender` is of no faction",
        ),
    ] {
        let found = with(&page, uses);
        assert_eq!((found.len(), found[0].line), (1, 2), "{:?}", found);
        assert_eq!(found[0].path, "crates/drivers/Cargo.toml");
        assert!(found[0].what.contains(says), "{:?}", found);
    }
    for (old, new, line, says) in [
        (
            "device | `drivers`",
            "device | none yet",
            6,
            "name its row under Factions",
        ),
        ("none yet", "`vfs`", 16, "no crates/vfs"),
        ("none yet", "`net`", 16, "of faction `net` as well"),
    ] {
        let found = with(&page.replace(old, new), "");
        assert_eq!(found[0].line, line, "{:?}", found);
        assert!(found[0].what.contains(says), "{:?}", found);
    }
    assert_eq!(with(map, "").len(), 4, "no table");
}

#[test]
fn the_column_is_written() {
    let page = "# Map\n| crate | may use |\n| `a` | old, x |\n| `b` |  |\n| `c` | stays |\n";
    let files = [
        ("ARCHITECTURE.md", page),
        (
            "crates/a/Cargo.toml",
            "[dependencies]\nb.workspace = true\n",
        ),
        ("crates/b/Cargo.toml", ""),
    ];
    let written = "# Map\n| crate | may use |\n| `a` | b |\n| `b` | nothing |\n| `c` | stays |\n";
    assert_eq!(super::dependencies::filled(&tree(&files)), written);
}

#[test]
fn links() {
    let page = |text: &'static str| {
        findings(
            "links",
            &[
                ("docs/a.md", text),
                ("docs/b.md", "# Two `words`, here\n## Same\n## Same\n"),
                ("crates/abi/src/lib.rs", ""),
                ("results/x/plot.svg", ""),
            ],
        )
    };
    for kept in [
        "[b](b.md), [up](../crates/abi/src/lib.rs) and ![c](../results/x/plot.svg \"title\")",
        "[b](b.md#two-words-here) [again](b.md#same-1) [folder](../crates/abi/)",
        "# Here\n[own](#here) [web](https://x.org/y) [mail](mailto:a@b)\n[ref]: b.md",
        "```\n[no](link.md) `crates/no`\n```",
        "`crates/abi/src/`, `crates/*/src`, `no/such`, `fuzz/corpus`",
    ] {
        assert_eq!(page(kept), [], "{}", kept);
    }
    for (text, says) in [
        ("\n[b](c.md)", "c.md leads nowhere"),
        ("\n[b](../../b.md)", "leads nowhere"),
        ("\n[b](b.md#three)", "docs/b.md has no heading #three"),
        ("\n[b](b.md#same-2)", "#same-2"),
        ("\n[own](#there)", "docs/a.md has no heading #there"),
        ("\n[ref]: c.md", "c.md leads nowhere"),
        ("\nsee `crates/abi/src/key.rs`", "no crates/abi/src/key.rs"),
    ] {
        let found = page(text);
        assert_eq!(found.len(), 1, "{}: {:?}", text, found);
        assert!(
            found[0].line == 2 && found[0].what.contains(says),
            "{:?}",
            found
        );
    }
}

/// Lines of a file with a function of this many lines.
fn function(name: &str, lines: usize) -> String {
    format!("fn {}() {{\n{}}}\n", name, "\n".repeat(lines - 2))
}

#[test]
fn function_length() {
    let (short, long) = (function("f", 70), function("f", 75));
    kept("function-length", &[("a.rs", &short)]);
    broken(
        "function-length",
        &[("a.rs", &long)],
        1,
        "f has 75 lines, over 70",
    );
    let says = |lines: usize| format!("\nfunction {} a.rs f: a table\n", lines);
    kept("function-length", &[("a.rs", &long), ratchets(&says(75))]);
    let grown = says(74);
    broken(
        "function-length",
        &[("a.rs", &long), ratchets(&grown)],
        1,
        "over 74",
    );
    // What has shrunk is written down.
    let shrunk = says(76);
    broken(
        "function-length",
        &[("a.rs", &long), ratchets(&shrunk)],
        2,
        "write 75",
    );
    broken(
        "function-length",
        &[("a.rs", &short), ratchets(&shrunk)],
        2,
        "--write",
    );
    // Moved, but no longer.
    broken(
        "function-length",
        &[("b.rs", &long), ratchets(&shrunk)],
        2,
        "--write",
    );
    broken(
        "function-length",
        &[("a.rs", &function("g", 71)), ratchets("")],
        1,
        "g has 71",
    );
}

#[test]
fn island_size() {
    let limit = "//\n".repeat(ISLAND_LINES_MAX);
    let island = ("crates/unikernel/src/lib.rs", limit.as_str());
    let elsewhere = ("crates/unikernel/tests/a.rs", limit.as_str());
    let says = |hw: usize, unikernel: usize| {
        format!(
            "\nisland {} crates/hw/src\nisland {} crates/unikernel/src\n",
            hw, unikernel
        )
    };
    let exact = says(0, ISLAND_LINES_MAX);
    kept("island-size", &[island, elsewhere, ratchets(&exact)]);
    // Not more than there were, and never more than the limit.
    let fewer = says(0, ISLAND_LINES_MAX - 1);
    let over = format!("over {}: move", ISLAND_LINES_MAX - 1);
    broken("island-size", &[island, ratchets(&fewer)], 0, &over);
    let more = ("crates/hw/src/lib.rs", "//\n");
    let many = says(1, ISLAND_LINES_MAX);
    let over = format!("{} lines, over {}", ISLAND_LINES_MAX + 1, ISLAND_LINES_MAX);
    broken("island-size", &[island, more, ratchets(&many)], 0, &over);
    // What has shrunk is written down, and so is what moved from one to another.
    broken("island-size", &[island, ratchets(&many)], 2, "write 0");
    let moved = says(5, ISLAND_LINES_MAX - 5);
    assert_eq!(
        findings("island-size", &[island, ratchets(&moved)]).len(),
        2
    );
    broken(
        "island-size",
        &[ratchets("island many crates/hw/src")],
        1,
        "write: island LINES",
    );
}

#[test]
fn what_has_shrunk_is_written() {
    let text = "# Why.\n\nisland 3 crates/hw/src\nfunction 90 a.rs f: a table\n\
                function 90 a.rs g: steps\nfunction 90 a.rs h: steps\nfunction 99 c.rs h: steps\n";
    let (f, h) = (function("f", 80), function("h", 91));
    let files = [
        ratchets(text),
        ("crates/hw/src/a.rs", "//\n"),
        ("b.rs", f.as_str()),
        ("a.rs", h.as_str()),
    ];
    let lowered = "# Why.\n\nisland 1 crates/hw/src\nfunction 80 b.rs f: a table\n\
                   function 90 a.rs h: steps\n";
    assert_eq!(super::ratchets::lowered(&tree(&files)), lowered);
    // What has grown is for a person to write.
    let grown = [ratchets(text), ("crates/hw/src/a.rs", "//\n//\n//\n//\n")];
    assert!(super::ratchets::lowered(&tree(&grown)).contains("island 3 "));
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
        &[
            ("a.rs", &with_tests),
            ("b/tests.rs", &with_tests.repeat(2)),
            ("c/tests/mod.rs", &with_tests.repeat(2)),
        ],
    );
    broken(
        "file-length",
        &[("a.rs", &format!("{}//\n", body))],
        0,
        "801 lines",
    );
}

#[test]
fn appliance_size() {
    let (most, half) = ("//\n".repeat(299), "//\n".repeat(150));
    let tested = format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", half, most);
    kept(
        "appliance-size",
        &[
            ("unikernels/dns/src/main.rs", &most),
            ("unikernels/dns/build.rs", &most),
            ("unikernels/dns/src/tests.rs", &most),
            ("unikernels/http/src/main.rs", &tested),
            ("crates/web/src/lib.rs", &"//\n".repeat(300)),
        ],
    );
    broken(
        "appliance-size",
        &[
            ("unikernels/dns/src/main.rs", &half),
            ("unikernels/dns/src/lib.rs", &tested),
        ],
        0,
        "300 lines, not under 300",
    );
}

#[test]
fn module_folder() {
    let part = ("crates/nf/src/key/field.rs", "");
    kept(
        "module-folder",
        &[
            ("crates/nf/src/key/mod.rs", ""),
            part,
            ("crates/nf/src/keys.rs", ""),
        ],
    );
    let beside = ("crates/nf/src/key.rs", "");
    broken(
        "module-folder",
        &[beside, part],
        0,
        "crates/nf/src/key/mod.rs",
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

#[test]
fn functions_have_lengths() {
    let text = "impl A {\n    fn f(a: [u8; 3]) -> fn(u8) {\n        \"}\"; fn g() {}\n    }\n}\n\
                trait T {\n    fn h();\n}\nstruct Of { fn_: u8 }\n\
                const fn i()\nwhere\n    A: B,\n{\n}\n";
    let found: Vec<_> = functions(text)
        .into_iter()
        .map(|function| (function.name, function.line, function.lines))
        .collect();
    let named = |name: &str, line, lines| (name.to_string(), line, lines);
    assert_eq!(
        found,
        [named("f", 2, 3), named("g", 3, 1), named("i", 10, 5)]
    );
}
