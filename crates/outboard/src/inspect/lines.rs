//! Which source lines an image's code was made of, from the line table of its file (DWARF 4 and 5,
//! section 6.2), and which names its data has.
//!
//! Code that was inlined belongs to the line where it was written. The file may be hostile: it is
//! read up to a bound, and so is what it unpacks to.

use elf::ElfBytes;
use elf::abi::{ELFCOMPRESS_ZLIB, SHF_ALLOC, SHF_EXECINSTR, SHT_NOBITS, STT_OBJECT};
use elf::endian::LittleEndian;
use elf::section::SectionHeader;
use gimli::{AttributeValue, Dwarf, EndianSlice, LineProgramHeader, Unit};
use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit;
use serde::Serialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// Most bytes of a section of line tables, unpacked. The firewall's largest has one MiB.
const SECTION_BYTES_MAX: usize = 256 << 20;

/// What is linked of one source file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Linked {
    /// Lines that became instructions.
    pub lines: BTreeSet<u64>,
    /// Bytes of these instructions.
    pub text: u64,
}

/// Data, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Data {
    /// What has a value in the file.
    pub valued: u64,
    /// What begins as zeros.
    pub zeros: u64,
}

/// What is linked.
#[derive(Debug, Default)]
pub struct Contents {
    /// By the names of source files, as the compiler knew them.
    pub files: BTreeMap<PathBuf, Linked>,
    /// Statics, by the names of their crates.
    pub statics: BTreeMap<String, Data>,
    /// All code, in bytes.
    pub text: u64,
    /// All data, the stack among it.
    pub data: Data,
}

/// Why that cannot be known.
#[derive(Debug, PartialEq, Eq)]
pub enum Error {
    /// There is no line table: it was stripped, or never made.
    Stripped,
    /// There is one that contradicts itself.
    Damaged(gimli::Error),
    /// Sections cannot be read, or are packed otherwise than by zlib.
    Sections,
}

type Slice<'a> = EndianSlice<'a, gimli::LittleEndian>;

/// What is linked in the image with these bytes.
///
/// # Errors
/// The image has no line table, or a damaged one.
pub fn contents(bytes: &[u8]) -> Result<Contents, Error> {
    let elf = ElfBytes::<LittleEndian>::minimal_parse(bytes).map_err(|_| Error::Sections)?;
    let mut contents = Contents::default();
    let headers = elf.section_headers().ok_or(Error::Stripped)?;
    let allocated: Vec<SectionHeader> = headers
        .iter()
        .filter(|section| section.sh_flags & u64::from(SHF_ALLOC) != 0)
        .collect();
    for section in &allocated {
        let kind = match () {
            () if is_code(section) => &mut contents.text,
            () if section.sh_type == SHT_NOBITS => &mut contents.data.zeros,
            () => &mut contents.data.valued,
        };
        *kind = kind.saturating_add(section.sh_size);
    }
    read_lines(&elf, &allocated, &mut contents.files)?;
    contents.statics = statics(&elf, &allocated);
    Ok(contents)
}

fn is_code(section: &SectionHeader) -> bool {
    section.sh_flags & u64::from(SHF_EXECINSTR) != 0
}

fn holds(section: &SectionHeader, address: u64) -> bool {
    address >= section.sh_addr && address - section.sh_addr < section.sh_size
}

fn read_lines(
    elf: &ElfBytes<'_, LittleEndian>,
    allocated: &[SectionHeader],
    files: &mut BTreeMap<PathBuf, Linked>,
) -> Result<(), Error> {
    let sections = gimli::DwarfSections::load(|id| section(elf, id.name()))?;
    let dwarf: Dwarf<Slice<'_>> =
        sections.borrow(|section| EndianSlice::new(section, gimli::LittleEndian));
    let mut units = dwarf.units();
    let mut has_table = false;
    while let Some(unit) = units.next()? {
        let unit = dwarf.unit(unit)?;
        let Some(program) = unit.line_program.clone() else {
            continue;
        };
        has_table = true;
        let mut rows = program.rows();
        // The names of the unit's files are made once.
        let mut names = BTreeMap::new();
        // From a row's address to the next one's is what the row's line became.
        let mut before: Option<(u64, u64, u64)> = None;
        while let Some((header, row)) = rows.next_row()? {
            let address = row.address();
            if let Some((begin, file, line)) = before {
                // What the linker dropped has lines at addresses where there is no code.
                let code = allocated.iter().any(|s| is_code(s) && holds(s, begin));
                let bytes = address.saturating_sub(begin);
                if code && bytes > 0 {
                    let name = names
                        .entry(file)
                        .or_insert_with(|| path(&dwarf, &unit, header, file));
                    let linked = files.entry(name.clone()).or_default();
                    linked.text = linked.text.saturating_add(bytes);
                    // Line 0 is what the compiler added.
                    linked.lines.extend(Some(line).filter(|line| *line > 0));
                }
            }
            let line = row.line().map_or(0, |line| line.get());
            before = (!row.end_sequence()).then_some((address, row.file_index(), line));
        }
    }
    if has_table {
        Ok(())
    } else {
        Err(Error::Stripped)
    }
}

