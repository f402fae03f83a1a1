//! The peers of the firewall: forwarders that know no rules.
//!
//! A relay joins two descriptors that carry one frame a `read` or `write`: taps, or the sequenced
//! sockets of a test. `plain` is the baseline, one frame a wake-up. `batched` is the fastest
//! honest one: it drains a port before it writes. Over taps with virtio-net headers the frames
//! carry those headers, which pass through verbatim: then it has the offloads that the firewall
//! has.
//!
//! Both return when a port reports end of file (a socket does, a tap never), and fail when one
//! goes away.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command};

use linux::process::die_with;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

/// Frames that a batch holds at most; the firewall's own bound.
const BATCH_FRAMES_MAX: usize = 64;
/// Bytes after which a batch takes no further frame: it should stay in the cache.
const BATCH_BYTES_MAX: usize = 256 << 10;
/// Longest frame: virtio-net header, Ethernet header, VLAN tag, IP packet, and one byte more.
pub(crate) const FRAME_BYTES_MAX: usize = 12 + 14 + 4 + 65_535 + 1;
/// Frames of a batch begin at multiples of this: a line of the cache.
const FRAME_ALIGNMENT: usize = 64;

/// How a relay forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// See `plain`.
    Plain,
    /// See `batched`.
    Batched,
}

impl Kind {
    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Batched => "batched",
        }
    }

    /// The kind of that name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Plain, Self::Batched]
            .into_iter()
            .find(|kind| kind.name() == name)
    }
}

/// Starts `program relay KIND PARENT` as a child whose standard input and output are the two ports;
/// `program` calls [`serve`]. The child dies with the thread that starts it.
///
/// # Errors
/// The program could not be started.
pub fn spawn(program: &Path, kind: Kind, a: OwnedFd, b: OwnedFd) -> io::Result<Child> {
    Command::new(program)
        .args(["relay", kind.name(), &std::process::id().to_string()])
        .stdin(a)
        .stdout(b)
        .spawn()
}

/// Relays between standard input and standard output: what a process that was started by [`spawn`]
/// does. It ends with `parent`, the process that has started it.
///
/// # Errors
/// `parent` has ended already, or is another process; and as [`run`].
pub fn serve(kind: Kind, parent: i32) -> io::Result<()> {
    die_with(parent)?;
    run(kind, io::stdin(), io::stdout())
}

/// Relays between `a` and `b` until one of them ends.
///
/// # Errors
/// A port went away, or could not be polled or read.
pub fn run(kind: Kind, a: impl AsFd, b: impl AsFd) -> io::Result<()> {
    let ports = [a.as_fd(), b.as_fd()];
    for port in ports {
        fcntl_setfl(port, fcntl_getfl(port)? | OFlags::NONBLOCK)?;
    }
    match kind {
        Kind::Plain => plain(ports),
        Kind::Batched => batched(ports),
    }
}

/// Waits, reads one frame from each port that has one, and writes it to the other.
fn plain(ports: [BorrowedFd; 2]) -> io::Result<()> {
    let mut buffer = vec![0; FRAME_BYTES_MAX];
    loop {
        let ready = wait(ports)?;
        for from in (0..2).filter(|&port| ready[port]) {
            match read(ports[from], &mut buffer)? {
                Read::Frame(bytes) => write(ports[1 - from], &buffer[..bytes])?,
                Read::Empty => {}
                Read::End => return Ok(()),
            }
        }
    }
}

/// Waits, reads a batch from each port that has frames, and writes it to the other.
fn batched(ports: [BorrowedFd; 2]) -> io::Result<()> {
    let mut batch = Batch::new();
    loop {
        let ready = wait(ports)?;
        for from in (0..2).filter(|&port| ready[port]) {
            let end = batch.fill(ports[from])?;
            for frame in batch.frames() {
                write(ports[1 - from], frame)?;
            }
            if end {
                return Ok(());
            }
        }
    }
}

/// Frames one behind the other in one buffer, always from its beginning: small frames touch a few
/// hot kilobytes, and no two of them share an offset in a page.
struct Batch {
    bytes: Vec<u8>,
    /// Begin and end of each frame.
    frames: Vec<(usize, usize)>,
}

impl Batch {
    fn new() -> Self {
        Self {
            bytes: vec![0; BATCH_BYTES_MAX + FRAME_BYTES_MAX],
            frames: Vec::with_capacity(BATCH_FRAMES_MAX),
        }
    }

    /// Replaces the frames by those that `port` has; true at its end.
    fn fill(&mut self, port: BorrowedFd) -> io::Result<bool> {
        self.frames.clear();
        let mut begin = 0;
        while self.frames.len() < BATCH_FRAMES_MAX && begin < BATCH_BYTES_MAX {
            match read(port, &mut self.bytes[begin..begin + FRAME_BYTES_MAX])? {
                Read::Frame(bytes) => {
                    self.frames.push((begin, begin + bytes));
                    begin = (begin + bytes).next_multiple_of(FRAME_ALIGNMENT);
                }
                Read::Empty => return Ok(false),
                Read::End => return Ok(true),
            }
        }
        Ok(false)
    }

