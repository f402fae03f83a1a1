//! `outboard rules`: what can be done with a file of rules.
//!
//! | module | what |
//! |---|---|
//! | [`source`] | the text, read no further than it may be long |
//! | [`check`] | whether it is rules, and how large they are |
//! | [`trace`] | what they do with a frame, step by step |
//! | [`explain`] | that, for people and programs |
//! | [`load`] | gives it to a running guest |

pub mod check;
pub mod explain;
pub mod load;
pub mod source;
pub mod trace;
mod warnings;

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

impl Ports {
    fn names(&self) -> Vec<&str> {
        self.ports.iter().map(String::as_str).collect()
    }
}
