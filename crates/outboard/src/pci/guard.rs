//! The guard of a run: a process that takes devices for one guest, and gives them back when the
//! guest's tender has ended, whoever else is dead by then.
//!
//! It is this program again, in a session of its own, with nothing open but one end of a socket to
//! the monitor. Signals that end everything else, as those of a terminal or of a service manager,
//! do not end it before its work is done. If it was killed, `outboard pci unbind` does that.
//!
//! | over the socket | when |
//! |---|---|
//! | guard: `DONE`, or an error's text | the devices are bound, or none is |
//! | monitor: one byte, and the tender's pidfd | the tender has been started |
//! | monitor: end of file, without that | there is no tender, or none any more |
//! | guard: `DONE`, or an error's text | the devices are back, or not all are |

use super::state::{Former, GUARD, Store};
use super::{Address, Error, bind, unbind};
use crate::run::signals::FORWARDED;
use linux::call::again;
use linux::descriptor;
use linux::pci::sysfs::Tree;
use linux::process::Child;
use linux::signal::Held;
use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, send, sendmsg,
    socketpair,
};
use std::ffi::CString;
use std::fs::OpenOptions;
use std::io::{IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// What the guard says when something is done.
const DONE: &[u8] = b"+";
/// Room for what it says otherwise: one line.
const ANSWER_BYTES_MAX: usize = 1024;
/// How long its answer may take: more than all that it tries, for so many devices.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// How often it looks whether a group is still in use, once the tender has ended.
const ATTEMPTS: u32 = 100;
/// How often it looks whether the guard of a run that has ended has given devices back.
const HANDOVER_ATTEMPTS_MAX: u32 = 20;
/// How long to wait in between.
const HANDOVER_PAUSE: Duration = Duration::from_millis(100);
/// The kernel's log, where errors go when nobody else listens; `<3>` marks one.
const LOG: &str = "/dev/kmsg";

/// The monitor's side. If it is dropped, the guard gives the devices back as soon as it can.
#[derive(Debug)]
pub struct Guard(OwnedFd);

impl Guard {
    /// Starts a guard, and waits until it has taken these devices.
    ///
    /// # Errors
    /// It cannot be started, or says why it did not take them.
    pub fn start(addresses: &[Address]) -> Result<Self, Error> {
        let (ours, its) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(Error::guard)?;
        set_socket_timeout(&ours, Timeout::Recv, Some(ANSWER_TIMEOUT)).map_err(Error::guard)?;
        Command::new("/proc/self/exe")
            .arg0("outboard")
            .args(["pci", "guard"])
            .args(addresses.iter().map(Address::to_string))
            .stdin(Stdio::from(its))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(Error::NoGuard)?;
        let guard = Self(ours);
        guard.answer()?;
        Ok(guard)
    }

    /// Has it wait for the end of the tender.
    ///
    /// # Errors
    /// There is no descriptor, or no guard any more.
    pub fn watch(&self, tender: &Child) -> Result<(), Error> {
        let pidfd = tender.pidfd().map_err(Error::Guard)?;
        let descriptors = [pidfd.as_fd()];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        let bytes = [IoSlice::new(DONE)];
        let sent = sendmsg(&self.0, &bytes, &mut control, SendFlags::NOSIGNAL);
        sent.map(|_| ()).map_err(Error::guard)
    }

    /// Waits until the devices are back: for when the process that is watched has ended.
    ///
    /// # Errors
    /// What it says, or that it says nothing.
    pub fn finish(self) -> Result<(), Error> {
        self.answer()
    }

    fn answer(&self) -> Result<(), Error> {
        let mut bytes = [0; ANSWER_BYTES_MAX];
        let length = match again(|| recv(&self.0, &mut bytes, RecvFlags::empty())) {
            Err(Errno::AGAIN) => return Err(Error::guard(Errno::TIMEDOUT)),
            // The end of file: it is gone.
            Ok((0, _)) => return Err(Error::guard(Errno::PIPE)),
            received => received.map_err(Error::guard)?.0,
        };
        match &bytes[..length] {
            DONE => Ok(()),
            text => Err(Error::Guarded(String::from_utf8_lossy(text).into_owned())),
        }
    }
}

/// `outboard pci guard`.
#[derive(clap::Args)]
pub struct Arguments {
    addresses: Vec<String>,
}

/// The guard's own life. Its standard input is the socket.
///
/// # Errors
/// It is not started as one. All else it tells the monitor, or the kernel's log.
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    let parse = |text: &String| text.parse().map_err(|()| Error::Unknown(text.clone()));
    let addresses = arguments.addresses.iter().map(parse);
    let addresses = addresses.collect::<Result<Vec<Address>, _>>()?;
    let socket = rustix::stdio::stdin();
    // Nothing here may keep a terminal, a pipe or a mounted file system busy.
    descriptor::close_all_but(&mut [0, 1, 2]).map_err(Error::Guard)?;
    std::env::set_current_dir("/").map_err(Error::Guard)?;
    rustix::process::setsid().map_err(Error::guard)?;
    let name = CString::new(GUARD).map_err(|error| Error::Guard(error.into()))?;
    rustix::thread::set_name(&name).map_err(Error::guard)?;
    // What asks a monitor to end shall not keep the guard from giving devices back.
    let _held = Held::new(FORWARDED).map_err(Error::Guard)?;

    let (tree, store) = (Tree::host(), Store::host());
    let taken = take(&tree, &store, &addresses);
    // A monitor that is dead already does not mind, and is seen to be in what follows.
    say(socket, taken.as_ref().map(|_| ()));
    if let Ok(taken) = taken {
        wait(socket);
        let given = give_back(&tree, &store, &taken);
        if !say(socket, given.as_ref().map(|_| ())) {
            given.unwrap_or_else(|error| log(&error));
        }
    }
    Ok(())
}

