//! A monitor in the lab, and the guest in it, which obeys what is typed on its console.

use super::counters::INTERFACES;
use super::wire::BACK_END;
use super::{GUEST, PREFIX};
use crate::matrix::axes::{self, Bus, Device, Interface, Irqchip, Monitor, Run, Vectors, Vhost};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// What the monitor's tap is called.
pub const TAP: &str = "tap0";
/// The disk's file.
pub const DISK: &str = "/tmp/disk";
/// How often a file is looked for.
const LOOK: Duration = Duration::from_millis(100);
/// What the guest says when it has brought everything up: `lab/matrix/init`.
const READY: &str = "ready";
/// What it says behind what a command printed, with the command's status.
const DONE: &str = "done ";
/// Longest start of a guest, by the lab's clock.
const START_MAX: Duration = Duration::from_secs(180);
/// Longest silence of a command, by the lab's clock.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Lines that a command prints at most.
const LINES_MAX: usize = 1000;
/// QEMU's machine, the same for both buses: ACPI names its devices, and it has one I/O APIC, as
/// outboard-vmm's machine has.
const MACHINE: &str = "microvm,x-option-roms=off,rtc=off,acpi=on,ioapic2=off";
/// Memory of the guest, in MiB.
const MEMORY: &str = "192";

/// A guest that runs; it ends with this.
#[derive(Debug)]
pub struct Guest {
    monitor: Child,
    console: ChildStdin,
    said: Receiver<String>,
    /// Whether it has a shell: images of ours have none.
    obeys: bool,
}

