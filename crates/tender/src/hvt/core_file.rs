//! A core file: what a guest's memory and registers were when it ended, for debuggers.
//!
//! The file is opened before the jail closes, so nothing can be created or removed afterwards: it
//! stays empty if the guest ends well, until the monitor removes it.

use crate::memory::Gpa;
use crate::sys::guest::{GuestMemory, Outside};
use abi::PAGE_SIZE;
use abi::hvt::Trap;
use kvm_bindings::kvm_regs;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use zerocopy::{Immutable, IntoBytes};

/// A core file that nothing is in yet.
#[derive(Debug)]
pub struct CoreFile {
    pub file: File,
    pub path: PathBuf,
}

/// All registers, in the order of Linux's `struct user_regs_struct`.
type Registers = [[u64; 9]; 3];

/// ELF file header (System V gABI, `Elf64_Ehdr`).
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Header {
    ident: [u8; 16],
    kind: u16,
    machine: u16,
    version: u32,
    entry: u64,
    program_headers: u64,
    section_headers: u64,
    flags: u32,
    header_bytes: u16,
    program_header_bytes: u16,
    program_header_count: u16,
    section_header_bytes: u16,
    section_header_count: u16,
    section_names: u16,
}

/// `Elf64_Phdr`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct ProgramHeader {
    kind: u32,
    flags: u32,
    offset: u64,
    virtual_address: u64,
    physical_address: u64,
    file_bytes: u64,
    memory_bytes: u64,
    align: u64,
}

/// The note `NT_PRSTATUS`: Linux's `struct elf_prstatus` (`include/linux/elfcore.h`) on x86-64.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Status {
    /// Puts what follows the name at a multiple of eight.
    filler: u32,
    name_bytes: u32,
    description_bytes: u32,
    kind: u32,
    name: [u8; 8],
    signal: u32,
    code: u32,
    error: u32,
    current_signal: u32,
    pending: [u64; 2],
    process: [u32; 4],
    times: [u64; 8],
    registers: Registers,
    floating_point: u32,
    padding: u32,
}

/// All that comes before guest memory.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Front {
    header: Header,
    note: ProgramHeader,
    load: ProgramHeader,
    status: Status,
}

const HEADER_BYTES: usize = size_of::<Header>();
const PROGRAM_HEADER_BYTES: usize = size_of::<ProgramHeader>();
const STATUS_BYTES: usize = size_of::<Status>();
const FILLER_BYTES: usize = 4;
/// Filler, the note's header, its name.
const BEFORE_STATUS: usize = FILLER_BYTES + 12 + 8;
const _: () = assert!(HEADER_BYTES == 64 && PROGRAM_HEADER_BYTES == 56);
const _: () = assert!(STATUS_BYTES - BEFORE_STATUS == 336);
const _: () = assert!(size_of::<Front>() as u64 <= PAGE_SIZE);

const ET_CORE: u16 = 4;
const EM_X86_64: u16 = 62;
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const NT_PRSTATUS: u32 = 1;
const READ_WRITE_EXECUTE: u32 = 7;

/// The core file of the tender with this process id.
fn path(folder: &Path, tender: u32) -> PathBuf {
    folder.join(format!("core.outboard.{tender}"))
}

/// Removes the file that the tender with this process id, which has ended, has left empty, for its
/// guest did not fail. For the monitor.
pub fn remove_empty(folder: &Path, tender: u32) {
    let path = path(folder, tender);
    let empty = std::fs::symlink_metadata(&path)
        .is_ok_and(|metadata| metadata.is_file() && metadata.len() == 0);
    if empty {
        // Whoever made the folder unwritable meanwhile keeps the file.
        let _ = std::fs::remove_file(path);
    }
}

