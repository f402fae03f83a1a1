//! What is left of the kernel once an image runs: what the tender of one may still ask, and what
//! devices use.

use crate::jail::{DevicesHeld, common, confine, rule};
use std::io;
use std::os::fd::RawFd;
use tender::hvt::{self, TenderGrants};
use tender::jail::{Error, Rule};

/// What this process may still use, by number.
#[derive(Clone, Debug)]
pub struct Held {
    /// What a tender has.
    pub grants: TenderGrants,
    /// The machine: no call takes it, but it knows of the events of queues.
    pub vm: RawFd,
    /// Whether a thread waits for signals.
    pub signals: bool,
    /// The devices.
    pub devices: DevicesHeld,
}

/// Takes everything from this process but what serving the guest takes, and has `start` start its
/// threads.
///
/// # Errors
/// The first step that fails.
pub fn close(held: &Held, start: impl FnOnce() -> io::Result<()>) -> Result<(), Error> {
    let mut keep = held.grants.descriptors();
    keep.push(held.vm);
    keep.extend(held.devices.descriptors());
    confine(&rules(held), keep, start)
}

/// All that it may ask.
fn rules(held: &Held) -> Vec<Rule> {
    let mut rules = common();
    // Where a call is allowed whatever its arguments, a rule that names some would forbid others.
    let is_free = |rule: &Rule| {
        let mut all = rules.iter().filter(|common| common.arguments.is_empty());
        all.any(|common| common.syscall == rule.syscall)
    };
    let tenders = hvt::rules(&held.grants).into_iter();
    let tenders: Vec<Rule> = tenders.filter(|rule| !is_free(rule)).collect();
    rules.extend(tenders);
    rules.extend(held.devices.rules());
    if held.signals {
        let reason = "wait for the signal that ends the guest";
        rules.push(rule(libc::SYS_rt_sigtimedwait, &[], reason));
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;
    use tender::jail::{self, Argument, Grants};

    fn held(signals: bool) -> Held {
        let guest = Grants {
            bells: Vec::new(),
            epoll_fd: 20,
            quiet_fd: None,
            timer_fd: 21,
            event_fd: None,
            held: Vec::new(),
            sockets: Vec::new(),
            devices: Vec::new(),
            core_file: None,
        };
        let grants = TenderGrants {
            guest,
            vcpu: 22,
            core_file: None,
            rings: None,
            statistics: None,
            stop: None,
        };
        Held {
            grants,
            vm: 23,
            signals,
            devices: DevicesHeld {
                asked: vec![24],
                children: vec![25],
                ..DevicesHeld::default()
            },
        }
    }

    fn numbers(rules: &[Rule], syscall: i64) -> usize {
        let number = syscall.cast_unsigned();
        rules.iter().filter(|rule| rule.syscall == number).count()
    }

    /// A rule without arguments says nothing beside one that has some.
    #[test]
    fn what_is_free_is_said_once() {
        let rules = rules(&held(true));
        jail::compile(&rules, false).unwrap();
        for rule in rules.iter().filter(|rule| rule.arguments.is_empty()) {
            assert_eq!(numbers(&rules, rule.syscall.cast_signed()), 1, "{rule:?}");
        }
    }

    #[test]
    fn the_processor_is_run_and_the_machine_left_alone() {
        let rules = rules(&held(false));
        let ioctl = libc::SYS_ioctl.cast_unsigned();
        for rule in rules.iter().filter(|rule| rule.syscall == ioctl) {
            assert!(rule.arguments.contains(&Argument::Int(0, 22)), "{rule:?}");
        }
        for syscall in [
            libc::SYS_rt_sigtimedwait,
            libc::SYS_openat,
            libc::SYS_execve,
            libc::SYS_socket,
            libc::SYS_clone,
            libc::SYS_sendmsg,
        ] {
            assert_eq!(numbers(&rules, syscall), 0);
        }
    }
}
