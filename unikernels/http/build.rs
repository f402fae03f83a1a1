//! Beside the image's own, packs the folder `www` into the archive that `src/main.rs` includes.

use std::path::Path;
use std::{env, fs, io};

const FOLDER: &str = "www";

fn main() {
    image::appliance();
    println!("cargo::rerun-if-changed={FOLDER}");
    if let Err(error) = pack() {
        println!("cargo::error={FOLDER}: {error}");
    }
}

fn pack() -> io::Result<()> {
    let folder = Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap_or_default()).join(FOLDER);
    let out = env::var_os("OUT_DIR").unwrap_or_default();
    let mut archive = tar::Builder::new(fs::File::create(Path::new(&out).join("www.tar"))?);
    // Neither times nor owners: the same folder makes the same image.
    archive.mode(tar::HeaderMode::Deterministic);
    archive.append_dir_all("", folder)?;
    archive.finish()
}
