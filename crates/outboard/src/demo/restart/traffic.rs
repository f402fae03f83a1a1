//! Datagrams at a steady pace, whatever comes back, and connections with bytes that are compared.

use super::judge::{Connections, Datagram};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

/// How long a connection may be silent; then it is lost. TCP's own pauses between attempts reach
/// some seconds when an image is away several times in a row.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes that are written at a time, and the pause behind them: datagrams are to have room.
const CHUNK: usize = 16 << 10;
const PAUSE: Duration = Duration::from_millis(5);
/// How long the last datagrams may be on their way.
const LATE: Duration = Duration::from_millis(500);

/// Sends datagrams until it is `done`; all of them, with times since `begin`.
///
/// # Errors
/// There is no socket.
pub fn datagrams(
    to: SocketAddr,
    per_second: u32,
    begin: Instant,
    done: &AtomicBool,
) -> io::Result<Vec<Datagram>> {
    let socket = UdpSocket::bind(SocketAddr::from(([0; 4], 0)))?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(LATE))?;
    let pause = Duration::from_secs(1) / per_second;
    let ended = AtomicBool::new(false);
    let (sent, back) = scope(|threads| {
        let back = threads.spawn(|| listen(&socket, begin, &ended));
        let mut sent = Vec::new();
        let mut next = begin.elapsed();
        while !done.load(Ordering::Relaxed) {
            let now = begin.elapsed();
            if now < next {
                sleep(next - now);
                continue;
            }
            let number = sent.len() as u64;
            // What the kernel refuses for a moment is lost like any other.
            let _ = socket.send(&number.to_le_bytes());
            sent.push(begin.elapsed());
            next += pause;
        }
        ended.store(true, Ordering::Relaxed);
        (sent, back.join().unwrap_or_default())
    });
    let mut all: Vec<_> = sent
        .into_iter()
        .map(|sent| Datagram { sent, back: None })
        .collect();
    for (number, time) in back {
        let one = usize::try_from(number).ok().and_then(|n| all.get_mut(n));
        if let Some(one) = one {
            one.back.get_or_insert(time);
        }
    }
    Ok(all)
}

/// What comes back, and when, until nothing does any more.
fn listen(socket: &UdpSocket, begin: Instant, ended: &AtomicBool) -> Vec<(u64, Duration)> {
    let mut back = Vec::new();
    let mut bytes = [0; 8];
    loop {
        match socket.recv(&mut bytes) {
            Ok(8) => back.push((u64::from_le_bytes(bytes), begin.elapsed())),
            Ok(_) => {}
            Err(_) if ended.load(Ordering::Relaxed) => return back,
            Err(_) => {}
        }
    }
}

/// A connection until it is `done`: what it sends comes back, and is compared. It is counted in
/// `begun` when the first bytes were.
pub fn connection(
    to: SocketAddr,
    seed: u64,
    begun: &AtomicUsize,
    done: &AtomicBool,
) -> Connections {
    let mut all = Connections {
        held: 1,
        ..Connections::default()
    };
    if let Err(error) = exchange(to, seed, begun, done, &mut all) {
        all.lost = 1;
        all.errors
            .push(format!("{error}, after {} bytes", all.bytes_compared));
    }
    all
}

/// The bytes of a stream from this place on: those of no other place and stream.
fn fill(bytes: &mut [u8], seed: u64, from: u64) {
    for (place, byte) in (from..).zip(bytes) {
        let mixed = (place ^ seed << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The highest byte.
        *byte = (mixed >> 56) as u8;
    }
}

fn exchange(
    to: SocketAddr,
    seed: u64,
    begun: &AtomicUsize,
    done: &AtomicBool,
    all: &mut Connections,
) -> io::Result<()> {
    let mut reader = TcpStream::connect_timeout(&to, PATIENCE)?;
    reader.set_read_timeout(Some(PATIENCE))?;
    reader.set_write_timeout(Some(PATIENCE))?;
    let mut writer = reader.try_clone()?;
    scope(|threads| {
        let written = threads.spawn(move || {
            let (mut count, mut chunk) = (0, vec![0; CHUNK]);
            while !done.load(Ordering::Relaxed) {
                fill(&mut chunk, seed, count);
                writer.write_all(&chunk)?;
                count += chunk.len() as u64;
                sleep(PAUSE);
            }
            writer.shutdown(Shutdown::Write)?;
            Ok(count)
        });
        let mut chunk = vec![0; CHUNK];
        let mut back = Vec::with_capacity(CHUNK);
        let read = loop {
            back.clear();
            match Read::by_ref(&mut reader)
                .take(CHUNK as u64)
                .read_to_end(&mut back)
            {
                Ok(0) => break Ok(()),
                Ok(_) => {}
                Err(error) => break Err(error),
            }
            fill(&mut chunk, seed, all.bytes_compared);
            let wrong = chunk.iter().zip(&back).filter(|(a, b)| a != b).count();
            all.bytes_wrong += wrong as u64;
            if all.bytes_compared == 0 {
                begun.fetch_add(1, Ordering::Relaxed);
            }
            all.bytes_compared += back.len() as u64;
        };
        let written: io::Result<u64> = written
            .join()
            .unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
        // Whoever ends the connection early has lost the rest.
        match read.and(written)? == all.bytes_compared {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    })
}
