//! The machine: its initial RAM disk, its QEMU, and how it ends.

use super::kernel::Kernel;
use super::qemu::FIRMWARE;
use super::Options;
use crate::process;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Debian's.
pub const STOCK_QEMU: &str = "qemu-system-x86_64";
/// How often QEMU is looked after.
const POLL: Duration = Duration::from_millis(20);
/// Lines of the kernel that are shown when the machine ends without a status.
const CONSOLE_LINES: usize = 20;

/// A network card.
#[derive(Debug, PartialEq, Eq)]
pub struct Nic {
    model: String,
    /// `hub`, `hub1` and so on, and behind a comma the card's own options; or what QEMU's `-netdev`
    /// takes.
    wire: String,
}

impl Nic {
    /// Reads `MODEL[,WIRE]`.
    pub fn parse(text: &str) -> Self {
        let (model, wire) = text.split_once(',').unwrap_or((text, "user"));
        Self {
            model: model.into(),
            wire: wire.into(),
        }
    }

    /// QEMU's options for the card with this number.
    fn options(&self, number: usize) -> Vec<String> {
        let (hub, card) = match self.wire.split_once(',') {
            Some((hub, card)) => (hub, format!(",{}", card)),
            None => (self.wire.as_str(), String::new()),
        };
        let hub = hub.strip_prefix("hub").map(|hub| match hub {
            "" => Ok(0),
            hub => hub.parse::<u32>(),
        });
        let netdev = match (&hub, self.wire.as_str()) {
            (Some(Ok(hub)), _) => format!("hubport,hubid={},id=n{}", hub, number),
            (_, wire) => match wire.split_once(',') {
                Some((kind, rest)) => format!("{},id=n{},{}", kind, number, rest),
                None => format!("{},id=n{}", wire, number),
            },
        };
        let mut device = format!("{},netdev=n{}", self.model, number);
        if let Some(Ok(_)) = hub {
            device.push_str(&card);
        }
        vec!["-netdev".into(), netdev, "-device".into(), device]
    }
}

/// Boots the machine and returns the status of its command.
///
/// # Errors
/// One line that says why there is no status.
pub fn run(
    root: &Path,
    cache: &Path,
    program: &Path,
    kernel: &Kernel,
    options: &Options,
) -> Result<i32, String> {
    let folder = Folder::new(cache)?;
    let ram_disk = pack(root, &folder.path, kernel, options)?;
    let console = folder.path.join("console.log");
    let mut command = qemu(program, &kernel.image, &ram_disk, &console, options);
    for (number, mib) in options.disks_mib.iter().enumerate() {
        let name = match number {
            0 => "disk".to_string(),
            number => format!("disk{}", number),
        };
        command.arg("-drive").arg(disk(&folder.path, &name, *mib)?);
    }
    if options.command.is_some() {
        command.stdin(Stdio::null());
    }
    let child = command
        .spawn()
        .map_err(|error| format!("cannot run {}: {}", program.display(), error))?;
    // Somebody who types may take their time.
    let limit = options
        .command
        .as_ref()
        .map(|_| Duration::from_secs(options.timeout_seconds));
    let code = attend(child, limit)?;
    match status(code) {
        Some(status) => Ok(status),
        None => Err(format!(
            "the lab ended without a status ({}); its last words:\n{}",
            code.map_or("killed".into(), |code| format!("QEMU's own is {}", code)),
            last_words(&console)
        )),
    }
}

