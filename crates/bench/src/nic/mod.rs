//! The driver of the 82599 on its software model.
//!
//! But for `cards`, both are in one process: the driver in one thread, the device in another,
//! registers and descriptors in memory that both reach. What is measured is the driver, the model
//! and the shared memory between them; no kernel, no wire and no PCI Express.
//!
//! | module | what |
//! |---|---|
//! | `flood` | how many frames a reflector sends back when more come than it can take |
//! | `cards` | TCP through the firewall and two NICs that are processes |
//! | `waits` | what different ways to wait for frames cost, after seed 000, section 4.3.1 |

mod cards;
mod flood;
mod waits;
mod wire;

use crate::measures::{TCP_IN, TCP_IN_CPU, TCP_OUT, TCP_OUT_CPU};
use crate::samples::{Bound, Measure, Promise, Samples};
use crate::turn::Error;
use device::Pool;
use drivers::net::ixgbe;
use hw::sim::View;
use models::wire::Wire;
use models::{Device, Intel82599, Misbehaviour, Threaded};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use testbed::contender;

pub use flood::{FLOOD, FLOOD_CPU};
pub use waits::{LATENCY, LATENCY_P99, WAITING_CPU, WINDOW};

/// What is measured, in the order of the report.
pub const ALL: [Measure; 10] = [
    FLOOD,
    FLOOD_CPU,
    TCP_OUT,
    TCP_OUT_CPU,
    TCP_IN,
    TCP_IN_CPU,
    WINDOW,
    WAITING_CPU,
    LATENCY,
    LATENCY_P99,
];
/// What is drawn.
pub const PLOTTED: [(&str, Measure); 5] = [
    ("flood", FLOOD),
    ("tcp-out", TCP_OUT),
    ("tcp-in", TCP_IN),
    ("window", WINDOW),
    ("latency", LATENCY),
];
/// What was promised.
pub const PROMISES: [Promise; 7] = {
    let [out, back, long_out, long_back, short_out, short_back] = cards::PROMISES;
    let flood = Promise {
        measure: FLOOD,
        contender: flood::REFLECTOR,
        baseline: None,
        bound: Bound::AtLeast(6000.0),
    };
    [flood, out, back, long_out, long_back, short_out, short_back]
};

/// What the firewall is made of.
#[derive(Clone, Debug)]
pub struct Programs {
    /// On taps.
    pub taps: contender::Programs,
    /// `outboard`, which is the software NIC too.
    pub monitor: PathBuf,
    /// The firewall's image that drives two 82599.
    pub image: PathBuf,
}

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Turns of each contender.
    pub rounds: usize,
    /// Length of one measurement.
    pub time: Duration,
}

impl Plan {
    /// For judging.
    pub const FULL: Self = Self {
        rounds: 10,
        time: Duration::from_secs(2),
    };
    /// For a glance.
    pub const QUICK: Self = Self {
        rounds: 2,
        time: Duration::from_millis(200),
    };
}

/// Takes all measurements.
///
/// # Errors
/// The driver does not start on the model, or there is no thread or timer to be had.
pub fn measure(plan: &Plan, programs: &Programs, say: &dyn Fn(&str)) -> Result<Samples, Error> {
    let mut samples = Samples::default();
    for round in 0..plan.rounds {
        say(&format!("round {} of {}", round + 1, plan.rounds));
        flood::measure(plan, round, &mut samples)?;
        waits::measure(plan, round, &mut samples)?;
        cards::measure(plan, programs, round, &mut samples)?;
    }
    Ok(samples)
}

/// DMA memory of a driver, in bytes: rings and buffers.
const DMA_BYTES: usize = 8 << 20;
/// Where devices find it: what Outboard's tenders choose.
const DMA_IOVA: u64 = abi::pci::DMA_BASE;
const ADDRESS: [u8; 6] = [0x02, 0, 0, 0, 0, 0x99];
/// How long the link may take to come up.
const LINK_WAIT: Duration = Duration::from_secs(2);

/// The model, at one end of `wire`.
fn model<W: Wire + 'static>(wire: W) -> Threaded<Intel82599<W>> {
    Threaded::new(Intel82599::new(ADDRESS, wire, &Misbehaviour::default()))
}

/// A driver for the device, with its link up, and its DMA memory as the device's thread sees it.
/// That thread must run.
struct Started {
    driver: ixgbe::Driver,
    start: Instant,
}

impl Started {
    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}

/// Runs `work` with a driver, and beside it the device in a thread of its own, to which
/// `interrupt` is told.
fn beside<W: Wire + Send + 'static, T>(
    device: &Threaded<Intel82599<W>>,
    interrupt: impl FnMut(u64) + Send,
    work: impl FnOnce(&mut Started) -> io::Result<T>,
) -> io::Result<T> {
    let (mut arena, view) = hw::sim::arena(DMA_BYTES, DMA_IOVA);
    std::thread::scope(|scope| {
        let other = device.clone();
        let view: View = view;
        scope.spawn(move || other.run(&view, interrupt));
        let result = start(device, &mut arena).and_then(|mut started| work(&mut started));
        device.stop();
        result
    })
}

fn start<D: Device + 'static>(
    device: &Threaded<D>,
    arena: &mut hw::DmaArena,
) -> io::Result<Started> {
    let pool = Pool::dma(arena, ixgbe::BUFFERS, ixgbe::BUFFER_BYTES).map_err(io::Error::other)?;
    let start = Instant::now();
    let clock = || start.elapsed().as_nanos() as u64;
    let config = ixgbe::Config::FORWARD;
    let driver = ixgbe::Driver::new(device.mmio(), arena, pool, config, clock);
    let mut started = Started {
        driver: driver.map_err(io::Error::other)?,
        start,
    };
    while device::Nic::link(&started.driver).is_none() {
        if start.elapsed() > LINK_WAIT {
            return Err(io::Error::other("the model's link does not come up"));
        }
        device::Nic::tend(&mut started.driver, clock());
    }
    Ok(started)
}
