//! One test after another, as `iperf3 --server` runs them.

use crate::System;
use crate::count::Flow;
use crate::measure::{Measurement, Test};
use crate::options::Options;
use crate::protocol::{
    Cookie, Error, Parameters, patiently, read_exact, read_state, read_text, send_state, send_text,
    state,
};
use crate::report::Control;
use crate::{tcp, udp};
use alloc::boxed::Box;
use alloc::rc::Rc;
use core::net::SocketAddr;
use core::pin::pin;
use net::socket::{Listener, Sockets, Stream};
use net::task::{Clock, Either, select};

/// Connections that may wait to be accepted: a test's streams come all at once.
const BACKLOG: usize = 256;

struct Server<'a, N: Sockets> {
    sockets: N,
    system: System,
    options: &'a Options,
    local: SocketAddr,
    listener: N::Listener,
}

/// Serves tests: one, or as long as it may.
///
/// # Errors
/// If the port cannot be had; with [`Options::one_off`], why the test ended early.
pub async fn run<N: Sockets>(sockets: N, system: System, options: &Options) -> Result<(), Error>
where
    N::Stream: 'static,
    N::Datagrams: 'static,
{
    let local = SocketAddr::from(([0; 4], options.port));
    let mut server = Server {
        listener: sockets.listen(local, BACKLOG)?,
        sockets,
        system,
        options,
        local,
    };
    loop {
        let mut control = server.listener.accept().await?;
        let ended = server.test(&mut control).await;
        if options.one_off {
            return ended;
        }
        if let Err(error) = ended {
            (server.system.print)(format_args!("iperf3: {error}"));
        }
    }
}

impl<N: Sockets> Server<'_, N>
where
    N::Stream: 'static,
    N::Datagrams: 'static,
{
    async fn test(&mut self, control: &mut N::Stream) -> Result<(), Error> {
        let clock = self.system.clock.clone();
        control.set_no_delay(true);
        let mut about = Control {
            peer: control.peer(),
            cookie: [0; 37],
            is_client: false,
            segment: control.report().map_or(0, |report| report.segment),
        };
        patiently(&clock, read_exact(control, &mut about.cookie)).await?;
        send_state(control, state::PARAM_EXCHANGE).await?;
        let parameters: Parameters = patiently(&clock, read_text(control)).await?;
        parameters.directions()?;
        let test = Rc::new(Test::new(parameters, clock.clone(), false));
        let mut measurement = Measurement::new(test, &self.system, self.options);
        self.streams(control, &about, &mut measurement).await?;
        measurement.report.connected(&about, &measurement.flows);
        send_state(control, state::TEST_START).await?;
        send_state(control, state::TEST_RUNNING).await?;
        let refuse = pin!(refuse(&mut self.listener, &clock));
        let said = match select(pin!(measurement.run(control, None)), refuse).await {
            Either::First(said) => said?,
            Either::Second(error) => return Err(error),
        };
        match said {
            Some(state::TEST_END) => {}
            other => return Err(Error::State(other.unwrap_or_default())),
        }
        send_state(control, state::EXCHANGE_RESULTS).await?;
        let theirs = patiently(&clock, read_text(control));
        let theirs = measurement.during(theirs).await?;
        send_text(control, &measurement.results()).await?;
        send_state(control, state::DISPLAY_RESULTS).await?;
        measurement.report.end(&about, &measurement, &theirs);
        // Whatever the client says now, or if it goes away: it is over.
        let last = patiently(&clock, read_state(control));
        let _ = measurement.during(last).await;
        Ok(())
    }

    /// Takes all streams in. What moves their data begins to when the test does.
    async fn streams(
        &mut self,
        control: &mut N::Stream,
        about: &Control,
        measurement: &mut Measurement,
    ) -> Result<(), Error> {
        let test = measurement.test.clone();
        // Where the client sends, we receive.
        let directions = test.parameters.directions()?;
        let directions = directions.into_iter().map(|sends| !sends).enumerate();
        if test.parameters.udp {
            let mut socket = self.sockets.bind(self.local)?;
            send_state(control, state::CREATE_STREAMS).await?;
            let local = SocketAddr::new(control.local().ip(), self.local.port());
            for (place, sends) in directions {
                let known = &measurement.flows;
                let from = udp::accept(&mut socket, &test.clock, known, about.peer).await?;
                let flow = Flow::new(place, sends, local, from);
                measurement.flows.push(Rc::new(flow));
            }
            let streams = udp::Streams::new(socket, &measurement.flows, test.clone());
            measurement.work.push(Box::pin(streams.run()));
            return Ok(());
        }
        send_state(control, state::CREATE_STREAMS).await?;
        for (place, sends) in directions {
            let next = next(&mut self.listener, &about.cookie);
            let stream = patiently(&test.clock, next).await?;
            let (flow, stream) = Flow::over(place, sends, stream);
            let flow = Rc::new(flow);
            measurement.flows.push(flow.clone());
            let work = tcp::run(stream, flow, test.clone());
            measurement.work.push(Box::pin(work));
        }
        Ok(())
    }
}

/// The client's next stream. Another client is told that a test is going on.
async fn next<L: Listener>(listener: &mut L, cookie: &Cookie) -> Result<L::Stream, Error> {
    loop {
        let mut stream = listener.accept().await?;
        let mut theirs: Cookie = [0; 37];
        read_exact(&mut stream, &mut theirs).await?;
        if theirs == *cookie {
            return Ok(stream);
        }
        send_state(&mut stream, state::ACCESS_DENIED).await?;
    }
}

/// Tells other clients that a test is going on, until the listener fails.
async fn refuse(listener: &mut impl Listener, clock: &Clock) -> Error {
    loop {
        let mut stream = match listener.accept().await {
            Ok(stream) => stream,
            Err(error) => return error.into(),
        };
        // A connection that closes with bytes unread loses what it has sent.
        let mut cookie: Cookie = [0; 37];
        let told = async {
            read_exact(&mut stream, &mut cookie).await?;
            send_state(&mut stream, state::ACCESS_DENIED).await
        };
        // One that is gone already is no matter.
        let _ = patiently(clock, told).await;
    }
}
