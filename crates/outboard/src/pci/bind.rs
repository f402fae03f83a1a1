//! `outboard pci bind`: VFIO gets devices.

use super::state::{Former, Store};
use super::sysfs::{Device, Tree, VFIO_PCI};
use super::verdict::{Refusal, Verdict, judge};
use super::{Address, Error, print, require_root, resolve, routes, unbind};
use std::collections::BTreeSet;
use std::os::unix::fs::chown;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// `outboard pci bind`.
#[derive(clap::Args)]
pub struct Arguments {
    /// PCI addresses (0000:01:00.0) or network interfaces (eth1); devices that share an IOMMU group
    /// together
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Who may use the devices: gets their group's file under /dev/vfio
    #[arg(long)]
    user: Option<String>,
}

/// How often it is looked whether a group's file has appeared.
const NODE_ATTEMPTS_MAX: u32 = 100;
/// How long to wait in between.
const NODE_PAUSE: Duration = Duration::from_millis(20);
/// Seconds that udev gets to do what it does with new files.
const SETTLE_SECONDS_MAX: &str = "--timeout=5";

/// Binds devices until `outboard pci unbind`, and prints what became of each.
///
/// # Errors
/// One of them must not or cannot be bound; then none is.
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    require_root("bind", &arguments.names)?;
    let user = arguments.user.as_deref().map(user_id).transpose()?;
    let (tree, store) = (Tree::host(), Store::host());
    let lock = store.lock().map_err(Error::State)?;
    let machine = tree.machine();
    let addresses = arguments.names.iter();
    let addresses = addresses.map(|name| resolve(name, &machine, &store));
    let addresses = addresses.collect::<Result<Vec<_>, _>>()?;
    let taken = take(&tree, &store, &addresses, false)?;
    drop(lock);
    for address in &addresses {
        let Some(group) = machine.devices.get(address).and_then(|device| device.group) else {
            continue;
        };
        if let Some(user) = user {
            hand_over(&tree, group, user)?;
        }
        let former = taken.iter().find(|device| device.address == *address);
        let was = match former.map(|device| (&device.driver, &device.interfaces)) {
            None => " already".to_owned(),
            Some((None, _)) => String::new(),
            Some((Some(driver), interfaces)) => {
                let interfaces = interfaces.iter().map(|name| format!(" {name}"));
                format!(", no longer {driver}{}", String::from_iter(interfaces))
            }
        };
        let node = tree.node(group);
        print(&format!("{address}: {VFIO_PCI}{was}; {}\n", node.display()))?;
    }
    Ok(())
}

/// Gives devices to VFIO, all of them or none, and returns those that it did not have before, as
/// they were. The caller holds the lock.
///
/// `for_run` says whether that is for one run of a guest. What was taken for a run whose guard was
/// killed counts as not had before; taken by `outboard pci bind`, it is no run's any more.
///
/// # Errors
/// One of them must not or cannot be bound.
pub fn take(
    tree: &Tree,
    store: &Store,
    addresses: &[Address],
    for_run: bool,
) -> Result<Vec<Device>, Error> {
    let machine = tree.machine();
    let routes = routes::observe().map_err(Error::Routes)?;
    let carriers = routes::carriers(&routes, |interface| tree.lower(interface));
    let (mut wanted, mut adopted) = (Vec::new(), Vec::new());
    // Some may be named twice.
    for address in &BTreeSet::from_iter(addresses.iter().copied()) {
        let unknown = || Error::Unknown(address.to_string());
        let device = machine.devices.get(address).ok_or_else(unknown)?;
        match judge(device, addresses, &machine, &carriers) {
            Verdict::Ready | Verdict::Refused(Refusal::Forbidden { .. }) => {
                if adopt(tree, store, device, for_run)? {
                    adopted.push(device.clone());
                }
            }
            Verdict::Refused(refusal) => return Err(Error::Refused(*address, refusal)),
            Verdict::BindNeeded => wanted.push(device.clone()),
        }
    }
    for (number, device) in wanted.iter().enumerate() {
        let Err(error) = take_one(tree, store, device, for_run) else {
            continue;
        };
        for device in &wanted[..=number] {
            // The first error says more than what follows from it.
            let _ = unbind::give_back(tree, store, device.address, 1);
        }
        return Err(error);
    }
    wanted.extend(adopted);
    Ok(wanted)
}

/// Whether a device that VFIO has already was left behind by a run, for another run to give back.
fn adopt(tree: &Tree, store: &Store, device: &Device, for_run: bool) -> Result<bool, Error> {
    let former = store.read(device.address).map_err(Error::State)?;
    let Some(former) = former.filter(|former| former.for_run) else {
        return Ok(false);
    };
    if !for_run {
        let kept = Former { for_run, ..former };
        store.write(device.address, &kept).map_err(Error::State)?;
        return Ok(false);
    }
    let node = device.group.map(|group| tree.node(group));
    Ok(node.is_some_and(|node| !unbind::is_in_use(&node)))
}

fn take_one(tree: &Tree, store: &Store, device: &Device, for_run: bool) -> Result<(), Error> {
    let address = device.address;
    let former = store.read(address).map_err(Error::State)?;
    // What was killed halfway through this has left the better answer.
    let former = former.unwrap_or_else(|| Former {
        driver: device.driver.clone(),
        driver_override: device
            .driver_override
            .clone()
            .filter(|driver| driver != VFIO_PCI),
        interfaces: Vec::from_iter(device.interfaces.iter().cloned()),
        for_run,
    });
    let former = Former { for_run, ..former };
    // First, so that whatever happens next can be undone.
    store.write(address, &former).map_err(Error::State)?;
    tree.write(address, "driver_override", VFIO_PCI)
        .map_err(Error::Write)?;
    if let Some(driver) = &device.driver {
        tree.tell_driver(driver, "unbind", address)
            .map_err(Error::Write)?;
    }
    tree.probe(address).map_err(Error::Write)?;
    if tree.driver(address).as_deref() != Some(VFIO_PCI) {
        return Err(Error::NotTaken(address));
    }
    let node = device.group.map(|group| tree.node(group));
    for _ in 0..NODE_ATTEMPTS_MAX {
        if node.as_ref().is_some_and(|node| node.exists()) {
            return Ok(());
        }
        sleep(NODE_PAUSE);
    }
    Err(Error::NotTaken(address))
}

/// The number of a user, who may be given by it.
fn user_id(name: &str) -> Result<u32, Error> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    // `id` knows users wherever they are kept.
    let output = Command::new("id").args(["-u", "--", name]).output();
    let output = output.ok().filter(|output| output.status.success());
    let number = output.and_then(|output| String::from_utf8(output.stdout).ok());
    let number = number.and_then(|number| number.trim().parse().ok());
    number.ok_or_else(|| Error::User(name.to_owned()))
}

/// Makes the file of a group a user's.
fn hand_over(tree: &Tree, group: u32, user: u32) -> Result<(), Error> {
    // Where there is udev, it is still busy giving the new file to root.
    let _ = Command::new("udevadm")
        .args(["settle", SETTLE_SECONDS_MAX])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let node = tree.node(group);
    chown(&node, Some(user), None).map_err(|error| Error::Node(node, error))
}
