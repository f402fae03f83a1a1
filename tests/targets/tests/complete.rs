//! What stands in several places of targets is the same, and inputs are what they promise to be.
//! Beside the library, so that cargo takes it with the features of all members: see
//! `xtask/src/stages.rs`.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use targets::mutations::{FRESH_BYTES_MAX, INPUT_BYTES_MAX, input};
use targets::{ALL, seeds};

const CORPUS: [&[u8]; 2] = [b"one of them", &[7; INPUT_BYTES_MAX]];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Names of the Rust files of a folder.
fn files(folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(root().join(folder)).expect("the folder is there");
    let paths = entries.map(|entry| entry.expect("it can be read").path());
    let rust = paths.filter(|path| path.extension().is_some_and(|is| is == "rs"));
    rust.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect()
}

fn names() -> BTreeSet<String> {
    ALL.iter().map(|target| target.name.to_owned()).collect()
}

#[test]
fn each_function_has_a_target_and_each_target_a_function() {
    assert_eq!(names().len(), ALL.len(), "two have one name");
    let mut functions = files("tests/targets/src/each");
    functions.remove("mod");
    assert_eq!(functions, names());
    assert_eq!(files("fuzz/fuzz_targets"), names());
    for name in names() {
        let path = format!("fuzz_targets/{name}.rs");
        let text = fs::read_to_string(root().join("fuzz").join(&path)).expect("a file");
        let call = format!("targets::feed(\"{name}\", input)");
        assert!(text.contains(&call), "fuzz/{path} does not call {call}");
    }
}

#[test]
fn cargo_and_the_table_know_each_target() {
    let manifest = fs::read_to_string(root().join("fuzz/Cargo.toml")).expect("a file");
    let readme = fs::read_to_string(root().join("fuzz/README.md")).expect("a file");
    let bins = manifest.matches("[[bin]]").count();
    assert_eq!(bins, ALL.len(), "programs in fuzz/Cargo.toml");
    for name in names() {
        let bin = format!("name = \"{name}\"\npath = \"fuzz_targets/{name}.rs\"");
        assert!(manifest.contains(&bin), "fuzz/Cargo.toml lacks {name}");
        assert!(
            readme.contains(&format!("`{name}`")),
            "fuzz/README.md lacks {name}"
        );
    }
}

#[test]
fn each_seed_is_for_a_target() {
    let all = seeds::all();
    for seed in &all {
        assert!(names().contains(seed.target), "no target {}", seed.target);
    }
    let distinct: BTreeSet<_> = all.iter().map(|seed| (seed.target, &seed.name)).collect();
    assert_eq!(distinct.len(), all.len(), "two files have one name");
}

#[test]
fn a_number_is_an_input() {
    let inputs = || (0..1000).map(|number| input(number, &CORPUS));
    assert!(inputs().eq(inputs()));
    let different: BTreeSet<_> = inputs().collect();
    assert!(different.len() > 900, "{} inputs", different.len());
}

#[test]
fn inputs_are_bounded_and_near_the_corpus() {
    let near = |input: &Vec<u8>| {
        input
            .windows(4)
            .any(|part| part == b"one " || part == [7; 4])
    };
    let inputs: Vec<_> = (0..1000).map(|number| input(number, &CORPUS)).collect();
    assert!(inputs.iter().all(|input| input.len() <= INPUT_BYTES_MAX));
    assert!(inputs.iter().filter(|input| near(input)).count() > 500);
    assert!((0..1000).all(|number| input(number, &[]).len() <= FRESH_BYTES_MAX));
}
