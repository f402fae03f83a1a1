//! Many connections of one client to a server that sends back what it gets.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::{Errno, read};
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, bind, connect, getpeername, send,
    socket_with, sockopt,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The first of the ports that a client takes itself, one after the other: it knows the free ones.
const PORT_FIRST: u16 = 1024;
/// Connections that one address has ports for.
pub const OF_AN_ADDRESS: usize = (u16::MAX - PORT_FIRST) as usize;
/// Connections that are being opened at a time: fewer than wait to be accepted.
const OPENING_MAX: usize = 64;
/// Nothing happens for so long: what has not happened until then does not.
const SILENCE: Duration = Duration::from_secs(5);
/// Events that are looked at in one go.
const EVENTS: usize = 256;
/// Descriptors that a process has besides its connections.
const OTHER_DESCRIPTORS: u64 = 200;

/// Lets this process have as many descriptors as it may; how many connections that is.
pub fn connections_max() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    let now = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    now.map_or(OF_AN_ADDRESS, |most| {
        let left = usize::try_from(most.saturating_sub(OTHER_DESCRIPTORS));
        left.map_or(OF_AN_ADDRESS, |left| left.min(OF_AN_ADDRESS))
    })
}

/// Connections, and what tells of them.
#[derive(Debug)]
pub struct Connections {
    epoll: OwnedFd,
    open: Vec<Option<Connection>>,
    scratch: Vec<u8>,
}

#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    /// Bytes of the answer that are to come.
    awaited: usize,
}

/// What a load of questions and answers has reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answered {
    /// Answers that have come whole.
    pub answers: u64,
    /// How long it was at it.
    pub elapsed: Duration,
}

impl Answered {
    /// Answers a second.
    pub fn per_second(&self) -> f64 {
        self.answers as f64 / self.elapsed.as_secs_f64()
    }
}

impl Connections {
    /// Opens `count` connections, each from another port of the address `from`; to be called in the
    /// client's segment. Those that fail are left out.
    ///
    /// # Errors
    /// There is no socket, or no port.
    pub fn open(from: Ipv4Addr, to: SocketAddrV4, count: usize) -> io::Result<Self> {
        let mut all = Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            open: Vec::new(),
            scratch: Vec::with_capacity(64 << 10),
        };
        let (mut begun, mut done) = (0, 0);
        while done < count {
            while begun < count && begun - done < OPENING_MAX {
                let port = PORT_FIRST + (begun % OF_AN_ADDRESS) as u16;
                let connection = all.begin(SocketAddrV4::new(from, port), to, begun)?;
                all.open.push(Some(connection));
                begun += 1;
            }
            let events = all.wait()?;
            if events.is_empty() {
                break;
            }
            for index in events {
                done += 1;
                let Some(connection) = &all.open[index] else {
                    continue;
                };
                match sockopt::socket_error(&connection.socket)? {
                    Ok(()) => all.watch(index)?,
                    Err(_) => all.open[index] = None,
                }
            }
        }
        // Whose opening has taken too long is given up.
        let opened = |connection: &Connection| getpeername(&connection.socket);
        all.open.retain(Option::is_some);
        all.open
            .retain(|connection| connection.as_ref().is_some_and(|open| opened(open).is_ok()));
        all.number()?;
        Ok(all)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    fn begin(&self, from: SocketAddrV4, to: SocketAddrV4, index: usize) -> io::Result<Connection> {
        let socket = socket(from)?;
        epoll::add(
            &self.epoll,
            &socket,
            epoll::EventData::new_u64(index as u64),
            epoll::EventFlags::OUT,
        )?;
        match connect(&socket, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(Connection { socket, awaited: 0 }),
            Err(error) => Err(error.into()),
        }
    }

    /// From now on it is told of bytes that come.
    fn watch(&self, index: usize) -> io::Result<()> {
        if let Some(connection) = &self.open[index] {
            let data = epoll::EventData::new_u64(index as u64);
            let flags = epoll::EventFlags::IN;
            epoll::modify(&self.epoll, &connection.socket, data, flags)?;
        }
        Ok(())
    }

    /// Events tell the new places.
    fn number(&self) -> io::Result<()> {
        (0..self.open.len()).try_for_each(|index| self.watch(index))
    }