impl From<gimli::Error> for Error {
    fn from(error: gimli::Error) -> Self {
        Self::Damaged(error)
    }
}

/// The whole name of a file of a unit.
fn path(
    dwarf: &Dwarf<Slice<'_>>,
    unit: &Unit<Slice<'_>>,
    header: &LineProgramHeader<Slice<'_>>,
    file: u64,
) -> PathBuf {
    let text = |value: AttributeValue<Slice<'_>>| {
        let text = dwarf.attr_string(unit, value).ok();
        text.map(|text| text.to_string_lossy().into_owned())
    };
    let mut path = PathBuf::new();
    let directory = unit.comp_dir.map(|name| name.to_string_lossy());
    path.extend(directory.as_deref().map(Path::new));
    if let Some(file) = header.file(file) {
        path.extend(file.directory(header).and_then(text).map(PathBuf::from));
        path.extend(text(file.path_name()).map(PathBuf::from));
    }
    // Without what it goes back: two names for a file would be two files.
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain
}

/// The section of this name, unpacked; nothing if there is none.
fn section<'a>(elf: &ElfBytes<'a, LittleEndian>, name: &str) -> Result<Cow<'a, [u8]>, Error> {
    let header = elf.section_header_by_name(name);
    let Some(header) = header.map_err(|_| Error::Sections)? else {
        return Ok(Cow::Borrowed(&[]));
    };
    let (bytes, packed) = elf.section_data(&header).map_err(|_| Error::Sections)?;
    match packed {
        None => Ok(Cow::Borrowed(bytes)),
        Some(packed) if packed.ch_type == ELFCOMPRESS_ZLIB => {
            decompress_to_vec_zlib_with_limit(bytes, SECTION_BYTES_MAX)
                .map(Cow::Owned)
                .map_err(|_| Error::Sections)
        }
        Some(_) => Err(Error::Sections),
    }
}

/// The bytes of all statics, by the crates that their names begin with.
fn statics(
    elf: &ElfBytes<'_, LittleEndian>,
    allocated: &[SectionHeader],
) -> BTreeMap<String, Data> {
    let mut found: BTreeMap<String, Data> = BTreeMap::new();
    let Some((symbols, names)) = elf.symbol_table().ok().flatten() else {
        return found;
    };
    for symbol in symbols.iter().filter(|s| s.st_symtype() == STT_OBJECT) {
        let mut sections = allocated.iter();
        let Some(section) = sections.find(|section| holds(section, symbol.st_value)) else {
            continue;
        };
        let name = names.get(symbol.st_name as usize).unwrap_or_default();
        let Some(owner) = owner(name) else {
            continue;
        };
        let data = found.entry(owner).or_default();
        let kind = match section.sh_type {
            SHT_NOBITS => &mut data.zeros,
            _ => &mut data.valued,
        };
        *kind = kind.saturating_add(symbol.st_size.min(section.sh_size));
    }
    found
}

/// The crate that the name of a symbol begins with.
fn owner(symbol: &str) -> Option<String> {
    let name = format!("{:#}", rustc_demangle::try_demangle(symbol).ok()?);
    let (owner, _) = name.split_once("::")?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    owner.chars().all(is_name).then(|| owner.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statics_belong_to_the_crate_of_their_name() {
        let symbol = "_ZN9unikernel4trap6TABLES17h7a8838f5ef731677E";
        assert_eq!(owner(symbol).as_deref(), Some("unikernel"));
        assert_eq!(owner("__stack_bottom"), None);
        // `<core::fmt::Error as core::fmt::Debug>::fmt` names no crate for sure.
        let symbol =
            "_ZN53_$LT$core..fmt..Error$u20$as$u20$core..fmt..Debug$GT$3fmt17h0000000000000000E";
        assert_eq!(owner(symbol), None);
    }

    #[test]
    fn an_image_without_lines_says_so() {
        let stripped = contents(&image::sample::sample());
        assert_eq!(stripped.unwrap_err(), Error::Stripped);
        assert_eq!(contents(b"no image").unwrap_err(), Error::Sections);
    }

    #[test]
    fn this_program_is_made_of_this_file() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let contents = contents(&program).unwrap();
        let (_, this) = contents
            .files
            .iter()
            .find(|(path, _)| path.ends_with("outboard/src/inspect/lines.rs"))
            .unwrap();
        let text = include_str!("lines.rs");
        let lines = text.lines().count() as u64;
        assert!(this.lines.iter().all(|line| *line <= lines), "{this:?}");
        assert!(this.text > 0 && this.text < contents.text, "{this:?}");
        // A line that makes code, and one that does not.
        let number = |says: &str| {
            let mut lines = text.lines();
            lines.position(|line| line.trim() == says).unwrap() as u64 + 1
        };
        assert!(this.lines.contains(&number("has_table = true;")));
        assert!(!this.lines.contains(&number("pub struct Contents {")));
    }
}
