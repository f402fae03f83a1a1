//! A device that is another process, by vfio-user: registers, doorbells, memory, interrupts, and
//! what becomes of a guest whose device is wrong, lies, says nothing or ends.

use crate::harness::build::Images;
use crate::harness::process::{Ended, Running, run, start};
use crate::harness::temporary::TemporaryFolder;
use crate::hosts::{self, Test};
use libtest_mimic::{Failed, Trial};
use models::client::{Around, End, Refused};
use models::vfio_user::{PAYLOAD_MAX, Server, Session};
use models::{Device, Dma, Identity, Msix, Progress, Violations};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use std::io::Write;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use vfio_user::socket::Socket;
use vfio_user::{HEADER_BYTES, Header, command, flag};
use zerocopy::IntoBytes;

const SCRATCH: u64 = 0x04;
const ASKED: u64 = 0x08;
const DOORBELL: u64 = 0x18;
const BASE: u64 = 0x20;
const PATIENCE: Duration = Duration::from_secs(10);
const LARGE_PAGE: u64 = 2 << 20;
/// How long a device that drips takes for a byte; for all of an answer, far more than it has.
const DRIP: Duration = Duration::from_millis(300);

/// Doubles the word of memory that its doorbell names, and interrupts.
#[derive(Default)]
struct Doubler {
    vendor: u16,
    doorbells: &'static [usize],
    scratch: u32,
    base: u64,
    bell: u32,
    /// Rung, and the device has not looked yet.
    rung: Option<u32>,
    asked: u32,
    faults: u32,
    raised: u64,
    violations: Violations,
}

impl Device for Doubler {
    fn identity(&self) -> Identity {
        Identity {
            vendor: self.vendor,
            device: 0x11e8,
            class: [0xff, 0, 0],
            revision: 1,
            bars: [0x1000, 0, 0, 0, 0, 0],
            msix: Msix {
                capability: 0x40,
                vectors: 1,
                bar: 0,
                table: 0x800,
                pending: 0xc00,
            },
            ..Identity::default()
        }
    }

    fn read(&mut self, _: u8, offset: u64, bytes: &mut [u8]) {
        let value = match offset {
            SCRATCH => self.scratch,
            ASKED => self.asked,
            DOORBELL => self.bell,
            _ => u32::MAX,
        };
        bytes.copy_from_slice(&value.to_le_bytes()[..bytes.len()]);
    }

    fn write(&mut self, _: u8, offset: u64, bytes: &[u8]) {
        let value = bytes
            .first_chunk()
            .map_or(0, |four| u32::from_le_bytes(*four));
        match offset {
            SCRATCH => self.scratch = value,
            BASE => self.base = self.base & !0xffff_ffff | u64::from(value),
            0x24 => self.base = self.base & 0xffff_ffff | u64::from(value) << 32,
            DOORBELL => {
                self.asked += u32::from(self.doorbells.is_empty());
                (self.bell, self.rung) = (value, Some(value));
            }
            _ => {}
        }
    }

    fn reset(&mut self) {
        *self = Self {
            vendor: self.vendor,
            doorbells: self.doorbells,
            bell: u32::MAX,
            faults: self.faults,
            ..Self::default()
        };
    }

    fn poll(&mut self, dma: &dyn Dma, _: Duration) -> Progress {
        let Some(offset) = self.rung.take() else {
            return Progress::default();
        };
        let iova = self.base + u64::from(offset);
        let doubled = dma.load(iova).and_then(|word| dma.store(iova, 2 * word));
        self.faults += u32::from(doubled.is_err());
        self.raised = 1;
        Progress {
            received: 0,
            transmitted: 1,
        }
    }

    fn take_interrupts(&mut self) -> u64 {
        std::mem::take(&mut self.raised)
    }

    fn doorbells(&self) -> &'static [usize] {
        self.doorbells
    }

    fn violations(&self) -> &Violations {
        &self.violations
    }
}

/// What the tests know of a device that is being served.
struct Watched {
    stop: Arc<AtomicBool>,
    refused: Vec<String>,
}

