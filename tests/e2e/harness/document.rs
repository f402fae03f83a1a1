//! The blocks of a document, by which it is tested: in front of each stands `<!-- MARK -->`.

use crate::harness::build::{Images, root};
use libtest_mimic::Failed;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const FENCE: &str = "```";
/// Tells cargo where it keeps what it compiles: beside what is built already, if whoever runs us
/// says where that is.
const BUILD_FOLDER: &str = "CARGO_BUILD_BUILD_DIR";

/// What stands between two fences.
pub struct Block {
    /// What the line in front of it says it is for, such as `test: install`.
    pub mark: String,
    /// The language behind the first fence.
    pub language: String,
    pub text: String,
}

/// All blocks of a document of the repository, in order; each must have a mark.
pub fn blocks(path: &str) -> Result<Vec<Block>, Failed> {
    let text = fs::read_to_string(root().join(path))?;
    let mut blocks = Vec::new();
    let mut before = "";
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix(FENCE) {
            let mark = before
                .strip_prefix("<!-- ")
                .and_then(|rest| rest.strip_suffix(" -->"))
                .ok_or_else(|| format!("{path}: a block of {language} has no mark"))?;
            let lines = lines.by_ref().take_while(|line| *line != FENCE);
            blocks.push(Block {
                mark: mark.to_owned(),
                language: language.to_owned(),
                text: lines.flat_map(|line| [line, "\n"]).collect(),
            });
        }
        before = line;
    }
    Ok(blocks)
}

/// Puts the firewall's image where a repository has it, into a folder in which commands of
/// documents are typed.
pub fn place_image(images: &Images, folder: &Path) -> Result<(), Failed> {
    place(images, "firewall", "", folder)
}

/// Puts the image of an appliance there, of this variant: `-sockets`.
pub fn place(images: &Images, name: &str, variant: &str, folder: &Path) -> Result<(), Failed> {
    let image = images.appliance(name, variant);
    let parent = folder.join("unikernels").join(name);
    fs::create_dir_all(&parent)?;
    fs::copy(&image, parent.join(image.file_name().unwrap_or_default()))?;
    Ok(())
}

/// A shell in `folder` that has our programs, and needs no sudo. Its cargo stays off the network,
/// which an ordinary user's run has none of. What it builds has been fetched for our own images; it
/// is compiled where theirs is, once for all tests.
pub fn shell(images: &Images, folder: &Path, commands: &str) -> Command {
    let programs = images.program("outboard");
    let folder_of_programs = programs.parent().unwrap_or(Path::new("/"));
    let path = std::env::var("PATH").unwrap_or_default();
    let built = std::env::var_os(BUILD_FOLDER).map(PathBuf::from);
    let built = built.unwrap_or_else(|| root().join("unikernels/target"));
    let mut command = Command::new("sh");
    command
        .args(["-ec", &format!("sudo() {{ \"$@\"; }}\n{commands}")])
        .env("CARGO_NET_OFFLINE", "true")
        .env(BUILD_FOLDER, built)
        // A reader's cargo has its own profile.
        .env_remove("CARGO_PROFILE_DEV_DEBUG")
        .env("PATH", format!("{}:{path}", folder_of_programs.display()))
        .current_dir(folder);
    command
}
