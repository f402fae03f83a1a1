//! The words of the command line: those of the stock program that mean something here.

use crate::protocol::Parameters;
use alloc::format;
use alloc::string::String;
use core::time::Duration;

/// iperf3's port.
const PORT: u16 = 5201;
/// iperf 2's.
const IPERF2_PORT: u16 = 5001;
/// Seconds of a test (`DURATION`).
const SECONDS: u64 = 10;
/// Longest test, in seconds (`MAX_TIME`).
const SECONDS_MAX: u64 = 86_400;
/// Most streams in each direction (`MAX_STREAMS`).
pub const STREAMS_MAX: u64 = 128;
/// Bytes of a block over TCP (`DEFAULT_TCP_BLKSIZE`), and the most (`MAX_BLOCKSIZE`).
pub const TCP_BLOCK: u64 = 128 << 10;
/// As above.
pub const TCP_BLOCK_MAX: u64 = 1 << 20;
/// Bytes of a datagram that fits Ethernet over IPv6 as well.
pub const UDP_BLOCK: u64 = 1448;
/// The fewest and the most bytes of a datagram (`MIN_UDP_BLOCKSIZE`, `MAX_UDP_BLOCKSIZE`).
pub const UDP_BLOCK_RANGE: (u64, u64) = (16, 65_507);
/// Bits in a second over UDP (`UDP_RATE`).
const UDP_RATE: u64 = 1 << 20;
/// Seconds between two reports, in the stock program's bounds.
const INTERVAL_RANGE: (f64, f64) = (0.1, 60.0);

/// The options, as `--help` of the image shows them.
pub const HELP: &str = "  \
  -s, --server             serve tests
  --iperf2                 serve clients of iperf 2 instead, over TCP and UDP (port 5001)
  -c, --client HOST        run a test with the server of this address or name
  -p, --port N             the server's port (5201)
  -1, --one-off            end after one test
  -i, --interval SECONDS   between two reports (1); 0 for none
  -J, --json               report in JSON, when the test is over
 a client's:
  -u, --udp                over UDP
  -t, --time SECONDS       so long (10)
  -n, --bytes N[KMG]       until so many bytes are sent
  -k, --blockcount N[KMG]  until so many blocks are sent
  -l, --length N[KMG]      bytes of a block (128K over TCP, 1448 over UDP)
  -b, --bitrate N[KMG]     bits in a second, for each stream; 0 for all that there are
                           (all over TCP, 1 Mbit/s over UDP)
  -P, --parallel N         streams (1)
  -O, --omit SECONDS       do not count the first ones
  -R, --reverse            the server sends
  --bidir                  both send
  -N, --no-delay           small segments leave at once
  --udp-counters-64bit     datagrams have long numbers

";

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Serves tests.
    Server,
    /// Serves clients of iperf 2.
    Iperf2,
    /// Runs a test with a server.
    Client,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is run.
    pub role: Role,
    /// The address or name of a client's server.
    pub server: String,
    /// The server's port.
    pub port: u16,
    /// Ends after one test.
    pub one_off: bool,
    /// Between two reports.
    pub interval: Option<Duration>,
    /// Reports in JSON.
    pub json: bool,
    /// A client's test.
    pub test: Parameters,
}

/// Words, one after another.
struct Words<'a> {
    rest: core::slice::Iter<'a, &'a str>,
    /// The value that follows `=`, or the letter.
    attached: Option<&'a str>,
}

impl<'a> Words<'a> {
    /// The next option, without its value.
    fn next(&mut self) -> Option<&'a str> {
        let word: &'a str = self.rest.next()?;
        let (option, attached) = match word.split_once('=') {
            Some((option, value)) if word.starts_with("--") => (option, Some(value)),
            _ if !word.starts_with("--") && word.is_char_boundary(2) && word.len() > 2 => {
                (&word[..2], Some(&word[2..]))
            }
            _ => (word, None),
        };
        self.attached = attached;
        Some(option)
    }

    fn value(&mut self, option: &str) -> Result<&'a str, String> {
        let value = self.attached.take().or_else(|| self.rest.next().copied());
        value.ok_or_else(|| format!("{option} wants a value"))
    }

    /// A number from `least` to `most`, with a suffix of so much each.
    fn number(&mut self, option: &str, kilo: u64, range: (u64, u64)) -> Result<u64, String> {
        let value = self.value(option)?;
        let (least, most) = range;
        let number = number(value, kilo).filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| format!("{option} {value}: write a number from {least} to {most}"))
    }
}

/// A number with a suffix, such as `1.5M`.
fn number(text: &str, kilo: u64) -> Option<u64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let power = match &text[digits.len()..] {
        "" => 0,
        "k" | "K" => 1,
        "m" | "M" => 2,
        "g" | "G" => 3,
        "t" | "T" => 4,
        _ => return None,
    };
    let unit = kilo.pow(power);
    match digits.parse::<u64>() {
        Ok(whole) => whole.checked_mul(unit),
        Err(_) => {
            let value: f64 = digits.parse().ok()?;
            (value.is_finite() && value >= 0.0).then_some((value * unit as f64) as u64)
        }
    }
}

fn interval(words: &mut Words<'_>, option: &str) -> Result<Option<Duration>, String> {
    let value = words.value(option)?;
    let (least, most) = INTERVAL_RANGE;
    match value.parse::<f64>() {
        Ok(0.0) => Ok(None),
        Ok(seconds) if (least..=most).contains(&seconds) => {
            Ok(Some(Duration::from_secs_f64(seconds)))
        }
        _ => Err(format!(
            "{option} {value}: write 0, or from {least} to {most} seconds"
        )),
    }
}

