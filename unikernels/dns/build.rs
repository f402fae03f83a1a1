//! Beside the image's own, writes the records of the file `zone` for `src/main.rs` to include.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

const FILE: &str = "zone";

fn main() {
    image::appliance();
    println!("cargo::rerun-if-changed={FILE}");
    if let Err(error) = embed() {
        println!("cargo::error={FILE}: {error}");
    }
}

fn embed() -> Result<(), Box<dyn Error>> {
    let text = fs::read(Path::new(&env::var("CARGO_MANIFEST_DIR")?).join(FILE))?;
    let out = env::var_os("OUT_DIR").unwrap_or_default();
    let expression = zone::file::expression(&text)?;
    Ok(fs::write(Path::new(&out).join("zone.rs"), expression)?)
}
