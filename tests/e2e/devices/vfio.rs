//! Guests that drive PCI devices: QEMU's `edu`, a device made for teaching that can be told to do
//! what no real one would, and a network card. In the lab, behind its IOMMU.

use crate::devices::software_device;
use crate::harness::build::Images;
use crate::harness::process::{Ended, run, start};
use abi::pci::{DMA_BASE, bar_address};
use libtest_mimic::{Completion, Failed, Trial};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

const DEVICES: &str = "/sys/bus/pci/devices";
const EDU: [&str; 2] = ["0x1234", "0x11e8"];
const CARD: [&str; 2] = ["0x8086", "0x10d3"];
/// QEMU's `ivshmem-plain`, of which BAR 0 is registers and BAR 2 memory.
const MEMORY: [&str; 2] = ["0x1af4", "0x1110"];
/// QEMU's `virtio-blk-pci` and `virtio-rng-pci`. Of the latter, the first is behind the IOMMU, and
/// the second passes by.
pub const VIRTIO_DISK: [&str; 2] = ["0x1af4", "0x1042"];
const VIRTIO_ENTROPY: [&str; 2] = ["0x1af4", "0x1044"];
/// QEMU's `nvme`.
pub const NVME: [&str; 2] = ["0x1b36", "0x0010"];
/// QEMU's `ich9-ahci`. The machine has one of its own, which cannot be reset.
pub const AHCI: [&str; 2] = ["0x8086", "0x2922"];
/// QEMU's `qemu-xhci`.
pub const USB: [&str; 2] = ["0x1b36", "0x000d"];
pub const HOSTS: [&str; 3] = ["process", "spt", "hvt"];
const SIGSEGV: i32 = 128 + 11;
/// The command register of the configuration space, and its bit for bus masters (PCI Local Bus
/// 3.0, 6.2.2).
const COMMAND: u64 = 4;
const BUS_MASTER: u8 = 1 << 2;
const PAGE: usize = 4096;
/// The kernel logs a few faults in this time (`DEFAULT_RATELIMIT_INTERVAL` of Linux).
const LOG_INTERVAL: Duration = Duration::from_secs(5);
/// Attempts of which one is logged.
const ATTEMPTS_MAX: usize = 4;
/// The variable in which `xtask` says how many bits the addresses of the machine have.
const ADDRESS_BITS: &str = "OUTBOARD_ADDRESS_BITS";
/// An ordinary user, by number: nobody's.
const NOBODY: u32 = 65534;

