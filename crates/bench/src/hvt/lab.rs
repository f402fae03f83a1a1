//! The same measurements in the lab: this program once more, inside of it, and its raw figures.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{ALL, CONTENDERS, Error, Plan, Programs, frames};
use crate::samples::{RAW_HEADER, Samples};

/// More than it takes on a machine that is busy with something else.
const TIMEOUT_SECONDS: u32 = 900;
/// Puts shared libraries, which Solo5's tender needs, where they are looked for.
const LIBRARIES: &str = "mkdir -p /lib; ln -s /lib /lib64; ln -s /lab/*.so* /lib; ";
/// Lines that are repeated if there are no figures.
const LAST_WORDS: usize = 5;

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
    let failed = |error: std::io::Error| Error::Lab(format!("{}: {error}", xtask.display()));
    let own = std::env::current_exe().map_err(failed)?;
    let stock = programs.stock();
    let mut files = vec![own, programs.tender.clone(), programs.caller()];
    files.extend([programs.hello(), stock.clone()]);
    files.push(programs.guests.join(frames::GUEST));
    files.push(frames::peer(&programs.solo5).map_err(failed)?);
    files.extend(libraries(&stock)?);
    let mut command = Command::new(xtask);
    command.arg("lab");
    command.arg(format!("--timeout={TIMEOUT_SECONDS}"));
    command.args(
        files
            .iter()
            .map(|file| format!("--file={}", file.display())),
    );
    command.arg("--").arg(inside(plan));
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let output = child.stdout.take().map(BufReader::new);
    let mut printed = Vec::new();
    for line in output
        .into_iter()
        .flat_map(BufRead::lines)
        .map_while(Result::ok)
    {
        if printed.iter().all(|line| line != RAW_HEADER) {
            say(&line);
        }
        printed.push(line.trim_end().to_owned());
    }
    let status = child.wait().map_err(failed)?;
    let figures = printed
        .iter()
        .skip_while(|line| *line != RAW_HEADER)
        .skip(1);
    let samples = Samples::parse(figures.map(String::as_str), &ALL, &CONTENDERS);
    match samples {
        Some(samples) if status.success() => Ok(samples),
        _ => {
            let last = printed.len().saturating_sub(LAST_WORDS);
            Err(Error::Lab(format!(
                "{status}: {}",
                printed[last..].join(" / ")
            )))
        }
    }
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
