//! Reads an image from its file, and no more of it than is needed: what debuggers want may be a
//! hundred times the rest.

use crate::options::Host;
use abi::note::Target;
use image::{Image, ImageError, PROGRAM_HEADERS_MAX};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::{fmt, io};

/// Largest file that is taken for an image, in bytes.
pub const IMAGE_BYTES_MAX: u64 = 256 << 20;

/// Why a file is no image for this host.
#[derive(Debug)]
pub enum Error {
    /// It cannot be read.
    Read(io::Error),
    /// It is no regular file, or larger than [`IMAGE_BYTES_MAX`].
    NoFile,
    /// It is this folder; the image that is in it, if one was built there.
    Folder(PathBuf, Option<PathBuf>),
    /// Something in it is wrong.
    Image(ImageError),
    /// It is for another host than the one that was asked for, and does not understand that.
    Target(Target),
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => write!(f, "{error}; name an image that can be read"),
            Self::NoFile => write!(
                f,
                "no file of up to {} MiB; name an image, as made by: outboard build",
                IMAGE_BYTES_MAX >> 20
            ),
            Self::Folder(_, Some(image)) => {
                write!(f, "a folder; did you mean {}?", image.display())
            }
            Self::Folder(folder, None) => write!(
                f,
                "a folder; the image of the appliance in it is made by: outboard build {}",
                folder.display()
            ),
            Self::Image(error) => error.fmt(f),
            Self::Target(target) => write!(
                f,
                "an image for {0} alone; start it with --host={0}",
                target.name()
            ),
        }
    }
}

/// Opens an image and checks it; the segments are still to be read.
///
/// # Errors
/// If it is no image.
pub fn open(path: &Path) -> Result<(File, Image), Error> {
    // NONBLOCK: a FIFO of this name must not hold the start up.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty());
    let file = File::from(file.map_err(|error| Error::Read(error.into()))?);
    let metadata = file.metadata().map_err(Error::Read)?;
    if metadata.is_dir() {
        return Err(Error::Folder(path.to_owned(), image_in(path)));
    }
    if !metadata.is_file() || metadata.len() > IMAGE_BYTES_MAX {
        return Err(Error::NoFile);
    }
    let bytes = skeleton(&file, metadata.len()).map_err(Error::Read)?;
    let image = Image::parse(&bytes).map_err(Error::Image)?;
    Ok((file, image))
}

/// The image that `outboard build` leaves in the folder of an appliance: it has the folder's name.
fn image_in(folder: &Path) -> Option<PathBuf> {
    let whole = std::fs::canonicalize(folder).ok()?;
    let mut name = whole.file_name()?.to_owned();
    name.push(".spt");
    let image = folder.join(name);
    image.is_file().then_some(image)
}

/// The host to start `image` on: the one that was asked for, or that it was built for.
///
/// # Errors
/// If it does not understand the one that was asked for: images with Outboard's extension
/// understand all.
pub fn host(image: &Image, asked: Option<Host>) -> Result<Host, Error> {
    let speaks = |host: &Host| host.target() == image.target;
    let built_for = || Host::ALL.into_iter().find(speaks);
    let understands = image.extension.is_some() && image.target_address.is_some();
    asked
        .or_else(built_for)
        .filter(|host| speaks(host) || understands)
        .ok_or(Error::Target(image.target))
}

/// Size of an ELF64 header, of a program header, and places in them (System V ABI, chapters 4, 5).
const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
const E_PHOFF: usize = 32;
const E_PHNUM: usize = 56;
const P_TYPE_NOTE: [u8; 4] = 4u32.to_le_bytes();
const P_OFFSET: usize = 8;
const P_FILESZ: usize = 32;

/// As many bytes as the file has, of which header, program headers and notes are read and the rest
/// is zero: all that [`Image::parse`] looks at. It also does the checking; what lies outside the
/// file is left to it here.
fn skeleton(file: &File, length: u64) -> io::Result<Vec<u8>> {
    // A large allocation is a fresh mapping, of which only pages that are written exist.
    let mut bytes = vec![0; length as usize];
    read(file, &mut bytes, 0, HEADER as u64)?;
    let Some(header) = bytes.first_chunk::<HEADER>() else {
        return Ok(bytes);
    };
    let table = u64_at(header, E_PHOFF);
    let count = u16::from_le_bytes([header[E_PHNUM], header[E_PHNUM + 1]]);
    let count = usize::from(count.min(PROGRAM_HEADERS_MAX));
    read(file, &mut bytes, table, (count * PROGRAM_HEADER) as u64)?;
    for i in 0..count {
        let start = usize::try_from(table)
            .ok()
            .and_then(|t| t.checked_add(i * PROGRAM_HEADER));
        let header = start.and_then(|start| bytes.get(start..)?.first_chunk::<PROGRAM_HEADER>());
        if let Some(header) = header.filter(|header| header[..4] == P_TYPE_NOTE) {
            let (offset, size) = (u64_at(header, P_OFFSET), u64_at(header, P_FILESZ));
            read(file, &mut bytes, offset, size)?;
        }
    }
    Ok(bytes)
}

