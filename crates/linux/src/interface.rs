//! What any network interface is asked by name: whether it is up, and its MTU; taps that stay.

use crate::sys::ioctl::{self, Command, Request, send};
use crate::sys::tap::Tap;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What may be asked.
const ASKED: [Command; 10] = [
    Command::GetName,
    Command::GetFlags,
    Command::GetOwn,
    Command::GetPeer,
    Command::GetBroadcast,
    Command::GetMask,
    Command::GetMetric,
    Command::GetMtu,
    Command::GetAddress,
    Command::GetIndex,
];
/// Questions about an interface that change nothing, `SIOCGIFNAME` and so on, by their numbers:
/// Linux's `include/uapi/linux/sockios.h`.
pub const QUESTIONS: [u32; ASKED.len()] = {
    let mut numbers = [0; ASKED.len()];
    let mut at = 0;
    while at < ASKED.len() {
        numbers[at] = ASKED[at] as u32;
        at += 1;
    }
    numbers
};
/// Bytes of a question and its answer: `struct ifreq`.
pub const ASKED_BYTES: usize = ioctl::BYTES;

/// Lets a tap stay without a descriptor, until its network namespace goes or somebody deletes it.
///
/// # Errors
/// What the kernel says.
pub fn persist(tap: &Tap) -> io::Result<()> {
    // TUNSETPERSIST looks whether its argument is 0, and a pointer is not.
    send(
        tap.as_fd(),
        Command::TunSetPersistent,
        &mut Request::new("")?,
    )
}

/// A socket that answers for the interfaces of the network namespace it was made in.
#[derive(Debug)]
pub struct Interfaces(OwnedFd);

impl Interfaces {
    /// Those of this thread's namespace.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn here() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        Ok(Self(socket_with(
            AddressFamily::INET,
            SocketType::DGRAM,
            flags,
            None,
        )?))
    }

    /// Whether the interface `name` is up.
    ///
    /// # Errors
    /// `ENODEV` if there is none.
    pub fn is_up(&self, name: &str) -> io::Result<bool> {
        Ok(self.flags(name)? & libc::IFF_UP != 0)
    }

    /// Whether the interface `name` is up, has a carrier, and the kernel has taken notice of that,
    /// which it does a moment later: until then it drops what is sent (`IFF_RUNNING` of
    /// netdevice(7)).
    ///
    /// # Errors
    /// `ENODEV` if there is none.
    pub fn is_running(&self, name: &str) -> io::Result<bool> {
        Ok(self.flags(name)? & libc::IFF_RUNNING != 0)
    }

    /// Brings the interface `name` up.
    ///
    /// # Errors
    /// `ENODEV` if there is none, `EPERM` without `CAP_NET_ADMIN`.
    pub fn bring_up(&self, name: &str) -> io::Result<()> {
        let flags = self.flags(name)?;
        let mut request = Request::new(name)?;
        request.set_flags(flags | libc::IFF_UP);
        send(self.0.as_fd(), Command::SetFlags, &mut request)
    }

    /// The MTU of the interface `name`, in bytes.
    ///
    /// # Errors
    /// `ENODEV` if there is none.
    pub fn mtu(&self, name: &str) -> io::Result<i32> {
        let mut request = Request::new(name)?;
        send(self.0.as_fd(), Command::GetMtu, &mut request)?;
        Ok(request.int())
    }

    /// The MAC address of the Ethernet interface `name`.
    ///
    /// # Errors
    /// `ENODEV` if there is none.
    pub fn mac(&self, name: &str) -> io::Result<[u8; 6]> {
        let mut request = Request::new(name)?;
        send(self.0.as_fd(), Command::GetAddress, &mut request)?;
        Ok(request.mac())
    }

    /// Asks a question of netdevice(7) as a program has written it down; what the kernel answers.
    ///
    /// # Errors
    /// `ENOTTY` for what is none, or would change something; what the kernel says.
    pub fn ask(&self, number: u32, asked: [u8; ASKED_BYTES]) -> io::Result<[u8; ASKED_BYTES]> {
        let question = ASKED.into_iter().find(|one| *one as u32 == number);
        let question = question.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOTTY))?;
        let mut request = Request::of(asked);
        send(self.0.as_fd(), question, &mut request)?;
        Ok(request.bytes())
    }

    fn flags(&self, name: &str) -> io::Result<i32> {
        let mut request = Request::new(name)?;
        send(self.0.as_fd(), Command::GetFlags, &mut request)?;
        Ok(request.flags())
    }
}

impl AsFd for Interfaces {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
