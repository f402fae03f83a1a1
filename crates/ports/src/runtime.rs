//! What the ports of an image have in common: the host, the shared file, the wait, the end.

use crate::buffers;
use crate::capture::Capture;
use crate::clock::Instant;
use crate::console;
use crate::counters::Counter;
use crate::devices::{DeviceError, Devices};
use crate::disk::{CallDisk, Disk};
use crate::host::{Handle, Host};
use crate::ledger::Ledger;
use crate::link::Links;
use crate::mtu::MTU_MAX;
use crate::network::Network;
use crate::progress::Progress;
use crate::queue::{DiskQueue, Queues};
use crate::regions::Regions;
use crate::ring::Rings;
use crate::schedule::Schedule;
use crate::share::{HostWord, SharedFile};
use crate::sockets::{HostSockets, SocketCalls};
use crate::state::{self, State, StateMemory};
use abi::extension::device_flag;
use abi::link::MTU;
use abi::region::kind;
use abi::state::Mark;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt;
use core::sync::atomic::Ordering;
use device::{BlockDevice, Netif, Pool, WaitHandle};
use hw::DmaArena;

/// What a runtime is made of.
pub struct Parts {
    /// The host.
    pub host: &'static dyn Host,
    /// The file that host and guest share.
    pub share: SharedFile,
    /// The rings, if the host has any.
    pub rings: Option<Rings>,
    /// The memory of links, states and queues of disks.
    pub regions: Regions,
    /// The devices.
    pub devices: Devices,
    /// Packet buffers for the networks of the host's.
    pub pool: Pool,
    /// The whole command line; empty if there is none.
    pub command_line: &'static str,
    /// Whether the heap has so many bytes in one piece.
    pub has_room: fn(usize) -> bool,
    /// What the host waits on for all but networks, if there are links beside those.
    pub quiet: Option<Handle>,
    /// Whether the image never sleeps: the operator wants so.
    pub sleepless: bool,
}

/// What ports, and layers above them, have of the image that they are in.
pub struct Runtime {
    /// The host: clocks, console.
    pub host: &'static dyn Host,
    /// The file that host and guest share.
    pub share: SharedFile,
    /// Captures of the ports' frames.
    pub capture: Capture,
    /// The devices.
    pub devices: Devices,
    /// The whole command line; empty if there is none.
    pub command_line: &'static str,
    /// Whether the heap has so many bytes in one piece.
    pub has_room: fn(usize) -> bool,
    pub(crate) nics: Schedule<Ledger>,
    rings: Option<Rings>,
    links: Links,
    states: RefCell<Vec<Option<StateMemory>>>,
    queues: Queues,
    pool: Pool,
    progress: Progress,
    /// What the host waits on for all but networks.
    quiet: Option<Handle>,
    /// The bits of all networks of the host's.
    networks: u64,
    /// Not 0 once it is to leave.
    leave: Option<&'static HostWord>,
}

/// The devices that have something to receive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready(u64);

impl Ready {
    /// Whether this device does.
    #[inline]
    pub fn contains(self, handle: WaitHandle) -> bool {
        self.0 & (1 << handle.0) != 0
    }

    /// Whether none does: the deadline passed, the host has changed the shared file, or a driver
    /// was told the time.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<WaitHandle> for Ready {
    fn from_iter<I: IntoIterator<Item = WaitHandle>>(handles: I) -> Self {
        Self(
            handles
                .into_iter()
                .fold(0, |all, handle| all | 1 << handle.0),
        )
    }
}

impl Runtime {
    /// A runtime of these parts, none of whose devices was handed out.
    pub fn new(parts: Parts) -> Self {
        Self {
            host: parts.host,
            share: parts.share,
            capture: Capture::new(parts.host, &parts.share),
            nics: Schedule::new(
                parts.devices.networks() + parts.devices.links(),
                parts.sleepless,
            ),
            states: RefCell::new(parts.regions.states),
            queues: Queues::new(parts.regions.queues),
            links: Links::new(parts.regions.links, parts.devices.networks() > 0),
            quiet: parts.quiet,
            networks: parts.devices.network_bits(),
            devices: parts.devices,
            command_line: parts.command_line,
            has_room: parts.has_room,
            rings: parts.rings,
            pool: parts.pool,
            progress: Progress::new(&parts.share),
            leave: parts.share.leave(),
        }
    }

