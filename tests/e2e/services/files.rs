//! The image `files` with disks that processes of the host's serve.

use super::tender;
use crate::disks::made::{KINDS, Tree};
use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::process::run;
use crate::harness::programs;
use libtest_mimic::{Completion, Failed, Trial};
use std::process::Command;

const HOSTS: [&str; 2] = ["process", "spt"];
/// What is copied is ext2, and so is what it is copied to.
const KIND: &str = "ext2";

pub fn trials(images: &'static Images, _: &Network) -> Vec<Trial> {
    let missing = programs::missing(&["mke2fs"]);
    let trial = |host| {
        let name = format!("files::disks of other processes are copied and compared::{host}");
        Trial::ignorable_test(name, move || match missing {
            Some(why) => Ok(Completion::ignored_with(why)),
            None => copied(images, host).map(|()| Completion::Completed),
        })
    };
    HOSTS.into_iter().map(trial).collect()
}

fn copied(images: &Images, host: &str) -> Result<(), Failed> {
    let kind = KINDS.iter().find(|kind| kind.name == KIND);
    let kind = kind.ok_or("no such kind")?;
    let tree = Tree::new()?;
    let (from, to) = (tree.image("from"), tree.image("to"));
    kind.make(&tree.root(), &from)?;
    kind.make_empty(&to)?;
    for (what, said) in [("copy", "copied "), ("compare", "the same: ")] {
        let mut files = tender(images, host);
        files.arg("--mem=64");
        files.arg(format!("--block:from={}", from.display()));
        files.arg(format!("--block:to={}", to.display()));
        files.arg(images.appliance("files", "-queue"));
        let ended = run(files.args([what, "from", "to"]))?;
        let files = format!("{said}{} files of", tree.files.len());
        ended.expect_status(0)?.expect_stdout(&files)?;
    }
    run(Command::new("e2fsck").arg("-fn").arg(&to))?.expect_status(0)?;
    Ok(())
}