impl Around<Doubler> for Watched {
    fn turn(&mut self, _: &mut Doubler) -> ControlFlow<()> {
        match self.stop.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn refused(&mut self, command: &'static str, why: &Refused) {
        self.refused.push(format!("{command}: {why}"));
    }
}

/// A device that is served until it is stopped.
struct Served {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    serving: JoinHandle<Result<(), String>>,
    _folder: TemporaryFolder,
}

impl Served {
    fn start(vendor: u16, doorbells: &'static [usize]) -> Result<Self, Failed> {
        Self::start_in(TemporaryFolder::new("device")?, vendor, doorbells)
    }

    fn start_in(
        folder: TemporaryFolder,
        vendor: u16,
        doorbells: &'static [usize],
    ) -> Result<Self, Failed> {
        let path = folder.path.join("device");
        let server = Server::bind(&path)?;
        let stop = Arc::new(AtomicBool::new(false));
        let mut watched = Watched {
            stop: Arc::clone(&stop),
            refused: Vec::new(),
        };
        let serving = thread::spawn(move || {
            let mut device = Doubler {
                vendor,
                doorbells,
                ..Doubler::default()
            };
            while !matches!(server.serve(&mut device, &[], &mut watched), End::Stopped) {}
            let wrong = (device.faults > 0).then(|| "memory that is not there".to_owned());
            let wrong = wrong.or(watched.refused.into_iter().next());
            wrong.map_or(Ok(()), Err)
        });
        Ok(Self {
            path,
            stop,
            serving,
            _folder: folder,
        })
    }

    /// Ends the device; fails if something was refused, or it missed its memory.
    fn stop(self) -> Result<(), Failed> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.serving.join().map_err(|_| "the device panicked")?;
        ended.map_err(|wrong| format!("the device: {wrong}").into())
    }
}

fn tender(images: &Images, host: &str, socket: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(images.program("outboard-tender"));
    command
        .args(["--mem=16".into(), format!("--host={host}")])
        .arg(format!("--pci:doubler=vfio-user:{}", socket.display()))
        .arg("--")
        .arg(images.guest("doubler"))
        .args(arguments);
    command
}

const TESTS: &[(&str, Test)] = &[
    ("registers_by_message", registers_by_message),
    ("memory_and_interrupts_by_message", |images, host| {
        memory_and_interrupts(images, host, &[])
    }),
    ("memory_and_interrupts_with_doorbells", |images, host| {
        memory_and_interrupts(images, host, &[DOORBELL as usize])
    }),
    ("an_interrupt_wakes_who_is_idle", |images, host| {
        interrupts(images, host, "idle")
    }),
    ("an_interrupt_waits_for_who_is_busy", |images, host| {
        interrupts(images, host, "busy")
    }),
    ("interrupts_are_one_until_it_is_taken", |images, host| {
        interrupts(images, host, "masked")
    }),
    (
        "a_device_serves_one_guest_after_the_other",
        one_after_the_other,
    ),
    (
        "a_sleeping_guest_learns_that_its_device_has_ended",
        ended_asleep,
    ),
    (
        "an_asking_guest_learns_that_its_device_has_ended",
        ended_asked,
    ),
    (
        "another_device_than_the_manifest_asks_for_is_refused",
        wrong_ids,
    ),
    ("a_device_that_nobody_starts_is_waited_for", nobody),
    ("a_device_that_comes_late_is_found", late),
    (
        "a_device_that_lies_at_the_start_is_refused",
        lies_at_the_start,
    ),
    (
        "a_device_that_lies_or_says_nothing_reads_all_ones",
        lies_later,
    ),
];

pub fn trials(images: &'static Images) -> Vec<Trial> {
    hosts::on_each(images, "software_device", TESTS)
}

/// The same on one host.
pub fn on(images: &'static Images, host: &'static str) -> Vec<Trial> {
    hosts::on(images, host, "software_device", TESTS)
}

fn registers_by_message(images: &Images, host: &str) -> Result<(), Failed> {
    let device = Served::start(0x1234, &[])?;
    let ended = run(&mut tender(images, host, &device.path, &["registers"]))?;
    ended.expect_status(0)?.expect_stdout("4096 bytes")?;
    device.stop()
}

