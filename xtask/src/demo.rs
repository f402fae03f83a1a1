//! `cargo xtask demo` and `cargo xtask bench`: build what they need, then hand over.

use crate::lab::matrix;
use crate::packages::{self, BUILD};
use crate::process;
use crate::record;
use crate::stages::GUESTS;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

const DEMO_HELP: &str = "\
Usage: cargo xtask demo [WHAT] [--yes] [ARGUMENT...]
       cargo xtask demo --record

WHAT: firewall | nic | http | restart | router | program | files

Builds outboard and its tender, and runs `outboard demo firewall ARGUMENT...`, which builds the
firewall and puts it between two private network segments. Needs no root where unprivileged user
namespaces work, and leaves nothing behind. With `nic` the firewall's ports are network cards in
software, which it drives itself. `http` shows a web server that is an image. `restart` kills three
images in turn, and shows what that costs. `router` shows a home gateway between stock programs
(needs dnsmasq, busybox, curl and iperf3). `program` shows nginx as it is, on a stack of its own
behind a firewall (needs nginx). `files` shows disks of stock programs that an image
serves, and disks that an image writes (needs e2fsprogs, dosfstools, mtools and xorriso).

  --yes      install missing Debian packages without asking (as CI=true does)
  --record   write what the demonstration prints into docs/demo.svg, as a picture that moves

`cargo xtask demo -- --help` shows the arguments of the demonstration itself.
";

const BENCH_HELP: &str = "\
Usage: cargo xtask bench BENCHMARK [ARGUMENT...]

Builds everything in release mode, measures, and writes raw figures and a summary to
results/DATE-BENCHMARK. ARGUMENT... goes to `outboard-bench BENCHMARK`.

  firewall   the firewall beside relays and the kernel's bridge
  rules      what rules, counters and captures cost, beside the kernel's bridge with the same rules
             (needs nft)
  nic        the driver of the 82599 on its software model, and what ways to wait for frames cost
  split      the firewall as one image on two taps, and as three that two links join
  service    TCP of an image on taps, on a NIC of its own and over Linux's sockets, beside Linux's,
             with iperf3 at the other end (needs iperf3)
  proxy      nginx on the sockets of a stack in an image, beside the host's (needs wrk and nginx)
  calls      what a program's calls, connections and compiles cost under outboard proxy (needs wrk,
             nginx and cc)
  load       what loads from 90 to 900 Mb/s cost iperf3, as it is, on the sockets of a stack, beside
             the image iperf3, Linux and slirp4netns (needs iperf3, slirp4netns and root)
  loss       TCP of an image beside Linux's with one frame in a hundred lost and 20 ms of round trip
             (needs iperf3)
  connections
             100,000 idle connections of an image, 10,000 active ones, new ones, and a flood of
             SYNs, beside Linux's; and 1000 idle ones of the image http
  http       files over HTTP of an image beside nginx (needs wrk and nginx)
  files      files of ext2, ext4, FAT and ISO 9660 by what an image links, beside Linux's where the
             kernel has them (needs root), mtools and xorriso
  fairness   how late a task of a guest wakes while its port is flooded, on taps and on the 82599's
             software model, with the bound of a turn and without
  disks      a file of the host's as the disk of an image, with and without a queue, beside fio on
             the same file (needs fio)
  nbd        a disk over the network of an image, with and without a queue, beside nbd-server (needs
             nbdcopy and nbd-server)
  stored     what a disk holds, over HTTP and copied to another one, by images beside
             nginx and cp on Linux's ext4 and ext2 (needs root, wrk and nginx)
  driver     the 82599's driver in instructions for each frame, beside ixy and ixy.rs where
             OUTBOARD_IXY and OUTBOARD_IXY_RS name them: programs that take a batch's size and a
             number of frames, and forward them in a function forward_batch (needs valgrind)
  hvt        hypercalls and starts of virtual machines beside Solo5's tender, in the lab where KVM
             cannot run them (needs SOLO5_DIR, the folder of a built Solo5)
  matrix FILE.toml
             devices of outboard-vmm and of QEMU's under load in the lab, along the axes of a file:
             loss, latency, accesses of registers, exits; goes on where it was interrupted
             (lab/README.md)
  hosts      instructions for each frame that an image forwards between its own cards on process,
             spt and hvt, and for DMA memory of large and of small pages, in the lab
