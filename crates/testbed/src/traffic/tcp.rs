//! TCP bulk: one stream, as much as goes.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use super::{CpuClock, Window};

/// Bytes of one write; iperf3's default.
const WRITE_BYTES: usize = 128 << 10;
/// Bytes of one read at most.
const READ_BYTES: usize = 256 << 10;
const GIGA: f64 = 1e9;

/// What a bulk transfer reached inside its window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bulk {
    /// Bytes that the receiver read.
    pub bytes: u64,
    /// Length of the window as it really was.
    pub elapsed: Duration,
    /// CPU time that the contender used.
    pub cpu: Duration,
}

impl Bulk {
    /// Gigabits of payload a second.
    pub fn gigabits_per_second(&self) -> f64 {
        self.bytes as f64 * 8.0 / GIGA / self.elapsed.as_secs_f64()
    }

    /// CPU seconds of the contender for a gigabyte of payload.
    pub fn cpu_seconds_per_gigabyte(&self) -> f64 {
        self.cpu.as_secs_f64() / (self.bytes as f64 / GIGA)
    }
}

/// Sends from one end of a connection to the other for the length of `window`.
///
/// # Errors
/// A socket failed before the window was over, or the CPU clock could not be read.
pub fn bulk(
    sender: &TcpStream,
    receiver: &TcpStream,
    window: Window,
    cpu: CpuClock,
) -> io::Result<Bulk> {
    let received = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let sending = scope.spawn(|| send(sender, &over));
        let receiving = scope.spawn(|| receive(receiver, &received, &over));
        let measured = measure(&received, window, cpu);
        over.store(true, Relaxed);
        // Wakes whoever is blocked; an end that failed already is not connected any more.
        let _ = sender.shutdown(Shutdown::Both);
        let _ = receiver.shutdown(Shutdown::Both);
        for end in [sending, receiving] {
            end.join().expect("traffic threads do not panic")?;
        }
        measured
    })
}

fn measure(received: &AtomicU64, window: Window, cpu: CpuClock) -> io::Result<Bulk> {
    thread::sleep(window.warm_up);
    let (bytes, begin, cpu_begin) = (received.load(Relaxed), Instant::now(), cpu()?);
    thread::sleep(window.measured);
    Ok(Bulk {
        bytes: received.load(Relaxed) - bytes,
        elapsed: begin.elapsed(),
        cpu: cpu()?.saturating_sub(cpu_begin),
    })
}

fn send(mut stream: &TcpStream, over: &AtomicBool) -> io::Result<()> {
    let bytes = vec![0; WRITE_BYTES];
    loop {
        match stream.write(&bytes) {
            _ if over.load(Relaxed) => return Ok(()),
            Ok(_) => {}
            Err(error) => return Err(error),
        }
    }
}

fn receive(mut stream: &TcpStream, received: &AtomicU64, over: &AtomicBool) -> io::Result<()> {
    let mut bytes = vec![0; READ_BYTES];
    loop {
        match stream.read(&mut bytes) {
            _ if over.load(Relaxed) => return Ok(()),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => received.fetch_add(count as u64, Relaxed),
            Err(error) => return Err(error),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const WINDOW: Window = Window {
        warm_up: Duration::from_millis(5),
        measured: Duration::from_millis(20),
    };

    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (sender, listener.accept().unwrap().0)
    }

    #[test]
    fn bytes_arrive_and_the_clock_is_read_twice() {
        let (sender, receiver) = connection();
        let ticks = AtomicU64::new(0);
        let cpu = || Ok(Duration::from_secs(3 * ticks.fetch_add(1, Relaxed)));
        let bulk = bulk(&sender, &receiver, WINDOW, &cpu).unwrap();
        assert!(bulk.bytes > 0 && bulk.elapsed >= WINDOW.measured);
        assert_eq!(bulk.cpu, Duration::from_secs(3));
    }

    #[test]
    fn an_end_that_closes_early_is_an_error() {
        let (sender, receiver) = connection();
        sender.shutdown(Shutdown::Both).unwrap();
        assert!(bulk(&sender, &receiver, WINDOW, &|| Ok(Duration::ZERO)).is_err());
    }

    #[test]
    fn rates_have_the_units_of_their_names() {
        let bulk = Bulk {
            bytes: 2_000_000_000,
            elapsed: Duration::from_secs(4),
            cpu: Duration::from_secs(1),
        };
        assert_eq!(bulk.gigabits_per_second(), 4.0);
        assert_eq!(bulk.cpu_seconds_per_gigabyte(), 0.5);
    }
}
