//! Builds what the tests run: the programs of the root workspace, guests and appliances.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the built things are.
#[derive(Default)]
pub struct Images {
    guests: PathBuf,
    programs: PathBuf,
    /// The firewall's image for spt.
    pub firewall: PathBuf,
    /// The same with two Intel 82599 as its ports.
    pub firewall_on_nics: PathBuf,
    /// The reflector's image for spt, on an Intel 82599.
    pub reflector: PathBuf,
    /// Where the images of checkup for spt are, one for each kind of card.
    pub checkups: PathBuf,
    /// The image of dns for spt.
    pub dns: PathBuf,
    /// The image of echo for spt. Beside it, iperf3 and http lies the one that has the host's
    /// sockets: `echo-sockets.spt`. Beside echo lies one with two ports, `echo-ports.spt`, and
    /// beside it and iperf3 one on smoltcp: `echo-smoltcp.spt`.
    pub echo: PathBuf,
    /// The image of iperf3 for spt.
    pub iperf3: PathBuf,
    /// The image of http for spt.
    pub http: PathBuf,
    /// The same with a disk.
    pub http_disk: PathBuf,
}

impl Images {
    /// The image of a guest of `tests/guests/src/bin`.
    pub fn guest(&self, name: &str) -> PathBuf {
        self.guests.join(name)
    }

    /// The image of an appliance for spt, of its manifest or of a variant: `-nic`, `-sockets`.
    pub fn appliance(&self, name: &str, variant: &str) -> PathBuf {
        let file = format!("{name}{variant}.spt");
        match self.are_prebuilt() {
            true => self.programs.join(file),
            false => root().join("unikernels").join(name).join(file),
        }
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

/// The repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap_or(Path::new("/"))
}

/// Images of appliances that are built, as `outboard build` takes them.
const APPLIANCES: &[&[&str]] = &[
    &["--host=all", "unikernels/firewall"],
    &["--manifest=manifest-82599.json", "unikernels/firewall"],
    &["--manifest=manifest-nic.json", "unikernels/firewall"],
    &["--manifest=manifest-link.json", "unikernels/firewall"],
    &["--manifest=manifest-82599.json", "unikernels/reflector"],
    &[
        "--manifest=manifest-virtio-bar0.json",
        "unikernels/reflector",
    ],
    &["--manifest=manifest-82599.json", "unikernels/checkup"],
    &["unikernels/dns"],
    &["--manifest=manifest-82599.json", "unikernels/dns"],
    &["unikernels/echo"],
    &["--manifest=manifest-82599.json", "unikernels/echo"],
    &["unikernels/iperf3"],
    &["--manifest=manifest-82599.json", "unikernels/iperf3"],
    &["unikernels/http"],
    &["--manifest=manifest-82599.json", "unikernels/http"],
    &["--manifest=manifest-disk.json", "unikernels/http"],
    &["--manifest=manifest-sockets.json", "unikernels/echo"],
    &["--manifest=manifest-ports.json", "unikernels/echo"],
    &["--manifest=manifest-link.json", "unikernels/echo"],
    &["--manifest=manifest-sockets.json", "unikernels/iperf3"],
    &["--manifest=manifest-sockets.json", "unikernels/http"],
    &["--features=service/smoltcp", "unikernels/echo"],
    &["--features=service/smoltcp", "unikernels/iperf3"],
];

/// Builds everything, in release mode; ends the run if that fails.
pub fn all() -> Images {
    if let Some(folder) = std::env::var_os(PREBUILT).map(PathBuf::from) {
        return Images {
            guests: folder.clone(),
            firewall: folder.join("firewall.spt"),
            firewall_on_nics: folder.join("firewall-82599.spt"),
            reflector: folder.join("reflector-82599.spt"),
            checkups: folder.clone(),
            dns: folder.join("dns.spt"),
            echo: folder.join("echo.spt"),
            iperf3: folder.join("iperf3.spt"),
            http: folder.join("http.spt"),
            http_disk: folder.join("http-disk.spt"),
            programs: folder,
        };
    }
    cargo(
        root(),
        &["build", "--release", "-p", "outboard", "-p", "tender"],
    );
    let guests = root().join("tests/guests");
    cargo(&guests, &["build", "--release"]);
    let target = |folder: &Path| {
        let own = folder.join("target");
        let shared = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        shared
            .unwrap_or(own)
            .join("x86_64-unknown-linux-gnu/release")
    };
    let images = Images {
        guests: target(&guests),
        programs: target(root()),
        firewall: root().join("unikernels/firewall/firewall.spt"),
        firewall_on_nics: root().join("unikernels/firewall/firewall-82599.spt"),
        reflector: root().join("unikernels/reflector/reflector-82599.spt"),
        checkups: root().join("unikernels/checkup"),
        dns: root().join("unikernels/dns/dns.spt"),
        echo: root().join("unikernels/echo/echo.spt"),
        iperf3: root().join("unikernels/iperf3/iperf3.spt"),
        http: root().join("unikernels/http/http.spt"),
        http_disk: root().join("unikernels/http/http-disk.spt"),
    };
    for words in APPLIANCES {
        let mut build = Command::new(images.program("outboard"));
        let built = build.arg("build").args(*words).current_dir(root()).status();
        let built = built.is_ok_and(|status| status.success());
        assert!(built, "outboard build {} failed", words.join(" "));
    }
    images
}

fn cargo(folder: &Path, arguments: &[&str]) {
    let status = Command::new(env!("CARGO"))
        .args(arguments)
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
