//! `cargo xtask lab`: a machine with KVM, an IOMMU and QEMU's NICs, on any host.

pub mod ioregionfd;
mod kernel;
pub mod linux;
pub mod machine;
pub mod matrix;
mod qemu;
pub mod trials;
mod vmm;

use crate::packages::{self, LAB, LINUX};
use machine::Nic;
use std::path::{Path, PathBuf};

const HELP: &str = "\
Usage: cargo xtask lab [OPTION...] [--] COMMAND
       cargo xtask lab [OPTION...] shell
       cargo xtask lab linux [OPTION...] DEVICE
       cargo xtask lab vmm [WAY...]

Boots a machine with KVM and an IOMMU (QEMU without acceleration, Debian's kernel), runs COMMAND in
its shell, and ends with its exit status. `shell` is a shell to type in. `linux` runs Linux's own
drivers on Outboard's software devices, `vmm` Linux as a guest of outboard-vmm; their --help says
more.

  --file=PATH          bring a file along, to /lab/NAME (may be repeated); programs must be static
  --nic=MODEL[,WIRE]   a network card of QEMU's: e1000e, e1000, virtio-net-pci ... WIRE is `hub`,
                       `hub1` ..., with the card's own options behind it, as in
                       virtio-net-pci,hub,iommu_platform=on; or what QEMU's -netdev takes
                       (default: user)
  --device=MODEL       another device of QEMU's, with its options: edu, edu,dma_mask=0xffffffff ...
  --disk=MIB           an empty disk of this size, for devices with drive=disk; a second one is for
                       those with drive=disk1
  --object=KIND        an object of QEMU's that a device needs, with its options
  --address-bits=N     bits of physical and I/O addresses: 39 or 48 (default 48)
  --memory=MIB         memory of the machine (default 1024)
  --processors=N       processors of the machine (default 1)
  --module=NAME        another module of the kernel's, with all that it needs (may be repeated)
  --ioregionfd         KVM has KVM_SET_IOREGION; built the first time, which takes some minutes
  --mended-qemu        its QEMU has lab/qemu/svm.patch; built the first time, which takes minutes
  --icount             its clocks count instructions: one takes a nanosecond, and sleep no time
  --timeout=SECONDS    kill it then (default 300)
  --yes                install missing Debian packages without asking (as CI=true does)
";

const ADDRESS_BITS_DEFAULT: u32 = 48;
const MEMORY_MIB_DEFAULT: u32 = 1024;
const PROCESSORS_DEFAULT: u32 = 1;
const TIMEOUT_SECONDS_DEFAULT: u64 = 300;

/// What to run, and on which machine.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    files: Vec<PathBuf>,
    nics: Vec<Nic>,
    devices: Vec<String>,
    objects: Vec<String>,
    address_bits: u32,
    memory_mib: u32,
    processors: u32,
    /// Modules beside those of `lab/modules`.
    modules: Vec<String>,
    ioregionfd: bool,
    mended_qemu: bool,
    /// Sizes of the disks.
    disks_mib: Vec<u32>,
    icount: bool,
    timeout_seconds: u64,
    yes: bool,
    /// What the shell runs; `None` if somebody types.
    command: Option<String>,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self {
            files: Vec::new(),
            nics: Vec::new(),
            devices: Vec::new(),
            objects: Vec::new(),
            address_bits: ADDRESS_BITS_DEFAULT,
            memory_mib: MEMORY_MIB_DEFAULT,
            processors: PROCESSORS_DEFAULT,
            modules: Vec::new(),
            ioregionfd: false,
            mended_qemu: false,
            disks_mib: Vec::new(),
            icount: false,
            timeout_seconds: TIMEOUT_SECONDS_DEFAULT,
            yes: false,
            command: None,
        };
        let mut rest = arguments.iter();
        let mut words: Vec<&str> = Vec::new();
        for argument in &mut rest {
            match argument.split_once('=') {
                _ if argument == "--" => break,
                _ if argument == "--yes" => options.yes = true,
                _ if argument == "--ioregionfd" => options.ioregionfd = true,
                _ if argument == "--mended-qemu" => options.mended_qemu = true,
                _ if argument == "--icount" => options.icount = true,
                Some(("--file", path)) => options.files.push(path.into()),
                Some(("--nic", nic)) => options.nics.push(Nic::parse(nic)),
                Some(("--device", device)) => options.devices.push(device.into()),
                Some(("--object", object)) => options.objects.push(object.into()),
                Some(("--address-bits", bits)) => options.address_bits = number(argument, bits)?,
                Some(("--disk", mib)) => options.disks_mib.push(number(argument, mib)?),
                Some(("--memory", mib)) => options.memory_mib = number(argument, mib)?,
                Some(("--processors", count)) => options.processors = number(argument, count)?,
                Some(("--module", name)) => options.modules.push(name.into()),
                Some(("--timeout", seconds)) => {
                    options.timeout_seconds = number(argument, seconds)?;
                }
                _ if argument.starts_with("--") => {
                    return Err(format!(
                        "there is no option `{}`; type: cargo xtask lab --help",
                        argument
                    ))
                }
                _ => {
                    words.push(argument);
                    break;
                }
            }
        }
        words.extend(rest.map(String::as_str));
        match words.as_slice() {
            [] => Err("the lab needs a command; type: cargo xtask lab --help".into()),
            ["shell"] => Ok(options),
            words => {
                options.command = Some(words.join(" "));
                Ok(options)
            }
        }
    }
}

