//! Starts an image with what its manifest names and nothing else.
//!
//! | module | what |
//! |---|---|
//! | [`options`] | the command line, as data |
//! | [`check`] | every device of the manifest is attached, and nothing else is |
//! | [`attach`] | opens taps, macvtaps and disks |
//! | [`load`] | reads the image |
//! | [`memory`], [`boot`] | what lies where in guest memory |
//! | [`share`] | the file that host and guest share |
//! | [`rules`] | rules for the guest, put into that file |
//! | [`jail`] | what the guest may ask of the kernel |
//! | [`spt`] | all of it in order, and the jump |
//! | [`hvt`] | the same for a virtual machine, and its hypercalls |
//! | [`probe`] | the smallest guest |
//! | [`netlink`] | network interfaces, for those who make them |
//! | [`sys`] | the unsafe island |

pub mod attach;
pub mod boot;
pub mod check;
pub mod hvt;
pub mod jail;
pub mod load;
pub mod memory;
pub mod netlink;
pub mod options;
pub mod probe;
pub mod rules;
pub mod share;
pub mod spt;
pub mod sys;
mod world;

use abi::exit;
use options::{Host, Options, Request};
use std::convert::Infallible;
use std::ffi::OsString;
use std::io::Write;
use sys::{descriptor, signal};

/// The whole program: its arguments without its name, its exit status. Returns only if no guest
/// was started.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> i32 {
    let started = match options::parse(arguments) {
        Ok(Request::Help) => return print(options::HELP),
        Ok(Request::Version) => {
            return print(concat!("outboard-tender ", env!("CARGO_PKG_VERSION"), "\n"));
        }
        Ok(Request::Start(options)) => start(&options),
        Err(error) => Err(error.to_string()),
    };
    let Err(error) = started;
    let line = format!("outboard-tender: {error}\n");
    // The jail closes standard error; what fails after that can only be said on the console.
    if std::io::stderr().write_all(line.as_bytes()).is_err() {
        print(&line);
    }
    exit::FAILURE
}

/// Starts an image on the host that fits. If all goes well, this process becomes the guest, or ends
/// with it.
fn start(options: &Options) -> Result<Infallible, String> {
    spt::die_with(options.parent).map_err(|error| error.to_string())?;
    signal::reset_pipe();
    descriptor::open_standard().map_err(|error| format!("/dev/null: {error}; is /dev mounted?"))?;
    let path = &options.image;
    let unusable = |error| spt::Error::Load(path.clone(), error).to_string();
    let (file, image) = load::open(path).map_err(unusable)?;
    match load::host(&image, options.host).map_err(unusable)? {
        Host::Hvt => hvt::run(options, &file, &image).map_err(|error| error.to_string()),
        Host::Spt | Host::Process if options.huge_pages || options.dump_core.is_some() => {
            Err("--hugepages and --dumpcore are for hvt; add --host=hvt, or leave them away".into())
        }
        Host::Spt | Host::Process => {
            spt::start(options, &file, &image).map_err(|error| error.to_string())
        }
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
