//! Disks with file systems in which bytes are changed: who mounts one, goes through it and writes
//! it ends with an error or without one.
//!
//! An input is a number of changes, the changes (three bytes of place, and a value), and steps of
//! three bytes: what, where, and whereto.

use device::block::{Durability, Limits};
use device::files::{Error, FileSystem, Kind};
use device::{BlockDevice, BlockError};
use fs::disk::{Disk, PAGE};
use std::cell::RefCell;

/// Pages that are kept.
const PAGES: usize = 8;
/// Changes of bytes, steps, and names that are looked at.
const CHANGES_MAX: usize = 64;
const STEPS_MAX: usize = 40;
const NAMES_MAX: usize = 40;
/// A file that lies about its size is not believed beyond this.
const FILE_MAX: u64 = 64 << 10;

const PATHS: [&str; 8] = [
    "/a",
    "/b",
    "/d",
    "/d/a",
    "/d/e",
    "/d/e/f",
    "/LONG name.x",
    "/d/../a",
];

/// A disk in memory.
struct Memory(RefCell<Vec<u8>>);

impl BlockDevice for Memory {
    fn capacity(&self) -> u64 {
        self.0.borrow().len() as u64
    }

    fn limits(&self) -> Limits {
        Limits {
            durability: Durability::Flushed,
            ..Limits::plain(512)
        }
    }

    fn read(&mut self, offset: u64, blocks: &mut [u8]) -> Result<(), BlockError> {
        self.limits()
            .check(self.capacity(), offset, blocks.len() as u64)?;
        blocks.copy_from_slice(&self.0.borrow()[offset as usize..][..blocks.len()]);
        Ok(())
    }

    fn write(&mut self, offset: u64, blocks: &[u8]) -> Result<(), BlockError> {
        self.limits()
            .check_change(self.capacity(), offset, blocks.len() as u64)?;
        self.0.borrow_mut()[offset as usize..][..blocks.len()].copy_from_slice(blocks);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), BlockError> {
        Ok(())
    }
}

fn disk(bytes: Vec<u8>) -> Disk {
    let disk = Disk::new(Box::new(Memory(RefCell::new(bytes))), PAGES * PAGE);
    disk.expect("its blocks are of 512 bytes")
}

/// A new file system with some files, written by what is tested.
///
/// # Panics
/// If it is not written.
pub fn filled(new: Vec<u8>) -> Vec<u8> {
    let size = new.len();
    let disk = disk(new);
    let files = fs::mount_to_write(&disk, || 1).expect("a file system");
    assert!(files.is_writable(), "{} is not written", files.name());
    files.make_folder(b"/d").expect("a folder");
    files.make_folder(b"/d/e").expect("a folder");
    for (path, len) in [("/a", 100), ("/d/a", 9000), ("/LONG name.x", 0)] {
        let mut file = files.create(path.as_bytes()).expect("a file");
        file.write(0, &vec![7; len]).expect("there is room");
    }
    files.sync().expect("memory does not fail");
    let mut bytes = vec![0; size];
    disk.read(0, &mut bytes).expect("all of it is there");
    bytes
}

/// Feeds an input to the file system of a disk.
pub fn feed(disk_bytes: &[u8], input: &[u8]) {
    let (count, rest) = input.split_first().unwrap_or((&0, &[]));
    let (changes, steps) = rest.split_at(rest.len().min(4 * (usize::from(*count) % CHANGES_MAX)));
    let mut bytes = disk_bytes.to_vec();
    for change in changes.chunks_exact(4) {
        let at = u32::from_le_bytes([change[0], change[1], change[2], 0]);
        let at = at as usize % bytes.len();
        bytes[at] = change[3];
    }
    match fs::mount(&disk(bytes.clone())) {
        Ok(files) => walk(&*files),
        Err(error) => assert!(!changes.is_empty(), "{error}"),
    }
    let Ok(files) = fs::mount_to_write(&disk(bytes), || 2) else {
        return;
    };
    for step in steps.chunks_exact(3).take(STEPS_MAX) {
        // That it cannot be done is an answer.
        let _ = act(&*files, step[0], PATHS[usize::from(step[1]) % 8], step[2]);
    }
    walk(&*files);
    let _ = files.sync();
}

fn act(files: &dyn FileSystem, what: u8, path: &str, other: u8) -> Result<(), Error> {
    let path = path.as_bytes();
    match what % 8 {
        0 => files
            .create(path)?
            .write(u64::from(other) * 100, &[1; 3000]),
        1 => files
            .open_to_write(path)?
            .write(u64::from(other) << 6, &[2; 700]),
        2 => files.open_to_write(path)?.set_len(u64::from(other) << 7),
        3 => files.make_folder(path),
        4 => files.remove(path),
        5 => files.rename(path, PATHS[usize::from(other) % 8].as_bytes()),
        6 => files.sync(),
        _ => files.metadata(path).map(drop),
    }
}

/// Reads what there is, up to a bound.
fn walk(files: &dyn FileSystem) {
    let mut folders = vec![Vec::new()];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        let mut names = Vec::new();
        let path = if folder.is_empty() { b"/" } else { &folder[..] };
        let _ = files.list(path, &mut |entry| {
            names.push(entry);
            names.len() < NAMES_MAX
        });
        for entry in names {
            seen += 1;
            if seen > NAMES_MAX {
                return;
            }
            let path = [&folder[..], b"/", &entry.name].concat();
            if let Ok(mut file) = files.open(&path) {
                let len = file.metadata().len;
                let mut bytes = vec![0; len.min(FILE_MAX) as usize];
                if let Ok(count) = file.read(0, &mut bytes) {
                    assert!(count <= bytes.len());
                }
                // Far behind, where sizes do not fit.
                let _ = file.read(len.saturating_sub(10), &mut [0; 100]);
            }
            if entry.kind == Kind::Folder {
                folders.push(path);
            }
        }
    }
}