fn number<T: std::str::FromStr>(argument: &str, value: &str) -> Result<T, String> {
    value
        .parse()
        .map_err(|_| format!("{}: not a number; type: cargo xtask lab --help", argument))
}

/// The first word, and what follows it.
fn first(arguments: &[String]) -> Option<(&str, &[String])> {
    let (first, rest) = arguments.split_first()?;
    Some((first, rest))
}

/// `cargo xtask lab`.
///
/// # Errors
/// One line that says why the machine did not run.
pub fn main(root: &Path, arguments: &[String]) -> Result<i32, String> {
    match first(arguments) {
        Some(("linux", rest)) => return linux::main(root, rest),
        Some(("vmm", rest)) => return vmm::main(root, rest),
        _ => {}
    }
    if crate::wants_help(arguments) {
        print!("{}", HELP);
        return Ok(0);
    }
    let mut options = Options::parse(arguments)?;
    packages::provide(&[LAB], options.yes)?;
    let cache = crate::process::target_folder(root).join("lab");
    let mut kernel = kernel::provide(&cache)?;
    if options.ioregionfd {
        let test = ioregionfd::install(root, &cache, &mut kernel, options.yes)?;
        options.files.push(test);
    }
    let program = match options.mended_qemu {
        true => {
            packages::provide(&[LINUX], options.yes)?;
            qemu::provide(root, &cache, false)?
        }
        false => machine::STOCK_QEMU.into(),
    };
    machine::run(root, &cache, &program, &kernel, &options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options, String> {
        let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
        Options::parse(&words)
    }

    #[test]
    fn options_end_at_the_command() {
        let words = [
            "--file=a/b",
            "--memory=64",
            "--address-bits=39",
            "--disk=3",
            "--processors=2",
            "--module=vhost_net",
        ];
        let options = parse(&[&words[..], &["--", "ls", "--memory=1"]].concat()).unwrap();
        assert_eq!(options.files, [PathBuf::from("a/b")]);
        assert_eq!((options.memory_mib, options.address_bits), (64, 39));
        assert_eq!((options.disks_mib, options.processors), (vec![3], 2));
        assert_eq!(options.modules, ["vhost_net"]);
        assert_eq!(options.command.as_deref(), Some("ls --memory=1"));
        assert_eq!(
            parse(&["ls", "--yes"]).unwrap().command.as_deref(),
            Some("ls --yes")
        );
    }

    #[test]
    fn a_shell_has_no_command() {
        assert_eq!(parse(&["--nic=e1000e", "shell"]).unwrap().command, None);
    }

    #[test]
    fn nonsense_is_named() {
        for (words, named) in [
            (&["--memory=lots", "ls"][..], "--memory=lots"),
            (&["--fast", "ls"], "--fast"),
            (&[], "needs a command"),
        ] {
            let error = parse(words).unwrap_err();
            assert!(
                error.contains(named) && error.contains("--help"),
                "{}",
                error
            );
        }
    }
}
