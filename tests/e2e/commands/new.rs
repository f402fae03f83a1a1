//! `outboard new`: what it makes builds and runs as it says, and what it cannot make it refuses.

use crate::harness::build::{Images, root};
use crate::harness::document::shell;
use crate::harness::network::Network;
use crate::harness::process::{run, start};
use crate::harness::temporary::TemporaryFolder;
use libtest_mimic::{Failed, Trial};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// How long the appliance may take to say its first line.
const PATIENCE: Duration = Duration::from_secs(10);

/// Arguments, and a word of the answer.
const REFUSED: [(&str, &str); 7] = [
    ("here", "here already"),
    ("Box", "lower-case"),
    ("../box", "lower-case"),
    ("unikernel", "another"),
    ("--template=service service", "another"),
    ("box", "another"),
    ("first --outboard=/nonexistent", "--outboard"),
];

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    vec![
        Trial::test("new::what it cannot make is refused", || refused(images)),
        Trial::test("new::what it makes is formatted", || formatted(images)),
        network.trial("new::the commands that it prints".into(), || {
            printed(images, "frames", "counting the frames", |folder| {
                with_documented_counter(&folder.join("src/main.rs"))
            })
        }),
        network.trial(
            "new::the commands that it prints for a service".into(),
            || printed(images, "service", "10.0.0.2/24 on service", |_| Ok(())),
        ),
    ]
}

fn refused(images: &Images) -> Result<(), Failed> {
    let folder = TemporaryFolder::new("new")?;
    fs::create_dir(folder.path.join("here"))?;
    for (arguments, answer) in REFUSED {
        let command = format!("outboard new {arguments}");
        let ended = run(&mut shell(images, &folder.path, &command))?;
        ended.expect_status(1)?.expect_stderr(answer)?;
        if ended.stderr.lines().count() != 1 || fs::read_dir(&folder.path)?.count() != 1 {
            return Err(format!("not one line, or a folder: {ended:?}").into());
        }
    }
    Ok(())
}

/// As rustfmt has it, whatever the length of the name is.
fn formatted(images: &Images) -> Result<(), Failed> {
    let folder = TemporaryFolder::new("new")?;
    for name in [
        "first",
        "a-name-that-is-as-long-as-names-of-appliances-are-in-practice",
    ] {
        for template in ["frames", "service"] {
            let new = format!("outboard new --template={template} {name} && cd {name}");
            let command = format!("{new} && cargo fmt --check && cd .. && rm -r {name}");
            run(&mut shell(images, &folder.path, &command))?.expect_status(0)?;
        }
    }
    Ok(())
}

/// Counts as docs/monitoring.md shows it.
fn with_documented_counter(main: &Path) -> Result<(), Failed> {
    let document = fs::read_to_string(root().join("docs/monitoring.md"))?;
    let (_, rest) = document.split_once("```rust\n").ok_or("no block")?;
    let (block, _) = rest.split_once("```").ok_or("no end of the block")?;
    let code = fs::read_to_string(main)?;
    let (before, behind) = code.split_once("    let mut batch").ok_or("no batch")?;
    let counted = format!("{before}{{ let port = &net;\n{block}}}\n    let mut batch{behind}");
    Ok(fs::write(main, counted)?)
}

/// Types what it prints, after a `change`, until the appliance says its `first_line`.
fn printed(
    images: &Images,
    template: &str,
    first_line: &str,
    change: impl Fn(&Path) -> Result<(), Failed>,
) -> Result<(), Failed> {
    let folder = TemporaryFolder::new("new")?;
    let new = format!("outboard new --template={template} first");
    let made = run(&mut shell(images, &folder.path, &new))?;
    let stdout = &made.expect_status(0)?.stdout;
    change(&folder.path.join("first"))?;
    let commands: Vec<_> = stdout
        .lines()
        .filter_map(|l| l.strip_prefix("    "))
        .collect();
    let (last, first) = commands.split_last().ok_or("no commands")?;
    let script = format!("{}\nexec {last} > said", first.join("\n"));
    let mut running = start(&mut shell(images, &folder.path, &script))?;
    // To build it takes as long as it takes; the run itself does not.
    let image = folder.path.join("first/target/debug/first");
    let said = folder.path.join("first/said");
    let mut deadline = None;
    while !fs::read_to_string(&said).is_ok_and(|said| said.contains(first_line)) {
        if image.exists() {
            deadline.get_or_insert_with(|| Instant::now() + PATIENCE);
        }
        let late = deadline.is_some_and(|deadline| Instant::now() > deadline);
        if late || !running.is_alive() {
            running.signal(Signal::KILL);
            return Err(format!("it says nothing: {:?}", running.finish()?).into());
        }
        thread::sleep(Duration::from_millis(20));
    }
    running.signal(Signal::INT);
    running.finish()?.expect_status(128 + 2).map(|_| ())
}
