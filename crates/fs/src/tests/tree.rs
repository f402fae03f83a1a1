//! Trees that are copied and compared, in memory.

use crate::tmpfs::Tmpfs;
use crate::tree::{Counts, Difference, check, compare, copy};
use alloc::vec;
use alloc::vec::Vec;
use device::files::{Error, FileSystem};

fn files() -> Tmpfs {
    Tmpfs::new(4 << 20, || 1)
}

fn filled() -> Tmpfs {
    let files = files();
    files.make_folder(b"/folder").unwrap();
    files.make_folder(b"/folder/inner").unwrap();
    files.make_folder(b"/lost+found").unwrap();
    for (path, len) in [(&b"/empty"[..], 0), (b"/folder/inner/large", 200_000)] {
        let bytes: Vec<u8> = (0..len).map(|at| (at / 100) as u8).collect();
        files.create(path).unwrap().write(0, &bytes).unwrap();
    }
    files
}

fn differences(first: &Tmpfs, second: &Tmpfs) -> Vec<(Vec<u8>, Difference)> {
    let mut told = Vec::new();
    let compared = compare(first, second, &mut |path, what| {
        told.push((path.to_vec(), what));
    });
    compared.unwrap();
    told
}

#[test]
fn a_copy_is_the_same() {
    let (old, new) = (filled(), files());
    let counts = Counts {
        files: 2,
        folders: 2,
        bytes: 200_000,
        others: 0,
    };
    assert_eq!(copy(&old, &new), Ok(counts));
    // Also over one that is there.
    assert_eq!(copy(&old, &new), Ok(counts));
    assert_eq!(check(&new, &mut |path, _| panic!("{path:?}")), Ok(counts));
    let compared = compare(&old, &new, &mut |path, _| panic!("{path:?}"));
    assert_eq!(compared, Ok(counts));
}

#[test]
fn what_differs_is_told() {
    let (old, new) = (filled(), filled());
    new.create(b"/folder/added").unwrap();
    new.remove(b"/empty").unwrap();
    new.make_folder(b"/empty").unwrap();
    let mut large = new.open_to_write(b"/folder/inner/large").unwrap();
    large.write(199_999, &[9]).unwrap();
    let told = [
        (b"/empty".to_vec(), Difference::Kind),
        (b"/folder/inner/large".to_vec(), Difference::Bytes),
        (b"/folder/added".to_vec(), Difference::Added),
    ];
    assert_eq!(differences(&old, &new), told);
    large.set_len(199_999).unwrap();
    assert_eq!(differences(&old, &new)[1].1, Difference::Bytes);
    assert_eq!(differences(&new, &old)[1].1, Difference::Missing);
}

#[test]
fn a_copy_that_does_not_fit_says_where() {
    let new = Tmpfs::new(50_000, || 1);
    let failed = copy(&filled(), &new).unwrap_err();
    assert_eq!(failed.error, Error::NoSpace);
    assert_eq!(failed.path, b"/folder/inner/large");
    let mut told = vec![];
    check(&new, &mut |path, _| told.push(path.to_vec())).unwrap();
    assert!(told.is_empty());
}
