//! net's TCP answers as Linux's does, segment by segment, and differs where that was chosen.

use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::programs;
use libtest_mimic::{Failed, Trial};
use parity::differences::{DIFFERENCES, Difference};
use parity::{Verdict, Witness, generate, scripts};

/// Scripts that are generated, a few seconds of them.
const RUNS: u64 = 3000;

/// All scripts.
pub fn trials(_: &'static Images, network: &Network) -> Vec<Trial> {
    let missing = programs::missing(&["ip"]);
    let scripts = network.trial_unless(missing, "parity::scripts".into(), alike);
    let differences = DIFFERENCES.iter().map(|difference| {
        let name = format!("parity::differs::{}", difference.name);
        network.trial_unless(missing, name, || differs(difference))
    });
    let generated = network.trial_unless(missing, "parity::generated".into(), generated);
    [scripts, generated]
        .into_iter()
        .chain(differences)
        .collect()
}

fn alike() -> Result<(), Failed> {
    let mut witness = Witness::new()?;
    for (name, script) in scripts::all() {
        if let Verdict::Differs(failure) = witness.judge(&script())? {
            return Err(format!("{name}\n{failure}").into());
        }
    }
    Ok(())
}

/// `OUTBOARD_SEEDS=FIRST..LAST` runs others; see the program `parity` for a quicker way.
fn generated() -> Result<(), Failed> {
    let mut witness = Witness::new()?;
    let mut alike = 0;
    for seed in generate::seeds(RUNS) {
        match witness.judge(&generate::script(seed))? {
            Verdict::Same => alike += 1,
            Verdict::Chosen(_) => {}
            Verdict::Differs(failure) => {
                let smallest = witness.minimise(failure)?;
                let again = format!("OUTBOARD_SEEDS={seed}..{}", seed + 1);
                return Err(format!("{again}\n{smallest}").into());
            }
        }
    }
    // Else the generator would be no test.
    match alike {
        0 => Err("nothing was alike".into()),
        _ => Ok(()),
    }
}

/// It is there, and so it is listed rightly.
fn differs(difference: &Difference) -> Result<(), Failed> {
    match Witness::new()?.judge(&(difference.script)())? {
        Verdict::Chosen(names) if names.contains(&difference.name) => Ok(()),
        Verdict::Differs(failure) => Err(failure.to_string().into()),
        verdict => Err(format!("{verdict:?}").into()),
    }
}
