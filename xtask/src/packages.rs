//! Programs that come from outside: which are missing, what they would take, and whether to
//! install them. Nothing is installed without a yes: typed, `--yes`, or `CI=true`.

use crate::process;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// A program, and the Debian packages that bring it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tool {
    /// Name of the program.
    pub program: &'static str,
    /// What `apt-get install` takes.
    pub packages: &'static [&'static str],
    /// What it is for.
    pub purpose: &'static str,
    /// Whether there is no going on without it.
    pub required: bool,
}

/// What building takes.
pub const BUILD: &[Tool] = &[Tool {
    program: "cc",
    packages: &["gcc", "libc6-dev"],
    purpose: "links every program",
    required: true,
}];

/// What the tests take beyond [`BUILD`].
pub const TEST: &[Tool] = &[
    Tool {
        program: "iperf3",
        packages: &["iperf3"],
        purpose: "real TCP and UDP traffic through the firewall",
        required: false,
    },
    Tool {
        program: "iperf",
        packages: &["iperf"],
        purpose: "clients of iperf 2",
        required: false,
    },
    Tool {
        program: "wrk",
        packages: &["wrk"],
        purpose: "many requests at a time to the HTTP server",
        required: false,
    },
    Tool {
        program: "nginx",
        packages: &["nginx-light"],
        purpose: "serves on the stack of an image",
        required: false,
    },
    Tool {
        program: "redis-server",
        packages: &["redis-server"],
        purpose: "serves on the stack of an image",
        required: false,
    },
    Tool {
        program: "redis-benchmark",
        packages: &["redis-tools"],
        purpose: "asks it",
        required: false,
    },
    Tool {
        program: "sshd",
        packages: &["openssh-server"],
        purpose: "serves on the stack of an image, and forks",
        required: false,
    },
    Tool {
        program: "ssh",
        packages: &["openssh-client"],
        purpose: "runs commands there",
        required: false,
    },
    Tool {
        program: "psql",
        packages: &["postgresql", "postgresql-client"],
        purpose: "asks PostgreSQL, which serves on the stack of an image",
        required: false,
    },
    Tool {
        program: "python3",
        packages: &["python3"],
        purpose: "makes calls of sockets, one by one",
        required: false,
    },
    Tool {
        program: "dnsmasq",
        packages: &["dnsmasq-base"],
        purpose: "lends addresses to appliances, and resolves names for them",
        required: false,
    },
    Tool {
        program: "busybox",
        packages: &["busybox"],
        purpose: "lends addresses for seconds only",
        required: false,
    },
    Tool {
        program: "dig",
        packages: &["dnsutils"],
        purpose: "asks the DNS server",
        required: false,
    },
    Tool {
        program: "ip",
        packages: &["iproute2"],
        purpose: "taps of the README's commands",
        required: false,
    },
    Tool {
        program: "tcpdump",
        packages: &["tcpdump"],
        purpose: "a second reader of captures",
        required: false,
    },
    Tool {
        program: "ping",
        packages: &["iputils-ping"],
        purpose: "what the tutorial asks its appliance",
        required: false,
    },
    Tool {
        program: "sysctl",
        packages: &["procps"],
        purpose: "settings of the tour with both taps in one namespace",
        required: false,
    },
    Tool {
        program: "curl",
        packages: &["curl"],
        purpose: "what the HTTP server answers",
        required: false,
    },
    Tool {
        program: "nc",
        packages: &["netcat-openbsd"],
        purpose: "talks to the tutorial's service",
        required: false,
    },
    Tool {
        program: "ethtool",
        packages: &["ethtool"],
        purpose: "what a persistent tap remembers",
        required: false,
    },
    Tool {
        program: "nft",
        packages: &["nftables"],
        purpose: "the kernel's verdicts, to compare with",
        required: false,
    },
    Tool {
        program: "systemctl",
        packages: &["systemd"],
        purpose: "runs the units that are printed, in namespaces of its own",
        required: false,
    },
    Tool {
        program: "mke2fs",
        packages: &["e2fsprogs"],
        purpose: "makes ext2, ext3 and ext4",
        required: false,
    },
    Tool {
        program: "mkfs.vfat",
        packages: &["dosfstools"],
        purpose: "makes and checks FAT",
        required: false,
    },
    Tool {
        program: "mcopy",
        packages: &["mtools"],
        purpose: "fills FAT",
        required: false,
    },
    Tool {
        program: "xorriso",
        packages: &["xorriso"],
        purpose: "makes ISO 9660",
        required: false,
    },
    Tool {
        program: "sfdisk",
        packages: &["fdisk"],
        purpose: "makes partitions",
        required: false,
    },
    Tool {
        program: "nbdinfo",
        packages: &["libnbd-bin"],
        purpose: "asks for disks that are served, and copies them",
        required: false,
    },
    Tool {
        program: "qemu-img",
        packages: &["qemu-utils"],
        purpose: "copies, compares and writes disks that are served",
        required: false,
    },
];

