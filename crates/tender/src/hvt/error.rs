//! Why a guest was not started in a virtual machine, and what to do about it.

use super::device::{self, DEVICE};
use super::paging;
use super::windows::Narrow;
use crate::start;
use abi::hvt::MEMORY_BYTES_MAX;
use std::{fmt, io};

/// Why a guest was not started.
#[derive(Debug)]
pub enum Error {
    /// A step that all hosts share.
    Common(start::Error),
    /// KVM cannot be opened.
    Kvm(io::Error),
    /// This user may not open KVM; what helps.
    Permission(io::Error, String),
    /// More memory than a guest of `hvt` can have, in MiB.
    TooMuch(u64),
    /// Less memory than the image needs: both in MiB.
    TooLittle(u64, u64),
    /// The machine cannot be made: how much memory in MiB, whether in huge pages.
    Machine(u64, bool, io::Error),
    /// The processor's physical addresses have too few bits.
    Narrow(Narrow),
    /// Guest memory cannot be mapped for it.
    Paging(paging::Error),
    /// So many windows of PCI devices cannot.
    Windows(usize, paging::Error),
    /// A step that KVM refused.
    Step(&'static str, io::Error),
    /// The jail cannot be closed.
    Jail(crate::jail::Error),
}

impl std::error::Error for Error {}

impl Error {
    /// KVM cannot be opened, for this reason.
    pub fn no_kvm(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => {
                let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
                let group = device::group();
                Self::Permission(error, device::advice(group.as_deref(), &cpuinfo))
            }
            _ => Self::Kvm(error),
        }
    }
}

impl From<start::Error> for Error {
    fn from(error: start::Error) -> Self {
        Self::Common(error)
    }
}

impl From<Narrow> for Error {
    fn from(narrow: Narrow) -> Self {
        Self::Narrow(narrow)
    }
}

impl From<paging::Error> for Error {
    fn from(error: paging::Error) -> Self {
        Self::Paging(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Common(error) => error.fmt(f),
            Self::Kvm(error) => match error.raw_os_error() {
                Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => write!(
                    f,
                    "/dev/kvm: {error}; load kvm_intel or kvm_amd, allow virtualisation in the \
                     firmware, or start the image with --host=spt"
                ),
                _ => write!(f, "/dev/kvm: {error}; start the image with --host=spt"),
            },
            Self::Permission(error, advice) => write!(f, "{DEVICE}: {error}; {advice}"),
            Self::TooMuch(mib) => write!(
                f,
                "--mem={mib}: a guest of hvt has at most {} MiB; give a smaller --mem=MIB",
                MEMORY_BYTES_MAX >> 20
            ),
            Self::TooLittle(_, needed) if *needed > MEMORY_BYTES_MAX >> 20 => write!(
                f,
                "the image asks for {needed} MiB of memory, and a guest of hvt has at most {}; \
                 build it anew",
                MEMORY_BYTES_MAX >> 20
            ),
            Self::TooLittle(mib, needed) => write!(
                f,
                "the image does not fit into {mib} MiB of memory; give it at least --mem={needed}"
            ),
            Self::Machine(mib, true, error) => write!(
                f,
                "no {mib} MiB in pages of 2 MiB: {error}; type: sudo sysctl vm.nr_hugepages={}, or \
                 leave --hugepages away",
                mib.div_ceil(2)
            ),
            Self::Machine(mib, false, error) => write!(
                f,
                "no virtual machine of {mib} MiB: {error}; give a smaller --mem=MIB, or start the \
                 image with --host=spt"
            ),
            Self::Narrow(narrow) => narrow.fmt(f),
            Self::Paging(error) => write!(
                f,
                "the image cannot be mapped: {error}; start it with --host=spt"
            ),
            Self::Windows(count, error) => write!(
                f,
                "the {count} mappings of its PCI devices cannot be made: {error}; map fewer BARs \
                 (map_bar in manifest.json), or start the image with --host=spt"
            ),
            Self::Step(step, error) => {
                write!(f, "KVM, {step}: {error}; start the image with --host=spt")
            }
            Self::Jail(error) => error.fmt(f),
        }
    }
}

/// What KVM says.
pub fn from_kvm(error: kvm_ioctls::Error) -> io::Error {
    io::Error::from_raw_os_error(error.errno())
}

/// That `step` failed, as this program or the kernel says.
pub fn step_of(step: &'static str) -> impl Fn(io::Error) -> Error {
    move |error| Error::Step(step, error)
}

/// That `step` failed, as KVM says.
pub fn step(step: &'static str) -> impl Fn(kvm_ioctls::Error) -> Error {
    move |error| Error::Step(step, from_kvm(error))
}
