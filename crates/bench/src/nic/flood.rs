//! How many frames a reflector sends back when more come than it can take.

use super::{Plan, beside, model};
use crate::samples::{Measure, Samples};
use crate::turn::Error;
use device::{Batch, Nic, TEND_NANOSECONDS};
use models::wire::Flood;
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// Frames of 64 bytes, frame check sequence included, that come back.
pub const FLOOD: Measure = Measure::new("reflected, 64 bytes", "kframes/s");
/// CPU time of the driver's thread for each.
pub const FLOOD_CPU: Measure = Measure::new("reflected, 64 bytes: CPU", "ns/frame");
/// Who is measured.
pub const REFLECTOR: &str = "reflector";

/// Bytes of a frame without its check sequence.
const FRAME_BYTES: usize = 60;
/// Batches between two looks at the clock.
const BATCHES: usize = 1024;

pub(super) fn measure(plan: &Plan, round: usize, samples: &mut Samples) -> Result<(), Error> {
    let mut frame = vec![0; FRAME_BYTES];
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    let device = model(Flood::new(vec![frame]));
    let result = beside(
        &device,
        |_| {},
        |started| {
            let cpu = thread_time();
            let begin = Instant::now();
            let sent = device.device().wire().sent;
            let mut batch = Batch::new();
            let mut tended = started.now();
            while begin.elapsed() < plan.time {
                for _ in 0..BATCHES {
                    started.driver.receive(&mut batch);
                    started.driver.transmit(&mut batch);
                }
                let now = started.now();
                if now - tended >= TEND_NANOSECONDS {
                    started.driver.tend(now);
                    tended = now;
                }
            }
            let sent = device.device().wire().sent - sent;
            Ok((sent, begin.elapsed(), thread_time() - cpu))
        },
    );
    let (sent, time, cpu) = result.map_err(|error| Error::Measure(REFLECTOR, FLOOD, error))?;
    let sent = sent as f64;
    samples.add(FLOOD, REFLECTOR, round, sent / time.as_secs_f64() / 1e3);
    let cost = cpu.as_nanos() as f64 / sent.max(1.0);
    samples.add(FLOOD_CPU, REFLECTOR, round, cost);
    Ok(())
}

/// CPU time that this thread has used.
pub(super) fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
