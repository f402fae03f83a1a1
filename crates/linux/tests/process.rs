//! Children that are copies of this process, which therefore has one thread and no harness.

use linux::process::{fork, fork_apart};
use linux::signal::{Held, is_ignored};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, getpgrp, getpid, getppid, kill_process};
use std::io::{Read, Write, pipe};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, exit};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Far more than any of this takes; a child that sleeps so long has not been ended.
const PATIENCE: Duration = Duration::from_secs(10);

const TESTS: [(&str, fn()); 9] = [
    ("a_status_is_seen", a_status_is_seen),
    ("a_panic_ends_the_child", a_panic_ends_the_child),
    (
        "a_signal_before_the_fork_is_passed_on",
        a_signal_before_the_fork_is_passed_on,
    ),
    (
        "a_child_is_attended_until_something_happens",
        a_child_is_attended_until_something_happens,
    ),
    (
        "no_handler_and_no_mask_is_inherited",
        no_handler_and_no_mask_is_inherited,
    ),
    (IGNORED, an_ignored_end_of_a_child_is_seen),
    ("a_child_dies_with_its_parent", a_child_dies_with_its_parent),
    (
        "who_stands_apart_outlives_its_parent",
        who_stands_apart_outlives_its_parent,
    ),
    (
        "a_signal_that_waits_is_seen_and_taken",
        a_signal_that_waits_is_seen_and_taken,
    ),
];
/// Of the GNU coreutils, 8.31 or later.
const ENV: &str = "env";
const IGNORED: &str = "an_ignored_end_of_a_child_is_seen";

/// Runs the test that is named, or each in a process of its own, for dispositions and masks are the
/// process's.
fn main() {
    let chosen = std::env::args().nth(1);
    if let Some((_, test)) = TESTS
        .iter()
        .find(|(name, _)| Some(*name) == chosen.as_deref())
    {
        return test();
    }
    let failed = TESTS.iter().filter(|(name, _)| {
        let held = this(Command::new(std::env::current_exe().unwrap()).arg(name));
        println!("test {name} ... {}", if held { "ok" } else { "FAILED" });
        !held
    });
    let failed = failed.count();
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    let passed = TESTS.len() - failed;
    println!("test result: {verdict}. {passed} passed; {failed} failed; 0 ignored");
    exit(i32::from(failed > 0));
}

fn this(command: &mut Command) -> bool {
    command.status().unwrap().success()
}

fn hold() -> Held {
    Held::new([Signal::USR1]).unwrap()
}

fn end_of(child: impl FnOnce() -> i32) -> ExitStatus {
    let held = hold();
    fork(c"child", &held, child).unwrap().attend(&held).unwrap()
}

fn sleeps() -> i32 {
    sleep(PATIENCE);
    0
}

fn a_status_is_seen() {
    assert_eq!(end_of(|| 7).code(), Some(7));
}

fn a_panic_ends_the_child() {
    assert!(!end_of(|| panic!("on purpose")).success());
}

fn a_signal_before_the_fork_is_passed_on() {
    let held = hold();
    kill_process(getpid(), Signal::USR1).unwrap();
    let child = fork(c"child", &held, sleeps).unwrap();
    let status = child.attend(&held).unwrap();
    assert_eq!(status.signal(), Some(Signal::USR1.as_raw()));
}

fn a_child_is_attended_until_something_happens() {
    let held = hold();
    let (read, mut write) = pipe().unwrap();
    let child = fork(c"child", &held, sleeps).unwrap();
    write.write_all(&[1]).unwrap();
    let status = child.attend_until(&held, read.as_fd()).unwrap();
    assert!(status.is_none());
    // Nothing happens any more but that it is ended.
    let (read, _write) = pipe().unwrap();
    kill_process(getpid(), Signal::USR1).unwrap();
    let status = child.attend_until(&held, read.as_fd()).unwrap();
    let signal = status.and_then(|status| status.signal());
    assert_eq!(signal, Some(Signal::USR1.as_raw()));
}

fn no_handler_and_no_mask_is_inherited() {
    // The standard library has handlers for a stack overflow.
    assert_ne!(signals("SigCgt"), 0);
    let status = end_of(|| {
        assert_eq!((signals("SigCgt"), signals("SigBlk")), (0, 0));
        assert_eq!(
            std::fs::read_to_string("/proc/self/comm").unwrap(),
            "child\n"
        );
        0
    });
    assert!(status.success());
}

/// A set of signals in proc_pid_status(5).
fn signals(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    u64::from_str_radix(line.unwrap().trim_matches([':', '\t']), 16).unwrap()
}

fn an_ignored_end_of_a_child_is_seen() {
    if !is_ignored(Signal::CHILD) {
        // Once more, by a program that passes the disposition on.
        assert!(
            std::env::args().nth(2).is_none(),
            "{ENV} did not ignore SIGCHLD"
        );
        let mut env = Command::new(ENV);
        env.arg("--ignore-signal=CHLD")
            .arg(std::env::current_exe().unwrap());
        return assert!(this(env.args([IGNORED, "again"])));
    }
    assert_eq!(end_of(|| 3).code(), Some(3));
}

fn a_child_dies_with_its_parent() {
    let (mut read, write) = pipe().unwrap();
    let status = end_of(|| {
        // Inherits the writing end, and would keep it open.
        fork(c"grandchild", &hold(), sleeps).unwrap();
        0
    });
    assert!(status.success());
    drop(write);
    let begin = Instant::now();
    read.read_to_end(&mut Vec::new()).unwrap();
    assert!(begin.elapsed() < PATIENCE / 2);
}

fn who_stands_apart_outlives_its_parent() {
    let (mut read, write) = pipe().unwrap();
    let parent = end_of(|| {
        let parent = getpid();
        let apart = || {
            let begin = Instant::now();
            while getppid() == Some(parent) && begin.elapsed() < PATIENCE {
                sleep(Duration::from_millis(1));
            }
            let leads = getpgrp() == getpid();
            let alone = getppid() != Some(parent);
            (&write).write_all(&[u8::from(leads && alone)]).unwrap();
            0
        };
        fork_apart(c"apart", &hold(), apart).unwrap();
        0
    });
    assert!(parent.success());
    drop(write);
    let mut said = Vec::new();
    read.read_to_end(&mut said).unwrap();
    assert_eq!(said, [1]);
}

fn a_signal_that_waits_is_seen_and_taken() {
    let held = hold();
    let descriptor = held.descriptor().unwrap();
    let seen = || {
        let mut ends = [PollFd::new(&descriptor, PollFlags::IN)];
        let none = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut ends, Some(&none)).unwrap() > 0
    };
    assert!(!seen());
    assert_eq!(held.take(), None);
    kill_process(getpid(), Signal::USR1).unwrap();
    assert!(seen());
    assert_eq!(held.take(), Some(Signal::USR1));
    assert!(!seen());
}
