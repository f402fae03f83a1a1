//! `cargo xtask oracle`: builds the comparison with the kernel's nftables and runs it.

use crate::demo;
use crate::packages::{self, BUILD, ORACLE};
use crate::process;
use std::path::Path;
use std::process::Command;

const HELP: &str = "\
Usage: cargo xtask oracle [ARGUMENT...]

Compares the firewall's rules with the kernel's nftables: generated files of rules, generated
frames, what passes and what is counted. On a disagreement it shows the smallest case.

  --cases N     frames to compare (1000000, a minute or two)
  --seed S      where to begin: the same seed gives the same rules and frames
  --jobs J      rounds at a time
  --failures F  end after so many disagreements
";

/// `cargo xtask oracle`.
///
/// # Errors
/// One line that says what could not be built or started.
pub fn main(root: &Path, options: &[String]) -> Result<i32, String> {
    if crate::wants_help(options) {
        print!("{}", HELP);
        return Ok(0);
    }
    packages::provide(&[BUILD, ORACLE], false)?;
    let programs = demo::build(root, &["oracle"])?;
    let mut command = Command::new(programs.join("oracle"));
    command.args(options).current_dir(root);
    process::run(&mut command)
}
