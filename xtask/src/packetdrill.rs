//! `cargo xtask packetdrill`: TCP judged by Google's packetdrill and its scripts, which are fetched
//! and never committed.
//!
//! A library of ours (`tests/packetdrill`) takes the place of the kernel, so that a run is
//! deterministic and touches nothing of the machine. `tests/packetdrill/scripts.txt` says which
//! scripts pass, and which do not apply to us and why.

use crate::process;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

const HELP: &str = "\
Usage: cargo xtask packetdrill [OPTION...] [FILTER]

Runs packetdrill's scripts of TCP against ours, over IPv4 and IPv6: those whose path contains
FILTER. Those that tests/packetdrill/scripts.txt says do not apply are left out.

  --suite=FOLDER  packetdrill's repository, with the program built in gtests/net/packetdrill;
                  PACKETDRILL_DIR names it as well
  --all           run also those that do not apply
";

/// What is known of the scripts.
const LIST: &str = "tests/packetdrill/scripts.txt";
const LIBRARY: &str = "tests/packetdrill";
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Where the suite is, if no option says so.
const VARIABLE: &str = "PACKETDRILL_DIR";
/// Inside of the suite.
const PROGRAM: &str = "gtests/net/packetdrill/packetdrill";
const SCRIPTS: &str = "gtests/net/tcp";
/// A script takes milliseconds; so many seconds end one that never stops.
const SECONDS_MAX: &str = "60";
/// Lines of a failed script that are shown.
const FAILURE_LINES: usize = 8;
/// Folders inside of folders, at most.
const DEPTH_MAX: usize = 8;

/// Arguments for each version of IP: the library has the same addresses. The MTU of IPv6 leaves
/// room for the same segments.
const VERSIONS: [(&str, &[&str]); 2] = [
    (
        "v4",
        &[
            "--so_flags=ipv4",
            "--ip_version=ipv4",
            "--local_ip=192.168.0.1",
            "--gateway_ip=192.168.0.1",
            "--netmask_ip=255.255.0.0",
            "--remote_ip=192.0.2.1",
            "-DCMSG_LEVEL_IP=SOL_IP",
            "-DCMSG_TYPE_RECVERR=IP_RECVERR",
        ],
    ),
    (
        "v6",
        &[
            "--so_flags=ipv6",
            "--ip_version=ipv6",
            "--mtu=1520",
            "--local_ip=fd3d:0a0b:17d6::1",
            "--gateway_ip=fd3d:0a0b:17d6:8888::1",
            "--remote_ip=fd3d:fa7b:d17d::1",
            "-DCMSG_LEVEL_IP=SOL_IPV6",
            "-DCMSG_TYPE_RECVERR=IPV6_RECVERR",
        ],
    ),
];

/// What came of one script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// packetdrill agrees with all that we did.
    Passed,
    /// It does not: its last lines.
    Failed(String),
    /// It was not run, for this reason.
    NotApplicable(String),
}

/// A script, and what came of it.
#[derive(Clone, Debug)]
pub struct Judged {
    /// Its path, from the suite's folder of TCP on.
    pub script: String,
    /// What came of it.
    pub verdict: Verdict,
    /// The list says that it passes.
    pub is_to_pass: bool,
}

/// What the list says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Known {
    passes: Vec<String>,
    /// A script, or the beginning of its path, and why it does not apply.
    others: Vec<(String, String)>,
}

impl Known {
    fn parse(text: &str) -> Result<Self, String> {
        let mut known = Self::default();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let other = |kind: &str| line.strip_prefix(kind)?.split_once(": ");
            if let Some(script) = line.strip_prefix("passes ") {
                known.passes.push(script.to_string());
            } else if let Some((path, what)) = other("lacks ") {
                known
                    .others
                    .push((path.into(), format!("we have no {}", what)));
            } else if let Some((path, why)) = other("differs ") {
                known.others.push((path.into(), why.into()));
            } else {
                return Err(format!(
                    "{}:{}: write `passes SCRIPT`, `lacks PATH: WHAT` or `differs PATH: WHY`",
                    LIST,
                    index + 1
                ));
            }
        }
        Ok(known)
    }

    fn is_to_pass(&self, script: &str) -> bool {
        self.passes.iter().any(|known| known == script)
    }

    /// Why a script does not apply.
    fn reason(&self, script: &str) -> Option<&str> {
        let mut others = self.others.iter();
        let other = others.find(|(path, _)| {
            path == script || path.ends_with('/') && script.starts_with(path.as_str())
        });
        other.map(|(_, reason)| reason.as_str())
    }
}

