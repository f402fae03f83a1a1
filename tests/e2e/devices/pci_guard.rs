//! A guard gives devices back, whoever was killed before: on the lab's cards.
//!
//! These tests take the monitor's part, and let another program be the tender.

use crate::devices::pci::{Cards, Test, driver, expect, expect_home, group_file};
use crate::harness::build::Images;
use libtest_mimic::Failed;
use rustix::cmsg_space;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType, recv, sendmsg, socketpair,
};
use rustix::process::{Pid, PidfdFlags, Signal, getsid, kill_process, pidfd_open};
use std::fs::{self, OpenOptions};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub const TESTS: [(&str, Test); 5] = [
    (
        "a guard gives back when the tender is killed",
        tender_killed,
    ),
    (
        "a guard gives back when the monitor is killed",
        monitor_killed,
    ),
    ("a guard waits for a group that is still open", group_open),
    ("what a killed guard left is given back", guard_killed),
    ("a guard says why it takes nothing", refused),
];

/// No answer takes longer.
const ANSWER: Duration = Duration::from_secs(30);
/// Long enough for a guard to do what it must not.
const WHILE: Duration = Duration::from_millis(500);

/// A guard under way; killed when dropped.
struct Guard {
    socket: Option<OwnedFd>,
    child: Child,
}

impl Guard {
    fn start(images: &Images, card: &str) -> Result<Self, Failed> {
        let flags = SocketFlags::CLOEXEC;
        let (ours, its) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        set_socket_timeout(&ours, Timeout::Recv, Some(ANSWER))?;
        let child = Command::new(images.program("outboard"))
            .args(["pci", "guard", card])
            .stdin(Stdio::from(its))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self {
            socket: Some(ours),
            child,
        })
    }

    /// One that has taken the card.
    fn of(images: &Images, card: &str) -> Result<Self, Failed> {
        let guard = Self::start(images, card)?;
        expect(guard.answer()?.as_str(), "+")?;
        expect(driver(card).as_deref(), Some("vfio-pci"))?;
        Ok(guard)
    }

    fn answer(&self) -> Result<String, Failed> {
        let mut bytes = [0; 1024];
        let socket = self.socket.as_ref().ok_or("closed")?;
        let (_, length) = recv(socket, &mut bytes, RecvFlags::empty())?;
        Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
    }

    fn watch(&self, tender: &Child) -> Result<(), Failed> {
        let pidfd = pidfd_open(pid(tender)?, PidfdFlags::empty())?;
        let descriptors = [pidfd.as_fd()];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        let socket = self.socket.as_ref().ok_or("closed")?;
        sendmsg(
            socket,
            &[IoSlice::new(b"+")],
            &mut control,
            SendFlags::NOSIGNAL,
        )?;
        Ok(())
    }

    /// Waits for its end.
    fn end(&mut self) -> Result<(), Failed> {
        let begin = Instant::now();
        while self.child.try_wait()?.is_none() {
            if begin.elapsed() > ANSWER {
                return Err("the guard does not end".into());
            }
            sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        kill(&mut self.child);
    }
}

/// What has a group open until it ends.
struct Tender(Child);

impl Tender {
    fn start(card: &str) -> Result<Self, Failed> {
        let node = group_file(card)?;
        let node = OpenOptions::new().read(true).write(true).open(node)?;
        let child = Command::new("sleep").arg("1000").stdin(node).spawn()?;
        Ok(Self(child))
    }
}

impl Drop for Tender {
    fn drop(&mut self) {
        kill(&mut self.0);
    }
}