impl Guest {
    /// Boots the guest of a run, up to its reflector and its servers.
    ///
    /// # Errors
    /// The monitor cannot be started, or the guest does not come up; what was said last.
    pub fn boot(run: &Run) -> io::Result<Self> {
        let mut monitor = command(run)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()?;
        let missing = || io::Error::other("the monitor has no console");
        let console = monitor.stdin.take().ok_or_else(missing)?;
        let output = monitor.stdout.take().ok_or_else(missing)?;
        let (sender, said) = channel();
        thread::spawn(move || {
            // A console may hold any bytes.
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let guest = Self {
            monitor,
            console,
            said,
            obeys: run.guest == axes::Guest::Linux,
        };
        match guest.obeys {
            true => guest.until(READY, START_MAX).map(drop)?,
            false => guest.wired()?,
        }
        Ok(guest)
    }

    /// Waits for the tap of an image, which comes up meanwhile; the load is warmed up anyway.
    fn wired(&self) -> io::Result<()> {
        match appears(&Path::new(INTERFACES).join(TAP), START_MAX) {
            true => Ok(()),
            false => Err(failed("it has no tap", &[])),
        }
    }

    /// Has the guest's shell do something; the lines that it prints, which are none without a
    /// shell.
    ///
    /// # Errors
    /// It fails, or the guest is silent; what was said last.
    pub fn ask(&mut self, command: &str) -> io::Result<Vec<String>> {
        if !self.obeys {
            return Ok(Vec::new());
        }
        self.console.write_all(command.as_bytes())?;
        self.console.write_all(b"\n")?;
        self.console.flush()?;
        let mut lines = self.until(DONE, SILENCE_MAX)?;
        match lines.pop().as_deref() {
            Some("done 0") => Ok(lines),
            _ => Err(failed(command, &lines)),
        }
    }

    /// Lines up to one that begins like this.
    fn until(&self, beginning: &str, silence: Duration) -> io::Result<Vec<String>> {
        let mut lines = Vec::new();
        while lines.len() < LINES_MAX {
            match self.said.recv_timeout(silence) {
                Ok(line) => {
                    let found = line.starts_with(beginning);
                    lines.push(line);
                    if found {
                        return Ok(lines);
                    }
                }
                Err(RecvTimeoutError::Timeout) => return Err(failed("it is silent", &lines)),
                Err(RecvTimeoutError::Disconnected) => return Err(failed("it has ended", &lines)),
            }
        }
        Err(failed("it says too much", &lines))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.monitor.kill();
        let _ = self.monitor.wait();
    }
}

/// Waits so long for a file that a program makes when it starts: whether it came.
pub fn appears(path: &Path, most: Duration) -> bool {
    let begin = Instant::now();
    while !path.exists() {
        if begin.elapsed() > most {
            return false;
        }
        thread::sleep(LOOK);
    }
    true
}

fn failed(what: &str, lines: &[String]) -> io::Error {
    const LAST: usize = 4;
    let last = &lines[lines.len().saturating_sub(LAST)..];
    io::Error::other(format!("the guest: {what}: {}", last.join(" / ")))
}

/// The monitor of a run. It finds a macvtap open.
fn command(run: &Run) -> Command {
    let program = program(run.monitor);
    let mut command = match run.interface {
        Interface::Macvtap => {
            let open = format!("exec 3<>/dev/tap$(cat {INTERFACES}/{TAP}/ifindex); exec \"$@\"");
            let mut shell = Command::new("sh");
            shell.args(["-c", &open, "sh", program]);
            shell
        }
        _ => Command::new(program),
    };
    command.args(arguments(run));
    command
}

fn program(monitor: Monitor) -> &'static str {
    match monitor {
        Monitor::Vmm => "/lab/outboard-vmm",
        Monitor::Qemu => "/lab/qemu",
    }
}

/// What a monitor is told for a run.
pub fn arguments(run: &Run) -> Vec<String> {
    match run.monitor {
        Monitor::Vmm => ours(run),
        Monitor::Qemu => qemu(run),
    }
}

fn ours(run: &Run) -> Vec<String> {
    // The image's own manifest names its card.
    let (name, guest) = match run.guest {
        axes::Guest::Linux => ("card", linux()),
        axes::Guest::Ours => ("service", vec!["--image=/lab/echo-virtio.spt".into()]),
    };
    let device = match run.device {
        Device::Blk => format!("--virtio-blk:disk={DISK}"),
        _ => format!("--{}:{name}={TAP}", run.device),
    };
    let word = |is: bool, word: &'static str| if is { word } else { "" };
    let device = format!(
        "{device},bus={},ioregionfd={}{}{}",
        run.bus,
        run.ioregionfd,
        word(run.posted, ",posted"),
        word(run.busy, ",busy"),
    );
    let mut words = guest;
    words.extend([format!("--mem={MEMORY}"), device]);
    if run.guest == axes::Guest::Ours {
        words.extend(["--".into(), format!("--ipv4={GUEST}/{PREFIX}")]);
    }
    words
}

fn linux() -> Vec<String> {
    let words = [
        "--kernel=/lab/vmlinuz",
        "--initrd=/lab/guest.gz",
        "--append=quiet",
    ];
    words.map(Into::into).into()
}

fn qemu(run: &Run) -> Vec<String> {
    let irqchip = match run.irqchip {
        Irqchip::Kernel => "on",
        Irqchip::Split => "split",
    };
    let pcie = switch(run.bus == Bus::Pci);
    let mut machine = format!("{MACHINE},pcie={pcie},kernel-irqchip={irqchip}");
    let mut lent = Vec::new();
    if run.vhost == Vhost::User {
        machine.push_str(",memory-backend=m");
        let memory = format!("memory-backend-memfd,id=m,size={MEMORY}M,share=on,seal=on");
        let socket = format!("socket,id=c,path={BACK_END}");
        lent.extend(["-object".into(), memory, "-chardev".into(), socket]);
    }
    let options = [
        ("-M", machine.as_str()),
        ("-accel", "kvm"),
        ("-cpu", "host"),
        ("-m", MEMORY),
        ("-display", "none"),
        ("-serial", "stdio"),
        ("-L", "/lab"),
        ("-kernel", "/lab/vmlinuz"),
        ("-initrd", "/lab/guest.gz"),
        ("-append", "console=ttyS0 quiet reboot=t panic=-1"),
        ("-global", "virtio-mmio.force-legacy=false"),
    ];
    let alone = ["-nodefaults", "-no-user-config", "-no-reboot"];
    let options = options.iter().flat_map(|(name, value)| [*name, *value]);
    let mut words: Vec<String> = alone.into_iter().chain(options).map(Into::into).collect();
    words.extend(lent);
    words.extend(device_of_qemu(run));
    words
}

/// QEMU's device of a run, and what is behind it.
fn device_of_qemu(run: &Run) -> [String; 4] {
    let (bus, details) = match run.bus {
        Bus::Mmio => ("device", String::new()),
        Bus::Pci => ("pci", details_of_pci(run)),
    };
    let event_idx = switch(run.event_idx);
    let vhost = switch(run.vhost == Vhost::Kernel);
    let behind = match (run.device, run.vhost, run.interface) {
        (Device::Blk, _, _) => format!("if=none,id=disk,format=raw,file={DISK}"),
        (_, Vhost::User, _) => "vhost-user,id=card,chardev=c".into(),
        (_, _, Interface::Macvtap) => format!("tap,id=card,fd=3,vhost={vhost}"),
        _ => format!("tap,id=card,ifname={TAP},script=no,downscript=no,vhost={vhost}"),
    };
    let (kind, device) = match run.device {
        Device::Blk => (
            "-drive",
            format!("virtio-blk-{bus},drive=disk{details},event_idx={event_idx}"),
        ),
        Device::Net => (
            "-netdev",
            format!("virtio-net-{bus},netdev=card{details},event_idx={event_idx}"),
        ),
        other => ("-netdev", format!("{other},netdev=card,romfile=")),
    };
    [kind.into(), behind, "-device".into(), device]
}

fn details_of_pci(run: &Run) -> String {
    // One for changes of the configuration, and one for each queue or for all of them.
    let vectors = match run.vectors {
        Vectors::Each => 4,
        Vectors::Shared => 2,
        Vectors::Line => 0,
    };
    let rings = match run.queue_size {
        0 => String::new(),
        size => format!(",rx_queue_size={size}"),
    };
    let rom = match run.device {
        // Nobody boots from it, and its firmware is not there.
        Device::Net => ",romfile=",
        _ => "",
    };
    format!(",disable-legacy=on,vectors={vectors}{rings}{rom}")
}

fn switch(is: bool) -> &'static str {
    if is { "on" } else { "off" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::axes::Ioregionfd;

    #[test]
    fn monitors_are_told_what_a_run_is() {
        let run = Run {
            ioregionfd: Ioregionfd::Process,
            posted: true,
            ..Run::default()
        };
        let words = arguments(&run);
        let device = "--virtio-net:card=tap0,bus=mmio,ioregionfd=process,posted";
        assert_eq!(words.last().map(String::as_str), Some(device));
        let run = Run {
            guest: axes::Guest::Ours,
            ..Run::default()
        };
        let words = arguments(&run).join(" ");
        assert!(words.starts_with("--image=/lab/echo-virtio.spt "));
        assert!(words.ends_with("off -- --ipv4=10.8.0.2/24"), "{words}");

        let run = Run {
            monitor: Monitor::Qemu,
            bus: Bus::Pci,
            vectors: Vectors::Line,
            queue_size: 512,
            event_idx: false,
            ..Run::default()
        };
        let words = arguments(&run).join(" ");
        for part in [
            "pcie=on,kernel-irqchip=on",
            "virtio-net-pci,netdev=card,disable-legacy=on,vectors=0",
            "rx_queue_size=512,romfile=,event_idx=off",
        ] {
            assert!(words.contains(part), "{words}");
        }
        let run = Run {
            bus: Bus::Mmio,
            vectors: Vectors::Each,
            device: Device::Blk,
            queue_size: 0,
            ..run
        };
        let words = arguments(&run).join(" ");
        for part in [
            "virtio-mmio.force-legacy=false",
            "virtio-blk-device,drive=disk",
        ] {
            assert!(words.contains(part), "{words}");
        }
    }
}