    /// The port of the network or link of this name, once.
    ///
    /// # Errors
    /// If the manifest has no such network or it was handed out already.
    pub fn network(&'static self, name: &str) -> Result<Box<dyn Netif>, DeviceError> {
        if let Some(link) = self.devices.take_region(kind::LINK, name)? {
            return Ok(Box::new(self.links.port(self, &link, MTU.into())?));
        }
        if self.devices.socket_links().any(|found| found == name) {
            return Err(DeviceError::OtherKind);
        }
        let attached = self.devices.take(self.host, name)?;
        let mut network = Network::new(self, &attached)?;
        if let Some(rings) = self.rings.as_ref()
            && attached.flags & device_flag::RING != 0
        {
            let buffers = buffers::for_ring(self.pool.count(), self.devices.networks());
            match rings.port(network, buffers) {
                Ok(port) => return Ok(Box::new(port)),
                Err(without) => network = *without,
            }
        }
        Ok(self.host.tap(network))
    }

    /// The port of the link of this name that carries sockets, once; `None` if the manifest has
    /// none of this name. Its frames are as long as any may be, unless the host says otherwise.
    ///
    /// # Errors
    /// If it was handed out already, or the tender attaches none.
    pub fn socket_link(&'static self, name: &str) -> Result<Option<Box<dyn Netif>>, DeviceError> {
        let Some(link) = self.devices.take_region(kind::SOCKETS, name)? else {
            return Ok(None);
        };
        Ok(Some(Box::new(self.links.port(self, &link, MTU_MAX)?)))
    }

    /// The disk of this name, once.
    ///
    /// # Errors
    /// If the manifest has no such disk or it was handed out already.
    pub fn disk(&'static self, name: &str) -> Result<Box<dyn BlockDevice>, DeviceError> {
        let attached = self.devices.take(self.host, name)?;
        if let Some(rings) = self.rings.as_ref()
            && attached.flags & device_flag::RING != 0
            && let Some(name) = attached.entry.name()
            && let Some(ring) = rings.disk(self, attached.index, name)
        {
            return Ok(Box::new(Disk::new(&attached, ring)?));
        }
        let calls = CallDisk::new(self.host, &attached);
        Ok(Box::new(Disk::new(&attached, calls)?))
    }

    /// The disk of this name as a queue, once, and the memory that its buffers lie in; `None` if
    /// the manifest asks for none of this name, or the tender has none.
    ///
    /// # Errors
    /// If the disk was handed out already.
    pub fn queue(&'static self, name: &str) -> Result<Option<(DiskQueue, DmaArena)>, DeviceError> {
        let region = match self.devices.take_region(kind::QUEUE, name) {
            Ok(Some(region)) => region,
            Ok(None) | Err(DeviceError::NotAttached) => return Ok(None),
            Err(error) => return Err(error),
        };
        let attached = self.devices.take(self.host, name)?;
        self.queues.take(self, &region, &attached)
    }

    /// The sockets of this name, once; `None` if the manifest has none of this name. The host makes
    /// `calls`, if it is one that has sockets.
    ///
    /// # Errors
    /// If they were handed out already, or the host has none.
    pub fn sockets(
        &self,
        name: &str,
        calls: Option<&'static dyn SocketCalls>,
    ) -> Result<Option<HostSockets>, DeviceError> {
        if !self.devices.is_sockets(name) {
            return Ok(None);
        }
        let calls = calls.ok_or(DeviceError::NoSockets)?;
        let attached = self.devices.take(self.host, name)?;
        Ok(Some(HostSockets {
            calls,
            set: attached.handle,
            wait: WaitHandle(attached.index),
        }))
    }

