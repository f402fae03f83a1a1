//! The monitor's eye on what its guest counts.

use super::Error;
use crate::metrics::{self, Endpoint};
use crate::share::Share;
use crate::stats::last;
use crate::stats::prometheus::{self, Guest};
use crate::stats::reader::{self, Reader};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;
use tender::options::{Host, Options};

/// A reader of the counters of the guest that was started with `options`.
fn reader(share: &Share, options: &Options) -> std::io::Result<Reader> {
    // The tender says what is wrong with an image that cannot be read; it has no ports.
    let image = tender::load::open(&options.image);
    let ports = image.map_or_else(
        |_| Vec::new(),
        |(_, image)| reader::ports(&image.entries, &options.nets),
    );
    Ok(Reader::new(share.as_fd().try_clone_to_owned()?, ports))
}

/// Serves the counters of the guest that has just been started with `options`.
///
/// # Errors
/// There are no threads, or no descriptor.
pub fn serve(
    endpoint: &mut Endpoint,
    share: &Share,
    name: Option<&str>,
    options: &Options,
) -> Result<(), Error> {
    let guest = Guest {
        name: name.unwrap_or_default().to_owned(),
        image: options.image.display().to_string(),
        host: match options.host {
            Host::Spt => "spt",
            Host::Process => "process",
        }
        .to_owned(),
        start_seconds: SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()),
    };
    let reader = reader(share, options).map_err(metrics::Error::Start);
    let reader = Mutex::new(reader.map_err(Error::Metrics)?);
    let metrics = move || {
        let snapshot = reader
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .snapshot();
        prometheus::encode(&guest, snapshot.ok()?).ok()
    };
    endpoint.serve(metrics).map_err(Error::Metrics)
}

/// What the guest has counted, in a few lines; none if it cannot be read.
pub fn last_lines(share: &Share, options: &Options) -> Vec<String> {
    let snapshot = reader(share, options)
        .ok()
        .map(|mut reader| reader.snapshot());
    match snapshot {
        Some(Ok(snapshot)) => last::lines(&snapshot),
        _ => Vec::new(),
    }
}
