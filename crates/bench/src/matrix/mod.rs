//! Devices of monitors under load, along many axes: who loses frames before the load limit, and
//! what an access of a register costs.
//!
//! A file names values of axes. Each combination that can be is a run: a guest that is booted in
//! the lab, and loaded by frames that it sends back, by transfers, or by reads of its disk. Raw
//! data of a run is a file, so that a measurement that was interrupted goes on where it was.
//!
//! | module | what |
//! |---|---|
//! | `axes` | the axes, and a run |
//! | `plan` | a file, and the runs that it means |
//! | `ladder` | which load is offered next |
//! | `inside` | the lab's half |
//! | `outside` | boots the lab, and keeps raw data |
//! | `disk` | the guest's reads of its disk |
//! | `xdp` | the reflector in the guest's kernel |
//! | `outcome` | raw data of a run |
//! | `figures` | what raw data says, in few figures |
//! | `report` | a page with plots and tables |

mod axes;
mod disk;
mod figures;
mod inside;
mod ladder;
mod outcome;
mod outside;
mod plan;
mod report;
mod xdp;

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::Path;
use testbed::traffic::paced::{self, Load};

pub use outside::{Bench, Error};
pub use xdp::object as xdp_object;

/// Does these runs of the file in this machine, which is the lab, and prints raw data.
///
/// # Errors
/// The file is none.
pub fn run_here(file: &Path, numbers: &[usize]) -> Result<(), Error> {
    let plans = outside::read(file)?;
    let runs = plans.expand().runs.into_iter().enumerate();
    let runs: Vec<_> = runs
        .filter(|(number, _)| numbers.contains(number))
        .map(|(_, (run, _))| run)
        .collect();
    let own = std::env::current_exe().map_err(Error::Own)?;
    inside::run_all(&plans, &runs, &own.to_string_lossy(), &|line| {
        println!("{line}");
    });
    Ok(())
}

/// Offers datagrams, and prints what became of them as numbers.
///
/// # Errors
/// The socket failed.
pub fn offer(to: SocketAddrV4, rate: u64, count: u64, bytes: usize) -> io::Result<()> {
    /// Room for what comes back at once, so that the generator itself loses nothing.
    const BUFFER_BYTES: &str = "16777216";
    // Where this is not the root user, it has the room that everybody has.
    let _ = fs::write("/proc/sys/net/core/rmem_default", BUFFER_BYTES);
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(to)?;
    let load = Load { rate, count, bytes };
    print!("{}", inside::print_answered(&paced::offer(&socket, &load)?));
    Ok(())
}

/// Reads a disk, and prints what came of it as JSON.
///
/// # Errors
/// The disk cannot be read.
pub fn reads(path: &Path, depth: u32, count: u64) -> io::Result<()> {
    let reads = disk::read(path, depth, count)?;
    println!("{}", serde_json::to_string(&reads)?);
    Ok(())
}
