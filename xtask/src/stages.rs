//! What `cargo xtask test` does, as data, and how long it takes.

use crate::process;
use std::path::Path;
use std::process::Command;

/// What tests run is built more quickly than what is packaged, shown and timed: they do not ask how
/// fast it is. Programs and images, of which tests build some dozens, inherit this. So do the tests
/// themselves: without tables of lines, which are a third of what it takes to compile them, a
/// backtrace names functions alone, and a panic still says its line.
pub const PROFILE: [(&str, &str); 3] = [
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
    ("CARGO_PROFILE_DEV_DEBUG", "none"),
];

/// One command of a stage.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Where it runs, from the root of the repository.
    pub folder: &'static str,
    /// Arguments of cargo.
    pub cargo: &'static [&'static str],
    /// A variable of the environment.
    pub variable: Option<(&'static str, &'static str)>,
}

impl Step {
    /// The command, in the repository `root`.
    pub fn command(&self, root: &Path) -> Command {
        let mut command = Command::new(process::cargo());
        command.args(self.cargo).current_dir(root.join(self.folder));
        command.envs(self.variable);
        command
    }
}

/// What a stage consists of.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// The rules of `tidy`.
    Tidy,
    /// Commands that succeed or fail; each counts as one check.
    Checks(&'static [Step]),
    /// Commands that print `test result:` lines; their tests count.
    Runners(&'static [Step]),
    /// As [`Checks`](Self::Checks), and the images of appliances, which count as one.
    Build(&'static [Step]),
    /// The end-to-end tests of virtual machines, in the lab; its tests count.
    Lab,
    /// Linux's own drivers on software devices, where their QEMU is built; each trial counts.
    Linux,
    /// The test of KVM with ioregionfd, in the lab, where that is built; each of its parts counts.
    Ioregionfd,
    /// TCP judged by packetdrill's scripts; each that is to pass counts as one check.
    Packetdrill,
    /// Instructions for each frame, beside those of before; each case counts as one check.
    Instructions,
    /// Packages of what was built; each property of them counts as one check.
    Package,
    /// Tests of the memory that drivers and devices share, under Miri; its tests count.
    Miri,
}

/// A stage.
#[derive(Clone, Copy, Debug)]
pub struct Stage {
    /// Name, as on the command line of `--only`.
    pub name: &'static str,
    /// What it is about, for whoever reads the list of stages.
    pub what: &'static str,
    /// Estimate for two cores with nothing built, in seconds.
    pub seconds: u64,
    /// Whether `--quick` keeps it.
    pub quick: bool,
    /// How it is done.
    pub work: Work,
}

const fn step(folder: &'static str, cargo: &'static [&'static str]) -> Step {
    Step {
        folder,
        cargo,
        variable: None,
    }
}

/// Runs the end-to-end tests. Cargo chooses features of libraries by the packages that it is asked
/// for: with all of them, what the unit tests were built with is there already.
pub const END_TO_END: [&str; 4] = ["test", "--workspace", "--test", "e2e"];

/// Builds all guests, with the flags of `outboard build`, so that they share with images what they
/// depend on.
pub const GUESTS: Step = Step {
    folder: "tests/guests",
    cargo: &["build", "--release"],
    variable: Some(("CARGO_ENCODED_RUSTFLAGS", "-Cforce-frame-pointers=yes")),
};

/// The stages, in the order in which they run.
pub const STAGES: &[Stage] = &[
    Stage {
        name: "tidy",
        what: "what neither compiler nor clippy checks",
        seconds: 1,
        quick: true,
        work: Work::Tidy,
    },
    Stage {
        name: "format",
        what: "cargo fmt --check",
        seconds: 9,
        quick: true,
        work: Work::Checks(&[
            step(".", &["fmt", "--all", "--check"]),
            step("unikernels", &["fmt", "--check", "--all"]),
            step("tests/guests", &["fmt", "--check"]),
            step("tests/packetdrill", &["fmt", "--check"]),
            step("fuzz", &["fmt", "--check"]),
            step("xtask", &["fmt", "--check"]),
        ]),
    },
    Stage {
        name: "xtask",
        what: "tests of this program",
        seconds: 5,
        quick: true,
        work: Work::Runners(&[step("xtask", &["test"])]),
    },
    Stage {
        name: "unit",
        what: "unit, property and documentation tests",
        seconds: 200,
        quick: true,
        work: Work::Runners(&[step(".", &["test", "--no-fail-fast"])]),
    },
    Stage {
        name: "build",
        what: "programs, images and guests",
        seconds: 375,
        quick: true,
        work: Work::Build(&[
            step(
                ".",
                &[
                    "build",
                    "--release",
                    "-p",
                    "outboard",
                    "-p",
                    "tender",
                    "-p",
                    "vmm",
                ],
            ),
            GUESTS,
        ]),
    },
    Stage {
        name: "end-to-end",
        what: "images on ports in memory, and under tenders on real taps",
        seconds: 295,
        quick: true,
        work: Work::Runners(&[
            step("unikernels", &["test", "--lib"]),
            step(".", &END_TO_END),
        ]),
    },
    Stage {
        name: "package",
        what: "packages of what was built: equal bytes, and what they install runs",
        seconds: 101,
        quick: false,
        work: Work::Package,
    },
    Stage {
        name: "lab",
        what: "virtual machines and PCI devices, inside of a machine that has both",
        seconds: 501,
        quick: false,
        work: Work::Lab,
    },
    Stage {
        name: "linux",
        what: "Linux's own drivers on software devices, where QEMU is built for that",
        seconds: 200,
        quick: false,
        work: Work::Linux,
    },
    Stage {
        name: "ioregionfd",
        what: "KVM with ioregionfd in the lab, where that is built",
        seconds: 10,
        quick: false,
        work: Work::Ioregionfd,
    },
    Stage {
        name: "packetdrill",
        what: "TCP judged by packetdrill's scripts, where PACKETDRILL_DIR names them",
        seconds: 40,
        quick: false,
        work: Work::Packetdrill,
    },
    Stage {
        name: "instructions",
        what: "what drivers, verdicts and the model cost, beside what they did",
        seconds: 170,
        quick: false,
        work: Work::Instructions,
    },
    Stage {
        name: "clippy",
        what: "lints, as errors",
        seconds: 150,
        quick: false,
        work: Work::Checks(&[
            step(
                ".",
                &[
                    "clippy",
                    "--workspace",
                    "--all-targets",
                    "--",
                    "-D",
                    "warnings",
                ],
            ),
            // What no usual image has. Of all members alone, what they depend on is there already.
            step(
                ".",
                &[
                    "clippy",
                    "--workspace",
                    "--all-targets",
                    "--features",
                    "service/smoltcp",
                    "--",
                    "-D",
                    "warnings",
                ],
            ),
            step(
                "unikernels",
                &["clippy", "--release", "--", "-D", "warnings"],
            ),
            step(
                "tests/guests",
                &["clippy", "--release", "--", "-D", "warnings"],
            ),
            Step {
                folder: "tests/packetdrill",
                cargo: &["clippy", "--release", "--", "-D", "warnings"],
                // What the repository's static programs ask for, a library cannot have.
                variable: Some(("RUSTFLAGS", "-C target-feature=-crt-static")),
            },
            step(
                "xtask",
                &["clippy", "--all-targets", "--", "-D", "warnings"],
            ),
        ]),
    },
    Stage {
        name: "documentation",
        what: "cargo doc, warnings as errors",
        seconds: 43,
        quick: false,
        work: Work::Checks(&[Step {
            folder: ".",
            cargo: &["doc", "--workspace", "--no-deps"],
            variable: Some(("RUSTDOCFLAGS", "-D warnings")),
        }]),
    },
    Stage {
        name: "loom",
        what: "threads that share memory, in all orders",
        seconds: 53,
        quick: false,
        work: Work::Runners(&[Step {
            folder: ".",
            cargo: &[
                "test",
                "--release",
                "-p",
                "abi",
                "--lib",
                "orders",
                "--target-dir",
                "target/loom",
            ],
            variable: Some(("RUSTFLAGS", "--cfg loom")),
        }]),
    },
    Stage {
        name: "miri",
        what: "what drivers and devices share, without undefined behaviour",
        seconds: 30,
        quick: false,
        work: Work::Miri,
    },
    Stage {
        name: "fuzz",
        what: "what reads hostile bytes, fed with seeds and mutations of them",
        seconds: 85,
        quick: false,
        work: Work::Runners(&[step(
            ".",
            &[
                "test",
                "--no-fail-fast",
                "--workspace",
                "--test",
                "slice",
                "--test",
                "complete",
            ],
        )]),
    },
];

/// Which stages run: all, the quick ones, or those named.
///
/// # Errors
/// One line, if a name is no stage's.
pub fn select(quick: bool, only: &[String]) -> Result<Vec<Stage>, String> {
    if let Some(name) = only
        .iter()
        .find(|name| STAGES.iter().all(|stage| stage.name != **name))
    {
        let names: Vec<&str> = STAGES.iter().map(|stage| stage.name).collect();
        return Err(format!(
            "--only={}: no such stage; choose of {}",
            name,
            names.join(", ")
        ));
    }
    Ok(STAGES
        .iter()
        .filter(|stage| only.is_empty() || only.iter().any(|name| name == stage.name))
        .filter(|stage| !quick || stage.quick)
        .copied()
        .collect())
}

/// Seconds that are left before stage `next`, given those that passed: the estimates, scaled by
/// how this machine has done so far, within reason.
pub fn remaining(stages: &[Stage], next: usize, elapsed: u64) -> u64 {
    /// Below this many estimated seconds, the past says nothing about the future.
    const MEANINGFUL: u64 = 30;
    let sum = |stages: &[Stage]| stages.iter().map(|stage| stage.seconds).sum::<u64>();
    let (done, left) = (sum(&stages[..next]), sum(&stages[next..]));
    if done < MEANINGFUL {
        return left;
    }
    (left * elapsed / done).min(4 * left).max(left / 8)
}

/// Minutes and seconds.
pub fn clock(seconds: u64) -> String {
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        for (i, stage) in STAGES.iter().enumerate() {
            assert!(STAGES[..i].iter().all(|earlier| earlier.name != stage.name));
        }
    }

    /// Without those that CI skips, as what they need is not built there.
    #[test]
    fn what_ci_runs_fits_into_35_minutes() {
        let skipped = ["linux", "ioregionfd", "packetdrill"];
        let runs = STAGES.iter().filter(|stage| !skipped.contains(&stage.name));
        assert!(runs.map(|stage| stage.seconds).sum::<u64>() < 35 * 60);
    }

    #[test]
    fn stages_are_selected() {
        assert_eq!(select(false, &[]).unwrap().len(), STAGES.len());
        assert!(select(true, &[]).unwrap().iter().all(|stage| stage.quick));
        assert_eq!(select(false, &["fuzz".into()]).unwrap()[0].name, "fuzz");
        assert!(select(false, &["no".into()])
            .unwrap_err()
            .contains("tidy, format"));
    }

    #[test]
    fn the_estimate_follows_the_machine() {
        let all = remaining(STAGES, 0, 0);
        assert_eq!(remaining(STAGES, 1, 50), all - STAGES[0].seconds);
        let half = STAGES.len() - 2;
        let left = remaining(STAGES, half, 0);
        assert!(left > 0, "never none while stages are left");
        assert!(remaining(STAGES, half, 10_000) > 2 * left);
        assert_eq!(remaining(STAGES, STAGES.len(), 500), 0);
    }

    #[test]
    fn clocks() {
        assert_eq!((clock(5).as_str(), clock(600).as_str()), ("0:05", "10:00"));
    }
}
