//! Programs run by an ordinary user: one who may do no more than open the device file of taps, as
//! on most distributions.

use libtest_mimic::Failed;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

/// The user: "nobody" on most distributions.
const NOBODY: u32 = 65534;
/// Root becomes that user, with a device file of taps of his own.
const BECOME: &str = "
    set -e
    mount -t tmpfs -o mode=0755 none \"$0\"
    mknod -m 0666 \"$0/tun\" c 10 200
    mount --bind \"$0/tun\" /dev/net/tun
    exec setpriv --reuid=65534 --regid=65534 --clear-groups --bounding-set=-all \"$@\"";

/// A command of root's that runs its arguments as an ordinary user's program. `folder` becomes that
/// user's; programs must lie where everybody can go, such as there.
///
/// # Errors
/// The folder cannot be prepared.
pub fn ordinary(folder: &Path) -> Result<Command, Failed> {
    let dev = folder.join("dev");
    fs::create_dir(&dev)?;
    chown(folder, Some(NOBODY), Some(NOBODY))?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", BECOME])
        .arg(dev)
        .current_dir(folder);
    Ok(command)
}
