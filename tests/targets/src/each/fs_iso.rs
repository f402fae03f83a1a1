//! An ISO 9660 file system from a stranger, which is read.

use crate::parts::disks;

pub fn feed(input: &[u8]) {
    disks::feed(&disks::iso(), input);
}
