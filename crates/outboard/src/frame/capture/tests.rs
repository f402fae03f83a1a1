use super::*;

/// Bytes of a pcap file (little-endian, microseconds) with these frames.
fn pcap(link_type: u32, frames: &[&[u8]]) -> Vec<u8> {
    let header = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65535, link_type];
    let mut bytes: Vec<u8> = header.iter().flat_map(|word| word.to_le_bytes()).collect();
    for frame in frames {
        let size = frame.len() as u32;
        bytes.extend(
            [1, 2, size, size]
                .iter()
                .flat_map(|word| word.to_le_bytes()),
        );
        bytes.extend_from_slice(frame);
    }
    bytes
}

/// A block of a pcapng file.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = kind.to_le_bytes().to_vec();
    let padded = body.len().next_multiple_of(4);
    let size = (12 + padded) as u32;
    bytes.extend(size.to_le_bytes());
    bytes.extend_from_slice(body);
    bytes.resize(8 + padded, 0);
    bytes.extend(size.to_le_bytes());
    bytes
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Bytes of a pcapng file: interfaces `lan` and, without a name, a second one; a frame from each,
/// and one in a simple block, which has no interface of its own.
fn pcapng(link_type: u32) -> Vec<u8> {
    let section = block(0x0a0d_0d0a, &words(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX]));
    let name = [
        words(&[link_type, 0, 3 << 16 | 2]),
        b"lan\0".to_vec(),
        words(&[0]),
    ]
    .concat();
    let packet = |interface: u32, frame: &[u8]| {
        let size = frame.len() as u32;
        let body = [words(&[interface, 0, 0, size, size]), frame.to_vec()].concat();
        block(6, &body)
    };
    [
        section,
        block(1, &name),
        block(1, &words(&[link_type, 0])),
        packet(0, b"from the first"),
        block(5, &words(&[0, 0, 0])),
        packet(1, b"from the second"),
        block(3, &[words(&[6]), b"simple".to_vec()].concat()),
    ]
    .concat()
}

fn found(file: &[u8], number: u64) -> Captured {
    find(file, number).unwrap()
}

#[test]
fn packets_are_numbered_from_one() {
    let file = pcap(1, &[b"first", b"second"]);
    assert_eq!(found(&file, 1).bytes, b"first");
    assert_eq!(found(&file, 2).bytes, b"second");
    assert_eq!(found(&file, 2).interface, None);
    for number in [0, 3, u64::MAX] {
        assert!(matches!(find(&*file, number), Err(Error::Packets(2))));
    }
}

#[test]
fn pcapng_says_at_which_interface() {
    let file = pcapng(1);
    let first = found(&file, 1);
    assert_eq!(first.bytes, b"from the first");
    assert_eq!(first.interface.as_deref(), Some("lan"));
    let second = found(&file, 2);
    assert_eq!(second.bytes, b"from the second");
    assert_eq!(second.interface, None);
    assert_eq!(found(&file, 3).bytes, b"simple");
    assert!(matches!(find(&*file, 4), Err(Error::Packets(3))));
}

#[test]
fn what_is_no_frame_is_refused() {
    const COOKED: u32 = 113;
    let refused = |file: &[u8]| find(file, 1).unwrap_err();
    assert!(matches!(
        refused(&pcap(COOKED, &[b"x"])),
        Error::LinkType(113)
    ));
    assert!(matches!(refused(&pcapng(COOKED)), Error::LinkType(113)));
    let long = vec![0; FRAME_BYTES_MAX + 1];
    assert!(matches!(refused(&pcap(1, &[&long])), Error::TooLong(65554)));
    let mut cut = pcap(1, &[b"cut"]);
    cut[24 + 12] = 60;
    assert!(matches!(refused(&cut), Error::Part(3, 60)));
    for file in [&b""[..], b"\n", &[0; 100], &pcap(1, &[])[..20]] {
        assert!(matches!(refused(file), Error::Format), "{file:?}");
    }
}

#[test]
fn every_cut_is_noticed() {
    for whole in [pcap(1, &[b"first", b"second"]), pcapng(1)] {
        for size in 0..whole.len() {
            let error = find(&whole[..size], 99).unwrap_err();
            let expected = match error {
                Error::Format | Error::Damaged(_) => true,
                // A cut between two packets looks like an end.
                Error::Packets(packets) => packets <= 3,
                _ => false,
            };
            assert!(expected, "cut at {size}: {error}");
        }
    }
}

#[test]
fn lengths_that_lie_are_noticed() {
    for whole in [pcap(1, &[b"first", b"second"]), pcapng(1)] {
        for at in (0..whole.len() - 3).step_by(2) {
            for lie in [0, 1, 0x7fff_ffff, u32::MAX, u32::MAX - 3, 1 << 16] {
                let mut file = whole.clone();
                file[at..at + 4].copy_from_slice(&u32::to_le_bytes(lie));
                // Whatever it says, it ends, and does not take what is not there for a frame.
                if let Ok(found) = find(&*file, 2) {
                    assert!(found.bytes.len() <= whole.len(), "{lie:#x} at {at}");
                }
            }
        }
    }
}

#[test]
fn a_block_without_end_is_given_up() {
    let section = pcapng(1);
    let endless = block(6, &[])[..4].to_vec();
    let claims = (1_u32 << 30).to_le_bytes();
    let file = section
        .chain(&*endless)
        .chain(&claims[..])
        .chain(io::repeat(0));
    let file = file.take(1 << 31);
    assert!(matches!(find(file, 99), Err(Error::Block(3))));
}

#[test]
fn interfaces_are_bounded() {
    let mut file = pcapng(1);
    for _ in 0..INTERFACES_MAX {
        file.extend(block(1, &words(&[1, 0])));
    }
    assert!(matches!(find(&*file, 99), Err(Error::Interfaces)));
}