fn put(bytes: &mut [u8], at: usize, what: &[u8]) {
    bytes[at..at + what.len()].copy_from_slice(what);
}

/// A new ext2 file system of 128 blocks of 1 KiB with 32 inodes, as the kernel's documentation of
/// ext4 lays it out.
pub fn ext2() -> Vec<u8> {
    const BLOCKS: u32 = 128;
    let mut bytes = vec![0; BLOCKS as usize * 1024];
    // Inodes, blocks, those free of each, the first block, and those of a group.
    let words = [
        (0x0, 32),
        (0x4, BLOCKS),
        (0xc, BLOCKS - 10),
        (0x10, 32 - 11),
        (0x14, 1),
        (0x20, 8192),
        (0x24, 8192),
        (0x28, 32),
        (0x4c, 1),
        (0x54, 11),
        // Kinds in folders; large files.
        (0x60, 0x2),
        (0x64, 0x2),
    ];
    for (at, word) in words {
        put(&mut bytes, 1024 + at, &u32::to_le_bytes(word));
    }
    for (at, half) in [(0x38, 0xef53), (0x3a, 1), (0x58, 128)] {
        put(&mut bytes, 1024 + at, &u16::to_le_bytes(half));
    }
    // Bitmaps, inodes, and what is free of the only group.
    for (at, word) in [(0, 3), (4, 4), (8, 5)] {
        put(&mut bytes, 2048 + at, &u32::to_le_bytes(word));
    }
    for (at, half) in [(12, BLOCKS as u16 - 10), (14, 32 - 11), (16, 1)] {
        put(&mut bytes, 2048 + at, &u16::to_le_bytes(half));
    }
    // Blocks 1 to 9 are used, and those behind the end.
    put(&mut bytes, 3072, &[0xff, 0x01]);
    bytes[3072 + 15] = 0x80;
    bytes[3072 + 16..4096].fill(0xff);
    // Inodes 1 to 11, and those behind the last.
    put(&mut bytes, 4096, &[0xff, 0x07]);
    bytes[4096 + 4..5120].fill(0xff);
    // The root, and its block.
    let root = 5120 + 128;
    put(&mut bytes, root, &0x41ed_u16.to_le_bytes());
    put(&mut bytes, root + 4, &1024_u32.to_le_bytes());
    put(&mut bytes, root + 26, &2_u16.to_le_bytes());
    put(&mut bytes, root + 28, &2_u32.to_le_bytes());
    put(&mut bytes, root + 40, &9_u32.to_le_bytes());
    put(&mut bytes, 9216, &[2, 0, 0, 0, 12, 0, 1, 2, b'.']);
    put(
        &mut bytes,
        9216 + 12,
        &[2, 0, 0, 0, 0xf4, 3, 2, 2, b'.', b'.'],
    );
    bytes
}

/// A new FAT12 file system of 128 sectors, as the specification of Microsoft lays it out.
pub fn fat() -> Vec<u8> {
    let mut bytes = vec![0; 128 * 512];
    put(&mut bytes, 0, &[0xeb, 0x3c, 0x90]);
    // Bytes of a sector, sectors of a cluster, reserved ones, tables, names of the root, sectors,
    // the medium, and sectors of a table.
    put(
        &mut bytes,
        11,
        &[0, 2, 1, 1, 0, 2, 32, 0, 128, 0, 0xf8, 1, 0],
    );
    put(&mut bytes, 510, &[0x55, 0xaa]);
    for table in [512, 1024] {
        put(&mut bytes, table, &[0xf8, 0xff, 0xff]);
    }
    bytes
}

/// An ISO 9660 file system with one file, as ECMA-119 lays it out.
pub fn iso() -> Vec<u8> {
    const SECTOR: usize = 2048;
    let record = |sector: u8, size: u16, flags: u8, name: &[u8]| {
        let len = (33 + name.len()).next_multiple_of(2);
        let [low, high] = size.to_le_bytes();
        let mut record = vec![0; len];
        record[0] = len as u8;
        put(&mut record, 2, &[sector, 0, 0, 0, 0, 0, 0, sector]);
        put(&mut record, 10, &[low, high, 0, 0, 0, 0, high, low]);
        put(
            &mut record,
            25,
            &[flags, 0, 0, 1, 0, 0, 1, name.len() as u8],
        );
        put(&mut record, 33, name);
        record
    };
    let mut bytes = vec![0; 24 * SECTOR];
    let (volume, end, root) = (16 * SECTOR, 17 * SECTOR, 20 * SECTOR);
    put(&mut bytes, volume, b"\x01CD001\x01");
    put(&mut bytes, volume + 80, &[24, 0, 0, 0, 0, 0, 0, 24]);
    put(
        &mut bytes,
        volume + 120,
        &[1, 0, 0, 1, 1, 0, 0, 1, 0, 8, 8, 0],
    );
    let itself = record(20, 2048, 2, &[0]);
    put(&mut bytes, volume + 156, &itself);
    bytes[volume + 881] = 1;
    put(&mut bytes, end, b"\xffCD001\x01");
    let outer = record(20, 2048, 2, &[1]);
    let file = record(21, 9, 0, b"A.TXT;1");
    put(&mut bytes, root, &[itself, outer, file].concat());
    put(&mut bytes, 21 * SECTOR, b"some text");
    bytes
}
