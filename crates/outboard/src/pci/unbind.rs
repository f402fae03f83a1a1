//! `outboard pci unbind`: devices go back to their own drivers, whatever state they are in.

use super::state::{self, Store};
use super::{Address, Error, handover, print, require_root, resolve};
use linux::pci::sysfs::{Tree, VFIO_PCI};
use rustix::io::Errno;
use std::fs::OpenOptions;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

/// `outboard pci unbind`.
#[derive(clap::Args)]
pub struct Arguments {
    /// PCI addresses (0000:01:00.0), or the network interfaces that they were (eth1)
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
}

/// How often the command looks whether a group is still in use: its guest may be just ending.
const ATTEMPTS: u32 = 10;
/// How long to wait in between.
const PAUSE: Duration = Duration::from_millis(100);

/// Gives devices back, and prints who has them now.
///
/// # Errors
/// The first of them that cannot be given back; all are tried.
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    require_root("unbind", &arguments.names)?;
    let (tree, store) = (Tree::host(), Store::host());
    let _lock = store.lock().map_err(Error::State)?;
    let machine = tree.machine();
    let mut result = Ok(());
    for name in &arguments.names {
        let address = resolve(name, &machine, &store);
        let given = address.and_then(|address| {
            let driver = give_back(&tree, &store, address, ATTEMPTS)?;
            let interfaces = tree.interfaces(address);
            let interfaces = interfaces.iter().map(|name| format!(" {name}"));
            let driver = driver.as_deref().unwrap_or("no driver");
            print(&format!(
                "{address}: {driver}{}\n",
                String::from_iter(interfaces)
            ))
        });
        result = result.and(given);
    }
    result
}

/// Gives a device back to the driver that it had before VFIO, or, if that is not known, to the one
/// that the kernel chooses; returns that driver. The caller holds the lock. While the group of the
/// device is in use it is looked `attempts` times, 100 ms apart, whether it still is.
///
/// # Errors
/// The group stays in use, or the kernel refuses a step; then this can be tried again.
pub fn give_back(
    tree: &Tree,
    store: &Store,
    address: Address,
    attempts: u32,
) -> Result<Option<String>, Error> {
    let former = match store.read(address) {
        // Then the kernel has to choose, which is what it does for almost every device anyway.
        Err(state::Error::Malformed(..)) => None,
        former => former.map_err(Error::State)?,
    };
    if !tree.exists(address) {
        store.forget(address).map_err(Error::State)?;
        return Ok(None);
    }
    let bound = tree.driver(address).as_deref() == Some(VFIO_PCI);
    if bound {
        wait_until_free(tree, address, attempts)?;
    }
    if tree.driver_override(address).as_deref() == Some(VFIO_PCI) {
        let before = former
            .as_ref()
            .and_then(|former| former.driver_override.as_deref());
        // An empty line is no override.
        let text = format!("{}\n", before.unwrap_or_default());
        handover::set_override(tree, address, &text).map_err(Error::Write)?;
    }
    if bound {
        handover::unbind(tree, VFIO_PCI, address).map_err(Error::Write)?;
    }
    let wanted = former.as_ref().and_then(|former| former.driver.as_deref());
    let had_none = former.is_some() && wanted.is_none();
    if tree.driver(address).is_none() && !had_none {
        handover::probe(tree, address).map_err(Error::Write)?;
    }
    let mut driver = tree.driver(address);
    if let (None, Some(wanted)) = (&driver, wanted) {
        // One that does not know the device by itself, and was told to take it.
        handover::bind(tree, wanted, address)
            .map_err(|_| Error::NotReturned(address, wanted.to_owned()))?;
        driver = tree.driver(address);
    }
    store.forget(address).map_err(Error::State)?;
    Ok(driver)
}

/// The kernel would let the writer of `unbind` wait, without a bound, for whoever has the group
/// open.
fn wait_until_free(tree: &Tree, address: Address, attempts: u32) -> Result<(), Error> {
    let machine = tree.machine();
    let device = machine.devices.get(&address);
    let Some(group) = device.and_then(|device| device.group) else {
        return Ok(());
    };
    let node = tree.node(group);
    for attempt in 0..attempts {
        if attempt > 0 {
            sleep(PAUSE);
        }
        if !is_in_use(&node) {
            return Ok(());
        }
    }
    Err(Error::InUse(address, node))
}

/// A group is opened by one at a time.
pub(super) fn is_in_use(node: &Path) -> bool {
    let opened = OpenOptions::new().read(true).write(true).open(node);
    opened.is_err_and(|error| Errno::from_io_error(&error) == Some(Errno::BUSY))
}
