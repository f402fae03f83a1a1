use super::*;
use crate::command;
use rustix::net::{bind, listen, socketpair};
use std::format;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::vec;

const PATIENCE: Duration = Duration::from_millis(50);

fn pair() -> (Socket, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (Socket::new(ours.into(), PATIENCE).unwrap(), theirs)
}

fn header(bytes: u32) -> Header {
    Header {
        bytes,
        ..Header::command(1, command::VERSION, 0)
    }
}

#[test]
fn a_message_arrives_with_its_descriptors() {
    let (ours, theirs) = pair();
    let theirs = Socket::new(theirs.into(), PATIENCE).unwrap();
    let sent = Header::command(9, command::DMA_MAP, 5);
    let passed = [ours.as_fd(), theirs.as_fd()];
    ours.send(&sent, &[b"ab", b"", b"cde"], &passed).unwrap();
    let mut buffer = [0; 8];
    let received = theirs.receive(&mut buffer).unwrap();
    assert_eq!((received.header, received.payload), (sent, 5));
    assert_eq!(&buffer[..5], b"abcde");
    assert_eq!(received.descriptors.len(), 2);
}

#[test]
fn whoever_closes_is_told_from_whoever_stops_in_the_middle() {
    let mut buffer = [0; 8];
    let (ours, theirs) = pair();
    drop(theirs);
    assert!(matches!(ours.receive(&mut buffer), Err(Error::Closed)));
    assert!(matches!(
        ours.send(&header(16), &[], &[]),
        Err(Error::Closed)
    ));
    for bytes in [&header(20).as_bytes()[..7], header(20).as_bytes()] {
        let (ours, mut theirs) = pair();
        theirs.write_all(bytes).unwrap();
        drop(theirs);
        assert!(matches!(ours.receive(&mut buffer), Err(Error::Cut)));
    }
}

#[test]
fn nobody_is_waited_for_for_ever() {
    let mut buffer = [0; 8];
    let (ours, mut theirs) = pair();
    assert!(matches!(ours.receive(&mut buffer), Err(Error::Silent)));
    theirs.write_all(header(20).as_bytes()).unwrap();
    assert!(matches!(ours.receive(&mut buffer), Err(Error::Silent)));
    // Nobody reads: the socket's buffer fills up.
    let (ours, _theirs) = pair();
    let large = vec![0; 1 << 20];
    let sent = (0..64).find_map(|_| ours.send(&header(16), &[&large], &[]).err());
    assert!(matches!(sent, Some(Error::Silent)), "{sent:?}");
}

/// It would take 16 times as long as there is patience, and each byte comes in time.
#[test]
fn a_message_that_drips_is_not_waited_for_byte_by_byte() {
    let (ours, mut theirs) = pair();
    let bytes = header(16);
    let drip = std::thread::spawn(move || {
        let sent = bytes.as_bytes().iter().position(|byte| {
            std::thread::sleep(PATIENCE);
            theirs.write_all(&[*byte]).is_err()
        });
        sent.is_some()
    });
    let mut buffer = [0; 8];
    assert!(matches!(ours.receive(&mut buffer), Err(Error::Silent)));
    drop(ours);
    assert!(drip.join().unwrap(), "all of it was waited for");
}

/// A reader that takes a little now and then keeps nobody for longer than one that takes nothing.
#[test]
fn a_message_that_is_sipped_is_given_up() {
    let (ours, mut theirs) = pair();
    let large = vec![0; 1 << 20];
    let ended = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let over = std::sync::Arc::clone(&ended);
    let sip = std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while !over.load(std::sync::atomic::Ordering::Relaxed) {
            std::thread::sleep(PATIENCE / 2);
            theirs.read_exact(&mut bytes).unwrap();
        }
    });
    let sent = ours.send(&header(16), &[&large], &[]);
    ended.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(matches!(sent, Err(Error::Silent)), "{sent:?}");
    sip.join().unwrap();
}

#[test]
fn whoever_listens_and_accepts_nobody_is_not_waited_for_for_ever() {
    let name = format!("outboard-vfio-user-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let (flags, address) = (SocketFlags::CLOEXEC, SocketAddrUnix::new(&path).unwrap());
    let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    bind(&listener, &address).unwrap();
    listen(&listener, 0).unwrap();
    let first = Socket::connect(&path, PATIENCE);
    let second = Socket::connect(&path, PATIENCE);
    std::fs::remove_file(&path).unwrap();
    assert!(first.is_ok(), "{first:?}");
    let error = second.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
}

#[test]
fn sizes_that_cannot_be_are_refused_before_anything_is_read() {
    for bytes in [0, 15, 25, u32::MAX] {
        let (ours, mut theirs) = pair();
        theirs.write_all(header(bytes).as_bytes()).unwrap();
        let error = ours.receive(&mut [0; 8]).unwrap_err();
        let expected = HeaderError::Size(bytes, 24);
        assert!(
            matches!(error, Error::Header(error) if error == expected),
            "{error}"
        );
    }
}

#[test]
fn more_descriptors_than_there_is_room_for_are_closed() {
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    let ours = Socket::new(ours, PATIENCE).unwrap();
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX + 1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let many = [theirs.as_fd(); DESCRIPTORS_MAX + 1];
    assert!(control.push(SendAncillaryMessage::ScmRights(&many)));
    let bytes = header(16);
    let slices = [IoSlice::new(bytes.as_bytes())];
    sendmsg(&theirs, &slices, &mut control, SendFlags::empty()).unwrap();
    assert!(matches!(ours.receive(&mut [0; 8]), Err(Error::Descriptors)));
}
