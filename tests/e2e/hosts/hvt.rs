//! The host `hvt`: every promise again, in a virtual machine, and what only a guest there can try.
//!
//! Where KVM is missing or cannot run a whole program, these tests are skipped and say so; the
//! stage `lab` of `cargo xtask test` runs them inside of a machine whose KVM is complete.

use crate::commands::stats;
use crate::commands::up;
use crate::devices::ports;
use crate::devices::software_device;
use crate::devices::{software_nic, software_virtio};
use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::process::{Ended, run};
use crate::harness::programs;
use crate::harness::temporary::{TemporaryFile, TemporaryFolder};
use crate::hosts::backtrace;
use crate::hosts::compatibility;
use crate::hosts::disks;
use crate::hosts::guests::{self, PROMISES, Promise};
use crate::hosts::rings;
use crate::hosts::state;
use crate::rules::firewall;
use crate::rules::load;
use crate::services::{dns, echo, http, links, nbd, router, stock, vlans};
use abi::note::Target;
use libtest_mimic::{Completion, Failed, Trial};
use std::process::Command;

/// What the monitor reports of a guest whose processor stopped.
pub const STOPPED: &str = "was ended";
const SIGILL: i32 = 128 + 4;
const SIGSEGV: i32 = 128 + 11;
const SIGSYS: i32 = 128 + 31;

/// What the guest `hypercall` is told to do, the status that it ends with, and what is said.
struct Hypercall(&'static str, i32, &'static str);

/// Port and words of the argument, which the guest prints in hexadecimal afterwards. Calls with
/// status 0 are answered, with an error or without harm.
const HYPERCALLS: &[Hypercall] = &[
    // No call has such a number.
    Hypercall("0x500", SIGSYS, "port 0x500"),
    Hypercall("0x509", SIGSYS, "port 0x509"),
    Hypercall("0x600", SIGSYS, "port 0x600"),
    // The event of rings, without any.
    Hypercall("0x520", SIGSYS, "port 0x520"),
    // The bell of links, without any.
    Hypercall("0x521", SIGSYS, "port 0x521"),
    Hypercall("0x80", SIGSYS, "port 0x80"),
    Hypercall("0xffff", SIGSYS, "port 0xffff"),
    // Arguments that are no memory, end behind it, or are not aligned.
    Hypercall("0x501 at 0x1000000", SIGSYS, "walltime"),
    Hypercall("0x501 at 0xfffffff8", SIGSYS, "walltime"),
    Hypercall("0x504 at 0xfffff8", SIGSYS, "block_write"),
    Hypercall("0x501 at 0xfffff1", SIGSYS, "no multiple of 8"),
    // What arguments point to: outside, around the end of memory, around the end of addresses.
    Hypercall("0x502 0x1000000 1", SIGSYS, "puts"),
    Hypercall("0x502 0xffffff 2", SIGSYS, "puts"),
    Hypercall("0x502 0xffffffffffffffff 1", SIGSYS, "puts"),
    Hypercall("0x502 self 0xffffffffffffffff", SIGSYS, "puts"),
    Hypercall("0x502 0xffffff 1", 0, "returned"),
    Hypercall("0x502 0xffffffffffffffff 0", SIGSYS, "puts"),
    Hypercall("0x508 0xffffffffffffff00 3", SIGSYS, "halt"),
    Hypercall("0x508 0xfffe01 3", SIGSYS, "halt"),
    Hypercall("0x508 0xfffe00 3", 3, ""),
    Hypercall("0x508 self 77", 77, ""),
    Hypercall("0x508 0 0xffffffff", 255, ""),
    // Devices that are not there: the result is that the argument is not valid.
    Hypercall("0x504 1 0 self 512", 0, "200, 2]"),
    Hypercall("0x505 0xffffffffffffffff 0 self 512", 0, "200, 2]"),
    Hypercall("0x506 0 self 64", 0, "40, 2,"),
    Hypercall("0x507 64 self 64", 0, "40, 2,"),
    // No time to wait, and nothing to wait for.
    Hypercall("0x503 0", 0, "returned: [0, 0, 0,"),
];

/// Sizes of memory in MiB that are refused, and what is said.
const MEMORY_REFUSED: [(u64, &str); 2] = [(1, "at least --mem="), (5000, "at most 4096 MiB")];
/// Memory of other guests, in MiB.
const MEMORY: u64 = 16;

