//! The rules.

use super::ratchets::{FUNCTION_LINES_MAX, ISLAND_LINES_MAX};
use super::source::{code, has_word, lines_without_tests};
use super::{dependencies, factions, links, ratchets, Finding, Rule, Tree};
use std::collections::BTreeMap;

/// All rules, by name.
pub const RULES: &[Rule] = &[
    Rule {
        name: "code-map",
        asks: "the code map in ARCHITECTURE.md lists the folders of crates/, and nothing else",
        limit: 0,
        check: code_map,
    },
    Rule {
        name: "may-use",
        asks: "the code map's last column names what each Cargo.toml does",
        limit: 0,
        check: dependencies::may_use,
    },
    Rule {
        name: "factions",
        asks: "no crate of an image uses a faction that its row under Factions does not list",
        limit: 0,
        check: factions::factions,
    },
    Rule {
        name: "links",
        asks: "every relative link and path in a document leads somewhere",
        limit: 0,
        check: links::links,
    },
    Rule {
        name: "invariants",
        asks: "each invariant in ARCHITECTURE.md names a rule or test that exists",
        limit: 0,
        check: invariants,
    },
    Rule {
        name: "forbid-unsafe",
        asks: "every crate that is no unsafe island forbids unsafe code",
        limit: 0,
        check: forbid_unsafe,
    },
    Rule {
        name: "sys-unsafe",
        asks: "unsafe code lies in src/sys of host crates, and in packetdrill's src/edge.rs",
        limit: 0,
        check: sys_unsafe,
    },
    Rule {
        name: "island-size",
        asks: "all unsafe islands together stay under {limit} lines, and do not grow",
        limit: ISLAND_LINES_MAX,
        check: ratchets::island_size,
    },
    Rule {
        name: "function-length",
        asks: "no function has over {limit} lines, but for those in xtask/ratchets.txt",
        limit: FUNCTION_LINES_MAX,
        check: ratchets::function_length,
    },
    Rule {
        name: "no-std",
        asks: "crates that must not do I/O or read a clock are no_std",
        limit: 0,
        check: no_std,
    },
    Rule {
        name: "plain-tests",
        asks: "`cargo test` at the root leaves the end-to-end tests out",
        limit: 0,
        check: plain_tests,
    },
    Rule {
        name: "workspace-lints",
        asks: "every crate takes the workspace's lints",
        limit: 0,
        check: workspace_lints,
    },
    Rule {
        name: "line-width",
        asks: "no line of Rust has over {limit} columns",
        limit: LINE_COLUMNS_MAX,
        check: line_width,
    },
    Rule {
        name: "file-length",
        asks: "no file of Rust has over {limit} lines without its tests",
        limit: FILE_LINES_MAX,
        check: file_length,
    },
    Rule {
        name: "appliance-size",
        asks: "each appliance of unikernels/ stays under {limit} lines of its own, without tests",
        limit: APPLIANCE_LINES_MAX,
        check: appliance_size,
    },
    Rule {
        name: "module-folder",
        asks: "a module with a folder is the folder's mod.rs",
        limit: 0,
        check: module_folder,
    },
    Rule {
        name: "unfinished",
        asks: "nothing is left for later in code",
        limit: 0,
        check: unfinished,
    },
    Rule {
        name: "one-machine",
        asks: "no path of one machine",
        limit: 0,
        check: one_machine,
    },
    Rule {
        name: "licences",
        asks: "both licences are there, whole",
        limit: 0,
        check: licences,
    },
    Rule {
        name: "changelog",
        asks: "CHANGELOG.md has a section Unreleased",
        limit: 0,
        check: changelog,
    },
];

/// Crates whose purpose is to hold unsafe code.
const ISLAND_CRATES: [&str; 5] = ["hw", "linux", "tender", "unikernel", "vmm"];
const LINE_COLUMNS_MAX: usize = 100;
const FILE_LINES_MAX: usize = 800;
/// An appliance is arguments, wiring and a manifest; what it does is a crate's.
const APPLIANCE_LINES_MAX: usize = 300;

const FORBID: &str = "#![forbid(unsafe_code)]";

