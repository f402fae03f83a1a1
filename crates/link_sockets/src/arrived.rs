//! What has come and was not taken.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::{Buf, Bytes};
use core::net::{IpAddr, SocketAddr};

/// Bytes of memory that a piece has at least: small messages share one.
const PIECE_MIN: usize = 512;

/// Bytes of a connection, in their order.
#[derive(Default)]
pub struct Stream {
    /// The front one was begun to be read.
    front: Bytes,
    pieces: VecDeque<Vec<u8>>,
}

impl Stream {
    /// Puts bytes at the end.
    pub fn push(&mut self, bytes: &[u8]) {
        match self.pieces.back_mut() {
            Some(last) if last.capacity() - last.len() >= bytes.len() => {
                last.extend_from_slice(bytes);
            }
            _ => {
                let mut piece = Vec::with_capacity(bytes.len().max(PIECE_MIN));
                piece.extend_from_slice(bytes);
                self.pieces.push_back(piece);
            }
        }
    }

    /// The bytes at the front, if there are any.
    pub fn pop(&mut self) -> Option<Bytes> {
        match self.front.is_empty() {
            false => Some(core::mem::take(&mut self.front)),
            true => self.pieces.pop_front().map(Bytes::from),
        }
    }

    /// Copies bytes out; how many.
    pub fn read(&mut self, place: &mut [u8]) -> usize {
        let mut done = 0;
        while done < place.len()
            && let Some(mut bytes) = self.pop()
        {
            let count = bytes.len().min(place.len() - done);
            bytes.copy_to_slice(&mut place[done..done + count]);
            self.front = bytes;
            done += count;
        }
        done
    }
}

/// A datagram.
pub struct Datagram {
    /// The other one: who has sent it, or who is to get it.
    pub remote: SocketAddr,
    /// Our address.
    pub local: IpAddr,
    /// The datagram.
    pub bytes: Bytes,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_in_order_and_small_ones_share_a_piece() {
        let mut stream = Stream::default();
        assert!(stream.pop().is_none());
        (0..=255_u8).for_each(|byte| stream.push(&[byte]));
        assert_eq!(stream.pieces.len(), 1);
        stream.push(&[7; 1000]);
        let mut place = [0; 10];
        assert_eq!(stream.read(&mut place), 10);
        assert_eq!(place, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(stream.pop().map(|bytes| bytes.len()), Some(246));
        assert_eq!(stream.read(&mut [0; 2000]), 1000);
        assert_eq!(stream.read(&mut place), 0);
    }
}
