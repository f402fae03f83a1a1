//! What connections ask for.

use super::{LEAVING, Listening, PORTS_TRIED, SILENCE, Stack, collide, time};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::task::{Context, Poll};
use net::slices::Slices;
use net::tcp::connection::Failure;
use net::tcp::host::Unusable;
use net::tcp::identity::Ends;
use net::tcp::socket::Error;
use ports::Instant;
use smoltcp::iface::SocketHandle;
use smoltcp::socket::Socket;
use smoltcp::socket::tcp::{RecvError, SendError, Socket as Tcp, State};
use smoltcp::wire::IpEndpoint;

/// smoltcp has no backlog: so many sockets at most listen at a port, and each takes one connection.
const LISTENING_MAX: usize = 32;

impl Stack {
    /// Begins to listen; names it.
    pub(crate) fn listen(&mut self, local: SocketAddr, backlog: usize) -> Result<u64, Unusable> {
        if local.port() == 0 {
            return Err(Unusable::NoPort);
        }
        if self.listening.iter().any(|one| collide(one.local, local)) {
            return Err(Unusable::InUse);
        }
        self.count += 1;
        self.listening.push(Listening {
            number: self.count,
            local,
            wanted: backlog.clamp(1, LISTENING_MAX),
            sockets: Vec::new(),
            waker: None,
        });
        self.relisten();
        Ok(self.count)
    }

    /// Listens no more; connections that nobody has accepted are reset.
    pub(crate) fn unlisten(&mut self, number: u64) {
        let found = self.listening.iter().position(|one| one.number == number);
        let Some(index) = found else {
            return;
        };
        for handle in self.listening.remove(index).sockets {
            self.sockets.get_mut::<Tcp>(handle).abort();
            self.leaving.push_back((self.now + LEAVING, handle));
        }
        self.deadline = self.now;
    }

