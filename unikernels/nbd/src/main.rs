//! Serves the disk `disk` over the network block device protocol (NBD), to several clients at once.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;
use disk_server::disk::{BUFFER_BYTES, BUFFERS, CONNECTIONS_MAX, Disk};
use disk_server::server::{PORT, serve};
use service::{Beside, Service};
use unikernel::{Instant, println};

/// The disk's name in the manifest, by which clients may call it.
const DISK: &str = "disk";
/// How often a disk that has something to do is looked at, whatever it says: a driver learns the
/// time so.
const LOOK: Duration = Duration::from_millis(100);

unikernel::entry!(main);

fn main() -> i32 {
    service::run("nbd", "", |service| async move {
        match start(service).await {
            Ok(()) => 0,
            Err(why) => {
                println!("nbd: {why}");
                1
            }
        }
    })
}

async fn start(service: Service) -> Result<(), String> {
    if let Some(argument) = service.arguments.first() {
        return Err(format!("{argument}: no such option; see --help"));
    }
    let count = CONNECTIONS_MAX * BUFFERS;
    let (queue, buffers) =
        appliance::queue(DISK, count, BUFFER_BYTES).map_err(|why| format!("{why}"))?;
    let mut buffers = buffers.into_iter();
    let places = (0..CONNECTIONS_MAX).map(|_| buffers.by_ref().take(BUFFERS).collect());
    let disk = Disk::new(queue, places.collect::<Vec<_>>());
    println!("nbd: {DISK}: {} bytes, at port {PORT}", disk.capacity());
    service
        .beside
        .borrow_mut()
        .push(Box::new(Turns(disk.clone())));
    let turns = (service.clock, service.spawner);
    let served = serve(service.net, DISK, disk, turns).await;
    served.map_err(|why| format!("port {PORT}: {why}"))
}

/// The disk has its turns beside the stack.
struct Turns(Disk);

impl Beside for Turns {
    fn receive(&mut self) -> bool {
        self.0.turn()
    }

    fn send(&mut self) -> bool {
        !self.0.is_busy()
    }

    fn deadline(&self) -> Option<Instant> {
        let is_waiting = self.0.has_in_flight();
        is_waiting.then(|| unikernel::monotonic() + LOOK)
    }
}
