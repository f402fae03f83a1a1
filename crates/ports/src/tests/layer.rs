//! A layer around a port is a port.

use super::{frame, received, send};
use crate::puppet::Setup;
use alloc::boxed::Box;
use device::{Batch, Frame, Netif, Offloads, WaitHandle};

/// Counts frames on their way to another port, and drops every short one that comes in.
struct Layer {
    inner: Box<dyn Netif>,
    frames: usize,
}

impl Netif for Layer {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn mac(&self) -> [u8; 6] {
        self.inner.mac()
    }

    fn mtu(&self) -> usize {
        self.inner.mtu()
    }

    fn offloads(&self) -> Offloads {
        self.inner.offloads()
    }

    fn alloc(&mut self, len: usize) -> Option<Frame> {
        self.inner.alloc(len)
    }

    fn receive(&mut self, batch: &mut Batch) {
        self.inner.receive(batch);
        batch.retain(|frame| frame.len() >= 60);
        self.frames += batch.len();
    }

    fn transmit(&mut self, batch: &mut Batch) {
        self.frames += batch.len();
        self.inner.transmit(batch);
    }

    fn wait_handle(&self) -> WaitHandle {
        self.inner.wait_handle()
    }
}

#[test]
fn layers_wrap_ports_and_layers() {
    let scene = Setup::network(1500, 0).start();
    let inner = scene.runtime.network("net").unwrap();
    let inner = Box::new(Layer { inner, frames: 0 });
    let mut outer = Layer { inner, frames: 0 };
    let reads = [Ok(frame(60)), Ok(frame(20)), Ok(frame(70))];
    scene.host.reads.borrow_mut().extend(reads);
    let found: [_; 3] = core::array::from_fn(|_| received(&mut outer).len());
    assert_eq!(found, [1, 0, 1]);
    send(&mut outer, &[80, 90]);
    assert_eq!(outer.frames, 4);
    assert_eq!(scene.host.written.borrow().len(), 2);
    assert_eq!(outer.wait_handle(), WaitHandle(1));
}