    /// The next connection, and its ends.
    pub(crate) fn poll_accept(
        &mut self,
        number: u64,
        context: &Context<'_>,
    ) -> Poll<(SocketHandle, SocketAddr, SocketAddr)> {
        let found = self.listening.iter_mut().find(|one| one.number == number);
        let Some(listening) = found else {
            return Poll::Pending;
        };
        for (index, handle) in listening.sockets.iter().enumerate() {
            let socket = self.sockets.get_mut::<Tcp>(*handle);
            let begun = !matches!(
                socket.state(),
                State::Closed | State::Listen | State::SynReceived
            );
            if let (true, Some(local), Some(peer)) =
                (begun, socket.local_endpoint(), socket.remote_endpoint())
            {
                let handle = listening.sockets.remove(index);
                self.relisten();
                return Poll::Ready((handle, local.into(), peer.into()));
            }
        }
        listening.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Begins to open a connection; the socket, and our end.
    pub(crate) fn connect(
        &mut self,
        remote: SocketAddr,
    ) -> Result<(SocketHandle, SocketAddr), Unusable> {
        let source = self.source(remote.ip()).ok_or(Unusable::NoRoute)?;
        let local = self.free_port(source, remote).ok_or(Unusable::NoPort)?;
        let handle = self.socket().ok_or(Unusable::NoPort)?;
        let socket = self.sockets.get_mut::<Tcp>(handle);
        let begun = socket.connect(self.interface.context(), remote, local);
        if begun.is_err() {
            self.sockets.remove(handle);
            self.connections -= 1;
            return Err(Unusable::NoRoute);
        }
        socket.set_timeout(Some(SILENCE));
        Ok((handle, local))
    }

    /// A port of `source` from which there is no connection to `remote`.
    fn free_port(&mut self, source: IpAddr, remote: SocketAddr) -> Option<SocketAddr> {
        let ends = Ends::new(SocketAddr::new(source, 0), remote);
        (0..PORTS_TRIED).find_map(|_| {
            self.count += 1;
            let port = self.secret.port(&ends, self.count as u32);
            let local = SocketAddr::new(source, port);
            let taken = self.sockets.iter().any(|(_, socket)| match socket {
                Socket::Tcp(socket) => {
                    let of = |end: Option<IpEndpoint>| end.map(SocketAddr::from);
                    let ends = (of(socket.local_endpoint()), of(socket.remote_endpoint()));
                    ends == (Some(local), Some(remote))
                }
                _ => false,
            });
            let listens = self.listening.iter().any(|one| collide(one.local, local));
            (!taken && !listens).then_some(local)
        })
    }

    /// Waits until a connection is open. smoltcp does not say why it is not.
    pub(crate) fn poll_open(
        &mut self,
        handle: SocketHandle,
        since: Instant,
        context: &Context<'_>,
    ) -> Poll<Result<(), Error>> {
        let socket = self.tcp(handle);
        match socket.state() {
            State::SynSent | State::SynReceived => {
                socket.register_send_waker(context.waker());
                Poll::Pending
            }
            State::Closed if time(self.now) >= time(since) + SILENCE => {
                Poll::Ready(Err(Error::Failed(Failure::TimedOut)))
            }
            State::Closed => Poll::Ready(Err(Error::Failed(Failure::Refused))),
            _ => Poll::Ready(Ok(())),
        }
    }

    /// What `take` makes of bytes that have come, and of how many; `None` at the end.
    pub(crate) fn poll_read<T>(
        &mut self,
        handle: SocketHandle,
        context: &Context<'_>,
        take: impl FnOnce(&[u8]) -> (usize, T),
    ) -> Poll<Result<Option<T>, Error>> {
        let socket = self.tcp(handle);
        if socket.may_recv() && !socket.can_recv() {
            socket.register_recv_waker(context.waker());
            return Poll::Pending;
        }
        Poll::Ready(match socket.recv(|bytes| take(bytes)) {
            Ok(taken) => Ok(Some(taken)),
            Err(RecvError::Finished) => Ok(None),
            Err(RecvError::InvalidState) => Err(Error::Failed(Failure::Reset)),
        })
    }

    /// Queues what there is room for; how many bytes, not zero.
    pub(crate) fn poll_write(
        &mut self,
        handle: SocketHandle,
        slices: &Slices<'_>,
        context: &Context<'_>,
    ) -> Poll<Result<usize, Error>> {
        let socket = self.tcp(handle);
        let mut parts = slices.parts();
        let sent = parts.try_fold(0, |sent, part| {
            Ok::<usize, SendError>(sent + socket.send_slice(part)?)
        });
        match sent {
            Ok(0) => {
                socket.register_send_waker(context.waker());
                Poll::Pending
            }
            Ok(count) => Poll::Ready(Ok(count)),
            Err(_) if socket.state() == State::Closed => {
                Poll::Ready(Err(Error::Failed(Failure::Reset)))
            }
            Err(_) => Poll::Ready(Err(Error::Closed)),
        }
    }

    /// Waits until all that was written is acknowledged, and the end if it was told.
    pub(crate) fn poll_acknowledged(
        &mut self,
        handle: SocketHandle,
        context: &Context<'_>,
    ) -> Poll<Result<(), Error>> {
        let socket = self.tcp(handle);
        let ends = matches!(
            socket.state(),
            State::FinWait1 | State::Closing | State::LastAck
        );
        match socket.state() {
            State::Closed if socket.send_queue() > 0 => {
                Poll::Ready(Err(Error::Failed(Failure::Reset)))
            }
            _ if socket.send_queue() > 0 || ends => {
                socket.register_send_waker(context.waker());
                Poll::Pending
            }
            _ => Poll::Ready(Ok(())),
        }
    }

    /// The socket of a connection.
    pub(crate) fn tcp(&mut self, handle: SocketHandle) -> &mut Tcp<'static> {
        self.sockets.get_mut(handle)
    }

    /// Nobody holds the connection any more.
    pub(crate) fn leave(&mut self, handle: SocketHandle) {
        self.tcp(handle).close();
        self.leaving.push_back((self.now + LEAVING, handle));
    }
}
