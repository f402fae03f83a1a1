//! What to run: the command line behind `outboard run`.

use super::Error;
use crate::metrics::Address;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The monitor's own options, each with the value that it takes.
const OWN: [(&str, &str); 2] = [("--name", "NAME"), ("--metrics", "ADDRESS:PORT|unix:PATH")];

/// What to run: the command line behind `outboard run`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The name under which others find the guest's share file.
    pub name: Option<String>,
    /// Where counters are served over HTTP.
    pub metrics: Option<Address>,
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
            let last = argument == "--" || !argument.as_bytes().starts_with(b"-");
            request.arguments.push(argument);
            if last {
                break;
            }
        }
        request.arguments.extend(arguments);
        Ok(request)
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
            "--metrics" => self.metrics = Some(value.parse().map_err(Error::Metrics)?),
            _ => self.name = Some(value),
        }
        Ok(())
    }
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
