//! `parity`: plays all scripts, and prints where both ends differ otherwise than chosen.

#![forbid(unsafe_code)]

use parity::differences::DIFFERENCES;
use parity::{Verdict, Witness, scripts};
use std::error::Error;
use std::process::ExitCode;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    testbed::privilege::acquire()?;
    let mut witness = Witness::new()?;
    let mut failures = 0;
    let chosen = DIFFERENCES
        .iter()
        .map(|chosen| (chosen.name, chosen.script));
    for (name, script) in scripts::all().copied().chain(chosen) {
        if let Verdict::Differs(failure) = witness.judge(&script())? {
            println!("{name}\n{failure}");
            failures += 1;
        }
    }
    println!("{failures} differences that nobody has chosen");
    Ok(ExitCode::from(u8::from(failures > 0)))
}
