//! KVM: a guest is run, for on some clouds it is there and of no use.

use super::finding::{Finding, Verdict};
use super::machine::{self, Machine, Vendor};
use super::probe::Probe;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs;
use tender::hvt::device::{self, DEVICE};
use tender::hvt::probe::{self, Ability};

/// How a guest fared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Guest {
    /// It did what it should, SSE included.
    Ran,
    /// Up to its first instruction of SSE.
    WithoutSse,
    /// It stopped in another way.
    Stopped(String),
    /// There was none.
    Refused(String),
}

/// Runs a guest, in a process for just that.
pub fn try_guest() -> Guest {
    match probe::run() {
        Ok(Ability::Usable) => Guest::Ran,
        Ok(Ability::Interpreter) => Guest::WithoutSse,
        Ok(Ability::Broken(how)) => Guest::Stopped(how),
        Err(error) => Guest::Refused(error.to_string()),
    }
}

/// `/dev/kvm`.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Its group, if the group may open it and has a name.
    group: Option<String>,
    /// The kernel has KVM, whether or not there is a device file.
    driver: bool,
    /// Whether this user can open it.
    opened: Result<(), Errno>,
    /// How a guest fared; the error is that of asking.
    guest: Result<Guest, String>,
}

impl Facts {
    /// Those of this machine.
    pub fn observe() -> Self {
        let opened = fs::OpenOptions::new().read(true).write(true).open(DEVICE);
        let opened = opened
            .map(drop)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO));
        Self {
            group: device::group(),
            driver: machine::has_driver("kvm"),
            opened,
            guest: match opened {
                Ok(()) => Probe::Kvm.facts(),
                Err(error) => Ok(Guest::Refused(error.to_string())),
            },
        }
    }
}

/// What KVM is worth.
pub fn judge(facts: &Facts, machine: &Machine) -> Finding {
    let finding = |verdict, state, evidence: String| {
        Finding::new("KVM", verdict, state, evidence)
            .good_for("guests in virtual machines (hvt); spt needs none of it")
    };
    match facts.opened {
        Ok(()) => {}
        Err(Errno::ACCESS | Errno::PERM) => return forbidden(facts, machine, finding),
        Err(Errno::NOENT) if facts.driver => {
            let evidence = "a driver without a device file; a container needs --device=/dev/kvm";
            return finding(Verdict::No, "absent", evidence.into())
                .mend(format!("sudo mknod -m 0660 {DEVICE} c 10 232"));
        }
        Err(error) => return absent(error, machine, finding),
    }
    match &facts.guest {
        Ok(Guest::Ran) => {
            let evidence = "usable: a guest ran, and computed with SSE".into();
            finding(Verdict::Ok, "usable", evidence)
        }
        Ok(Guest::WithoutSse) => {
            let evidence = "an interpreter: a guest ran up to its first instruction of SSE, where \
                            KVM gave up; test hvt in the lab (cargo xtask lab)";
            finding(Verdict::No, "interpreter", evidence.into())
        }
        Ok(Guest::Stopped(how)) => finding(
            Verdict::No,
            "broken",
            format!("a guest stopped at once: {how}"),
        ),
        Ok(Guest::Refused(why)) => finding(Verdict::No, "broken", why.clone()),
        Err(why) => finding(Verdict::No, "broken", format!("a guest did not end: {why}")),
    }
}

