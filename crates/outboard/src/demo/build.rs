//! The images that are shown, built in the repository.

use super::error::Error;
use abi::note::Target;
use outboard::build;
use std::path::{Path, PathBuf};

/// Builds an appliance, `folder` of the repository that the current directory is in, with this
/// manifest or its own one; `file` is what it becomes.
///
/// # Errors
/// There is no such folder, or it does not build.
pub fn built(folder: &'static str, manifest: Option<&str>, file: &str) -> Result<PathBuf, Error> {
    let appliance = build::in_repository(folder)
        .map_err(|e| Error::Io("cannot find the current directory", e))?
        .ok_or(Error::NoAppliance(folder))?;
    // Cargo itself says what it does; whoever comes for the first time does not know why.
    if !appliance.join(file).exists() {
        eprintln!("Building the image of {folder}: about 1 min on two cores, this first time.");
    }
    let what = build::Appliance {
        manifest: manifest.map(Path::new),
        ..appliance.as_path().into()
    };
    let built = build::build(what, &[Target::Spt], &appliance).map_err(Error::Build)?;
    let first = built.into_iter().next();
    Ok(first.ok_or(Error::NoAppliance(folder))?.path)
}
