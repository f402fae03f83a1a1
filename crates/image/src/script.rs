//! The linker script of an image.
//!
//! What it must satisfy is the list of checks of Solo5's tenders (`tenders/common/elf.c`): segments
//! in ascending order from [`abi::IMAGE_BASE`], aligned to pages, none both writable and
//! executable, and each note the first of a `PT_NOTE` of its own. The ELF header lies in none of
//! the segments. Every segment lists its rights here, whatever the input sections ask for.

use crate::manifest::Manifest;
use crate::note::{extension_note, manifest_note};
use abi::note::{Target, abi_note};
use abi::{IMAGE_BASE, PAGE_SIZE};
use std::fmt::Write;

/// Size of the stack in bytes.
pub const STACK_BYTES: u64 = 256 << 10;

/// The interpreter of every image: a path that cannot exist, so that Linux refuses to execute it.
pub const INTERPRETER: &[u8; 20] = b"/nonexistent/solo5/\0";

/// The linker script of an image with this manifest, these bits of [`abi::extension::feature`] and
/// the text of the rules that it comes with, built for `target`.
pub fn linker_script(
    manifest: &Manifest,
    features: u32,
    rules: Option<&str>,
    target: Target,
) -> String {
    let interpreter = data(INTERPRETER);
    let abi = data(&abi_note(target));
    let (extension, requests) = extension_note(manifest, features);
    let (extension, requests) = (data(&extension), data(&requests));
    let manifest = data(&manifest_note(&manifest.entries));
    let rules = rules.map_or_else(String::new, |text| {
        let statements = text_data(text);
        format!(
            "    {} 0 (INFO) : {{{statements} }}\n",
            crate::rules::SECTION
        )
    });
    format!(
        "/* Written by Outboard's image crate: change the manifest, not this file. */
ENTRY(_start)
EXTERN(outboard_host_info)
PHDRS {{
    interp PT_INTERP FLAGS(4);
    text PT_LOAD FLAGS(5);
    rodata PT_LOAD FLAGS(4);
    abi PT_NOTE FLAGS(4);
    manifest PT_NOTE FLAGS(4);
    extension PT_NOTE FLAGS(4);
    stack PT_LOAD FLAGS(6);
    data PT_LOAD FLAGS(6);
    bss PT_LOAD FLAGS(6);
}}
SECTIONS {{
    . = {IMAGE_BASE:#x};
    .text : {{ *(.text .text.*) }} :text

    . = ALIGN({PAGE_SIZE:#x});
    .interp : ALIGN(4) {{{interpreter} }} :rodata :interp
    .note.solo5.abi : ALIGN(4) {{ __abi_note = .;{abi} }} :rodata :abi
    .note.solo5.manifest : ALIGN(4) {{{manifest} }} :rodata :manifest
    .note.outboard : ALIGN(4) {{ __extension_note = .;{extension}
        QUAD(outboard_host_info){requests} }} :rodata :extension
    .rodata : {{ *(.rodata .rodata.*) }} :rodata
    .data.rel.ro : {{ *(.data.rel.ro .data.rel.ro.*) *(.got .got.*) }} :rodata

    /* An overflow runs into the read-only segment below. */
    . = ALIGN({PAGE_SIZE:#x});
    .stack (NOLOAD) : {{ __stack_bottom = .; . += {STACK_BYTES:#x}; __stack_top = .; }} :stack

    . = ALIGN({PAGE_SIZE:#x});
    .data : {{ *(.data .data.*) }} :data

    /* Stock tenders skip a segment with nothing in the file, so that large statics stay lazy. */
    . = ALIGN({PAGE_SIZE:#x});
    .bss (NOLOAD) : {{ *(.bss .bss.*) *(COMMON) }} :bss
    . = ALIGN({PAGE_SIZE:#x});
    _end = .;

{rules}    /DISCARD/ : {{ *(.eh_frame) *(.eh_frame_hdr) *(.gcc_except_table*) *(.comment) }}
}}
"
    )
}

/// Statements that emit `bytes`, a multiple of four of them, in the order of the target.
fn data(bytes: &[u8]) -> String {
    let mut statements = String::new();
    for chunk in bytes.chunks(4) {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        // Writing to a String cannot fail.
        let _ = write!(statements, " LONG({:#x})", u32::from_le_bytes(word));
    }
    statements
}

/// Statements that emit a text.
fn text_data(text: &str) -> String {
    let (words, rest) = text.as_bytes().as_chunks::<4>();
    let mut statements = data(words.as_flattened());
    for byte in rest {
        // Writing to a String cannot fail.
        let _ = write!(statements, " BYTE({byte:#x})");
    }
    statements
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::manifest::{Entry, kind};

    /// What the linker will emit for `section`: its constants.
    fn emitted(script: &str, section: &str) -> Vec<u8> {
        let start = script.find(&format!(" {section} :")).unwrap();
        let statements = &script[start..];
        statements[..statements.find('}').unwrap()]
            .split("LONG(0x")
            .skip(1)
            .map(|rest| u32::from_str_radix(rest.split(')').next().unwrap(), 16).unwrap())
            .flat_map(u32::to_le_bytes)
            .collect()
    }

    #[test]
    fn the_text_of_rules_is_no_part_of_what_is_loaded() {
        let script = linker_script(&Manifest::none(), 0, Some("policy"), Target::Spt);
        let section = "    .outboard.rules 0 (INFO) : { LONG(0x696c6f70) BYTE(0x63) BYTE(0x79) }\n";
        assert!(script.contains(section), "{script}");
    }

    #[test]
    fn the_script_emits_the_notes_byte_for_byte() {
        let mut manifest = Manifest {
            pci: vec![crate::sample::request("nic0", 1)],
            dma_bytes: 2 << 20,
            ..Manifest::none()
        };
        let disk = Entry::new("storage", kind::BLOCK_BASIC).unwrap();
        manifest.entries.push(disk);
        for target in [Target::Spt, Target::Hvt] {
            let script = linker_script(&manifest, 5, None, target);
            assert_eq!(emitted(&script, ".interp"), INTERPRETER);
            assert_eq!(emitted(&script, ".note.solo5.abi"), abi_note(target));
            assert_eq!(
                emitted(&script, ".note.solo5.manifest"),
                manifest_note(&manifest.entries)
            );
            let (before, after) = extension_note(&manifest, 5);
            assert_eq!(emitted(&script, ".note.outboard"), [before, after].concat());
        }
    }
}
