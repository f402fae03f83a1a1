//! The command line.

use crate::layout::{MEMORY_MIB_MAX, MEMORY_MIB_MIN};
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

/// What `--help` prints.
pub const HELP: &str = "\
usage: outboard-vmm --kernel=FILE [--initrd=FILE] [--mem=MIB] [--append=WORDS]

Runs a stock Linux as a guest of KVM's, for measuring and for testing: not for anything that has to
be kept apart from others for good. Its serial console is standard input and output.

  --kernel=FILE    a bzImage, as /boot/vmlinuz of a distribution
  --initrd=FILE    its initial RAM disk
  --mem=MIB        its memory (default 256)
  --append=WORDS   more words for its command line

It ends with the status 0 when the guest resets itself: type `reboot -f` there.
";

const MEMORY_MIB_DEFAULT: u64 = 256;

/// What the user asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Print [`HELP`].
    Help,
    /// Start a guest.
    Start(Options),
}

/// How to start a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The kernel's file.
    pub kernel: PathBuf,
    /// The file of its RAM disk.
    pub initrd: Option<PathBuf>,
    /// Its memory in bytes.
    pub memory_bytes: u64,
    /// What the user adds to its command line.
    pub append: String,
}

/// Why a command line is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// An argument that means nothing.
    Unknown(String),
    /// A value that is none for its option.
    Value(String, String),
    /// There is no kernel.
    NoKernel,
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(argument) => write!(f, "there is no option {argument}")?,
            Self::Value(argument, wanted) => write!(f, "{argument}: {wanted}")?,
            Self::NoKernel => write!(f, "which kernel? There is no --kernel=FILE")?,
        }
        write!(f, "; type: outboard-vmm --help")
    }
}

/// Reads the arguments, without the program's name.
///
/// # Errors
/// The first argument that means nothing.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Request, Error> {
    let mut kernel = None;
    let mut initrd = None;
    let mut memory_mib = MEMORY_MIB_DEFAULT;
    let mut append = String::new();
    for argument in arguments {
        let text = argument.to_string_lossy().into_owned();
        match text.split_once('=') {
            _ if text == "--help" || text == "-h" => return Ok(Request::Help),
            Some(("--kernel", file)) => kernel = Some(file.into()),
            Some(("--initrd", file)) => initrd = Some(file.into()),
            Some(("--append", words)) => append = words.into(),
            Some(("--mem", mib)) => {
                let allowed = MEMORY_MIB_MIN..=MEMORY_MIB_MAX;
                memory_mib = mib
                    .parse()
                    .ok()
                    .filter(|mib| allowed.contains(mib))
                    .ok_or_else(|| {
                        let wanted = format!("from {MEMORY_MIB_MIN} to {MEMORY_MIB_MAX} MiB");
                        Error::Value(text.clone(), wanted)
                    })?;
            }
            _ => return Err(Error::Unknown(text)),
        }
    }
    Ok(Request::Start(Options {
        kernel: kernel.ok_or(Error::NoKernel)?,
        initrd,
        memory_bytes: memory_mib << 20,
        append,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Request, Error> {
        parse(words.iter().map(OsString::from))
    }

    #[test]
    fn options_are_read() {
        let words = [
            "--kernel=/k",
            "--initrd=/i",
            "--mem=64",
            "--append=quiet x=y",
        ];
        let wanted = Options {
            kernel: "/k".into(),
            initrd: Some("/i".into()),
            memory_bytes: 64 << 20,
            append: "quiet x=y".into(),
        };
        assert_eq!(read(&words), Ok(Request::Start(wanted)));
        assert_eq!(read(&["--kernel=/k", "--help"]), Ok(Request::Help));
    }

    #[test]
    fn nonsense_is_named() {
        for (words, named) in [
            (&["--mem=63", "--kernel=k"][..], "--mem=63: from 64"),
            (&["--mem=x", "--kernel=k"], "--mem=x"),
            (&["--mem=1025", "--kernel=k"], "to 1024"),
            (&["--kernel"], "no option --kernel"),
            (&["k"], "no option k"),
            (&[], "which kernel"),
        ] {
            let error = read(words).unwrap_err().to_string();
            assert!(
                error.contains(named) && error.ends_with("--help"),
                "{error}"
            );
        }
    }
}
