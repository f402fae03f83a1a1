//! What different ways to wait for frames cost.
//!
//! Seed 000, section 4.3.1: a runtime that sleeps until its next deadline, and whose host knows
//! nothing of the NIC, carried 3 MiB/s; with deadlines of at most 100 microseconds it was as fast
//! as a driver that never sleeps. Here the NIC interrupts, and the driver looks once more before it
//! sleeps. The other end sends no more than so many frames that have not come back.

use super::flood::thread_time;
use super::wire::Window;
use super::{Plan, Started, beside, model};
use crate::samples::{Measure, Samples};
use crate::turn::Error;
use device::{Batch, Nic};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Payload that comes back, of frames of 1514 bytes, 64 of them on their way.
pub const WINDOW: Measure = Measure::new("64 frames on their way", "Gb/s");
/// CPU time of the driver's thread for it, against the clock.
pub const WAITING_CPU: Measure = Measure::new("64 frames on their way: CPU", "% of a core");
/// One frame at a time: how long until it is back.
pub const LATENCY: Measure = Measure::new("one frame on its way: median", "us");
/// The same.
pub const LATENCY_P99: Measure = Measure::new("one frame on its way: p99", "us");

const FRAME_BYTES: usize = 1514;
const FRAMES: usize = 64;
/// A timer of an appliance that has nothing else to do.
const DEADLINE: Duration = Duration::from_millis(10);
/// What the seed made of it.
const SHORT_DEADLINE: Duration = Duration::from_micros(100);
/// Longest sleep of who waits for an interrupt: the run must end some time.
const PATIENCE: Duration = Duration::from_millis(100);

/// How a driver's thread waits when there is nothing to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// Until a deadline, whatever comes.
    Deadline(Duration),
    /// For the interrupt, after another look.
    Interrupt,
    /// Not at all.
    Busy,
}

const WAITS: [(&str, Wait); 4] = [
    ("sleeps 10 ms", Wait::Deadline(DEADLINE)),
    ("sleeps 100 us", Wait::Deadline(SHORT_DEADLINE)),
    ("interrupt", Wait::Interrupt),
    ("polls", Wait::Busy),
];

pub(super) fn measure(plan: &Plan, round: usize, samples: &mut Samples) -> Result<(), Error> {
    for (name, wait) in WAITS {
        let failed = |measure| move |error| Error::Measure(name, measure, error);
        let many = run(plan, wait, FRAMES).map_err(failed(WINDOW))?;
        samples.add(WINDOW, name, round, many.gigabits());
        samples.add(WAITING_CPU, name, round, many.busy());
        let one = run(plan, wait, 1).map_err(failed(LATENCY))?;
        samples.add(LATENCY, name, round, one.median);
        samples.add(LATENCY_P99, name, round, one.p99);
    }
    Ok(())
}

/// What a run came to. Round trips are in microseconds.
struct Outcome {
    frames: u64,
    time: Duration,
    cpu: Duration,
    median: f64,
    p99: f64,
}

impl Outcome {
    fn gigabits(&self) -> f64 {
        (self.frames * FRAME_BYTES as u64 * 8) as f64 / self.time.as_secs_f64() / 1e9
    }

    fn busy(&self) -> f64 {
        100.0 * self.cpu.as_secs_f64() / self.time.as_secs_f64()
    }
}

fn run(plan: &Plan, wait: Wait, frames: usize) -> io::Result<Outcome> {
    let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
    let device = model(Window::new(FRAME_BYTES, frames));
    let interrupt = |_| {
        // Full is as good as written: it wakes.
        let _ = rustix::io::write(&event, &1u64.to_ne_bytes());
    };
    let (time, cpu) = beside(&device, interrupt, |started| {
        let (begin, cpu) = (Instant::now(), thread_time());
        while begin.elapsed() < plan.time {
            reflect(started, wait, &event)?;
        }
        Ok((begin.elapsed(), thread_time() - cpu))
    })?;
    let mut device = device.device();
    let trips = &device.wire().round_trips;
    let microseconds = |quantile| trips.value_at_quantile(quantile) as f64 / 1e3;
    Ok(Outcome {
        frames: trips.len(),
        time,
        cpu,
        median: microseconds(0.5),
        p99: microseconds(0.99),
    })
}

/// Sends back what came, or waits.
fn reflect(started: &mut Started, wait: Wait, event: &OwnedFd) -> io::Result<()> {
    let driver = &mut started.driver;
    let mut batch = Batch::new();
    driver.receive(&mut batch);
    if !batch.is_empty() {
        driver.transmit(&mut batch);
        return Ok(());
    }
    match wait {
        Wait::Busy => {}
        Wait::Deadline(deadline) => std::thread::sleep(deadline),
        Wait::Interrupt if driver.arm() => {}
        Wait::Interrupt => {
            let timeout = Timespec::try_from(PATIENCE).map_err(io::Error::other)?;
            poll(&mut [PollFd::new(event, PollFlags::IN)], Some(&timeout))?;
            let _ = rustix::io::read(event, &mut [0; 8]);
        }
    }
    Ok(())
}
