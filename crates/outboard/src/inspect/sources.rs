//! How many lines of code a source file has, and which source files a crate has: to say how much of
//! it an image links.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Longest source file that is read, in bytes. Longer ones count as far as that.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Folders in folders, at most.
const DEPTH_MAX: u32 = 16;
/// Most files of a crate.
const FILES_MAX: usize = 4096;

/// Source files in `folder` and below, without those of tests.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    collect(folder, DEPTH_MAX, &mut found);
    found
}

fn collect(folder: &Path, depth: u32, found: &mut Vec<PathBuf>) {
    // What cannot be read is not counted.
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if found.len() >= FILES_MAX || depth == 0 {
            return;
        }
        let path = entry.path();
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if path.file_stem().is_some_and(|stem| stem == "tests") {
            continue;
        }
        if is_folder {
            collect(&path, depth - 1, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Lines of code in a file; `None` if it cannot be read.
pub fn lines_of(path: &Path) -> Option<u64> {
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(lines(&String::from_utf8_lossy(&bytes)))
}

/// Lines that are neither empty nor a comment, without the module of tests at the end.
fn lines(text: &str) -> u64 {
    let mut lines = text.lines().map(str::trim).peekable();
    let mut count = 0;
    while let Some(line) = lines.next() {
        let next = lines.peek().copied().unwrap_or_default();
        if line == "#[cfg(test)]" && next.starts_with("mod ") && next.ends_with('{') {
            break;
        }
        if !line.is_empty() && !line.starts_with("//") {
            count += 1;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_tests_are_no_code() {
        let text = "//! A.\n\nuse b;\n#[cfg(test)]\nmod tests;\n/// C.\nfn d() {} // e\n\
                    #[cfg(test)]\nmod tests {\n    fn f() {}\n}\n";
        assert_eq!(lines(text), 4);
    }

    #[test]
    fn a_crate_has_its_files_and_no_tests() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/frame");
        let found = files(&folder);
        assert!(found.contains(&folder.join("craft.rs")), "{found:?}");
        assert!(!found.contains(&folder.join("tests.rs")), "{found:?}");
        assert!(lines_of(&folder.join("craft.rs")).unwrap() > 100);
        assert_eq!(lines_of(&folder.join("absent.rs")), None);
        assert_eq!(files(&folder.join("absent")), Vec::<PathBuf>::new());
    }
}
