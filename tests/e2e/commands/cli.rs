//! Bad input: one line that says what, where, why and what to type; status 1; no partial start.

use crate::harness::build::Images;
use crate::harness::process::{Ended, run};
use crate::harness::temporary::TemporaryFile;
use libtest_mimic::{Failed, Trial};
use std::fs;
use std::process::Command;

/// Arguments of the tender (HELLO and PORT stand for images) and a word of the answer.
const REFUSED: &[(&str, &str)] = &[
    ("", "image"),
    ("--mem=banana HELLO", "--mem"),
    ("--mem=0 HELLO", "--mem"),
    ("--mem=999999999 HELLO", "--mem"),
    ("--mem=1 HELLO", "--mem"),
    ("--frobnicate HELLO", "--frobnicate"),
    ("/nonexistent/image.spt", "/nonexistent/image.spt"),
    ("/etc/passwd", "/etc/passwd"),
    ("/", "/"),
    ("--net:net=x HELLO", "net"),
    ("PORT", "--net:net="),
    ("--net:net= PORT", "--net:net"),
    ("--net:net=averyverylongname PORT", "averyverylongname"),
    ("--net:net=@99 PORT", "@99"),
    ("--net:net=@0 PORT", "@0"),
    ("--net:net=@banana PORT", "@banana"),
    ("--net:net=lo PORT", "lo"),
    ("--net:net=macvtap:nosuch PORT", "nosuch"),
    ("--net-mac:net=banana --net:net=x PORT", "--net-mac:net"),
    (
        "--net-mac:other=02:00:00:00:00:01 --net:net=x PORT",
        "other",
    ),
    ("--block:disk=/nonexistent BLOCK", "/nonexistent"),
    ("--block:disk=/etc BLOCK", "/etc"),
    ("--block:disk=/dev/null BLOCK", "/dev/null"),
    (
        "--block-sector-size:disk=511 --block:disk=x BLOCK",
        "--block-sector-size:disk",
    ),
    ("--share=/nonexistent HELLO", "/nonexistent"),
    ("--host=moon HELLO", "moon"),
    ("--hugepages HELLO", "--host=hvt"),
    ("--dumpcore=/nonexistent HELLO", "/nonexistent"),
];

pub fn trials(images: &'static Images) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (words, answer) in REFUSED {
        for program in ["outboard-tender", "outboard run"] {
            let name = format!("refused::{program} {words}");
            trials.push(Trial::test(name, || {
                refused(images, program, words, answer)
            }));
        }
    }
    trials.push(Trial::test("refused::every truncation of an image", || {
        truncations(images)
    }));
    trials.push(Trial::test("inspect::table and JSON agree", || {
        inspect(images)
    }));
    trials.push(Trial::test("inspect::an image names its crates", || {
        components(images)
    }));
    trials
}

fn tender(images: &Images, program: &str) -> Command {
    if program == "outboard-tender" {
        return Command::new(images.program(program));
    }
    let mut command = Command::new(images.program("outboard"));
    command.arg("run");
    command
}

fn expect_one_line(ended: &Ended) -> Result<(), Failed> {
    ended.expect_status(1)?;
    let lines = ended.stderr.lines().count();
    let silent = ended.stdout.is_empty();
    let one = lines == 1 && silent && !ended.stderr.contains("panicked");
    one.then_some(())
        .ok_or_else(|| format!("not one line: {ended:?}").into())
}

fn refused(images: &Images, program: &str, words: &str, answer: &str) -> Result<(), Failed> {
    let mut command = tender(images, program);
    for word in words.split_ascii_whitespace() {
        match word {
            "HELLO" | "PORT" | "BLOCK" => command.arg(images.guest(&word.to_ascii_lowercase())),
            word => command.arg(word),
        };
    }
    let ended = run(&mut command)?;
    expect_one_line(&ended)?;
    ended.expect_stderr(answer).map(|_| ())
}

fn truncations(images: &Images) -> Result<(), Failed> {
    let whole = fs::read(images.guest("hello"))?;
    let file = TemporaryFile::new("cut.spt", 0)?;
    // The last segment's bytes end where symbols begin; a cut behind them is no harm.
    let image = image::Image::parse(&whole)?;
    let needed = image
        .segments
        .iter()
        .map(|s| s.file_offset + s.file_size)
        .max()
        .unwrap_or(0);
    for length in (0..needed).step_by(97) {
        fs::write(&file.path, &whole[..length])?;
        let ended = run(tender(images, "outboard-tender").arg(&file.path))?;
        expect_one_line(&ended)
            .map_err(|e| format!("cut at {length}: {}", e.message().unwrap_or("")))?;
    }
    Ok(())
}

fn inspect(images: &Images) -> Result<(), Failed> {
    let outboard = || Command::new(images.program("outboard"));
    let table = run(outboard().arg("inspect").arg(&images.firewall))?;
    table
        .expect_status(0)?
        .expect_stdout("private")?
        .expect_stdout("public")?;
    table.expect_stdout("spt")?;
    let json = run(outboard().args(["inspect", "--json"]).arg(&images.firewall))?;
    let value: serde_json::Value = serde_json::from_str(&json.expect_status(0)?.stdout)?;
    let text = value.to_string();
    for word in ["private", "public", "NET_BASIC", "spt"] {
        let found = text.contains(word);
        found
            .then_some(())
            .ok_or_else(|| format!("no {word} in {text}"))?;
    }
    Ok(())
}

/// Its own crates, those of others, and Rust's; all code is somebody's, or counted as the rest.
fn components(images: &Images) -> Result<(), Failed> {
    let outboard = || Command::new(images.program("outboard"));
    let inspect = || {
        let mut command = outboard();
        command.args(["inspect", "--components"]);
        command
    };
    let json = run(inspect().arg("--json").arg(&images.firewall))?;
    let value: serde_json::Value = serde_json::from_str(&json.expect_status(0)?.stdout)?;
    let crates = value["components"].as_array().ok_or("no components")?;
    for (name, from) in [("nf", "folder"), ("talc", "registry"), ("core", "rust")] {
        let found = crates.iter().find(|one| one["name"] == name);
        let found = found.ok_or_else(|| format!("no {name} in {crates:?}"))?;
        if found["from"] != from || found["text"].as_u64() < Some(1) {
            return Err(format!("{name} is not from {from}: {found}").into());
        }
    }
    if crates.iter().any(|one| one["name"] == "tender") {
        return Err("an image has no tender".into());
    }
    let table = run(inspect().arg(&images.firewall))?;
    table.expect_status(0)?.expect_stdout("in files of")?;
    // A copy whose sections nobody finds any more (`e_shoff` and `e_shnum` of its header).
    let stripped = TemporaryFile::new("stripped.spt", 0)?;
    let mut bytes = fs::read(&images.firewall)?;
    bytes[40..48].fill(0);
    bytes[60..64].fill(0);
    fs::write(&stripped.path, bytes)?;
    let ended = run(inspect().arg(&stripped.path))?;
    expect_one_line(&ended)?;
    let says = "it has no line table; build it again, and do not strip it: outboard build FOLDER";
    ended.expect_stderr(says).map(|_| ())
}
