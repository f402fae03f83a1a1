//! Writes the corpora that the targets start from, below `corpus/` beside this package's manifest.

use std::fs;
use std::path::Path;

const MANIFEST: &[u8] = br#"{ "type": "solo5.manifest", "version": 1, "devices": [
    { "name": "private", "type": "NET_BASIC" },
    { "name": "disk", "type": "BLOCK_BASIC" } ] }
"#;

/// What is refused for now (a PCI device and DMA memory), so that its fields are known words.
const PCI_MANIFEST: &[u8] = br#"{ "type": "solo5.manifest", "version": 1, "dma_size": 16777216,
    "devices": [ { "name": "pci0", "type": "PCI_BASIC", "class": 2, "subclass": 0, "progif": 0,
    "vendor": 32902, "device_id": 4347, "bus_master_enable": true, "map_bar0": true } ] }
"#;

fn main() -> std::io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let seeds = [
        ("image", "sample", image::sample::sample()),
        ("manifest", "devices", MANIFEST.to_vec()),
        ("manifest", "pci", PCI_MANIFEST.to_vec()),
    ];
    for (target, name, bytes) in seeds {
        let folder = corpus.join(target);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(name), bytes)?;
    }
    Ok(())
}