fn memory_and_interrupts(
    images: &Images,
    host: &str,
    doorbells: &'static [usize],
) -> Result<(), Failed> {
    let device = Served::start(0x1234, doorbells)?;
    let ended = run(&mut tender(images, host, &device.path, &["double"]))?;
    let asked = if doorbells.is_empty() { 2000 } else { 0 };
    let expected = format!("{asked} of 2000 by message");
    ended.expect_status(0)?.expect_stdout(&expected)?;
    device.stop()
}

/// How interrupts reach a guest in three states, with registers by message and by doorbell.
fn interrupts(images: &Images, host: &str, state: &str) -> Result<(), Failed> {
    for doorbells in [&[][..], &[DOORBELL as usize]] {
        let device = Served::start(0x1234, doorbells)?;
        run(&mut tender(images, host, &device.path, &[state]))?.expect_status(0)?;
        device.stop()?;
    }
    Ok(())
}

fn one_after_the_other(images: &Images, host: &str) -> Result<(), Failed> {
    let device = Served::start(0x1234, &[DOORBELL as usize])?;
    for what in ["double", "registers", "double"] {
        run(&mut tender(images, host, &device.path, &[what]))?.expect_status(0)?;
    }
    device.stop()
}

/// The run has ended for want of its device, and says so: the guest itself, or its tender on `hvt`.
fn has_gone(guest: Running, host: &str) -> Result<(), Failed> {
    let ended = guest.finish()?;
    ended.expect_status(abi::exit::DEVICE_GONE)?;
    match host {
        "hvt" => ended.expect_stderr("went away while in use")?,
        _ => ended.expect_stdout("device doubler: the process that it was has ended")?,
    };
    Ok(())
}

fn ended_asleep(images: &Images, host: &str) -> Result<(), Failed> {
    let device = Served::start(0x1234, &[])?;
    let guest = start(&mut tender(images, host, &device.path, &["sleep"]))?;
    guest.wait_for("asleep")?;
    device.stop()?;
    has_gone(guest, host)
}

fn ended_asked(images: &Images, host: &str) -> Result<(), Failed> {
    let device = Served::start(0x1234, &[])?;
    let guest = start(&mut tender(images, host, &device.path, &["ask"]))?;
    guest.wait_for("asking")?;
    device.stop()?;
    has_gone(guest, host)
}

fn refused(ended: &Ended, says: &str) -> Result<(), Failed> {
    ended.expect_status(abi::exit::FAILURE)?;
    if ended.stderr.lines().count() != 1 || !ended.stderr.contains(says) {
        return Err(format!("not one line with {says:?}: {ended:?}").into());
    }
    Ok(())
}

fn wrong_ids(images: &Images, host: &str) -> Result<(), Failed> {
    let device = Served::start(0x8086, &[])?;
    let ended = run(&mut tender(images, host, &device.path, &["registers"]))?;
    refused(
        &ended,
        "asks for 1234:11e8 of class ff0000, and this is 8086:11e8",
    )?;
    device.stop()
}

/// One that nobody starts is waited for, and not for ever: without a socket, and with one at which
/// nobody listens any more.
fn nobody(images: &Images, host: &str) -> Result<(), Failed> {
    let folder = TemporaryFolder::new("device")?;
    let path = folder.path.join("nobody");
    for listened in [false, true] {
        if listened {
            drop(UnixListener::bind(&path)?);
        }
        let ended = run(&mut tender(images, host, &path, &["registers"]))?;
        ended.expect_status(abi::exit::FAILURE)?;
        let lines: Vec<_> = ended.stderr.lines().collect();
        let waiting = format!(
            "outboard-tender: waiting up to 5 s until a device listens at {}",
            path.display()
        );
        let advice = "start the device first, as in: outboard model 82599 --socket=PATH &";
        if lines.len() != 2 || lines[0] != waiting || !lines[1].ends_with(advice) {
            return Err(format!("not {waiting:?} and {advice:?}: {ended:?}").into());
        }
    }
    Ok(())
}