/// The suite's folder.
///
/// # Errors
/// One line, if nobody says where it is, or if nothing was built there.
pub fn suite(option: Option<&str>) -> Result<PathBuf, String> {
    let named = option.map(PathBuf::from);
    let folder = named.or_else(|| std::env::var_os(VARIABLE).map(PathBuf::from));
    let folder = folder.ok_or_else(|| {
        format!(
            "{} names no clone of https://github.com/google/packetdrill",
            VARIABLE
        )
    })?;
    if !folder.join(PROGRAM).is_file() {
        return Err(format!(
            "{} is not built; type: cd {} && ./configure && make",
            folder.join(PROGRAM).display(),
            folder.join("gtests/net/packetdrill").display()
        ));
    }
    let absolute = folder.canonicalize();
    absolute.map_err(|error| format!("{}: {}", folder.display(), error))
}

/// `cargo xtask packetdrill`.
///
/// # Errors
/// One line that says what could not be found, built or started.
pub fn main(root: &Path, options: &[String]) -> Result<i32, String> {
    if crate::wants_help(options) {
        print!("{}", HELP);
        return Ok(0);
    }
    let (mut folder, mut all, mut filter) = (None, false, "");
    for option in options {
        match option.strip_prefix("--suite=") {
            Some(named) => folder = Some(named),
            None if option == "--all" => all = true,
            None if option.starts_with('-') => {
                return Err(format!(
                    "there is no option `{}`; type: cargo xtask packetdrill --help",
                    option
                ))
            }
            None => filter = option,
        }
    }
    let judged = run(root, &suite(folder)?, filter, all)?;
    for one in &judged {
        if let Verdict::Failed(why) = &one.verdict {
            println!("{}\n{}", one.script, why);
        }
    }
    print!("{}", Table(&judged));
    let failed = |one: &Judged| matches!(one.verdict, Verdict::Failed(_));
    Ok(if judged.iter().any(failed) { 1 } else { 0 })
}

/// Builds the library and runs the scripts whose path contains `filter`.
///
/// # Errors
/// One line that says what could not be built or read.
pub fn run(root: &Path, suite: &Path, filter: &str, all: bool) -> Result<Vec<Judged>, String> {
    let known = Known::parse(&read(&root.join(LIST))?)?;
    let library = build(root)?;
    let mut scripts = Vec::new();
    let folder = suite.join(SCRIPTS);
    find(&folder, &folder, DEPTH_MAX, &mut scripts)?;
    scripts.sort();
    let gone = known
        .passes
        .iter()
        .filter(|script| !scripts.contains(script));
    if let Some(script) = gone.into_iter().next() {
        return Err(format!("{}: the suite has no {}", LIST, script));
    }
    let mut judged = Vec::new();
    for script in scripts.iter().filter(|script| script.contains(filter)) {
        let verdict = match known.reason(script) {
            Some(reason) if !all => Verdict::NotApplicable(reason.to_string()),
            _ => judge(root, suite, &library, script)?,
        };
        judged.push(Judged {
            script: script.clone(),
            verdict,
            is_to_pass: known.is_to_pass(script),
        });
    }
    Ok(judged)
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {}", path.display(), error))
}

/// Builds the library; its file.
fn build(root: &Path) -> Result<PathBuf, String> {
    let folder = root.join(LIBRARY);
    let mut cargo = Command::new(process::cargo());
    cargo.args(["build", "--release", "--quiet"]);
    // What the repository's static programs ask for, a library cannot have.
    cargo.env("RUSTFLAGS", "-C target-feature=-crt-static");
    let built = process::capture(cargo.current_dir(&folder), false)?;
    if built.status != 0 {
        return Err(format!("{} does not compile:\n{}", LIBRARY, built.output));
    }
    let target = process::target_folder(&folder).join(TARGET);
    Ok(target.join("release/libpacketdrill.so"))
}

/// Adds all scripts below `folder`, by their paths from `from` on.
fn find(from: &Path, folder: &Path, depth: usize, scripts: &mut Vec<String>) -> Result<(), String> {
    let failed = |error| format!("{}: {}", folder.display(), error);
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() && depth > 0 {
            find(from, &path, depth - 1, scripts)?;
        } else if path
            .extension()
            .map_or(false, |extension| extension == "pkt")
        {
            if let Ok(inside) = path.strip_prefix(from) {
                scripts.push(inside.to_string_lossy().into_owned());
            }
        }
    }
    Ok(())
}

