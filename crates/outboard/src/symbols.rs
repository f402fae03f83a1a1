//! Names for addresses in an image, from the symbol table of its file (System V gABI, chapter 4).
//!
//! The file may be hostile: it is read up to a bound, addresses and names are looked at as they
//! are, and what reaches a terminal is printable.

use abi::backtrace::call_of;
use elf::ElfBytes;
use elf::abi::{PF_X, PT_LOAD, STT_FUNC};
use elf::endian::LittleEndian;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use tender::load::IMAGE_BYTES_MAX;

/// Longest name that is shown, in characters.
const NAME_CHARACTERS_MAX: usize = 160;

/// An address, and the function that it lies in, if the image says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The address.
    pub address: u64,
    /// Name of the function, and how many bytes behind its begin.
    pub function: Option<(String, u64)>,
}

/// The places of an instruction in the image file `path` and of those that it returns to, up to the
/// first one that is no code: behind it, the chain of frames cannot be one. The instruction itself
/// may be anywhere.
pub fn places(path: &Path, instruction: u64, returns: &[u64]) -> Vec<Place> {
    let bytes = read(path).unwrap_or_default();
    name(&bytes, instruction, returns)
}

/// The file, if it is one that can be an image.
pub(crate) fn read(path: &Path) -> Option<Vec<u8>> {
    let file = File::open(path).ok()?;
    let metadata = file.metadata().ok()?;
    if !metadata.is_file() || metadata.len() > IMAGE_BYTES_MAX {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(IMAGE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The same for an image in memory. In one that cannot be read, everything may be code.
fn name(bytes: &[u8], instruction: u64, returns: &[u64]) -> Vec<Place> {
    let elf = ElfBytes::<LittleEndian>::minimal_parse(bytes).ok();
    let is_code = |address: u64| {
        let segments = elf.as_ref().and_then(ElfBytes::segments);
        segments.is_none_or(|segments| {
            segments.iter().any(|segment| {
                let code = segment.p_type == PT_LOAD && segment.p_flags & PF_X != 0;
                let inside = address.wrapping_sub(segment.p_vaddr) < segment.p_memsz;
                code && address >= segment.p_vaddr && inside
            })
        })
    };
    let returns = returns.iter().copied();
    let returns = returns.take_while(|address| is_code(call_of(*address)));
    let mut looked_up = vec![instruction];
    looked_up.extend(returns.clone().map(call_of));
    let mut places: Vec<Place> = [instruction]
        .into_iter()
        .chain(returns)
        .map(|address| Place {
            address,
            function: None,
        })
        .collect();
    let Some((symbols, names)) = elf
        .as_ref()
        .and_then(|elf| elf.symbol_table().ok().flatten())
    else {
        return places;
    };
    for symbol in symbols.iter().filter(|s| s.st_symtype() == STT_FUNC) {
        let begin = symbol.st_value;
        for (place, inside) in places.iter_mut().zip(&looked_up) {
            let found = *inside >= begin && inside - begin < symbol.st_size;
            if found && place.function.is_none() {
                let name = names.get(symbol.st_name as usize).unwrap_or_default();
                place.function = Some((shown(name), place.address - begin));
            }
        }
    }
    places
}

/// The name as its author wrote it, without what a terminal might obey.
fn shown(symbol: &str) -> String {
    let name = format!("{:#}", rustc_demangle::demangle(symbol));
    let printable = |c: char| match c {
        ' '..='~' => c,
        _ => '?',
    };
    name.chars()
        .map(printable)
        .take(NAME_CHARACTERS_MAX)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: u64 = 0x10_0000;
    const SECTIONS: usize = 64 + 56;
    const SYMBOLS: usize = SECTIONS + 3 * 64;
    const NAMES: usize = SYMBOLS + 2 * 24;
    const NAME: &[u8] = b"\0_ZN5guest4main17h0123456789abcdefE\0";

    /// An ELF file with 4096 bytes of code and one function, 16 bytes from 0x10 on.
    fn image() -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(16, 0);
        let mut put = |size: usize, value: u64| bytes.extend(&value.to_le_bytes()[..size]);
        // Elf64_Ehdr, from e_type on: program headers at 64, three sections, none of names.
        for (size, value) in [
            (2, 2),
            (2, 62),
            (4, 1),
            (8, TEXT),
            (8, 64),
            (8, SECTIONS as u64),
        ] {
            put(size, value);
        }
        for (size, value) in [(4, 0), (2, 64), (2, 56), (2, 1), (2, 64), (2, 3), (2, 0)] {
            put(size, value);
        }
        // Elf64_Phdr: readable and executable.
        for (size, value) in [
            (4, 1),
            (4, 5),
            (8, 0),
            (8, TEXT),
            (8, 0),
            (8, 0),
            (8, 4096),
            (8, 1),
        ] {
            put(size, value);
        }
        // Elf64_Shdr: null, SHT_SYMTAB with its strings in section 2, SHT_STRTAB.
        (0..8).for_each(|_| put(8, 0));
        let table = |kind: u64, offset: usize, size: usize, link: u64, entry: u64| {
            [kind << 32, 0, 0, offset as u64, size as u64, link, 1, entry]
        };
        let headers = [
            table(2, SYMBOLS, 2 * 24, 2, 24),
            table(3, NAMES, NAME.len(), 0, 0),
        ];
        headers.into_iter().flatten().for_each(|word| put(8, word));
        // Elf64_Sym: null, STT_FUNC of section 1.
        let symbol = [0, 0, 0, 1 | 2 << 32 | 1 << 48, TEXT + 0x10, 16];
        symbol.into_iter().for_each(|word| put(8, word));
        bytes.extend(NAME);
        bytes
    }

    #[test]
    fn functions_have_their_names() {
        let (begin, end) = (TEXT + 0x10, TEXT + 0x20);
        let places = name(&image(), begin, &[end, TEXT + 4, TEXT + 8192, begin + 1]);
        let named = |address, offset| Place {
            address,
            function: Some(("guest::main".to_owned(), offset)),
        };
        let bare = Place {
            address: TEXT + 4,
            function: None,
        };
        // A call may be the last instruction. Where no code is, the chain is none.
        assert_eq!(places, [named(begin, 0), named(end, 16), bare]);
    }

    #[test]
    fn without_an_image_there_are_numbers() {
        let bare = |address| Place {
            address,
            function: None,
        };
        let path = Path::new("/nonexistent");
        assert_eq!(places(path, 1, &[2, 3]), [bare(1), bare(2), bare(3)]);
        assert_eq!(places(Path::new("/dev/zero"), 1, &[]), [bare(1)]);
    }

    #[test]
    fn names_are_printable_and_short() {
        assert_eq!(shown("a\x1b[31m\u{202e}b"), "a?[31m?b");
        assert_eq!(shown(&"x".repeat(1000)).len(), NAME_CHARACTERS_MAX);
        assert_eq!(
            shown("_ZN4core9panicking5panic17h0123456789abcdefE"),
            "core::panicking::panic"
        );
    }

    proptest! {
        #[test]
        fn no_file_makes_it_panic(
            changes in proptest::collection::vec((0..NAMES, any::<u8>()), 0..8),
            cut in 0..=NAMES + NAME.len(),
            address: u64,
        ) {
            let mut bytes = image();
            for (place, value) in changes {
                bytes[place] = value;
            }
            let returns = [address, TEXT, TEXT + 0x18, u64::MAX];
            prop_assert!(name(&bytes, address, &returns).len() <= 5);
            prop_assert!(name(&bytes[..cut], TEXT + 0x10, &returns).len() <= 5);
        }
    }
}
