use super::*;
use std::format;
use std::string::ToString;

/// The header and the body that a request gets, and whether the connection goes on.
fn ask(request: &str) -> (String, &'static [u8], bool) {
    let (answer, len) = answer(request.as_bytes()).expect("it is whole");
    assert!(len <= request.len());
    let mut header = String::new();
    answer.write_header(Date(0), &mut header);
    (header, answer.body(), answer.keeps_alive)
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
    let file = File::find(b"/1k").unwrap();
    let expected = format!(
        "HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\
         Content-Type: application/octet-stream\r\nETag: {}\r\nAccept-Ranges: bytes\r\n\
         Content-Length: 1024\r\nConnection: keep-alive\r\n\r\n",
        file.etag()
    );
    assert_eq!((header, body, keeps), (expected, file.bytes, true));
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
        (&*header, body, keeps),
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
        assert!(answer(&request.as_bytes()[..len]).is_none(), "{len}");
    }
    let two = request.clone() + "GET /";
    assert_eq!(answer(two.as_bytes()).unwrap().1, request.len());
}

#[test]
fn ranges() {
    let (header, body, _) = ask(&get("/1k", "Range: bytes=10-19\r\n"));
    assert!(header.starts_with("HTTP/1.1 206 Partial Content\r\n"));
    assert!(header.contains("\r\nContent-Range: bytes 10-19/1024\r\nContent-Length: 10\r\n"));
    assert_eq!(body, &File::find(b"/1k").unwrap().bytes[10..20]);
    let (header, body, _) = ask(&get("/1k", "Range: bytes=1024-\r\n"));
    assert!(header.starts_with("HTTP/1.1 416 Range Not Satisfiable\r\n"));
    assert!(header.contains("\r\nContent-Range: bytes */1024\r\nContent-Length: 0\r\n"));
    assert!(body.is_empty());
    let head = get("/1k", "Range: bytes=0-1\r\n").replace("GET", "HEAD");
    assert_eq!(status(&head), 200);
}

#[test]
fn conditions() {
    let etag = File::find(b"/1k").unwrap().etag();
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
        ("/%00", 400),
        ("/1k%00", 400),
        ("/%", 400),
        ("/%1", 400),
        ("/%+1", 400),
        ("/%é", 400),
    ] {
        assert_eq!(status(&get(path, "")), expected, "{path}");
    }
}

#[test]
fn what_cannot_be_understood_ends_the_connection() {
    for (request, expected) in [
        ("GET / HTTP/2.0\r\n\r\n", 505),
        ("GET / HTTP/1.7\r\n\r\n", 505),
        ("GET / FTP/1.1\r\n\r\n", 400),
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
        ("Transfer-Encoding: gzip, chunked\r\n", 501, false),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            501,
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
