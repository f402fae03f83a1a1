//! A TCP/IP stack for applications in other images: each has a link that carries its sockets.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::future::pending;
use core::time::Duration;
use link_sockets::{Allowed, Orphans};
use service::{Server, Service};
use unikernel::println;

const HELP: &str = "  \
  --ports:LINK=PORTS       the image there may listen and take datagrams at these ports alone, as in
                           7,8000-8080; at ports that are chosen for it if 0 is among them
  --connect:LINK=no        the image there may open no connections

";

/// Applications have so long to ask for their connections with the image before this one: as long
/// as they wait for a stack.
const PATIENCE: Duration = Duration::from_secs(10);

unikernel::entry!(main);

fn main() -> i32 {
    service::run("stack", HELP, |service| async move {
        match serve(service).await {
            Ok(()) => 0,
            Err(why) => {
                println!("stack: {why}");
                1
            }
        }
    })
}

/// Nothing ends it but a mistake.
async fn serve(service: Service) -> Result<(), String> {
    let runtime = unikernel::runtime();
    let links: Vec<_> = runtime.devices.socket_links().collect();
    if links.is_empty() {
        return Err("no link carries sockets; name one in manifest.json".into());
    }
    let mut rights: Vec<_> = links.iter().map(|link| (*link, Allowed::all())).collect();
    for argument in &service.arguments {
        heed(argument, &mut rights)?;
    }
    let orphans = Orphans::new(&service.net, links.len(), PATIENCE);
    for (link, allowed) in rights {
        let port = runtime.socket_link(link);
        let port = port.map_err(|why| format!("{link}: {why}"))?;
        let port = port.ok_or_else(|| format!("{link}: no link"))?;
        let server = Server::new(port, &service, orphans.clone(), allowed, links.len());
        service.beside.borrow_mut().push(Box::new(server));
    }
    service.clock.sleep(PATIENCE).await;
    let count = orphans.reset();
    if count > 0 {
        println!("stack: {count} connections are nobody's, and are reset");
    }
    pending().await
}

/// Takes an option: what the image at the other end of a link may do.
fn heed(argument: &str, rights: &mut [(&str, Allowed)]) -> Result<(), String> {
    let unknown = || format!("{argument}: no such option; see --help");
    let (key, value) = argument.split_once('=').ok_or_else(unknown)?;
    let (option, link) = key.split_once(':').ok_or_else(unknown)?;
    let found = rights.iter_mut().find(|(name, _)| *name == link);
    let (_, allowed) = found.ok_or_else(|| format!("{argument}: no link is called {link}"))?;
    match (option, value) {
        ("--ports", ports) => {
            let ports = Allowed::ports(ports);
            allowed.ports = ports.ok_or_else(|| format!("{argument}: write ports as 7,80-90"))?;
        }
        ("--connect", "no") => allowed.connect = false,
        ("--connect", "yes") => allowed.connect = true,
        _ => return Err(unknown()),
    }
    Ok(())
}
