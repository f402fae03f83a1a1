//! Our side: a stack on a port in memory. Its clock stands still but for a tick with each step.

use crate::script::Call;
use crate::side::{LISTENS, PEER, Said, Side, TESTED, Then, byte};
use device::memory::{MemoryPort, Wire};
use device::{HEADROOM, Pool};
use net::address::Prefix;
use net::arp::Detect;
use net::ethernet::Ethernet;
use net::ip::Ip;
use net::ipv4::Ipv4;
use net::ipv6::Ipv6;
use net::socket::Hub;
use net::stack::Stack;
use net::tcp::host::{ListenerId, SocketId, Tcp};
use net::tcp::identity::Secret;
use net::tcp::socket::Error;
use net::tcp::{Config, Failure};
use net::version::Addresses;
use ports::Instant;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// When the world begins.
const BEGINNING: Instant = Instant(1_000_000_000_000);
/// What passes with each step.
const TICK: Duration = Duration::from_micros(20);
/// Turns in which one moment's work is done: more of them would be a loop without end.
const TURNS_MAX: usize = 1000;
/// Bytes that all queues may hold.
const MEMORY: usize = 16 << 20;
/// Bytes of a frame's buffer.
const FRAME: usize = HEADROOM + 2048;
const LARGE: usize = HEADROOM + 40 + 65_535;
const BACKLOG: usize = 16;

/// A stack, which every script begins anew.
pub struct Ours {
    small: Pool,
    large: Pool,
    world: Option<World>,
}

struct World {
    stack: Stack<Ipv4, Ipv6>,
    wire: Wire,
    now: Instant,
    peer: SocketAddr,
    listener: ListenerId,
    socket: Option<SocketId>,
    read: usize,
    written: usize,
}

impl Default for Ours {
    fn default() -> Self {
        Self {
            small: pool(256, FRAME),
            large: pool(2, LARGE),
            world: None,
        }
    }
}

fn pool(count: usize, size: usize) -> Pool {
    Pool::new(vec![0; count * size].leak(), size)
}

fn context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

impl World {
    fn new(small: Pool, large: Pool, peer: u16) -> io::Result<Self> {
        let (port, wire) = MemoryPort::over("net", small).split();
        let now = BEGINNING;
        let mut ipv4 = Ipv4::new(large, 1);
        if let Some(own) = Prefix::new(TESTED, 24) {
            ipv4.add_address(own, Detect::Later, now);
        }
        let ip = Ip::new(Ethernet::new(Box::new(port)), ipv4, Ipv6::new(large, 1));
        let secret = Secret::new([peer as u8; 16]);
        let tcp = Tcp::new(Config::default(), secret, [2; 16], MEMORY);
        let mut stack = Stack::new(ip, tcp, now);
        let local = SocketAddr::new(TESTED.into(), LISTENS);
        let listener = stack.tcp.listen(local, BACKLOG);
        Ok(Self {
            listener: listener.map_err(io::Error::other)?,
            stack,
            wire,
            now,
            peer: SocketAddr::new(PEER.into(), peer),
            socket: None,
            read: 0,
            written: 0,
        })
    }

    fn turn(&mut self) -> io::Result<()> {
        self.now = self.now + TICK;
        for _ in 0..TURNS_MAX {
            let any = self.stack.receive(self.now);
            if self.socket.is_none()
                && let Poll::Ready(id) = self.stack.tcp.poll_accept(self.listener, &mut context())
            {
                self.socket = Some(id);
                self.stack.tcp.set_no_delay(id, true);
            }
            if self.stack.send() && !any {
                return Ok(());
            }
        }
        Err(io::Error::other("our stack does not come to rest"))
    }

    fn call(&mut self, call: Call) -> io::Result<Said> {
        if call == Call::Connect {
            let id = self.stack.connect(self.peer).map_err(io::Error::other)?;
            self.stack.tcp.set_no_delay(id, true);
            self.socket = Some(id);
            return Ok(Said::Done);
        }
        let Some(id) = self.socket else {
            return Ok(Said::NoConnection);
        };
        Ok(match call {
            Call::Read => self.read(id),
            Call::Write(count) => self.write(id, count),
            Call::Shutdown => {
                self.stack.tcp.shutdown(id);
                Said::Done
            }
            Call::Abort => {
                self.stack.tcp.abort(id);
                self.leave(id)
            }
            Call::Connect | Call::Close => self.leave(id),
        })
    }

    fn leave(&mut self, id: SocketId) -> Said {
        self.stack.tcp.leave(id, self.now);
        self.socket = None;
        Said::Done
    }

    fn read(&mut self, id: SocketId) -> Said {
        let mut place = [0; 4096];
        let mut count = 0;
        loop {
            let then = match self.stack.tcp.poll_read(id, &mut place, &mut context()) {
                Poll::Pending => Then::More,
                Poll::Ready(Ok(0)) => Then::End,
                Poll::Ready(Ok(more)) => {
                    let right = (self.read..).map(byte).zip(&place[..more]);
                    if !right.into_iter().all(|(right, found)| right == *found) {
                        return Said::Bytes(count, Then::Wrong);
                    }
                    self.read += more;
                    count += more;
                    continue;
                }
                Poll::Ready(Err(error)) => failed(error),
            };
            return Said::Bytes(count, then);
        }
    }

    fn write(&mut self, id: SocketId, count: usize) -> Said {
        let bytes: Vec<u8> = (self.written..self.written + count).map(byte).collect();
        let mut done = 0;
        let mut then = Then::More;
        while done < count && then == Then::More {
            match self
                .stack
                .tcp
                .poll_write(id, &bytes[done..], &mut context())
            {
                Poll::Ready(Ok(more)) => done += more,
                Poll::Ready(Err(error)) => then = failed(error),
                Poll::Pending => break,
            }
        }
        self.written += done;
        Said::Bytes(done, then)
    }
}

fn failed(error: Error) -> Then {
    match error {
        Error::Failed(Failure::Refused) => Then::Refused,
        Error::Failed(Failure::Reset) => Then::Reset,
        Error::Failed(Failure::TimedOut | Failure::Aborted) => Then::Failed,
        Error::Closed => Then::Shut,
    }
}

impl Side for Ours {
    fn begin(&mut self, peer: u16) -> io::Result<()> {
        self.world = Some(World::new(self.small, self.large, peer)?);
        Ok(())
    }

    fn call(&mut self, call: Call) -> io::Result<Said> {
        let world = self.world.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let said = world.call(call);
        world.turn()?;
        said
    }

    fn arrives(&mut self, frame: &[u8]) -> io::Result<()> {
        let world = self.world.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        world.wire.arrives(frame);
        world.turn()
    }

    fn left(&mut self) -> io::Result<Vec<Vec<u8>>> {
        let world = self.world.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        Ok(world.wire.sent())
    }
}
