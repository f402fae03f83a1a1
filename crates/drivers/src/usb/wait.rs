//! How a driver of many steps waits: it gives way, and is called again with the next look.

use core::future::poll_fn;
use core::task::Poll;

/// Gives way once.
pub async fn again() {
    let mut gave_way = false;
    poll_fn(|_| match core::mem::replace(&mut gave_way, true) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

/// Whether so many nanoseconds have passed since then.
pub fn late(since: u64, now: u64, most: u64) -> bool {
    now.saturating_sub(since) >= most
}

/// A millisecond, in nanoseconds.
pub const MILLISECOND: u64 = 1_000_000;
