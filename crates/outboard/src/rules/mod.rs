//! `outboard rules`: what can be done with a file of rules.
//!
//! | module | what |
//! |---|---|
//! | [`check`] | whether it is rules, and how large they are |
//! | [`trace`] | what they do with a frame, step by step |
//! | [`list`] | as nft prints it |
//! | [`elements`] | what is in the sets that a guest's rules change |
//! | [`diff`] | what two of them have that the other one has not |
//! | [`explain`] | that, for people and programs |
//! | [`import`] | makes one of what a Linux machine has |
//! | [`load`] | gives it to a running guest |
//! | [`show`] | what a running guest has in force |

use crate::symbols;
use abi::manifest::is_device_name;
use nf::nft::{self, Limits};
use rule_files::Gathered;
use std::fmt;
use std::path::Path;

pub mod check;
pub mod diff;
pub mod elements;
pub mod explain;
pub mod import;
pub mod list;
pub mod load;
mod samples;
pub mod show;
pub mod trace;
mod warnings;

/// The text of the rules that the image in this file comes with, if it says.
pub fn built_in(image: &Path) -> Option<String> {
    let bytes = symbols::read(image)?;
    image::built_in_rules(&bytes).map(str::to_owned)
}

/// The ports that rules speak of.
#[derive(clap::Args)]
pub struct Ports {
    /// Names of the firewall's ports in the order of its manifest, which `outboard inspect` shows
    #[arg(
        long,
        value_name = "A,B",
        value_delimiter = ',',
        default_value = "private,public"
    )]
    ports: Vec<String>,
}

/// Names that no manifest could have.
#[derive(Debug)]
pub enum PortsError {
    /// A name is empty, or has other characters than letters and digits.
    Name(String),
    /// A name stands there twice.
    Twice(String),
}

impl fmt::Display for PortsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(
                f,
                "--ports: {name:?} is no port's name, which has letters and digits only; write \
                 --ports=private,public"
            ),
            Self::Twice(name) => write!(f, "--ports: {name} is there twice; remove one of them"),
        }
    }
}

impl std::error::Error for PortsError {}

impl Ports {
    /// # Errors
    /// A name that no manifest could have.
    fn names(&self) -> Result<Vec<&str>, PortsError> {
        for (number, name) in self.ports.iter().enumerate() {
            if !is_device_name(name.as_bytes()) {
                return Err(PortsError::Name(name.clone()));
            }
            if self.ports[..number].contains(name) {
                return Err(PortsError::Twice(name.clone()));
            }
        }
        Ok(self.ports.iter().map(String::as_str).collect())
    }
}

/// Says on standard error what a text, which is rules, says in vain where the ports have these
/// names.
pub fn warn(gathered: &Gathered, ports: &[&str]) {
    let text = gathered.whole.text();
    let Ok(file) = nft::parse(text, &Limits::DEFAULT) else {
        return;
    };
    for warning in warnings::find(&file, text, ports) {
        warning.print(gathered);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_names_and_no_two_are_the_same() {
        let names = |list: &[&str]| {
            let ports = list.iter().map(|name| (*name).to_owned()).collect();
            let names = Ports { ports };
            names
                .names()
                .map(|names| names.len())
                .map_err(|error| error.to_string())
        };
        assert_eq!(names(&["private", "public"]), Ok(2));
        let twice = "--ports: a is there twice; remove one of them";
        assert_eq!(names(&["a", "a"]), Err(twice.to_owned()));
        let escape = names(&["a", "b\u{1b}[2J"]).unwrap_err();
        assert!(
            escape.starts_with("--ports: \"b\\u{1b}[2J\" is no port's name"),
            "{escape}"
        );
        assert!(names(&[""]).is_err());
    }
}
