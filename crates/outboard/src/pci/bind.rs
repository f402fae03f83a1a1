//! `outboard pci bind`: VFIO gets devices.

use super::routes::Route;
use super::state::{Former, GUARD, Store};
use super::verdict::{Refusal, Verdict, judge};
use super::{Address, Error, handover, print, require_root, resolve, routes, unbind};
use linux::pci::sysfs::{Device, Tree, VFIO_PCI};
use std::collections::{BTreeMap, BTreeSet};
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
    let taken = take(&tree, &store, &addresses, None)?;
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
/// `guard` gives them back after one run of a guest, if they are for one: its process id. What was
/// taken for a run whose guard was killed counts as not had before; taken by `outboard pci bind`,
/// it is no run's any more.
///
/// # Errors
/// One of them must not or cannot be bound; then all are as before, and what is remembered of them
/// too.
pub fn take(
    tree: &Tree,
    store: &Store,
    addresses: &[Address],
    guard: Option<i32>,
) -> Result<Vec<Device>, Error> {
    let routes = routes::observe().map_err(Error::Routes)?;
    let carriers = routes::carriers(&routes, |interface| tree.lower(interface));
    take_beside(tree, store, addresses, guard, &carriers)
}

/// The same, given which interfaces carry a default route.
pub(super) fn take_beside(
    tree: &Tree,
    store: &Store,
    addresses: &[Address],
    guard: Option<i32>,
    carriers: &BTreeMap<String, Route>,
) -> Result<Vec<Device>, Error> {
    let machine = tree.machine();
    let (mut wanted, mut had) = (Vec::new(), Vec::new());
    // Some may be named twice.
    for address in &BTreeSet::from_iter(addresses.iter().copied()) {
        let unknown = || Error::Unknown(address.to_string());
        let device = machine.devices.get(address).ok_or_else(unknown)?;
        match judge(device, addresses, &machine, carriers) {
            Verdict::Ready | Verdict::Refused(Refusal::Forbidden { .. }) => {
                had.push(device.clone());
            }
            Verdict::Refused(refusal) => return Err(Error::Refused(*address, refusal)),
            Verdict::BindNeeded => wanted.push(device.clone()),
        }
    }
    // Whose they are is changed last: a device that cannot be bound leaves the others as they were.
    let mut tried = 0;
    let mut bound = wanted.iter().try_for_each(|device| {
        tried += 1;
        take_one(tree, store, device, guard)
    });
    let mut left_behind = Vec::new();
    if bound.is_ok() {
        bound = match guard {
            Some(guard) => adopt(tree, store, had, guard).map(|adopted| left_behind = adopted),
            None => keep(store, &had),
        };
    }
    if let Err(error) = bound {
        for device in &wanted[..tried] {
            // The first error says more than what follows from it.
            let _ = unbind::give_back(tree, store, device.address, 1);
        }
        return Err(error);
    }
    wanted.extend(left_behind);
    Ok(wanted)
}

/// Those of the devices that VFIO has already that a run has left behind become `guard`'s to give
/// back.
fn adopt(tree: &Tree, store: &Store, had: Vec<Device>, guard: i32) -> Result<Vec<Device>, Error> {
    let mut left = Vec::new();
    for device in had {
        let Some((former, other)) = of_a_run(store, &device)? else {
            continue;
        };
        if tree.command(other).as_deref() == Some(GUARD) {
            return Err(Error::OfRun(device.address, other));
        }
        let node = device.group.map(|group| tree.node(group));
        if node.is_some_and(|node| !unbind::is_in_use(&node)) {
            left.push((device, former));
        }
    }
    let formers = left.iter().map(|(device, former)| (device.address, former));
    write_all(store, &Vec::from_iter(formers), Some(guard))?;
    Ok(left.into_iter().map(|(device, _)| device).collect())
}

/// Makes devices that VFIO has already a matter of `outboard pci unbind`.
fn keep(store: &Store, had: &[Device]) -> Result<(), Error> {
    let mut of_runs = Vec::new();
    for device in had {
        of_runs.extend(of_a_run(store, device)?.map(|(former, _)| (device.address, former)));
    }
    let formers = of_runs.iter().map(|(address, former)| (*address, former));
    write_all(store, &Vec::from_iter(formers), None)
}

/// Remembers of all devices, or of none, that they are this guard's to give back.
fn write_all(
    store: &Store,
    formers: &[(Address, &Former)],
    guard: Option<i32>,
) -> Result<(), Error> {
    for (number, (address, former)) in formers.iter().enumerate() {
        let new = Former {
            guard,
            ..(*former).clone()
        };
        let Err(error) = store.write(*address, &new) else {
            continue;
        };
        for (address, former) in &formers[..number] {
            // As above.
            let _ = store.write(*address, former);
        }
        return Err(Error::State(error));
    }
    Ok(())
}

/// What is remembered of a device if that was taken for a run, and that run's guard.
fn of_a_run(store: &Store, device: &Device) -> Result<Option<(Former, i32)>, Error> {
    let former = store.read(device.address).map_err(Error::State)?;
    Ok(former.and_then(|former| former.guard.map(|guard| (former, guard))))
}

fn take_one(tree: &Tree, store: &Store, device: &Device, guard: Option<i32>) -> Result<(), Error> {
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
        guard,
    });
    let former = Former { guard, ..former };
    // First, so that whatever happens next can be undone.
    store.write(address, &former).map_err(Error::State)?;
    handover::set_override(tree, address, VFIO_PCI).map_err(Error::Write)?;
    if let Some(driver) = &device.driver {
        handover::unbind(tree, driver, address).map_err(Error::Write)?;
    }
    handover::probe(tree, address).map_err(Error::Write)?;
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
