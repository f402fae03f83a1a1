//! Benchmarks: contenders of the test bed are measured side by side.
//!
//! | module | what |
//! |---|---|
//! | [`startup`] | the time to a program's first byte |
//! | [`placement`] | generator and contender on cores of their own |
//! | [`samples`] | what was measured in each round, and what was promised |
//! | [`report`], [`plot`] | what a run leaves behind |
//! | [`machine`] | what figures were taken on |
//! | [`plan`] | how long to measure |
//! | [`turn`], [`measures`] | one contender's turn, and what is measured in it |
//! | [`firewall`], [`promises`] | the benchmark of the firewall |
//! | [`rules`] | the benchmark of its rules |
//! | [`disks`] | the benchmark of a host's file as a disk |
//! | [`driver`] | the benchmark of a NIC's driver |
//! | [`service`] | the benchmark of TCP |
//! | [`http`] | the benchmark of files over HTTP |
//! | [`calls`] | the benchmark of what a program's calls cost under the proxy |
//! | [`ways`] | and of the ways that its bytes could take |
//! | [`connections`] | the benchmark of many connections |
//! | [`keep_alive`] | what idle connections of the image `http` take |
//! | [`load`] | the benchmark of a program on the sockets of a stack under steady loads |
//! | [`loss`] | the benchmark of TCP on a wire that loses frames |
//! | [`fairness`] | the benchmark of a busy port beside a task that sleeps |
//! | [`files`] | the benchmark of file systems |
//! | [`stored`] | the benchmark of what a disk holds, over HTTP and copied |
//! | [`proxied`] | the benchmark of a program on the sockets of a stack |
//! | [`served`] | a server and where its clients run |
//! | [`hvt`] | the benchmark of virtual machines |
//! | [`split`] | the firewall as one image, and as three that links join |
//! | [`nbd`] | the benchmark of a disk over the network |
//! | [`hosts`] | instructions for each frame on the three hosts, and mappings of the IOMMU |
//! | [`matrix`] | devices, monitors and buses under load, along many axes |
//! | [`lab`] | measurements in the lab |

#![forbid(unsafe_code)]

pub mod calls;
pub mod connections;
pub mod disks;
pub mod driver;
pub mod fairness;
pub mod files;
pub mod firewall;
pub mod hosts;
pub mod http;
pub mod hvt;
pub mod keep_alive;
pub mod lab;
pub mod load;
pub mod loss;
pub mod machine;
pub mod matrix;
pub mod measures;
pub mod nbd;
pub mod nic;
pub mod placement;
pub mod plan;
pub mod plot;
pub mod promises;
pub mod proxied;
pub mod report;
pub mod rules;
pub mod samples;
pub mod served;
pub mod service;
pub mod split;
pub mod startup;
pub mod stored;
pub mod turn;
pub mod ways;

/// Says how far a benchmark is.
pub fn say(line: &str) {
    eprintln!("{line}");
}
