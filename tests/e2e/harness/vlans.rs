//! VLANs of a guest's port, each with a Linux of its own: the test puts tags on and takes them off,
//! for a kernel may have none.
//!
//! ```text
//!   guest === wire === test === tap0 of one segment     frames with one VLAN's tag
//!                           === tap0 of another one     with another's
//! ```

use crate::harness::wire::Wire;
use libtest_mimic::Failed;
use linux::tap::{Tap, offload};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use testbed::segment::{Address, Segment};

/// How long the end of a test waits for who passes frames on.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};
/// A virtio-net header, and a frame with two tags.
const BYTES_MAX: usize = 12 + 65_535 + 22;
/// A virtio-net header, and the ends of a frame.
const TAG_AT: usize = 12 + 12;
/// The interface in each segment.
pub const INTERFACE: &str = "tap0";

/// A wire whose frames have tags.
pub struct Vlans {
    /// To send and to see frames as they are.
    pub wire: Arc<Wire>,
    /// The networks, in order.
    pub segments: Vec<Segment>,
    is_over: Arc<AtomicBool>,
    passes: Option<JoinHandle<()>>,
}

impl Vlans {
    /// VLANs of these numbers, each with Linux's address in it.
    pub fn new(vlans: &[(u16, Address)]) -> Result<Self, Failed> {
        let wire = Arc::new(Wire::new(1500, true)?);
        let mut segments = Vec::new();
        let mut taps = Vec::new();
        for (id, address) in vlans {
            let segment = Segment::new()?;
            let tap = segment.tap(INTERFACE, true, *address)?;
            tap.set_offloads(offload::ALL)?;
            taps.push((*id, tap));
            segments.push(segment);
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let (passing, over) = (wire.clone(), is_over.clone());
        let passes = std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) && pass(&passing, &taps).is_ok() {}
        });
        Ok(Self {
            wire,
            segments,
            is_over,
            passes: Some(passes),
        })
    }
}

impl Drop for Vlans {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.passes.take().map(JoinHandle::join);
    }
}

/// Waits for frames, and passes them on.
fn pass(wire: &Wire, taps: &[(u16, Tap)]) -> rustix::io::Result<()> {
    let mut fds = vec![PollFd::from_borrowed_fd(wire.as_fd(), PollFlags::IN)];
    fds.extend(taps.iter().map(|(_, tap)| PollFd::new(tap, PollFlags::IN)));
    poll(&mut fds, Some(&LOOK))?;
    let mut bytes = [0; BYTES_MAX];
    while let Ok(len) = rustix::io::read(wire, &mut bytes) {
        let tag = bytes[..len].get(TAG_AT..TAG_AT + 4);
        let Some(&[0x81, 0, high, low]) = tag else {
            continue;
        };
        let id = u16::from_be_bytes([high, low]);
        if let Some((_, tap)) = taps.iter().find(|(vlan, _)| *vlan == id) {
            bytes.copy_within(TAG_AT + 4..len, TAG_AT);
            moved(&mut bytes, |at| at.wrapping_sub(4));
            // What has no room is lost, as on a wire.
            let _ = rustix::io::write(tap, &bytes[..len - 4]);
        }
    }
    for (id, tap) in taps {
        while let Ok(len) = rustix::io::read(tap, &mut bytes[..BYTES_MAX - 4]) {
            bytes.copy_within(TAG_AT..len, TAG_AT + 4);
            let [high, low] = id.to_be_bytes();
            bytes[TAG_AT..TAG_AT + 4].copy_from_slice(&[0x81, 0, high, low]);
            moved(&mut bytes, |at| at.wrapping_add(4));
            let _ = rustix::io::write(wire, &bytes[..len + 4]);
        }
    }
    Ok(())
}

/// Moves what a virtio-net header says of places (virtio 1.2, 5.1.6): where headers end, and where
/// what is summed begins.
fn moved(bytes: &mut [u8], place: impl Fn(u16) -> u16) {
    for (is_there, at) in [(bytes[1] != 0, 2), (bytes[0] & 1 != 0, 6)] {
        if is_there {
            let old = u16::from_le_bytes([bytes[at], bytes[at + 1]]);
            bytes[at..at + 2].copy_from_slice(&place(old).to_le_bytes());
        }
    }
}
