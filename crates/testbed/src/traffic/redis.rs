//! redis-benchmark, the client that loads a server with short questions.

use std::net::IpAddr;
use std::process::{Command, Stdio};

/// Connections of the client.
const CONNECTIONS: &str = "50";

/// The client with one thread, which asks so many times for a value, and sets one as often; to be
/// run in a segment. A connection sends `pipelined` questions before it waits for their answers.
pub fn client(address: IpAddr, requests: u64, pipelined: u32) -> Command {
    let mut command = Command::new("redis-benchmark");
    command.args(["-h", &address.to_string(), "-t", "get,set", "--csv"]);
    command.args(["-c", CONNECTIONS, "-n", &requests.to_string()]);
    command.args(["-P", &pipelined.to_string()]);
    command.stdin(Stdio::null());
    command
}

/// Answers a second to GET and to SET, from the client's output.
///
/// # Errors
/// It did not print them.
pub fn requests_per_second(output: &[u8]) -> Result<[f64; 2], String> {
    let text = String::from_utf8_lossy(output);
    let rate = |name: &str| {
        let quoted = format!("\"{name}\",\"");
        let rest = text.lines().find_map(|line| line.strip_prefix(&quoted));
        let rate = rest.and_then(|rest| rest.split('"').next());
        let rate = rate.and_then(|rate| rate.parse().ok());
        rate.ok_or_else(|| format!("redis-benchmark printed no figure for {name}"))
    };
    Ok([rate("GET")?, rate("SET")?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rates_are_read() {
        let output = b"\"test\",\"rps\",\"avg_latency_ms\"\n\
            \"SET\",\"51282.05\",\"0.578\"\n\"GET\",\"52083.33\",\"0.566\"\n";
        assert_eq!(requests_per_second(output), Ok([52083.33, 51282.05]));
        let error = b"Could not connect to Redis at 10.0.0.2:6379: Connection refused\n";
        assert!(requests_per_second(error).is_err());
    }
}
