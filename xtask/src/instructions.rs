//! `cargo xtask instructions`: what drivers, verdicts, the model of a NIC, TCP and a link cost, in
//! instructions for each frame, or each command of a disk.
//!
//! Valgrind counts what is executed between entering and leaving one function. The numbers are the
//! same on each machine: the C library is told to take the plain ones of its functions ([`PLAIN`]).
//! They may change with the compiler. `xtask/instructions.txt` keeps those of the last commit that
//! changed them on purpose.

use crate::lanes::{at_once, processors};
use crate::process;
use crate::stages::PROFILE;
use std::path::Path;
use std::process::Command;

/// Where the numbers are kept.
const PATH: &str = "xtask/instructions.txt";
/// A number that grew by more fails, in percent.
const GROWTH_PERCENT_MAX: f64 = 2.0;
/// What keeps the C library from choosing a `memcpy` by the processor: one of them is a single
/// instruction that Valgrind counts once for each byte.
const PLAIN: (&str, &str) = (
    "GLIBC_TUNABLES",
    "glibc.cpu.hwcaps=-AVX_Fast_Unaligned_Load,-AVX2,-AVX512F,-AVX512VL,-ERMS,-FSRM",
);
const TARGET: &str = "x86_64-unknown-linux-gnu";
const HELP: &str = "\
Usage: cargo xtask instructions [--write]

Counts instructions for each frame, beside those in xtask/instructions.txt.

  --write  write the counted ones into that file; say there why they changed
";

/// Something that is counted.
pub struct Case {
    /// Its name in the file.
    pub name: &'static str,
    /// The example that does it.
    example: &'static str,
    /// The function whose instructions count, as callgrind's patterns are written.
    function: &'static str,
    /// The example's arguments.
    arguments: &'static [&'static str],
    /// How many frames it then takes.
    frames: u32,
}

