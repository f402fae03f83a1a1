//! wrk, the HTTP client that loads a server with requests.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Prints the figures as a line that [`Load::read`] understands (wrk, SCRIPTING).
pub const SCRIPT: &str = r#"
done = function(summary, latency, requests)
   local failed = summary.errors
   io.write(string.format("\nFIGURES %d %d %d %d\n",
      summary.requests, summary.duration, latency:percentile(99),
      failed.connect + failed.read + failed.write + failed.status + failed.timeout))
end
"#;

/// The client with one thread; to be run in a segment. wrk counts whole seconds. `script` is a file
/// that holds [`SCRIPT`].
pub fn client(url: &str, connections: u32, time: Duration, script: &Path) -> Command {
    let mut command = Command::new("wrk");
    command.args(["--threads", "1", "--connections", &connections.to_string()]);
    command.args(["--duration", &format!("{}s", time.as_secs().max(1))]);
    command.arg("--latency").arg("--script").arg(script);
    command.arg(url).stdin(Stdio::null());
    command
}

/// What the client reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Requests that were answered.
    pub requests: u64,
    /// How long it was at it.
    pub elapsed: Duration,
    /// 99 % of the answers took at most this.
    pub p99: Duration,
    /// Connections that could not be made or broke, and answers that were refusals.
    pub failed: u64,
}

impl Load {
    /// From the client's output.
    ///
    /// # Errors
    /// It did not print its figures.
    pub fn read(output: &[u8]) -> Result<Self, &'static str> {
        let text = String::from_utf8_lossy(output);
        let line = text.lines().find_map(|line| line.strip_prefix("FIGURES "));
        let words = line.unwrap_or("").split(' ').map(str::parse);
        let figures: Vec<u64> = words.collect::<Result<_, _>>().unwrap_or_default();
        let [requests, elapsed, p99, failed] = figures[..] else {
            return Err("wrk printed no figures");
        };
        Ok(Self {
            requests,
            elapsed: Duration::from_micros(elapsed),
            p99: Duration::from_micros(p99),
            failed,
        })
    }

    /// Answers a second.
    pub fn requests_per_second(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_figures_is_read() {
        let load = Load::read(b"Running 1s test\n\nFIGURES 300 1500000 66 2\n").unwrap();
        assert_eq!(load.requests_per_second(), 200.0);
        assert_eq!((load.p99, load.failed), (Duration::from_micros(66), 2));
    }

    #[test]
    fn other_output_is_an_error() {
        for output in ["", "FIGURES 1 2 3", "FIGURES 1 2 3 x", "unable to connect"] {
            assert!(Load::read(output.as_bytes()).is_err(), "{output}");
        }
    }
}
