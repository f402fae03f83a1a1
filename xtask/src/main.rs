//! Everything that a developer types: `cargo xtask demo`, `test`, `tidy`, `lab`, `oracle`,
//! `packetdrill`, `instructions`, `bench`, `package`, `ci`.
//!
//! | module | what |
//! |---|---|
//! | `demo` | `demo` and `bench`: builds what they need, then hands over |
//! | `test`, `stages`, `tally` | `test` and `ci`: the stages as data, and the sum of results |
//! | `tidy` | rules that neither compiler nor clippy checks |
//! | `lab` | a machine with KVM, an IOMMU and QEMU's cards; Linux's drivers on our devices |
//! | `oracle` | compares rules with the kernel's nftables |
//! | `packetdrill` | TCP judged by packetdrill's scripts |
//! | `instructions` | instructions for each frame, beside those of before |
//! | `package` | a Debian package and a tarball |
//! | `toolchain`, `packages` | what must be installed, and what to type where it is not |
//! | `process` | starts other programs |
//!
//! The decisions (which version is too old, which package is missing, which stage failed) are pure
//! functions with tests beside them; the effects around them are thin. No dependencies, and
//! nothing newer than Rust 1.63: the first thing this program does is to tell the owner of an old
//! toolchain what to type.

#![forbid(unsafe_code)]

mod appliances;
mod demo;
mod instructions;
mod lab;
mod lanes;
mod oracle;
mod package;
mod packages;
mod packetdrill;
mod process;
mod record;
mod stages;
mod tally;
mod test;
mod tidy;
mod toolchain;

use std::path::{Path, PathBuf};

const HELP: &str = "\
Usage: cargo xtask COMMAND [OPTION...]

Commands:
  demo    build everything and show the firewall between two networks
  test    run all checks and tests
  tidy    check what neither compiler nor clippy checks
  lab     a machine with KVM, an IOMMU and QEMU's network cards
  oracle  compare rules with the kernel's nftables
  packetdrill
          judge TCP by packetdrill's scripts
  instructions
          count instructions for each frame, beside those of before
  bench   measure, and write figures to results/
  package build a Debian package and a tarball
  ci      what .ci/run does: test --yes --verbose

`cargo xtask COMMAND --help` says more.
";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(status) => std::process::exit(status),
        Err(message) => {
            eprintln!("xtask: {}", message);
            std::process::exit(1);
        }
    }
}

/// Runs one command; its exit status, or one line that says why it could not run.
fn dispatch(arguments: &[String]) -> Result<i32, String> {
    let root = root()?;
    toolchain::check(&root)?;
    let (command, options) = match arguments.split_first() {
        Some((command, options)) => (command.as_str(), options),
        None => ("--help", &[][..]),
    };
    match command {
        "demo" => demo::demo(&root, options),
        "bench" => demo::bench(&root, options),
        "test" => test::main(&root, options),
        "tidy" => tidy::main(&root, options),
        "instructions" => instructions::main(&root, options),
        "oracle" => oracle::main(&root, options),
        "packetdrill" => packetdrill::main(&root, options),
        "package" => package::main(&root, options),
        "lab" => lab::main(&root, options),
        "ci" => test::ci(&root, options),
        "--help" | "-h" | "help" => {
            print!("{}", HELP);
            Ok(0)
        }
        other => Err(format!(
            "there is no command `{}`; type: cargo xtask --help",
            other
        )),
    }
}

/// Whether the options ask for help: before any `--`, which ends our own options.
fn wants_help(options: &[String]) -> bool {
    options
        .iter()
        .take_while(|option| *option != "--")
        .any(|option| option == "--help" || option == "-h")
}

/// The folder of the repository: the parent of this package's.
fn root() -> Result<PathBuf, String> {
    let package =
        std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&package)
        .parent()
        .map(Path::to_path_buf)
        .ok_or_else(|| {
            format!(
                "{} has no parent; type: cargo xtask in the repository",
                package
            )
        })
}
