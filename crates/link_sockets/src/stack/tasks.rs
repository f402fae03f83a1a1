//! What works for the sockets of an application: two tasks for a connection, one for any other.

use super::Server;
use super::entry::Wish;
use super::handle::{Handle, Outgoing};
use crate::arrived::Datagram;
use crate::window::{DATAGRAM_MAX, datagram_cost};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::future::poll_fn;
use core::net::{IpAddr, SocketAddr};
use core::pin::pin;
use core::task::{Poll, ready};
use net::socket::{Connected, Ends, Error, Kept, Listener, Sockets, Stream};
use net::task::{Either, select};

/// Waits until a socket that could not be had is closed.
pub async fn refused<S: Sockets>(handle: Handle<S>) {
    handle.closing().await;
    handle.closed();
}

/// Gives an application the connections of a listener, as many as it has numbers for, and before
/// those the `first` ones.
pub async fn listen<S: Sockets + 'static>(
    server: Server<S>,
    handle: Handle<S>,
    mut listener: S::Listener,
    mut first: VecDeque<S::Stream>,
) {
    while handle.has_offer().await {
        if let Some(stream) = first.pop_front() {
            give(&server, &handle, stream);
            continue;
        }
        let accepted = select(pin!(listener.accept()), pin!(handle.closing())).await;
        match accepted {
            Either::First(Ok(stream)) => give(&server, &handle, stream),
            Either::First(Err(error)) => {
                handle.fail_by(error);
                handle.closing().await;
                break;
            }
            Either::Second(()) => break,
        }
    }
    drop(listener);
    handle.closed();
}

/// Gives the application a connection.
fn give<S: Sockets + 'static>(server: &Server<S>, listener: &Handle<S>, stream: S::Stream) {
    // It may have taken the number back meanwhile, or there is no memory for another one.
    let Some(handle) = listener.take_offer() else {
        stream.abort();
        return;
    };
    if server.equip(&handle, 0).is_err() {
        handle.give_back(listener);
        stream.abort();
        return;
    }
    begin(server, handle, stream);
}

/// Opens a connection for an application.
pub async fn connect<S: Sockets + 'static>(
    server: Server<S>,
    handle: Handle<S>,
    sockets: S,
    remote: SocketAddr,
) {
    let connected = select(pin!(sockets.connect(remote)), pin!(handle.closing())).await;
    match connected {
        Either::First(Ok(stream)) => return begin(&server, handle, stream),
        Either::First(Err(error)) => {
            handle.fail_by(error);
            handle.closing().await;
        }
        Either::Second(()) => {}
    }
    handle.closed();
}

/// A connection is open.
fn begin<S: Sockets + 'static>(server: &Server<S>, handle: Handle<S>, mut stream: S::Stream) {
    // The application has it, and its name, or knows neither.
    if let Some((name, marks)) = stream.kept().and_then(Kept::marks) {
        handle.keep(name, marks);
    }
    handle.opened(stream.local(), Some(stream.peer()));
    go_on(server, handle, stream);
}

/// Bytes go both ways.
pub fn go_on<S: Sockets + 'static>(server: &Server<S>, handle: Handle<S>, stream: S::Stream) {
    let (inward, outward) = stream.split();
    server.spawn(read(handle.clone(), inward));
    server.spawn(write(handle, outward));
}

/// What the peer sends goes to the application.
async fn read<S: Sockets>(handle: Handle<S>, mut stream: impl Stream) {
    if let Some(kept) = stream.kept() {
        return show(&handle, kept).await;
    }
    loop {
        let taken = select(pin!(stream.take()), pin!(handle.closing())).await;
        match taken {
            Either::First(Ok(Some(bytes))) => {
                if !handle.deliver(&bytes).await {
                    return;
                }
            }
            Either::First(Ok(None)) => return handle.end(),
            Either::First(Err(error)) => return handle.fail_by(error),
            Either::Second(()) => return,
        }
    }
}

/// The same for a connection that outlives this image: what has come stays until the application
/// says that it has it.
async fn show<S: Sockets>(handle: &Handle<S>, kept: &mut dyn Kept) {
    // Bytes that are on their way to the application.
    let mut shown = 0;
    let mut has_ended = false;
    let result = poll_fn(|context| {
        loop {
            let Some(confirmed) = handle.confirmed(context) else {
                return Poll::Ready(Ok(()));
            };
            // No more than was sent.
            kept.pass(confirmed as usize);
            shown -= (confirmed as usize).min(shown);
            if has_ended {
                return Poll::Pending;
            }
            let mut send = |bytes: &[u8]| match ready!(handle.poll_deliver(bytes, context)) {
                Some(count) => Poll::Ready(count),
                None => Poll::Pending,
            };
            match ready!(kept.poll_look(shown, context, &mut send))? {
                0 => {
                    has_ended = true;
                    handle.end();
                }
                count => shown += count,
            }
        }
    });
    match result.await {
        // What is on its way to whoever closes it counts as read.
        Ok(()) => kept.pass(shown),
        Err(error) => handle.fail_by(error),
    }
}

