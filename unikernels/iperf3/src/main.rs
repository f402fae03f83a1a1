//! Measures throughput with stock iperf3 at the other end.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use iperf3::server::Server;
use net::socket::Sockets;
use service::Service;
use unikernel::println;

/// iperf3's port.
const PORT: u16 = 5201;
/// Connections that may wait to be accepted: a test's streams come all at once.
const BACKLOG: usize = 256;

unikernel::entry!(main);

fn main() -> i32 {
    service::run("iperf3", "  -s    serve tests\n", |service| async move {
        match serve(service).await {
            Ok(never) => never,
            Err(error) => {
                println!("iperf3: port {PORT}: {error}");
                1
            }
        }
    })
}

async fn serve(service: Service) -> Result<i32, net::socket::Error> {
    let Service {
        net,
        clock,
        spawner,
        ..
    } = service;
    let mut server = Server {
        listener: net.listen(([0; 4], PORT).into(), BACKLOG)?,
        clock,
        spawner,
    };
    loop {
        match server.test().await {
            Ok(results) => {
                for stream in results.streams {
                    let rate = stream.bytes as f64 * 8.0 / stream.end_time / 1e9;
                    println!("iperf3: stream {}: {rate:.2} Gb/s", stream.id);
                }
            }
            Err(error) => println!("iperf3: {error}"),
        }
    }
}
