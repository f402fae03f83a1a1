//! Datagrams, connections, and what they may take.

use crate::Zone;
use crate::answer::{Transport, answer};
use alloc::rc::Rc;
use alloc::vec;
use core::time::Duration;
use net::dns::PORT;
use net::socket::{Datagrams, Error, Listener, Sockets, Stream};
use net::task::{Clock, Spawner};

/// Connections that may wait to be accepted.
const BACKLOG: usize = 128;
/// Connections at a time; more are closed at once.
const CONNECTIONS_MAX: usize = 256;
/// Bytes of a question.
const QUESTION_MAX: usize = 4096;
/// How long a connection may be idle (RFC 7766, 6.2.3).
const IDLE: Duration = Duration::from_secs(10);

/// Answers whoever asks.
///
/// # Errors
/// If nobody can ask any more over TCP.
pub async fn serve<N: Sockets>(
    sockets: N,
    zone: Zone<'static>,
    clock: Clock,
    spawner: Spawner,
) -> Result<(), Error>
where
    N::Stream: 'static,
    N::Datagrams: 'static,
{
    let local = ([0; 4], PORT).into();
    let mut listener = sockets.listen(local, BACKLOG)?;
    let (socket, zone) = (sockets.bind(local)?, Rc::new(zone));
    let asked = zone.clone();
    spawner.spawn(async move {
        // Nothing ends it.
        let _ = datagrams(socket, &asked).await;
    });
    // Each connection holds it once more.
    let open = Rc::new(());
    loop {
        let stream = listener.accept().await?;
        let (held, zone, clock) = (open.clone(), zone.clone(), clock.clone());
        if Rc::strong_count(&open) > CONNECTIONS_MAX {
            continue;
        }
        spawner.spawn(async move {
            talk(stream, &zone, &clock).await;
            drop(held);
        });
    }
}

async fn datagrams(mut socket: impl Datagrams, zone: &Zone<'_>) -> Result<(), Error> {
    let mut question = vec![0; QUESTION_MAX];
    loop {
        let (count, ends) = socket.receive_at(&mut question).await?;
        if let Some(answer) = answer(zone, &question[..count], Transport::Udp) {
            // One that cannot leave is lost, as any may be.
            let _ = socket.send_from(&answer, ends.to, ends.from);
        }
    }
}

/// One question after another, each behind its length (RFC 1035, 4.2.2).
async fn talk(mut stream: impl Stream, zone: &Zone<'_>, clock: &Clock) {
    let mut question = vec![0; QUESTION_MAX];
    let mut turn = async || -> Option<()> {
        let mut len = [0; 2];
        stream.read_exact(&mut len).await.ok()??;
        let place = question.get_mut(..u16::from_be_bytes(len).into())?;
        stream.read_exact(place).await.ok()??;
        let answer = answer(zone, place, Transport::Tcp)?;
        let len = u16::try_from(answer.len()).ok()?;
        let whole = [&len.to_be_bytes()[..], &answer].concat();
        stream.write(&whole).await.ok()
    };
    while let Some(Some(())) = clock.timeout(IDLE, turn()).await {}
}
