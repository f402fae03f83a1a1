//! A server of Linux's that sends back what it gets, with one thread and epoll, as a process of its
//! own; and a transfer through any such server.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::sockopt;

use super::Window;
use super::many::connections_max;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;
/// The same on both sides; a kernel's default may be another one.
const CONGESTION: &str = "cubic";
/// Bytes that are read at a time.
const CHUNK: usize = 64 << 10;
/// Events that are looked at in one go.
const EVENTS: usize = 256;
/// The number that events of standard input have, and that of the listener's.
const INPUT: u64 = u64::MAX;
const LISTENER: u64 = u64::MAX - 1;

/// Serves at this address and port until standard input ends.
///
/// # Errors
/// It cannot listen, or the kernel does not let it wait.
pub fn serve(address: Ipv4Addr, port: u16) -> io::Result<()> {
    connections_max();
    let listener = TcpListener::bind((address, port))?;
    rustix::net::listen(&listener, BACKLOG)?;
    listener.set_nonblocking(true)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let watch = |of: &dyn AsFd, number| {
        epoll::add(
            &epoll,
            of.as_fd(),
            EventData::new_u64(number),
            EventFlags::IN,
        )
    };
    watch(&io::stdin(), INPUT)?;
    watch(&listener, LISTENER)?;
    let mut open: Vec<Option<TcpStream>> = Vec::new();
    let mut free = Vec::new();
    let mut chunk = vec![0; CHUNK];
    loop {
        let mut events = Vec::with_capacity(EVENTS);
        match epoll::wait(&epoll, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            match event.data.u64() {
                INPUT => return Ok(()),
                LISTENER => {
                    while let Ok((stream, _)) = listener.accept() {
                        let index = free.pop().unwrap_or(open.len());
                        stream.set_nodelay(true)?;
                        sockopt::set_tcp_congestion(&stream, CONGESTION)?;
                        watch(&stream, index as u64)?;
                        match open.get_mut(index) {
                            Some(place) => *place = Some(stream),
                            None => open.push(Some(stream)),
                        }
                    }
                }
                number => {
                    let index = number as usize;
                    let goes_on = match &mut open[index] {
                        Some(stream) => send_back(stream, &mut chunk),
                        None => continue,
                    };
                    if !goes_on {
                        open[index] = None;
                        free.push(index);
                    }
                }
            }
        }
    }
}

/// Whether the connection goes on. It blocks where the peer does not take its answer.
fn send_back(stream: &mut TcpStream, chunk: &mut [u8]) -> bool {
    match stream.read(chunk) {
        Ok(0) | Err(_) => false,
        Ok(count) => stream.write_all(&chunk[..count]).is_ok(),
    }
}

/// Gigabits a second that come back through a connection to a server that sends back what it gets;
/// to be called in the client's segment.
///
/// # Errors
/// There is no connection, or it breaks.
pub fn transfer(to: SocketAddrV4, window: Window) -> io::Result<f64> {
    let stream = TcpStream::connect(to)?;
    sockopt::set_tcp_congestion(&stream, CONGESTION)?;
    let (over, count) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let bytes = vec![0x55; CHUNK];
            while !over.load(Relaxed) {
                (&stream).write_all(&bytes)?;
            }
            Ok::<_, io::Error>(())
        });
        scope.spawn(|| {
            let mut bytes = vec![0; CHUNK];
            while let Ok(read @ 1..) = (&stream).read(&mut bytes) {
                count.fetch_add(read as u64, Relaxed);
            }
        });
        thread::sleep(window.warm_up);
        let before = count.load(Relaxed);
        thread::sleep(window.measured);
        let after = count.load(Relaxed);
        over.store(true, Relaxed);
        let broken = writer.is_finished();
        let closed = stream.shutdown(Shutdown::Both);
        match writer.join().expect("writing does not panic") {
            Err(error) if broken => return Err(error),
            _ => closed.or(Ok::<_, io::Error>(()))?,
        }
        Ok((after - before) as f64 * 8.0 / 1e9 / window.measured.as_secs_f64())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::many::{Connections, open_and_reset};
    use std::time::Duration;

    /// A server of the standard library's, a thread for each connection.
    fn server() -> SocketAddrV4 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(move || io::copy(&mut &stream, &mut &stream));
            }
        });
        SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)
    }

    #[test]
    fn each_connection_is_asked_and_answers() {
        let to = server();
        let mut all = Connections::open(Ipv4Addr::new(127, 0, 1, 1), to, 100).unwrap();
        assert_eq!(all.len(), 100);
        assert_eq!(all.ask_all(10).unwrap(), 100);
        let answered = all.ask(1024, 10, &|answers, _| answers < 1000).unwrap();
        assert!(answered.answers >= 1000, "{answered:?}");
    }

    #[test]
    fn connections_that_are_refused_are_left_out() {
        let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = nobody.local_addr().unwrap().port();
        drop(nobody);
        let to = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        let all = Connections::open(Ipv4Addr::new(127, 0, 1, 2), to, 3).unwrap();
        assert!(all.is_empty());
    }

    #[test]
    fn connections_come_and_go() {
        let (from, time) = (Ipv4Addr::new(127, 0, 1, 3), Duration::from_millis(50));
        let opened = open_and_reset(from, server(), 4, time).unwrap();
        assert!(opened.answers > 0);
    }

    #[test]
    fn what_is_sent_comes_back() {
        let window = Window {
            warm_up: Duration::from_millis(10),
            measured: Duration::from_millis(50),
        };
        assert!(transfer(server(), window).unwrap() > 0.0);
    }
}