type OnHost = fn(&Lab<'_>, &str) -> Result<(), Failed>;
type Once = fn(&Lab<'_>) -> Result<(), Failed>;

const ON_EACH_HOST: [(&str, OnHost); 12] = [
    ("registers are read and written", |lab, host| {
        lab.edu(host, &["identify"])?
            .expect_stdout("10! = 3628800")?;
        Ok(())
    }),
    ("interrupts wake a guest up", |lab, host| {
        lab.edu(host, &["interrupt"]).map(drop)
    }),
    ("memory goes into a device and back", |lab, host| {
        lab.edu(host, &["dma"]).map(drop)
    }),
    ("a BAR that is not in the manifest faults", other_bar),
    (
        "a device writes nothing outside",
        a_device_writes_nothing_outside,
    ),
    ("only a bus master reaches memory", |lab, host| {
        let device = format!("--pci:edu={}", lab.edus[0]);
        lab.succeed(host, &[&device], "edu_slave", &[]).map(drop)
    }),
    ("two devices are told apart", |lab, host| {
        let [first, second] = &lab.edus;
        let devices = [
            format!("--pci:second={second}"),
            format!("--pci:first={first}"),
        ];
        let devices = devices.each_ref().map(String::as_str);
        lab.succeed(host, &devices, "edu_two", &[]).map(drop)
    }),
    (
        "two BARs of one device are mapped beside another and a network",
        two_bars,
    ),
    ("a virtio disk is written and read back", |lab, host| {
        let disk = format!("--pci:disk={}", lab.virtio[0]);
        let ended = lab.succeed(host, &[&disk], "virtio_block", &[])?;
        ended.expect_stdout("capacity 1048576 block size 512")?;
        ended.expect_stdout("SUCCESS")?;
        Ok(())
    }),
    (
        "an NVM Express disk is written and read back",
        |lab, host| {
            let disk = format!("--pci:disk={}", lab.nvme);
            let ended = lab.succeed(host, &[&disk], "nvme_block", &[])?;
            ended.expect_stdout("capacity 1048576 block size 512")?;
            ended.expect_stdout("SUCCESS")?.expect_stdout("NVME")?;
            Ok(())
        },
    ),
    ("a Serial ATA disk is written and read back", |lab, host| {
        let disk = format!("--pci:disk={}", lab.ahci);
        let ended = lab.succeed(host, &[&disk], "ahci_block", &[])?;
        ended.expect_stdout("capacity 1048576 block size 512")?;
        ended.expect_stdout("SUCCESS")?.expect_stdout("AHCI")?;
        Ok(())
    }),
    ("a virtio device gives random bytes", |lab, host| {
        let source = format!("--pci:entropy={}", lab.virtio[1]);
        let ended = lab.succeed(host, &[&source], "virtio_entropy", &[])?;
        ended.expect_stdout("SUCCESS")?;
        Ok(())
    }),
];

const ONCE: [(&str, Once); 13] = [
    ("another device is refused", another_device),
    ("a device that was not taken is refused", not_taken),
    ("a device that cannot be reset is refused", no_reset),
    ("a device of another process is refused", in_use),
    ("a BAR that does not exist is refused", no_bar),
    ("a device with a neighbour is refused", neighbour),
    (
        "a virtio device that passes by the IOMMU is refused",
        by_the_iommu,
    ),
    ("a guest leaves nothing in a device", reset),
    ("an ordinary user may, within a limit", ordinary_user),
    ("the monitor starts such guests", monitor),
    ("addresses are those that the machine can have", addresses),
    (
        "DMA memory is of large pages, if there are some",
        large_pages,
    ),
    ("a process that takes memory away is named", taken),
];

pub fn trials(images: &'static Images) -> Vec<Trial> {
    let hosts = HOSTS.into_iter().flat_map(|host| {
        ON_EACH_HOST.map(|(name, test)| {
            trial(images, format!("{name}, on {host}"), move |lab| {
                test(lab, host)
            })
        })
    });
    let once = ONCE.map(|(name, test)| trial(images, name.into(), test));
    hosts.chain(once).collect()
}

pub fn trial(
    images: &'static Images,
    name: String,
    test: impl FnOnce(&Lab<'_>) -> Result<(), Failed> + Send + 'static,
) -> Trial {
    let missing = (!images.are_prebuilt())
        .then_some("takes devices that only the lab has (the stage `lab` runs it)");
    Trial::ignorable_test(format!("vfio::{name}"), move || match missing {
        Some(why) => Ok(Completion::ignored_with(why)),
        None => {
            // Devices are handed to one guest at a time.
            static TURN: Mutex<()> = Mutex::new(());
            let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
            test(&Lab::find(images)?)?;
            Ok(Completion::Completed)
        }
    })
}

/// The lab's devices.
pub struct Lab<'a> {
    images: &'a Images,
    /// Two that can be reset, bound to `vfio-pci`.
    edus: [String; 2],
    /// One that cannot, bound too.
    fixed: String,
    /// One with two BARs in memory, bound too.
    memory: String,
    /// Network cards, with their driver.
    cards: Vec<String>,
    /// A disk and two sources of entropy, bound too; the last one passes by the IOMMU.
    virtio: [String; 3],
    /// An NVM Express disk, bound too.
    nvme: String,
    /// A Serial ATA adapter with a disk, bound too.
    ahci: String,
    /// USB controllers, bound too: with a disk on USB 3, on USB 2, behind two hubs, and one that is
    /// taken out.
    pub usb: [String; 4],
}

impl<'a> Lab<'a> {
    fn find(images: &'a Images) -> Result<Self, Failed> {
        let edus = with_ids(EDU)?;
        let can_reset = |address: &String| device(address, "reset_method").exists();
        let (edus, fixed): (Vec<_>, Vec<_>) = edus.into_iter().partition(can_reset);
        let memory = with_ids(MEMORY)?.pop().ok_or("no ivshmem-plain")?;
        let virtio = [with_ids(VIRTIO_DISK)?, with_ids(VIRTIO_ENTROPY)?].concat();
        let nvme = with_ids(NVME)?.pop().ok_or("no nvme")?;
        let mut ahci = with_ids(AHCI)?.into_iter().filter(can_reset);
        let ahci = ahci.next().ok_or("no ich9-ahci that can be reset")?;
        let usb: [String; 4] = with_ids(USB)?.try_into().map_err(|_| "not four of USB")?;
        let others = [&memory, &nvme, &ahci].into_iter().chain(&usb);
        for address in edus.iter().chain(&fixed).chain(others).chain(&virtio) {
            bind(address, "vfio-pci")?;
        }
        let fixed = fixed.into_iter().next();
        Ok(Self {
            images,
            edus: edus.try_into().map_err(|_| "not two that can be reset")?,
            fixed: fixed.ok_or("none that cannot be reset")?,
            memory,
            cards: with_ids(CARD)?,
            virtio: virtio.try_into().map_err(|_| "not three of virtio's")?,
            nvme,
            ahci,
            usb,
        })
    }

    pub fn tender(&self, host: &str, devices: &[&str], guest: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.images.program("outboard-tender"));
        command
            .args([&format!("--host={host}"), "--mem=16"])
            .args(devices)
            .arg("--")
            .arg(self.images.guest(guest))
            .args(arguments);
        command
    }

    pub fn succeed(
        &self,
        host: &str,
        devices: &[&str],
        guest: &str,
        arguments: &[&str],
    ) -> Result<Ended, Failed> {
        let ended = run(&mut self.tender(host, devices, guest, arguments))?;
        ended.expect_status(0)?;
        Ok(ended)
    }

    fn edu(&self, host: &str, arguments: &[&str]) -> Result<Ended, Failed> {
        let device = format!("--pci:edu={}", self.edus[0]);
        let ended = self.succeed(host, &[&device], "edu", arguments)?;
        ended.expect_stdout("SUCCESS")?;
        Ok(ended)
    }

    /// Fails unless the tender refuses to start `guest`, in one line that says all of this.
    fn refuse(&self, device: &str, guest: &str, says: &[&str]) -> Result<(), Failed> {
        let ended = run(&mut self.tender("spt", &[device], guest, &["identify"]))?;
        ended.expect_refusal(says)
    }
}

fn device(address: &str, file: &str) -> PathBuf {
    Path::new(DEVICES).join(address).join(file)
}

/// Addresses of the devices with these ids, in order.
pub fn with_ids([vendor, id]: [&str; 2]) -> Result<Vec<String>, Failed> {
    let is = |address: &str, file: &str, wanted: &str| {
        fs::read_to_string(device(address, file)).is_ok_and(|text| text.trim() == wanted)
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(DEVICES)? {
        let address = entry?.file_name().to_string_lossy().into_owned();
        if is(&address, "vendor", vendor) && is(&address, "device", id) {
            found.push(address);
        }
    }
    found.sort();
    Ok(found)
}

fn driver(address: &str) -> Option<String> {
    let target = fs::read_link(device(address, "driver")).ok()?;
    Some(target.file_name()?.to_string_lossy().into_owned())
}

/// Gives a device to a driver, or by an empty name to whichever wants it.
pub fn bind(address: &str, wanted: &str) -> Result<(), Failed> {
    if driver(address).as_deref() == Some(wanted) {
        return Ok(());
    }
    fs::write(device(address, "driver_override"), format!("{wanted}\n"))?;
    unbind(address)?;
    fs::write("/sys/bus/pci/drivers_probe", address)?;
    Ok(())
}

fn unbind(address: &str) -> Result<(), Failed> {
    if driver(address).is_some() {
        fs::write(device(address, "driver/unbind"), address)?;
    }
    Ok(())
}

fn other_bar(lab: &Lab<'_>, host: &str) -> Result<(), Failed> {
    let device = format!("--pci:edu={}", lab.edus[0]);
    let ended = run(&mut lab.tender(host, &[&device], "edu", &["other-bar"]))?;
    ended.expect_status(SIGSEGV).map(drop)
}

/// A page of this process, and its physical address (Linux `admin-guide/mm/pagemap.rst`).
fn victim() -> Result<(Box<[u8]>, usize, u64), Failed> {
    let bytes = vec![0x55; 2 * PAGE].into_boxed_slice();
    let address = bytes.as_ptr().addr();
    let start = address.next_multiple_of(PAGE) - address;
    let mut entry = [0; 8];
    let page = (address + start) / PAGE;
    File::open("/proc/self/pagemap")?.read_exact_at(&mut entry, page as u64 * 8)?;
    let entry = u64::from_le_bytes(entry);
    let frame = entry & ((1 << 55) - 1);
    if entry >> 63 == 0 || frame == 0 {
        return Err("the kernel does not say where the page is".into());
    }
    Ok((bytes, start, frame * PAGE as u64))
}

/// The device is told to write into a page of another process, by its physical address, and then
/// right behind the DMA memory. The kernel's log names each attempt, and nothing has changed.
fn a_device_writes_nothing_outside(lab: &Lab<'_>, host: &str) -> Result<(), Failed> {
    let (bytes, start, physical) = victim()?;
    let behind = io_address()? + (4 << 20);
    for address in [physical, behind] {
        stopped(lab, host, address)?;
    }
    let kept = bytes[start..start + PAGE].iter().all(|byte| *byte == 0x55);
    kept.then_some(()).ok_or("the page was written".into())
}

/// Has the device write to this address until the kernel's log says that the IOMMU stopped it.
fn stopped(lab: &Lab<'_>, host: &str, address: u64) -> Result<(), Failed> {
    let before = faults(&lab.edus[0], address)?;
    for _ in 0..ATTEMPTS_MAX {
        lab.edu(host, &["escape", &format!("{address:#x}")])?;
        if faults(&lab.edus[0], address)? > before {
            return Ok(());
        }
        thread::sleep(LOG_INTERVAL);
    }
    Err(format!("no fault at {address:#x} in the kernel's log").into())
}

/// How often the IOMMU has stopped this device at this address.
fn faults(device: &str, address: u64) -> Result<usize, Failed> {
    let log = run(&mut Command::new("dmesg"))?.stdout;
    let slot = device.strip_prefix("0000:").unwrap_or(device);
    let words = ["DMAR", &format!("[{slot}]"), &format!("{address:#x}")];
    let faults = log
        .lines()
        .filter(|line| words.iter().all(|w| line.contains(w)));
    Ok(faults.count())
}

fn another_device(lab: &Lab<'_>) -> Result<(), Failed> {
    let card = lab.cards.first().ok_or("no card")?;
    let option = format!("--pci:edu={card}");
    let says = [
        &*option,
        "the manifest asks for 1234:11e8 of class 00ff00, and this is 8086:10d3 of class 020000",
    ];
    lab.refuse(&option, "edu", &says)?;
    let absent = "--pci:edu=0000:7f:1f.0";
    lab.refuse(absent, "edu", &["no such PCI device", "outboard pci list"])?;
    let missing = run(&mut lab.tender("spt", &[], "edu", &[]))?;
    missing.expect_refusal(&["--pci:edu=ADDRESS"])
}

fn not_taken(lab: &Lab<'_>) -> Result<(), Failed> {
    let address = &lab.edus[0];
    unbind(address)?;
    let remedy = format!("sudo $(command -v outboard) pci bind {address}");
    let option = format!("--pci:edu={address}");
    lab.refuse(&option, "edu", &["its driver is none", &remedy])
}

fn no_reset(lab: &Lab<'_>) -> Result<(), Failed> {
    let option = format!("--pci:edu={}", lab.fixed);
    lab.refuse(&option, "edu", &["cannot be reset"])
}

fn in_use(lab: &Lab<'_>) -> Result<(), Failed> {
    let option = format!("--pci:edu={}", lab.edus[0]);
    let mut first = start(&mut lab.tender("spt", &[&option], "edu", &["sleep"]))?;
    let result = until(|| is_master(&lab.edus[0]).unwrap_or(false))
        .and_then(|()| lab.refuse(&option, "edu", &["in use by another process"]));
    let alive = first.is_alive();
    drop(first);
    result?;
    alive
        .then_some(())
        .ok_or("the first guest has ended".into())
}

/// Waits, for as long as a slow machine may take.
pub fn until(mut done: impl FnMut() -> bool) -> Result<(), Failed> {
    for _ in 0..1000 {
        if done() {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Err("it did not happen".into())
}

fn is_master(address: &str) -> Result<bool, Failed> {
    let mut byte = [0];
    File::open(device(address, "config"))?.read_exact_at(&mut byte, COMMAND)?;
    Ok(byte[0] & BUS_MASTER != 0)
}

fn no_bar(lab: &Lab<'_>) -> Result<(), Failed> {
    let option = format!("--pci:edu={}", lab.edus[0]);
    lab.refuse(&option, "edu_lacks_bar", &["BAR 1 does not exist"])
}

fn by_the_iommu(lab: &Lab<'_>) -> Result<(), Failed> {
    let option = format!("--pci:entropy={}", lab.virtio[2]);
    let says = [&*option, "VIRTIO_F_ACCESS_PLATFORM", "iommu_platform=on"];
    lab.refuse(&option, "virtio_entropy", &says)
}

/// Two functions of one card, of which one is still the host's.
fn neighbour(lab: &Lab<'_>) -> Result<(), Failed> {
    let group = |address: &str| fs::read_link(device(address, "iommu_group")).ok();
    let pair = lab.cards.iter().zip(lab.cards.iter().skip(1));
    let (one, other) = pair
        .into_iter()
        .find(|(one, other)| group(one) == group(other))
        .ok_or("no cards in one group")?;
    bind(one, "vfio-pci")?;
    let option = format!("--pci:nic={one}");
    let remedy = format!("{other} (e1000e); type: sudo $(command -v outboard) pci bind {other}");
    let result = lab.refuse(&option, "nic_registers", &["shares group", &remedy]);
    bind(one, "")?;
    result
}

/// A register of a network card (82574L, 10.2.6.5: RDBAL0) is as after a reset in the next run, and
/// a guest that ends is bus master no more, however it ends.
fn reset(lab: &Lab<'_>) -> Result<(), Failed> {
    let group = |address: &String| fs::read_dir(device(address, "iommu_group/devices"));
    let alone = |address: &&String| group(address).is_ok_and(|devices| devices.count() == 1);
    let methods = |address: &str| fs::read_to_string(device(address, "reset_method"));
    let by_bus = |address: &&String| methods(address).is_ok_and(|text| text.contains("bus"));
    let mut cards = lab.cards.iter().filter(alone);
    let card = cards.find(by_bus).ok_or("no card alone on a bus")?;
    bind(card, "vfio-pci")?;
    // By the bus: a change of the power state, which the kernel would choose, QEMU ignores.
    fs::write(device(card, "reset_method"), "bus")?;
    let option = format!("--pci:nic={card}");
    let runs = || -> Result<(), Failed> {
        let guest = |words: &[&str]| lab.succeed("spt", &[&option], "nic_registers", words);
        guest(&["2800=12340000", "2800"])?.expect_stdout("2800: 12340000")?;
        guest(&["2800"])?.expect_stdout("2800: 0\n").map(drop)
    };
    let result = runs();
    bind(card, "")?;
    result?;
    let option = format!("--pci:edu={}", lab.edus[0]);
    let guest = start(&mut lab.tender("spt", &[&option], "edu", &["sleep"]))?;
    until(|| is_master(&lab.edus[0]).unwrap_or(false))?;
    guest.signal(rustix::process::Signal::KILL);
    guest.finish()?;
    match is_master(&lab.edus[0])? {
        false => Ok(()),
        true => Err("it is still bus master".into()),
    }
}

/// One who was given the group's file, with as much locked memory as everybody has, and with less.
fn ordinary_user(lab: &Lab<'_>) -> Result<(), Failed> {
    let address = &lab.edus[0];
    let group = fs::read_link(device(address, "iommu_group"))?;
    let group = group.file_name().ok_or("no group")?;
    let file = Path::new("/dev/vfio").join(group);
    let option = format!("--pci:edu={address}");
    let as_user = |limit: &str| {
        let tender = lab.tender("spt", &[&option], "edu", &["dma"]);
        let mut command = Command::new("sh");
        let script = format!("ulimit -l {limit}; exec \"$0\" \"$@\"");
        command.args(["-c", &script]).arg(tender.get_program());
        command.args(tender.get_args()).uid(NOBODY).gid(NOBODY);
        run(&mut command)
    };
    as_user("8192")?.expect_refusal(&["permission denied", "chown $USER /dev/vfio/"])?;
    std::os::unix::fs::chown(&file, Some(NOBODY), None)?;
    let runs = || -> Result<(), Failed> {
        as_user("8192")?.expect_stdout("SUCCESS")?;
        let says = ["4096 KiB", "1024 KiB may be", "--memlock=4194304"];
        as_user("1024")?.expect_refusal(&says)
    };
    let result = runs();
    std::os::unix::fs::chown(&file, Some(0), None)?;
    result
}

fn monitor(lab: &Lab<'_>) -> Result<(), Failed> {
    for host in ["spt", "hvt"] {
        let mut command = Command::new(lab.images.program("outboard"));
        command
            .args(["run", &format!("--host={host}"), "--mem=16"])
            .arg(format!("--pci:edu={}", lab.edus[0]))
            .arg(lab.images.guest("edu"))
            .arg("identify");
        let ended = run(&mut command)?;
        ended.expect_status(0)?.expect_stdout("SUCCESS")?;
    }
    Ok(())
}

/// Whether the machine's addresses have too few bits for those of the ABI.
fn is_narrow() -> Result<bool, Failed> {
    match &*std::env::var(ADDRESS_BITS)? {
        "48" => Ok(false),
        "39" => Ok(true),
        bits => Err(format!("{ADDRESS_BITS}={bits}").into()),
    }
}

/// Where DMA memory begins for devices.
fn io_address() -> Result<u64, Failed> {
    Ok(if is_narrow()? { 2 << 20 } else { DMA_BASE })
}

/// Guests see devices and DMA memory at the same addresses on every machine. Where that many bits
/// are not to be had, lower ones are behind them.
fn addresses(lab: &Lab<'_>) -> Result<(), Failed> {
    let (bar, iova) = (bar_address(0, 0), io_address()?);
    let [registers, memory] = match is_narrow()? {
        true => [0x2_0000_0000, 0x2_0020_0000],
        false => [bar, DMA_BASE],
    };
    let option = format!("--pci:edu={}", lab.edus[0]);
    for host in HOSTS {
        let ended = lab.succeed(host, &[&option, "--verbose"], "edu", &["dma"])?;
        ended.expect_stderr(&format!("4 MiB of DMA memory at I/O address {iova:#x},"))?;
        if host == "hvt" {
            let physical = |what, address, physical: u64| {
                format!("{what} at {address:#x}, guest-physical {physical:#x}\n")
            };
            ended.expect_stderr(&physical("registers", bar, registers))?;
            ended.expect_stderr(&physical("memory", DMA_BASE, memory))?;
        }
    }
    Ok(())
}

/// A device that is a process, and memory of large pages of which there is not one too many.
fn taken(lab: &Lab<'_>) -> Result<(), Failed> {
    reserve(1)?;
    let mut hosts = HOSTS.into_iter();
    let result = hosts.try_for_each(|host| software_device::takes_memory_away(lab.images, host));
    reserve(0)?;
    result
}

/// A manifest with all that one can name: BAR 0 and BAR 2 of a device, BAR 0 of another, a network
/// and DMA memory.
fn two_bars(lab: &Lab<'_>, host: &str) -> Result<(), Failed> {
    let devices = [
        format!("--pci:first={}", lab.memory),
        format!("--pci:second={}", lab.edus[0]),
    ];
    let [first, second] = devices.each_ref().map(String::as_str);
    let options = [
        first,
        second,
        "--create-taps",
        "--net:lan=obbars0",
        "--verbose",
    ];
    let ended = lab.succeed(host, &options, "bars", &[])?;
    let bars = format!(
        "first: {}, BAR 0 of 256 bytes, BAR 2 of 1048576 bytes",
        lab.memory
    );
    ended
        .expect_stdout("SUCCESS")?
        .expect_stderr(&bars)?
        .expect_stderr("16 MiB of DMA memory")?;
    if host == "hvt" {
        let bar = bar_address(0, 2);
        ended.expect_stderr(&format!("first: registers at {bar:#x}"))?;
    }
    Ok(())
}

/// Reserves large pages.
fn reserve(pages: u32) -> io::Result<()> {
    fs::write("/proc/sys/vm/nr_hugepages", format!("{pages}\n"))
}

fn large_pages(lab: &Lab<'_>) -> Result<(), Failed> {
    let option = format!("--pci:edu={}", lab.edus[0]);
    let runs = |pages, says: &str| -> Result<(), Failed> {
        reserve(pages)?;
        let address = format!("edu: {}, BAR 0 of 1048576 bytes, interrupts", lab.edus[0]);
        for host in HOSTS {
            let ended = lab.succeed(host, &[&option, "--verbose"], "edu", &["dma"])?;
            ended.expect_stderr(&address)?.expect_stderr(says)?;
        }
        Ok(())
    };
    let result = runs(2, ", of pages of 2 MiB\n").and_then(|()| {
        runs(
            0,
            "of ordinary pages; for larger ones: sudo sysctl vm.nr_hugepages=2",
        )
    });
    reserve(0)?;
    result
}
