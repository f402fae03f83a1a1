//! What a child process tries for a [`Probe`]: its own side.

use super::probe::Probe;
use super::{Error, kvm, network};
use serde::Serialize;

/// Tries it, in a process that does nothing else. Facts go to standard output.
///
/// # Errors
/// What a guest could not be started for.
pub fn run(probe: Probe) -> Result<(), Error> {
    let never = |jailed| match tender::spt::probe::enter(jailed) {
        Ok(never) => match never {},
        Err(error) => Err(Error::Probe(error.to_string())),
    };
    match probe {
        Probe::Spt => never(true),
        Probe::Process => never(false),
        Probe::Namespaces => print(&network::try_namespaces()),
        Probe::Offloads => print(&network::try_offloads()),
        Probe::Kvm => print(&kvm::try_guest()),
    }
}

fn print(facts: &impl Serialize) -> Result<(), Error> {
    let json = serde_json::to_string(facts).map_err(|error| Error::Print(error.into()))?;
    println!("{json}");
    Ok(())
}