/// Runs a script over each version of IP that it is for.
fn judge(root: &Path, suite: &Path, library: &Path, script: &str) -> Result<Verdict, String> {
    let text = read(&suite.join(SCRIPTS).join(script))?;
    let copy = root.join(LIBRARY).join("target/scripts").join(script);
    let folder = copy.parent().unwrap_or(root);
    let written = std::fs::create_dir_all(folder).and_then(|()| {
        let lines: Vec<String> = text.lines().map(without_push).collect();
        std::fs::write(&copy, lines.join("\n") + "\n")
    });
    written.map_err(|error| format!("{}: {}", copy.display(), error))?;
    for (version, arguments) in VERSIONS {
        let others = VERSIONS.iter().filter(|(other, _)| *other != version);
        let mut endings = others.map(|(other, _)| format!("-{}.pkt", other));
        if endings.any(|ending| script.ends_with(&ending)) {
            continue;
        }
        let mut command = Command::new("timeout");
        command.arg(SECONDS_MAX).arg(suite.join(PROGRAM));
        command.arg(format!("--so_filename={}", library.display()));
        command.args(arguments).arg("--send_omit_free");
        command.args(["-DTFO_COOKIE=3021b9d889017eeb", "-DCODE=host_unreachable"]);
        command
            .arg(&copy)
            .env("LD_PRELOAD", library)
            .current_dir(folder);
        let finished = process::capture(&mut command, false)?;
        if finished.status != 0 {
            let lines: Vec<&str> = finished.output.lines().collect();
            let from = lines.len().saturating_sub(FAILURE_LINES);
            let last: Vec<String> = lines[from..]
                .iter()
                .map(|line| format!("  {}: {}", version, line))
                .collect();
            return Ok(Verdict::Failed(last.join("\n")));
        }
    }
    Ok(Verdict::Passed)
}

/// A line of a script, without PSH in what it expects of us: a sender may set that flag wherever it
/// likes (RFC 9293, 3.9.1.2), and the library clears it.
fn without_push(line: &str) -> String {
    let time = |byte: char| "+-.~*".contains(byte) || byte.is_ascii_digit() || byte.is_whitespace();
    match line.split_once('>') {
        Some((before, packet)) if before.chars().all(time) => {
            let packet = packet.trim_start();
            let (flags, rest) = packet.split_once(' ').unwrap_or((packet, ""));
            format!("{}> {} {}", before, flags.replace('P', ""), rest)
        }
        _ => line.to_string(),
    }
}

/// Passed, failed and not applicable, by folder and reason.
struct Table<'a>(&'a [Judged]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut folders: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        let mut total = [0; 3];
        for one in self.0 {
            let column = match &one.verdict {
                Verdict::Passed => 0,
                Verdict::Failed(_) => 1,
                Verdict::NotApplicable(reason) => {
                    *reasons.entry(reason).or_default() += 1;
                    2
                }
            };
            let folder = one.script.split('/').next().unwrap_or_default();
            folders.entry(folder).or_default()[column] += 1;
            total[column] += 1;
        }
        writeln!(f, "{:<20} passed  failed  not applicable", "")?;
        for (folder, [passed, failed, others]) in folders.iter().chain([(&"all", &total)]) {
            writeln!(
                f,
                "{:<20} {:>6}  {:>6}  {:>14}",
                folder, passed, failed, others
            )?;
        }
        for (reason, count) in reasons {
            writeln!(f, "{:>4} not applicable: {}", count, reason)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_says_what_is_known() {
        let text =
            "# comment\npasses a/b.pkt\nlacks f/: TCP Fast Open\ndiffers a/c.pkt: a choice\n";
        let known = Known::parse(text).unwrap();
        assert!(known.is_to_pass("a/b.pkt") && !known.is_to_pass("a/c.pkt"));
        assert_eq!(known.reason("f/x/y.pkt"), Some("we have no TCP Fast Open"));
        assert_eq!(known.reason("a/c.pkt"), Some("a choice"));
        assert_eq!(known.reason("a/b.pkt"), None);
        assert!(Known::parse("perhaps a").unwrap_err().contains(":1: write"));
    }

    #[test]
    fn push_is_taken_out_of_what_is_expected_alone() {
        assert_eq!(without_push("+0 > P. 1:2(1) ack 1"), "+0 > . 1:2(1) ack 1");
        assert_eq!(without_push("+.1~+.2 > FP. 1:2(1)"), "+.1~+.2 > F. 1:2(1)");
        for line in [
            "+0 < P. 1:2(1) ack 1",
            "// A > P. B",
            "+0 %{ assert a > P. }%",
        ] {
            assert_eq!(without_push(line), line);
        }
    }

    #[test]
    fn the_table_counts_by_folder_and_reason() {
        let one = |script: &str, verdict| Judged {
            script: script.into(),
            verdict,
            is_to_pass: false,
        };
        let judged = [
            one("a/1.pkt", Verdict::Passed),
            one("a/2.pkt", Verdict::Failed("why".into())),
            one("b/c/3.pkt", Verdict::NotApplicable("we have no X".into())),
        ];
        let table = Table(&judged).to_string();
        let rows: Vec<Vec<&str>> = table
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(rows[1], ["a", "1", "1", "0"]);
        assert_eq!(rows[2], ["b", "0", "0", "1"]);
        assert_eq!(rows[3], ["all", "1", "1", "1"]);
        assert!(table.ends_with("   1 not applicable: we have no X\n"));
    }
}
