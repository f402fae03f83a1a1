//! Measurements in the lab: this program once more, inside of it, and the raw figures that it
//! prints.

use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use crate::samples::{Measure, RAW_HEADER, Samples};

/// Lines that are repeated if there are no figures.
const LAST_WORDS: usize = 5;

/// A run of the lab.
#[derive(Debug)]
pub struct Lab<'a> {
    /// The program that boots it.
    pub xtask: &'a Path,
    /// Options of `cargo xtask lab`.
    pub options: &'a [&'a str],
    /// What is brought along, to `/lab`.
    pub files: &'a [PathBuf],
    /// What runs inside, and prints raw figures last.
    pub command: &'a str,
}

impl Lab<'_> {
    /// The figures of these measures and contenders; what is said before them is passed on.
    ///
    /// # Errors
    /// What was said last, if there are none.
    pub fn figures(
        &self,
        measures: &[Measure],
        contenders: &[&'static str],
        say: &dyn Fn(&str),
    ) -> Result<Samples, String> {
        let mut printed: Vec<String> = Vec::new();
        let status = self.run(&mut |line| {
            if printed.iter().all(|line| line != RAW_HEADER) {
                say(line);
            }
            printed.push(line.trim_end().to_owned());
        })?;
        let figures = printed.iter().skip_while(|line| *line != RAW_HEADER);
        let figures = figures.skip(1).map(String::as_str);
        match Samples::parse(figures, measures, contenders) {
            Some(samples) if status.success() => Ok(samples),
            _ => {
                let last = printed.len().saturating_sub(LAST_WORDS);
                Err(format!("{status}: {}", printed[last..].join(" / ")))
            }
        }
    }
    /// Runs it; `each` line that it prints is handed on at once.
    ///
    /// # Errors
    /// The program that boots it cannot be run.
    pub fn run(&self, each: &mut dyn FnMut(&str)) -> Result<ExitStatus, String> {
        let failed = |error: io::Error| format!("{}: {error}", self.xtask.display());
        let files = self.files.iter();
        let mut child = Command::new(self.xtask)
            .arg("lab")
            .args(self.options)
            .args(files.map(|file| format!("--file={}", file.display())))
            .arg("--")
            .arg(self.command)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let output = child.stdout.take().map(BufReader::new);
        let lines = output.into_iter().flat_map(BufRead::lines);
        for line in lines.map_while(Result::ok) {
            each(&line);
        }
        child.wait().map_err(failed)
    }
}
