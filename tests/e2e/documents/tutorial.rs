//! Documents that are typed as they stand there: their commands one after the other into a shell,
//! their blocks of code into their files.

use crate::harness::build::{Images, root};
use crate::harness::document::{self, Block};
use crate::harness::network::Network;
use crate::harness::process::{Ended, run};
use crate::harness::programs;
use crate::harness::temporary::TemporaryFolder;
use crate::harness::user;
use libtest_mimic::{Failed, Trial};
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use testbed::privilege::Settings;

/// The block whose command starts the shell into which all that follows it is typed.
const NETWORK: &str = "network";

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let is_root = network.root().is_none();
    let trial = |document: &'static Document, how: How| {
        let missing = match how {
            How::WithoutSbin => programs::missing_on(EVERYWHERE.as_ref(), document.programs),
            _ => programs::missing(document.programs),
        };
        let (name, missing) = match how {
            How::Pasted => ("pasted", missing),
            How::Typed => ("typed", missing),
            How::WithoutSbin => ("without sbin on the PATH", missing),
            How::ByUser => (
                "an ordinary user's",
                missing.or_else(|| Settings::read().remedy()),
            ),
        };
        let name = format!("{name}::{}", document.path);
        network.trial_unless(missing, name, move || follow(images, document, how))
    };
    let ways = |document: &'static Document| {
        let mut ways = vec![How::Pasted];
        if !document.waits {
            ways.extend([How::Typed, How::WithoutSbin]);
            // Otherwise those above are an ordinary user's.
            ways.extend(is_root.then_some(How::ByUser));
        }
        ways.into_iter().map(move |how| trial(document, how))
    };
    DOCUMENTS.iter().flat_map(ways).collect()
}

/// How a person brings commands into a shell.
#[derive(Clone, Copy)]
enum How {
    /// All at once.
    Pasted,
    /// Line by line, with a moment between them.
    Typed,
    /// All at once, with the PATH that Debian gives those who are not root.
    WithoutSbin,
    /// All at once, by somebody who is not root.
    ByUser,
}

struct Document {
    path: &'static str,
    /// The template of `outboard new` whose `src/main.rs` it shows and changes.
    template: Option<&'static str>,
    /// Whether what a block of commands starts has ended before the next one begins.
    waits: bool,
    /// What it needs beside Outboard.
    programs: &'static [&'static str],
}

const DOCUMENTS: &[Document] = &[
    Document {
        path: "docs/tutorial.md",
        template: None,
        waits: true,
        programs: &["ip", "ping"],
    },
    Document {
        path: "docs/tutorial-service.md",
        template: Some("service"),
        waits: true,
        programs: &["ip", "nc"],
    },
    Document {
        path: "docs/firewall.md",
        template: None,
        waits: false,
        programs: &["ip", "ping"],
    },
    Document {
        path: "docs/router.md",
        template: None,
        waits: false,
        programs: &["ip", "ping"],
    },
    Document {
        path: "docs/one-namespace.md",
        template: None,
        waits: false,
        programs: &["ip", "ping", "sysctl", "iperf3"],
    },
];

/// The PATH of somebody who is not root, on Debian, as far as it matters here,
const BINARIES: &str = "/usr/bin:/bin";
/// and where such a machine has its programs.
const EVERYWHERE: &str = "/usr/bin:/bin:/usr/sbin:/sbin";
/// What nobody wants to wait for in a test, and what is typed instead.
const SHORTER: (&str, &str) = ("-t 30", "-t 2");
/// Types a file line by line.
const TYPIST: &str = "while IFS= read -r line; do printf '%s\\n' \"$line\"; sleep 0.1; done";

/// Follows a document in a shell where nothing is preset, in a folder that has the image where a
/// repository has it.
fn follow(images: &Images, document: &Document, how: How) -> Result<(), Failed> {
    let blocks = document::blocks(document.path)?;
    let is_network = |block: &Block| block.mark == format!("test: {NETWORK}");
    let position = blocks.iter().position(is_network).ok_or("no network")?;
    let (before, rest) = blocks.split_at(position);
    let (network, typed) = rest.split_first().ok_or("no network")?;

    let folder = TemporaryFolder::new("tutorial")?;
    let typed_file = folder.path.join("typed");
    let lines = script(typed, document)?.replace(SHORTER.0, SHORTER.1);
    fs::write(&typed_file, lines)?;
    document::place_image(images, &folder.path)?;
    document::place(images, "router", "", &folder.path)?;
    let before = script(before, document)?;
    let (first, last) = network
        .text
        .trim_end()
        .rsplit_once('\n')
        .unwrap_or(("", &network.text));
    let (last, file) = (last.trim_end(), typed_file.display());
    let commands = match how {
        How::Pasted | How::WithoutSbin | How::ByUser => format!("{before}{first}\n{last} < {file}"),
        How::Typed => format!("{before}{first}\n{TYPIST} < {file} | {last}"),
    };
    // Root's guests have one place, and other tests run beside this one.
    let apart = |mut shell: Command| {
        shell.env("XDG_RUNTIME_DIR", &folder.path);
        shell
    };
    let mut shell = match how {
        How::Pasted | How::Typed => apart(document::shell(images, &folder.path, &commands)),
        How::WithoutSbin => {
            let mut shell = apart(document::shell(images, &folder.path, &commands));
            let programs = images.program("outboard");
            let programs = programs.parent().ok_or("programs have a folder")?;
            shell.env("PATH", format!("{}:{BINARIES}", programs.display()));
            shell
        }
        How::ByUser => users_shell(images, &folder.path, &commands)?,
    };
    shell.env("SHELL", "/bin/sh").env_remove("FIREWALL");
    let ended = run(&mut shell)?;
    for block in blocks.iter().filter(|block| block.language == "text") {
        expect(block, &ended)?;
    }
    Ok(())
}

