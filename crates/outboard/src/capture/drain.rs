//! The thread that takes records out of the ring and adds them to their files.

use super::blocks::BlockFile;
use super::pcapng::Writer;
use super::reason::Reasons;
use super::ring::{self, Checked, Nonsense};
use super::{Output, Prepared, Sink, say};
use abi::share::{
    CAPTURE_OFFSET, CAPTURE_RING_BYTES, CAPTURE_RING_OFFSET, COUNTERS_OFFSET, COUNTERS_PER_PORT,
    CaptureHead, Control, PortCounter,
};
use net::pcapng::Packet;
use rustix::io::{Errno, pread};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::mem::offset_of;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

/// Sleep while nothing comes: short after something has come, longer from time to time, so that
/// frames show at once and silence costs little.
const SLEEP_MIN: Duration = Duration::from_millis(1);
const SLEEP_MAX: Duration = Duration::from_millis(16);
/// How often a FIFO is looked at for a reader.
const FIFO_SLEEP: Duration = Duration::from_millis(20);
/// Bytes that are taken out at once: more than a record has.
const COPY_BYTES: usize = 1 << 20;

/// Who writes the files.
const APPLICATION: &str = concat!("outboard ", env!("CARGO_PKG_VERSION"));

/// Says what happens while the guest runs: in one piece, as the guest writes to the same file.
fn tell(what: &str) {
    let line = format!("outboard: {what}\n");
    let _nobody_reads = io::stderr().write_all(line.as_bytes());
}

/// Why a capture ends before its guest does.
enum Ended {
    /// The ring holds what cannot be.
    Nonsense(Nonsense),
    /// The shared file cannot be read or written.
    Share(io::Error),
}

impl From<Errno> for Ended {
    fn from(error: Errno) -> Self {
        Self::Share(error.into())
    }
}

/// A file under way.
struct Open {
    output: Output,
    /// Why not, once it cannot be written any more.
    writer: Result<Writer<BlockFile>, String>,
}

/// What the thread works with.
pub struct Drain<'a> {
    prepared: Prepared,
    open: Vec<Open>,
    stop: &'a AtomicBool,
    reasons: Reasons,
    /// Position up to which records were taken out.
    tail: u64,
    copy: Vec<u8>,
}

impl<'a> Drain<'a> {
    /// Ready to run until `stop` says that the guest has ended.
    pub fn new(prepared: Prepared, stop: &'a AtomicBool) -> Self {
        Self {
            reasons: Reasons::new(prepared.reads_frames),
            prepared,
            open: Vec::new(),
            stop,
            tail: 0,
            copy: vec![0; COPY_BYTES],
        }
    }

    /// Writes the files to their end. What there is to say in the end: which captures are not
    /// whole, and why.
    pub fn run(mut self) -> Vec<String> {
        for output in std::mem::take(&mut self.prepared.outputs) {
            let writer = writer(&output, self.prepared.snap, self.stop);
            let writer = writer.map_err(|e| output.ended(&e));
            self.open.push(Open { output, writer });
        }
        match self.follow() {
            Ok(()) => {}
            Err(Ended::Nonsense(nonsense)) => {
                tell(&format!(
                    "captures end here: the guest wrote {nonsense} into the ring"
                ));
            }
            Err(Ended::Share(e)) => {
                tell(&format!("captures end here: the shared file: {e}"));
            }
        }
        self.quiet();
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let time = time.map_or(0, |time| time.as_nanos() as u64);
        for index in 0..self.open.len() {
            let lost = self.lost(self.open[index].output.port).unwrap_or(0);
            self.open[index].attempt(|writer| writer.statistics(time, lost));
        }
        self.open.iter().filter_map(Open::note).collect()
    }

    /// Takes records out until the guest has ended, or no file is left.
    fn follow(&mut self) -> Result<(), Ended> {
        let mut sleep = SLEEP_MIN;
        while self.open.iter().any(|open| open.writer.is_ok()) {
            // Asked first, so that all that the guest has written is seen before the end.
            let last = self.stop.load(Ordering::Acquire);
            let taken = self.take()?;
            if taken > 0 {
                sleep = SLEEP_MIN;
                self.open
                    .iter_mut()
                    .for_each(|open| open.attempt(Writer::flush));
            } else if last {
                break;
            }
            if taken < COPY_BYTES / 2 && !last {
                thread::park_timeout(sleep);
                sleep = (sleep * 2).min(SLEEP_MAX);
            }
        }
        Ok(())
    }

