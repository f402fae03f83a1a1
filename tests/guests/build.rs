//! Each guest `src/bin/NAME.rs` has the devices of `manifests/NAME.json`, or none. Those in
//! [`WITH_RULES`] claim to take rules.

use std::path::{Path, PathBuf};

const WITH_RULES: [&str; 1] = ["nonsense"];

fn main() {
    println!("cargo:rerun-if-changed=src/bin");
    let guests = std::fs::read_dir("src/bin").expect("guests lie in src/bin");
    for guest in guests {
        let path = guest.expect("src/bin can be read").path();
        let name = path.file_stem().and_then(|name| name.to_str());
        let name = name.expect("a guest has a name");
        let manifest = manifest_of(name);
        match WITH_RULES.contains(&name) {
            true => image::appliance_from_with_rules(&manifest, name),
            false => image::appliance_from(&manifest, name),
        }
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
