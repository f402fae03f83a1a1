//! Registers of a host controller (xHCI 1.2, 5) and their bits. Where most of them lie, the first
//! few say.

use hw::Register;

/// Capability Registers Length in the low byte; the version in the high half (5.3.1, 5.3.2).
pub const CAPLENGTH: Register = Register::new("CAPLENGTH", 0x00, "5.3.1");
/// Structural Parameters 1 and 2.
pub const HCSPARAMS1: Register = Register::new("HCSPARAMS1", 0x04, "5.3.3");
pub const HCSPARAMS2: Register = Register::new("HCSPARAMS2", 0x08, "5.3.4");
/// Capability Parameters 1.
pub const HCCPARAMS1: Register = Register::new("HCCPARAMS1", 0x10, "5.3.6");
/// Doorbell Offset.
pub const DBOFF: Register = Register::new("DBOFF", 0x14, "5.3.7");
/// Runtime Register Space Offset.
pub const RTSOFF: Register = Register::new("RTSOFF", 0x18, "5.3.8");
/// Bytes up to the last of these.
pub const CAPABILITY_BYTES: usize = 0x20;

/// What a register reads where there is no device.
pub const ALL_ONES: u32 = u32::MAX;

/// HCCPARAMS1.AC64: addresses of 64 bits. CSZ: contexts of 64 bytes.
pub const PARAMS_WIDE: u32 = 1 << 0;
pub const PARAMS_LARGE_CONTEXTS: u32 = 1 << 2;

/// Extended capabilities (7): which one in the low byte, dwords to the next one in the second.
pub const CAPABILITIES_MAX: usize = 64;
/// USB Legacy Support (7.1), who has the controller: the firmware, and the system.
pub const LEGACY: u32 = 1;
pub const LEGACY_FIRMWARE: u32 = 1 << 16;
pub const LEGACY_SYSTEM: u32 = 1 << 24;
/// Supported Protocol (7.2): the major version in the high byte; ports two dwords behind, the type
/// of slots three.
pub const PROTOCOL: u32 = 2;

/// USBCMD: it runs; reset, which the controller clears when that is over.
pub const COMMAND_RUN: u32 = 1 << 0;
pub const COMMAND_RESET: u32 = 1 << 1;

/// USBSTS: it stands still; the system failed; not ready; the controller failed.
pub const STATUS_HALTED: u32 = 1 << 0;
pub const STATUS_SYSTEM: u32 = 1 << 2;
pub const STATUS_NOT_READY: u32 = 1 << 11;
pub const STATUS_CONTROLLER: u32 = 1 << 12;

/// PAGESIZE: pages of 4 KiB.
pub const PAGES_4K: u32 = 1 << 0;

/// PORTSC: something is connected; it is enabled; it is reset.
pub const PORT_CONNECTED: u32 = 1 << 0;
pub const PORT_ENABLED: u32 = 1 << 1;
pub const PORT_RESET: u32 = 1 << 4;
/// PORTSC.PP: it has power.
pub const PORT_POWER: u32 = 1 << 9;
/// PORTSC.Port Speed.
pub const PORT_SPEED_SHIFT: u32 = 10;
/// PORTSC.CSC: what is connected has changed. The bits up to CEC are cleared by writing them.
pub const PORT_CONNECTION_CHANGED: u32 = 1 << 17;
pub const PORT_CHANGES: u32 = 0x7f << 17;
/// PORTSC.WPR: a warm reset, for USB 3.
pub const PORT_WARM_RESET: u32 = 1 << 31;
/// PORTSC: what is written back as it was read: power, indicators, and what wakes.
pub const PORT_KEPT: u32 = 1 << 9 | 3 << 14 | 7 << 25;

/// ERDP.EHB: cleared by writing it.
pub const EVENTS_BUSY: u32 = 1 << 3;
/// CRCR.RCS: the cycle that the first command has.
pub const COMMANDS_CYCLE: u32 = 1 << 0;

/// Where registers lie, as the controller says.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    /// Operational registers.
    pub operational: usize,
    /// Doorbells.
    pub doorbells: usize,
    /// Runtime registers.
    pub runtime: usize,
}

/// Where the registers of ports begin among the operational ones, and bytes of each port's.
pub const PORTS: usize = 0x400;
pub const PORT_BYTES: usize = 0x10;
/// Runtime registers up to the end of the first interrupter's.
pub const RUNTIME_BYTES: usize = 0x40;

impl Places {
    const fn at(&self, name: &'static str, offset: usize, section: &'static str) -> Register {
        Register::new(name, self.operational + offset, section)
    }

    const fn run(&self, name: &'static str, offset: usize, section: &'static str) -> Register {
        Register::new(name, self.runtime + offset, section)
    }

    /// USB Command.
    pub const fn command(&self) -> Register {
        self.at("USBCMD", 0x00, "5.4.1")
    }

    /// USB Status.
    pub const fn status(&self) -> Register {
        self.at("USBSTS", 0x04, "5.4.2")
    }

    /// Page Size.
    pub const fn page_size(&self) -> Register {
        self.at("PAGESIZE", 0x08, "5.4.3")
    }

    /// Command Ring Control, low and high.
    pub const fn commands(&self) -> [Register; 2] {
        [
            self.at("CRCR", 0x18, "5.4.5"),
            self.at("CRCR", 0x1c, "5.4.5"),
        ]
    }

    /// Device Context Base Address Array Pointer, low and high.
    pub const fn contexts(&self) -> [Register; 2] {
        [
            self.at("DCBAAP", 0x30, "5.4.6"),
            self.at("DCBAAP", 0x34, "5.4.6"),
        ]
    }

    /// Configure: how many slots are used.
    pub const fn configure(&self) -> Register {
        self.at("CONFIG", 0x38, "5.4.7")
    }

    /// Port Status and Control; ports are counted from 1.
    pub const fn port(&self, port: u8) -> Register {
        let number = (port as usize).saturating_sub(1);
        self.at("PORTSC", PORTS, "5.4.8").nth(number, PORT_BYTES)
    }

    /// Event Ring Segment Table Size.
    pub const fn segments(&self) -> Register {
        self.run("ERSTSZ", 0x28, "5.5.2.3.1")
    }

    /// Event Ring Segment Table Base Address, low and high.
    pub const fn table(&self) -> [Register; 2] {
        [
            self.run("ERSTBA", 0x30, "5.5.2.3.2"),
            self.run("ERSTBA", 0x34, "5.5.2.3.2"),
        ]
    }

    /// Event Ring Dequeue Pointer, low and high.
    pub const fn dequeue(&self) -> [Register; 2] {
        [
            self.run("ERDP", 0x38, "5.5.2.3.3"),
            self.run("ERDP", 0x3c, "5.5.2.3.3"),
        ]
    }

    /// The doorbell of a slot; that of slot 0 is for commands.
    #[inline]
    pub const fn doorbell(&self, slot: u8) -> Register {
        Register::new("DB", self.doorbells, "5.6").nth(slot as usize, 4)
    }
}
