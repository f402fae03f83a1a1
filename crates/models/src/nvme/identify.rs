//! What the controller says of itself (Base 2.0, 5.17.2; NVM Command Set 1.0, 4.1.5).

use super::Nvme;
use super::nvm::SECTORS_LIMIT_SHIFT;

/// Bytes of each structure.
pub(crate) const BYTES: usize = 4096;
/// The only namespace.
pub(crate) const NAMESPACE: u32 = 1;
/// What is not a number of a namespace, but stands for all.
pub(crate) const ALL_NAMESPACES: u32 = u32::MAX;
/// Commands to report events that may wait, less one.
pub(crate) const EVENTS: u8 = 3;
/// Type of a descriptor of a namespace: a UUID, of so many bytes.
const TYPE_UUID: u8 = 3;
const UUID_BYTES: usize = 16;

/// A page that is filled in.
struct Page([u8; BYTES]);

impl Page {
    fn new() -> Self {
        Self([0; BYTES])
    }

    fn put(&mut self, at: usize, bytes: &[u8]) -> &mut Self {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    /// Text, with spaces behind it.
    fn text(&mut self, at: usize, len: usize, text: &str) -> &mut Self {
        let spaces = std::iter::repeat(b' ');
        let bytes = text.bytes().filter(u8::is_ascii_graphic).chain(spaces);
        for (place, byte) in self.0[at..at + len].iter_mut().zip(bytes) {
            *place = byte;
        }
        self
    }
}

impl Nvme {
    /// The controller (figure 275).
    pub(crate) fn identify_controller(&self) -> [u8; BYTES] {
        let identity = super::IDENTITY;
        let mut page = Page::new();
        page.put(0, &identity.vendor.to_le_bytes())
            .put(2, &identity.vendor.to_le_bytes())
            .text(4, 20, self.disk.name())
            .text(24, 40, "Outboard-model")
            .text(64, 8, env!("CARGO_PKG_VERSION"))
            // MDTS.
            .put(77, &[SECTORS_LIMIT_SHIFT])
            // VER, as in VS.
            .put(80, &0x0001_0400u32.to_le_bytes())
            // CNTRLTYPE: it does I/O.
            .put(111, &[1])
            // ACL, AERL: aborts and events at once, less one.
            .put(258, &[3, EVENTS])
            // FRMW: one slot, which can only be read.
            .put(260, &[0b11])
            // WCTEMP, CCTEMP, in kelvins.
            .put(266, &343u16.to_le_bytes())
            .put(268, &373u16.to_le_bytes())
            // SQES, CQES: required and largest.
            .put(512, &[0x66, 0x44])
            // NN.
            .put(516, &NAMESPACE.to_le_bytes())
            // ONCS: Dataset Management, Write Zeroes.
            .put(520, &0b1100u16.to_le_bytes())
            // VWC: there is a cache; a flush of all namespaces is one of this.
            .put(525, &[0b111])
            // The power states begin at 2048: one, of 5 W in hundredths.
            .put(2048, &500u16.to_le_bytes());
        let name = format!(
            "nqn.2014-08.org.nvmexpress:uuid:{}",
            uuid_text(&self.uuid())
        );
        page.put(768, name.as_bytes());
        page.0
    }

    /// The namespace (NVM Command Set 1.0, figure 97), or zeros where there is none.
    pub(crate) fn identify_namespace(&self, number: u32) -> [u8; BYTES] {
        let mut page = Page::new();
        if number != NAMESPACE && number != ALL_NAMESPACES {
            return page.0;
        }
        let blocks = self.blocks().to_le_bytes();
        page.put(0, &blocks)
            .put(8, &blocks)
            .put(16, &blocks)
            // DLFEAT: blocks that were given back read zero, and Write Zeroes may give back.
            .put(33, &[0b1001])
            // NSATTR: whether it is not to be written.
            .put(99, &[self.disk.is_read_only().into()])
            // The only format: no metadata, and LBADS.
            .put(130, &[self.block_shift as u8]);
        page.0
    }

    /// The numbers of active namespaces that are larger (5.17.2.2).
    pub(crate) fn identify_namespaces(&self, behind: u32) -> [u8; BYTES] {
        let mut page = Page::new();
        if behind < NAMESPACE {
            page.put(0, &NAMESPACE.to_le_bytes());
        }
        page.0
    }

    /// What else the namespace is called (5.17.2.3).
    pub(crate) fn identify_descriptors(&self) -> [u8; BYTES] {
        let mut page = Page::new();
        page.put(0, &[TYPE_UUID, UUID_BYTES as u8])
            .put(4, &self.uuid());
        page.0
    }

    /// The same for the same name of a file, and of version 8: one's own (RFC 9562, 5.8).
    fn uuid(&self) -> [u8; UUID_BYTES] {
        // FNV-1a, 64 bits, twice.
        let hash = |seed: u64| {
            let bytes = self.disk.name().bytes();
            bytes.fold(seed, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
            })
        };
        let (first, second) = (hash(0xcbf2_9ce4_8422_2325), hash(0x8422_2325_cbf2_9ce4));
        let mut uuid = [0; UUID_BYTES];
        uuid[..8].copy_from_slice(&first.to_be_bytes());
        uuid[8..].copy_from_slice(&second.to_be_bytes());
        uuid[6] = uuid[6] & 0x0f | 0x80;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        uuid
    }
}

fn uuid_text(uuid: &[u8; UUID_BYTES]) -> String {
    let mut text = String::new();
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text += &format!("{byte:02x}");
    }
    text
}