    /// Of which connections something is to be told; of none after a silence.
    fn wait(&self) -> io::Result<Vec<usize>> {
        let mut events = Vec::with_capacity(EVENTS);
        let silence = Timespec::try_from(SILENCE).map_err(io::Error::other)?;
        match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&silence)) {
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let indices = events.iter().map(|event| event.data.u64() as usize);
        Ok(indices.collect())
    }

    /// Asks one connection after the other, each once: how many answer.
    ///
    /// # Errors
    /// The kernel's, of waiting.
    pub fn ask_all(&mut self, outstanding: usize) -> io::Result<usize> {
        let all = self.len() as u64;
        let answered = self.ask(64, outstanding, &|answers, _| answers < all)?;
        Ok(answered.answers as usize)
    }

    /// Asks one connection after the other, `bytes` each, and always `outstanding` of them at a
    /// time, for as long as `goes_on` says of the answers and the time so far.
    ///
    /// # Errors
    /// The kernel's, of waiting.
    pub fn ask(
        &mut self,
        bytes: usize,
        outstanding: usize,
        goes_on: &dyn Fn(u64, Duration) -> bool,
    ) -> io::Result<Answered> {
        let question = vec![0x55; bytes];
        let begin = Instant::now();
        let (mut next, mut under_way, mut answers) = (0, 0, 0);
        let mut asked = 0;
        loop {
            let goes = goes_on(answers, begin.elapsed());
            // One whose answer is still to come is passed by, and asked in another round.
            for _ in 0..self.len() {
                let room = under_way < outstanding.min(self.len());
                if !(goes && room && goes_on(asked, Duration::ZERO)) {
                    break;
                }
                if !self.is_waiting(next) {
                    under_way += usize::from(self.put(next, &question));
                    asked += 1;
                }
                next = (next + 1) % self.len();
            }
            if under_way == 0 {
                break;
            }
            let events = self.wait()?;
            if events.is_empty() {
                break;
            }
            for index in events {
                if self.take(index) {
                    answers += 1;
                    under_way -= 1;
                }
            }
        }
        for connection in self.open.iter_mut().flatten() {
            connection.awaited = 0;
        }
        let elapsed = begin.elapsed();
        Ok(Answered { answers, elapsed })
    }

    /// Whether an answer is still to come.
    fn is_waiting(&self, index: usize) -> bool {
        let connection = self.open[index].as_ref();
        connection.is_some_and(|connection| connection.awaited > 0)
    }

    /// Sends a question; whether an answer is to come. It is short enough for the socket's buffer.
    fn put(&mut self, index: usize, question: &[u8]) -> bool {
        let Some(connection) = self.open[index].as_mut().filter(|one| one.awaited == 0) else {
            return false;
        };
        let sent = send(&connection.socket, question, SendFlags::NOSIGNAL);
        if sent == Ok(question.len()) {
            connection.awaited = question.len();
        }
        connection.awaited > 0
    }

    /// Reads what has come; whether an answer is whole.
    fn take(&mut self, index: usize) -> bool {
        let Some(connection) = &mut self.open[index] else {
            return false;
        };
        let awaited = connection.awaited;
        self.scratch.clear();
        match read(&connection.socket, spare_capacity(&mut self.scratch)) {
            Ok(0) => {
                // It has ended; the socket goes, and nothing is told of it any more.
                self.open[index] = None;
                return false;
            }
            Ok(count) => connection.awaited = awaited.saturating_sub(count),
            Err(_) => return false,
        }
        awaited > 0 && connection.awaited == 0
    }
}

fn socket(from: SocketAddrV4) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    bind(&socket, &from)?;
    Ok(socket)
}

/// Opens connections from the address `from`, `at_once` at a time, asks each once, and resets it
/// when it has answered, for so long. With RST, neither end remembers it. To be called in the
/// client's segment.
///
/// # Errors
/// There is no socket, or no port, or nothing happens for five seconds.
pub fn open_and_reset(
    from: Ipv4Addr,
    to: SocketAddrV4,
    at_once: usize,
    length: Duration,
) -> io::Result<Answered> {
    let mut all = Connections::open(from, to, 0)?;
    let begin = Instant::now();
    let mut ports = (PORT_FIRST..u16::MAX).cycle();
    all.open.resize_with(at_once, || None);
    let mut free: VecDeque<usize> = (0..at_once).collect();
    let mut answers = 0;
    while begin.elapsed() < length {
        while let Some(index) = free.pop_front() {
            let port = ports.next().unwrap_or(PORT_FIRST);
            let connection = all.begin(SocketAddrV4::new(from, port), to, index)?;
            sockopt::set_socket_linger(&connection.socket, Some(Duration::ZERO))?;
            all.open[index] = Some(connection);
        }
        let events = all.wait()?;
        if events.is_empty() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        for index in events {
            let asked = all.open[index].as_ref().is_some_and(|one| one.awaited > 0);
            if !asked && all.put(index, b"question") {
                all.watch(index)?;
                continue;
            }
            answers += u64::from(all.take(index));
            all.open[index] = None;
            free.push_back(index);
        }
    }
    let elapsed = begin.elapsed();
    Ok(Answered { answers, elapsed })
}