";

/// What can be shown; the first one if nobody asks for another.
const DEMONSTRATIONS: [&str; 7] = [
    "firewall", "nic", "http", "restart", "router", "program", "files",
];

/// The benchmarks between two segments.
const BENCHMARKS: [&str; 12] = [
    "calls",
    "load",
    "nbd",
    "firewall",
    "rules",
    "nic",
    "split",
    "service",
    "http",
    "proxy",
    "loss",
    "connections",
];

/// Who makes taps.
const TUN: &str = "/dev/net/tun";
/// Where the root workspace's programs are built for: see .cargo/config.toml.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";
/// The appliance that is measured.
const FIREWALL: &str = "unikernels/firewall";
/// The appliance on whose sockets `bench proxy`, `bench load` and `bench calls` measure a program.
const STACK: &str = "unikernels/stack";
/// The appliance that is measured by `bench service`, `bench loss` and `bench load`.
const SERVICE: &str = "unikernels/iperf3";
/// The appliances that are measured by `bench nbd` and `bench stored`.
const NBD: &str = "unikernels/nbd";
const FILES: &str = "unikernels/files";
/// The appliance that is measured by `bench http`, and its idle connections by `bench connections`.
const HTTP: &str = "unikernels/http";
/// The appliance that is measured by `bench connections`.
const ECHO: &str = "unikernels/echo";

/// `cargo xtask demo`.
///
/// # Errors
/// One line that says what could not be built or started.
pub fn demo(root: &Path, options: &[String]) -> Result<i32, String> {
    let (which, options) = demonstration(options);
    let own = options.split(|option| option == "--").next().unwrap_or(&[]);
    if crate::wants_help(own) {
        print!("{}", DEMO_HELP);
        return Ok(0);
    }
    // Before the build: nobody wants to learn of it after minutes.
    taps()?;
    packages::provide(&[BUILD], own.iter().any(|option| option == "--yes"))?;
    let programs = build(root, &["outboard"])?;
    let mut command = Command::new(programs.join("outboard"));
    if own.iter().any(|option| option == "--record") {
        return recorded(root, &mut command);
    }
    command
        .args(["demo", which])
        .args(passed_on(options))
        .current_dir(root);
    process::run(&mut command)
}

/// Whether this user may make taps, in a network of his own.
fn taps() -> Result<(), String> {
    let opened = OpenOptions::new().read(true).write(true).open(TUN);
    let error = match opened {
        Ok(_) => return Ok(()),
        Err(error) => error,
    };
    let advice = match error.kind() {
        ErrorKind::PermissionDenied => format!("sudo chmod 0666 {}", TUN),
        _ => "sudo modprobe tun".to_owned(),
    };
    Err(format!(
        "the demonstration makes taps in a network of its own, and cannot open {}: {}; type: {}",
        TUN, error, advice
    ))
}

/// The firewall's demonstration, recorded. Its image is built before: nobody wants to watch that.
fn recorded(root: &Path, outboard: &mut Command) -> Result<i32, String> {
    let program = outboard.get_program().to_owned();
    let mut image = Command::new(program);
    succeed(
        image.args(["build", FIREWALL]).current_dir(root),
        "outboard could not build the image, as it says above",
    )?;
    outboard.args(["demo", "firewall", "--rounds=2", "--image"]);
    outboard.arg(Path::new(FIREWALL).join("firewall.spt"));
    record::record(root, outboard, "cargo xtask demo")
}

/// What is to be shown, and the options behind it.
fn demonstration(options: &[String]) -> (&str, &[String]) {
    match options.split_first() {
        Some((which, rest)) if DEMONSTRATIONS.contains(&which.as_str()) => (which, rest),
        _ => (DEMONSTRATIONS[0], options),
    }
}