    /// Takes out what waits, or a part of it, and returns how many bytes that were.
    fn take(&mut self) -> Result<usize, Ended> {
        let waiting = ring::waiting(self.tail, self.head()?).map_err(Ended::Nonsense)?;
        let length = waiting.min(COPY_BYTES);
        let mut copy = std::mem::take(&mut self.copy);
        self.read_ring(&mut copy[..length])?;
        let ports = self.open.iter().map(|open| 1 << open.output.port).sum();
        let mut rest = &copy[..length];
        let result = loop {
            match ring::take(&mut rest, length == waiting, ports) {
                Ok(Some(checked)) => self.add(&checked),
                Ok(None) => break Ok(length - rest.len()),
                Err(nonsense) => break Err(Ended::Nonsense(nonsense)),
            }
        };
        self.copy = copy;
        let taken = result?;
        if taken > 0 {
            self.tail += taken as u64;
            let share = self.prepared.share.as_fd();
            say(share, offset_of!(Control, capture_tail), self.tail).map_err(Ended::Share)?;
        }
        Ok(taken)
    }

    fn add(&mut self, checked: &Checked<'_>) {
        let record = &checked.record;
        let share = &self.prepared.share;
        let comment = self.reasons.comment(share, record.fate, record.generation);
        let packet = Packet {
            time: record.time,
            outbound: record.direction != 0,
            length: record.length,
            bytes: checked.bytes,
            comment: &comment,
        };
        let port = |open: &&mut Open| open.output.port == record.port;
        if let Some(open) = self.open.iter_mut().find(port) {
            open.attempt(|writer| writer.packet(&packet));
        }
    }

    /// Has the guest capture no more.
    fn quiet(&self) {
        // If the shared file cannot be written, the ring fills and the guest goes on all the same.
        let _ = say(
            self.prepared.share.as_fd(),
            offset_of!(Control, capture_ports),
            0,
        );
    }

    /// The guest's position.
    fn head(&self) -> Result<u64, Errno> {
        number(
            &self.prepared.share,
            CAPTURE_OFFSET + offset_of!(CaptureHead, head),
        )
    }

    /// Frames of this port that the guest could not add.
    fn lost(&self, port: u16) -> Result<u64, Errno> {
        let counter = usize::from(port) * COUNTERS_PER_PORT + PortCounter::CaptureLost as usize;
        let offset = COUNTERS_OFFSET + counter * size_of::<u64>();
        number(&self.prepared.share, offset)
    }

    /// Fills `copy` from the reader's position on.
    fn read_ring(&self, copy: &mut [u8]) -> Result<(), Errno> {
        let start = (self.tail % CAPTURE_RING_BYTES as u64) as usize;
        let until_end = copy.len().min(CAPTURE_RING_BYTES - start);
        let (first, wrapped) = copy.split_at_mut(until_end);
        read_exact(&self.prepared.share, first, CAPTURE_RING_OFFSET + start)?;
        read_exact(&self.prepared.share, wrapped, CAPTURE_RING_OFFSET)
    }
}

impl Open {
    /// Does this to the file if it can be written; it cannot any more if this fails.
    fn attempt(&mut self, action: impl FnOnce(&mut Writer<BlockFile>) -> io::Result<()>) {
        if let Ok(writer) = &mut self.writer
            && let Err(e) = action(writer)
        {
            self.writer = Err(self.output.ended(&e));
        }
    }

    /// What there is to say of it in the end.
    fn note(&self) -> Option<String> {
        let reason = self.writer.as_ref().err()?;
        let file = self.output.file.display();
        Some(format!("the capture {file} is not whole: {reason}"))
    }
}

impl Output {
    /// Says that it ends before its guest, and why.
    fn ended(&self, error: &io::Error) -> String {
        tell(&format!(
            "the capture {} ends here: {error}",
            self.file.display()
        ));
        error.to_string()
    }
}

/// The file of this output with its header. Waits for the reader of a FIFO.
fn writer(output: &Output, snap: u32, stop: &AtomicBool) -> io::Result<Writer<BlockFile>> {
    let file = match &output.sink {
        Sink::File(file) => file.try_clone()?,
        Sink::Fifo => open_fifo(&output.file, stop)?,
    };
    let mut writer = Writer::new(BlockFile::new(file), APPLICATION, &output.name, snap)?;
    writer.flush()?;
    Ok(writer)
}

fn open_fifo(path: &Path, stop: &AtomicBool) -> io::Result<File> {
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(nonblocking);
    loop {
        match options.open(path) {
            // fifo(7): nobody has it open for reading.
            Err(e) if e.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {
                if stop.load(Ordering::Acquire) {
                    return Err(io::Error::other("nobody has read it"));
                }
                thread::park_timeout(FIFO_SLEEP);
            }
            Err(e) => return Err(e),
            Ok(file) => {
                rustix::io::ioctl_fionbio(&file, false)?;
                return Ok(file);
            }
        }
    }
}

fn number(share: &OwnedFd, offset: usize) -> Result<u64, Errno> {
    let mut bytes = [0; size_of::<u64>()];
    read_exact(share, &mut bytes, offset)?;
    Ok(u64::from_ne_bytes(bytes))
}

fn read_exact(share: &OwnedFd, bytes: &mut [u8], offset: usize) -> Result<(), Errno> {
    let mut read = 0;
    while read < bytes.len() {
        match pread(share, &mut bytes[read..], (offset + read) as u64)? {
            0 => return Err(Errno::IO),
            count => read += count,
        }
    }
    Ok(())
}
