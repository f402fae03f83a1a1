//! Streams over TCP.

use crate::count::Flow;
use crate::measure::{Pace, Test};
use crate::protocol::Error;
use alloc::rc::Rc;
use alloc::vec;
use bytes::Bytes;
use net::socket::Stream;

/// Moves a stream's data until the test has enough.
///
/// # Errors
/// If the stream fails, or the peer ends it.
pub async fn run<S: Stream>(mut stream: S, flow: Rc<Flow>, test: Rc<Test>) -> Result<(), Error> {
    stream.set_no_delay(test.parameters.nodelay);
    match flow.sends {
        true => {
            let sent = send(&mut stream, &test, &flow).await;
            flow.arrived.set(true);
            sent?;
        }
        false => receive(&mut stream, &flow, &test).await?,
    }
    // It goes away with the others, after the results.
    core::future::pending().await
}

async fn receive(stream: &mut impl Stream, flow: &Flow, test: &Test) -> Result<(), Error> {
    while let Some(bytes) = stream.take().await? {
        test.moved(flow, bytes.len(), |count| count.bytes += bytes.len() as u64);
    }
    Err(Error::Ended)
}

async fn send(stream: &mut impl Stream, test: &Test, flow: &Flow) -> Result<(), Error> {
    let block = Bytes::from(vec![0; test.parameters.block() as usize]);
    let mut pace = Pace::new(test.parameters.bandwidth, test.clock.now());
    while test.goes_on() {
        if let Some(due) = pace.due() {
            test.clock.until(due).await;
        }
        stream.give(block.clone()).await?;
        pace.sent(block.len());
        test.moved(flow, block.len(), |count| count.sent(block.len()));
    }
    // The stock client may wait for the rest of a block, and listens to nothing else meanwhile.
    stream.shutdown();
    Ok(stream.acknowledged().await?)
}
