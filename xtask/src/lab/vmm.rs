//! `outboard-vmm` in the lab: the lab's own kernel is its guest.

use super::kernel::Kernel;
use super::machine::{archive, busybox, copy};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What the lab's shell runs.
pub const COMMAND: &str = "sh /lab/trial";

/// The files that the trial takes beside the monitor: kernel, RAM disk, and the trial itself.
///
/// # Errors
/// One line that names what cannot be read or written.
pub fn files(root: &Path, cache: &Path, kernel: &Kernel) -> Result<Vec<PathBuf>, String> {
    let work = cache.join("vmm");
    let folder = work.join("root");
    let failed = |error: io::Error| format!("{}: {}", folder.display(), error);
    let _ = fs::remove_dir_all(&folder);
    for name in ["bin", "dev", "proc"] {
        fs::create_dir_all(folder.join(name)).map_err(failed)?;
    }
    copy(&busybox()?, &folder.join("bin/busybox"))?;
    let init = folder.join("init");
    copy(&root.join("lab/vmm/init"), &init)?;
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755)).map_err(failed)?;
    let image = work.join("vmlinuz");
    copy(&kernel.image, &image)?;
    let ram_disk = archive(&folder, &work.join("guest.gz"))?;
    Ok(vec![image, ram_disk, root.join("lab/vmm/trial")])
}
