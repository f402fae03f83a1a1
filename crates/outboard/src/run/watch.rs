//! The monitor's eye on what its guest counts.

use super::{Error, named};
use crate::metrics::Endpoint;
use crate::share::SharedFile;
use crate::stats::reader::Reader;
use crate::stats::{self, last, prometheus};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};
use tender::options::Options;

/// A reader of the counters of the guest that was started with `options`; `None` if its image
/// cannot be read, of which the tender complains.
fn reader(share: &SharedFile, options: &Options) -> Option<Result<Reader, stats::Error>> {
    let (_, image) = tender::load::open(&options.image).ok()?;
    let description = named::describe(options, &image);
    Some(Reader::new(share.as_fd(), description))
}

/// Serves the counters of the guest that has just been started with `options`.
///
/// # Errors
/// There are no threads, or no descriptor.
pub fn serve(
    endpoint: &mut Endpoint,
    share: &SharedFile,
    name: Option<&str>,
    options: &Options,
) -> Result<(), Error> {
    let Some(reader) = reader(share, options) else {
        return Ok(());
    };
    let reader = Mutex::new(reader.map_err(Error::Stats)?);
    let name = name.map(str::to_owned);
    let metrics = move || {
        let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
        let snapshot = reader.snapshot().ok()?;
        prometheus::encode(name.as_deref(), reader.description(), snapshot).ok()
    };
    endpoint.serve(metrics).map_err(Error::Metrics)
}

/// What the guest has counted, in a few lines; none if it cannot be read.
pub fn last_lines(share: &SharedFile, options: &Options) -> Vec<String> {
    match reader(share, options).map(|reader| reader?.snapshot()) {
        Some(Ok(snapshot)) => last::lines(&snapshot),
        _ => Vec::new(),
    }
}
