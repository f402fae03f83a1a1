//! `targets`: writes what fuzzing starts from, or feeds inputs to one target.

#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;
use targets::{ALL, Target, mutations, seeds};

const USAGE: &str = "\
Usage: targets seeds [FOLDER...]    write what fuzzing starts from to fuzz/corpus; each file of a
                                    FOLDER becomes a seed of rules_parse
       targets feed NAME FILE...    feed files to a target
       targets slice NAME FOLDER    feed a target its seeds, then mutations of them; the input that
                                    it ends at stays in FOLDER

OUTBOARD_SEEDS=FIRST..LAST chooses other mutations.";

/// Seconds that one input may take: beyond that, its target hangs.
const INPUT_SECONDS_MAX: u64 = 60;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["seeds", ref folders @ ..] => write_seeds(folders),
        ["feed", name, ref files @ ..] if !files.is_empty() => {
            target(name).and_then(|target| feed_files(target, files))
        }
        ["slice", name, folder] => target(name).and_then(|target| slice(target, folder.as_ref())),
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

fn target(name: &str) -> Result<&'static Target, String> {
    let found = ALL.iter().find(|target| target.name == name);
    found.ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(|target| target.name).collect();
        format!(
            "targets: no target is named {name}; choose of {}",
            names.join(", ")
        )
    })
}

/// What failed at which path.
fn at(path: &Path) -> impl Fn(std::io::Error) -> String {
    move |error| format!("targets: {}: {error}; type: ls -ld {0}", path.display())
}

fn write_seeds(folders: &[&str]) -> Result<(), String> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for seed in seeds::all() {
        let folder = corpus.join(seed.target);
        fs::create_dir_all(&folder).map_err(at(&folder))?;
        let file = folder.join(seed.name);
        fs::write(&file, seed.bytes).map_err(at(&file))?;
    }
    for (number, folder) in folders.iter().map(Path::new).enumerate() {
        for entry in fs::read_dir(folder).map_err(at(folder))? {
            let file = entry.map_err(at(folder))?;
            if file.path().is_file() {
                let name = file.file_name();
                let name = format!("rules_parse/folder{number}-{}", name.to_string_lossy());
                fs::copy(file.path(), corpus.join(name)).map_err(at(&file.path()))?;
            }
        }
    }
    Ok(())
}

fn feed_files(target: &Target, files: &[&str]) -> Result<(), String> {
    for file in files.iter().map(Path::new) {
        (target.feed)(&fs::read(file).map_err(at(file))?);
    }
    Ok(())
}

/// An input lies in the folder while the target has it, so that it is found whatever ends this
/// process.
fn slice(target: &Target, folder: &Path) -> Result<(), String> {
    let (fed, feeds) = channel();
    thread::spawn(move || watch(&feeds));
    let seeds = seeds::all();
    let seeds = seeds.iter().filter(|seed| seed.target == target.name);
    let corpus: Vec<&[u8]> = seeds.clone().map(|seed| &seed.bytes[..]).collect();
    let whole = seeds.map(|seed| (format!("seed-{}", seed.name), seed.bytes.clone()));
    let numbers = mutations::numbers(target.mutations)?;
    let mutated = numbers.map(|number| {
        let input = mutations::input(number, &corpus);
        (format!("mutation-{number}"), input)
    });
    for (name, input) in whole.chain(mutated) {
        let file = folder.join(name);
        fs::write(&file, &input).map_err(at(&file))?;
        (target.feed)(&input);
        fs::remove_file(&file).map_err(at(&file))?;
        // The other side waits as long as this process lives.
        let _ = fed.send(());
    }
    Ok(())
}

/// Ends the process when no input ends in time.
fn watch(feeds: &Receiver<()>) {
    let patience = Duration::from_secs(INPUT_SECONDS_MAX);
    loop {
        match feeds.recv_timeout(patience) {
            Ok(()) => {}
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                eprintln!("it hangs: no end after {INPUT_SECONDS_MAX} s");
                std::process::exit(1);
            }
        }
    }
}
