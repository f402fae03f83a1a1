//! The host's half of the matrix: boots the lab for runs that have no raw data yet, and keeps what
//! they print.

use super::axes::Run;
use super::inside::RAW;
use super::outcome::Outcome;
use super::plan::{Expanded, Plans};
use super::report;
use crate::lab::Lab;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// More than a run takes, in seconds, on a machine that is busy with something else.
const RUN_SECONDS_MAX: usize = 3600;

/// Why there is no measurement.
#[derive(Debug)]
pub enum Error {
    /// A file that cannot be read or written.
    File(PathBuf, io::Error),
    /// A file that names no plan.
    Plan(PathBuf, String),
    /// This program does not know where it lies.
    Own(io::Error),
    /// The lab.
    Lab(String),
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Plan(path, why) => write!(
                f,
                "{}: {}; lab/README.md says what such a file holds",
                path.display(),
                why.trim()
            ),
            Self::Own(error) => write!(f, "where this program lies: {error}"),
            Self::Lab(words) => write!(
                f,
                "the lab ended early: {words}; the same command goes on from here"
            ),
        }
    }
}

/// Reads a file of plans.
///
/// # Errors
/// It cannot be read, or is none.
pub fn read(file: &Path) -> Result<Plans, Error> {
    let text = fs::read_to_string(file).map_err(|error| Error::File(file.into(), error))?;
    Plans::parse(&text).map_err(|why| Error::Plan(file.into(), why))
}

/// A measurement.
#[derive(Debug)]
pub struct Bench<'a> {
    /// The file of plans.
    pub file: &'a Path,
    /// Where results are kept.
    pub out: &'a Path,
    /// The program that boots the lab.
    pub lab: &'a Path,
    /// What is brought along.
    pub bring: &'a [PathBuf],
}

impl Bench<'_> {
    /// The runs of the file, and those that cannot be.
    ///
    /// # Errors
    /// The file is none.
    pub fn list(&self) -> Result<String, Error> {
        let Expanded { runs, impossible } = read(self.file)?.expand();
        let mut text = String::new();
        for (run, plans) in &runs {
            let done = if self.has(run) { "done" } else { "to do" };
            text.push_str(&format!("{done}: {} ({})\n", run.name(), plans.join("; ")));
        }
        for (run, reason) in &impossible {
            text.push_str(&format!("left out: {}: {reason}\n", run.name()));
        }
        Ok(text)
    }

    /// Does what is to do.
    ///
    /// # Errors
    /// The lab ended before its last run; what was done by then is kept.
    pub fn measure(&self, say: &dyn Fn(&str)) -> Result<(), Error> {
        let runs = read(self.file)?.expand().runs;
        let folder = self.out.join("raw");
        fs::create_dir_all(&folder).map_err(|error| Error::File(folder, error))?;
        let own = std::env::current_exe().map_err(Error::Own)?;
        let mut files = vec![own, self.file.to_path_buf()];
        files.extend_from_slice(self.bring);
        let numbered = runs.iter().enumerate();
        let to_do: Vec<(usize, &Run)> = numbered
            .filter(|(_, (run, _))| !self.has(run))
            .map(|(number, (run, _))| (number, run))
            .collect();
        say(&format!("{} of {} runs are to do", to_do.len(), runs.len()));
        for group in groups(&to_do) {
            self.boot(&group, &files, say)?;
        }
        Ok(())
    }

    /// Does runs that need the same lab.
    fn boot(
        &self,
        group: &[(usize, &Run)],
        files: &[PathBuf],
        say: &dyn Fn(&str),
    ) -> Result<(), Error> {
        let Some((_, first)) = group.first() else {
            return Ok(());
        };
        let timeout = format!("--timeout={}", RUN_SECONDS_MAX * group.len());
        let processors = format!("--processors={}", first.processors);
        let mut options = vec![
            "--ioregionfd",
            "--mended-qemu",
            "--module=vhost_net",
            "--module=veth",
            "--module=macvtap",
            &timeout,
            &processors,
        ];
        if first.icount {
            options.push("--icount");
        }
        let numbers: Vec<String> = group.iter().map(|(number, _)| number.to_string()).collect();
        let name = self.file.file_name().unwrap_or_default().to_string_lossy();
        let command = format!(
            "mkdir -p /lib; ln -s /lib /lib64; ln -s /lab/*.so* /lib; \
             exec /lab/outboard-bench matrix /lab/{name} --runs={}",
            numbers.join(",")
        );
        let lab = Lab {
            xtask: self.lab,
            options: &options,
            files,
            command: &command,
        };
        let mut failed = None;
        let mut last = String::new();
        let status = lab.run(&mut |line| {
            match line.strip_prefix(RAW) {
                Some(text) => {
                    if let Err(error) = self.keep(text) {
                        failed.get_or_insert(error);
                    }
                }
                None => say(line),
            }
            last = line.chars().take(200).collect();
        });
        let status = status.map_err(Error::Lab)?;
        match failed {
            Some(error) => Err(error),
            None if status.success() => Ok(()),
            None => Err(Error::Lab(format!("{status}: {last}"))),
        }
    }

    /// Keeps raw data of a run.
    fn keep(&self, text: &str) -> Result<(), Error> {
        let outcome: Outcome =
            serde_json::from_str(text).map_err(|error| Error::Lab(error.to_string()))?;
        let path = self.raw(&outcome.run);
        fs::write(&path, format!("{}\n", text.trim())).map_err(|error| Error::File(path, error))
    }

    fn raw(&self, run: &Run) -> PathBuf {
        self.out.join("raw").join(format!("{}.json", run.name()))
    }

    /// What a run left behind, if it was done.
    fn outcome(&self, run: &Run) -> Option<Outcome> {
        let text = fs::read_to_string(self.raw(run)).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Whether a run was done to its end.
    fn has(&self, run: &Run) -> bool {
        self.outcome(run)
            .is_some_and(|outcome| outcome.failure.is_none())
    }

    /// Writes the report of all raw data; the same in words.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn report(&self, machine: &str) -> Result<String, Error> {
        let plans = read(self.file)?;
        let expanded = plans.expand();
        let outcomes = expanded.runs.iter();
        let outcomes: Vec<_> = outcomes
            .filter_map(|(run, plans)| Some((self.outcome(run)?, plans.clone())))
            .collect();
        let all = expanded.runs.iter().map(|(run, _)| run);
        let to_do: Vec<Run> = all
            .filter(|run| self.outcome(run).is_none())
            .cloned()
            .collect();
        let report = report::Report {
            title: &plans.title,
            machine,
            outcomes: &outcomes,
            impossible: &expanded.impossible,
            to_do: &to_do,
        };
        let write = |name: &str, text: String| {
            let path = self.out.join(name);
            fs::write(&path, text).map_err(|error| Error::File(path, error))
        };
        write("report.html", report.page())?;
        write("summary.json", report.json())?;
        Ok(report.words())
    }
}