type Test = fn(&Images) -> Result<(), Failed>;

const SINGLE: [(&str, Test); 9] = [
    ("a system call is no instruction", system_call),
    ("an image for hvt starts there", own_image),
    ("memory of 4 GiB", much_memory),
    ("a guest that fails leaves a core file", core_file),
    ("a lack of huge pages is named", no_huge_pages),
    ("a guest that ends well leaves no core file", no_core_file),
    ("ports take words and give nothing", ports_of_calls),
    ("a violation has a place", violation),
    ("a tender alone says where to look", alone),
];

/// What stands between two networks.
const JOINED: [(&str, Test); 4] = [
    ("the firewall's rules decide", |images| {
        firewall::rules(images, "hvt")
    }),
    ("rules are given at the start", |images| {
        load::at_the_start(images, "hvt")
    }),
    ("rules wake an idle guest", |images| {
        load::idle(images, "hvt")
    }),
    ("exits are counted", stats::exits),
];

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    if let Some(why) = missing(images) {
        let test = || Ok(Completion::ignored_with(why));
        return vec![Trial::ignorable_test("hvt::everything", test)];
    }
    let mut trials = Vec::new();
    let mut add = |name: String, test: Box<dyn FnOnce() -> Result<(), Failed> + Send>| {
        trials.push(Trial::test(format!("hvt::{name}"), test));
    };
    for promise in PROMISES.iter().filter(|promise| !promise.jail) {
        let (alone, monitored) = (
            move || guests::tender(images, promise, "hvt"),
            move || monitor(images, promise),
        );
        add(format!("guest::{}", promise.name()), Box::new(alone));
        add(format!("monitor::{}", promise.name()), Box::new(monitored));
    }
    for call in HYPERCALLS {
        let test = || hypercall(images, call);
        add(format!("hypercall::{}", call.0), Box::new(test));
    }
    for sector in guests::SECTOR_BYTES {
        let test = move || guests::whole_disk(images, "hvt", sector);
        add(format!("block, sectors of {sector}"), Box::new(test));
    }
    for (mib, says) in MEMORY_REFUSED {
        let test = move || {
            let ended = tender(images, mib, "hello", &[])?;
            ended.expect_status(1)?.expect_stderr(says).map(|_| ())
        };
        add(format!("memory of {mib} MiB is refused"), Box::new(test));
    }
    for (name, test) in SINGLE {
        add(name.into(), Box::new(move || test(images)));
    }
    for (name, test) in JOINED.into_iter().chain(ports::ON_HVT) {
        trials.push(network.trial(format!("hvt::network::{name}"), move || test(images)));
    }
    trials.extend(services(images, network));
    trials.extend(stock::over_a_tap(images, network, "hvt", "hvt::"));
    let test = || huge_pages(images);
    trials.push(Trial::ignorable_test("hvt::reserved huge pages", test));
    trials.extend(backtrace::on(images, "hvt"));
    trials.extend(rings::trials(images));
    trials.extend(state::on_hvt(images));
    trials.extend(disks::on_hvt(images));
    trials.extend(software_device::on(images, "hvt"));
    trials.extend(software_nic::on(images, "hvt"));
    trials.extend(software_virtio::on(images, "hvt"));
    trials.extend(compatibility::on_hvt(images, network));
    trials
}

/// What appliances that speak TCP/IP do.
fn services(images: &'static Images, network: &Network) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (name, test) in echo::ON_HVT {
        trials.push(network.trial(format!("hvt::echo::{name}"), move || test(images)));
    }
    for (name, test) in links::ON_HVT {
        trials.push(network.trial(format!("hvt::links::{name}"), move || test(images)));
    }
    for (name, test) in up::ON_HVT {
        trials.push(network.trial(format!("hvt::up::{name}"), move || test(images)));
    }
    let no_curl = programs::missing(&["curl", "mke2fs"]);
    for (name, test) in http::ON_HVT {
        let name = format!("hvt::http::{name}");
        trials.push(network.trial_unless(no_curl, name, move || test(images)));
    }
    let no_copy = programs::missing(&["nbdcopy"]);
    for (name, test) in nbd::ON_HVT {
        let name = format!("hvt::nbd::{name}");
        trials.push(network.trial_unless(no_copy, name, move || test(images)));
    }
    for (name, test) in dns::ON_HVT {
        trials.push(network.trial(format!("hvt::dns::{name}"), move || test(images)));
    }
    let no_ping = programs::missing(&["ping"]);
    for (name, test) in router::ON_HVT.into_iter().chain([vlans::ON_HVT]) {
        let name = format!("hvt::router::{name}");
        trials.push(network.trial_unless(no_ping, name, move || test(images)));
    }
    trials
}

