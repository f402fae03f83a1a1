//! Writes the corpora that the targets start from, below `corpus/` beside this package's manifest.

use std::fs;
use std::path::Path;

const MANIFEST: &[u8] = br#"{ "type": "solo5.manifest", "version": 1, "devices": [
    { "name": "private", "type": "NET_BASIC" },
    { "name": "disk", "type": "BLOCK_BASIC" } ] }
"#;

const PCI_MANIFEST: &[u8] = br#"{ "type": "solo5.manifest", "version": 1, "dma_size": 16777216,
    "devices": [ { "name": "pci0", "type": "PCI_BASIC", "class": 2, "subclass": 0, "progif": 0,
    "vendor": 32902, "device_id": 4347, "bus_master_enable": true, "map_bar0": true } ] }
"#;

const SEED001: &str = include_str!("../../../unikernels/firewall/rules/seed001.nft");
const IPV6: &str = include_str!("../../../unikernels/firewall/rules/ipv6.nft");
/// Rules, each with what is expected of it.
const RULES: [&str; 3] = [
    include_str!("../../../crates/nf/src/nft/tests/accepted.txt"),
    include_str!("../../../crates/nf/src/nft/tests/unsupported.txt"),
    include_str!("../../../crates/nf/src/nft/tests/refused.txt"),
];

fn main() -> std::io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let seeds = [
        ("hypercall", "each", hypercalls()),
        ("image", "sample", image::sample::sample()),
        ("manifest", "devices", MANIFEST.to_vec()),
        ("manifest", "pci", PCI_MANIFEST.to_vec()),
    ];
    for (target, name, bytes) in seeds {
        let folder = corpus.join(target);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(name), bytes)?;
    }
    rules(&corpus.join("rules_parse"))
}

/// Each hypercall once: port, argument, what the argument says (handle or address, and so on).
fn hypercalls() -> Vec<u8> {
    const ARGUMENT: u32 = 0x1000;
    let words: [[u64; 5]; 8] = [
        [0; 5],
        [0x2000, 0, 0, 0, 0],
        [1_000, 0, 0, 0, 0],
        [2, 512, 0x2000, 512, 0],
        [2, 512, 0x2000, 512, 0],
        [1, 0x2000, 64, 0, 0],
        [1, 0x2000, 64, 0, 0],
        [0x2000, 3, 0, 0, 0],
    ];
    let mut bytes = Vec::new();
    for (number, words) in (1..).zip(words) {
        bytes.extend_from_slice(&(abi::hvt::CALL_PORT + number).to_le_bytes());
        bytes.extend_from_slice(&ARGUMENT.to_le_bytes());
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }
    bytes
}

/// Rule files, rules of the unit tests, and the files of the folders named on the command line.
fn rules(folder: &Path) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("seed001"), SEED001)?;
    fs::write(folder.join("ipv6"), IPV6)?;
    let lines = RULES.iter().flat_map(|rules| rules.lines());
    for (number, line) in lines.enumerate() {
        let rule = line.split(" => ").next().unwrap_or(line);
        let text = format!("table bridge t {{\n\tchain c {{\n\t\t{rule}\n\t}}\n}}\n");
        fs::write(folder.join(format!("rule{number}")), text)?;
    }
    for (number, source) in std::env::args().skip(1).enumerate() {
        for entry in fs::read_dir(source)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                let name = entry.file_name();
                let name = format!("folder{number}-{}", name.to_string_lossy());
                fs::copy(entry.path(), folder.join(name))?;
            }
        }
    }
    Ok(())
}
