//! The tutorial, typed as it stands there: its commands one after the other into a shell, its
//! blocks of code into their files.

use crate::build::Images;
use crate::document::{self, Block};
use crate::network::Network;
use crate::process::{Ended, run};
use crate::temporary::TemporaryFolder;
use libtest_mimic::{Failed, Trial};
use std::collections::HashMap;
use std::fs;
use std::process::Command;

/// The block whose command starts the shell into which all that follows it is typed.
const NETWORK: &str = "network";

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let installed = run(Command::new("ping").arg("-V")).is_ok();
    let missing = (!installed).then_some("needs ping: sudo apt-get install iputils-ping");
    let name = "tutorial::typed as it stands".into();
    vec![network.trial_unless(missing, name, || tutorial(images))]
}

fn tutorial(images: &Images) -> Result<(), Failed> {
    let blocks = document::blocks("docs/tutorial.md")?;
    let is_network = |block: &Block| block.mark == format!("test: {NETWORK}");
    let position = blocks.iter().position(is_network).ok_or("no network")?;
    let (before, rest) = blocks.split_at(position);
    let (network, typed) = rest.split_first().ok_or("no network")?;

    let folder = TemporaryFolder::new("tutorial")?;
    fs::write(folder.path.join("typed"), script(typed)?)?;
    let commands = format!(
        "{}{} < \"$OLDPWD/typed\"",
        script(before)?,
        network.text.trim_end()
    );
    let mut shell = document::shell(images, &folder.path, &commands);
    let ended = run(shell.env("SHELL", "/bin/sh"))?;
    for block in blocks.iter().filter(|block| block.language == "text") {
        expect(block, &ended)?;
    }
    Ok(())
}

/// What a user would type to follow these blocks. Behind each block of commands a line says so,
/// once all that it started has ended.
fn script(blocks: &[Block]) -> Result<String, Failed> {
    let mut files: HashMap<&str, String> = HashMap::new();
    let mut script = String::new();
    for block in blocks {
        let Some(name) = block.mark.strip_prefix("test: ") else {
            continue;
        };
        match block.language.as_str() {
            "sh" => {
                script += &format!("{}wait\necho {}\n", block.text, end_of(name));
                continue;
            }
            "rust" => drop(files.insert(name, block.text.clone())),
            "diff" => change(files.get_mut(name).ok_or("no such file")?, &block.text)?,
            other => return Err(format!("nobody tests {other}").into()),
        }
        script += &format!("cat > {name} <<'END OF FILE'\n{}END OF FILE\n", files[name]);
    }
    Ok(script)
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

/// Fails unless each line of the block begins a line that its commands printed. In `output like`,
/// words with digits may be other ones.
fn expect(block: &Block, ended: &Ended) -> Result<(), Failed> {
    let (kind, name) = block.mark.split_once(": ").ok_or("no name")?;
    let (printed, _) = ended
        .stdout
        .split_once(&end_of(name))
        .ok_or_else(|| format!("{name} was not run: {ended:?}"))?;
    let printed = printed.rsplit("--- end of").next().unwrap_or_default();
    for line in block.text.lines() {
        let fits = match kind {
            "output" => printed.lines().any(|printed| printed.starts_with(line)),
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
