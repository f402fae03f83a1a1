//! System calls, by descriptor.

use crate::info;
use crate::world::Net;
use libc::{
    EADDRINUSE, EALREADY, EBADF, ECONNREFUSED, ECONNRESET, EHOSTUNREACH, EINPROGRESS, EINVAL,
    EISCONN, EMFILE, ENOPROTOOPT, ENOTCONN, EOPNOTSUPP, EPIPE, ETIMEDOUT, c_int,
};
use net::socket::Hub;
use net::tcp::Failure;
use net::tcp::host::{ListenerId, SocketId, Unusable};
use net::tcp::socket::Error;
use ports::Instant;
use std::collections::VecDeque;
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::{IntoRawFd, RawFd};
use std::task::{Context, Poll, Waker};

/// Bytes that a process may have written and that are not acknowledged, unless it sets another
/// number.
const SEND_BUFFER: usize = 4 << 20;
/// Flags of calls that we have: they change nothing here.
const FLAGS: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

/// What a call returns, or the number of its error.
pub type Result<T> = core::result::Result<T, c_int>;

/// All descriptors.
#[derive(Default)]
pub struct Sockets {
    descriptors: Vec<Descriptor>,
}

struct Descriptor {
    /// A number that the process has, because packetdrill closes in the end what scripts do not.
    number: RawFd,
    kind: Kind,
    flags: c_int,
    send_buffer: usize,
    no_delay: bool,
}

enum Kind {
    New(Option<SocketAddr>),
    Listener(ListenerId),
    Stream(Stream),
    /// Closed, and gone when all is sent.
    Closed(Option<Stream>),
}

struct Stream {
    id: SocketId,
    /// What was written and has no room in the stack.
    written: VecDeque<u8>,
    shut_read: bool,
    shut_write: bool,
    opening: bool,
    /// The process knows why it failed.
    told: bool,
}

fn context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

fn number(error: Error) -> c_int {
    match error {
        Error::Failed(Failure::Refused) => ECONNREFUSED,
        Error::Failed(Failure::Reset | Failure::Aborted) => ECONNRESET,
        Error::Failed(Failure::TimedOut) => ETIMEDOUT,
        Error::Closed => EPIPE,
    }
}

impl Stream {
    fn new(id: SocketId, opening: bool) -> Self {
        Self {
            id,
            written: VecDeque::new(),
            shut_read: false,
            shut_write: false,
            opening,
            told: false,
        }
    }

    /// Gives the stack what it has room for; whether that was anything.
    fn feed(&mut self, net: &mut Net) -> bool {
        let mut any = false;
        while !self.written.is_empty() {
            let (bytes, _) = self.written.as_slices();
            match net.tcp.poll_write(self.id, bytes, &mut context()) {
                Poll::Ready(Ok(count)) => drop(self.written.drain(..count)),
                Poll::Ready(Err(_)) => self.written.clear(),
                Poll::Pending => return any,
            }
            any = true;
        }
        any
    }

    /// Bytes that were written and are not acknowledged.
    fn queued(&self, net: &mut Net) -> usize {
        let socket = net.tcp.socket(self.id);
        let queued = socket.map_or(0, |socket| socket.connection().unsent_or_unacknowledged());
        self.written.len() + queued as usize
    }

    fn failure(&self, net: &mut Net) -> Option<c_int> {
        let failure = net.tcp.socket(self.id)?.connection().failure()?;
        Some(number(Error::Failed(failure)))
    }

    /// The reason of a failure, which a process is told once.
    fn fail(&mut self, net: &mut Net) -> Option<c_int> {
        let failure = self.failure(net)?;
        (!core::mem::replace(&mut self.told, true)).then_some(failure)
    }
}

impl Sockets {
    /// Whether there was none ever.
    pub fn is_empty(&self) -> bool {
        self.descriptors.is_empty()
    }

    /// Lets streams go on that a process has written more to than the stack had room for; whether
    /// one did.
    pub fn feed(&mut self, net: &mut Net) -> bool {
        let mut any = false;
        for descriptor in &mut self.descriptors {
            match &mut descriptor.kind {
                Kind::Stream(stream) => {
                    let had = !stream.written.is_empty();
                    any |= stream.feed(net);
                    if had && stream.written.is_empty() && stream.shut_write {
                        net.tcp.shutdown(stream.id);
                    }
                }
                Kind::Closed(Some(stream)) => {
                    any |= stream.feed(net);
                    if stream.written.is_empty() {
                        let now = net.now();
                        net.tcp.leave(stream.id, now);
                        descriptor.kind = Kind::Closed(None);
                        any = true;
                    }
                }
                _ => {}
            }
        }
        any
    }

