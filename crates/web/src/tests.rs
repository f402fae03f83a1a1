use crate::answer::{FIELDS_MAX, answer};
use crate::site::{File, NoFile, Site, Source};
use core::ops::Range;
use device::block::Limits;
use device::files::{self, Entry, FileSystem, Kind, Metadata};
use device::{BlockDevice, BlockError};
use std::boxed::Box;
use std::string::{String, ToString};
use std::vec::Vec;
use std::{format, vec};

/// What the site's files hold.
fn file(name: &str) -> Vec<u8> {
    match name {
        "1k" => vec![b'k'; 1024],
        _ => b"<html></html>".to_vec(),
    }
}

/// A site as part of an image.
fn site() -> Site {
    let files = ["./1k", "./index.html"].map(|name| (name, 0, file(&name[2..])));
    Site::read(Source::Memory(Box::leak(archive(&files).into()))).unwrap()
}

/// The header and the body that a request gets, and whether the connection goes on.
fn ask(request: &str) -> (String, Vec<u8>, bool) {
    let site = site();
    let (answer, len) = answer(request.as_bytes(), &site).expect("it is whole");
    assert!(len <= request.len());
    let mut text = String::new();
    answer.write(0, &mut text);
    let (header, body) = text.split_once("\r\n\r\n").unwrap();
    let file = answer.body();
    let file = file.map(|(file, range)| site.bytes(file, range, PART).unwrap());
    let body = [body.as_bytes(), &file.unwrap_or_default()].concat();
    (format!("{header}\r\n\r\n"), body, answer.keeps_alive)
}

fn etag(path: &str) -> String {
    site().find(path.as_bytes()).unwrap().etag.clone()
}

/// The status of a request with these lines.
fn status(request: &str) -> u16 {
    let (header, ..) = ask(request);
    header[9..12].parse().unwrap()
}

fn get(path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n{fields}\r\n")
}

#[test]
fn a_file_is_served_with_its_header() {
    let (header, body, keeps) = ask(&get("/1k", ""));
    let expected = format!(
        "HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\
         Content-Type: application/octet-stream\r\nETag: {}\r\nAccept-Ranges: bytes\r\n\
         Content-Length: 1024\r\nConnection: keep-alive\r\n\r\n",
        etag("/1k")
    );
    assert_eq!((header, body, keeps), (expected, file("1k"), true));
}

#[test]
fn head_has_the_header_alone() {
    let (of_get, ..) = ask(&get("/1k", ""));
    let (of_head, body, _) = ask(&get("/1k", "").replace("GET", "HEAD"));
    assert_eq!((of_head, body.len()), (of_get, 0));
    let (refusal, body, _) = ask("HEAD / HTTP/1.1\r\n\r\n");
    assert!(refusal.starts_with("HTTP/1.1 400 Bad Request\r\n"));
    assert!(body.is_empty());
}