/// A folder for the files of one machine, as several may run at once. It goes with this.
struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Makes it, and removes those whose machines were killed.
    fn new(cache: &Path) -> Result<Self, String> {
        const PREFIX: &str = "machine-";
        let failed = |error: io::Error| format!("{}: {}", cache.display(), error);
        for entry in fs::read_dir(cache).map_err(failed)?.flatten() {
            let name = entry.file_name();
            let id = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
            let is_over = |id: &str| !Path::new("/proc").join(id).exists();
            if id.map_or(false, is_over) {
                // Another machine may be doing the same.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let path = cache.join(format!("{}{}", PREFIX, std::process::id()));
        fs::create_dir_all(&path).map_err(failed)?;
        Ok(Self { path })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What stays, the next machine removes.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// An empty disk of this size: what QEMU's `-drive` takes.
fn disk(folder: &Path, name: &str, mib: u32) -> Result<String, String> {
    let path = folder.join(name);
    let failed = |error: io::Error| format!("{}: {}", path.display(), error);
    let file = fs::File::create(&path).map_err(failed)?;
    file.set_len(u64::from(mib) << 20).map_err(failed)?;
    Ok(format!(
        "if=none,id={},format=raw,file={}",
        name,
        path.display()
    ))
}

/// What `lab/init` and `isa-debug-exit` make of a status: 2 (n + 1) + 1. QEMU's own are 0 and 1.
fn status(code: Option<i32>) -> Option<i32> {
    code.filter(|code| code % 2 == 1 && *code > 1)
        .map(|code| code / 2 - 1)
}

/// What is said of a machine that has not ended in time.
pub const HUNG: &str = "the lab was killed after";

fn attend(mut child: Child, limit: Option<Duration>) -> Result<Option<i32>, String> {
    let begin = Instant::now();
    let failed = |error: io::Error| format!("cannot wait for QEMU: {}", error);
    loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok(status.code());
        }
        if limit.map_or(false, |limit| begin.elapsed() > limit) {
            child.kill().map_err(failed)?;
            child.wait().map_err(failed)?;
            return Err(format!(
                "{} {} s; type: cargo xtask lab --timeout=SECONDS ...",
                HUNG,
                begin.elapsed().as_secs()
            ));
        }
        thread::sleep(POLL);
    }
}

fn last_words(console: &Path) -> String {
    let text = fs::read(console).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(CONSOLE_LINES)..].join("\n")
}

fn qemu(
    program: &Path,
    kernel: &Path,
    ram_disk: &Path,
    console: &Path,
    options: &Options,
) -> Command {
    let mut command = Command::new(program);
    command
        .args(FIRMWARE)
        .args(["-M", "q35,kernel-irqchip=split"])
        .args(accelerator(options.icount))
        // An AMD processor, for SVM is what QEMU can nest without acceleration; `check=off` spares
        // the list of what it cannot.
        .arg("-cpu")
        .arg(format!(
            "EPYC,+svm,check=off,phys-bits={}",
            options.address_bits
        ))
        .args(["-m", &options.memory_mib.to_string()])
        .args(["-smp", &options.processors.to_string()])
        .args(["-display", "none", "-no-reboot", "-nodefaults"])
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(ram_disk)
        // On a busy host the timer may come too late for the check that looks for it.
        .args([
            "-append",
            "console=ttyS0 quiet intel_iommu=on iommu=pt panic=-1 no_timer_check",
        ])
        .arg("-device")
        .arg(format!(
            "intel-iommu,intremap=on,device-iotlb=on,aw-bits={}",
            options.address_bits
        ))
        .args(["-device", "isa-debug-exit,iobase=0xf4,iosize=1"])
        .arg("-serial")
        .arg(format!("file:{}", console.display()))
        // What is written to port 0xf6 is typed into QEMU's monitor.
        .args([
            "-chardev",
            &format!("{},server=on,wait=off", monitor("monitor")),
        ])
        .args(["-mon", "chardev=monitor,mode=readline"])
        .args(["-chardev", &monitor("typist")])
        .args(["-device", "isa-debugcon,iobase=0xf6,chardev=typist"])
        .args(["-chardev", "stdio,id=steps,signal=off"])
        .args(["-serial", "chardev:steps"]);
    for object in &options.objects {
        command.args(["-object", object]);
    }
    for device in &options.devices {
        command.args(["-device", device]);
    }
    // Behind the devices, which may be the ports that cards are plugged into.
    for (number, nic) in options.nics.iter().enumerate() {
        command.args(nic.options(number));
    }
    command
}

/// How instructions are executed; all of them may be counted, those of nested guests too.
fn accelerator(icount: bool) -> &'static [&'static str] {
    match icount {
        true => &[
            "-accel",
            "tcg,thread=single",
            "-icount",
            "shift=0,sleep=off",
        ],
        false => &["-accel", "tcg,thread=multi"],
    }
}

