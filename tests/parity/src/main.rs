//! `parity`: plays all scripts, and prints where both ends differ otherwise than chosen.
//! `OUTBOARD_SEEDS=FIRST..LAST` chooses those that are generated.

#![forbid(unsafe_code)]

use parity::differences::DIFFERENCES;
use parity::{Verdict, Witness, generate, scripts};
use std::error::Error;
use std::process::ExitCode;

/// Scripts that are generated, a few seconds of them.
const RUNS: u64 = 20_000;
/// Differences that are shown: more have few causes.
const SHOWN_MAX: usize = 5;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    testbed::privilege::acquire()?;
    let mut witness = Witness::new()?;
    let chosen = DIFFERENCES
        .iter()
        .map(|chosen| (chosen.name, chosen.script));
    let named = scripts::all().copied().chain(chosen);
    let named = named.map(|(name, script)| (name.to_owned(), script()));
    let seeds = generate::seeds(RUNS);
    let generated = seeds.map(|seed| (format!("seed {seed}"), generate::script(seed)));
    let (mut alike, mut chosen, mut failures) = (0, 0, 0);
    for (name, script) in named.chain(generated) {
        match witness.judge(&script)? {
            Verdict::Same => alike += 1,
            Verdict::Chosen(_) => chosen += 1,
            Verdict::Differs(failure) => {
                println!("{name}\n{}", witness.minimise(failure)?);
                failures += 1;
            }
        }
        if failures == SHOWN_MAX {
            break;
        }
    }
    println!("{alike} alike, {chosen} different as chosen, {failures} otherwise");
    Ok(ExitCode::from(u8::from(failures > 0)))
}
