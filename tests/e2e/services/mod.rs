//! Appliances that speak TCP/IP, with Linux at the other end; and their TCP beside Linux's.

mod dhcp;
pub mod dns;
pub mod echo;
mod files;
mod flows;
pub mod http;
mod iperf3;
pub mod links;
mod mtu;
pub mod nbd;
mod offers;
mod parity;
mod ports;
mod proxy;
mod proxy_hostile;
mod proxy_programs;
mod proxy_runtimes;
mod proxy_sequences;
pub mod router;
mod runs;
mod smoltcp;
mod soak;
mod sockets;
pub mod stock;
mod tries;
pub mod vlans;
mod watched;

use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::process::{Running, start};
use libtest_mimic::{Failed, Trial};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use testbed::segment::{Address, Segment};

/// How long anything may take.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Where Linux is.
pub const OUR_SIDE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// Where the appliance is.
pub const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// All tests of this folder.
pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    [
        dhcp::trials,
        dns::trials,
        echo::trials,
        files::trials,
        flows::trials,
        http::trials,
        iperf3::trials,
        links::trials,
        mtu::trials,
        nbd::trials,
        offers::trials,
        parity::trials,
        ports::trials,
        proxy::trials,
        proxy_hostile::trials,
        proxy_programs::trials,
        proxy_runtimes::trials,
        proxy_sequences::trials,
        router::trials,
        runs::trials,
        smoltcp::trials,
        soak::trials,
        sockets::trials,
        tries::trials,
        stock::trials,
        vlans::trials,
        watched::trials,
    ]
    .into_iter()
    .flat_map(|trials| trials(images, network))
    .collect()
}

/// An appliance, and a network with Linux in it.
pub struct Served {
    pub segment: Segment,
    pub running: Running,
}

impl Served {
    /// Whatever was tried, the appliance goes on.
    pub fn goes_on(mut self) -> Result<(), Failed> {
        match self.running.is_alive() {
            true => Ok(()),
            false => Err(format!("it ended: {:?}", self.running.finish()?).into()),
        }
    }
}

/// The port of an appliance.
pub struct Port {
    pub mtu: u32,
    pub vnet_header: bool,
}

/// With offloads, at Ethernet's MTU.
pub const PLAIN: Port = Port {
    mtu: 1500,
    vnet_header: true,
};

/// Starts the image on a host, with [`SERVICE`] as its address, and waits until it says so.
pub fn serve(
    images: &Images,
    host: &str,
    port: &Port,
    image: &Path,
    arguments: &[&str],
) -> Result<Served, Failed> {
    if host == SOCKETS {
        return Ok(serve_sockets(images, image, arguments, |_| Ok(()))?.0);
    }
    serve_by(tender(images, host), port, image, arguments)
}

/// In place of a host: the appliance has the host's sockets, and runs as a plain process.
pub const SOCKETS: &str = "sockets";

/// The same appliance with the host's sockets.
pub fn on_sockets(image: &Path) -> PathBuf {
    beside(image, "-sockets.spt")
}

/// The image beside this one whose name ends otherwise.
fn beside(image: &Path, end: &str) -> PathBuf {
    let name = image.file_stem().unwrap_or_default();
    let mut name = name.to_owned();
    name.push(end);
    image.with_file_name(name)
}

/// Starts it in a network where both sides are addresses of Linux's, with something in that network
/// that is there before.
pub fn serve_sockets<T>(
    images: &Images,
    image: &Path,
    arguments: &[&str],
    before: impl FnOnce(&Segment) -> Result<T, Failed>,
) -> Result<(Served, T), Failed> {
    let segment = Segment::new()?;
    for address in [OUR_SIDE, SERVICE] {
        segment.netlink(|netlink| netlink.add_address("lo", address.into(), 32))?;
    }
    let beside = before(&segment)?;
    let mut command = tender(images, "process");
    command
        .args(["--mem=64", "--sockets:service=host"])
        .arg(on_sockets(image))
        .args(arguments);
    let running = segment.run(|| start(&mut command))?;
    running.wait_for("the host's sockets as service")?;
    Ok((Served { segment, running }, beside))
}

/// The tender of a host, lacking memory, port and image.
pub fn tender(images: &Images, host: &str) -> Command {
    let mut tender = Command::new(images.program("outboard-tender"));
    tender.arg(format!("--host={host}"));
    tender
}

/// The same by a command that lacks memory, port and image.
pub fn serve_by(
    command: Command,
    port: &Port,
    image: &Path,
    arguments: &[&str],
) -> Result<Served, Failed> {
    let (served, ()) = serve_beside(command, port, image, arguments, |_| Ok(()))?;
    Ok(served)
}

/// The same with something in Linux's network that is there before.
pub fn serve_beside<T>(
    command: Command,
    port: &Port,
    image: &Path,
    arguments: &[&str],
    before: impl FnOnce(&Segment) -> Result<T, Failed>,
) -> Result<(Served, T), Failed> {
    let segment = Segment::new()?;
    let tap = tap(&segment, port)?;
    let beside = before(&segment)?;
    let own = format!("--ipv4={SERVICE}/24");
    let arguments = [&[own.as_str()], arguments].concat();
    let running = launch(command, &tap, image, &arguments)?;
    running.wait_for(&format!("{SERVICE}/24 on service"))?;
    Ok((Served { segment, running }, beside))
}

/// A tap with [`OUR_SIDE`] as Linux's address.
pub fn tap(segment: &Segment, port: &Port) -> Result<OwnedFd, Failed> {
    let address = Address {
        ip: OUR_SIDE,
        prefix: 24,
        mtu: port.mtu,
    };
    let tap = segment.tap("tap0", port.vnet_header, address)?;
    let tap: OwnedFd = tap.into_fd();
    rustix::io::fcntl_setfd(&tap, rustix::io::FdFlags::empty())?;
    Ok(tap)
}

/// Linux's address of IPv6, in the network of [`speak_ipv6`].
pub const OUR_SIDE_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);

/// Has Linux speak IPv6 on the tap, with [`OUR_SIDE_V6`]: segments do not by themselves.
pub fn speak_ipv6(segment: &Segment) -> Result<(), Failed> {
    Ok(segment.speak_ipv6("tap0", OUR_SIDE_V6, 64)?)
}

/// Starts the image over a tap, by a command that lacks memory, port and image.
pub fn launch(
    mut command: Command,
    tap: &OwnedFd,
    image: &Path,
    arguments: &[&str],
) -> Result<Running, Failed> {
    command
        .arg("--mem=64")
        .arg(format!("--net:service=@{}", tap.as_raw_fd()))
        .arg(image)
        .args(arguments);
    start(&mut command)
}
