//! The lab in which all of it happens: its clocks count instructions.

use std::path::Path;

use super::{ALL, CASES, Error, HOSTS, Programs, attach, cards};
use crate::lab::Lab;
use crate::samples::Samples;

/// More than it takes on a machine that is busy with something else.
const TIMEOUT: &str = "--timeout=3600";

/// Takes all measurements in the lab that `xtask` boots, and passes on what it says.
///
/// # Errors
/// The lab cannot be had, or a measurement in it failed.
pub fn measure(
    rounds: usize,
    programs: &Programs,
    xtask: &Path,
    say: &dyn Fn(&str),
) -> Result<Samples, Error> {
    let own = std::env::current_exe().map_err(|error| Error::Lab(error.to_string()))?;
    let mut files = vec![own, programs.tender.clone(), programs.image(attach::GUEST)];
    for case in CASES {
        let image = programs.image(case.image);
        if !files.contains(&image) {
            files.push(image);
        }
    }
    let command = format!(
        "/lab/outboard-bench hosts --raw --tender=/lab/outboard-tender --guests=/lab \
         --appliances=/lab --rounds={rounds}"
    );
    let mut options = vec![TIMEOUT, "--icount"];
    options.extend(cards::OPTIONS);
    let lab = Lab {
        xtask,
        options: &options,
        files: &files,
        command: &command,
    };
    let contenders = [HOSTS.as_slice(), &attach::CONTENDERS].concat();
    lab.figures(&ALL, &contenders, say).map_err(Error::Lab)
}
