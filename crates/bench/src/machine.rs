//! What figures were taken on: without it they mean nothing.

use std::fmt;
use std::fs;
use std::process::Command;

/// The machine, its load and the code, at one moment.
#[derive(Clone, Debug)]
pub struct Machine {
    kernel: String,
    processor: String,
    cores: usize,
    load: String,
    steal: Option<Ticks>,
    date: String,
    commit: String,
}

/// Time of all processors since boot, in ticks of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    /// Taken by the hypervisor for others.
    stolen: u64,
    total: u64,
}

impl Machine {
    /// Looks at the machine. What cannot be learnt is "unknown".
    pub fn now() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let kernel = rustix::system::uname();
        let changed = output("git", &["status", "--porcelain", "--untracked-files=no"]);
        let commit = output("git", &["rev-parse", "--short=12", "HEAD"]);
        Self {
            kernel: kernel.release().to_string_lossy().into_owned(),
            processor: processor(&read("/proc/cpuinfo")).unwrap_or_else(unknown),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            load: read("/proc/loadavg").trim().to_owned(),
            steal: Ticks::parse(&read("/proc/stat")),
            date: output("date", &["-u", "+%F %T UTC"]).unwrap_or_else(unknown),
            commit: match (commit, changed.is_some_and(|list| !list.is_empty())) {
                (Some(commit), true) => format!("{commit}, with changes"),
                (Some(commit), false) => commit,
                (None, _) => unknown(),
            },
        }
    }

    /// Whether others wanted more than a quarter of the cores during the last minute.
    pub fn is_busy(&self) -> bool {
        let load = self
            .load
            .split(' ')
            .next()
            .and_then(|load| load.parse().ok());
        load.is_some_and(|load: f64| load > self.cores as f64 / 4.0)
    }

    /// Percent of the processors' time that the hypervisor took between `earlier` and this.
    fn stolen_percent_since(&self, earlier: &Self) -> Option<f64> {
        let (begin, end) = (earlier.steal?, self.steal?);
        let total = end
            .total
            .checked_sub(begin.total)
            .filter(|&ticks| ticks > 0)?;
        let stolen = end.stolen.checked_sub(begin.stolen)?;
        Some(100.0 * stolen as f64 / total as f64)
    }
}

/// A run between two looks at the machine, as a list for a report.
pub struct Run<'a> {
    /// Before the first measurement.
    pub begin: &'a Machine,
    /// After the last.
    pub end: &'a Machine,
}

impl fmt::Display for Run<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { begin, end } = self;
        writeln!(f, "- kernel: {}", begin.kernel)?;
        writeln!(f, "- processor: {}, {} cores", begin.processor, begin.cores)?;
        writeln!(f, "- load before: {}; after: {}", begin.load, end.load)?;
        if begin.is_busy() {
            writeln!(
                f,
                "- BUSY: other programs wanted the cores before the first measurement; medians \
                 of times and rates are theirs as much as the contenders'"
            )?;
        }
        match end.stolen_percent_since(begin) {
            Some(percent) => writeln!(f, "- steal: {percent:.1} %")?,
            None => writeln!(f, "- steal: unknown")?,
        }
        writeln!(f, "- begun {}, ended {}", begin.date, end.date)?;
        writeln!(f, "- commit: {}", begin.commit)
    }
}

impl Ticks {
    /// The first line of `/proc/stat` (`proc(5)`): user, nice, system, idle, iowait, irq, softirq,
    /// steal, then guest times that the first two hold already.
    fn parse(stat: &str) -> Option<Self> {
        let fields = stat.lines().next()?.strip_prefix("cpu ")?;
        let times: Vec<u64> = fields
            .split_ascii_whitespace()
            .take(8)
            .map(str::parse)
            .collect::<Result<_, _>>()
            .ok()?;
        Some(Self {
            stolen: *times.get(7)?,
            total: times.iter().sum(),
        })
    }
}

fn processor(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo
        .lines()
        .find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn unknown() -> String {
    "unknown".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_the_eighth_time() {
        let stat = "cpu  10 0 20 60 1 2 3 4 5 6\ncpu0 1 2 3\n";
        let ticks = Ticks::parse(stat).unwrap();
        assert_eq!((ticks.stolen, ticks.total), (4, 100));
        assert_eq!(Ticks::parse("cpu  1 2 3"), None);
        assert_eq!(Ticks::parse(""), None);
    }

    #[test]
    fn steal_is_a_share_of_the_time_between() {
        let machine = |stolen, total| Machine {
            steal: Some(Ticks { stolen, total }),
            ..Machine::now()
        };
        let percent = machine(15, 300).stolen_percent_since(&machine(5, 100));
        assert_eq!(percent, Some(5.0));
        assert_eq!(machine(5, 100).stolen_percent_since(&machine(5, 100)), None);
    }

    #[test]
    fn a_busy_machine_is_said_to_be_one() {
        let machine = |load: &str| Machine {
            load: load.to_owned(),
            cores: 2,
            ..Machine::now()
        };
        let (idle, busy) = (machine("0.49 2.00 3.00 1/90 7"), machine("0.51 0 0 1/90 7"));
        let run = |begin| Run { begin, end: &idle }.to_string();
        assert!(!run(&idle).contains("BUSY") && run(&busy).contains("BUSY"));
        assert!(!machine("").is_busy());
    }

    #[test]
    fn the_processor_is_named() {
        let cpuinfo = "processor\t: 0\nmodel name\t: EPYC 9\ncores : 2\n";
        assert_eq!(processor(cpuinfo), Some("EPYC 9".to_owned()));
        assert_eq!(processor(""), None);
    }
}
