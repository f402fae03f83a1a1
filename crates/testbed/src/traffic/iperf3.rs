//! The real iperf3, for who does not believe a generator of our own.

use std::net::IpAddr;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::Window;

/// The server, for one test; to be spawned in the receiver's namespace.
pub fn server(address: IpAddr) -> Command {
    let mut command = Command::new("iperf3");
    command.args(["--server", "--one-off", "--bind", &address.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// The client; to be run in the sender's namespace. iperf3 counts whole seconds.
pub fn client(address: IpAddr, window: Window) -> Command {
    let mut command = Command::new("iperf3");
    command.args(["--json", "--client", &address.to_string()]);
    command.args(["--omit", &window.warm_up.as_secs().max(1).to_string()]);
    command.args(["--time", &window.measured.as_secs().max(1).to_string()]);
    command.stdin(Stdio::null());
    command
}

/// Gigabits of payload a second at the receiver, from the client's output.
///
/// # Errors
/// What iperf3 says went wrong, or that it did not print its JSON.
pub fn gigabits_per_second(output: &[u8]) -> Result<f64, String> {
    let report: Value = serde_json::from_slice(output).map_err(|error| error.to_string())?;
    if let Some(error) = report["error"].as_str() {
        return Err(error.to_owned());
    }
    report["end"]["sum_received"]["bits_per_second"]
        .as_f64()
        .map(|bits| bits / 1e9)
        .ok_or_else(|| "iperf3 printed no end.sum_received.bits_per_second".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receivers_rate_is_read() {
        let output = br#"{"end":{"sum_sent":{"bits_per_second":9e9},
            "sum_received":{"bits_per_second":8.5e9}}}"#;
        assert_eq!(gigabits_per_second(output), Ok(8.5));
    }

    #[test]
    fn what_iperf3_says_is_passed_on() {
        let refused = br#"{"end":{},"error":"unable to connect"}"#;
        assert_eq!(
            gigabits_per_second(refused),
            Err("unable to connect".into())
        );
        assert!(gigabits_per_second(b"{}").is_err());
        assert!(gigabits_per_second(b"iperf3: command not found").is_err());
    }
}
