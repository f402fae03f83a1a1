//! What the `build.rs` of an appliance does.

use crate::manifest;
use crate::script::linker_script;
use abi::extension::feature;
use abi::note::Target;
use std::env;
use std::path::{Path, PathBuf};

/// What the compiler driver needs beside the script. `-no-pie` comes after rustc's own `-pie` or
/// `-static-pie` and wins, so that the result is `ET_EXEC`.
const LINK_ARGUMENTS: [&str; 9] = [
    "-nostartfiles",
    "-nostdlib",
    "-static",
    "-no-pie",
    "-Wl,--build-id=none",
    "-Wl,-z,max-page-size=0x1000",
    "-Wl,-z,norelro",
    "-Wl,-z,noexecstack",
    // Line numbers are not loaded, but nobody should have to keep a megabyte of them.
    "-Wl,--compress-debug-sections=zlib",
];

/// The environment variable by which the code of an appliance finds the file of its rules:
/// `include_str!(env!("OUTBOARD_RULES"))`.
const RULES_VARIABLE: &str = "OUTBOARD_RULES";

/// The whole `build.rs` of an appliance: every binary of the package becomes an image with the
/// manifest in `manifest.json`. What is wrong fails the build in one line.
pub fn appliance() {
    report(package().and_then(|package| build_appliance(&package, feature::RUNTIME, None)));
}

/// The same for an appliance that takes rules while it runs: `outboard rules load` and the tender's
/// `--rules` are for its images alone. `read`, which is given the folder of the package, returns
/// the text of those that it comes with, and tells cargo what it has read. Its code includes them
/// by `include_str!(env!("OUTBOARD_RULES"))`, and `outboard stats` knows their texts.
pub fn appliance_with_rules(read: impl FnOnce(&Path) -> Result<String, String>) {
    report(package().and_then(|package| {
        let text = read(&package)?;
        write_rules(&text)?;
        build_appliance(&package, feature::RUNTIME | feature::RULES, Some(&text))
    }));
}

fn build_appliance(package: &Path, features: u32, rules: Option<&str>) -> Result<(), String> {
    let manifest = package.join("manifest.json");
    link_arguments(&manifest, features, rules, "image", "rustc-link-arg-bins=")
}

/// The same for one binary of a package of several, with a manifest of its own.
/// `manifest_path` is relative to the package.
pub fn appliance_from(manifest_path: &Path, bin: &str) {
    appliance_from_with(manifest_path, bin, feature::RUNTIME);
}

/// The same for a binary that takes rules while it runs, and comes with none that have a text.
pub fn appliance_from_with_rules(manifest_path: &Path, bin: &str) {
    appliance_from_with(manifest_path, bin, feature::RUNTIME | feature::RULES);
}

fn appliance_from_with(manifest_path: &Path, bin: &str, features: u32) {
    let manifest = package().map(|package| package.join(manifest_path));
    let instruction = format!("rustc-link-arg-bin={bin}=");
    report(
        manifest.and_then(|manifest| link_arguments(&manifest, features, None, bin, &instruction)),
    );
}

/// Puts the text of an appliance's rules where its code finds it.
fn write_rules(text: &str) -> Result<(), String> {
    let path = directory("OUT_DIR")?.join("rules.nft");
    println!("cargo::rustc-env={RULES_VARIABLE}={}", path.display());
    std::fs::write(&path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))
}

/// Writes the linker script to `OUT_DIR` and tells cargo to use it.
fn link_arguments(
    manifest_path: &Path,
    features: u32,
    rules: Option<&str>,
    script_name: &str,
    instruction: &str,
) -> Result<(), String> {
    println!("cargo::rerun-if-changed={}", manifest_path.display());
    let manifest = manifest::read(manifest_path).map_err(|error| error.to_string())?;
    let script_path = directory("OUT_DIR")?.join(format!("{script_name}.ld"));
    let script = linker_script(&manifest, features, rules, Target::Spt);
    std::fs::write(&script_path, script)
        .map_err(|error| format!("cannot write {}: {error}", script_path.display()))?;
    let script = script_path.display().to_string();
    for argument in LINK_ARGUMENTS.into_iter().chain(["-T", &script]) {
        println!("cargo::{instruction}{argument}");
    }
    Ok(())
}

/// The folder of the package that is built.
fn package() -> Result<PathBuf, String> {
    directory("CARGO_MANIFEST_DIR")
}

/// A directory that cargo tells build scripts about.
fn directory(variable: &str) -> Result<PathBuf, String> {
    env::var_os(variable)
        .map(PathBuf::from)
        .ok_or_else(|| format!("{variable} is not set; call this from a build.rs"))
}

/// Cargo fails the build with these lines.
fn report(result: Result<(), String>) {
    if let Err(reason) = result {
        for line in reason.lines() {
            println!("cargo::error={line}");
        }
    }
}
