//! The lab's cards: two for the image, bound to VFIO, and one of Linux's, all on one hub.

use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use linux::netlink::Netlink;
use linux::packet::PacketSocket;

/// What `cargo xtask lab` takes for them.
pub const OPTIONS: [&str; 3] = ["--nic=e1000e,hub", "--nic=e1000e,hub", "--nic=e1000e,hub"];

const INTERFACES: &str = "/sys/class/net";
const IPV6: &str = "/proc/sys/net/ipv6/conf";
const PROBE: &str = "/sys/bus/pci/drivers_probe";
/// The addresses that QEMU gives them, in order.
const MACS: [&str; 3] = [
    "52:54:00:12:34:56",
    "52:54:00:12:34:57",
    "52:54:00:12:34:58",
];
/// How long Linux's card may take to find its link.
const LINK_MAX: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(10);

/// The cards, taken.
#[derive(Debug)]
pub struct Cards {
    /// PCI addresses of the image's.
    pub addresses: [String; 2],
    /// The name of Linux's.
    interface: String,
}

impl Cards {
    /// Takes them.
    ///
    /// # Errors
    /// They are not there, as outside of the lab, or cannot be bound.
    pub fn take() -> io::Result<Self> {
        let [left, right, interface] = MACS.map(interface);
        let interface = interface?;
        // Whoever spoke by himself would be heard for ever.
        fs::write(format!("{IPV6}/{interface}/disable_ipv6"), "1")?;
        Ok(Self {
            addresses: [bind(&left?)?, bind(&right?)?],
            interface,
        })
    }

    /// Puts so many frames onto the hub. Linux's card is deaf before and afterwards.
    ///
    /// # Errors
    /// It has no link, or does not take them.
    pub fn inject(&self, frames: usize, frame: &[u8]) -> io::Result<()> {
        let mut netlink = Netlink::open().map_err(io::Error::other)?;
        let name = &self.interface;
        netlink.set_up(name).map_err(io::Error::other)?;
        let carrier = format!("{INTERFACES}/{name}/carrier");
        let begin = Instant::now();
        while fs::read_to_string(&carrier)?.trim() != "1" {
            if begin.elapsed() > LINK_MAX {
                return Err(io::Error::other("Linux's card has no link"));
            }
            thread::sleep(POLL);
        }
        let socket = PacketSocket::open(name)?;
        for _ in 0..frames {
            socket.send(frame)?;
        }
        // What its queue holds when it goes down is lost.
        thread::sleep(POLL);
        netlink.set_down(name).map_err(io::Error::other)
    }
}

/// The name of the interface with this MAC address.
fn interface(mac: &str) -> io::Result<String> {
    for entry in fs::read_dir(INTERFACES)? {
        let entry = entry?;
        if fs::read_to_string(entry.path().join("address"))?.trim() == mac {
            return Ok(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Err(io::Error::other(format!(
        "no interface has the address {mac}"
    )))
}

/// Binds the card behind an interface to `vfio-pci`; its PCI address.
fn bind(interface: &str) -> io::Result<String> {
    let device = fs::canonicalize(format!("{INTERFACES}/{interface}/device"))?;
    let address = device.file_name().ok_or(io::ErrorKind::InvalidData)?;
    let address = address.to_string_lossy().into_owned();
    fs::write(device.join("driver_override"), "vfio-pci")?;
    fs::write(device.join("driver/unbind"), &address)?;
    fs::write(PROBE, &address)?;
    Ok(address)
}