/// One that begins to listen behind the guest's start is found.
fn late(images: &Images, host: &str) -> Result<(), Failed> {
    let folder = TemporaryFolder::new("device")?;
    let path = folder.path.join("device");
    let guest = start(&mut tender(images, host, &path, &["registers"]))?;
    guest.wait_for_stderr("waiting up to 5 s")?;
    let device = Served::start_in(folder, 0x1234, &[])?;
    guest.finish()?.expect_status(0)?;
    device.stop()
}

/// What a device that lies does with the `n`-th message.
type Lie = fn(&mut Reply, usize);

/// An answer that may be changed.
struct Reply {
    header: Header,
    payload: Vec<u8>,
    say: bool,
    /// Byte by byte, each long after the other.
    drip: bool,
}

/// Serves a client that comes to `listener`, by a session whose answers `lie` changes.
fn serve_lies(listener: &UnixListener, lie: Lie) -> Option<()> {
    let (stream, _) = listener.accept().ok()?;
    let mut raw = stream.try_clone().ok()?;
    let socket = Socket::new(stream.into(), PATIENCE).ok()?;
    let mut device = Doubler {
        vendor: 0x1234,
        ..Doubler::default()
    };
    let mut session = Session::new(&mut device).ok()?;
    let mut buffer = vec![0; PAYLOAD_MAX];
    let mut answer = vec![0; PAYLOAD_MAX];
    for n in 0.. {
        let received = socket.receive(&mut buffer).ok()?;
        let payload = &buffer[..received.payload];
        let header = received.header;
        let done = session.command(
            &mut device,
            &header,
            payload,
            received.descriptors,
            &mut answer,
        );
        let mut reply = Reply {
            header: header.reply(done.ok()?.payload),
            payload: Vec::new(),
            say: header.flags & flag::NO_REPLY == 0,
            drip: false,
        };
        reply
            .payload
            .extend(&answer[..reply.header.bytes as usize - HEADER_BYTES]);
        lie(&mut reply, n);
        if reply.drip {
            for byte in reply.header.as_bytes().iter().chain(&reply.payload) {
                thread::sleep(DRIP);
                raw.write_all(&[*byte]).ok()?;
            }
        } else if reply.say {
            socket.send(&reply.header, &[&reply.payload], &[]).ok()?;
        }
    }
    None
}

/// How a guest ends whose device lies.
fn lied_to(images: &Images, host: &str, what: &str, lie: Lie) -> Result<Ended, Failed> {
    let folder = TemporaryFolder::new("device")?;
    let path = folder.path.join("liar");
    let listener = UnixListener::bind(&path)?;
    let serving = thread::spawn(move || serve_lies(&listener, lie));
    let ended = run(&mut tender(images, host, &path, &[what]))?;
    serving.join().map_err(|_| "the liar panicked")?;
    Ok(ended)
}

/// Serves a client, and takes pages of the DMA memory away as soon as it is lent: by a hole, and by
/// taking what is free then.
fn serve_and_take(listener: &UnixListener) -> Result<OwnedFd, Failed> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    let own = memfd_create("taken", flags)?;
    let (stream, _) = listener.accept()?;
    let socket = Socket::new(stream.into(), PATIENCE)?;
    let mut device = Doubler {
        vendor: 0x1234,
        ..Doubler::default()
    };
    let mut session = Session::new(&mut device).map_err(|_| "no session")?;
    let (mut buffer, mut answer) = (vec![0; PAYLOAD_MAX], vec![0; PAYLOAD_MAX]);
    loop {
        let received = match socket.receive(&mut buffer) {
            Ok(received) => received,
            Err(_) => return Ok(own),
        };
        let (payload, header) = (&buffer[..received.payload], received.header);
        if let (command::DMA_MAP, [memory]) = (header.command, &received.descriptors[..]) {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(memory, hole, 0, LARGE_PAGE)?;
            fallocate(&own, FallocateFlags::empty(), 0, LARGE_PAGE)?;
            // It has taken the memory, and does not touch it: it would fault itself.
            socket.send(&header.reply(0), &[], &[])?;
            continue;
        }
        let descriptors = received.descriptors;
        let done = session.command(&mut device, &header, payload, descriptors, &mut answer);
        let reply = header.reply(done.map_err(|why| why.to_string())?.payload);
        let payload = &answer[..reply.bytes as usize - HEADER_BYTES];
        if socket.send(&reply, &[payload], &[]).is_err() {
            return Ok(own);
        }
    }
}

