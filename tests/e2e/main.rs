//! End-to-end tests: real images under real tenders, on real taps.
//!
//! `cargo test -p e2e [FILTER]` builds what it needs. Tests that need root run in a user namespace
//! when started by an ordinary user. A test that cannot run here says why.

#![forbid(unsafe_code)]

mod backtrace;
mod build;
mod capture;
mod cards;
mod cli;
mod compatibility;
mod demo;
mod doctor;
mod document;
mod exposition;
mod firewall;
mod frames;
mod guests;
mod hosts;
mod hvt;
mod joined;
mod model;
mod network;
mod new;
mod nft_syntax;
mod oracle;
mod pci;
mod pci_guard;
mod pci_run;
mod ports;
mod process;
mod programs;
mod readme;
mod refusals;
mod rings;
mod rules;
mod runtime;
mod send;
mod software_device;
mod software_nic;
mod stats;
mod temporary;
mod tutorial;
mod vfio;
mod wire;

use libtest_mimic::{Arguments, Trial};

fn main() {
    let arguments = Arguments::from_args();
    let images = if arguments.list {
        build::Images::default()
    } else {
        build::all()
    };
    let images: &'static build::Images = Box::leak(Box::new(images));
    let network = network::Network::acquire();
    let mut trials: Vec<Trial> = Vec::new();
    trials.extend(guests::trials(images));
    trials.extend(backtrace::trials(images));
    trials.extend(refusals::trials(images));
    trials.extend(hvt::trials(images, &network));
    trials.extend(software_device::trials(images));
    trials.extend(software_nic::trials(images));
    trials.extend(ports::trials(images, &network));
    trials.extend(firewall::trials(images, &network));
    trials.extend(capture::trials(images, &network));
    trials.extend(rules::trials(images, &network));
    trials.extend(cli::trials(images));
    trials.extend(demo::trials(images, &network));
    trials.extend(doctor::trials(images, &network));
    trials.extend(stats::trials(images, &network));
    trials.extend(model::trials(&network));
    trials.extend(readme::trials(images, &network));
    trials.extend(send::trials(images, &network));
    trials.extend(new::trials(images, &network));
    trials.extend(tutorial::trials(images, &network));
    trials.extend(nft_syntax::trials(&network));
    trials.extend(oracle::trials(&network));
    trials.extend(compatibility::trials(images, &network));
    trials.extend(pci::trials(images));
    trials.extend(cards::trials(images));
    trials.extend(vfio::trials(images));
    libtest_mimic::run(&arguments, trials).exit();
}
