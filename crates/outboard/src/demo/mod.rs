//! `outboard demo`: Outboard at work, on real traffic, between networks of its own.

mod build;
mod checks;
mod error;
mod files;
mod firewall;
mod http;
mod keep;
mod observed;
mod program;
mod report;
mod restart;
mod router;
mod speed;
mod system;

use error::Error;
use firewall::Ports;
use serde::Serialize;
use std::process::ExitCode;

/// `outboard demo`.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    demo: Demo,
}

#[derive(clap::Subcommand)]
enum Demo {
    /// A firewall between two networks: what passes, which rule decides, and how fast
    ///
    /// Makes two private network segments, starts the firewall's image between them and sends real
    /// traffic through it; then compares bulk TCP with relays and the kernel's bridge. Needs no
    /// root where unprivileged user namespaces work, and leaves nothing behind. The exit status is
    /// 0 if all checks held.
    Firewall(firewall::Options),
    /// The same firewall on two software network cards, which it drives itself
    ///
    /// The cards are processes, models of the Intel 82599 that check whatever their driver does;
    /// the firewall's own driver, in safe Rust, runs in its jail and reaches them by vfio-user. As
    /// `demo firewall` otherwise; no check holds if a card finds that its datasheet was broken.
    Nic(firewall::Options),
    /// A web server that is an image: how soon it answers, what, and how often
    ///
    /// Makes a private network, starts the image `http` in its jail behind a tap, and asks it for
    /// files. Needs no root where unprivileged user namespaces work, and leaves nothing behind. The
    /// exit status is 0 if all answers were right.
    Http(http::Options),
    /// Three images that are killed in turn: what that costs whoever talks through them
    ///
    /// Makes a private network, and starts three images with `outboard up`: one at a tap, a
    /// firewall, and a stack with its application, joined by links. Datagrams and connections go
    /// through all of them and end in the stack, while each image is killed in turn, once a second.
    /// Needs no root where unprivileged user namespaces work, and leaves nothing behind. The exit
    /// status is 0 if no connection was lost, and each byte came back.
    Restart(restart::Options),
    /// A home gateway: addresses, NAT, other rules and a kill under load, with stock programs
    ///
    /// Makes a home with two clients, and a network outside with servers, and starts the router
    /// between them with `outboard up`. dnsmasq lends it an address, it lends the clients theirs
    /// (udhcpc), and they reach the servers by IPv4 and IPv6 (curl, iperf3), while rules are loaded
    /// and the router is killed. Needs no root where unprivileged user namespaces work, and leaves
    /// nothing behind. The exit status is 0 if all was as expected, and nothing was lost.
    Router(router::Options),
    /// nginx as it is, behind a firewall, on a stack of its own: each is killed in turn
    ///
    /// Makes a private network, and starts three components with `outboard up`: a firewall, a
    /// stack, and the nginx that this host has installed, whose sockets are the stack's and which
    /// has no other network. Clients ask for a page while each is killed. Needs no root where
    /// unprivileged user namespaces work, and leaves nothing behind. The exit status is 0 if no
    /// request failed while the firewall was killed, all was answered again, and no byte was wrong.
    Program(program::Options),
    /// Disks of stock programs, served by an image, and disks that an image has written
    ///
    /// Makes disks of ext4, FAT32 and ISO 9660 with mke2fs, mtools and xorriso, and asks the image
    /// `http` for each file of each of them. Has the image `files` copy one to new disks of ext2
    /// and FAT32, which e2fsck and fsck.fat check, and debugfs and mtools read. Needs no root where
    /// unprivileged user namespaces work, and leaves nothing behind. The exit status is 0 if each
    /// file was the same everywhere, and no checker found anything.
    Files(files::Options),
}

/// Prints what was shown, as JSON or as `text`; the exit status, by whether all `held`.
fn shown(
    json: bool,
    report: &impl Serialize,
    text: impl FnOnce() -> String,
    held: bool,
) -> ExitCode {
    match json {
        true => println!("{}", serde_json::json!(report)),
        false => print!("{}", text()),
    }
    match held {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Runs the demonstration.
///
/// # Errors
/// What kept it from being shown. That a check did not hold is no error, but a failing status.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    match &arguments.demo {
        Demo::Firewall(options) => firewall::run(options, Ports::Taps),
        Demo::Nic(options) => firewall::run(options, Ports::Nics),
        Demo::Http(options) => http::run(options),
        Demo::Restart(options) => restart::run(options),
        Demo::Router(options) => router::run(options),
        Demo::Program(options) => program::run(options),
        Demo::Files(options) => files::run(options),
    }
}
