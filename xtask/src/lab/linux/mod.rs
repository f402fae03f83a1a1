//! `cargo xtask lab linux DEVICE`: Linux's own drivers on Outboard's software devices.
//!
//! | module | what |
//! |---|---|
//! | `guest` | the guest's RAM disk and its machine |
//! | `bench` | the device, its wire and the guest, in a network namespace of their own |
//! | `faults` | what a driver survives, Linux's and ours |
//! | `talk` | what the guest says |
//! | `reports` | what the device says of its driver |
//! | `table` | what came of it all |

mod bench;
mod faults;
mod guest;
mod reports;
mod table;
mod talk;

use super::{kernel, qemu};
use crate::packages::{self, BUILD, LAB, LINUX};
use crate::process;
use std::path::{Path, PathBuf};
use std::process::Command;

const HELP: &str = "\
Usage: cargo xtask lab linux [OPTION...] DEVICE [-- COMMAND]

Boots Debian's own kernel in QEMU, with a software device of `outboard model` behind vfio-user, and
lets Linux's unmodified driver run all trials of lab/linux on it; or runs COMMAND in the guest, and
ends with its exit status. $nic is the interface there, and 10.7.0.1 the other end of its wire. The
first time, it builds QEMU, which takes some minutes.

DEVICE is 82574, 82599, e1000, rtl8139, nvme, virtio-net, virtio-blk or virtio-rng.

  --vhost-user[=mmio]  the device is the back end of QEMU's own virtio device, over vhost-user: only
                       virtio's; the trials are those that are for one. The driver finds it on PCI,
                       or as virtio-mmio on QEMU's machine microvm
  --quick              five reloads and short transfers
  --seconds=N          how long bytes go to our driver and back, and are compared
  --trial=NAME         the trials whose names contain NAME, behind the first one
  --faults             instead of the trials: each fault of the device once with Linux's driver
                       and once with ours, and a table of what survives
  --misbehave=FAULTS   what the device does wrong, as `outboard model --misbehave` takes it
  --verbose            show all that the guest prints
  --yes                install missing Debian packages without asking (as CI=true does)
";

/// Devices of `outboard model` that there are trials for; each has a folder in `lab/linux`.
const DEVICES: [&str; 8] = [
    "82574",
    "82599",
    "e1000",
    "rtl8139",
    "nvme",
    "virtio-net",
    "virtio-blk",
    "virtio-rng",
];
/// Those that can be back ends of QEMU's.
const BACK_ENDS: [&str; 2] = ["virtio-net", "virtio-blk"];
/// Reloads of the driver.
const RELOADS: u32 = 100;
/// The same with `--quick`.
const RELOADS_QUICK: u32 = 5;
/// Seconds of a transfer.
const TRANSFER_SECONDS: u32 = 5;
/// The same with `--quick`.
const TRANSFER_SECONDS_QUICK: u32 = 1;
/// Those whose quick trials are tests.
const TESTED: [&str; 2] = ["82599", "82574"];
/// Devices that our own driver drives too, in the last trials; their part in the name of the
/// manifest that has a card of its own, and in that of the image.
const OURS: [(&str, &str); 2] = [("82574", "nic"), ("82599", "82599")];
/// Appliances of ours that they run.
const IMAGES: [&str; 3] = ["echo", "iperf3", "firewall"];
/// Set for the part of this program that runs in a network namespace of its own.
const INSIDE: &str = "OUTBOARD_LAB_INSIDE";

/// What is between the device and the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Front {
    /// Our client of vfio-user: the driver finds the device itself, on PCI.
    #[default]
    VfioUser,
    /// QEMU's own device, on PCI, with ours as its back end.
    VhostUserPci,
    /// The same over virtio-mmio.
    VhostUserMmio,
}

impl Front {
    fn is_vhost_user(self) -> bool {
        self != Self::VfioUser
    }
}

