//! The image that examines a card: found or built, run, and what it printed.

use super::Error;
use crate::build;
use abi::note::Target;
use rustix::process::{Pid, Signal, kill_process};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{env, io};

/// The appliance's folder in the repository.
const FOLDER: &str = "unikernels/checkup";
/// Images by the IDs of their card, and their manifests.
const IMAGES: [((u16, u16), &str, &str); 2] = [
    ((0x8086, 0x10fb), "checkup-82599.spt", "manifest-82599.json"),
    ((0x8086, 0x10d3), "checkup.spt", "manifest.json"),
];
/// Where packages have images, seen from the folder of the program.
const INSTALLED: &str = "../lib/outboard";
/// What the image takes beside listening, if everything takes as long as it may.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long it may take to end once it is told to.
const END: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);
/// What is read of its outputs.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;
/// MiB of memory for the image, beside the card's.
const MEMORY_MIB: u32 = 32;
/// Lines of its complaints that are told.
const COMPLAINTS: usize = 3;

/// The image for a card with these IDs: built in the repository, or installed. Without IDs, it is
/// that for the first of [`IMAGES`], which `outboard model` can be.
///
/// # Errors
/// There is no driver, no image, or it does not build.
pub fn image(ids: Option<(u16, u16)>) -> Result<PathBuf, Error> {
    let of_ids = |ids| IMAGES.iter().find(|(of, _, _)| *of == ids);
    let found = match ids {
        None => IMAGES.first(),
        Some(ids) => Some(of_ids(ids).ok_or(Error::NoDriver(ids.0, ids.1))?),
    };
    let Some((_, file, manifest)) = found else {
        return Err(Error::NoImage(FOLDER));
    };
    if let Some(folder) = build::in_repository(FOLDER).map_err(Error::Run)? {
        return built(&folder, manifest, file);
    }
    let program = env::current_exe().map_err(Error::Run)?;
    let installed = program.parent().map(|bin| bin.join(INSTALLED).join(file));
    let installed = installed.filter(|path| path.is_file());
    installed.ok_or(Error::NoImage(file))
}

fn built(folder: &Path, manifest: &str, file: &'static str) -> Result<PathBuf, Error> {
    let what = build::Appliance {
        manifest: Some(Path::new(manifest)),
        ..folder.into()
    };
    let built = build::build(what, &[Target::Spt], folder).map_err(Error::Build)?;
    let first = built.into_iter().next();
    Ok(first.ok_or(Error::NoImage(file))?.path)
}

/// How the image has run.
pub struct Run {
    /// What it printed.
    pub printed: String,
    /// What the monitor and the tender said.
    complaints: String,
    /// `None` if it had to be killed.
    status: Option<ExitStatus>,
}

impl Run {
    /// Why it did not come to its end.
    pub fn ending(&self) -> String {
        let how = match self.status {
            None => "the checkup did not end in time".to_owned(),
            Some(status) => format!("the checkup did not come to its end: {status}"),
        };
        // What the image itself says, if it is no step.
        let printed = self
            .printed
            .lines()
            .filter(|line| line.starts_with("checkup: "));
        let said: Vec<&str> = printed.chain(self.complaints.lines()).collect();
        let last = said.get(said.len().saturating_sub(COMPLAINTS)..);
        std::iter::once(how.as_str())
            .chain(last.unwrap_or_default().iter().copied())
            .collect::<Vec<_>>()
            .join("\n")
    }
}

/// Runs the image on the card until it ends, or for so long as it may take.
///
/// # Errors
/// It cannot be started.
pub fn run(card: &str, image: &Path, listen: u32, pci_bind: bool) -> Result<Run, Error> {
    let mut command = Command::new(env::current_exe().map_err(Error::Run)?);
    command.arg("run").arg(format!("--mem={MEMORY_MIB}"));
    command.arg(format!("--pci:card={card}"));
    if pci_bind {
        command.arg("--pci-bind");
    }
    command.arg("--").arg(image).arg(listen.to_string());
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(Error::Run)?;
    let printed = reader(child.stdout.take());
    let complaints = reader(child.stderr.take());
    let status = wait(&mut child, PATIENCE + Duration::from_secs(listen.into()));
    let status = status.map_err(Error::Run)?;
    Ok(Run {
        printed: read(printed),
        complaints: read(complaints),
        status,
    })
}

/// Reads an output in a thread of its own, so that nothing waits for its reader.
fn reader(output: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(output) = output {
            // What was read before an error counts.
            let _ = output.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes);
        }
        bytes
    })
}

fn read(reader: JoinHandle<Vec<u8>>) -> String {
    let bytes = reader.join().unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Waits for the end, and ends what takes longer.
fn wait(child: &mut Child, patience: Duration) -> io::Result<Option<ExitStatus>> {
    if let Some(status) = ended(child, patience)? {
        return Ok(Some(status));
    }
    // The monitor ends its guest, and gives back a card that it has taken.
    let _ = kill_process(Pid::from_child(child), Signal::TERM);
    if ended(child, END)?.is_none() {
        child.kill()?;
        child.wait()?;
    }
    Ok(None)
}

fn ended(child: &mut Child, patience: Duration) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + patience;
    loop {
        let status = child.try_wait()?;
        if status.is_some() || Instant::now() > deadline {
            return Ok(status);
        }
        thread::sleep(POLL);
    }
}