/// What the comparison with the kernel's rules takes.
pub const ORACLE: &[Tool] = &[Tool {
    program: "nft",
    packages: &["nftables"],
    purpose: "puts rules into the kernel",
    required: true,
}];

/// What counting instructions takes.
pub const COUNT: &[Tool] = &[Tool {
    program: "valgrind",
    packages: &["valgrind"],
    purpose: "counts instructions",
    required: true,
}];

/// What a benchmark takes beyond [`BUILD`]: nothing is compared with a program that is not there.
pub fn of_benchmark(benchmark: &str) -> &'static [Tool] {
    match benchmark {
        "rules" => ORACLE,
        "service" | "loss" => IPERF3,
        "load" => LOAD,
        "http" | "proxy" | "calls" => HTTP,
        "driver" => COUNT,
        "disks" => DISKS,
        "nbd" => NBD,
        "stored" => STORED,
        "files" => FILE_SYSTEMS,
        "hvt" | "hosts" | "matrix" => LAB,
        _ => &[],
    }
}

/// What the benchmarks of TCP take.
const IPERF3: &[Tool] = &[Tool {
    program: "iperf3",
    packages: &["iperf3"],
    purpose: "the other end of transfers",
    required: true,
}];

/// What the benchmark of file systems takes.
const FILE_SYSTEMS: &[Tool] = &[
    Tool {
        program: "mke2fs",
        packages: &["e2fsprogs"],
        purpose: "makes ext2 and ext4",
        required: true,
    },
    Tool {
        program: "mkfs.vfat",
        packages: &["dosfstools"],
        purpose: "makes and checks FAT",
        required: true,
    },
    Tool {
        program: "mcopy",
        packages: &["mtools"],
        purpose: "reads FAT",
        required: true,
    },
    Tool {
        program: "xorriso",
        packages: &["xorriso"],
        purpose: "makes and reads ISO 9660",
        required: true,
    },
];

/// What the benchmark of HTTP takes.
const HTTP: &[Tool] = &[
    Tool {
        program: "wrk",
        packages: &["wrk"],
        purpose: "sends requests",
        required: true,
    },
    Tool {
        program: "nginx",
        packages: &["nginx-light"],
        purpose: "answers them on Linux",
        required: true,
    },
];

/// What the benchmark of steady loads takes.
const LOAD: &[Tool] = &[
    IPERF3[0],
    Tool {
        program: "slirp4netns",
        packages: &["slirp4netns"],
        purpose: "a stack of somebody else's in user mode",
        required: true,
    },
];

/// What the benchmark of what a disk holds takes.
const STORED: &[Tool] = &[
    HTTP[0],
    HTTP[1],
    Tool {
        program: "mke2fs",
        packages: &["e2fsprogs"],
        purpose: "makes ext2 and ext4",
        required: true,
    },
];

/// What the benchmark of disks over the network takes.
const NBD: &[Tool] = &[
    Tool {
        program: "nbdcopy",
        packages: &["libnbd-bin"],
        purpose: "copies to and from servers",
        required: true,
    },
    Tool {
        program: "nbd-server",
        packages: &["nbd-server"],
        purpose: "serves on Linux",
        required: true,
    },
];

/// What the benchmark of disks takes.
const DISKS: &[Tool] = &[Tool {
    program: "fio",
    packages: &["fio"],
    purpose: "reads and writes the same file",
    required: true,
}];