fn u64_at<const N: usize>(header: &[u8; N], at: usize) -> u64 {
    let bytes = header.get(at..).and_then(|rest| rest.first_chunk());
    bytes.copied().map_or(0, u64::from_le_bytes)
}

/// Reads a part of the file to the same place in `bytes`, if it has such a place.
fn read(file: &File, bytes: &mut [u8], start: u64, size: u64) -> io::Result<()> {
    let end = start
        .checked_add(size)
        .and_then(|end| usize::try_from(end).ok());
    match end.and_then(|end| bytes.get_mut(start as usize..end)) {
        Some(part) => file.read_exact_at(part, start),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::manifest::{Entry, size_of_manifest};
    use abi::note::{MANIFEST_TYPE, abi_note, solo5_header};
    use zerocopy::IntoBytes;

    const NOTES: usize = 0x1000;
    const TEXT: usize = 0x2000;

    /// An image of one segment that ends in megabytes which nobody needs.
    fn image(target: Target) -> Vec<u8> {
        let mut bytes = vec![0xa5; 2 << 20];
        let abi = abi_note(target);
        let size = size_of_manifest(1);
        let mut manifest = solo5_header(MANIFEST_TYPE, 4 + size as u32).to_vec();
        manifest.extend([0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]);
        manifest.extend(Entry::RESERVED.as_bytes());
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\0");
        header[16..24].copy_from_slice(&[2, 0, 62, 0, 1, 0, 0, 0]);
        header[24..32].copy_from_slice(&abi::IMAGE_BASE.to_le_bytes());
        header[32] = HEADER as u8;
        header[52..58].copy_from_slice(&[64, 0, 56, 0, 3, 0]);
        bytes[..HEADER].copy_from_slice(&header);
        let program_headers = [
            (1, 5, TEXT, abi::IMAGE_BASE, 0x1000),
            (4, 4, NOTES, 0, abi.len()),
            (4, 4, NOTES + 64, 0, manifest.len()),
        ];
        for (i, (kind, flags, offset, address, size)) in program_headers.into_iter().enumerate() {
            let words = [
                u64::from(kind as u32) | (flags as u64) << 32,
                offset as u64,
                address,
                0,
                size as u64,
                size as u64,
                0x1000,
            ];
            let start = HEADER + i * PROGRAM_HEADER;
            bytes[start..start + PROGRAM_HEADER].copy_from_slice(words.as_bytes());
        }
        bytes[NOTES..NOTES + abi.len()].copy_from_slice(&abi);
        bytes[NOTES + 64..NOTES + 64 + manifest.len()].copy_from_slice(&manifest);
        bytes
    }

    fn file(name: &str, bytes: &[u8]) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("tender-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        path
    }

    #[test]
    fn the_skeleton_says_all_that_the_file_says() {
        let bytes = image(Target::Spt);
        let path = file("skeleton", &bytes);
        let (file, parsed) = open(&path).unwrap();
        assert_eq!(parsed, Image::parse(&bytes).unwrap());
        let skeleton = skeleton(&file, bytes.len() as u64).unwrap();
        assert_eq!(skeleton.len(), bytes.len());
        assert!(
            skeleton[TEXT..].iter().all(|byte| *byte == 0),
            "segments are not read"
        );
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn an_image_without_the_extension_runs_on_its_own_host_alone() {
        let path = file("hvt", &image(Target::Hvt));
        let (_, image) = open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        assert_eq!(host(&image, None).unwrap(), Host::Hvt);
        assert_eq!(host(&image, Some(Host::Hvt)).unwrap(), Host::Hvt);
        for other in [Host::Spt, Host::Process] {
            let refused = host(&image, Some(other));
            assert!(matches!(refused, Err(Error::Target(Target::Hvt))));
        }
    }

    #[test]
    fn what_is_cut_or_points_outside_is_refused_and_not_followed() {
        let whole = image(Target::Spt);
        for length in [0, 3, 63, 64, 100, 231, NOTES, NOTES + 20] {
            let path = file("cut", &whole[..length]);
            assert!(matches!(open(&path), Err(Error::Image(_))), "{length}");
            std::fs::remove_file(path).unwrap();
        }
        for place in [
            E_PHOFF,
            HEADER + P_OFFSET,
            HEADER + PROGRAM_HEADER + P_FILESZ,
        ] {
            let mut bytes = whole.clone();
            bytes[place..place + 8].fill(0xff);
            let path = file("outside", &bytes);
            assert!(matches!(open(&path), Err(Error::Image(_))), "{place}");
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn a_folder_is_told_from_the_image_in_it() {
        let folder = std::env::temp_dir().join(format!("outboard-load-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let said = || open(&folder).unwrap_err().to_string();
        let shown = folder.display();
        let build = format!(
            "a folder; the image of the appliance in it is made by: outboard build {shown}"
        );
        assert_eq!(said(), build);
        let image = folder.join(format!("outboard-load-{}.spt", std::process::id()));
        std::fs::write(&image, "").unwrap();
        let meant = format!("a folder; did you mean {}?", image.display());
        assert_eq!(said(), meant);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_is_no_file_is_refused() {
        assert!(matches!(open(Path::new("/dev/zero")), Err(Error::NoFile)));
        assert!(matches!(
            open(Path::new("/nonexistent")),
            Err(Error::Read(_))
        ));
    }
}
