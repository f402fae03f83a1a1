//! Start-up: from starting a program to the first byte that it prints.

use std::io::{self, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Starts the program with its standard output as a pipe and times its first byte; the rest of the
/// output is read and dropped, and the end awaited.
///
/// # Errors
/// The program could not be started, printed nothing, or failed.
pub fn first_byte(command: &mut Command) -> io::Result<Duration> {
    let begin = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut output = child.stdout.take().expect("standard output is a pipe");
    let first = output.read_exact(&mut [0]);
    let elapsed = begin.elapsed();
    io::copy(&mut output, &mut io::sink())?;
    let status = child.wait()?;
    let program = command.get_program().to_string_lossy();
    if !status.success() {
        return Err(io::Error::other(format!("{program} failed: {status}")));
    }
    first.map_err(|_| io::Error::other(format!("{program} printed nothing")))?;
    Ok(elapsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_byte_is_timed() {
        assert!(first_byte(Command::new("echo").arg("hello")).unwrap() > Duration::ZERO);
    }

    #[test]
    fn silence_and_failure_are_errors() {
        assert!(first_byte(&mut Command::new("true")).is_err());
        assert!(first_byte(&mut Command::new("false")).is_err());
        assert!(first_byte(&mut Command::new("/nonexistent")).is_err());
    }
}
