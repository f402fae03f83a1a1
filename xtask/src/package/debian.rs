//! The package in a minimal Debian that runs its own systemd, in namespaces: what
//! `docs/installing.md` says is typed there.

use super::trial::Check;
use super::{archive, printed, typed};
use crate::{packages, process};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The release of Debian, and where it comes from.
const SUITE: &str = "bookworm";
const MIRROR: &str = "http://deb.debian.org/debian";
/// What the steps need beyond the least that Debian can do.
const INCLUDE: &str = "--include=systemd,systemd-sysv,dbus,man-db,iproute2";
/// How long the machine may take for all steps, in seconds.
const MACHINE_SECONDS_MAX: &str = "300";
/// What is checked beside the steps.
const MADE: &str = "a minimal Debian is made";
const STARTED: &str = "it starts with systemd";
/// Below the machine's root: the steps, and beside each its output and its status.
const STEPS: &str = "steps";

/// What is typed.
enum Typed {
    /// A block of the document.
    Block(&'static str),
    /// This.
    Script(&'static str),
}
use Typed::{Block, Script};

/// The steps in their order, each with what it shows.
const ALL: &[(&str, Typed)] = &[
    ("apt installs the package", Block("install")),
    ("outboard --version", Script("outboard --version")),
    (
        "images run there: outboard doctor",
        Script("outboard doctor"),
    ),
    (
        "outboard inspect",
        Script("outboard inspect /usr/lib/outboard/firewall.spt"),
    ),
    (
        "man finds the pages",
        Script("man -w outboard outboard-run outboard-tender"),
    ),
    (
        "completions are where shells look",
        Script(
            "cd /usr/share\n\
             test -s bash-completion/completions/outboard\n\
             test -s zsh/vendor-completions/_outboard\n\
             test -s fish/vendor_completions.d/outboard.fish",
        ),
    ),
    (
        "dpkg finds each file as it was packaged",
        Script("test -z \"$(dpkg --verify outboard)\""),
    ),
    ("a user and two taps are made", Block("taps")),
    ("the unit starts", Block("unit")),
    (
        "systemd finds nothing wrong with the unit",
        Script("test -z \"$(systemd-analyze verify outboard@firewall.service 2>&1)\""),
    ),
    (
        "the firewall passes and drops",
        Script(
            "for attempt in $(seq 50); do\n\
             outboard stats firewall > /dev/null 2>&1 && break; sleep 0.1; done\n\
             systemctl is-active outboard@firewall\n\
             outboard send firewall-private 'icmp 10.0.0.1 > 10.0.1.1' | tee -a /dev/stderr \
             | grep -q accept\n\
             outboard send firewall-private 'tcp 10.0.0.1:999 > 10.0.1.1:80' | tee -a /dev/stderr \
             | grep -q drop",
        ),
    ),
    (
        "it stops without a failure",
        Script(
            "systemctl disable --now outboard@firewall\n\
             test \"$(systemctl show --property=Result --value outboard@firewall)\" = success",
        ),
    ),
    (
        "dpkg lists the package's files",
        Script("dpkg --listfiles outboard > /tmp/files"),
    ),
    ("apt removes the package", Block("remove")),
    (
        "none of its files is left but the folder of options",
        Script(
            "while read -r file; do\n\
             if [ -f \"$file\" ]; then echo \"$file is left\"; exit 1; fi\n\
             done < /tmp/files\n\
             test -z \"$(find / -xdev -path /proc -prune -o -path '*outboard*' -type f \
             -not -path '/etc/outboard/*' -not -path '/steps/*' -not -path '/target/*' \
             -not -path '/var/lib/systemd/*' -not -path '/var/log/*' -print \
             | tee -a /dev/stderr)\"",
        ),
    ),
    ("the tarball unpacks", Block("unpack")),
    (
        "what it brought runs",
        Script("/usr/local/bin/outboard --version"),
    ),
    ("it is removed again", Block("uninstall")),
    (
        "nothing is left of it",
        Script("test -z \"$(find /usr/local -type f | tee -a /dev/stderr)\""),
    ),
];

/// Runs the steps one after the other, then ends the machine. A step may need those before it.
const RUN: &str = "\
cd /
for step in steps/*.sh; do
    sh -ec \". /$step\" < /dev/null > \"$step.out\" 2>&1
    echo $? > \"$step.status\"
done
";
const UNIT: &str = "\
[Unit]
After=basic.target dbus.service
SuccessAction=poweroff-immediate
FailureAction=poweroff-immediate
[Service]
Type=oneshot
Environment=DEBIAN_FRONTEND=noninteractive
ExecStart=/bin/sh /steps/run
";

/// Gives the machine a group of its own, in a mount of control groups that ends with us.
const GROUP: &str = "
set -e
mount -t cgroup2 none \"$0/mnt\"
group=\"$0/mnt/outboard-package\"
mkdir -p \"$group\"
(echo 0 > \"$group/cgroup.procs\"
 exec timeout --signal=KILL \"$1\" \
 unshare --mount --pid --fork --kill-child --net --uts --ipc --cgroup sh -c \"$2\" \"$0\") || true
find \"$group\" -depth -type d -exec rmdir {} +
";
/// Makes the folder the root of its own world, and becomes its systemd.
const BOOT: &str = "
set -e
mount --bind \"$0\" \"$0\"
cd \"$0\"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=0755 tmpfs dev
mount -t tmpfs tmpfs run
for device in null:3 zero:5 full:7 random:8 urandom:9; do
    mknod -m 0666 \"dev/${device%:*}\" c 1 \"${device#*:}\"
done
mkdir dev/net dev/shm
mknod -m 0666 dev/net/tun c 10 200
mount -t tmpfs tmpfs dev/shm
ip link set dev lo up
mkdir -p old
pivot_root . old
umount -l old
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system
";

/// The blocks of the document that are typed here.
#[cfg(test)]
pub fn blocks() -> impl Iterator<Item = &'static str> {
    ALL.iter().filter_map(|(_, typed)| match typed {
        Block(name) => Some(*name),
        Script(_) => None,
    })
}

/// Why there can be no such machine here.
fn missing() -> Option<&'static str> {
    match () {
        () if !packages::is_root() => Some("needs root"),
        () if !process::exists("debootstrap") => {
            Some("needs debootstrap; type: sudo apt-get install debootstrap")
        }
        () => None,
    }
}

/// Types everything in a machine that is made and removed in `out`.
///
/// # Errors
/// One line, if files cannot be read or written.
pub fn check(sources: &Path, made: &[PathBuf], out: &Path) -> Result<Vec<Check>, String> {
    if let Some(why) = missing() {
        return Ok(vec![Check::Skipped(MADE, why.into())]);
    }
    let root = out.join("debian");
    archive::empty(&root)?;
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.args(["--variant=minbase", INCLUDE, SUITE]);
    if let Err(why) = printed(debootstrap.arg(&root).arg(MIRROR)) {
        archive::remove(&root)?;
        let why = format!("needs {} on the network: {}", MIRROR, why);
        return Ok(vec![Check::Skipped(MADE, why)]);
    }
    let mut checks = vec![Check::Passed(MADE)];
    prepare(sources, made, &root)?;
    let mut machine = Command::new("unshare");
    machine.args(["--mount", "sh", "-c", GROUP]).arg(&root);
    checks.push(Check::of(
        STARTED,
        printed(machine.args([MACHINE_SECONDS_MAX, BOOT])).map(|_| ()),
    ));
    // If it did not start, no step says more.
    let steps = if root.join(STEPS).join("00.sh.status").exists() {
        ALL
    } else {
        &[]
    };
    for (number, (what, _)) in steps.iter().enumerate() {
        let file = step(&root, number);
        let read = |end: &str| archive::read(&file.with_extension(end)).unwrap_or_default();
        checks.push(Check::of(what, judge(&read("sh.status"), &read("sh.out"))));
    }
    archive::remove(&root)?;
    Ok(checks)
}

/// The file of a step.
fn step(root: &Path, number: usize) -> PathBuf {
    root.join(STEPS).join(format!("{:02}.sh", number))
}

/// Lays the packages, the steps and the unit that runs them into the machine's folder.
fn prepare(sources: &Path, made: &[PathBuf], root: &Path) -> Result<(), String> {
    let write = |file: &Path, text: &str| {
        std::fs::write(file, text).map_err(|error| format!("{}: {}", file.display(), error))
    };
    let packages = root.join(super::OUT);
    archive::empty(&packages)?;
    for file in made {
        let to = packages.join(file.file_name().unwrap_or_default());
        std::fs::copy(file, &to).map_err(|error| format!("{}: {}", to.display(), error))?;
    }
    archive::empty(&root.join(STEPS))?;
    for (number, (_, typed)) in ALL.iter().enumerate() {
        let script = match typed {
            Block(name) => typed::block(sources, name)?,
            Script(script) => format!("{}\n", script),
        };
        write(&step(root, number), &script)?;
    }
    write(&root.join(STEPS).join("run"), RUN)?;
    let units = root.join("etc/systemd/system");
    write(&units.join("steps.service"), UNIT)?;
    let wants = units.join("multi-user.target.wants");
    std::fs::create_dir_all(&wants)
        .and_then(|()| std::os::unix::fs::symlink("../steps.service", wants.join("steps.service")))
        .map_err(|error| format!("{}: {}", wants.display(), error))?;
    // Debian starts a graphical target by default, which needs more.
    std::os::unix::fs::symlink(
        "/lib/systemd/system/multi-user.target",
        units.join("default.target"),
    )
    .map_err(|error| format!("{}: {}", units.display(), error))
}

/// What came of a step that left this.
fn judge(status: &str, output: &str) -> Result<(), String> {
    let lines = || output.trim().lines().collect::<Vec<_>>().join("; ");
    match status.trim() {
        "0" => Ok(()),
        "" => Err("it was not reached".into()),
        status => Err(format!("status {}: {}", status, lines())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_step_that_succeeded_holds() {
        assert_eq!(judge("0\n", "whatever"), Ok(()));
        assert_eq!(judge("", ""), Err("it was not reached".to_string()));
        let says = "status 3: no\nfile\n";
        assert_eq!(
            judge("3\n", "no\nfile\n"),
            Err(says.trim().replace('\n', "; "))
        );
    }
}