/// Why no guest can run here: the words of the tender. In the lab there is no such excuse.
fn missing(images: &Images) -> Option<String> {
    if images.are_prebuilt() || !images.guest("floating_point").exists() {
        return None;
    }
    let failed = match tender(images, MEMORY, "floating_point", &[]) {
        Ok(ended) if ended.status == 0 => return None,
        Ok(ended) => ended.stderr.trim().to_owned(),
        Err(failed) => failed.message().unwrap_or_default().to_owned(),
    };
    Some(format!("{failed} (the stage `lab` runs it)"))
}

fn tender(images: &Images, memory: u64, guest: &str, arguments: &[&str]) -> Result<Ended, Failed> {
    let mut command = Command::new(images.program("outboard-tender"));
    command
        .args(["--host=hvt", &format!("--mem={memory}"), "--"])
        .arg(images.guest(guest))
        .args(arguments);
    run(&mut command)
}

fn monitor(images: &Images, promise: &Promise) -> Result<(), Failed> {
    let mut command = Command::new(images.program("outboard"));
    command
        .args(["run", "--host=hvt", "--mem=16", "--"])
        .arg(images.guest(promise.guest))
        .args(promise.arguments);
    let ended = run(&mut command)?;
    promise.check(&ended)?;
    ended.expect_stderr(promise.report).map(|_| ())
}

fn hypercall(images: &Images, call: &Hypercall) -> Result<(), Failed> {
    let Hypercall(words, status, says) = call;
    let words: Vec<&str> = words.split(' ').collect();
    let ended = tender(images, MEMORY, "hypercall", &words)?;
    ended.expect_status(*status)?;
    let said = ended.stdout.contains(says) || ended.stderr.contains(says);
    said.then_some(())
        .ok_or_else(|| format!("nothing of {says:?}: {ended:?}").into())
}

/// In ring 0 with system calls off, `syscall` is as good as `ud2`.
fn system_call(images: &Images) -> Result<(), Failed> {
    let ended = tender(images, MEMORY, "forbidden_syscall", &[])?;
    ended.expect_status(SIGILL)?;
    let survived = ended.stdout.contains("FAILURE");
    (!survived)
        .then_some(())
        .ok_or("the guest survived it".into())
}

/// What `outboard build --host=hvt` writes needs no option.
fn own_image(images: &Images) -> Result<(), Failed> {
    let image = built_for_hvt(images, "hello")?;
    let mut command = Command::new(images.program("outboard"));
    let ended = run(command.args(["run", "--mem=16"]).arg(&image.path))?;
    ended.expect_status(0)?;
    ended.expect_stdout("from Hvt").map(|_| ())
}

/// A guest as `outboard build --host=hvt` writes it.
pub fn built_for_hvt(images: &Images, guest: &str) -> Result<TemporaryFile, Failed> {
    let mut bytes = std::fs::read(images.guest(guest))?;
    image::retarget(&mut bytes, Target::Hvt)?;
    let file = TemporaryFile::new(guest, 0)?;
    std::fs::write(&file.path, bytes)?;
    Ok(file)
}

/// Addresses of arguments have 32 bits.
fn much_memory(images: &Images) -> Result<(), Failed> {
    let ended = tender(images, 4096, "hello", &[])?;
    ended.expect_status(0)?.expect_stdout("SUCCESS").map(|_| ())
}

fn core_file(images: &Images) -> Result<(), Failed> {
    // Elf64_Ehdr: a core file.
    const ET_CORE: [u8; 2] = [4, 0];
    for (guest, status, fails) in [("hello", 0, false), ("null_read", 128 + 11, true)] {
        let folder = TemporaryFolder::new("cores")?;
        let mut command = Command::new(images.program("outboard-tender"));
        command
            .args(["--host=hvt", "--mem=16"])
            .arg(format!("--dumpcore={}", folder.path.display()))
            .arg(images.guest(guest));
        run(&mut command)?.expect_status(status)?;
        let mut files = std::fs::read_dir(&folder.path)?;
        let file = files.next().ok_or("there is no core file")??;
        let bytes = std::fs::read(file.path())?;
        // Memory, and a page in front of it.
        let expected = if fails { (16 << 20) + 4096 } else { 0 };
        if bytes.len() != expected || fails && bytes[16..18] != ET_CORE {
            return Err(format!("{guest}: a core file of {} bytes", bytes.len()).into());
        }
    }
    let mut command = Command::new(images.program("outboard-tender"));
    command.args(["--host=hvt", "--mem=16", "--dumpcore=/nowhere"]);
    let ended = run(command.arg(images.guest("hello")))?;
    ended.expect_status(1)?;
    ended.expect_stderr("--dumpcore=/nowhere").map(|_| ())
}

