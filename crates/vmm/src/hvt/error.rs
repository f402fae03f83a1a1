//! Why an image was not started, and what to do about it.

use crate::{attach, machine};
use std::path::PathBuf;
use std::{fmt, io};
use tender::{check, hvt, jail, load, options, start};

/// Why an image was not started.
#[derive(Debug)]
pub enum Error {
    /// A step that the kernel refused.
    Step(&'static str, io::Error),
    /// The tender's options cannot be made.
    Options(options::Error),
    /// The image cannot be used.
    Load(PathBuf, load::Error),
    /// Manifest and command line differ.
    Check(check::Error),
    /// The manifest names a device of this name that is none of virtio's behind PCI.
    Kind(String),
    /// The manifest does not let this device reach memory.
    NoMaster(String),
    /// There is no memory for devices.
    NoDma,
    /// A step that all hosts share.
    Start(start::Error),
    /// A step of the host `hvt`.
    Hvt(hvt::Error),
    /// The window of a device cannot be mapped.
    Window(hvt::PagingError),
    /// A device cannot be attached.
    Attach(attach::Error),
    /// A step that both kinds of guests share.
    Machine(machine::Error),
    /// The jail cannot be closed.
    Jail(jail::Error),
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step(step, error) => write!(f, "{step}: {error}"),
            Self::Options(error) => error.fmt(f),
            Self::Load(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Check(error) => error.fmt(f),
            Self::Kind(name) => write!(
                f,
                "the manifest names {name}, which is no virtio device of PCI; start the image \
                 with: outboard run"
            ),
            Self::NoMaster(name) => write!(
                f,
                "{name}: a virtio device works by reaching memory, and the manifest does not let \
                 it; set bus_master_enable in manifest.json"
            ),
            Self::NoDma => write!(
                f,
                "virtio devices need DMA memory, and the image has none; set dma_size in \
                 manifest.json"
            ),
            Self::Start(error) => error.fmt(f),
            Self::Hvt(error) => error.fmt(f),
            Self::Window(error) => write!(f, "the window of a device: {error}"),
            Self::Attach(error) => error.fmt(f),
            Self::Machine(error) => error.fmt(f),
            Self::Jail(error) => error.fmt(f),
        }
    }
}
