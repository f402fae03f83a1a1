//! Man pages and completions: what the commands print is what man and bash take.

use crate::harness::build::Images;
use crate::harness::process::run;
use crate::harness::temporary::TemporaryFolder;
use libtest_mimic::{Failed, Trial};
use std::fs;
use std::process::Command;

pub fn trials(images: &'static Images) -> Vec<Trial> {
    vec![
        Trial::test("manual::each command has a page", || pages(images)),
        Trial::test("manual::bash completes commands and options", || {
            completions(images)
        }),
    ]
}

fn pages(images: &Images) -> Result<(), Failed> {
    let folder = TemporaryFolder::new("manual")?;
    let man = folder.path.join("man1");
    let outboard = images.program("outboard");
    run(Command::new(&outboard).arg("man").arg(&man))?.expect_status(0)?;
    let help = run(Command::new(&outboard).arg("--help"))?;
    let commands = help.stdout.lines().skip_while(|line| *line != "Commands:");
    let commands = commands.skip(1).take_while(|line| !line.is_empty());
    let names = commands.filter_map(|line| line.split_whitespace().next());
    let names: Vec<_> = names.filter(|name| *name != "help").collect();
    if names.len() < 10 {
        return Err(format!("only the commands {names:?}").into());
    }
    for name in names {
        let page = fs::read_to_string(man.join(format!("outboard-{name}.1")))?;
        if !page.contains(".TH ") {
            return Err(format!("no page: {page}").into());
        }
    }
    let nowhere = run(Command::new(&outboard).args(["man", "/dev/null/man1"]))?;
    nowhere.expect_refusal(&["/dev/null/man1", "name a folder of yours"])
}

/// What bash offers for words of which the last is to be completed.
fn completions(images: &Images) -> Result<(), Failed> {
    let outboard = images.program("outboard");
    for (words, offered) in [
        ("outboard st", "stats stop\n"),
        ("outboard rules sh", "show\n"),
        (
            "outboard run --net",
            "--net: --net-mac: --net-mtu: --net-offload:\n",
        ),
        (
            "outboard run --pc",
            "--pci: --pcap: --pcap-snap --pci-bind\n",
        ),
        ("outboard stats --j", "--json\n"),
    ] {
        let script = format!(
            "source <({} completions bash); COMP_WORDS=({words}); \
             COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _outboard outboard \
             \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; \
             echo \"${{COMPREPLY[@]}}\"",
            outboard.display()
        );
        let ended = run(Command::new("bash").args(["-c", &script]))?;
        if ended.expect_status(0)?.stdout != offered {
            return Err(format!("{words}: not {offered:?}: {ended:?}").into());
        }
    }
    Ok(())
}