/// The monitor removes the file that the tender could not.
fn no_core_file(images: &Images) -> Result<(), Failed> {
    for (guest, status, files) in [("hello", 0, 0), ("panic", 255, 1)] {
        let folder = TemporaryFolder::new("cores")?;
        let mut command = Command::new(images.program("outboard"));
        command
            .args(["run", "--host=hvt", "--mem=16"])
            .arg(format!("--dumpcore={}", folder.path.display()))
            .arg(images.guest(guest));
        run(&mut command)?.expect_status(status)?;
        let left = std::fs::read_dir(&folder.path)?.count();
        if left != files {
            return Err(format!("{guest}: {left} files").into());
        }
    }
    Ok(())
}

/// Memory comes from the pages that the machine has reserved. Only the lab is given some here, for
/// it has nothing else to do with them.
fn huge_pages(images: &Images) -> Result<Completion, Failed> {
    const RESERVED: &str = "/proc/sys/vm/nr_hugepages";
    if !images.are_prebuilt() {
        return Ok(Completion::ignored_with(
            "reserves memory, in the lab alone",
        ));
    }
    std::fs::write(RESERVED, "8")?;
    let started = |memory: u64| {
        let mut command = Command::new(images.program("outboard-tender"));
        command.args(["--host=hvt", "--hugepages", &format!("--mem={memory}")]);
        run(command.arg(images.guest("heap")))
    };
    let (fits, too_much) = (started(16), started(18));
    std::fs::write(RESERVED, "0")?;
    fits?.expect_status(0)?.expect_stdout("SUCCESS")?;
    let too_much = too_much?;
    too_much.expect_status(1)?;
    too_much.expect_stderr("no 18 MiB in pages of 2 MiB")?;
    Ok(Completion::Completed)
}

/// Other uses of a hypercall's port.
fn ports_of_calls(images: &Images) -> Result<(), Failed> {
    for how in ["in", "byte"] {
        let ended = tender(images, MEMORY, "exception", &[how])?;
        ended.expect_status(SIGSEGV)?;
        ended.expect_stderr("it used a port in a way that is no hypercall")?;
    }
    Ok(())
}

/// What the tender says of a forbidden hypercall, the monitor completes.
fn violation(images: &Images) -> Result<(), Failed> {
    let mut command = Command::new(images.program("outboard"));
    command.args(["run", "--host=hvt", "--mem=16", "--"]);
    let ended = run(command.arg(images.guest("hypercall")).arg("0x509"))?;
    ended.expect_status(SIGSYS)?;
    ended.expect_stderr("outboard-tender: the guest was ended: it wrote to port 0x509")?;
    ended.expect_stderr("as the tender says\noutboard: rax 0x")?;
    ended.expect_stderr(" in outboard_main + ").map(|_| ())
}

fn alone(images: &Images) -> Result<(), Failed> {
    for (guest, word) in [("null_read", ""), ("hypercall", "0x509")] {
        let ended = tender(images, MEMORY, guest, &[word])?;
        ended.expect_stderr("outboard-tender: to see the lines: addr2line -fipCe /")?;
        let numbers = ended.stderr.lines().last().unwrap_or_default();
        let count = numbers.matches(" 0x1").count();
        if count < 3 {
            return Err(format!("{count} addresses: {ended:?}").into());
        }
    }
    Ok(())
}

/// More than any machine has reserved.
fn no_huge_pages(images: &Images) -> Result<(), Failed> {
    let mut command = Command::new(images.program("outboard-tender"));
    command.args(["--host=hvt", "--mem=4096", "--hugepages"]);
    let ended = run(command.arg(images.guest("hello")))?;
    ended.expect_status(1)?;
    ended.expect_stderr("sysctl vm.nr_hugepages=").map(|_| ())
}
