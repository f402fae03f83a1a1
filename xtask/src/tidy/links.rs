//! Links between documents: every relative link and every path in backquotes leads somewhere.

use super::{Finding, Tree};

/// Folders of the repository in which a path in backquotes may begin.
const FOLDERS: [&str; 9] = [
    "crates",
    "docs",
    "fuzz",
    "include",
    "lab",
    "results",
    "tests",
    "unikernels",
    "xtask",
];
/// Folders that a command fills.
const FILLED: [&str; 2] = ["fuzz/artifacts", "fuzz/corpus"];
const FENCE: &str = "```";

/// Every relative link in a document names a file, a folder or a heading that exists.
pub fn links(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.documents() {
        for (number, line) in prose(text) {
            let broken = targets(line)
                .into_iter()
                .filter_map(|target| fault(tree, path, target));
            let gone = paths(line)
                .into_iter()
                .filter(|target| !tree.has(target) && !FILLED.contains(target))
                .map(|target| format!("there is no {}: name what there is", target));
            findings.extend(
                broken
                    .chain(gone)
                    .map(|what| Finding::new(path, number, what)),
            );
        }
    }
    findings
}

/// Why a link of a document leads nowhere, if so.
fn fault(tree: &Tree, document: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = match target.split_once('#') {
        Some((file, anchor)) => (file, Some(anchor)),
        None => (target, None),
    };
    let place = if file.is_empty() {
        Some(document.to_string())
    } else {
        join(document, file)
    };
    let place = match place {
        Some(place) if tree.has(&place) => place,
        _ => return Some(format!("the link to {} leads nowhere", target)),
    };
    match anchor {
        Some(anchor)
            if !anchors(tree.text(&place))
                .iter()
                .any(|known| known == anchor) =>
        {
            Some(format!("{} has no heading #{}", place, anchor))
        }
        _ => None,
    }
}

/// The path from the root that `relative` means in `document`; none if it leaves the repository.
fn join(document: &str, relative: &str) -> Option<String> {
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in relative.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// The numbered lines outside of blocks of code.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut inside = false;
    let numbered = text.lines().enumerate();
    numbered
        .filter(|(_, line)| {
            let fence = line.trim_start().starts_with(FENCE);
            inside ^= fence;
            !inside && !fence
        })
        .map(|(index, line)| (index + 1, line))
        .collect()
}

/// What the links in a line lead to: `[text](TARGET)` and `[text]: TARGET`.
fn targets(line: &str) -> Vec<&str> {
    let inline = line
        .match_indices("](")
        .filter_map(|(at, _)| Some(line[at + 2..].split_once(')')?.0));
    let defined = line
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("]: "))
        .map(|(_, target)| target);
    let target = |text: &str| text.trim().find(' ').unwrap_or_else(|| text.trim().len());
    inline
        .chain(defined)
        .map(|text| &text.trim()[..target(text)])
        .collect()
}

/// Paths of the repository in backquotes; patterns are none.
fn paths(line: &str) -> Vec<&str> {
    let is_path = |text: &&str| {
        let plain = |c: char| c.is_alphanumeric() || "/._-".contains(c);
        let known = text
            .split_once('/')
            .map_or(false, |(folder, _)| FOLDERS.contains(&folder));
        known && text.chars().all(plain)
    };
    line.split('`')
        .skip(1)
        .step_by(2)
        .map(|text| text.trim_end_matches('/'))
        .filter(is_path)
        .collect()
}

/// The anchors of a document's headings, as GitHub makes them.
fn anchors(text: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    for (_, line) in prose(text) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let slug: String = title
            .trim()
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let again = anchors.iter().filter(|known| **known == slug).count();
        anchors.push(if again == 0 {
            slug
        } else {
            format!("{}-{}", slug, again)
        });
    }
    anchors
}
