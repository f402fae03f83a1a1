//! Appliances that speak TCP/IP, with Linux at the other end.

pub mod echo;
mod http;
mod iperf3;

use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::process::{Running, start};
use libtest_mimic::{Failed, Trial};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use testbed::segment::{Address, Segment};

/// How long anything may take.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Where Linux is.
const OUR_SIDE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// Where the appliance is.
pub const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// All tests of this folder.
pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    [echo::trials, http::trials, iperf3::trials]
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
    let segment = Segment::new()?;
    let address = Address {
        ip: OUR_SIDE,
        prefix: 24,
        mtu: port.mtu,
    };
    let tap = segment.tap("tap0", port.vnet_header, address)?;
    let tap: OwnedFd = tap.into_fd();
    rustix::io::fcntl_setfd(&tap, rustix::io::FdFlags::empty())?;
    let mut command = Command::new(images.program("outboard-tender"));
    command
        .arg("--mem=64")
        .arg(format!("--host={host}"))
        .arg(format!("--net:service=@{}", tap.as_raw_fd()))
        .arg(image)
        .arg(format!("--ipv4={SERVICE}/24"))
        .args(arguments);
    let running = start(&mut command)?;
    running.wait_for(&format!("{SERVICE}/24 on service"))?;
    Ok(Served { segment, running })
}