fn code_map(tree: &Tree) -> Vec<Finding> {
    const PATH: &str = "ARCHITECTURE.md";
    let rows = rows(tree.text(PATH), "Code map");
    let listed: Vec<&str> = rows.iter().map(|(_, name)| name.as_str()).collect();
    let crates = tree.crates();
    let missing = crates
        .iter()
        .filter(|name| !listed.contains(name))
        .map(|name| {
            Finding::new(
                PATH,
                0,
                format!("crates/{0} is not in the code map: add a row `{0}`", name),
            )
        });
    let gone = rows
        .iter()
        .filter(|(_, name)| !crates.contains(&name.as_str()))
        .map(|(line, name)| {
            Finding::new(
                PATH,
                *line,
                format!("there is no crates/{}: remove the row", name),
            )
        });
    missing.chain(gone).collect()
}

/// Line number and first cell of each row of the table under a heading, without backquotes; rows
/// whose first cell is no `name` (the head and the rule below it) are left out.
fn rows(text: &str, heading: &str) -> Vec<(usize, String)> {
    section(text, heading)
        .filter_map(|(number, line)| {
            let name = line.strip_prefix("| `")?.split_once("` |")?.0;
            Some((number, name.to_string()))
        })
        .collect()
}

/// The numbered lines under a second-level heading that begins like this.
pub fn section<'a>(text: &'a str, heading: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    let is_heading = move |line: &str| {
        line.strip_prefix("## ")
            .map(|rest| rest.starts_with(heading))
    };
    text.lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line))
        .skip_while(move |(_, line)| is_heading(line) != Some(true))
        .skip(1)
        .take_while(|(_, line)| !line.starts_with("## "))
}

fn invariants(tree: &Tree) -> Vec<Finding> {
    const PATH: &str = "ARCHITECTURE.md";
    let mut items: Vec<(usize, String)> = Vec::new();
    for (number, line) in section(tree.text(PATH), "Invariants") {
        if line
            .split_once(". ")
            .map_or(false, |(n, _)| n.parse::<u32>().is_ok())
        {
            items.push((number, line.to_string()));
        } else if let Some((_, item)) = items.last_mut() {
            item.push(' ');
            item.push_str(line.trim());
        }
    }
    if items.is_empty() {
        return vec![Finding::new(
            PATH,
            0,
            "no numbered invariants: list them under ## Invariants",
        )];
    }
    let mut findings = Vec::new();
    for (number, item) in items {
        let proofs = match item.split_once("Held by") {
            Some((_, proofs)) => proofs,
            None => {
                let what = "who keeps this invariant? end it with: Held by `rule-or-test`.";
                findings.push(Finding::new(PATH, number, what));
                continue;
            }
        };
        for name in proofs
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|name| !exists(tree, name))
        {
            let what = format!(
                "there is no rule or test `{}`: name the one that there is",
                name
            );
            findings.push(Finding::new(PATH, number, what));
        }
    }
    findings
}

/// Whether a rule, a lint of the workspace, a file or a test bears this name.
fn exists(tree: &Tree, name: &str) -> bool {
    let function = format!("fn {}(", name.rsplit("::").next().unwrap_or(name));
    let quoted = format!("\"{}\"", name);
    RULES.iter().any(|rule| rule.name == name)
        || tree.files().any(|(path, _)| path == name)
        || tree
            .text("Cargo.toml")
            .lines()
            .any(|line| line.starts_with(&format!("{} =", name)))
        || tree.rust().any(|(path, text)| {
            text.contains(&function) || (path.starts_with("tests/") && text.contains(&quoted))
        })
}

fn forbid_unsafe(tree: &Tree) -> Vec<Finding> {
    tree.rust()
        .filter(|(path, text)| must_forbid(path) && !text.lines().any(|line| line == FORBID))
        .map(|(path, _)| {
            Finding::new(
                path,
                0,
                format!("add {} below the module's comment", FORBID),
            )
        })
        .collect()
}

/// Whether a file is the root of a crate that must forbid unsafe code. Guests of the tests are
/// free: some of them are there to do what is forbidden.
fn must_forbid(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        ["crates", name, ..] if ISLAND_CRATES.contains(name) => false,
        ["crates" | "unikernels", _, "src", "lib.rs" | "main.rs"] => true,
        ["crates" | "unikernels", _, "src", "bin", _] => true,
        ["xtask", "src", "main.rs"] | ["tests", "e2e", "main.rs"] => true,
        _ => false,
    }
}

