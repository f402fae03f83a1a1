//! A program for XDP that sends frames back: UDP over IPv4 with addresses and ports exchanged.
//! What else comes goes to the kernel as ever. Exchanging words leaves checksums as they are.
//!
//! It is assembled here (RFC 9669, BPF Instruction Set Architecture) and put into the least object
//! file that `ip link set dev CARD xdp object FILE` takes (System V ABI, ELF).

/// A register.
type Register = u8;
const R0: Register = 0;
const R1: Register = 1;
const R2: Register = 2;
const R3: Register = 3;
const R4: Register = 4;
const R5: Register = 5;

/// `XDP_PASS` and `XDP_TX` of linux/bpf.h.
const PASS: i32 = 2;
const TX: i32 = 3;

/// Where what lies in a frame: Ethernet without a tag, IPv4 without options, UDP.
const DESTINATION: i16 = 0;
const SOURCE: i16 = 6;
const ETHER_TYPE: i16 = 12;
const IP_VERSION: i16 = 14;
const IP_PROTOCOL: i16 = 23;
const IP_SOURCE: i16 = 26;
const IP_DESTINATION: i16 = 30;
const UDP_SOURCE: i16 = 34;
const UDP_DESTINATION: i16 = 36;
const HEADERS_BYTES: i32 = 42;

/// Sizes of an access (RFC 9669, 5).
const WORD: u8 = 0x00;
const HALF: u8 = 0x08;
const BYTE: u8 = 0x10;

fn instruction(code: u8, to: Register, from: Register, offset: i16, value: i32) -> [u8; 8] {
    let [o0, o1] = offset.to_le_bytes();
    let [v0, v1, v2, v3] = value.to_le_bytes();
    [code, from << 4 | to, o0, o1, v0, v1, v2, v3]
}

/// `to = *(size *)(from + offset)`.
fn load(size: u8, to: Register, from: Register, offset: i16) -> [u8; 8] {
    instruction(0x61 | size, to, from, offset, 0)
}

/// `*(size *)(to + offset) = from`.
fn store(size: u8, to: Register, from: Register, offset: i16) -> [u8; 8] {
    instruction(0x63 | size, to, from, offset, 0)
}

/// `to = value`, 64 bits.
fn set(to: Register, value: i32) -> [u8; 8] {
    instruction(0xb7, to, 0, 0, value)
}

/// The instructions.
fn program() -> Vec<u8> {
    let mut text = vec![
        // The frame's begin and end, of `struct xdp_md`.
        load(WORD, R2, R1, 0),
        load(WORD, R3, R1, 4),
        // r4 = r2 + HEADERS_BYTES
        instruction(0xbf, R4, R2, 0, 0),
        instruction(0x07, R4, 0, 0, HEADERS_BYTES),
    ];
    // Jumps to the end, whose distance is known when all is there.
    let mut jumps = Vec::new();
    let mut unless = |text: &mut Vec<[u8; 8]>, code: u8, to, from, value| {
        jumps.push(text.len());
        text.push(instruction(code, to, from, 0, value));
    };
    // if r4 > r3
    unless(&mut text, 0x2d, R4, R3, 0);
    // if r5 != value
    for (size, offset, value) in [
        (HALF, ETHER_TYPE, 0x0008),
        (BYTE, IP_VERSION, 0x45),
        (BYTE, IP_PROTOCOL, 17),
    ] {
        text.push(load(size, R5, R2, offset));
        unless(&mut text, 0x55, R5, 0, value);
    }
    let pairs = [
        (WORD, DESTINATION, SOURCE),
        (HALF, DESTINATION + 4, SOURCE + 4),
        (WORD, IP_SOURCE, IP_DESTINATION),
        (HALF, UDP_SOURCE, UDP_DESTINATION),
    ];
    for (size, one, other) in pairs {
        text.extend([
            load(size, R4, R2, one),
            load(size, R5, R2, other),
            store(size, R2, R5, one),
            store(size, R2, R4, other),
        ]);
    }
    const EXIT: [u8; 8] = [0x95, 0, 0, 0, 0, 0, 0, 0];
    text.extend([set(R0, TX), EXIT]);
    for jump in jumps {
        let distance = (text.len() - jump - 1) as i16;
        text[jump][2..4].copy_from_slice(&distance.to_le_bytes());
    }
    text.extend([set(R0, PASS), EXIT]);
    text.concat()
}

/// A section of the object file.
struct Section {
    name: &'static str,
    kind: u32,
    flags: u64,
    link: u32,
    info: u32,
    align: u64,
    entry_bytes: u64,
    data: Vec<u8>,
}

const HEADER_BYTES: usize = 64;
const SECTION_BYTES: u16 = 64;
const SYMBOL_BYTES: u64 = 24;