    fn frames(&self) -> impl Iterator<Item = &[u8]> {
        self.frames
            .iter()
            .map(|&(begin, end)| &self.bytes[begin..end])
    }
}

/// Sleeps until a port has something to say; which ones do.
fn wait(ports: [BorrowedFd; 2]) -> io::Result<[bool; 2]> {
    let mut set = ports.map(|port| PollFd::from_borrowed_fd(port, PollFlags::IN));
    match poll(&mut set, None) {
        Ok(_) | Err(Errno::INTR) => Ok([0, 1].map(|port| !set[port].revents().is_empty())),
        Err(error) => Err(error.into()),
    }
}

/// What a port had.
pub(crate) enum Read {
    /// One of this many bytes.
    Frame(usize),
    /// Nothing for now.
    Empty,
    /// Nothing any more.
    End,
}

/// Takes one frame, if there is one.
pub(crate) fn read(port: BorrowedFd, buffer: &mut [u8]) -> io::Result<Read> {
    match rustix::io::read(port, buffer) {
        Ok(0) => Ok(Read::End),
        Ok(bytes) => Ok(Read::Frame(bytes)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(Read::Empty),
        Err(error) => Err(error.into()),
    }
}

/// A frame that a port refuses (no room, link down, malformed) is lost, as on any wire.
pub(crate) fn write(port: BorrowedFd, frame: &[u8]) -> io::Result<()> {
    match rustix::io::write(port, frame) {
        Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::NOMEM) => Ok(()),
        Err(Errno::IO | Errno::INVAL) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};

    fn wire() -> (OwnedFd, OwnedFd) {
        // Sequenced packets keep frame boundaries, as a tap does, and have an end of file.
        let flags = SocketFlags::CLOEXEC;
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
    }

    /// Sends frames both ways through a relay and expects each at the other side, in order.
    fn carries(kind: Kind, sizes: &[usize]) {
        let (a, relay_a) = wire();
        let (b, relay_b) = wire();
        let relay = std::thread::spawn(move || run(kind, relay_a, relay_b));
        let frames: Vec<Vec<u8>> = (0u8..)
            .zip(sizes)
            .map(|(fill, &size)| vec![fill; size])
            .collect();
        let mut buffer = vec![0; FRAME_BYTES_MAX];
        for (from, to) in [(&a, &b), (&b, &a)] {
            for frame in &frames {
                rustix::io::write(from, frame).unwrap();
            }
            for frame in &frames {
                let bytes = rustix::io::read(to, &mut buffer[..]).unwrap();
                assert_eq!(&buffer[..bytes], frame);
            }
        }
        shutdown(&a, Shutdown::Write).unwrap();
        relay.join().unwrap().unwrap();
    }

    #[test]
    fn plain_carries_frames_both_ways() {
        carries(Kind::Plain, &[60, 1514, 60, 65_000]);
    }

    #[test]
    fn batched_carries_frames_both_ways() {
        carries(Kind::Batched, &[60, 1514, 60, 65_000, 61]);
    }

    #[test]
    fn a_batch_is_bounded_by_frames() {
        let (a, b) = wire();
        fcntl_setfl(&b, OFlags::NONBLOCK).unwrap();
        for _ in 0..BATCH_FRAMES_MAX + 3 {
            rustix::io::write(&a, &[1; 60]).unwrap();
        }
        let mut batch = Batch::new();
        assert!(!batch.fill(b.as_fd()).unwrap());
        assert_eq!(batch.frames().count(), BATCH_FRAMES_MAX);
        assert!(!batch.fill(b.as_fd()).unwrap());
        assert_eq!(batch.frames().count(), 3);
    }

    #[test]
    fn a_batch_is_bounded_by_bytes() {
        let (a, b) = wire();
        fcntl_setfl(&b, OFlags::NONBLOCK).unwrap();
        fcntl_setfl(&a, OFlags::NONBLOCK).unwrap();
        rustix::net::sockopt::set_socket_send_buffer_size(&a, 1 << 20).unwrap();
        for _ in 0..6 {
            rustix::io::write(&a, &[1; 60_000]).unwrap();
        }
        let mut batch = Batch::new();
        assert!(!batch.fill(b.as_fd()).unwrap());
        // Four frames are less than 256 KiB, so a fifth still enters.
        assert_eq!(batch.frames().count(), 5);
        assert!(!batch.fill(b.as_fd()).unwrap());
        assert_eq!(batch.frames().count(), 1);
    }

    #[test]
    fn a_port_that_goes_away_is_an_error() {
        let (_a, relay_a) = wire();
        let directory = std::fs::File::open("/").unwrap();
        assert!(run(Kind::Batched, relay_a, directory).is_err());
    }

    #[test]
    fn names_are_read_back() {
        for kind in [Kind::Plain, Kind::Batched] {
            assert_eq!(Kind::named(kind.name()), Some(kind));
        }
        assert_eq!(Kind::named("fast"), None);
    }
}