/// Crates of which only one folder or file is an island.
const SYS_CRATES: [(&str, &str); 4] = [
    ("crates/linux/", "src/sys/"),
    ("crates/tender/", "src/sys/"),
    ("crates/vmm/", "src/sys/"),
    ("tests/packetdrill/", "src/edge.rs"),
];

fn sys_unsafe(tree: &Tree) -> Vec<Finding> {
    let beside_sys = |path: &str| {
        SYS_CRATES.iter().any(|(name, island)| {
            let inner = path.strip_prefix(name);
            inner.map_or(false, |inner| !inner.starts_with(island))
        })
    };
    lines_of_code(tree)
        .filter(|(path, _, _)| beside_sys(path))
        .filter(|(_, _, line)| has_word(line, "unsafe"))
        .map(|(path, number, _)| {
            Finding::new(
                path,
                number,
                "unsafe code: give the island a safe function for it",
            )
        })
        .collect()
}

/// Every line of Rust, without comments and strings: path, number, code.
fn lines_of_code(tree: &Tree) -> impl Iterator<Item = (&str, usize, String)> {
    tree.rust().flat_map(|(path, text)| {
        let lines: Vec<String> = code(text).lines().map(str::to_string).collect();
        lines
            .into_iter()
            .enumerate()
            .map(move |(index, line)| (path, index + 1, line))
    })
}

/// Crates that do no I/O and take time as a parameter.
const PURE_CRATES: [&str; 3] = ["abi", "device", "nf"];

fn no_std(tree: &Tree) -> Vec<Finding> {
    let path = |name: &&str| format!("crates/{}/src/lib.rs", name);
    PURE_CRATES
        .iter()
        .map(path)
        .filter(|path| !tree.text(path).lines().any(|line| line == "#![no_std]"))
        .map(|path| {
            Finding::new(
                &path,
                0,
                "add #![no_std]: what needs more belongs elsewhere",
            )
        })
        .collect()
}

fn plain_tests(tree: &Tree) -> Vec<Finding> {
    const PATH: &str = "Cargo.toml";
    const MEMBERS: &str = "default-members = [\"crates/*\"]";
    if tree.text(PATH).lines().any(|line| line == MEMBERS) {
        Vec::new()
    } else {
        vec![Finding::new(
            PATH,
            0,
            format!("write {}: end-to-end tests need more", MEMBERS),
        )]
    }
}

fn workspace_lints(tree: &Tree) -> Vec<Finding> {
    tree.files()
        .filter(|(path, _)| path.starts_with("crates/") && path.ends_with("/Cargo.toml"))
        .filter(|(_, text)| !text.contains("[lints]\nworkspace = true"))
        .map(|(path, _)| Finding::new(path, 0, "add [lints] with workspace = true"))
        .collect()
}

fn line_width(tree: &Tree) -> Vec<Finding> {
    lines(tree)
        .filter(|(_, _, line)| line.chars().count() > LINE_COLUMNS_MAX)
        .map(|(path, number, line)| {
            let columns = line.chars().count();
            let what = format!(
                "{} columns, over {}: break the line",
                columns, LINE_COLUMNS_MAX
            );
            Finding::new(path, number, what)
        })
        .collect()
}

/// Every line of Rust: path, number, text.
fn lines(tree: &Tree) -> impl Iterator<Item = (&str, usize, &str)> {
    tree.rust().flat_map(|(path, text)| {
        text.lines()
            .enumerate()
            .map(move |(index, line)| (path, index + 1, line))
    })
}

/// Whether a file holds tests alone.
fn is_tests(path: &str) -> bool {
    path.ends_with("tests.rs") || path.ends_with("tests/mod.rs")
}

