//! Whether guests run on `spt` and `process`: a small one is started on each.

use super::finding::{Finding, Verdict};
use super::probe::{Answer, Probe};
use abi::GUEST_BASE;
use std::fs;

/// What happened on a host.
#[derive(Clone, Debug)]
pub struct Facts {
    /// How a guest ended.
    guest: Answer,
    /// The lowest address that a process may map (`vm.mmap_min_addr`); 0 if it is not known.
    address_min: u64,
}

impl Facts {
    /// Starts a guest.
    pub fn observe(probe: Probe) -> Self {
        let setting = fs::read_to_string("/proc/sys/vm/mmap_min_addr").unwrap_or_default();
        Self {
            guest: probe.ask(),
            address_min: setting.trim().parse().unwrap_or(0),
        }
    }
}

/// What they say about the host `name`.
pub fn judge(name: &'static str, facts: &Facts) -> Finding {
    const STATUS: i32 = tender::spt::probe::STATUS;
    if let Answer::Ended { status: STATUS, .. } = facts.guest {
        let evidence = match name {
            "spt" => "a guest ran in its jail",
            _ => "a guest ran as a plain process",
        };
        return Finding::new(name, Verdict::Ok, "usable", evidence);
    }
    let evidence = format!("no guest runs: {}", facts.guest.failure());
    let remedy = (facts.address_min > GUEST_BASE)
        .then(|| format!("sudo sysctl vm.mmap_min_addr={GUEST_BASE}"));
    Finding::new(name, Verdict::No, "broken", evidence).mend(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(status: i32, address_min: u64) -> Facts {
        Facts {
            guest: Answer::Ended {
                status,
                output: String::new(),
                complaint: String::new(),
            },
            address_min,
        }
    }

    #[test]
    fn only_the_guests_own_status_is_good() {
        let good = judge("spt", &ended(tender::spt::probe::STATUS, GUEST_BASE));
        assert_eq!((good.verdict, good.state), (Verdict::Ok, "usable"));
        for status in [0, 1, 128 + 31, 255] {
            let bad = judge("spt", &ended(status, GUEST_BASE));
            assert_eq!((bad.verdict, bad.remedy), (Verdict::No, None));
            assert!(
                bad.evidence.contains(&status.to_string()),
                "{}",
                bad.evidence
            );
        }
        let late = Facts {
            guest: Answer::Late,
            address_min: 0,
        };
        assert_eq!(judge("process", &late).verdict, Verdict::No);
    }

    #[test]
    fn memory_at_low_addresses_may_be_forbidden() {
        let remedy = judge("spt", &ended(1, 1 << 20)).remedy;
        assert_eq!(remedy.unwrap(), "sudo sysctl vm.mmap_min_addr=65536");
    }
}