/// What to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Options {
    device: String,
    front: Front,
    quick: bool,
    seconds: Option<u32>,
    faults: bool,
    verbose: bool,
    yes: bool,
    trial: Option<String>,
    misbehave: Option<String>,
    command: Option<String>,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut rest = arguments.iter();
        for argument in &mut rest {
            match argument.split_once('=') {
                _ if argument == "--" => {
                    let words: Vec<&str> = rest.map(String::as_str).collect();
                    options.command = Some(words.join(" "));
                    break;
                }
                _ if argument == "--vhost-user" => options.front = Front::VhostUserPci,
                _ if argument == "--vhost-user=mmio" => options.front = Front::VhostUserMmio,
                _ if argument == "--quick" => options.quick = true,
                _ if argument == "--faults" => options.faults = true,
                _ if argument == "--verbose" => options.verbose = true,
                _ if argument == "--yes" => options.yes = true,
                Some(("--seconds", number)) => {
                    let seconds = number.parse().map_err(|_| "--seconds is a number")?;
                    options.seconds = Some(seconds);
                }
                Some(("--trial", name)) => options.trial = Some(name.into()),
                Some(("--misbehave", faults)) => options.misbehave = Some(faults.into()),
                _ if options.device.is_empty() && DEVICES.contains(&argument.as_str()) => {
                    options.device = argument.clone();
                }
                _ => {
                    return Err(format!(
                        "`{}` is no option, and no device that is left; type: cargo xtask lab \
                         linux --help",
                        argument
                    ))
                }
            }
        }
        if options.device.is_empty() {
            return Err(format!(
                "which device: {}? Type: cargo xtask lab linux --help",
                DEVICES.join(", ")
            ));
        }
        Ok(options)
    }

    fn reloads(&self) -> u32 {
        match self.quick {
            true => RELOADS_QUICK,
            false => RELOADS,
        }
    }

    fn transfer_seconds(&self) -> u32 {
        match self.quick {
            true => TRANSFER_SECONDS_QUICK,
            false => TRANSFER_SECONDS,
        }
    }

    /// How long bytes go to our driver and back, in seconds.
    fn compared_seconds(&self) -> u32 {
        self.seconds.unwrap_or(self.transfer_seconds())
    }
}

/// Where everything lies.
#[derive(Debug)]
struct Places {
    root: PathBuf,
    /// `target/lab`.
    cache: PathBuf,
    /// Where the bench of this device has its files: RAM disk, logs, socket.
    work: PathBuf,
}

impl Places {
    fn new(root: &Path, device: &str) -> Self {
        let cache = process::target_folder(root).join("lab");
        Self {
            root: root.to_path_buf(),
            work: cache.join("linux").join(device),
            cache,
        }
    }

    /// `lab/linux`: what the guest runs.
    fn ours(&self) -> PathBuf {
        self.root.join("lab/linux")
    }

    /// The appliances that are at the other end of the wire.
    fn images(&self) -> PathBuf {
        self.root.join("unikernels")
    }

    fn outboard(&self) -> PathBuf {
        process::target_folder(&self.root).join("x86_64-unknown-linux-gnu/release/outboard")
    }
}

