//! The same measurements in the lab.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{ALL, CONTENDERS, Error, Plan, Programs, frames};
use crate::lab::Lab;
use crate::samples::Samples;

/// More than it takes on a machine that is busy with something else.
const TIMEOUT: &str = "--timeout=900";
/// Puts shared libraries, which Solo5's tender needs, where they are looked for.
const LIBRARIES: &str = "mkdir -p /lib; ln -s /lib /lib64; ln -s /lab/*.so* /lib; ";

/// Takes all measurements in the lab that `xtask` boots, and passes on what it says.
///
/// # Errors
/// The lab cannot be had, or a measurement in it failed.
pub fn measure(
    plan: &Plan,
    programs: &Programs,
    xtask: &Path,
    say: &dyn Fn(&str),
) -> Result<Samples, Error> {
    let failed = |error: std::io::Error| Error::Lab(error.to_string());
    let own = std::env::current_exe().map_err(failed)?;
    let stock = programs.stock();
    let mut files = vec![own, programs.tender.clone(), programs.caller()];
    files.extend([programs.hello(), stock.clone()]);
    files.push(programs.guests.join(frames::GUEST));
    files.push(frames::peer(&programs.solo5).map_err(failed)?);
    files.extend(libraries(&stock)?);
    let lab = Lab {
        xtask,
        options: &[TIMEOUT],
        files: &files,
        command: &inside(plan),
    };
    lab.figures(&ALL, &CONTENDERS, say).map_err(Error::Lab)
}

/// What runs inside.
fn inside(plan: &Plan) -> String {
    let Plan {
        rounds,
        calls,
        starts,
    } = plan;
    format!(
        "{LIBRARIES} SOLO5_DIR=/lab /lab/outboard-bench hvt --raw --tender=/lab/outboard-tender \
         --guests=/lab --rounds={rounds} --calls={calls} --starts={starts}"
    )
}

/// The shared libraries of a program: the files that `ldd` names.
fn libraries(program: &Path) -> Result<Vec<PathBuf>, Error> {
    let ldd = Command::new("ldd").arg(program).output();
    let ldd = ldd.map_err(|error| Error::Lab(format!("ldd: {error}")))?;
    let printed = String::from_utf8_lossy(&ldd.stdout);
    let files = printed
        .split_whitespace()
        .filter(|word| word.starts_with('/'));
    Ok(files.map(PathBuf::from).collect())
}