/// Runs that need the same lab, together.
fn groups<'a>(runs: &[(usize, &'a Run)]) -> Vec<Vec<(usize, &'a Run)>> {
    let mut groups: Vec<Vec<(usize, &Run)>> = Vec::new();
    let lab = |run: &Run| (run.icount, run.processors);
    for (number, run) in runs {
        let same = |group: &&mut Vec<(usize, &Run)>| lab(group[0].1) == lab(run);
        match groups.iter_mut().find(same) {
            Some(group) => group.push((*number, run)),
            None => groups.push(vec![(*number, run)]),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_share_a_lab_with_their_like() {
        let usual = Run::default();
        let wall = Run {
            icount: false,
            ..Run::default()
        };
        let found = groups(&[(0, &usual), (3, &wall), (4, &usual)]);
        let numbers: Vec<Vec<usize>> = found
            .iter()
            .map(|group| group.iter().map(|(number, _)| *number).collect())
            .collect();
        assert_eq!(numbers, [vec![0, 4], vec![3]]);
    }

    #[test]
    fn raw_data_that_failed_is_done_again() {
        let folder = std::env::temp_dir().join(format!("outboard-matrix-{}", std::process::id()));
        fs::create_dir_all(folder.join("raw")).unwrap();
        let bench = Bench {
            file: Path::new("none"),
            out: &folder,
            lab: Path::new("none"),
            bring: &[],
        };
        let run = Run::default();
        assert!(!bench.has(&run));
        bench.keep(r#"{"run":{},"failure":"silent"}"#).unwrap();
        assert!(!bench.has(&run) && bench.outcome(&run).is_some());
        bench.keep(r#"{"run":{}}"#).unwrap();
        assert!(bench.has(&run));
        assert!(bench.keep("nonsense").is_err());
        fs::remove_dir_all(folder).unwrap();
    }
}
