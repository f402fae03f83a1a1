//! Starts an image with what its manifest names and nothing else.
//!
//! | module | what |
//! |---|---|
//! | [`options`] | the command line, as data |
//! | [`check`] | every device of the manifest is attached, and nothing else is |
//! | [`attach`] | opens taps, macvtaps and disks; PCIe devices by VFIO and vfio-user, DMA memory |
//! | [`load`] | reads the image |
//! | [`memory`], [`boot`] | what lies where in guest memory |
//! | [`share`] | the file that host and guest share |
//! | [`disk_process`], [`transfer`] | the process that serves a disk; what is asked of a disk |
//! | [`rules`] | rules for the guest, put into that file |
//! | [`core_file`] | what a guest that failed leaves to debuggers |
//! | [`jail`] | what the guest may ask of the kernel |
//! | [`start`] | the steps of a start that all hosts share |
//! | [`spt`] | the hosts `spt` and `process`: this process becomes the guest |
//! | [`hvt`] | the host `hvt`: this process serves a virtual machine |
//! | [`style`] | colours of what is said to a person |
//! | [`suggest`] | what a user may have meant |
//! | [`sys`] | the unsafe island |

pub mod attach;
pub mod boot;
pub mod check;
pub mod core_file;
pub mod disk_process;
pub mod hvt;
pub mod jail;
pub mod load;
pub mod memory;
pub mod options;
pub mod rules;
pub mod share;
pub mod spt;
pub mod start;
pub mod style;
pub mod suggest;
pub mod sys;
pub mod transfer;

use abi::exit;
use linux::{descriptor, process, signal};
use options::{Host, Options, Request};
use start::Start;
use std::convert::Infallible;
use std::ffi::OsString;
use std::io::Write;
use style::{Style, Tone};

/// The whole program: its arguments without its name, its exit status. Returns only if no guest
/// was started.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> i32 {
    let started = match options::parse(arguments) {
        Ok(Request::Help) => return print(&options::help()),
        Ok(Request::Version) => {
            return print(concat!("outboard-tender ", env!("CARGO_PKG_VERSION"), "\n"));
        }
        Ok(Request::Start(options)) => start(&options),
        Err(error) => Err(error.to_string()),
    };
    let Err(error) = started;
    let style = Style::of(&std::io::stderr());
    let name = style.paint(Tone::Bad, "outboard-tender");
    let line = format!("{name}: {error}\n");
    // The jail closes standard error; what fails after that can only be said on the console.
    if std::io::stderr().write_all(line.as_bytes()).is_err() {
        print(&line);
    }
    exit::FAILURE
}

/// Starts an image on the host that fits. If all goes well, this process becomes the guest, or ends
/// with it.
fn start(options: &Options) -> Result<Infallible, String> {
    if let Some(parent) = options.parent {
        let is_other = |_| start::Error::Parent(parent).to_string();
        process::die_with(parent).map_err(is_other)?;
    }
    signal::reset_pipe();
    let no_standard = |error| start::Error::System(start::Step::Null, error).to_string();
    descriptor::open_standard().map_err(no_standard)?;
    let path = &options.image;
    let unusable = |error| start::Error::Load(path.clone(), error).to_string();
    let (file, image) = load::open(path).map_err(unusable)?;
    let host = load::host(&image, options.host).map_err(unusable)?;
    check::host(&image.entries, host).map_err(|error| error.to_string())?;
    check::version(&image, options).map_err(|error| error.to_string())?;
    let start = Start {
        options,
        image: &image,
        file: &file,
    };
    match host {
        Host::Hvt => hvt::run(&start).map_err(|error| error.to_string()),
        Host::Spt | Host::Process => spt::run(&start).map_err(|error| error.to_string()),
    }
}

fn print(text: &str) -> i32 {
    let mut console = std::io::stdout();
    match console
        .write_all(text.as_bytes())
        .and_then(|()| console.flush())
    {
        Ok(()) => exit::SUCCESS,
        Err(_) => exit::FAILURE,
    }
}
