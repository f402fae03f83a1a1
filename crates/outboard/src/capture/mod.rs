//! Captures: frames that the guest copies into the shared file become files in the format pcapng.
//!
//! The guest writes a ring ([`abi::capture`]), a thread of the monitor empties it ([`ring`]) into
//! one file for each port ([`pcapng`]). A thread that is slow, or a file that nobody reads, costs
//! captures and never a frame: the guest counts what it could not add.

mod blocks;
mod drain;
pub mod pcapng;
mod reason;
pub mod ring;

use crate::said;
use crate::share::SharedFile;
use abi::extension::feature;
use abi::share::Control;
use drain::Drain;
use rustix::io::pwrite;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::IsTerminal;
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{fmt, io};
use tender::options;

/// What of a frame is captured if nobody says otherwise: all.
const SNAP_DEFAULT: u32 = 1 << 17;
/// The file name that stands for standard output.
const STDOUT: &str = "-";
/// How long a file may take to be written once the guest has ended.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why nothing can be captured.
#[derive(Debug)]
pub enum Error {
    /// Not `--pcap:PORT=FILE`.
    Option(String),
    /// Not `--pcap-snap=BYTES`.
    Snap(String),
    /// The image has no such port; what it has.
    Port(String, String),
    /// This port, or standard output, was named before.
    Twice(String),
    /// These two options name one file.
    Shared(String, String, PathBuf),
    /// The file is a terminal.
    Terminal(String),
    /// This image does not capture.
    Image(PathBuf),
    /// The file cannot be written.
    File(PathBuf, io::Error),
    /// There is no thread, or the shared file cannot be written.
    Start(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option(option) => write!(f, "{option}: type --pcap:PORT=FILE"),
            Self::Snap(value) => write!(
                f,
                "--pcap-snap={value}: not a number of bytes from 1 to {SNAP_DEFAULT}"
            ),
            Self::Port(port, ports) => {
                write!(
                    f,
                    "--pcap:{port}: the image has no such port; it has {ports}"
                )
            }
            Self::Twice(what) => write!(f, "--pcap: {what} is captured twice; name it once"),
            Self::Shared(a, b, file) => write!(
                f,
                "--pcap: {a} and {b} would write into one file, {}; name two",
                file.display()
            ),
            Self::Terminal(port) => write!(
                f,
                "--pcap:{port}: a capture is no text, and this is a terminal; name a file, or type \
                 behind the command: | tcpdump -r -"
            ),
            Self::Image(image) => write!(
                f,
                "--pcap: {} cannot capture; build it again with: outboard build",
                image.display()
            ),
            Self::File(file, e) => write!(f, "--pcap: cannot write {}: {e}", file.display()),
            Self::Start(e) => write!(f, "--pcap: cannot begin: {e}"),
        }
    }
}

impl std::error::Error for Error {}

/// What is to be captured: the options `--pcap:PORT=FILE` and `--pcap-snap=BYTES`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Ports, and where their frames go.
    files: Vec<(String, PathBuf)>,
    /// Most bytes of a frame.
    snap: Option<u32>,
}

impl Request {
    /// Adds `--pcap:PORT=FILE`.
    ///
    /// # Errors
    /// One of them is empty, or was named before.
    pub fn add(&mut self, port: &str, file: Option<&Path>) -> Result<(), Error> {
        let file = file.filter(|file| !file.as_os_str().is_empty() && !port.is_empty());
        let file = file.ok_or_else(|| Error::Option(format!("--pcap:{port}")))?;
        let stdout = |file: &Path| file == Path::new(STDOUT);
        if self.files.iter().any(|(other, _)| other == port) {
            return Err(Error::Twice(port.to_owned()));
        }
        if stdout(file) && self.takes_stdout() {
            return Err(Error::Twice("standard output".to_owned()));
        }
        self.files.push((port.to_owned(), file.to_owned()));
        Ok(())
    }

    /// Takes the value of `--pcap-snap`.
    ///
    /// # Errors
    /// It is no number of bytes.
    pub fn set_snap(&mut self, value: &str) -> Result<(), Error> {
        let snap = value
            .parse()
            .ok()
            .filter(|n| (1..=SNAP_DEFAULT).contains(n));
        self.snap = Some(snap.ok_or_else(|| Error::Snap(value.to_owned()))?);
        Ok(())
    }

    /// Whether nothing is to be captured.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Whether standard output is one of the files, and so cannot be the guest's console.
    pub fn takes_stdout(&self) -> bool {
        self.files.iter().any(|(_, file)| file == Path::new(STDOUT))
    }

    /// Opens the files and says in the shared file what the guest that is to be started with these
    /// arguments of the tender shall capture; nothing if nothing is asked for, or the tender will
    /// refuse to start and say why.
    ///
    /// # Errors
    /// The image cannot capture that, or a file cannot be opened.
    pub fn prepare(
        &self,
        arguments: &[OsString],
        share: &SharedFile,
    ) -> Result<Option<Prepared>, Error> {
        if self.is_empty() {
            return Ok(None);
        }
        let Ok(options::Request::Start(options)) = options::parse(arguments.iter().cloned()) else {
            return Ok(None);
        };
        let Ok((_, image)) = tender::load::open(&options.image) else {
            return Ok(None);
        };
        let features = image.extension.map_or(0, |extension| extension.features);
        if features & feature::CAPTURE == 0 {
            return Err(Error::Image(options.image.clone()));
        }
        let mut outputs: Vec<Output> = Vec::new();
        for (name, file) in &self.files {
            let found = image.networks().find(|(_, net)| net == name);
            let (port, _) = found.ok_or_else(|| {
                let names: Vec<_> = image.networks().map(|(_, net)| net).collect();
                Error::Port(name.clone(), names.join(", "))
            })?;
            let failed = |e| Error::File(file.clone(), e);
            let (sink, identity) = Sink::open(file).map_err(failed)?;
            if matches!(&sink, Sink::File(file) if file.is_terminal()) {
                return Err(Error::Terminal(name.clone()));
            }
            let same = |other: &&Output| identity.is_some() && other.identity == identity;
            if let Some(other) = outputs.iter().find(same) {
                let other = other.name.clone();
                return Err(Error::Shared(other, name.clone(), file.clone()));
            }
            outputs.push(Output {
                name: name.clone(),
                port: port as u16,
                sink,
                file: file.clone(),
                identity,
            });
        }
        let share = share.as_fd().try_clone_to_owned().map_err(Error::Start)?;
        let prepared = Prepared {
            share,
            outputs,
            snap: self.snap.unwrap_or(SNAP_DEFAULT),
            reads_frames: features & feature::RULES != 0,
        };
        prepared.control().map_err(Error::Start)?;
        Ok(Some(prepared))
    }
}

