//! Beside the image's own, writes a table of the files in `www` for `src/file.rs` to include.

use std::path::Path;
use std::{env, fs, io};

const FOLDER: &str = "www";

fn main() {
    image::appliance();
    println!("cargo::rerun-if-changed={FOLDER}");
    if let Err(error) = embed() {
        println!("cargo::error={FOLDER}: {error}");
    }
}

fn embed() -> io::Result<()> {
    let folder = Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap_or_default()).join(FOLDER);
    let mut rows = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let fields = format!(
            "Content-Type: {}\\r\\nETag: \\\"{:016x}\\\"\\r\\nAccept-Ranges: bytes\\r\\n",
            content_type(&path),
            hash(&fs::read(&path)?)
        );
        let row = |place: &str| {
            let bytes = format!("include_bytes!({path:?})");
            format!("File {{ path: \"/{place}\", fields: \"{fields}\", bytes: {bytes} }},\n")
        };
        rows.push(row(&name));
        if name == "index.html" {
            rows.push(row(""));
        }
    }
    let table = format!("const FILES: &[File] = &[\n{}];\n", rows.concat());
    let out = env::var_os("OUT_DIR").unwrap_or_default();
    fs::write(Path::new(&out).join("files.rs"), table)
}

fn content_type(path: &Path) -> &'static str {
    let extension = path.extension().unwrap_or_default();
    match extension.to_str().unwrap_or_default() {
        "css" => "text/css",
        "html" => "text/html; charset=utf-8",
        "ico" => "image/x-icon",
        "jpg" => "image/jpeg",
        "js" => "text/javascript",
        "json" => "application/json",
        "png" => "image/png",
        "svg" => "image/svg+xml",
        "txt" => "text/plain; charset=utf-8",
        "wasm" => "application/wasm",
        _ => "application/octet-stream",
    }
}

/// FNV-1a: it tells a file from what it was before, and no more.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}
