//! One tiny guest for each promise, on each host.

use crate::harness::build::Images;
use crate::harness::process::{Ended, run};
use crate::harness::temporary::TemporaryFile;
use libtest_mimic::{Failed, Trial};
use std::process::Command;

const SIGILL: i32 = 128 + 4;
const SIGTRAP: i32 = 128 + 5;
const SIGFPE: i32 = 128 + 8;
const SIGSEGV: i32 = 128 + 11;
const SIGSYS: i32 = 128 + 31;

/// A guest, what it is given, and how it must end.
pub struct Promise {
    pub guest: &'static str,
    pub arguments: &'static [&'static str],
    pub status: i32,
    pub says: &'static str,
    /// What `outboard run` must say of it.
    pub report: &'static str,
    /// Whether only a jail keeps it.
    pub jail: bool,
}

const fn promise(
    guest: &'static str,
    arguments: &'static [&'static str],
    status: i32,
    says: &'static str,
    report: &'static str,
) -> Promise {
    Promise {
        guest,
        arguments,
        status,
        says,
        report,
        jail: false,
    }
}

const fn jail(number: &'static [&'static str], name: &'static str) -> Promise {
    Promise {
        jail: true,
        ..promise("forbidden_syscall", number, SIGSYS, "", name)
    }
}

/// Promises about guests without devices.
pub const PROMISES: &[Promise] = &[
    promise("hello", &[], 0, "SUCCESS", ""),
    promise(
        "arguments",
        &["one", "--two", "three=3"],
        0,
        "[one]\n[--two]\n[three=3]\n",
        "",
    ),
    promise("status", &["0"], 0, "", ""),
    promise("status", &["42"], 42, "", "42"),
    promise("panic", &["why"], 255, "panic.rs:", "255"),
    promise("clocks", &[], 0, "SUCCESS", ""),
    promise("deadlines", &[], 0, "SUCCESS", ""),
    promise("memory", &[], 0, "SUCCESS", ""),
    promise("floating_point", &[], 0, "SUCCESS", ""),
    promise("heap", &[], 0, "SUCCESS", ""),
    promise("heap_exhaustion", &[], 255, "memory allocation of", "255"),
    promise("stack_overflow", &[], SIGSEGV, "", "SIGSEGV"),
    promise("null_read", &[], SIGSEGV, "", "address 0x0"),
    promise("write_text", &[], SIGSEGV, "", "SIGSEGV"),
    promise("write_rodata", &[], SIGSEGV, "", "SIGSEGV"),
    promise("execute_data", &["data"], SIGSEGV, "", "SIGSEGV"),
    promise("execute_data", &["heap"], SIGSEGV, "", "SIGSEGV"),
    promise("execute_data", &["stack"], SIGSEGV, "", "SIGSEGV"),
    promise("exception", &["divide"], SIGFPE, "", "SIGFPE"),
    promise("exception", &["x87"], SIGFPE, "", "SIGFPE"),
    promise("exception", &["breakpoint"], SIGTRAP, "", "SIGTRAP"),
    promise("exception", &["undefined"], SIGILL, "", "SIGILL"),
    promise("exception", &["read"], SIGSEGV, "", "0x10000000000"),
    promise("exception", &["write"], SIGSEGV, "", "0x10000000000"),
    promise("exception", &["execute"], SIGSEGV, "", "0x10000000000"),
    promise("exception", &["protection"], SIGSEGV, "", "SIGSEGV"),
    promise("exception", &["stack"], SIGSEGV, "", "SIGSEGV"),
    promise("exception", &["triple"], SIGSEGV, "", "was ended"),
    promise("exception", &["double"], SIGSEGV, "", "SIGSEGV"),
    promise("exception", &["halt"], SIGSEGV, "", "was ended"),
    jail(&[], "getpid"),
    jail(&["2"], "open"),
    jail(&["9"], "mmap"),
    jail(&["10"], "mprotect"),
    jail(&["13"], "rt_sigaction"),
    jail(&["41"], "socket"),
    jail(&["56"], "clone"),
    jail(&["59"], "execve"),
    jail(&["101"], "ptrace"),
    jail(&["233"], "epoll_ctl"),
    jail(&["425"], "io_uring_setup"),
    // The x32 bit: another table of system calls, which must not be a way around the first.
    jail(&["1073741863"], "1073741863"),
];