fn appliance_size(tree: &Tree) -> Vec<Finding> {
    let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
    for (path, text) in tree.rust().filter(|(path, _)| !is_tests(path)) {
        let mut parts = path.splitn(4, '/');
        if let (Some("unikernels"), Some(name), Some("src"), Some(_)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        {
            *sizes.entry(name).or_default() += lines_without_tests(text);
        }
    }
    sizes
        .into_iter()
        .filter(|(_, lines)| *lines >= APPLIANCE_LINES_MAX)
        .map(|(name, lines)| {
            let what = format!(
                "{} lines, not under {}: what others can use belongs into a crate",
                lines, APPLIANCE_LINES_MAX
            );
            Finding::new(&format!("unikernels/{}", name), 0, what)
        })
        .collect()
}

fn file_length(tree: &Tree) -> Vec<Finding> {
    tree.rust()
        .filter(|(path, _)| !is_tests(path))
        .map(|(path, text)| (path, lines_without_tests(text)))
        .filter(|(_, lines)| *lines > FILE_LINES_MAX)
        .map(|(path, lines)| {
            let what = format!(
                "{} lines, over {}: split it by purpose",
                lines, FILE_LINES_MAX
            );
            Finding::new(path, 0, what)
        })
        .collect()
}

fn module_folder(tree: &Tree) -> Vec<Finding> {
    tree.rust()
        .filter_map(|(path, _)| Some((path, path.strip_suffix(".rs")?)))
        .filter(|(_, folder)| tree.has(folder))
        .map(|(path, folder)| {
            Finding::new(
                path,
                0,
                format!("move it to {}/mod.rs, beside its parts", folder),
            )
        })
        .collect()
}

/// Words that leave something for later, and what to write instead. Cut in two, so that this file
/// is none of those that it looks for.
const UNFINISHED: [(&str, &str, &str); 6] = [
    ("TO", "DO", "do it, or write an issue"),
    ("FIX", "ME", "fix it, or write an issue"),
    ("XX", "X", "say what is wrong"),
    ("todo", "!", "return a typed error, or write the code"),
    (
        "unimple",
        "mented!",
        "return a typed error, or write the code",
    ),
    ("dbg", "!", "remove it, or count the event"),
];

fn unfinished(tree: &Tree) -> Vec<Finding> {
    lines(tree)
        .flat_map(|(path, number, line)| {
            let found = UNFINISHED.iter().filter(move |(head, tail, _)| {
                let word = format!("{}{}", head, tail);
                match word.strip_suffix('!') {
                    Some(name) => line.contains(&word) && has_word(line, name),
                    None => has_word(line, &word),
                }
            });
            found.map(move |(head, tail, instead)| {
                Finding::new(path, number, format!("{}{}: {}", head, tail, instead))
            })
        })
        .collect()
}

/// Beginnings of paths that exist on one machine only; cut in two for the same reason.
const ONE_MACHINE: [(&str, &str); 4] = [
    ("/wo", "rk/"),
    ("/ro", "ot/"),
    ("/ho", "me/"),
    ("/tmp/tar", "get"),
];

fn one_machine(tree: &Tree) -> Vec<Finding> {
    let files = tree.files().filter(|(path, _)| !path.ends_with(".lock"));
    files
        .flat_map(|(path, text)| {
            text.lines().enumerate().flat_map(move |(index, line)| {
                let found = ONE_MACHINE
                    .iter()
                    .map(|(head, tail)| format!("{}{}", head, tail));
                found
                    .filter(move |place| line.contains(place.as_str()))
                    .map(move |place| {
                        let what =
                            format!("{} exists on one machine: take a path from the root", place);
                        Finding::new(path, index + 1, what)
                    })
            })
        })
        .collect()
}

fn licences(tree: &Tree) -> Vec<Finding> {
    let texts = [
        ("LICENSE-MIT", "THE SOFTWARE IS PROVIDED \"AS IS\""),
        ("LICENSE-APACHE", "END OF TERMS AND CONDITIONS"),
    ];
    texts
        .iter()
        .filter(|(path, end)| !tree.text(path).contains(end))
        .map(|(path, _)| Finding::new(path, 0, "is not the whole licence: add its text"))
        .collect()
}

fn changelog(tree: &Tree) -> Vec<Finding> {
    const PATH: &str = "CHANGELOG.md";
    if tree
        .text(PATH)
        .lines()
        .any(|line| line == "## [Unreleased]")
    {
        Vec::new()
    } else {
        vec![Finding::new(PATH, 0, "add a section: ## [Unreleased]")]
    }
}
