//! The way of a hostile frame: its virtio-net header, its key, the verdict, and what was left to
//! be done to it, in memory. Input: the header of 12 bytes, then the frame.

use device::virtio;
use nf::{Key, L4, Malformed};
use std::sync::LazyLock;

static RULES: LazyLock<nf::RuleSet> = LazyLock::new(|| {
    let text = include_str!("../../../../unikernels/firewall/rules/default.nft");
    nf::load(text, &["private", "public"], &nf::nft::Limits::DEFAULT).expect("they are rules")
});

pub fn feed(input: &[u8]) {
    let Some((header, frame)) = input.split_first_chunk() else {
        return;
    };
    match Key::parse(frame) {
        Ok(key) => {
            let way = nf::Way { from: 0, to: 1 };
            assert!(RULES.verdict(&key, way, &mut ()).1 <= RULES.len());
        }
        Err(reason) => assert!(Malformed::ALL.contains(&reason)),
    }
    let Ok(offload) = virtio::parse(header, frame) else {
        return;
    };
    assert_eq!(virtio::parse(&virtio::emit(offload), frame), Ok(offload));

    // What was decided on must be what is sent.
    let decided = Key::parse(frame);
    if let Some(gso) = offload.gso {
        cut(frame, gso, decided);
    }
    let mut completed = frame.to_vec();
    offload.complete_checksum(&mut completed);
    assert_eq!(Key::parse(&completed), decided);
}

/// Each segment of a frame with a key has the same key, but for flags that only one of them keeps.
fn cut(frame: &[u8], gso: device::Gso, decided: Result<Key, Malformed>) {
    let mut segmenter = device::segments(frame, gso).expect("the header was checked");
    let mut out = vec![0; gso.segment_bytes()];
    let mut bytes = 0;
    while let Some(len) = segmenter.next(&mut out) {
        bytes += len - usize::from(gso.header);
        if let Ok(decided) = decided {
            let key = Key::parse(&out[..len]).expect("a segment is as whole as its frame");
            let (fields, decided) = (key.fields(), decided.fields());
            assert_eq!(
                (fields.addresses, fields.fragment),
                (decided.addresses, decided.fragment)
            );
            assert_eq!(ports(fields.l4), ports(decided.l4));
        }
    }
    assert_eq!(
        bytes,
        frame.len() - usize::from(gso.header),
        "no payload is lost"
    );
}

fn ports(l4: Option<L4>) -> Option<(u16, u16)> {
    match l4 {
        Some(L4::Tcp {
            source,
            destination,
            ..
        }) => Some((source, destination)),
        _ => None,
    }
}
