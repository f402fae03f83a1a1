//! Builds what the tests run: the programs of the root workspace, guests and appliances.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the built things are.
#[derive(Default)]
pub struct Images {
    guests: PathBuf,
    programs: PathBuf,
    appliances: PathBuf,
    /// The firewall's image for spt.
    pub firewall: PathBuf,
    /// The same with two Intel 82599 as its ports.
    pub firewall_on_nics: PathBuf,
    /// The reflector's image for spt, on an Intel 82599.
    pub reflector: PathBuf,
    /// The image of dns for spt.
    pub dns: PathBuf,
    /// The image of echo for spt.
    pub echo: PathBuf,
    /// The image of iperf3 for spt.
    pub iperf3: PathBuf,
    /// The image of http for spt.
    pub http: PathBuf,
    /// The same with a disk.
    pub http_disk: PathBuf,
}

impl Images {
    fn new(guests: PathBuf, programs: PathBuf, appliances: PathBuf) -> Self {
        Self {
            firewall: appliances.join("firewall.spt"),
            firewall_on_nics: appliances.join("firewall-82599.spt"),
            reflector: appliances.join("reflector-82599.spt"),
            dns: appliances.join("dns.spt"),
            echo: appliances.join("echo.spt"),
            iperf3: appliances.join("iperf3.spt"),
            http: appliances.join("http.spt"),
            http_disk: appliances.join("http-disk.spt"),
            guests,
            programs,
            appliances,
        }
    }

    /// The image of a guest of `tests/guests/src/bin`.
    pub fn guest(&self, name: &str) -> PathBuf {
        self.guests.join(name)
    }

    /// The image of an appliance for spt, of its manifest or of a variant: `-nic`, `-sockets`,
    /// `-smoltcp`.
    pub fn appliance(&self, name: &str, variant: &str) -> PathBuf {
        self.appliances.join(format!("{name}{variant}.spt"))
    }

    /// Whether they were built by somebody else: see [`PREBUILT`].
    pub fn are_prebuilt(&self) -> bool {
        std::env::var_os(PREBUILT).is_some()
    }

    /// A program of the root workspace: `outboard` or `outboard-tender`.
    pub fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }
}

/// A variable of the environment: the folder with everything that the tests run, if they are not to
/// build it. So these tests run where there is no compiler.
const PREBUILT: &str = "OUTBOARD_PREBUILT";
/// The same of the images of appliances alone, which whoever runs these tests has built.
const APPLIANCES: &str = "OUTBOARD_APPLIANCES";

/// The repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap_or(Path::new("/"))
}

/// Images of appliances that are built: in each line, what `outboard build` is told.
const LIST: &str = include_str!("../../appliances.txt");

/// Quicker than what images have otherwise, as in `xtask/src/stages.rs`.
const PROFILE: [(&str, &str); 2] = [
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
];

/// Flags of what is built for images, as `outboard build` has them: frame pointers tell who called
/// when one fails. With the same flags, guests share with images what they depend on.
const FLAGS: (&str, &str) = ("CARGO_ENCODED_RUSTFLAGS", "-Cforce-frame-pointers=yes");

/// Builds everything, in release mode; ends the run if that fails.
pub fn all() -> Images {
    if let Some(folder) = std::env::var_os(PREBUILT).map(PathBuf::from) {
        return Images::new(folder.clone(), folder.clone(), folder);
    }
    let programs = ["build", "--release", "-p", "outboard", "-p", "tender"];
    cargo(root(), &programs, &[]);
    let guests = root().join("tests/guests");
    cargo(&guests, &["build", "--release"], &[FLAGS]);
    let shared = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = |folder: &Path| shared.clone().unwrap_or(folder.join("target"));
    let release = |folder: &Path| target(folder).join("x86_64-unknown-linux-gnu/release");
    let programs = release(root());
    let appliances = match std::env::var_os(APPLIANCES) {
        Some(folder) => folder.into(),
        None => build_appliances(
            &programs.join("outboard"),
            target(root()).join("appliances"),
        ),
    };
    Images::new(release(&guests), programs, appliances)
}

fn build_appliances(outboard: &Path, out: PathBuf) -> PathBuf {
    for words in LIST.lines() {
        let mut build = Command::new(outboard);
        build.arg("build").args(words.split(' ')).envs(PROFILE);
        let built = build.arg("--out").arg(&out).current_dir(root()).status();
        let built = built.is_ok_and(|status| status.success());
        assert!(built, "outboard build {words} failed");
    }
    out
}

fn cargo(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) {
    let status = Command::new(env!("CARGO"))
        .args(arguments)
        .envs(variables.iter().copied())
        .current_dir(folder)
        .status();
    let done = status.is_ok_and(|status| status.success());
    assert!(
        done,
        "cargo {} failed in {}",
        arguments.join(" "),
        folder.display()
    );
}