/// Nobody can tell whether guests would run without opening it. But where the processor shows no
/// virtualisation, those of clouds that open are interpreters.
fn forbidden(
    facts: &Facts,
    machine: &Machine,
    finding: impl Fn(Verdict, &'static str, String) -> Finding,
) -> Finding {
    let (so_what, remedy) = match machine.virtualisation {
        true => (
            "the processor can run virtual machines; whether guests run is known once it opens",
            Some(device::remedy(facts.group.as_deref())),
        ),
        false => (
            "the processor shows neither vmx nor svm, so guests would hardly run if it opened; \
             `sudo outboard doctor` tries it",
            None,
        ),
    };
    let evidence = format!("{DEVICE}: permission denied; {so_what}");
    finding(Verdict::No, "forbidden", evidence).mend(remedy)
}

fn absent(
    error: Errno,
    machine: &Machine,
    finding: impl Fn(Verdict, &'static str, String) -> Finding,
) -> Finding {
    let module = match machine.vendor {
        Vendor::Intel => "kvm_intel",
        Vendor::Amd => "kvm_amd",
        Vendor::Other => "kvm",
    };
    let (why, remedy) = match (machine.virtualisation, machine.virtual_machine) {
        (true, _) => match machine.load(module) {
            Some(command) => ("its module is not loaded", Some(command)),
            None => ("this kernel needs CONFIG_KVM, and loads no modules", None),
        },
        (false, true) => (
            "the hypervisor of this virtual machine offers no nested virtualisation",
            None,
        ),
        (false, false) => (
            "the processor says nothing of virtualisation: switch it on in the firmware",
            None,
        ),
    };
    finding(Verdict::No, "absent", format!("{DEVICE}: {error}; {why}")).mend(remedy)
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::{cloud, server};
    use super::*;

    fn opened(guest: Result<Guest, String>) -> Facts {
        Facts {
            group: None,
            driver: true,
            opened: Ok(()),
            guest,
        }
    }

    fn closed(error: Errno, group: Option<&str>) -> Facts {
        Facts {
            group: group.map(str::to_owned),
            driver: false,
            opened: Err(error),
            guest: Ok(Guest::Refused(error.to_string())),
        }
    }

    #[test]
    fn only_a_guest_tells() {
        let judge = |guest| judge(&opened(guest), &server());
        let states = [
            (Ok(Guest::Ran), Verdict::Ok, "usable"),
            (Ok(Guest::WithoutSse), Verdict::No, "interpreter"),
            (Ok(Guest::Stopped("Shutdown".into())), Verdict::No, "broken"),
            (Ok(Guest::Refused("no vCPU".into())), Verdict::No, "broken"),
            (Err("no answer within 10 s".into()), Verdict::No, "broken"),
        ];
        for (guest, verdict, state) in states {
            let finding = judge(guest);
            assert_eq!((finding.verdict, finding.state), (verdict, state));
        }
    }

    #[test]
    fn a_group_is_joined_where_there_is_one() {
        let judge = |group| judge(&closed(Errno::ACCESS, group), &server());
        let kvm = judge(Some("kvm"));
        assert_eq!(kvm.state, "forbidden");
        assert!(kvm.evidence.contains("can run virtual machines"));
        assert!(
            kvm.remedy
                .unwrap()
                .starts_with("sudo usermod -aG kvm $USER")
        );
        assert_eq!(judge(None).remedy.unwrap(), "sudo chown $USER /dev/kvm");
    }

    #[test]
    fn nobody_is_sent_for_a_right_that_is_worth_nothing() {
        let finding = super::judge(&closed(Errno::ACCESS, Some("kvm")), &cloud());
        assert_eq!((finding.state, finding.remedy), ("forbidden", None));
        assert_eq!(
            finding.evidence,
            "/dev/kvm: permission denied; the processor shows neither vmx nor svm, so guests \
             would hardly run if it opened; `sudo outboard doctor` tries it"
        );
    }

    #[test]
    fn what_is_absent_is_loaded_or_switched_on() {
        let judge = |machine: &Machine| judge(&closed(Errno::NOENT, None), machine);
        assert_eq!(judge(&server()).remedy.unwrap(), "sudo modprobe kvm_intel");
        let amd = Machine {
            vendor: Vendor::Amd,
            ..server()
        };
        assert_eq!(judge(&amd).remedy.unwrap(), "sudo modprobe kvm_amd");
        let cloud = judge(&cloud());
        assert_eq!(cloud.remedy, None);
        assert!(cloud.evidence.contains("nested"));
        let firmware = Machine {
            virtualisation: false,
            ..server()
        };
        assert!(judge(&firmware).evidence.contains("firmware"));
        let built = Machine {
            modules: false,
            ..server()
        };
        assert!(judge(&built).evidence.contains("CONFIG_KVM"));
        let container = Facts {
            driver: true,
            ..closed(Errno::NOENT, None)
        };
        let container = super::judge(&container, &server());
        assert!(container.remedy.unwrap().starts_with("sudo mknod"));
    }
}
