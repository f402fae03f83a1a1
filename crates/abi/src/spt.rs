//! The `spt` host: a process whose memory is the guest's and whose system calls are filtered
//! (Solo5 `spt_abi.h`, version 2).
//!
//! At entry `rdi` holds the address of [`BootInfo`] and `rsp` is the size of guest memory minus 8.
//! The guest then makes Linux system calls itself; all but those of [`syscall`] end it.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Guest address of [`BootInfo`].
pub const BOOT_INFO: u64 = 0x1_1000;

/// What the tender tells the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct BootInfo {
    /// One past the last byte of guest memory.
    pub mem_size: u64,
    /// One past the last byte of the loaded image, page-aligned.
    pub kernel_end: u64,
    /// Address of the command line, ended by a NUL.
    pub cmdline: u64,
    /// Address of the manifest: a [`crate::manifest::Header`] and its entries.
    pub mft: u64,
    /// The epoll descriptor; it watches every network device and the timer.
    pub epoll_fd: i32,
    /// The timer descriptor (`CLOCK_MONOTONIC`).
    pub timer_fd: i32,
}

const _: () = assert!(size_of::<BootInfo>() == 40);

/// `epoll_event.data` of the timer; that of a network device is its index in the manifest.
pub const EPOLL_TIMER: u64 = 0xffff_fffe;

/// Descriptor of the console.
pub const CONSOLE_FD: i32 = 1;

/// Most bytes of one transfer of a disk with [`crate::extension::device_flag::DISK`], wherever as
/// many are left of the disk. Behind that, a transfer is of one block, as on any other disk.
pub const TRANSFER_BYTES: u64 = 64 << 10;
/// The same of what is discarded at once.
pub const DISCARD_BYTES: u64 = 1 << 20;

/// The x86-64 Linux system calls that a guest may make, and on what.
pub mod syscall {
    /// `read` from a network device.
    pub const READ: u64 = 0;
    /// `write` to a network device or the console.
    pub const WRITE: u64 = 1;
    /// `sendto` a device that is reached by message, without address and without a signal.
    pub const SENDTO: u64 = 44;
    /// `pread64` of one block from a block device.
    pub const PREAD64: u64 = 17;
    /// `pwrite64` of one block to a block device.
    pub const PWRITE64: u64 = 18;
    /// `fdatasync` of a disk, Outboard's own as the next one.
    pub const FDATASYNC: u64 = 75;
    /// `fallocate` of a disk with [`DISCARD`] alone.
    pub const FALLOCATE: u64 = 285;
    /// Mode of `fallocate`: a hole, which reads as zeroes, in a file that stays as long as it is
    /// (`FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE`).
    pub const DISCARD: u32 = 3;
    /// `arch_prctl(ARCH_SET_FS)`.
    pub const ARCH_PRCTL: u64 = 158;
    /// `clock_gettime` of `CLOCK_REALTIME` or `CLOCK_MONOTONIC`.
    pub const CLOCK_GETTIME: u64 = 228;
    /// `exit_group` with the guest's status.
    pub const EXIT_GROUP: u64 = 231;
    /// `epoll_pwait` on the epoll descriptor.
    pub const EPOLL_PWAIT: u64 = 281;
    /// `timerfd_settime` on the timer.
    pub const TIMERFD_SETTIME: u64 = 286;
    /// Flags of `sendto`: a peer that has gone is an error, not a signal.
    pub const MSG_NOSIGNAL: u32 = 0x4000;
    /// First argument of `arch_prctl`.
    pub const ARCH_SET_FS: u64 = 0x1002;
}

/// The system calls that a guest makes beside those of [`syscall`] if its manifest names
/// [`crate::manifest::kind::SOCKETS`], which only the host `process` attaches. No jail allows them,
/// and there is none.
pub mod socket_call {
    /// `close` a socket.
    pub const CLOSE: u64 = 3;
    /// `socket`.
    pub const SOCKET: u64 = 41;
    /// `connect`.
    pub const CONNECT: u64 = 42;
    /// `recvfrom`.
    pub const RECVFROM: u64 = 45;
    /// `sendmsg`.
    pub const SENDMSG: u64 = 46;
    /// `shutdown`.
    pub const SHUTDOWN: u64 = 48;
    /// `bind`.
    pub const BIND: u64 = 49;
    /// `listen`.
    pub const LISTEN: u64 = 50;
    /// `getsockname`.
    pub const GETSOCKNAME: u64 = 51;
    /// `setsockopt`.
    pub const SETSOCKOPT: u64 = 54;
    /// `getsockopt`.
    pub const GETSOCKOPT: u64 = 55;
    /// `epoll_ctl` on the descriptor of the device.
    pub const EPOLL_CTL: u64 = 233;
    /// `accept4`.
    pub const ACCEPT4: u64 = 288;
}