fn kill(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn pid(child: &Child) -> Result<Pid, Failed> {
    let pid = Pid::from_raw(child.id().cast_signed());
    pid.ok_or_else(|| "no process".into())
}

fn tender_killed(images: &Images) -> Result<(), Failed> {
    let cards = Cards::acquire(images)?;
    let mut guard = Guard::of(images, &cards.single)?;
    let tender = Tender::start(&cards.single)?;
    guard.watch(&tender.0)?;

    // It keeps nothing but its socket, and is nobody's job.
    let guarding = pid(&guard.child)?;
    expect(getsid(Some(guarding))?, guarding)?;
    let mut open = Vec::new();
    for entry in fs::read_dir(format!("/proc/{}/fd", guard.child.id()))? {
        open.push(fs::read_link(entry?.path())?.display().to_string());
    }
    let kept = |file: &String| file.starts_with("socket:") || file.contains("pidfd");
    open.retain(|file| !kept(file));
    expect(open, Vec::from([(); 2].map(|()| "/dev/null".to_owned())))?;

    for signal in [Signal::HUP, Signal::INT, Signal::TERM] {
        kill_process(guarding, signal)?;
    }
    sleep(WHILE);
    expect(driver(&cards.single).as_deref(), Some("vfio-pci"))?;
    expect(guard.child.try_wait()?.is_none(), true)?;
    drop(tender);
    expect(guard.answer()?.as_str(), "+")?;
    guard.end()?;
    expect_home(&cards.single)
}

fn monitor_killed(images: &Images) -> Result<(), Failed> {
    let cards = Cards::acquire(images)?;
    // Before there is a tender.
    let mut guard = Guard::of(images, &cards.single)?;
    guard.socket = None;
    guard.end()?;
    expect_home(&cards.single)?;
    // And when there is one, which lives a while longer.
    let guard = Guard::of(images, &cards.single)?;
    let tender = Tender::start(&cards.single)?;
    guard.watch(&tender.0)?;
    outlives(guard, tender, &cards.single)
}

/// The tender lives a while longer than the monitor, and the card is its own until it ends.
fn outlives(mut guard: Guard, tender: Tender, card: &str) -> Result<(), Failed> {
    guard.socket = None;
    sleep(WHILE);
    expect(driver(card).as_deref(), Some("vfio-pci"))?;
    drop(tender);
    guard.end()?;
    expect_home(card)
}

fn group_open(images: &Images) -> Result<(), Failed> {
    let cards = Cards::acquire(images)?;
    let guard = Guard::of(images, &cards.single)?;
    let tender = Tender::start(&cards.single)?;
    outlives(guard, tender, &cards.single)
}

fn guard_killed(images: &Images) -> Result<(), Failed> {
    let cards = Cards::acquire(images)?;
    let abandon = || {
        drop(Guard::of(images, &cards.single)?);
        expect(driver(&cards.single).as_deref(), Some("vfio-pci"))
    };
    abandon()?;
    cards.succeed(&["unbind", &cards.single])?;
    expect_home(&cards.single)?;
    // The next run that takes the card gives it back.
    abandon()?;
    let mut guard = Guard::of(images, &cards.single)?;
    guard.socket = None;
    guard.end()?;
    expect_home(&cards.single)?;
    // But not if somebody has asked for it to stay, before or meanwhile.
    abandon()?;
    cards.succeed(&["bind", &cards.single])?;
    let mut guard = Guard::of(images, &cards.single)?;
    guard.socket = None;
    guard.end()?;
    expect(driver(&cards.single).as_deref(), Some("vfio-pci"))?;
    cards.succeed(&["unbind", &cards.single])?;
    let mut guard = Guard::of(images, &cards.single)?;
    cards.succeed(&["bind", &cards.single])?;
    guard.socket = None;
    guard.end()?;
    expect(driver(&cards.single).as_deref(), Some("vfio-pci"))
}

fn refused(images: &Images) -> Result<(), Failed> {
    let cards = Cards::acquire(images)?;
    let guard = Guard::start(images, "0000:00:00.0")?;
    let answer = guard.answer()?;
    match answer.contains("a bridge stays with the host") {
        true => Ok(()),
        false => Err(format!("{answer:?} of {}", cards.single).into()),
    }
}
