//! What KVM does itself of the accesses of registers: events of queues, and regions. They follow
//! the BARs of devices.
//!
//! That is done in the processor's thread, which is not in KVM then and waits for no device: so no
//! handler of an access changes the machine.

use crate::attach::Error;
use crate::bus::{Bus, Front, Slot};
use crate::complain;
use crate::ioregionfd::Region;
use crate::ranges::Place;
use kvm_ioctls::{IoEventAddress, VmFd};
use rustix::io::Errno;
use std::io;

/// Whether something is put somewhere, or taken away from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Put,
    Take,
}

/// Moves all BARs to where they should be, and says of each that cannot be there why, once.
///
/// # Errors
/// What KVM refuses.
pub fn follow(vm: &VmFd, bus: &mut Bus) -> Result<(), Error> {
    let plan = bus.plan();
    for (number, bar, why) in plan.refused {
        let slot = &mut bus.slots[number];
        if !std::mem::replace(&mut slot.refused[usize::from(bar)], true) {
            let name = &slot.device.name;
            complain(name, &format!("its BAR {bar} does not answer: {why}"));
        }
    }
    // Where one goes, another one may have been.
    for way in [Way::Take, Way::Put] {
        for change in &plan.changes {
            let slot = &mut bus.slots[change.slot];
            let place = match way {
                Way::Take => change.from,
                Way::Put => change.to,
            };
            if let Some(begin) = place {
                set(vm, slot, change.bar, begin, way)?;
            }
            slot.at[usize::from(change.bar)] = change.to;
        }
    }
    Ok(())
}

/// Puts what KVM does of a BAR at `begin`, or takes it away from there.
fn set(vm: &VmFd, slot: &Slot, bar: u8, begin: u64, way: Way) -> Result<(), Error> {
    let failed = |step| {
        move |error: io::Error| match Errno::from_io_error(&error) {
            Some(Errno::NOTTY | Errno::INVAL) if step == "KVM_SET_IOREGION" => {
                Error::NoIoregionfd(slot.device.name.clone())
            }
            _ => Error::Step(slot.device.name.clone(), step, error),
        }
    };
    events(vm, slot, bar, begin, way).map_err(failed("KVM_IOEVENTFD"))?;
    let commands = match &slot.front {
        Front::Socket(commands) if slot.device.access.is_ioregionfd() => commands,
        _ => return Ok(()),
    };
    for region in slot.ranges.regions(bar) {
        let region = Region {
            place: Place {
                bar,
                offset: region.start,
            },
            addresses: begin + region.start..begin + region.end,
            is_ports: slot.ranges.is_port(bar),
        };
        let done = match way {
            Way::Put => commands.register(vm, &region, slot.device.posted),
            Way::Take => commands.unregister(vm, &region),
        };
        done.map_err(failed("KVM_SET_IOREGION"))?;
    }
    Ok(())
}

/// The events of queues.
fn events(vm: &VmFd, slot: &Slot, bar: u8, begin: u64, way: Way) -> io::Result<()> {
    let doorbells = slot.ranges.doorbells;
    let Some(doorbells) = doorbells.filter(|doorbells| doorbells.first.bar == bar) else {
        return Ok(());
    };
    for (queue, event) in (0_u16..).zip(&slot.events) {
        let address = IoEventAddress::Mmio(begin + doorbells.place(queue).offset);
        // As wide as a notification is, and with the number of the queue in it.
        match (way, doorbells.bytes) {
            (Way::Put, 2) => vm.register_ioevent(event, &address, queue)?,
            (Way::Put, _) => vm.register_ioevent(event, &address, u32::from(queue))?,
            (Way::Take, 2) => vm.unregister_ioevent(event, &address, queue)?,
            (Way::Take, _) => vm.unregister_ioevent(event, &address, u32::from(queue))?,
        }
    }
    Ok(())
}
