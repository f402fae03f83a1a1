//! A port that makes a call for each frame: a tap or macvtap that the host attached.

use crate::host::{Errno, Host};
use crate::ledger::Outcome;
use crate::network::Network;
use abi::share::PortCounter;
use device::{BATCH_FRAMES_MAX, Batch, Frame, Netif, Offloads, Pool, WaitHandle};

/// Receptions in a row that must find a frame before a port reads on until it finds none.
///
/// To read once more and find nothing costs about as much as a frame. Where frames come one by one,
/// the port takes one frame and leaves it to the wait, which must be called anyway, to say whether
/// there are more.
const STREAK_MIN: u32 = 8;

/// A port that calls its host for each frame.
pub struct TapPort<H: Host + ?Sized + 'static> {
    host: &'static H,
    network: Network,
    /// Receptions in a row that found a frame.
    streak: u32,
}

impl<H: Host + ?Sized> TapPort<H> {
    /// The port of this network.
    pub fn new(host: &'static H, network: Network) -> Self {
        Self {
            host,
            network,
            streak: 0,
        }
    }
}

impl<H: Host + ?Sized> Netif for TapPort<H> {
    fn name(&self) -> &str {
        self.network.port.ledger.name
    }

    fn mac(&self) -> [u8; 6] {
        self.network.port.mac
    }

    fn mtu(&self) -> usize {
        self.network.port.mtu.get()
    }

    fn offloads(&self) -> Offloads {
        self.network.port.offloads
    }

    fn alloc(&mut self, len: usize) -> Option<Frame> {
        self.network.port.alloc(len, self.max_frame())
    }

    fn receive(&mut self, batch: &mut Batch) {
        let most = match self.streak {
            0..STREAK_MIN => 1,
            _ => BATCH_FRAMES_MAX,
        };
        self.streak = self.streak.saturating_add(1);
        let Self { host, network, .. } = self;
        let more = network.port.receive(batch, most, || {
            let Some(mut buffer) = network.buffers.take() else {
                network.port.ledger.count(PortCounter::NoBuffer, 1);
                return None;
            };
            let read = host.read(network.handle, buffer.bytes_mut());
            network.received(buffer, read)
        });
        if !more {
            self.streak = 0;
        }
    }

    fn transmit(&mut self, batch: &mut Batch) {
        let Self { host, network, .. } = self;
        let port = &network.port;
        let outcome = port.transmit(batch, &mut |mut frame| {
            let length = frame.len() as u64;
            if !network.encode(&mut frame) {
                return port.ledger.refused(Errno::NO_BUFFERS);
            }
            match host.write(network.handle, frame.bytes()) {
                Ok(_) => Outcome::sent(length),
                Err(errno) => port.ledger.refused(errno),
            }
        });
        port.ledger.sent(&outcome);
    }

    fn receive_into(&mut self, buffers: Option<Pool>) {
        self.network.buffers.before = buffers;
    }

    fn wait_handle(&self) -> WaitHandle {
        self.network.port.wait_handle()
    }
}
