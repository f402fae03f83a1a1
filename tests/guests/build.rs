//! Each guest `src/bin/NAME.rs` has the devices of `manifests/NAME.json`, or none.

use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=src/bin");
    let guests = std::fs::read_dir("src/bin").expect("guests lie in src/bin");
    for guest in guests {
        let path = guest.expect("src/bin can be read").path();
        let name = path.file_stem().and_then(|name| name.to_str());
        let name = name.expect("a guest has a name");
        image::appliance_from(&manifest_of(name), name);
    }
}

fn manifest_of(guest: &str) -> PathBuf {
    let own = Path::new("manifests").join(guest).with_extension("json");
    if own.exists() {
        own
    } else {
        Path::new("manifests/none.json").into()
    }
}
