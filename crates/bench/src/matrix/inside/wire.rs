//! What is between the generator and the guest's card.

use super::guest::{TAP, appears};
use super::{HOST, PREFIX};
use crate::matrix::axes::{Interface, Run, Vhost};
use linux::netlink::{self, Netlink};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Where our back end of vhost-user listens.
pub const BACK_END: &str = "/tmp/card";
const BRIDGE: &str = "br0";
/// The ends of a cable: the generator's, and the macvtap's parent.
const CABLE: [&str; 2] = ["cable0", "cable1"];
/// How long a back end may take to listen.
const START_MAX: Duration = Duration::from_secs(10);

/// The wire of a run; it goes with this.
#[derive(Debug)]
pub struct Wire {
    interface: Interface,
    back_end: Option<Child>,
}

impl Wire {
    /// Makes what the monitor takes when it starts.
    ///
    /// # Errors
    /// There is no such interface, or the back end does not start.
    pub fn lay(run: &Run) -> io::Result<Self> {
        let mut wire = Self {
            interface: run.interface,
            back_end: None,
        };
        if run.interface == Interface::Macvtap {
            let here = File::open("/proc/self/ns/net")?;
            lay_cable(&here).map_err(io::Error::other)?;
        }
        if run.vhost == Vhost::User {
            wire.back_end = Some(start_back_end()?);
            if !appears(Path::new(BACK_END), START_MAX) {
                return Err(io::Error::other("the back end does not listen"));
            }
        }
        Ok(wire)
    }

    /// Joins what the monitor has made to this end.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn join(&self) -> io::Result<()> {
        self.joined().map_err(io::Error::other)
    }

    fn joined(&self) -> Result<(), netlink::Error> {
        let mut netlink = Netlink::open()?;
        netlink.set_up(TAP)?;
        let near = match self.interface {
            Interface::Bridge => {
                netlink.add_bridge(BRIDGE)?;
                netlink.set_master(TAP, BRIDGE)?;
                BRIDGE
            }
            Interface::Macvtap => CABLE[0],
            _ => TAP,
        };
        netlink.set_up(near)?;
        netlink.add_address(near, HOST.into(), PREFIX)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if let Some(back_end) = &mut self.back_end {
            // It may have ended already.
            let _ = back_end.kill();
            let _ = back_end.wait();
            let _ = fs::remove_file(BACK_END);
        }
        let made = match self.interface {
            Interface::Bridge => BRIDGE,
            Interface::Macvtap => CABLE[0],
            _ => return,
        };
        // It may not have been made.
        let _ = Netlink::open().and_then(|mut netlink| netlink.delete(made));
    }
}

fn lay_cable(here: &File) -> Result<(), netlink::Error> {
    let mut netlink = Netlink::open()?;
    netlink.add_veth(CABLE[0], CABLE[1], here.as_fd())?;
    netlink.set_up(CABLE[1])?;
    netlink.add_macvtap(TAP, CABLE[1])
}

fn start_back_end() -> io::Result<Child> {
    let socket = format!("--vhost-user={BACK_END}");
    let wire = format!("--wire=tap:{TAP}");
    Command::new("/lab/outboard")
        .args(["model", "virtio-net", &socket, &wire])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
}
