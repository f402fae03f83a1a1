//! What the host `hvt` refuses before a guest runs: machines without KVM, files that are no image
//! for it. None of it needs KVM.

use crate::harness::build::Images;
use crate::harness::process::{Ended, run};
use crate::harness::temporary::TemporaryFile;
use abi::note::Target;
use libtest_mimic::{Completion, Failed, Trial};
use std::path::Path;
use std::process::Command;

/// Elf64_Ehdr: where program headers begin; each has so many bytes.
const HEADERS: usize = 64;
const HEADER_BYTES: usize = 56;
/// Elf64_Phdr: places in it, and types.
const OFFSET: usize = 8;
const ADDRESS: usize = 16;
const FILE_BYTES: usize = 32;
const ALIGN: usize = 48;
const LOAD: u32 = 1;
const NOTE: u32 = 4;

/// A number written into the n-th program header of a type, and what is said about it.
struct Damage(&'static str, u32, usize, usize, u64, &'static str);

const DAMAGES: &[Damage] = &[
    Damage(
        "a segment between pages",
        LOAD,
        1,
        ADDRESS,
        0x10_2800,
        "does not begin behind the segment before it",
    ),
    Damage(
        "a segment of no pages",
        LOAD,
        0,
        ALIGN,
        16,
        "is aligned to 16",
    ),
    Damage(
        "a segment below the image",
        LOAD,
        0,
        ADDRESS,
        0x1000,
        "begins at 0x1000",
    ),
    Damage(
        "a segment at the end of addresses",
        LOAD,
        4,
        ADDRESS,
        u64::MAX - 4095,
        "ends outside the address space",
    ),
    Damage(
        "a segment outside of the file",
        LOAD,
        0,
        OFFSET,
        1 << 40,
        "reaches over the end of the file",
    ),
    Damage(
        "a note outside of the file",
        NOTE,
        0,
        OFFSET,
        1 << 40,
        "reaches over the end of the file",
    ),
    Damage(
        "a note around the end of offsets",
        NOTE,
        1,
        OFFSET,
        u64::MAX,
        "reaches over the end of the file",
    ),
    Damage(
        "a note longer than the file",
        NOTE,
        1,
        FILE_BYTES,
        u64::MAX,
        "reaches over the end of the file",
    ),
    Damage(
        "a note cut short",
        NOTE,
        2,
        FILE_BYTES,
        7,
        "start it with --host=spt",
    ),
];

/// Whether the processor says that it runs virtual machines.
fn can_virtualise() -> bool {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let mut words = cpuinfo.split_whitespace();
    words.any(|word| ["vmx", "svm"].contains(&word))
}

pub fn trials(images: &'static Images) -> Vec<Trial> {
    let mut trials = Vec::new();
    for damage in DAMAGES {
        let test = || damaged(images, damage);
        trials.push(Trial::test(format!("refusals::{}", damage.0), test));
    }
    let name = "refusals::an image for one host alone";
    trials.push(Trial::test(name, || one_host_alone(images)));
    for (name, device, says) in [
        (
            "no KVM",
            "",
            "No such file or directory (os error 2); load kvm_intel or kvm_amd",
        ),
        (
            "no permission",
            "touch /dev/kvm && chmod 0 /dev/kvm &&",
            match can_virtualise() {
                true => "Permission denied (os error 13); type: sudo chown $USER /dev/kvm",
                false => {
                    "Permission denied (os error 13); the processor shows neither vmx nor svm, so \
                     guests would hardly run if it opened; start the image with --host=spt"
                }
            },
        ),
    ] {
        let name = format!("refusals::{name}");
        let test = move || without(images, device, says);
        trials.push(Trial::ignorable_test(name, test));
    }
    trials
}

fn tender(images: &Images, host: &str, image: &Path) -> Command {
    let mut command = Command::new(images.program("outboard-tender"));
    command.args([&format!("--host={host}"), "--mem=16", "--"]);
    command.arg(image);
    command
}

/// One line, by the tender.
fn refused(ended: &Ended, says: &str) -> Result<(), Failed> {
    ended.expect_status(1)?.expect_stderr(says)?;
    let one = ended.stderr.lines().count() == 1 && ended.stderr.starts_with("outboard-tender: ");
    one.then_some(())
        .ok_or_else(|| format!("not one line: {ended:?}").into())
}

fn damaged(images: &Images, damage: &Damage) -> Result<(), Failed> {
    let Damage(_, kind, number, field, value, says) = *damage;
    let mut bytes = std::fs::read(images.guest("hello"))?;
    let count = usize::from(u16::from_le_bytes([bytes[56], bytes[57]]));
    let headers = (0..count).map(|i| HEADERS + i * HEADER_BYTES);
    let mut of_kind = headers.filter(|at| bytes[*at..at + 4] == kind.to_le_bytes());
    let at = of_kind.nth(number).ok_or("no such program header")? + field;
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    let file = TemporaryFile::new("damaged", 0)?;
    std::fs::write(&file.path, bytes)?;
    refused(&run(&mut tender(images, "hvt", &file.path))?, says)
}

/// An image that does not know of Outboard's other hosts, as stock ones.
fn one_host_alone(images: &Images) -> Result<(), Failed> {
    for (target, hosts) in [
        (Target::Spt, &["hvt"][..]),
        (Target::Hvt, &["spt", "process"]),
    ] {
        let mut bytes = std::fs::read(images.guest("hello"))?;
        image::retarget(&mut bytes, target)?;
        let name = bytes.windows(9).position(|name| name == b"Outboard\0");
        let name = name.ok_or("no note of Outboard's")?;
        bytes[name] = b'X';
        let file = TemporaryFile::new("stock", 0)?;
        std::fs::write(&file.path, bytes)?;
        for host in hosts {
            let says = format!("start it with --host={}", target.name());
            refused(&run(&mut tender(images, host, &file.path))?, &says)?;
        }
    }
    Ok(())
}

/// Starts a guest where `/dev` has what `device` makes, by a user without capabilities.
fn without(images: &Images, device: &str, says: &str) -> Result<Completion, Failed> {
    let program = images.program("outboard-tender");
    let guest = images.guest("hello");
    let script = format!(
        "mount -t tmpfs none /dev && touch /dev/null && {device} \
         exec setpriv --bounding-set=-all --inh-caps=-all {} --host=hvt --mem=16 -- {}",
        program.display(),
        guest.display()
    );
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]);
    let ended = match run(&mut command) {
        Ok(ended) => ended,
        Err(_) => return Ok(Completion::ignored_with("needs unshare, of util-linux")),
    };
    if ended.stderr.starts_with("unshare: ") {
        return Ok(Completion::ignored_with("needs user namespaces"));
    }
    refused(&ended, says).map(|()| Completion::Completed)
}