impl Promise {
    /// The guest and its arguments.
    pub fn name(&self) -> String {
        let words: Vec<_> = [self.guest].iter().chain(self.arguments).copied().collect();
        words.join(" ")
    }

    /// Fails unless the guest ended and spoke as promised.
    pub fn check(&self, ended: &Ended) -> Result<(), Failed> {
        ended.expect_status(self.status)?.expect_stdout(self.says)?;
        let failed = ended.stdout.contains("FAILURE");
        let verdict = if failed {
            Err("the guest survived what must end it")
        } else {
            Ok(())
        };
        Ok(verdict?)
    }
}

pub fn trials(images: &'static Images) -> Vec<Trial> {
    let mut trials = disk_trials(images);
    for promise in PROMISES {
        trials.push(Trial::test(
            format!("guest::spt::{}", promise.name()),
            || tender(images, promise, "spt"),
        ));
        if !promise.jail {
            trials.push(Trial::test(
                format!("guest::process::{}", promise.name()),
                || tender(images, promise, "process"),
            ));
        }
        trials.push(Trial::test(
            format!("guest::monitor::{}", promise.name()),
            || monitor(images, promise),
        ));
    }
    trials.push(Trial::test("guest::process has no jail", || {
        let promise = PROMISES.iter().find(|p| p.jail).ok_or("no such promise")?;
        let ended = run(&mut command(images, promise, "process"))?;
        ended.expect_stdout("FAILURE").map(|_| ())
    }));
    trials
}

/// Size of a disk in bytes, and of its sectors.
const DISK_BYTES: u64 = 1 << 20;
pub const SECTOR_BYTES: [u32; 3] = [512, 1024, 4096];

fn disk_trials(images: &'static Images) -> Vec<Trial> {
    let mut trials = Vec::new();
    for host in ["spt", "process"] {
        for sector in SECTOR_BYTES {
            let name = format!("guest::{host}::block, sectors of {sector}");
            trials.push(Trial::test(name, move || whole_disk(images, host, sector)));
        }
    }
    for reach in ["past", "half", "double"] {
        let name = format!("guest::spt::block_raw {reach}");
        trials.push(Trial::test(name, move || {
            let ended = disk(images, "spt", 512, &["block_raw", reach])?;
            let survived = ended.stdout.contains("FAILURE");
            ended.expect_status(SIGSYS)?;
            (!survived)
                .then_some(())
                .ok_or("the jail let it through".into())
        }));
    }
    trials
}

/// A guest writes and reads all of its disk.
pub fn whole_disk(images: &Images, host: &str, sector: u32) -> Result<(), Failed> {
    let ended = disk(images, host, sector, &["block"])?;
    let geometry = format!("capacity {DISK_BYTES} block size {sector}");
    ended.expect_status(0)?.expect_stdout("SUCCESS")?;
    ended.expect_stdout(&geometry).map(|_| ())
}

/// Runs a guest with a disk of zeros.
pub fn disk(images: &Images, host: &str, sector: u32, words: &[&str]) -> Result<Ended, Failed> {
    let file = TemporaryFile::new("disk", DISK_BYTES)?;
    let mut command = Command::new(images.program("outboard-tender"));
    command
        .args(["--mem=16", &format!("--host={host}")])
        .arg(format!("--block-sector-size:disk={sector}"))
        .arg(format!("--block:disk={}", file.path.display()))
        .arg(images.guest(words[0]))
        .args(&words[1..]);
    run(&mut command)
}

fn command(images: &Images, promise: &Promise, host: &str) -> Command {
    let mut command = Command::new(images.program("outboard-tender"));
    command
        .args([&format!("--host={host}"), "--mem=16", "--"])
        .arg(images.guest(promise.guest))
        .args(promise.arguments);
    command
}

/// Starts a guest on this host, without the monitor.
pub fn tender(images: &Images, promise: &Promise, host: &str) -> Result<(), Failed> {
    promise.check(&run(&mut command(images, promise, host))?)
}

fn monitor(images: &Images, promise: &Promise) -> Result<(), Failed> {
    let mut command = Command::new(images.program("outboard"));
    command
        .args(["run", "--mem=16", "--"])
        .arg(images.guest(promise.guest))
        .args(promise.arguments);
    let ended = run(&mut command)?;
    promise.check(&ended)?;
    ended.expect_stderr(promise.report).map(|_| ())
}
