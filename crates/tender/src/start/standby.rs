//! A guest that is loaded and waits: a spare, whose start is mostly done before it is wanted. It
//! holds nothing of its devices so far.

use super::{Error, Step, say};
use crate::options::Location;
use crate::share;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, read};
use std::path::Path;

/// What stands in front of the name of an image that is loaded, behind the name of the program.
pub const LOADED: &str = "standby: ";

/// Says that `image` is loaded, and waits for a byte out of `begin`.
///
/// # Errors
/// It cannot be opened, or nobody is left who could write the byte.
pub(super) fn wait(begin: &Location, image: &Path) -> Result<(), Error> {
    let system = |errno: Errno| Error::System(Step::Standby, errno.into());
    let begin = share::descriptor(begin);
    let begin = begin.map_err(|error| Error::System(Step::Standby, error))?;
    say(&[format_args!(
        "{LOADED}{}",
        image.display().to_string().escape_debug()
    )]);
    loop {
        // A FIFO is opened without waiting, so that reading does not wait either.
        match poll(&mut [PollFd::new(&begin, PollFlags::IN)], None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(system(errno)),
        }
        match read(&begin, &mut [0]) {
            Ok(0) => return Err(Error::Dismissed),
            Ok(_) => return Ok(()),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(system(errno)),
        }
    }
}
