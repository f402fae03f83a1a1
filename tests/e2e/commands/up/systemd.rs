//! The unit that `outboard up --systemd` prints, under the machine's own systemd, in namespaces
//! that end with it.

use super::System;
use crate::harness::build::Images;
use crate::harness::process::start;
use crate::harness::programs;
use libtest_mimic::{Completion, Failed};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What [`GROUP`] ends with where it can make no group.
const NO_GROUP: i32 = 77;
/// The most that all of it may take, in seconds.
const SECONDS_MAX: &str = "120";

/// Units that others need. Those of the machine are not there.
const TARGETS: [&str; 6] = [
    "sysinit",
    "basic",
    "shutdown",
    "umount",
    "network",
    "multi-user",
];
/// What is hung is noticed earlier than in the ten seconds of the unit.
const SOON: &str = "[Service]\nWatchdogSec=3\n";
/// Has systemd run the steps, and end.
const TRIAL: &str = "[Unit]\nDefaultDependencies=no\nSuccessAction=exit-force\n\
                     FailureAction=exit-force\n[Service]\nType=oneshot\nStandardError=inherit\n";

/// Gives systemd a control group of its own.
const GROUP: &str = "
set -e
mount -t cgroup2 none \"$0/mnt\" || exit 77
group=\"$0/mnt/outboard-systemd-$$\"
mkdir \"$group\" || exit 77
status=0
(echo 0 > \"$group/cgroup.procs\"
 shift
 exec timeout --signal=KILL \"$SECONDS_MAX\" \
 unshare --mount --pid --fork --kill-child --net --uts --ipc --cgroup \
 sh -c \"$BOOT\" \"$0\" \"$@\") || status=$?
find \"$group\" -depth -type d -exec rmdir {} +
exit $status
";
/// Makes a world of the machine's programs and of the folders that are named, and becomes its
/// systemd.
const BOOT: &str = "
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=0755 tmpfs \"$0/mnt\"
cd \"$0/mnt\"
mkdir usr etc proc sys dev run tmp var old
for link in bin sbin lib lib64; do ln -s \"usr/$link\" \"$link\"; done
mount --bind -o ro /usr usr
for folder in \"$0\" \"$@\"; do
    mkdir -p \".$folder\"
    mount --bind \"$folder\" \".$folder\"
done
: > etc/machine-id
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=0755 tmpfs dev
for device in null:3 zero:5 full:7 random:8 urandom:9; do
    mknod -m 0666 \"dev/${device%:*}\" c 1 \"${device#*:}\"
done
mkdir dev/shm
mount -t tmpfs tmpfs dev/shm
mount -t tmpfs tmpfs run
pivot_root . old
umount -l old
exec env -i container=other SYSTEMD_UNIT_PATH=\"$0\" PATH=/usr/sbin:/usr/bin \
/lib/systemd/systemd --system --unit=trial.service
";

/// What is typed there. A later supervisor has another process; the component has the same.
const STEPS: &str = "
show() { systemctl show --value --property=$1 site; }
another() {
    for turn in $(seq 300); do
        new=$(show MainPID)
        if [ $new != 0 ] && [ $new != $1 ] && systemctl -q is-active site; then return; fi
        sleep 0.1
    done
    exit 1
}
systemctl start site
test \"$(show StatusText)\" = '1 of 1 components are up'
first=$(show MainPID)
cp /run/outboard/sleeper/instance.json /tmp/before

kill -KILL $first
another $first
cmp /run/outboard/sleeper/instance.json /tmp/before

second=$(show MainPID)
kill -STOP $second
another $second
cmp /run/outboard/sleeper/instance.json /tmp/before
test \"$(show Result)\" = success
test $(show NRestarts) = 2
outboard ps

systemctl stop site
test \"$(show Result)\" = success
test -z \"$(ls /run/outboard)\"
! grep -l outboard /proc/[0-9]*/comm
echo all held
";

/// The service is started once its components are up; a supervisor that is killed or hangs is
/// started again, and its components are the same; a service that is stopped leaves nothing.
pub fn runs(images: &Images) -> Result<Completion, Failed> {
    if !rustix::process::geteuid().is_root() {
        return Ok(Completion::ignored_with("needs root: it starts systemd"));
    }
    if let Some(why) = programs::missing(&["systemctl"]) {
        return Ok(Completion::ignored_with(why));
    }
    // Links lead out of what is shown.
    let image = images.guest("standstill").canonicalize()?;
    let outboard = images.program("outboard").canonicalize()?;
    let text =
        format!("[component.sleeper]\nimage = {image:?}\nmemory = 16\narguments = [\"sleep\"]\n");
    let system = System::new(images, &text)?;
    let shown = [folder(&outboard)?, folder(&image)?];
    write_units(&system, &shown[0])?;
    let place = system.runtime.path();
    std::fs::create_dir(place.join("mnt"))?;
    let mut machine = Command::new("unshare");
    machine.args(["--mount", "sh", "-c", GROUP]).arg(place);
    machine.arg("--").args(shown);
    machine.envs([("BOOT", BOOT), ("SECONDS_MAX", SECONDS_MAX)]);
    let ended = start(&mut machine)?.finish()?;
    if ended.status == NO_GROUP {
        let why = "needs control groups of version 2 that may be made";
        return Ok(Completion::ignored_with(why));
    }
    let said = std::fs::read_to_string(place.join("said")).unwrap_or_default();
    match said.ends_with("all held\n") {
        true => Ok(Completion::Completed),
        false => Err(format!("{ended:?}: {said}").into()),
    }
}

fn folder(file: &Path) -> Result<PathBuf, Failed> {
    Ok(file.parent().ok_or("no folder")?.to_owned())
}

/// The unit that is printed, and those around it.
fn write_units(system: &System<'_>, programs: &Path) -> Result<(), Failed> {
    let place = system.runtime.path();
    let file = system.file.display().to_string();
    let printed = system.outboard(&["up", "--systemd", &file])?.finish()?;
    printed.expect_status(0)?;
    std::fs::write(place.join("site.service"), &printed.stdout)?;
    std::fs::create_dir(place.join("site.service.d"))?;
    std::fs::write(place.join("site.service.d/soon.conf"), SOON)?;
    for target in TARGETS {
        let unit = place.join(format!("{target}.target"));
        std::fs::write(unit, "[Unit]\nDefaultDependencies=no\n")?;
    }
    let mut trial = TRIAL.to_owned();
    let place = place.display();
    writeln!(trial, "ExecStart=/bin/sh -ex {place}/steps")?;
    writeln!(trial, "StandardOutput=file:{place}/said")?;
    std::fs::write(format!("{place}/trial.service"), trial)?;
    let steps = format!("PATH=$PATH:{}\n{STEPS}", programs.display());
    Ok(std::fs::write(format!("{place}/steps"), steps)?)
}
