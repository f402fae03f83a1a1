//! The `build.rs` of an appliance that comes with rules.

use crate::{Failure, Gathered};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The whole `build.rs` of an appliance whose rules are in `rules`, relative to the package, and in
/// the files that this one includes: they become one text, with which
/// [`image::appliance_with_rules`] does the rest. What is wrong fails the build.
pub fn appliance(rules: &Path) {
    image::appliance_with_rules(|package| {
        let (text, read) = gather(&package.join(rules))?;
        for path in read {
            println!("cargo::rerun-if-changed={}", path.display());
        }
        Ok(text)
    });
}

/// All that `rules` are, and what they were read from with the folders, in which there may be more
/// for a pattern another time.
fn gather(rules: &Path) -> Result<(String, BTreeSet<PathBuf>), String> {
    let gathered = Gathered::read(rules).map_err(|failure| match failure {
        Failure::Source(error) => error.to_string(),
        Failure::Include(said) => said,
    })?;
    let mut read = BTreeSet::new();
    for file in gathered.whole.files() {
        let path = PathBuf::from(&file.name);
        read.extend(path.parent().map(Path::to_owned));
        read.insert(path);
    }
    Ok((gathered.source.text, read))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{env, fs};

    #[test]
    fn what_is_included_becomes_part_of_one_text() {
        let folder = env::temp_dir().join(format!("outboard-built-{}", std::process::id()));
        let more = folder.join("more");
        fs::create_dir_all(&more).unwrap();
        let first = folder.join("first.nft");
        fs::write(&first, "include \"more/*.nft\"\ntable inet t { }\n").unwrap();
        fs::write(more.join("a.nft"), "define A = 1").unwrap();
        fs::write(more.join("b.nft"), "define B = 2").unwrap();
        let gathered = gather(&first);
        let missing = gather(&folder.join("none.nft"));
        fs::write(more.join("b.nft"), "include \"none\"").unwrap();
        let not_there = gather(&first);
        fs::remove_dir_all(&folder).unwrap();
        let (text, read) = gathered.unwrap();
        assert_eq!(text, "define A = 1\ndefine B = 2\n\ntable inet t { }\n");
        let expected = [
            &folder,
            &first,
            &more,
            &more.join("a.nft"),
            &more.join("b.nft"),
        ];
        assert_eq!(read, expected.into_iter().cloned().collect());
        assert!(missing.unwrap_err().contains("none.nft"));
        let said = not_there.unwrap_err();
        assert!(
            said.contains("b.nft:1") && said.contains("include"),
            "{said}"
        );
    }
}
