//! A process that is to be a PCIe device answers anything: attaching it must end with a device or
//! with one line, and a register is what an answer to its own question says, or nothing.

use abi::manifest::name_field;
use abi::pci::Request;
use rustix::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;
use tender::attach::pci::vfio_user::attach;
use vfio_user::socket::Socket;
use vfio_user::{Header, RegisterRead, RegisterValue, Width};
use zerocopy::{FromBytes, IntoBytes};

const PATIENCE: Duration = Duration::from_millis(200);
/// Answers of one device; it has no more to say than its input.
const ANSWERS_MAX: usize = 64;

/// Answers each command with what the input says of header, payload and descriptors.
fn device(socket: &Socket, mut input: &[u8]) -> Option<()> {
    let mut buffer = vec![0; 8192];
    for _ in 0..ANSWERS_MAX {
        let command = socket.receive(&mut buffer).ok()?.header;
        let ([how, len], rest) = input.split_first_chunk()?;
        let (payload, rest) = rest.split_at_checked((*len).into())?;
        let mut header = command.reply(payload.len());
        input = rest;
        // Mostly right, so that what comes later is reached too.
        if how & 0xe0 == 0xe0 {
            let (raw, rest) = input.split_first_chunk::<16>()?;
            header = Header::read_from_bytes(raw).ok()?;
            input = rest;
        }
        let descriptors = vec![socket.as_fd(); usize::from(how & 3) / 2];
        socket.send(&header, &[payload], &descriptors).ok()?;
    }
    None
}

pub fn feed(input: &[u8]) {
    let read = RegisterRead::new(7, 0, 0x1018, Width::Word);
    if let Ok(value) = read.value(input) {
        assert_eq!(value.to_le_bytes(), input[32..]);
    }
    let _ = RegisterValue::write(7, 0, 4, Width::Word, 5).written(input);
    let Ok((ours, theirs)) = UnixStream::pair() else {
        return;
    };
    let sockets = [ours, theirs].map(|end| Socket::new(OwnedFd::from(end), PATIENCE));
    let [Ok(ours), Ok(theirs)] = sockets else {
        return;
    };
    let request = Request {
        name: name_field("nic").expect("a name"),
        class: 2,
        subclass: 0,
        progif: 0,
        bars: 1,
        vendor: 0x8086,
        device: 0x10fb,
        flags: 1,
    };
    let input = input.to_vec();
    let answering = thread::spawn(move || device(&theirs, &input));
    match attach(0, &request, ours) {
        Ok((device, _)) => assert!(device.info.bar_bytes[0] > 0),
        Err(reason) => assert!(!reason.to_string().contains(char::is_control)),
    }
    answering.join().expect("the device does not panic");
    let _ = read.as_bytes();
}