impl CoreFile {
    /// A new file `core.outboard.PID` in `folder`, which only its owner can read.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn create(folder: &Path) -> io::Result<Self> {
        let path = path(folder, std::process::id());
        let mut options = OpenOptions::new();
        let file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        Ok(Self { file, path })
    }

    /// Writes the guest's end: the signal that a process would have got, its registers, and the
    /// `bytes` of its memory from address 0 on, of which pages of zeros become holes. It allocates
    /// nothing, for the jail is closed.
    ///
    /// # Errors
    /// What the kernel says: there is no room, for instance.
    pub fn write(
        &self,
        signal: i32,
        registers: Registers,
        memory: &GuestMemory,
        bytes: u64,
    ) -> io::Result<()> {
        let front = front(signal, registers, bytes);
        self.file.write_all_at(front.as_bytes(), 0)?;
        let mut page = [0; PAGE_SIZE as usize];
        for address in (0..bytes).step_by(PAGE_SIZE as usize) {
            let outside = |_: Outside| io::Error::from(io::ErrorKind::InvalidData);
            memory
                .copy_out(Gpa::new(address), &mut page)
                .map_err(outside)?;
            let last = address + PAGE_SIZE == bytes;
            if last || page.iter().any(|byte| *byte != 0) {
                self.file.write_all_at(&page, PAGE_SIZE + address)?;
            }
        }
        Ok(())
    }
}

/// Registers as a debugger reads them: those of the trap if there was one, whose handler is of no
/// interest; else those of the processor.
pub fn registers(processor: &kvm_regs, trap: Option<&Trap>) -> Registers {
    let (general, rip, flags) = match trap {
        Some(trap) => (trap.registers, trap.rip, trap.rflags),
        None => (general(processor), processor.rip, processor.rflags),
    };
    let [rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, upper @ ..] = general;
    let [r8, r9, r10, r11, r12, r13, r14, r15] = upper;
    const NO_SYSTEM_CALL: u64 = u64::MAX;
    const FS_BASE: u64 = 0;
    const GS_BASE: u64 = 0;
    let (cs, data) = (u64::from(super::cpu::CODE), u64::from(super::cpu::DATA));
    [
        [r15, r14, r13, r12, rbp, rbx, r11, r10, r9],
        [r8, rax, rcx, rdx, rsi, rdi, NO_SYSTEM_CALL, rip, cs],
        [flags, rsp, data, FS_BASE, GS_BASE, data, data, data, data],
    ]
}

/// The general registers, in the order of [`abi::backtrace::REGISTERS`].
pub fn general(processor: &kvm_regs) -> abi::backtrace::Registers {
    let r = processor;
    [
        r.rax, r.rbx, r.rcx, r.rdx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11, r.r12,
        r.r13, r.r14, r.r15,
    ]
}