    fn add(&mut self, kind: Kind) -> Result<c_int> {
        let number = File::open("/dev/null").map_err(|_| EMFILE)?.into_raw_fd();
        self.descriptors.push(Descriptor {
            number,
            kind,
            flags: libc::O_RDWR,
            send_buffer: SEND_BUFFER,
            no_delay: false,
        });
        Ok(number)
    }

    fn get(&mut self, fd: c_int) -> Result<&mut Descriptor> {
        let mut all = self.descriptors.iter_mut();
        let found = all
            .find(|descriptor| descriptor.number == fd)
            .ok_or(EBADF)?;
        match found.kind {
            Kind::Closed(_) => Err(EBADF),
            _ => Ok(found),
        }
    }

    fn stream(&mut self, fd: c_int) -> Result<&mut Stream> {
        match &mut self.get(fd)?.kind {
            Kind::Stream(stream) => Ok(stream),
            _ => Err(ENOTCONN),
        }
    }

    /// Whether calls of this descriptor do not wait.
    pub fn is_nonblocking(&mut self, fd: c_int) -> bool {
        self.get(fd)
            .is_ok_and(|descriptor| descriptor.flags & libc::O_NONBLOCK != 0)
    }

    /// socket(2).
    pub fn socket(&mut self, kind: c_int) -> Result<c_int> {
        let blocks = kind & libc::SOCK_NONBLOCK == 0;
        if kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != libc::SOCK_STREAM {
            return Err(libc::ESOCKTNOSUPPORT);
        }
        let fd = self.add(Kind::New(None))?;
        if !blocks {
            self.get(fd)?.flags |= libc::O_NONBLOCK;
        }
        Ok(fd)
    }

    /// bind(2).
    pub fn bind(&mut self, fd: c_int, to: SocketAddr) -> Result<c_int> {
        match &mut self.get(fd)?.kind {
            Kind::New(bound) => {
                *bound = Some(to);
                Ok(0)
            }
            _ => Err(EINVAL),
        }
    }

    /// listen(2).
    pub fn listen(&mut self, net: &mut Net, fd: c_int, backlog: c_int) -> Result<c_int> {
        let descriptor = self.get(fd)?;
        let Kind::New(Some(local)) = descriptor.kind else {
            return Err(EINVAL);
        };
        // Linux keeps one more than it is asked for.
        let backlog = usize::try_from(backlog).unwrap_or(0) + 1;
        let listener = net.tcp.listen(local, backlog).map_err(|_| EADDRINUSE)?;
        descriptor.kind = Kind::Listener(listener);
        Ok(0)
    }

    /// accept(2): the descriptor, and the peer.
    pub fn accept(&mut self, net: &mut Net, fd: c_int) -> Poll<Result<(c_int, SocketAddr)>> {
        let listener = match self.get(fd) {
            Ok(Descriptor {
                kind: Kind::Listener(listener),
                ..
            }) => *listener,
            Ok(_) => return Poll::Ready(Err(EINVAL)),
            Err(error) => return Poll::Ready(Err(error)),
        };
        let Poll::Ready(id) = net.tcp.poll_accept(listener, &mut context()) else {
            return Poll::Pending;
        };
        let Some(peer) = net.tcp.socket(id).map(|socket| socket.ends().remote()) else {
            return Poll::Ready(Err(libc::ECONNABORTED));
        };
        let accepted = self.add(Kind::Stream(Stream::new(id, false)));
        Poll::Ready(accepted.map(|fd| (fd, peer)))
    }

