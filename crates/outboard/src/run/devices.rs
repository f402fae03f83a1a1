//! PCI devices that the host's drivers do without while a guest runs.

use super::{Error, Request, tender_options};
use crate::pci::guard::Guard;
use tender::options::PciSource;

/// Starts the guard of those that the command line attaches; `None` if they are not to be taken, or
/// for a command line that the tender will complain of.
///
/// # Errors
/// None is attached, or one cannot be taken.
pub(super) fn guard(request: &Request) -> Result<Option<Guard>, Error> {
    let options = request.pci_bind.then(|| tender_options(&request.arguments));
    let Some(options) = options.flatten() else {
        return Ok(None);
    };
    let sources = options.pci.iter().map(|pci| &pci.source);
    let addresses = sources.filter_map(|source| match source {
        PciSource::Address(address) => Some(*address),
        PciSource::Socket(_) => None,
    });
    let addresses = Vec::from_iter(addresses);
    match addresses.is_empty() {
        true => Err(Error::NothingToBind),
        false => Guard::start(&addresses).map(Some).map_err(Error::Pci),
    }
}