/// What packaging takes beyond [`BUILD`].
pub const PACKAGE: &[Tool] = &[
    Tool {
        program: "dpkg-deb",
        packages: &["dpkg"],
        purpose: "writes the Debian package",
        required: true,
    },
    Tool {
        program: "tar",
        packages: &["tar"],
        purpose: "writes the tarball",
        required: true,
    },
    Tool {
        program: "gzip",
        packages: &["gzip"],
        purpose: "compresses the tarball",
        required: true,
    },
];

/// What the lab takes.
pub const LAB: &[Tool] = &[
    Tool {
        program: "qemu-system-x86_64",
        packages: &["qemu-system-x86"],
        purpose: "the lab's machine",
        required: true,
    },
    Tool {
        program: "busybox",
        packages: &["busybox-static"],
        purpose: "the lab's shell",
        required: true,
    },
    Tool {
        program: "cpio",
        packages: &["cpio"],
        purpose: "the lab's initial RAM disk",
        required: true,
    },
];

/// What building modules for the lab's kernel takes beyond [`LAB`].
pub const MODULES: &[Tool] = &[
    Tool {
        program: "gcc-12",
        packages: &["gcc-12"],
        purpose: "the compiler that Debian's kernel was built with",
        required: true,
    },
    Tool {
        program: "make",
        packages: &["make"],
        purpose: "builds modules",
        required: true,
    },
    Tool {
        program: "patch",
        packages: &["patch"],
        purpose: "applies the lab's patches",
        required: true,
    },
    Tool {
        program: "xz",
        packages: &["xz-utils"],
        purpose: "unpacks the kernel's source",
        required: true,
    },
];

/// What the bench of Linux's drivers takes beyond [`LAB`]: its QEMU is built here.
pub const LINUX: &[Tool] = &[
    Tool {
        program: "ninja",
        packages: &["ninja-build"],
        purpose: "builds QEMU",
        required: true,
    },
    Tool {
        program: "meson",
        packages: &["meson", "libpixman-1-dev", "libfdt-dev"],
        purpose: "builds QEMU",
        required: true,
    },
    Tool {
        program: "glib-mkenums",
        packages: &["libglib2.0-dev", "python3-venv"],
        purpose: "builds QEMU",
        required: true,
    },
    Tool {
        program: "pkg-config",
        packages: &["pkg-config"],
        purpose: "finds what QEMU is built with",
        required: true,
    },
    Tool {
        program: "make",
        packages: &["make"],
        purpose: "builds QEMU",
        required: true,
    },
    Tool {
        program: "xz",
        packages: &["xz-utils"],
        purpose: "unpacks QEMU",
        required: true,
    },
    Tool {
        program: "iperf3",
        packages: &["iperf3"],
        purpose: "traffic of the guest's",
        required: true,
    },
    Tool {
        program: "nc",
        packages: &["netcat-openbsd"],
        purpose: "bytes of the guest's, both ways at a time",
        required: true,
    },
    Tool {
        program: "ethtool",
        packages: &["ethtool"],
        purpose: "what the guest's driver can do",
        required: true,
    },
    Tool {
        program: "fio",
        packages: &["fio"],
        purpose: "blocks that the guest's disk has to give back",
        required: true,
    },
    Tool {
        program: "ip",
        packages: &["iproute2"],
        purpose: "the other end of the wire",
        required: true,
    },
    Tool {
        program: "ping",
        packages: &["iputils-ping"],
        purpose: "the other end of the wire",
        required: true,
    },
];

/// What we may do, and with what.
#[derive(Clone, Copy, Debug)]
pub struct Means {
    /// Installing was agreed to beforehand.
    pub agreed: bool,
    /// There is somebody to ask.
    pub terminal: bool,
    /// We are root.
    pub root: bool,
    /// There is sudo.
    pub sudo: bool,
    /// There is apt-get.
    pub apt: bool,
}

/// What to do about missing programs.
#[derive(Debug, PartialEq, Eq)]
pub enum Plan {
    /// Nothing is missing.
    Nothing,
    /// Install, after a yes if `ask`.
    Install { command: Vec<String>, ask: bool },
    /// Say what to type.
    Tell(String),
}

