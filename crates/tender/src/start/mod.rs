//! The steps of a start that all hosts share.
//!
//! | module | what |
//! |---|---|
//! | `error` | why a guest was not started, and what to do about it |
//! | `fill` | what the tender writes into guest memory |
//! | `ready` | what is said when all is attached |
//! | `resources` | what a guest is lent, whatever its host |
//! | `standby` | the wait of a guest that is loaded, before it is lent anything |
//!
//! A host depends on these steps and on no other host.

mod error;
mod fill;
mod ready;
mod resources;
mod standby;

pub use error::{Error, Step};
pub use fill::put;
pub use ready::announce;
pub use resources::{Resources, interrupts, say, wait_set};
pub use standby::LOADED;

use crate::check::{self, Pairs};
use crate::core_file::CoreFile;
use crate::memory::{Memory, Segment};
use crate::options::Options;
use crate::{boot, load};
use image::Image;
use std::fs::File;
use std::path::Path;

/// Random bytes for an image's secrets.
///
/// # Errors
/// If the kernel gives none.
pub fn seed() -> Result<[u8; 32], Error> {
    let mut seed = [0; 32];
    let filled = crate::sys::random::fill(&mut seed);
    filled.map_err(|error| Error::System(Step::Random, error))?;
    Ok(seed)
}

/// What is to be started: an image, and how.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// The command line.
    pub options: &'a Options,
    /// The image, checked.
    pub image: &'a Image,
    /// The file that the image is in.
    pub file: &'a File,
}

impl<'a> Start<'a> {
    /// Each device of the manifest with what the command line attaches to it.
    ///
    /// # Errors
    /// Manifest and command line differ.
    pub fn pairs(&self) -> Result<Pairs<'a>, Error> {
        let Image {
            entries,
            pci,
            regions,
            ..
        } = self.image;
        check::pair(entries, pci, regions, self.options).map_err(Error::Check)
    }

    /// The command line of the guest.
    ///
    /// # Errors
    /// It is too long.
    pub fn command_line(&self) -> Result<Vec<u8>, Error> {
        boot::command_line(&self.options.arguments).map_err(Error::CommandLine)
    }

    /// Copies `segments` of the image from its file to where the guest expects them.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn fill(&self, guest: &mut impl Memory, segments: &[Segment]) -> Result<(), Error> {
        fill::segments(guest, segments, self.file).map_err(|error| self.unusable(error))
    }

    /// Waits until a guest that is loaded shall begin, if the command line says so.
    ///
    /// # Errors
    /// It never shall.
    pub fn stand_by(&self) -> Result<(), Error> {
        match &self.options.standby {
            Some(begin) => standby::wait(begin, &self.options.image),
            None => Ok(()),
        }
    }

    /// Opens all that the guest is lent; `pairs` are those of [`Self::pairs`].
    ///
    /// # Errors
    /// The first thing that cannot be had.
    pub fn resources(&self, pairs: &Pairs<'_>) -> Result<Resources, Error> {
        Resources::open(self.image, pairs, self.options)
    }

    /// The core file that the command line asks for, which nothing is in yet.
    ///
    /// # Errors
    /// There is none in that folder.
    pub fn core_file(&self) -> Result<Option<CoreFile>, Error> {
        let folder = self.options.dump_core.as_deref();
        let create = |folder: &Path| {
            CoreFile::create(folder).map_err(|error| Error::CoreFile(folder.to_owned(), error))
        };
        folder.map(create).transpose()
    }

    /// The image cannot be used, for this reason.
    pub fn unusable(&self, error: load::Error) -> Error {
        Error::Load(self.options.image.clone(), error)
    }
}
