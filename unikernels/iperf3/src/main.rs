//! Measures throughput with stock iperf3 or iperf at the other end.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::net::SocketAddr;
use iperf::options::{HELP, Options, Role};
use iperf::{System, client, iperf2, server};
use service::Service;
use unikernel::println;

unikernel::entry!(main);

fn main() -> i32 {
    service::run("iperf3", HELP, |service| async move {
        let options = match Options::parse(&service.arguments) {
            Ok(options) => options,
            Err(error) => {
                println!("iperf3: {error}");
                return 1;
            }
        };
        match run(service, options).await {
            Ok(()) => 0,
            Err(error) => {
                println!("iperf3: {error}");
                1
            }
        }
    })
}

async fn run(service: Service, options: Options) -> Result<(), iperf::protocol::Error> {
    let system = System {
        clock: service.clock,
        wall: unikernel::wall,
        print: |line| println!("{line}"),
    };
    match options.role {
        Role::Client => {
            let found = client::find(&service.resolver, &system.clock, &options.server).await?;
            let server = SocketAddr::new(found, options.port);
            client::run(service.net, system, server, &options).await
        }
        Role::Server => server::run(service.net, system, &options).await,
        Role::Iperf2 => iperf2::run(service.net, system, service.spawner, options.port).await,
    }
}