/// What the application wants goes to the peer.
async fn write<S: Sockets>(handle: Handle<S>, mut stream: impl Stream) {
    loop {
        let result = match handle.wish().await {
            Wish::Send(bytes) => {
                // No more than the window.
                let count = bytes.len() as u32;
                let given = select(pin!(stream.give(bytes)), pin!(handle.aborting())).await;
                handle.taken(count);
                given
            }
            Wish::Ask => {
                let asked = select(pin!(stream.acknowledged()), pin!(handle.closing())).await;
                if matches!(asked, Either::First(Ok(()))) {
                    handle.acknowledged();
                }
                asked
            }
            Wish::NoDelay(is) => {
                stream.set_no_delay(is);
                continue;
            }
            Wish::KeepAlive(idle) => {
                stream.set_keep_alive(idle);
                continue;
            }
            Wish::End => {
                stream.shutdown();
                continue;
            }
            Wish::Close => {
                drop(stream);
                return handle.closed();
            }
            Wish::Abort => {
                stream.abort();
                return handle.closed();
            }
        };
        if let Either::First(Err(error)) = result {
            handle.fail_by(error);
        }
    }
}

/// What takes and sends datagrams.
pub enum Datagrams<D> {
    /// Of anybody.
    Free(D),
    /// Of one peer.
    Connected(Connected<D>),
}

impl<D: net::socket::Datagrams> Datagrams<D> {
    pub fn local(&self) -> SocketAddr {
        match self {
            Self::Free(socket) => socket.local(),
            Self::Connected(socket) => socket.local(),
        }
    }

    async fn receive(&mut self, place: &mut [u8]) -> Result<(usize, Ends), Error> {
        match self {
            Self::Free(socket) => socket.receive_at(place).await,
            Self::Connected(socket) => {
                let count = socket.receive(place).await?;
                let (from, to) = (socket.peer(), socket.local().ip());
                Ok((count, Ends { from, to }))
            }
        }
    }

    /// Sends datagrams in order. One that cannot leave is lost, as any may be; whether the peer was
    /// found not to listen.
    fn send(&mut self, batch: &[Datagram]) -> bool {
        let mut rest = batch;
        let mut is_refused = false;
        while let Some((first, others)) = rest.split_first() {
            let sent = match self {
                Self::Free(socket) if !first.local.is_unspecified() => {
                    let sent = socket.send_from(&first.bytes, first.local, first.remote);
                    sent.map(|()| 1)
                }
                Self::Free(socket) => {
                    let plain = |datagram: &&Datagram| datagram.local.is_unspecified();
                    let run = rest.iter().take_while(plain);
                    let run: Vec<_> = run.map(|one| (&one.bytes[..], one.remote)).collect();
                    socket.send_batch(&run)
                }
                Self::Connected(socket) => {
                    let run: Vec<_> = rest.iter().map(|one| &one.bytes[..]).collect();
                    socket.send_batch(&run)
                }
            };
            rest = match sent {
                Ok(count @ 1..) => rest.get(count..).unwrap_or_default(),
                Ok(0) | Err(_) => others,
            };
            is_refused |= matches!(sent, Err(Error::Failed(_)));
        }
        is_refused
    }

    fn join(&mut self, group: IpAddr, joins: bool) {
        let Self::Free(socket) = self else {
            return;
        };
        match joins {
            // A group that it cannot be in is one from which nothing comes.
            true => drop(socket.join(group)),
            false => socket.leave(group),
        }
    }
}

/// Datagrams go to the application and come from it.
pub async fn datagrams<S: Sockets, D: net::socket::Datagrams>(
    handle: Handle<S>,
    mut socket: Datagrams<D>,
) {
    let mut buffer = vec![0; DATAGRAM_MAX];
    // One that has come, for which the application has no room yet.
    let mut held: Option<(usize, Ends)> = None;
    loop {
        let inward = async {
            match held {
                Some((count, ends)) => {
                    handle.deliver_datagram(&buffer[..count], ends).await;
                    Ok(None)
                }
                None => socket.receive(&mut buffer).await.map(Some),
            }
        };
        let next = select(pin!(inward), pin!(handle.outgoing())).await;
        match next {
            Either::First(Ok(next)) => held = next,
            Either::First(Err(Error::Failed(_))) => handle.refused(),
            Either::First(Err(error)) => {
                handle.fail_by(error);
                return refused(handle).await;
            }
            Either::Second(Outgoing::Send(batch)) => {
                if socket.send(&batch) {
                    handle.refused();
                }
                let costs = batch.iter().map(|one| datagram_cost(one.bytes.len()));
                handle.taken(costs.sum());
            }
            Either::Second(Outgoing::Join(group)) => socket.join(group, true),
            Either::Second(Outgoing::Leave(group)) => socket.join(group, false),
            Either::Second(Outgoing::Close) => break,
        }
    }
    drop(socket);
    handle.closed();
}