/// `cargo xtask bench`.
///
/// # Errors
/// One line that says what could not be built or started.
pub fn bench(root: &Path, options: &[String]) -> Result<i32, String> {
    let (benchmark, arguments) = match options.split_first() {
        Some((what, arguments)) if what == "hvt" => return hvt(root, arguments),
        Some((what, arguments)) if what == "hosts" => return hosts(root, arguments),
        Some((what, arguments)) if what == "matrix" => return along_axes(root, arguments),
        Some((what, arguments)) if what == "fairness" => return fairness(root, arguments),
        Some((what, arguments)) if what == "disks" => return disks(root, arguments),
        Some((what, arguments)) if what == "files" => return files(root, arguments),
        Some((what, arguments)) if what == "stored" => return stored(root, arguments),
        Some((what, arguments)) if BENCHMARKS.contains(&what.as_str()) => (what, arguments),
        Some((what, arguments)) if what == "driver" => return driver(root, arguments),
        _ if crate::wants_help(options) || options.is_empty() => {
            print!("{}", BENCH_HELP);
            return Ok(0);
        }
        _ => return Err("no such benchmark; type: cargo xtask bench --help".into()),
    };
    packages::provide(&[BUILD, packages::of_benchmark(benchmark)], false)?;
    let programs = build(root, &["outboard", "tender", "bench"])?;
    let (appliance, file) = match benchmark.as_str() {
        "service" | "loss" => (SERVICE, "iperf3.spt"),
        "http" => (HTTP, "http.spt"),
        "nbd" => (NBD, "nbd.spt"),
        "proxy" | "load" | "calls" => (STACK, "stack.spt"),
        "connections" => (ECHO, "echo.spt"),
        _ => (FIREWALL, "firewall.spt"),
    };
    image(root, &programs, &[appliance])?;
    let also = also(benchmark);
    for (_, word, _) in also {
        image(root, &programs, &[word, appliance])?;
    }
    let mut command = Command::new(programs.join("outboard-bench"));
    command
        .arg(benchmark)
        .arg("--image")
        .arg(root.join(appliance).join(file))
        .arg("--tender")
        .arg(programs.join("outboard-tender"))
        .arg("--out")
        .arg(
            root.join("results")
                .join(format!("{}-{}", today()?, benchmark)),
        );
    if benchmark == "rules" {
        command
            .arg("--rules")
            .arg(root.join(FIREWALL).join("rules/default.nft"));
    }
    for (option, _, kind) in also {
        let file = file.replace(".spt", &format!("-{}.spt", kind));
        command.arg(option).arg(root.join(appliance).join(file));
    }
    if benchmark == "connections" {
        image(root, &programs, &[HTTP])?;
        command.arg("--http").arg(root.join(HTTP).join("http.spt"));
    }
    if benchmark == "load" {
        image(root, &programs, &[SERVICE])?;
        command
            .arg("--iperf3")
            .arg(root.join(SERVICE).join("iperf3.spt"));
    }
    command.args(arguments).current_dir(root);
    process::run(&mut command)
}

/// Images of the same appliance that a benchmark needs besides: the benchmark's option, what
/// `outboard build` is told, and how their names end.
fn also(benchmark: &str) -> &'static [(&'static str, &'static str, &'static str)] {
    const ON_82599: &str = "--manifest=manifest-82599.json";
    match benchmark {
        "nic" => &[("--cards", ON_82599, "82599")],
        "split" => &[
            ("--edge", "--manifest=manifest-link.json", "link"),
            ("--middle", "--manifest=manifest-links.json", "links"),
        ],
        "nbd" => &[("--queue", "--manifest=manifest-queue.json", "queue")],
        "service" => &[
            ("--smoltcp", "--features=service/smoltcp", "smoltcp"),
            ("--sockets", "--manifest=manifest-sockets.json", "sockets"),
            ("--card", ON_82599, "82599"),
        ],
        _ => &[],
    }
}

/// Builds an image: `words` are those behind `outboard build`.
fn image(root: &Path, programs: &Path, words: &[&str]) -> Result<(), String> {
    let mut image = Command::new(programs.join("outboard"));
    succeed(
        image.arg("build").args(words).current_dir(root),
        "outboard could not build the image, as it says above",
    )
}

/// `cargo xtask bench driver`.
fn driver(root: &Path, arguments: &[String]) -> Result<i32, String> {
    packages::provide(&[BUILD, packages::of_benchmark("driver")], false)?;
    let programs = build(root, &["bench"])?;
    let mut example = Command::new(process::cargo());
    example
        .args(["build", "--release", "-p", "drivers"])
        .args(["--example", "forward"])
        .current_dir(root);
    succeed(
        &mut example,
        "cargo could not build the example, as it says above",
    )?;
    let mut command = Command::new(programs.join("outboard-bench"));
    command
        .arg("driver")
        .arg("--program")
        .arg(programs.join("examples/forward"))
        .arg("--out")
        .arg(root.join("results").join(format!("{}-driver", today()?)))
        .args(arguments)
        .current_dir(root);
    process::run(&mut command)
}