/// Decides what to do about `missing`.
pub fn plan(missing: &[&Tool], means: Means) -> Plan {
    let packages: Vec<&str> = missing
        .iter()
        .flat_map(|tool| tool.packages.iter().copied())
        .collect();
    if packages.is_empty() {
        return Plan::Nothing;
    }
    if !means.apt {
        return Plan::Tell(format!(
            "with your package manager, install {}",
            packages.join(" ")
        ));
    }
    let mut command: Vec<&str> = Vec::new();
    if !means.root {
        command.push("sudo");
        // Nobody is there to type a password.
        if !means.terminal {
            command.push("-n");
        }
    }
    command.extend(["apt-get", "install", "--yes", "--no-install-recommends"]);
    command.extend(packages.iter());
    let possible = means.root || means.sudo;
    if possible && (means.agreed || means.terminal) {
        let command = command.iter().map(|word| word.to_string()).collect();
        Plan::Install {
            command,
            ask: !means.agreed,
        }
    } else {
        Plan::Tell(format!("sudo apt-get install {}", packages.join(" ")))
    }
}

/// Sees to it that the programs are there.
///
/// # Errors
/// One line with the command to type, if a required one stays missing.
pub fn provide(tools: &[&'static [Tool]], yes: bool) -> Result<(), String> {
    let all = || tools.iter().flat_map(|tools| tools.iter());
    let missing: Vec<&Tool> = all()
        .filter(|tool| !process::exists(tool.program))
        .collect();
    let means = Means {
        agreed: yes || std::env::var_os("CI").map_or(false, |value| value == "true"),
        terminal: is_terminal(),
        root: is_root(),
        sudo: process::exists("sudo"),
        apt: process::exists("apt-get"),
    };
    let plan = plan(&missing, means);
    if plan != Plan::Nothing {
        println!("Missing:");
        for tool in &missing {
            println!(
                "  {:<8} {} ({})",
                tool.program,
                tool.purpose,
                tool.packages.join(", ")
            );
        }
    }
    match plan {
        Plan::Nothing => {}
        Plan::Install { command, ask } => {
            println!(
                "{}",
                size(&missing).unwrap_or_else(|| "Their size is not known.".into())
            );
            if !ask || confirmed(&command) {
                install(&command)?;
            }
        }
        Plan::Tell(command) => println!("To install them: {}", command),
    }
    match all().find(|tool| tool.required && !process::exists(tool.program)) {
        None => Ok(()),
        Some(tool) => Err(format!(
            "{} is missing ({}); type: sudo apt-get install {}",
            tool.program,
            tool.purpose,
            tool.packages.join(" ")
        )),
    }
}

/// Whether none of these programs is missing.
pub fn all_there(tools: &[Tool]) -> bool {
    tools.iter().all(|tool| process::exists(tool.program))
}

/// What apt-get says about the size of what it would fetch and install.
fn size(missing: &[&Tool]) -> Option<String> {
    let output = Command::new("apt-get")
        .args(["--print-uris", "install", "--no-install-recommends"])
        .args(missing.iter().flat_map(|tool| tool.packages))
        .env("LC_ALL", "C")
        .output()
        .ok()?;
    sizes(&String::from_utf8_lossy(&output.stdout))
}

/// The two lines of apt-get that name sizes, as one.
fn sizes(printed: &str) -> Option<String> {
    let lines: Vec<&str> = printed
        .lines()
        .filter(|line| line.starts_with("Need to get ") || line.starts_with("After this operation"))
        .collect();
    if lines.is_empty() {
        None
    } else {
        Some(lines.join(" "))
    }
}

/// Asks on the terminal; an empty answer is a yes.
fn confirmed(command: &[String]) -> bool {
    print!("Install them with `{}`? [Y/n] ", command.join(" "));
    let mut answer = String::new();
    let read = std::io::stdout()
        .flush()
        .and_then(|()| std::io::stdin().read_line(&mut answer));
    // An end of input is no answer.
    matches!(read, Ok(bytes) if bytes > 0) && is_yes(&answer)
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_lowercase().as_str(), "" | "y" | "yes")
}