/// `cargo xtask lab linux`.
///
/// # Errors
/// One line that says why the trials did not run.
pub fn main(root: &Path, arguments: &[String]) -> Result<i32, String> {
    if crate::wants_help(arguments) {
        print!("{}", HELP);
        return Ok(0);
    }
    let options = Options::parse(arguments)?;
    let ours = OURS.iter().find(|(device, _)| *device == options.device);
    if options.faults && ours.is_none() {
        return Err(format!(
            "--faults: we have no driver for {}",
            options.device
        ));
    }
    if options.front.is_vhost_user() && !BACK_ENDS.contains(&options.device.as_str()) {
        return Err(format!(
            "--vhost-user is for {}; type: cargo xtask lab linux {}",
            BACK_ENDS.join(" and "),
            options.device
        ));
    }
    let places = Places::new(root, &options.device);
    if std::env::var_os(INSIDE).is_some() {
        if options.faults {
            return faults::run(&places, &options);
        }
        return bench::run(&places, &options);
    }
    packages::provide(&[BUILD, LAB, LINUX], options.yes)?;
    kernel::provide(&places.cache)?;
    if !options.front.is_vhost_user() {
        qemu::provide(root, &places.cache, options.verbose)?;
    }
    let mut build = Command::new(process::cargo());
    build.args(["build", "--release", "--quiet", "-p", "outboard"]);
    if process::run(build.current_dir(root))? != 0 {
        return Err("outboard could not be built, as it says above".into());
    }
    let manifest = ours.map_or("", |(_, manifest)| manifest);
    if ours.is_some() {
        build_images(&places, &options, manifest)?;
    }
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    // All that the bench starts ends with it.
    let mut command = Command::new("unshare");
    if !packages::is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--"])
        .arg(this)
        .args(["lab", "linux"])
        .args(arguments)
        .env(INSIDE, "1")
        // What `lab/linux/host` has to know for our own driver.
        .env("DEVICE", &options.device)
        .env("MANIFEST", manifest)
        .current_dir(root);
    process::run(&mut command)
}

/// Builds the appliances that have a card of their own.
fn build_images(places: &Places, options: &Options, manifest: &str) -> Result<(), String> {
    for image in IMAGES {
        let folder = places.images().join(image);
        let manifest = folder.join(format!("manifest-{}.json", manifest));
        let mut build = Command::new(places.outboard());
        build.arg("build").arg(&folder);
        build.arg(format!("--manifest={}", manifest.display()));
        let finished = process::capture(&mut build, options.verbose)?;
        if finished.status != 0 {
            return Err(format!("no image {}: {}", image, finished.output));
        }
    }
    Ok(())
}

/// Why the trials cannot run without building QEMU first; `None` if they can.
pub fn missing(root: &Path) -> Option<String> {
    let places = Places::new(root, TESTED[0]);
    let there = qemu::built(root, &places.cache).is_some() && packages::all_there(LINUX);
    match there {
        true => None,
        false => Some("no QEMU is built; type: cargo xtask lab linux 82599".into()),
    }
}

/// The trials as tests, device by device: each counts, as libtest's would.
///
/// # Errors
/// If there is no such program as this.
pub fn tests(root: &Path) -> Result<Vec<Command>, String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let test = |device: &&str| {
        let mut command = Command::new(&this);
        command.args(["lab", "linux", "--quick", device]);
        command.current_dir(root);
        command
    };
    Ok(TESTED.iter().map(test).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options, String> {
        let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
        Options::parse(&words)
    }

    #[test]
    fn options_stand_around_the_device_and_end_at_the_command() {
        let options = parse(&["--quick", "82599", "--trial=tcp", "--", "ip", "--quick"]).unwrap();
        assert!(options.quick && !options.verbose);
        assert_eq!(options.device, "82599");
        assert_eq!(options.trial.as_deref(), Some("tcp"));
        assert_eq!(options.command.as_deref(), Some("ip --quick"));
        assert_eq!((options.reloads(), options.transfer_seconds()), (5, 1));
        assert_eq!(parse(&["82599"]).unwrap().reloads(), 100);
        let mmio = parse(&["--vhost-user=mmio", "virtio-blk"]).unwrap();
        assert_eq!(mmio.front, Front::VhostUserMmio);
        let long = parse(&["82599", "--quick", "--seconds=600"]).unwrap();
        assert_eq!((long.transfer_seconds(), long.compared_seconds()), (1, 600));
    }

    #[test]
    fn what_is_no_device_is_named() {
        for words in [&["82598"][..], &["82599", "82599"], &["--fast", "82599"]] {
            let error = parse(words).unwrap_err();
            assert!(error.contains("--help"), "{}", error);
        }
        assert!(parse(&[]).unwrap_err().contains("82599"));
    }
}
