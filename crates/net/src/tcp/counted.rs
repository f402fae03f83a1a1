//! What TCP counts.

use super::connection::State;
use super::host::Tcp;
use super::input::Dropped;
use crate::counts::{Counts, Reason, reasons};

reasons! {
    /// Segments that came and left.
    pub enum Segments {
        /// Segments that came, good or not.
        Received = "tcp_segments_received",
        /// Segments that left; one that is cut below counts once.
        Sent = "tcp_segments_sent",
        /// Segments that left and whose data had left before.
        SentAgain = "tcp_segments_retransmitted",
        /// RSTs that left.
        Resets = "tcp_resets_sent",
        /// Answers to SYNs of which nothing was kept (RFC 4987, 3.6).
        Cookies = "tcp_cookies_sent",
    }
}

reasons! {
    /// Connections that were opened.
    pub enum Openings {
        /// Connections that peers have opened.
        Passive = "tcp_connections_accepted",
        /// Connections that we have begun to open.
        Active = "tcp_connections_begun",
    }
}

reasons! {
    /// Bytes that wait.
    pub enum Memory {
        /// Bytes in the queues of all connections.
        Queued = "tcp_queued_bytes",
        /// Bytes that they may hold together.
        Most = "tcp_queued_bytes_max",
    }
}

/// What TCP counts.
#[derive(Debug, Default)]
pub(super) struct Sums {
    pub segments: Counts<Segments>,
    pub openings: Counts<Openings>,
    pub dropped: Counts<Dropped>,
    /// Sockets by their states when they last had their turn.
    pub states: Counts<State>,
}

impl Sums {
    /// A segment has left: whether its data had left before, and whether it is a RST.
    #[inline]
    pub fn sent(&mut self, again: bool, reset: bool) {
        self.segments.add(Segments::Sent);
        if again {
            self.segments.add(Segments::SentAgain);
        }
        if reset {
            self.segments.add(Segments::Resets);
        }
    }
}

impl Tcp {
    /// Segments that came and left.
    pub fn segments(&self) -> &Counts<Segments> {
        &self.sums.segments
    }

    /// Connections that were opened.
    pub fn openings(&self) -> &Counts<Openings> {
        &self.sums.openings
    }

    /// Segments, or their payloads, that were dropped.
    pub fn dropped(&self) -> &Counts<Dropped> {
        &self.sums.dropped
    }

    /// Connections that peers have begun to open and of which no socket is kept.
    pub fn half_open_count(&self) -> usize {
        self.half_open.len()
    }

    /// Connections in TIME-WAIT of which no socket is kept.
    pub fn time_wait_count(&self) -> usize {
        self.time_waits.len()
    }

    /// Shows what was counted and what is, by name; names that come twice add up.
    pub fn counts(&self, show: &mut dyn FnMut(&'static str, u64)) {
        let Sums {
            segments,
            openings,
            dropped,
            states,
        } = &self.sums;
        segments.show(show);
        openings.show(show);
        dropped.show(show);
        states.show(show);
        // Those of which no socket is kept.
        show(State::SynReceived.name(), self.half_open_count() as u64);
        show(State::TimeWait.name(), self.time_wait_count() as u64);
        show(Memory::Queued.name(), self.budget.bytes() as u64);
        show(Memory::Most.name(), self.budget.max() as u64);
    }
}
