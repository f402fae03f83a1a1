//! Relays, traffic generators and side-by-side measurements.
//!
//! | module | what |
//! |---|---|
//! | [`relay`] | the peers: forwarders without rules, run as processes of their own |
//! | [`segment`], [`topology`] | the two networks between which a contender stands |
//! | [`privilege`] | the right to make them |
//! | [`contender`] | what can stand there: relays, the firewall, the kernel's bridge |
//! | [`traffic`] | generators and sinks: TCP bulk, UDP flood, ping-pong |
//! | [`meter`], [`startup`] | CPU time, memory, frames; the time to a program's first byte |
//! | [`placement`] | generator and contender on cores of their own |
//! | [`stats`], [`samples`] | medians, spread, ratios, interleaving; what was promised |
//! | [`report`], [`table`], [`plot`] | what a run leaves behind |
//! | [`machine`] | what figures were taken on |
//! | [`turn`], [`measures`] | one contender's turn, and what is measured in it |
//! | [`firewall`], [`promises`] | the benchmark of the firewall |
//! | [`rules`] | the benchmark of its rules |
//! | [`driver`] | the benchmark of a NIC's driver |
//! | [`hvt`] | the benchmark of virtual machines |
//! | [`hosts`] | instructions for each frame on the three hosts, and mappings of the IOMMU |
//! | [`lab`] | measurements in the lab |

#![forbid(unsafe_code)]

pub mod contender;
pub mod driver;
pub mod firewall;
pub mod hosts;
pub mod hvt;
pub mod lab;
pub mod machine;
pub mod measures;
pub mod meter;
pub mod nic;
pub mod placement;
pub mod plot;
pub mod privilege;
pub mod promises;
pub mod relay;
pub mod report;
pub mod rules;
pub mod samples;
pub mod segment;
pub mod startup;
pub mod stats;
pub mod table;
pub mod topology;
pub mod traffic;
pub mod turn;
