//! A wire between two devices of one thread.

use super::{Offload, Slots, Wire};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const FRAMES: usize = 1024;
const BYTES: usize = 2048;

/// One end of a wire between two devices.
#[derive(Debug)]
pub struct Pair {
    incoming: Rc<Direction>,
    outgoing: Rc<Direction>,
    /// The frame that was looked at.
    current: Vec<u8>,
    looked: bool,
    plugged: Rc<Cell<bool>>,
}

#[derive(Debug)]
struct Direction(RefCell<Slots>);

/// The two ends of a wire.
pub fn pair() -> (Pair, Pair) {
    let direction = || Rc::new(Direction(RefCell::new(Slots::new(FRAMES, BYTES))));
    let (there, back) = (direction(), direction());
    let plugged = Rc::new(Cell::new(true));
    let end = |incoming: &Rc<Direction>, outgoing: &Rc<Direction>| Pair {
        incoming: incoming.clone(),
        outgoing: outgoing.clone(),
        current: Vec::with_capacity(BYTES),
        looked: false,
        plugged: plugged.clone(),
    };
    (end(&back, &there), end(&there, &back))
}

impl Pair {
    /// Pulls the plug, or puts it in again, at both ends.
    pub fn plug(&self, plugged: bool) {
        self.plugged.set(plugged);
    }

    /// Takes the next frame that came in, to look at it without a device.
    pub fn receive(&mut self) -> Option<Vec<u8>> {
        let frame = self.peek()?.0.to_vec();
        self.take();
        Some(frame)
    }
}

impl Wire for Pair {
    fn is_up(&mut self) -> bool {
        self.plugged.get()
    }

    fn peek(&mut self) -> Option<(&[u8], Offload)> {
        if !self.looked {
            let mut slots = self.incoming.0.borrow_mut();
            let frame = slots.first()?;
            self.current.clear();
            self.current.extend_from_slice(frame);
            slots.pop();
            self.looked = true;
        }
        Some((&self.current, Offload::default()))
    }

    fn take(&mut self) {
        self.looked = false;
    }

    fn can_send(&mut self) -> bool {
        self.outgoing.0.borrow().can_send()
    }

    fn send(&mut self, frame: &[u8], _: Offload) {
        self.outgoing.0.borrow_mut().push(frame);
    }
}
