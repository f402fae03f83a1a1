//! What is counted of a stream.

use crate::inside::Inside;
use alloc::boxed::Box;
use core::cell::Cell;
use core::net::SocketAddr;
use net::report::Report;
use net::socket::Stream;

/// Counts of one end of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Count {
    /// Bytes of data, without those that were to be omitted.
    pub bytes: u64,
    /// Blocks or datagrams that were sent; where datagrams arrive, the highest number of one.
    pub packets: u64,
    /// Segments of TCP that were sent again.
    pub sent_again: u64,
    /// Datagrams that are missing.
    pub lost: u64,
    /// Datagrams that came after one with a higher number.
    pub out_of_order: u64,
    /// How much the time under way varies, in seconds (RFC 1889, 6.3.1).
    pub jitter: f64,
    /// Datagrams that are not to be counted.
    pub omitted_packets: u64,
    /// Missing ones among them.
    pub omitted_lost: u64,
    /// How long the last datagram was under way, and something that is always the same.
    pub transit: Option<f64>,
}

impl Count {
    /// A block or a datagram has left.
    pub fn sent(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        self.packets += 1;
    }

    /// The datagram of this number has arrived, so many seconds after it was sent, by two clocks
    /// that may be apart (`iperf_udp_recv`).
    pub fn arrived(&mut self, bytes: usize, number: u64, transit: f64) {
        self.bytes += bytes as u64;
        if number > self.packets {
            self.lost = self.lost.saturating_add(number - 1 - self.packets);
            self.packets = number;
        } else {
            self.out_of_order += 1;
            self.lost = self.lost.saturating_sub(1);
        }
        let change = (transit - self.transit.unwrap_or(transit)).abs();
        self.transit = Some(transit);
        self.jitter += (change - self.jitter) / 16.0;
    }

    /// What was counted up to now does not count.
    pub fn omit(&mut self) {
        *self = Self {
            packets: self.packets,
            lost: self.lost,
            omitted_packets: self.packets,
            omitted_lost: self.lost,
            transit: self.transit,
            ..Self::default()
        };
    }

    /// What has been counted since `before`; jitter as it is now.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(before.bytes),
            packets: self.packets.saturating_sub(before.packets),
            sent_again: self.sent_again.saturating_sub(before.sent_again),
            lost: self.lost.saturating_sub(before.lost),
            out_of_order: self.out_of_order.saturating_sub(before.out_of_order),
            ..*self
        }
    }

    /// The same without what was to be omitted.
    #[must_use]
    pub fn net(&self) -> Self {
        Self {
            packets: self.packets.saturating_sub(self.omitted_packets),
            lost: self.lost.saturating_sub(self.omitted_lost),
            ..*self
        }
    }
}

/// A stream.
pub struct Flow {
    /// Its number: 1, 3, 4, 5, ...
    pub id: u32,
    /// Its data leaves.
    pub sends: bool,
    /// Our end.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// What was counted here.
    pub count: Cell<Count>,
    /// What TCP has told of it.
    pub inside: Cell<Inside>,
    /// The peer's TCP has acknowledged all that was to be sent, or never will.
    pub arrived: Cell<bool>,
    connection: Option<Box<dyn Fn() -> Option<Report>>>,
}

impl Flow {
    /// The stream at this place among all of a test.
    pub fn new(place: usize, sends: bool, local: SocketAddr, remote: SocketAddr) -> Self {
        Self {
            // The stock program leaves 2 out.
            id: if place == 0 { 1 } else { place as u32 + 2 },
            sends,
            local,
            remote,
            count: Cell::default(),
            inside: Cell::default(),
            arrived: Cell::default(),
            connection: None,
        }
    }

    /// The same over a connection, which is returned.
    pub fn over<S: Stream + 'static>(place: usize, sends: bool, stream: S) -> (Self, S) {
        let (watched, stream) = stream.split();
        let flow = Self::new(place, sends, stream.local(), stream.peer());
        let connection: Box<dyn Fn() -> Option<Report>> = Box::new(move || watched.report());
        let connection = Some(connection);
        (Self { connection, ..flow }, stream)
    }

    /// What TCP knows now.
    pub fn report(&self) -> Option<Report> {
        self.connection.as_ref().and_then(|report| report())
    }

    /// Takes in what TCP knows now.
    pub fn look(&self) {
        let Some(report) = self.report().filter(|_| self.sends) else {
            return;
        };
        let mut inside = self.inside.get();
        let again = inside.take(&report);
        self.inside.set(inside);
        self.update(|count| count.sent_again += u64::from(again));
    }

    /// Whether the peer's TCP has acknowledged all that was to be sent, or never will.
    pub fn has_arrived(&self) -> bool {
        let waits = self.sends && self.connection.is_some();
        !waits || self.arrived.get()
    }

    /// What was counted up to now does not count.
    pub fn omit(&self) {
        self.look();
        self.update(Count::omit);
        self.inside.set(self.inside.get().omit());
    }

    /// Changes what was counted.
    pub fn update(&self, change: impl FnOnce(&mut Count)) {
        let mut count = self.count.get();
        change(&mut count);
        self.count.set(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_and_order_are_counted_as_the_stock_program_does() {
        let mut count = Count::default();
        for number in [1, 2, 5, 3, 3, 7] {
            count.arrived(100, number, 0.0);
        }
        assert_eq!((count.packets, count.lost, count.out_of_order), (7, 1, 2));
        assert_eq!((count.bytes, count.jitter), (600, 0.0));
    }

    #[test]
    fn what_is_sent_has_arrived_once_its_task_says_so() {
        let nobody = SocketAddr::from(([0; 4], 0));
        let mut flow = Flow::new(0, true, nobody, nobody);
        assert!(flow.has_arrived(), "there is no connection");
        flow.connection = Some(Box::new(|| None));
        assert!(!flow.has_arrived());
        flow.arrived.set(true);
        assert!(flow.has_arrived());
    }

    #[test]
    fn jitter_grows_by_a_sixteenth() {
        let mut count = Count::default();
        count.arrived(1, 1, 1000.0);
        count.arrived(1, 2, 1016.0);
        assert_eq!(count.jitter, 1.0);
        count.arrived(1, 3, 1016.0);
        assert_eq!(count.jitter, 1.0 - 1.0 / 16.0);
    }

    #[test]
    fn hostile_numbers_do_no_harm() {
        let mut count = Count::default();
        for number in [u64::MAX, 0, 1, u64::MAX] {
            count.arrived(1, number, f64::MAX);
            count.omit();
        }
        assert_eq!(count.net().packets, 0);
        assert_eq!(count.since(&Count { bytes: 9, ..count }).bytes, 0);
    }

    #[test]
    fn what_is_omitted_is_subtracted() {
        let mut count = Count::default();
        count.arrived(10, 3, 0.0);
        count.omit();
        count.arrived(10, 5, 0.0);
        let net = count.net();
        assert_eq!((net.bytes, net.packets, net.lost), (10, 2, 1));
    }
}
