//! What to run: the command line behind `outboard run`.

use super::Error;
use crate::capture;
use crate::metrics::Address;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use tender::options::table::{correction, list};
use tender::options::{self, Choice};

/// The monitor's own options; all others are the tender's.
pub const CHOICES: &[Choice] = &[
    Choice {
        form: "--name=NAME",
        help: "the name by which outboard ps, stats, send, rules, logs and stop find the guest",
    },
    Choice {
        form: "--metrics=ADDRESS:PORT|unix:PATH",
        help: "serve what the guest counts over HTTP, for Prometheus",
    },
    Choice {
        form: "--pcap:NAME=FILE",
        help: "capture the frames of port NAME into FILE; - is standard output",
    },
    Choice {
        form: "--pcap-snap=BYTES",
        help: "capture so many bytes of each frame at most",
    },
    Choice {
        form: PCI_BIND,
        help: "take the PCI devices from the host's drivers while the guest runs",
    },
];

/// What `outboard run --help` prints.
pub fn help() -> String {
    format!(
        "Start an image and report how it ended\n\n\
         Usage: outboard run [OPTIONS] [--] IMAGE [ARGUMENTS]\n\n\
         The exit status is the guest's own, or 128 plus the number of the signal that ended it.\n\
         Options come before the image; arguments behind it are the guest's.\n\n\
         Devices, memory and host:\n{}\n\
         The monitor's own:\n{}  --help, --version\n",
        list(options::CHOICES),
        list(CHOICES),
    )
}

/// The monitor's own options that have a value and no name, with that value's placeholder.
const OWN: [(&str, &str); 3] = [
    ("--name", "NAME"),
    ("--metrics", "ADDRESS:PORT|unix:PATH"),
    ("--pcap-snap", "BYTES"),
];
/// The option that takes devices from the host's drivers, and has no value.
const PCI_BIND: &str = "--pci-bind";
/// The option that names a port: `--pcap:PORT=FILE`.
const PCAP: &[u8] = b"--pcap:";

/// What to run: the command line behind `outboard run`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The name under which others find the guest's share file.
    pub name: Option<String>,
    /// Where counters are served over HTTP.
    pub metrics: Option<Address>,
    /// Whose frames are captured.
    pub captures: capture::Request,
    /// Whether PCI devices are taken from the host's drivers for this run.
    pub pci_bind: bool,
    /// Whether the end of its console is said on standard error when a named guest has ended, for
    /// who reads no console. No option asks for it.
    pub keeps_console: bool,
    /// The descriptor out of which a byte comes when a guest that stands by, with a name, shall
    /// begin. No option asks for it.
    pub standby: Option<i32>,
    /// What stands behind the image and looks like an option for in front of it.
    pub misplaced: Option<OsString>,
    /// Whether nothing is run and help is printed.
    pub help: bool,
    /// All else, for the tender.
    pub arguments: Vec<OsString>,
}

impl Request {
    /// Takes the monitor's options out of those in front of the image and leaves all else
    /// untouched: what the others mean is the tender's to say, and what stands behind the image
    /// the guest's.
    ///
    /// # Errors
    /// An option of the monitor has no value, or a wrong one.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, Error> {
        let mut request = Self::default();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            if let Some((option, value)) = own(&argument) {
                let value = value.map(OsStr::to_owned).or_else(|| arguments.next());
                request.set(option, value)?;
                continue;
            }
            if let Some(option) = argument.as_bytes().strip_prefix(PCAP) {
                request.add_capture(option, &mut arguments)?;
                continue;
            }
            if argument == PCI_BIND {
                request.pci_bind = true;
                continue;
            }
            if argument == "--help" || argument == "-h" {
                request.help = true;
                return Ok(request);
            }
            if !is_known(&argument) {
                return Err(unknown(&argument, arguments.next()));
            }
            let is_image = !argument.as_bytes().starts_with(b"-");
            let last = is_image || argument == "--";
            request.arguments.push(argument);
            if last {
                let behind = request.arguments.len();
                request.arguments.extend(arguments);
                let behind = request.arguments[behind..].iter();
                request.misplaced = behind.filter(|_| is_image).find(|a| is_of_run(a)).cloned();
                break;
            }
        }
        Ok(request)
    }

    /// Takes what stands behind `--pcap:`, and the next argument if it has no `=FILE`.
    fn add_capture(
        &mut self,
        option: &[u8],
        next: &mut impl Iterator<Item = OsString>,
    ) -> Result<(), Error> {
        let (port, file) = match option.iter().position(|byte| *byte == b'=') {
            Some(equals) => (
                &option[..equals],
                Some(OsStr::from_bytes(&option[equals + 1..]).to_owned()),
            ),
            None => (option, next.next()),
        };
        let port = String::from_utf8_lossy(port);
        let file = file.as_ref().map(Path::new);
        self.captures.add(&port, file).map_err(Error::Capture)
    }

    fn set(
        &mut self,
        option: (&'static str, &'static str),
        value: Option<OsString>,
    ) -> Result<(), Error> {
        let (key, placeholder) = option;
        let value = value.and_then(|value| String::from_utf8(value.into_vec()).ok());
        let value = value.ok_or(Error::Value { key, placeholder })?;
        match key {
            "--pcap-snap" => self.captures.set_snap(&value).map_err(Error::Capture)?,
            "--metrics" => self.metrics = Some(value.parse().map_err(Error::Metrics)?),
            _ => self.name = Some(value),
        }
        Ok(())
    }
}

