//! The `build.rs` of an appliance that comes with rules.

use crate::{Failure, Gathered};
use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// The whole `build.rs` of an appliance whose rules are in `rules`, relative to the package, and in
/// the files that this one includes: they become one text, with which
/// [`image::appliance_with_rules`] does the rest. What is wrong fails the build.
pub fn appliance(rules: &Path) {
    match whole_in_package(rules) {
        Ok(whole) => image::appliance_with_rules(&whole),
        Err(reason) => {
            for line in reason.lines() {
                println!("cargo::error={line}");
            }
        }
    }
}

fn whole_in_package(rules: &Path) -> Result<PathBuf, String> {
    let folder = |variable: &str| {
        let folder = env::var_os(variable).map(PathBuf::from);
        folder.ok_or_else(|| format!("{variable} is not set; call this from a build.rs"))
    };
    let whole = folder("OUT_DIR")?.join("rules.nft");
    for path in write(&folder("CARGO_MANIFEST_DIR")?.join(rules), &whole)? {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    Ok(whole)
}

/// Writes all that `rules` are to the file `whole`; returns what they were read from, and the
/// folders, in which there may be more for a pattern another time.
fn write(rules: &Path, whole: &Path) -> Result<BTreeSet<PathBuf>, String> {
    let gathered = Gathered::read(rules).map_err(|failure| match failure {
        Failure::Source(error) => error.to_string(),
        Failure::Include(said) => said,
    })?;
    fs::write(whole, &gathered.source.text)
        .map_err(|error| format!("cannot write {}: {error}", whole.display()))?;
    let mut read = BTreeSet::new();
    for file in gathered.whole.files() {
        let path = PathBuf::from(&file.name);
        read.extend(path.parent().map(Path::to_owned));
        read.insert(path);
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_included_becomes_part_of_one_text() {
        let folder = env::temp_dir().join(format!("outboard-built-{}", std::process::id()));
        let more = folder.join("more");
        fs::create_dir_all(&more).unwrap();
        let first = folder.join("first.nft");
        fs::write(&first, "include \"more/*.nft\"\ntable inet t { }\n").unwrap();
        fs::write(more.join("a.nft"), "define A = 1").unwrap();
        fs::write(more.join("b.nft"), "define B = 2").unwrap();
        let whole = folder.join("whole");
        let read = write(&first, &whole);
        let text = fs::read_to_string(&whole).unwrap_or_default();
        let missing = write(&folder.join("none.nft"), &whole);
        fs::write(more.join("b.nft"), "include \"none\"").unwrap();
        let not_there = write(&first, &whole);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(text, "define A = 1\ndefine B = 2\n\ntable inet t { }\n");
        let expected = [
            &folder,
            &first,
            &more,
            &more.join("a.nft"),
            &more.join("b.nft"),
        ];
        assert_eq!(read.unwrap(), expected.into_iter().cloned().collect());
        assert!(missing.unwrap_err().contains("none.nft"));
        let said = not_there.unwrap_err();
        assert!(
            said.contains("b.nft:1") && said.contains("include"),
            "{said}"
        );
    }
}
