//! Huge pages, of 2 MiB: `hugetlbpage.rst` of the kernel's documentation.

use super::finding::{Finding, Verdict};
use std::fs;

const FOLDER: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";
/// Pages to reserve where there are none: a guest of 128 MiB.
const ADVICE_PAGES: u64 = 64;

/// How many pages there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    total: u64,
    free: u64,
    /// Of the free ones, promised to somebody.
    reserved: u64,
}

/// The pages of this machine; `None` if its kernel has none of this size.
pub fn observe() -> Option<Pages> {
    let read = |file| {
        let text = fs::read_to_string(format!("{FOLDER}/{file}")).ok()?;
        text.trim().parse().ok()
    };
    Some(Pages {
        total: read("nr_hugepages")?,
        free: read("free_hugepages")?,
        reserved: read("resv_hugepages")?,
    })
}

/// Whether a guest can have some.
pub fn judge(pages: Option<Pages>) -> Finding {
    let finding = |verdict, state, evidence: String| {
        Finding::new("huge pages", verdict, state, evidence)
            .good_for("memory of virtual machines with fewer misses (--hugepages)")
    };
    let Some(pages) = pages else {
        return finding(Verdict::No, "absent", "the kernel has none of 2 MiB".into());
    };
    let Pages {
        total,
        free,
        reserved,
    } = pages;
    let usable = free.saturating_sub(reserved);
    let evidence = format!("of 2 MiB: {total} in all, {free} free, {reserved} of these reserved");
    let remedy = format!(
        "sudo sysctl vm.nr_hugepages={}",
        total.saturating_add(ADVICE_PAGES)
    );
    match usable {
        0 if total == 0 => finding(Verdict::No, "none", evidence).mend(remedy),
        0 => finding(Verdict::Warn, "used", evidence).mend(remedy),
        _ => finding(Verdict::Ok, "usable", evidence),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_promised_to_others_does_not_count() {
        let judge = |total, free, reserved| {
            super::judge(Some(Pages {
                total,
                free,
                reserved,
            }))
        };
        assert_eq!(judge(8, 8, 7).verdict, Verdict::Ok);
        let used = judge(8, 8, 8);
        assert_eq!((used.verdict, used.state), (Verdict::Warn, "used"));
        assert_eq!(used.remedy.unwrap(), "sudo sysctl vm.nr_hugepages=72");
        let none = judge(0, 0, 0);
        assert_eq!((none.verdict, none.state), (Verdict::No, "none"));
        assert_eq!(super::judge(None).state, "absent");
    }
}
