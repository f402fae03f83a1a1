//! Datagrams, connections, and what they may take.

use crate::answer::{Transport, answer};
use alloc::rc::Rc;
use alloc::vec;
use core::time::Duration;
use net::socket::{Datagrams, Error, Listener, Stream};
use net::task::{Clock, Spawner};

/// Connections at a time; more are closed at once.
const CONNECTIONS_MAX: usize = 256;
/// Bytes of a question.
const QUESTION_MAX: usize = 4096;
/// How long a connection may be idle (RFC 7766, 6.2.3).
const IDLE: Duration = Duration::from_secs(10);

/// Answers datagrams.
///
/// # Errors
/// If none can come any more.
pub async fn datagrams(mut socket: impl Datagrams) -> Result<(), Error> {
    let mut question = vec![0; QUESTION_MAX];
    loop {
        let (count, ends) = socket.receive_at(&mut question).await?;
        if let Some(answer) = answer(&question[..count], Transport::Udp) {
            // One that cannot leave is lost, as any may be.
            let _ = socket.send_from(&answer, ends.to, ends.from);
        }
    }
}

/// Answers connections.
///
/// # Errors
/// If none can come any more.
pub async fn connections<L>(mut listener: L, clock: Clock, spawner: Spawner) -> Result<(), Error>
where
    L: Listener,
    L::Stream: 'static,
{
    // Each connection holds it once more.
    let open = Rc::new(());
    loop {
        let stream = listener.accept().await?;
        let (held, clock) = (open.clone(), clock.clone());
        if Rc::strong_count(&open) > CONNECTIONS_MAX {
            continue;
        }
        spawner.spawn(async move {
            talk(stream, &clock).await;
            drop(held);
        });
    }
}

/// One question after another, each behind its length (RFC 1035, 4.2.2).
async fn talk(mut stream: impl Stream, clock: &Clock) {
    let mut question = vec![0; QUESTION_MAX];
    let mut turn = async || -> Option<()> {
        let mut len = [0; 2];
        stream.read_exact(&mut len).await.ok()??;
        let place = question.get_mut(..u16::from_be_bytes(len).into())?;
        stream.read_exact(place).await.ok()??;
        let answer = answer(place, Transport::Tcp)?;
        let len = u16::try_from(answer.len()).ok()?;
        let whole = [&len.to_be_bytes()[..], &answer].concat();
        stream.write(&whole).await.ok()
    };
    while let Some(Some(())) = clock.timeout(IDLE, turn()).await {}
}
