//! Transfer request blocks (xHCI 1.2, 6.4): 16 bytes for a command, for a part of a transfer, or
//! for an event.

/// A block, as two 64-bit words.
pub type Trb = [u64; 2];

/// Bits of the second word: the cycle, which says whose the block is; the ring begins anew behind
/// it; an event if it is short; another block of the same transfer follows; an event in the end;
/// the data are the first word.
pub const CYCLE: u64 = 1 << 32;
pub const TOGGLE: u64 = 1 << 33;
pub const ON_SHORT: u64 = 1 << 34;
pub const CHAIN: u64 = 1 << 36;
pub const ON_END: u64 = 1 << 37;
pub const IMMEDIATE: u64 = 1 << 38;
/// Data and status stages: to the host.
const IN: u64 = 1 << 48;
/// Setup stages: data go to the device, or come from it.
const SETUP_OUT: u64 = 2 << 48;
const SETUP_IN: u64 = 3 << 48;

/// Bytes of one block's data, at most, and the boundary that they do not cross (6.4.1).
pub const BYTES_MAX: u64 = 64 << 10;

const fn kind(kind: u64) -> u64 {
    kind << 42
}

const fn slot(slot: u8) -> u64 {
    (slot as u64) << 56
}

const fn endpoint(endpoint: u8) -> u64 {
    (endpoint as u64) << 48
}

/// A part of a bulk transfer; `left` packets follow in other parts.
#[inline]
pub const fn normal(address: u64, bytes: u32, left: u64, bits: u64) -> Trb {
    let left = if left > 31 { 31 } else { left };
    [address, bytes as u64 | left << 17 | kind(1) | bits]
}

/// The setup stage of a control transfer (USB 2.0, 9.3), whose data stage is like this.
pub fn setup(request: [u8; 8], data: Option<bool>) -> Trb {
    let data = match data {
        None => 0,
        Some(true) => SETUP_IN,
        Some(false) => SETUP_OUT,
    };
    [u64::from_le_bytes(request), 8 | kind(2) | IMMEDIATE | data]
}

/// The data stage, to the host.
pub fn data(address: u64, bytes: u16) -> Trb {
    [address, u64::from(bytes) | kind(3) | ON_SHORT | IN]
}

/// The status stage; it goes the other way than data.
pub fn status(has_data: bool) -> Trb {
    let way = if has_data { 0 } else { IN };
    [0, kind(4) | ON_END | way]
}

/// The end of a ring, which begins again at this address.
pub const fn link(address: u64) -> Trb {
    [address, kind(6) | TOGGLE]
}

/// Commands (6.4.3).
pub const fn enable_slot(slot_type: u8) -> Trb {
    [0, kind(9) | endpoint(slot_type)]
}

pub const fn disable_slot(number: u8) -> Trb {
    [0, kind(10) | slot(number)]
}

pub const fn address_device(input: u64, number: u8) -> Trb {
    [input, kind(11) | slot(number)]
}

pub const fn configure_endpoint(input: u64, number: u8) -> Trb {
    [input, kind(12) | slot(number)]
}

pub const fn evaluate_context(input: u64, number: u8) -> Trb {
    [input, kind(13) | slot(number)]
}

pub const fn reset_endpoint(number: u8, which: u8) -> Trb {
    [0, kind(14) | endpoint(which) | slot(number)]
}

pub const fn set_dequeue(number: u8, which: u8, place: u64) -> Trb {
    [place, kind(16) | endpoint(which) | slot(number)]
}

/// Kinds of events (6.4.2).
pub const EVENT_TRANSFER: u8 = 32;
pub const EVENT_COMMAND: u8 = 33;
pub const EVENT_PORT: u8 = 34;
pub const EVENT_HOST: u8 = 37;
/// The last kind of event; the first is a transfer.
pub const EVENT_LAST: u8 = 39;

/// Completion codes (6.4.5).
pub const SUCCESS: u8 = 1;
pub const STALL: u8 = 6;
pub const SHORT_PACKET: u8 = 13;

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub kind: u8,
    /// The block that it is about.
    pub pointer: u64,
    pub code: u8,
    /// Bytes of that block that were not moved.
    pub residue: u32,
    pub slot: u8,
    pub endpoint: u8,
}

impl Event {
    /// Of its words.
    #[inline]
    pub fn of([first, second]: Trb) -> Self {
        Self {
            kind: (second >> 42) as u8 & 0x3f,
            pointer: first,
            code: (second >> 24) as u8,
            residue: second as u32 & 0xff_ffff,
            slot: (second >> 56) as u8,
            endpoint: (second >> 48) as u8 & 0x1f,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_those_of_the_specification() {
        let request = [0x80, 6, 0, 1, 0, 0, 18, 0];
        let [first, second] = setup(request, Some(true));
        assert_eq!(first.to_le_bytes(), request);
        assert_eq!(
            (second as u32, second >> 32),
            (8, 3 << 16 | 2 << 10 | 1 << 6)
        );
        let [_, second] = data(0x1000, 18);
        assert_eq!(
            (second as u32, second >> 32),
            (18, 1 << 16 | 3 << 10 | 1 << 2)
        );
        assert_eq!(status(true)[1] >> 32, 4 << 10 | 1 << 5);
        assert_eq!(status(false)[1] >> 32, 1 << 16 | 4 << 10 | 1 << 5);
        let [_, second] = normal(0, 512, 40, ON_END);
        assert_eq!(
            (second as u32, second >> 32),
            (31 << 17 | 512, 1 << 10 | 1 << 5)
        );
        assert_eq!(
            set_dequeue(3, 4, 0x1001)[1] >> 32,
            3 << 24 | 4 << 16 | 16 << 10
        );
    }

    #[test]
    fn an_event_has_its_fields_where_the_specification_has_them() {
        let words = [
            0x1230,
            13 << 24 | 0x54_3210 | (3 << 24 | 4 << 16 | 32 << 10 | 1) << 32,
        ];
        let event = Event {
            kind: EVENT_TRANSFER,
            pointer: 0x1230,
            code: SHORT_PACKET,
            residue: 0x54_3210,
            slot: 3,
            endpoint: 4,
        };
        assert_eq!(Event::of(words), event);
    }
}