/// QEMU's end of a socket that its monitor has the other end of.
fn monitor(id: &str) -> String {
    let name = format!("outboard-lab-{}", std::process::id());
    format!("socket,id={},path={},abstract=on", id, name)
}

/// Makes the initial RAM disk: busybox, modules, and what the command needs.
fn pack(root: &Path, own: &Path, kernel: &Kernel, options: &Options) -> Result<PathBuf, String> {
    let folder = own.join("root");
    let failed = |error: io::Error| format!("{}: {}", folder.display(), error);
    for name in ["bin", "dev", "lab", "modules", "proc", "sys", "tmp", "root"] {
        fs::create_dir_all(folder.join(name)).map_err(failed)?;
    }
    copy(&busybox()?, &folder.join("bin/busybox"))?;
    let init = folder.join("init");
    copy(&root.join("lab/init"), &init)?;
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755)).map_err(failed)?;
    let list = root.join("lab/modules");
    let list =
        fs::read_to_string(&list).map_err(|error| format!("{}: {}", list.display(), error))?;
    let wanted: Vec<&str> = list
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .chain(options.modules.iter().map(String::as_str))
        .collect();
    let mut order = String::new();
    for module in kernel.order(&wanted)? {
        if let Some(name) = module.file_stem().and_then(|name| name.to_str()) {
            copy(
                module,
                &folder.join("modules").join(name).with_extension("ko"),
            )?;
            order.push_str(name);
            order.push('\n');
        }
    }
    fs::write(folder.join("modules/order"), order).map_err(failed)?;
    for file in &options.files {
        let name = file
            .file_name()
            .ok_or_else(|| format!("--file={}: not a file", file.display()))?;
        copy(file, &folder.join("lab").join(name))?;
    }
    match &options.command {
        Some(command) => fs::write(folder.join("lab/steps"), command),
        None => fs::write(folder.join("lab/interactive"), ""),
    }
    .map_err(failed)?;
    archive(&folder, &own.join("initrd.gz"))
}

/// A static busybox: that of the package, which is no link to another program.
///
/// # Errors
/// One line that says what to install.
pub fn busybox() -> Result<PathBuf, String> {
    ["/bin/busybox", "/usr/bin/busybox"]
        .iter()
        .map(PathBuf::from)
        .find(|path| path.is_file())
        .ok_or_else(|| "busybox is missing; type: sudo apt-get install busybox-static".into())
}

/// Copies a file.
///
/// # Errors
/// One line that names it.
pub fn copy(from: &Path, to: &Path) -> Result<(), String> {
    fs::copy(from, to)
        .map(|_| ())
        .map_err(|error| format!("{}: {}", from.display(), error))
}

/// Packs a folder as a RAM disk.
///
/// # Errors
/// One line, if that failed.
pub fn archive(folder: &Path, to: &Path) -> Result<PathBuf, String> {
    let mut command = Command::new("sh");
    command
        .args(["-c", "find . | cpio --quiet -o -H newc | gzip -1 > \"$0\""])
        .arg(to)
        .current_dir(folder);
    match process::run(&mut command)? {
        0 => Ok(to.to_path_buf()),
        _ => Err("cpio could not pack the lab's files, as it says above".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_told_from_qemus_own() {
        assert_eq!(status(Some(3)), Some(0));
        assert_eq!(status(Some(17)), Some(7));
        assert_eq!(status(Some(255)), Some(126));
        assert_eq!(status(Some(0)), None, "switched off");
        assert_eq!(status(Some(1)), None, "an option that QEMU does not know");
        assert_eq!(status(None), None, "killed");
    }

    #[test]
    fn cards_are_wired() {
        let options = |text: &str| Nic::parse(text).options(3);
        assert_eq!(
            options("e1000e"),
            ["-netdev", "user,id=n3", "-device", "e1000e,netdev=n3"]
        );
        assert_eq!(options("e1000,hub")[1], "hubport,hubid=0,id=n3");
        assert_eq!(
            options("e1000,tap,ifname=t0,script=no")[1],
            "tap,id=n3,ifname=t0,script=no"
        );
    }
}