const fn forward(name: &'static str, arguments: &'static [&'static str]) -> Case {
    Case {
        name,
        example: "forward",
        function: "*forward_batch*",
        arguments,
        frames: 12_800,
    }
}

const fn verdict(name: &'static str, arguments: &'static [&'static str]) -> Case {
    Case {
        name,
        example: "verdict_cost",
        function: "*judge*",
        arguments,
        frames: 20_480,
    }
}

/// A verdict where connections are tracked. What opens them does not count. What is called within a
/// closure of the function is named after it, and must not end the count.
const fn connection(name: &'static str, arguments: &'static [&'static str]) -> Case {
    Case {
        name,
        example: "connection_cost",
        function: "*::connection_turn",
        arguments,
        frames: 20_480,
    }
}

/// The same of all hooks of a router.
const fn routed(name: &'static str, arguments: &'static [&'static str]) -> Case {
    Case {
        function: "*::routed_turn",
        ..connection(name, arguments)
    }
}

/// Ends connections before a batch, of which so many have ended.
const fn expiry(name: &'static str, arguments: &'static [&'static str]) -> Case {
    Case {
        function: "*::expire_turn",
        frames: 64,
        ..connection(name, arguments)
    }
}

/// Brings near what the frames of a batch will need.
const fn ahead(name: &'static str, arguments: &'static [&'static str]) -> Case {
    Case {
        function: "*::ahead_turn",
        ..connection(name, arguments)
    }
}

/// The model sends a frame and receives it again.
const fn model(name: &'static str, arguments: &'static [&'static str]) -> Case {
    Case {
        name,
        example: "reflect",
        function: "*model_turn*",
        arguments,
        frames: 12_800,
    }
}

/// TCP over Ethernet and IPv4, without segmentation offload: 1448 bytes each, in trains of 32.
const fn segments(
    name: &'static str,
    function: &'static str,
    arguments: &'static [&'static str],
) -> Case {
    Case {
        name,
        example: "segments",
        function,
        arguments,
        frames: 12_800,
    }
}

/// One end of a link: frames of 60 bytes, in batches of 32.
const fn link(name: &'static str, function: &'static str) -> Case {
    Case {
        name,
        example: "cross",
        function,
        arguments: &["12800"],
        frames: 12_800,
    }
}

/// A disk: reads of 4 KiB, so many given to it at once.
const fn commands(name: &'static str, arguments: &'static [&'static str]) -> Case {
    Case {
        name,
        example: "commands",
        function: "*command_turn*",
        arguments,
        frames: 12_800,
    }
}

const OURS: &[&str] = &["ours", "12800"];
const SMOLTCP: &[&str] = &["smoltcp", "12800"];

/// All that is counted.
pub const CASES: [Case; 49] = [
    forward("ixgbe, batches of 1", &["1", "12800"]),
    forward("ixgbe, batches of 8", &["8", "12800"]),
    forward("ixgbe, batches of 32", &["32", "12800"]),
    forward("ixgbe, batches of 128", &["128", "12800"]),
    forward("e1000e, batches of 1", &["1", "12800", "--e1000e"]),
    forward("e1000e, batches of 8", &["8", "12800", "--e1000e"]),
    forward("e1000e, batches of 32", &["32", "12800", "--e1000e"]),
    forward("e1000e, batches of 128", &["128", "12800", "--e1000e"]),
    forward("virtio, batches of 1", &["1", "12800", "--virtio"]),
    forward("virtio, batches of 8", &["8", "12800", "--virtio"]),
    forward("virtio, batches of 32", &["32", "12800", "--virtio"]),
    forward("virtio, batches of 128", &["128", "12800", "--virtio"]),
    commands("nvme, 4 KiB, depth 1", &["1", "12800"]),
    commands("nvme, 4 KiB, depth 32", &["32", "12800"]),
    commands("ahci, 4 KiB, depth 1", &["1", "12800", "--ahci"]),
    commands("ahci, 4 KiB, depth 32", &["32", "12800", "--ahci"]),
    commands("virtio-blk, 4 KiB, depth 1", &["1", "12800", "--virtio"]),
    commands("virtio-blk, 4 KiB, depth 32", &["32", "12800", "--virtio"]),
    verdict("a verdict, default rules", &["default", "20480"]),
    verdict("a verdict, 100 rules", &["100", "20480"]),
    verdict("a verdict, 10000 rules", &["10000", "20480"]),
    verdict("a verdict, 4 rules", &["4", "20480"]),
    verdict("a verdict, 100000 tuples", &["joint", "20480"]),
    verdict("an update, a limit for each", &["update", "20480"]),
    connection("a verdict, one open connection", &["1", "20480"]),
    connection("a verdict, 1000 open connections", &["1000", "20480"]),
    connection("a verdict, new connections", &["1", "20480", "new"]),
    connection("the same without connections", &["1", "20480", "bare"]),
    routed("a router, an open connection", &["1", "20480", "routed"]),
    routed("the same, translated", &["1", "20480", "translated"]),
    routed("a router, new ones, 4 rules of NAT", &["4", "20480", "nat"]),
    routed("the same, 10000 rules", &["10000", "20480", "nat"]),
    routed("the same, a set of 100000", &["100000", "20480", "set"]),
    routed("the same, 100000 tuples", &["100000", "20480", "tuples"]),
    routed("the same, tuples of ranges", &["100000", "20480", "ranges"]),
    expiry("expiry, 1000 flows", &["1000", "64", "expire"]),
    expiry("expiry, 100000 flows", &["100000", "64", "expire"]),
    ahead(
        "a large table, looked at ahead",
        &["10000", "20480", "ahead"],
    ),
    model("the model 82599, both ways", &["82599", "count", "12800"]),
    model("the model 82574, both ways", &["82574", "count", "12800"]),
    segments("TCP, a segment sent", "*count_send*", OURS),
    segments("TCP, a segment received", "*count_receive*", OURS),
    segments("TCP, its part of an ACK", "*count_acknowledge*", OURS),
    segments("smoltcp, a segment sent", "*count_send*", SMOLTCP),
    segments("smoltcp, a segment received", "*count_receive*", SMOLTCP),
    segments(
        "smoltcp, its part of an ACK",
        "*count_acknowledge*",
        SMOLTCP,
    ),
    link("a link, sent from a slot", "*count_send*"),
    link("a link, copied and sent", "*count_copy*"),
    link("a link, received", "*count_receive*"),
];

/// `cargo xtask instructions`.
///
/// # Errors
/// One line, if nothing could be counted.
pub fn main(root: &Path, arguments: &[String]) -> Result<i32, String> {
    if crate::wants_help(arguments) {
        print!("{}", HELP);
        return Ok(0);
    }
    let write = match arguments {
        [] => false,
        [option] if option == "--write" => true,
        [other, ..] => {
            return Err(format!(
                "instructions takes no `{}`; type: cargo xtask instructions --help",
                other
            ))
        }
    };
    build(root, true)?;
    let text = read(root)?;
    let mut counts = Vec::new();
    let mut grown = false;
    let cases: Vec<&Case> = CASES.iter().collect();
    let counted = at_once(cases, processors(), |case| (case, count(root, case)));
    for (case, count) in counted {
        let count = count?;
        let before = recorded(&text, case.name);
        let known = before.map_or("unknown".to_string(), |before| format!("{:.2}", before));
        println!("{:<27} {:>8.2}  was {:>8}", case.name, count, known);
        grown |= growth(case.name, count, before).is_some();
        counts.push(count);
    }
    if write {
        let path = root.join(PATH);
        std::fs::write(&path, written(&text, &counts))
            .map_err(|error| format!("{}: {}", path.display(), error))?;
    }
    Ok(if grown && !write { 1 } else { 0 })
}

/// Builds what is counted.
///
/// # Errors
/// One line, if that fails.
pub fn build(root: &Path, verbose: bool) -> Result<(), String> {
    let mut cargo = Command::new(process::cargo());
    cargo.args(["build", "--release"]);
    cargo.args([
        "-p", "drivers", "-p", "nf", "-p", "models", "-p", "net", "-p", "ports",
    ]);
    cargo.args(["--example", "forward", "--example", "commands"]);
    cargo.args(["--example", "verdict_cost"]);
    cargo.args(["--example", "connection_cost"]);
    cargo.args([
        "--example",
        "reflect",
        "--example",
        "segments",
        "--example",
        "cross",
    ]);
    // They are counted as they are shipped.
    for (name, _) in PROFILE {
        cargo.env_remove(name);
    }
    let finished = process::capture(cargo.current_dir(root), verbose)?;
    if finished.status == 0 {
        return Ok(());
    }
    println!("{}", finished.output);
    Err("the examples of drivers, nf, models, net and ports do not build".to_string())
}

/// The text of the file.
///
/// # Errors
/// One line, if it cannot be read.
pub fn read(root: &Path) -> Result<String, String> {
    std::fs::read_to_string(root.join(PATH)).map_err(|error| format!("{}: {}", PATH, error))
}

/// Counts the instructions of a case, and says what is wrong with their number.
///
/// # Errors
/// One line, if they cannot be counted.
pub fn check(root: &Path, case: &Case, text: &str) -> Result<Option<String>, String> {
    let finding = growth(case.name, count(root, case)?, recorded(text, case.name));
    Ok(finding.map(|what| {
        format!(
            "{}; to see where: {} && callgrind_annotate callgrind.out; if it is meant: \
             cargo xtask instructions --write",
            what,
            words(&valgrind(root, case, "callgrind.out"))
        )
    }))
}

/// Instructions for each frame.
fn count(root: &Path, case: &Case) -> Result<f64, String> {
    let finished = process::capture(&mut valgrind(root, case, "/dev/null"), false)?;
    match collected(&finished.output) {
        Some(count) if finished.status == 0 && count > 0.0 => Ok(count / f64::from(case.frames)),
        _ => Err(format!(
            "{}: valgrind counted nothing: {}",
            case.name,
            finished.output.lines().last().unwrap_or("nothing was said")
        )),
    }
}

fn valgrind(root: &Path, case: &Case, out: &str) -> Command {
    let examples = process::target_folder(root)
        .join(TARGET)
        .join("release/examples");
    let mut command = Command::new("valgrind");
    command
        .env(PLAIN.0, PLAIN.1)
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", out))
        .arg(format!("--toggle-collect={}", case.function))
        .arg(examples.join(case.example))
        .args(case.arguments);
    command
}

/// A command as one types it.
fn words(command: &Command) -> String {
    let arguments = command.get_args().map(|word| {
        let word = word.to_string_lossy().into_owned();
        if word.contains('*') {
            format!("'{}'", word)
        } else {
            word
        }
    });
    let program = command.get_program().to_string_lossy().into_owned();
    std::iter::once(program)
        .chain(arguments)
        .collect::<Vec<_>>()
        .join(" ")
}

/// The count in what callgrind says at its end: `==7== Collected : 123`.
fn collected(output: &str) -> Option<f64> {
    output
        .lines()
        .find_map(|line| line.split_once("Collected : "))
        .and_then(|(_, count)| count.trim().parse().ok())
}

/// The number of a case in the file: a line `NUMBER NAME`.
fn recorded(text: &str, name: &str) -> Option<f64> {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(_, known)| *known == name)
        .and_then(|(number, _)| number.parse().ok())
}

/// What is wrong with a number: it grew, or nobody knows what it was.
fn growth(name: &str, count: f64, before: Option<f64>) -> Option<String> {
    let before = match before {
        Some(before) => before,
        None => return Some(format!("{}: {} has no number for it", name, PATH)),
    };
    let percent = (count / before - 1.0) * 100.0;
    (percent > GROWTH_PERCENT_MAX).then(|| {
        format!(
            "{}: {:.2} instructions for each frame, {:.1} % more than {:.2}",
            name, count, percent, before
        )
    })
}

/// The file with these numbers: its comments stay.
fn written(text: &str, counts: &[f64]) -> String {
    let comments = text.lines().filter(|line| line.starts_with('#'));
    let numbers = CASES.iter().zip(counts);
    comments
        .map(|line| format!("{}\n", line))
        .chain(numbers.map(|(case, count)| format!("{:.2} {}\n", count, case.name)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_beyond_the_limit_fails() {
        assert_eq!(growth("a", 101.9, Some(100.0)), None);
        assert_eq!(growth("a", 50.0, Some(100.0)), None);
        let says = growth("a", 103.0, Some(100.0)).unwrap();
        assert!(says.contains("3.0 % more than 100.00"), "{}", says);
        assert!(growth("a", 1.0, None).unwrap().contains("no number"));
    }

    #[test]
    fn numbers_are_written_and_read() {
        let counts: Vec<f64> = (0..CASES.len()).map(|n| n as f64 + 0.25).collect();
        let text = written("# Why.\n7 gone\n", &counts);
        assert!(
            text.starts_with("# Why.\n0.25 ixgbe, batches of 1\n"),
            "{}",
            text
        );
        for (case, count) in CASES.iter().zip(counts) {
            assert_eq!(recorded(&text, case.name), Some(count));
        }
        assert_eq!(recorded(&text, "gone"), None);
    }

    #[test]
    fn each_case_has_its_number() {
        let text = include_str!("../instructions.txt");
        for (at, case) in CASES.iter().enumerate() {
            assert!(recorded(text, case.name).is_some(), "{}", case.name);
            let mut before = CASES[..at].iter();
            assert!(before.all(|other| other.name != case.name), "{}", case.name);
        }
    }

    #[test]
    fn what_callgrind_says_is_read() {
        assert_eq!(collected("x\n==7== Collected : 123\n"), Some(123.0));
        assert_eq!(collected("==7== no such thing"), None);
    }

    #[test]
    fn the_command_can_be_typed() {
        let typed = words(&valgrind(Path::new("r"), &CASES[0], "out"));
        assert!(
            typed.contains("'--toggle-collect=*forward_batch*'"),
            "{}",
            typed
        );
        assert!(typed.ends_with("/forward 1 12800"), "{}", typed);
    }
}
