//! The files, as they were in `www` when the image was built.

/// A file.
pub struct File {
    /// Where it is.
    path: &'static str,
    /// The lines of a header that it has in each answer.
    pub fields: &'static str,
    /// What it holds.
    pub bytes: &'static [u8],
}

// FILES, as build.rs writes it.
include!(concat!(env!("OUT_DIR"), "/files.rs"));

impl File {
    /// The file at `path`.
    pub fn find(path: &[u8]) -> Option<&'static Self> {
        FILES.iter().find(|file| file.path.as_bytes() == path)
    }

    /// Its entity tag, quotes included.
    pub fn etag(&self) -> &'static str {
        let tag = |line: &'static str| line.strip_prefix("ETag: ");
        self.fields.lines().find_map(tag).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_their_types_and_tags() {
        let index = File::find(b"/index.html").unwrap();
        assert!(index.fields.starts_with("Content-Type: text/html"));
        assert_eq!(File::find(b"/").unwrap().etag(), index.etag());
        let small = File::find(b"/1k").unwrap();
        assert!(small.fields.contains("application/octet-stream\r\n"));
        assert_eq!(small.bytes.len(), 1024);
        assert_eq!(small.etag().len(), 18);
        assert_ne!(small.etag(), index.etag());
    }

    #[test]
    fn nothing_is_elsewhere() {
        for path in ["", "1k", "/1k/", "/../1k", "//1k", "/1K", "/www/1k"] {
            assert!(File::find(path.as_bytes()).is_none(), "{path}");
        }
    }
}
