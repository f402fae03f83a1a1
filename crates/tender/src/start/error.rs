//! Why a guest was not started, and what to do about it.

use crate::{attach, boot, check, jail, load, memory, rules, share};
use rustix::io::Errno;
use std::path::PathBuf;
use std::{fmt, io};

/// Why a guest was not started, whatever its host.
#[derive(Debug)]
pub enum Error {
    /// The image cannot be used.
    Load(PathBuf, load::Error),
    /// Manifest and command line differ.
    Check(check::Error),
    /// A device cannot be attached.
    Attach(attach::Error),
    /// The guest's arguments are too long.
    CommandLine(boot::CommandLineTooLong),
    /// There is too little memory for the image.
    TooSmall(memory::TooSmall),
    /// Guest memory cannot be had: its size in MiB.
    Memory(u64, io::Error),
    /// The image expects something where it has no memory.
    Outside {
        /// The guest address.
        address: memory::Gpa,
        /// How many bytes it expects there.
        length: u64,
    },
    /// The options ask for what only the host `hvt` has.
    OnlyHvt,
    /// No core file can be made in this folder.
    CoreFile(PathBuf, io::Error),
    /// The parent has ended, or is another process than the user says.
    Parent(i32),
    /// The shared file cannot be used.
    Share(share::Error),
    /// It stood by, and nobody is left who could want it.
    Dismissed,
    /// The rules cannot be given to the guest.
    Rules(PathBuf, rules::Error),
    /// The jail cannot be closed.
    Jail(jail::Error),
    /// The kernel refused a step.
    System(Step, io::Error),
}

/// A step that the kernel can refuse for want of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// To open /dev/null.
    Null,
    /// To make the descriptor that a guest waits on.
    Epoll,
    /// To make the timer of a guest.
    Timer,
    /// To make the event by which the thread of the rings wakes the guest up.
    Event,
    /// To wait until the guest shall begin.
    Standby,
    /// To put a device into a wait set.
    Wait,
    /// To give guest memory its final rights.
    Protect,
    /// To get random bytes.
    Random,
}

impl Step {
    /// What failed.
    fn failed(self) -> &'static str {
        match self {
            Self::Null => "/dev/null",
            Self::Epoll => "no epoll",
            Self::Timer => "no timer",
            Self::Event => "no event",
            Self::Standby => "--standby",
            Self::Wait => "cannot wait",
            Self::Protect => "guest memory cannot be protected",
            Self::Random => "no random bytes",
        }
    }

    /// What the user can do about this error, which the step is known to meet.
    fn advice(self, error: &io::Error) -> &'static str {
        let descriptors = "raise the limit of open files: ulimit -n 1024";
        match (self, Errno::from_io_error(error)) {
            (Self::Null, _) => "mount /dev",
            (Self::Standby, _) => "make a FIFO for it: mkfifo FILE",
            (Self::Epoll | Self::Timer | Self::Event, Some(Errno::MFILE)) => descriptors,
            (Self::Epoll | Self::Timer | Self::Event, Some(Errno::NFILE)) => {
                "too many files are open on this machine; type: sysctl fs.file-nr fs.file-max"
            }
            (Self::Wait, Some(Errno::NOSPC)) => {
                "this user waits for too much; type: sysctl fs.epoll.max_user_watches"
            }
            (Self::Protect, Some(Errno::PERM | Errno::ACCESS)) => {
                "move the image to a file system that is not mounted noexec, and see what \
                 SELinux or AppArmor forbids: dmesg"
            }
            (Self::Protect, Some(Errno::NOMEM)) => {
                "there are too many mappings; type: sysctl vm.max_map_count"
            }
            (_, Some(Errno::NOMEM)) => "the kernel has no memory left; end other programs",
            _ => "type: outboard doctor",
        }
    }
}

/// What to do where guest memory cannot be claimed. It has fixed addresses from
/// [`abi::GUEST_BASE`] on.
fn memory_advice(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::PERM) => "type: sudo sysctl vm.mmap_min_addr=65536",
        Some(Errno::EXIST) => "something else lies at its addresses: start it with --host=hvt",
        _ => "give a smaller --mem=MIB",
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(path, error) => write!(f, "{path:?}: {error}"),
            Self::Check(error) => error.fmt(f),
            Self::Attach(error) => error.fmt(f),
            Self::CommandLine(error) => error.fmt(f),
            Self::TooSmall(error) => error.fmt(f),
            Self::Memory(mib, error) => {
                let advice = memory_advice(error);
                write!(f, "no {mib} MiB of guest memory: {error}; {advice}")
            }
            Self::Outside { address, length } => write!(
                f,
                "the image expects {length} bytes at {address:#x}, outside of its memory; build \
                 it anew"
            ),
            Self::OnlyHvt => write!(
                f,
                "--hugepages is for hvt; add --host=hvt, or leave it away"
            ),
            Self::CoreFile(folder, error) => write!(
                f,
                "--dumpcore={}: {error}; name a folder that you may write to",
                folder.display()
            ),
            Self::Parent(pid) => write!(
                f,
                "--die-with-parent={pid}: the parent is another process or has ended; give its \
                 process id"
            ),
            Self::Share(error) => error.fmt(f),
            Self::Dismissed => f.write_str(
                "--standby: whoever could have begun the guest has ended; start it anew",
            ),
            Self::Rules(path, error) => write!(f, "--rules={}: {error}", path.display()),
            Self::Jail(error) => error.fmt(f),
            Self::System(step, error) => {
                write!(f, "{}: {error}; {}", step.failed(), step.advice(error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_belongs_to_the_step_that_failed() {
        let said = |step, errno: Errno| Error::System(step, errno.into()).to_string();
        for (step, errno, advice) in [
            (Step::Null, Errno::NOENT, "mount /dev"),
            (Step::Epoll, Errno::MFILE, "ulimit -n"),
            (Step::Timer, Errno::NFILE, "fs.file-max"),
            (Step::Wait, Errno::NOSPC, "max_user_watches"),
            (Step::Protect, Errno::PERM, "noexec"),
            (Step::Protect, Errno::NOMEM, "max_map_count"),
            (Step::Timer, Errno::NOMEM, "no memory left"),
            (Step::Timer, Errno::NOSYS, "outboard doctor"),
        ] {
            let said = said(step, errno);
            assert!(said.contains(advice), "{said}");
            assert!(said.starts_with(step.failed()), "{said}");
        }
    }

    #[test]
    fn memory_that_is_forbidden_is_not_too_large() {
        let said = |errno: Errno| Error::Memory(64, errno.into()).to_string();
        assert!(said(Errno::NOMEM).ends_with("give a smaller --mem=MIB"));
        assert!(said(Errno::PERM).contains("vm.mmap_min_addr=65536"));
        assert!(said(Errno::EXIST).contains("--host=hvt"));
    }
}