impl Options {
    /// Reads the words.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn parse(words: &[&str]) -> Result<Self, String> {
        let mut options = Self {
            role: Role::Server,
            server: String::new(),
            port: 0,
            one_off: false,
            interval: Some(Duration::from_secs(1)),
            json: false,
            test: Parameters::default(),
        };
        let mut words = Words {
            rest: words.iter(),
            attached: None,
        };
        while let Some(option) = words.next() {
            match option {
                "-s" | "--server" => options.role = Role::Server,
                "--iperf2" => options.role = Role::Iperf2,
                "-c" | "--client" => {
                    options.role = Role::Client;
                    options.server = words.value(option)?.into();
                }
                "-p" | "--port" => options.port = words.number(option, 1, (1, 65_535))? as u16,
                "-1" | "--one-off" => options.one_off = true,
                "-i" | "--interval" => options.interval = interval(&mut words, option)?,
                "-J" | "--json" => options.json = true,
                _ => options.test.take(option, &mut words)?,
            }
            if words.attached.is_some() {
                return Err(format!("{option} takes no value"));
            }
        }
        if options.port == 0 {
            let iperf2 = options.role == Role::Iperf2;
            options.port = if iperf2 { IPERF2_PORT } else { PORT };
        }
        options.test.complete()?;
        Ok(options)
    }
}

impl Parameters {
    /// One of a client's options.
    fn take(&mut self, option: &str, words: &mut Words<'_>) -> Result<(), String> {
        let any = (0, u64::MAX);
        match option {
            "-u" | "--udp" => self.udp = true,
            "-t" | "--time" => self.time = words.number(option, 1, (1, SECONDS_MAX))?,
            "-n" | "--bytes" => self.num = words.number(option, 1024, any)?,
            "-k" | "--blockcount" => self.blockcount = words.number(option, 1024, any)?,
            "-l" | "--length" => self.len = words.number(option, 1024, (1, TCP_BLOCK_MAX))?,
            "-b" | "--bitrate" | "--bandwidth" => {
                self.bandwidth = Some(words.number(option, 1000, any)?);
            }
            "-P" | "--parallel" => self.parallel = words.number(option, 1, (1, STREAMS_MAX))?,
            "-O" | "--omit" => self.omit = words.number(option, 1, (0, 600))?,
            "-R" | "--reverse" => self.reverse = true,
            "--bidir" => self.bidirectional = true,
            "-N" | "--no-delay" => self.nodelay = true,
            "--udp-counters-64bit" => self.udp_counters_64bit = 1,
            _ => return Err(format!("{option}: no such option; see --help")),
        }
        Ok(())
    }

    /// What nobody said.
    fn complete(&mut self) -> Result<(), String> {
        if self.reverse && self.bidirectional {
            return Err("-R and --bidir contradict each other".into());
        }
        self.tcp = !self.udp;
        self.parallel = self.parallel.max(1);
        if self.time == 0 && self.num == 0 && self.blockcount == 0 {
            self.time = SECONDS;
        }
        let rate = self
            .bandwidth
            .unwrap_or(if self.udp { UDP_RATE } else { 0 });
        self.bandwidth = (rate > 0).then_some(rate);
        self.len = self.block();
        Ok(())
    }

    /// Bytes of a block or datagram, within bounds.
    pub fn block(&self) -> u64 {
        match (self.udp, self.len) {
            (true, 0) => UDP_BLOCK,
            (true, len) => len.clamp(UDP_BLOCK_RANGE.0, UDP_BLOCK_RANGE.1),
            (false, 0) => TCP_BLOCK,
            (false, len) => len.min(TCP_BLOCK_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        let words: alloc::vec::Vec<&str> = line.split_ascii_whitespace().collect();
        Options::parse(&words)
    }

    #[test]
    fn a_client_is_read_as_the_stock_program_reads_it() {
        let line = "-c 10.0.0.1 -p 99 -u -b1.5M -l 1K -P4 --time=3 --bidir -J -i 0";
        let options = parse(line).unwrap();
        assert_eq!(options.role, Role::Client);
        assert_eq!((&*options.server, options.port), ("10.0.0.1", 99));
        let test = &options.test;
        assert_eq!(
            (test.udp, test.tcp, test.bidirectional),
            (true, false, true)
        );
        assert_eq!((test.bandwidth, test.len), (Some(1_500_000), 1024));
        assert_eq!((test.parallel, test.time), (4, 3));
        assert!(options.json && options.interval.is_none());
        let options = parse("-c fd00::1 -n 2M").unwrap();
        assert_eq!((&*options.server, options.port), ("fd00::1", 5201));
        assert_eq!((options.test.num, options.test.time), (2 << 20, 0));
        assert_eq!(options.test.bandwidth, None);
        assert_eq!(parse("-c ::1 -u").unwrap().test.bandwidth, Some(UDP_RATE));
        assert_eq!(parse("-c ::1 -u -b 0").unwrap().test.bandwidth, None);
    }

    #[test]
    fn servers_have_their_ports() {
        assert_eq!(parse("-s -1").unwrap().port, 5201);
        assert!(parse("-s -1").unwrap().one_off);
        assert_eq!(parse("--iperf2").unwrap().port, 5001);
        assert_eq!(parse("--iperf2 -p 7").unwrap().port, 7);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in [
            "-c",
            "-p 0",
            "-p 70000",
            "-p",
            "-t x",
            "-t 0",
            "-P 129",
            "-l 2M",
            "-n 99999999999999G",
            "-n -1",
            "-n 1X",
            "-b nan",
            "-i 0.01",
            "-i inf",
            "--json=1",
            "-R1",
            "-R --bidir",
            "--no-such",
            "word",
            "é",
            "-",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