/// Where the frames of a port go.
#[derive(Debug)]
struct Output {
    name: String,
    /// Its index in the manifest.
    port: u16,
    sink: Sink,
    /// Its name.
    file: PathBuf,
    identity: Option<Identity>,
}

/// What tells a file or FIFO from any other: the numbers of its device and inode.
type Identity = (u64, u64);

/// A device, such as /dev/null, may be written by several.
fn identity(metadata: &fs::Metadata) -> Option<Identity> {
    let kind = metadata.file_type();
    (kind.is_file() || kind.is_fifo()).then(|| (metadata.dev(), metadata.ino()))
}

/// A file, or one that cannot be opened yet.
#[derive(Debug)]
enum Sink {
    File(File),
    /// A FIFO that may have no reader yet.
    Fifo,
}

impl Sink {
    fn open(path: &Path) -> io::Result<(Self, Option<Identity>)> {
        let file = if path == Path::new(STDOUT) {
            File::from(io::stdout().as_fd().try_clone_to_owned()?)
        } else {
            match fs::metadata(path) {
                Ok(metadata) if metadata.file_type().is_fifo() => {
                    return Ok((Self::Fifo, identity(&metadata)));
                }
                _ => File::create(path)?,
            }
        };
        let identity = identity(&file.metadata()?);
        Ok((Self::File(file), identity))
    }
}

/// Captures that begin with the guest's first frame. To be dropped in the tender, which has no
/// business with the files.
#[derive(Debug)]
pub struct Prepared {
    share: OwnedFd,
    outputs: Vec<Output>,
    snap: u32,
    /// Whether the image drops frames that it cannot read, as those with rules do.
    reads_frames: bool,
}

impl Prepared {
    /// Tells the guest what to capture.
    fn control(&self) -> io::Result<()> {
        let ports = self.outputs.iter().map(|output| 1 << output.port);
        let share = self.share.as_fd();
        say(share, offset_of!(Control, capture_snap), self.snap.into())?;
        say(share, offset_of!(Control, capture_ports), ports.sum())
    }

    /// Begins to write the files. There is no thread before, so that the tender can be forked.
    ///
    /// # Errors
    /// There is no thread.
    pub fn start(self) -> Result<Captures, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let (end, ended) = sync_channel(1);
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new().name("captures".into());
        let thread = thread.spawn(move || {
            let notes = Drain::new(self, &stopped).run();
            // Nobody listens any more once the patience has run out.
            let _ = end.send(notes);
        });
        Ok(Captures {
            stop,
            ended,
            thread: thread.map_err(Error::Start)?,
        })
    }
}

/// Writes a field of [`Control`].
fn say(share: BorrowedFd<'_>, field: usize, value: u64) -> io::Result<()> {
    let offset = (abi::share::CONTROL_OFFSET + field) as u64;
    pwrite(share, &value.to_ne_bytes(), offset)?;
    Ok(())
}

/// Captures under way.
#[derive(Debug)]
pub struct Captures {
    stop: Arc<AtomicBool>,
    ended: Receiver<Vec<String>>,
    thread: JoinHandle<()>,
}

impl Captures {
    /// Writes what is left and ends the files, now that the guest has ended, and says which of them
    /// are not whole. A file that takes nothing is left as it is after a while.
    pub fn finish(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        match self.ended.recv_timeout(PATIENCE) {
            Ok(notes) => notes
                .iter()
                .for_each(|note| said::line(format_args!("outboard: {note}"))),
            Err(_) => {
                said::line(format_args!(
                    "outboard: a capture is not taken from its pipe: the rest of it is lost"
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_port_has_one_file() {
        let mut request = Request::default();
        assert!(request.is_empty());
        request.add("a", Some(Path::new("f"))).unwrap();
        assert!(!request.takes_stdout());
        request.add("b", Some(Path::new("-"))).unwrap();
        assert!(request.takes_stdout());
        for (port, file) in [("a", Some("g")), ("c", Some("-"))] {
            let error = request.add(port, file.map(Path::new)).unwrap_err();
            assert!(matches!(error, Error::Twice(_)), "{error}");
        }
        for (port, file) in [("", Some("g")), ("d", Some("")), ("d", None)] {
            let error = request.add(port, file.map(Path::new)).unwrap_err();
            assert!(matches!(error, Error::Option(_)), "{error}");
        }
    }

    #[test]
    fn a_snap_length_is_a_number_of_bytes() {
        let mut request = Request::default();
        request.set_snap("96").unwrap();
        assert_eq!(request.snap, Some(96));
        for value in ["", "0", "-1", "x", "131073", "99999999999"] {
            assert!(request.set_snap(value).is_err(), "{value}");
        }
    }
}