    /// connect(2).
    pub fn connect(&mut self, net: &mut Net, fd: c_int, to: SocketAddr) -> Poll<Result<c_int>> {
        let descriptor = match self.get(fd) {
            Ok(descriptor) => descriptor,
            Err(error) => return Poll::Ready(Err(error)),
        };
        let again = match &mut descriptor.kind {
            Kind::New(_) => {
                let id = match net.connect(to) {
                    Ok(id) => id,
                    Err(Unusable::NoRoute) => return Poll::Ready(Err(EHOSTUNREACH)),
                    Err(_) => return Poll::Ready(Err(EADDRINUSE)),
                };
                net.tcp.set_no_delay(id, descriptor.no_delay);
                descriptor.kind = Kind::Stream(Stream::new(id, true));
                false
            }
            Kind::Stream(_) => true,
            _ => return Poll::Ready(Err(EOPNOTSUPP)),
        };
        let waits = descriptor.flags & libc::O_NONBLOCK == 0;
        let Kind::Stream(stream) = &mut descriptor.kind else {
            return Poll::Ready(Err(EINVAL));
        };
        match net.tcp.poll_open(stream.id, &mut context()) {
            Poll::Pending if waits => Poll::Pending,
            Poll::Pending if again => Poll::Ready(Err(EALREADY)),
            Poll::Pending => Poll::Ready(Err(EINPROGRESS)),
            Poll::Ready(Err(error)) => {
                stream.told = true;
                Poll::Ready(Err(number(error)))
            }
            Poll::Ready(Ok(())) if core::mem::take(&mut stream.opening) => Poll::Ready(Ok(0)),
            Poll::Ready(Ok(())) => Poll::Ready(Err(EISCONN)),
        }
    }

