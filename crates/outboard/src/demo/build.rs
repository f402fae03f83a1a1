//! The images that are shown, built in the repository.

use super::error::Error;
use abi::note::Target;
use outboard::build;
use std::env;
use std::path::{Path, PathBuf};

/// Builds an appliance, `folder` of the repository that the current directory is in, with this
/// manifest or its own one; `file` is what it becomes.
///
/// # Errors
/// There is no such folder, or it does not build.
pub fn built(folder: &'static str, manifest: Option<&str>, file: &str) -> Result<PathBuf, Error> {
    let here = env::current_dir().map_err(|e| Error::Io("cannot find the current directory", e))?;
    let appliance = here
        .ancestors()
        .map(|directory| directory.join(folder))
        .find(|directory| directory.is_dir())
        .ok_or(Error::NoAppliance(folder))?;
    // Cargo itself says what it does; whoever comes for the first time does not know why.
    if !appliance.join(file).exists() {
        eprintln!("Building the image of {folder}: about 1 min on two cores, this first time.");
    }
    let what = build::Appliance {
        directory: &appliance,
        manifest: manifest.map(Path::new),
        features: &[],
        remap_path_prefix: &[],
    };
    let built = build::build(what, &[Target::Spt], &appliance).map_err(Error::Build)?;
    let first = built.into_iter().next();
    Ok(first.ok_or(Error::NoAppliance(folder))?.path)
}