#[test]
fn a_refusal_is_text() {
    let (header, body, keeps) = ask(&get("/nothing", ""));
    let expected = "HTTP/1.1 404 Not Found\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\
                    Content-Type: text/plain\r\nContent-Length: 13\r\n\
                    Connection: keep-alive\r\n\r\n";
    assert_eq!(
        (&*header, &*body, keeps),
        (expected, &b"404 Not Found"[..], true)
    );
    let (header, ..) = ask("PUT / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(header.contains("405 Method Not Allowed\r\n"));
    assert!(header.contains("\r\nAllow: GET, HEAD\r\n"));
}

#[test]
fn requests_wait_for_their_end_and_leave_the_next_one() {
    let request = get("/1k", "");
    for len in 0..request.len() {
        assert!(
            answer(&request.as_bytes()[..len], &site()).is_none(),
            "{len}"
        );
    }
    let two = request.clone() + "GET /";
    assert_eq!(answer(two.as_bytes(), &site()).unwrap().1, request.len());
}

#[test]
fn ranges() {
    let (header, body, _) = ask(&get("/1k", "Range: bytes=10-19\r\n"));
    assert!(header.starts_with("HTTP/1.1 206 Partial Content\r\n"));
    assert!(header.contains("\r\nContent-Range: bytes 10-19/1024\r\nContent-Length: 10\r\n"));
    assert_eq!(body, file("1k")[10..20]);
    let (header, body, _) = ask(&get("/1k", "Range: bytes=1024-\r\n"));
    assert!(header.starts_with("HTTP/1.1 416 Range Not Satisfiable\r\n"));
    assert!(header.contains("\r\nContent-Range: bytes */1024\r\nContent-Length: 0\r\n"));
    assert!(body.is_empty());
    let head = get("/1k", "Range: bytes=0-1\r\n").replace("GET", "HEAD");
    assert_eq!(status(&head), 200);
}

#[test]
fn conditions() {
    let etag = etag("/1k");
    for (fields, expected) in [
        (format!("If-None-Match: {etag}\r\n"), 304),
        (format!("If-None-Match: \"a\", W/{etag}\r\n"), 304),
        (
            format!("If-None-Match: \"a\"\r\nif-none-match:{etag}\r\n"),
            304,
        ),
        ("If-None-Match: *\r\n".to_string(), 304),
        ("If-None-Match: \"a\"\r\n".to_string(), 200),
        (format!("If-Match: {etag}\r\n"), 200),
        (format!("If-Match: W/{etag}\r\n"), 412),
        ("If-Match: \"a\"\r\n".to_string(), 412),
        (format!("If-Range: {etag}\r\nRange: bytes=0-1\r\n"), 206),
        ("If-Range: \"a\"\r\nRange: bytes=0-1\r\n".to_string(), 200),
    ] {
        assert_eq!(status(&get("/1k", &fields)), expected, "{fields}");
    }
    let (header, body, keeps) = ask(&get("/1k", &format!("If-None-Match: {etag}\r\n")));
    assert!(header.contains(&format!("\r\nETag: {etag}\r\n")));
    assert!(!header.contains("Content-Length"));
    assert!(body.is_empty() && keeps);
}

#[test]
fn paths() {
    for (path, expected) in [
        ("/", 200),
        ("/?a=/../", 200),
        ("/%31k", 200),
        ("http://h/1k", 200),
        ("http://h", 200),
        ("http://h?a", 200),
        ("/../1k", 404),
        ("/%2e%2e/1k", 404),
        ("/http://h/1k", 404),
        ("1k", 400),
        ("*", 400),
        ("/%00", 404),
        ("/1k%00", 404),
        ("/%", 404),
        ("/%1", 404),
        ("/%+1", 404),
        ("/%é", 404),
    ] {
        assert_eq!(status(&get(path, "")), expected, "{path}");
    }
}

#[test]
fn what_cannot_be_understood_ends_the_connection() {
    for (request, expected) in [
        ("GET / HTTP/2.0\r\n\r\n", 505),
        ("GET / HTTP/1.7\r\n\r\n", 505),
        ("GET / FTP/1.1\r\n\r\n", 505),
        ("GET /\r\n\r\n", 400),
        ("GET /\0 HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: h\r\na\0b: c\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: h\r\na : c\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: h\r\na: b\r\n c\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("\x16\x03\x01\x02", 400),
    ] {
        assert_eq!(status(request), expected, "{request:?}");
        assert!(!ask(request).2, "{request:?}");
    }
    assert_eq!(status(&get("/", &"a: b\r\n".repeat(FIELDS_MAX - 1))), 200);
    assert_eq!(status(&get("/", &"a: b\r\n".repeat(FIELDS_MAX))), 431);
}

#[test]
fn bodies_end_the_connection() {
    for (fields, expected, keeps) in [
        ("Content-Length: 0\r\n", 200, true),
        ("Content-Length: 5\r\n", 200, false),
        ("Content-Length: 5, 5\r\n", 200, false),
        ("Content-Length: 99999999999999999999\r\n", 200, false),
        ("Transfer-Encoding: Chunked\r\n", 200, false),
        ("Content-Length: 5\r\nContent-Length: 6\r\n", 400, false),
        ("Content-Length: -5\r\n", 400, false),
        ("Content-Length: +5\r\n", 400, false),
        ("Content-Length:\r\n", 400, false),
        (
            "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n",
            400,
            false,
        ),
        ("Transfer-Encoding: chunked, gzip\r\n", 400, false),
        ("Transfer-Encoding: gzip, chunked\r\n", 200, false),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            200,
            false,
        ),
    ] {
        let request = get("/", fields);
        assert_eq!(
            (status(&request), ask(&request).2),
            (expected, keeps),
            "{fields}"
        );
    }
    assert_eq!(
        status("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
        400
    );
}

#[test]
fn connections_go_on_as_the_client_wants() {
    for (version, field, keeps) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: TE, Close\r\n", false),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
    ] {
        let request = format!("GET / HTTP/{version}\r\nHost: h\r\n{field}\r\n");
        let (header, _, kept) = ask(&request);
        assert_eq!(kept, keeps, "{version} {field}");
        let says = if keeps { "keep-alive" } else { "close" };
        assert!(header.ends_with(&format!("\r\nConnection: {says}\r\n\r\n")));
    }
}

#[test]
fn ranges_of_a_thousand_bytes() {
    for (field, expected) in [
        ("bytes=0-0", Some(0..1)),
        ("BYTES=0-99", Some(0..100)),
        ("bytes=990-", Some(990..1024)),
        ("bytes=990-99999999999999999999", Some(990..1024)),
        ("bytes=-10", Some(1014..1024)),
        ("bytes=-5000", Some(0..1024)),
        ("bytes=-0", None),
        ("bytes=1024-", None),
        ("bytes=99999999999999999999-", None),
    ] {
        let (header, body, _) = ask(&get("/1k", &format!("Range: {field}\r\n")));
        match expected {
            Some(range) => assert_eq!(body, file("1k")[range], "{field}"),
            None => assert!(header.starts_with("HTTP/1.1 416 "), "{field}"),
        }
    }
    // What is no single range is ignored.
    for field in [
        "",
        "bytes",
        "bytes=",
        "bytes=-",
        "bytes=5",
        "bytes=9-3",
        "bytes=0-1,3-4",
        "lines=1-2",
        "bytes=+1-2",
        "bytes=a-b",
        "bytes=--1",
    ] {
        assert_eq!(
            status(&get("/1k", &format!("Range: {field}\r\n"))),
            200,
            "{field}"
        );
    }
}

#[test]
fn files_have_their_types_and_tags() {
    let site = site();
    let index = site.find(b"/index.html").unwrap();
    assert_eq!(index.media_type, "text/html; charset=utf-8");
    assert_eq!(site.find(b"/").unwrap().etag, index.etag);
    assert_ne!(site.find(b"/1k").unwrap().etag, index.etag);
    for path in ["", "1k", "/1k/", "/../1k", "//1k", "/1K", "/www/1k"] {
        let found = site.find(path.as_bytes());
        assert_eq!(found.err(), Some(NoFile::NotFound), "{path}");
    }
}

/// A disk in memory.
struct Ram(Vec<u8>);

impl BlockDevice for Ram {
    fn capacity(&self) -> u64 {
        self.0.len() as u64
    }

    fn limits(&self) -> Limits {
        Limits::plain(512)
    }

    fn read(&mut self, offset: u64, blocks: &mut [u8]) -> Result<(), BlockError> {
        assert!(offset.is_multiple_of(512) && blocks.len().is_multiple_of(512));
        let bytes = self
            .0
            .get(offset as usize..)
            .ok_or(BlockError::OutOfRange)?;
        let bytes = bytes.get(..blocks.len()).ok_or(BlockError::OutOfRange)?;
        blocks.copy_from_slice(bytes);
        Ok(())
    }

    fn write(&mut self, _: u64, _: &[u8]) -> Result<(), BlockError> {
        Err(BlockError::Host(30))
    }
}

fn on_disk(archive: &[u8]) -> Site {
    let disk: Box<dyn BlockDevice> = Box::new(Ram(archive.to_vec()));
    Site::read(Source::Disk(disk.into())).unwrap()
}

/// An archive of files with names, times and bytes.
fn archive(files: &[(&str, u64, Vec<u8>)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, modified, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mtime(*modified);
        archive
            .append_data(&mut header, name, bytes.as_slice())
            .unwrap();
    }
    archive.into_inner().unwrap()
}

#[test]
fn dates_decide_where_tags_do_not() {
    let site = on_disk(&archive(&[("a.txt", 784_111_777, b"abc".to_vec())]));
    for (fields, expected) in [
        ("If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n", 304),
        ("If-Modified-Since: Sun, 06 Nov 1994 08:49:36 GMT\r\n", 200),
        (
            "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\nIf-None-Match: \"a\"\r\n",
            200,
        ),
        (
            "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:36 GMT\r\n",
            412,
        ),
        ("If-Modified-Since: yesterday\r\n", 200),
    ] {
        let request = get("/a.txt", fields);
        let mut header = String::new();
        answer(request.as_bytes(), &site)
            .unwrap()
            .0
            .write(0, &mut header);
        assert_eq!(header[9..12], expected.to_string(), "{fields}");
        let modified = "\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
        assert!(expected == 412 || header.contains(modified));
    }
}

#[test]
fn long_names_are_found_and_broken_archives_are_refused() {
    let long = "folder/".repeat(30) + "a.js";
    let whole = archive(&[(&long, 1, vec![7; 1000])]);
    let read = |bytes: &[u8]| Site::read(Source::Memory(Box::leak(bytes.into())));
    let site = read(&whole).unwrap();
    let file = site.find(format!("/{long}").as_bytes()).unwrap();
    assert_eq!(file.media_type, "text/javascript");
    assert_eq!(site.bytes(&file, 0..1000, 9).unwrap(), [7; 1000].as_slice());
    assert!(site.bytes(&file, 0..1001, 9).is_err());
    for len in [1, 511, 513, 1025, 2000, 2600] {
        assert!(read(&whole[..len]).is_err(), "{len}");
    }
    let mut broken = whole.to_vec();
    broken[0] ^= 1;
    assert!(read(&broken).is_err());
    assert!(read(&[]).unwrap().find(b"/").is_err());
}

#[test]
fn a_disk_is_read_in_pieces() {
    let bytes: Vec<u8> = (0..100_000_u32).map(|place| (place / 7) as u8).collect();
    let site = on_disk(&archive(&[("a", 1, bytes.clone())]));
    let file = site.find(b"/a").unwrap();
    assert_eq!(
        in_pieces(&site, &file, 9..file.len - 9),
        bytes[9..bytes.len() - 9]
    );
}

/// Bytes that are read at a time.
const PART: u32 = 16 << 10;

/// A part of a file, as it is sent.
fn in_pieces(site: &Site, file: &File, mut rest: Range<u64>) -> Vec<u8> {
    let mut read = Vec::new();
    while !rest.is_empty() {
        let piece = site.bytes(file, rest.clone(), PART).unwrap();
        assert!(!piece.is_empty() && piece.len() <= PART as usize);
        rest.start += piece.len() as u64;
        read.extend_from_slice(&piece);
    }
    read
}

/// A file system with one file, and one that cannot be read.
struct OneFile(Vec<u8>);

impl FileSystem for OneFile {
    fn name(&self) -> &'static str {
        "one"
    }

    fn metadata(&self, path: &[u8]) -> Result<Metadata, files::Error> {
        Ok(self.open(path)?.metadata())
    }

    fn open(&self, path: &[u8]) -> Result<Box<dyn files::File>, files::Error> {
        match path {
            b"/folder/index.html" => Ok(Box::new(Self(self.0.clone()))),
            b"/broken" => Err(files::Error::Disk(BlockError::Host(5))),
            _ => Err(files::Error::NotFound),
        }
    }

    fn list(&self, _: &[u8], _: &mut dyn FnMut(Entry) -> bool) -> Result<(), files::Error> {
        Ok(())
    }
}

impl files::File for OneFile {
    fn metadata(&self) -> Metadata {
        Metadata {
            kind: Kind::File,
            len: self.0.len() as u64,
            modified: 784_111_777,
        }
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<usize, files::Error> {
        let rest = self.0.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(bytes.len());
        bytes[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

#[test]
fn a_file_system_is_a_site() {
    let bytes: Vec<u8> = (0..50_000_u32).map(|place| (place / 3) as u8).collect();
    let site = Site::Tree(Box::new(OneFile(bytes.clone())));
    let file = site.find(b"/folder/").unwrap();
    assert_eq!(file.media_type, "text/html; charset=utf-8");
    assert_eq!(in_pieces(&site, &file, 0..file.len), bytes);
    assert!(site.bytes(&file, file.len..file.len + 1, PART).is_err());
    for (path, status) in [("/folder/", "200"), ("/none", "404"), ("/broken", "500")] {
        let (answer, _) = answer(get(path, "").as_bytes(), &site).unwrap();
        let mut header = String::new();
        answer.write(0, &mut header);
        assert_eq!(&header[9..12], status, "{path}");
        let modified = "\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
        assert_eq!(header.contains(modified), status == "200");
    }
}
