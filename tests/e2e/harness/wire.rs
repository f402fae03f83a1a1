//! A port of a guest with the test at the other end of its cable, frame by frame.
//!
//! ```text
//!   guest === port (tap) --- bridge --- probe (tap) === test      all in one namespace
//! ```

use libtest_mimic::Failed;
use linux::tap::{Tap, offload};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;
use testbed::segment::{Address, Segment};

/// How long a frame that should come is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a frame that should not come is waited for.
const SILENCE: Duration = Duration::from_millis(300);
const FRAME_BYTES_MAX: usize = 12 + 65_535 + 18;

/// The interface of a [`Wire`] that the guest holds.
pub const PORT: &str = "port";
const PROBE: &str = "probe";
/// The bridge in the middle of a [`Wire`].
pub const BRIDGE: &str = "bridge";
/// Settings of the namespace: the bridge shall neither judge frames before the guest sees them
/// (`br_netfilter`), nor join a group and say so (IGMP).
const QUIET: [(&str, &str); 5] = [
    ("/proc/sys/net/bridge/bridge-nf-call-iptables", "0"),
    ("/proc/sys/net/bridge/bridge-nf-call-ip6tables", "0"),
    ("/proc/sys/net/bridge/bridge-nf-call-arptables", "0"),
    ("/proc/sys/net/ipv4/igmp_max_memberships", "0"),
    ("/proc/sys/net/ipv4/igmp_link_local_mcast_reports", "0"),
];

/// A virtio-net header and the frame behind it.
type Received = ([u8; 12], Vec<u8>);

/// A cable between a guest and the test.
pub struct Wire {
    pub segment: Segment,
    guest: Option<OwnedFd>,
    probe: Tap,
    vnet_header: bool,
}

impl Wire {
    /// A cable of this MTU. With `vnet_header`, both ends carry virtio-net headers and frames of
    /// up to 64 KiB.
    pub fn new(mtu: u32, vnet_header: bool) -> Result<Self, Failed> {
        let segment = Segment::new()?;
        for (setting, value) in QUIET {
            // Absent where the kernel has no br_netfilter.
            let _ = segment.run(|| std::fs::write(setting, value));
        }
        segment.netlink(|netlink| {
            netlink.add_bridge(BRIDGE)?;
            netlink.set_mtu(BRIDGE, mtu)?;
            netlink.set_up(BRIDGE)
        })?;
        let tap = |name| -> Result<Tap, Failed> {
            let tap = segment.run(|| Tap::create(name, vnet_header))?;
            segment.netlink(|netlink| {
                netlink.set_mtu(name, mtu)?;
                netlink.set_master(name, BRIDGE)?;
                netlink.set_up(name)
            })?;
            Ok(tap)
        };
        let guest = tap(PORT)?.into_fd();
        let probe = tap(PROBE)?;
        if vnet_header {
            probe.set_offloads(offload::ALL)?;
        }
        let guest = Some(guest);
        Ok(Self {
            segment,
            guest,
            probe,
            vnet_header,
        })
    }

    /// What goes behind `--net:NAME=`, for one start of a tender.
    pub fn descriptor(&self) -> Result<String, Failed> {
        let guest = self.guest.as_ref().ok_or("the guest has it already")?;
        rustix::io::fcntl_setfd(guest, rustix::io::FdFlags::empty())?;
        Ok(format!("@{}", guest.as_raw_fd()))
    }

    /// Closes the test's copy of the guest's end, once the tender has its own.
    pub fn hand_over(&mut self) {
        self.guest = None;
    }

    /// Sends a frame to the guest.
    pub fn send(&self, frame: &[u8]) -> Result<(), Failed> {
        let header: &[u8] = if self.vnet_header { &[0; 12] } else { &[] };
        self.send_raw(&[header, frame].concat())
    }

    /// Sends virtio-net header and frame.
    pub fn send_raw(&self, bytes: &[u8]) -> Result<(), Failed> {
        let written = rustix::io::write(&self.probe, bytes)?;
        (written == bytes.len())
            .then_some(())
            .ok_or("short write".into())
    }

    /// The next frame from the guest with this source address, and its virtio-net header.
    pub fn receive_raw(&self, source: [u8; 6]) -> Result<Received, Failed> {
        self.next(source, PATIENCE)?
            .ok_or_else(|| "no frame came".into())
    }

    /// The next frame from the guest with this source address.
    pub fn receive(&self, source: [u8; 6]) -> Result<Vec<u8>, Failed> {
        Ok(self.receive_raw(source)?.1)
    }

    /// Fails if a frame with this source address comes.
    pub fn expect_silence(&self, source: [u8; 6]) -> Result<(), Failed> {
        match self.next(source, SILENCE)? {
            None => Ok(()),
            Some((_, frame)) => Err(format!("a frame of {} bytes came", frame.len()).into()),
        }
    }

    /// Throws away what has come.
    pub fn drain(&self) {
        let mut buffer = vec![0; FRAME_BYTES_MAX];
        while rustix::io::read(&self.probe, &mut buffer).is_ok() {}
    }

    fn next(&self, source: [u8; 6], patience: Duration) -> Result<Option<Received>, Failed> {
        let timeout = Timespec::try_from(patience).map_err(|_| "timeout")?;
        let mut buffer = vec![0; FRAME_BYTES_MAX];
        loop {
            let mut fds = [PollFd::new(&self.probe, PollFlags::IN)];
            if poll(&mut fds, Some(&timeout))? == 0 {
                return Ok(None);
            }
            let length = rustix::io::read(&self.probe, &mut buffer)?;
            let mut header = [0; 12];
            let start = if self.vnet_header { header.len() } else { 0 };
            header[..start].copy_from_slice(&buffer[..start]);
            let frame = &buffer[start..length];
            if frame.get(6..12) == Some(&source) {
                return Ok(Some((header, frame.to_vec())));
            }
        }
    }

    /// An interface up with this address, in the same segment as the guest's port.
    pub fn host(&self, address: Ipv4Addr) -> Result<(), Failed> {
        let address = Address {
            ip: address,
            prefix: 24,
            mtu: 1500,
        };
        Ok(self.segment.configure(BRIDGE, address)?)
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.probe.as_fd()
    }
}
