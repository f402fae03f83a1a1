//! Registers of the adapter (AHCI 1.3.1, 3.1) and of its ports (3.3), and their bits.

use hw::Register;

/// HBA Capabilities.
pub const CAP: Register = Register::new("CAP", 0x00, "3.1.1");
/// Global HBA Control.
pub const GHC: Register = Register::new("GHC", 0x04, "3.1.2");
/// Ports Implemented, one bit each.
pub const PI: Register = Register::new("PI", 0x0c, "3.1.4");

/// What a register reads where there is no device.
pub const ALL_ONES: u32 = u32::MAX;

/// CAP.NCS: command slots of each port, less one.
pub const CAP_SLOTS_SHIFT: u32 = 8;
/// CAP.SNCQ: native command queuing.
pub const CAP_QUEUES: u32 = 1 << 30;
/// CAP.S64A: addresses of 64 bits.
pub const CAP_WIDE: u32 = 1 << 31;

/// GHC.HR: reset; the adapter clears it when that is over.
pub const GHC_RESET: u32 = 1 << 0;
/// GHC.AE: it is spoken to by these registers, and not as an older one.
pub const GHC_ENABLE: u32 = 1 << 31;

/// Most ports of an adapter.
pub const PORTS_MAX: usize = 32;
/// Where the registers of the first port begin, and bytes of each port's.
pub const PORTS: usize = 0x100;
pub const PORT_BYTES: usize = 0x80;

/// The registers of a port.
#[derive(Clone, Copy, Debug)]
pub struct Port {
    /// Command List Base Address, low and high.
    pub list: [Register; 2],
    /// FIS Base Address, low and high.
    pub received: [Register; 2],
    /// Interrupt Status: bits are cleared by writing them.
    pub interrupts: Register,
    /// Command and Status.
    pub command: Register,
    /// Task File Data: status and error of the disk.
    pub task: Register,
    /// Signature: of what kind the device is.
    pub signature: Register,
    /// Serial ATA Status (SCR0).
    pub link: Register,
    /// Serial ATA Control (SCR2).
    pub control: Register,
    /// Serial ATA Error (SCR1): bits are cleared by writing them.
    pub errors: Register,
    /// Serial ATA Active (SCR3): queued commands that the disk has.
    pub active: Register,
    /// Command Issue: commands that the adapter has.
    pub issue: Register,
}

impl Port {
    /// Of the port of this number.
    pub const fn nth(number: usize) -> Self {
        const fn at(
            number: usize,
            name: &'static str,
            offset: usize,
            section: &'static str,
        ) -> Register {
            Register::new(name, PORTS + offset, section).nth(number, PORT_BYTES)
        }
        Self {
            list: [
                at(number, "PxCLB", 0x00, "3.3.1"),
                at(number, "PxCLBU", 0x04, "3.3.2"),
            ],
            received: [
                at(number, "PxFB", 0x08, "3.3.3"),
                at(number, "PxFBU", 0x0c, "3.3.4"),
            ],
            interrupts: at(number, "PxIS", 0x10, "3.3.5"),
            command: at(number, "PxCMD", 0x18, "3.3.7"),
            task: at(number, "PxTFD", 0x20, "3.3.8"),
            signature: at(number, "PxSIG", 0x24, "3.3.9"),
            link: at(number, "PxSSTS", 0x28, "3.3.10"),
            control: at(number, "PxSCTL", 0x2c, "3.3.11"),
            errors: at(number, "PxSERR", 0x30, "3.3.12"),
            active: at(number, "PxSACT", 0x34, "3.3.13"),
            issue: at(number, "PxCI", 0x38, "3.3.14"),
        }
    }
}

/// PxCMD.ST: commands are carried out.
pub const COMMAND_START: u32 = 1 << 0;
/// PxCMD.SUD and POD: the disk has power, and spins.
pub const COMMAND_SPIN_UP: u32 = 1 << 1 | 1 << 2;
/// PxCMD.FRE: what the disk says is written to memory.
pub const COMMAND_RECEIVE: u32 = 1 << 4;

/// PxIS.PRCS and PCS: the link was lost, or the disk began anew (3.3.5). They stay set until PxSERR
/// is cleared, also once the link is back.
pub const INTERRUPT_LINK: u32 = 1 << 22 | 1 << 6;
/// PxSERR.DIAG.X and N, of which these two are made (3.3.12).
pub const ERRORS_LINK: u32 = 1 << 26 | 1 << 16;
/// PxIS.TFES: the disk said that a command failed.
pub const INTERRUPT_TASK: u32 = 1 << 30;
/// PxIS.HBFS, HBDS, IFS and OFS: the bus, the link or a transfer failed, so that the port stands
/// still (6.1.2 to 6.1.5, 6.1.8).
pub const INTERRUPT_FATAL: u32 = 1 << 29 | 1 << 28 | 1 << 27 | 1 << 24;

/// PxTFD.STS: busy, data are requested, and the last command failed: a device fault, or an error
/// (ACS-2, status field). The port stands still for the second alone.
pub const TASK_BUSY: u32 = 1 << 7;
pub const TASK_REQUEST: u32 = 1 << 3;
pub const TASK_FAILED: u32 = 1 << 5 | 1 << 0;

/// PxSIG of an ATA disk.
pub const SIGNATURE_DISK: u32 = 0x0000_0101;

/// PxSSTS.DET, and that there is a device with which the link works.
pub const LINK_DETECTION: u32 = 0xf;
pub const LINK_UP: u32 = 3;

/// PxSCTL.DET: the link is reset (COMRESET) for as long as it is set. IPM in bits 8 to 11: the link
/// does not sleep.
pub const CONTROL_RESET: u32 = 1;
pub const CONTROL_AWAKE: u32 = 3 << 8;
/// Both. The driver leaves them so that a port which was reset has others (3.3.11).
pub const CONTROL_DRIVEN: u32 = 0xf << 8 | 0xf;