/// The benchmark of virtual machines.
fn hvt(root: &Path, arguments: &[String]) -> Result<i32, String> {
    packages::provide(&[BUILD, packages::of_benchmark("hvt")], false)?;
    let programs = build(root, &["tender", "bench"])?;
    let mut command = with_lab(root, "hvt", &programs)?;
    process::run(command.args(arguments))
}

/// The benchmark of the three hosts.
fn hosts(root: &Path, arguments: &[String]) -> Result<i32, String> {
    packages::provide(&[BUILD, packages::of_benchmark("hosts")], false)?;
    let programs = build(root, &["outboard", "tender", "bench"])?;
    let appliances = process::target_folder(root).join("lab/appliances");
    for options in [&[][..], &["--manifest=manifest-nic.json"]] {
        let mut image = Command::new(programs.join("outboard"));
        image.args(["build", FIREWALL]).args(options);
        succeed(
            image.arg("--out").arg(&appliances).current_dir(root),
            "outboard could not build the image, as it says above",
        )?;
    }
    let mut command = with_lab(root, "hosts", &programs)?;
    command.arg("--appliances").arg(appliances);
    process::run(command.args(arguments))
}

/// The benchmark of devices along many axes.
fn along_axes(root: &Path, arguments: &[String]) -> Result<i32, String> {
    packages::provide(&[BUILD, packages::of_benchmark("matrix")], false)?;
    let programs = build(root, &["outboard", "vmm", "bench"])?;
    let lab = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(programs.join("outboard-bench"));
    command.arg("matrix").args(arguments).arg("--lab").arg(lab);
    for file in matrix::files(root, &programs)? {
        command.arg("--bring").arg(file);
    }
    if !arguments
        .iter()
        .any(|argument| argument.starts_with("--out"))
    {
        let out = format!("results/{}-matrix", today()?);
        command.arg("--out").arg(root.join(out));
    }
    process::run(command.current_dir(root))
}

/// The benchmark of a busy port beside a task that sleeps.
fn fairness(root: &Path, arguments: &[String]) -> Result<i32, String> {
    packages::provide(&[BUILD], false)?;
    let programs = build(root, &["outboard", "tender", "bench"])?;
    let mut command = with_guests(root, "fairness", &programs)?;
    process::run(command.args(arguments))
}

/// The benchmark of a host's file as a disk.
fn disks(root: &Path, arguments: &[String]) -> Result<i32, String> {
    packages::provide(&[BUILD, packages::of_benchmark("disks")], false)?;
    let programs = build(root, &["tender", "bench"])?;
    let mut command = with_guests(root, "disks", &programs)?;
    process::run(command.args(arguments))
}

/// The benchmark of file systems.
fn files(root: &Path, arguments: &[String]) -> Result<i32, String> {
    packages::provide(&[BUILD, packages::of_benchmark("files")], false)?;
    let programs = build(root, &["bench"])?;
    let mut command = Command::new(programs.join("outboard-bench"));
    command
        .arg("files")
        .arg("--out")
        .arg(root.join("results").join(format!("{}-files", today()?)))
        .args(arguments)
        .current_dir(root);
    process::run(&mut command)
}

/// The benchmark of what a disk holds.
fn stored(root: &Path, arguments: &[String]) -> Result<i32, String> {
    packages::provide(&[BUILD, packages::of_benchmark("stored")], false)?;
    let programs = build(root, &["outboard", "tender", "bench"])?;
    let mut command = Command::new(programs.join("outboard-bench"));
    command.arg("stored").arg("--tender");
    command.arg(programs.join("outboard-tender"));
    for (option, appliance, manifest, name) in [
        ("--image", HTTP, "manifest-disk.json", "http-disk.spt"),
        ("--files", FILES, "manifest.json", "files.spt"),
        (
            "--remote-image",
            HTTP,
            "manifest-queue.json",
            "http-queue.spt",
        ),
        (
            "--remote-files",
            FILES,
            "manifest-queue.json",
            "files-queue.spt",
        ),
    ] {
        let manifest = format!("--manifest={manifest}");
        image(root, &programs, &[&manifest, appliance])?;
        command.arg(option).arg(root.join(appliance).join(name));
    }
    command
        .arg("--out")
        .arg(root.join("results").join(format!("{}-stored", today()?)))
        .args(arguments)
        .current_dir(root);
    process::run(&mut command)
}

