//! A guest between two wires, with counters.

use crate::harness::build::Images;
use crate::harness::process::{Running, start};
use crate::harness::temporary::TemporaryFile;
use crate::harness::wire::Wire;
use abi::share::{
    COUNTERS_OFFSET, COUNTERS_PER_PORT, PortCounter, RULE_COUNTERS_OFFSET, RuleCounter,
};
use libtest_mimic::Failed;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// How long a counter may take to reach its value.
const PATIENCE: Duration = Duration::from_secs(5);

/// The number of the counter of frames of this rule, of those that an image comes with.
pub const fn of_rule(rule: usize) -> usize {
    (RULE_COUNTERS_OFFSET - COUNTERS_OFFSET + rule * size_of::<RuleCounter>()) / 8
}

/// A guest between two wires, with counters.
pub struct Joined {
    pub left: Wire,
    pub right: Wire,
    share: TemporaryFile,
    pub running: Running,
}

/// What stands between which wires.
pub struct Setting {
    /// A guest of `tests/guests`, or `firewall`.
    pub image: &'static str,
    pub host: &'static str,
    pub mtu: [u32; 2],
    pub vnet_header: [bool; 2],
}

impl Setting {
    /// Ports of Ethernet's MTU, with virtio-net headers, on spt.
    pub const fn of(image: &'static str) -> Self {
        Self {
            image,
            host: "spt",
            mtu: [1500; 2],
            vnet_header: [true; 2],
        }
    }

    fn image(&self, images: &Images) -> (PathBuf, [&'static str; 2]) {
        match self.image {
            "firewall" => {
                let built_for = if self.host == "hvt" { "hvt" } else { "spt" };
                let image = images.firewall.with_extension(built_for);
                (image, ["private", "public"])
            }
            guest => (images.guest(guest), ["left", "right"]),
        }
    }
}

/// Starts it.
pub fn join(images: &Images, setting: &Setting) -> Result<Joined, Failed> {
    let mut left = Wire::new(setting.mtu[0], setting.vnet_header[0])?;
    let mut right = Wire::new(setting.mtu[1], setting.vnet_header[1])?;
    let share = TemporaryFile::new("share", abi::share::BYTES)?;
    let (image, [first, second]) = setting.image(images);
    let mut command = Command::new(images.program("outboard-tender"));
    command
        .args(["--mem=16", &format!("--host={}", setting.host)])
        .arg(format!("--share={}", share.path.display()))
        .arg(format!("--net:{first}={}", left.descriptor()?))
        .arg(format!("--net:{second}={}", right.descriptor()?))
        .arg(image);
    let running = start(&mut command)?;
    if setting.host != "process" {
        await_jail(&running)?;
    }
    left.hand_over();
    right.hand_over();
    Ok(Joined {
        left,
        right,
        share,
        running,
    })
}

/// Waits until the tender has set its ports up: the kernel cuts frames for a tap whose offloads
/// are not set yet.
fn await_jail(running: &Running) -> Result<(), Failed> {
    let status = format!("/proc/{}/status", running.id());
    let deadline = Instant::now() + PATIENCE;
    while !std::fs::read_to_string(&status)?.contains("Seccomp:\t2") {
        if Instant::now() > deadline {
            return Err("the tender does not jail itself".into());
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

impl Joined {
    /// Waits until a counter of a port (1 is left, 2 is right) has at least this value.
    pub fn await_counter(&self, port: usize, what: PortCounter, value: u64) -> Result<(), Failed> {
        self.await_number(port * COUNTERS_PER_PORT + what as usize, value)
    }

    /// Waits until the counter of this number has at least this value.
    pub fn await_number(&self, number: usize, value: u64) -> Result<(), Failed> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = self.number(number)?;
            if found >= value {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("counter {number} is {found}, not {value}").into());
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The counter of this number.
    pub fn number(&self, number: usize) -> Result<u64, Failed> {
        let mut bytes = [0; 8];
        let file = std::fs::File::open(&self.share.path)?;
        file.read_exact_at(&mut bytes, (COUNTERS_OFFSET + 8 * number) as u64)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}
