//! A FAT file system from a stranger, which is read, and then written.

use crate::parts::disks;
use std::sync::OnceLock;

pub fn feed(input: &[u8]) {
    static DISK: OnceLock<Vec<u8>> = OnceLock::new();
    disks::feed(DISK.get_or_init(|| disks::filled(disks::fat())), input);
}
