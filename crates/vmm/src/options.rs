//! The command line.

use crate::layout::{DEVICES_MAX, MEMORY_MIB_MAX, MEMORY_MIB_MIN};
use models::disk;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

/// What `--help` prints.
pub const HELP: &str = "\
usage: outboard-vmm --kernel=FILE [--initrd=FILE] [--mem=MIB] [--append=WORDS] [DEVICE...]
       outboard-vmm --image=IMAGE [--mem=MIB] [DEVICE...] [-- ARGUMENTS]

Runs a stock Linux, or one of our images, as a guest of KVM's, for measuring and for testing: not
for anything that has to be kept apart from others for good. Linux's serial console is standard
input and output.

  --kernel=FILE    a bzImage, as /boot/vmlinuz of a distribution
  --initrd=FILE    its initial RAM disk
  --append=WORDS   more words for its command line
  --image=IMAGE    an image that runs on hvt; the devices are those of its manifest, by their names
  --mem=MIB        the guest's memory (default 256)
  --statistics     print at the end what was counted: exits, and accesses of registers

Devices; NAME is for messages:
  --virtio-net:NAME=TAP             a network card, connected to this tap, which is made if need be
  --virtio-blk:NAME=FILE[,ro]       a disk over a file or a block device
  --virtio-rng:NAME                 a source of entropy
  --e1000:NAME=TAP                  Intel's 82540EM, on the PCI bus
  --rtl8139:NAME=TAP                Realtek's RTL8139C+, on the PCI bus

Behind one of virtio's, how the guest finds it:
  ,bus=mmio             a window of memory-mapped I/O, which ACPI names (default)
  ,bus=pci              on the PCI bus

Behind each of them, how its registers are reached:
  ,ioregionfd=off       the guest is left, and the access done here (default)
  ,ioregionfd=on        KVM sends the access to a thread of the device's
  ,ioregionfd=process   the same, and the device is a process of its own
  ,ioregionfd=forward   the same process, but the guest is left, and the access passed on from here
  ,posted               with on and process: the guest does not wait for what it writes; not for
                        rtl8139, whose interrupts are acknowledged so
  ,busy                 the device never sleeps, and takes a whole core

It ends with the status 0 when Linux resets itself: type `reboot -f` there. With an image, it ends
with the status of that.
";

const MEMORY_MIB_DEFAULT: u64 = 256;
/// Longest name of a device.
const NAME_BYTES_MAX: usize = 16;

/// What the user asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Print [`HELP`].
    Help,
    /// Start a guest.
    Start(Options),
    /// Start one of our images.
    Image(Image),
}

/// How to start one of our images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its file.
    pub path: PathBuf,
    /// Its own arguments.
    pub arguments: Vec<OsString>,
    /// Its memory in MiB.
    pub memory_mib: u64,
    /// Its devices, by the names that its manifest has for them.
    pub devices: Vec<Device>,
    /// Whether to print what was counted.
    pub statistics: bool,
}

/// How to start a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The kernel's file.
    pub kernel: PathBuf,
    /// The file of its RAM disk.
    pub initrd: Option<PathBuf>,
    /// Its memory in bytes.
    pub memory_bytes: u64,
    /// What the user adds to its command line.
    pub append: String,
    /// Its devices, in their order.
    pub devices: Vec<Device>,
    /// Whether to print what was counted.
    pub statistics: bool,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// What messages call it.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// How the guest finds it.
    pub bus: Bus,
    /// How its registers are reached.
    pub access: Access,
    /// Whether the guest waits for no write of a register.
    pub posted: bool,
    /// Whether it never sleeps.
    pub busy: bool,
}

/// What a device is, and what is behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A network card, and its tap.
    Net(String),
    /// A disk.
    Blk(disk::Spec),
    /// A source of entropy.
    Rng,
    /// Intel's 82540EM, and its tap.
    E1000(String),
    /// Realtek's RTL8139C+, and its tap.
    Rtl8139(String),
}

impl Kind {
    /// Whether it is one of virtio's, which are at home on both buses.
    fn is_virtio(&self) -> bool {
        matches!(self, Self::Net(_) | Self::Blk(_) | Self::Rng)
    }

    /// Whether its driver acknowledges interrupts by writes. One that comes late would acknowledge
    /// what the driver has not seen.
    fn acknowledges_by_writes(&self) -> bool {
        matches!(self, Self::Rtl8139(_))
    }
}

