//! What an image is made of, on the host's side: manifest, notes, linker script, and the checked reading of ELF files.