/// A benchmark of tiny guests, which are built, that may happen in the lab.
fn with_lab(root: &Path, benchmark: &str, programs: &Path) -> Result<Command, String> {
    let mut command = with_guests(root, benchmark, programs)?;
    let xtask = std::env::current_exe().map_err(|error| error.to_string())?;
    command.arg("--lab").arg(xtask);
    Ok(command)
}

/// A benchmark of tiny guests, which are built.
fn with_guests(root: &Path, benchmark: &str, programs: &Path) -> Result<Command, String> {
    let guests = root.join("tests/guests");
    succeed(
        &mut GUESTS.command(root),
        "cargo could not build the guests, as it says above",
    )?;
    let results = format!("results/{}-{}", today()?, benchmark);
    let mut command = Command::new(programs.join("outboard-bench"));
    command
        .arg(benchmark)
        .arg("--tender")
        .arg(programs.join("outboard-tender"))
        .arg("--guests")
        .arg(process::target_folder(&guests).join(TRIPLE).join("release"))
        .arg("--out")
        .arg(root.join(results))
        .current_dir(root);
    Ok(command)
}

/// What goes to the demonstration: everything but our own `--yes` and the `--` that ends ours.
fn passed_on(options: &[String]) -> Vec<&String> {
    let own = options.iter().take_while(|option| *option != "--");
    let rest = options.iter().skip_while(|option| *option != "--").skip(1);
    own.filter(|option| *option != "--yes")
        .chain(rest)
        .collect()
}

/// Builds packages of the root workspace; the folder of the programs.
pub fn build(root: &Path, packages: &[&str]) -> Result<PathBuf, String> {
    let programs = process::target_folder(root).join(TRIPLE).join("release");
    // Cargo itself says what it does, and at the end how long it took.
    if let Some(line) = announcement(packages, programs.is_dir()) {
        println!("{}", line);
    }
    let mut command = Command::new(process::cargo());
    command.args(["build", "--release"]).current_dir(root);
    for package in packages {
        command.args(["-p", package]);
    }
    succeed(
        &mut command,
        "cargo could not build the programs, as it says above",
    )?;
    Ok(programs)
}

/// What a first build announces; nothing is worth a line once there are programs.
fn announcement(packages: &[&str], built: bool) -> Option<String> {
    if built {
        return None;
    }
    Some(format!(
        "Building the programs ({}), and what they build themselves after that: 2 to 5 min on two \
         cores, this first time.",
        packages.join(", ")
    ))
}

fn succeed(command: &mut Command, otherwise: &str) -> Result<(), String> {
    match process::run(command)? {
        0 => Ok(()),
        _ => Err(format!(
            "{}; type: cargo xtask test --only=build --verbose",
            otherwise
        )),
    }
}

/// Today's date, for a folder's name: 2026-11-21.
fn today() -> Result<String, String> {
    let finished = process::capture(Command::new("date").args(["-u", "+%Y-%m-%d"]), false)?;
    Ok(finished.output.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_firewall_is_shown_unless_another_is_asked_for() {
        let words = |text: &[&str]| -> Vec<String> { text.iter().map(|w| w.to_string()).collect() };
        assert_eq!(demonstration(&words(&["--quick"])).0, "firewall");
        let nic = words(&["nic", "--quick"]);
        assert_eq!(demonstration(&nic), ("nic", &nic[1..]));
    }

    #[test]
    fn only_the_first_build_is_announced() {
        assert_eq!(announcement(&["outboard"], true), None);
        let expected = "Building the programs (outboard, tender), and what they build themselves \
                        after that: 2 to 5 min on two cores, this first time.";
        let said = announcement(&["outboard", "tender"], false);
        assert_eq!(said.as_deref(), Some(expected));
    }

    #[test]
    fn our_own_options_stay_here() {
        let words =
            |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_string).collect() };
        let passed = |text: &str| -> String {
            let options = words(text);
            passed_on(&options)
                .iter()
                .map(|word| word.as_str())
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(passed("--yes --keep"), "--keep");
        assert_eq!(passed("--iperf3 -- --help --yes"), "--iperf3 --help --yes");
        assert_eq!(passed(""), "");
    }
}