    /// The state of this name, once, as the last image with this layout left it: see
    /// [`state::open`].
    ///
    /// # Errors
    /// If the manifest has no such state, it was handed out already, or the tender attaches none.
    pub fn state(&self, mark: &Mark) -> Result<State, DeviceError> {
        // The compiler may not fold it: whoever would start the image looks for the mark in it.
        let mark = core::hint::black_box(mark);
        let (name, layout) = (mark.name().unwrap_or_default(), mark.layout());
        let attached = self.devices.take_region(kind::STATE, name)?;
        let attached = attached.ok_or_else(|| self.devices.not_in_manifest())?;
        let mut states = self.states.borrow_mut();
        let memory = states.get_mut(attached.number).and_then(Option::take);
        let opened = memory.and_then(|memory| state::open(memory, layout));
        opened.ok_or(DeviceError::NotAttached)
    }

    /// The counter of this number. Numbers that the shared file does not hold share one counter
    /// that nobody reads. An appliance's own begin at [`abi::share::appliance_counters`] of
    /// [`Devices::count`].
    pub fn counter(&self, number: usize) -> Counter {
        Counter::of(self.share.counters(), number)
    }

    /// Packet buffers for the networks of the host's.
    pub(crate) fn pool(&self) -> Pool {
        self.pool
    }

    /// Sleeps until a network device may have something to receive, the host has changed the shared
    /// file, or `deadline` has passed, if there is one. With a deadline in the past it only looks.
    #[inline]
    pub fn wait(&self, deadline: Option<Instant>) -> Ready {
        self.wait_without(deadline, Ready::default())
    }

    /// The same, but what comes in at the ports `held` waits there, since whoever would take it has
    /// no room for it at the moment ([`Netif::has_room`]), and is to wake this image up once there
    /// is some. Which ports can be left out, the host knows: links always, and its networks all
    /// together, on `spt` and `process`. Of others, what comes in is reported as ever.
    #[inline]
    pub fn wait_without(&self, deadline: Option<Instant>, held: Ready) -> Ready {
        self.progress.turn();
        if self
            .leave
            .is_some_and(|leave| leave.load(Ordering::Relaxed) != 0)
        {
            self.leave();
        }
        self.capture.publish();
        let all_held = held.0 & self.networks == self.networks;
        let quiet = self.quiet.filter(|_| all_held && held.0 != 0);
        let host = |deadline| {
            let _asleep = self.progress.sleep();
            match &self.rings {
                Some(rings) => rings.wait(deadline),
                None => self.host.wait(deadline, quiet),
            }
        };
        let host = |deadline| self.links.wait(deadline, held.0, host);
        Ready(match self.nics.is_empty() {
            true => host(deadline),
            false => {
                let deadline = deadline.map(|Instant(at)| at);
                let until = |at| host(Some(Instant(at)));
                self.nics.wait(deadline, || self.host.monotonic(), until)
            }
        })
    }

    /// Writes formatted text to the console.
    pub fn print(&self, arguments: fmt::Arguments<'_>) {
        console::print(self.host, arguments);
    }

    /// Ends the guest with this exit status. Captures become visible, frames in rings leave, and
    /// the other ends of links are told before that.
    pub fn exit(&self, status: i32) -> ! {
        self.capture.publish();
        if let Some(rings) = &self.rings {
            rings.flush();
        }
        self.links.go_down();
        self.host.exit(status)
    }

    /// Ends the guest between two turns, since the host wants another one in its place: what its
    /// links hold waits for that one.
    #[cold]
    fn leave(&self) -> ! {
        self.capture.publish();
        if let Some(rings) = &self.rings {
            rings.flush();
        }
        self.links.leave();
        self.host.exit(abi::exit::SUCCESS)
    }

    /// The process that was the PCIe device with this index has gone, and the guest ends; or it was
    /// the one that served a disk. Then the queue of the disk knows of it, and its bit is returned.
    #[cold]
    pub fn device_gone(&self, index: usize) -> u64 {
        if self.queues.is_gone(index) {
            return 1 << index;
        }
        let name = self.devices.pci_name(index);
        self.print(format_args!(
            "outboard: device {name}: the process that it was has ended\n"
        ));
        self.exit(abi::exit::DEVICE_GONE)
    }
}