/// Whether an argument in front of the image is no option, or one that the tender knows: it says
/// itself what is wrong with such a one.
fn is_known(argument: &OsStr) -> bool {
    let bytes = argument.as_bytes();
    if !bytes.starts_with(b"-") || bytes == b"--" || bytes == b"--version" {
        return true;
    }
    is_one_of(options::CHOICES, argument) || argument == "--x-exec-heap"
}

/// Whether an argument is an option of the tender or of the monitor. The tender says itself where a
/// device belongs that it misses.
fn is_of_run(argument: &OsStr) -> bool {
    const DEVICES: [&[u8]; 3] = [b"--net:", b"--block:", b"--pci:"];
    let is_device = DEVICES
        .iter()
        .any(|key| argument.as_bytes().starts_with(key));
    !is_device && (is_one_of(options::CHOICES, argument) || is_one_of(CHOICES, argument))
}

fn is_one_of(choices: &[Choice], argument: &OsStr) -> bool {
    let bytes = argument.as_bytes();
    let end = bytes.iter().position(|byte| b":=".contains(byte));
    let key = &bytes[..end.unwrap_or(bytes.len())];
    choices.iter().any(|choice| choice.key().as_bytes() == key)
}

/// What is wrong with an option that neither the monitor nor the tender knows.
fn unknown(option: &OsStr, next: Option<OsString>) -> Error {
    let option = option.to_string_lossy().into_owned();
    let next = next.as_ref().and_then(|next| next.to_str());
    let all = options::CHOICES.iter().chain(CHOICES);
    let correction = correction(&option, next, all);
    Error::Options(options::Error::Unknown { option, correction })
}

