//! What idle connections of the image `http` take, each of which has been answered once.

use crate::served::{SERVER, Served};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use testbed::contender;
use testbed::contender::Process;
use testbed::meter;

/// Where the image listens.
pub const PORT: u16 = 80;
/// Idle connections that are opened. The image takes 1024 at a time, and ends those that ask
/// nothing for 15 seconds.
const IDLE: usize = 1000;
/// Those before them: what the image needs in any case is then there.
const WARM: usize = 20;
/// The longest time to wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Header lines of an answer.
const LINES_MAX: usize = 100;
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: 10.0.0.2\r\n\r\n";

/// Memory of the image that each idle connection takes, in bytes, its task included; `None` if this
/// user may not look. All of them answer once more after that.
///
/// # Errors
/// A connection could not be opened, or was not answered, or its bytes were no answer.
pub fn memory(served: &Served) -> io::Result<Option<f64>> {
    let process = served.process.as_ref().map(Process::id);
    let resident = || process.map_or(Ok(0), |id| meter::resident_kib(id, 0));
    let warm = open(served, WARM)?;
    let before = resident();
    let mut idle = open(served, IDLE)?;
    let after = resident();
    idle.iter_mut().try_for_each(ask)?;
    drop(warm);
    let (Ok(before), Ok(after)) = (before, after) else {
        return Ok(None);
    };
    let bytes = after.saturating_sub(before) * 1024;
    Ok(Some(bytes as f64 / idle.len() as f64))
}

/// Starts the image, and waits until it listens.
///
/// # Errors
/// What could not be made or started.
pub fn start(
    tender: &std::path::Path,
    image: &std::path::Path,
    options: &[&str],
) -> Result<Served, contender::Error> {
    let served = Served::image(tender, image, options, &[])?;
    served.listens(PORT).map_err(contender::Error::Socket)?;
    Ok(served)
}

/// So many connections, each of which has been answered.
fn open(served: &Served, count: usize) -> io::Result<Vec<BufReader<TcpStream>>> {
    let to = SocketAddr::from((SERVER, PORT));
    let one = || {
        let stream = served
            .client
            .run(|| TcpStream::connect_timeout(&to, PATIENCE))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut stream = BufReader::new(stream);
        ask(&mut stream)?;
        Ok(stream)
    };
    (0..count).map(|_| one()).collect()
}

/// Asks for the first page, and reads it.
fn ask(stream: &mut BufReader<TcpStream>) -> io::Result<()> {
    stream.get_mut().write_all(REQUEST)?;
    let len = body(stream)?;
    io::copy(&mut stream.take(len), &mut io::sink()).and_then(|count| match count == len {
        true => Ok(()),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    })
}

/// Reads the header of an answer; how long its body is.
fn body(answer: &mut impl BufRead) -> io::Result<u64> {
    let none = || io::Error::other("this is no answer with a length");
    let (mut line, mut len) = (String::new(), None);
    answer.read_line(&mut line)?;
    if !line.starts_with("HTTP/1.1 200 ") {
        return Err(none());
    }
    for _ in 0..LINES_MAX {
        line.clear();
        answer.read_line(&mut line)?;
        match line.trim_end().split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                len = value.trim().parse().ok();
            }
            Some(_) => {}
            None => return len.ok_or_else(none),
        }
    }
    Err(none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_an_answer_is_found() {
        let of = |answer: &str| body(&mut answer.as_bytes()).ok();
        let answer = "HTTP/1.1 200 OK\r\nServer: x\r\ncontent-length: 12\r\n\r\nhello";
        assert_eq!(of(answer), Some(12));
        assert_eq!(
            of("HTTP/1.1 404 Not Found\r\nContent-Length: 1\r\n\r\n"),
            None
        );
        assert_eq!(of("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"), None);
        assert_eq!(of("HTTP/1.1 200 OK\r\n\r\n"), None);
        assert_eq!(of(""), None);
        let endless = "HTTP/1.1 200 OK\r\n".to_owned() + &"a: b\r\n".repeat(LINES_MAX + 1);
        assert_eq!(of(&endless), None);
    }
}
