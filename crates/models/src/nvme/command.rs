//! A command, taken apart (Base 2.0, 3.3.3.1).

/// A submission queue entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    words: [u64; 8],
}

impl Command {
    pub(crate) fn new(words: [u64; 8]) -> Self {
        Self { words }
    }

    /// Dword `number`.
    pub(crate) fn dword(&self, number: usize) -> u32 {
        (self.words[number / 2] >> (32 * (number % 2))) as u32
    }

    /// OPC.
    pub(crate) fn opcode(&self) -> u8 {
        self.dword(0) as u8
    }

    /// FUSE: whether it is one of two that belong together.
    pub(crate) fn is_fused(&self) -> bool {
        self.dword(0) >> 8 & 0b11 != 0
    }

    /// PSDT: whether its data are not described by PRP entries.
    pub(crate) fn has_other_pointers(&self) -> bool {
        self.dword(0) >> 14 & 0b11 != 0
    }

    /// CID.
    pub(crate) fn identifier(&self) -> u16 {
        (self.dword(0) >> 16) as u16
    }

    /// NSID.
    pub(crate) fn namespace(&self) -> u32 {
        self.dword(1)
    }

    /// PRP1, PRP2.
    pub(crate) fn pointers(&self) -> [u64; 2] {
        [self.words[3], self.words[4]]
    }

    /// Dwords 10 and 11 as one number, such as SLBA.
    pub(crate) fn start(&self) -> u64 {
        self.words[5]
    }

    /// Two numbers of 16 bits in a dword: low, high.
    pub(crate) fn halves(&self, number: usize) -> (u16, u16) {
        let dword = self.dword(number);
        (dword as u16, (dword >> 16) as u16)
    }
}
