//! A test as a client runs it.

use crate::System;
use crate::count::Flow;
use crate::measure::{Measurement, Test};
use crate::options::Options;
use crate::protocol::{
    Cookie, Error, patiently, read_exact, read_state, read_text, send_state, send_text, state,
};
use crate::report::Control;
use crate::{tcp, udp};
use alloc::boxed::Box;
use alloc::rc::Rc;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use net::dns::{self, Resolver};
use net::socket::{Datagrams, Sockets, Stream};
use net::task::Clock;

/// A server of DHCP may take so long to say who resolves names.
const LEASE: Duration = Duration::from_secs(10);
/// How often a client looks whether it has.
const LEASE_LOOK: Duration = Duration::from_millis(100);
/// Letters of a cookie.
const LETTERS: [u8; 32] = *b"abcdefghijklmnopqrstuvwxyz234567";

/// The first address of a server, which may be given by its name.
///
/// # Errors
/// If it has none, or nobody knows.
pub async fn find<N: Sockets>(
    resolver: &Resolver<N>,
    clock: &Clock,
    server: &str,
) -> Result<IpAddr, Error> {
    let until = clock.now() + LEASE;
    let found = loop {
        match resolver.resolve(server).await {
            Err(dns::Error::NoServer) if clock.now() < until => {
                clock.until(clock.now() + LEASE_LOOK).await;
            }
            found => break found.map_err(Error::Name)?,
        }
    };
    let first = found.first().copied();
    first.ok_or(Error::Name(dns::Error::NoAddress))
}

/// Runs one test with the server there.
///
/// # Errors
/// Why it ended early.
pub async fn run<N: Sockets>(
    sockets: N,
    system: System,
    server: SocketAddr,
    options: &Options,
) -> Result<(), Error>
where
    N::Stream: 'static,
    N::Datagrams: 'static,
{
    let clock = system.clock.clone();
    let open = async { Ok(sockets.connect(server).await?) };
    let mut stream = patiently(&clock, open).await?;
    stream.set_no_delay(true);
    let control = Control {
        peer: server,
        cookie: cookie((system.wall)().as_nanos() as u64),
        is_client: true,
        segment: stream.report().map_or(0, |report| report.segment),
    };
    stream.write(&control.cookie).await?;
    let test = Test::new(options.test.clone(), clock.clone(), true);
    let mut measurement = Measurement::new(Rc::new(test), &system, options);
    loop {
        let said = measurement.during(patiently(&clock, read_state(&mut stream)));
        match said.await? {
            state::PARAM_EXCHANGE => send_text(&mut stream, &options.test).await?,
            state::CREATE_STREAMS => {
                open_streams(&sockets, server, &control.cookie, &mut measurement).await?;
                measurement.report.connected(&control, &measurement.flows);
            }
            state::TEST_START => {}
            state::TEST_RUNNING => {
                let time = Some(options.test.time).filter(|time| *time > 0);
                if let Some(other) = measurement.run(&mut stream, time).await? {
                    return Err(Error::State(other));
                }
                send_state(&mut stream, state::TEST_END).await?;
            }
            state::EXCHANGE_RESULTS => {
                send_text(&mut stream, &measurement.results()).await?;
                let theirs = patiently(&clock, read_text(&mut stream));
                let theirs = measurement.during(theirs).await?;
                measurement.report.end(&control, &measurement, &theirs);
            }
            state::DISPLAY_RESULTS => return send_state(&mut stream, state::IPERF_DONE).await,
            state::SERVER_ERROR => {
                // Two numbers of the server's own system follow.
                patiently(&clock, read_exact(&mut stream, &mut [0; 8])).await?;
                return Err(Error::State(state::SERVER_ERROR));
            }
            other => return Err(Error::State(other)),
        }
    }
}

/// Opens all streams. What moves their data begins to when the test does.
async fn open_streams<N: Sockets>(
    sockets: &N,
    server: SocketAddr,
    cookie: &Cookie,
    measurement: &mut Measurement,
) -> Result<(), Error>
where
    N::Stream: 'static,
    N::Datagrams: 'static,
{
    let test = measurement.test.clone();
    let any = match server {
        SocketAddr::V4(_) => SocketAddr::from(([0; 4], 0)),
        SocketAddr::V6(_) => SocketAddr::from(([0; 16], 0)),
    };
    for (place, sends) in test.parameters.directions()?.into_iter().enumerate() {
        if test.parameters.udp {
            let mut socket = sockets.bind(any)?;
            udp::open(&mut socket, &test.clock, server).await?;
            let flow = Rc::new(Flow::new(place, sends, socket.local(), server));
            measurement.flows.push(flow.clone());
            let streams = udp::Streams::new(socket, &[flow], test.clone());
            measurement.work.push(Box::pin(streams.run()));
        } else {
            let open = async { Ok(sockets.connect(server).await?) };
            let mut stream = patiently(&test.clock, open).await?;
            stream.write(cookie).await?;
            let (flow, stream) = Flow::over(place, sends, stream);
            let flow = Rc::new(flow);
            measurement.flows.push(flow.clone());
            let work = tcp::run(stream, flow, test.clone());
            measurement.work.push(Box::pin(work));
        }
    }
    Ok(())
}

/// A text that no other client is likely to have: nobody needs to be kept from guessing it.
fn cookie(seed: u64) -> Cookie {
    let mut cookie: Cookie = [0; 37];
    let mut state = seed;
    for letter in &mut cookie[..36] {
        // Knuth's generator (MMIX).
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        *letter = LETTERS[(state >> 59) as usize];
    }
    cookie
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_letters_and_differ() {
        let (one, other) = (cookie(1), cookie(2));
        assert_ne!(one, other);
        assert!(one[..36].iter().all(|letter| LETTERS.contains(letter)));
        assert_eq!(one[36], 0);
    }
}
