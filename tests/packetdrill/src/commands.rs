//! Commands of scripts: what they set on Linux, as far as it means something to us, and their
//! assertions.

use crate::turns;
use libc::c_int;
use net::tcp::Config;
use net::tcp::congestion::Algorithm;
use std::process::Command;

/// What packetdrill runs a script's assertions with.
const PYTHON: &str = "python3";

/// What the next stack begins with.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Of every connection.
    pub config: Config,
}

impl Default for Settings {
    fn default() -> Self {
        // What the suite's own defaults set: a shift of 8, and CUBIC.
        let config = Config {
            receive_max: 15 << 20,
            algorithm: Algorithm::Cubic,
            ..Config::default()
        };
        Self { config }
    }
}

impl Settings {
    /// Reads a command of a script, which is not executed: settings of `sysctl` that we have.
    pub fn read(&mut self, command: &str) {
        for word in command.split_whitespace() {
            let word = word.strip_prefix("/proc/sys/").unwrap_or(word);
            let Some((name, value)) = word.split_once('=') else {
                continue;
            };
            match (name.rsplit(['.', '/']).next(), value) {
                (Some("tcp_congestion_control"), "reno") => {
                    self.config.algorithm = Algorithm::Reno;
                }
                (Some("tcp_congestion_control"), "cubic") => {
                    self.config.algorithm = Algorithm::Cubic;
                }
                _ => {}
            }
        }
    }
}

/// Reads a command of a script, and executes nothing but its assertions; the status, as wait(2) has
/// it.
pub fn run(command: &str) -> c_int {
    match command.split_once(' ') {
        Some((PYTHON, file)) => {
            let mut python = Command::new(PYTHON);
            let status = python.arg(file).env_remove("LD_PRELOAD").status();
            status.map_or(-1, |status| status.code().unwrap_or(1) << 8)
        }
        _ => {
            turns::change(|world| world.set(command));
            0
        }
    }
}
