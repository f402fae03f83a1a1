//! What drivers say alike, whatever their device is: what is wrong, and what to do.

use core::fmt::{Arguments, Formatter, Result};

/// Something, such as a BAR, has too few bytes; `bar` is the BAR that it lies in.
pub fn short(f: &mut Formatter<'_>, what: Arguments<'_>, bar: usize, bytes: [usize; 2]) -> Result {
    let [found, wanted] = bytes;
    write!(
        f,
        "{what} has {found} bytes instead of {wanted}: set map_bar{bar} in manifest.json"
    )
}

/// It is gone.
pub fn gone(f: &mut Formatter<'_>) -> Result {
    f.write_str(
        "its registers read all ones: it is unplugged or off; look for it with outboard pci list, \
         and start the image again",
    )
}

/// It did not report in time `what`.
pub fn late(f: &mut Formatter<'_>, what: &str) -> Result {
    write!(
        f,
        "it did not report in time: {what}; start the image again, and if that does not help, \
         switch the machine off and on"
    )
}