/// How the guest finds a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bus {
    /// ACPI says where it is.
    Mmio,
    /// It is on the PCI bus.
    Pci,
}

impl Bus {
    /// Their names on the command line.
    const NAMES: [(&'static str, Self); 2] = [("mmio", Self::Mmio), ("pci", Self::Pci)];
}

/// How the registers of a device are reached, and where it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// By an exit, in this process.
    Exit,
    /// By ioregionfd, in this process.
    Thread,
    /// By ioregionfd, in a process of its own.
    Process,
    /// By an exit that is passed on, in a process of its own.
    Forward,
}

impl Access {
    /// Its names on the command line.
    const NAMES: [(&'static str, Self); 4] = [
        ("off", Self::Exit),
        ("on", Self::Thread),
        ("process", Self::Process),
        ("forward", Self::Forward),
    ];

    /// Whether KVM has to have ioregionfd.
    pub fn is_ioregionfd(self) -> bool {
        matches!(self, Self::Thread | Self::Process)
    }

    /// Whether the device has a process of its own.
    pub fn is_apart(self) -> bool {
        matches!(self, Self::Process | Self::Forward)
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.iter().find(|(_, access)| access == self);
        f.write_str(name.map_or("", |(name, _)| name))
    }
}

/// Why a command line is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// An argument that means nothing.
    Unknown(String),
    /// A value that is none for its option.
    Value(String, String),
    /// There is no guest, or there are two.
    Guest,
    /// This is for another kind of guest.
    Other(&'static str),
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(argument) => write!(f, "there is no option {argument}")?,
            Self::Value(argument, wanted) => write!(f, "{argument}: {wanted}")?,
            Self::Guest => write!(f, "which guest? Give it --kernel=FILE or --image=IMAGE")?,
            Self::Other(option) => write!(f, "{option} is not for this kind of guest")?,
        }
        write!(f, "; type: outboard-vmm --help")
    }
}

/// Reads the arguments, without the program's name.
///
/// # Errors
/// The first argument that means nothing.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Request, Error> {
    let mut arguments = arguments.into_iter();
    let (mut kernel, mut image) = (None, None);
    let (mut initrd, mut append) = (None, None);
    let mut memory_mib = MEMORY_MIB_DEFAULT;
    let mut devices = Vec::new();
    let mut statistics = false;
    let mut behind = None;
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy().into_owned();
        match text.split_once('=') {
            _ if text == "--" => behind = Some(arguments.by_ref().collect()),
            _ if text == "--help" || text == "-h" => return Ok(Request::Help),
            _ if text == "--statistics" => statistics = true,
            _ if DEVICES.iter().any(|option| text.starts_with(option)) => {
                devices.push(device(&text, &devices)?);
            }
            Some(("--kernel", file)) => kernel = Some(file.into()),
            Some(("--initrd", file)) => initrd = Some(file.into()),
            Some(("--append", words)) => append = Some(words.into()),
            Some(("--image", file)) => image = Some(file.into()),
            Some(("--mem", mib)) => {
                let allowed = MEMORY_MIB_MIN..=MEMORY_MIB_MAX;
                memory_mib = mib
                    .parse()
                    .ok()
                    .filter(|mib| allowed.contains(mib))
                    .ok_or_else(|| {
                        let wanted = format!("from {MEMORY_MIB_MIN} to {MEMORY_MIB_MAX} MiB");
                        Error::Value(text.clone(), wanted)
                    })?;
            }
            _ => return Err(Error::Unknown(text)),
        }
    }
    match (kernel, image) {
        (Some(_), None) if behind.is_some() => Err(Error::Other("--")),
        (None, Some(_)) if initrd.is_some() => Err(Error::Other("--initrd")),
        (None, Some(_)) if append.is_some() => Err(Error::Other("--append")),
        (None, Some(_)) if devices.iter().any(|device| device.bus == Bus::Pci) => {
            Err(Error::Other("a device on the PCI bus"))
        }
        (Some(kernel), None) => Ok(Request::Start(Options {
            kernel,
            initrd,
            memory_bytes: memory_mib << 20,
            append: append.unwrap_or_default(),
            devices,
            statistics,
        })),
        (None, Some(path)) => Ok(Request::Image(Image {
            path,
            arguments: behind.unwrap_or_default(),
            memory_mib,
            devices,
            statistics,
        })),
        _ => Err(Error::Guest),
    }
}

/// How options that are devices begin.
const DEVICES: [&str; 3] = ["--virtio-", "--e1000", "--rtl8139"];

