//! A core file: what a guest's memory and registers were when it ended, for debuggers.
//!
//! The file is opened before the jail closes, so nothing can be created or removed afterwards: it
//! stays empty if the guest ends well, until the monitor removes it.

use abi::PAGE_SIZE;
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use zerocopy::{Immutable, IntoBytes};

/// A core file that nothing is in yet.
#[derive(Debug)]
pub struct CoreFile {
    /// Open to be written.
    pub file: File,
    /// Where it is.
    pub path: PathBuf,
}

/// All registers, in the order of Linux's `struct user_regs_struct`.
pub type Registers = [[u64; 9]; 3];

/// A page of guest memory.
pub type Page = [u8; PAGE_SIZE as usize];
/// One of which nothing is written. (Pages are compared whole, several times as fast as a search.)
const ZEROS: Page = [0; PAGE_SIZE as usize];

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
const _: () = assert!(FRONT_BYTES <= PAGE_SIZE);
/// How many bytes at the beginning are written at once; pages follow from [`PAGE_SIZE`] on.
pub const FRONT_BYTES: u64 = size_of::<Front>() as u64;

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

/// The core file that the tender with this process id, which has ended, has left in `folder`. One
/// that is empty is removed, for its guest did not fail. For the monitor.
pub fn left(folder: &Path, tender: u32) -> Option<PathBuf> {
    let path = path(folder, tender);
    let metadata = std::fs::symlink_metadata(&path).ok()?;
    if metadata.is_file() && metadata.len() == 0 {
        // Whoever made the folder unwritable meanwhile keeps the file.
        let _ = std::fs::remove_file(path);
        return None;
    }
    metadata.is_file().then_some(path)
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
    /// `bytes` of its memory from address 0 on, of which pages of zeros become holes, and those
    /// that `copy` does not know. It allocates nothing and calls the kernel without the C library:
    /// the jail is closed, or this is a handler of signals.
    ///
    /// # Errors
    /// What the kernel says: there is no room, for instance.
    pub fn write(
        &self,
        signal: i32,
        registers: Registers,
        bytes: u64,
        copy: impl Fn(u64, &mut Page) -> Option<()>,
    ) -> Result<(), Errno> {
        self.put(front(signal, registers, bytes).as_bytes(), 0)?;
        for address in (0..bytes).step_by(PAGE_SIZE as usize) {
            let mut page = ZEROS;
            let copied = copy(address, &mut page).is_some();
            let last = address + PAGE_SIZE == bytes;
            if last || copied && page != ZEROS {
                self.put(&page, PAGE_SIZE + address)?;
            }
        }
        Ok(())
    }

    /// Writes all of it, or fails: the kernel takes a part only of what there is no room for.
    fn put(&self, bytes: &[u8], offset: u64) -> Result<(), Errno> {
        match rustix::io::pwrite(&self.file, bytes, offset)? == bytes.len() {
            true => Ok(()),
            false => Err(Errno::NOSPC),
        }
    }
}

/// Registers as a debugger reads them. `general` has the order of [`abi::backtrace::REGISTERS`];
/// `code` and `data` are the selectors of segments.
pub fn registers(
    general: abi::backtrace::Registers,
    rip: u64,
    flags: u64,
    [code, data]: [u64; 2],
) -> Registers {
    let [rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, upper @ ..] = general;
    let [r8, r9, r10, r11, r12, r13, r14, r15] = upper;
    const NO_SYSTEM_CALL: u64 = u64::MAX;
    const FS_BASE: u64 = 0;
    const GS_BASE: u64 = 0;
    [
        [r15, r14, r13, r12, rbp, rbx, r11, r10, r9],
        [r8, rax, rcx, rdx, rsi, rdi, NO_SYSTEM_CALL, rip, code],
        [flags, rsp, data, FS_BASE, GS_BASE, data, data, data, data],
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
    use crate::memory::Gpa;
    use crate::sys::guest::GuestMemory;
    use elf::abi::{ET_CORE, PT_LOAD};
    use elf::endian::LittleEndian;
    use elf::note::Note;
    use elf::{ElfBytes, abi};
    use std::os::unix::fs::FileExt;

    const PAGES: usize = 300;
    const UNREADABLE: u64 = 11 * PAGE_SIZE;

    /// The file that a guest leaves whose memory has something in two pages.
    fn written() -> (Vec<u8>, u64) {
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
        memory.copy_in(Gpa::new(UNREADABLE), &[11]).unwrap();
        let mut general = [0; 16];
        (general[0], general[7], general[15]) = (1, 0x20_0000, 15);
        let registers = registers(general, 0x10_0000, 0, [0x33, 0x2b]);
        let copy = |address, page: &mut Page| match address {
            // Not to be read by anybody, whatever is there.
            UNREADABLE => None,
            _ => memory.copy_out(Gpa::new(address), page).ok(),
        };
        core.write(11, registers, bytes, copy).unwrap();
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
        let (bytes, on_disk) = written();
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
        let status = status(&written().0);
        assert_eq!(status.len(), 336);
        assert_eq!(status[12], 11, "the signal");
        let expected = [(0, 15), (10, 1), (16, 0x10_0000), (19, 0x20_0000)];
        for (number, value) in expected {
            assert_eq!(register(&status, number), value, "{number}");
        }
    }

    #[test]
    fn an_empty_file_is_removed_and_another_one_is_named() {
        let folder = std::env::temp_dir().join(format!("outboard-core-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let core = CoreFile::create(&folder).unwrap();
        let tender = std::process::id();
        assert_eq!(left(&folder, tender), None);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        let again = CoreFile::create(&folder).unwrap();
        again.put(b"core", 0).unwrap();
        assert_eq!(left(&folder, tender), Some(core.path));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
