//! The commands of `docs/installing.md`: as scripts, to be typed where they do no harm.

use super::archive;
use std::path::Path;

/// The document.
const DOCUMENT: &str = "docs/installing.md";
const FENCE: &str = "```";
/// Whoever types these is root already.
const ROOT: &str = "sudo() { \"$@\"; }\n";

/// The commands of the block behind `<!-- test: NAME -->`.
///
/// # Errors
/// One line, if there is no such block.
pub fn block(sources: &Path, name: &str) -> Result<String, String> {
    let text = archive::read(&sources.join(DOCUMENT))?;
    find(&text, name)
        .map(|commands| format!("{}{}", ROOT, commands))
        .ok_or_else(|| format!("{} has no block {}", DOCUMENT, name))
}

fn find(text: &str, name: &str) -> Option<String> {
    let mark = format!("<!-- test: {} -->", name);
    let mut lines = text.lines().skip_while(|line| *line != mark).skip(1);
    lines.next().filter(|line| line.starts_with(FENCE))?;
    let commands = lines.take_while(|line| *line != FENCE);
    Some(commands.map(|line| format!("{}\n", line)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::package::{debian, trial};

    #[test]
    fn a_block_is_found_by_its_name() {
        let text = "<!-- test: a -->\n```sh\none\ntwo\n```\n<!-- test: b -->\nnone\n";
        assert_eq!(find(text, "a").as_deref(), Some("one\ntwo\n"));
        assert_eq!(find(text, "b"), None);
        assert_eq!(find(text, "c"), None);
    }

    #[test]
    fn each_block_is_typed_somewhere_or_says_why_not() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let text = archive::read(&root.join(DOCUMENT)).unwrap();
        let mut known: Vec<&str> = trial::BLOCKS.to_vec();
        known.extend(debian::blocks());
        let mut before = "";
        for line in text.lines() {
            if line == "```sh" && !before.starts_with("<!-- not tested: ") {
                let name = before.strip_prefix("<!-- test: ").unwrap();
                let name = name.strip_suffix(" -->").unwrap();
                assert!(known.contains(&name), "nobody types {}", name);
            }
            before = line;
        }
        for name in known {
            block(&root, name).unwrap();
        }
    }
}