/// Reads `--KIND:NAME=VALUE,OPTIONS`, behind other devices.
fn device(argument: &str, others: &[Device]) -> Result<Device, Error> {
    let wrong = |wanted: &str| Error::Value(argument.into(), wanted.into());
    let (mut rest, mut posted, mut busy) = (argument, false, false);
    let (mut access, mut bus) = (None, None);
    // What is behind the last comma may be a part of a file's name.
    while let Some((front, word)) = rest.rsplit_once(',') {
        match word.split_once('=') {
            Some(("ioregionfd", value)) if access.is_none() => {
                let known = Access::NAMES.iter().find(|(name, _)| *name == value);
                let wanted = "ioregionfd is off, on, process or forward";
                access = Some(known.ok_or_else(|| wrong(wanted))?.1);
            }
            Some(("bus", value)) if bus.is_none() => {
                let known = Bus::NAMES.iter().find(|(name, _)| *name == value);
                bus = Some(known.ok_or_else(|| wrong("bus is mmio or pci"))?.1);
            }
            None if word == "posted" && !posted => posted = true,
            None if word == "busy" && !busy => busy = true,
            _ => break,
        }
        rest = front;
    }
    let (option, value) = match rest.split_once('=') {
        Some((option, value)) => (option, Some(value).filter(|value| !value.is_empty())),
        None => (rest, None),
    };
    let (kind, name) = option
        .split_once(':')
        .ok_or_else(|| wrong("it needs :NAME"))?;
    let kind = kind_of(argument, kind, value)?;
    let is_word = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_word) {
        return Err(wrong("a name is 1 to 16 letters and digits"));
    }
    if others.iter().any(|other| other.name == name) {
        return Err(wrong("another device has this name"));
    }
    if others.len() == DEVICES_MAX {
        return Err(wrong("there can be 8 devices"));
    }
    let access = access.unwrap_or(Access::Exit);
    if posted && !access.is_ioregionfd() {
        return Err(wrong("posted takes ioregionfd=on or process"));
    }
    if posted && kind.acknowledges_by_writes() {
        return Err(wrong(
            "its driver acknowledges interrupts by writes, which must not be posted",
        ));
    }
    let bus = match (bus, kind.is_virtio()) {
        (Some(Bus::Mmio), false) => return Err(wrong("it is a PCI device: bus=pci")),
        (bus, true) => bus.unwrap_or(Bus::Mmio),
        (_, false) => Bus::Pci,
    };
    Ok(Device {
        name: name.into(),
        kind,
        bus,
        access,
        posted,
        busy,
    })
}