/// The option of the monitor that this is, and its value, if that is part of it.
fn own(argument: &OsStr) -> Option<((&'static str, &'static str), Option<&OsStr>)> {
    let bytes = argument.as_bytes();
    let (key, value) = match bytes.iter().position(|byte| *byte == b'=') {
        Some(equals) => (
            &bytes[..equals],
            Some(OsStr::from_bytes(&bytes[equals + 1..])),
        ),
        None => (bytes, None),
    };
    let option = OWN.into_iter().find(|(name, _)| name.as_bytes() == key)?;
    Some((option, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(words: &str) -> Request {
        Request::parse(words.split_whitespace().map(OsString::from)).unwrap()
    }

    fn parsed(words: &str) -> (Option<String>, String) {
        let request = request(words);
        let arguments: Vec<_> = request
            .arguments
            .iter()
            .map(|a| a.to_str().unwrap())
            .collect();
        (request.name, arguments.join(" "))
    }

    #[test]
    fn arguments_reach_the_tender_untouched() {
        for words in [
            "--mem=16 --net:a=tap0 fw.spt --mem=3 -- x --name=y",
            "--host=process -- --name=odd.spt x",
            "--mem=16 --",
            "",
        ] {
            assert_eq!(parsed(words), (None, words.into()));
        }
    }

    #[test]
    fn an_option_behind_the_image_is_noticed() {
        let misplaced = |words: &str| request(words).misplaced;
        for option in [
            "--rules=a.nft",
            "--name=x",
            "--pcap:a=f",
            "--mem=16",
            "--pci-bind",
        ] {
            let found = misplaced(&format!("--mem=16 fw.spt a --b {option} --name=y"));
            assert_eq!(found, Some(option.into()));
            assert_eq!(misplaced(&format!("--mem=16 -- fw.spt {option}")), None);
        }
        assert_eq!(misplaced("fw.spt --ipv4=10.0.0.1/24 --net:a=tap0"), None);
    }

    #[test]
    fn the_name_is_the_monitors_own() {
        let expected = (Some("n".into()), "--mem=16 fw.spt --name a".into());
        assert_eq!(parsed("--name=n --mem=16 fw.spt --name a"), expected);
        assert_eq!(parsed("--mem=16 --name n fw.spt --name a"), expected);
    }

    #[test]
    fn metrics_are_the_monitors_too() {
        let request = request("--metrics=127.0.0.1:9100 --name=n --mem=16 fw.spt --metrics=x");
        assert_eq!(request.metrics.unwrap().to_string(), "127.0.0.1:9100");
        assert_eq!(request.name.unwrap(), "n");
        assert_eq!(request.arguments, ["--mem=16", "fw.spt", "--metrics=x"]);
    }

    #[test]
    fn captures_are_the_monitors_too() {
        let asked = request("--pcap:a=f --pcap-snap=96 --pcap:b - --mem=16 x --pcap:c=f");
        assert_eq!(asked.arguments, ["--mem=16", "x", "--pcap:c=f"]);
        assert!(asked.captures.takes_stdout());
        let mut expected = capture::Request::default();
        expected.add("a", Some(Path::new("f"))).unwrap();
        expected.add("b", Some(Path::new("-"))).unwrap();
        expected.set_snap("96").unwrap();
        assert_eq!(asked.captures, expected);
        let error = Request::parse(["--pcap:a".into()]).unwrap_err();
        assert!(matches!(error, Error::Capture(_)), "{error}");
    }

    #[test]
    fn devices_are_taken_only_if_that_is_asked_for() {
        let asked = request("--pci:nic=01:00.0 --pci-bind fw.spt");
        assert!(asked.pci_bind);
        assert_eq!(asked.arguments, ["--pci:nic=01:00.0", "fw.spt"]);
        assert!(!request("--pci:nic=01:00.0 fw.spt --pci-bind").pci_bind);
    }

    #[test]
    fn each_option_of_the_table_is_the_monitors() {
        for choice in CHOICES {
            let typed = choice
                .form
                .replace("NAME", "a")
                .replace("ADDRESS:PORT|", "");
            let typed = typed.replace("BYTES", "96");
            let request = Request::parse([typed.clone().into(), "a.spt".into()]).unwrap();
            assert_eq!(request.arguments, ["a.spt"], "{typed}");
        }
    }

    #[test]
    fn help_has_all_options_in_front_of_the_image() {
        assert!(request("--mem=16 --help fw.spt").help);
        assert!(request("-h").help);
        assert!(!request("fw.spt --help").help);
        let text = help();
        for choice in CHOICES.iter().chain(options::CHOICES) {
            assert!(text.contains(choice.form), "{}", choice.form);
        }
    }

    #[test]
    fn an_option_that_nobody_knows_is_corrected() {
        let said = |words: &str| {
            let words = words.split_whitespace().map(OsString::from);
            Request::parse(words).unwrap_err().to_string()
        };
        assert_eq!(
            said("--nam=fw fw.spt"),
            "no such option: \"--nam=fw\"; did you mean --name=NAME?"
        );
        assert_eq!(
            said("--memory=16 fw.spt"),
            "no such option: \"--memory=16\"; did you mean --mem=MIB?"
        );
        assert_eq!(
            said("--pcap private=x.pcap fw.spt"),
            "no such option: \"--pcap\"; write --pcap:NAME=private=x.pcap"
        );
        assert_eq!(
            parsed("--mem 16 fw.spt").1,
            "--mem 16 fw.spt",
            "the tender's to say"
        );
    }

    #[test]
    fn an_option_has_its_value() {
        let parse = |word: &str| Request::parse([word.into()]);
        assert!(matches!(
            parse("--name"),
            Err(Error::Value { key: "--name", .. })
        ));
        assert!(matches!(parse("--metrics"), Err(Error::Value { .. })));
        assert!(matches!(parse("--metrics=9100"), Err(Error::Metrics(_))));
    }
}
