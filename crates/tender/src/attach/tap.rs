//! Taps: by name, or as a descriptor that is already open.

use super::{Headers, Opened, Reason};
use linux::interface::Interfaces;
use linux::tap::{self, Tap};
use linux::{descriptor, mtu};
use rustix::fs::OFlags;
use rustix::thread::CapabilitySet;
use std::io;
use std::os::fd::AsFd;

/// Opens the tap `name` and reads its MTU. Offloads are set in either case: a persistent tap
/// remembers those of its last user.
pub(super) fn open(name: &str, create: bool, headers: Headers) -> Result<Opened, Reason> {
    let system = |step| move |error| Reason::System(step, error);
    let interfaces = Interfaces::here().map_err(system("no socket"))?;
    let up = match interfaces.is_up(name) {
        Ok(up) => Some(up),
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => None,
        Err(error) => return Err(Reason::System("no flags of the interface", error)),
    };
    if up.is_none() && !create {
        return Err(Reason::NoInterface {
            name: name.to_owned(),
            taps: taps(),
            may_create: may_create(),
        });
    }
    let tap = Tap::create(name, headers.wanted());
    let tap = tap.map_err(|error| open_reason(name, up.is_some(), error))?;
    // Only now: what is no tap need not be up.
    if up == Some(false) {
        return Err(Reason::Down(name.to_owned()));
    }
    let flags = headers.agree(tap.as_fd(), headers.wanted());
    let flags = flags.map_err(system("no offloads"))?;
    if up.is_none() {
        interfaces
            .bring_up(name)
            .map_err(system("the new tap cannot be set up"))?;
    }
    let mtu = interfaces.mtu(name).map_err(system("no MTU"))?;
    Ok(Opened {
        fd: tap.into_fd(),
        mtu,
        flags,
    })
}

/// Whether this process has the capability that making a tap takes.
fn may_create() -> bool {
    let sets = rustix::thread::capabilities(None);
    sets.is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_ADMIN))
}

/// Names of the taps here.
fn taps() -> Vec<String> {
    super::interfaces(|link| link.is_tap)
}

fn open_reason(name: &str, exists: bool, error: io::Error) -> Reason {
    match error.raw_os_error() {
        Some(libc::EBUSY) => Reason::Busy,
        Some(libc::EINVAL) => Reason::NotTap(taps()),
        Some(libc::EPERM) if exists => Reason::Owner(name.to_owned(), owner(name)),
        Some(libc::EPERM) => Reason::Permission(format!(
            "making a tap takes CAP_NET_ADMIN; type: sudo ip tuntap add dev {name} mode tap user \
             $USER && sudo ip link set dev {name} up"
        )),
        Some(libc::EACCES) => {
            Reason::Permission("type as root: chmod 0666 /dev/net/tun".to_owned())
        }
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => {
            Reason::System("no /dev/net/tun; type as root: modprobe tun", error)
        }
        _ => Reason::System("cannot open the tap", error),
    }
}

/// The user who may open a tap, by number; root alone if there is none.
fn owner(name: &str) -> Option<u32> {
    let owner = std::fs::read_to_string(format!("/sys/class/net/{name}/owner")).ok()?;
    owner.trim_end().parse().ok()
}

/// Takes over the tap behind a descriptor and reads its MTU. Whoever opened it decided whether
/// frames carry virtio-net headers.
pub(super) fn adopt(number: i32, headers: Headers) -> Result<Opened, Reason> {
    let not_tap = || Reason::NotTapDescriptor(number);
    let system = |step| move |error| Reason::System(step, error);
    let fd = descriptor::adopt(number).map_err(|_| not_tap())?;
    let interface = tap::interface(fd.as_fd()).map_err(|_| not_tap())?;
    if !interface.is_tap || !interface.no_packet_information {
        return Err(not_tap());
    }
    let virtio_net_header = interface.vnet_header;
    if virtio_net_header && !headers.understood {
        return Err(Reason::Headers);
    }
    if virtio_net_header {
        tap::set_vnet_header_size(fd.as_fd()).map_err(system("no virtio-net headers"))?;
    }
    let flags = headers.agree(fd.as_fd(), virtio_net_header);
    let flags = flags.map_err(system("no offloads"))?;
    let non_blocking = rustix::fs::fcntl_setfl(&fd, OFlags::NONBLOCK);
    non_blocking.map_err(|error| Reason::System("cannot be made non-blocking", error.into()))?;
    let mtu = || Interfaces::here()?.mtu(&interface.name);
    let mtu = mtu::beside(fd.as_fd(), mtu).map_err(system(
        "no MTU: the tap is in a network namespace that this process may not enter",
    ))?;
    Ok(Opened { fd, mtu, flags })
}

/// Makes a persistent tap forget its offloads. Best effort: the tap may be gone, which is fine.
pub(super) fn reset(name: &str) {
    // Opening one that is gone would make it anew.
    if Interfaces::here().is_ok_and(|interfaces| interfaces.is_up(name).is_ok())
        && let Ok(tap) = Tap::create(name, false)
    {
        let _ = tap.set_offloads(0);
    }
}