/// A shell of an ordinary user's in `folder`, who has our program there.
pub(super) fn users_shell(
    images: &Images,
    folder: &Path,
    commands: &str,
) -> Result<Command, Failed> {
    let programs = folder.join("bin");
    fs::create_dir(&programs)?;
    fs::copy(images.program("outboard"), programs.join("outboard"))?;
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell = user::ordinary(folder)?;
    shell
        .args(["sh", "-ec", commands])
        .env("PATH", format!("{}:{path}", programs.display()))
        .env("HOME", folder)
        // As behind `su -`.
        .env_remove("XDG_RUNTIME_DIR");
    Ok(shell)
}

/// What a user would type to follow these blocks. Behind each block of commands a line says so,
/// once all that it started has ended if the document waits.
fn script(blocks: &[Block], document: &Document) -> Result<String, Failed> {
    let wait = if document.waits { "wait\n" } else { "" };
    let mut files: HashMap<&str, String> = HashMap::new();
    if let Some(template) = document.template {
        files.insert("src/main.rs", made(template)?);
    }
    let mut script = String::new();
    for block in blocks {
        if let Some(name) = block.mark.strip_prefix("part of: ")
            && !files
                .get(name)
                .is_some_and(|file| file.contains(&block.text))
        {
            return Err(format!("{name} does not have what is shown: {}", block.text).into());
        }
        let Some(name) = block.mark.strip_prefix("test: ") else {
            continue;
        };
        match block.language.as_str() {
            "sh" => {
                script += &format!("{}{wait}echo {}\n", block.text, end_of(name));
                continue;
            }
            "rust" | "nft" => drop(files.insert(name, block.text.clone())),
            "diff" => change(files.get_mut(name).ok_or("no such file")?, &block.text)?,
            other => return Err(format!("nobody tests {other}").into()),
        }
        script += &format!("cat > {name} <<'END OF FILE'\n{}END OF FILE\n", files[name]);
    }
    Ok(script)
}

/// The `src/main.rs` that `outboard new --template=TEMPLATE shout` makes.
fn made(template: &str) -> Result<String, Failed> {
    let path = format!("crates/outboard/template/{template}/main.rs.in");
    Ok(fs::read_to_string(root().join(path))?.replace("@CRATE@", "shout"))
}

fn end_of(name: &str) -> String {
    format!("--- end of {name}")
}

/// Applies a diff of one place that has no line numbers.
fn change(text: &mut String, diff: &str) -> Result<(), Failed> {
    let side = |left_out: char| -> String {
        let lines = diff.lines().filter(|line| !line.starts_with(left_out));
        lines.flat_map(|line| [&line[1..], "\n"]).collect()
    };
    let (old, new) = (side('+'), side('-'));
    if text.matches(&old).count() != 1 {
        return Err(format!("not one place to change: {old}").into());
    }
    *text = text.replace(&old, &new);
    Ok(())
}

/// Fails unless each line of the block is part of a line that its commands printed. In
/// `output like`, words with digits may be other ones.
fn expect(block: &Block, ended: &Ended) -> Result<(), Failed> {
    let (kind, name) = block.mark.split_once(": ").ok_or("no name")?;
    let (printed, _) = ended
        .stdout
        .split_once(&end_of(name))
        .ok_or_else(|| format!("{name} was not run: {ended:?}"))?;
    let printed = printed.rsplit("--- end of").next().unwrap_or_default();
    for line in block.text.lines() {
        let fits = match kind {
            "output" => printed.contains(line),
            "output like" => printed.lines().any(|printed| shape(printed) == shape(line)),
            _ => false,
        };
        if !fits {
            return Err(
                format!("{name}: no {kind} {line:?} in: {printed}; {}", ended.stderr).into(),
            );
        }
    }
    Ok(())
}

/// The words of a line, those with a digit left out.
fn shape(line: &str) -> Vec<&str> {
    let has_digit = |word: &str| word.contains(|c: char| c.is_ascii_digit());
    line.split_whitespace()
        .map(|word| if has_digit(word) { "#" } else { word })
        .collect()
}