impl Section {
    const PROGBITS: u32 = 1;
    const SYMTAB: u32 = 2;
    const STRTAB: u32 = 3;
    const ALLOC: u64 = 2;
    const EXECINSTR: u64 = 4;

    fn new(name: &'static str, kind: u32, flags: u64, align: u64, data: Vec<u8>) -> Self {
        Self {
            name,
            kind,
            flags,
            link: 0,
            info: 0,
            align,
            entry_bytes: 0,
            data,
        }
    }

    /// Its header, where its name and its data lie there.
    fn header(&self, name: u32, offset: u64) -> Vec<u8> {
        let mut header = name.to_le_bytes().to_vec();
        header.extend(self.kind.to_le_bytes());
        for long in [self.flags, 0, offset, self.data.len() as u64] {
            header.extend(long.to_le_bytes());
        }
        header.extend(self.link.to_le_bytes());
        header.extend(self.info.to_le_bytes());
        header.extend(self.align.to_le_bytes());
        header.extend(self.entry_bytes.to_le_bytes());
        header
    }
}

/// The sections, the last of which has their names.
fn sections() -> [Section; 5] {
    let text = program();
    // None, and a global function: the first name, in the first section.
    let mut symbols = vec![0; SYMBOL_BYTES as usize];
    symbols.extend(1_u32.to_le_bytes());
    symbols.extend([0x12, 0, 1, 0]);
    symbols.extend(0_u64.to_le_bytes());
    symbols.extend((text.len() as u64).to_le_bytes());
    let flags = Section::ALLOC | Section::EXECINSTR;
    let licence = b"Dual MIT/GPL\0".to_vec();
    [
        Section::new("xdp", Section::PROGBITS, flags, 8, text),
        Section::new("license", Section::PROGBITS, Section::ALLOC, 1, licence),
        Section {
            link: 4,
            info: 1,
            entry_bytes: SYMBOL_BYTES,
            ..Section::new(".symtab", Section::SYMTAB, 0, 8, symbols)
        },
        Section::new(".strtab", Section::STRTAB, 0, 1, b"\0reflect\0".to_vec()),
        Section::new(".shstrtab", Section::STRTAB, 0, 1, Vec::new()),
    ]
}

/// The object file.
pub fn object() -> Vec<u8> {
    let mut sections = sections();
    let mut names = vec![0];
    let mut starts = Vec::new();
    for section in &sections {
        starts.push(names.len() as u32);
        names.extend(section.name.bytes().chain([0]));
    }
    if let Some(last) = sections.last_mut() {
        last.data = names;
    }
    let mut data: Vec<u8> = Vec::new();
    let mut headers = vec![0; usize::from(SECTION_BYTES)];
    for (section, name) in sections.iter().zip(starts) {
        let offset = (HEADER_BYTES + data.len()) as u64;
        headers.extend(section.header(name, offset));
        data.extend_from_slice(&section.data);
        data.resize(data.len().next_multiple_of(8), 0);
    }
    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1];
    file.resize(16, 0);
    // Relocatable, of machine EM_BPF, version 1.
    for half in [1_u16, 247] {
        file.extend(half.to_le_bytes());
    }
    file.extend(1_u32.to_le_bytes());
    for long in [0, 0, (HEADER_BYTES + data.len()) as u64] {
        file.extend(long.to_le_bytes());
    }
    file.extend(0_u32.to_le_bytes());
    let count = sections.len() as u16;
    for half in [HEADER_BYTES as u16, 0, 0, SECTION_BYTES, count + 1, count] {
        file.extend(half.to_le_bytes());
    }
    file.extend(data);
    file.extend(headers);
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All jumps lead to the end that passes a frame on.
    #[test]
    fn jumps_lead_to_the_end() {
        let text = program();
        let instructions: Vec<&[u8]> = text.chunks(8).collect();
        let pass = instructions.len() - 2;
        let jumps = instructions.iter().enumerate();
        let targets: Vec<usize> = jumps
            .filter(|(_, instruction)| [0x2d, 0x55].contains(&instruction[0]))
            .map(|(at, jump)| at + 1 + usize::from(u16::from_le_bytes([jump[2], jump[3]])))
            .collect();
        assert_eq!(targets, [pass; 4]);
        assert_eq!(instructions[pass][..], set(R0, PASS));
    }

    #[test]
    fn the_object_names_its_sections() {
        let file = object();
        let word = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap());
        let (headers, count) = (word(40) as usize, usize::from(file[60]));
        assert_eq!(file.len(), headers + 64 * count);
        let names = word(headers + 64 * usize::from(file[62]) + 24) as usize;
        let text = &file[names..];
        let first = u32::from_le_bytes(file[headers + 64..headers + 68].try_into().unwrap());
        assert!(text[first as usize..].starts_with(b"xdp\0"));
        assert_eq!(word(headers + 64 + 24) as usize, 64);
    }
}