fn front(signal: i32, registers: Registers, memory: u64) -> Front {
    let signal = signal.cast_unsigned();
    let header = Header {
        ident: *b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0",
        kind: ET_CORE,
        machine: EM_X86_64,
        version: 1,
        entry: 0,
        program_headers: HEADER_BYTES as u64,
        section_headers: 0,
        flags: 0,
        header_bytes: HEADER_BYTES as u16,
        program_header_bytes: PROGRAM_HEADER_BYTES as u16,
        program_header_count: 2,
        section_header_bytes: 0,
        section_header_count: 0,
        section_names: 0,
    };
    let part = |kind, flags, offset, bytes| ProgramHeader {
        kind,
        flags,
        offset,
        virtual_address: 0,
        physical_address: 0,
        file_bytes: bytes,
        memory_bytes: if kind == PT_LOAD { bytes } else { 0 },
        align: if kind == PT_LOAD { PAGE_SIZE } else { 4 },
    };
    let status = Status {
        filler: 0,
        name_bytes: 5,
        description_bytes: (STATUS_BYTES - BEFORE_STATUS) as u32,
        kind: NT_PRSTATUS,
        name: *b"CORE\0\0\0\0",
        signal,
        code: 0,
        error: 0,
        current_signal: signal,
        pending: [0; 2],
        process: [1; 4],
        times: [0; 8],
        registers,
        floating_point: 0,
        padding: 0,
    };
    let note_offset = (HEADER_BYTES + 2 * PROGRAM_HEADER_BYTES + FILLER_BYTES) as u64;
    let note_bytes = (STATUS_BYTES - FILLER_BYTES) as u64;
    Front {
        header,
        note: part(PT_NOTE, 0, note_offset, note_bytes),
        load: part(PT_LOAD, READ_WRITE_EXECUTE, PAGE_SIZE, memory),
        status,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use elf::abi::{ET_CORE, PT_LOAD};
    use elf::endian::LittleEndian;
    use elf::note::Note;
    use elf::{ElfBytes, abi};

    const PAGES: usize = 300;

    /// The file that a guest leaves whose memory has something in two pages.
    fn written(trap: Option<&Trap>) -> (Vec<u8>, u64) {
        let file = rustix::fs::memfd_create("core", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let file = File::from(file);
        let core = CoreFile {
            file: file.try_clone().unwrap(),
            path: PathBuf::new(),
        };
        let bytes = PAGES as u64 * PAGE_SIZE;
        let memory = GuestMemory::anonymous(bytes as usize).unwrap();
        memory.copy_in(Gpa::new(7 * PAGE_SIZE), &[7]).unwrap();
        memory.copy_in(Gpa::new(9 * PAGE_SIZE - 1), &[9]).unwrap();
        let processor = kvm_regs {
            rip: 0x10_0000,
            rsp: 0x20_0000,
            rax: 1,
            r15: 15,
            ..kvm_regs::default()
        };
        core.write(11, registers(&processor, trap), &memory, bytes)
            .unwrap();
        let metadata = rustix::fs::fstat(&file).unwrap();
        let mut bytes = vec![0; metadata.st_size as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        (bytes, metadata.st_blocks as u64 * 512)
    }

    fn status(bytes: &[u8]) -> Vec<u8> {
        let file = ElfBytes::<LittleEndian>::minimal_parse(bytes).unwrap();
        let segments = file.segments().unwrap();
        let note = segments.iter().find(|s| s.p_type == abi::PT_NOTE).unwrap();
        let note = file.segment_data_as_notes(&note).unwrap().next().unwrap();
        let Note::Unknown(note) = note else {
            panic!("{note:?}")
        };
        assert_eq!((note.n_type, note.name), (1, &b"CORE\0"[..]));
        note.desc.to_vec()
    }

    fn register(status: &[u8], number: usize) -> u64 {
        let at = 112 + 8 * number;
        u64::from_le_bytes(status[at..at + 8].try_into().unwrap())
    }

    #[test]
    fn memory_is_one_segment_from_zero_on_and_its_zeros_take_no_room() {
        let (bytes, on_disk) = written(None);
        let file = ElfBytes::<LittleEndian>::minimal_parse(&bytes).unwrap();
        assert_eq!(file.ehdr.e_type, ET_CORE);
        let segments = file.segments().unwrap();
        let load = segments.iter().find(|s| s.p_type == PT_LOAD).unwrap();
        let memory = file.segment_data(&load).unwrap();
        assert_eq!((load.p_vaddr, memory.len() as u64), (0, load.p_memsz));
        assert_eq!(memory.len(), PAGES * PAGE_SIZE as usize);
        assert_eq!(memory[7 * PAGE_SIZE as usize], 7);
        assert_eq!(memory[9 * PAGE_SIZE as usize - 1], 9);
        assert_eq!(memory.iter().filter(|byte| **byte != 0).count(), 2);
        assert!(on_disk <= 8 * PAGE_SIZE, "{on_disk} bytes on disk");
    }

    #[test]
    fn registers_are_where_a_debugger_looks() {
        let status = status(&written(None).0);
        assert_eq!(status.len(), 336);
        assert_eq!(status[12], 11, "the signal");
        let expected = [(0, 15), (10, 1), (16, 0x10_0000), (19, 0x20_0000)];
        for (number, value) in expected {
            assert_eq!(register(&status, number), value, "{number}");
        }
    }

    #[test]
    fn a_trap_is_what_is_of_interest() {
        let trap = Trap {
            rip: 0x12_3456,
            registers: [3; 16],
            ..Trap::default()
        };
        let status = status(&written(Some(&trap)).0);
        assert_eq!(register(&status, 16), 0x12_3456);
        assert_eq!(register(&status, 19), 3);
    }
}