    /// read(2).
    pub fn read(&mut self, net: &mut Net, fd: c_int, place: &mut [u8]) -> Poll<Result<isize>> {
        let stream = match self.stream(fd) {
            Ok(stream) => stream,
            Err(error) => return Poll::Ready(Err(error)),
        };
        if place.is_empty() {
            return Poll::Ready(Ok(0));
        }
        match net.tcp.poll_read(stream.id, place, &mut context()) {
            Poll::Pending if stream.shut_read => Poll::Ready(Ok(0)),
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(count)) => Poll::Ready(Ok(count as isize)),
            Poll::Ready(Err(_)) => Poll::Ready(stream.fail(net).map_or(Ok(0), Err)),
        }
    }

    /// send(2): how many of `bytes` there was room for.
    pub fn send(
        &mut self,
        net: &mut Net,
        fd: c_int,
        bytes: &[u8],
        flags: c_int,
    ) -> Poll<Result<isize>> {
        let most = match self.get(fd) {
            Ok(descriptor) => descriptor.send_buffer,
            Err(error) => return Poll::Ready(Err(error)),
        };
        let stream = match self.stream(fd) {
            Ok(stream) => stream,
            Err(ENOTCONN) => return Poll::Ready(Err(EPIPE)),
            Err(error) => return Poll::Ready(Err(error)),
        };
        if flags & !FLAGS != 0 {
            return Poll::Ready(Err(EOPNOTSUPP));
        }
        if let Some(failure) = stream.fail(net) {
            return Poll::Ready(Err(failure));
        }
        if stream.shut_write || stream.failure(net).is_some() {
            return Poll::Ready(Err(EPIPE));
        }
        if stream.opening && net.tcp.poll_open(stream.id, &mut context()).is_pending() {
            return Poll::Pending;
        }
        let room = most.saturating_sub(stream.queued(net)).min(bytes.len());
        if room == 0 && !bytes.is_empty() {
            return Poll::Pending;
        }
        stream.written.extend(&bytes[..room]);
        stream.feed(net);
        Poll::Ready(Ok(room as isize))
    }

    /// close(2).
    pub fn close(&mut self, net: &mut Net, fd: c_int) -> Result<c_int> {
        let descriptor = self.get(fd)?;
        match core::mem::replace(&mut descriptor.kind, Kind::Closed(None)) {
            Kind::Listener(listener) => net.tcp.unlisten(listener),
            Kind::Stream(mut stream) => {
                let unread = net
                    .tcp
                    .socket(stream.id)
                    .is_some_and(|socket| socket.connection().readable() > 0);
                if unread {
                    // What was written will not arrive.
                    stream.written.clear();
                }
                descriptor.kind = Kind::Closed(Some(stream));
            }
            Kind::New(_) | Kind::Closed(_) => {}
        }
        Ok(0)
    }

    /// shutdown(2).
    pub fn shutdown(&mut self, net: &mut Net, fd: c_int, how: c_int) -> Result<c_int> {
        let stream = self.stream(fd)?;
        stream.shut_read |= how != libc::SHUT_WR;
        if how != libc::SHUT_RD {
            stream.shut_write = true;
            if stream.written.is_empty() {
                net.tcp.shutdown(stream.id);
            }
        }
        Ok(0)
    }

    /// fcntl(2).
    pub fn fcntl(&mut self, fd: c_int, command: c_int, argument: c_int) -> Result<c_int> {
        let descriptor = self.get(fd)?;
        match command {
            libc::F_GETFL => Ok(descriptor.flags),
            libc::F_SETFL => {
                descriptor.flags = argument | libc::O_RDWR;
                Ok(0)
            }
            _ => Err(EINVAL),
        }
    }

    /// ioctl(2): bytes that can be read, or that wait to be acknowledged.
    pub fn ioctl(&mut self, net: &mut Net, fd: c_int, request: u64) -> Result<c_int> {
        let stream = self.stream(fd)?;
        let queued = stream.queued(net);
        let socket = net.tcp.socket(stream.id).ok_or(ENOTCONN)?;
        match request {
            libc::FIONREAD => Ok(socket.connection().readable() as c_int),
            libc::TIOCOUTQ => Ok(queued as c_int),
            _ => Err(EINVAL),
        }
    }

    /// poll(2), of one descriptor.
    pub fn poll(&mut self, net: &mut Net, fd: c_int, events: i16) -> i16 {
        let Ok(descriptor) = self.get(fd) else {
            return libc::POLLNVAL;
        };
        let most = descriptor.send_buffer;
        let Kind::Stream(stream) = &mut descriptor.kind else {
            return 0;
        };
        let mut found = 0;
        let queued = stream.queued(net);
        let Some(connection) = net.tcp.socket(stream.id).map(|socket| socket.connection()) else {
            return libc::POLLHUP;
        };
        let (readable, finished) = (connection.readable() > 0, connection.is_finished());
        let (failed, writes) = (connection.failure().is_some(), connection.may_queue());
        let opening = net.tcp.poll_open(stream.id, &mut context()).is_pending();
        if readable || finished || stream.shut_read {
            found |= libc::POLLIN;
        }
        if finished || stream.shut_read {
            found |= libc::POLLRDHUP;
        }
        if !opening && (queued < most || !writes) {
            found |= libc::POLLOUT;
        }
        let ends = failed || finished && stream.shut_write;
        let hang_up = if ends { libc::POLLHUP } else { 0 };
        let error = if failed && !stream.told {
            libc::POLLERR
        } else {
            0
        };
        found & events | hang_up | error
    }

    /// setsockopt(2), of options that are a number.
    pub fn set(
        &mut self,
        net: &mut Net,
        fd: c_int,
        (level, name): (c_int, c_int),
        value: c_int,
    ) -> Result<c_int> {
        let descriptor = self.get(fd)?;
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => {
                // As Linux counts them.
                descriptor.send_buffer = 2 * usize::try_from(value).map_err(|_| EINVAL)?;
            }
            (libc::SOL_TCP, libc::TCP_NODELAY) => {
                descriptor.no_delay = value != 0;
                if let Kind::Stream(stream) = &descriptor.kind {
                    net.tcp.set_no_delay(stream.id, value != 0);
                }
            }
            (libc::SOL_SOCKET, libc::SO_REUSEADDR | libc::SO_RCVBUF | libc::SO_MARK) => {}
            _ => return Err(ENOPROTOOPT),
        }
        Ok(0)
    }

    /// getsockopt(2).
    pub fn option(
        &mut self,
        net: &mut Net,
        fd: c_int,
        option: (c_int, c_int),
        now: Instant,
    ) -> Result<Vec<u8>> {
        let descriptor = self.get(fd)?;
        let int = |value: c_int| Ok(value.to_ne_bytes().to_vec());
        let stream = match &mut descriptor.kind {
            Kind::Stream(stream) => Some(stream),
            _ => None,
        };
        match option {
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => int(descriptor.send_buffer as c_int),
            (libc::SOL_SOCKET, libc::SO_ERROR) => {
                int(stream.and_then(|stream| stream.fail(net)).unwrap_or(0))
            }
            (libc::SOL_TCP, libc::TCP_NODELAY) => int(descriptor.no_delay.into()),
            (libc::SOL_TCP, libc::TCP_INFO) => {
                let socket = stream.and_then(|stream| net.tcp.socket(stream.id));
                Ok(info::tcp_info(
                    socket.map(|socket| socket.connection()),
                    now,
                ))
            }
            (libc::SOL_TCP, info::TCP_CC_INFO) => Ok(Vec::new()),
            (libc::SOL_SOCKET, libc::SO_MEMINFO) => Ok(vec![0; info::MEMORY_INFO]),
            _ => Err(ENOPROTOOPT),
        }
    }
}