/// Takes them; the guard of a run that has just ended may still be about to give them back.
fn take(tree: &Tree, store: &Store, addresses: &[Address]) -> Result<Vec<Address>, Error> {
    let once = || {
        let _lock = store.lock().map_err(Error::State)?;
        let taken = bind::take(tree, store, addresses, Some(id()))?;
        Ok(taken.into_iter().map(|device| device.address).collect())
    };
    for _ in 0..HANDOVER_ATTEMPTS_MAX {
        match once() {
            Err(Error::OfRun(..)) => sleep(HANDOVER_PAUSE),
            taken => return taken,
        }
    }
    once()
}

/// By which its devices are known to be this guard's.
fn id() -> i32 {
    rustix::process::getpid().as_raw_pid()
}

/// Waits until there is no tender. If that cannot be known, whoever has the group open is waited
/// for all the same.
fn wait(socket: BorrowedFd<'_>) {
    if let Ok(Some(tender)) = receive(socket) {
        let mut ended = [PollFd::new(&tender, PollFlags::IN)];
        // If it cannot be waited for, the group is looked at all the same.
        let _ = again(|| poll(&mut ended, None));
    }
}

/// The tender's pidfd; `None` if the monitor has none to send any more.
fn receive(socket: BorrowedFd<'_>) -> Result<Option<OwnedFd>, Errno> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    again(|| {
        let mut bytes = [IoSliceMut::new(&mut byte)];
        recvmsg(socket, &mut bytes, &mut control, RecvFlags::CMSG_CLOEXEC).map(|_| ())
    })?;
    let mut descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(descriptors.next())
}

/// Gives back what is still this guard's to give, and no matter of `outboard pci unbind`.
fn give_back(tree: &Tree, store: &Store, addresses: &[Address]) -> Result<(), Error> {
    let _lock = store.lock().map_err(Error::State)?;
    let mut result = Ok(());
    for address in addresses {
        let others = |former: &Former| former.guard != Some(id());
        if !matches!(store.read(*address), Ok(Some(former)) if others(&former)) {
            let given = unbind::give_back(tree, store, *address, ATTEMPTS);
            result = result.and(given.map(|_| ()));
        }
    }
    result
}

/// Tells the monitor; whether it is there to hear it.
fn say(socket: BorrowedFd<'_>, result: Result<(), &Error>) -> bool {
    let text = result.err().map(Error::to_string);
    let bytes = text.as_ref().map_or(DONE, |text| text.as_bytes());
    let bytes = &bytes[..bytes.len().min(ANSWER_BYTES_MAX)];
    send(socket, bytes, SendFlags::NOSIGNAL).is_ok()
}

/// Writes to the kernel's log; there is nothing else to be done about an error here.
fn log(error: &Error) {
    let log = OpenOptions::new().write(true).open(LOG);
    let _ = log.and_then(|mut log| log.write_all(format!("<3>outboard: {error}\n").as_bytes()));
}
