use super::*;
use std::string::{String, ToString};
use std::vec::Vec;

/// Ethernet and an IPv4 header with this protocol and payload.
fn frame(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut ip = [0; 20];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
    ip[8] = 64;
    ip[9] = protocol;
    ip[12..16].copy_from_slice(&[10, 0, 0, 1]);
    ip[16..20].copy_from_slice(&[10, 0, 0, 2]);
    let sum: u32 = ip
        .chunks(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    ip[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    let mut frame = [[2; 6], [4; 6]].concat();
    frame.extend([8, 0]);
    frame.extend(ip);
    frame.extend(payload);
    frame
}

fn line(prefix: &str, frame: &[u8], suppressed: u64) -> String {
    let key = Key::parse(frame).unwrap();
    Line {
        suppressed,
        prefix,
        rule: 3,
        from: "private",
        to: "public",
        key: &key,
        bytes: frame.len(),
    }
    .to_string()
}

#[test]
fn a_frame_becomes_words() {
    let udp = [0x03, 0xe7, 0x00, 0x35, 0, 8, 0, 0];
    assert_eq!(
        line("dns: ", &frame(protocol::UDP, &udp), 0),
        "log prefix=\"dns: \" rule=3 in=private out=public ether=0x0800 src=10.0.0.1 \
         dst=10.0.0.2 proto=udp sport=999 dport=53 len=42"
    );
    assert_eq!(
        line("", &frame(protocol::ICMP, &[8, 0, 0, 0, 0, 0, 0, 0]), 7),
        "log suppressed=7 prefix=\"\" rule=3 in=private out=public ether=0x0800 src=10.0.0.1 \
         dst=10.0.0.2 proto=icmp type=8 code=0 len=42"
    );
    let mut arp = frame(0, &[]);
    arp[12..22].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    arp.resize(60, 0);
    assert_eq!(
        line("x", &arp, 0),
        "log prefix=\"x\" rule=3 in=private out=public ether=0x0806 src=04:04:04:04:04:04 \
         dst=02:02:02:02:02:02 len=60"
    );
}

#[test]
fn no_prefix_can_end_its_quotation_or_the_line() {
    let frame = frame(47, &[0; 4]);
    for prefix in [
        "\" rule=9 x=\"",
        "a\nlog prefix=\"b\"",
        "\\",
        "\u{1b}[2J",
        "\u{202e}é",
    ] {
        let line = line(prefix, &frame, 0);
        assert!(
            line.is_ascii() && !line.contains(|c: char| c.is_control()),
            "{line}"
        );
        let quoted = line.strip_prefix("log prefix=\"").unwrap();
        let mut escaped = false;
        let end = quoted.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        let rest = &quoted[end.unwrap()..];
        assert!(rest.starts_with("\" rule=3 in=private"), "{line}");
    }
}
