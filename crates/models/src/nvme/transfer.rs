//! Where the data of a command lie: physical region pages (Base 2.0, 4.1.1).

use super::status::{Failure, Status};
use crate::dma::Dma;

/// Bytes of a page: CC.MPS is 0.
pub(crate) const PAGE: u64 = 4096;
/// Bytes of an entry of a list.
const ENTRY: u64 = 8;

/// A piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) iova: u64,
    pub(crate) bytes: usize,
}

fn offset(entry: u64) -> u64 {
    entry % PAGE
}

/// Adds a piece; those that follow one another are one.
fn add(pieces: &mut Vec<Piece>, iova: u64, bytes: u64) {
    let bytes = bytes as usize;
    match pieces.last_mut() {
        Some(last) if last.iova.wrapping_add(last.bytes as u64) == iova => last.bytes += bytes,
        _ => pieces.push(Piece { iova, bytes }),
    }
}

/// The pieces of `bytes` bytes that both entries of a command lead to.
pub(crate) fn walk(
    [first, second]: [u64; 2],
    bytes: u64,
    dma: &dyn Dma,
    pieces: &mut Vec<Piece>,
) -> Result<(), Failure> {
    pieces.clear();
    if !first.is_multiple_of(4) {
        let rule = "PRP1 must begin at a multiple of four (4.1.1)";
        return Err(Failure::Rule(Status::PRP_OFFSET, rule));
    }
    let here = bytes.min(PAGE - offset(first));
    add(pieces, first, here);
    let left = bytes - here;
    if left > PAGE {
        return walk_list(second, left, dma, pieces);
    }
    if left > 0 {
        whole(second)?;
        add(pieces, second, left);
    }
    Ok(())
}

/// All entries but the first are whole pages.
fn whole(entry: u64) -> Result<(), Failure> {
    let rule = "PRP entries behind the first must have no offset (4.1.1)";
    match offset(entry) {
        0 => Ok(()),
        _ => Err(Failure::Rule(Status::PRP_OFFSET, rule)),
    }
}

/// Follows a list, whose last entry in a page leads to the next page of it if there is more.
fn walk_list(
    mut list: u64,
    mut left: u64,
    dma: &dyn Dma,
    pieces: &mut Vec<Piece>,
) -> Result<(), Failure> {
    if !list.is_multiple_of(ENTRY) {
        let rule = "a PRP list must begin at a multiple of eight (4.1.1)";
        return Err(Failure::Rule(Status::PRP_OFFSET, rule));
    }
    // Each turn takes a page of data, or leads to a list in which there are some.
    while left > 0 {
        let entry = dma.load(list)?;
        let is_last_here = offset(list) == PAGE - ENTRY;
        whole(entry)?;
        if is_last_here && left > PAGE {
            list = entry;
            continue;
        }
        let here = left.min(PAGE);
        add(pieces, entry, here);
        left -= here;
        list = list.wrapping_add(ENTRY);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hw::sim::arena;

    const AT: u64 = 0x10_0000;

    fn pieces(entries: [u64; 2], bytes: u64, dma: &dyn Dma) -> Result<Vec<(u64, usize)>, u16> {
        let mut pieces = vec![];
        match walk(entries, bytes, dma, &mut pieces) {
            Ok(()) => Ok(pieces
                .iter()
                .map(|piece| (piece.iova, piece.bytes))
                .collect()),
            Err(failure) => Err(failure.status().0),
        }
    }

    #[test]
    fn two_entries_are_two_pages() {
        let (_arena, memory) = arena(4096, AT);
        assert_eq!(pieces([0x1004, 0], 8, &memory), Ok(vec![(0x1004, 8)]));
        let expected = vec![(0x1004, 4092), (0x9000, 4096)];
        assert_eq!(pieces([0x1004, 0x9000], 8188, &memory), Ok(expected));
        assert_eq!(
            pieces([0x1000, 0x2000], 8192, &memory),
            Ok(vec![(0x1000, 8192)])
        );
        for bad in [[0x1002, 0], [0x1004, 0x9004]] {
            assert_eq!(pieces(bad, 8188, &memory), Err(0x13));
        }
    }

    #[test]
    fn a_list_goes_on_in_the_next_page_where_its_own_ends() {
        let (_arena, memory) = arena(3 * 4096, AT);
        // Three entries are left in the first page: two pages, and where the rest is.
        let list = AT + PAGE - 24;
        for (at, entry) in [(0, 0x5000), (8, 0x7000), (16, AT + 2 * PAGE)] {
            memory.store(list + at, entry).unwrap();
        }
        memory.store(AT + 2 * PAGE, 0xb000).unwrap();
        memory.store(AT + 2 * PAGE + 8, 0xd000).unwrap();
        let expected = [0x1000, 0x5000, 0x7000, 0xb000, 0xd000].map(|at| (at, 4096));
        assert_eq!(
            pieces([0x1000, list], 5 * PAGE, &memory),
            Ok(expected.to_vec())
        );
        // Exactly as many as there are entries: the last one is data.
        memory.store(list + 16, 0x9000).unwrap();
        let expected = [0x1000, 0x5000, 0x7000, 0x9000].map(|at| (at, 4096));
        assert_eq!(
            pieces([0x1000, list], 4 * PAGE, &memory),
            Ok(expected.to_vec())
        );
        assert_eq!(pieces([0x1000, list + 4], 4 * PAGE, &memory), Err(0x13));
        assert_eq!(pieces([0x1000, 0x10], 4 * PAGE, &memory), Err(0x04));
    }

    #[test]
    fn a_list_that_leads_to_itself_ends() {
        let (_arena, memory) = arena(4096, AT);
        for at in (0..4096).step_by(8) {
            memory.store(AT + at, AT).unwrap();
        }
        assert!(pieces([0x1000, AT], 4 << 20, &memory).is_ok());
        assert!(pieces([0x1000, AT + PAGE - 8], 4 << 20, &memory).is_ok());
    }
}