/// The run ends with the status of SIGBUS, and the last line names the device as possible cause. As
/// many large pages are reserved as the guest has, and whoever calls has reserved them.
pub fn takes_memory_away(images: &Images, host: &str) -> Result<(), Failed> {
    const SIGBUS: i32 = 128 + 7;
    let folder = TemporaryFolder::new("device")?;
    let path = folder.path.join("thief");
    let listener = UnixListener::bind(&path)?;
    let serving = thread::spawn(move || serve_and_take(&listener));
    let mut command = Command::new(images.program("outboard"));
    command
        .args(["run", "--mem=16", &format!("--host={host}")])
        .arg(format!("--pci:doubler=vfio-user:{}", path.display()))
        .arg("--")
        .arg(images.guest("doubler"))
        .arg("double");
    let ended = run(&mut command)?;
    serving.join().map_err(|_| "the thief panicked")??;
    let says = match host {
        "hvt" => "one that is a process can take pages away",
        _ => "DMA memory that the host has no page for; a process that is a device of its can take",
    };
    ended.expect_status(SIGBUS)?.expect_stderr(says).map(drop)
}

fn lies_at_the_start(images: &Images, host: &str) -> Result<(), Failed> {
    let lies: [(&str, Lie); 9] = [
        ("VERSION: the other side does not answer", |reply, _| {
            reply.drip = true
        }),
        ("VERSION: a message of 4294967295 bytes", |reply, n| {
            if n == 0 {
                reply.header.bytes = u32::MAX;
            }
        }),
        ("VERSION: a reply to something else", |reply, _| {
            reply.header.id ^= 1
        }),
        ("VERSION: a message of the wrong type", |reply, _| {
            reply.header.flags = 0
        }),
        ("it speaks version 7.1 of vfio-user", |reply, _| {
            reply.payload[0] = 7
        }),
        ("VERSION: the other side does not answer", |reply, _| {
            reply.say = false
        }),
        (
            "DEVICE_GET_INFO: an answer of the wrong size",
            |reply, n| {
                if n == 1 {
                    reply.header.bytes -= 1;
                    reply.payload.pop();
                }
            },
        ),
        ("it is no PCI device", |reply, n| {
            if n == 1 {
                reply.payload[8] = 0;
            }
        }),
        ("it refuses DEVICE_RESET: Invalid argument", |reply, _| {
            if reply.header.command == command::DEVICE_RESET {
                reply.header = reply.header.refusal(22);
            }
        }),
    ];
    for (says, lie) in lies {
        refused(&lied_to(images, host, "registers", lie)?, says)?;
    }
    let large: Lie = |reply, _| {
        if reply.header.command == command::DEVICE_GET_REGION_INFO {
            reply.payload[20] = 1;
        }
    };
    refused(
        &lied_to(images, host, "registers", large)?,
        "BAR 0 has 4294971392 bytes",
    )
}

fn lies_later(images: &Images, host: &str) -> Result<(), Failed> {
    const SOME: usize = 50;
    let lies: [(&str, Lie); 5] = [
        ("it does not answer", |reply, n| reply.say = n < SOME),
        ("it does not answer", |reply, n| reply.drip = n > SOME),
        ("a reply to something else", |reply, n| {
            if n > SOME {
                reply.header.id ^= 1;
            }
        }),
        ("a message of 37 bytes", |reply, n| {
            if n > SOME {
                reply.header.bytes += 1;
                reply.payload.push(0);
            }
        }),
        ("it refuses (errno 22)", |reply, n| {
            if n > SOME {
                reply.header = reply.header.refusal(22);
                reply.payload.clear();
            }
        }),
    ];
    for (says, lie) in lies {
        let ended = lied_to(images, host, "ask", lie)?;
        ended.expect_status(0)?;
        let line = format!("outboard: device doubler: asked no more: {says}");
        ended
            .expect_stdout(&line)?
            .expect_stdout("answered 1 times")?;
    }
    Ok(())
}
