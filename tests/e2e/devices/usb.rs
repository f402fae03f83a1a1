//! Guests that drive USB disks: QEMU's, in the lab, behind its IOMMU.

use super::cards::monitor;
use super::vfio::{HOSTS, Lab, trial};
use crate::harness::build::Images;
use crate::harness::process::start;
use libtest_mimic::{Failed, Trial};

/// Where the disks are that are written, in the order of their controllers.
const PLACES: [&str; 3] = ["USB 3", "USB 2", "USB behind a hub behind a hub"];
/// The one that is taken out, by its name in QEMU.
const STICK: &str = "stick";

pub fn trials(images: &'static Images) -> Vec<Trial> {
    let places = PLACES.into_iter().enumerate();
    let written = places.flat_map(|(index, place)| {
        HOSTS.map(|host| {
            let name = format!("a disk on {place} is written and read back, on {host}");
            trial(images, name, move |lab| written(lab, index, host))
        })
    });
    let gone = trial(images, "a USB disk that is taken out is gone".into(), gone);
    written.chain([gone]).collect()
}

fn written(lab: &Lab<'_>, index: usize, host: &str) -> Result<(), Failed> {
    let disk = format!("--pci:disk={}", lab.usb[index]);
    let ended = lab.succeed(host, &[&disk], "usb_block", &[])?;
    ended.expect_stdout("capacity 1048576 block size 512")?;
    ended.expect_stdout("SUCCESS")?.expect_stdout("USB")?;
    Ok(())
}

fn gone(lab: &Lab<'_>) -> Result<(), Failed> {
    let disk = format!("--pci:disk={}", lab.usb[PLACES.len()]);
    let guest = start(&mut lab.tender("spt", &[&disk], "usb_gone", &[]))?;
    guest.wait_for("READY")?;
    monitor(&format!("device_del {STICK}"))?;
    guest.wait_for("GONE")?;
    guest.finish()?.expect_status(0)?;
    Ok(())
}
