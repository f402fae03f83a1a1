//! What a file system in memory takes, and what it refuses.

use crate::tmpfs::Tmpfs;
use alloc::vec;
use alloc::vec::Vec;
use device::files::{Error, FileSystem, Kind, Metadata};

fn now() -> u64 {
    17
}

#[test]
fn the_budget_is_what_it_takes_at_most() {
    let files = Tmpfs::new(10_000, now);
    let mut file = files.create(b"/file").unwrap();
    file.write(0, &[1; 5000]).unwrap();
    // A part fits: another piece does not.
    assert_eq!(file.write(5000, &[2; 8000]), Err(Error::NoSpace));
    assert_eq!(file.metadata().len, 8192);
    assert_eq!(files.create(&[b"/", &[b'n'; 255][..]].concat()).err(), None);
    // A hole takes nothing.
    file.set_len(1 << 40).unwrap();
    let mut found = [9; 4];
    assert_eq!(file.read(1 << 39, &mut found), Ok(4));
    assert_eq!(found, [0; 4]);
    file.set_len(10).unwrap();
    file.write(100_000, &[3; 10]).unwrap();
    drop(file);
    files.remove(b"/file").unwrap();
    files
        .create(b"/again")
        .unwrap()
        .write(0, &[1; 8192])
        .unwrap();
    let error = (b'0'..b'z').find_map(|name| files.make_folder(&[b'/', name, b'x']).err());
    assert_eq!(error, Some(Error::NoSpace));
}

#[test]
fn what_cannot_be_done_says_why() {
    let files = Tmpfs::new(1 << 20, now);
    files.make_folder(b"/folder").unwrap();
    files.make_folder(b"/folder/inner/").unwrap();
    let open = files.create(b"/folder/file").unwrap();
    let folder = Metadata {
        kind: Kind::Folder,
        len: 0,
        modified: 17,
    };
    assert_eq!(files.metadata(b"/folder//."), Ok(folder));
    for (path, error) in [
        (&b"/folder"[..], Error::NotEmpty),
        (b"/folder/file", Error::Busy),
        (b"/none", Error::NotFound),
        (b"/folder/file/none", Error::NoFolder),
        (b"/", Error::Path),
        (b"/folder/.", Error::Path),
        (b"folder", Error::Path),
    ] {
        assert_eq!(files.remove(path), Err(error), "{path:?}");
    }
    for (from, to, error) in [
        (&b"/folder"[..], &b"/folder/inner/folder"[..], Error::Path),
        (b"/folder/inner", b"/folder/file", Error::NoFolder),
        (b"/folder/file", b"/folder/inner", Error::NoFile),
        (b"/folder/inner", b"/none/inner", Error::NotFound),
    ] {
        assert_eq!(files.rename(from, to), Err(error), "{from:?}");
    }
    assert_eq!(files.create(b"/folder/file").err(), Some(Error::Exists));
    let long = [b"/", &vec![b'n'; 256][..]].concat();
    assert_eq!(files.create(&long).err(), Some(Error::Path));
    let read = files.open(b"/folder/file").unwrap().write(0, &[1]);
    assert_eq!(read, Err(Error::ReadOnly));
    drop(open);
    files
        .rename(b"/folder/file", b"/folder/inner/file")
        .unwrap();
    files.rename(b"/folder/inner", b"/moved").unwrap();
    let mut names = Vec::new();
    files
        .list(b"/moved", &mut |entry| {
            names.push(entry.name);
            true
        })
        .unwrap();
    assert_eq!(names, [b"file"]);
    files.remove(b"/moved/file").unwrap();
    files.remove(b"/moved").unwrap();
}