/// Runs the command. A machine that was just set up has no list of packages: then, and only then,
/// the list is fetched and the command tried again.
fn install(command: &[String]) -> Result<(), String> {
    let run = |words: &[String]| {
        println!("$ {}", words.join(" "));
        let mut child = Command::new(&words[0]);
        child
            .args(&words[1..])
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::inherit());
        process::run(&mut child)
    };
    if run(command)? == 0 {
        return Ok(());
    }
    let update: Vec<String> = command
        .iter()
        .take_while(|word| *word != "install")
        .cloned()
        .chain(["update".to_string()])
        .collect();
    if run(&update)? == 0 && run(command)? == 0 {
        return Ok(());
    }
    Err(format!(
        "apt-get failed, as it says above; type: {}",
        command.join(" ")
    ))
}

/// Whether somebody sits in front of our input and output.
fn is_terminal() -> bool {
    ["/proc/self/fd/0", "/proc/self/fd/1"]
        .iter()
        .all(|descriptor| {
            let target = std::fs::read_link(descriptor).unwrap_or_default();
            target.starts_with("/dev/pts")
                || target.starts_with("/dev/tty")
                || target == Path::new("/dev/console")
        })
}

/// Whether we are root: the owner of our own entry in /proc.
pub fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").map_or(false, |entry| entry.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: Means = Means {
        agreed: false,
        terminal: false,
        root: false,
        sudo: false,
        apt: true,
    };

    fn missing() -> Vec<&'static Tool> {
        TEST.iter().take(1).collect()
    }

    fn command(plan: Plan) -> String {
        match plan {
            Plan::Install { command, .. } => command.join(" "),
            other => panic!("{:?}", other),
        }
    }

    #[test]
    fn nothing_missing_needs_nothing() {
        assert_eq!(plan(&[], NOBODY), Plan::Nothing);
    }

    #[test]
    fn without_a_yes_the_command_is_named() {
        for means in [
            NOBODY,
            Means {
                root: true,
                ..NOBODY
            },
            Means {
                agreed: true,
                ..NOBODY
            },
        ] {
            let told = plan(&missing(), means);
            assert_eq!(told, Plan::Tell("sudo apt-get install iperf3".into()));
        }
    }

    #[test]
    fn agreement_installs_without_a_question() {
        let root = plan(
            &missing(),
            Means {
                agreed: true,
                root: true,
                ..NOBODY
            },
        );
        let expected = "apt-get install --yes --no-install-recommends iperf3";
        assert!(matches!(root, Plan::Install { ask: false, .. }));
        assert_eq!(command(root), expected);
        let sudo = plan(
            &missing(),
            Means {
                agreed: true,
                sudo: true,
                ..NOBODY
            },
        );
        assert_eq!(command(sudo), format!("sudo -n {}", expected));
    }

    #[test]
    fn at_a_terminal_there_is_a_question() {
        let plan = plan(
            &missing(),
            Means {
                terminal: true,
                sudo: true,
                ..NOBODY
            },
        );
        assert!(matches!(plan, Plan::Install { ask: true, .. }));
        assert!(command(plan).starts_with("sudo apt-get install"));
    }

    #[test]
    fn other_distributions_are_told_names() {
        let plan = plan(
            &missing(),
            Means {
                apt: false,
                agreed: true,
                root: true,
                ..NOBODY
            },
        );
        assert!(matches!(plan, Plan::Tell(text) if text.ends_with("iperf3")));
    }

    #[test]
    fn sizes_are_what_apt_says() {
        let printed = "Reading package lists...\nNeed to get 13.2 kB of archives.\n\
                       After this operation, 61.4 kB of additional disk space will be used.\n'http";
        assert_eq!(
            sizes(printed).unwrap(),
            "Need to get 13.2 kB of archives. After this operation, 61.4 kB of additional disk \
             space will be used."
        );
        assert_eq!(sizes("E: Unable to locate package"), None);
    }

    #[test]
    fn a_benchmark_without_its_programs_is_no_success() {
        for benchmark in ["rules", "service", "loss", "http", "proxy", "driver"] {
            let tools = of_benchmark(benchmark);
            assert!(!tools.is_empty() && tools.iter().all(|tool| tool.required));
        }
        assert_eq!(of_benchmark("firewall"), &[]);
    }

    #[test]
    fn answers() {
        assert!(["", "y", "Yes\n"].iter().all(|answer| is_yes(answer)));
        assert!(!["n", "no", "what"].iter().any(|answer| is_yes(answer)));
    }
}
