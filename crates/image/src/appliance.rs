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

/// The environment variable by which `outboard build --manifest` names another manifest than
/// `manifest.json`.
pub const MANIFEST_VARIABLE: &str = "OUTBOARD_MANIFEST";

/// The whole `build.rs` of an appliance: every binary of the package becomes an image with the
/// manifest in `manifest.json`, or in the file that [`MANIFEST_VARIABLE`] names. What is wrong
/// fails the build in one line.
pub fn appliance() {
    appliance_with(feature::RUNTIME);
}

/// The same for an appliance that takes rules while it runs: `outboard rules load` and the tender's
/// `--rules` are for its images alone.
pub fn appliance_with_rules() {
    appliance_with(feature::RUNTIME | feature::RULES);
}

fn appliance_with(features: u32) {
    println!("cargo::rerun-if-env-changed={MANIFEST_VARIABLE}");
    let file = env::var_os(MANIFEST_VARIABLE).unwrap_or_else(|| "manifest.json".into());
    let manifest = directory("CARGO_MANIFEST_DIR").map(|package| package.join(file));
    let bins = "rustc-link-arg-bins=";
    report(manifest.and_then(|manifest| link_arguments(&manifest, features, "image", bins)));
}

/// The same for one binary of a package of several, with a manifest of its own.
/// `manifest_path` is relative to the package.
pub fn appliance_from(manifest_path: &Path, bin: &str) {
    appliance_from_with(manifest_path, bin, feature::RUNTIME);
}

/// The same for a binary that takes rules while it runs.
pub fn appliance_from_with_rules(manifest_path: &Path, bin: &str) {
    appliance_from_with(manifest_path, bin, feature::RUNTIME | feature::RULES);
}

fn appliance_from_with(manifest_path: &Path, bin: &str, features: u32) {
    let manifest = directory("CARGO_MANIFEST_DIR").map(|package| package.join(manifest_path));
    let instruction = format!("rustc-link-arg-bin={bin}=");
    report(manifest.and_then(|manifest| link_arguments(&manifest, features, bin, &instruction)));
}

/// Writes the linker script to `OUT_DIR` and tells cargo to use it.
fn link_arguments(
    manifest_path: &Path,
    features: u32,
    script_name: &str,
    instruction: &str,
) -> Result<(), String> {
    println!("cargo::rerun-if-changed={}", manifest_path.display());
    let manifest = manifest::read(manifest_path).map_err(|error| error.to_string())?;
    let script_path = directory("OUT_DIR")?.join(format!("{script_name}.ld"));
    let script = linker_script(&manifest, features, Target::Spt);
    std::fs::write(&script_path, script)
        .map_err(|error| format!("cannot write {}: {error}", script_path.display()))?;
    let script = script_path.display().to_string();
    for argument in LINK_ARGUMENTS.into_iter().chain(["-T", &script]) {
        println!("cargo::{instruction}{argument}");
    }
    Ok(())
}

/// A directory that cargo tells build scripts about.
fn directory(variable: &str) -> Result<PathBuf, String> {
    env::var_os(variable)
        .map(PathBuf::from)
        .ok_or_else(|| format!("{variable} is not set; call this from a build.rs"))
}

/// Cargo fails the build with this line.
fn report(result: Result<(), String>) {
    if let Err(reason) = result {
        println!("cargo::error={reason}");
    }
}