/// Reads what a device is, as `--KIND`, and what is behind it.
fn kind_of(argument: &str, kind: &str, value: Option<&str>) -> Result<Kind, Error> {
    let wrong = |wanted: &str| Error::Value(argument.into(), wanted.into());
    let tap = |kind: fn(String) -> Kind| match value {
        Some(tap) if tap.contains(',') => Err(wrong(
            "behind a tap there are only bus=BUS, ioregionfd=WAY, posted and busy",
        )),
        Some(tap) => Ok(kind(tap.into())),
        None => Err(wrong("it needs =TAP")),
    };
    match (kind, value) {
        ("--virtio-net", _) => tap(Kind::Net),
        ("--e1000", _) => tap(Kind::E1000),
        ("--rtl8139", _) => tap(Kind::Rtl8139),
        ("--virtio-blk", Some(file)) => {
            let Ok(spec) = file.parse();
            Ok(Kind::Blk(spec))
        }
        ("--virtio-blk", None) => Err(wrong("it needs =FILE")),
        ("--virtio-rng", None) => Ok(Kind::Rng),
        ("--virtio-rng", Some(_)) => Err(wrong("it has nothing behind it")),
        _ => Err(Error::Unknown(argument.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Request, Error> {
        parse(words.iter().map(OsString::from))
    }

    fn devices(words: &[&str]) -> Vec<Device> {
        let words = [&["--kernel=k"], words].concat();
        match read(&words).unwrap() {
            Request::Start(options) => options.devices,
            _ => unreachable!(),
        }
    }

    #[test]
    fn options_are_read() {
        let words = [
            "--kernel=/k",
            "--initrd=/i",
            "--mem=64",
            "--append=quiet x=y",
        ];
        let wanted = Options {
            kernel: "/k".into(),
            initrd: Some("/i".into()),
            memory_bytes: 64 << 20,
            append: "quiet x=y".into(),
            devices: Vec::new(),
            statistics: false,
        };
        assert_eq!(read(&words), Ok(Request::Start(wanted)));
        assert_eq!(read(&["--kernel=/k", "--help"]), Ok(Request::Help));
    }

    #[test]
    fn an_image_has_arguments_of_its_own() {
        let words = ["--virtio-rng:entropy", "--image=/i", "--", "--mem=1", "x"];
        let wanted = Image {
            path: "/i".into(),
            arguments: vec!["--mem=1".into(), "x".into()],
            memory_mib: MEMORY_MIB_DEFAULT,
            devices: devices(&["--virtio-rng:entropy"]),
            statistics: false,
        };
        assert_eq!(read(&words), Ok(Request::Image(wanted)));
    }

    #[test]
    fn devices_are_read() {
        let found = devices(&[
            "--virtio-net:net0=tap0,ioregionfd=process,posted",
            "--virtio-blk:disk=/a,b=c,ro,ioregionfd=on",
            "--virtio-rng:rng,busy",
            "--virtio-rng:pci,bus=pci,ioregionfd=forward",
            "--e1000:intel=tap1,ioregionfd=on,posted",
            "--rtl8139:realtek=tap2,bus=pci",
        ]);
        let disk = disk::Spec {
            path: "/a,b=c".into(),
            read_only: true,
        };
        let wanted = [
            ("net0", Kind::Net("tap0".into()), Access::Process, true),
            ("disk", Kind::Blk(disk), Access::Thread, false),
            ("rng", Kind::Rng, Access::Exit, false),
            ("pci", Kind::Rng, Access::Forward, false),
            ("intel", Kind::E1000("tap1".into()), Access::Thread, true),
            ("realtek", Kind::Rtl8139("tap2".into()), Access::Exit, false),
        ];
        let wanted = wanted.map(|(name, kind, access, posted)| Device {
            name: name.into(),
            bus: match name {
                "pci" | "intel" | "realtek" => Bus::Pci,
                _ => Bus::Mmio,
            },
            kind,
            access,
            posted,
            busy: name == "rng",
        });
        assert_eq!(found, wanted);
        assert_eq!(Access::Forward.to_string(), "forward");
    }

    #[test]
    fn nonsense_is_named() {
        for (words, named) in [
            (&["--mem=63", "--kernel=k"][..], "--mem=63: from 64"),
            (&["--mem=x", "--kernel=k"], "--mem=x"),
            (&["--mem=1025", "--kernel=k"], "to 1024"),
            (&["--kernel"], "no option --kernel"),
            (&["k"], "no option k"),
            (&[], "which guest"),
            (&["--kernel=k", "--image=i"], "which guest"),
            (&["--kernel=k", "--"], "-- is not for this"),
            (&["--image=i", "--initrd=k"], "--initrd is not"),
            (&["--image=i", "--append=k"], "--append is not"),
            (
                &["--image=i", "--e1000:e=tap0"],
                "a device on the PCI bus is not",
            ),
            (&["--virtio-net=tap0"], "it needs :NAME"),
            (&["--virtio-net:n"], "it needs =TAP"),
            (&["--virtio-net:n=tap0,mtu=1"], "behind a tap"),
            (&["--virtio-net:a/b=tap0"], "a name is"),
            (&["--virtio-blk:b="], "it needs =FILE"),
            (&["--virtio-rng:r=x"], "nothing behind it"),
            (&["--virtio-gpu:g"], "no option --virtio-gpu"),
            (&["--virtio-rng:r", "--virtio-rng:r"], "has this name"),
            (&["--virtio-rng:r,ioregionfd=yes"], "off, on, process"),
            (&["--virtio-rng:r,posted"], "posted takes"),
            (&["--virtio-rng:r,bus=isa"], "bus is mmio or pci"),
            (&["--e1000:e=tap0,bus=mmio"], "a PCI device"),
            (&["--e1000:e"], "it needs =TAP"),
            (&["--e1000e:e=tap0"], "no option --e1000e"),
            (
                &["--rtl8139:r=tap0,ioregionfd=on,posted"],
                "acknowledges interrupts",
            ),
            (
                &["--virtio-rng:r,posted,ioregionfd=forward"],
                "posted takes",
            ),
        ] {
            let error = read(words).unwrap_err().to_string();
            assert!(
                error.contains(named) && error.ends_with("--help"),
                "{error}"
            );
        }
    }
}
