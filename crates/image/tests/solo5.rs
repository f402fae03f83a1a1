//! Images that Solo5 built are images here too. They are found through `SOLO5_DIR`, a built source
//! tree of Solo5 v0.12; without it there is nothing to read, and the test says so.

use image::{Image, ImageError};
use std::path::PathBuf;

/// Images of Solo5's own tests with this extension.
fn images(directory: &str, extension: &str) -> Vec<PathBuf> {
    let folders = std::fs::read_dir(PathBuf::from(directory).join("tests")).unwrap();
    folders
        .filter_map(|folder| std::fs::read_dir(folder.unwrap().path()).ok())
        .flatten()
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .collect()
}

#[test]
fn images_that_solo5_built_are_images() {
    let Ok(directory) = std::env::var("SOLO5_DIR") else {
        println!("skipped: set SOLO5_DIR to a built source tree of Solo5 v0.12");
        return;
    };
    for target in ["spt", "hvt"] {
        let paths = images(&directory, target);
        assert!(!paths.is_empty(), "{directory} holds no .{target} images");
        for path in paths {
            let result = Image::parse(&std::fs::read(&path).unwrap());
            if path.ends_with("buggyelf.hvt") {
                // Its manifest note claims to be larger than its program header.
                assert!(matches!(result, Err(ImageError::NoteCut(_))), "{result:?}");
                continue;
            }
            let image = result.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            assert_eq!(image.target.name(), target);
            assert_eq!(image.extension, None);
        }
    }
}
