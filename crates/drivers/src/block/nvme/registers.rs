//! Registers ("properties", Base 2.0 section 3.1.3), their bits, and doorbells (PCIe Transport 1.0,
//! 3.1.2). Those of 64 bits are two halves.

use hw::Register;

/// Controller Capabilities, low and high.
pub const CAP: [Register; 2] = [
    Register::new("CAP", 0x00, "3.1.3.1"),
    Register::new("CAP", 0x04, "3.1.3.1"),
];
/// Controller Configuration.
pub const CC: Register = Register::new("CC", 0x14, "3.1.3.5");
/// Controller Status.
pub const CSTS: Register = Register::new("CSTS", 0x1c, "3.1.3.6");
/// Admin Queue Attributes.
pub const AQA: Register = Register::new("AQA", 0x24, "3.1.3.8");
/// Admin Submission Queue Base Address, low and high.
pub const ASQ: [Register; 2] = [
    Register::new("ASQ", 0x28, "3.1.3.9"),
    Register::new("ASQ", 0x2c, "3.1.3.9"),
];
/// Admin Completion Queue Base Address, low and high.
pub const ACQ: [Register; 2] = [
    Register::new("ACQ", 0x30, "3.1.3.10"),
    Register::new("ACQ", 0x34, "3.1.3.10"),
];
/// Where doorbells begin: of each queue its submission tail, then its completion head.
pub const DOORBELLS: Register = Register::new("SQ0TDBL", 0x1000, "3.1.2.1");

/// What a register reads where there is no device.
pub const ALL_ONES: u32 = u32::MAX;

/// CAP.MQES: entries of a queue, less one.
pub const CAP_ENTRIES: u64 = 0xffff;
/// CAP.TO: how long the controller takes to become ready, in half seconds.
pub const CAP_TIMEOUT_SHIFT: u32 = 24;
/// CAP.DSTRD: distance of doorbells, as a power of two of 4 bytes.
pub const CAP_STRIDE_SHIFT: u32 = 32;
/// CAP.CSS, bit 0: the NVM Command Set.
pub const CAP_NVM: u64 = 1 << 37;
/// CAP.MPSMIN: smallest page, as a power of two of 4 KiB.
pub const CAP_PAGE_SHIFT: u32 = 48;

/// CC.EN.
pub const CC_ENABLE: u32 = 1 << 0;
/// CC as the driver sets it up, but for EN: the NVM Command Set (CSS 0), pages of 4 KiB (MPS 0),
/// round robin (AMS 0), entries of 2^6 and 2^4 bytes (IOSQES, IOCQES).
pub const CC_SETUP: u32 = 6 << 16 | 4 << 20;
/// All of these, and CC.SHN: what the driver leaves as it set it.
pub const CC_DRIVEN: u32 = 0xff_fff1;
/// CC.SHN: normal shutdown.
pub const CC_SHUTDOWN: u32 = 1 << 14;

/// CSTS.RDY.
pub const CSTS_READY: u32 = 1 << 0;
/// CSTS.CFS: the controller cannot go on.
pub const CSTS_FATAL: u32 = 1 << 1;

/// AQA.ACQS, entries of the completion queue, less one; ASQS lies at bit 0.
pub const AQA_COMPLETIONS_SHIFT: u32 = 16;
